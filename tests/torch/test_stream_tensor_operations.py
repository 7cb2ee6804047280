"""Operations on torch stream tensors outside a forward: row by row what torch gives, padding never seen.

A case is one function of the padded batch and of each row alone, whose dimensions are those of the batch with one
row. Behind the rows' frames stands NaN, in all of them.
"""

import copy
import math
import pickle
import warnings

import numpy as np
import pytest
import stream_methods
import torch
from torch_batches import IDS, LENGTHS, close, make, rows, silent
from turns import in_blocks

import dreamstream as ds
from dreamstream.errors import ModeError, StreamFallbackWarning, StreamIdError, StreamMismatchError, StreamWarning
from dreamstream.stream.tree import leaves

F = torch.nn.functional

WEIGHT = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
WHERE = torch.tensor([2, 0, 3])

#: functions of a batch (B, F, L) that keep its streams
KEEP = {
    **{name: (lambda t, fn=fn: fn(torch, t)) for name, fn in stream_methods.KEEP.items()},
    **{name: (lambda t, name=name: getattr(torch, name)(t)) for name in ("absolute", "negative", "arctan")},
    "rdiv": lambda t: 2 / t,
    "rpow": lambda t: 2**t,
    "alpha": lambda t: t.add(t, alpha=2),
    "kwargs": lambda t: torch.clamp(input=t, min=-1, max=1),
    "torch maximum": lambda t: torch.maximum(t, -t),
    "max of two": lambda t: torch.max(t, -t),
    "zeros_like": lambda t: torch.zeros_like(t),
    "in place": lambda t: t.clone().add_(1, alpha=2).clamp_(min=0).mul_(2),
    "operators in place": lambda t: t.clone().__iadd__(2).__imul__(3),
    "in place with another": lambda t: t.clone().copy_(t.sin()),
    "fill": lambda t: t.clone().fill_(2.0),
    "frexp": lambda t: torch.frexp(t),
    "polar": lambda t: torch.polar(t.abs(), t).imag,
    "complex": lambda t: torch.view_as_real(torch.complex(t, -t)),
    "as complex": lambda t: torch.view_as_complex(torch.stack([t, t], -1)).abs(),
    "float": lambda t: t.to(torch.float32).to(torch.float64),
    "permute tuple": lambda t: t.permute((2, 0, 1)),
    "torch transpose": lambda t: torch.transpose(t, -1, 0),
    "movedim of two": lambda t: t.movedim((0, 1), (2, 0)),
    "reshape of the middle": lambda t: t.transpose(1, 2).reshape(t.size(0), t.size(2), 2, 2),
    "repeat in front": lambda t: t.repeat(2, 1, 1, 1),
    "unfold": lambda t: t.unfold(1, 2, 1),
    "pad": lambda t: F.pad(t, (0, 0, 1, 2)),
    "index tensor": lambda t: t[:, WHERE],
    "index mask tensor": lambda t: t[:, torch.tensor([True, False, True, False])],
    "index matrix": lambda t: t[:, torch.tensor([[0, 1], [2, 3]])],
    "index_select": lambda t: t.index_select(1, WHERE),
    "gather": lambda t: t.gather(1, (t.detach().abs() > 1).long()),
    "take_along_dim": lambda t: torch.take_along_dim(t, (t > 0).long(), 1),
    "concat method": lambda t: torch.concat((t, t), dim=-2),
    "hstack": lambda t: torch.hstack([t, t]),
    "stack within": lambda t: torch.stack([t, t.cos()], 2),
    "sort": lambda t: t.sort(1, descending=True),
    "rfft": lambda t: torch.fft.rfft(t, dim=1).abs(),
    "index_add": lambda t: t.index_add(1, torch.tensor([0]), t[:, :1]),
    "scatter": lambda t: t.scatter(1, (t > 0).long(), t),
    "scatter_add": lambda t: t.scatter_add(1, (t > 0).long(), t),
    "linear of weights": lambda t: F.linear(t.transpose(1, 2), WEIGHT),
    "matmul vector": lambda t: t.transpose(1, 2) @ WEIGHT[0],
    "einsum": lambda t: torch.einsum("bfl,gf->blg", t, WEIGHT),
    "einsum of two": lambda t: torch.einsum("bfl,bgl->blfg", t, t.sin()),
    "per frame products": lambda t: t.permute(0, 2, 1)[..., None] @ t.permute(0, 2, 1)[..., None, :],
    "vector_norm": lambda t: torch.linalg.vector_norm(t, dim=1),
    "quantile": lambda t: t.quantile(torch.tensor([0.2, 0.7], dtype=t.dtype), 1),
    "special.softmax": lambda t: torch.special.softmax(t, 1),
    "special.erfcx": torch.special.erfcx,
    "special.ndtr": torch.special.ndtr,
    "mse none": lambda t: F.mse_loss(t, t.sin(), reduction="none"),
    "cross_entropy none": lambda t: F.cross_entropy(t, t.argmax(1), reduction="none"),
}


