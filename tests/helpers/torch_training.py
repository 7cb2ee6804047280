"""Models in float64 and streams of random chunks, for the tests of online training with torch."""

import copy
from fractions import Fraction

import numpy as np
import torch

import dreamstream as ds
from dreamstream.stream import StreamMetadata
from dreamstream.torch import StreamTensor

F = torch.nn.functional
nn = torch.nn

CHANNELS = 3


class Conv(nn.Module):
    """Strided, with look-ahead, and transposed."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv1d(CHANNELS, 4, 5, stride=2, padding=2)
        self.wide = nn.Conv1d(4, 4, 3, padding=2, dilation=2)
        self.up = nn.ConvTranspose1d(4, 2, 4, stride=2, padding=1)

    def forward(self, x):
        return self.up(torch.tanh(self.wide(torch.tanh(self.down(x)))))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(CHANNELS, 5, num_layers=2, batch_first=True)
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        y, _ = self.rnn(x.transpose(1, 2))
        return self.head(y).transpose(1, 2)


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(CHANNELS, 4, 3, padding=1)
        self.rnn = nn.GRU(4, 4, batch_first=True)

    def forward(self, x):
        y, _ = self.rnn(F.silu(self.conv(x)).transpose(1, 2))
        return y.transpose(1, 2)


class Residual(nn.Module):
    """Branches of different delays, and a module used twice."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(CHANNELS, CHANNELS, 5, padding=2)
        self.side = nn.Conv1d(CHANNELS, 2, 9, padding=4)

    def forward(self, x):
        x = x + torch.tanh(self.conv(x))
        x = x + torch.tanh(self.conv(x))
        return torch.cat([x, self.side(x)], 1)


class Start(nn.Module):
    """A recurrent layer whose first state is learnt, behind a layer whose padding repeats the ends."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(CHANNELS, 4, 3, padding=1, padding_mode="replicate")
        self.start = nn.Parameter(torch.randn(1, 1, 4))
        self.rnn = nn.GRU(4, 4, batch_first=True)

    def forward(self, x):
        y, _ = self.rnn(self.conv(x).transpose(1, 2), self.start.expand(1, x.size(0), 4).contiguous())
        return y.transpose(1, 2)


class Transformer(nn.Module):
    """torch's own layers, causal, with a window of six frames: keys and values are on the tape."""

    def __init__(self):
        super().__init__()
        self.inward = nn.Linear(CHANNELS, 4)
        layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        y = self.inward(x.transpose(1, 2))
        i = torch.arange(x.size(2))
        return self.layers(y, mask=(i > i[:, None]) | (i[:, None] - i > 5)).transpose(1, 2)


class Causal(nn.Module):
    """All that came before: heads that share keys and values, with ALiBi by hand; then torch's layer."""

    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(CHANNELS, 4), nn.Linear(CHANNELS, 4)
        self.slopes, self.attention = nn.Parameter(torch.rand(2)), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        x = x.transpose(1, 2)
        q, (k, v) = self.q(x).unflatten(2, (2, 2)).transpose(1, 2), self.kv(x).unsqueeze(1).chunk(2, -1)
        i = torch.arange(x.size(1))
        scores = q @ k.mT - self.slopes[:, None, None] * (i[:, None] - i)
        y = (scores.masked_fill(i > i[:, None], -torch.inf).softmax(-1) @ v).transpose(1, 2).flatten(2)
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        return (y + self.attention(y, y, y, attn_mask=mask, is_causal=True, need_weights=False)[0]).transpose(1, 2)


class Conformer(nn.Module):
    """Half a feed-forward block, attention to chunks, a convolution that looks ahead, the other half."""

    def __init__(self):
        super().__init__()
        self.inward = nn.Linear(CHANNELS, 4)
        self.norms = nn.ModuleList([nn.LayerNorm(4) for _ in range(5)])
        self.halves = nn.ModuleList([nn.Sequential(nn.Linear(4, 6), nn.SiLU(), nn.Linear(6, 4)) for _ in range(2)])
        self.qkv, self.out = nn.Linear(4, 12), nn.Linear(4, 4)
        self.gate, self.depthwise = nn.Conv1d(4, 8, 1), nn.Conv1d(4, 4, 3, padding=1, groups=4)

    def forward(self, x):
        x = self.inward(x.transpose(1, 2))
        x = x + 0.5 * self.halves[0](self.norms[0](x))
        q, k, v = (y.unflatten(2, (2, 2)).transpose(1, 2) for y in self.qkv(self.norms[1](x)).chunk(3, -1))
        block = torch.arange(x.size(1)) // 3
        behind = block[:, None] - block
        scores = (q @ k.transpose(2, 3)).masked_fill((behind < 0) | (behind > 2), -torch.inf)
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        y = F.glu(self.gate(self.norms[2](x).transpose(1, 2)), 1)
        x = x + F.silu(self.norms[3](self.depthwise(y).transpose(1, 2)))
        return (x + 0.5 * self.halves[1](self.norms[4](x))).transpose(1, 2)


