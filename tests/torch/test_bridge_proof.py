"""A bridge to torch in small: torch computes the values, everything else is the engine's.

`TorchCall` is all that it takes. Frames that exist, leave and are kept come from the C operators'
integers, order, lineage and syncs from the door and the session; torch's own modules run unchanged on a
`Stream`, which catches their functions. Nothing here knows what a chunk is.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from dreamstream import dispatch
from dreamstream.errors import StreamIdError, StreamMismatchError
from dreamstream.online.session import Call, Session
from dreamstream.stream import StreamMetadata
from dreamstream.stream.edge import Edge, Request

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # its threads wait for one another where cores are few
F = torch.nn.functional


# ---------------------------------------------------------------------- the bridge


class Window(NamedTuple):
    """The frames of one row that an operation may read, the first of them at absolute position `at`."""

    data: torch.Tensor
    at: int

    def frames(self, begin, end):
        """Return the frames [begin, end), zeros where there are none."""
        low, high = max(begin, self.at), min(end, self.at + len(self.data))
        inner = self.data[low - self.at : high - self.at]
        return F.pad(inner, (0, 0, max(low - begin, 0), max(end - max(high, begin), 0)))


def conv1d(op, weights, begin, end, x):
    """Output frames [begin, end) of a convolution with zero padding."""
    a, (weight, bias) = op.attributes, weights
    first = begin * a["stride"] - a["left"]
    span = a["dilation"] * (weight.shape[2] - 1) + 1
    frames = x.frames(first, first + (end - begin - 1) * a["stride"] + span)
    y = F.conv1d(frames.T[None], weight, bias, a["stride"], 0, a["dilation"], a["groups"])
    return y[0].T


VALUES = {
    "linear": lambda op, weights, begin, end, x: F.linear(x.frames(begin, end), *weights),
    "conv1d": conv1d,
    "relu": lambda op, weights, begin, end, x: x.frames(begin, end).relu(),
    "add": lambda op, weights, begin, end, *xs: sum(x.frames(begin, end) for x in xs),
    "sync": lambda op, weights, begin, end, x: x.frames(begin, end),
}


class TorchCall(Call):
    """A call whose values and states are torch tensors ``(frames, features)``."""

    detach = False

    def compute(self, leg, edges, values, weights):
        op, inputs = leg.op, [e.counts for e in edges]
        (counts,) = op.counts(inputs, self.ended, self.ids)
        old = self.before()
        kept = op.kept(inputs, [counts])
        parts = [v.split((c[:, 2] - c[:, 0]).tolist()) for v, c in zip(values, inputs)]
        rows, states = [values[0].new_zeros(0, *leg.lines[0].features)], []
        for r in range(len(self.ids)):
            windows, tails = [], []
            for i, part in enumerate(parts):
                before, now = kept[i][r].tolist()
                data = part[r] if old[r] is None else torch.cat([old[r][i], part[r]])
                windows.append(Window(data, before))
                tails.append(data[now - before :].detach() if self.detach else data[now - before :])
            begin, end = int(counts[r, 0]), int(counts[r, 2])
            if end > begin:
                rows.append(VALUES[op.name](op, weights, begin, end, *windows))
            states.append(tuple(tails))
        self.record(states)
        return [(torch.cat(rows), Edge(self, leg.lines[0], counts))]


class Truncated(TorchCall):
    """A call that cuts the gradient between chunks."""

    detach = True


class Stream:
    """What torch's modules see inside a forward: a value, its edge, and L last or features last."""

    def __init__(self, value, edge: Edge, features_last: bool) -> None:
        self.value, self.edge, self.features_last = value, edge, features_last

    def transpose(self, *_dims):
        return Stream(self.value, self.edge, not self.features_last)

    def __add__(self, other):
        return run("add", {}, [self, other])

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return FUNCTIONS[func](*args, **(kwargs or {}))


