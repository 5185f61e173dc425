"""Silent heads: no site is empty any more, and the model computes what it did."""

import pytest
import torch

from kheads import Kept, discover, ghosts, remove
from kheads.anatomy import locate, locate_feeds
from kheads.surgery.silent import give_silent_heads
from zoo import ZOO
from zoo.cases import build, parts
from zoo.tiny import outputs


@pytest.mark.parametrize("name", ZOO)
def test_a_silent_head_changes_nothing(name: str) -> None:
    """Every second site emptied, heads and neurons."""
    model, given = build(name), ZOO[name].inputs()
    sites = discover(model, parts=parts(name))
    remove(model, Kept.from_dict({site.name: range(site.count) for site in sites[1::2]}))
    emptied = {site.name for site in discover(model, parts=parts(name)) if site.count == 0}
    with torch.no_grad():
        before = outputs(model, given)
        after = outputs(give_silent_heads(model), given)
    assert torch.allclose(before, after, atol=1e-6)
    located = [*locate(model), *locate_feeds(model, only_cut=True)]
    assert all(found.heads for found in located) and emptied <= set(ghosts(model))