VARIANTS = ("chunk-wise-aligned", "full-file-aligned", "full-file-unaligned")
MODELS = {
    "conv": Conv,
    "lstm": Lstm,
    "gru": Gru,
    "residual": Residual,
    "start": Start,
    "transformer": Transformer,
    "causal": Causal,
    "conformer": Conformer,
}


def made(name, seed=0):
    """Return a model in float64 whose weights follow from the seed."""
    torch.manual_seed(seed)
    return (MODELS[name] if isinstance(name, str) else name)().double()


def online(name, variant=VARIANTS[0], seed=0, train=True):
    """Return an untouched model, and one like it that trains online."""
    plain = made(name, seed)
    return plain, ds.patch_module(copy.deepcopy(plain), variant).online().train(train)


def noise(*shape, seed=0):
    """Return normally distributed float64."""
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape))


def streams(chunks, sos=(), eos=(), restart=False):
    """Return the StreamTensor of chunks ``(channels, frames)`` by id; it is differentiable."""
    ids = list(chunks)
    lengths = [c.shape[-1] for c in chunks.values()]
    width = max(lengths, default=0)
    padded = torch.stack([F.pad(c, (0, width - c.shape[-1])) for c in chunks.values()])
    meta = StreamMetadata(ids, np.isin(ids, list(sos)), np.isin(ids, list(eos)), lengths)
    return StreamTensor.outside(padded, ("B", "F", "L"), meta, None, Fraction(1), restart)


def sequences(rng, lengths, requires_grad=False):
    """Return random sequences ``(channels, frames)`` by id."""
    return {
        i: torch.tensor(rng.standard_normal((CHANNELS, n)), requires_grad=requires_grad)
        for i, n in lengths.items()
    }


def cuts(rng, n, most=6):
    """Cut n frames into chunks, empty ones among them."""
    out = []
    while sum(out) < n:
        out.append(min(int(rng.integers(0, most + 1)), n - sum(out)))
    return [*out, 0] if rng.random() < 0.5 or not out else out


def calls(xs, sizes, late=()):
    """Yield the calls in which streams go on by these sizes: those that are `late` begin one later."""
    first = {i: int(i in late) for i in xs}
    at = dict.fromkeys(xs, 0)
    for k in range(max(first[i] + len(sizes[i]) for i in xs)):
        rows = [i for i in xs if first[i] <= k < first[i] + len(sizes[i])]
        chunks = {}
        for i in rows:
            n = sizes[i][k - first[i]]
            chunks[i] = xs[i][:, at[i] : at[i] + n]
            at[i] += n
        yield streams(
            chunks, [i for i in rows if k == first[i]], [i for i in rows if k + 1 == first[i] + len(sizes[i])]
        )


def gathered(ys):
    """Return each stream's frames laid end to end ``(channels, frames)``."""
    parts = {}
    for y in ys:
        for i in y.meta.ids:
            parts.setdefault(i, []).append(y[i])
    return {i: torch.cat(p, -1) for i, p in parts.items()}


def offline(model, x):
    """Return the output of an untouched model on one sequence ``(channels, frames)``."""
    return model(x[None])[0]


def gradients(model):
    """Return the parameters' gradients by name."""
    return {n: p.grad for n, p in model.named_parameters()}


def assert_close(got, want, what=""):
    """Compare tensors of float64, None being zero."""
    if got is None or want is None:
        other = want if got is None else got
        assert other is None or float(other.abs().max()) == 0.0, what
        return
    assert got.shape == want.shape, (what, got.shape, want.shape)
    if want.numel():
        bound = 1e-10 * max(1.0, float(want.detach().abs().max()))
        assert float((got - want).detach().abs().max()) <= bound, what


def assert_same_gradients(model, other):
    for name, grad in gradients(model).items():
        assert_close(grad, gradients(other)[name], name)
