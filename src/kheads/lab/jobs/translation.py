"""Translation: an encoder-decoder, trained from scratch or pretrained, scored by the BLEU of what it generates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import DataCollatorForSeq2Seq, PreTrainedModel, Seq2SeqTrainingArguments, set_seed

from kheads.lab.jobs.base import Job, Prepared
from kheads.storage import sizes, sources
from kheads.tasks import translation
from kheads.tasks.bleu import Bleu
from kheads.tasks.bpe import VOCABULARY, train_bpe
from kheads.tasks.parallel import Cleaning
from kheads.tasks.translating import BEAMS, translate_together
from kheads.tasks.translation import NUMBERS, TranslationTask
from kheads.training.batching import check_budget
from kheads.training.trainer import GatedSeq2SeqTrainer

# What a job's `data` may hold, and what is taken where it does not.
OPTIONS: dict[str, Any] = {
    "train_source": None,  # two files, line by line
    "train_target": None,
    "eval_source": {},  # files by the name of their evaluation set
    "eval_target": {},
    "train": None,  # or files with two columns
    "eval": {},
    "columns": {},  # their names: source and target
    "dataset": None,  # or a data set of the hub, or "numbers"
    "clean": True,  # leave training pairs out that are too long or too uneven
    "tokenized": False,  # the texts are Moses tokens
    "source_lang": None,  # as the model's tokenizer calls it; needed by multilingual ones
    "target_lang": None,
    "vocab_size": None,  # of a new model's tokenizer
    "batch_tokens": 4096,
    "label_smoothing": 0.1,
    "beams": BEAMS,
}

# The paper's recipe (Table 2). Warm-up is 4,000 of its about 66,000 steps, so that the schedule keeps its shape in runs
# of any length.
FROM_SCRATCH: dict[str, Any] = {
    "num_train_epochs": 60.0,
    "learning_rate": 5e-4,
    "lr_scheduler_type": "inverse_sqrt",
    "warmup_steps": 4000 / 66000,
    "weight_decay": 1e-4,
    "max_grad_norm": 0.0,
    "adam_beta2": 0.98,
}
PRETRAINED: dict[str, Any] = {"num_train_epochs": 3.0, "learning_rate": 5e-5, "adam_beta2": 0.98}


def prepare(job: Job) -> Prepared:
    """Loads the pairs, trains or loads the tokenizer, and builds or loads the model."""
    data = settings(job.data)
    task = load(data, job.seed).sample(job.max_train, job.max_eval, job.seed)
    if task.train is None:
        raise ValueError("Give training data: --train-source FILE --train-target FILE, --train FILE or --dataset NAME.")
    model, words = _new_model(job, task, data) if is_size(job.model) else _known_model(job, data)
    encoded, left_out = task.tokenize(words, job.max_length)
    batch_tokens = max(1, data["batch_tokens"] // job.accumulate)
    check_budget(max(encoded.train["length"]), batch_tokens)  # here, before anything is written
    recipe = FROM_SCRATCH if is_size(job.model) else PRETRAINED
    return Prepared(
        model=model,
        processor=words,
        train=encoded.train,
        evals=encoded.evals,
        metric="bleu",
        trainer_options={
            "data_collator": DataCollatorForSeq2Seq(words, model=model),
            "compute_metrics": translation.perplexity,
            "preprocess_logits_for_metrics": translation.reference_log_probabilities,
            "batch_tokens": batch_tokens,
        },
        arguments={
            **recipe,
            "label_smoothing_factor": data["label_smoothing"],
            "train_sampling_strategy": "random",  # batches by tokens see to lengths themselves
        },
        arguments_class=Seq2SeqTrainingArguments,
        trainer_class=GatedSeq2SeqTrainer,
        notes=(*task.notes, *left_out),
        score=lambda built: score(built, words, task, data),
    )


def settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data options with their defaults; one that translation does not know is refused."""
    for name in data:
        if name not in OPTIONS:
            raise ValueError(f"--task translation has no data option {name!r}; it has {', '.join(OPTIONS)}.")
    return {name: default if data.get(name) is None else data[name] for name, default in OPTIONS.items()}


