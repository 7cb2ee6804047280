"""Every function gives as many frames of 0, 1, 2 or 3 as torch does, and none where torch raises.

A pad behind each shows the difference: of an edge of no frames it has frames, of one that isn't there none.
"""

import edge_functions
import pytest
import torch
import torch.nn.functional as F
from edge_functions import FUNCTIONS
from torch import nn
from turns import by_turns, in_blocks

import dreamstream as ds
from dreamstream.stream.tree import leaves

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")
LENGTHS = range(4)
#: Streams that are too short are refused, by name, where torch raises.
REFUSED = {"kthvalue: 2", "topk: 2", "values of kthvalue: 2", "values of topk: 2"}
#: torch gives none of no frames here, and refuses one. A pad behind would leave before there are two, so that
#: streams have nothing of either.
FROM_TWO = {"instance_norm", "other instance", "other group_norm: 4"}
#: Of no frames torch gives none; from 2.14 on it raises.
OF_NONE = {"group_norm: channels", "other group_norm: 1", "other group_norm: 4", "other group_norm: planes"}
#: What an engine refuses by line.
ONLY_PATCHED = {"xlogy: of 2"}


class Layers(nn.Module):
    """What the functions below take their layers from."""

    def __init__(self):
        super().__init__()
        self.conv, self.same = nn.Conv1d(4, 4, 3), nn.Conv1d(4, 4, 3, padding=1)
        self.mirrored = nn.Conv1d(4, 4, 3, padding=1, padding_mode="reflect")
        self.held = nn.Conv1d(4, 4, 3, padding=1, padding_mode="replicate")
        self.ring = nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular")
        self.up, self.up0 = nn.ConvTranspose1d(4, 4, 4, 2, 1), nn.ConvTranspose1d(4, 4, 2, 2)
        self.plane, self.up2 = nn.Conv2d(1, 2, 3, padding=1), nn.ConvTranspose2d(1, 2, 2, 2)
        self.lstm, self.gru = nn.LSTM(4, 4, batch_first=True), nn.GRU(4, 4, batch_first=True)
        self.both = nn.LSTM(4, 4, batch_first=True, bidirectional=True)
        self.linear, self.embedding = nn.Linear(4, 5), nn.Embedding(9, 3)
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.batch, self.instance = nn.BatchNorm1d(4), nn.InstanceNorm1d(4)
        self.tracked = nn.InstanceNorm1d(4, track_running_stats=True)


def _resized(**given):
    return lambda m, x: F.interpolate(x, **given)


def _pooled(function, size, of=lambda x: x[:, None]):
    return lambda m, x: function(of(x), size)


