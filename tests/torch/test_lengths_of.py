"""``forward(xs, xs_lens)``: lengths as an argument, masks made of them, derived lengths that are returned."""

from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import dreamstream as ds
from dreamstream import nn as native

SPEC = {"xs": ("B", "L", 4), "lens": ds.lengths_of("xs")}


def pad_mask(lengths, longest=0):
    """As speech models write it."""
    n = lengths.size(0)
    longest = longest if longest > 0 else lengths.max().item()
    positions = torch.arange(0, longest, dtype=lengths.dtype, device=lengths.device)
    return positions.unsqueeze(0).expand(n, longest) >= lengths.unsqueeze(-1)


class Subsampling(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.down = torch.nn.Conv1d(4, 4, 3, stride=2, padding=1)

    def forward(self, xs, lens):
        xs = xs.transpose(1, 2).masked_fill(pad_mask(lens, xs.size(1)).unsqueeze(1), 0.0)
        y = self.down(xs)
        lens = torch.div(lens - 1, 2, rounding_mode="floor") + 1
        inside = torch.arange(y.size(2), device=y.device)[None, :] < lens[:, None]
        return y.transpose(1, 2) * (~pad_mask(lens)).unsqueeze(2) * inside.unsqueeze(2), lens


class Pairs(torch.nn.Module):
    """Frames that are there, as a mask of pairs beside one of blocks."""

    def forward(self, xs, lens):
        n = xs.size(1)
        there = torch.arange(0, n).expand(lens.size(0), -1) < lens.unsqueeze(-1)
        pairs = there.unsqueeze(1).repeat([1, n, 1])
        i = torch.arange(n) // 2
        seen = torch.logical_and(torch.logical_and(pairs, pairs.transpose(1, 2)), (i[:, None] >= i).unsqueeze(0))
        x = xs[:, None]
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=seen[:, None])[:, 0]


def counted_mask(lens):
    """As torchaudio has it: the longest as a number."""
    longest = int(torch.max(lens).item())
    return torch.arange(longest, dtype=lens.dtype).expand(lens.shape[0], longest) >= lens.unsqueeze(1)


class Counted(torch.nn.Module):
    """A mask of padding, time first; a mask of positions says what is seen."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attend = torch.nn.MultiheadAttention(4, 2)

    def forward(self, xs, lens):
        x, hidden = xs.transpose(0, 1), counted_mask(lens)
        causal = torch.ones(x.size(0), x.size(0)).triu(1).bool()
        return self.attend(x, x, x, key_padding_mask=hidden, attn_mask=causal, need_weights=False)[0].transpose(
            0, 1
        )


class Odd(torch.nn.Module):
    """A mask of every other frame, from the first or the second on, as the length is odd or even."""

    def forward(self, xs, lens):
        n = xs.size(1)
        there = (torch.arange(n) < lens.unsqueeze(-1)).unsqueeze(1)[:, :, (n + 1) % 2 :: 2]
        y = torch.nn.functional.avg_pool1d(xs.transpose(1, 2), 2, ceil_mode=True)
        return (y * there).transpose(1, 2)


class Relative(torch.nn.Module):
    def forward(self, xs, lens):
        lens = torch.round(lens * xs.shape[1])
        mask = torch.arange(xs.shape[1])[None, :] < lens.unsqueeze(1)
        ones = torch.ones(xs.size(0), xs.size(1), 4)
        return xs * mask.unsqueeze(2).float() + torch.zeros(xs.size(0), xs.size(1)).unsqueeze(-1) * ones


class Packed(torch.nn.Module):
    """What is packed is a stream of these lengths, in whatever order of axes, sorted or not."""

    def __init__(self, batch_first=True, sort=False):
        super().__init__()
        torch.manual_seed(0)
        self.batch_first, self.sort = batch_first, sort
        self.down = torch.nn.Conv1d(4, 4, 3, stride=2)
        self.gru = torch.nn.GRU(4, 3, num_layers=2, batch_first=batch_first)

    def forward(self, xs, lens):
        xs, lens = self.down(xs.transpose(1, 2)).transpose(1, 2), torch.div(lens - 3, 2, rounding_mode="floor") + 1
        if not self.batch_first:
            xs = xs.transpose(0, 1)
        packed = pack_padded_sequence(xs, lens.cpu(), self.batch_first, enforce_sorted=not self.sort)
        total = xs.size(1 if self.batch_first else 0)
        y, lens = pad_packed_sequence(self.gru(packed)[0], self.batch_first, total_length=total)
        return (y if self.batch_first else y.transpose(0, 1)), lens


class Sorted(torch.nn.Module):
    """Rows sorted by their lengths and put back."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = torch.nn.LSTM(4, 3, batch_first=True)

    def forward(self, xs, lens):
        lens, order = torch.sort(lens, descending=True)
        y = self.lstm(xs[order][:, : lens.max()])[0]
        back = order.argsort()
        return y[back], lens[back]


