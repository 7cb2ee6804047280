"""Functions that torch has compiled inside forwards: scripted ones, and traced ones."""

import pytest
import torch
from torch import nn

import dreamstream as ds
from dreamstream.errors import NotStreamableError


@torch.jit.script
def gated(x, y, n: int):
    """What gated networks compute, as their authors script it."""
    both = x + y
    return torch.tanh(both[:, :n]) * torch.sigmoid(both[:, n:])


@torch.jit.script
def snake(x: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    shape = x.shape
    x = x.reshape(shape[0], shape[1], -1)
    if x.size(1) == 2:
        x = x + (alpha + 1e-9).reciprocal() * torch.sin(alpha * x).pow(2)
    return x.reshape(shape)


class Scripted(nn.Module):
    """Scripted functions: of a module's, of an attribute, as a method's decorator has it."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 3, padding=1)
        self.alpha = nn.Parameter(torch.full((1, 2, 1), 1.5))
        self.activation = snake

    def forward(self, x):
        y = self.conv(x)
        return self.activation(gated(y, y=2 * y, n=2), self.alpha)


def test_scripted_functions_stream():
    """By the functions that they were made from."""
    x, model = torch.randn(1, 3, 9, generator=torch.Generator().manual_seed(0)), Scripted()
    wanted = model(x)
    slope = torch.autograd.grad(wanted.sum(), model.alpha)[0]
    ds.compile(model.eval(), ("B", 3, "L"))
    ds.patch_module(model).online()
    y = model(ds.stream_tensor(x, ids=["a"], sos=True, eos=True))
    torch.testing.assert_close(y["a"], wanted[0])
    torch.testing.assert_close(torch.autograd.grad(y["a"].sum(), model.alpha)[0], slope)
    assert type(snake) is torch.jit.ScriptFunction


def test_traced_functions_are_refused():
    """They hold what was traced, and not what they were made from; operations come past torch's functions."""
    doubled = torch.jit.trace(lambda x: x * 2, torch.zeros(1, 3, 5))

    class Traced(nn.Module):
        def forward(self, x):
            return doubled(x) + 1

    words = r"aten\.mul.* at test_compiled_functions\.py:\d+ in forward: `return doubled\(x\) \+ 1`.*ds\.register"
    with pytest.raises(NotStreamableError, match=words):
        ds.compile(Traced(), ("B", 3, "L"))
    model = ds.patch_module(Traced()).online()
    with pytest.raises(NotStreamableError, match=words):
        model(ds.stream_tensor(torch.zeros(1, 3, 5), ids=["a"], sos=True))
    assert not model.live_ids
