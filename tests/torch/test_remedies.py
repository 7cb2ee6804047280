"""What refusals tell to do instead leads through: each is met, and what it tells is done."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional as F

import dreamstream as ds


class Model(nn.Module):
    """Has layers for a function of them and a stream (B, L, 4)."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.line, self.conv = nn.GRUCell(4, 4), nn.Linear(4, 4), nn.Conv1d(4, 4, 3, padding=1)
        self.rnn, self.table = nn.GRU(4, 4, batch_first=True), nn.Parameter(torch.randn(99, 4))
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def gathered(frame, first=0, less=0):
    """A loop that gathers what a function of the model, the stream and a frame's number gives."""

    def function(m, x):
        ys = []
        for t in range(first, x.size(1) - less):
            ys.append(frame(m, x, t))
        return torch.stack(ys, 1)

    return function


def listed(change, then, held=False):
    """A loop whose list is changed by a function of it and a frame; another one gives what it is at the end."""

    def function(m, x):
        ys = [x.new_zeros(x.size(0), 4)] if held else []
        for t in range(x.size(1)):
            change(ys, x[:, t])
        return then(ys)

    return function


def by_blocks(m, x):
    h, ys = x.new_zeros(1, x.size(0), 4), []
    for i in range(0, x.size(1), 50):
        y, h = m.rnn(x[:, i : i + 50], h)
        ys.append(y)
    return torch.cat(ys, 1)


def two_names(m, x):
    ys = zs = []
    for t in range(x.size(1)):
        ys.append(x[:, t])
    return torch.stack(zs, 1)


def before(first, ask=False):
    """A loop that writes the frame before its own."""

    def function(m, x):
        y = x.clone()
        for t in range(first, x.size(1)):
            if not ask or t >= 1:
                y[:, t - 1] = x[:, t] * 2
        return y

    return function


def appends_in_an_if(m, x):
    h, ys = x.new_zeros(x.size(0), 4), []
    for t in range(x.size(1)):
        if t % 2 == 0:
            ys.append(h)
        h = h + x[:, t]
    return torch.stack(ys, 1)


def assigns_in_an_if(m, x):
    h, ys = x.new_zeros(x.size(0), 4), []
    for t in range(x.size(1)):
        if t % 2 == 0:
            h = h + x[:, t]
        ys.append(h)
    return torch.stack(ys, 1)


def limited_in_the_loop(m, x):
    ys = []
    for t in range(x.size(1)):
        if t >= 5000:
            raise ValueError("too long")
        ys.append(x[:, t])
    return torch.stack(ys, 1)


def limited_before_the_loop(m, x):
    if x.size(1) > 5000:
        raise ValueError("too long")
    return gathered(lambda m, x, t: x[:, t])(m, x)


def picked(m, x):
    y = x.clone()
    less = y < 0
    y[less] *= 2
    return y


def enumerated(m, x):
    ys = []
    for t, frame in enumerate(x.unbind(1)):
        ys.append(frame * m.table[t])
    return torch.stack(ys, 1)


def turned(x):
    return x.transpose(1, 2)


def padded_in_an_if(m, x):
    return F.pad(x, (0, 0, 0, 3)) if x.size(1) % 4 else x


DOUBLED = gathered(lambda m, x, t: x[:, t] * 2)
STACKED = gathered(lambda m, x, t: x[:, t])
WHOLE = {"unstreamable": "buffer"}