class Means(torch.nn.Module):
    """What is pooled over the frames that are there."""

    def forward(self, xs, lens):
        there = longest_mask(lens).unsqueeze(-1).float()
        total = (xs * there).sum(1)
        return total / there.sum(1), total / lens.unsqueeze(1), xs.sum(1) / torch.tensor(xs.size(1)), lens


def longest_mask(lens):
    return torch.arange(lens.max(), device=lens.device).unsqueeze(0) < lens.unsqueeze(1)


def mask_by_type(lens):
    """As Tacotron 2 has it: positions in a tensor that is made by its type."""
    longest = torch.max(lens).item()
    return torch.arange(0, longest, out=torch.LongTensor(longest)) < lens.unsqueeze(1)


def mask_like(lens, xs=None):
    """As ESPnet has it: lengths as a list, and the shape of the frames."""
    if not isinstance(lens, list):
        lens = lens.long().tolist()
    rows, n = len(lens), int(max(lens))
    positions = torch.arange(0, n, dtype=torch.int64).unsqueeze(0).expand(rows, n)
    mask = positions >= positions.new(lens).unsqueeze(-1)
    return mask if xs is None else mask[:, :, None].expand_as(xs).to(xs.device)


class Masked(torch.nn.Module):
    """The tutorials' LSTM, whose first state asks for gradients, on masked frames."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = torch.nn.LSTM(4, 3, batch_first=True)

    def forward(self, xs, lens):
        xs = xs.masked_fill(~mask_by_type(lens).unsqueeze(-1), 0.0).masked_fill(mask_like(lens)[..., None], 0.0)
        xs = xs.masked_fill(mask_like(lens, xs), 0.0)
        h, c = (torch.zeros(1, xs.size(0), 3).requires_grad_() for _ in "hc")
        return self.lstm(xs, (h.detach(), c.detach()))[0]


class Last(torch.nn.Module):
    """The last frame that there is, as classifiers pick it, and what is packed by lists and arrays."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gru = torch.nn.GRU(4, 3, batch_first=True)

    def forward(self, xs, lens):
        assert xs.size(0) == len(lens) and lens.numel() == 1 and xs.numel() != 0
        hidden = torch.arange(xs.size(1)) >= lens[:, None]
        if hidden.any() or not (~hidden).all():
            xs = xs.masked_fill(hidden.unsqueeze(-1), 0)
        if xs.size(1) > lens.max() or lens.max() != xs.shape[1]:
            xs = xs[:, : lens.max()]
        sorted_lens, order = lens.sort(0, descending=True)
        packed = pack_padded_sequence(xs[order], sorted_lens.tolist(), batch_first=True)
        y, h = self.gru(packed)
        y, _ = pad_packed_sequence(y, batch_first=True)
        back = order.argsort()
        y, h = y[back], h[:, back]
        again, _ = self.gru(pack_padded_sequence(y.repeat(1, 1, 2)[..., :4], lens.data.cpu().numpy(), True))
        y[hidden] = 0.0
        flat = y[~hidden].reshape(xs.size(0), xs.size(1), 3)
        each = torch.arange(y.size(0), device=y.device)
        at = (lens - 1).view(-1, 1, 1).expand(-1, 1, y.size(2))
        return (
            y[each, lens - 1],
            y.gather(1, at).squeeze(1) + h[0],
            pad_packed_sequence(again, True)[0] * (~hidden).unsqueeze(2) + flat,
            (~hidden).float().unsqueeze(2),
            torch.minimum(lens, torch.tensor(xs.size(1))),
            xs.sum(1) / torch.sqrt(lens.float()).unsqueeze(1) + xs.sum(1) / sum(lens.tolist()),
        )


