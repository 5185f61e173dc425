"""Plain transformers loads a vanilla folder and gives what the pruned model gives; what it cannot say is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import kheads
from kheads import Kept, discover, remove
from kheads.anatomy import TYPES
from kheads.storage.export import vanilla
from kheads.storage.export.numbers import NUMBERS
from kheads.storage.export.target import Exported, ExportError, Order
from zoo import ZOO, outputs, prompt
from zoo.cases import build, parts

HANDFUL = ("llama", "phi3", "vit", "t5", "t5gemma", "moonshine", "funnel", "deepseek_v3", "gpt_oss", "nomic_bert")
LIBRARY: Any = transformers


def cut(model: Any, part: str, even: bool) -> Any:
    """Every second block, or, in every second site, the last one alone."""
    kept = {
        site.name: list(range(0, site.count, 2)) if even or index % 2 else list(range(site.count))[-1:]
        for index, site in enumerate(discover(model, parts=part))
    }
    return remove(model, Kept.from_dict(kept))


def written(model: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Exported, Any]:
    """What `write` says, and the folder as plain transformers loads it, here and not in a new process."""
    source, out = folder / "source", folder / "out"
    for made in (source, out):
        made.mkdir()
    (source / "model.safetensors").touch()
    used: list[str] = []
    monkeypatch.setattr(vanilla, "rehearse", lambda model, folder, cls, *_: used.append(cls))
    monkeypatch.setattr(vanilla, "batches", lambda *_: [])
    exported = vanilla.write(Order(model, source, out))
    return exported, getattr(LIBRARY, used[0]).from_pretrained(out).eval()


def check_same(name: str, model: Any, plain: Any) -> None:
    with torch.no_grad():
        ours, theirs = (outputs(one, ZOO[name].inputs()) for one in (model, plain))
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=2e-5)
        if model.can_generate() and ZOO[name].generates:
            both = [one.generate(**prompt(ZOO[name]), max_new_tokens=3, do_sample=False) for one in (model, plain)]
            assert torch.equal(*both)
    assert not hasattr(plain.config, "kheads") and not any(hasattr(part, "kheads_state") for part in plain.modules())


@pytest.mark.parametrize("name", HANDFUL)
@pytest.mark.parametrize("even", [True, False])
def test_heads(name: str, even: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = cut(build(name), "heads", even)
    check_same(name, model, written(model, tmp_path, monkeypatch)[1])


@pytest.mark.parametrize("name", ["bert", "gpt2", "whisper", "qwen2"])
def test_neurons(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of types that cannot have fewer heads."""
    model = cut(build(name), "ffn", False)
    exported, plain = written(model, tmp_path, monkeypatch)
    assert "silent neurons" in exported.remarks[0] and "heads" not in exported.remarks[0]
    check_same(name, model, plain)


