"""How people write forwards: each idiom is the same offline, in eager mode and in an engine, or refused.

What is accepted is streamed in random batches with all that can happen to them (`random_graphs.trial`) and
compared with the model offline; what is not raises the error that says why, naming the user's line, and leaves
nothing behind. Nothing is silently different.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import CaptureError, DTypeError, ModeError, NotStreamableError, ShapeError, StreamMismatchError
from random_graphs.drafts import Draft
from random_graphs.totals import Input
from random_graphs.trial import Subject, Trial, offline

X = Input("x", Fraction(1), 4, "BFL")  # (B, 4, L), as convolutions take it
T = Input("x", Fraction(1), 4, "BLF")  # (B, L, 4), as LSTM and Linear take it


def net(forward: Callable[..., Any], **parts: Any) -> nn.Module:
    """Return a module with this forward and these layers, parameters and other attributes."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

    Net.forward = forward  # type: ignore[method-assign]
    return Net().eval()


def held(
    model: nn.Module, *inputs: Input, delay: float | None = None, refuses: bool = False, n_trials: int = 3, **options: Any
) -> ds.Engine:
    """Stream a model in both modes and compare; return an engine.

    Parameters
    ----------
    delay : number, optional
        What the engine must say.
    refuses : bool
        Whether streams of some lengths are an error.
    options
        Of the draft: ``skew``, ``buffered``, ``buffer_limit``.
    """
    subject = Subject.made(Draft(0, list(inputs), **options), model)
    stats: Counter[str] = Counter()
    for seed in range(n_trials):
        trial = Trial(subject, np.random.default_rng(seed), stats)
        try:
            trial.play()
            trial.in_double()
        finally:
            trial.close()
    assert stats["frames"] > 0 and stats["streams"] > 0
    assert bool(stats["refused at the end"]) == refuses
    engine = subject.compiled()
    if delay is not None:
        assert engine.delay == delay
    return engine


def refused(
    model: nn.Module,
    x: Input,
    match: str,
    eager: type[Exception] = NotStreamableError,
    captured: type[Exception] | None = None,
    line: str | None = "test_idioms.py",
    offline_too: bool = False,
) -> None:
    """A model that can't stream: the error says why, by name of the line, in both modes; offline it runs."""
    captured = captured or eager
    n = 12
    frames = np.random.default_rng(0).standard_normal((1, n, x.size), dtype=np.float32)
    array = frames.swapaxes(1, 2) if x.layout == "BFL" else frames
    if not offline_too:
        model(ds.tensor(np.ascontiguousarray(array)))
    with pytest.raises(captured, match=match) as raised:
        ds.compile(model, x.spec)
    assert line is None or line in str(raised.value)
    online = ds.patch_module(copy.deepcopy(model)).online()
    names = [d if isinstance(d, str) else "F" for d in x.dims]
    with pytest.raises(eager, match=match) as raised:
        online(ds.stream_tensor(array, names=names, ids=["a"], sos=True, eos=True))
    assert line is None or line in str(raised.value)
    assert online.live_ids == []


# ---------------------------------------------------------------- convolutions made causal, and not
def test_cropped_padding_is_causal():
    """A temporal convolutional network: padding on both sides, the right one cropped."""

    def forward(self, x):
        for conv in self.convs:
            x = F.relu(conv(x)[..., : -conv.padding[0]]) + x
        return x

    convs = nn.ModuleList(nn.Conv1d(4, 4, 3, padding=2 * d, dilation=d) for d in (1, 2, 4))
    held(net(forward, convs=convs), X, delay=0)


def test_padding_by_hand_is_causal():
    def forward(self, x):
        return self.conv(F.pad(x, (4, 0)))

    held(net(forward, conv=nn.Conv1d(4, 3, 5)), X, delay=0)
    held(nn.Sequential(nn.ZeroPad1d((4, 0)), nn.Conv1d(4, 3, 5)).eval(), _first(X), delay=0)
    held(nn.Conv1d(4, 3, 5, padding="causal").eval(), _first(X), delay=0)


def _first(x: Input) -> Input:
    """Return an input under the name that layers give it."""
    return Input("input", x.rate, x.size, x.layout)


def test_residual_over_a_convolution_that_looks_ahead():
    def forward(self, x):
        return x + self.conv(F.gelu(x + self.conv(x)))

    held(net(forward, conv=nn.Conv1d(4, 4, 5, padding=2)), X, delay=4)


