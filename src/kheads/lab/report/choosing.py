"""Which K to take: the smallest that is good enough, or the largest that a budget allows, from what was measured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kheads.lab.report.efficiency import by_k, fitting, interpolate, mean
from kheads.lab.report.pooling import by_first, count_of
from kheads.lab.report.results import Results
from kheads.lab.terminal import metric as written
from kheads.measuring.statistics import Interval

SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9}


@dataclass(frozen=True)
class Option:
    """One K with the method that is best there.

    Attributes:
        k: the number of heads.
        method: the best method's name; None where no run has that K.
        quality: its headline metric over seeds.
        parameters: of the model with K heads; None where not known.
        ms: milliseconds of a batch; None where not measured.
    """

    k: int
    method: str | None
    quality: Interval | None
    parameters: float | None
    ms: float | None


@dataclass(frozen=True)
class Choice:
    """The K to take, why, and what else there was."""

    option: Option
    why: str
    options: tuple[Option, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data; what is not known is None."""
        return {"chosen": _plain(self.option), "why": self.why, "options": [_plain(option) for option in self.options]}


def options(results: Results, method: str | None = None) -> tuple[Option, ...]:
    """Every K that was run, or measured where nothing was run, with the best method there; rising K.

    Args:
        results: what was measured.
        method: only this method, by its key; the best one at each K if not given.
    """
    means = {variant: by_first(results.qualities(runs)) for variant, runs in results.compared.items()}
    keys = sorted({variant.key for variant in means})
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
    return tuple(found)


def at_least(results: Results, quality: float, method: str | None = None) -> Choice:
    """The smallest K whose mean quality is good enough."""
    found = [option for option in options(results, method) if option.quality is not None]
    sign, name = results.sign, results.metric
    if not found:
        raise ValueError("No run says what quality a K reaches; run `kheads sweep` first.")
    if quality > 1 and all(option.quality and option.quality.mean <= 1 for option in found):
        raise ValueError(
            f"`--at-least` must be a share, because {name} is one: {quality / 100:g} rather than {quality:g}."
        )
    good = [option for option in found if option.quality and sign * option.quality.mean >= sign * quality]
    wanted = written(name, quality)
    if not good:
        best = max(found, key=lambda option: sign * (option.quality.mean if option.quality else math.nan))
        raise ValueError(f"No K that was run reaches {name} {wanted}; the best is {_told(best, name)}.")
    option = good[0]
    why = [f"The smallest K whose mean {name} on {results.evaluation} reaches {wanted}: {_told(option, name)}."]
    below = [other for other in found if other.k < option.k]
    if below:
        why.append(f"The next smaller one does not: {_told(below[-1], name)}.")
    above = [str(other.k) for other in found if other.k > option.k and other not in good]
    if above:
        why.append(f"Careful: larger ones that do not reach it are K = {', '.join(above)}.")
    why.append(_sureness(option, quality, sign, wanted))
    return Choice(option, " ".join(why), tuple(found))


def within(results: Results, most: float, what: str, method: str | None = None) -> Choice:
    """The largest K within a budget.

    Args:
        results: what was measured.
        most: the budget.
        what: "ms" or "parameters".
        method: as for `options`.
    """
    found = options(results, method)
    unit, form = {"ms": ("milliseconds", ".4g"), "parameters": ("parameters", ",.0f")}[what]
    known = [option for option in found if getattr(option, what) is not None]
    if not known:
        raise ValueError(f"The results do not say how many {unit} a K takes; {_remedy(results, what)}.")
    good = [option for option in known if getattr(option, what) <= most]
    if not good:
        least = min(known, key=lambda option: getattr(option, what))
        raise ValueError(
            f"No K fits into {most:{form}} {unit}; the least is {getattr(least, what):{form}} at K = {least.k}."
        )
    option = max(good, key=lambda one: one.k)
    why = [f"The largest K within {most:{form}} {unit}: {getattr(option, what):{form}}."]
    beyond = [other for other in known if other.k > option.k]
    if beyond:
        why.append(f"The next larger one, K = {beyond[0].k}, takes {getattr(beyond[0], what):{form}}.")
    if option.quality is not None:
        why.append(f"Best {results.metric} on {results.evaluation} there: {_told(option, results.metric)}.")
    if what == "ms":
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
        return f"K = {option.k}"
    ends = (
        f" [{written(metric, interval.low)}, {written(metric, interval.high)}]" if math.isfinite(interval.low) else ""
    )
    seeds = count_of(interval.count, "seed")
    return f"K = {option.k}, {option.method}, {written(metric, interval.mean)}{ends} over {seeds}"


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
    if option.quality is not None:
        plain["quality"] = {
            name: value if math.isfinite(value) else None for name, value in dataclasses.asdict(option.quality).items()
        }
    return plain