@pytest.mark.slow
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("part", ["heads", "ffn"])
@pytest.mark.parametrize("name", ZOO)
def test_every_type(name: str, part: str, even: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the table says works, works, and everything else is refused by name."""
    if part == "ffn" and parts(name) == "heads":
        pytest.skip("a mixture of experts")
    model, whole = build(name), build(name).num_parameters()
    cut(model, part, even)
    sides = NUMBERS.get(name.partition(":")[0], ())
    said = sides and all((side.heads if part == "heads" else side.neurons) for side in sides)
    if said or (model.num_parameters() == whole and sides):
        check_same(name, model, written(model, tmp_path, monkeypatch)[1])
    else:
        with pytest.raises(ExportError, match=r"removed, and a config of|does not know|was opened"):
            written(model, tmp_path, monkeypatch)


def test_the_table_is_of_known_types() -> None:
    """At least the types of which it is known that plain transformers loads them."""
    assert NUMBERS.keys() <= {kind for kinds in TYPES.values() for kind in kinds}
    assert sum(all(side.heads for side in sides) for sides in NUMBERS.values()) >= 49


def llama(heads: int = 6, kv: int = 6, **fields: Any) -> Any:
    sizes = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "vocab_size": 61, "head_dim": 4}
    config = LIBRARY.LlamaConfig(num_attention_heads=heads, num_key_value_heads=kv, **sizes, **fields)
    torch.manual_seed(0)
    return LIBRARY.LlamaForCausalLM(config).eval()


def keep(model: Any, *counts: int) -> Any:
    sites = discover(model)
    kept = {site.name: list(range(count)) for site, count in zip(sites, counts, strict=True)}
    return remove(model, Kept.from_dict(kept))


def test_an_export_is_tried_without_kheads_and_without_code(tmp_path: Path) -> None:
    """Five heads do not divide a Llama's width of 24; as a Mistral they are exact."""
    kheads.save(keep(llama(), 5, 2), tmp_path / "model")
    said: list[str] = []
    out = kheads.export(tmp_path / "model", tmp_path / "out", to="vanilla", say=said.append, tell=said.append)
    config = json.loads((out / "config.json").read_text())
    assert (config["model_type"], config["num_attention_heads"], config["head_dim"]) == ("mistral", 5, 4)
    assert "kheads" not in config and "auto_map" not in config and not list(out.glob("*.py"))
    assert said[0].startswith("Added 3 silent heads, so that all layers have as many: 40 % of the removed parameters")
    assert "2x8, 3x11, 1x5, with padding, its outputs differ by" in said[1] and "the same tokens" in said[1]


def test_counts_that_a_class_refuses_are_rounded_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Llama with biases is no Mistral; 4 heads are too few of 12 in the width, 5 and 7 do not divide it."""
    model = keep(llama(12, 12, attention_bias=True), 5, 5)
    exported, plain = written(model, tmp_path, monkeypatch)
    assert (plain.config.model_type, plain.config.num_attention_heads) == ("llama", 6)
    assert "takes only numbers of heads that divide its width" in exported.remarks[0]
    given = {"input_ids": torch.arange(8)[None]}
    with torch.no_grad():
        assert torch.allclose(model(**given).logits, plain(**given).logits, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bert", "type 'bert' cannot say so: its config has no field for a head's width.*Use `to='hub'`"),
        ("olmo2", "its norms run over all heads at once"),
        ("siglip", "was opened"),
        ("clap", "does not know how a config of type 'clap'"),
    ],
)
def test_heads_that_a_config_cannot_say_are_refused(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ExportError, match=reason):
        written(cut(build(name), "heads", True), tmp_path, monkeypatch)


def test_no_gain_left_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ExportError, match=r"nothing of the gain is left.*--uniform"):
        written(keep(llama(), 6, 1), tmp_path, monkeypatch)


def test_unequal_groups_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama(6, 3)
    first, second = discover(model, unit="query")
    remove(model, Kept.from_dict({first.name: [0, 1, 2, 3], second.name: [0, 2, 4]}), unit="query")
    with pytest.raises(ExportError, match="are 1 here and 2 there"):
        written(model, tmp_path, monkeypatch)


def test_equal_smaller_groups_are_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One query head of each pair, everywhere: a model without sharing."""
    model = llama(6, 3)
    remove(model, Kept.from_dict({site.name: [0, 3, 5] for site in discover(model, unit="query")}), unit="query")
    exported, plain = written(model, tmp_path, monkeypatch)
    assert (plain.config.num_attention_heads, plain.config.num_key_value_heads, exported.remarks) == (3, 3, ())
    given = {"input_ids": torch.arange(8)[None]}
    with torch.no_grad():
        assert torch.allclose(model(**given).logits, plain(**given).logits, atol=1e-6)


def test_tables_that_were_trained_apart_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T5 has one table of position biases for all layers of a stack."""
    model = cut(build("t5"), "heads", True)
    table = next(
        value
        for path, value in model.named_parameters()
        if path.endswith("1.layer.0.SelfAttention.relative_attention_bias.weight")
    )
    with torch.no_grad():
        table += 1
    with pytest.raises(ExportError, match="other position biases for a head than another layer"):
        written(model, tmp_path, monkeypatch)


def test_weights_in_half_precision_stay_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = keep(llama().to(torch.bfloat16), 3, 2)
    assert written(model, tmp_path, monkeypatch)[1].dtype == torch.bfloat16
