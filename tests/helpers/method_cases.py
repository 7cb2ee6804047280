"""Cases of every method in METHODS, written for both libraries, and the data that they are given."""

from __future__ import annotations

import numpy as np
import order_methods
import pointwise_methods
import torch
import written_methods
from written_methods import written

import dreamstream as ds


class Ours:
    """What a case needs of dreamstream."""

    module = ds

    @staticmethod
    def make(array):
        return ds.tensor(array)


class Theirs:
    """What a case needs of torch."""

    module = torch

    @staticmethod
    def make(array):
        return torch.tensor(array)


class Data:
    """Random operands of one element type; the same for both libraries.

    ``x`` (a, b, c), ``y`` of the same shape, ``row`` (c,), ``column`` (b, 1), ``p`` positive, ``mask``.
    """

    def __init__(self, seed: int, kind: str) -> None:
        rng = np.random.default_rng(seed)
        a, b, c = (int(n) for n in rng.integers(1, 6, 3))
        self.shape = (a, b, c)
        self.arrays = {
            "x": self._draw(rng, kind, (a, b, c)),
            "y": self._draw(rng, kind, (a, b, c)),
            "row": self._draw(rng, kind, (c,)),
            "column": self._draw(rng, kind, (b, 1)),
            "p": np.abs(self._draw(rng, kind, (a, b, c))) + np.asarray(1, self._type(kind)),
            "mask": rng.random((a, b, c)) < 0.5,
            "index": rng.integers(0, b, (a, b + 2, c)),
            "picks": rng.integers(0, c, 4),
            "left": self._draw(rng, kind, (3, 4)),
            "right": self._draw(rng, kind, (4, 2)),
            "batch": self._draw(rng, kind, (3, 4, 2)),
            "other": self._draw(rng, kind, (3, 2, 5)),
            "one": self._draw(rng, kind, (1, 1)),
            "odd": self._odd(rng, kind, (a, b, c)),
        }

    @staticmethod
    def _type(kind):
        return {"float32": np.float32, "float64": np.float64, "int64": np.int64}[kind]

    def _draw(self, rng, kind, shape):
        if kind == "int64":
            return rng.integers(-4, 5, shape)
        return (rng.standard_normal(shape) * 2).astype(self._type(kind))

    def _odd(self, rng, kind, shape):
        """Values with NaN, infinities, zeros and halves between them."""
        values = self._draw(rng, kind, shape)
        if kind != "int64":
            special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 2.5], values.dtype)
            values = np.where(rng.random(shape) < 0.7, rng.choice(special, shape), values)
        return values

    def on(self, library) -> Operands:
        return Operands({k: library.make(v.copy()) for k, v in self.arrays.items()}, self.shape, library)


class Operands:
    def __init__(self, tensors, shape, library) -> None:
        self.__dict__.update(tensors)
        self.shape, self.library, self.ds = shape, library, library.module

    def arange(self, n):
        return self.library.make(np.arange(n))


