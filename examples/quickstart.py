"""The quick start of the README: gate a small BERT, remove all but K heads, save, reload, compare."""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification

import kheads

model = BertForSequenceClassification(BertConfig(hidden_size=128, num_hidden_layers=4, num_attention_heads=8)).eval()
sites = kheads.discover(model)  # 4 attention modules with 8 heads each
kept = kheads.select(torch.rand(32), k=6, sites=sites)  # exactly 6 heads, here by random scores
inputs = {"input_ids": torch.randint(1000, 30000, (2, 16))}

with torch.no_grad(), kheads.gated(model, kept.mask(sites)):  # every other head's output times 0
    masked = model(**inputs).logits
kheads.remove(model, kept)  # their weights are gone
folder = kheads.save(model, tempfile.mkdtemp())
with torch.no_grad():
    reloaded = kheads.load(folder)(**inputs).logits

print(f"kept {len(kept)} of 32 heads: {[len(heads) for heads in kept.to_dict().values()]} per layer")
print(f"largest difference between masked and reloaded logits: {(masked - reloaded).abs().max():.0e}")
