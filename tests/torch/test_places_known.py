"""What complex streams, numbers in plain tensors and lengths come to is known in warm calls of patched modules."""

import copy
import itertools
import math
import sys
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_batches import streamed

import dreamstream as ds
from dreamstream.torch.forward.mode import Forward

CHUNKS = (7, 3, 1, 5, 4, 4, 4, 4)


class Of(nn.Module):
    """A function of tensors and a stream (B, 4, L) as a forward."""

    def __init__(self, function):
        super().__init__()
        self.window, self.two, self.function = torch.rand(4) + 0.5, torch.tensor([2]), function
        self.register_buffer("scale", torch.rand(4, 1) + 0.5)
        self.linear, self.cell = nn.Linear(4, 4), nn.GRUCell(4, 4)

    def forward(self, x):
        return self.function(self, x)


def spectral(m, x):
    z = torch.stft(x.sum(1), 4, 2, window=m.window, return_complex=True)
    parts = torch.view_as_real(z * torch.polar(m.window[:3], m.window[1:])[:, None] * (1 - 2j))
    z = torch.view_as_complex(parts + 0.5)[:, 1:] * torch.complex(m.window, m.window)[:2, None] + z[:, :2].conj()
    return z.abs() + z.real * torch.exp(1j * z.angle()).imag


def resynthesized(m, x):
    z = torch.stft(x[:, 0], 4, 2, 3, m.window[:3], return_complex=True)
    return (torch.istft(z, 4, 2, 3, m.window[:3], length=x.shape[2])[:, None] + torch.zeros_like(x))[:, :, 1:]


def levelled(m, x):
    """Pad to what strides of two at several levels make whole, as networks of samples do, by ifs on lengths."""
    size = x.shape[2]
    for _ in range(2):
        if size < 4:
            size = 1
        else:
            size = 1 + math.ceil((size - 4) / 2)
    for _ in range(2):
        size = (size - 1) * 2 + 4
    return F.pad(x, (0, size - x.shape[2]))[..., : x.shape[2]] * 2


def padded(m, x):
    y = F.pad(x, (0, 4 - x.shape[2] % 4)) if x.shape[2] % 4 else x
    return (F.avg_pool1d(y, 4).repeat_interleave(4, 2) + y)[..., : x.shape[2]]


def by_turns(m, x):
    """Pads and crops in ifs that only some streams enter: in a helper, behind other operations."""

    def halved(y, size):
        if y.shape[2] % 2:
            y = F.pad(y, (0, 1))
        y = F.avg_pool1d(y, 2).repeat_interleave(2, 2)
        if y.shape[2] > size:
            y = y[..., :size]
        return y

    T = x.shape[2]
    y = halved(x, T) + halved(x * 2, T).relu()
    z = y.tanh()
    if T % 4 == 0:
        n = 0
    else:
        n = 4 - T % 4
        z = F.pad(z, (0, n), value=2.0)
    return z[..., : T + n] * F.pad(y, (0, n))


def turned(m, x):
    """Queries and keys turned by positions, as rotary embeddings of several layers do."""
    at = torch.arange(x.shape[2])[None]
    angles = (m.scale[:2, 0][None, :, None].float() @ at[:, None].float()).transpose(1, 2)
    angles = torch.cat([angles, angles], -1)
    cos, sin = angles.cos(), angles.sin()
    for _ in range(3):
        y = x.transpose(1, 2)
        half = torch.cat([-y[..., 2:], y[..., :2]], -1)
        x = (y * cos.unsqueeze(1)[:, 0] + half * sin.unsqueeze(1)[:, 0]).transpose(1, 2)
    return x


def normalized(m, x):
    """A norm over all features and frames so far, in several layers."""
    for _ in range(3):
        n = torch.arange(x.shape[1], x.shape[1] * (x.shape[2] + 1), x.shape[1], dtype=x.dtype).view(1, -1)
        mean = x.sum(1).cumsum(-1) / n
        square = (x**2).sum(1).cumsum(-1) / n
        x = (x - mean[:, None]) / (square - mean**2 + 0.1).sqrt()[:, None]
    return x


