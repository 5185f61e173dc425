"""Repair: what it leaves alone, what it refuses, what it costs."""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kheads
from families import inputs, logits
from kheads import Kept, UnsupportedModelError, discover, remove, repair
from kheads.measuring.live_memory import LiveMemory
from kheads.surgery.repair import least_squares, memory
from kheads.surgery.repair.least_squares import Rows, Sums, choose
from zoo import ZOO
from zoo.cases import build

Fresh = Callable[[str], Any]


def cut(model: Any, keep: int = 1) -> Any:
    """A copy that keeps the first heads of each site."""
    kept = Kept.from_dict({site.name: list(range(keep)) for site in discover(model)})
    return remove(copy.deepcopy(model), kept)


def halved(model: Any) -> Any:
    """A copy without every second neuron."""
    sites = discover(model, parts="ffn")
    return remove(copy.deepcopy(model), Kept.from_dict({site.name: list(range(0, site.count, 2)) for site in sites}))


def batches(family: str, count: int = 6) -> list[dict[str, Tensor]]:
    return [inputs(family, batch=4, seed=seed) for seed in range(count)]


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@torch.no_grad()
@pytest.mark.parametrize("neurons", [False, True])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "marian", "t5", "bert2gpt2"])
def test_the_outputs_come_nearer_to_the_originals(family: str, neurons: bool, fresh: Fresh) -> None:
    """On examples that were not used. Encoder and decoder are repaired in one pass."""
    whole = fresh(family)
    model, unused = halved(whole) if neurons else cut(whole), inputs(family, batch=8, seed=99)
    before = (logits(model, unused) - logits(whole, unused)).norm()
    record = repair(model, whole, batches(family, 24))
    # Random gated neurons have little in common, so they stand in for each other only a little.
    assert (logits(model, unused) - logits(whole, unused)).norm() < (0.9 if neurons else 0.8) * before
    assert {site.target for site in record.sites} == {"stream"} and record.tokens == 24 * (4 * 7 - 2)
    assert repr(record).startswith(f"Repair({len(record.refitted)} of {len(record.sites)} sites refitted, mean error")


@torch.no_grad()
@pytest.mark.parametrize("family", ["bert", "gpt2", "marian"])
def test_an_emptied_feed_forward_gets_its_bias_fitted(family: str, fresh: Fresh) -> None:
    """All that it can still say is the mean of what it said; a silent neuron stays silent."""
    whole = fresh(family)
    sites = discover(whole, parts="ffn")
    kept = Kept.from_dict({site.name: [] if site == sites[0] else list(range(site.count)) for site in sites})
    model = remove(copy.deepcopy(whole), kept)
    before = weights(model)
    record = repair(model, whole, batches(family, 12), "ffn")
    assert record.refitted[0] == sites[0].name and record.sites[0].after < record.sites[0].before
    changed = [key for key, value in model.state_dict().items() if not torch.equal(value, before[key])]
    assert f"{sites[0].output}.bias" in changed and f"{sites[0].output}.weight" not in changed


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "mpt", "t5", "vilt", "layoutlmv3", "git"])
def test_padding_is_ignored(name: str) -> None:
    """Other tokens where the mask is 0 give the same weights, also where images stand beside the text."""
    whole, given = build(name), ZOO[name].inputs()
    assert not given["attention_mask"].all()
    noise = torch.randint(4, 61, given["input_ids"].shape, generator=torch.Generator().manual_seed(7))
    other = {**given, "input_ids": torch.where(given["attention_mask"] > 0, given["input_ids"], noise)}
    models = [cut(whole), cut(whole)]
    for model, batch in zip(models, (given, other), strict=True):
        assert repair(model, whole, [batch, batch]).sites
    for key, value in models[0].state_dict().items():
        assert torch.allclose(value, models[1].state_dict()[key], atol=1e-4), key


