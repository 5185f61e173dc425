"""`repair`: site by site, in the order of the forward pass, what is left makes up for what is gone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from inspect import signature
from itertools import accumulate
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from kheads.anatomy import LocatedSite, in_forward_order, is_gated, locate, locate_feeds, unwrap
from kheads.anatomy.discovery import PARTS
from kheads.surgery.repair.least_squares import Rows, Sums, choose
from kheads.surgery.repair.memory import Aside, give_back
from kheads.surgery.repair.passes import Pass, Stop, stopping
from kheads.surgery.repair.proof import Proof, prove, scale_of
from kheads.surgery.repair.record import Repair, RepairedSite
from kheads.surgery.repair.tokens import counted

Batch = Mapping[str, Any]
Progress = Callable[[Sequence[str]], Iterable[str]]

HELD_OUT = 4  # one example in so many, from the second on, chooses the ridge
NO_BETTER = "no fit was better on the held-out examples"
ENOUGH = 1e-12  # a missing share of the squares below which a site follows the original already


@torch.no_grad()
def repair(
    model: nn.Module,
    original: nn.Module,
    batches: Iterable[Batch],
    parts: str = "all",
    progress: Progress | None = None,
) -> Repair:
    """Refits, in place, the output projections that a cut has left, so that the model follows the original again.

    Each projection, in the order of the forward pass, gets the weights with which the residual stream after it comes
    nearest to the original's, by least squares towards its old weights. How strongly the old weights hold, and whether
    the site is refitted at all, is chosen on held-out examples. No labels and no gradients are needed. It takes one
    forward pass of each model; the activations of one layer are held for all batches at once.

    Args:
        model: the model from which heads or neurons were removed.
        original: the model before, unchanged: `copy.deepcopy(model)` before `remove`, or loaded again.
        batches: what the model takes, as mappings of tensors; labels are not used. Some hundred examples of the kind
            that the model is used on are enough. Padding does not count.
        parts: "heads" (outputs of attentions), "ffn" (second projections of feed-forward layers) or "all".
        progress: goes through the sites and shows how far it is, as tqdm does.
    """
    start = time.perf_counter()
    given = _checked(batches)
    pruned, whole = (_side(one, given, parts) for one in (model, original))
    _refuse_strangers(pruned, whole)
    with ExitStack() as stack:
        for side in (pruned, whole):
            stack.enter_context(_in_use(side.model))
        stack.enter_context(torch.random.fork_rng(devices=[]))
        plan, left = _plan(pruned, whole)
        fitted, tokens = _Fit(pruned, whole, given, plan).run(progress or iter)
    sites = tuple({**left, **fitted}[site] for site in pruned.located if site in {**left, **fitted})
    return Repair(sites, tokens, time.perf_counter() - start)


@dataclass(frozen=True)
class _Side:
    """One of the two models, with its sites by output projection and its batches on its device."""

    model: nn.Module
    located: Mapping[str, LocatedSite]
    attentions: tuple[LocatedSite, ...]
    batches: tuple[Batch, ...]

    def projection(self, site: str) -> Any:
        return self.model.get_submodule(site)


def _side(model: nn.Module, batches: Sequence[Batch], parts: str) -> _Side:
    if parts not in PARTS:
        raise ValueError(f"`parts` must be one of {', '.join(map(repr, PARTS))}; got {parts!r}.")
    model = unwrap(model)
    if is_gated(model):
        raise RuntimeError("The model is gated; leave `gated(...)` or `detach` its gates before the repair.")
    heads = locate(model)
    feeds = locate_feeds(model)
    located = in_forward_order(model, [*(heads if parts != "ffn" else ()), *(feeds if parts != "heads" else ())])
    inputs = tuple(_taken(model, batch) for batch in batches)
    return _Side(model, {found.site.output: found for found in located}, heads, inputs)


def _checked(batches: Iterable[Batch]) -> tuple[Batch, ...]:
    given = tuple(batches)
    for batch in given:
        if not isinstance(batch, Mapping):
            raise TypeError(f"`batches` must be mappings of tensors that the model takes; got {type(batch).__name__}.")
    examples = sum(_examples(batch) for batch in given)
    if examples < 2:
        raise ValueError(f"`batches` must hold two examples at least, one of them to check the fit; got {examples}.")
    return given


def _examples(batch: Batch) -> int:
    return next((len(value) for value in batch.values() if isinstance(value, Tensor) and value.dim()), 0)


def _taken(model: Any, batch: Batch) -> Batch:
    """The batch as the model takes it: on its device, without a cache, and without labels that it does not need."""
    takes = signature(model.forward).parameters
    device = next(model.parameters()).device
    made = "decoder_input_ids" in takes and not {"decoder_input_ids", "decoder_inputs_embeds"} & set(batch)
    inputs = {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in batch.items()
        if name != "labels" or made
    }
    return {**inputs, "use_cache": False} if "use_cache" in takes else inputs


def _refuse_strangers(pruned: _Side, whole: _Side) -> None:
    """Refuses an original that the model cannot have been cut from."""
    if type(pruned.model) is not type(whole.model):
        raise ValueError(
            f"`original` must be the model before the cut; it is a {type(whole.model).__name__}, and the model is a "
            f"{type(pruned.model).__name__}."
        )
    if list(pruned.located) != list(whole.located):
        raise ValueError("`original` must be the model before the cut; it has other sites than the model.")
    for site, found in pruned.located.items():
        own, other = found.output, whole.projection(site)
        if own.weight is other.weight or (own.weight.numel() and own.weight.data_ptr() == other.weight.data_ptr()):
            raise ValueError(
                "`original` shares its weights with the model; pass a copy that was made before the cut: "
                "`original = copy.deepcopy(model)`."
            )
        count = whole.located[site].site.count
        if _outputs(own) != _outputs(other) or found.site.count > count:
            raise ValueError(
                f"`original` must be the model before the cut; {found.site.name} has {found.site.count} blocks and "
                f"{_outputs(own)} outputs in the model, and {count} and {_outputs(other)} in the original."
            )


@contextmanager
def _in_use(model: nn.Module) -> Iterator[None]:
    """Eval mode, and then every module's mode as it was."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _plan(pruned: _Side, whole: _Side) -> tuple[dict[str, Proof], dict[str, RepairedSite]]:
    """The sites to fit with what is known of their stream, in the order in which they run; and those left alone."""
    proofs = prove(pruned.model, list(pruned.located.values()), pruned.batches[0])
    others = prove(whole.model, list(whole.located.values()), whole.batches[0])
    shared = _shared(pruned.model)
    plan: dict[str, Proof] = {}
    left: dict[str, RepairedSite] = {}
    for site, proof in proofs.items():
        agreed = proof if proof.stream == others[site].stream else replace(proof, stream=None, why=others[site].why)
        why = _why_not(pruned.located[site], agreed, others[site], shared)
        if why:
            left[site] = RepairedSite(pruned.located[site].site.name, _target(agreed), why=why)
        else:
            plan[site] = agreed
    return plan, left


