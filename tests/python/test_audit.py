"""What an audit says of attention, of latency, and of what would stand in a layer's place."""

import functools
import math

import nets
import numpy as np
import pytest

import dreamstream as ds
from dreamstream import nn
from dreamstream.nn import functional as F


def layer(**options):
    return nn.TransformerEncoderLayer(8, 2, 8, batch_first=True, **options)


class Speech(nn.Module):
    """A strided convolution in front of a chunk mask."""

    def __init__(self):
        super().__init__()
        self.front = nn.Conv1d(8, 8, 3, stride=2, padding=1)
        self.layer = layer(context=ds.Context(4, 8, 2))

    def forward(self, x):
        return self.layer(self.front(x).transpose(1, 2))


def test_context_and_latency():
    audit = ds.audit(Speech().eval(), ("B", 8, "L"), rate=100)
    rows = {r.path: r for r in audit.rows}
    attention = rows["layer.self_attn"]
    assert attention.context == ds.Context(4, 8, 2)
    assert rows["front"].context is None
    assert (rows["front"].ahead, attention.ahead) == (1, 2 * 5)
    assert [r.latency for r in (rows["(input)"], rows["front"], attention)] == [0, 10, 110]
    assert audit.delay == 11 == ds.compile(Speech().eval(), ("B", 8, "L")).delay
    assert audit.latency == 110
    assert attention.substitute == "ds.Context(left=11) looks back alone"
    assert rows["front"].substitute == "padding of (2, 0) looks back alone"
    lines = str(audit).splitlines()
    assert "context" in lines[0] and " ms " in lines[0]
    assert any("4, 8, 2" in line and line.endswith("yes") for line in lines)


def test_without_a_rate_or_attention():
    audit = ds.audit(nn.Conv1d(3, 3, 3, padding=1), ("B", 3, "L"))
    assert audit.latency is None and all(r.latency is None and r.context is None for r in audit.rows)
    assert str(audit).splitlines()[0].split()[:4] == ["path", "layer", "delay", "field"]


def test_a_delay_that_is_allowed():
    """Layers that look ahead are named where the model is later, with what looks back alone; which is so."""
    model = Speech().eval()
    assert "ahead" not in str(ds.audit(model, ("B", 8, "L"), max_delay=11))
    text = str(ds.audit(model, ("B", 8, "L"), max_delay=10))
    assert "yes, 10 ahead; ds.Context(left=11)" in text and text.endswith("11 frames late, of 10 that are allowed")
    model.front = nn.Conv1d(8, 8, 3, stride=2, padding=(2, 0))
    model.layer.self_attn.context = ds.Context(left=11)
    audit = ds.audit(model, ("B", 8, "L"), max_delay=0)
    assert audit.delay == 0 and "ahead" not in str(audit)
    assert not any(r.ahead or r.substitute for r in audit.rows)


@pytest.mark.parametrize(
    ("made", "ahead", "padding"),
    [
        (lambda: nn.Conv1d(4, 4, 5, padding=2, dilation=3), 10, (12, 0)),
        (lambda: nn.Conv1d(4, 4, 5), 4, (4, 0)),
        (lambda: nn.Conv1d(4, 4, 5, padding=(1, 4)), 3, (4, 1)),
        (lambda: nn.Conv1d(4, 4, 5, padding="causal"), 0, None),
        (lambda: nn.MaxPool1d(3, 1, 1), 1, (2, 0)),
        (lambda: nn.AvgPool1d(4, 4), 3, (3, 0)),
        (lambda: nn.LSTM(4, 4), 0, None),
    ],
)
def test_what_looks_back_alone(made, ahead, padding):
    spec = ("L", "B", 4) if isinstance(made(), nn.LSTM) else ("B", 4, "L")
    row = ds.audit(made().eval(), spec).rows[-1]
    assert row.ahead == ahead
    assert row.substitute == ("" if padding is None else f"padding of {padding} looks back alone")


def test_planes_look_along_the_stream_alone():
    for spec, ahead in ((("B", 1, "L", 9), 4), (("B", 1, 9, "L"), 1)):
        row = ds.audit(nn.Conv2d(1, 2, (5, 3), (1, 2), padding=(0, 1)), spec).rows[-1]
        assert row.ahead == ahead and f"padding of ({ahead if ahead == 4 else 2}, 0)" in row.substitute


