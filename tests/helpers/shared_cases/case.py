"""A case: a module written once for torch and dreamstream, what goes into it, and what it says offline."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from inspect import signature
from typing import Any

import numpy as np
import torch

import dreamstream as ds
from dreamstream import nn
from dreamstream.nn import functional as F
from dreamstream.stream.tree import leaves

Array = Any
Make = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Given:
    """One input of a case.

    Attributes
    ----------
    dims : tuple
        As `ds.compile` takes them: "B", "L", sizes.
    rate : Fraction
    below : int
        Whole numbers from 0 to below this one, as int64; 0: real numbers, as float32.
    """

    dims: tuple[Any, ...]
    rate: Fraction = Fraction(1)
    below: int = 0

    @property
    def dtype(self) -> str:
        return "int64" if self.below else "float32"

    def frames(self, rng: np.random.Generator, n: int) -> Array:
        """Return n random frames ``[frames][features...]``."""
        shape = (n, *(d for d in self.dims if isinstance(d, int)))
        return rng.integers(0, self.below, shape) if self.below else rng.standard_normal(shape, np.float32)

    def arranged(self, frames: Array) -> Array:
        """Bring frames into the input's order of dimensions, without B."""
        return np.ascontiguousarray(np.moveaxis(frames, 0, without_l(self.dims)))


def without_l(dims: Sequence[Any]) -> int:
    """Return the place of L where B is left out; 0 where there is none: one frame, in front."""
    kept = [d for d in dims if d != "B"]
    return kept.index("L") if "L" in kept else 0


@dataclass(frozen=True)
class Case:
    """A module, its inputs, and what is known of it.

    Attributes
    ----------
    make : function (nn, F, ds) -> module
        Of ``torch.nn``, its functions and ``torch``, or of dreamstream's.
    inputs : tuple of Given
        In the order of forward's arguments.
    native : bool
        Whether dreamstream has all that it is made of.
    reach : int
        Frames within which everything that can happen has happened.
    multiple : int
        Lengths are multiples of it.
    delay : int, optional
        What an engine must say.
    whole : bool
        Whether it needs whole streams, and therefore waits for them.
    exports, onnx : bool
        Whether an exported graph can hold it, and whether ONNX has a form of it.
    buffer_limit, skew : int, optional
        What `patch_module` and `compile` are told besides.
    offline : function, optional
        As `make`, where what it must say offline is said by another module.
    of_none : bool
        Whether it is compared of streams without frames: an if on a length is looked at for those that have some.
    """

    name: str
    make: Make
    inputs: tuple[Given, ...]
    native: bool = True
    reach: int = 6
    multiple: int = 1
    delay: int | None = None
    whole: bool = False
    exports: bool = True
    onnx: bool = True
    buffer_limit: int | None = None
    skew: int = 0
    offline: Make | None = None
    of_none: bool = True

    def __str__(self) -> str:
        return self.name

    @property
    def options(self) -> dict[str, Any]:
        """What `patch_module` and `compile` are told."""
        waits = {"unstreamable": "buffer", "buffer_limit": self.buffer_limit} if self.whole else {}
        return {"skew": self.skew, **waits}

    def names(self) -> list[str]:
        """Return the names of forward's arguments."""
        return list(signature(theirs(self).forward).parameters)[: len(self.inputs)]

    def spec(self) -> tuple[Any, dict[str, Any]]:
        """Return what `ds.compile` takes: the spec, and rates and types as options."""
        if len(self.inputs) == 1:
            (x,) = self.inputs
            return x.dims, {"rate": x.rate, "dtype": x.dtype}
        named = dict(zip(self.names(), self.inputs))
        more = {"rate": {n: x.rate for n, x in named.items()}, "dtype": {n: x.dtype for n, x in named.items()}}
        return {n: x.dims for n, x in named.items()}, more


