"""A training loop of your own, without Trainer: learn which 6 of 32 heads to keep, then remove the others.

The toy task: is there a 9 anywhere in the sequence? The classifier reads the first token only, so it needs attention.
"""

import sys

import torch
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForSequenceClassification

import kheads

STEPS, K = 120, 6
SHAPE = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 128}


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, labels = torch.randint(10, 60, (size, 12)), torch.randint(0, 2, (size,))
    tokens[labels.bool(), torch.randint(1, 12, (size,))[labels.bool()]] = 9
    return tokens, labels


torch.manual_seed(0)
model = BertForSequenceClassification(BertConfig(vocab_size=60, num_labels=2, **SHAPE)).train()
weights = list(model.parameters())
pruner = kheads.attach(model, method=sys.argv[1] if len(sys.argv) > 1 else "dsp", k=K, steps=STEPS)
optimizer = torch.optim.AdamW([{"params": weights, "lr": 1e-3}, pruner.param_group()])
for _ in range(STEPS):
    tokens, labels = batch(32)
    loss = cross_entropy(model(input_ids=tokens).logits, labels) + pruner.penalty()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(weights, 1.0)
    pruner.step()
    optimizer.step()
    optimizer.zero_grad()

kept = pruner.finish()
tokens, labels = batch(1000)
with torch.no_grad():
    accuracy = (model.eval()(input_ids=tokens).logits.argmax(-1) == labels).float().mean()
print(f"{len(kept)} of 32 heads, {[len(heads) for _, heads in kept.blocks]} per layer: {accuracy:.1%}")