net = functools.partial(nets.net, nn)


def test_what_can_not_be_followed_is_an_error_with_all_layers():
    """There is no table where a forward can't be captured; each layer has its reason all the same."""
    refused = {"a": nn.GRU(8, 8, bidirectional=True, batch_first=True)}
    refused["b"] = nn.Conv1d(16, 8, 3, padding=1, padding_mode="circular")
    model = net(lambda m, x: m.b(m.a(x.mT)[0].flip(0).mT), **refused)
    with pytest.raises(ds.NotStreamableError) as caught:
        ds.audit(model, ("B", 8, "L"))
    first, _, others = str(caught.value).partition(". Also in the way: ")
    assert "test_audit.py" in first and "flip" in first
    assert "a (GRU): its backward direction begins at the stream's end; use bidirectional=False" in others
    assert "b (Conv1d): circular padding" in others
    with pytest.raises(ds.NotStreamableError) as caught:
        ds.audit(net(lambda m, x: x.flip(0)), ("B", 8, "L"))
    assert "Also in the way" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "reason", "substitute"),
    [
        (
            lambda: net(lambda m, x: m.at(x.mT), at=layer()),
            "every query sees the whole stream",
            "chunked attention",
        ),
        (lambda: net(lambda m, x: F.group_norm(x, 2)), "statistics over the whole stream", "cumulative norm"),
        (lambda: nn.AdaptiveAvgPool1d(3), "depends on the stream's length", "nn.CumulativeMean"),
        (lambda: nn.Conv1d(8, 8, 3, padding=1, padding_mode="circular"), "circular padding", "zeros"),
        (
            lambda: net(lambda m, x: m.rnn(x.mT)[0], rnn=nn.GRU(8, 8, bidirectional=True, batch_first=True)),
            "backward direction",
            "nn.LookAhead",
        ),
    ],
)
def test_what_would_stream(model, reason, substitute):
    audit = ds.audit(model(), ("B", 8, "L"), rate=50)
    (row,) = [r for r in audit.rows if not r.streamable]
    assert row.delay == row.latency == audit.latency == math.inf
    assert reason in row.reason and substitute in row.substitute
    assert row.substitute in str(audit)


def test_a_declared_context():
    model = nn.TransformerEncoder(layer(), 2).eval()
    audit = ds.audit(model, ("B", "L", 8), context={"layers.*": ds.Context(4, 8)})
    assert [r.context for r in audit.rows if r.context] == [ds.Context(4, 8)] * 2
    again = ds.audit(model, ("B", "L", 8))
    assert [r.context for r in again.rows] == [r.context for r in audit.rows]
    with pytest.raises(ValueError, match="no module's path fits"):
        ds.audit(model, ("B", "L", 8), context={"layer.*": ds.Context(4, 8)})


class Placed(nn.Module):
    """Positions of a table behind a strided convolution: from row `first` on, or one for two frames."""

    def __init__(self, rows, of):
        super().__init__()
        self.front, self.of = nn.Conv1d(2, 2, 3, stride=2, padding=1), of
        self.register_buffer("table", ds.rand(rows, 2))

    def forward(self, x):
        y = self.front(x).transpose(1, 2)
        return y + self.of(self.table, y.size(1))


@pytest.mark.parametrize(
    ("of", "last"), [(lambda t, n: t[:n], 29), (lambda t, n: t[3 : n + 3], 26), (lambda t, n: t[: n + 4][4:], 25)]
)
def test_the_last_frame_of_a_table(of, last):
    """Frames up to it come, at the rate of the layer; the call that passes it raises, with the stream's id."""
    model = Placed(30, of).eval()
    audit = ds.audit(model, ("B", 2, "L"))
    assert [r.last for r in audit.rows if r.last is not None] == [last]
    assert "last" in str(audit).splitlines()[0] and "last" not in str(ds.audit(model.front, ("B", 2, "L")))
    engine = ds.compile(model, ("B", 2, "L"), verify=False)
    x = np.zeros((2, 2 * last + 3), np.float32)
    assert engine.step({"a": x[:, :-1]}, sos="a")["a"].shape[0] == last + 1
    with pytest.raises(ds.ShapeError, match="beyond the table's") as caught:
        engine.step({"a": x[:, -1:]}, eos="a")
    assert caught.value.ids == ("a",)
    assert len(engine.step({}, eos="a")["a"]) == 0
