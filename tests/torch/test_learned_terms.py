"""What is added to scores by distance and is learned has offline's gradient, whatever it begins with."""

import numpy as np
import pytest
import torch

import dreamstream as ds
from dreamstream import nn as native

FRAMES, CUTS = 40, (0, 7, 8, 25, 40)


def by_table(self, d):
    return self.t[d.clamp(0, len(self.start) - 1)]


def per_head(self, d):
    return self.t[:, d.clamp(-3, 3) + 3]


def two_tables(self, d):
    one, other = self.t.chunk(2)
    return one[d.clamp(0, 4)] - other[d.clamp(0, 4)]


def logarithm(self, d):
    """Of a number that is not negative, or there is none."""
    return -self.t[0] * (1 + self.t[1] * d.clamp(0, 8)).log()


def slope(self, d):
    return self.t * d


def decay(self, d):
    return (-self.t.exp()[:, None, None] * d).exp().tril()


def normalised(self, d):
    weights = decay(self, d)
    return weights / weights.sum(-1, keepdim=True)


#: What scores are multiplied by instead of their softmax; what that begins with.
PRODUCTS = {
    "decays of two heads": (decay, np.array([-1.0, -3.0])),
    "decays of two heads, normalised": (normalised, np.array([-1.0, -3.0])),
    "no decay": (lambda self, d: (self.t[:, None, None] ** d).tril(), np.ones(2)),
}

#: What is added, of the distances; what it begins with; and which distances are hidden.
CASES = {
    "zeros by distance": (by_table, np.zeros(9), lambda d: d < 0),
    "a straight line by distance": (by_table, np.arange(9) * 0.25, lambda d: d < 0),
    "numbers by distance": (by_table, np.sin(np.arange(9)), lambda d: d < 0),
    "one table less another": (two_tables, np.zeros(10), lambda d: d < 0),
    "a logarithm": (logarithm, np.array([0.0, 1.0]), lambda d: d < 0),
    "zeros for two heads": (per_head, np.zeros((2, 7)), lambda d: (d < -3) | (d > 5)),
    "a slope of zero": (slope, np.zeros(1), lambda d: d < 0),
    "a slope": (slope, np.full(1, -0.3), lambda d: d < 0),
    "exponentials": (lambda self, d: self.t.exp()[d.clamp(0, 8)], np.zeros(9), lambda d: d < 0),
}  # fmt: skip


def model(name, library):
    added, start, hidden = CASES[name] if name in CASES else (*PRODUCTS[name], None)
    of = ds if library is native else torch
    parameter = native.Parameter if library is native else lambda a: torch.nn.Parameter(torch.from_numpy(a))

    class Attention(library.Module):
        def __init__(self):
            super().__init__()
            self.start, self.t = start, parameter(start.copy())

        def forward(self, x):  # (B, L, 4)
            i = of.arange(x.size(1))
            d = i[:, None] - i
            q = x.reshape(x.size(0), x.size(1), 2, 2).transpose(1, 2)
            scores = q @ q.transpose(-2, -1)
            if hidden is None:
                return (scores * added(self, d)) @ q
            return (scores + added(self, d)).masked_fill(hidden(d), -1e30).softmax(-1) @ q

    return Attention()


def gradient(net, chunks, of):
    """The gradient of what is learned, with weights by frame, of a whole file or of a stream."""
    weight, total, at = np.cos(np.arange(FRAMES)), 0, 0
    for y in map(net, chunks):
        y = y.tensor() if hasattr(y, "tensor") else y
        n = y.shape[2]
        total = total + (y * of.tensor(weight[at : at + n], dtype=y.dtype).reshape(n, 1)).sum()
        at += n
    total.backward()
    return None if net.t.grad is None else net.t.grad.numpy().copy()


def streamed(x, library):
    """The chunks of a stream."""
    as_tensor = np.asarray if library is native else torch.from_numpy
    return [
        ds.stream_tensor(
            as_tensor(x[None, a:b]), names=("B", "L", "F"), ids=["a"], sos=[a == 0], eos=[b == FRAMES]
        )
        for a, b in zip(CUTS, CUTS[1:])
    ]


