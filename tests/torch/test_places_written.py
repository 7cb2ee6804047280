"""Warm calls of patched modules repeat what writes into streams did, into views and parts of them, too."""

import pytest
import torch
from torch import nn
from torch_batches import streamed

import dreamstream as ds
from dreamstream.array import writing

CHUNKS = (7, 3, 1, 5, 4)


class Written(nn.Module):
    """A function of a stream (B, 4, L) as a forward."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def chunks_of(model, xs):
    """Begin a stream and go on with it; return what each call gives."""
    return [model(ds.stream_tensor([x], ids=["a"], sos=n == 0))["a"] for n, x in enumerate(xs)]


WRITES = {
    "into a view": lambda x: (y := x * 1, v := y.transpose(1, 2), v.add_(1), y)[-1],
    "into a part": lambda x: (y := x * 1, y[:, 1:].mul_(2), y)[-1],
    "into a copy": lambda x: x * 1 + (x.to(x.dtype, copy=True).mul_(2) - x.to(x.dtype, False, True).add_(1)),
    "into what a view is of": lambda x: (y := x * 1, v := y[:, :2], y.mul_(3), v)[-1],
    "into a slice": lambda x: (y := x * 1, y.__setitem__((slice(None), 0), 0.5), y.permute(0, 2, 1))[-1],
    "into a slice that others were taken of": lambda x: (
        y := x * 1,
        v := y[:, 0],
        w := y.reshape(*y.shape) * 1,
        y.__setitem__((slice(None), 0), 2.0),
        v[:, None] + y + w,
    )[-1],
    "of a view into another": lambda x: (y := x * 1, y.__setitem__((slice(None), 0), y[:, 1]), y)[-1],
    "into what is made of several": lambda x: (y := torch.channel_shuffle(x * 1, 2), y.add_(1), y)[-1],
    "into zeros": lambda x: (y := x.new_zeros(1, x.shape[1], 1), z := y + 1, x * z + y)[-1],
    "into what first frames are of": lambda x: (y := x * 1, v := y[..., :1], y.mul_(3), y - v)[-1],
    "into a view of a view": lambda x: (y := x * 1, y.unsqueeze(1)[:, :, 2].neg_(), y)[-1],
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_in_warm_calls(name):
    model = Written(WRITES[name])
    x = torch.randn(4, 5)
    want = model(x[None])[0]
    ds.patch_module(model).online()
    for got in chunks_of(model, [x] * 4):
        assert torch.equal(got, want)


def test_a_write_after_what_may_share_memory_is_refused_in_warm_calls():
    def early(x):
        y = x.transpose(1, 2)
        y.mul_(2)
        return y.contiguous() + 1

    model = ds.patch_module(Written(early)).online()
    x = torch.randn(4, 5)
    chunks_of(model, [x] * 3)

    def late(x):
        y = x.transpose(1, 2)
        z = y.contiguous()
        y.mul_(2)
        return z + 1

    model.function = late
    with pytest.raises(ds.NotStreamableError, match="may share its memory"):
        model(ds.stream_tensor([x], ids=["a"]))


def test_warm_calls_write_into_parts_without_asking(monkeypatch):
    scale = torch.rand(2, 1)

    def parts(x):
        y = x * 2
        y[:, :2] *= scale
        y[:, 2:, 1:] += 1
        return y

    model = Written(parts)
    whole = torch.randn(2, 4, sum(CHUNKS))
    want = model(whole)
    ds.patch_module(model).online()
    assigned, assign = [], writing.assign
    monkeypatch.setattr(writing, "assign", lambda x, *given: assigned.append(given) or assign(x, *given))
    streamed(model, whole, CHUNKS)
    assert len(assigned) > 0
    assigned.clear()
    got = streamed(model, whole, CHUNKS)
    assert not assigned
    for row, i in enumerate("ab"):
        assert torch.allclose(torch.cat(got[i], -1), want[row], atol=1e-5)
