"""Translation: every method on the embedded task, from the command line to a folder that translates by itself."""

import copy
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration

import kheads
from command import call
from kheads import METHODS, discover
from kheads.lab.demos.translation import Recipe, run_demo
from kheads.lab.jobs import running as jobs
from kheads.lab.jobs import translation
from kheads.lab.jobs.catalogue import Translation, data_of
from kheads.lab.jobs.job import Job
from kheads.methods.base import Goal
from kheads.storage import sizes
from kheads.tasks.bleu import Bleu
from kheads.tasks.bpe import train_bpe
from kheads.tasks.translating import translate
from kheads.tasks.translation import from_parallel, numbers, perplexity, reference_log_probabilities

QUICK = {"dataset": "numbers", "batch_tokens": 256, "beams": 2}


@pytest.fixture(scope="module")
def made() -> Any:
    """An untrained tiny model, its tokenizer and short texts of one length; its heads move what it says."""
    texts = numbers().sample(300, 12).texts()
    words = train_bpe(texts, 400)
    torch.manual_seed(0)
    model: Any = sizes.build("tiny", words)
    model.eval()
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if path.endswith(sizes.BRANCHES):
                weight.mul_(2)
    return model, words, [text for text in texts if len(words(text).input_ids) == 7]


def quick(method: str, **changes: Any) -> Job:
    fields: dict[str, Any] = {"k": 5, "task": "translation", "data": QUICK, "max_train": 60, "max_eval": 3}
    few = {"estimate_examples": 8} if method in ("michel", "retrain", "surgeon", "random") else {}
    return Job("tiny", method=method, **{**fields, "max_steps": 2, **few, **changes})


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method: str, tmp_path: Path) -> None:
    """Exactly K heads, and BLEU of the pruned model is that of the masked one, before it trains on."""
    outcome = jobs.run(quick(method), tmp_path / "out", quiet=True)
    record = outcome.record
    metrics = record["metrics"]
    assert record["after"]["heads"] == 5 == sum(site.count for site in discover(kheads.load(tmp_path / "out")))
    pruned, masked = metrics.get("cut", metrics["pruned"])["unseen"], metrics["masked"]["unseen"]
    assert pruned["bleu"] == masked["bleu"] and pruned["perplexity"] == pytest.approx(masked["perplexity"], rel=1e-4)
    assert {"bleu", "bleu_moses", "exact", "perplexity", "loss"} <= metrics["pruned"]["unseen"].keys()
    by_kind = record["report"]["kept_by_kind"]
    assert {kind: len(layers) for kind, layers in by_kind.items()} == {"encoder": 2, "decoder": 2, "cross": 2}
    assert sum(len(heads) for layers in by_kind.values() for heads in layers) == 5
    assert record["metric"] == "bleu" and json.loads((tmp_path / "out" / "result.json").read_text()) == record


def test_pipelined_and_from_a_folder(tmp_path: Path) -> None:
    """The unpruned model first, then gates on it while it is frozen; its tokenizer goes along."""
    jobs.run(quick("none", k=None), tmp_path / "whole", quiet=True)
    again = quick("dsp", pipelined=True, trained=True, gate_steps=2)
    job = Job(**{**again.to_dict(), "model": str(tmp_path / "whole")})
    record = jobs.run(job, tmp_path / "out", quiet=True).record
    assert record["after"]["heads"] == 5 and "unpruned" in record["metrics"]
    whole, pruned = kheads.load(tmp_path / "whole"), kheads.load(tmp_path / "out")
    assert torch.equal(whole.model.shared.weight, pruned.model.shared.weight)


def test_a_pretrained_model_of_another_family(made: Any, tmp_path: Path) -> None:
    """A folder of transformers with its tokenizer: trained by the recipe for such, pruned, and scored."""
    _, words, _ = made
    layers: dict[str, Any] = {
        f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")
    }
    ids: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    measures: dict[str, Any] = {"vocab_size": len(words), "max_position_embeddings": 200, "d_model": 16}
    config = BartConfig(**measures, encoder_ffn_dim=16, decoder_ffn_dim=16, **layers, **ids)
    BartForConditionalGeneration(config).save_pretrained(tmp_path / "bart")
    words.save_pretrained(tmp_path / "bart")
    job = Job(**{**quick("dsp").to_dict(), "model": str(tmp_path / "bart"), "fresh": True})
    assert jobs.prepare(job).arguments["learning_rate"] == 5e-5
    outcome = jobs.run(job, tmp_path / "out", quiet=True)
    assert outcome.record["before"]["heads"] == 12 and outcome.record["after"]["heads"] == 5
    assert type(kheads.load(tmp_path / "out")) is BartForConditionalGeneration


