"""The plain NumPy references, against torch in float64 wherever torch has the operator."""

from __future__ import annotations

from operator import attrgetter

import numpy as np
import pytest
from ds_laws import GENERATORS
from ds_laws.operators.attention import _bias as distance_bias
from ds_laws.reference import REFERENCES, Refused, operands
from ds_laws.reference.base import named

from dreamstream import operations

torch = pytest.importorskip("torch")
pooling = pytest.importorskip("torch_references.pooling")
F = torch.nn.functional

#: What torch has no operator for, or what is nothing but NumPy indexing here as there.
WITHOUT = {row.name for row in operations.OPERATORS.values() if row.alone}


def tensors(arrays):
    return [None if a is None else torch.from_numpy(np.array(a, order="C")) for a in arrays]


def rows(x):
    """(frames, channels) as torch's (1, channels, frames)."""
    return x.T.unsqueeze(0)


def parts(z):
    return z.real, z.imag


def by_lane(f):
    """Every lane of frames by itself."""

    def run(a, w, x, *before):
        if x.ndim < 3:
            return f(a, w, x, *before)
        parts = [f(a, w, lane) for lane in x.unbind(1)]
        many = isinstance(parts[0], tuple)
        return tuple(torch.stack(ys, 1) for ys in zip(*parts)) if many else torch.stack(parts, 1)

    return run


def within(kind):
    """Every frame, and every lane of one, is a sequence."""

    def run(a, w, x):
        rows = [recurrence(kind)(a, w, row) for row in x.reshape(-1, *x.shape[-2:])]
        y, *ends = (torch.stack(ys) for ys in zip(*rows))
        return y.reshape(*x.shape[:-2], *y.shape[1:]), *(e.reshape(*x.shape[:-2], *e.shape[2:]) for e in ends)

    return run


def conv1d(a, w, x):
    x = rows(x)
    if a["left"] or a["right"]:
        x = F.pad(x, (a["left"], a["right"]), mode={"zeros": "constant"}.get(a["mode"], a["mode"]))
    return F.conv1d(x, w[0], w[1], a["stride"], 0, a["dilation"], a["groups"])[0].T


def conv_transpose1d(a, w, x):
    return F.conv_transpose1d(
        rows(x), w[0], w[1], a["stride"], a["padding"], a["output_padding"], a["groups"], a["dilation"]
    )[0].T


def recurrence(kind):
    def run(a, w, x, *before):
        cells = a["layers"] * (1 + a["bidirectional"])
        more = {"nonlinearity": a["nonlinearity"]} if kind == "RNN" else {}
        if kind == "LSTM":
            more["proj_size"] = a["projection"]
        rnn = getattr(torch.nn, kind)(
            x.shape[1],
            len(w[0]) // {"LSTM": 4, "GRU": 3, "RNN": 1}[kind],
            a["layers"],
            bias=bool(a["bias"]),
            bidirectional=bool(a["bidirectional"]),
            dtype=torch.float64,
            **more,
        )
        for parameter, value in zip([p for group in rnn.all_weights for p in group], w):
            parameter.data.copy_(value)
        given = [b[0].reshape(cells, -1) for b in before]
        state = tuple(given or w[cells * len(rnn.all_weights[0]) :]) or (None,)
        with torch.no_grad():
            y, ends = rnn(x, (state if state[0] is not None else None) if kind == "LSTM" else state[0])
        return y, *(h[None] for h in (ends if kind == "LSTM" else (ends,)))

    return run


def pads(a, x):
    """The plane (1, C, rows, positions) with its padding."""
    left, right, first, last = a["padding"] or [0] * 4
    names = {"zeros": "constant"}
    x = F.pad(x, (first, last, 0, 0), mode=names.get(a["inner_mode"], a["inner_mode"]))
    return F.pad(x, (0, 0, left, right), mode=names.get(a["mode"], a["mode"]))


def planes(f):
    """A function of attributes, a plane (1, C, rows, positions) and a weight of the same axes."""

    def run(a, w, x):
        weight = w[0].unsqueeze(2) if w[0].ndim == 3 else w[0].transpose(2, 3) if a["axis"] else w[0]
        if x.ndim == 3:
            return f(a, x.permute(2, 0, 1)[None], weight, w[1])[0].permute(1, 2, 0)
        return torch.stack([f(a, i.permute(2, 0, 1)[None], weight, w[1])[0].permute(1, 2, 0) for i in x])

    return run


