"""Discovery: every head of every supported family, and nothing that is not understood."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import kheads
from kheads.anatomy import LAYOUTS, REFUSED, UnsupportedModelError, locate
from kheads.anatomy.layout import Plan, rows, segments, total_rows
from zoo import ZOO, refused

Fresh = Callable[[str], Any]


def test_every_head_is_found(family: str, fresh: Fresh) -> None:
    """The sites account for every input of every output projection, under both units."""
    model = fresh(family)
    for unit in ("group", "query"):
        for found in locate(model, unit):
            weight = found.output.weight
            assert found.site.count * found.site.width in weight.shape
            assert found.head_dim * found.heads == found.site.count * found.site.width


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("bert", ["encoder"] * 3),
        ("gpt2", ["decoder"] * 3),
        ("llama", ["decoder"] * 3),
        ("marian", ["encoder"] * 2 + ["decoder", "cross"] * 2),
        ("t5", ["encoder"] * 2 + ["decoder", "cross"] * 2),
        ("bert2bert", ["encoder"] * 3 + ["decoder", "cross"] * 3),
        ("bert2gpt2", ["encoder"] * 3 + ["decoder", "cross"] * 3),
    ],
)
def test_kinds(name: str, kinds: list[str], fresh: Fresh) -> None:
    assert [site.kind for site in kheads.discover(fresh(name))] == kinds


def test_shared_keys_and_values_are_counted_by_group_or_by_query(fresh: Fresh) -> None:
    model = fresh("llama")
    by_group, by_query = kheads.discover(model)[0], kheads.discover(model, unit="query")[0]
    assert (by_group.count, by_group.unit, by_group.width) == (4, "group", 12)
    assert (by_query.count, by_query.unit, by_query.width) == (8, "query", 6)
    assert kheads.discover(fresh("bert"), unit="query")[0].unit == "head"


def test_wrappers_are_looked_through(fresh: Fresh) -> None:
    model = fresh("bert")
    sites = kheads.discover(model)
    compiled: Any = torch.compile(model)
    assert kheads.discover(compiled) == sites
    assert kheads.discover(nn.DataParallel(model)) == sites


def test_a_site_finds_its_projection_in_a_wrapped_model(fresh: Fresh) -> None:
    model = fresh("gpt2")
    site = kheads.discover(model)[1]
    wrapped: list[Any] = [model, torch.compile(model), nn.DataParallel(model), nn.DataParallel(torch.compile(model))]
    projection = model.transformer.h[1].attn.c_proj
    weight = projection.weight.T.unflatten(1, (4, 8))
    for one in wrapped:
        assert site.projection(one) is projection and torch.equal(site.weight(one), weight)
    with pytest.raises(TypeError, match="`model` must be a torch module; got str"):
        site.projection("gpt2")  # type: ignore[arg-type]


def test_a_model_inside_a_plain_module_is_found(fresh: Fresh) -> None:
    outer = nn.ModuleDict({"reader": fresh("bert-bare"), "head": nn.Linear(32, 2)})
    assert kheads.discover(outer)[0].name == "reader.encoder.layer.0.attention"


@pytest.mark.parametrize(
    ("text", "plan", "expected"),
    [
        ("q", Plan((1, 3), (1, 3), 1), [2, 3, 6, 7]),
        ("k", Plan((2, 3), (1,), 2), [2, 3]),
        ("q k v", Plan((1,), (1,), 1), [2, 3, 10, 11, 18, 19]),
        ("[q k v]", Plan((1,), (1,), 1), [6, 7, 8, 9, 10, 11]),
        ("[q gate]", Plan((0, 2), (0, 2), 1), [0, 1, 2, 3, 8, 9, 10, 11]),
        # two groups of [q q k v]; kept: one query of the first group, both of the second, so g = 1 and k, v repeat
        ("{q k v}", Plan((1, 2, 3), (0, 1, 1), 2), [2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 10, 11, 12, 13, 14, 15]),
    ],
)
def test_rows_of_every_kind_of_segment(text: str, plan: Plan, expected: list[int]) -> None:
    heads, kv = 4, 4 // plan.group
    assert rows(text, lambda name: 2, heads, kv, plan).tolist() == expected


def test_keeping_everything_keeps_all_rows_in_order() -> None:
    for text in ("q", "k", "q k v", "[q k v]", "{q k v}"):
        plan = Plan(tuple(range(6)), tuple(range(3)), 2)
        expected = total_rows(text, lambda name: 5, 6, 3)
        assert rows(text, lambda name: 5, 6, 3, plan).tolist() == list(range(expected))
    assert segments("q [k v]") == (("query", ("q",)), ("query", ("k", "v")))


WIDTHS = {"q": 3, "k": 2, "v": 1, "gate": 4}


@given(st.sampled_from(["q", "k v", "q k v", "[q k v]", "[q gate] k", "{q k v}", "k {q k v}"]), st.data())
@settings(deadline=None, derandomize=True)
def test_rows_are_those_that_a_label_on_every_row_names(text: str, data: st.DataObject) -> None:
    """Label each row of the whole projection by segment, part, head and place; the kept rows have the kept labels."""
    group, kv = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    copies = data.draw(st.lists(st.integers(0, kv - 1), max_size=4))  # key-value heads may serve several groups
    members = data.draw(st.integers(1, group))
    query = tuple(head * group + data.draw(st.integers(0, group - 1)) for head in copies for _ in range(members))
    plan = Plan(query, tuple(copies), group)
    whole = _labels(text, Plan(tuple(range(kv * group)), tuple(range(kv)), group))
    assert [whole[row] for row in rows(text, WIDTHS.__getitem__, kv * group, kv, plan).tolist()] == _labels(text, plan)


def _labels(text: str, plan: Plan) -> list[tuple[int, str, int, int]]:
    labels = []
    for number, (over, names) in enumerate(segments(text)):
        for repeat, head in enumerate(plan.query if over == "query" else plan.kv):
            for name in names:
                grouped = over == "group" and name == "q"
                heads = plan.query[repeat * plan.new_group :][: plan.new_group] if grouped else (head,)
                labels += [(number, name, one, place) for one in heads for place in range(WIDTHS[name])]
    return labels


class HomeMadeAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(4, 4)


class Quiet(nn.Module):
    """An attention by its children, though not by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)


