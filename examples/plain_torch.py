"""Joint DSP in a training loop of your own, without Trainer: learn which 6 of 32 heads to keep, then remove the others.

The toy task: is there a 9 anywhere in the sequence? The classifier reads the first token only, so it needs attention.
"""

import torch
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForSequenceClassification

import kheads
from kheads.methods import Goal
from kheads.training.learned_gates import LearnedGates

STEPS, K, SEED = 120, 6, 0


def batch(size: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(10, 60, (size, 12), generator=generator)
    labels = torch.randint(0, 2, (size,), generator=generator)
    places = torch.randint(1, 12, (size,), generator=generator)
    tokens[labels.bool(), places[labels.bool()]] = 9
    return tokens, labels


def main() -> None:
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    config = BertConfig(
        vocab_size=60, hidden_size=64, num_hidden_layers=4, num_attention_heads=8, intermediate_size=128, num_labels=2
    )
    model = BertForSequenceClassification(config)
    goal = Goal(K, kheads.discover(model))
    gates = kheads.attach(model, LearnedGates(kheads.DSP.preset("short"), goal, SEED))
    weights = [parameter for parameter in model.parameters() if parameter is not gates.w]
    optimizer = torch.optim.AdamW(
        [{"params": weights, "lr": 1e-3}, {"params": [gates.w], "lr": 0.1, "weight_decay": 0}]
    )

    model.train()
    for step in range(STEPS):
        gates.set_moment(step, STEPS)
        tokens, labels = batch(32, generator)
        loss = cross_entropy(model(input_ids=tokens).logits, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        torch.nn.utils.clip_grad_norm_([gates.w], 1.0)  # on its own: a spike must not scale the model's update
        optimizer.step()
        optimizer.zero_grad()

    model.eval()  # from here on the gates are the hard subset
    kept = kheads.detach(model).kept()
    kheads.remove(model, kept)
    tokens, labels = batch(1000, generator)
    with torch.no_grad():
        accuracy = (model(input_ids=tokens).logits.argmax(-1) == labels).float().mean()
    print(f"{len(kept)} of 32 heads, {[len(heads) for heads in kept.to_dict().values()]} per layer: {accuracy:.1%}")


if __name__ == "__main__":
    main()
