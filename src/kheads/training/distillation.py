"""Distillation (Hinton et al., 2015): a student learns what its teacher answers, besides what the labels say.

The teacher is the model as it was before heads were removed. What it answers counts, and so does how it gets there: the
student's residual stream has kept its width, so after every layer it can be compared with the teacher's. The teacher's
part of the loss is a mean over the same items as that of the labels, so the gradient does not depend on how a batch is
split.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from kheads.anatomy import unwrap
from kheads.blocks.fields import NotNegative, Positive, Range, check_fields
from kheads.training.drawn_labels import NEVER, SPANS

MOST_KEPT = 2**20  # answers; images that are changed at random in every epoch would fill the memory
LABELS = ("labels", "start_positions", "end_positions")
TINY = 1e-12  # so that a stream of zeros is no division by zero
DECODED = "decoder_hidden_states"
STREAMS = ("hidden_states", "encoder_hidden_states", DECODED)
ASKED = "output_hidden_states"  # how transformers is told to give them
CHUNK = 256  # tokens compared at a time: each has a number for every word of the vocabulary


@dataclass(frozen=True)
class Distillation:
    """How a student learns from its teacher.

    Attributes:
        weight: share of the teacher in the loss; the labels have the rest, and at 1 none are needed.
        temperature: what the logits of both are divided by; a higher one lets unlikely classes count more.
        stream: what the hidden states after every layer weigh beside the teacher's answers; 0 leaves them alone.
    """

    weight: Annotated[float, Range(above=0, most=1)] = 0.5
    temperature: Positive = 2.0
    stream: NotNegative = 1.0

    def __post_init__(self) -> None:
        check_fields(self)


class State(NamedTuple):
    """A residual stream after a layer."""

    values: Tensor  # (B, T, C)
    decoded: bool  # whether the layer is a decoder's, beside an encoder


class Teacher:
    """A trained model that a student learns from.

    What it answers to an example as a whole is kept where nothing else is wanted, so a second epoch computes nothing
    anew. What it answers to every token, and its hidden states, would fill the memory and are computed each time.

    Args:
        model: the trained model, before anything is removed from it. The teacher is a copy, and never changes.
        distillation: how the student learns.
    """

    def __init__(self, model: nn.Module, distillation: Distillation):
        self.model: Any = copy.deepcopy(unwrap(model)).eval().requires_grad_(False)
        self.distillation = distillation
        self._config = getattr(self.model, "config", None)
        self._kept: dict[bytes, np.ndarray[Any, Any]] = {}  # rows of numpy take half the memory of tensors
        for part in self.model.modules():
            if isinstance(part, PreTrainedModel):
                part.config.use_cache = False  # it never generates, and keys and values can be as large as the logits

    def loss(
        self, batch: Mapping[str, Any], outputs: Any, of_labels: Tensor | None = None, shifted: bool = False
    ) -> Tensor:
        """What the student is to minimise on a batch.

        Args:
            batch: what the student was given, and the labels.
            outputs: what it answered.
            of_labels: the mean loss of the labels; without labels the teacher's part is all of the loss.
            shifted: whether each token answers for the label after it, as in causal language models.
        """
        weight, stream = self.distillation.weight, self.distillation.stream
        states, told = hidden_states(outputs) if stream else [], None
        if states:
            told = self._run({**self._with_decoder_inputs(batch), ASKED: True}, states[0].values.device)
        if _answers_spans(outputs):
            part = self._of_spans(batch, outputs, told)
        else:
            logits = logits_of(outputs)
            of_logits = self._of_tokens if logits.dim() == 3 else self._of_examples
            part = of_logits(batch, logits, told, shifted)
        if states:
            part = part + stream * self._of_streams(batch, states, hidden_states(told), shifted)
        return part if of_labels is None or weight == 1 else weight * part + (1 - weight) * of_labels

    def asking(self, model: nn.Module, batch: Mapping[str, Any]) -> dict[str, Any]:
        """What a student is given, so that its hidden states are among its answers where they count."""
        asks = self.distillation.stream and isinstance(unwrap(model), PreTrainedModel)
        return {**batch, ASKED: True} if asks else dict(batch)

    # ---------------------------------------------------------------------------------------- the teacher's part

    def _of_streams(
        self, batch: Mapping[str, Any], states: Sequence[State], wanted: Sequence[State], shifted: bool
    ) -> Tensor:
        """How far the student's stream is from the teacher's, as a share of its squares, on average over the layers."""
        parts = []
        for state, (other, _) in zip(states, wanted, strict=True):
            own = state.values
            _check_shapes(own, other)
            far = (own.float() - other.float()).square().sum(-1) / other.float().square().sum(-1).clamp(min=TINY)
            parts.append((far * self._stream_weights(batch, state, shifted)).sum())
        return torch.stack(parts).mean()

    def _stream_weights(self, batch: Mapping[str, Any], state: State, shifted: bool) -> Tensor:
        """What each hidden state weighs, (B, T), 1 in all: its example's share of the items, by its tokens."""
        labels, states = batch.get("labels"), state.values
        items = torch.ones(len(states), device=states.device)
        if isinstance(labels, Tensor) and labels.dim() == 2 and not labels.is_floating_point():
            items = (labels[:, 1:] if shifted else labels).ne(-100).sum(1).float()
        masks = [batch.get("attention_mask")]
        if state.decoded:  # a source may be as long as its target
            told = labels.ne(-100) if isinstance(labels, Tensor) else None
            masks = [batch.get("decoder_attention_mask"), told, *masks]
        fitting = [mask for mask in masks if isinstance(mask, Tensor) and mask.shape == states.shape[:2]]
        counted = (fitting[0] if fitting else torch.ones(states.shape[:2], device=states.device)).float()
        counted = counted / counted.sum(1, keepdim=True).clamp(min=1)
        return counted * (items / items.sum().clamp(min=1)).unsqueeze(1)

    def _of_examples(self, batch: Mapping[str, Any], logits: Tensor, told: Any, shifted: bool) -> Tensor:
        answers = self._remembered(batch, logits) if told is None else logits_of(told).float()
        _check_shapes(logits, answers)
        problem = getattr(self._config, "problem_type", None)
        if problem == "multi_label_classification" or (problem is None and _several(batch, logits)):
            logits, answers = _as_two_classes(logits), _as_two_classes(answers)
        elif problem == "regression" or logits.shape[1] == 1:
            return functional.mse_loss(logits.float(), answers)
        return self._divergence(logits, answers).mean()

    def _of_tokens(self, batch: Mapping[str, Any], logits: Tensor, told: Any, shifted: bool) -> Tensor:
        weights = self._token_weights(batch, logits, shifted)
        answers = self._ask(self._with_decoder_inputs(batch), logits.device) if told is None else logits_of(told)
        _check_shapes(logits, answers)
        chunks = zip(*(torch.split(rows.flatten(0, 1), CHUNK) for rows in (logits, answers, weights)), strict=True)
        # Backward computes each chunk again: nothing of the vocabulary's size stays but the logits themselves.
        parts = [checkpoint(self._mean, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
        return torch.stack(parts).sum()

    def _of_spans(self, batch: Mapping[str, Any], outputs: Any, told: Any) -> Tensor:
        """Where an answer begins and where it ends, each a choice among the tokens that are no padding."""
        mask = batch.get("attention_mask")
        answers = self._run(_without_labels(batch), outputs[SPANS[0]].device) if told is None else told
        parts = []
        for name in SPANS:
            logits, told = outputs[name], answers[name]
            _check_shapes(logits, told)
            if mask is not None:
                logits, told = (scores.float().masked_fill(mask == 0, NEVER) for scores in (logits, told))
            parts.append(self._divergence(logits, told).mean())
        return torch.stack(parts).mean()

    def _mean(self, logits: Tensor, answers: Tensor, weights: Tensor) -> Tensor:
        counted = weights > 0
        return (self._divergence(logits[counted], answers[counted]) * weights[counted]).sum()

    def _divergence(self, logits: Tensor, answers: Tensor) -> Tensor:
        """KL(teacher || student), (..., C) to (...); times T^2, gradients are as large as those of the labels."""
        temperature = self.distillation.temperature
        student = functional.log_softmax(logits.float() / temperature, -1)
        teacher = functional.log_softmax(answers.float() / temperature, -1)
        return functional.kl_div(student, teacher, reduction="none", log_target=True).sum(-1) * temperature**2

    def _token_weights(self, batch: Mapping[str, Any], logits: Tensor, shifted: bool) -> Tensor:
        """What each token weighs in the mean, (B, T), 1 in all.

        Tokens with a label weigh the same. Without labels examples do: they are what the trainer then counts.
        """
        labels = batch.get("labels")
        if labels is None:
            counted = self._attended(batch, logits)
            _check_tokens("mask", counted, logits)
            return counted / counted.sum(1, keepdim=True).clamp(min=1) / len(counted)
        _check_tokens("labels", labels, logits)
        counted = labels != -100
        counted = functional.pad(counted[:, 1:], (0, 1)) if shifted else counted
        return counted / counted.sum().clamp(min=1)

    def _attended(self, batch: Mapping[str, Any], logits: Tensor) -> Tensor:
        mask: Tensor | None = batch.get("decoder_attention_mask" if self._has_decoder else "attention_mask")
        return torch.ones(logits.shape[:2], device=logits.device) if mask is None else mask

    # ---------------------------------------------------------------------------------------- what the teacher answers

    @property
    def _has_decoder(self) -> bool:
        return bool(getattr(self._config, "is_encoder_decoder", False))

    def _with_decoder_inputs(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Encoder-decoders make the decoder's inputs of the labels, if they are not given."""
        needed = self._has_decoder and batch.get("decoder_input_ids") is None
        return dict(batch) if needed else _without_labels(batch)

    def _remembered(self, batch: Mapping[str, Any], logits: Tensor) -> Tensor:
        """The answer to each example, (B, C), of which only new ones are computed."""
        given = _without_labels(batch)
        rows = {name: value for name, value in given.items() if isinstance(value, Tensor)}
        if not all(value.shape[:1] == logits.shape[:1] for value in rows.values()):
            return self._ask(given, logits.device).float()  # which part belongs to which example is not known
        if len(self._kept) > MOST_KEPT:
            self._kept.clear()
        keys = example_keys(rows)
        new = [index for index, key in enumerate(keys) if key not in self._kept]
        if new:
            answers = self._ask({**given, **{name: value[new] for name, value in rows.items()}}, logits.device)
            self._kept.update(zip((keys[index] for index in new), answers.float().cpu().numpy(), strict=True))
        return torch.from_numpy(np.stack([self._kept[key] for key in keys])).to(logits.device)

    def _ask(self, given: Mapping[str, Any], device: torch.device) -> Tensor:
        return logits_of(self._run(given, device))

    @torch.no_grad()
    def _run(self, given: Mapping[str, Any], device: torch.device) -> Any:
        if next(self.model.parameters()).device != device:
            self.model.to(device)
        return self.model(**given)


def _answers_spans(outputs: Any) -> bool:
    """Whether a model says where an answer begins and ends."""
    return isinstance(outputs, Mapping) and all(isinstance(outputs.get(name), Tensor) for name in SPANS)


def hidden_states(outputs: Any) -> list[State]:
    """The residual stream after every layer, as far as a model shows it; without the embeddings."""
    found = {name: outputs.get(name) or () for name in STREAMS} if isinstance(outputs, Mapping) else {}
    return [
        State(state, name == DECODED)
        for name, states in found.items()
        for state in states[1:]
        if isinstance(state, Tensor) and state.dim() == 3
    ]


def logits_of(outputs: Any) -> Tensor:
    """The logits among a model's outputs; in a tuple they come first, or after the loss, which has no dimension."""
    if isinstance(outputs, Mapping):
        found = outputs.get("logits")
    else:
        found = next((value for value in outputs if isinstance(value, Tensor) and value.dim()), None)
    if isinstance(found, Tensor) and found.dim() in (2, 3):
        return found
    what = f"logits of shape {tuple(found.shape)}" if isinstance(found, Tensor) else "no logits"
    raise ValueError(
        f"The model gives {what}, and a student learns from logits for each example, (B, C), or each token, (B, T, V); "
        "use a model with a head for the task, or train without a teacher."
    )


def example_keys(rows: Mapping[str, Tensor]) -> list[bytes]:
    """A hash of the content of each example.

    Args:
        rows: tensors with one row for each example; what `attention_mask` leaves out at their end does not count.
    """
    here = {name: value.cpu() for name, value in sorted(rows.items())}
    mask = here.get("attention_mask")
    count = len(next(iter(here.values())))
    return [_key({name: _trimmed(value, mask, index) for name, value in here.items()}) for index in range(count)]


def _key(example: Mapping[str, Tensor]) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for name, value in example.items():
        found.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        found.update(value.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return found.digest()


def _trimmed(value: Tensor, mask: Tensor | None, index: int) -> Tensor:
    """One example without the padding behind it; padding in front moves the rest to other positions, so it stays."""
    if mask is None or mask.shape != value.shape:
        return value[index]
    attended = mask[index].nonzero()[:, -1]
    return value[index][..., : int(attended.max()) + 1] if len(attended) else value[index]


def _without_labels(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if name not in LABELS}


def _several(batch: Mapping[str, Any], logits: Tensor) -> bool:
    """Whether an example may have several labels: models that are not told take it from what the labels look like."""
    labels = batch.get("labels")
    return isinstance(labels, Tensor) and labels.is_floating_point() and logits.shape[1] > 1


def _as_two_classes(logits: Tensor) -> Tensor:
    """Each label by itself, yes or no, (B, C) to (B, C, 2): softmax over the two is the sigmoid of the logit."""
    return torch.stack((logits, torch.zeros_like(logits)), -1)


def _check_shapes(logits: Tensor, answers: Tensor) -> None:
    if logits.shape != answers.shape:
        raise ValueError(
            f"The student's logits have the shape {tuple(logits.shape)}, the teacher's {tuple(answers.shape)}; give "
            "the model that the student was made from as the teacher."
        )


def _check_tokens(what: str, given: Tensor, logits: Tensor) -> None:
    if given.shape != logits.shape[:2]:
        raise ValueError(
            f"The {what} of shape {tuple(given.shape)} and logits of shape {tuple(logits.shape)} are not of the same "
            "tokens; train this model without a teacher."
        )