def by_lane(m, x):
    """A norm with weights, and a plane's convolution, where streams are joined with features."""
    B, C, L = x.shape
    y = x.reshape(B, 2, 2, L).permute(0, 1, 3, 2).reshape(B * 2, L, 2)
    y = y @ (m.scale[:2] * m.scale[:2].T)
    y = F.group_norm(y.reshape(B * 2 * L, 2), 1, m.scale[:2, 0] * 2, m.scale[2:, 0]).reshape(B, 2, L, 2)
    return y.permute(0, 1, 3, 2).reshape(B, 4, L) * m.scale


def indexed(m, x):
    """Features picked by tensors that each call makes, and by one that it holds."""
    y = x[:, torch.tensor([0, 2, 1])].index_select(1, m.two - 1) + x.index_add(1, torch.tensor([0]), x[:, :1])
    return y * x.index_fill(1, m.two, 0.5)


def filled(m, x):
    """Constants of as many rows as there are streams, or as many frames, made in each call."""
    B, C, L = x.shape
    y = torch.cat([x.new_zeros(B, C, 2), x, torch.ones(B, C, 1)], 2)[:, :, 2:-1]
    return y * torch.ones(B, 1, L) * torch.full((B, 1, L), 2.0) + torch.zeros(B, C, 1)


def attended(m, x):
    """Attention by hand under a mask of ones, behind positions that turn queries by frequencies made here."""
    y, L = x.transpose(1, 2), x.shape[2]
    angles = torch.einsum("i,j->ij", torch.arange(L).float(), 1 / 10 ** (torch.arange(4) / 4))
    mask = torch.ones(L, L).tril().bool()
    scores = (y * angles.cos()) @ (y * angles.sin()).transpose(1, 2)
    return (scores.masked_fill(~mask, float("-inf")).softmax(-1) @ y).transpose(1, 2)


def assigned(m, x):
    """Writes into features, of which others were taken, and functions that are made of others."""
    y = x.clone()
    first = y[:, 0]
    y[:, 0] = x[:, 1] * 2
    y[:, 1:3] *= 0.5
    y[:, 3] = 1
    return torch.channel_shuffle(y, 2) + F.unfold(y[:, :, None], (1, 1)) + first[:, None]


def looped(m, x):
    """A loop over frames, whose body runs once: it has read one frame anew, and repeats all else."""
    h, made = x.new_zeros(x.shape[0], 4), []
    for t in range(x.shape[2]):
        h = torch.tanh(
            F.linear(x[:, :, t], m.scale * m.scale.T, m.scale[:, 0]) + 0.5 * h - (1 - h).sigmoid() * 0.1
        )
        made.append(h[:, [0, 1, 3, 2]])
    return torch.stack(made, 2)


def looped_cells(m, x):
    """Loops with a state that begins as None, and with one of two in a list."""
    h, hs, made = None, [x.new_zeros(x.shape[0], 4) for _ in range(2)], []
    for frame in x.unbind(2):
        h = m.cell(frame, h)
        hs[1] = m.cell(h, hs[1])
        made.append(hs[1])
    return torch.stack(made, 2)


def looped_writes(m, x):
    """A loop that writes its frames into zeros, of features first and last."""
    y = x.transpose(1, 2)
    out, h = torch.zeros(y.shape[0], y.shape[1], 4), torch.zeros(y.shape[0], 4)
    for t in range(y.size(1)):
        h = 0.5 * h + y[:, t] * y[:, t, :1]
        out[:, t] = h
    return out.transpose(1, 2)


def written_scores(m, x):
    """Masks and scores that are written into."""
    y = x.transpose(1, 2)
    at = torch.arange(y.shape[1])
    hidden = at[None] > at[:, None]
    hidden |= at[None] < at[:, None] - 3
    scores = y @ y.transpose(1, 2)
    scores /= 2.0
    scores.masked_fill_(hidden, -torch.inf)
    return (F.softmax(scores, -1) @ y).transpose(1, 2)


def sinusoids(m, x):
    """Positions that are assigned to every second feature of zeros."""
    L, table = x.shape[2], torch.zeros(x.shape[2], 4)
    angles = torch.arange(L).float()[:, None] * m.scale.flatten()[None, :2]
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles.cos()
    return x + table.transpose(0, 1)