def recurrent_cell(kind):
    def run(a, w, x, *state):
        hidden = w[1].shape[1]
        made = getattr(torch.nn, kind)(x.shape[-1], hidden, dtype=torch.float64, **a)
        for parameter, value in zip(made.parameters(), w):
            parameter.data.copy_(torch.zeros_like(parameter) if value is None else value)
        rows = [s.reshape(-1, s.shape[-1]) for s in state]
        with torch.no_grad():
            hx = (tuple(rows) if kind == "LSTMCell" else rows[0]) if rows else None
            out = made(x.reshape(-1, x.shape[-1]), hx)
        out = out if kind == "LSTMCell" else (out,)
        return tuple(y.reshape(*x.shape[:-1], hidden) for y in out)

    return run


def conv2d(a, x, weight, bias):
    return F.conv2d(pads(a, x), weight, bias, a["stride"] or 1, 0, a["dilation"] or 1, a["groups"])


def conv_transpose2d(a, x, weight, bias):
    return F.conv_transpose2d(
        x,
        weight,
        bias,
        a["stride"] or 1,
        a["padding"] or 0,
        a["output_padding"] or 0,
        a["groups"],
        a["dilation"] or 1,
    )


def pad_features(a, w, x):
    x = x.movedim(a["axis"] + 1, -1)
    flat = x.reshape(1, -1, x.shape[-1]).double()
    value = a["value"] if a["mode"] == "constant" else None
    y = F.pad(flat, (a["left"], a["right"]), a["mode"], value).to(x.dtype)
    return y.reshape(*x.shape[:-1], -1).movedim(-1, a["axis"] + 1)


def batch_norm(a, w, x):
    flat = x.reshape(-1, x.shape[-1])
    return F.batch_norm(flat, w[0], w[1], w[2], w[3], eps=a["eps"]).reshape(x.shape)


def group_norm(a, w, x):
    if a["over"] == "frame":  # of two rows: torch asks one alone for more than one value
        twice = torch.cat([x, x]).movedim(-1, 1)
        return F.group_norm(twice, a["groups"], w[0], w[1], a["eps"]).movedim(1, -1)[: len(x)]
    try:
        y = F.group_norm(x.movedim(-1, 0)[None], a["groups"], w[0], w[1], a["eps"])
    except ValueError as error:
        raise RuntimeError(error) from None
    return y[0].movedim(0, -1)


def reduce_features(a, w, x):
    over = [i + 1 for i in (sorted(a["axes"]) or range(x.ndim - 1))]
    flat = x.movedim(over, list(range(-len(over), 0))).flatten(-len(over))
    f = {
        "var": lambda t: torch.var(t, -1, correction=a["correction"]),
        "std": lambda t: torch.std(t, -1, correction=a["correction"]),
        "norm": lambda t: torch.linalg.vector_norm(t, a["p"], -1),
        "argmax": lambda t: (t.long() if t.dtype == torch.bool else t).argmax(-1),
        "argmin": lambda t: (t.long() if t.dtype == torch.bool else t).argmin(-1),
    }.get(a["kind"], lambda t: getattr(torch, a["kind"])(t, -1))
    y = f(flat)
    return y.reshape([1 if i in over else n for i, n in enumerate(x.shape)]) if a["keepdim"] else y


def matmul(a, w, x):
    leading = w[0].ndim - 2
    rows = x.flatten(1 + leading, -2) if x.ndim - 2 > leading else x.unsqueeze(-2)
    y = torch.matmul(rows, w[0].transpose(-1, -2))
    return y.reshape(*x.shape[:-1], w[0].shape[-2])


def pad(a, w, x):
    if w:
        return torch.cat([w[0][: a["left"]], x, w[0][a["left"] :]])
    flat = x.reshape(len(x), -1).double()
    y = F.pad(rows(flat), (a["left"], a["right"]), a["mode"], a["value"] if a["mode"] == "constant" else None)
    return y[0].T.reshape(-1, *x.shape[1:]).to(x.dtype)


def prelu(a, w, *xs):
    x, slope = tensors(operands(a, [v.numpy() for v in w], [x.numpy() for x in xs]))
    return F.relu(x) - slope * F.relu(-x)