REAL = {
    "add": [lambda d: d.x.add(d.row, alpha=3), lambda d: +d.x],
    "sub": [lambda d: d.x.sub(d.row, alpha=2)],
    "where": [
        lambda d: d.x.where(d.mask, d.y),
        lambda d: d.x.where(d.mask, 2),
        lambda d: d.ds.where(d.mask, 1, d.x),
        lambda d: d.ds.where(d.x > 0, d.row, d.column),
    ],
    "masked_fill": [lambda d: d.x.masked_fill(d.mask, 3), lambda d: d.x.masked_fill(d.x > 0, -2)],
    "bitwise_and": [lambda d: d.mask.bitwise_and(d.x > 0), lambda d: (d.x > 0) & d.mask],
    "bitwise_or": [lambda d: d.mask.bitwise_or(d.x > 0), lambda d: d.mask | (d.x > 0)],
    "bitwise_xor": [lambda d: d.mask.bitwise_xor(d.x > 0)],
    "bitwise_not": [lambda d: d.mask.bitwise_not(), lambda d: ~d.mask],
    "logical_xor": [lambda d: d.x.logical_xor(d.y), lambda d: d.mask ^ (d.x > 0)],
    "clamp": [
        lambda d: d.x.clamp(-1, 2),
        lambda d: d.odd.clamp(min=0),
        lambda d: d.x.clamp(max=d.row),
        lambda d: d.x.clamp(2, -2),
        lambda d: d.x.clamp(d.row, d.y),
    ],
    "clamp_min": [lambda d: d.x.clamp_min(0)],
    "clamp_max": [lambda d: d.odd.clamp_max(0)],
    "clip": [lambda d: d.x.clip(-1, 1)],
    "isnan": [lambda d: d.odd.isnan()],
    "isinf": [lambda d: d.odd.isinf()],
    "isfinite": [lambda d: d.odd.isfinite()],
    "cumprod": [lambda d: d.x.cumprod(0), lambda d: d.x.cumprod(dim=-1), lambda d: d.row[0].cumprod(0)],
    "cumsum": [lambda d: d.x.cumsum(0), lambda d: d.x.cumsum(dim=-1), lambda d: d.row[0].cumsum(0)],
    "cummax": [lambda d: d.odd.cummax(1).values, lambda d: d.odd.cummax(-1)[1], lambda d: d.row[0].cummax(0)[0]],
    "cummin": [lambda d: d.odd.cummin(0)[0], lambda d: d.x.cummin(dim=1).indices, lambda d: d.row[0].cummin(0)[1]],
    "count_nonzero": [lambda d: d.x.floor().count_nonzero(), lambda d: d.odd.count_nonzero(dim=(0, 2))],
    "nansum": [lambda d: d.odd.nansum(), lambda d: d.odd.nansum(1, keepdim=True)],
    "reshape": [
        lambda d: d.x.reshape(-1),
        lambda d: d.x.reshape((d.shape[1], -1)),
        lambda d: d.x[:0].reshape(0, 3),
    ],
    "view": [lambda d: d.x.view(-1, d.shape[2]), lambda d: d.x.view([d.shape[0], -1])],
    "view_as": [lambda d: d.x.view_as(d.y)],
    "reshape_as": [lambda d: d.x.flatten().reshape_as(d.y)],
    "flatten": [
        lambda d: d.x.flatten(),
        lambda d: d.x.flatten(1),
        lambda d: d.x.flatten(0, 1),
        lambda d: d.row[0].flatten(),
    ],
    "unflatten": [lambda d: d.x.flatten().unflatten(0, d.shape), lambda d: d.x.unflatten(-1, (1, -1))],
    "squeeze": [
        lambda d: d.x.squeeze(),
        lambda d: d.x[:, :1].squeeze(1),
        lambda d: d.x.unsqueeze(0).squeeze((0, 1)),
    ],
    "unsqueeze": [lambda d: d.x.unsqueeze(0), lambda d: d.x.unsqueeze(-1), lambda d: d.x.unsqueeze(2)],
    "expand": [lambda d: d.column.expand(d.shape[0], -1, 3), lambda d: d.row.expand(size=(2, 3, d.shape[2]))],
    "expand_as": [lambda d: d.row.expand_as(d.x)],
    "repeat": [
        lambda d: d.row.repeat(2, 3),
        lambda d: d.x.repeat(1, 2, 1),
        lambda d: d.x.repeat(repeats=(0, 1, 2)),
    ],
    "repeat_interleave": [
        lambda d: d.x.repeat_interleave(2),
        lambda d: d.x.repeat_interleave(3, dim=1),
        lambda d: d.x.repeat_interleave(0, -1, output_size=0),
    ],
    "transpose": [lambda d: d.x.transpose(0, 2), lambda d: d.x.transpose(-1, 1)],
    "swapaxes": [lambda d: d.x.swapaxes(0, 1), lambda d: d.x.swapaxes(axis0=2, axis1=1)],
    "permute": [lambda d: d.x.permute(2, 0, 1), lambda d: d.x.permute(dims=(1, -1, 0))],
    "movedim": [lambda d: d.x.movedim(0, -1), lambda d: d.x.movedim(2, 0)],
    "t": [lambda d: d.left.t(), lambda d: d.row.t()],
    "T": [lambda d: d.left.T],
    "mT": [lambda d: d.x.mT],
    "flip": [lambda d: d.x.flip(0), lambda d: d.x.flip(1, 2), lambda d: d.x.flip(dims=(0, -1))],
    "tril": [lambda d: d.x.tril(), lambda d: d.x.tril(-1), lambda d: d.x[0].tril(diagonal=2)],
    "triu": [lambda d: d.x.triu(), lambda d: d.x.triu(1), lambda d: d.x[0].triu(diagonal=-2)],
    "roll": [lambda d: d.x.roll(2), lambda d: d.x.roll(1, 0), lambda d: d.x.roll((1, -2), (0, 2))],
    "contiguous": [lambda d: d.x.transpose(0, 1).contiguous()],
    "clone": [lambda d: d.x.clone()],
    "narrow": [
        lambda d: d.x.narrow(1, 0, d.shape[1]),
        lambda d: d.x.narrow(-1, d.shape[2] - 1, 1),
        lambda d: d.left.narrow(1, -2, 1),
    ],
    "select": [lambda d: d.x.select(1, 0), lambda d: d.x.select(-1, -1)],
    "unbind": [lambda d: d.x.unbind(), lambda d: d.x.unbind(dim=2), lambda d: list(d.x)],
    "split": [
        lambda d: d.x.split(2),
        lambda d: d.batch.split([1, 3], dim=1),
        lambda d: d.x.split(3, -1),
        lambda d: d.x[:0].split(2),
    ],
    "chunk": [lambda d: d.x.chunk(3, 1), lambda d: d.picks.chunk(3), lambda d: d.x[:0].chunk(2)],
    "unfold": [
        lambda d: d.batch.unfold(1, 2, 1),
        lambda d: d.batch.unfold(-2, 3, 2),
        lambda d: d.left.unfold(1, 4, 1),
    ],
    "gather": [lambda d: d.x.gather(1, d.index), lambda d: d.x.gather(-2, d.index[:1, :, :1])],
    "index_select": [lambda d: d.x.index_select(2, d.picks), lambda d: d.x.index_select(-1, d.picks[:0])],
    "masked_select": [lambda d: d.x.masked_select(d.mask), lambda d: d.x.masked_select(d.mask[0])],
    "sum": [
        lambda d: d.x.sum(),
        lambda d: d.x.sum(1),
        lambda d: d.x.sum((0, -1), keepdim=True),
        lambda d: d.mask.sum(0),
        lambda d: d.x.sum(dim=()),
    ],
    "prod": [lambda d: d.x.prod(), lambda d: d.x.prod(1, keepdim=True)],
    "max": [
        lambda d: d.x.max(),
        lambda d: d.x.max(d.row),
        lambda d: d.odd.max(1).values,
        lambda d: d.x.max(0, keepdim=True)[0],
    ],
    "min": [
        lambda d: d.x.min(),
        lambda d: d.x.min(d.y),
        lambda d: d.odd.min(dim=-1).values,
        lambda d: d.x.min(1, True)[0],
    ],
    "amax": [lambda d: d.x.amax(), lambda d: d.x.amax((0, 1)), lambda d: d.odd.amax(1, keepdim=True)],
    "amin": [lambda d: d.x.amin(), lambda d: d.x.amin(-1)],
    "argmax": [lambda d: d.left.cumsum(1).argmax(), lambda d: d.arange(5).argmax(0), lambda d: d.row[0].argmax()],
    "argmin": [lambda d: d.arange(6).reshape(2, 3).argmin(1, keepdim=True), lambda d: d.arange(4).argmin()],
    "all": [lambda d: d.mask.all(), lambda d: d.x.all(1), lambda d: d.mask.all(-1, keepdim=True)],
    "any": [lambda d: d.mask.any(), lambda d: d.x.any(0), lambda d: d.mask.any(dim=1)],
    "equal": [lambda d: d.x.equal(d.x), lambda d: d.x.equal(d.y), lambda d: d.x.equal(d.row)],
    "allclose": [
        lambda d: d.x.allclose(d.x + 1),
        lambda d: d.x.allclose(d.x.clone()),
        lambda d: d.odd.allclose(d.odd, equal_nan=True),
    ],
    "matmul": [
        lambda d: d.left @ d.right,
        lambda d: d.left.matmul(d.right[:, 0]),
        lambda d: d.batch.matmul(d.other),
        lambda d: d.left @ d.batch,
    ],
    "mm": [lambda d: d.left.mm(d.right)],
    "bmm": [lambda d: d.batch.bmm(d.other)],
    "addmm": [
        lambda d: d.right[:3].addmm(d.left, d.right),
        lambda d: d.one.addmm(d.left, d.right, beta=2, alpha=3),
    ],
    "dim": [lambda d: d.x.dim(), lambda d: d.x.ndim],
    "size": [
        lambda d: tuple(d.x.size()),
        lambda d: d.x.size(-1),
        lambda d: d.x.size(dim=0),
        lambda d: tuple(d.x.shape),
    ],
    "numel": [lambda d: d.x.numel()],
    "item": [lambda d: d.one.item(), lambda d: float(d.one), lambda d: int(d.one), lambda d: bool(d.one)],
    "tolist": [lambda d: d.x.tolist(), lambda d: d.row[0].tolist()],
    "numpy": [lambda d: d.x.transpose(0, 1).numpy()],
    "is_floating_point": [lambda d: d.x.is_floating_point(), lambda d: d.mask.is_floating_point()],
    "is_contiguous": [lambda d: d.batch.is_contiguous(), lambda d: d.batch.transpose(0, 1).is_contiguous()],
    "to": [lambda d: d.x.to(d.ds.float64), lambda d: d.x.to("cpu", d.ds.int64), lambda d: d.x.to(d.mask)],
    "float": [lambda d: d.x.float()],
    "double": [lambda d: d.x.double()],
    "long": [lambda d: d.x.long()],
    "bool": [lambda d: d.x.bool()],
    "type_as": [lambda d: d.mask.type_as(d.x)],
    "cpu": [lambda d: d.x.cpu()],
    "detach": [lambda d: d.x.detach()],
    "new_zeros": [lambda d: d.x.new_zeros(2, 3), lambda d: d.x.new_zeros((2,), dtype=d.ds.int64)],
    "new_ones": [lambda d: d.x.new_ones([3, 1])],
    "new_full": [lambda d: d.x.new_full((2, 2), 3)],
    "new_empty": [lambda d: tuple(d.x.new_empty(2, 0).shape)],
    "new_tensor": [lambda d: d.x.new_tensor([1, 2])],
}

