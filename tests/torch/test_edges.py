"""Values and gradients at edges: zeros, ties, limits, infinities, constant and short streams, as torch has them.

Every function that the bridge computes, in patched modules, however the streams are cut, and on streams outside a
forward.
"""

import copy
import re
from itertools import cycle, pairwise

import numpy as np
import pytest
import torch
from edge_functions import FUNCTIONS, UNLIKE_GRADIENTS, required, unlike
from edge_values import STREAMS
from torch import nn
from torch_training import streams as stream_tensor
from turns import by_turns, in_blocks

import dreamstream as ds
from dreamstream.stream import StreamMetadata
from dreamstream.stream.tree import leaves
from dreamstream.torch import StreamTensor

F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")
BOUND = 1e-9


class Of(nn.Module):
    """A function as a forward, complex results as their parts."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return [torch.view_as_real(y) if y.is_complex() else y for y in leaves(self.function(x))]


def test_every_function_of_the_tables_is_here():
    assert required() <= {name.partition(":")[0] for name in FUNCTIONS}


def gradients(outputs, probes, xs):
    """Return by stream the gradient of x where all probes meet the outputs; nothing where torch has none."""
    pairs = [pair for i in xs for pair in zip(outputs[i], probes[i])]
    met = [(y, p) for y, p in pairs if y.requires_grad and y.numel()]
    if not met:
        return {i: torch.zeros_like(x) for i, x in xs.items()}
    try:
        ys, given = map(list, zip(*met))
        found = torch.autograd.grad(ys, list(xs.values()), given, allow_unused=True)
    except RuntimeError as error:
        assert "not implemented" in str(error)
        return {}
    return {i: torch.zeros_like(x) if g is None else g for (i, x), g in zip(xs.items(), found)}


def offline(function, name):
    """Return by stream what torch gives for it alone, probes and its gradient; nothing where torch raises."""
    outputs, probes, xs = {}, {}, {}
    for i in STREAMS.keys() - unlike(name) - {"empty"}:
        x = torch.tensor(STREAMS[i], requires_grad=True)
        try:
            outputs[i] = [y[0] for y in Of(function)(x[None])]
        except (RuntimeError, IndexError, ValueError):  # too few frames
            continue
        generator = torch.Generator().manual_seed(1)
        probes[i] = [torch.randn(y.shape, generator=generator, dtype=torch.double) for y in outputs[i]]
        if i not in unlike(name, UNLIKE_GRADIENTS):
            xs[i] = x
    slopes = gradients(outputs, probes, xs)
    return {i: (outputs[i], probes[i], slopes.get(i)) for i in outputs}


def sizes(n, way):
    return {"whole": [n], "pieces": [n // 3, 0, n - n // 3], "frames": [1] * n or [0]}[way]


def online(function, xs, ways):
    """Return every stream's outputs, put together from chunks; the streams are cut in these ways by turns."""
    model = ds.patch_module(Of(function), "full-file-aligned", unstreamable="buffer").online().train()
    parts = {i: x.split(sizes(x.shape[1], way), 1) for (i, x), way in zip(xs.items(), cycle(ways))}
    found = {i: [] for i in xs}
    for k in range(max(map(len, parts.values()))):
        rows = {i: p[k] for i, p in parts.items() if k < len(p)}
        outputs = model(stream_tensor(rows, rows if k == 0 else (), [i for i in rows if k + 1 == len(parts[i])]))
        for i in rows:
            found[i].append([y[i] for y in outputs])
        axes = [[n for n in y.names if n != "B"].index("L") if "L" in y.names else None for y in outputs]
    joined = {i: [torch.cat(part, axis or 0) for part, axis in zip(zip(*p), axes)] for i, p in found.items()}
    return {
        i: [y if a is not None else y[0] if len(y) else y for y, a in zip(ys, axes)] for i, ys in joined.items()
    }


def differ(got, wanted):
    """Return where tensors differ."""
    got, wanted = got.detach().double(), wanted.detach().double()
    same = (got == wanted) | (got.isnan() & wanted.isnan())
    return ~(same | ((got - wanted).abs() <= BOUND * wanted.abs().clamp(min=1)))


def compare(got, wanted, xs):
    """Hold outputs and gradients against torch's, stream by stream."""
    for i, (outputs, _, _) in wanted.items():
        for a, b in zip(got[i], outputs, strict=True):
            assert a.shape == b.shape, i
            where = differ(a, b)
            assert not where.any(), (i, "values", a[where][:4], b[where][:4])
    expected = {i: slope for i, (_, _, slope) in wanted.items() if slope is not None}
    found = gradients(got, {i: w[1] for i, w in wanted.items()}, {i: xs[i] for i in expected})
    for i, slope in expected.items():
        where = differ(found[i], slope)
        assert not where.any(), (i, "gradients", xs[i][where][:4], found[i][where][:4], slope[where][:4])


