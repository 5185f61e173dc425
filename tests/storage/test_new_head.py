"""A new head on a pruned model: the base is the pruned one's, and the result saves and loads as any other."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import kheads
from kheads.storage import sources
from kheads.storage.new_head import with_new_head
from word_tasks import save_model, tokenizer

LIBRARY: Any = transformers
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering")


@pytest.fixture
def small(tmp_path: Path) -> Any:
    """A masked language model without some heads, one layer without any, and without some neurons."""
    save_model(tmp_path / "masked", "MaskedLM")
    model = sources.masked_language_model(tmp_path / "masked")
    kept = {"bert.encoder.layer.0.attention": [1, 2], "bert.encoder.layer.1.attention": []}
    feeds = {site.name: [0, 5, 9] for site in kheads.discover(model, parts="ffn")}
    return kheads.remove(model, kheads.Kept.from_dict({**kept, **feeds})).eval()


def hidden(model: Any) -> torch.Tensor:
    ids = torch.arange(6, 30).view(2, 12)
    with torch.no_grad():
        return model.eval().base_model(input_ids=ids).last_hidden_state


@pytest.mark.parametrize("head", HEADS)
def test_the_base_computes_what_it_did(head: str, small: Any, tmp_path: Path) -> None:
    made: Any = with_new_head(small, getattr(LIBRARY, f"BertFor{head}"), num_labels=2)
    assert torch.equal(hidden(made), hidden(small))
    shared = {id(parameter) for parameter in made.parameters()} & {id(parameter) for parameter in small.parameters()}
    assert not shared  # it is a copy
    assert kheads.discover(made, parts="all") == kheads.discover(small, parts="all")
    again = kheads.load(kheads.save(made, tmp_path / head))
    assert type(again) is type(made) and torch.equal(hidden(again), hidden(small))


def test_a_bare_base_gets_a_head(small: Any) -> None:
    made = with_new_head(small.bert, LIBRARY.BertForTokenClassification, num_labels=5)
    assert torch.equal(hidden(made), hidden(small)) and made.config.num_labels == 5


def test_a_pruned_model_of_another_kind_has_to_be_trained(small: Any, tmp_path: Path) -> None:
    kheads.save(small, tmp_path / "small", tokenizer())
    model, trained = sources.token_classifier(tmp_path / "small", num_labels=5)
    assert not trained and type(model).__name__ == "BertForTokenClassification" and model.config.num_labels == 5
    with pytest.raises(sources.SourceError, match="is a BertForMaskedLM, which is not a model for ImageClass"):
        sources.image_classifier(tmp_path / "small")