FLOAT = {
    "div": [
        lambda d: d.x.div(d.p),
        lambda d: 1 / d.p,
        lambda d: d.x / d.row,
        lambda d: d.x.div(3, rounding_mode="floor"),
        lambda d: d.x.div(d.p, rounding_mode="trunc"),
    ],
    "pow": [lambda d: d.x.pow(2), lambda d: d.p**d.x, lambda d: 2**d.x, lambda d: d.p**0.5],
    "softmax": [lambda d: d.x.softmax(-1), lambda d: d.x.softmax(dim=0), lambda d: d.x[0, 0, 0].softmax(0)],
    "log_softmax": [lambda d: d.x.log_softmax(1), lambda d: d.x.log_softmax(-1)],
    "mean": [lambda d: d.x.mean(), lambda d: d.x.mean((0, 2)), lambda d: d.x.mean(1, keepdim=True)],
    "var": [
        lambda d: d.batch.var(),
        lambda d: d.batch.var(1),
        lambda d: d.batch.var(0, False),
        lambda d: d.batch.var((0, 1), correction=2, keepdim=True),
        lambda d: d.batch.var(False),
    ],
    "std": [lambda d: d.batch.std(), lambda d: d.batch.std(dim=1, unbiased=False), lambda d: d.left[:2].std(0)],
    "norm": [
        lambda d: d.x.norm(),
        lambda d: d.x.norm(1, dim=1),
        lambda d: d.x.norm(p=3, dim=(0, 2), keepdim=True),
        lambda d: d.x.norm(float("inf")),
        lambda d: d.x.norm(0, dim=-1),
    ],
    "logcumsumexp": [lambda d: (d.x * 1000).logcumsumexp(-1), lambda d: d.odd.logcumsumexp(1)],
    "nanmean": [lambda d: d.odd.nanmean(0), lambda d: d.x.nanmean((0, 1), keepdim=True)],
    "logsumexp": [
        lambda d: d.x.logsumexp(0),
        lambda d: d.x.logsumexp((0, 2), keepdim=True),
        lambda d: d.odd.logsumexp(-1),
        lambda d: (d.x * 1000).logsumexp(1),
    ],
    "requires_grad_": [lambda d: d.x.requires_grad_(False).requires_grad],
}

