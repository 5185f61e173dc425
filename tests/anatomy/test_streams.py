"""The residual stream of every supported type: what a site adds to, and what comes of it, add up on a batch."""

from typing import Any

import pytest

from kheads.anatomy import NO_STREAM, STREAMS, in_forward_order, locate, locate_feeds
from kheads.surgery.repair.proof import Proof, prove
from zoo import ZOO
from zoo.audio import wave
from zoo.cases import build, built
from zoo.decoders import falcons, gpts, llamas, plain
from zoo.text_encoders import sized
from zoo.tiny import Tiny, images
from zoo.vision import patches

# Entries that configs choose which the zoo has not.
OTHERS: dict[str, Tiny] = {
    "gpt_neox": Tiny("GPTNeoXForCausalLM", plain(use_parallel_residual=False)),
    "stablelm": Tiny("StableLmForCausalLM", llamas(head_dim=2, use_parallel_residual=True)),
    "falcon": Tiny("FalconForCausalLM", falcons(parallel_attn=False, new_decoder_architecture=False)),
    "opt": Tiny("OPTForCausalLM", plain(ffn_dim=20, word_embed_proj_dim=16, do_layer_norm_before=False)),
    "xmod": Tiny("XmodModel", sized(default_language="en_XX", pre_norm=True)),
    "beit": Tiny("BeitModel", patches(layer_scale_init_value=0.0), images),
    "granite": Tiny("GraniteForCausalLM", llamas(residual_multiplier=0.3)),
    "bloom": Tiny("BloomForCausalLM", falcons(n_layer=2, n_head=4, apply_residual_connection_post_layernorm=True)),
    "gpt2": Tiny("GPT2LMHeadModel", gpts(n_inner=12)),
    **{
        f"{name}:stable": Tiny(ZOO[name].model, {**ZOO[name].fields, "do_stable_layer_norm": True}, wave)
        for name in ("hubert", "unispeech", "unispeech-sat", "wav2vec2")
    },
}

# The only sites that are not fitted to the stream, by type.
WITHOUT = {
    "the norm after the branch hides its scale": (
        "exaone4 flex_olmo gemma2 gemma3_text glm4 olmo2 olmo3 swinv2 t5gemma"
    ),
    "its tokens are in the order of windows": "clap swin",
    "it pools tokens and has no stream before it": "siglip siglip2",
}


def proofs(model: Any, given: Any) -> dict[str, Proof]:
    return prove(model, in_forward_order(model, [*locate(model), *locate_feeds(model)]), given)


@pytest.mark.parametrize("name", ZOO)
def test_every_site_adds_up_or_has_a_reason_not_to(name: str) -> None:
    reasons = [reason for reason, types in WITHOUT.items() if name.partition(":")[0] in types.split()]
    found = proofs(build(name), ZOO[name].inputs())
    assert all(proof.runs == (2 if name == "albert" else 1) for proof in found.values())
    assert {proof.why for proof in found.values() if proof.stream is None} == set(reasons)


@pytest.mark.parametrize("name", OTHERS)
def test_other_configs_of_a_class_add_up(name: str) -> None:
    found = proofs(OTHERS[name].build(), OTHERS[name].inputs())
    assert found and all(proof.stream is not None for proof in found.values())


def test_the_table_has_no_class_that_is_not_tried() -> None:
    models = [built(name) for name in ZOO] + [tiny.build() for tiny in OTHERS.values()]
    used = {type(module).__name__ for model in models for module in model.modules()}
    assert set(STREAMS) | set(NO_STREAM) <= used


def test_a_wrong_entry_does_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A post-norm layer taken for a pre-norm one is found out, and so is a forgotten scale."""
    from kheads.anatomy.streams import Stream

    monkeypatch.setitem(STREAMS, "BertLayer", ({"attention": Stream("in:", "out:attention.output")},))
    found = proofs(build("bert"), ZOO["bert"].inputs())
    assert all("did not add up" in proof.why for site, proof in found.items() if "attention" in site)
    monkeypatch.setitem(STREAMS, "BeitLayer", STREAMS["ViTLayer"])
    assert all("did not add up" in proof.why for proof in proofs(build("beit"), ZOO["beit"].inputs()).values())