class Own(native.Module):
    """The same for our own tensors."""

    def __init__(self):
        super().__init__()
        self.down = native.Conv1d(4, 4, 3, stride=2, padding=1)

    def forward(self, xs, lens):
        outside = ds.arange(xs.size(1)).unsqueeze(0) >= lens.unsqueeze(1)
        y = self.down((xs * ~outside.unsqueeze(2)).transpose(1, 2))
        return y.transpose(1, 2), (lens - 1) // 2 + 1


def streamed(model: Any, x: Any, plain: bool, **options: Any) -> list[Any]:
    """Every chunk's outputs of one stream, frame by frame, laid end to end."""
    outs = []
    for at in range(len(x)):
        chunk = x[at : at + 1].numpy() if plain else x[at : at + 1]
        s = ds.stream_tensor([chunk], names=["B", "L", None], ids=["a"], sos=at == 0, eos=at + 1 == len(x))
        with torch.no_grad():
            out = model(s, ds.lengths_of(s, **options))
        outs.append([np.asarray(y["a"].numpy()) for y in (out if isinstance(out, tuple) else (out,))])
    return [np.concatenate(parts) for parts in zip(*outs)]


PACKED = [partial(Packed, first, sort) for first in (True, False) for sort in (True, False)]
MODELS = (Subsampling, Pairs, Counted, Odd, Relative, Sorted, Means, Masked, Last)
CASES = [(make, n) for make in MODELS for n in (1, 2, 5, 8)]
CASES += [(make, n) for make in PACKED for n in (3, 5, 8)]  # torch packs no empty rows


@pytest.mark.parametrize(("make", "n"), CASES)
def test_equals_offline(make, n):
    relative = make is Relative
    x, lens = torch.randn(n, 4), torch.ones(1) if relative else torch.tensor([n])
    with torch.no_grad():
        wanted = make()(x[None], lens)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    got = streamed(ds.patch_module(make()).online(), x, False, relative=relative)
    engine = ds.compile(make(), {**SPEC, "lens": ds.lengths_of("xs", relative)})
    out = engine.step({"a": {"xs": x.numpy()}}, sos=["a"], eos=["a"])["a"]
    for y, e, w in zip(got, out if isinstance(out, tuple) else (out,), wanted, strict=True):
        w = w[0].numpy() if w.ndim > 2 else w.numpy()
        assert y.shape == e.shape == w.shape and y.dtype == e.dtype == w.dtype
        np.testing.assert_allclose(y, w, atol=1e-5)
        np.testing.assert_allclose(e, w, atol=1e-5)


@pytest.mark.parametrize("n", [1, 4, 7])
def test_native(n):
    model, x = Own(), torch.randn(n, 4)
    y, lens = streamed(ds.patch_module(model).online(), x, True)
    e, e_lens = ds.compile(model, SPEC, verify=False).step({"a": {"xs": x.numpy()}}, sos=["a"], eos=["a"])["a"]
    twin = torch.nn.Conv1d(4, 4, 3, stride=2, padding=1)
    twin.load_state_dict({k: torch.from_numpy(v.numpy()) for k, v in model.down.state_dict().items()})
    wanted = twin(x.T[None])[0].T.detach().numpy()
    np.testing.assert_allclose(y, wanted, atol=1e-5)
    np.testing.assert_allclose(e, wanted, atol=1e-5)
    assert list(lens) == list(e_lens) == [len(wanted)] and lens.dtype == e_lens.dtype == np.int64