# ---------------------------------------------------------------- the module
def theirs(case: Case, make: Make | None = None) -> torch.nn.Module:
    """Return the torch module in eval mode, its weights drawn from the case's name."""
    # torch.manual_seed formats the stack for each kind of device that is not there: milliseconds
    torch.default_generator.manual_seed(zlib.crc32(case.name.encode()))
    model: torch.nn.Module = (make or case.make)(torch.nn, torch.nn.functional, torch).eval()
    rng = np.random.default_rng(len(case.name))
    with torch.no_grad():
        for _, buffer in sorted(model.named_buffers()):
            if buffer.is_floating_point():
                buffer.copy_(torch.from_numpy(rng.random(tuple(buffer.shape)) + 0.1))
    return model


def twin(case: Case) -> nn.Module:
    """Return dreamstream's own module with the same weights."""
    model: nn.Module = case.make(nn, F, ds).eval()
    model.load_state_dict({key: value.numpy() for key, value in theirs(case).state_dict().items()})
    return model


# ---------------------------------------------------------------- what it says offline
@lru_cache(maxsize=64)
def _models(case: Case) -> tuple[torch.nn.Module, torch.nn.Module]:
    return theirs(case, case.offline), theirs(case, case.offline).double()


def offline(case: Case, arrays: Sequence[Array]) -> tuple[list[Any], list[Any]] | None:
    """Return torch's outputs on one whole stream, in float32 and in float64; None where it raises."""
    said = []
    for model, dtype in zip(_models(case), (torch.float32, torch.float64)):
        rows = [
            torch.from_numpy(np.expand_dims(x.arranged(a), x.dims.index("B"))) for x, a in zip(case.inputs, arrays)
        ]
        try:
            with torch.no_grad():
                said.append(leaves(model(*(r.to(dtype) if r.is_floating_point() else r for r in rows))))
        except (RuntimeError, ValueError, IndexError):
            return None
    return said[0], said[1]


def canonical(y: torch.Tensor, names: Sequence[Any]) -> Array:
    """Bring a plain output of one stream, with these names, into ``[frames][features...]``."""
    row = np.take(y.numpy(), 0, axis=list(names).index("B"))
    return np.moveaxis(row, without_l(names), 0) if "L" in names else row[None]


def expected(
    case: Case, arrays: Sequence[Array], names: Sequence[Sequence[Any]], shapes: Sequence[tuple[int, ...]]
) -> tuple[list[Array], list[Array]] | None:
    """Return what torch says of one whole stream, in float32 and in float64; None where it can't tell.

    Where torch raises because a stream is too short, or empty, there are no frames; with several inputs or
    outputs, or another module's word, it can't tell of which.

    Parameters
    ----------
    names : list of list of str
        The outputs' dimensions.
    shapes : list of tuple of int
        Shape of their frames, for where there are none.
    """
    both = offline(case, arrays)
    one_of_one = len(names) == len(arrays) == 1 and case.offline is None
    if both is None and one_of_one:
        nothing = [np.zeros((0, *s), np.float32) for s in shapes]
        return nothing, nothing
    some = [bool(len(a)) for a in arrays]
    if both is None or any(some) != all(some) or not (any(some) or case.of_none):
        return None
    single, double = ([canonical(y, n) for y, n in zip(said, names, strict=True)] for said in both)
    return single, double


def require_close(case: Case, got: Array, single: Array, double: Array, what: str) -> None:
    """Hold an output against offline: an operator within 1e-5, a model within 4 times float32's own error."""
    assert got.shape == double.shape, f"{what}: shape {got.shape}, offline {double.shape}"
    if not got.size:
        return
    if double.dtype.kind != "f":
        assert np.array_equal(got, double), what
        return
    assert np.array_equal(np.isnan(got), np.isnan(double)), f"{what}: NaN elsewhere than offline"
    got, single, double = (np.nan_to_num(y) for y in (got, single, double))
    model = _models(case)[0]
    if type(model).__module__.startswith("torch.nn.modules") and not list(model.children()):
        gap, bound = np.abs(got - single).max(), 1e-5 * max(1.0, np.abs(single).max())
    else:
        gap = np.abs(got - double).max()
        bound = max(4 * np.abs(single - double).max(), 1e-6 * np.abs(double).max())
    assert gap <= bound, f"{what}: off by {gap:.3g}, more than {bound:.3g}"
