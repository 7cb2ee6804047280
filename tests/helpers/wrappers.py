"""Modules of torch that stand around another."""

from torch import nn


class Forwards(nn.Module):
    """A wrapper that gives attributes of what it wraps."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, x):
        return self.inner(x)
