"""The documents: their commands and code run, what they include is there, and no page is forgotten."""

import ast
import gzip
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
import typer
import yaml
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

import word_tasks
from command import call
from documents import (
    DOCS,
    INCLUDED,
    PAGES,
    ROOT,
    Block,
    blocks,
    commands,
    generator,
    inline_commands,
    name,
)
from sentence_folders import sentence_folder, texts, tiny_encoder
from synthetic_results import write_sweep

CODE = [block for page in PAGES for block in blocks(page, "python")]
COMMANDS = [(name(page), words) for page in PAGES for words in [*commands(page), *inline_commands(page)]]


# ------------------------------------------------------------------------------------------------------------- pages


def test_every_page_is_in_the_navigation() -> None:
    settings = yaml.unsafe_load((ROOT / "mkdocs.yml").read_text())
    listed = {path for entry in settings["nav"] for path in _paths(entry)}
    assert listed == {page.relative_to(DOCS).as_posix() for page in PAGES if DOCS in page.parents}


def _paths(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    inner = entry if isinstance(entry, list) else list(entry.values())
    return [path for part in inner for path in _paths(part)]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_a_page_includes_is_there(page: Path) -> None:
    """A part that docs/generate.py makes, or a file of the project."""
    generated = {*generator().PARTS, *generator().DRAWN}
    for path in INCLUDED.findall(page.read_text()):
        assert path in generated or (ROOT / path).is_file(), f"{name(page)} includes {path}"


@pytest.mark.parametrize("part", generator().PARTS)
def test_a_generated_part_says_something(part: str) -> None:
    text = generator().PARTS[part]()
    assert len(text) > 100 and "Traceback" not in text


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 900


# ---------------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=str)
def test_a_command_is_understood(page: str, words: tuple[str, ...]) -> None:
    """The real application knows the command and its options and takes the values; a bare name stands for its help."""
    _parse(_application(), [*words, "--help"] if len(words) == 1 else list(words))


def _application() -> Any:
    from kheads.cli.app import app

    return typer.main.get_command(app)


def _parse(command: Any, words: list[str], parent: Any = None) -> None:
    """Reads options and arguments down to the command that would run, and does not run it."""
    try:
        context = command.make_context(command.name or "kheads", words, parent=parent)
    except typer.Exit:
        return  # --help and --version end here
    if hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        _, inner, left = command.resolve_command(context, rest)
        _parse(inner, left, context)


# Pages whose commands are run in order, on tiny models of the names that the page uses.
RUN = (
    "README.md",
    "docs/budgets.md",
    "docs/classifier.md",
    "docs/embeddings.md",
    "docs/images.md",
    "docs/language-model.md",
    "docs/many-runs.md",
    "docs/preview.md",
    "docs/reference/options.md",
    "docs/report.md",
    "docs/taggers-readers-masked.md",
    "docs/translation.md",
    "docs/what-has-to-stay.md",
    "docs/your-own-method.md",
)
# Not run here: what takes long or goes by times, needs the hub or a cluster, or starts a process; tests of its own do.
ELSEWHERE = {"--speedup", "--max-ms", "speedup", "demo", "data", "export", "report", "minilm", "mnli", "kheads-demo"}


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page, each on what the ones before have left."""
    monkeypatch.chdir(tmp_path)
    _furnish(tmp_path, page)
    for words in commands(ROOT / page):
        if _is_run_elsewhere(words):
            continue
        monkeypatch.setattr("sys.stdin", _Lines("a b c\n"))
        assert call(monkeypatch, *words, *_quick(words)) == 0, f"{page}: kheads {' '.join(words)}"


def _is_run_elsewhere(words: tuple[str, ...]) -> bool:
    return bool(set(words) & ELSEWHERE) or (words[0] == "sweep" and "--dry-run" not in words)


class _Lines:
    """A standard input that holds some lines."""

    def __init__(self, text: str):
        self.buffer = io.BytesIO(text.encode())


def _quick(words: tuple[str, ...]) -> tuple[str, ...]:
    """Options that make a command take a moment; given twice, the last one counts."""
    if words[0] == "prune":
        batch = () if "translation" in words else ("--batch-size", "4")
        length = () if "image" in words else ("--max-length", "16")
        recovery = ("--recover-steps", "2") if "--recover-steps" in words else ()
        return ("--max-steps", "2", "--overwrite", *length, *batch, *recovery)
    if words[0] == "preview":
        return () if "-k" in words else ("--max-eval", "6", "--no-speed", "--parts", "ffn")
    if words[0] == "eval":
        return ("--max-length", "16") if "clm" in words else ()
    if words[0] == "measure":
        return ("--repeats", "2", "--batch", "1", "--length", "8", "--new-tokens", "0")
    return ()


# --------------------------------------------------------------------------------------------------------------- code


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")  # what torch says to a user without a GPU
@pytest.mark.parametrize("block", CODE, ids=lambda block: f"{block.page}-{CODE.index(block)}")
def test_code_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that is written in a page; included files have tests of their own."""
    if INCLUDED.search(block.text):
        return
    ast.parse(block.text)
    if block.runs:
        monkeypatch.chdir(tmp_path)
        exec(compile(block.text, block.page, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", [block for page in PAGES for block in blocks(page, "toml")], ids=lambda b: b.page)
def test_a_config_can_be_read(block: Block, tmp_path: Path) -> None:
    from kheads.lab.sweep import read

    (tmp_path / "sweep.toml").write_text(block.text)
    assert read(tmp_path / "sweep.toml").runs


# ----------------------------------------------------------------------------------------------- a place to work in

LIBRARY: Any = transformers  # most of its classes have no types
SMALL: dict[str, Any] = {"num_hidden_layers": 12, "num_attention_heads": 12, "hidden_size": 24}
LABELS = ["entailment", "neutral", "contradiction"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]


def _furnish(folder: Path, page: str) -> None:
    """Puts tiny models and data where the page's commands look for them."""
    makers: dict[str, Callable[[Path], None]] = {
        "docs/embeddings.md": _sentences,
        "docs/images.md": _images,
        "docs/language-model.md": _texts,
        "docs/many-runs.md": _sweep,
        "docs/report.md": _results,
        "docs/taggers-readers-masked.md": _words,
        "docs/translation.md": _pairs,
    }
    makers.get(page, _classifier)(folder)


def _classifier(folder: Path) -> None:
    config = LIBRARY.BertConfig(**SMALL, vocab_size=len(WORDS), intermediate_size=16, num_labels=3)
    config.id2label, config.label2id = dict(enumerate(LABELS)), {word: index for index, word in enumerate(LABELS)}
    LIBRARY.BertForSequenceClassification(config).save_pretrained(folder / "my-model")
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    LIBRARY.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder / "my-model")
    rows = [{"premise": "a b c", "hypothesis": "abcdef"[index % 6], "label": LABELS[index % 3]} for index in range(24)]
    for file in ("train", "dev", "dev_mm", "test"):
        (folder / f"{file}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for file in ("news", "news-dev"):
        lines = ["headline,topic", *(f"a {row['hypothesis']},{row['label']}" for row in rows)]
        (folder / f"{file}.csv").write_text("\n".join(lines))
    shutil.copy(ROOT / "examples" / "own_method.py", folder)


def _texts(folder: Path) -> None:
    words = ["<eos>", "<unk>", *"abcdefgh"]
    built = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    built.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = {"vocab_size": len(words), "bos_token_id": 0, "eos_token_id": 0}
    config = LIBRARY.GPT2Config(n_layer=12, n_head=12, n_embd=24, **ends)
    LIBRARY.GPT2LMHeadModel(config).save_pretrained(folder / "gpt2")
    fast = LIBRARY.PreTrainedTokenizerFast(tokenizer_object=built, eos_token="<eos>", unk_token="<unk>")
    fast.save_pretrained(folder / "gpt2")
    shared = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 16}
    LIBRARY.Qwen3Config(**shared, architectures=["Qwen3ForCausalLM"]).save_pretrained(folder / "Qwen" / "Qwen3-0.6B")
    text = "a b c d e f g h\n" * 20
    for file in ("wiki.txt", "wiki-test.txt"):
        (folder / file).write_text(text)
    (folder / "wiki-held.txt.gz").write_bytes(gzip.compress(text.encode()))


def _words(folder: Path) -> None:
    word_tasks.save_model(folder / "ner", "TokenClassification", word_tasks.TAGS, **SMALL)
    word_tasks.save_model(folder / "reader", "QuestionAnswering", **SMALL)
    word_tasks.save_model(folder / "base", "MaskedLM", **SMALL)
    word_tasks.furnish(folder)
    (folder / "test.conll").write_text((folder / "dev.conll").read_text())
    word_tasks.write_lines(folder / "test.jsonl", word_tasks.questions())
    for file in ("wiki.txt", "wiki-held.txt"):
        (folder / file).write_text((folder / "train.txt").read_text())


def _sentences(folder: Path) -> None:
    sentence_folder(folder / "my-encoder")
    tiny_encoder(folder / "my-bert")
    (folder / "texts.txt").write_text("\n".join(texts(40)))
    pairs = zip(texts(8, seed=3), texts(8, seed=5), strict=True)
    rows = [{"sentence1": one, "sentence2": two, "score": number % 5} for number, (one, two) in enumerate(pairs)]
    (folder / "dev.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _images(folder: Path) -> None:
    config = LIBRARY.ViTConfig(**SMALL, intermediate_size=16, image_size=8, patch_size=4, num_labels=2)
    model = folder / "google" / "vit-base-patch16-224"
    LIBRARY.ViTForImageClassification(config).save_pretrained(model)
    LIBRARY.ViTImageProcessorPil(size={"height": 8, "width": 8}).save_pretrained(model)
    for part in ("train", "held", "test"):
        for label in ("cat", "dog"):
            (folder / "photos" / part / label).mkdir(parents=True)
            for index in range(3):
                Image.new("RGB", (8, 8), (40 * index, 0, 0)).save(folder / "photos" / part / label / f"{index}.png")


def _pairs(folder: Path) -> None:
    sources = [f"ein Hund {'läuft' if index % 2 else 'schläft'} {index}" for index in range(40)]
    targets = [f"a dog {'runs' if index % 2 else 'sleeps'} {index}" for index in range(40)]
    table = "source\ttarget\n" + "".join(f"{one}\t{other}\n" for one, other in zip(sources, targets, strict=True))
    for file in ("pairs", "dev", "test"):
        (folder / f"{file}.tsv").write_text(table)
    for file in ("train", "dev"):
        (folder / f"{file}.de.gz").write_bytes(gzip.compress("\n".join(sources).encode()))
        (folder / f"{file}.en.gz").write_bytes(gzip.compress("\n".join(targets).encode()))


def _sweep(folder: Path) -> None:
    (block,) = blocks(DOCS / "many-runs.md", "toml")
    (folder / "sweep.toml").write_text(block.text)
    _results(folder)


def _results(folder: Path) -> None:
    write_sweep(folder / "results")
