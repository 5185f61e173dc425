"""The optimal brain surgeon on heads: what a head costs once the others have been refitted to stand in for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from kheads.blocks.fields import Positive, Steps
from kheads.blocks.site import Site, spans
from kheads.methods.base import FREE, Estimated, Evidence, Goal
from kheads.methods.finite import check_gradient, check_told_apart
from kheads.methods.look import Look
from kheads.methods.phases import GENTLE, Cut, Estimate, Outline, Phase, Repair, Train
from kheads.methods.seen import Seen, spills, start
from kheads.surgery.repair.least_squares import cholesky_in_place
from kheads.surgery.repair.memory import give_back
from kheads.surgery.repair.tokens import counted

TURNS = 128  # in which a site of many blocks is emptied
TOGETHER = 256  # rows of a large matrix that are worked on at once
CROWDED = 0.7  # share of a site's rows that must be there, or the others are taken out


@dataclass(frozen=True)
class Surgeon(Estimated):
    """Removes heads one by one: always the one whose loss costs least once the others of its site make up for it.

    With X what goes into a site's output projection, W its weights and M the mean of g g' over tokens, g being the
    gradient of an example's loss by the site's output, removing the block S costs tr(M W_S' C W_S). C, the inverse of
    the block S of (X'X)^-1, is what the other blocks cannot tell of it, and M says how much the loss minds. Weights and
    (X'X)^-1 are updated after every removal, so the next one knows of it. The order serves every K. Neurons are blocks
    of width 1; of many, a 128th of a site goes at once. Where blocks have prices, the one that costs the loss least for
    its price goes first.

    A trained model is cut at once, repaired, and trained on gently. One that is not is trained with all heads first.

    Differs: in optimal brain surgeon and ZipLM M is the identity inside a layer, and layers are weighed by trial.

    Attributes:
        before_cut: How much of the training comes before the cut, where the model is not trained already.
        rate: By what the learning rate is multiplied after the repair.
        ridge: What is added to the diagonal of X'X, as a share of its mean.
    """

    reference: ClassVar[str] = "after Hassibi and Stork 1993; Kurtic, Frantar and Alistarh 2023 (ZipLM)"
    idea: ClassVar[str] = "one cut by what refitted heads cannot make up for, a repair, then on with training"
    look: ClassVar[Look] = Look("Surgeon", slot=7, marker="triangle-up")

    before_cut: Steps = 2 / 3
    rate: Positive = GENTLE
    ridge: Positive = 1e-2

    def phases(self, outline: Outline) -> tuple[Phase, ...]:
        """One cut and its repair, with the training before it, after it, or both."""
        first = () if outline.trained else (Train(self.before_cut, stage="whole"),)
        return (*first, Estimate(), Cut(), Repair(), Train(stage="pruned", name="adapt", rate=self.rate))

    def serves_every_k(self, constrained: bool, evaluated: bool) -> bool:
        """The order never hears of K."""
        return True

    def passes(self, goal: Goal) -> int:
        """One, with all heads open."""
        return 1

    def estimate(self, model: nn.Module, goal: Goal, evidence: Evidence) -> Tensor:
        """One pass over the examples. Where blocks are counted, a score is how many go before; else loss per cost."""
        losses = torch.zeros(goal.total, dtype=torch.float64)
        seen = _looked_at(model, goal, evidence)
        for site, place in spans(goal.sites):
            prices = goal.prices[place].clamp(min=FREE)
            give_back()
            # The sums of wide sites are large, so they are not kept.
            losses[place] = _operated(_Patient(site, seen.pop(0), self.ridge, site.weight(model).detach()), prices)
        check_told_apart(losses)
        return losses if goal.costs is not None else losses.argsort(stable=True).argsort().double()


def _operated(patient: _Patient, prices: Tensor) -> Tensor:
    """What the loss gives for each block of a site, per cost, when its turn comes; never less than for those before.

    A block can go only after those before it, so it is as dear as the dearest of them: sorted by this, the blocks of
    all sites go in the order in which always the cheapest one is taken.
    """
    found, dearest = torch.zeros_like(prices), 0.0
    while patient.there.any():
        for block, cost in patient.remove(max(1, patient.count // TURNS)):
            # A hair more than the one before, so that the order within a site is never lost to a tie.
            dearest = max(dearest * (1 + 1e-12), cost / float(prices[block]))
            found[block] = dearest
    return found


class _Patient:
    """A site in the course of the operation.

    Rows of blocks that are gone stay for a while, because taking them out of large matrices costs more than they do.
    """

    def __init__(self, site: Site, seen: Seen, ridge: float, weight: Tensor):
        self.width, self.count = site.width, site.count
        self.index, self.there = torch.arange(site.count), torch.ones(site.count, dtype=torch.bool)
        self.cost = torch.zeros(0, dtype=torch.float64)
        if not site.count:
            return
        root = _root(seen.minded())
        self.inverse = seen.spread()
        self.inverse.diagonal().add_(ridge * self.inverse.diagonal().mean().clamp(min=1e-300))
        lower = cholesky_in_place(self.inverse)
        if lower is None:
            raise ValueError(f"What goes into {site.name} cannot be told apart; give more varied examples.")
        torch.cholesky_inverse(lower, out=lower)
        # (blocks * width, outputs), in the directions that the loss minds
        self.weight = torch.empty(len(lower), len(root), dtype=root.dtype)
        for own, given in zip(*(torch.split(one, TOGETHER) for one in (self.weight, weight.flatten(1).T)), strict=True):
            torch.mm(given.to(root), root, out=own)
        self._weigh()

    @property
    def left(self) -> list[int]:
        """The blocks that are still there."""
        return [int(block) for block in self.index[self.there]]

    @property
    def costs(self) -> list[float]:
        """What each of these costs."""
        return [float(cost) for cost in self.cost[self.there]]

    @property
    def least(self) -> float:
        """What its cheapest block costs."""
        return min(self.costs, default=float("inf"))

    def remove(self, several: int = 1) -> list[tuple[int, float]]:
        """Takes out the cheapest blocks and lets the others make up for them: (index in the site, cost) of each."""
        turns = self.cost.argsort(stable=True)[: min(several, int(self.there.sum()))]
        gone = [(int(self.index[turn]), float(self.cost[turn])) for turn in turns]
        rows = (turns.unsqueeze(1) * self.width + torch.arange(self.width)).flatten()
        columns = self.inverse[:, rows]
        shares = torch.linalg.solve(columns[rows], columns.T).T
        self.weight.addmm_(shares, self.weight[rows], alpha=-1)
        self.inverse.addmm_(shares, columns.T, alpha=-1)
        self.there[turns] = False
        self._weigh()
        return gone

    def _weigh(self) -> None:
        if self.width > 1 or self.there.double().mean() < CROWDED:
            self._tidy()
        blocks, outputs = len(self.index), self.weight.shape[1]
        if self.width == 1:
            # A difference of large numbers may end below 0, where a neuron is all but told by the others.
            own = self.inverse.diagonal().clamp(min=1e-300)
            squares = torch.linalg.vector_norm(self.weight, dim=1).square_()
            self.cost = torch.where(self.there, squares / own, torch.inf)
            return
        weights = self.weight.view(blocks, self.width, outputs)
        parts = self.inverse.view(blocks, self.width, blocks, self.width).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
        self.cost = (weights * torch.linalg.solve(parts, weights)).sum((1, 2))

    def _tidy(self) -> None:
        """Takes out the rows of blocks that are gone."""
        rows = self.there.repeat_interleave(self.width).nonzero().squeeze(1)
        self.weight = _taken(self.weight, rows, torch.arange(self.weight.shape[1]))
        self.inverse = _taken(self.inverse, rows, rows)
        self.index, self.there = self.index[self.there], self.there[self.there]


def _taken(matrix: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Some rows and columns of a matrix, both ascending, moved together in its own memory.

    A row never moves beyond where the next one lies.
    """
    flat, width = matrix.view(-1), len(columns)
    for number, part in enumerate(torch.split(rows, TOGETHER)):
        start = number * TOGETHER * width
        flat[start : start + len(part) * width] = matrix[part][:, columns].flatten()
    return flat[: len(rows) * width].view(len(rows), width)


def _root(products: Tensor) -> Tensor:
    """A with A A' = products."""
    values, vectors = torch.linalg.eigh(products)
    root: Tensor = vectors * values.clamp(min=0).sqrt()
    return root


def _looked_at(model: nn.Module, goal: Goal, evidence: Evidence) -> list[Seen]:
    """What one pass over the examples says of every site."""
    seen = start(goal.sites, model)
    training = model.training
    model.eval()
    try:
        large = spills(goal.sites, model)
        for number, batch in enumerate(evidence.batches("scoring heads"), 1):
            _look(model, goal.sites, evidence, batch, number, seen)
            if large:  # what is freed lies in pieces, and the next graph takes new memory beside them
                give_back()
    finally:
        model.train(training)
    if not any(sums.rows for sums in seen):
        raise ValueError("There are no examples to score heads with; give a non-empty data set.")
    return seen


def _look(
    model: nn.Module, sites: Sequence[Site], evidence: Evidence, batch: Any, number: int, seen: Sequence[Seen]
) -> None:
    """Adds what one batch says; nothing of its graph is left when the next one is made."""
    with _noted(model, sites) as notes, torch.enable_grad():
        mean, counts = evidence.loss(model, batch)
    outputs = [output for note in notes for _, output in note]
    gradients = iter(torch.autograd.grad(mean, outputs))
    for site, note, sums in zip(sites, notes, seen, strict=True):
        for hidden, _ in note:
            gradient = next(gradients)
            check_gradient(gradient, model, number)
            keep = counted(site.output, tuple(hidden.shape[:-1]), batch, model)
            width = site.count * site.width
            x = _rows(hidden, keep)[:, :width]
            sums.add(x, _rows(_by_example(gradient, counts), keep))


def _by_example(gradient: Tensor, counts: Tensor) -> Tensor:
    """The gradient of each example's own mean loss: the batch averages over all its items."""
    share = (counts.sum() / counts.clamp(min=1)).to(gradient)
    each, rest = divmod(len(gradient), len(share))  # windows of an image are rows of their own
    share = share.repeat_interleave(each) if not rest else share.mean().expand(len(gradient))
    return gradient * share.view(-1, *[1] * (gradient.dim() - 1))


def _rows(value: Tensor, keep: Tensor) -> Tensor:
    """The tokens that count, where float64 is to be had."""
    return value.detach().flatten(0, -2).cpu()[keep]


@contextmanager
def _noted(model: nn.Module, sites: Sequence[Site]) -> Iterator[list[list[tuple[Tensor, Tensor]]]]:
    """Notes what goes into every output projection and what comes out, in order, while the context is open."""
    notes: list[list[tuple[Tensor, Tensor]]] = [[] for _ in sites]

    def into(note: list[tuple[Tensor, Tensor]]) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
            # Of a model whose weights are frozen nothing has a gradient otherwise.
            output = output if output.requires_grad else output.requires_grad_()
            note.append((args[0].detach(), output))
            return output

        return hook

    handles = [
        site.projection(model).register_forward_hook(into(note)) for site, note in zip(sites, notes, strict=True)
    ]
    try:
        yield notes
    finally:
        for handle in handles:
            handle.remove()
