"""Attention as it is written in the models of others: what the idioms' files share."""

import re

import pytest
import torch
from one_stream import answers_made, held, patched, stepped
from torch import nn

import dreamstream as ds
from dreamstream import NotStreamableError

F = nn.functional
T, WIDTH, HEADS, GROUPS = 45, 12, 4, 2
HEAD = WIDTH // HEADS


class Distances(nn.Module):
    """Sinusoids of distances, a table that grows with what it is given, as ESPnet, NeMo and others have it."""

    def __init__(self):
        super().__init__()
        self.pe = None
        self.extend_pe(torch.zeros(1, 90))

    def extend_pe(self, x):
        if self.pe is not None and self.pe.size(1) >= 2 * x.size(1) - 1:
            return
        self.pe = by_distance(x.size(1))

    def forward(self, x):
        self.extend_pe(x)
        middle = self.pe.size(1) // 2
        return self.pe[:, middle - x.size(1) + 1 : middle + x.size(1)]


class Model(nn.Module):
    """What the idioms use of a module."""

    def __init__(self, forward):
        super().__init__()
        self.run = forward
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.k2, self.v2 = (nn.Linear(WIDTH, GROUPS * HEAD) for _ in range(2))
        self.pos, self.drop = nn.Linear(WIDTH, WIDTH, bias=False), nn.Dropout(0.1)
        self.u, self.w = (nn.Parameter(torch.randn(HEADS, HEAD)) for _ in range(2))
        self.near, self.vectors = nn.Embedding(9, HEADS), nn.Embedding(9, HEAD)
        self.heads = nn.MultiheadAttention(WIDTH, HEADS)
        self.down = nn.Conv1d(WIDTH, WIDTH, 3, 2)
        self.register_buffer("slopes", 0.5 ** torch.arange(1.0, 5.0))
        self.register_buffer("table", torch.tril(torch.ones(90, 90)).view(1, 1, 90, 90))
        self.register_buffer("sines", torch.randn(1, 90, WIDTH) / 4)
        self.register_buffer("distances", by_distance(90))
        self.encoding = Distances()
        self.cached = None

    def forward(self, x):
        return self.run(self, x)


def by_distance(n):
    """Return sinusoids ``(1, 2 n - 1, WIDTH)`` of distances n - 1 to 1 - n."""
    angles = torch.arange(n - 1, -n, -1.0)[:, None] * 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[None]


def split(m, x):
    """Return queries, keys and values ``(B, H, T, D)``."""
    B, L, _ = x.shape
    return [y.view(B, L, HEADS, HEAD).transpose(1, 2) for y in (m.q(x), m.k(x), m.v(x))]


def merge(m, y):
    B, H, L, D = y.shape
    return m.out(y.transpose(1, 2).contiguous().view(B, L, H * D))


def future(x, along=1):
    n = x.size(along)
    return torch.triu(torch.ones(n, n, dtype=torch.bool, device=x.device), 1)


class Idioms:
    """The forwards of a file: those that are exact, and those that are refused.

    Parameters
    ----------
    file : str
        Its name, which refusals say.
    """

    def __init__(self, file):
        self.file, self.cases, self.refusals = file, {}, {}

    def idiom(self, context, delay=None):
        """Enter a forward ``(m, x)`` whose attention sees a context; its delay is that one's, or is given."""

        def keep(forward):
            own = context.chunk - 1 + context.right if delay is None else delay
            self.cases[forward.__name__] = forward, context, own
            return forward

        return keep

    def refused(self, message):
        """Enter a forward that is refused."""

        def keep(forward):
            self.refusals[forward.__name__] = forward, message
            return forward

        return keep

    @torch.no_grad()
    def hold(self, name):
        """Patched and compiled it is what it is offline, and it sees what it says."""
        forward, context, delay = self.cases[name]
        torch.manual_seed(7)
        model, x = Model(forward).eval(), torch.randn(1, T, WIDTH)
        want = model(x)[0].numpy()
        step = patched(ds.patch_module(model).online())
        held([step], x[0], want)
        assert not answers_made(step, x[0])
        model.offline()
        engine = ds.compile(model, ("B", "L", WIDTH), verify=False)
        held([stepped(engine)], x[0], want)
        assert engine.delay == delay
        assert (engine.state_bytes_per_frame == 0) == (context.left is not None)

    @torch.no_grad()
    def hold_refused(self, name):
        """Compiled and patched it is refused, by its line."""
        forward, message = self.refusals[name]
        model, x = Model(forward).eval(), torch.randn(1, T, WIDTH)
        with pytest.raises((NotStreamableError, ds.ShapeError), match=re.compile(message, re.DOTALL)) as captured:
            ds.compile(model, ("B", "L", WIDTH))
        ds.patch_module(model).online()
        with pytest.raises((NotStreamableError, ds.ShapeError), match=message) as error:
            patched(model)(x[0, :7], True, False)
        assert self.file in str(error.value)
        assert captured.type is error.type