def test_labels_make_the_decoders_inputs_and_tell_its_padding(fresh: Fresh) -> None:
    """The last label does not reach the decoder's input; whether it is one decides if its position counts."""
    whole, found = fresh("marian"), []
    for last in (-100, 5):
        given = [{**batch, "labels": batch.pop("decoder_input_ids").clone()} for batch in batches("marian", 12)]
        for batch in given:
            batch["labels"][:, -1] = last
        model = cut(whole)
        assert any("decoder" in name for name in repair(model, whole, given).refitted)
        found.append(weights(model))
    differ = {key for key, value in found[0].items() if not torch.equal(value, found[1][key])}
    assert differ and all("decoder" in key for key in differ)


def test_every_layer_runs_once_for_each_batch(fresh: Fresh) -> None:
    """Linear in depth: one pass of each model, and one batch more for the check of the streams."""
    whole = fresh("bert")
    model, calls = cut(whole), {"model": 0, "original": 0}
    for name, one in (("model", model), ("original", whole)):
        for layer in one.bert.encoder.layer:
            layer.register_forward_pre_hook(lambda *_, name=name: calls.__setitem__(name, calls[name] + 1))
    depth, given = len(whole.bert.encoder.layer), batches("bert")
    repair(model, whole, given)
    assert calls["original"] <= depth * (len(given) + 1) and calls["model"] <= depth * (len(given) + 1)


def test_modes_hooks_random_numbers_and_threads_are_as_before(fresh: Fresh) -> None:
    whole = fresh("bert")
    model = cut(whole).train()
    model.bert.encoder.layer[0].eval()
    modes = [module.training for module in model.modules()]
    state, running = torch.get_rng_state(), threading.active_count()
    repair(model, whole, batches("bert"))
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in whole.modules())
    assert torch.equal(torch.get_rng_state(), state) and threading.active_count() == running


def test_a_repair_that_fails_leaves_the_model_as_it_was(fresh: Fresh) -> None:
    whole = fresh("bert")
    model, running = cut(whole), threading.active_count()
    before = weights(model)

    def interrupted(sites: Sequence[str]) -> Iterator[str]:
        yield from sites[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repair(model, whole, batches("bert"), progress=interrupted)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert threading.active_count() == running


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"attention_mask": torch.zeros(2, 6, dtype=torch.long)}, "no token of the batches counts there"),
        ({"input_ids": None, "inputs_embeds": torch.full((2, 6, 32), torch.nan)}, "not finite on some batch"),
    ],
)
def test_rows_that_say_nothing_are_not_taken_for_a_fit(changed: dict[str, Any], why: str, fresh: Fresh) -> None:
    original = fresh("bert")
    model = kheads.remove(copy.deepcopy(original), kheads.select(torch.rand(12), 5, kheads.discover(original)))
    found = kheads.repair(model, original, [{**ZOO["bert"].inputs(), **changed}])
    assert not found.refitted and all(site.why.endswith(why) for site in found.sites)


def test_parts_are_refitted_alone(fresh: Fresh) -> None:
    whole = fresh("bert")
    for parts, mark in (("heads", "attention"), ("ffn", "layer")):
        model = cut(whole)
        before = weights(model)
        record = repair(model, whole, batches("bert"), parts)
        changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
        assert changed and all(("attention.output.dense" in key) == (parts == "heads") for key in changed)
        assert all(mark in site.name for site in record.sites)


@torch.no_grad()
def test_half_precision_keeps_its_dtype_and_gets_better(fresh: Fresh) -> None:
    whole = fresh("bert").to(torch.bfloat16)
    model = cut(whole)
    record = repair(model, whole, batches("bert", 12))
    assert record.refitted and all(site.after < site.before for site in record.sites if site.ridge is not None)
    assert {value.dtype for value in model.parameters()} == {torch.bfloat16}


@torch.no_grad()
def test_a_model_under_an_autocast_goes_on_with_the_new_weights(fresh: Fresh) -> None:
    """An autocast keeps rounded copies of weights while a forward lasts; later sites must not see the old ones."""
    whole = fresh("bert")
    plain, model = cut(whole), cut(whole)
    for one in (model, other := copy.deepcopy(whole)):
        one.forward = torch.autocast("cpu", torch.bfloat16)(one.forward)
    repair(plain, whole, batches("bert", 12))
    repair(model, other, batches("bert", 12))
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, plain.state_dict()[name], rtol=0.1, atol=0.05, msg=name)