#: Layers, and functions without edges in their gradients, of (B, 4, L).
OTHERS = {
    **{name: lambda m, x, name=name: getattr(m, name)(x) for name in (
        "conv", "same", "mirrored", "held", "ring", "up", "up0", "batch", "instance", "tracked")},
    "lstm: frames": lambda m, x: m.lstm(x.mT)[0],
    "gru: frames": lambda m, x: m.gru(x.mT)[0],
    "lstm: both ways": lambda m, x: m.both(x.mT)[0],
    "lstm: last": lambda m, x: m.lstm(x.mT)[1][0][0],
    "plane: a stream": lambda m, x: m.plane(x[:, None]),
    "plane: frames first": lambda m, x: m.plane(x.mT[:, None]),
    "up2: a stream": lambda m, x: m.up2(x[:, None]),
    "linear: a stream": lambda m, x: m.linear(x.mT),
    "embedding: a stream": lambda m, x: m.embedding((x[:, 0].abs() * 3).long()),
    "encoder: a stream": lambda m, x: m.encoder(x.mT),
    "attention: a stream": lambda m, x: F.scaled_dot_product_attention(x.mT, x.mT, x.mT),
    "group_norm: 4": lambda m, x: F.group_norm(x, 4),
    "group_norm: 1": lambda m, x: F.group_norm(x, 1),
    "group_norm: planes": lambda m, x: F.group_norm(x.unflatten(1, (2, 2)), 2),
    "interpolate: 3": _resized(scale_factor=3),
    "interpolate: 1": _resized(scale_factor=1),
    "interpolate: exact": _resized(scale_factor=2, mode="nearest-exact"),
    "interpolate: half": _resized(scale_factor=0.5),
    "interpolate: a third": _resized(scale_factor=1 / 3),
    "interpolate: linear half": _resized(scale_factor=0.5, mode="linear"),
    "interpolate: linear third": _resized(scale_factor=1 / 3, mode="linear"),
    "interpolate: size": lambda m, x: F.interpolate(x, size=2 * x.size(2)),
    "interpolate: features": lambda m, x: F.interpolate(x.mT, scale_factor=2),
    "interpolate: features to 7": lambda m, x: F.interpolate(x.mT, size=7),
    "interpolate: linear features": lambda m, x: F.interpolate(x.mT, scale_factor=2, mode="linear"),
    "interpolate: planes": lambda m, x: F.interpolate(x[:, None], scale_factor=(2, 1)),
    "repeat_interleave: a stream": lambda m, x: x.repeat_interleave(2, 2),
    "repeat_interleave: features": lambda m, x: x.repeat_interleave(2, 1),
    **{f"pad: {mode} L": lambda m, x, mode=mode: F.pad(x, (1, 1), mode=mode) for mode in ("reflect", "replicate")},
    **{f"pad: {mode}": lambda m, x, mode=mode: F.pad(x.mT, (1, 1), mode=mode)
       for mode in ("constant", "reflect", "replicate", "circular")},
    "fft: of real numbers": lambda m, x: torch.fft.rfft(x, dim=1),
    "fft: of all": lambda m, x: torch.fft.fft(x, dim=1).resolve_conj(),
    "fft: inverse": lambda m, x: torch.fft.ifft(x, dim=1).resolve_conj(),
    "stft: a stream": lambda m, x: torch.stft(x[:, 0], 4, 2, window=edge_functions.HANN, return_complex=True),
    "istft: from the first": lambda m, x: torch.istft(
        torch.stft(x[:, 0], 4, 2, window=torch.ones(4), center=False, return_complex=True), 4, 2,
        window=torch.ones(4), center=False),
    **{f"adaptive_avg_pool2d: {size}": _pooled(F.adaptive_avg_pool2d, size)
       for size in ((1, 1), (2, 1), (1, 3), (1, None), (None, 1), (None, None))},
    **{f"adaptive_max_pool2d: {size}": _pooled(F.adaptive_max_pool2d, size) for size in ((1, 1), (1, None))},
    **{f"{f.__name__}: features to {n}": _pooled(f, n, lambda x: x.mT)
       for f in (F.adaptive_avg_pool1d, F.adaptive_max_pool1d) for n in (1, 2)},
    "adaptive_avg_pool1d: 2": _pooled(F.adaptive_avg_pool1d, 2, lambda x: x),
    "the last frame": lambda m, x: x[..., -1],
    "the last but one": lambda m, x: x[..., -2],
    "softmax: weighed": lambda m, x: x.softmax(2) * x,
    "flip: a stream": lambda m, x: x.flip(2),
    "argsort: a stream": lambda m, x: x.argsort(2),
    "argmax: a stream": lambda m, x: x.argmax(2),
    "argmax: features": lambda m, x: x.argmax(1),
    "any: a stream": lambda m, x: (x > 0).any(2),
    "vector_norm: features": lambda m, x: torch.linalg.vector_norm(x, -1, 1),
    "vector_norm: the least": lambda m, x: torch.linalg.vector_norm(x, -float("inf"), 1),
    "quantile: of windows": lambda m, x: x.unfold(2, 2, 1).quantile(0.5, -1),
    "unfold: a stream": lambda m, x: x.unfold(2, 3, 2),
    "scatter: a stream": lambda m, x: x.scatter(1, (x > 0).long(), x),
    "gather: a stream": lambda m, x: x.gather(1, (x > 0).long()),
    "products: a stream": lambda m, x: x @ x.mT,
    "pairs of frames": lambda m, x: x[..., : x.size(2) // 2 * 2].reshape(x.size(0), 4, -1, 2).mean(3),
}  # fmt: skip


class Padded(nn.Module):
    """What a function gives, its stream axis last and padded by a frame at each end."""

    def __init__(self, function, layers):
        super().__init__()
        self.layers, self.function = layers, function
        short, long = self.seen(torch.rand(1, 4, 12)), self.seen(torch.rand(1, 4, 24))
        sizes = [zip(a.shape, b.shape) for a, b in zip(short, long)]
        self.axes = [next((i for i, (a, b) in enumerate(s) if a != b), None) for s in sizes]

    def seen(self, x):
        return [torch.view_as_real(y) if y.is_complex() else y for y in leaves(self.function(self.layers, x))]

    def forward(self, x):
        outs = zip(self.seen(x), self.axes)
        return [y if axis is None else F.pad(y.movedim(axis, -1).float(), (1, 1)) for y, axis in outs]


def wanted(model, x):
    """Return the shapes of what torch gives for a stream; None where it raises."""
    try:
        return [tuple(y.shape[1:]) for y in model(x[None])]
    except (RuntimeError, IndexError, ValueError):
        return None


def engine(model, xs):
    compiled = ds.compile(model, ("B", 4, "L"), unstreamable="buffer", verify=False)
    return {i: leaves(y) for i, y in compiled.step(xs, sos=list(xs), eos=list(xs)).items()}


def patched(model, xs):
    online = ds.patch_module(model, unstreamable="buffer").online()
    given = ds.stream_tensor(list(xs.values()), ids=list(xs), sos=True, eos=True, names=("B", None, "L"))
    outs = leaves(online(given))
    return {i: [y[i].detach() for y in outs] for i in xs}


def held(name):
    """Return the model of a function."""
    if name in FUNCTIONS:
        function = FUNCTIONS[name]  # a forward that reads the table has all of it looked into, for each model
        return Padded(lambda m, x: function(x), None)
    return Padded(OTHERS[name.removeprefix("other ")], Layers().eval())


NAMES = [*FUNCTIONS, *(f"other {name}" for name in OTHERS)]
#: What an engine captures has its counts from the rules that patched modules ask, too: by default in turns.
WAYS = by_turns(NAMES, [engine, patched], lambda name, way: way is patched or name not in ONLY_PATCHED)


@in_blocks(("name", "step"), [p for p in WAYS if p.values[1] is patched or p.values[0] not in ONLY_PATCHED], 20)
def test_counts_are_torchs(name, step, monkeypatch):
    for constant in ("W", "HANN"):  # engines compute in float32
        monkeypatch.setattr(edge_functions, constant, getattr(edge_functions, constant).float())
    torch.manual_seed(0)
    model = held(name)
    xs = {f"{n} frames": torch.rand(4, n) + 0.1 for n in LENGTHS}
    expected = {i: wanted(model, x) for i, x in xs.items()}
    if name in OF_NONE and expected["0 frames"] is None:
        del expected["0 frames"]
    if name in FROM_TWO:
        assert expected.get("0 frames", True) and not expected["1 frames"]
        expected["0 frames"] = None
    if name in REFUSED:
        with pytest.raises(ds.ShapeError, match="must be at least 2") as refused:
            step(model, xs)
        assert refused.value.ids == ("1 frames",) and expected["1 frames"] is None
        return
    found = step(model, xs)
    for i, shapes in expected.items():
        for k, y in enumerate(found[i]):
            if shapes is None:
                assert 0 in y.shape, f"{i}: {tuple(y.shape)}, where torch raises"
            elif model.axes[k] is None:  # a vector of the stream, at its end
                assert tuple(y.shape) in (shapes[k], (1, *shapes[k])) or 0 in shapes[k], i
            else:
                assert tuple(y.shape) == shapes[k], i
