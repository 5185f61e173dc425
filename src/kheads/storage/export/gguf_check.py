"""A GGUF file is tried in llama.cpp, in a new process: its tokens, and its log-probabilities against torch's."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kheads.storage.export.gguf_tokenizer import NORMAL, Vocabulary
from kheads.storage.export.target import ExportError, run_alone

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LENGTHS = (1, 5, 12, 24)  # of the prompts
STEPS = 6  # tokens after the longest prompt, one by one, from the cache
# Of log-probabilities, relative to the largest; SmolLM2 is at 6e-6 and 1e-3. llama.cpp computes with f16 where weights
# are f16.
TOLERANCES = {"f32": 1e-4, "f16": 1e-2}
TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "It's 1234567 or 3.14159, isn't it? We'll see...",
    "  two spaces,\ttabs\n\nand new lines \n",
    "Grüße aus Köln, 東京 и Москва: naïve café",
    "def f(x):\n    return x**2  # a comment",
    "HELLO World's CAN'T 😀👍",
)

# Runs where kheads cannot be imported; the server answers on this machine alone.
CHILD = """
import json, urllib.request
import xllamacpp as cpp
path, asked, answers = sys.argv[1:]
asked = json.load(open(asked, encoding="utf-8"))
given = cpp.CommonParams()
given.model.path = path
given.n_ctx, given.n_batch, given.n_parallel, given.n_gpu_layers = 256, 64, 1, 0
given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 2
given.cache_type_k = given.cache_type_v = cpp.ggml_type.GGML_TYPE_F32
given.flash_attn_type = cpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = cpp.Server(given)
def post(route, content):
    body = json.dumps(content).encode()
    request = urllib.request.Request(server.listening_address + route, body, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))
def complete(prompt, steps, probabilities):
    # What is said of probabilities is said before this bias, which makes it go on with a letter: the server says
    # nothing of a token that is a part of a letter.
    forced = [[asked["letter"], 1000.0]]
    options = {"temperature": 0, "cache_prompt": False, "max_tokens": steps, "n_probs": probabilities}
    answer = server.handle_completions({"prompt": prompt, "logit_bias": forced, **options})
    return answer["choices"][0]["logprobs"]["content"]
try:
    texts = asked["texts"]
    found = {"tokens": [post("/tokenize", {"content": text, "add_special": True})["tokens"] for text in texts]}
    found["probabilities"] = [
        [[one["id"], one["logprob"]] for one in complete(prompt, 1, asked["vocabulary"])[0]["top_logprobs"]]
        for prompt in asked["prompts"]
    ]
    steps = complete(asked["prompts"][-1], asked["steps"], 1)
    found["generated"] = [[one["id"], one["logprob"]] for one in steps]
    reason = None
except Exception as error:
    reason = f"{type(error).__name__}: {error}"
del server  # it writes to the log until it is gone
if reason:
    sys.exit(reason)
json.dump(found, open(answers, "w", encoding="utf-8"))
"""


def check(model: PreTrainedModel, path: Path, vocabulary: Vocabulary, tokenizer: Any, kind: str) -> tuple[str, ...]:
    """Compares the file in llama.cpp with the model and its tokenizer in torch.

    Returns:
        What was compared, and how far apart it was.
    """
    prompts = _prompts(vocabulary)
    asked: dict[str, Any] = {"texts": TEXTS, "prompts": prompts, "steps": STEPS}
    asked |= {"vocabulary": len(vocabulary.tokens), "letter": _letter(vocabulary)}
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch) / name for name in ("asked.json", "answers.json")]
        files[0].write_text(json.dumps(asked), encoding="utf-8")
        run_alone(CHILD, [str(path.resolve()), *map(str, files)], "llama.cpp does not take the file")
        found = json.loads(files[1].read_text(encoding="utf-8"))
    for text, theirs in zip(TEXTS, found["tokens"], strict=True):
        _check_tokens(text, tokenizer(text)["input_ids"], theirs)
    apart, scale = _compare(model, prompts, found)
    if not apart <= TOLERANCES[kind] * scale:
        raise ExportError(f"Log-probabilities of llama.cpp differ from the model's by {apart:.1e}.")
    lengths, made = ", ".join(map(str, LENGTHS)), len(found["generated"])
    return (
        f"llama.cpp cuts {len(TEXTS)} texts into the same tokens",
        f"all log-probabilities after prompts of {lengths} tokens, and those of {made} tokens after that, "
        f"differ by {apart:.1e} at most (the largest is -{scale:.0f})",
    )


def _compare(model: Any, prompts: Sequence[Sequence[int]], found: dict[str, Any]) -> tuple[float, float]:
    """How far apart all log-probabilities are, and how large they get."""
    ours = [_log_probabilities(model, prompt)[-1] for prompt in prompts]
    apart = max(_apart(row, theirs) for row, theirs in zip(ours, found["probabilities"], strict=True))
    text = [*prompts[-1], *(index for index, _ in found["generated"])]
    rows = _log_probabilities(model, text)[len(prompts[-1]) - 1 : -1]
    steps = [float(row[index]) - value for row, (index, value) in zip(rows, found["generated"], strict=True)]
    return max([apart, *map(abs, steps)]), float(torch.stack(ours).abs().max())


def _prompts(vocabulary: Vocabulary) -> list[list[int]]:
    """Random tokens that are no special ones."""
    plain = torch.tensor([index for index, kind in enumerate(vocabulary.types) if kind == NORMAL])
    generator = torch.Generator().manual_seed(0)
    return [plain[torch.randint(len(plain), (length,), generator=generator)].tolist() for length in LENGTHS]


def _letter(vocabulary: Vocabulary) -> int:
    """A token that is whole letters."""
    pairs = zip(vocabulary.tokens, vocabulary.types, strict=True)
    plain = (token.isascii() and token.isalpha() and kind == NORMAL for token, kind in pairs)
    return next((index for index, fits in enumerate(plain) if fits), 0)


def _check_tokens(text: str, ours: Sequence[int], theirs: Sequence[int]) -> None:
    if list(ours) != list(theirs):
        raise ExportError(f"llama.cpp cuts {text!r} into the tokens {theirs}, and the tokenizer into {list(ours)}.")


@torch.no_grad()
def _log_probabilities(model: Any, prompt: Sequence[int]) -> Tensor:
    logits: Tensor = model(input_ids=torch.tensor([prompt])).logits[0]
    return logits.float().log_softmax(-1)


def _apart(ours: Tensor, theirs: Sequence[Sequence[float]]) -> float:
    """The largest difference over the whole vocabulary."""
    found = torch.full_like(ours, torch.inf)
    for index, value in theirs:
        found[int(index)] = value
    return float((ours - found).abs().max())