def test_shared_weights_and_layers_are_left_and_named(fresh: Fresh) -> None:
    """One that a model ties itself, and ALBERT's layer, which runs more than once."""
    whole = fresh("bert")
    model = cut(whole)
    layers = model.bert.encoder.layer
    layers[1].output.dense.weight = layers[0].output.dense.weight
    record = repair(model, whole, batches("bert"))
    left = {site.name: site.why for site in record.sites if site.ridge is None}
    assert left == dict.fromkeys(
        ("bert.encoder.layer.0", "bert.encoder.layer.1"), "its weights are shared with another module"
    )
    albert = build("albert")
    remarks = repair(cut(albert), albert, [ZOO["albert"].inputs()]).remarks
    assert len(remarks) == 1 and "it runs more than once in a forward pass" in remarks[0]


def test_what_does_not_belong_together_is_refused(fresh: Fresh) -> None:
    whole, given = fresh("bert"), batches("bert")
    model = cut(whole)
    for batch, kind, message in (
        ([], ValueError, "two examples at least, one of them to check the fit; got 0"),
        ([torch.ones(2, 3)], TypeError, "mappings of tensors that the model takes; got Tensor"),
    ):
        with pytest.raises(kind, match=message):
            repair(model, whole, batch)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="it is a GPT2LMHeadModel, and the model is a BertFor"):
        repair(model, fresh("gpt2"), given)
    with pytest.raises(ValueError, match=r"has 4 blocks and 32 outputs in the model, and 1 and 32 in the original"):
        repair(whole, model, given)
    with pytest.raises(ValueError, match="shares its weights with the model"):
        repair(whole, whole, given)
    with pytest.raises(ValueError, match="`parts` must be one of 'heads', 'ffn', 'all'"):
        repair(model, whole, given, "neurons")
    with kheads.gated(model, torch.ones(len(discover(model)))), pytest.raises(RuntimeError, match="gated"):
        repair(model, whole, given)
    model.bert.encoder.layer[0].output.dense = type("Linear4bit", (nn.Linear,), {})(32, 32)
    with pytest.raises(UnsupportedModelError, match=r"output.dense is a .*Linear4bit, not a plain linear layer"):
        repair(model, whole, given)


def test_batches_that_run_other_sites_are_refused() -> None:
    """The first has what the cross-attention reads, the second has not."""
    whole, given = build("blip_text_model"), ZOO["blip_text_model"].inputs()
    alone = {key: value for key, value in given.items() if key != "encoder_hidden_states"}
    with pytest.raises(ValueError, match=r"Batch 1 comes to .*output.dense where the first comes to .*crossattention"):
        repair(cut(whole), whole, [given, {**alone, "is_decoder": False}])


def best(sums: Sums, ridge: float) -> Tensor:
    lower = sums.factor(ridge)
    assert lower is not None
    return torch.cat([part for _, part in sums.solved(lower)], 1)


def test_the_sums_give_the_least_squares_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small ridge gives torch's own solution, a large one nothing, and errors are those of the rows."""
    monkeypatch.setattr(least_squares, "TOGETHER", 2)
    generator = torch.Generator().manual_seed(0)
    x, missing = (torch.randn(50, width, dtype=torch.float64, generator=generator) for width in (5, 3))
    sums = (
        Sums.none(5, 3, True, x.device).add(x[:20], missing[:20], missing[:20]).add(x[20:], missing[20:], missing[20:])
    )
    ones = torch.cat([x, torch.ones(50, 1, dtype=torch.float64)], 1)
    added = best(sums, 1e-12)
    assert torch.allclose(added, torch.linalg.lstsq(ones, missing).solution, atol=1e-8)
    error = float((ones @ added - missing).square().sum())
    assert sums.error([(slice(0, 3), added)]) == pytest.approx(error)
    assert sums.error([(slice(0, 2), added[:, :2]), (slice(2, 3), added[:, 2:])]) == pytest.approx(error)
    strong = best(sums, 1e9)
    assert torch.allclose(strong[:5], torch.zeros(5, 3, dtype=torch.float64), atol=1e-6)
    assert torch.allclose(strong[5], missing.mean(0))


