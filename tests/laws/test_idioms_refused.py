"""What can't stand in a forward raises the error that says why, naming the user's line, in eager mode and in a
capture, and leaves nothing behind.
"""

import copy

import numpy as np
import pytest
from random_graphs.idioms import X, held, net, refused
from random_graphs.trial import offline

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import CaptureError, DTypeError, ModeError, NotStreamableError, StreamMismatchError


# ---------------------------------------------------------------- lengths that are no numbers
@pytest.mark.parametrize(
    "use, what",
    [
        (lambda x: x * 2 if x.size(2) > 10 else x, "compared"),
        (lambda x: x * 2 if x.shape[2] == 12 else x, "compared"),
        (lambda x: [x * i for i in range(x.size(2))][0], "as an integer"),
        (lambda x: ds.stack([x[..., i - i % 7 : i + 1].sum(-1) for i in range(x.size(2))], -1), "as an integer"),
        (lambda x: x * int(x.size(2)), "to a number"),
        (lambda x: x / x.size(2), "divid|multiplied|expected"),
        (lambda x: x / x.size(2) ** 0.5, "power"),
        (lambda x: x[..., : max(x.size(2) % 5, 2)], "compared"),
        (lambda x: x * len({x.size(2)}), "hashed"),
        (lambda x: x * float(f"{x.size(2):5d}"), "formatted"),
        (lambda x: x if x.size(2) - 12 else x * 2, "compared"),
        (lambda x: x * (x.size(2) % 2), "combined by"),
        (lambda x: x * np.arange(x.size(2), dtype=np.float32), "."),
        (lambda x: x * (x.size(0) + 1), "number of streams"),
    ],
)
def test_lengths_are_no_numbers(use, what):
    model = net(lambda self, x: use(x))
    refused_as(model, what)


def doubled(x):
    n = 1
    while n < x.size(2):
        n *= 2
    return F.pad(x, (0, n - x.size(2)))


def squared(x):
    n = 1
    while n * n < x.size(2):
        n += 1
    return F.pad(x, (0, n * n - x.size(2)))


def raised_by_squares(x):
    n = 0
    while (x.size(2) + n * n) % 4:
        n += 1
    return F.pad(x, (0, n * n))


def halved(x):
    while x.size(2) > 1:
        x = F.avg_pool1d(x, 2)
    return x


def left(x):
    while True:
        if x.size(2) <= 1:
            break
        x = F.avg_pool1d(x, 2)
    return x


def unbounded(x):
    pad = 0
    if x.size(2) > 20:
        pad = 2
    return F.pad(x, (0, pad))


@pytest.mark.parametrize("use", [doubled, squared, raised_by_squares, halved, left, unbounded])
def test_loops_and_ifs_that_are_not_known_to_end_evenly(use):
    refused_as(net(lambda self, x: use(x)), "compared where streams answer differently")


def refused_as(model, what):
    n = np.ones((4, 12), np.float32)
    online = ds.patch_module(copy.deepcopy(model)).online()
    errors = []
    for attempt in (
        lambda: online(ds.stream_tensor([n], ids=["a"], sos=True, eos=True)),
        lambda: ds.compile(model, X.spec),
    ):
        with pytest.raises((NotStreamableError, DTypeError), match=what) as raised:
            attempt()
        errors.append(raised.value)
    if what not in (".", "divid|multiplied|expected"):
        assert all(type(e) is NotStreamableError for e in errors)
        assert all("test_idioms" in str(e) for e in errors)
    assert online.live_ids == []


def test_len_of_a_stream():
    refused(net(lambda self, x: x * len(x)), X, "Python length")


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
        (lambda x: x[..., -9:-1:2], "counted from the end"),
        (lambda x: x + x[..., -1:], "value of the whole stream"),
        (lambda x: x[..., :9], "constant position 9"),
        (lambda x: x[..., 2:9], "constant position 9"),
        (lambda x: x[..., 5], "one frame"),
        (lambda x: x[..., [0, 3]], "list, mask or array"),
        (lambda x: x[..., [2, 0, 1]], "list, mask or array"),
        (lambda x: x.select(2, 0), "one frame"),
        (lambda x: x.flip(2), "at the stream's end"),
        (lambda x: x.flip(-1).cumsum(-1).flip(-1), "at the stream.s end"),
        (lambda x: x.roll(1, 2), "roll"),
        (lambda x: x.softmax(-1), "softmax over L"),
        (lambda x: x * x.softmax(-1) + 1, "softmax over L"),
        (lambda x: F.log_softmax(x, dim=2), "value of the whole stream"),
        (lambda x: x - x.logsumexp((1, 2), keepdim=True), "value of the whole stream"),
        (lambda x: x - x.mean(2, keepdim=True), "value of the whole stream"),
        (lambda x: x / x.amax(-1, keepdim=True), "value of the whole stream"),
        (lambda x: x * F.adaptive_avg_pool1d(x, 1).sigmoid(), "value of the whole stream"),
        (lambda x: x.mean(2, keepdim=True).expand(-1, -1, x.size(2)), "at the stream's end"),
        (lambda x: x.mean(2).unsqueeze(2).repeat(1, 1, x.size(2)), "at the stream's end"),
        (lambda x: x - x.mean(2).unsqueeze(2), "value of the whole stream"),
        (lambda x: x * x.transpose(1, 2).amax(1).unsqueeze(-1), "value of the whole stream"),
        (lambda x: (x - x.mean(2).unsqueeze(-1)).square(), "value of the whole stream"),
        (lambda x: x.sum(), "over the batch"),
        (lambda x: x * x.sum().item(), "over the batch"),
        (lambda x: x.mean(0), "over the batch"),
        (lambda x: x * (x > 0).any(), "any over the batch"),
        (lambda x: x * 2 if (x > 0).all() else x, "all over the batch"),
        (lambda x: (x, (x > 0).any()), "any over the batch"),
        (lambda x: ds.cat([x, x], dim=2), "cat along L"),
        (lambda x: ds.cat([x, x], dim=0), "cat along B"),
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
    line = None if what in ("own end",) else "test_idioms"
    refused(net(lambda self, x: use(x)), X, what, line=line)


def test_constant_output_is_refused():
    with pytest.raises(CaptureError, match="no stream"):
        ds.compile(net(lambda self, x: ds.ones(1, 2, 9)), X.spec)


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

    refused(net(lambda self, x: x if x.sum(1).sum(1) else -x), X, "truth", offline_too=True)
    refused(net(lambda self, x: x if x > 0 else -x), X, "truth", offline_too=True)
    refused(net(lambda self, x: ds.tensor(np.asarray(x) * 2)), X, "NumPy array")
    refused(net(lambda self, x: ds.tensor(x.numpy() * 2)), X, "values")
    refused(net(lambda self, x: x * x.tolist()[0][0][0]), X, ".", line=None)

    model = net(stale)
    online = ds.patch_module(model).online()
    chunk = np.ones((4, 3), np.float32)
    online(ds.stream_tensor([chunk], ids=["a"], sos=True))
    with pytest.raises(StreamMismatchError):
        online(ds.stream_tensor([chunk], ids=["a"]))


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
