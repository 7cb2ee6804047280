"""How people write forwards: each idiom is the same offline, in eager mode and in an engine.

What is accepted is streamed in random batches with all that can happen to them (`random_graphs.trial`) and
compared with the model offline. What is not accepted, see `test_idioms_refused.py`. Nothing is silently
different.
"""

import copy
from fractions import Fraction

import numpy as np
import pytest
from random_graphs.idioms import T, X, held, net, refused
from random_graphs.totals import Input

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import NotStreamableError, ShapeError, StreamMismatchError


# ---------------------------------------------------------------- convolutions made causal, and not
def test_padding_by_hand_is_causal():
    def forward(self, x):
        return self.conv(F.pad(x, (4, 0)))

    held(net(forward, conv=nn.Conv1d(4, 3, 5)), X, delay=0)
    held(nn.Sequential(nn.ZeroPad1d((4, 0)), nn.Conv1d(4, 3, 5)).eval(), _first(X), delay=0)


def test_padding_by_name_is_causal():
    held(nn.Conv1d(4, 3, 5, padding="causal").eval(), _first(X), delay=0)


def _first(x: Input) -> Input:
    """Return an input under the name that layers give it."""
    return Input("input", x.rate, x.size, x.layout)


def test_residual_over_a_convolution_that_looks_ahead():
    def forward(self, x):
        return x + self.conv(F.gelu(x + self.conv(x)))

    held(net(forward, conv=nn.Conv1d(4, 4, 5, padding=2)), X, delay=4)


def test_three_outputs_with_three_delays():
    def forward(self, x):
        y = self.conv(x)
        return x, y, self.conv(y)

    engine = held(net(forward, conv=nn.Conv1d(4, 4, 5, padding=2)), X)
    assert [o.delay for o in engine.outputs] == [0, 2, 4]


def test_weights_made_on_the_fly():
    def forward(self, x):
        unit = self.direction / self.direction.square().sum((1, 2), keepdim=True).sqrt()
        return F.conv1d(x, unit * self.length, self.bias, padding=1)

    parts = {"direction": ds.randn(3, 4, 3), "length": ds.rand(3, 1, 1), "bias": ds.randn(3)}
    held(net(forward, **{k: nn.Parameter(p) for k, p in parts.items()}), X, delay=1)


def test_a_skip_that_does_not_fit_is_refused_where_it_does_not():
    def forward(self, x):
        return x + self.up(self.down(x))

    parts = {"down": nn.Conv1d(4, 6, 2, stride=2), "up": nn.ConvTranspose1d(6, 4, 2, stride=2)}
    held(net(forward, **parts), X, refuses=True)


def test_cuts_at_both_ends():
    held(net(lambda self, x: x[..., 1:-1] - x[..., :-2] * x[..., 2:]), X, delay=2)
    held(
        net(lambda self, x: ds.cat([x[:, :, ::3], x[:, :, 1::3][..., : x[:, :, ::3].size(2)]], 1)[..., :-1]),
        X,
        refuses=True,
    )


def test_cut_to_less_than_there_is():
    """A stop below 0, for a stream too short for it, is counted from the end, as Python counts it."""
    three = net(lambda self, x: x[..., : x.size(2) - 3])
    engine = ds.compile(three, X.spec)
    online = ds.patch_module(copy.deepcopy(three)).online()
    for n in range(9):
        x = np.random.default_rng(n).standard_normal((4, n), dtype=np.float32)
        whole = ds.stream_tensor([x], ids=["a"], sos=True, eos=True)
        for stream in (engine, online):
            assert np.array_equal(stream(whole)["a"].numpy(), x[:, : n - 3])
        assert np.array_equal(three(ds.tensor(x[None])).numpy()[0], x[:, : n - 3])
    assert engine.delay == 3


def test_narrow():
    narrow = net(lambda self, x: x.narrow(2, 2, x.size(2) - 3))
    engine = ds.compile(narrow, X.spec)
    x = np.random.default_rng(0).standard_normal((4, 9), dtype=np.float32)
    assert np.array_equal(engine.step({"a": x}, sos=["a"], eos=["a"])["a"], narrow(ds.tensor(x[None])).numpy()[0])
    assert engine.delay == 3