@in_blocks("name", KEEP, 26)
def test_streams_are_kept(name):
    x, fn = make(), KEEP[name]
    got = leaves(silent(fn, x))
    want = [leaves(fn(r)) for r in rows(x)]
    assert len(got) == len(want[0])
    for k, y in enumerate(got):
        assert isinstance(y, ds.torch.StreamTensor) and y.meta == x.meta
        for own, wanted in zip(rows(y), want):
            assert close(own, wanted[k]), name


@in_blocks("name", KEEP, 26)
def test_gradients_see_no_padding(name):
    """NaN behind the frames reaches neither the weights nor the frames."""
    fn, x = KEEP[name], make(1)
    gain = torch.full((4, 1), 1.5, dtype=torch.float64)

    def gradients(batches):
        scale = gain.clone().requires_grad_()
        inputs = [b.detach().clone().requires_grad_() for b in batches]
        total = 0
        for leaf in inputs:
            for y in leaves(fn(leaf * scale)):
                if y.is_floating_point() and y.requires_grad:
                    total = total + y.square().sum()
        if not isinstance(total, torch.Tensor) or not total.requires_grad:
            return None
        total.backward()
        return scale.grad, [torch.zeros_like(t) if t.grad is None else t.grad for t in inputs]

    got, want = silent(gradients, [x]), gradients(rows(x))
    if want is None:
        assert got is None
        return
    assert torch.allclose(got[0], want[0], rtol=1e-10, atol=1e-10)
    gradient = torch.as_tensor(got[1][0])
    for row, n, wanted in zip(gradient, LENGTHS, want[1]):
        assert torch.allclose(row[:, :n], wanted[0], rtol=1e-10, atol=1e-10)
        assert not row[:, n:].count_nonzero()


#: reductions over L: (B, ...) plain; the same function of one row
OVER_L = {
    **{name: (lambda t, fn=fn: fn(t, -1)) for name, fn in stream_methods.OVER_L.items()},
    **{name: (lambda t, name=name: getattr(t, name)(-1)) for name in ("median", "nansum", "nanmean", "mode")},
    "count_nonzero": lambda t: t.count_nonzero(-1),
    "norm 1": lambda t: t.norm(1, 2),
    "norm -1": lambda t: torch.linalg.vector_norm(t, -1, dim=2),
    "keepdim": lambda t: t.mean(-1, keepdim=True),
    "both": lambda t: t.sum((1, 2)),
    "mean of both": lambda t: t.mean((1, 2)),
    "std of both": lambda t: t.std((1, 2), correction=0),
    "var_mean": lambda t: torch.var_mean(t, -1),
    "aminmax": lambda t: torch.aminmax(t, dim=-1),
    "quantile": lambda t: t.quantile(0.3, -1),
    "sum of integers": lambda t: (t * 9).long().sum(-1),
    "max of integers": lambda t: (t * 9).long().amax(-1),
}


