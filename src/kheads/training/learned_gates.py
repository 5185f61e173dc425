"""Gates whose weights are learned: a method draws them at every optimizer step."""

from __future__ import annotations

from torch import Tensor, nn

from kheads.methods.base import Goal, Learned, Moment
from kheads.surgery.gates import Gates

CLIP = 1.0


class LearnedGates(Gates):
    """Gates that a learned method draws, at the moment the trainer is at."""

    def __init__(self, method: Learned, goal: Goal, seed: int):
        start = method.initial(goal.total, seed)
        super().__init__(goal.sites, goal.budget, self._draw, start, goal.constraints, goal.costs)
        self.method, self.goal, self.seed = method, goal, seed
        self.moment = Moment(0, 1, seed)

    def set_moment(self, step: int, total: int) -> None:
        """Tells the gates how far training is."""
        self.moment = Moment(step, total, self.seed)

    def _draw(self, w: Tensor) -> Tensor:
        return self.method.gates(w, self.goal, self.moment)

    def clip(self) -> None:
        """Clips the gradient of the weights on their own: a spike there never scales the model's update."""
        if self.w.grad is None:
            return
        if not self.w.grad.isfinite().all():
            raise FloatingPointError("the gradient of the gates became non-finite")
        nn.utils.clip_grad_norm_([self.w], CLIP)

    def penalty(self) -> Tensor | None:
        """What the method adds to the loss."""
        return self.method.penalty(self.w) if self.goal.costs is None else self.method.penalty(self.w, self.goal)

    def status(self) -> dict[str, float]:
        """The schedule, the largest gate of the last draw and the spread of the weights."""
        status = self.method.status(self.goal, self.moment)
        if self._drawn is not None:
            status["largest_gate"] = float(self._drawn.detach().max())
        return {**status, "w_spread": float(self.w.detach().std(correction=0))}


def schedule(name: str, steps: int, step: int) -> float:
    """What the learning rate of the weights is multiplied with at a step: 1, or linear to 0."""
    return 1.0 if name == "constant" else max(0.0, 1 - step / max(steps, 1))
