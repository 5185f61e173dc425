"""The quick start of the README: gate a small BERT, remove all but K heads, save, reload, compare."""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification

import kheads

config = BertConfig(hidden_size=128, num_hidden_layers=4, num_attention_heads=8)
model = BertForSequenceClassification(config).eval()
sites = kheads.discover(model)  # 4 attention modules with 8 heads each
kept = kheads.select(torch.rand(32), k=6, sites=sites)  # 6 heads, by random scores
inputs = {"input_ids": torch.randint(1000, 30000, (2, 16))}

with torch.no_grad(), kheads.gated(model, kept.mask(sites)):  # all others times 0
    masked = model(**inputs).logits
kheads.remove(model, kept)  # their weights are gone
folder = kheads.save(model, tempfile.mkdtemp())
with torch.no_grad():
    reloaded = kheads.load(folder)(**inputs).logits

per_layer = [len(heads) for heads in kept.to_dict().values()]
print(f"kept {len(kept)} of 32 heads: {per_layer} per layer")
print(f"masked and reloaded logits differ by {(masked - reloaded).abs().max():.0e}")
