"""Reductions and constant matrices over the features of streams, written as for plain tensors: offline, eager and
captured they mean the same.
"""

import numpy as np
import pytest
from random_graphs.idioms import T, X, held, net, refused

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import ShapeError

#: A function of a tensor and the dimensions to reduce; what it gives is compared as real numbers.
REDUCTIONS = {
    "sum": lambda t, d, **k: t.sum(d, **k),
    "sum of flags": lambda t, d, **k: (t > 0).sum(d, **k).to(t.dtype),
    "sum of flags as reals": lambda t, d, **k: (t > 0).sum(d, dtype=t.dtype, **k),
    "sum of integers": lambda t, d, **k: (t * 5).long().sum(d, **k).to(t.dtype),
    "mean": lambda t, d, **k: t.mean(d, **k),
    "prod": lambda t, d, **k: t.prod(d, **k),
    "prod of integers": lambda t, d, **k: (t * 5).long().prod(d, **k).to(t.dtype),
    "var": lambda t, d, **k: t.var(d, **k),
    "var of all": lambda t, d, **k: t.var(d, unbiased=False, **k),
    "std corrected": lambda t, d, **k: t.std(d, correction=0.5, **k),
    "norm": lambda t, d, **k: t.norm(dim=d, **k),
    "norm 1": lambda t, d, **k: t.norm(1, d, **k),
    "norm inf": lambda t, d, **k: t.norm(float("inf"), d, **k),
    "norm 3": lambda t, d, **k: t.norm(3, d, **k),
    "logsumexp": lambda t, d, **k: t.logsumexp(d, **k),
    "amax": lambda t, d, **k: t.amax(d, **k),
    "amin": lambda t, d, **k: t.amin(d, **k),
    "any": lambda t, d, **k: (t > 1).any(d, **k).to(t.dtype),
    "all": lambda t, d, **k: (t > -1).all(d, **k).to(t.dtype),
    "all of reals": lambda t, d, **k: t.round().all(d, **k).to(t.dtype),
}
ONE = {
    "max": lambda t, d, **k: t.max(d, **k).values,
    "where max": lambda t, d, **k: t.max(d, **k)[1].to(t.dtype),
    "min": lambda t, d, **k: t.min(d, **k)[0],
    "where min": lambda t, d, **k: t.min(d, **k).indices.to(t.dtype),
    "argmax": lambda t, d, **k: t.argmax(d, **k).to(t.dtype),
    "argmin": lambda t, d, **k: t.argmin(d, **k).to(t.dtype),
    "argmax of integers": lambda t, d, **k: (t * 2).long().argmax(d, **k).to(t.dtype),
}


@pytest.mark.parametrize("name", [*REDUCTIONS, *ONE])
def test_reductions(name):
    """Over one axis or several, first or last, kept or not, in whichever order dimensions stand."""
    f = REDUCTIONS.get(name) or ONE[name]

    def forward(self, x):
        image = x.unflatten(1, (2, 2))  # (B, 2, 2, L)
        y = f(x, 1), f(x, -2, keepdim=True), f(image, 2), f(image.permute(3, 1, 0, 2), 1, keepdim=True)
        if name in ONE:
            return y
        return (*y, f(image, (1, 2)), f(image.transpose(1, 2), (2, 1), keepdim=True))

    held(net(forward), X, delay=0, n_trials=1)  # they are one operator


def test_reductions_as_plain_tensors_do_them():
    """Types and dimensions are those of the plain tensor; NaN, infinities and ties as well."""
    data = np.array(
        [[1, 1, -1, 1], [np.nan, 2, np.nan, 0], [np.inf, -np.inf, 1, 1], [-np.inf] * 4, [0, 0, 0, 0]], np.float32
    )
    names = ["sum", "mean", "prod", "var", "norm", "logsumexp", "amax", "amin", "any", "all", "argmax", "argmin"]
    online = ds.patch_module(net(lambda self, x: [getattr(x, n)(dim=2) for n in names])).online()
    outputs = online(ds.stream_tensor([data], names=("B", "L", "F"), ids="a", sos=True, eos=True))
    for name, y in zip(names, outputs):
        want = getattr(ds.tensor(data), name)(dim=1)
        assert y.dtype == want.dtype, name
        np.testing.assert_allclose(y["a"].numpy(), want.numpy(), rtol=1e-6, err_msg=name)


def test_sums_are_rounded_once():
    data = (1e6 + np.random.default_rng(0).standard_normal((3, 5000))).astype(np.float32)
    online = ds.patch_module(net(lambda self, x: (x.sum(2), x.mean(2), x.var(2)))).online()
    x = ds.stream_tensor([data], names=("B", "L", "F"), ids="a", sos=True)
    fine = data.astype(np.float64)
    for y, want in zip(online(x), (fine.sum(1), fine.mean(1), fine.var(1, ddof=1))):
        np.testing.assert_allclose(y["a"].numpy(), want, rtol=2e-7)


def test_names_stay_with_their_dimensions():
    x = ds.stream_tensor(np.ones((1, 2, 3, 5), np.float32), names=("B", "C", "H", "L"), ids="a", sos=True)

    def forward(self, x):
        return x.sum("C"), x.mean("H", keepdim=True), x.amax(("C", "H"))

    for outputs in (forward(None, x), ds.patch_module(net(forward)).online()(x)):
        assert [y.names for y in outputs] == [("B", "H", "L"), ("B", "C", "H", "L"), ("B", "L")]


