"""`price`: what every block of a model costs in the currency of a budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from kheads.anatomy import discover
from kheads.blocks.budget import Budget
from kheads.blocks.costs import Costs, counted, parameters
from kheads.blocks.site import Site, unwrap
from kheads.measuring.latency import times
from kheads.measuring.measurement import known_parts
from kheads.measuring.work import work
from kheads.storage.probe import probe_inputs


def price(
    model: nn.Module,
    budget: Budget,
    sites: Sequence[Site] | None = None,
    inputs: Mapping[str, Tensor] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Costs:
    """Finds out what every block of a model costs in the currency of the budget; `select` takes it as `costs`.

    Parameters are in the sites, and FLOPs are counted. Milliseconds are measured on the model's device: each kind of
    site against the number of its blocks, which takes seconds, once; tables lie in `$KHEADS_CACHE`, or else in
    `kheads/latency` of the user's cache.

    Args:
        model: a supported model; it is left as it was.
        budget: the amount, and the batch and threads that it is about.
        sites: the sites, as `discover` returned them; by default heads and, where kheads knows them, neurons.
        inputs: what `forward` takes, in place of made-up inputs of the budget's batch.
        tell: is called with a line of text before anything that takes a while.
    """
    found = discover(model, parts=known_parts(model)) if sites is None else sites
    if budget.currency == "heads":
        return counted(found)
    if budget.currency == "params":
        return parameters(found)
    _check(model, found)
    given = inputs_for(model, budget) if inputs is None else on_device(model, inputs)
    if budget.currency == "flops":
        return work(model, found, given)
    return times(model, found, given, budget.threads, tell or _silent)


def inputs_for(model: nn.Module, budget: Budget) -> dict[str, Tensor]:
    """Made-up inputs of the batch that a budget is about, on the model's device.

    Raises:
        ValueError: the model has fewer positions, or takes what cannot be made up.
    """
    model = unwrap(model)
    batch, length = budget.batch
    config: Any = getattr(model, "config", None)
    most = getattr(config, "max_position_embeddings", None)
    few = isinstance(most, int) and 0 < most < length and getattr(model, "main_input_name", "") == "input_ids"
    if few and budget.at is None:
        length = int(most or length)  # the usual batch, as far as there are positions for it
    elif few:
        raise ValueError(
            f"The budget is about {length} tokens, and {type(model).__name__} has positions for {most}; give a batch "
            f"that fits, such as `at=({batch}, {most})`."
        )
    return on_device(model, probe_inputs(_pretrained(model), batch, length))


def on_device(model: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs where the model is."""
    device = next(model.parameters()).device
    return {name: value.to(device) for name, value in inputs.items()}


def _pretrained(model: nn.Module) -> Any:
    if not hasattr(model, "main_input_name"):
        raise ValueError(
            f"kheads cannot make up inputs for {type(model).__name__}, which is no model of transformers; give "
            "`inputs`, a batch that its `forward` takes."
        )
    return model


def _check(model: nn.Module, sites: Sequence[Site]) -> None:
    """Raises if the sites are of another model, or of blocks that have no cost of their own."""
    modules = dict(unwrap(model).named_modules())
    for site in sites:
        if site.name not in modules:
            raise ValueError(f"The model has no site {site.name!r}; give `sites` as `kheads.discover(model)` has them.")
        if site.unit == "query":
            raise ValueError(
                f"What a query head of {site.name!r} costs depends on the others that share its keys and values; "
                'give a number of heads, or take unit="group".'
            )


def _silent(_: str) -> None:
    """Tells nobody."""