@pytest.mark.parametrize("library", [torch.nn, native], ids=["torch", "native"])
@pytest.mark.parametrize("name", [*CASES, *PRODUCTS])
def test_gradients_are_those_of_offline(name, library):
    x = np.random.default_rng(0).standard_normal((FRAMES, 4))
    wanted = gradient(model(name, torch.nn), [torch.from_numpy(x[None])], torch)
    net = ds.patch_module(model(name, library), train_variant="full-file-aligned").online().train()
    found = gradient(net, streamed(x, library), ds if library is native else torch)
    np.testing.assert_allclose(found, wanted, atol=1e-9)


@pytest.mark.parametrize("library", [torch.nn, native], ids=["torch", "native"])
def test_what_would_have_no_gradient_is_refused(library, monkeypatch):
    monkeypatch.setitem(CASES, "own frames are hidden", (by_table, np.zeros(9), lambda d: (d < -1) | (d == 0)))
    net = (
        ds.patch_module(model("own frames are hidden", library), train_variant="full-file-aligned")
        .online()
        .train()
    )
    x = (ds.tensor if library is native else torch.tensor)(np.ones((1, 5, 4)))
    with pytest.raises(ds.NotStreamableError, match="queries don't see their own frame"):
        net(ds.stream_tensor(x, names=("B", "L", "F"), ids=["a"], sos=True))


@pytest.mark.parametrize("library", [torch.nn, native], ids=["torch", "native"])
def test_what_a_query_sees_is_not_learned(library, monkeypatch):
    def within(self, d):
        return (self.t * d > 4) * -1e9

    monkeypatch.setitem(CASES, "a limit", (within, np.ones(1), lambda d: d < 0))
    net = ds.patch_module(model("a limit", library), train_variant="full-file-aligned").online().train()
    x = (ds.tensor if library is native else torch.tensor)(np.ones((1, 5, 4)))
    with pytest.raises(ds.NotStreamableError, match="depends on what is learned"):
        net(ds.stream_tensor(x, names=("B", "L", "F"), ids=["a"], sos=True))
    assert net.eval()(ds.stream_tensor(x, names=("B", "L", "F"), ids=["a"], sos=True)).ids == ["a"]


#: What is learned meets frames beside positions, lengths and joined frames; and what it begins with: one number,
#: numbers that are all alike, zeros. None of these is a constant.
BESIDE_FRAMES = {
    "a number of ones": (lambda of, t, x: x * (t * of.ones(x.size(1)))[:, None], [0.5]),
    "ones of a number": (lambda of, t, x: x * (of.ones(x.size(1), 1) * t), [0.5]),
    "zeros and a number": (lambda of, t, x: x * (of.zeros(x.size(1), 1) + t), [0.5]),
    "positions": (lambda of, t, x: x + (t * of.arange(x.size(1)))[:, None] * 0.1, [0.0]),
    "a power": (lambda of, t, x: x * (t ** of.arange(x.size(1)))[:, None], [1.0]),
    "a sine": (lambda of, t, x: x * (t * of.arange(x.size(1))).sin()[:, None], [0.9]),
    "a limit": (lambda of, t, x: x * (of.arange(x.size(1)) * t).clamp(max=9)[:, None], [3.5]),
    "rows in turn": (lambda of, t, x: x + t[of.arange(x.size(1)) % 4][:, None], [0.0] * 4),
    "a choice": (lambda of, t, x: x * of.where(of.arange(x.size(1)) < 5, t, of.ones(1))[:, None], [1.0]),
    "of a batch": (lambda of, t, x: x * (of.ones(x.size(0), 1, 4) * t), [1.0] * 4),
    "a frame before": (lambda of, t, x: of.cat([t.expand(x.size(0), 1, 4), x], 1)[:, :-1] * x, [1.0] * 4),
    "a frame behind": (lambda of, t, x: of.cat([x, t.expand(x.size(0), 1, 4)], 1)[:, 1:] * x, [0.0] * 4),
    "a number where a mask holds": (lambda of, t, x: (x * t).masked_fill(x > 0, t[0]), [0.5]),
    "a number at late positions": (
        lambda of, t, x: x.masked_fill((of.arange(x.size(1)) > 9)[:, None], t[0]), [0.5]
    ),
    "a number in a feature": (lambda of, t, x: x.index_fill(2, of.tensor([1]), t[0]) * x, [0.5]),
    "a number all over": (lambda of, t, x: of.zeros_like(x).fill_(t[0]) * x, [0.5]),
    "a temperature": (
        lambda of, t, x: (x @ x.mT * t + of.ones(x.size(1), x.size(1)).tril().log()).softmax(-1) @ x, [1.0]
    ),
}  # fmt: skip


