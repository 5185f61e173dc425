"""The project itself: layers, documented names, the README's code, the wheel."""

import ast
import graphlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import documents
import kheads

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "kheads"

# The flow, from the equations to the command line: a folder imports only from those before it.
FOLDERS = (
    "subset",
    "blocks",
    "anatomy",
    "surgery",
    "storage",
    "measuring",
    "methods",
    "training",
    "tasks",
    "lab",
    "cli",
    "__main__",
)
TORCH_ONLY = {"subset", "blocks", "anatomy", "surgery", "methods", "measuring"}
# Files that need one library more: the recursion works on numpy's memory, the knapsack is halved by numpy, which is
# several times as fast at it, and what was pruned is built by transformers.
BESIDES = {
    "subset/knapsack.py": {"numpy"},
    "subset/successive.py": {"numpy"},
    "surgery/rebuild.py": {"transformers"},
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


def place(path: Path) -> str:
    """The folder of the package in which a file is."""
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def module_name(path: Path) -> str:
    """Its full name, as an import has it."""
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


def test_the_package_is_the_flow() -> None:
    """At most twelve entries, all of them in the flow, and the tests mirror them."""
    entries = {path.stem for path in SOURCE.iterdir() if not path.name.startswith("__") and path.name != "py.typed"}
    assert entries == set(FOLDERS) - {"__main__"} and len(entries) <= 12
    assert {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")} <= entries


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_folder_imports_only_from_those_before_it(path: Path) -> None:
    for name in imports(path):
        if name.partition(".")[0] == "kheads" and name != "kheads":
            target = name.split(".")[1]
            if target == "__version__":
                continue
            assert FOLDERS.index(target) <= FOLDERS.index(place(path)), f"{path} imports {name}"


def test_no_file_imports_what_imports_it() -> None:
    """Inside a folder, too, data walks in one direction."""
    files = {module_name(path): path for path in sources()}
    graph = {name: {found for found in imports(path) if found in files} for name, path in files.items()}
    graphlib.TopologicalSorter(graph).prepare()  # raises on a cycle


def _orders_of_data(table: ast.Dict) -> list[ast.expr]:
    """Values that say in which order Trainer reads data, one of which is called as a method is."""
    pairs = zip(table.keys, table.values, strict=True)
    return [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "train_sampling_strategy"]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_methods_know_the_methods(path: Path) -> None:
    """Others read what a method declares: no key or class of one, and no question what it is."""
    if place(path) == "methods":
        return
    tree = ast.parse(path.read_text())
    classes = {cls.__name__ for cls in kheads.METHODS.values()}
    order = {id(value) for node in ast.walk(tree) if isinstance(node, ast.Dict) for value in _orders_of_data(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in kheads.METHODS and id(node) not in order:
            raise AssertionError(f"{path}:{node.lineno} names the method {node.value!r}")
        if isinstance(node, (ast.Name, ast.Attribute)):
            name = ast.unparse(node).removeprefix("random.Random")  # Python's own random numbers
            assert name.rpartition(".")[2] not in classes, f"{path}:{node.lineno} names the class {name}"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            asked = ast.unparse(node.args[0])
            assert not asked.endswith("method"), f"{path}:{node.lineno} asks what a method is"


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_core_needs_torch_only(path: Path) -> None:
    if place(path) not in TORCH_ONLY:
        return
    outside = {name.partition(".")[0] for name in imports(path)} - {"kheads", "torch", "__future__"}
    assert outside <= set(sys.stdlib_module_names) | BESIDES.get(path.relative_to(SOURCE).as_posix(), set())


def test_every_public_name_is_documented() -> None:
    """It has a docstring, a page mentions it, and the reference has an entry for it."""
    written, reference = documents.prose(), documents.generator().api()
    for name in kheads.__all__:
        assert getattr(kheads, name).__doc__, name
        assert re.search(rf"\b{name}\b", written), f"no page mentions {name}"
        assert re.search(rf"(heading: |### `){name}\b", reference), f"the reference has no entry for {name}"


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
    assert block and block.group(1).strip() in example and "import kheads" in block.group(1)
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "quickstart.py")],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    difference = re.search(r"reloaded logits differ by (\S+)", run.stdout)
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