def test_reductions_that_cannot_be():
    refused(net(lambda self, x: x.norm()), X, "norm over the batch")


def test_the_largest_of_several_axes():
    both = net(lambda self, x: x.unflatten(1, (2, 2)).max((1, 2)))
    with pytest.raises(ShapeError, match="one dimension"):
        ds.compile(both, X.spec)


# ---------------------------------------------------------------------- directions and angles
def test_normalised_directions():
    def forward(self, x):
        y = F.normalize(x, dim=1) + F.normalize(x, 1.0, 1) - F.normalize(x, float("inf"), -2)
        cos = F.cosine_similarity(x, y, dim=1) * F.cosine_similarity(x, self.centre, dim=1)
        return y, cos

    held(net(forward, centre=nn.Parameter(ds.randn(4, 1))), X, delay=0)


# ---------------------------------------------------------------------- matrices
def test_matrices_on_the_right():
    def forward(self, x):  # (B, L, 4)
        heads = x.unflatten(2, (2, 2))  # (B, L, 2, 2)
        y = x @ self.square, x.matmul(self.vector), heads @ self.pair, heads @ self.vector[:2]
        return (*y, heads.unsqueeze(3) @ self.heads, (heads.unsqueeze(3) @ self.heads).squeeze(3) @ self.row)

    parts = {"square": (4, 4), "vector": (4,), "pair": (2, 3), "heads": (2, 2, 3), "row": (3, 1)}
    held(net(forward, **{n: nn.Parameter(ds.randn(*s)) for n, s in parts.items()}), T, delay=0)


def test_matrices_on_the_left():
    def forward(self, x):  # (B, 4, L)
        image = x.unflatten(1, (2, 2))  # (B, 2, 2, L)
        y = (self.wide @ x, self.vector @ x, self.pair @ image, self.heads @ image, self.vector[:2] @ image)
        return (*y, self.pair @ image.permute(0, 3, 1, 2), self.heads.unsqueeze(1) @ image.unsqueeze(1))

    parts = {"wide": (7, 4), "vector": (4,), "pair": (3, 2), "heads": (2, 3, 2)}
    held(net(forward, **{n: nn.Parameter(ds.randn(*s)) for n, s in parts.items()}), X, delay=0)


def test_one_feature_meets_many_matrices():
    held(net(lambda self, x: x.unsqueeze(2).unsqueeze(3) @ self.heads, heads=nn.Parameter(ds.randn(3, 4, 2))), T)


def test_bits_are_those_of_linear():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 700, 9)).astype(np.float32)
    w = ds.tensor(rng.standard_normal((131, 700)).astype(np.float32))

    def forward(self, x):
        rows = x.transpose(1, 2)
        many = x.unsqueeze(1).expand(-1, 2, -1, -1)
        return (
            F.linear(rows, w),
            rows @ w.T,
            (w @ x).transpose(1, 2),
            (ds.stack([w, w]) @ many)[:, 1].transpose(1, 2),
        )

    model, spec = net(forward), ("B", 700, "L")
    stream = ds.stream_tensor(x, ids=["a", "b"], sos=True)
    for run in (ds.patch_module(model).online(), ds.compile(model, spec), lambda t: forward(None, t)):
        first, *others = run(stream)
        for y in others:
            np.testing.assert_array_equal(y["b"].numpy(), first["b"].numpy())


def test_bilinear():
    def forward(self, x):
        turned = x.transpose(0, 1)
        return self.pair(x, x.exp()[..., :3]) + self.pair(turned, turned[..., :3]).transpose(0, 1)

    held(net(forward, pair=nn.Bilinear(4, 3, 5)), T, delay=0)


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (lambda x: x @ ds.ones(12, 2), "over L"),
        (lambda x: ds.ones(3, 1) @ x.transpose(1, 2)[..., :1], "over L"),
        (lambda x: x @ x, "of two streams"),
        (lambda x: x.transpose(1, 2).unsqueeze(0 + 2) @ ds.ones(12, 4, 2), "12 matrices along L"),
    ],
)
def test_matrices_that_mix_frames(use, what):
    model = net(lambda self, x: use(x))
    with pytest.raises(ds.NotStreamableError, match=f"matrix product .*{what}.*test_idioms_features"):
        ds.compile(model, X.spec)


@pytest.mark.parametrize("constant", [(3, 5), (5,), (3, 4, 2), (1, 1, 4, 2), ()])
def test_matrices_that_do_not_fit(constant):
    model = net(lambda self, x: x.unflatten(2, (2, 2)).flatten(2) @ self.w, w=nn.Parameter(ds.ones(*constant)))
    with pytest.raises((ShapeError, ds.NotStreamableError), match=r"fit|along B"):
        ds.compile(model, T.spec)


def test_sums_so_far():
    """A running sum, as in an average pooled over the past."""

    def forward(self, x):
        return x.cumsum(2), x.transpose(1, 2).exp().cumsum(dim=1), self.conv(x).cumsum(-1)[..., 2:]

    held(net(forward, conv=nn.Conv1d(4, 3, 5, padding=2)), X, delay=4)
