"""All that stands in the way of a torch module, said at once; what isn't ours stays as it was."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")
from torch import nn

import dreamstream as ds
from dreamstream.online.tracer import TRACER


class Turned(nn.Module):
    """Has a line that can't stream behind a layer that can't."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(8, 8, 3, padding=1), nn.GroupNorm(2, 8)

    def forward(self, x):
        return self.norm(self.conv(x)).flip(2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Turned()
        self.rnn = nn.LSTM(8, 6, batch_first=True, bidirectional=True)
        self.head, self.down = nn.Linear(12, 5), nn.Conv1d(5, 5, 4, stride=2)

    def forward(self, x):
        x = self.block(x)
        x = x - x.mean(2, keepdim=True)
        if x.size(2) > 10:
            x = x * 2
        y, _ = self.rnn(x.transpose(1, 2))
        weights = self.head(y).softmax(1)
        down = self.down(weights.transpose(1, 2)).sort(2)[0]
        best, _ = down.topk(1, dim=1)
        return torch.fft.fft(best, dim=2).abs(), down[..., 3]


SAID = (
    "block.norm (GroupNorm): group_norm at",
    "block (Turned): flip at",
    "sub: a value of the whole stream meets its frames",
    "it can't be compared where streams answer differently",
    "rnn (LSTM): its backward direction",
    "softmax over L",
    "sort along L",
    "fft at",
    "x[..., 3, ...]",
)


@pytest.mark.parametrize("way", ["compile", "audit"])
def test_all_is_listed(way):
    model = Net()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    random, asked = torch.get_rng_state(), TRACER.cell.cell_contents
    with pytest.raises(ds.NotStreamableError) as caught:
        if way == "compile":
            ds.compile(model, ("B", 8, "L"), explain=True)
        else:
            ds.audit(model, ("B", 8, "L"))
    said = caught.value.refusals
    missing = [part for part in SAID if not any(part in text for text in said)]
    if way == "audit":  # layers, and what is of the whole stream, may wait
        assert missing == [*SAID[:3], *SAID[5:7]]
    else:
        assert not missing and [part in text for part, text in zip(SAID, said)] == [True] * len(SAID)
    assert TRACER.cell.cell_contents is asked and torch.equal(torch.get_rng_state(), random)
    assert model.training and all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not any("_patch" in vars(m) for m in model.modules())


def test_what_streams_is_compiled():
    engine = ds.compile(nn.Conv1d(4, 3, 3).eval(), ("B", 4, "L"), explain=True)
    assert engine.delay == 2


def test_other_threads_are_refused_as_ever():
    """While one thread lists, an online call of another stops at its first refusal."""

    class Waiting(nn.Module):
        def forward(self, x):
            entered.set()
            gone.wait(10)
            return x.flip(2), x[..., 3]

    entered, gone, found = threading.Event(), threading.Event(), []

    def explain():
        with pytest.raises(ds.NotStreamableError) as caught:
            ds.audit(Waiting(), ("B", 4, "L"))
        found.append(caught.value)

    thread = threading.Thread(target=explain)
    gone.set()
    thread.start()
    entered.wait(10)
    other = ds.patch_module(nn.Sequential(Turned())).online().eval()
    x = ds.stream_tensor([torch.ones(8, 9)], ids=["anna"], sos=True)
    with pytest.raises(ds.NotStreamableError) as caught:
        other(x)
    thread.join()
    assert caught.value.refusals == () and len(found[0].refusals) >= 1


# ---------------------------------------------------------------------- loops over frames, in either front end
def in_loops(lib, x):
    h, ys = lib.zeros(x.size(0), 4), []
    for t in range(x.size(1)):
        h = h * 0.5 + x[:, t] - x.mean(1)
        h = h + x.flip(1)[:, t] * abs(t)
        if h.sum() > 3:
            h = h * 0
        if t == x.size(1) - 1:
            h = h * 2
        ys.append(h)
    y = lib.stack(ys, 1)
    for t in range(x.size(1)):
        h = x[:, t]
        if t > 5:
            break
    return y.sort(1)[0], h


def which_loops(lib, x):
    ys, zs = [], []
    for t in range(0, x.size(1), 2):
        ys.append(x[:, t])
    for t in reversed(range(x.size(1))):
        zs.append(x[:, t])
    for _, (frame, k) in enumerate(zip(x.unbind(1), range(3))):
        ys.append(frame * k)
    for t in range(x.size(1)):
        for s in range(x.size(1)):
            zs.append(x[:, t] * x[:, s])
    return lib.stack(ys, 1).flip(1), lib.stack(zs, 1)[:, 5:9]


def what_grows(lib, x):
    h, k, ys = lib.zeros(x.size(0), 4), 1.0, []
    for t in range(x.size(1)):
        h, k = lib.cat([h, x[:, t]], 1), k * 0.9
        ys.append(x[:, : t + 1].mean(1))
    zs = [frame.flip(0) for frame in x.unbind(1) if frame is not None]
    x[:, 3] = 0
    return lib.stack(ys, 1) / x.size(1), -x.median(1)[0], zs


def behind_a_loop_that_is_left(lib, x):
    h = x[:, 0]
    for t in range(x.size(1)):
        h = h + x[:, t]
        if t == 3:
            break
    return x * h.unsqueeze(1), h.cumsum(0)


def where_one_line_has_it_all(lib, x):
    h, ys = lib.zeros(x.size(0), 4), []
    for t in range(x.size(1)):
        if t / 2 > 1.5:
            h = h + x[:, t]
        if t % 2:
            ys.append(h)
    return lib.stack(ys, 1)


ALL = {
    where_one_line_has_it_all: ("compared with what is no integer", "write them behind it"),
    behind_a_loop_that_is_left: ("`break` at line", "cumsum along B"),
    in_loops: (
        "x.mean(1)`: the loop is at one frame",
        "flip at",
        "can't be negated or made absolute",
        "sum over the batch",
        "whether a frame is the last one",
        "`break` at line",
        "sort along L",
    ),
    which_loops: (
        "a step over frames",
        "`for t in reversed(range(x.size(1))):`: it begins at the stream's end",
        "zip of frames and something else",
        "`append` of a list that a loop gathered",
        "within another one",
        "return lib.stack(ys, 1).flip(1)",
        "x[..., 5:9, ...]",
    ),
    what_grows: (
        "it grows with every frame",
        "`h`, `k`: no state of a fixed size",
        "a comprehension over frames that has ifs",
        "flip along B",
        "`x[:, 3] = 0`",
        "the length of a stream is not a number",
        "sort along L",
    ),
}


@pytest.mark.parametrize("front", ["torch", "native"])
@pytest.mark.parametrize("f", ALL)
def test_all_in_and_behind_loops_is_listed_once(f, front):
    lib, base = (torch, nn.Module) if front == "torch" else (ds, ds.nn.Module)
    model = type("Model", (base,), {"forward": lambda self, x: f(lib, x)})()
    with pytest.raises(ds.NotStreamableError) as caught:
        ds.compile(model.eval(), ("B", "L", 4), explain=True)
    said = caught.value.refusals
    found = [[i for i, text in enumerate(said) if part in text] for part in ALL[f]]
    assert all(found), said
    assert len(said) == len({i for each in found for i in each}), said  # and nothing else


def test_what_is_kept_in_an_attribute_is_listed_once():
    class Model(nn.Module):
        def forward(self, x):
            self.h = torch.zeros(x.size(0), 4)
            for t in range(x.size(1)):
                self.h = self.h + x[:, t]
            return x, self.h

    with pytest.raises(ds.NotStreamableError, match="carry it in a variable") as caught:
        ds.compile(Model(), ("B", "L", 4), explain=True)
    assert len(caught.value.refusals) == 1
