"""Tiny models and data of the tasks on words: tags, questions, hidden tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import torch
import transformers
from transformers import BertConfig, BertTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, ".", *ascii_lowercase, *(f"##{letter}" for letter in ascii_lowercase)]
TAGS = ["O", "B-X", "I-X", "B-Y", "I-Y"]
LETTERS = "abcdefgh"


def tokenizer() -> Any:
    """Letters as tokens; a word of three letters has three."""
    return BertTokenizer(vocab={word: index for index, word in enumerate(PIECES)})


def save_model(folder: Path | str, kind: str, labels: Sequence[str] | int = 2, **sizes: Any) -> None:
    """Saves a tiny BERT for a task, such as "TokenClassification", with its tokenizer."""
    names = {"num_labels": labels} if isinstance(labels, int) else {"id2label": dict(enumerate(labels))}
    usual = {
        "vocab_size": len(PIECES),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 32,
    }
    torch.manual_seed(0)
    config: Any = BertConfig(max_position_embeddings=64, **{**usual, **sizes}, **names)
    name = "BertModel" if not kind else f"BertFor{kind}"
    getattr(transformers, name)(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def tagged(count: int = 24) -> list[tuple[list[str], list[str]]]:
    """Sentences in which x begins an X that goes on over letters u, and y a Y that goes on over letters v."""
    rows = []
    for index in range(count):
        letter = LETTERS[index % len(LETTERS)]
        words = [letter, "xa", *["u"] * (index % 3), letter + "b", "ya", *["v"] * (index % 2)]
        tags = ["O", "B-X", *["I-X"] * (index % 3), "O", "B-Y", *["I-Y"] * (index % 2)]
        rows.append((words, tags))
    return rows


def columns_of(rows: Sequence[tuple[Sequence[str], Sequence[str]]]) -> str:
    """Sentences as CoNLL's files have them."""
    sentences = ["".join(f"{word} _ {tag}\n" for word, tag in zip(*row, strict=True)) for row in rows]
    return "-DOCSTART- _ O\n\n" + "\n".join(sentences)


def questions(count: int = 12) -> list[dict[str, Any]]:
    """Questions with a letter, whose answer is the word after that letter in the context."""
    rows = []
    for index in range(count):
        asked, answer = LETTERS[index % 8], f"z{LETTERS[(index + 3) % 8]}"
        context = f"{'p q ' * (index % 5)}{asked} {answer} r s t"
        row = {"text": [answer], "answer_start": [context.index(answer)]}
        rows.append({"context": context, "question": f"wo {asked}", "answers": row})
    return rows


def squad(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The same as SQuAD has it."""
    paragraphs = []
    for number, row in enumerate(rows):
        pairs = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
        answers = [{"text": text, "answer_start": start} for text, start in pairs]
        asked = {"id": str(number), "question": row["question"], "answers": answers}
        paragraphs.append({"context": row["context"], "qas": [asked]})
    return {"version": "1.1", "data": [{"title": "letters", "paragraphs": paragraphs}]}


def write_lines(path: Path | str, rows: Sequence[Any]) -> str:
    """Writes rows as jsonl."""
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def furnish(place: Path) -> None:
    """Data of all three tasks, and a model without any head."""
    save_model(place / "bare", "")
    for name in ("train", "dev"):
        (place / f"{name}.conll").write_text(columns_of(tagged()))
        (place / f"{name}.json").write_text(json.dumps(squad(questions())))
        (place / f"{name}.txt").write_text("a b c d e f g h\n" * 40)