def load(data: Mapping[str, Any], seed: int = 0) -> TranslationTask:
    """Finds the pairs: two files each, one file with two columns, or a data set by name."""
    parallel = bool(data["train_source"] or data["train_target"] or data["eval_source"] or data["eval_target"])
    columns = bool(data["train"] or data["eval"])
    if parallel + columns + bool(data["dataset"]) != 1:
        raise ValueError(
            "Give translation data in one way: --train-source and --train-target with --eval-source and --eval-target; "
            "--train and --eval with two columns; or --dataset NAME (of the hub, or numbers, the embedded task)."
        )
    if data["dataset"] == NUMBERS:  # made clean, and German numbers are single words
        return translation.numbers(seed)
    if data["dataset"]:
        task = translation.from_hub(data["dataset"], data["columns"])
    elif columns:
        task = translation.from_pair_files(data["train"], data["eval"], data["columns"])
    else:
        task = _parallel(data)
    return task.cleaned(Cleaning() if data["clean"] else None)


def score(model: PreTrainedModel, words: Any, task: TranslationTask, data: Mapping[str, Any]) -> dict[str, Any]:
    """BLEU of every evaluation set, by beam search."""
    bleu = Bleu((data["target_lang"] or "en")[:2], data["tokenized"])
    found = {}
    for name, pairs in task.evals.items():
        found[name] = bleu(translate_together(model, words, pairs.sources, beams=data["beams"]), pairs.targets)
    return found


def is_size(model: str) -> bool:
    """Whether the model is to be made; a folder of that name comes first."""
    return model in sizes.SIZES and not Path(model).is_dir()


def _parallel(data: Mapping[str, Any]) -> TranslationTask:
    for name in ("train", "eval"):
        one, other = data[f"{name}_source"], data[f"{name}_target"]
        if bool(one) != bool(other):
            given, missing = ("source", "target") if one else ("target", "source")
            raise ValueError(f"--{name}-{given} needs --{name}-{missing}: the lines of one file translate the other's.")
    if unpaired := sorted(set(data["eval_source"]) ^ set(data["eval_target"])):
        raise ValueError(
            f"The evaluation set {unpaired[0]!r} has one side; give --eval-source and --eval-target for it."
        )
    train = (data["train_source"], data["train_target"]) if data["train_source"] else None
    evals = {name: (path, data["eval_target"][name]) for name, path in data["eval_source"].items()}
    return translation.from_parallel(train, evals)


def _new_model(job: Job, task: TranslationTask, data: Mapping[str, Any]) -> tuple[Any, Any]:
    default = translation.NUMBERS_VOCABULARY if data["dataset"] == NUMBERS else VOCABULARY
    words = train_bpe(task.texts(), data["vocab_size"] or default, sizes.POSITIONS)
    set_seed(job.seed)
    return sizes.build(job.model, words), words


def _known_model(job: Job, data: Mapping[str, Any]) -> tuple[Any, Any]:
    if data["vocab_size"] is not None:
        raise ValueError(
            f"`--vocab-size` is for a new model ({', '.join(sizes.SIZES)}); {job.model} has its tokenizer."
        )
    model = sources.encoder_decoder(job.model)
    words = sources.tokenizer(job.model)
    _set_languages(model, words, data)
    return model, words


def _set_languages(model: Any, words: Any, data: Mapping[str, Any]) -> None:
    """Tells a multilingual tokenizer its languages, and the model with which token a translation begins."""
    if not hasattr(words, "src_lang"):
        return
    for option in ("source_lang", "target_lang"):
        if data[option] is None:
            flag = f"--{option.replace('_', '-')}"
            raise ValueError(f"{type(words).__name__} speaks many languages; give `{flag}` as it calls it.")
    words.src_lang, words.tgt_lang = data["source_lang"], data["target_lang"]
    first = words.get_lang_id(words.tgt_lang) if hasattr(words, "get_lang_id") else None
    model.generation_config.forced_bos_token_id = (
        first if first is not None else words.convert_tokens_to_ids(words.tgt_lang)
    )