@pytest.mark.parametrize(
    "forward, delay",
    [
        (lambda self, x: ds.cat([x[:, :, :1].repeat(1, 1, 2), x, x[..., -1:].repeat(1, 1, 3)], 2)[:, :, 4:], 2),
        (lambda self, x: ds.cat([x * 2, (x * 2)[:, :, -1:]], 2), 0),
        (lambda self, x: self.conv(ds.cat([x, x[:, :, -1:], x[:, :, -1:].expand(-1, -1, 3)], -1)), 4),
        (lambda self, x: x.cumsum(2) / (ds.arange(x.size(2)) < x.size(2)).to(x.dtype).cumsum(0), 0),
    ],
    ids=["both ends", "another's end", "twice", "cumulated mask"],
)
def test_last_frame_repeated(forward, delay):
    """Behind its own stream it is what pads; a mask that covers all frames counts them."""
    held(net(forward, conv=nn.Conv1d(4, 3, 5)), X, delay=delay)


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


def test_positions_and_writing_in_place():
    def first_to_zero(self, x):
        x[..., 0] = 0
        return x

    held(net(lambda self, x: x * ds.arange(x.size(2))), X)
    held(net(first_to_zero), X)
    held(net(lambda self, x: x + x.to(x.dtype, copy=True).mul_(2)), X)
    for write in (lambda x: x.add_(1), lambda x: x.mul_(x)):
        model = net(lambda self, x, write=write: write(x))
        held(model, X)
        assert ds.verify(model, ds.compile(model, X.spec)).max_difference == 0


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
    with pytest.raises((ShapeError, RuntimeError)):
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


def test_reshape_to_the_length_of_another():
    def forward(self, x):
        y = self.conv(x.transpose(1, 2))  # two frames behind, and as long
        return y.view(x.size(0), 2, 2, x.size(1))

    held(net(forward, conv=nn.Conv1d(4, 4, 5, padding=2)), T, delay=2)


def test_reshape_to_the_length_of_another_that_differs():
    """What torch refuses at once is known at the stream's end, or at once where it is so for all streams."""

    def forward(self, x):
        return x.reshape(x.size(0), x.size(1) // 2 * 2, 2, 2)

    module = ds.patch_module(net(forward)).online()
    frames = np.ones((1, 5, 4), np.float32)
    chunk = {"names": ("B", "L", "F"), "ids": ["s"]}
    module(ds.stream_tensor(frames, sos=True, **chunk))
    with pytest.raises(ShapeError, match="a length of 9 must equal 8 at the end") as raised:
        module(ds.stream_tensor(frames[:, 1:], eos=True, **chunk))
    assert raised.value.ids == ("s",)
    with pytest.raises(NotStreamableError, match="never the length of what comes out"):
        ds.compile(net(lambda self, x: x[:, 1:].reshape(x.size(0), x.size(1), 2, 2)), T.spec)
    held(net(lambda self, x: x[:, ::2].reshape(x.size(0), (x.size(1) + 1) // 2, 4)), T)


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


def test_gates():
    def forward(self, x):
        a, b = self.conv(x).chunk(2, dim=1)
        p, q, r = self.conv(x).split([2, 1, 5], dim=1)
        return a * b.sigmoid() + F.glu(self.conv(x), dim=1), ds.cat([r, q, p], 1), ds.cat([x], 1)

    held(net(forward, conv=nn.Conv1d(4, 8, 3, padding=1)), X, delay=1)


def test_normalised_by_hand():
    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        return centred * (centred.square().mean(1, keepdim=True) + 1e-5).rsqrt() * self.g[:, None]

    held(net(forward, g=nn.Parameter(ds.rand(4))), X, delay=0)


def test_reshapes_that_mix_frames_with_features_are_refused():
    refused(net(lambda self, x: x.flatten(1)), X, "features and frames are one dimension", line=None)
    refused(net(lambda self, x: x.reshape(x.size(0), -1)), X, "features and frames are one dimension", line=None)
    refused(net(lambda self, x: x.reshape(x.size(0), x.size(2), 4)), X, "mixed", NotStreamableError)
    refused(net(lambda self, x: x[0]), X, "an index on the batch")
    refused(net(lambda self, x: F.pad(x, (0, 0, 0, 0, 1, 1))), X, "B of a stream", line=None)


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