@in_blocks("name", OVER_L, 31)
@pytest.mark.parametrize("values", ["random", "equal", "infinite"])
def test_reductions_over_frames(name, values):
    """Values, and gradients, which equals share; what stands behind the frames is none of them."""
    x, fn = make(2), OVER_L[name]
    if values != "random":
        x = x.clone().fill_(1.0 if values == "equal" else -torch.inf if "max" in name else torch.inf)
    parts = [r.detach().clone().requires_grad_() for r in rows(x)]
    leaf = x.detach().requires_grad_()
    got = leaves(silent(fn, leaf))
    want = [leaves(fn(r)) for r in parts]
    for k, y in enumerate(got):
        assert type(y) is torch.Tensor
        assert close(y, torch.cat([w[k] for w in want]))
    if got[0].requires_grad and values != "infinite":
        got[0].square().sum().backward()
        sum(w[0].square().sum() for w in want).backward()
        for row, part in zip(torch.as_tensor(leaf.grad), parts):
            n = part.shape[2]
            assert close(row[:, :n], part.grad[0]) and not row[:, n:].count_nonzero()


class Counted(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts what torch is called for."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", [*stream_methods.OVER_L, "nansum", "nanmean", "both", "max of integers"])
def test_rows_of_unlike_lengths_are_reduced_in_one_call(name):
    """Of deviations, by hand, there is nothing that can stand behind the frames."""
    calls = []
    for lengths in ((3, 5), (5, 2, 4, 3)):
        x = make(2, lengths=lengths)
        with Counted() as counted:
            silent(OVER_L[name], x)
        calls.append(counted.calls)
    assert calls[0] == calls[1] or (name in ("var", "std") and calls[0] < calls[1])


@pytest.mark.parametrize("name", ["sum", "mean", "std", "max", "norm", "median", "argmax", "logsumexp", "prod"])
def test_reductions_over_streams_and_frames(name):
    x = make(3)
    frames = torch.cat([r[0] for r in rows(x)], 1)
    if name not in ("argmax", "logsumexp"):
        assert close(silent(getattr(x, name)), getattr(frames, name)())
    if name not in ("prod", "max", "median", "argmax"):
        kw = {"dim": ("B", "L")}
        assert close(silent(lambda: getattr(x, name)(**kw)), getattr(frames, name)(dim=1))
    with pytest.warns(StreamFallbackWarning):
        over = getattr(x, name)(dim=0)
    for at in range(7):
        column = torch.stack([r[0, :, at] for r in rows(x) if r.shape[2] > at])
        want = getattr(column, name)(dim=0)
        own, want = leaves(over)[0], leaves(want)[0]
        if name in ("argmax", "max", "median"):  # places are among all rows
            places = leaves(over)[-1]
            chosen = torch.stack([x.tensor()[places[f, at], f, at] for f in range(4)])
            assert close(chosen, column.amax(0) if name == "argmax" else want)
        if name != "argmax":
            assert close(own[:, at], want)


MEANS_BY_HAND = {
    "numel": lambda t: t.square().sum() / t.numel(),
    "nelement": lambda t: t.square().sum() / t.nelement(),
    "torch.numel": lambda t: torch.sum(t**2) / torch.numel(t),
    "transposed": lambda t: t.transpose(1, 2).square().sum() / t.transpose(0, 2).numel(),
    "of a loss": lambda t: F.mse_loss(t, torch.zeros_like(t), reduction="sum") / t.numel(),
    "of a loss by element": lambda t: F.mse_loss(t, torch.zeros_like(t), reduction="none").sum() / t.numel(),
}


@pytest.mark.parametrize("name", MEANS_BY_HAND)
@pytest.mark.parametrize("lengths", [(7, 3, 5, 1), (7,), (4, 0)])
def test_means_by_hand_leave_padding_out(name, lengths):
    x = make(3, lengths=lengths)
    assert close(silent(MEANS_BY_HAND[name], x), x.frames().square().mean())
    assert x.numel() == x.frames().numel() == 4 * sum(lengths)


def test_shares_by_hand_leave_padding_out():
    x = make(3)
    frames = x.frames()
    assert silent(lambda: (x <= 0).sum() / x.numel()) == (frames <= 0).double().mean()
    assert x.mean(-1).numel() == 16  # which is no stream any more
    assert x.mean("F").numel() == sum(x.lengths)
    assert make(3, lengths=(0, 0), extra=0).numel() == 0