def _why_not(found: LocatedSite, proof: Proof, other: Proof, shared: set[int]) -> str:
    """Why a site cannot be fitted, or nothing."""
    if not proof.runs or not other.runs:
        return "it did not run on the first batch"
    if max(proof.runs, other.runs) > 1:
        return "it runs more than once in a forward pass"
    if id(found.output.weight) in shared or id(found.output.bias) in shared:
        return "its weights are shared with another module"
    if not _width(found) and found.output.bias is None:
        return "it is empty and has no bias"
    return ""


def _shared(model: nn.Module) -> set[int]:
    """Parameters that have more than one name."""
    names = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    return {parameter for parameter, count in names.items() if count > 1}


def _target(proof: Proof) -> str:
    return "output" if proof.stream is None else "stream"


class _Fit:
    """Fits the sites of a plan one after another, with all batches waiting at each."""

    def __init__(self, pruned: _Side, whole: _Side, given: Sequence[Batch], plan: Mapping[str, Proof]):
        self.pruned, self.whole, self.given, self.plan = pruned, whole, given, plan
        self.tokens = 0
        self._old = Aside()

    def run(self, progress: Progress) -> tuple[dict[str, RepairedSite], int]:
        """The record of every site, and the number of rows at the first."""
        passes = [
            (Pass(self.whole.model, other), Pass(self.pruned.model, own))
            for other, own in zip(self.whole.batches, self.pruned.batches, strict=True)
        ]
        with ExitStack() as stack:
            for side in (self.whole, self.pruned):
                stack.enter_context(stopping(side.model, self.plan, side.attentions))
            for each in (one for pair in passes for one in pair):
                stack.callback(each.close)
            stack.callback(self._old.close)
            try:
                return {site: self._fit(site, passes) for site in progress(list(self.plan))}, self.tokens
            except BaseException:
                self._old.restore()
                raise

    def _fit(self, site: str, passes: Sequence[tuple[Pass, Pass]]) -> RepairedSite:
        found, proof = self.pruned.located[site], self.plan[site]
        stops: list[tuple[Stop, Stop]] = []
        for number, (other, own) in enumerate(passes):
            there, here = (_arrived(one.advance(), site, number) for one in (other, own))
            stops.append((there, here))
        give_back()
        fitted, held_out, tokens = self._summed(found, stops)
        self.tokens = self.tokens or tokens
        if not tokens:
            return RepairedSite(found.site.name, _target(proof), why="no token of the batches counts there")
        record, sums = _chosen(found.site.name, _target(proof), fitted, held_out)
        if record.ridge is not None:
            record = self._apply(found, sums, record)
        for _, here in stops:
            here.refitted = record.ridge is not None
        return replace(record, why=record.why or proof.why)

    def _summed(self, found: LocatedSite, stops: Sequence[tuple[Stop, Stop]]) -> tuple[Sums, Sums | Rows, int]:
        """The sums over the rows to fit; the held-out rows, or their sums if these are many; and how many in all."""
        device = _device(found.output.weight)
        size = (_width(found), _outputs(found.output), found.output.bias is not None, device)
        firsts = accumulate((len(here.input) for _, here in stops), initial=0)
        held = [_held_out(here.input, first).to(device) for (_, here), first in zip(stops, firsts, strict=False)]
        most, tokens = sum(int(which.sum()) for which in held), 0
        fitted = Sums.none(*size)
        held_out: Sums | Rows = Rows.none(most, *size) if most < _width(found) else Sums.none(*size)
        for number, (there, here) in enumerate(stops):
            rows = self._rows(found, here, there, number)
            out = held[number][rows.keep]
            fitted = fitted.add(rows.x[~out], rows.missing[~out], rows.wanted[~out])
            held_out = held_out.add(rows.x[out], rows.missing[out], rows.wanted[out])
            tokens += len(rows.x)
        return fitted, held_out, tokens

    def _rows(self, found: LocatedSite, here: Stop, there: Stop, number: int) -> _Rows:
        """What goes into the projection and what is missing in what comes out, for the tokens that count."""
        device = _device(here.input)
        shape = tuple(here.input.shape[:-1])
        keep = counted(here.site, shape, self.given[number], self.pruned.model, here.masks).to(device)

        def rows(value: Tensor) -> Tensor:
            return value.flatten(0, -2).to(device)[keep].double()

        x, given, wanted = rows(here.input)[:, : _width(found)], rows(here.output), rows(there.output)
        proof = self.plan[here.site]
        if proof.stream is not None and here.stream is not None and there.stream is not None:
            own, other = (self._scale(side, proof, device) for side in (self.pruned, self.whole))
            after = rows(there.stream) + other * wanted
            wanted = torch.where(own.abs() > 1e-6, (after - rows(here.stream)) / own, given)
        return _Rows(x, wanted - given, wanted, keep)

    def _scale(self, side: _Side, proof: Proof, device: torch.device) -> Tensor:
        assert proof.stream is not None
        return torch.as_tensor(scale_of(side.model, proof.layer, proof.stream)).to(device, torch.float64)

    def _apply(self, found: LocatedSite, sums: Sums, record: RepairedSite) -> RepairedSite:
        """Gives the projection its new weights, if they are better as its dtype has them, too."""
        assert record.ridge is not None
        lower = sums.factor(record.ridge)
        if lower is None:
            return replace(record, ridge=None, held_out_after=record.held_out_before, why=NO_BETTER)
        projection = found.output
        old = [(part, part.detach().clone()) for part in (projection.weight, projection.bias) if part is not None]
        self._old.keep(*(part for part, _ in old))
        error = sums.error((outputs, _add(found, outputs, added)) for outputs, added in sums.solved(lower))
        if error >= sums.rr:
            for part, value in old:
                part.copy_(value)
            return replace(record, ridge=None, why="the new weights are no better once rounded to its dtype")
        return replace(record, after=sums.relative(error))