INTEGER = {
    "div": [
        lambda d: d.x.div(d.p),
        lambda d: d.x / 2,
        lambda d: d.x.div(d.p, rounding_mode="floor"),
        lambda d: d.x.div(d.p, rounding_mode="trunc"),
    ],
    "pow": [lambda d: d.x.pow(2), lambda d: d.x**d.p, lambda d: 2**d.p],
    "add": [lambda d: d.mask + 1],
    "sum": [lambda d: d.x.sum(0, dtype=d.ds.float32)],
    "mean": [lambda d: d.x.mean(dtype=d.ds.float64)],
    "clamp": [lambda d: d.x.clamp(-0.5, 1.5)],
    "shifts": [lambda d: d.x << 3, lambda d: d.x >> d.y.abs(), lambda d: 1 << d.y.abs()],
    "bits": [lambda d: d.x & d.y, lambda d: d.x | 3, lambda d: d.x ^ d.y, lambda d: ~d.x],
    "brackets": [
        lambda d: d.left[d.arange(3)],
        lambda d: d.x[d.mask],
        lambda d: d.x[..., d.picks],
        lambda d: d.left[d.arange(3), d.arange(3)],
        lambda d: d.left[:, [0, 2]],
        lambda d: d.left[d.arange(3)[1]],
    ],
}