@pytest.mark.parametrize("biased", [False, True])
def test_held_out_rows_say_what_their_sums_say(biased: bool) -> None:
    """And leave the same sums over all rows."""
    generator = torch.Generator().manual_seed(0)
    x, missing, wanted = (torch.randn(12, width, dtype=torch.float64, generator=generator) for width in (20, 3, 3))
    size = (20, 3, biased, x.device)
    sums, rows = Sums.none(*size), Rows.none(15, *size)  # some may be padding
    for part in (slice(0, 5), slice(5, 5), slice(5, 12)):
        sums, rows = (each.add(x[part], missing[part], wanted[part]) for each in (sums, rows))  # type: ignore[assignment]
    added = torch.randn(20 + biased, 3, dtype=torch.float64, generator=generator)
    parts = [(slice(0, 2), added[:, :2]), (slice(2, 4), added[:, 2:])]
    assert rows.error(parts) == pytest.approx(sums.error(parts))
    assert rows.relative(rows.rr) == pytest.approx(sums.relative(sums.rr))
    one, other = (each.into(Sums.none(*size).add(x, missing, wanted)) for each in (sums, rows))
    assert torch.allclose(one.xx, other.xx) and torch.allclose(one.xr, other.xr)
    assert (one.rr, one.yy) == pytest.approx((other.rr, other.yy))


def test_two_large_matrices_are_alive_at_most() -> None:
    """X'X and one factor, however many ridges are tried; what is added to all outputs at once would be as large."""
    inputs, outputs = 96, 2 * least_squares.TOGETHER
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, inputs, dtype=torch.float64, generator=generator)
    missing = torch.randn(40, outputs, dtype=torch.float64, generator=generator)
    size = (inputs, outputs, False, x.device)
    fitted, held_out = (each.add(x, missing, missing) for each in (Sums.none(*size), Rows.none(40, *size)))
    given = [fitted.xx, fitted.xr, held_out.x, held_out.missing, x, missing]  # type: ignore[union-attr]
    with LiveMemory(given) as live:
        before = live.peak
        choose(fitted, held_out)  # type: ignore[arg-type]
    square, some = (8 * inputs * width for width in (inputs, least_squares.TOGETHER))
    assert square < live.peak - before <= square + 4 * some


@torch.no_grad()
def test_old_weights_go_to_a_file_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "IN_MEMORY", 8)
    weights = [torch.randn(3, 4).T, torch.randn(5).bfloat16(), torch.zeros(0, 2)]
    before, aside = [weight.clone() for weight in weights], memory.Aside()
    aside.keep(*weights[:1])
    aside.keep(*weights[1:])
    for weight in weights:
        weight.zero_()
    aside.restore()
    aside.close()
    assert all(torch.equal(weight, old) for weight, old in zip(weights, before, strict=True))


def test_held_out_rows_choose_and_may_choose_nothing() -> None:
    """What can be fitted is fitted hard; noise is left alone."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 30, 20, dtype=torch.float64, generator=generator)
    noise = torch.randn(2, 30, 3, dtype=torch.float64, generator=generator)
    exact = x @ torch.randn(20, 3, dtype=torch.float64, generator=generator)
    empty = [Sums.none(20, 3, False, x.device) for _ in range(4)]
    assert choose(empty[0].add(x[0], exact[0], exact[0]), empty[1].add(x[1], exact[1], exact[1]))[0] == 1e-6
    assert choose(empty[2].add(x[0], noise[0], noise[0]), empty[3].add(x[1], noise[1], noise[1]))[0] in (None, 1.0)
