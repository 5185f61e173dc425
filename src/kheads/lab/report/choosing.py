"""Which K or budget to take: the smallest that is good enough, or the largest that fits, from what was measured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kheads.lab.report.budget_quality import spots
from kheads.lab.report.efficiency import by_k, fitting, interpolate, mean
from kheads.lab.report.pooling import by_first, count_of
from kheads.lab.report.results import Results, Run
from kheads.lab.terminal import metric as written
from kheads.measuring.statistics import Interval

SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9}


@dataclass(frozen=True)
class Option:
    """One K, or one budget, with the method that is best there.

    Attributes:
        k: the number of heads; of a budget those that it left, mean over seeds.
        method: the best method's name; None where no run has that K.
        quality: its headline metric over seeds.
        parameters: of the model with K heads; None where not known.
        ms: milliseconds of a batch; None where not measured.
        budget: what was asked for, in words; None where heads were counted.
    """

    k: int
    method: str | None
    quality: Interval | None
    parameters: float | None
    ms: float | None
    budget: str | None = None

    @property
    def name(self) -> str:
        """Such as: K = 12, or: 2 times as fast."""
        return f"K = {self.k}" if self.budget is None else self.budget


@dataclass(frozen=True)
class Choice:
    """The K or budget to take, why, and what else there was."""

    option: Option
    why: str
    options: tuple[Option, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data; what is not known is None."""
        return {"chosen": _plain(self.option), "why": self.why, "options": [_plain(option) for option in self.options]}


def options(results: Results, method: str | None = None) -> tuple[Option, ...]:
    """Every K that was run, or measured where nothing was run, with the best method there; rising K.

    Budgets that were run stand among them, one for each method, by rising size.

    Args:
        results: what was measured.
        method: only this method, by its key; the best one at each K if not given.
    """
    means = {variant: by_first(results.qualities(runs)) for variant, runs in results.compared.items()}
    keys = sorted({variant.key for variant in means} | {run.key for run in results.budgeted})
    if method is not None and method not in keys:
        raise ValueError(f"`--method` must be one of {', '.join(keys) or '(none: there are no runs)'}; got {method!r}.")
    chosen = {results.look(variant).label: found for variant, found in means.items() if method in (None, variant.key)}
    measured = fitting(results) if results.runs else next(iter(results.efficiency), None)
    rows: Sequence[Mapping[str, Any]] = measured["rows"] if measured else []
    sizes = {run.k: float(run.record["after"]["parameters"]) for run in results.runs}
    sizes = {**{k: mean(values) for k, values in by_k(rows, "parameters").items()}, **sizes}
    times = {k: mean(values) for k, values in by_k(rows, "ms").items()}
    ks = sorted({k for found in chosen.values() for k in found}) or sorted(by_k(rows, "speedup"))
    found = []
    for k in ks:
        name, quality = _best(chosen, k, results.sign)
        found.append(Option(k, name, quality, interpolate(sizes, k), interpolate(times, k)))
    if not results.budgeted:
        return tuple(found)
    return tuple(sorted((*found, *_budgets(results, method)), key=lambda option: option.parameters or 0.0))


def _budgets(results: Results, method: str | None) -> list[Option]:
    """What every budget came to; its size and time are those of its records."""
    kept = [spot for spot in spots(results) if spot.runs[0].budget and method in (None, spot.runs[0].key)]
    return [
        Option(
            round(mean([float(run.record["after"]["heads"]) for run in spot.runs])),
            spot.look.label,
            spot.quality,
            mean([float(run.record["after"]["parameters"]) for run in spot.runs]),
            _milliseconds(spot.runs),
            spot.asked,
        )
        for spot in kept
    ]


def _milliseconds(runs: Sequence[Run]) -> float | None:
    """What a batch was found to take; None where no time was asked for."""
    timed = [run.report.get("budget") or {} for run in runs if run.budget and run.budget.name == "max_ms"]
    found = [float(one["reached"]["value"]) for one in timed if "reached" in one]
    return mean(found) if found else None


def at_least(results: Results, quality: float, method: str | None = None) -> Choice:
    """The smallest K, or the smallest model where budgets were run, whose mean quality is good enough."""
    found = [option for option in options(results, method) if option.quality is not None]
    sign, name = results.sign, results.metric
    if not found:
        raise ValueError("No run says what quality a K reaches; run `kheads sweep` first.")
    thing = _thing(results)
    if quality > 1 and all(option.quality and option.quality.mean <= 1 for option in found):
        raise ValueError(
            f"`--at-least` must be a share, because {name} is one: {quality / 100:g} rather than {quality:g}."
        )
    good = [option for option in found if option.quality and sign * option.quality.mean >= sign * quality]
    wanted = written(name, quality)
    if not good:
        best = max(found, key=lambda option: sign * (option.quality.mean if option.quality else math.nan))
        raise ValueError(f"No {thing} that was run reaches {name} {wanted}; the best is {_told(best, name)}.")
    option = good[0]
    why = [f"The smallest {thing} whose mean {name} on {results.evaluation} reaches {wanted}: {_told(option, name)}."]
    place = found.index(option)
    below = found[:place]
    if below:
        why.append(f"The next smaller one does not: {_told(below[-1], name)}.")
    above = [other for other in found[place + 1 :] if other not in good]
    if above:
        why.append(f"Careful: larger ones that do not reach it are {_names(above)}.")
    why.append(_sureness(option, quality, sign, wanted))
    return Choice(option, " ".join(why), tuple(found))