def run(name, attributes, streams, weights=()):
    edges, values = [s.edge for s in streams], [s.value for s in streams]
    ((value, edge),) = dispatch.run(Request(name, attributes, edges, values, weights))
    return Stream(value, edge, streams[0].features_last)


def stream_conv1d(x, weight, bias, stride, padding, dilation, groups):
    (s,), (p,), (d,) = stride, padding, dilation
    attributes = {"stride": s, "dilation": d, "groups": groups, "left": p, "right": p}
    return run("conv1d", attributes, [x], [weight, bias])


FUNCTIONS = {
    F.linear: lambda x, weight, bias=None: run("linear", {}, [x], [weight, bias]),
    F.relu: lambda x, inplace=False: run("relu", {}, [x]),
    F.conv1d: stream_conv1d,
}


def online(session, module, chunks, sos=(), eos=(), kind=TorchCall, fail_at=None):
    """Run a torch module on chunks ``(C, frames)`` by id; return each one's frames and their start."""
    ids = list(chunks)
    lengths = [c.shape[1] for c in chunks.values()]
    meta = StreamMetadata(ids, np.isin(ids, list(sos)), np.isin(ids, list(eos)), lengths)
    names = {id(p): n for n, p in module.named_parameters()}
    with session.hold(ids):
        call = session.admit(meta, (Fraction(1),), [meta.lengths], False, lambda: names, kind)
        call.fail_at = fail_at
        value = torch.cat([c.T for c in chunks.values()])
        edge = call.input_edge(0, str(value.dtype).rpartition(".")[2], value.shape[1:])
        y = module(Stream(value, edge, False))
        session.commit(call)
    counts = y.edge.counts
    parts = y.value.split((counts[:, 2] - counts[:, 0]).tolist())
    return {i: (p.T, int(start)) for i, p, start in zip(ids, parts, counts[:, 0])}


# ---------------------------------------------------------------------- a model, torch's own


class Net(torch.nn.Module):
    """Strides, a non-causal residual whose branches progress differently, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.down = torch.nn.Conv1d(3, 4, 5, stride=2, padding=2)
        self.near = torch.nn.Conv1d(4, 4, 3, padding=1, groups=2)
        self.far = torch.nn.Conv1d(4, 4, 4, dilation=2, padding=3, bias=False)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x):
        x = F.relu(self.down(x))
        x = x + self.near(x) + self.far(x)
        return self.head(x.transpose(1, 2)).transpose(1, 2)


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def net(request):
    torch.manual_seed(1)
    return Net().to(request.param)


def sequences(dtype, *lengths):
    generator = torch.Generator().manual_seed(2)
    return {f"s{n}": torch.randn(3, size, generator=generator, dtype=dtype) for n, size in enumerate(lengths)}


def ragged(xs, seed):
    """Cut sequences anywhere and put chunks of random streams together; yield `online`'s arguments."""
    rng = np.random.default_rng(seed)
    at = dict.fromkeys(xs, None)
    while at:
        picked = [i for i in at if rng.random() < 0.7]
        sos = [i for i in picked if at[i] is None]
        chunks, eos = {}, []
        for i in picked:
            begin = at[i] or 0
            end = min(begin + int(rng.integers(0, 9)), xs[i].shape[1])
            chunks[i] = xs[i][:, begin:end]
            at[i] = end
            if end == xs[i].shape[1] and rng.random() < 0.6:
                eos.append(i)
                del at[i]
        if picked:
            yield chunks, sos, eos


def gather(session, module, steps, **options):
    """Run calls; return each stream's frames laid end to end, with their starts checked."""
    out: dict[str, list] = {}
    for step in steps:
        for i, (y, start) in online(session, module, *step, **options).items():
            assert start == sum(part.shape[1] for part in out.get(i, []))
            out.setdefault(i, []).append(y)
    assert session.live_ids == []
    return {i: torch.cat(parts, 1) for i, parts in out.items()}