def test_what_is_not_understood_is_refused_by_name(fresh: Fresh) -> None:
    """A model is refused whole if any attention in it is unknown: never a silent part of the heads."""
    for part in (HomeMadeAttention(), Quiet()):
        model = fresh("bert")
        model.extra = part
        with pytest.raises(UnsupportedModelError, match=rf"extra is a .*{type(part).__name__}.*LAYOUTS"):
            kheads.discover(model)


class AttentionReader(nn.Module):
    """Called like an attention, but only around one."""

    def __init__(self, reader: nn.Module) -> None:
        super().__init__()
        self.reader = reader


def test_what_lies_around_known_sites_is_no_attention(fresh: Fresh) -> None:
    expected = [f"reader.{site.name}" for site in kheads.discover(fresh("bert"))]
    outer = AttentionReader(fresh("bert"))
    assert [site.name for site in kheads.discover(outer)] == expected
    assert [site.name for site in kheads.discover(nn.ModuleList([outer]))] == [f"0.{name}" for name in expected]


def test_a_namesake_is_not_mistaken_for_a_known_class() -> None:
    namesake = type("BertAttention", (HomeMadeAttention,), {})
    with pytest.raises(UnsupportedModelError, match="BertAttention, an attention that kheads does not know"):
        kheads.discover(nn.ModuleList([namesake()]))


def test_a_user_can_add_a_layout(monkeypatch: pytest.MonkeyPatch, fresh: Fresh) -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q_proj, self.k_proj, self.v_proj, self.out = (nn.Linear(8, 8) for _ in range(4))
            self.head_dim = 4

    layout = kheads.anatomy.Layout(o="out", rows={"q_proj": "q", "k_proj": "k", "v_proj": "v"})
    monkeypatch.setitem(LAYOUTS, f"{__name__}.{Mine.__qualname__.rpartition('.')[2]}", (layout,))
    assert kheads.discover(nn.ModuleList([Mine()]))[0].count == 2


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", REFUSED)
def test_the_refusal_list_is_honoured(name: str) -> None:
    """Every refused class, in a model that has it: its name and its reason."""
    with pytest.raises(UnsupportedModelError) as error:
        kheads.discover(refused.MODELS[name]())
    assert f"is a {name}, which kheads cannot prune: {REFUSED[name]}" in str(error.value)


def test_a_big_bird_that_attends_fully_is_not_refused() -> None:
    """A refusal is for the instances that no layout describes."""
    assert kheads.discover(ZOO["big_bird"].build())


def test_no_attention_at_all() -> None:
    with pytest.raises(UnsupportedModelError, match="Sequential has no attention heads that kheads could find"):
        kheads.discover(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(TypeError, match="`model` must be a torch module; got str"):
        kheads.discover("bert-base-uncased")  # type: ignore[arg-type]


def test_unit_is_checked(fresh: Fresh) -> None:
    with pytest.raises(ValueError, match="`unit` must be one of 'group', 'query'; got 'layer'"):
        kheads.discover(fresh("bert"), unit="layer")


def test_adapters_quantisation_and_sharding_are_refused(fresh: Fresh) -> None:
    adapted = fresh("bert")
    adapted.lora = type("LoraLayer", (nn.Module,), {"__module__": "peft.tuners.lora"})()
    with pytest.raises(UnsupportedModelError, match=r"wrapped by PEFT \(LoraLayer\); merge the adapter first"):
        kheads.discover(adapted)

    quantised = fresh("bert")
    quantised.hf_quantizer = SimpleNamespace()
    with pytest.raises(UnsupportedModelError, match="quantised"):
        kheads.discover(quantised)

    replaced = fresh("bert")
    attention = replaced.bert.encoder.layer[1].attention
    attention.self.key = type("Linear4bit", (nn.Linear,), {})(32, 32)
    with pytest.raises(UnsupportedModelError, match=r"attention.self.key is a .*Linear4bit, not a plain linear layer"):
        kheads.discover(replaced)

    parallel = fresh("bert")
    parallel.classifier.weight.device_mesh = "cpu"
    with pytest.raises(UnsupportedModelError, match="tensor-parallel"):
        kheads.discover(parallel)


def test_projections_that_do_not_fit_are_refused(fresh: Fresh) -> None:
    """A class of a known name whose weights have other shapes is not guessed at."""
    model = fresh("bert")
    model.bert.encoder.layer[0].attention.self.value = nn.Linear(32, 30)
    with pytest.raises(UnsupportedModelError, match=r"attention.self.value has 30 rows, which do not fit 4 heads of 8"):
        kheads.discover(model)
    model = fresh("bert")
    del model.bert.encoder.layer[0].attention.self.value
    with pytest.raises(UnsupportedModelError, match="lacks one of the projections"):
        kheads.discover(model)
    model = fresh("bert")
    del model.bert.encoder.layer[0].attention.output.dense
    with pytest.raises(UnsupportedModelError, match=r"attention.output.dense does not exist in this version"):
        kheads.discover(model)
