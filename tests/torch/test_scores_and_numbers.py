"""A number added to scores changes nothing behind softmax, and much without it: exact, or refused by line."""

import math

import numpy as np
import pytest
import torch

import dreamstream as ds

EXACT = {
    "added, then a mask": lambda s, m, x: (s + 3).masked_fill(~m, -math.inf).softmax(-1) @ x,
    "added behind a mask": lambda s, m, x: (s.masked_fill(~m, -math.inf) - 3).softmax(-1) @ x,
    "added and scaled": lambda s, m, x: (2 * (s + 1)).masked_fill(~m, -1e9).softmax(-1) @ x,
    "added behind tanh": lambda s, m, x: (3 * (s / 3).tanh() + 1).masked_fill(~m, -math.inf).softmax(-1) @ x,
    "the greatest taken off": lambda s, m, x: (
        ((t := s.masked_fill(~m, -math.inf)) - t.amax(-1, keepdim=True)).softmax(-1) @ x
    ),
    "zero": lambda s, m, x: ((s + 0) * m) @ x,
    "exponentials": lambda s, m, x: (
        ((e := (s + 1).masked_fill(~m, -math.inf).exp()) / e.sum(-1, keepdim=True)) @ x
    ),
}
REFUSED = {
    "in a sum over pairs": lambda s, m, x: ((s + 1) * m) @ x,
    "behind weights": lambda s, m, x: (s * m - 0.5) @ x,
    "behind a mask of zeros": lambda s, m, x: (s.masked_fill(~m, 0) + 2) @ x,
    "before tanh": lambda s, m, x: (3 * ((s + 1) / 3).tanh()).masked_fill(~m, -math.inf).softmax(-1) @ x,
    "less the greatest": lambda s, m, x: ((s - s.amax(-1, keepdim=True)) * m) @ x,
    "times a mask": lambda s, m, x: ((s + 1) * m + (~m) * -1e9).softmax(-1) @ x,
    "times frames": lambda s, m, x: ((s + 1) * x[..., :1] * m) @ x,
    "over its sums": lambda s, m, x: (((s + 1) * m) @ x) / ((s + 1) * m).sum(-1, keepdim=True),
    "more than what hides": lambda s, m, x: (s - 3000).masked_fill(~m, -1000.0).softmax(-1) @ x,
}


class Attention(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):  # (B, L, 3)
        places = torch.arange(x.size(1))
        return self.function(x @ x.mT, places[:, None] >= places, x)


def streamed(function, x):
    model = ds.patch_module(Attention(function).eval()).online()
    chunks = [
        ds.stream_tensor(x[:, a:b], names=("B", "L", "F"), ids=["a"], sos=[a == 0], eos=[b == x.size(1)])
        for a, b in ((0, 5), (5, 6), (6, x.size(1)))
    ]
    with torch.no_grad():
        return np.concatenate([model(chunk).tensor().numpy() for chunk in chunks], 1)


@pytest.mark.parametrize("name", EXACT)
def test_exact(name):
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 23, 3)).astype(np.float32))
    np.testing.assert_allclose(streamed(EXACT[name], x), Attention(EXACT[name])(x).numpy(), atol=2e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises(ds.NotStreamableError, match=r"without softmax behind it|not hidden") as caught:
        streamed(REFUSED[name], torch.ones(1, 23, 3))
    assert "test_scores_and_numbers.py" in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_scores_are_limited_and_filled_in_their_own_type(dtype):
    class Masked(torch.nn.Module):
        def forward(self, x):
            scores, least = x @ x.mT, torch.finfo(x.dtype).min
            hidden = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
            scores = scores.clamp(min=least).masked_fill(hidden, least)
            return scores.softmax(-1).masked_fill(hidden, 0.0) @ x

    x, model = torch.randn(1, 9, 4).to(dtype), Masked()
    expected = model(x)[0]
    model = ds.patch_module(model).online()
    y = model(ds.stream_tensor(x, names=("B", "L", None), ids=["a"], sos=True, eos=True))["a"]
    error = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(y, expected, rtol=error, atol=error)