def close(a, b, factor=1):
    bound = factor * (1e-6 if b.dtype == torch.float32 else 1e-12)
    return a.shape == b.shape and (not b.numel() or (a - b).abs().max() <= bound * b.abs().max())


@pytest.mark.parametrize("seed", range(8))
def test_any_chunks_of_any_streams(net, seed):
    xs = sequences(net.head.weight.dtype, 30, 7, 19, 12, 41)
    with torch.no_grad():
        got = gather(Session(), net, ragged(xs, seed))
        for i, x in xs.items():
            assert close(got[i], net(x[None])[0])


def test_gradients_through_a_whole_stream(net):
    """States keep their graph: one backward at the end gives the offline gradients."""
    xs = sequences(net.head.weight.dtype, 30, 11, 23)
    probes = {i: torch.randn_like(net(x[None])[0]) for i, x in xs.items()}

    def gradients(outputs):
        net.zero_grad()
        inputs = [x.requires_grad_() for x in xs.values()]
        loss = sum((outputs[i] * probes[i]).sum() for i in xs)
        return torch.autograd.grad(loss, [*inputs, *net.parameters()])

    for x in xs.values():
        x.requires_grad_()
    want = gradients({i: net(x[None])[0] for i, x in xs.items()})
    for seed in range(3):
        got = gradients(gather(Session(), net, ragged(xs, seed)))
        for a, b in zip(got, want, strict=True):
            assert close(a, b, 100)


def test_detached_states_cut_the_gradient(net):
    """Outputs stay the same; a chunk's loss reaches that chunk's frames only."""
    (x,) = sequences(net.head.weight.dtype, 40).values()
    chunks = [c.clone().requires_grad_() for c in x.split(8, 1)]
    session, parts = Session(), []
    for n, chunk in enumerate(chunks):
        flags = {"sos": ["s"] * (n == 0), "eos": ["s"] * (n + 1 == len(chunks))}
        y, start = online(session, net, {"s": chunk}, **flags, kind=Truncated)["s"]
        assert start == sum(p.shape[1] for p in parts)
        parts.append(y.detach())
        for state in session.state_of("s").states if session.live_ids else ():
            assert all(not part.requires_grad for part in state)
        if y.shape[1]:
            reached = torch.autograd.grad(y.square().sum(), chunks, allow_unused=True)
            assert [g is not None for g in reached] == [k == n for k in range(len(chunks))]
    assert close(torch.cat(parts, 1), net(x[None])[0].detach())


def test_a_failure_anywhere_changes_nothing(net):
    """Interrupted at the k-th operation, for every k, and repeated: as if it had never failed."""
    xs = sequences(net.head.weight.dtype, 30, 17)
    with torch.no_grad():
        want = gather(Session(), net, ragged(xs, 3))
        n_operations = 8  # three convolutions, relu, linear, two sums; syncs come on top
        for k in range(n_operations):
            session, out = Session(), {i: [] for i in xs}
            for step in ragged(xs, 3):
                before = {i: session.state_of(i) for i in xs}
                with pytest.raises(KeyboardInterrupt):
                    online(session, net, *step, fail_at=k)
                assert {i: session.state_of(i) for i in xs} == before
                for i, (y, _) in online(session, net, *step).items():
                    out[i].append(y)
            for i in xs:
                assert torch.equal(torch.cat(out[i], 1), want[i])


def test_the_sessions_checks_hold(net):
    session = Session()
    (x,) = sequences(net.head.weight.dtype, 9).values()
    with pytest.raises(StreamIdError):
        online(session, net, {"s": x})
    online(session, net, {"s": x}, sos=["s"])
    with pytest.raises(StreamIdError):
        online(session, net, {"s": x}, sos=["s"])

    session.reset()
    wrong = torch.nn.Module()
    wrong.forward = lambda s: s + net.down(s)
    with pytest.raises(StreamMismatchError, match=r"rates, 1 and 1/2"):
        online(session, wrong, {"s": x}, sos=["s"])
    assert session.live_ids == []
