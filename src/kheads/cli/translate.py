"""kheads translate: lines in, translations out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kheads.lab.jobs.catalogue import Translation


def translate(
    folder: Annotated[str, typer.Argument(help="A folder that kheads saved, or another encoder-decoder.")],
    file: Annotated[Path | None, typer.Argument(help="Lines to translate; standard input if not given.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here, not to standard output.")] = None,
    beams: Annotated[int, typer.Option(min=1, help="Width of the beam search.")] = Translation.beams,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Source tokens of a batch.")] = Translation.batch_tokens,
) -> None:
    """Translate lines of text.

    Example: `echo "Ein Hund läuft." | kheads translate pruned`
    """
    import torch

    from kheads.storage import processors, sources
    from kheads.tasks.tokens import token_ids
    from kheads.tasks.translating import longest_source
    from kheads.tasks.translating import translate as translate_texts

    model: Any = sources.encoder_decoder(folder)
    if torch.accelerator.is_available():
        model.to(torch.accelerator.current_accelerator())
    words = processors.fitting_tokenizer(folder, model)
    texts = _texts(file)
    limit = longest_source(model, words)
    cut = sum(len(ids) > limit for ids in token_ids(words, texts)) if limit else 0
    translations = translate_texts(model.eval(), words, texts, beams, batch_tokens, progress=True)
    if cut:
        print(f"kheads: {cut} of {len(texts)} lines had more than {limit} tokens and were cut.", file=sys.stderr)
    _write("".join(f"{line}\n" for line in translations), output)


def _texts(file: Path | None) -> list[str]:
    from kheads.tasks.files import DataError, check_file, limited_lines, read_lines
    from kheads.tasks.parallel import one_line

    if file is not None:
        check_file(file)
        return [one_line(line) for _, line in read_lines(file)]
    texts = []
    for number, raw in limited_lines(sys.stdin.buffer, "standard input"):
        try:
            texts.append(one_line(raw.decode("utf-8")))
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise DataError(f"standard input, line {number}: not UTF-8 (byte 0x{byte:02x}).") from None
    return texts


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    temporary = output.with_name(f".{output.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(output)
