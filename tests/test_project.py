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
    "live_memory": 0,
    "statistics": 0,
    "heads": 1,
    "timing": 1,
    "anatomy": 2,
    "gates": 3,
    "surgery": 3,
    "methods": 4,
    "probe": 4,
    "adoption": 4,
    "batching": 4,
    "training": 5,
    "measurement": 5,
    "checkpoint": 5,
    "tasks": 5,
    "sizes": 5,
    "translating": 5,
    "exporting": 6,
    "sources": 6,
    "iwslt14": 6,
    "pruning": 6,
    "recording": 7,
    "terminal": 7,
    "jobs": 8,
    "demo": 9,
    "sweep": 9,
    "translation_demo": 9,
    "report": 9,
    "cli": 10,
    "__main__": 11,
}
PACKAGE_ORDER = {
    "subset": ["precision", "successive", "threshold", "__init__"],
    "anatomy": [
        "layout",
        "patterns",
        "text_encoders",
        "vision",
        "audio",
        "encoder_decoders",
        "decoders",
        "refusals",
        "table",
        "discovery",
        "structure",
        "__init__",
        "catalogue",
        "__main__",
    ],
    "methods": ["base", "dsp", "ste", "voita", "michel", "retrain", "random", "__init__"],
    "tasks": [
        "files",
        "sampling",
        "metrics",
        "glue_data",
        "labelling",
        "classification",
        "language_modelling",
        "image_classification",
        "made_nli_words",
        "made_nli",
        "parallel",
        "bpe",
        "bleu",
        "made_numbers",
        "translation",
        "__init__",
    ],
    "jobs": [
        "base",
        "classification",
        "language_modelling",
        "image_classification",
        "made_nli",
        "translation",
        "__init__",
    ],
    "sweep": ["config", "plan", "store", "performing", "engines", "driving", "__init__"],
    "report": [
        "sites",
        "results",
        "style",
        "drawing",
        "pooling",
        "setting",
        "paper",
        "quality",
        "penalty",
        "efficiency",
        "distribution",
        "dynamics",
        "comparison",
        "verdicts",
        "claims_quality",
        "claims_heads",
        "claims_efficiency",
        "claims",
        "choosing",
        "interactive",
        "static",
        "page",
        "sweep_page",
        "run_page",
        "__init__",
    ],
    "cli": [
        "app",
        "constraints",
        "translation",
        "heads",
        "prune",
        "evaluate",
        "translate",
        "data",
        "measure",
        "sweep",
        "report",
        "choose",
        "export",
        "demo",
        "__init__",
    ],
}
TORCH_ONLY = {
    "subset",
    "heads",
    "anatomy",
    "gates",
    "surgery",
    "adoption",
    "methods",
    "statistics",
    "live_memory",
    "timing",
    "measurement",
}


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            folder = SOURCE.parent / node.module.replace(".", "/")
            files = {alias.name for alias in node.names if (folder / f"{alias.name}.py").exists()}
            names |= {
                f"{node.module}.{alias.name}" if node.module == "kheads" or alias.name in files else node.module
                for alias in node.names
            }
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
    assert outside <= set(sys.stdlib_module_names) | ({"numpy"} if path.stem == "successive" else set())


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