@in_blocks(("name", "ways"), by_turns(FUNCTIONS, ["whole pieces frames", "frames whole whole pieces"]), 14)
def test_inside_a_forward(name, ways):
    """In one chunk, in pieces of which one is empty, and frame by frame, in batches of all of these."""
    wanted = offline(FUNCTIONS[name], name)
    assert wanted
    xs = {i: torch.tensor(STREAMS[i], requires_grad=True) for i in (*wanted, "empty")}
    compare(online(FUNCTIONS[name], xs, ways.split()), wanted, xs)


# ---------------------------------------------------------------- streams outside a forward
#: Over the frames of each stream.
OVER_L = [
    n for n in FUNCTIONS if re.match(r"(sum|mean|prod|a?max|a?min|std|var|norm|logsumexp)(_mean)?: (2|\(1)", n)
]


@in_blocks("name", OVER_L, 22)
def test_outside_a_forward(name):
    """Rows of several lengths in one batch."""
    infinite = {"all inf", "all -inf", "infinite"}  # an extreme of such a row is equal to what stands for padding
    wanted = {i: w for i, w in offline(FUNCTIONS[name], name).items() if i not in infinite}
    xs = {i: torch.tensor(STREAMS[i], requires_grad=True) for i in wanted}
    width = max(x.shape[1] for x in xs.values())
    padded = torch.stack([F.pad(x, (0, width - x.shape[1]), value=torch.nan) for x in xs.values()])
    all_ = np.ones(len(xs), bool)
    meta = StreamMetadata(list(xs), all_, all_, [x.shape[1] for x in xs.values()])
    outputs = leaves(FUNCTIONS[name](StreamTensor.outside(padded, ("B", "F", "L"), meta, None, 1, False)))
    compare({i: [y[row] for y in outputs] for row, i in enumerate(xs)}, wanted, xs)


# ---------------------------------------------------------------- models
class Mask(nn.Module):
    """What a network makes of a spectrum weighs it, and samples come of that."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(9, 9, batch_first=True)
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x):
        z = torch.stft(x, 16, 4, window=self.window, return_complex=True)
        mask = self.rnn(z.abs().clamp(min=1e-5).log().mT)[0].mT.sigmoid()
        return torch.istft(z * mask, 16, 4, window=self.window)


class Pooled(nn.Module):
    """Statistics of a recording, of what may be the same in every frame."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv1d(1, 4, 3), nn.Linear(20, 2)

    def forward(self, x):
        y = self.conv(x.unsqueeze(1)).relu()
        parts = (y.mean(2), y.std(2), y.amax(2), y.max(2).values, y.norm(dim=2))
        return self.head(torch.cat(parts, 1))


class Pieces(nn.Module):
    """Functions that are straight lines, pools, and a maximum over channels."""

    def __init__(self):
        super().__init__()
        self.conv, self.scale = nn.Conv1d(1, 4, 3, padding=1), nn.Parameter(torch.ones(4, 1))

    def forward(self, x):
        y = F.hardswish(self.conv(x.unsqueeze(1))) + F.hardtanh(x.unsqueeze(1) * self.scale)
        y = F.lp_pool1d(F.relu6(y), 2, 2) + F.max_pool1d(y.relu(), 2)
        return F.normalize(y, dim=1) + y.max(1, keepdim=True).values


@pytest.mark.parametrize("kind", [Mask, Pooled, Pieces])
@pytest.mark.parametrize("samples", ["silence", "constant", "silence, then noise"])
def test_models_learn_as_offline(kind, samples):
    """Parameters get the same gradients, in float32, in chunks of a whole file."""
    torch.manual_seed(0)
    plain = kind()
    with torch.no_grad():
        for p in plain.parameters():
            if p.dim() == 1 and kind is not Mask:
                p.zero_()  # so that silence stays silence
    x = torch.full((1, 96), 1.0) if samples == "constant" else torch.zeros(1, 96)
    if "noise" in samples:
        x[:, 48:] = torch.randn(48)
    model = ds.patch_module(copy.deepcopy(plain), "full-file-aligned").online().train()
    y = plain(x)
    y.square().sum().backward()
    outputs = [
        model(ds.stream_tensor(x[:, a:b], ids=["a"], sos=a == 0, eos=b == 96))
        for a, b in pairwise((0, 31, 64, 96))
    ]
    sum(part.tensor().square().sum() for part in outputs if part.tensor().numel()).backward()
    for (name, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert p.grad.isfinite().all(), name
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4 * max(1.0, float(q.grad.abs().max())))
