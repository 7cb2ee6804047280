"""No function, method or operator gives an error of Python's own for a stream, or what stands for one.

What is asked is drawn anew for every kind of thing; the slow tier asks everything.
"""

import inspect

import numpy as np
import pytest
from asked import OPERATORS, answers, asking, few, functions, kinds

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.array.tensor import Tensor

#: Asked of each kind.
FEW = 12


def native():
    """Give the methods of tensors and the functions on them."""
    for home in (Tensor, F):
        for name in (n for n in dir(home) if not n.startswith("_")):
            f = getattr(home, name)
            if inspect.isfunction(f):
                called = (lambda x, *a, _name=name, **k: getattr(x, _name)(*a, **k)) if home is Tensor else f
                yield f"{home.__name__}.{name}", called, f


FUNCTIONS = list(functions(native()))
WHOLE = ds.tensor(np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 4, 3))
KINDS = tuple(kinds(ds, WHOLE, ds.tensor([3, 3])))


Asks = asking(nn, lambda x, lengths: kinds(ds, x, lengths), lambda: (WHOLE, ds.tensor([3, 3]), ds.ones(4, 1)))


def run(kind, way, cases):
    chunks = [np.random.default_rng(n).standard_normal((4, n), np.float32) for n in (5, 7)]
    return answers(Asks(kind, cases), way, chunks)


@pytest.mark.parametrize("way", ["online", "compiled"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_or_the_line(kind, way):
    assert run(kind, way, few(OPERATORS, FEW, kind, way) + few(FUNCTIONS, FEW, kind, way)) == []


@pytest.mark.slow
@pytest.mark.parametrize("way", ["online", "compiled"])
@pytest.mark.parametrize("kind", KINDS)
def test_everything(kind, way):
    assert run(kind, way, (*OPERATORS, *FUNCTIONS)) == []


class Tries(nn.Module):
    """Goes on after an operation that fails in the stream's second call, or in all."""

    def __init__(self, always):
        super().__init__()
        self.table, self.always = nn.Embedding(4, 2), always

    def forward(self, x):
        index = (x * 0).long() + (9 if self.always else 0)
        try:
            y = self.table(index)
        except ds.DreamStreamError:
            y = None
        return x.cumsum(1) if y is None else x.cumsum(1) + y.sum(-1)


def test_a_forward_that_goes_on():
    online = ds.patch_module(Tries(always=True)).online()
    out = []
    for n, (sos, eos) in enumerate(((True, False), (False, True))):
        chunk = np.arange(3, dtype=np.float32) + 3 * n
        out += [online(ds.stream_tensor([chunk], ids=["a"], sos=sos, eos=eos))["a"].numpy()]
    assert np.array_equal(np.concatenate(out), np.arange(6).cumsum())