def beside(name, library):
    function, start = BESIDE_FRAMES[name]
    of, start = ds if library is native else torch, np.array(start, np.float32)

    class Beside(library.Module):
        def __init__(self):
            super().__init__()
            self.t = native.Parameter(start) if library is native else torch.nn.Parameter(torch.from_numpy(start))

        def forward(self, x):  # (B, L, 4)
            return function(of, self.t, x)[:, None]

    return Beside()


@pytest.mark.parametrize("library", [torch.nn, native], ids=["torch", "native"])
@pytest.mark.parametrize("name", BESIDE_FRAMES)
def test_what_is_learned_is_no_constant(name, library):
    x = np.random.default_rng(0).standard_normal((FRAMES, 4)).astype(np.float32)
    wanted = gradient(beside(name, torch.nn), [torch.from_numpy(x[None])], torch)
    net = ds.patch_module(beside(name, library), train_variant="full-file-aligned").online().train()
    found = gradient(net, streamed(x, library), ds if library is native else torch)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * max(1, np.abs(wanted).max()))


#: What a table says is seen, or adds, of 1,500 frames: the same near the start, something else far behind.
POSITIONS = torch.arange(1500)
D = POSITIONS[:, None] - POSITIONS
TABLES = {
    "a band": ((D >= 0) & (D <= 1200), lambda t, n: t[:n, :n]),
    "a band, of heads": (((D >= 0) & (D <= 1200))[None, None], lambda t, n: t[:, :, :n, :n][0]),
    "a band, by indices": ((D >= 0) & (D <= 1200), lambda t, n: t[torch.arange(n)[:, None], torch.arange(n)]),
    "a band, picked": (
        (D >= 0) & (D <= 1200),
        lambda t, n: t.index_select(0, torch.arange(n)).index_select(1, torch.arange(n)),
    ),
    "a term": (torch.where(D < 1200, 0.0, -3.0).masked_fill(D < 0, -torch.inf), lambda t, n: t[:n, :n]),
    "segments": (POSITIONS >= 1200, lambda t, n: (t[:n, None] == t[None, :n]) & torch.ones(n, n).tril().bool()),
}


class Masked(torch.nn.Module):
    def __init__(self, table, cut):
        super().__init__()
        self.register_buffer("table", table)
        self.cut = cut

    def forward(self, x):  # (B, L, 4)
        scores, said = x @ x.transpose(1, 2), self.cut(self.table, x.size(1))
        scores = scores + said if said.is_floating_point() else scores.masked_fill(~said, -torch.inf)
        return scores.softmax(-1) @ x


@pytest.mark.parametrize("weighs", [False, True], ids=["a term", "weights"])
def test_answers_are_those_of_the_default_type(weighs):
    """What is found of a term in float32 is no answer in float64."""

    class Decaying(torch.nn.Module):
        def forward(self, x):  # (B, L, 4)
            d = torch.arange(x.size(1))[:, None] - torch.arange(x.size(1))
            if weighs:
                return ((x @ x.mT) * (-0.37 * d).exp().tril()) @ x
            return (x @ x.mT - 0.37 * d.sqrt()).masked_fill((d < 0) | (d > 5), -torch.inf).softmax(-1) @ x

    x = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 12, 4)))
    try:
        for dtype, near in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
            torch.set_default_dtype(dtype)
            model = ds.patch_module(Decaying().eval()).online()
            with torch.no_grad():
                y = model(ds.stream_tensor(x.to(dtype), names=("B", "L", "F"), ids=["a"], sos=True, eos=True))
                torch.testing.assert_close(y.tensor(), Decaying()(x.to(dtype)), rtol=near, atol=near)
    finally:
        torch.set_default_dtype(torch.float32)


class Weighed(Masked):
    def forward(self, x):
        return ((x @ x.transpose(1, 2)) * self.cut(self.table, x.size(1))) @ x


