"""The job of a preview, settled, with its data and model; what cannot be previewed is refused."""

from __future__ import annotations

from dataclasses import replace

from transformers import set_seed

from kheads.lab.jobs.job import AMOUNTS, Job, refuse_unread, unread
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.jobs.running import prepare
from kheads.methods.base import Method
from kheads.methods.phases import Estimate, Outline
from kheads.methods.registry import METHODS

TRAINED = Outline(trained=True)
# Fields of a job that a preview does not read, with the reason in a few words.
UNREAD = {
    "fresh": "a preview is of the model as it is",
    "pipelined": "no gates learn in a preview",
    "repair": "a preview is of repaired models",
}


def ready(job: Job, who: str = "A preview") -> tuple[Job, Prepared]:
    """Loads the data and the model of a job, and settles the job; refuses what cannot be previewed.

    Args:
        job: the model, its data, the method.
        who: what needs them, for the errors.
    """
    job = _settled(job)
    set_seed(job.seed)
    prepared = prepare(job)
    if not prepared.able:
        raise ValueError(
            f"{who} needs a model that can do the task already, and {job.model} has to be trained for it first; "
            f"`kheads prune {job.model} -k K` trains and prunes it in one run."
        )
    if not prepared.train or not prepared.evals:
        raise ValueError(f"{who} needs data to score heads with and to evaluate on; give `train` and `eval`.")
    return job, prepared


def _settled(job: Job) -> Job:
    """The job on a trained model, if it asks for no more than a preview can do."""
    refuse_unread(job, UNREAD)
    if (named := next((name for name in AMOUNTS if getattr(job, name) is not None), None)) is not None:
        if named == "k":
            raise ValueError("Name the K of a preview with -k, as often as you like, and not with --set.")
        raise ValueError(f"`{named}` has no effect here: a preview is of several budgets; leave it out.")
    if job.constraints:
        raise ValueError(f"`{min(job.constraints)}` has no effect here: a preview has no constraints; leave it out.")
    job = replace(job, k=1, trained=True)  # any K: the method is the same for all
    method = job.chosen()
    if method is None or not _orders_heads(method):
        known = ", ".join(name for name, cls in METHODS.items() if _orders_heads(cls.configured(outline=TRAINED)))
        raise ValueError(
            f"The method of a preview must score heads once for every K, as {known} do; got {job.method_name!r}."
        )
    refuse_unread(replace(job, k=None), unread(job))
    return job


def _orders_heads(method: Method) -> bool:
    """Whether it scores the heads of a trained model, and its scores serve every K."""
    scores = any(isinstance(phase, Estimate) for phase in method.phases(TRAINED))
    return scores and method.serves_every_k(constrained=False, evaluated=False)