def test_branches_of_different_delay():
    def forward(self, x):
        near, far = self.near(x), self.far(x)
        return ds.cat([near, far, x], dim=1) * ds.cat([far, x, near], dim=1)

    parts = {"near": nn.Conv1d(4, 2, 3, padding=1), "far": nn.Conv1d(4, 3, 7, padding=3)}
    held(net(forward, **parts), X, delay=3)


def test_three_outputs_with_three_delays():
    def forward(self, x):
        y = self.conv(x)
        return x, y, self.conv(y)

    engine = held(net(forward, conv=nn.Conv1d(4, 4, 5, padding=2)), X)
    assert [o.delay for o in engine.outputs] == [0, 2, 4]


def test_a_module_called_twice_has_two_states():
    def forward(self, x):
        y, _ = self.rnn(x)
        z, _ = self.rnn(y)
        return self.conv(self.conv(z.transpose(1, 2)))

    held(net(forward, rnn=nn.LSTM(4, 4, batch_first=True), conv=nn.Conv1d(4, 4, 3)), T, delay=4)


def test_shared_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Conv1d(4, 4, 3, padding=1)
            self.b = nn.Conv1d(4, 4, 3, padding=2, dilation=2)
            self.b.weight = self.a.weight

        def forward(self, x):
            return F.conv1d(self.b(self.a(x)), self.a.weight)

    held(Tied().eval(), X, delay=5)


def test_weights_made_on_the_fly():
    def forward(self, x):
        unit = self.direction / self.direction.square().sum((1, 2), keepdim=True).sqrt()
        return F.conv1d(x, unit * self.length, self.bias, padding=1)

    parts = {"direction": ds.randn(3, 4, 3), "length": ds.rand(3, 1, 1), "bias": ds.randn(3)}
    held(net(forward, **{k: nn.Parameter(p) for k, p in parts.items()}), X, delay=1)


def test_down_up_and_a_skip():
    """A U-Net: the skip is cut to what comes back up."""

    def forward(self, x):
        y = self.up(F.relu(self.down(x)))
        return ds.cat([x[..., : y.size(-1)], y], dim=1)

    parts = {"down": nn.Conv1d(4, 6, 2, stride=2), "up": nn.ConvTranspose1d(6, 4, 2, stride=2)}
    held(net(forward, **parts), X, delay=1)


def test_a_skip_that_does_not_fit_is_refused_where_it_does_not():
    def forward(self, x):
        return x + self.up(self.down(x))

    parts = {"down": nn.Conv1d(4, 6, 2, stride=2), "up": nn.ConvTranspose1d(6, 4, 2, stride=2)}
    held(net(forward, **parts), X, refuses=True)


def test_cuts_at_both_ends():
    held(net(lambda self, x: x[..., 1:-1] - x[..., :-2] * x[..., 2:]), X, delay=2)
    held(net(lambda self, x: ds.cat([x[:, :, ::3], x[:, :, 1::3][..., : x[:, :, ::3].size(2)]], 1)[..., :-1]), X, refuses=True)


def test_cut_to_less_than_there_is():
    """A stop below 0 is 0, for a stream too short for it; Python would count it from the end."""
    three = net(lambda self, x: x[..., : x.size(2) - 3])
    engine = ds.compile(three, X.spec)
    online = ds.patch_module(copy.deepcopy(three)).online()
    for n in range(9):
        x = np.random.default_rng(n).standard_normal((4, n), dtype=np.float32)
        whole = ds.stream_tensor([x], ids=["a"], sos=True, eos=True)
        for stream in (engine, online):
            assert np.array_equal(stream(whole)["a"].numpy(), x[:, : max(0, n - 3)])
        if n >= 3:
            assert np.array_equal(three(ds.tensor(x[None])).numpy()[0], x[:, : n - 3])
    assert engine.delay == 3


def test_narrow():
    narrow = net(lambda self, x: x.narrow(2, 2, x.size(2) - 3))
    engine = ds.compile(narrow, X.spec)
    x = np.random.default_rng(0).standard_normal((4, 9), dtype=np.float32)
    assert np.array_equal(engine.step({"a": x}, sos=["a"], eos=["a"])["a"], narrow(ds.tensor(x[None])).numpy()[0])
    assert engine.delay == 3


