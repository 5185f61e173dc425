"""What a config says layer by layer, for servers that build a causal model from numbers and read no record of heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kheads.anatomy import locate, locate_feeds
from kheads.storage.model_folder import PER_LAYER

if TYPE_CHECKING:
    from transformers import PreTrainedModel

HEADS, KV, NEURONS = "num_attention_heads", "num_key_value_heads", "intermediate_size"


def per_layer(model: PreTrainedModel) -> dict[str, Any]:
    """Both keys of transformers' heterogeneous configs, for a causal model whose layers are not as its config says.

    The second one lets transformers' own classes go on reading the numbers of the original, as they have to: the code
    of the folder cuts what they build.
    """
    if not model.can_generate() or model.config.is_encoder_decoder:
        return {}
    whole = model.config.to_dict()
    found = {layer: _differing(said, whole) for layer, said in sorted(_counts(model).items())}
    layers = {str(layer): said for layer, said in found.items() if said}
    return dict(zip(PER_LAYER, (layers, True), strict=True)) if layers else {}


def _counts(model: PreTrainedModel) -> dict[int, dict[str, int]]:
    """The numbers that the weights of each layer have, those of ghosts included."""
    counts: dict[int, dict[str, int]] = {}
    for found in (*locate(model), *locate_feeds(model)):
        layer = next((int(part) for part in found.site.name.split(".") if part.isdigit()), None)
        if layer is not None:
            said = {NEURONS: found.heads} if found.site.kind == "ffn" else {HEADS: found.heads, KV: found.kv}
            counts.setdefault(layer, {}).update(said)
    return counts


def _differing(said: dict[str, int], whole: dict[str, Any]) -> dict[str, int]:
    """Numbers that the config says in other words (`n_head`) are left out: nobody reads these layer by layer."""
    return {name: value for name, value in said.items() if isinstance(whole.get(name), int) and value != whole[name]}