def resample(a, w, x):
    """As torchaudio does it: a strided convolution gives `new` outputs at a time, all of a kernel's length."""
    orig, new, width = a["orig"], a["new"], a["width"]
    place = torch.arange(2 * width + orig) - width
    near = (place * new - torch.arange(new)[:, None] * orig).abs() <= a["half"]
    channels = F.pad(x.reshape(len(x), -1).T.unsqueeze(1), (width, width + orig))
    y = F.conv1d(channels, w[0] * near[:, None], stride=orig).transpose(1, 2).reshape(len(channels), -1)
    return y[:, : -(-len(x) * new // orig)].T.reshape(-1, *x.shape[1:])


def attention(a, w, q, k, v, *u):
    """By a mask of what is seen, with the terms of distances in it."""
    n, heads, d = q.shape
    at, begin = torch.arange(n), torch.arange(n) // (a["chunk"] or n) * a["chunk"]
    seen = torch.ones(n, n, dtype=torch.bool)
    if a["left"] >= 0:
        seen &= at >= (begin - a["left"])[:, None]
    if a["chunk"] and a["right"] >= 0:
        seen &= at < (begin + a["chunk"] + a["right"])[:, None]
    mask = torch.zeros(heads, n, n, dtype=q.dtype)
    if w and w[0] is not None:
        distance = (at[:, None] - at).flatten().numpy()
        mask = torch.from_numpy(distance_bias(a, w[0].numpy(), distance)).reshape(-1, n, n).expand(heads, n, n)
    scale = a["scale"] or d**-0.5
    if u and "sinusoids" in a:
        f = u[0].shape[2]
        angles = (at[:, None] - at)[..., None] * a["sinusoids"] ** -(2 * torch.arange(f // 2, dtype=q.dtype) / f)
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(2).expand(heads, n, n, f)
        mask = mask + scale * torch.einsum("ihf,hijf->hij", u[0], table)
    elif u:
        row = (a["rows_first"] - at[:, None] + at).clamp(0, w[1].shape[1] - 1)
        table = w[1].repeat_interleave(heads // len(w[1]), 0)[:, row]
        mask = mask + scale * torch.einsum("ihf,hijf->hij", u[0], table)
    k, v = (x.repeat_interleave(heads // k.shape[1], 1) for x in (k, v))
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, mask.masked_fill(~seen, -torch.inf), scale=scale)
    return y.transpose(0, 1)


def cross_attention(a, w, q):
    q, k, v = (x.transpose(0, 1) for x in (q, *w))
    return F.scaled_dot_product_attention(q, k, v, scale=a["scale"] or None, enable_gqa=True).transpose(0, 1)


def elementwise(name):
    f = getattr(torch, {"div": "true_divide"}.get(name, name))
    return lambda a, w, *xs: f(*tensors(operands(a, [v.numpy() for v in w], [x.numpy() for x in xs])))


UNARY = {
    row.name: attrgetter(row.torch or row.name)(torch)
    for row in (*operations.UNARY, *(r for r in operations.OPERATORS.values() if r.torch))
    if not row.alone
}
ELEMENTWISE = ["where", "logical_and", "logical_or", *(row.name for row in operations.BINARY)]


def there(index, n, y):
    """What is at places below n; NaN elsewhere."""
    return torch.where((index >= 0) & (index < n), y, torch.nan)


def topk(a, w, x):
    values, indices = x.sort(dim=-1, descending=not a["smallest"], stable=True)
    assert torch.equal(values[..., : a["k"]], x.topk(a["k"], -1, not a["smallest"])[0])
    return values[..., : a["k"]], indices[..., : a["k"]]


def expert_linear(a, w, x, index):
    weight, bias = w
    inside = index.clamp(0, len(weight) - 1)
    x = x.unflatten(-1, (-1, weight.shape[-1])).expand(*index.shape, -1)
    y = torch.einsum("...d,...nd->...n", x, weight[inside]) + (0 if bias is None else bias[inside])
    dropped = (index == -1).unsqueeze(-1)
    return torch.where(dropped, 0, there(index.unsqueeze(-1), len(weight), y)).flatten(-2)


TORCH = {
    **named(pooling, "Tensor"),
    "topk": topk,
    "gather": lambda a, w, x, i: there(i, x.shape[-1], x.gather(-1, i.clamp(0, x.shape[-1] - 1))),
    "router": lambda a, w, x: F.linear(x, w[0], w[1]),
    "expert_linear": expert_linear,
    "combine": lambda a, w, x, v: torch.einsum("...kn,...k->...n", x.unflatten(-1, (v.shape[-1], -1)), v),
    "embedding": lambda a, w, x: F.embedding(x, w[0]),
    "linear": lambda a, w, x: F.linear(x, w[0], w[1]),
    "conv1d": by_lane(conv1d),
    "conv_transpose1d": by_lane(conv_transpose1d),
    "conv2d": planes(conv2d),
    "conv_transpose2d": planes(conv_transpose2d),
    "pad_features": pad_features,
    "layer_norm": lambda a, w, x: F.layer_norm(x, x.shape[-a["axes"] :], w[0], w[1], a["eps"]),
    **{name: by_lane(recurrence(name.upper())) for name in ("lstm", "gru", "rnn")},
    **{f"{name}_within": within(name.upper()) for name in ("lstm", "gru", "rnn")},
    "lstm_cell": recurrent_cell("LSTMCell"),
    "gru_cell": recurrent_cell("GRUCell"),
    "rnn_cell": recurrent_cell("RNNCell"),
    "rms_norm": lambda a, w, x: F.rms_norm(x, x.shape[-a["axes"] :], w[0], a["eps"]),
    "batch_norm": batch_norm,
    "group_norm": group_norm,
    "reduce_features": reduce_features,
    "matmul": matmul,
    "pad": pad,
    "resample": resample,
    "slice": lambda a, w, x: x[a["start"] : -a["crop"] or None : a["step"]],
    "frame": lambda a, w, x: frame(a, x),
    "reduce_frames": lambda a, w, x: {"max": torch.amax, "min": torch.amin}.get(
        a["kind"], getattr(torch, a["kind"])
    )(x, 0)[None],
    "var_frames": lambda a, w, x: torch.var(x, 0, correction=a["correction"], keepdim=True),
    "softmax_sum": lambda a, w, scores, x: (scores.softmax(0) * x).sum(0, keepdim=True),
    **{name: elementwise(name) for name in ELEMENTWISE},
    **{name: (lambda a, w, x, f=f: f(x, **a)) for name, f in UNARY.items()},
    "attention": attention,
    "cross_attention": cross_attention,
    "elu": lambda a, w, x: a["scale"] * F.relu(x) + F.elu(x.clamp(max=0) * a["input_scale"], a["alpha"]),
    "prelu": prelu,
    "cast": lambda a, w, x: x.to(getattr(torch, a["to"])),
    "softmax": lambda a, w, x: x.softmax(-1),
    "log_softmax": lambda a, w, x: x.log_softmax(-1),
    "glu": lambda a, w, x: F.glu(x, -1),
    "rfft": lambda a, w, x: parts(torch.fft.rfft(x)),
    "irfft": lambda a, w, *xs: torch.fft.irfft(torch.complex(*xs), a["size"]),
    "fft": lambda a, w, *xs: parts(torch.fft.fft(torch.complex(*xs))),
    "ifft": lambda a, w, *xs: parts(torch.fft.ifft(torch.complex(*xs))),
    "cat": lambda a, w, *xs: torch.cat(xs, a["axis"] + 1),
    "permute": lambda a, w, x: x.permute(0, *(d + 1 for d in a["order"])),
    "reshape": lambda a, w, x: x.reshape(len(x), *a["shape"]),
    "narrow": lambda a, w, x: x.narrow(a["axis"] + 1, a["start"], a["length"]).index_select(
        a["axis"] + 1, torch.arange(0, a["length"], a["step"])
    ),
    "pick": lambda a, w, x: x.index_select(a["axis"] + 1, w[0]),
    "expand": lambda a, w, x: x.reshape(len(x), *(1,) * (len(a["shape"]) - x.ndim + 1), *x.shape[1:]).expand(
        len(x), *a["shape"]
    ),
}


def frame(a, x):
    """Windows by unfold, every dilation-th frame of each."""
    span = a["dilation"] * (a["size"] - 1) + 1
    return x.unfold(0, span, a["step"]).movedim(-1, 1)[:, :: a["dilation"]]


def test_every_operator_is_listed():
    assert set(TORCH) | WITHOUT == set(REFERENCES)
    assert not set(TORCH) & WITHOUT


def _double(a):
    return a.astype(np.float64) if a is not None and a.dtype.kind == "f" else a


@pytest.mark.parametrize("name", TORCH)
def test_reference_is_torch(name):
    rng = np.random.default_rng(11)
    compared = 0
    for _ in range(25):
        case = GENERATORS[name](rng, "float64")
        weights = tensors([_double(w) for w in case.weights])
        for n in (None, 0, 1):
            arrays = case.stream(rng) if n is None else case.data(rng, [n] * len(case.inputs))
            try:
                wanted = case.expected(arrays)
            except Refused:
                continue
            inputs = tensors([_double(a) for a in arrays])
            if not all(map(len, arrays)):
                assert all(len(y) == 0 for y in wanted), "something comes out of nothing"
                continue
            try:
                got = TORCH[name](case.attributes, weights, *inputs)
            except RuntimeError:
                assert all(len(y) == 0 for y in wanted), (
                    f"torch has nothing to say of {list(map(len, arrays))} frames: {case}"
                )
                many = tensors([_double(a) for a in case.data(rng, [case.reach + 60] * len(case.inputs))])
                TORCH[name](case.attributes, weights, *many)  # it was the length
                continue
            got = got if isinstance(got, tuple) else (got,)
            assert len(got) == len(wanted)
            for ours, theirs in zip(wanted, got):
                theirs = theirs.detach().numpy()
                assert ours.shape == theirs.shape, f"{case}, {list(map(len, arrays))} frames"
                with np.errstate(all="ignore"):
                    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
            compared += 1
    assert compared >= 10