# ---------------------------------------------------------------- positions and tables
@pytest.mark.parametrize(
    "shape, index, layout",
    [
        ((1, 500, 4), lambda x: (slice(None), slice(x.size(1))), "BLF"),
        ((500, 4), lambda x: slice(x.size(1)), "BLF"),
        ((500, 4), lambda x: slice(0, x.shape[1]), "BLF"),
        ((1, 4, 500), lambda x: (slice(None), slice(None), slice(x.size(2))), "BFL"),
        ((1, 4, 500), lambda x: (..., slice(x.size(-1))), "BFL"),
        ((4, 500), lambda x: (slice(None), slice(x.size(2))), "BFL"),
        ((500, 1, 4), lambda x: slice(x.size(0)), "LBF"),
    ],
    ids=["1PF", "PF", "PF from 0", "1FP", "1FP, ellipsis", "FP", "P1F"],
)
def test_table_of_positions(shape, index, layout):
    def forward(self, x):
        return x * 2 + self.pe[index(x)]

    held(net(forward, pe=nn.Parameter(ds.randn(*shape))), Input("x", Fraction(1), 4, layout), delay=0)


def test_table_by_transposes():
    """As in torch's tutorial: (L, B, F) inside a batch-first model."""

    def forward(self, x):
        y = x.permute(1, 0, 2)
        y = y + self.pe[: y.size(0)]
        return y.transpose(0, 1)

    held(net(forward, pe=nn.Parameter(ds.randn(500, 1, 4))), T, delay=0)