DIVIDED = {
    "a sum over L": lambda t: t.sum("L") / t.size("L"),
    "a sum": lambda t: t.sum() / (t.size(0) * t.size(1) * t.size(2)),
    "by a product": lambda t: t.sum().div(math.prod(t.shape)),
    "by NumPy's product": lambda t: t.sum() / np.prod(t.shape),
    "by a shape's number": lambda t: t.square().sum() / t.shape.numel(),
    "by torch": lambda t: torch.div(t.sum(), t.size().numel()),
    "by half a shape's number": lambda t: t.sum() / (t.shape.numel() * 2),
    "in place": lambda t: t.sum().div_(t.shape[-1]),
    "streams": lambda t: (t / t.size(2)).sum(2),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_dividing_by_padding_is_warned_of(name):
    with pytest.warns(StreamWarning, match=r"test_stream_tensor_operations\.py:\d+ .* padding"):
        DIVIDED[name](make(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = DIVIDED[name](make(3, lengths=(7, 7), extra=0))
    assert torch.isfinite(whole).all()


def test_padded_sizes_are_numbers():
    x = make(3)
    assert x.shape == x.size() == x.tensor().shape == (4, 4, 9) and x.size("L") == x.size(-1) == 9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.zeros(x.shape).shape == torch.zeros(*x.shape).shape == x.tensor().reshape(x.shape).shape
        assert torch.equal(torch.arange(x.size(2)), torch.arange(9)) and len(torch.zeros(20)[: x.size(2)]) == 9
        assert torch.equal(torch.ones(3) * x.size(2), 9 * torch.ones(3)) and type(x.size(2) // 2) is int
        shape, size = x.shape, x.tensor().shape
        assert isinstance(shape, torch.Size) and repr(shape) == repr(size) and hash(shape) == hash(size)
        assert type(shape[1:]) is type(shape + size) is type(copy.deepcopy(shape)) is torch.Size
        assert pickle.loads(pickle.dumps(shape)) == size == torch.Size(shape) and [*reversed(shape)] == [9, 4, 4]
        assert torch.broadcast_shapes(shape, (1,)) == size and np.zeros(shape).shape == np.ones(size).shape
        layer = torch.nn.LayerNorm(shape[1:]).double()
        assert torch.zeros(4, 1, 9).expand(shape).shape == layer(x.tensor()).shape == size
        assert shape.numel() == math.prod(shape) == np.prod(shape) == size.numel() == 144


def test_nothing_to_reduce():
    x = make(4, lengths=(3, 0))
    assert silent(x.sum, -1)[1].tolist() == [0] * 4
    assert silent(x.mean, -1)[1].isnan().all() and silent(x.amax, -1)[1].isnan().all()
    values, places = silent(x.max, -1)
    assert values[1].isnan().all() and places[1].tolist() == [-1] * 4
    assert silent(x.median, -1).values[1].isnan().all()
    empty = make(4, lengths=(0, 0), extra=0)
    assert silent(empty.amax, -1).isnan().all() and silent(empty.sum).item() == 0


FALLS_BACK = {
    "sort along L": lambda t: t.sort(-1),
    "flip of rows": lambda t: t.flip(0),
    "softmax along L": lambda t: t.softmax(-1),
    "cumsum in place along L": lambda t: t.clone().cumsum_(-1),
    "reshape to one": lambda t: t.reshape(-1),
    "flatten": lambda t: t.flatten(0, 1),
    "mask": lambda t: t[t > 0],
    "masked_select": lambda t: t.masked_select(t > 0),
    "take": lambda t: t.take(torch.tensor([0, 1])),
    "pad along L": lambda t: F.pad(t, (1, 0)),
    "repeat of rows": lambda t: t.repeat(2, 1, 1),
    "matmul over L": lambda t: t @ t.transpose(1, 2),
    "two Ls": lambda t: t.transpose(1, 2) @ t,
    "linear over L": lambda t: F.linear(t, torch.ones(3, 9, dtype=t.dtype)),
    "einsum over L": lambda t: torch.einsum("bfl->bf", t),
    "einsum over another's L": lambda t: torch.einsum(
        "blk,bkf->blf", F.linear(t.mT, torch.ones(9, 4, dtype=t.dtype)), t.mT
    ),
    "cat with plain along L": lambda t: torch.cat([t, torch.zeros(4, 4, 1, dtype=t.dtype)], 2),
    "argmax of all": lambda t: t.argmax(),
    "unknown": lambda t: torch.tril(t),
    "scatter along L": lambda t: t.scatter(2, torch.zeros(4, 4, 1, dtype=torch.long), 1.0),
    "equal with plain": lambda t: torch.equal(t, torch.zeros(2)),
}


@pytest.mark.parametrize("name", FALLS_BACK)
def test_fallbacks_are_plain_and_said(name):
    x, fn = make(8), FALLS_BACK[name]
    zeros = x.tensor().nan_to_num(0.0)
    with pytest.warns(StreamFallbackWarning, match="test_stream_tensor_operations"):
        got = fn(x)
    for a, b in zip(leaves(got), leaves(fn(zeros))):
        assert not isinstance(a, ds.torch.StreamTensor)
        assert a == b if isinstance(a, bool) else name.endswith("in place along L") or close(a, b)
    with ds.torch.on_fallback("raise"), pytest.raises(StreamMismatchError, match="can't keep"):
        fn(x)
    with warnings.catch_warnings(), ds.torch.on_fallback("ignore"):
        warnings.simplefilter("error")
        fn(x)


def test_operands_must_be_of_the_same_streams():
    x = make()
    with pytest.raises(StreamIdError, match="'d', 'e'"):
        x + ds.as_stream_tensor(x.tensor(), ids=["a", "b", "c", "e"], sos=True, lengths=LENGTHS)
    for field, other in (("lengths", make(lengths=(7, 3, 5, 2))), ("rate", make(rate=2))):
        with pytest.raises(StreamMismatchError, match=field):
            torch.where(x > 0, x, other)
        with pytest.raises(StreamMismatchError, match=field):
            x.clone().add_(other)
    with pytest.raises(StreamMismatchError, match="starts"):
        ds.torch.StreamTensor.outside(x.tensor(), x.names, x.meta, (0,) * 4) + ds.torch.StreamTensor.outside(
            x.tensor(), x.names, x.meta, (1,) * 4
        )
    with pytest.raises(ds.ShapeError, match="line up"):
        x + x.permute(0, 2, 1)
    for fn in (
        lambda: F.conv1d(x, torch.ones(1, 4, 1)),
        lambda: torch.nn.LSTM(9, 2).double()(x),
        lambda: F.max_pool1d(x, 2),
        lambda: torch.stft(x[:, 0], 4, return_complex=True),
    ):
        with pytest.raises(ModeError, match="online"):
            fn()


def test_out():
    x = make()
    plain, stream = torch.empty(0, dtype=x.dtype), torch.empty_like(x)
    assert torch.add(x, 1, out=plain) is plain and type(plain) is torch.Tensor and plain.shape == x.shape
    other = ds.as_stream_tensor(torch.empty_like(x.tensor()), ids=list("wxyz"))
    assert torch.mul(x, 2, out=other) is other and other.meta == x.meta
    assert torch.equal(torch.add(x, x, out=stream), x * 2)
    with pytest.raises(StreamMismatchError, match="out="), ds.torch.on_fallback("ignore"):
        torch.cumsum(x, 2, out=stream)


def test_shapes_in_place():
    x = make()
    y = x.clone()
    assert y.transpose_(1, 2) is y and y.names == ("B", "L", "F") and torch.equal(y, x.transpose(1, 2))
    assert y.unsqueeze_(0) is y and y.names == (None, "B", "L", "F") and y.squeeze_(0).names == ("B", "L", "F")
    assert (
        x.sum(axis=1, keepdims=True).names == ("B", None, "L") and torch.cat(tensors=[x, x], axis=1).shape[1] == 8
    )


def test_modules_that_need_no_frames_but_one():
    x = make(dtype=torch.float32).transpose(1, 2)
    head = torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.GELU(), torch.nn.LayerNorm(6), torch.nn.Dropout(0.5)
    )
    assert silent(head, x).meta == x.meta
    norm = torch.nn.BatchNorm1d(4)
    with pytest.raises(ModeError):
        norm(x.transpose(1, 2))
    assert silent(norm.eval(), x.transpose(1, 2)).meta == x.meta
    tokens = make(dtype=torch.int64)[:, 0]  # 77 in padding, which is no token
    assert silent(torch.nn.Embedding(50, 3), tokens.abs()).names == ("B", "L", None)


def test_rows_that_have_not_ended_stay_nan():
    meta = ds.StreamMetadata(IDS, True, [True, False, True, False], [1, 0, 1, 0])
    value = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    y = ds.torch.StreamTensor.from_frames(value, ("B", 0), meta, (0,) * 4)
    gain = torch.ones(3, dtype=torch.float64, requires_grad=True)
    for z in (y, y * gain, y @ torch.eye(3, dtype=y.dtype), y.exp(), y.sum(-1, keepdim=True), y.detach() * 2):
        assert z.tensor()[[1, 3]].isnan().all() and not z.frames().isnan().any() and z["b"].shape[0] == 0
    assert F.mse_loss(y, y * 0, reduction="none").tensor()[1].isnan().all()
    loss = F.mse_loss(y * gain, torch.zeros(4, 3, dtype=y.dtype)) + (y * gain).mean()
    loss.backward()
    assert torch.allclose(gain.grad, 2 * value.detach().square().sum(0) / 6 + value.detach().sum(0) / 6)
    assert torch.allclose(y.mean(0), value.mean(0)) and torch.allclose(y.amax(0), value.amax(0))


@pytest.mark.parametrize("seed", range(30))
def test_gradients_through_several_operations(seed):
    """Whatever the padding becomes on the way (infinite, NaN, a zero under a root), weights don't see it."""
    generator = torch.Generator().manual_seed(seed)
    steps = [
        lambda t, w: t * w[:, None],
        lambda t, w: (t.transpose(1, 2) @ torch.outer(w, w)).transpose(1, 2),
        lambda t, w: t.square().sqrt(),
        lambda t, w: t.clone().mul_(2).abs_().add_(1e-3).log_(),
        lambda t, w: 1 / t,
        lambda t, w: torch.cat([t, t * w[:, None]], 1)[:, 1:5],
        lambda t, w: F.layer_norm(t.transpose(1, 2), (4,), w).transpose(1, 2),
        lambda t, w: torch.where(t > 0, t, t.exp()) + w[:, None],
        lambda t, w: t / t.norm(dim=1, keepdim=True),
        lambda t, w: torch.einsum("bfl,f->bfl", t, w),
        lambda t, w: F.linear(t.transpose(1, 2), torch.outer(w, w), w).transpose(1, 2),
    ]
    losses = [
        lambda t: F.mse_loss(t, t.detach().sin(), reduction="sum"),
        lambda t: t.amax(-1).sum() + t.mean(-1).square().sum(),
        lambda t: F.cross_entropy(t, t.detach().argmax(1), reduction="sum"),
    ]
    chosen = [steps[int(i)] for i in torch.randint(len(steps), (4,), generator=generator)]
    loss = losses[seed % 3]
    x = make(seed)

    def gradient(batches):
        w = torch.linspace(0.5, 1.5, 4, dtype=torch.float64, requires_grad=True)
        total = torch.zeros((), dtype=torch.float64)
        for t in batches:
            t = t * w[:, None]
            for step in chosen:
                t = step(t, w)
            total = total + loss(t)
        (found,) = torch.autograd.grad(total, w)
        return found

    want = gradient(rows(x))
    assert torch.allclose(silent(gradient, [x]), want, rtol=1e-10, atol=1e-10)
