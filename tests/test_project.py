"""The project itself: layers, documented names, the README's code, the wheel."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kheads

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "kheads"

# A module imports only from lower layers, never sideways; inside a package, from the files named before it.
LAYERS: dict[str, int] = {
    "subset": 0,
    "rebuild": 0,
    "heads": 1,
    "anatomy": 2,
    "gates": 3,
    "surgery": 3,
    "methods": 4,
    "probe": 4,
    "training": 5,
    "checkpoint": 5,
    "tasks": 5,
    "exporting": 6,
    "sources": 6,
    "pruning": 6,
    "recording": 7,
    "terminal": 7,
    "demo": 8,
    "cli": 9,
    "__main__": 10,
}
PACKAGE_ORDER = {
    "anatomy": ["layout", "table", "discovery", "__init__"],
    "methods": ["base", "dsp", "ste", "voita", "michel", "random", "__init__"],
    "tasks": ["files", "classification", "made_nli", "__init__"],
}
TORCH_ONLY = {"subset", "heads", "anatomy", "gates", "surgery", "methods"}


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" if node.module == "kheads" else node.module for alias in node.names}
    return names


def sources() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


def parts(path: Path) -> tuple[str, str]:
    """(module or package, file inside the package)."""
    relative = path.relative_to(SOURCE).with_suffix("")
    return relative.parts[0], relative.parts[-1]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_import_only_from_lower_layers(path: Path) -> None:
    module, file = parts(path)
    for name in imports(path):
        if name.partition(".")[0] != "kheads":
            continue
        target, *inside = name.removeprefix("kheads.").split(".")
        if target == module:
            order = PACKAGE_ORDER[module]
            assert order.index(inside[0]) < order.index(file), f"{module}.{file} imports {name}"
        else:
            assert LAYERS[target] < LAYERS[module], f"{module} imports {name}"


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_core_needs_torch_only(path: Path) -> None:
    if parts(path)[0] not in TORCH_ONLY:
        return
    outside = {name.partition(".")[0] for name in imports(path)} - {"kheads", "torch", "__future__"}
    assert outside <= set(sys.stdlib_module_names)


def test_every_public_name_is_documented() -> None:
    """It has a docstring, and the README mentions it."""
    readme = (ROOT / "README.md").read_text()
    for name in kheads.__all__:
        assert getattr(kheads, name).__doc__, name
        assert re.search(rf"\b{name}\b", readme), f"README.md does not mention {name}"


def test_importing_has_no_side_effects() -> None:
    code = (
        "import torch, logging, random; state = torch.get_rng_state(), random.getstate(), torch.get_num_threads();"
        "import kheads; assert torch.equal(state[0], torch.get_rng_state()) and state[1] == random.getstate();"
        "assert state[2] == torch.get_num_threads() and not logging.getLogger().handlers"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_quick_start_of_the_readme_runs(tmp_path: Path) -> None:
    """The README shows the example that `make demo` runs, and it prints equal logits."""
    example = (ROOT / "examples" / "quickstart.py").read_text()
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block and block.group(1).strip() in example
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "quickstart.py")],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    difference = re.search(r"reloaded logits: (\S+)", run.stdout)
    assert "kept 6 of 32 heads" in run.stdout and difference and float(difference.group(1)) < 1e-6


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert f"version: {kheads.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {kheads.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_wheel_imports_outside_the_source_tree(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); import kheads;"
        f"assert kheads.__file__.startswith({str(wheel)!r}), kheads.__file__; print(kheads.__version__)"
    )
    out = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert out.stdout.strip() == kheads.__version__