def turned_in_pairs(m, x):
    """Pairs of features as complex numbers, times some that are computed of positions."""
    angles = torch.outer(torch.arange(x.shape[2]).float(), m.scale.flatten()[:2])
    y = x.transpose(1, 2).contiguous()
    pairs = torch.view_as_complex(y.reshape(*y.shape[:-1], 2, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(2).transpose(1, 2)


def differences(m, x):
    """The first and last frames are repeated at the ends."""
    y = torch.cat([x[..., :1], x, x[..., -1:]], 2)
    return (y[..., 2:] - y[..., :-2]) * 0.5 + x - x[..., :1]


def spread(m, x):
    """Constants that every frame has, made in each call."""
    w = m.window.square()
    return x * w[None, :, None].expand(x.shape[0], -1, x.shape[2]) + w.view(1, 4, 1).repeat(1, 1, x.shape[2])


#: Forwards; how many calls of torch may ask the native front end again in a warm call, how many Python functions
#: of this package may run.
FORWARDS = {
    "written scores": (written_scores, 0, 740),
    "sinusoids": (sinusoids, 0, 680),
    "turned in pairs": (turned_in_pairs, 0, 420),
    "first and last frames": (differences, 0, 500),
    "spectra": (spectral, 0, 560),
    "samples of spectra": (resynthesized, 0, 400),
    "ifs on lengths": (levelled, 0, 690),
    "pads by ifs on lengths": (padded, 0, 760),
    "pads and crops by turns": (by_turns, 0, 1000),
    "constants of every frame": (spread, 0, 400),
    "turned by positions": (turned, 4, 1010),
    "cumulative norms": (normalized, 0, 870),
    "weights for each lane": (by_lane, 0, 420),
    "indices in tensors": (indexed, 0, 480),
    "constants made here": (filled, 0, 480),
    "attention by hand": (attended, 0, 560),
    "writes into parts": (assigned, 0, 1200),
    "a loop over frames": (looped, 0, 1000),
    "a loop of cells": (looped_cells, 1, 1100),
    "a loop that writes": (looped_writes, 2, 1150),
    "a tensor of sizes": (
        lambda m, x: (s := torch.tensor(x.shape), x.reshape(s[0], 2, 2, s[2]).sum(1))[1],
        0,
        300,
    ),
    "a slice up to a tensor": (lambda m, x: x[:, : m.two[0]] + x.expand_as(x)[:, m.two[0] :], 0, 420),
}


@pytest.mark.parametrize("training", [False, True], ids=["evaluated", "trained"])
@pytest.mark.parametrize("name", FORWARDS)
def test_warm_calls_know_what_calls_before_found(name, training, monkeypatch):
    function, anew_at_most, most = FORWARDS[name]
    torch.manual_seed(0)
    model = Of(function).train(training)
    whole = torch.randn(2, 4, sum(CHUNKS))
    want = model(whole)
    online, asked, anew = ds.patch_module(Of(function).train(training)).online(), [], Forward._anew
    online.load_state_dict(model.state_dict())
    online.window, online.two = model.window, model.two
    monkeypatch.setattr(Forward, "_anew", lambda self, f, *given: asked.append(f) or anew(self, f, *given))
    for _ in range(2):
        asked.clear()  # the first turn has begun and ended streams, too
        got = {i: torch.cat(parts, -1) for i, parts in streamed(online, whole, CHUNKS).items()}
        assert all(torch.allclose(got[i], want[row], atol=1e-5) for row, i in enumerate("ab"))
    assert len(asked) <= anew_at_most * len(CHUNKS), [f.__name__ for f in asked]
    online(ds.stream_tensor(whole, ids=["a", "b"], sos=True))
    ran, chunk = [], ds.stream_tensor(whole, ids=["a", "b"])
    for count in (lambda *_: None, lambda frame, event, _: event == "call" and ran.append(frame.f_code)):
        sys.setprofile(count)
        try:
            online(chunk)
        finally:
            sys.setprofile(None)
    ours = [code for code in ran if "/dreamstream/" in code.co_filename]
    assert len(ours) <= most, len(ours)


@torch.no_grad()
def test_a_constant_of_every_frame_is_that_of_this_call():
    model = Of(spread)
    ds.patch_module(model).online()
    for n in range(6):
        model.window, chunk = torch.rand(4), torch.randn(4, 3)
        w = model.window.square()[:, None]
        assert torch.equal(model(ds.stream_tensor([chunk], ids=["a"], sos=n == 0)).tensor()[0], chunk * w + w)


@pytest.mark.parametrize("name", ["the whole", "a view between", "the frame"])
def test_last_frames_follow_what_is_written(name):
    def forward(m, x):
        y = x * 1
        of = y[..., 1:] if name == "a view between" else y
        last = of[..., -1:]
        (last if name == "the frame" else y).mul_(3)
        return torch.cat([y[..., 1:], last], 2)

    model, whole = Of(forward), torch.randn(2, 4, sum(CHUNKS))
    want = model(whole)
    ds.patch_module(model).online()
    for _ in range(2):
        got = streamed(model, whole, CHUNKS)
        assert torch.equal(torch.cat(got["a"], -1), want[0]) and torch.equal(torch.cat(got["b"], -1), want[1])


def looped_by(x, factor):
    h, made = x[:, :, 0] * 0, []
    for t in range(x.shape[2]):
        h = h / factor + x[:, :, t] * factor.item()
        made.append(h)
    return torch.stack(made, 2)


class Same(nn.Module):
    def forward(self, input):
        return input


#: Functions, and how many functions of the front end a warm call of one runs, its kernel among them.
REPEATED = {
    "a function": (lambda m, x: torch.relu(x), 1),
    "a function of torch.nn": (lambda m, x: F.relu(x), 1),
    "an operator": (lambda m, x: x + x, 1),
    "a layer": (lambda m, x: m.act(x), 4),
    "plain tensors": (lambda m, x: x * m.scale.exp().reciprocal().sqrt().to(x.dtype), 3),
    "a method": (lambda m, x: x.softmax(1), 1),
    "a method with sizes": (lambda m, x: (x * 2).reshape(x.shape[0], x.size(1), -1), 2),
    "a function with options": (lambda m, x: F.leaky_relu(x, 0.2), 1),
    "a layer that does nothing": (lambda m, x: m.drop(x), 5),
    "a module": (lambda m, x: m.inner(x), 7),
    "a module by keyword": (lambda m, x: m.inner(input=x), 7),
    "a transposed convolution": (lambda m, x: m.up(x)[..., 1:], 9),
    "how many dimensions": (lambda m, x: x * x.ndim + x.dim(), 2),
    "a device": (lambda m, x: x * len(x.device.type), 1),
    "a tensor of sizes": (lambda m, x: x * len(torch.tensor(x.shape)), 11),
    "a write": (lambda m, x: (x * 1).add_(1), 17),
    "a running sum": (lambda m, x: x.cumsum(2), 9),
    "positions": (lambda m, x: x + torch.arange(x.shape[2]), 18),
    "rows of a table": (lambda m, x: x + m.table[: x.shape[2]].T, 21),
}


@torch.no_grad()
@pytest.mark.parametrize("name", REPEATED)
def test_what_is_repeated_runs_few_functions_of_python(name):
    function, most = REPEATED[name]
    ran = {}
    for times in (4, 8):

        def forward(m, x, times=times):
            for _ in range(times):
                x = function(m, x)
            return x

        model = Of(forward).eval()
        model.act, model.drop, model.inner = nn.ReLU(), nn.Dropout().eval(), Same()
        model.up, model.table = nn.ConvTranspose1d(4, 4, 4, 2, 1), nn.Parameter(torch.rand(99, 4))
        ds.patch_module(model).online()
        for first in (True, *[False] * 9):  # the first are watched for random numbers
            model(ds.stream_tensor([torch.randn(4, 3)], ids=["a"], sos=first))
        chunk, seen = ds.stream_tensor([torch.randn(4, 3)], ids=["a"]), []
        sys.setprofile(partial(lambda seen, frame, event, _: event == "call" and seen.append(frame.f_code), seen))
        try:
            model(chunk)
        finally:
            sys.setprofile(None)
        ran[times] = len([code for code in seen if "/dreamstream/torch/" in code.co_filename])
    assert (ran[8] - ran[4]) / 4 <= most, ran


def checked(m, x):
    for _ in range(3):
        assert x.shape[2] % 4 == 0
    return x * 2


@torch.no_grad()
@pytest.mark.parametrize("frames", [3, 4])
def test_a_length_is_checked_once(frames):
    model = Of(checked)
    ds.patch_module(model).online()
    for n, frames_of in enumerate((3, 2, 2, 1, frames)):  # warm calls among them
        chunk = ds.stream_tensor([torch.randn(4, frames_of)], ids=["a"], sos=n == 0, eos=n == 4)
        if n == 4 and frames == 3:
            with pytest.raises(ds.ShapeError, match=r"x.shape\[2\] % 4 == 0`: a length of 11 must equal 8"):
                model(chunk)
        else:
            model(chunk)
    assert [key[0] for key in model._patch.session.script] == ["require", "mul"]


def looped_at(x, index):
    h, made = x[:, :, 0] * 0, []
    for t in range(x.shape[2]):
        h = h[:, index] * 0.5 + x[:, :, t]
        made.append(h)
    return torch.stack(made, 2)


NUMBERS = {
    "an index in a loop": lambda m, x: looped_at(x, torch.cat([m.two, torch.tensor([0, 1, 3])])),
    "a number in a layer's keywords": lambda m, x: F.relu(input=(x * 1)[:, : m.two[0]], inplace=True),
    "an index": lambda m, x: x[:, m.two] * x.index_select(1, m.two),
    "an index made of it": lambda m, x: x[:, torch.cat([m.two, m.two - 1])],
    "what is added at an index": lambda m, x: x.index_add(1, m.two, x[:, :1]),
    "what fills": lambda m, x: x * torch.ones(1, x.shape[2]) * m.two,
    "frequencies of positions": lambda m, x: (
        x * torch.einsum("i,j->ji", torch.arange(x.shape[2]).float(), m.two.float()).cos()
    ),
    "a term of positions": lambda m, x: x + (torch.arange(x.shape[2])[None] * m.two[:, None]).sin(),
    "a mask": lambda m, x: x * (torch.arange(x.shape[2]) % m.two == 0),
    "a number that is written": lambda m, x: (y := x.clone(), y.__setitem__((slice(None), 0), m.two[0]), y)[2],
    "a number in a loop": lambda m, x: looped_by(x, m.two[0] * 1.0),
    "where is written": lambda m, x: (y := x.clone(), y.__setitem__((slice(None), m.two), 0.5), y)[2],
    "a slice of features": lambda m, x: x[:, None][:, [0], : m.two[0]][:, 0],
    "a number in a list": lambda m, x: F.pad(x, (0, 0, m.two[0], 0)),
    "a number alone": lambda m, x: x.narrow(1, 0, m.two[0]) * 2,
    "a window": lambda m, x: torch.stft(x.sum(1), 4, 2, window=m.two[0] * m.window, return_complex=True).abs(),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_in_plain_tensors_are_read_in_every_call(name):
    model = Of(NUMBERS[name]).eval()
    plain, whole = copy.deepcopy(model), {"ids": ["a"], "sos": True, "eos": True}
    ds.patch_module(model).online()
    x = torch.randn(4, 9)
    for number in (2, 2, 3):
        model.two.fill_(number), plain.two.fill_(number)
        got, want = model(ds.stream_tensor([x], **whole))["a"], plain(x[None])[0]
        assert got.shape == want.shape and torch.allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("where", ["in place", "by another"])
def test_numbers_that_positions_meet_are_those_of_this_call(where):
    """Also where a tensor holds again what one that has changed meanwhile held before."""
    model = Of(lambda m, x: x * (torch.arange(x.shape[2]) * m.window[:, None]).cos()).eval()
    plain, whole = copy.deepcopy(model), {"ids": ["a"], "sos": True, "eos": True}
    ds.patch_module(model).online()
    x, window = torch.randn(4, 9), model.window.clone()
    for factor in (1, 3, 3, 1, 1, 3):
        for each in (model, plain):
            if where == "in place" or factor == 3:
                each.window.copy_(window * factor)
            else:
                each.window = window * factor
        got, want = model(ds.stream_tensor([x], **whole))["a"], plain(x[None])[0]
        assert torch.allclose(got, want, atol=1e-5), factor


def test_windows_that_leave_samples_uncovered_are_refused_in_warm_calls():
    model = ds.patch_module(Of(resynthesized).eval()).online()
    for n in range(2):
        model(ds.stream_tensor([torch.randn(4, 3)], ids=["a"], sos=n == 0))
    model.window.zero_()
    with pytest.raises(ds.ShapeError, match="leave samples uncovered"):
        model(ds.stream_tensor([torch.randn(4, 3)], ids=["a"]))


def alternating(m, x, step=lambda cell, h: cell(h)):
    cells, h, made = itertools.cycle(m.cells), x[:, :, 0] * 0, []
    for t in range(x.shape[2]):
        h = step(next(cells), h).tanh() + x[:, :, t]
        made.append(h)
    return torch.stack(made, 2)


@pytest.mark.parametrize(
    "step", [lambda cell, h: cell(h), lambda cell, h: F.linear(h, cell.weight * 2)], ids=["own", "computed"]
)
def test_weights_of_frames_that_were_equal_at_first_are_told_apart_later(step):
    model = Of(partial(alternating, step=step)).eval()
    model.cells = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    model.cells[1].load_state_dict(model.cells[0].state_dict())
    x, want = torch.randn(4, 5), None
    ds.patch_module(model).online()
    with torch.no_grad():
        for _ in range(3):
            y = model(ds.stream_tensor([x], ids=["a"], sos=True, eos=True))["a"]
            want = y if want is None else want
            assert torch.equal(y, want)
        model.cells[1].weight.neg_()
        with pytest.raises(ds.NotStreamableError, match="for t in range"):
            model(ds.stream_tensor([x], ids=["a"], sos=True, eos=True))


def stepping(m, x):
    """A loop whose body does what attributes of the module say."""
    h, made = x[:, :, 0] * 0, []
    for t in range(x.shape[2]):
        h = m.chosen[0](h) * m.factor + x[:, :, t].roll(m.shift, 1)
        made.append(h)
    return torch.stack(made, 2)


CHANGES = {
    "a number": lambda m, k: setattr(m, "factor", 0.3 + 0.1 * k),
    "an integer": lambda m, k: setattr(m, "shift", k % 3),
    "what runs": lambda m, k: m.chosen.__setitem__(0, [m.linear, torch.tanh, m.act][k % 3]),
    "a parameter in place": lambda m, k: m.linear.weight.data.mul_(1 + k),
    "another parameter": lambda m, k: setattr(m.linear, "bias", nn.Parameter(torch.full((4,), 0.1 * k))),
    "a hook": lambda m, k: m.linear.register_forward_hook(lambda *given: given[-1] * 0.5),
}


@torch.no_grad()
@pytest.mark.parametrize("name", CHANGES)
def test_what_a_loop_does_otherwise_than_in_the_call_before_is_seen(name):
    model = Of(stepping).eval()
    model.factor, model.shift, model.act = 0.5, 0, nn.Sigmoid()
    model.chosen = [model.linear]
    plain = copy.deepcopy(model)
    ds.patch_module(model).online()
    for k in range(4):
        for each in (model, plain):
            CHANGES[name](each, k)
        x = torch.randn(4, 9)
        for _ in range(2):  # the second one goes along the first
            parts = [
                model(ds.stream_tensor([x[:, a : a + 3]], ids=["a"], sos=a == 0, eos=a == 6))["a"]
                for a in (0, 3, 6)
            ]
            assert torch.allclose(torch.cat(parts, 1), plain(x[None])[0], atol=1e-5), k


@torch.no_grad()
def test_a_call_that_fails_in_the_body_of_a_loop_leaves_no_trace():
    model = Of(stepping).eval()
    model.factor, model.shift = 0.5, 1
    model.chosen = [lambda h: model.linear(h.tanh()) if model.goes else 1 / 0]
    model.goes, x = True, torch.randn(4, 12)
    want = model(x[None])[0]
    ds.patch_module(model).online()
    parts = []
    for a in (0, 3, 6, 9):
        chunk = ds.stream_tensor([x[:, a : a + 3]], ids=["a"], sos=a == 0, eos=a == 9)
        model.goes = False
        with pytest.raises(ZeroDivisionError):
            model(chunk)
        model.goes = True
        parts.append(model(chunk)["a"])
    assert torch.allclose(torch.cat(parts, 1), want, atol=1e-5)
