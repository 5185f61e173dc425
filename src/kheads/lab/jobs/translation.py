"""Translation: an encoder-decoder, trained from scratch or pretrained, scored by the BLEU of what it generates."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DataCollatorForSeq2Seq, PreTrainedModel, Seq2SeqTrainingArguments, set_seed

from kheads.lab.jobs.catalogue import Translation, data_of
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.storage import processors, sizes, sources
from kheads.tasks import translation
from kheads.tasks.bleu import Bleu, check_installed
from kheads.tasks.bpe import VOCABULARY, train_bpe
from kheads.tasks.parallel import Cleaning
from kheads.tasks.translating import translate_together
from kheads.tasks.translation import NUMBERS, TranslationTask
from kheads.training.batching import check_budget
from kheads.training.trainer import GatedSeq2SeqTrainer

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
    check_installed()  # before hours of training, not after
    data: Translation = data_of(job.task, job.data)
    task = load(data, job.seed).sample(job.max_train, job.max_eval, job.seed)
    if task.train is None:
        raise ValueError("Give training data: train_source and train_target, train (--train), or dataset.")
    model, words = _new_model(job, task, data) if sources.is_size(job.model) else _known_model(job, data)
    encoded, left_out = task.tokenize(words, job.max_length)
    batch_tokens = max(1, data.batch_tokens // job.accumulate)
    check_budget(max(encoded.train["length"]), batch_tokens)  # here, before anything is written
    recipe = FROM_SCRATCH if sources.is_size(job.model) else PRETRAINED
    return Prepared(
        model=model,
        processor=words,
        train=encoded.train,
        evals=encoded.evals,
        metric="bleu",
        able=not sources.is_size(job.model),
        trainer_options={
            "data_collator": DataCollatorForSeq2Seq(words, model=model),
            "compute_metrics": translation.perplexity,
            "preprocess_logits_for_metrics": translation.reference_log_probabilities,
            "batch_tokens": batch_tokens,
        },
        arguments={
            **recipe,
            "label_smoothing_factor": data.label_smoothing,
            "train_sampling_strategy": "random",  # batches by tokens see to lengths themselves
        },
        arguments_class=Seq2SeqTrainingArguments,
        trainer_class=GatedSeq2SeqTrainer,
        notes=(*task.notes, *left_out),
        score=lambda built: score(built, words, task, data),
    )


def prepare_evaluation(job: Job) -> Prepared:
    """Loads a translator, whose beams are scored; no training data is needed."""
    check_installed()
    data: Translation = data_of(job.task, job.data)
    task = load(data).sample(None, job.max_eval)
    model, words = _known_model(job, data)
    if torch.accelerator.is_available():
        model.to(torch.accelerator.current_accelerator())
    return Prepared(
        model=model,
        processor=words,
        train=None,
        evals={},
        metric="bleu",
        able=True,
        arguments_class=Seq2SeqTrainingArguments,
        trainer_class=GatedSeq2SeqTrainer,
        score=lambda built: score(built, words, task, data),
    )


def load(data: Translation, seed: int = 0) -> TranslationTask:
    """Finds the pairs: two files each, one file with two columns, or a data set by name."""
    parallel = bool(data.train_source or data.train_target or data.eval_source or data.eval_target)
    columns = bool(data.train or data.eval)
    if parallel + columns + bool(data.dataset) != 1:
        raise ValueError(
            "Give translation data in one way: train_source and train_target with eval_source and eval_target; "
            "train and eval (--train, --eval), files with two columns; or dataset (of the hub, or numbers, embedded)."
        )
    if data.dataset == NUMBERS:  # made clean, and German numbers are single words
        return translation.numbers(seed)
    if data.dataset:
        task = translation.from_hub(data.dataset, data.columns)
    elif columns:
        task = translation.from_pair_files(data.train, data.eval, data.columns)
    else:
        task = _parallel(data)
    return task.cleaned(Cleaning() if data.clean else None)


def score(model: PreTrainedModel, words: Any, task: TranslationTask, data: Translation) -> dict[str, Any]:
    """BLEU of every evaluation set, by beam search."""
    bleu = Bleu((data.target_lang or "en")[:2], data.tokenized)
    found = {}
    for name, pairs in task.evals.items():
        found[name] = bleu(translate_together(model, words, pairs.sources, beams=data.beams), pairs.targets)
    return found


def _parallel(data: Translation) -> TranslationTask:
    for name in ("train", "eval"):
        one, other = getattr(data, f"{name}_source"), getattr(data, f"{name}_target")
        if bool(one) != bool(other):
            given, missing = ("source", "target") if one else ("target", "source")
            raise ValueError(f"`{name}_{given}` needs `{name}_{missing}`: the lines of one file translate the other's.")
    if unpaired := sorted(set(data.eval_source) ^ set(data.eval_target)):
        raise ValueError(
            f"The evaluation set {unpaired[0]!r} has one side; give `eval_source` and `eval_target` for it."
        )
    train = (data.train_source, str(data.train_target)) if data.train_source else None
    evals = {name: (path, data.eval_target[name]) for name, path in data.eval_source.items()}
    return translation.from_parallel(train, evals)


def _new_model(job: Job, task: TranslationTask, data: Translation) -> tuple[Any, Any]:
    default = translation.NUMBERS_VOCABULARY if data.dataset == NUMBERS else VOCABULARY
    words = train_bpe(task.texts(), data.vocab_size or default, sizes.POSITIONS)
    set_seed(job.seed)
    return sizes.build(job.model, words), words


def _known_model(job: Job, data: Translation) -> tuple[Any, Any]:
    if data.vocab_size is not None:
        raise ValueError(f"`vocab_size` is for a new model ({', '.join(sizes.SIZES)}); {job.model} has its tokenizer.")
    model = sources.encoder_decoder(job.model)
    words = processors.fitting_tokenizer(job.model, model)
    _set_languages(model, words, data)
    return model, words


def _set_languages(model: Any, words: Any, data: Translation) -> None:
    """Tells a multilingual tokenizer its languages, and the model with which token a translation begins."""
    if not hasattr(words, "src_lang"):
        return
    for option in ("source_lang", "target_lang"):
        if getattr(data, option) is None:
            raise ValueError(f"{type(words).__name__} speaks many languages; give `{option}` as it calls it.")
    words.src_lang, words.tgt_lang = data.source_lang, data.target_lang
    first = words.get_lang_id(words.tgt_lang) if hasattr(words, "get_lang_id") else None
    model.generation_config.forced_bos_token_id = (
        first if first is not None else words.convert_tokens_to_ids(words.tgt_lang)
    )
