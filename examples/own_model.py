"""Models that are not in kheads' table: torch's own Transformer, and an attention class of yours."""

import json

import torch
from torch import nn

import kheads
from kheads.surgery.rebuild import rebuild
from kheads.surgery.removal import architecture


class Mixer(nn.Module):
    """An attention that kheads has never seen."""

    def __init__(self) -> None:
        super().__init__()
        self.head_dim = 8
        self.qkv, self.proj = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, -1, self.head_dim)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(mixed.transpose(1, 2).flatten(2))


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


torch.manual_seed(0)
inputs = torch.randn(2, 10, 32)

print("torch's own Transformer")
model = encoder()
try:
    kheads.discover(model)
except kheads.UnsupportedModelError as error:
    print(error)
with torch.no_grad():
    before = model(inputs)
    kheads.open_attention(model)  # the same outputs, with heads that can go
    print("opened: outputs are", "the same" if torch.allclose(model(inputs), before, atol=1e-5) else "different")
    for site in kheads.discover(model):
        print(site.name, site.kind, site.count)
    kheads.remove(model, kheads.Kept.from_dict({"layers.0.self_attn": [1], "layers.1.self_attn": [0, 3]}))
    record = json.dumps(architecture(model))  # saved beside the weights: what differs from the unpruned model
    again = rebuild(encoder(), json.loads(record))
    again.load_state_dict(model.state_dict())
    print("reloaded: outputs are", "equal" if torch.equal(again(inputs), model(inputs)) else "different")

print("\nan attention class of yours")
mixers = nn.Sequential(Mixer(), Mixer())
try:
    kheads.discover(mixers)
except kheads.UnsupportedModelError as error:
    print(error)
print("adopted:", *kheads.adopt(mixers, {"input": inputs}))
print("heads:", *(site.count for site in kheads.discover(mixers)))
