"""einops inside a forward: what keeps B and L, joins them, or stacks frames."""

import pytest
import torch
from nets import net

einops = pytest.importorskip("einops")

from architectures import check
from einops import rearrange, reduce, repeat
from einops.layers.torch import Rearrange
from torch import nn

import dreamstream as ds
from dreamstream.errors import NotStreamableError


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)
        self.last = Rearrange("b c t -> b t c")
        self.linear = nn.Linear(4, 8)

    def forward(self, x):
        y = self.linear(self.last(self.conv(x)))
        y = rearrange(y, "b t (h d) -> b h t d", h=2) * torch.tensor([1.0, 2.0]).reshape(1, 2, 1, 1)
        y = rearrange(y, "b h t d -> b t (h d)")
        z = torch.relu(rearrange(y, "b t c -> (b t) c"))
        z = rearrange(z, "(b t) c -> b t c", b=x.shape[0])
        spread = rearrange(y, "b t (n c) -> b (t n) c", n=2)
        return (reduce(y + z, "b t (c d) -> b t d", "mean", c=2), spread, repeat(z, "b t c -> b t c k", k=2))


def test_heads():
    torch.manual_seed(0)
    assert check(Heads(), ("B", 4, "L"), (30, 11, 1), 9) == [1, 1, 1]


def test_what_mixes_streams_is_refused():
    with pytest.raises(NotStreamableError, match="over the batch"):
        ds.compile(net(nn, lambda self, x: reduce(x, "b c t -> c t", "mean")), ("B", 4, "L"))
