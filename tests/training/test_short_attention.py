"""Short texts in 16 bits are trained with plain products; everything else with the attention that torch chooses."""

from pathlib import Path

import pytest
import torch

from command import Fresh
from kheads.training.short_attention import SHORT, short_attention
from kheads.training.trainer import GatedTrainer
from small_runs import arguments, data


@pytest.mark.parametrize(
    ("changes", "fused"),
    [({"bf16": True}, False), ({}, True), ({"bf16": True, "gradient_checkpointing": True}, True)],
)
def test_training_in_16_bits_leaves_the_fused_attention_alone(
    changes: dict[str, bool], fused: bool, fresh: Fresh, tmp_path: Path
) -> None:
    model, seen = fresh("bert"), set[bool]()
    model.register_forward_pre_hook(lambda *_: seen.add(torch.backends.cuda.flash_sdp_enabled()))
    GatedTrainer(model=model, args=arguments(tmp_path, max_steps=1, **changes), train_dataset=data("bert")).train()
    assert seen == {fused} and torch.backends.cuda.flash_sdp_enabled()


def test_long_texts_and_images_keep_it() -> None:
    for inputs, fused in (
        ({"input_ids": torch.ones(2, SHORT, dtype=torch.long)}, False),
        ({"input_ids": torch.ones(2, SHORT + 1, dtype=torch.long)}, True),
        ({"input_ids": torch.ones(2, 5, dtype=torch.long), "labels": torch.ones(2, SHORT + 1)}, True),
        ({"input_ids": torch.ones(2, 5, dtype=torch.long), "labels": torch.ones(2)}, False),
        ({"pixel_values": torch.ones(2, 3, 8, 8)}, True),
    ):
        with short_attention(inputs):
            assert torch.backends.cuda.flash_sdp_enabled() == fused
