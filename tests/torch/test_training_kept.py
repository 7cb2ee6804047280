"""What `audit` says that training keeps, beside what the graph of a call holds."""

import pytest
import torch
from torch import nn

import dreamstream as ds


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.rnn = nn.Conv1d(8, 16, 5, stride=2, padding=2), nn.LSTM(16, 16, batch_first=True)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x):
        y, _ = self.rnn(torch.relu(self.conv(x)).transpose(1, 2))
        return self.head(self.norm(y)).square()


def held_by(outputs, model):
    """Return the bytes of the tensors that graphs hold, found by walking through them."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found, seen, left = {}, set(), [y.grad_fn for y in outputs]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        left += [parent for parent, _ in node.next_functions]
        for name in dir(node):
            saved = getattr(node, name) if name.startswith("_saved_") else None
            for t in saved if isinstance(saved, (tuple, list)) else (saved,):
                if isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() not in own:
                    found[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
    return sum(found.values())


@pytest.mark.parametrize("variant", ["chunk-wise-aligned", "full-file-aligned"])
@pytest.mark.parametrize("chunk, ids", [(10, ["anna", "bob"]), (64, ["anna"])])
def test_kept_is_what_the_graph_holds(variant, chunk, ids):
    model = Tagger()
    options = {"train_variant": variant, "chunk": chunk, "ids": ids, "n_calls": 6}
    before = {k: v.clone() for k, v in model.state_dict().items()}
    said = ds.audit(model, ("B", 8, "L"), **options).training
    assert not hasattr(model, "online") and all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    ds.patch_module(model, train_variant=variant).train().online()
    outputs, held = [], []
    for k in range(6):
        x = ds.stream_tensor([torch.zeros(8, chunk) for _ in ids], ids=ids, sos=k == 0)
        outputs = [*outputs, model(x)] if variant != "chunk-wise-aligned" else [model(x)]
        held.append(held_by(outputs, model))
    if variant != "chunk-wise-aligned":
        held = [b - a for a, b in zip([0, *held], held)]
    assert list(said) == held and len(set(said[1:])) == 1 and said[1] > 0