def within(results: Results, most: float, what: str, method: str | None = None) -> Choice:
    """The largest K, or the largest model where budgets were run, within a limit.

    Args:
        results: what was measured.
        most: the limit.
        what: "ms" or "parameters".
        method: as for `options`.
    """
    found = options(results, method)
    unit, form = {"ms": ("milliseconds", ".4g"), "parameters": ("parameters", ",.0f")}[what]
    known = [option for option in found if getattr(option, what) is not None]
    if not known:
        raise ValueError(f"The results do not say how many {unit} a {_thing(results)} takes; {_remedy(results, what)}.")
    good = [option for option in known if getattr(option, what) <= most]
    if not good:
        least = min(known, key=lambda option: getattr(option, what))
        raise ValueError(
            f"No {_thing(results)} fits into {most:{form}} {unit}; the least is {getattr(least, what):{form}} at "
            f"{least.name}."
        )
    option = good[-1]
    why = [f"The largest {_thing(results)} within {most:{form}} {unit}: {getattr(option, what):{form}}."]
    beyond = known[known.index(option) + 1 :]
    if beyond:
        why.append(f"The next larger one, {beyond[0].name}, takes {getattr(beyond[0], what):{form}}.")
    if option.quality is not None:
        why.append(f"Best {results.metric} on {results.evaluation} there: {_told(option, results.metric)}.")
    if what == "ms" and option.budget is None:
        why.append(_timing(results, option.k))
    return Choice(option, " ".join(why), tuple(found))


def parse_count(text: str) -> float:
    """80M, 1.2B, 500k or a plain number."""
    number, factor = (text[:-1], SUFFIXES[text[-1].lower()]) if text[-1:].lower() in SUFFIXES else (text, 1.0)
    try:
        value = float(number.replace(",", "").replace("_", "")) * factor
    except ValueError:
        value = math.nan
    if not value > 0:
        raise ValueError(f"`--max-params` must be a number such as 80M or 22500000; got {text!r}.")
    return value


def _best(means: Mapping[str, Mapping[int, Interval]], k: int, sign: int) -> tuple[str | None, Interval | None]:
    there = [(label, found[k]) for label, found in means.items() if k in found]
    return max(there, key=lambda item: sign * item[1].mean) if there else (None, None)


def _told(option: Option, metric: str) -> str:
    """Such as: K = 12, Joint DSP, 81.2 % [80.6 %, 81.9 %] over 3 seeds."""
    interval = option.quality
    if interval is None:
        return option.name
    ends = (
        f" [{written(metric, interval.low)}, {written(metric, interval.high)}]" if math.isfinite(interval.low) else ""
    )
    seeds = count_of(interval.count, "seed")
    return f"{option.name}, {option.method}, {written(metric, interval.mean)}{ends} over {seeds}"


def _thing(results: Results) -> str:
    return "model" if results.budgeted else "K"


def _names(found: Sequence[Option]) -> str:
    """Such as: K = 12, 24; or one by one where there are budgets."""
    if all(option.budget is None for option in found):
        return f"K = {', '.join(str(option.k) for option in found)}"
    return ", ".join(option.name for option in found)


def _sureness(option: Option, quality: float, sign: int, wanted: str) -> str:
    interval = option.quality
    if interval is None or not math.isfinite(interval.low):
        return "One seed gives no interval, so another one may not reach it."
    worst = interval.low if sign > 0 else interval.high
    good = sign * worst >= sign * quality
    if interval.is_range:
        told = "Both of its seeds reach it" if good else "Only one of its two seeds reaches it"
        return f"{told}; in brackets is their range, and no interval."
    if good:
        return "Its whole 95 % interval is good enough."
    return f"Its 95 % interval reaches beyond {wanted}, so another seed may not."


def _timing(results: Results, k: int) -> str:
    measured = fitting(results) or results.efficiency[0]
    times = by_k(measured["rows"], "ms").get(k)
    size = f"batch {measured['batch']} of {measured['length']} tokens"
    if times is None:
        return f"Its time is on a straight line between measured K; {size}."
    return f"{min(times):.4g} to {max(times):.4g} ms over {len(times)} random masks; {size}."


def _remedy(results: Results, what: str) -> str:
    if what == "parameters":
        return "run `kheads sweep` first"
    if results.runs and results.efficiency and fitting(results) is None:
        return f"times were measured on another model than that of the runs ({results.total} heads)"
    return "measure the efficiency of this model, with milliseconds in efficiency.json"


def _plain(option: Option) -> dict[str, Any]:
    plain = dataclasses.asdict(option)
    if option.budget is None:
        del plain["budget"]
    if option.quality is not None:
        plain["quality"] = {
            name: value if math.isfinite(value) else None for name, value in dataclasses.asdict(option.quality).items()
        }
    return plain
