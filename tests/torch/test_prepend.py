"""Tokens before the first frame and behind the last: `ds.prepend`, and as torch's models join them."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import dreamstream as ds


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.one = nn.Parameter(torch.randn(1, 3, 8)), nn.Parameter(torch.randn(8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.conv = nn.Conv1d(8, 8, 3)

    def attend(self, x):
        return self.layer(x, nn.Transformer.generate_square_subsequent_mask(x.size(1)))


def expanded(self, x):
    return self.attend(torch.cat([self.tokens.expand(x.size(0), -1, -1), x], 1))[:, 3:]


def prepended(self, x):
    return self.attend(ds.prepend(x, self.tokens) * 2)


def of_a_vector(self, x):
    return ds.prepend(x, self.one[None]) - ds.prepend(x, self.tokens[:, :1])


def channels_first(self, x):
    return self.conv(ds.prepend(x.transpose(1, 2), self.tokens[0, :2].T, dim=2)).transpose(1, 2)


def repeated(self, x):
    one = self.one.view(1, 1, -1).repeat(x.shape[0], 1, 1)
    return torch.cat((one, self.tokens.repeat(x.shape[0], 1, 1), x, one), dim=-2)


def behind(self, x):
    return self.conv(torch.cat([x, self.tokens.expand(x.size(0), -1, -1)], 1).transpose(1, 2)).transpose(1, 2)


FORWARDS = [expanded, prepended, of_a_vector, channels_first, repeated, behind]


def model_of(forward):
    torch.manual_seed(0)
    return type("Model", (Tokens,), {"forward": forward})().eval()


@pytest.mark.parametrize("cuts", [(), (1, 2, 3), (0, 0, 4), (7, 7)], ids=str)
@pytest.mark.parametrize("forward", FORWARDS, ids=lambda f: f.__name__)
@torch.no_grad()
def test_streams(forward, cuts, tmp_path):
    model, x = model_of(forward), torch.randn(2, 9, 8)
    want = model(x).numpy()
    ds.compile(model, ("B", "L", 8)).save(tmp_path / "model.dsm")
    engine, online = ds.load(tmp_path / "model.dsm"), ds.patch_module(copy.deepcopy(model)).online()
    ends = [*cuts, 9]
    got, stepped = ({"a": [], "b": []} for _ in range(2))
    for k, (low, high) in enumerate(zip([0, *cuts], ends)):
        for ids, rows in ((["a", "b"], x),) if k % 2 else ((["b"], x[1:]), (["a"], x[:1])):
            first, last = k == 0, k == len(cuts)
            chunks = dict(zip(ids, rows[:, low:high]))
            y = online(
                ds.stream_tensor(list(chunks.values()), ids=ids, sos=first, eos=last, names=("B", "L", None))
            )
            z = engine.step({i: c.numpy() for i, c in chunks.items()}, sos=ids * first, eos=ids * last)
            for i in ids:
                got[i].append(y[i].numpy())
                stepped[i].append(z[i])
    for frames in (got, stepped):
        np.testing.assert_allclose([np.concatenate(frames[i]) for i in "ab"], want, rtol=0, atol=2e-6)


@pytest.mark.parametrize("forward", FORWARDS, ids=lambda f: f.__name__)
def test_gradients(forward):
    whole = model_of(forward).train()
    online = ds.patch_module(copy.deepcopy(whole), train_variant="full-file-aligned").online()
    x, loss = torch.randn(2, 9, 8), 0
    for k, (low, high) in enumerate(((0, 2), (2, 5), (5, 9))):
        chunk = ds.stream_tensor(x[:, low:high], ids=["a", "b"], sos=k == 0, eos=k == 2, names=("B", "L", None))
        y = online(chunk)
        loss = loss + sum(y[i].sin().sum() for i in "ab")
    loss.backward()
    whole(x).sin().sum().backward()
    for (name, a), b in zip(online.named_parameters(), whole.parameters()):
        assert (a.grad is None) == (b.grad is None), name
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("library", [ds, torch], ids=lambda m: m.__name__)
def test_what_does_not_fit(library):
    x = library.zeros(2, 5, 3)
    assert tuple(ds.prepend(x, library.ones(4, 3)).shape) == (2, 9, 3)
    with pytest.raises(ds.ShapeError, match="tokens of 1 dimensions before a sequence of 3"):
        ds.prepend(x, library.ones(3))

    def own(self, x, m):
        return ds.prepend(x, m)

    for given, error, text in (
        (("B", "M", 8), ds.NotStreamableError, "frames of a memory, .* don't stand before others"),
        (("B", 17, 8), ds.NotStreamableError, "17 tokens that are given once; there may be 16"),
        (("B", 2, 7), ds.ShapeError, r"\('B', '2', '7'\), given once, is not as a stream"),
    ):
        with pytest.raises(error, match=f"cat at .*{text}"):
            ds.compile(model_of(own), {"x": ("B", "L", 8), "m": given})