def test_native_means_and_last_frames():
    class Mean(native.Module):
        def forward(self, xs, lens):
            at = (lens - 1).view(-1, 1, 1).expand(-1, 1, 4)
            assert not (ds.arange(xs.size(1)) >= lens[:, None]).any() and max(lens.tolist()) == xs.size(1)
            return xs.sum(1) / lens.unsqueeze(1), xs[ds.arange(xs.size(0)), lens - 1], xs.gather(1, at)[:, 0]

    x = torch.randn(6, 4)
    ys = streamed(ds.patch_module(Mean()).online(), x, True)
    engine = ds.compile(Mean(), SPEC, verify=False)
    for given in (ys, engine.step({"a": {"xs": x.numpy()}}, sos=["a"], eos=["a"])["a"]):
        for y, wanted in zip(given, (x.mean(0), x[-1], x[-1]), strict=True):
            np.testing.assert_allclose(y, wanted[None].numpy(), atol=1e-6)


class Short(torch.nn.Module):
    def forward(self, xs, lens):
        mask = torch.arange(xs.size(1))[None] < (lens // 2)[:, None]
        return xs * mask.unsqueeze(-1)


class PackedShort(torch.nn.Module):
    def forward(self, xs, lens):
        return pad_packed_sequence(pack_padded_sequence(xs, lens - 1, batch_first=True), batch_first=True)[0]


class Number(torch.nn.Module):
    def forward(self, xs, lens):
        return xs * int(lens.max())


class OneByOne(torch.nn.Module):
    def forward(self, xs, lens):
        return xs, torch.stack([n // 2 for n in lens])


class SecondLast(torch.nn.Module):
    def forward(self, xs, lens):
        return xs[torch.arange(xs.size(0)), lens - 2]


class Flat(torch.nn.Module):
    def forward(self, xs, lens):
        return xs.reshape(-1, 4)[torch.arange(xs.size(0)) * xs.size(1) + lens - 1]


class Product(torch.nn.Module):
    def forward(self, xs, lens):
        return xs * torch.tensor(xs.size(1))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (OneByOne, "a number of .* in forward: `return xs, torch.stack"),
        (SecondLast, "an index by a stream, at .* in forward: `return xs"),
        (Flat, "the order of streams is computed with, at .* in forward: `return xs"),
        (Product, "an operand of __mul__ beside frames .* in forward: `return xs"),
        (Short, "a mask that is not the same for all frames .* in forward: `mask ="),
        (Number, "the length of a stream is not a number"),
        (PackedShort, "pack_padded_sequence at .* are not the lengths of a stream"),
    ],
)
def test_what_depends_on_the_stream_is_refused(make, text):
    s = ds.stream_tensor([torch.ones(3, 4)], names=["B", "L", None], ids=["a"], sos=True)
    with pytest.raises(ds.NotStreamableError, match=text):
        ds.patch_module(make()).online()(s, ds.lengths_of(s))
    with pytest.raises(ds.NotStreamableError, match=text):
        ds.compile(make(), SPEC)


def test_lengths_of_another_call():
    s, other = (ds.stream_tensor([torch.ones(3, 4)], names=["B", "L", None], ids=["a"], sos=True) for _ in "ab")
    with pytest.raises(ds.StreamMismatchError, match="not of an argument of the same call"):
        ds.patch_module(Short()).online()(s, ds.lengths_of(other))


def test_sizes_in_a_tensor_are_the_sizes():
    class Shaped(torch.nn.Module):
        def forward(self, x):
            shape = torch.tensor(x.shape)
            assert len(shape) == 3 and shape[2] == 4 and shape[:2].tolist()[1] == x.size(1)
            return x.reshape(shape[0], shape[1], 2, 2).flatten(2)

    x = torch.randn(5, 4)
    s = ds.stream_tensor([x], names=["B", "L", None], ids=["a"], sos=True, eos=True)
    torch.testing.assert_close(ds.patch_module(Shaped()).online()(s)["a"], x)


def test_copies_of_a_function_with_names_of_their_own():
    """Numbers made of lengths are exchanged in functions, in each one's own names."""

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.pad(x, (0, int((x.shape[-1] + 7) / 8) * 8 - x.shape[-1]))

    class Copy(Model):
        forward = FunctionType(Model.forward.__code__, dict(globals()), "forward")

    x = torch.randn(1, 3, 10)
    for cls in (Model, Copy):
        y = ds.patch_module(cls()).online()(ds.stream_tensor(x, ids=["a"], sos=True, eos=True))
        assert torch.equal(y["a"], cls()(x)[0])
