"""All that stands in the way of a torch module, said at once; what isn't ours stays as it was."""

import inspect
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

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
    "an output of a frame of a stream",
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
        "the truth of a stream inside a forward",
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
        "an output of some frames of a stream",
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


# ---------------------------------------------------------------------- models as strangers write them
def layers():
    torch.manual_seed(0)
    return nn.ModuleDict({
        "conv": nn.Conv1d(8, 8, 3, padding=1), "norm": nn.GroupNorm(1, 8), "gate": nn.Linear(8, 8),
        "both": nn.LSTM(8, 8, batch_first=True, bidirectional=True), "cell": nn.GRUCell(8, 8),
        "attention": nn.MultiheadAttention(16, 2, batch_first=True), "instance": nn.InstanceNorm1d(8),
        "pool": nn.AdaptiveAvgPool1d(10), "round": nn.Conv1d(8, 8, 3, padding=1, padding_mode="circular"),
    })  # fmt: skip


def normalised_recogniser(m, x):
    x = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)
    y, _ = m["both"](x)
    y = y + m["attention"](y, y, y)[0]
    return y.log_softmax(-1) / x.size(1)


def squeezed(m, x):
    y = m["norm"](m["conv"](x.transpose(1, 2)))
    y = y * m["gate"](y.mean(2)).sigmoid().unsqueeze(2)
    return (y + torch.roll(y, 1, 2)).flip(1)


def clipped_cell(m, x):
    h, ys = x.new_zeros(x.size(0), 8), []
    for t in range(x.size(1)):
        h = m["cell"](x[:, t], h)
        ys.append(h / h.abs().max())
    y = torch.stack(ys, 1)
    return (y - y.mean(0, keepdim=True)).sort(1)[0]


def voiced(m, x):
    energy = m["instance"](x.transpose(1, 2)).pow(2).sum(1)
    energy = energy / energy.max(1, keepdim=True)[0]
    return energy, (energy > 0.5).nonzero()


def pooled_and_stretched(m, x):
    y = m["round"](x.transpose(1, 2))
    z = F.interpolate(m["pool"](y), size=x.size(1))
    return (y + z)[:, :, :50]


def by_spectra(m, x):
    y = torch.fft.irfft(torch.fft.rfft(x, dim=1) * 0.5, dim=1)
    return y - x.median(1, keepdim=True)[0], x.quantile(0.9, 1)


def by_numpy(m, x):
    y = x * torch.rand(8)
    z = torch.from_numpy(np.tanh(x.numpy()))
    return y + z, z, x[:, [0, 3]], x.sum(0)


def from_the_end(m, x):
    h, ys, zs = x.new_zeros(x.size(0), 8), [], []
    for t in range(x.size(1) - 1, -1, -1):
        h = m["cell"](x[:, t], h)
        ys.append(h)
    for t in range(0, x.size(1), 4):
        zs.append(x[:, t : t + 4].mean(1))
    return torch.stack(ys[::-1], 1) / int(x.size(1)) ** 0.5, torch.stack(zs, 1)


def several_parts(m, x):
    y = squeezed(m, x).transpose(1, 2)
    energy, at = voiced(m, x)
    if x.size(1) > 20:
        y = y * 2
    return y * energy.unsqueeze(-1), at


def two_statistics(m, x):
    y = m["both"](x.flip(0))[0]
    weights = (y * 2).softmax(1)
    return y * weights, y.cumsum(0), torch.stack([frame for frame in reversed(x.unbind(1))], 1)


SQUEEZED = ("takes its statistics", "meets its frames", "roll along L")
VOICED = ("takes its statistics", "meets its frames", "nonzero")
STRANGERS = {
    normalised_recogniser: (
        "sub: a value", "div: a value", "both (LSTM)", "every query sees the whole stream", "beside frames",
    ),
    squeezed: SQUEEZED,
    clipped_cell: ("max over the batch", "mean over the batch", "sort along L"),
    voiced: VOICED,
    pooled_and_stretched: ("circular padding", "adaptive_avg_pool1d", "interpolate(size=", "constant position 50"),
    by_spectra: ("rfft at", "irfft on", "sort along L", "sub: a value"),
    by_numpy: ("numbers drawn", "the values of a stream", "a list, mask or array", "sum over the batch"),
    from_the_end: ("begins at the stream's end", "a step over frames", "read backwards", "a power of a length"),
    several_parts: (*SQUEEZED, *VOICED, "it can't be compared"),
    two_statistics: ("flip along B", "both (LSTM)", "softmax over L", "cumsum along B", "reversed(x.unbind(1))"),
}  # fmt: skip


@pytest.mark.parametrize("f", STRANGERS, ids=lambda f: f.__name__)
def test_models_of_strangers(f):
    """Nothing is missing, and nothing else is said."""
    source = inspect.getsource(f)
    source += "".join(inspect.getsource(part) for part in (squeezed, voiced) if part.__name__ in source)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = nn.ModuleDict({name: layer for name, layer in layers().items() if f'"{name}"' in source})

        def forward(self, x):
            return f(self.m, x)

    with pytest.raises(ds.NotStreamableError) as caught:
        ds.compile(Model().eval(), ("B", "L", 8), explain=True)
    said = caught.value.refusals
    assert len(said) == len(STRANGERS[f]) and all(any(part in text for text in said) for part in STRANGERS[f]), (
        said
    )


@pytest.mark.parametrize("library", [torch, ds])
def test_a_softmax_in_an_expression_hides_nothing(library):
    class Model(library.nn.Module):
        def forward(self, x):
            return (x.softmax(1) * x).flip(1)

    with pytest.raises(ds.NotStreamableError) as caught:
        ds.compile(Model().eval(), ("B", "L", 8), explain=True)
    assert [text.partition(" at")[0] for text in caught.value.refusals] == ["softmax over L", "flip"]


@pytest.mark.parametrize("leaves_the_round", ["continue", "break"])
def test_what_leaves_a_round_for_some_frames_leaves_the_rest_to_be_looked_at(leaves_the_round):
    class Left(nn.Module):
        def forward(self, x):
            out = []
            for t in range(x.size(1)):
                if t % 2 == 0:
                    if leaves_the_round == "break":
                        break
                    continue
                out.append(x[:, t])
            return torch.stack(out, 1).flip(1)

    with pytest.raises(ds.NotStreamableError) as caught:
        ds.compile(Left().eval(), ("B", "L", 8), explain=True)
    said = caught.value.refusals
    assert said[-1].startswith("flip at") and not any("stack" in text and "flip" not in text for text in said)


@pytest.mark.parametrize("least", [None, 1000])
@pytest.mark.parametrize("library", [torch, ds])
def test_an_if_on_a_number_of_all_streams_is_listed(library, least):
    class Model(library.nn.Module):
        def forward(self, x):
            most = x.abs().amax((0, 1, 2))
            most = most + 1 if least is None else max(most, least)
            if most > 3:
                x = x / most
            return x.flip(1)

    with pytest.raises(ds.NotStreamableError) as caught:
        ds.compile(Model().eval(), ("B", "L", 8), explain=True)
    starts = ("amax over the batch", "the truth of a stream", "flip")
    assert [text.startswith(start) for start, text in zip(starts, caught.value.refusals, strict=True)] == [
        True
    ] * 3
