"""Every supported model type, on a tiny model of its real class: what holds for one must hold for all.

The tests iterate the table, so a type without a model, or a model without these properties, cannot be forgotten.
"""

import copy
import inspect
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._pytree import tree_leaves

import kheads
from kheads import Kept, Site, discover, gated, remove
from kheads.anatomy import LAYOUTS, TYPES, locate
from kheads.storage.export.hub import _write_hub_folder
from zoo import ZOO, outputs, prompt
from zoo.cases import build, built, parts

every = pytest.mark.parametrize("name", ZOO)
writers = [name for name in ZOO if ZOO[name].generates and getattr(transformers, ZOO[name].model).can_generate()]


def uneven(sites: tuple[Site, ...], seed: int = 0) -> Kept:
    """About half of the blocks, other ones in each site."""
    total = sum(site.count for site in sites)
    return Kept.from_mask((torch.rand(total, generator=torch.Generator().manual_seed(seed)) < 0.5).double(), sites)


def emptied(sites: tuple[Site, ...], names: set[str]) -> Kept:
    """All blocks but those of the named sites."""
    return Kept.from_dict({s.name: [] if s.name in names else list(range(s.count)) for s in sites})


def corners(sites: tuple[Site, ...]) -> list[Kept]:
    """Uneven sites, the first emptied, every second of its kind emptied and the others uneven, nothing left."""
    kinds = [[site.name for site in sites if (site.kind == "ffn") == feeds] for feeds in (False, True)]
    second = {name for names in kinds for name in names[1::2]}
    mixed = {name: [] if name in second else heads for name, heads in uneven(sites, 1).to_dict().items()}
    nothing = emptied(sites, {site.name for site in sites})
    return [uneven(sites), emptied(sites, {sites[0].name}), Kept.from_dict(mixed), nothing]


def test_the_table_is_covered() -> None:
    """Each type of the table has a tiny model of that type, and together they use every class of the table."""
    used: dict[str, set[str]] = {}
    for name in ZOO:
        model = built(name)
        kind = name.partition(":")[0]
        assert model.config.model_type == kind
        keys = {type(found.module) for found in locate(model)}
        used.setdefault(kind, set()).update(
            cls.__name__ if cls.__module__.startswith("transformers.") else f"{cls.__module__}.{cls.__name__}"
            for cls in keys
        )
    listed = {name: set(classes) for types in TYPES.values() for name, classes in types.items()}
    assert used == listed
    assert set().union(*used.values()) == set(LAYOUTS)
    assert len(listed) >= 80


@torch.no_grad()
@every
def test_every_head_moves_the_outputs(name: str) -> None:
    """No head of a tiny model is idle, so no mistake can hide; open gates change nothing."""
    model, given = build(name), ZOO[name].inputs()
    whole = outputs(model, given)
    size = sum(site.count for site in discover(model))
    assert whole.isfinite().all()
    for head in range(size):
        values = torch.ones(size)
        values[head] = 0
        with gated(model, values):
            assert (outputs(model, given) - whole).abs().max() > 1e-2
    with gated(model, torch.ones(size)):
        assert torch.equal(outputs(model, given), whole)


@torch.no_grad()
@every
def test_a_block_without_weights_is_a_block_gated_to_zero(name: str) -> None:
    """A site's weight is what its output projection does with each block; here one block of every site goes."""
    given = ZOO[name].inputs()
    for unit, which in (("group", parts(name)), ("query", "heads")):
        model = build(name)
        sites = discover(model, unit, which)
        gone = {site.name: [number % site.count] for number, site in enumerate(sites)}
        with gated(model, 1 - Kept.from_dict(gone).mask(sites).float(), unit, which):
            expected = outputs(model, given)
        for site in sites:
            weight, projection = site.weight(model), cast(Any, site.projection(model))
            assert weight.shape[1:] == (site.count, site.width)
            assert weight.data_ptr() == projection.weight.data_ptr()
            weight[:, gone[site.name]] = 0
        assert torch.allclose(outputs(model, given), expected, atol=1e-5)


@every
def test_an_emptied_site_has_the_weight_of_no_block(name: str) -> None:
    """Also where a silent head or neuron stays, which does not count."""
    model = build(name)
    whole = discover(model, parts=parts(name))
    before = {site.output: site.weight(model).shape[0] for site in whole}
    remove(model, corners(whole)[3])
    sites = discover(model, parts=parts(name))
    assert [site.output for site in sites] == list(before)
    for site in sites:
        assert site.weight(model).shape == (before[site.output], 0, site.width)


@every
def test_gradient_flows_to_the_values(name: str) -> None:
    model, given = build(name), ZOO[name].inputs()
    values = torch.full((sum(site.count for site in discover(model)),), 0.7, requires_grad=True)
    with gated(model, values):
        outputs(model, given).square().mean().backward()
    assert values.grad is not None and values.grad.all() and values.grad.isfinite().all()


@torch.no_grad()
@every
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_removal_equals_the_hard_mask(name: str, backend: str) -> None:
    model, given = build(name), ZOO[name].inputs()
    if not ZOO[name].switch(model, backend):
        pytest.skip(f"{type(model).__name__} has no {backend}")
    for unit in ("group", "query"):
        sites = discover(model, unit)
        if unit == "query" and all(site.unit == "head" for site in sites):
            continue
        for kept in corners(sites):
            with gated(model, kept.mask(sites).float(), unit):
                masked = outputs(model, given)
            pruned = remove(copy.deepcopy(model), kept, unit)
            assert (outputs(pruned, given) - masked).abs().max() < 1e-5
            if unit == "group":
                assert [site.count for site in discover(pruned)] == [
                    len(kept.to_dict().get(site.name, [])) for site in sites
                ]