def test_the_tasks_own_hyperparameters() -> None:
    """The paper's for translation; what the user says comes first; other tasks keep theirs."""
    dsp = quick("dsp").chosen()
    assert dsp == kheads.DSP(tau_start=0.1, tau_end=1e-8, cooldown=0.227, gate_lr=0.2, gate_lr_schedule="constant")
    assert quick("dsp", method_options={"gate_lr": 0.3}).chosen() == kheads.DSP.preset("translation", gate_lr=0.3)
    assert quick("dsp", method_options={"preset": "short"}).chosen() == kheads.DSP.preset("short")
    assert quick("ste").chosen() == kheads.STE(gate_lr=0.2, gate_lr_schedule="constant")
    assert quick("michel").chosen() == kheads.Michel(per_round=4)
    assert quick("voita").chosen() == kheads.Voita(weight=0.01)
    assert Job("m", k=3).chosen() == kheads.DSP.preset("short")
    assert Job("m", k=3, pipelined=True).chosen() == kheads.DSP.preset("frozen")


def test_the_papers_recipe(tmp_path: Path) -> None:
    prepared = jobs.prepare(quick("none"))
    args = jobs.arguments(tmp_path, quick("none", max_steps=6600), prepared, True)
    assert (args.learning_rate, args.adam_beta1, args.adam_beta2, args.weight_decay) == (5e-4, 0.9, 0.98, 1e-4)
    assert args.label_smoothing_factor == 0.1 and args.max_grad_norm == 0 and args.num_train_epochs == 60
    assert args.lr_scheduler_type == "inverse_sqrt" and args.get_warmup_steps(6600) == 400
    asked = quick("none", lr=1e-3, warmup_steps=7, epochs=2.0, lr_schedule="linear")
    args = jobs.arguments(tmp_path, asked, prepared, True)
    assert (args.learning_rate, args.warmup_steps, args.num_train_epochs) == (1e-3, 7, 2)
    assert args.lr_scheduler_type == "linear"


def test_sizes() -> None:
    """72 heads of three kinds in the paper's and the small one, 24 in the tiny one; one table of embeddings."""
    words = train_bpe(["a b"], 300)
    for name, heads in (("tiny", 24), ("small", 72), ("iwslt", 72)):
        with torch.device("meta"):
            model = sizes.build(name, words)
        sites = discover(model)
        assert sum(site.count for site in sites) == heads
        assert {site.kind for site in sites} == {"encoder", "decoder", "cross"}
        assert model.config.decoder_start_token_id == words.bos_token_id
    assert (model.config.d_model, model.config.encoder_ffn_dim, model.config.dropout) == (512, 1024, 0.3)


def test_branches_of_a_new_model_start_small(made: Any) -> None:
    """By DeepNorm's factors, 0.87 (N^4 M)^(-1/16) and (12 M)^(-1/4): a deep post-norm model learns from the start."""
    _, words, _ = made
    weights, std = sizes.build("small", words).state_dict(), 128**-0.5
    for side, factor in (("encoder", 0.497), ("decoder", 0.343)):
        for name in ("self_attn.v_proj", "self_attn.out_proj", "fc1", "fc2"):
            weight = weights[f"model.{side}.layers.5.{name}.weight"]
            assert float(weight.std()) == pytest.approx(factor * std, rel=0.05)
        assert float(weights[f"model.{side}.layers.5.self_attn.q_proj.weight"].std()) == pytest.approx(std, rel=0.05)


def test_translations_of_the_masked_and_the_pruned_model_are_the_same(made: Any) -> None:
    """Judged against what the whole model says, so that the scores are neither 0 nor 100."""
    model, words, texts = made
    sites = discover(model)
    whole = translate(model, words, texts)
    bleu = Bleu()
    for seed in range(2):
        kept = Goal(16, sites).kept(torch.rand(24, generator=torch.Generator().manual_seed(seed)))
        with kheads.gated(model, kept.mask(sites)):
            masked = translate(model, words, texts)
        pruned = translate(kheads.remove(copy.deepcopy(model), kept), words, texts)
        assert masked == pruned != whole
        assert bleu(masked, whole)["bleu"] == bleu(pruned, whole)["bleu"] < 99


def test_translate_equals_generate(made: Any) -> None:
    """In their order, whatever the batches; empty lines stay empty."""
    model, words, texts = made
    alone = []
    for text in texts[:4]:
        inputs = words(text, return_tensors="pt")
        ids = model.generate(**inputs, num_beams=3, do_sample=False, max_new_tokens=2 * 7 + 10)
        alone.append(words.decode(ids[0], skip_special_tokens=True).strip())
    for batch_tokens in (7, 15, 1000):
        assert translate(model, words, texts[:4], beams=3, batch_tokens=batch_tokens) == alone
    found = translate(model, words, ["", texts[1], "  ", texts[0]], beams=3)
    assert found == ["", alone[1], "", alone[0]]
    assert translate(model, words, []) == [] and len(set(alone)) > 1


