"""A new head on a pruned model: what was made smaller with one head is the start of a model with another."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from kheads.surgery.removal import architecture
from kheads.surgery.replay import replay

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def with_new_head(model: PreTrainedModel, cls: Any, **options: Any) -> PreTrainedModel:
    """Builds a model of another class around the base of a pruned one; what that base lacks starts at random.

    Args:
        model: the pruned model; its weights are copied.
        cls: the class of transformers to make, of the same model type.
        **options: fields of the config, such as how many labels there are.
    """
    config = copy.deepcopy(model.config)
    del config.kheads
    config.update(options)
    config.architectures = [cls.__name__]
    made: Any = cls._from_config(config, dtype=model.dtype)
    base, inner = _base(made), _base(model)
    replay(base, architecture(inner))
    left = base.load_state_dict(inner.state_dict(), strict=False)
    known = inner.state_dict().keys()
    assert not known & set(left.missing_keys), "a weight of the base was not copied"
    made.config.kheads = architecture(made)
    built: PreTrainedModel = made
    return built


def _base(model: Any) -> Any:
    """The model without its head; of one that has none, the model itself."""
    return model.base_model
