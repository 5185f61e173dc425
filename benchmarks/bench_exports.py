"""One pruned model of each kind through every target: largest difference, size, and whether the speed carries over.

python benchmarks/bench_exports.py [--kinds encoder llama] [--rounds 20]

The encoder and the embedder are the embedded MiniLM. The others are built from small configs with random weights, which
is enough to compare numbers, sizes and speed. Blocks are chosen at random within half of the FLOPs at 8 x 128. A speed
is the whole model's time in the same program divided by the pruned one's: processor time of one thread, in turns.
"""

import argparse
import json
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast

import kheads
from kheads.measuring.timing import interleaved, speedup
from kheads.storage import sources
from kheads.storage.export.onnx import alone
from kheads.storage.export.onnx.kinds import kind_of
from kheads.storage.export.target import TARGETS
from kheads.storage.probe import probe_inputs
from kheads.training.recording import machine, versions

SIZES: dict[str, Any] = {"vocab_size": 4000}
LETTERS = "the quick brown fox jumps over a lazy dog and runs on"


def language_tokenizer() -> Any:
    """Pieces of bytes, as GPT-2 cuts them."""
    built = Tokenizer(models.BPE())
    built.pre_tokenizer, built.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    built.train_from_iterator([LETTERS], trainers.BpeTrainer(special_tokens=["</s>"], initial_alphabet=alphabet))
    return PreTrainedTokenizerFast(tokenizer_object=built, bos_token="</s>", eos_token="</s>")


def encoder() -> tuple[Any, Any]:
    folder = sources.resolve("minilm")
    return AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def embedder() -> tuple[Any, Any]:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(sources.resolve("minilm")), device="cpu"), None


def vit() -> tuple[Any, Any]:
    config = transformers.ViTConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536)
    return transformers.ViTForImageClassification(config), None


def gpt2() -> tuple[Any, Any]:
    config = transformers.GPT2Config(n_embd=384, n_layer=6, n_head=6, **SIZES)
    return transformers.GPT2LMHeadModel(config), None


def llama() -> tuple[Any, Any]:
    words = language_tokenizer()
    config = transformers.LlamaConfig(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        num_key_value_heads=6,
        intermediate_size=1024,
        vocab_size=len(words),
    )
    return transformers.LlamaForCausalLM(config), words


def marian() -> tuple[Any, Any]:
    both = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in _LAYERS.items()}
    marks: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    config = transformers.MarianConfig(d_model=256, **both, **marks, **SIZES)
    return transformers.MarianMTModel(config), None


def t5() -> tuple[Any, Any]:
    config = transformers.T5Config(
        d_model=256, d_kv=32, num_heads=8, d_ff=1024, num_layers=4, decoder_start_token_id=0, **SIZES
    )
    return transformers.T5ForConditionalGeneration(config), None


_LAYERS = {"layers": 4, "attention_heads": 8, "ffn_dim": 1024}
KINDS: dict[str, Callable[[], tuple[Any, Any]]] = {
    one.__name__: one for one in (encoder, embedder, vit, gpt2, llama, marian, t5)
}


def pruned(model: Any) -> Any:
    """The same model with half of its FLOPs, by random scores."""
    inner = model[0].model if hasattr(model, "encode") else model
    sites = kheads.discover(inner, parts="all")
    budget = kheads.Budget(flops=0.5, at=(8, 128))
    scores = torch.rand(sum(site.count for site in sites), generator=torch.Generator().manual_seed(0))
    kheads.remove(inner, kheads.select(scores, budget, sites, costs=kheads.price(inner, budget, sites)))
    return model


def ratio(calls: Sequence[Callable[[], Any]], rounds: int) -> float:
    """How many times as fast the second call is."""
    torch.set_num_threads(1)
    with torch.inference_mode():
        seconds = interleaved(calls, rounds, torch.device("cpu"), warmup=2, clock=time.thread_time)
    return speedup(seconds[0], seconds[1]).ratio