def test_what_a_forward_pass_measures(made: Any) -> None:
    """Log-probabilities of the reference tokens: small, and the model's own loss."""
    model, words, texts = made
    batch = words(texts[:3], text_target=texts[3:6], padding=True, return_tensors="pt")
    labels = batch["labels"].masked_fill(batch["labels"] == words.pad_token_id, -100)
    with torch.no_grad():
        out = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels)
    found = reference_log_probabilities((out.logits, None), labels)
    assert found.shape == labels.shape and (found[labels == -100] == 0).all()
    measured = perplexity(type("P", (), {"predictions": found.numpy(), "label_ids": labels.numpy()})())
    assert measured["perplexity"] == pytest.approx(float(out.loss.exp()), rel=1e-4)


def test_bleu_is_sacrebleus(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = ["The dog doesn't bark at night .", "Two cats sleep , don't they ?", "It is a book."]
    same = Bleu()(reference, reference)
    assert same["bleu"] == same["bleu_moses"] == pytest.approx(100) and same["exact"] == 1
    other = [line.lower() for line in reference]
    lower = Bleu()(other, reference)
    assert lower["bleu_moses"] == pytest.approx(100) and lower["bleu"] < 80 and lower["exact"] == 0
    assert "case:lc" in lower["bleu_moses_signature"] and "tok:none" in lower["bleu_moses_signature"]
    assert "case:mixed" in lower["bleu_signature"] and "tok:13a" in lower["bleu_signature"]
    tokens = ["the dog does n't bark .", "it 's ( a ) book ."]
    assert Bleu(tokenized=True)(tokens, tokens)["bleu"] == pytest.approx(100)

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ValueError, match=r"Translation needs sacremoses; install it with: pip install 'kheads\[trans"):
        Bleu()(reference, reference)


# ------------------------------------------------------------------------------------------------- the command line


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with parallel text, as working directory."""
    task = numbers().sample(80, 4)
    assert task.train is not None
    for name, pairs in (("train", task.train), ("dev", task.evals["unseen"])):
        (tmp_path / f"{name}.de").write_text("".join(f"{line}\n" for line in pairs.sources), encoding="utf-8")
        (tmp_path / f"{name}.en").write_text("".join(f"{line}\n" for line in pairs.targets), encoding="utf-8")
    (tmp_path / "short.en").write_text("one\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


TASK = ("--task", "translation")


def sets(*settings: str) -> tuple[str, ...]:
    return tuple(word for setting in settings for word in ("--set", setting))


TRAINING = sets("train_source=train.de", "train_target=train.en")
EVALUATION = sets("eval_source=dev=dev.de", "eval_target=dev=dev.en")
FILES = (*TRAINING, *EVALUATION, *sets("clean=false"))
FAST = (*sets("vocab_size=400", "batch_tokens=256", "beams=2"), "--max-steps", "2")


def test_from_files_to_translations(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prune, look at the kinds side by side, evaluate, translate; the folder alone is enough."""
    assert call(monkeypatch, "prune", "tiny", "-k", "7", *TASK, *FILES, *FAST, "-o", "out") == 0
    told = capsys.readouterr().out
    assert "bleu, dev" in told and "7 of 24 heads" in told and "encoder self" in told and "kheads translate out" in told
    assert call(monkeypatch, "heads", "out") == 0
    told = capsys.readouterr().out
    assert "model.encoder.layers.1.self_attn " in told and "model.decoder.layers.0.encoder_attn " in told
    assert "decoder" in told and "cross" in told and "7 of 24 heads" in told
    record = json.loads((place / "out" / "result.json").read_text())
    (place / "out").rename(place / "moved")
    for path in (*place.glob("train.*"), *place.glob("out*")):
        path.unlink()
    files = (*EVALUATION, *sets("beams=2"), "--json")
    assert call(monkeypatch, "eval", "moved", *files) == 0
    metrics = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert metrics["dev"]["bleu"] == pytest.approx(record["metrics"]["pruned"]["dev"]["bleu"])
    assert call(monkeypatch, "translate", "moved", "dev.de", "--beams", "2", "-o", "dev.out") == 0
    words, model = AutoTokenizer.from_pretrained(place / "moved"), kheads.load(place / "moved")
    texts = (place / "dev.de").read_text(encoding="utf-8").splitlines()
    assert (place / "dev.out").read_text(encoding="utf-8").splitlines() == translate(model, words, texts, beams=2)


def test_lines_from_standard_input(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, words, texts = made
    kheads.save(copy.deepcopy(model), tmp_path / "saved", tokenizer=words)
    given = f"{texts[0]}\n\n{texts[1]}\n".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    assert call(monkeypatch, "translate", str(tmp_path / "saved"), "--beams", "1") == 0
    one, other = translate(model, words, texts[:2], beams=1)
    assert capsys.readouterr().out == f"{one}\n\n{other}\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ein\n\xe4\n")))
    assert call(monkeypatch, "translate", str(tmp_path / "saved")) == 2
    assert "standard input, line 2: not UTF-8 (byte 0xe4)" in capsys.readouterr().err