@torch.no_grad()
@pytest.mark.parametrize("name", writers)
def test_generation_with_a_cache_equals_generation_without(name: str) -> None:
    """For uneven sites, the first decoder site emptied, and all decoder sites emptied."""
    model, given = build(name), prompt(ZOO[name])
    sites = discover(model, parts=parts(name))
    writing = [site.name for site in sites if site.kind in ("decoder", "cross")]
    assert writing
    for kept in (uneven(sites), emptied(sites, {writing[0]}), emptied(sites, set(writing))):
        pruned = remove(copy.deepcopy(model), kept)
        tokens = generate(pruned, given, use_cache=False)
        assert torch.equal(generate(pruned, given), tokens)
        if ZOO[name].static:
            assert torch.equal(generate(pruned, given, cache_implementation="static", disable_compile=True), tokens)


def generate(model: Any, given: dict[str, Tensor], **options: Any) -> Tensor:
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "num_beams": 1, **options}
    return model.generate(**given, **options)


@torch.no_grad()
@every
def test_what_is_left_compiles(name: str) -> None:
    """torch.compile traces every class of sites in the pruned model, hooks included, and gives the same."""
    model, given = build(name), without_cache(name)
    remove(model, uneven(discover(model, parts=parts(name))))
    calls: dict[tuple[type, str], tuple[Any, ...]] = {}
    handles = [
        found.module.register_forward_pre_hook(_recorder(calls, found.site.kind), with_kwargs=True, prepend=True)
        for found in locate(model, parts=parts(name))
    ]
    outputs(model, given)
    for handle in handles:
        handle.remove()
    torch.compiler.reset()
    for module, args, kwargs in calls.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = torch.compile(module, backend="eager")
            assert torch.allclose(first(compiled(*args, **kwargs)), first(module(*args, **kwargs)), atol=1e-5)


def first(given: Any) -> Tensor:
    return tree_leaves(given)[0]


def _recorder(calls: dict, kind: str) -> Callable[..., None]:
    def record(module: Any, args: tuple, kwargs: dict) -> None:
        kwargs = {name: None if name == "past_key_values" else value for name, value in kwargs.items()}
        calls.setdefault((type(module), kind), (module, args, kwargs))

    return record


def without_cache(name: str) -> dict[str, Any]:
    takes = inspect.signature(built(name).forward).parameters
    return {**ZOO[name].inputs(), **({"use_cache": False} if "use_cache" in takes else {})}


@torch.no_grad()
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "backend"),
    [*((name, "aot_eager") for name in ZOO), ("bert", "inductor"), ("t5", "inductor"), ("llama", "inductor")],
)
def test_the_whole_result_compiles(name: str, backend: str) -> None:
    model, given = build(name), ZOO[name].inputs()
    remove(model, corners(discover(model, parts=parts(name)))[2])
    expected = outputs(model, given)
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(model, backend=backend)
        assert torch.allclose(outputs(compiled, given), expected, atol=1e-4, rtol=1e-4)


# One process without kheads loads every exported folder.
RELOAD = """
import sys
sys.modules["kheads"] = None
import torch, transformers
from pathlib import Path
from safetensors.torch import load_file, save_file
transformers.utils.logging.set_verbosity_error()
torch.set_num_threads(int(sys.argv[2]))  # as in the parent: sums depend on it
for folder in sorted(Path(sys.argv[1]).iterdir()):
    auto = getattr(transformers, (folder / "auto_class").read_text())
    model = auto.from_pretrained(folder / "hub", trust_remote_code=True).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        out = model(**load_file(folder / "inputs.safetensors"))
    tensors = [value for value in out.values() if isinstance(value, torch.Tensor) and value.is_floating_point()]
    save_file({"outputs": torch.cat([value.flatten() for value in tensors])}, folder / "child.safetensors")
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every model pruned to uneven and emptied sites, saved, exported, and reloaded by one new process."""
    root, scratch = tmp_path_factory.mktemp("exported"), tmp_path_factory.mktemp("modules")
    for name in ZOO:
        model, given, folder = build(name), ZOO[name].inputs(), root / name.replace(":", "_")
        remove(model, corners(discover(model, parts=parts(name)))[2])
        kheads.save(model, folder / "model")
        (folder / "hub").mkdir()
        (folder / "auto_class").write_text(_write_hub_folder(model, folder / "hub"))
        save_file({key: value.contiguous() for key, value in given.items()}, folder / "inputs.safetensors")
        with torch.no_grad():
            save_file({"outputs": outputs(model, given)}, folder / "parent.safetensors")
    environment = {**os.environ, "HF_MODULES_CACHE": str(scratch)}
    command = [sys.executable, "-I", "-c", RELOAD, str(root), str(torch.get_num_threads())]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return root


@torch.no_grad()
@every
def test_saved_and_exported_models_give_the_same(name: str, exported: Path) -> None:
    """`load` in this process, and the exported folder in one without kheads."""
    folder, given = exported / name.replace(":", "_"), ZOO[name].inputs()
    expected = load_file(folder / "parent.safetensors")["outputs"]
    loaded = kheads.load(folder / "model").eval()
    assert type(loaded) is type(built(name))
    saved = load_file(folder / "model" / "model.safetensors")
    state = loaded.state_dict()
    assert all(torch.equal(state[key], value) for key, value in saved.items())
    # Sums may be taken in another order where tensors lie differently in memory, so the last bit is free.
    assert torch.allclose(outputs(loaded, given), expected, atol=1e-5)
    assert torch.allclose(load_file(folder / "child.safetensors")["outputs"], expected, atol=1e-5)