def test_tables_of_weights_are_looked_at_to_their_ends():
    band = ((D >= 0) & (D <= 1200)).float()
    with pytest.raises(ds.NotStreamableError, match="no powers of one number"):
        ds.compile(Weighed(band, lambda t, n: t[:n, :n]).eval(), ("B", "L", 4))
    near = Weighed(band[:1100, :1100], lambda t, n: t[:n, :n]).eval()
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 30, 4)).astype(np.float32))
    y = ds.compile(near, ("B", "L", 4), verify=False).step({"a": x[0].numpy()}, sos="a", eos="a")["a"]
    np.testing.assert_allclose(y, near(x)[0].numpy(), atol=1e-4)


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_looked_at_to_their_ends(name):
    table, cut = TABLES[name]
    with pytest.raises(ds.NotStreamableError, match="at 1500 frames it says something else"):
        ds.compile(Masked(table, cut).eval(), ("B", "L", 4))
    near = table[..., :1100, :1100] if table.dim() > 1 else table[:1100]
    ds.compile(Masked(near, cut).eval(), ("B", "L", 4), verify=False)


class Sloped(torch.nn.Module):
    """Attention with a term by distance: numbers of a table, or products of queries with them."""

    def __init__(self, is_product):
        super().__init__()
        self.is_product = is_product
        self.table = torch.nn.Parameter(torch.linspace(0, 9, 10)[:, None].repeat(1, 2 if is_product else 4))

    def forward(self, x):
        q, at = x.unflatten(2, (4, 2)).transpose(1, 2), torch.arange(x.size(1))
        distance = at[:, None] - at
        rows = self.table[distance.clamp(0, 9)]
        term = torch.einsum("bhid,ijd->bhij", q, rows) if self.is_product else rows.permute(2, 0, 1)
        scores = (q @ q.mT + term).masked_fill((distance < 0) | (distance > 9), float("-inf"))
        return (scores.softmax(-1) @ q).transpose(1, 2).flatten(2)


EDITS = {
    "data": lambda p, new: p.data.copy_(new),
    "another tensor": lambda p, new: setattr(p, "data", new.clone()),
    "numpy": lambda p, new: np.copyto(p.detach().numpy(), new.numpy()),
    "in place": lambda p, new: p.copy_(new),
}


@pytest.mark.parametrize("is_product", [False, True], ids=["numbers", "products"])
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_edits_of_large_tables_are_seen(edit, is_product, monkeypatch):
    from dreamstream.torch.forward import library

    monkeypatch.setattr(library, "FEW_BYTES", 64)  # large ones have thousands of numbers
    net, x = Sloped(is_product), torch.randn(1, 20, 8)
    new = torch.randn_like(net.table)
    with torch.no_grad():
        net = ds.patch_module(net).online()
        for i in range(4):
            if i == 3:
                edit(net.table, new)
            y = net(ds.stream_tensor(x, ids=[str(i)], sos=True, eos=True, names=("B", "L", None)))
        net.offline()
        torch.testing.assert_close(y[0], net(x)[0])


@pytest.mark.parametrize("window", [FRAMES, 3])
def test_queries_that_do_not_see_their_own_frame_have_numbers_in_training(window):
    """The first one sees none, and gets zeros."""

    class Earlier(torch.nn.Module):
        def forward(self, x):
            d = torch.arange(x.size(1))[:, None] - torch.arange(x.size(1))
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=(d > 0) & (d <= window))

    torch.manual_seed(0)
    x, weights = torch.randn(1, FRAMES, 4, dtype=torch.float64), torch.randn(FRAMES, 4, dtype=torch.float64)
    whole, parts = (x.clone().requires_grad_() for _ in range(2))
    wanted = Earlier()(whole)[0]
    (wanted * weights).sum().backward()
    model = ds.patch_module(Earlier(), "full-file-aligned").train().online()
    ys = []
    for a, b in zip(CUTS, CUTS[1:]):
        options = {"names": ("B", "L", None), "sos": a == 0, "eos": b == FRAMES}
        ys.append(model(ds.stream_tensor(parts[:, a:b], ids=["a"], **options))["a"])
    (torch.cat(ys) * weights).sum().backward()
    torch.testing.assert_close(torch.cat(ys), wanted, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(parts.grad, whole.grad, rtol=1e-10, atol=1e-10)