@pytest.mark.slow
def test_the_demo_tells_its_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = Recipe(steps=2, further_steps=2, batch_tokens=256, eval_pairs=2)
    run_demo(tmp_path / "demo", recipe=recipe)
    told = capsys.readouterr().out
    for words in (
        "Unpruned",
        "Joint DSP",
        "Surgeon, cut only",
        "Surgeon, repaired, no training",
        "8 of 24 heads",
        "encoder self",
        "never seen",
    ):
        assert words in told
    assert sum(site.count for site in discover(kheads.load(tmp_path / "demo"))) == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("prune", "tiny", "-k", "3", *TASK), "Give translation data in one way: train_source"),
        (("prune", "tiny", "-k", "3", *TASK, *FILES, "--set", "dataset=numbers"), "Give translation data in one way"),
        (("prune", "tiny", "-k", "3", *TASK, *FILES, "--batch-size", "8"), "translation; use `batch_tokens`"),
        (("prune", "tiny", "-k", "3", "--set", "beams=2", "--eval", "x"), "`beams` belongs to --task translation"),
        (("prune", "m", "-k", "3", "--task", "rte", "--set", "tokenized=true"), "`tokenized` belongs to --task"),
        (("prune", "tiny", "-k", "3", *TASK, "--set", "train_source=train.de"), "`train_source` needs `train_target`"),
        (("prune", "tiny", "-k", "3", *TASK, *FILES, "--set", "eval_source=test=dev.de"), "'test' has one side"),
        (
            ("prune", "tiny", "-k", "3", *TASK,
             *sets("train_source=train.de", "train_target=short.en", "eval_source=dev.de", "eval_target=dev.en")),
            "train.de, line 2: short.en has only 1 lines",
        ),
        (("prune", "tiny", "-k", "99", *TASK, *FILES, *FAST), "`-k` must be between 1 and 24"),
        (("prune", "tiny", "-k", "3", *TASK, *FILES, "--max-length", "1"), "No training pair has at most 1 tokens"),
        (("prune", "tiny", "-k", "3", *TASK, *FILES, *FAST, "--set", "batch_tokens=4"), "`batch_tokens` must be at"),
        (("prune", "nowhere", "-k", "3", *TASK, *FILES, "--set", "vocab_size=400"), "`vocab_size` is for a new model"),
    ],
)  # fmt: skip
def test_bad_input_ends_in_one_sentence(
    words: tuple[str, ...],
    message: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(path.name for path in place.iterdir())
    assert call(monkeypatch, *words, "-o", "out") == 2
    sentence = capsys.readouterr().err.strip().splitlines()[-1]
    assert sentence.startswith("kheads: ") and message in sentence
    assert sorted(path.name for path in place.iterdir()) == before


def test_unknown_data_options_are_refused() -> None:
    with pytest.raises(ValueError, match="`beam` does not belong to the task translation"):
        data_of("translation", {"beam": 3})


def test_a_multilingual_tokenizer_needs_its_languages(made: Any) -> None:
    """As mBART's: the tokenizer is told its languages, and a translation begins with the target's token."""
    model, _, _ = made
    words: Any = type("Tok", (), {"src_lang": "x", "convert_tokens_to_ids": lambda self, code: {"en_XX": 9}[code]})()
    with pytest.raises(ValueError, match="Tok speaks many languages; give `target_lang`"):
        translation._set_languages(copy.deepcopy(model), words, Translation(source_lang="de_DE"))
    told = copy.deepcopy(model)
    translation._set_languages(told, words, Translation(source_lang="de_DE", target_lang="en_XX"))
    assert words.src_lang == "de_DE" and told.generation_config.forced_bos_token_id == 9


@pytest.mark.slow
def test_two_processes_translate_together(place: Path) -> None:
    """Token batches are shared out, and every process gets every translation."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29593"]
    command = ["-m", "kheads", "prune", "tiny", "-k", "7", *TASK, *FILES, *FAST, "-o", "out"]
    done = subprocess.run(
        [*launch, *command], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("7 of 24 heads") == 1
    record = json.loads((place / "out" / "result.json").read_text())
    data = {"dev": ("dev.de", "dev.en")}
    pairs = from_parallel(None, data).evals["dev"]
    words, model = AutoTokenizer.from_pretrained(place / "out"), kheads.load(place / "out")
    alone = Bleu()(translate(model, words, pairs.sources, beams=2), pairs.targets)
    assert alone["bleu"] == pytest.approx(record["metrics"]["pruned"]["dev"]["bleu"])