#: What a refusal tells, what it refuses, and what does as it tells, some of it with options of `ds.compile`.
CASES = [
    ("give layers all that blocks would, layer(x, state)", by_blocks,
     lambda m, x: m.rnn(x, x.new_zeros(1, x.size(0), 4))[0]),
    ("for t, frame in enumerate(…)", lambda m, x: torch.stack([f * r for f, r in zip(x.unbind(1), m.table)], 1),
     enumerated),
    ("keep them in several lists",
     listed(lambda ys, y: (ys.append(y), ys.append(-y)), lambda ys: torch.stack(ys, 1)),
     lambda m, x: (STACKED(m, x), DOUBLED(m, x))),
    ("give each its own", two_names, STACKED),
    ("append alone", listed(lambda ys, y: ys.insert(0, y), lambda ys: torch.stack(ys, 1)), STACKED),
    ("use a `for`", lambda m, x: torch.stack([f for t, f in enumerate(x.unbind(1)) if t > 1], 1),
     gathered(lambda m, x, t: x[:, t], 2)),
    ("ask `if t >= 2`", gathered(lambda m, x, t: x[:, t] + x[:, t - 2]),
     gathered(lambda m, x, t: x[:, t] + x[:, t - 2] if t >= 2 else x[:, t])),
    ("let the loop end 1 earlier", gathered(lambda m, x, t: x[:, t] + x[:, t + 1]),
     gathered(lambda m, x, t: x[:, t] + x[:, t + 1], 0, 1)),
    ("ask `if t >= 1`", before(0), before(0, True)),
    ("stack them, and take frames of that", listed(lambda ys, y: ys.append(y), lambda ys: ys[3]),
     lambda m, x: STACKED(m, x)[:, 3:]),
    ("stack it, and do so with the tensor", listed(lambda ys, y: ys.append(y), lambda ys: ys * 2),
     lambda m, x: STACKED(m, x) * 2),
    ("keep a fixed number of frames", listed(lambda ys, y: ys.append(y + sum(ys)), lambda ys: torch.stack(ys, 1)),
     lambda m, x: gathered(lambda m, y, t: y[:, t] + y[:, t + 1], 0, 1)(m, F.pad(x, (0, 0, 1, 0)))),
    ("leave out what it held, ys[1:]", listed(lambda ys, y: ys.append(y), lambda ys: torch.stack(ys, 1), True),
     listed(lambda ys, y: ys.append(y), lambda ys: torch.stack(ys[1:], 1), True)),
    ("assign new values in the if", appends_in_an_if, assigns_in_an_if),
    ("check `x.size(1)` before the loop", limited_in_the_loop, limited_before_the_loop),
    ("convert one of them", lambda m, x: F.linear(x, m.line.weight.double()),
     lambda m, x: F.linear(x, m.line.weight.double().float())),
    ("keep its letter", lambda m, x: torch.einsum("blf->lf", x), lambda m, x: torch.einsum("blf->bl", x)),
    ("or by a number", lambda m, x: F.pad(turned(x), (0, x.size(1)), "replicate"),
     lambda m, x: F.pad(turned(x), (0, 3), "replicate")),
    ("use a slice (x[..., a:]", lambda m, x: m.line(x[:, 0]), lambda m, x: m.line(x[:, 1:])),
    ("stand before frames (cat)", lambda m, x: x[:, 0], lambda m, x: torch.cat([x[:, :1], x], 1)),
    ("cat works along features", lambda m, x: torch.cat([x, x], 0), lambda m, x: torch.cat([x, x], 2)),
    ("leave it, and what brings it back, out", lambda m, x: x.squeeze(0).unsqueeze(0), lambda m, x: x),
    ("written back by the same bools", lambda m, x: x[x > 0].view(-1, 2), picked),
    ("pad L, or axes of features", lambda m, x: F.pad(x, (0, 0, 0, 0, 1, 0)), lambda m, x: F.pad(x, (0, 1, 1, 0))),
    ("pad to a multiple", lambda m, x: F.pad(x, (0, 0, 0, 100 - x.size(1))),
     lambda m, x: F.pad(x, (0, 0, 0, -x.size(1) % 4))),
    ("transform windows", lambda m, x: torch.fft.rfft(x, dim=1).abs(),
     lambda m, x: torch.fft.rfft(x.unfold(1, 8, 4), dim=-1).abs()),
    ("use zeros(n, x.size(B), H)", lambda m, x: m.rnn(x, m.table[None, :7])[0],
     lambda m, x: m.rnn(x, torch.zeros(1, x.size(0), 4))[0]),
    ("make it of float32", lambda m, x: torch.view_as_complex(x.unflatten(2, (2, 2)).double()),
     lambda m, x: torch.view_as_complex(x.unflatten(2, (2, 2)))),
    ("leave the cast out", lambda m, x: x.half() * 2, lambda m, x: x * 2),
    ("do it last, of what is returned", lambda m, x: x.half().relu(), lambda m, x: x.relu().half()),
    ("use % and //", lambda m, x: x[:, : x.size(1) & 5], lambda m, x: x[:, : x.size(1) // 4 * 4]),
    ("math.ceil, math.floor and // make it a length", lambda m, x: x[:, ::2][:, : x.size(1) / 2],
     lambda m, x: x[:, ::2][:, : x.size(1) // 2]),
    ("give it that rate first", lambda m, x: x[:, : x.size(1) // 2], lambda m, x: x[:, ::2][:, : x.size(1) // 2]),
    ("transpose the features to the end", lambda m, x: m.line(turned(x)), lambda m, x: m.line(x)),
    ("B and L must stand in the same places", lambda m, x: x + x.transpose(0, 1),
     lambda m, x: x + x.transpose(0, 1).transpose(1, 0)),
    ('transpose them there, where it takes its statistics over the whole stream', lambda m, x: F.group_norm(x, 2),
     (lambda m, x: F.group_norm(turned(x), 2), WHOLE)),
    ("convert it with .long()", lambda m, x: F.embedding(x[..., 0], m.table),
     lambda m, x: F.embedding(x[..., 0].long().clamp(0, 9), m.table)),
    ("None for zeros", lambda m, x: m.cell(x.flatten(0, 1), torch.zeros(x.size(0), 4)),
     lambda m, x: m.cell(x.flatten(0, 1)).unflatten(0, (x.size(0), x.size(1)))),
    ("keep streams apart", lambda m, x: x.flip(0), lambda m, x: x.flip(2)),
    ("bring them to one rate", lambda m, x: x + x[:, ::2],
     lambda m, x: x[:, ::2].repeat_interleave(2, 1)[:, : x.size(1)] + x),
    ("as the next multiple is, x.size(L) + -x.size(L) % 4", padded_in_an_if,
     lambda m, x: F.pad(x, (0, 0, 0, -x.size(1) % 4))),
]  # fmt: skip


@pytest.mark.parametrize("told, refused, remedied", CASES, ids=[c[0][:40] for c in CASES])
def test_what_is_told_leads_through(told, refused, remedied):
    """Compiling compares random chunks with the whole."""
    with pytest.raises(ds.DreamStreamError) as caught:
        ds.compile(Model(refused).eval(), ("B", "L", 4))
    assert told in str(caught.value)
    function, options = remedied if isinstance(remedied, tuple) else (remedied, {})
    ds.compile(Model(function).eval(), ("B", "L", 4), **options)


SHORT = {
    "a smaller of two": lambda m, x: x * min(x.size(1), 5),
    "half a smaller of two": lambda m, x: x * (min(x.size(1), 5) / 2),
    "so many rounds": lambda m, x: x * sum(i for i in range(min(x.size(1), 5))),
    "so many ones": lambda m, x: x + torch.ones(min(x.size(1), 5)).sum(),
    "every so many": lambda m, x: x[:, :: min(x.size(1), 5)],
    "so many of each": lambda m, x: x.repeat_interleave(min(x.size(1), 5), 1),
    "half a pad before the first frame": lambda m, x: F.pad(x, (0, 0, max(0, 5 - x.size(1)) // 2, 0)),
    "half the zeros before it": lambda m, x: torch.cat([x.new_zeros(1, max(0, 5 - x.size(1)) // 2, 4), x], 1),
    "rows of a table": lambda m, x: x.mean(1) + torch.ones(9, 4)[: min(x.size(1), 5)].sum(0),
}


@pytest.mark.parametrize("kind", SHORT)
@torch.no_grad()
def test_streams_that_are_too_short_go_through_offline(kind):
    model, x = Model(SHORT[kind]).eval(), torch.randn(1, 3, 4)
    engine, whole = ds.compile(model, ("B", "L", 4)), model(x)
    told = "must be at least 5 .* whole, by the model offline"
    ds.patch_module(model).online()
    with pytest.raises(ds.ShapeError, match=told):
        engine.step({"a": x[0].numpy()}, sos="a", eos="a")
    with pytest.raises(ds.ShapeError, match=told):
        model(ds.stream_tensor(x, names=("B", "L", None), ids=["a"], sos=True, eos=True))
    assert torch.equal(model.offline()(x), whole)