def torch_ratio(whole: Any, small: Any, rounds: int) -> float:
    given = probe_inputs(whole, 8, 128)
    return ratio([lambda: whole(**given), lambda: small(**given)], rounds)


def onnx_ratio(folders: Sequence[Path], small: Any, rounds: int) -> float:
    kind = kind_of(small)
    with torch.no_grad():
        given = {name: value.numpy() for name, value in kind.cases(small, None)[-1].given.items()}
    sessions = [alone.open_sessions(str(folder), "") for folder in folders]
    return ratio([lambda one=one: alone.RUNS[kind.name](one, given) for one in sessions], rounds)


def plain(folder: Path) -> Any:
    """What plain transformers loads."""
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    return getattr(transformers, name).from_pretrained(folder)


def row(kind: str, target: str, place: Path, rounds: int) -> dict[str, Any]:
    """One export, or the sentence that refuses it."""
    said: list[str] = []
    out = place / f"{kind}-{target}"
    try:
        kheads.export(place / f"{kind}-small", out, to=target, say=lambda _: None, tell=said.append)
    except kheads.ExportError as refusal:
        return {"kind": kind, "target": target, "refused": str(refusal)}
    found = {"kind": kind, "target": target, "compared": said, "megabytes": megabytes(out)}
    apart = [float(number) for number in re.findall(r"\d\.\de[-+]\d+", " ".join(said))]
    found["difference"] = max(apart, default=None)
    whole = kheads.load(place / f"{kind}-whole")
    if target == "onnx":
        kheads.export(place / f"{kind}-whole", place / f"{kind}-onnx-whole", to="onnx", say=lambda _: None)
        found["whole_megabytes"] = megabytes(place / f"{kind}-onnx-whole")
        small = kheads.load(place / f"{kind}-small")
        found["speed"] = onnx_ratio([place / f"{kind}-onnx-whole", out], small, rounds)
    elif target != "gguf":
        small = kheads.load(place / f"{kind}-small") if target == "hub" else plain(out)
        found["speed"] = torch_ratio(whole.eval(), small.eval(), rounds)
    return found


def megabytes(folder: Path) -> float:
    weights = (".safetensors", ".onnx", ".data", ".gguf")
    return sum(path.stat().st_size for path in folder.iterdir() if path.name.endswith(weights)) / 1e6


def table(rows: Sequence[dict[str, Any]], whole: dict[str, float]) -> str:
    lines = ["| model | target | largest difference | MB, whole | MB | times as fast |", "|---|---|---|---|---|---|"]
    for found in rows:
        before = found.get("whole_megabytes", whole[found["kind"]])
        cells = ["refused", f"{before:.1f}", "", ""]
        if "refused" not in found:
            apart, speed = found["difference"], found.get("speed")
            cells = [
                "not compared" if apart is None else f"{apart:.0e}",
                f"{before:.1f}",
                f"{found['megabytes']:.1f}",
                "not measured" if speed is None else f"{speed:.2f}",
            ]
        lines.append(f"| {' | '.join([found['kind'], found['target'], *cells])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    rows, whole = [], {}
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for kind in options.kinds:
            torch.manual_seed(0)
            model, words = KINDS[kind]()
            kheads.save(model, place / f"{kind}-whole", tokenizer=words)
            whole[kind] = megabytes(place / f"{kind}-whole")
            kheads.save(pruned(model), place / f"{kind}-small", tokenizer=words)
            rows += [row(kind, target, place, options.rounds) for target in options.targets]
            print(json.dumps(rows[-len(options.targets) :]), flush=True)
    print(table(rows, whole))
    for found in rows:
        if "refused" in found:
            print(f"\n{found['kind']} to {found['target']}: {found['refused']}")
    print(json.dumps({"versions": versions(), "machine": machine(), "rounds": options.rounds}))


if __name__ == "__main__":
    main()