@dataclass(frozen=True)
class _Rows:
    """The rows of one batch at a site, in float64, and which of all they are."""

    x: Tensor
    missing: Tensor
    wanted: Tensor
    keep: Tensor


def _arrived(stop: Stop | None, site: str, number: int) -> Stop:
    if stop is None or stop.site != site:
        where = "its end" if stop is None else stop.site
        raise ValueError(
            f"Batch {number} comes to {where} where the first comes to {site}; give batches with the same inputs."
        )
    return stop


def _held_out(x: Tensor, examples: int) -> Tensor:
    """Which rows of the flattened input belong to examples that are held out."""
    which = (torch.arange(len(x)) + examples) % HELD_OUT == 1
    return which.repeat_interleave(x.shape[1:-1].numel())


def _chosen(name: str, target: str, fitted: Sums, held_out: Sums | Rows) -> tuple[RepairedSite, Sums]:
    """The record of a site, with the ridge to fit it with, if it is to be fitted; and the sums over all rows."""
    before = held_out.relative(held_out.rr)
    if not isfinite(fitted.rr + held_out.rr + fitted.yy + held_out.yy):
        return RepairedSite(name, target, why="what it gives or should give is not finite on some batch"), fitted
    follows = fitted.rr + held_out.rr <= ENOUGH * (fitted.yy + held_out.yy)
    ridge, left_over = (None, 0.0) if follows else choose(fitted, held_out)
    after = held_out.relative(left_over)
    sums = held_out.into(fitted)
    error = sums.relative(sums.rr)
    record = RepairedSite(name, target, None, error, error, before, before)
    if follows:
        return replace(record, why="it follows the original as it is"), sums
    if ridge is None:
        return replace(record, why=NO_BETTER), sums
    return replace(record, ridge=ridge, held_out_after=after), sums


def _add(found: LocatedSite, outputs: slice, added: Tensor) -> Tensor:
    """Adds to weights and bias of some outputs; returns what was added once rounded to their dtypes."""
    projection, width = found.output, _width(found)
    weight = projection.weight if _inputs_first(projection) else projection.weight.T
    parts = [(weight[:width, outputs], added[:width])]
    if projection.bias is not None:
        parts.append((projection.bias[outputs].unsqueeze(0), added[width:]))
    rounded = []
    for old, more in parts:
        before = old.detach().to(more.device, torch.float64)
        old.copy_(before + more)
        rounded.append(old.to(more.device, torch.float64) - before)
    return torch.cat(rounded)


def _width(found: LocatedSite) -> int:
    """How many inputs the projection has that are not silent."""
    return found.site.count * found.site.width


def _outputs(projection: Any) -> int:
    return int(projection.weight.shape[1 if _inputs_first(projection) else 0])


def _inputs_first(projection: Any) -> bool:
    return hasattr(projection, "nf")  # Conv1D


def _device(tensor: Tensor) -> torch.device:
    """Where float64 is to be had: Apple's GPUs have none."""
    return torch.device("cpu") if tensor.device.type == "mps" else tensor.device