def test_table_at_another_rate():
    def forward(self, x):
        y = self.down(x.transpose(1, 2)).transpose(1, 2)
        return y + self.pe[:, : x.size(1) // 2]

    held(net(forward, down=nn.Conv1d(4, 4, 2, stride=2), pe=nn.Parameter(ds.randn(1, 500, 4))), T)


def test_table_behind_a_convolution():
    """Positions are those of the convolution's own frames."""

    def forward(self, x):
        y = self.down(x)
        return y + self.pe[..., : y.size(-1)]

    held(net(forward, down=nn.Conv1d(4, 4, 3, stride=2), pe=nn.Parameter(ds.randn(4, 500))), X, delay=2)


def test_table_of_strange_shape_is_refused():
    """A table whose first axis would meet the batch."""
    pe = nn.Parameter(ds.randn(3, 4, 500))
    refused(net(lambda self, x: x + self.pe[..., : x.size(2)], pe=pe), X, "line up", ShapeError, offline_too=True)


def test_table_that_is_outgrown():
    model = net(lambda self, x: x + self.pe[:, : x.size(1)], pe=nn.Parameter(ds.randn(1, 30, 4)))
    held(model, T, refuses=True, n_trials=8)
    engine = ds.compile(model, T.spec)
    engine.step({"a": np.zeros((30, 4)), "b": np.zeros((4, 4))}, sos=["a", "b"])
    with pytest.raises(ShapeError, match="30 rows") as raised:
        engine.step({"a": np.zeros((1, 4)), "b": np.zeros((1, 4))})
    assert raised.value.ids == ("a",)


def test_plain_tensor_along_the_stream_is_refused():
    refused(net(lambda self, x: x + self.p, p=nn.Parameter(ds.randn(4, 12))), X, "extent 12")
    refused(net(lambda self, x: x * ds.arange(x.size(2))), X, "as an integer", captured=CaptureError)
    refused(net(lambda self, x: x + ds.zeros(1, 4, x.size(2))), X, "as an integer", captured=CaptureError)


def test_constants_that_all_frames_share():
    def forward(self, x):
        return (x + self.a) * self.b - ds.ones(1, 4, 1, dtype=x.dtype) / 2

    held(net(forward, a=nn.Parameter(ds.randn(4, 1)), b=nn.Parameter(ds.randn(1, 4, 1))), X, delay=0)


# ---------------------------------------------------------------- recurrent networks
@pytest.mark.parametrize("way", ["expand", "repeat", "zeros", "zeros_like", "none"])
def test_initial_state(way):
    def forward(self, x):
        b = x.size(0)
        if way == "none":
            return self.rnn(x)[0]
        if way == "expand":
            h, c = self.h0.expand(-1, b, -1), self.c0.expand(2, b, 3)
        elif way == "repeat":
            h, c = self.h0.repeat(1, b, 1), self.c0.repeat(1, b, 1).contiguous()
        else:
            h = ds.zeros(2, b, 3, dtype=x.dtype)
            c = self.c0.expand(-1, b, -1) if way == "zeros" else h
        y, (h, c) = self.rnn(x, (h, c))
        return y

    state = {name: nn.Parameter(ds.randn(2, 1, 3)) for name in ("h0", "c0")}
    held(net(forward, rnn=nn.LSTM(4, 3, num_layers=2, batch_first=True), **state), T, delay=0)


def test_last_states_are_there_at_the_end():
    def forward(self, x):
        y, (h, c) = self.rnn(x)
        return y, h, self.head(h[-1]), x.mean(1)

    engine = held(net(forward, rnn=nn.LSTM(4, 3, batch_first=True), head=nn.Linear(3, 2)), T, delay=np.inf)
    assert [o.delay for o in engine.outputs] == [0, np.inf, np.inf, np.inf]
    first = engine.step({"a": np.ones((5, 4))}, sos=["a"])["a"]
    last = engine.step({}, eos=["a"])["a"]
    assert [y.shape for y in first] == [(5, 3), (0, 1, 3), (0, 2), (0, 4)]
    assert [y.shape for y in last] == [(0, 3), (1, 1, 3), (1, 2), (1, 4)]


def test_initial_state_computed_from_the_stream_is_refused():
    def forward(self, x):
        h = self.rnn(x)[1]
        return self.rnn(x, h)[0]

    refused(net(forward, rnn=nn.LSTM(4, 3, batch_first=True)), T, "initial state", line=None)


def test_both_directions_are_refused_or_wait():
    model = net(lambda self, x: self.rnn(x)[0], rnn=nn.LSTM(4, 3, batch_first=True, bidirectional=True))
    with pytest.raises(NotStreamableError, match="rnn"):
        ds.patch_module(copy.deepcopy(model))
    with pytest.raises(NotStreamableError, match="rnn"):
        ds.compile(model, T.spec)
    held(model, T, delay=np.inf, buffered=True)
    held(model, T, delay=np.inf, buffered=True, buffer_limit=10_000)


# ---------------------------------------------------------------- shapes
def test_frame_stacking_by_view():
    def forward(self, x):
        b, n, f = x.shape
        return self.lin(x.view(b, n // 2, 2 * f))

    model = net(forward, lin=nn.Linear(8, 3))
    held(model, T, delay=1, refuses=True)
    x = ds.randn(1, 11, 4)
    with pytest.raises(ShapeError):
        model(x)
    online = ds.patch_module(model).online()
    engine = ds.compile(model, T.spec)
    chunk = {"names": ("B", "L", "F"), "ids": ["odd", "even"]}
    for stream in (online, engine):
        y = stream(ds.stream_tensor([x.numpy()[0], x.numpy()[0]], sos=True, **chunk))
        assert list(y.lengths) == [5, 5]
        with pytest.raises(ShapeError, match="multiple of 2") as raised:
            stream(ds.stream_tensor([x.numpy()[0, :0], x.numpy()[0, :1]], eos=True, **chunk))
        assert raised.value.ids == ("odd",)


def test_frame_stacking_of_what_divides():
    def forward(self, x):
        x = x[:, : x.size(1) // 3 * 3]
        y = self.lin(x.reshape(x.size(0), -1, 3 * 4))
        return y.reshape(x.size(0), -1, 2), y.view(y.size(0), y.size(1) * 2, 3) * 2

    held(net(forward, lin=nn.Linear(12, 6)), T, delay=2)


def test_reshape_to_the_length_of_another_is_refused():
    """It might differ from stream to stream."""

    def forward(self, x):
        y = x.reshape(x.size(0), -1, 8)
        return y.reshape(x.size(0), x.size(1), 4)

    refused(net(forward), T, "another tensor's length")


def test_windows_by_unfold():
    def forward(self, x):
        return self.lin(x.unfold(-1, 5, 2).transpose(1, 2).flatten(2))

    held(net(forward, lin=nn.Linear(20, 3)), X, delay=4)


@pytest.mark.parametrize("way", ["reshape", "product", "flatten", "view"])
def test_a_network_per_frame(way):
    """All frames of all streams as rows, and back."""

    def forward(self, x):
        b, n, f = x.size()
        if way == "reshape":
            rows = x.reshape(-1, f)
        elif way == "product":
            rows = x.reshape(b * n, f)
        elif way == "view":
            rows = x.contiguous().view(n * b, f)
        else:
            rows = x.flatten(0, 1)
        return F.relu(self.lin(rows)).view(b, n, 3) if way != "view" else self.lin(rows).view(b, -1, 3)

    held(net(forward, lin=nn.Linear(4, 3)), T, delay=0)


def test_rearranged_features():
    """What einops writes as "b (g c) l -> b (c g) l", and heads split off and joined again."""

    def forward(self, x):
        b, c, n = x.shape
        shuffled = x.view(b, 2, c // 2, n).permute(0, 2, 1, 3).reshape(b, c, n)
        heads = x.transpose(1, 2).unflatten(-1, (2, 2)).softmax(-1)
        return shuffled + heads.flatten(2).transpose(1, 2)

    held(net(forward), X, delay=0)


def test_dimensions_come_and_go():
    def forward(self, x):
        y = x.unsqueeze(1).expand(-1, 3, -1, -1).sum(1)
        z = x[:, None].squeeze(1).permute(2, 0, 1).unsqueeze(-1).flatten(2).permute(1, 2, 0)
        return y - ds.stack([x, z], dim=-1).mean(-1), x.mT, x.select(1, 2)

    held(net(forward), X, delay=0)


def test_gates():
    def forward(self, x):
        a, b = self.conv(x).chunk(2, dim=1)
        p, q, r = self.conv(x).split([2, 1, 5], dim=1)
        return a * b.sigmoid() + F.glu(self.conv(x), dim=1), ds.cat([r, q, p], 1), ds.cat([x], 1)

    held(net(forward, conv=nn.Conv1d(4, 8, 3, padding=1)), X, delay=1)


def test_masks():
    def forward(self, x):
        keep = (x > -0.5) & (x < 1) | (x == 0)
        y = x * keep + ds.where(x > 0.3, x, ds.zeros(1, dtype=x.dtype)) - x.masked_fill(~keep, 0.0)
        return y + (x.abs() > 1).to(x.dtype) * ds.where(keep, x, 2.0)

    held(net(forward), X, delay=0)


def test_arithmetic():
    def forward(self, x):
        y = 2 * x - x / 3 + (-x) ** 2 + abs(x) ** 0.5 - 1
        y += x
        y *= 0.5
        return y.clamp(-1, 1) + F.relu(y, inplace=True) + x // 0.5 - x % 0.3 + 0.1**x

    held(net(forward), X, delay=0)


def test_normalised_by_hand():
    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        return centred * (centred.square().mean(1, keepdim=True) + 1e-5).rsqrt() * self.g[:, None]

    held(net(forward, g=nn.Parameter(ds.rand(4))), X, delay=0)


def test_reshapes_that_mix_frames_with_features_are_refused():
    refused(net(lambda self, x: x.flatten(1)), X, "flatten")
    refused(net(lambda self, x: x.reshape(x.size(0), -1)), X, "drops L")
    refused(net(lambda self, x: x.reshape(x.size(0), x.size(2), 4)), X, "mixed", NotStreamableError)
    refused(net(lambda self, x: x[0]), X, "an index on the batch")
    refused(net(lambda self, x: F.pad(x, (0, 0, 1, 1))), X, "along features", line=None)


# ---------------------------------------------------------------- several inputs and outputs
def test_two_inputs_at_two_rates():
    def forward(self, audio, video):
        fine = self.up(video.transpose(1, 2))
        both = ds.cat([audio[..., : fine.size(2)], fine[..., : audio.size(2)]], dim=1)
        return self.head(both), self.down(audio)

    parts = {"up": nn.ConvTranspose1d(3, 4, 2, stride=2), "head": nn.Conv1d(8, 2, 3, padding=1)}
    parts["down"] = nn.Conv1d(4, 2, 2, stride=2)
    audio, video = Input("audio", Fraction(1), 4, "BFL"), Input("video", Fraction(1, 2), 3, "BLF")
    held(net(forward, **parts), audio, video)
    held(net(forward, **parts), audio, video, skew=3)


def test_inputs_of_two_rates_do_not_add():
    model = net(lambda self, x, y: x + y)
    with pytest.raises(StreamMismatchError, match="rates"):
        ds.compile(model, {"x": ("B", 4, "L"), "y": ("B", 4, "L")}, rate={"x": 1, "y": Fraction(1, 2)})


def test_rates_are_checked_through_lengths():
    def half(self, x):
        return self.down(x.transpose(1, 2)).transpose(1, 2)

    down = nn.Conv1d(4, 4, 2, stride=2)
    held(net(lambda self, x: x[:, : half(self, x).size(1) * 2], down=down), T, delay=1)
    held(net(lambda self, x: half(self, x)[:, : x.size(1) // 2], down=down), T, delay=1)
    for wrong in (lambda self, x: x[:, : half(self, x).size(1)], lambda self, x: half(self, x)[:, : x.size(1)]):
        refused(net(wrong, down=down), T, "rates", StreamMismatchError)


@pytest.mark.parametrize("form", ["tuple", "dict", "nested", "one"])
def test_forms_of_results(form):
    def forward(self, x):
        y, z = self.conv(x), x[..., 2:]
        forms = {"tuple": (y, z), "dict": {"y": y, "z": z}, "nested": {"a": [y, (z, x)], "b": z}, "one": (y,)}
        return forms[form]

    model = net(forward, conv=nn.Conv1d(4, 2, 3, padding=1))
    held(model, X)
    engine = ds.compile(model, X.spec)
    a = np.random.default_rng(0).standard_normal((4, 9), dtype=np.float32)
    whole = model(ds.tensor(a[None]))
    got = engine.step({"a": a}, sos=["a"], eos=["a"])["a"]
    online = ds.patch_module(model).online()(ds.stream_tensor([a], ids=["a"], sos=True, eos=True))
    for said in (got, online):
        assert type(said) is type(whole)
        if isinstance(whole, dict):
            assert list(said) == list(whole)
    if form == "nested":
        assert np.allclose(got["a"][1][0], whole["a"][1][0].numpy()[0])
        assert np.allclose(online["a"][1][0]["a"].numpy(), whole["a"][1][0].numpy()[0])


def test_containers_of_layers():
    class Block(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.net = nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.Sequential(nn.GLU(dim=1), nn.Tanh()))
            self.scales = nn.ParameterList([nn.Parameter(ds.rand(4, 1)) for _ in range(n)])
            self.heads = nn.ModuleDict({"a": nn.Conv1d(4, 2, 1), "b": nn.Identity()})

        def forward(self, x):
            y = self.net(x)
            for scale in self.scales:
                y = y + x * scale
            return {name: head(y) for name, head in self.heads.items()}

    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(n) for n in (1, 2)])
            self.last = nn.Conv1d(4, 4, 3, padding=1)
            self.listed = [self.last, nn.ReLU()]

        def forward(self, x):
            for block in self.blocks:
                x = block(x)["b"]
            for layer in self.listed:
                x = layer(x)
            return x

    model = Stack().eval()
    held(model, X, delay=3, n_trials=2)


# ---------------------------------------------------------------- lengths that are no numbers
@pytest.mark.parametrize(
    "use, what",
    [
        (lambda x: x * 2 if x.size(2) > 10 else x, "compared"),
        (lambda x: x * 2 if x.shape[2] == 12 else x, "compared"),
        (lambda x: [x * i for i in range(x.size(2))][0], "as an integer"),
        (lambda x: x * int(x.size(2)), "to a number"),
        (lambda x: x / x.size(2), "divid|multiplied|expected"),
        (lambda x: x / x.size(2) ** 0.5, "power"),
        (lambda x: x[..., : max(x.size(2) - 2, 0)], "compared"),
        (lambda x: x * len({x.size(2)}), "hashed"),
        (lambda x: x * float(f"{x.size(2):5d}"), "formatted"),
        (lambda x: x if x.size(2) else x * 2, "truth"),
        (lambda x: x * (x.size(2) % 2), "modulo"),
        (lambda x: x * np.arange(x.size(2), dtype=np.float32), "."),
        (lambda x: x * (x.size(0) + 1), "number of streams"),
    ],
)
def test_lengths_are_no_numbers(use, what):
    model = net(lambda self, x: use(x))
    n = np.ones((4, 12), np.float32)
    online = ds.patch_module(copy.deepcopy(model)).online()
    errors = []
    for attempt in (
        lambda: online(ds.stream_tensor([n], ids=["a"], sos=True, eos=True)),
        lambda: ds.compile(model, X.spec),
    ):
        with pytest.raises((NotStreamableError, CaptureError, DTypeError), match=what) as raised:
            attempt()
        errors.append(raised.value)
    if what not in (".", "divid|multiplied|expected"):
        assert isinstance(errors[0], NotStreamableError) and isinstance(errors[1], CaptureError)
        assert all("test_idioms.py" in str(e) for e in errors)
    assert online.live_ids == []


def test_len_of_a_stream():
    refused(net(lambda self, x: x * len(x)), X, "Python length", captured=CaptureError)


def test_sizes_can_be_printed_and_compared_with_themselves(capsys):
    def forward(self, x):
        y = F.relu(x)
        print(f"{x.shape} {x.size(2)} {x!r}", y.size())
        assert x.size(2) == y.size(-1) and x.shape[0] == y.size(0) and x.shape == y.shape
        assert x.dim() == x.ndim == 3 and x.size(1) == 4
        return y

    held(net(forward), X, delay=0, n_trials=1)
    assert "length" in capsys.readouterr().out


# ---------------------------------------------------------------- what needs the whole stream
@pytest.mark.parametrize(
    "use, what",
    [
        (lambda x: x[..., -3:], "counted from the end"),
        (lambda x: x[..., x.size(2) - 3 :], "end is known"),
        (lambda x: x[..., :9], "constant position 9"),
        (lambda x: x[..., 2:9], "constant position 9"),
        (lambda x: x[..., 5], "one frame"),
        (lambda x: x[..., -1], "one frame"),
        (lambda x: x[..., [0, 3]], "list, mask or array"),
        (lambda x: x.select(2, 0), "one frame"),
        (lambda x: x.flip(2), "flip"),
        (lambda x: x.roll(1, 2), "roll"),
        (lambda x: x.cumsum(2), "cumsum"),
        (lambda x: x.softmax(-1), "softmax"),
        (lambda x: F.log_softmax(x, dim=2), "softmax"),
        (lambda x: x.transpose(1, 2).mean(1, keepdim=True), "over the stream"),
        (lambda x: x - x.mean(2, keepdim=True), "over the stream"),
        (lambda x: x - x.mean(2).unsqueeze(2), "value of the whole stream"),
        (lambda x: x * x.transpose(1, 2).amax(1).unsqueeze(-1), "value of the whole stream"),
        (lambda x: (x - x.mean(2).unsqueeze(-1)).square(), "value of the whole stream"),
        (lambda x: x.max(2)[0], "max over the stream"),
        (lambda x: x.max(dim=2).values, "max over the stream"),
        (lambda x: x.mean((1, 2)), "over the stream"),
        (lambda x: x.sum(), "over the batch"),
        (lambda x: x * x.sum().item(), "over the batch"),
        (lambda x: x.mean(0), "over the batch"),
        (lambda x: ds.cat([x, x], dim=2), "cat along L"),
        (lambda x: ds.cat([x, x], dim=0), "cat along B"),
        (lambda x: x @ x.transpose(1, 2), "matrix product"),
        (lambda x: x.repeat(1, 1, 2), "repeat"),
        (lambda x: x.split(2, dim=2)[0], "split along L"),
        (lambda x: x.chunk(2, dim=-1)[0], "chunk along L"),
        (lambda x: x.unbind(2)[0], "unbind along L"),
        (lambda x: [row for row in x][0], "a loop"),
        (lambda x: F.pad(x, (1, 1), mode="circular"), "own end"),
    ],
)
def test_what_needs_the_whole_stream_is_refused(use, what):
    # The functions' lines are in this file: that is what the message must name.
    line = None if what in ("own end",) else "test_idioms.py"
    refused(net(lambda self, x: use(x)), X, what, line=line)


def test_means_over_the_stream_are_outputs():
    def forward(self, x):
        pooled = self.head(F.relu(self.conv(x)).mean(2))
        return pooled.softmax(-1), x.amax(2) - x.amin(2), x.sum(2).tanh(), self.conv(x)

    engine = held(net(forward, conv=nn.Conv1d(4, 3, 3), head=nn.Linear(3, 2)), X, delay=np.inf)
    assert [o.rate for o in engine.outputs] == [0, 0, 0, 1]


# ---------------------------------------------------------------- values that are not there
def test_values_inside_a_forward_are_refused():
    def stale(self, x):
        kept, self.__dict__["kept"] = self.__dict__.get("kept"), x
        return x if kept is None else x + kept

    refused(net(lambda self, x: x if x.sum(1).sum(1) else -x), X, "truth", captured=CaptureError, offline_too=True)
    refused(net(lambda self, x: x if x > 0 else -x), X, "truth", captured=CaptureError, offline_too=True)
    refused(net(lambda self, x: ds.tensor(np.asarray(x) * 2)), X, "NumPy array", captured=CaptureError)
    refused(net(lambda self, x: ds.tensor(x.numpy() * 2)), X, "values", captured=CaptureError)
    refused(net(lambda self, x: x * x.tolist()[0][0][0]), X, ".", captured=CaptureError, line=None)

    model = net(stale)
    online = ds.patch_module(model).online()
    chunk = np.ones((4, 3), np.float32)
    online(ds.stream_tensor([chunk], ids=["a"], sos=True))
    with pytest.raises(StreamMismatchError):
        online(ds.stream_tensor([chunk], ids=["a"]))


def test_writing_into_a_stream_is_refused():
    def assign(self, x):
        x[..., 0] = 0
        return x

    refused(net(assign), X, "assigned")
    refused(net(lambda self, x: x.add_(1)), X, "written into", ModeError, line=None)
    refused(net(lambda self, x: x.mul_(x)), X, "written into", ModeError, line=None)


def test_inputs_are_left_alone_by_in_place_operators():
    def forward(self, x):
        x += 1
        x = F.relu(x, inplace=True)
        return x

    chunk = np.random.default_rng(0).standard_normal((4, 5), dtype=np.float32)
    before = chunk.copy()
    model = net(forward)
    whole = model(ds.tensor(chunk[None]))
    online = ds.patch_module(model).online()
    y = online(ds.as_stream_tensor([chunk], ids=["a"], sos=True, eos=True))
    assert np.array_equal(chunk, before)
    assert np.array_equal(y["a"].numpy(), whole.numpy()[0])


# ---------------------------------------------------------------- a forward that changes its course
def one(self, x):
    return F.relu(self.conv(x))


def other_operator(self, x):
    return self.conv(x) if self.changed else F.relu(self.conv(x))


def fewer(self, x):
    return x if self.changed else F.relu(self.conv(x))


def more(self, x):
    return F.relu(self.conv(self.conv(x))) if self.changed else F.relu(self.conv(x))


def rewired(self, x):
    y = self.conv(x)
    return ds.cat([F.relu(x if self.changed else y), y[..., :0] if False else y], 1)[..., 1:]


def other_layer(self, x):
    return F.relu((self.twin if self.changed else self.conv)(x))


@pytest.mark.parametrize("forward", [other_operator, fewer, more, rewired, other_layer])
def test_a_course_that_depends_on_more_than_the_model(forward):
    """It may change between streams, but not while any is live; a call that does is no call."""
    parts = {"conv": nn.Conv1d(4, 4, 3, padding=1), "twin": nn.Conv1d(4, 4, 3, padding=1)}
    model = net(forward, changed=False, **parts)
    x = np.random.default_rng(0).standard_normal((4, 20), dtype=np.float32)
    whole = model(ds.tensor(x[None])).numpy()[0]
    online = ds.patch_module(model).online()
    chunk = {"ids": ["a"]}
    parts_got = [online(ds.stream_tensor([x[:, :7]], sos=True, **chunk))["a"].numpy()]
    model.changed = True
    with pytest.raises(ModeError, match="course"):
        online(ds.stream_tensor([x[:, 7:12]], **chunk))
    with pytest.raises(ModeError, match="course"):
        online(ds.stream_tensor([x[:, :3]], ids=["b"], sos=True))
    assert online.live_ids == ["a"]
    model.changed = False
    parts_got.append(online(ds.stream_tensor([x[:, 7:12]], **chunk))["a"].numpy())
    parts_got.append(online(ds.stream_tensor([x[:, 12:]], eos=True, **chunk))["a"].numpy())
    assert np.allclose(np.concatenate(parts_got, -1), whole, atol=1e-5)
    model.changed = True  # no stream is live: the new course is taken up
    again = online(ds.stream_tensor([x], sos=True, eos=True, **chunk))["a"].numpy()
    model.changed, _ = True, model.offline()
    assert np.allclose(again, model(ds.tensor(x[None])).numpy()[0], atol=1e-5)


def test_weights_edited_between_calls():
    """Eager calls use what the weights are; an engine has its own."""
    lin = nn.Linear(4, 4)
    model = net(lambda self, x: self.lin(x), lin=lin)
    engine = ds.compile(model, T.spec)
    online = ds.patch_module(model).online()
    x = np.random.default_rng(0).standard_normal((6, 4), dtype=np.float32)

    def said(stream: Any, part: Any, **flags: Any) -> Any:
        return stream(ds.stream_tensor([part], names=("B", "L", "F"), ids=["a"], **flags))["a"].numpy()

    def product(part: Any) -> Any:
        return part @ lin.weight.numpy().T + lin.bias.numpy()

    old = product(x)
    for stream in (online, engine):
        assert np.allclose(said(stream, x[:3], sos=True), old[:3], atol=1e-6)
    lin.weight.copy_(ds.randn(4, 4))
    lin.bias[...] = 1.0
    assert np.allclose(said(online, x[3:], eos=True), product(x[3:]), atol=1e-6)
    assert np.allclose(said(engine, x[3:], eos=True), old[3:], atol=1e-6)
    assert not np.allclose(product(x[3:]), old[3:], atol=1e-2)


def test_other_things_in_a_forward():
    """Helpers, keyword arguments, defaults, closures, layers kept in a dict, early returns by options."""

    def helper(layers, value, *, gain=1.0):
        return layers["conv"](input=value) * gain

    def forward(self, x, scale=2.0):
        if self.skip:
            return x
        try:
            y = helper({"conv": self.conv}, x, gain=scale)
        finally:
            pass
        return [F.softplus(p) for p in (y,)][0] if self.conv.bias is not None else y

    held(net(forward, skip=False, conv=nn.Conv1d(4, 2, 3)), X, delay=2)
    assert offline is not None