for kind, ours in (("REAL", REAL), ("FLOAT", FLOAT), ("INTEGER", INTEGER)):
    for more in (pointwise_methods, order_methods):
        for name, cases in getattr(more, kind, {}).items():
            ours[name] = ours.get(name, []) + cases

FLOAT |= written_methods.cases()

BRACKETS = [
    lambda d: d.x[0],
    lambda d: d.x[:, -1],
    lambda d: d.x[..., 0],
    lambda d: d.batch[1:, ::2, 1],
    lambda d: d.x[None, :, None],
    lambda d: d.x[d.mask],
    lambda d: d.x[:, :, d.picks],
    lambda d: d.batch[d.arange(3)],
    lambda d: d.batch[d.arange(3), d.arange(3), 0],
    lambda d: d.batch[[0, 2]],
    lambda d: d.batch[0, 0, 0],
    lambda d: d.batch[5:],
    lambda d: written(d.batch, lambda x: x.__setitem__((slice(None), 0), 1)),
    lambda d: written(d.x, lambda x: x.__setitem__(d.mask, 2)),
    lambda d: written(d.x, lambda x: x.__setitem__(Ellipsis, d.row)),
    lambda d: len(d.x),
    lambda d: 1 in d.x,
    lambda d: d.ds.cat([d.x, d.y], dim=1),
    lambda d: d.ds.cat([d.x, d.mask]),
    lambda d: d.ds.stack([d.x, d.y], dim=-1),
    lambda d: d.ds.zeros_like(d.x),
    lambda d: d.ds.ones_like(d.x, dtype=d.ds.int64),
    lambda d: d.ds.full_like(d.x, 3),
]
