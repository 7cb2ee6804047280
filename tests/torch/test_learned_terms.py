"""What is added to scores by distance and is learned has offline's gradient, whatever it begins with."""

from __future__ import annotations

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import nn as native

torch = pytest.importorskip("torch")

FRAMES, CUTS = 40, (0, 7, 8, 25, 40)


def by_table(self, d):
    return self.t[d.clamp(0, len(self.start) - 1)]


def per_head(self, d):
    return self.t[:, d.clamp(-3, 3) + 3]


def slope(self, d):
    return self.t * d


#: What is added, of the distances; what it begins with; and which distances are hidden.
CASES = {
    "zeros by distance": (by_table, np.zeros(9), lambda d: d < 0),
    "a straight line by distance": (by_table, np.arange(9) * 0.25, lambda d: d < 0),
    "numbers by distance": (by_table, np.sin(np.arange(9)), lambda d: d < 0),
    "zeros for two heads": (per_head, np.zeros((2, 7)), lambda d: (d < -3) | (d > 5)),
    "a slope of zero": (slope, np.zeros(1), lambda d: d < 0),
    "a slope": (slope, np.full(1, -0.3), lambda d: d < 0),
    "exponentials": (lambda self, d: self.t.exp()[d.clamp(0, 8)], np.zeros(9), lambda d: d < 0),
}  # fmt: skip


def model(name, library):
    added, start, hidden = CASES[name]
    of = ds if library is native else torch
    parameter = native.Parameter if library is native else lambda a: torch.nn.Parameter(torch.from_numpy(a))

    class Attention(library.Module):
        def __init__(self):
            super().__init__()
            self.start, self.t = start, parameter(start.copy())

        def forward(self, x):  # (B, L, 4)
            i = of.arange(x.size(1))
            d = i[:, None] - i
            q = x.reshape(x.size(0), x.size(1), 2, 2).transpose(1, 2)
            scores = (q @ q.transpose(-2, -1) + added(self, d)).masked_fill(hidden(d), -1e30)
            return scores.softmax(-1) @ q

    return Attention()


def gradient(net, chunks, of):
    """The gradient of what is learned, with weights by frame, of a whole file or of a stream."""
    weight, total, at = np.cos(np.arange(FRAMES)), 0, 0
    for y in map(net, chunks):
        y = y.tensor() if hasattr(y, "tensor") else y
        n = y.shape[2]
        total = total + (y * of.tensor(weight[at : at + n]).reshape(n, 1)).sum()
        at += n
    total.backward()
    return None if net.t.grad is None else net.t.grad.numpy().copy()


@pytest.mark.parametrize("library", [torch.nn, native], ids=["torch", "native"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_offline(name, library):
    x = np.random.default_rng(0).standard_normal((FRAMES, 4))
    wanted = gradient(model(name, torch.nn), [torch.from_numpy(x[None])], torch)
    of = ds if library is native else torch
    net = ds.patch_module(model(name, library), train_variant="full-file-aligned").online().train()
    chunks = [
        ds.stream_tensor(
            (torch.from_numpy if of is torch else np.asarray)(x[None, a:b]),
            names=("B", "L", "F"), ids=["a"], sos=[a == 0], eos=[b == FRAMES],
        )
        for a, b in zip(CUTS, CUTS[1:])
    ]  # fmt: skip
    np.testing.assert_allclose(gradient(net, chunks, of), wanted, atol=1e-9)


@pytest.mark.parametrize("library", [torch.nn, native], ids=["torch", "native"])
def test_what_would_have_no_gradient_is_refused(library, monkeypatch):
    monkeypatch.setitem(CASES, "own frames are hidden", (by_table, np.zeros(9), lambda d: (d < -1) | (d == 0)))
    net = (
        ds.patch_module(model("own frames are hidden", library), train_variant="full-file-aligned")
        .online()
        .train()
    )
    x = (ds.tensor if library is native else torch.tensor)(np.ones((1, 5, 4)))
    with pytest.raises(ds.NotStreamableError, match="queries don't see their own frame"):
        net(ds.stream_tensor(x, names=("B", "L", "F"), ids=["a"], sos=True))


#: What a table says is seen, or adds, of 1,500 frames: the same near the start, something else far behind.
POSITIONS = torch.arange(1500)
D = POSITIONS[:, None] - POSITIONS
TABLES = {
    "a band": ((D >= 0) & (D <= 1200), lambda t, n: t[:n, :n]),
    "a band, of heads": (((D >= 0) & (D <= 1200))[None, None], lambda t, n: t[:, :, :n, :n][0]),
    "a band, by indices": ((D >= 0) & (D <= 1200), lambda t, n: t[torch.arange(n)[:, None], torch.arange(n)]),
    "a band, picked": (
        (D >= 0) & (D <= 1200),
        lambda t, n: t.index_select(0, torch.arange(n)).index_select(1, torch.arange(n)),
    ),
    "a term": (torch.where(D < 1200, 0.0, -3.0).masked_fill(D < 0, -torch.inf), lambda t, n: t[:n, :n]),
    "segments": (POSITIONS >= 1200, lambda t, n: (t[:n, None] == t[None, :n]) & torch.ones(n, n).tril().bool()),
}


class Masked(torch.nn.Module):
    def __init__(self, table, cut):
        super().__init__()
        self.register_buffer("table", table)
        self.cut = cut

    def forward(self, x):  # (B, L, 4)
        scores, said = x @ x.transpose(1, 2), self.cut(self.table, x.size(1))
        scores = scores + said if said.is_floating_point() else scores.masked_fill(~said, -torch.inf)
        return scores.softmax(-1) @ x


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_looked_at_to_their_ends(name):
    table, cut = TABLES[name]
    with pytest.raises(ds.NotStreamableError, match="at 1500 frames it says something else"):
        ds.compile(Masked(table, cut).eval(), ("B", "L", 4))
    near = table[..., :1100, :1100] if table.dim() > 1 else table[:1100]
    ds.compile(Masked(near, cut).eval(), ("B", "L", 4), verify=False)
