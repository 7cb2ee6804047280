"""Operators declared in Python: their integers as data, their values by a Python function.

They run offline and in eager online mode; a graph can't hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partialmethod
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from ..array.stream_tensor import StreamTensor
from ..array.tensor import Tensor
from ..errors import DTypeError, ModeError, ShapeError
from ..stream.edge import Edge, Request
from ..stream.rules import read_rate
from .segments import flatten

_CODES = {"const": 0, "known": 1, "total": 2, "m": 3, "+": 4, "-": 5, "*": 6, "//": 7, "min": 9, "max": 10}


class _Program:
    """Integer expressions, as nodes that refer to earlier ones."""

    def __init__(self) -> None:
        self.nodes: list[tuple[int, int, int, int, int]] = []

    def node(self, code: str, a: int = 0, b: int = 0, k: int = 0) -> Integer:
        self.nodes.append((_CODES[code], a, b, 0, k))
        return Integer(self, len(self.nodes) - 1)

    def lift(self, value: Any) -> Integer:
        if isinstance(value, Integer):
            return value
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise DTypeError(f"counts and need are made of integers, got {value!r}")
        return self.node("const", k=int(value))


class Integer:
    """An integer that counts or need are made of: `+`, `-`, `*`, `//` (rounded down), `min` and `max`."""

    def __init__(self, program: _Program, index: int) -> None:
        self._program, self._index = program, index

    def _with(self, code: str, other: Any, swap: bool = False) -> Integer:
        a, b = self, self._program.lift(other)
        a, b = (b, a) if swap else (a, b)
        return self._program.node(code, a._index, b._index)

    __add__ = __radd__ = partialmethod(_with, "+")
    __sub__, __rsub__ = partialmethod(_with, "-"), partialmethod(_with, "-", swap=True)
    __mul__ = __rmul__ = partialmethod(_with, "*")
    __floordiv__ = partialmethod(_with, "//")

    def min(self, other: Any) -> Integer:
        """Return the smaller of two."""
        return self._with("min", other)

    def max(self, other: Any) -> Integer:
        """Return the larger of two."""
        return self._with("max", other)

    def __bool__(self) -> bool:
        raise ModeError("counts and need must not branch: they are evaluated for every stream and length")


class Pair(NamedTuple):
    """What is known of one input: frames that no future changes, and its length if it ended now."""

    known: Integer
    total: Integer


class Window(NamedTuple):
    """Frames of one input of one stream.

    Attributes
    ----------
    frames : array or torch.Tensor of shape `(n, *features)`
        Frames ``at .. at + n``; read-only.
    at : int
        Absolute position of the first.
    total : int or None
        The stream's final length, once it has ended.
    """

    frames: Any
    at: int
    total: int | None


_FOREIGN: dict[type, Callable[[Op, Sequence[Any]], Any]] = {}


def set_foreign(kind: type, apply: Callable[[Op, Sequence[Any]], Any]) -> None:
    """Set what applies declared operators to another front end's tensors."""
    _FOREIGN[kind] = apply


class Op:
    """An operator of one's own, with integers of its own; runs offline and in eager online mode.

    Parameters
    ----------
    name : str
        For messages.
    counts : callable
        Takes a pair ``(known, total)`` per input and returns the output's ``(known, total)``, by
        integer arithmetic: how many frames are final, and how many there are if the streams ended now.
    need : callable
        Takes m and returns the first input frame that outputs >= m may read; a tuple for several inputs.
    forward : callable
        Takes a `Window` per input, then m0 and m1, and returns output frames m0 .. m1,
        ``(m1 - m0, *features)``. It indexes by absolute position only: ``w.frames[p - w.at]``.
    features : tuple of int, optional
        Shape of an output frame; the first input's by default.
    rate : number or Fraction
        Output frames per frame of the first input.

    Examples
    --------
    A centred difference, ``y[t] = x[t + 1] - x[t]``, one frame shorter than its input::

        difference = ds.Op(
            "difference",
            counts=lambda x: (x.known - 1, x.total - 1),
            need=lambda m: m,
            forward=lambda w, m0, m1: np.diff(w.frames[m0 - w.at : m1 + 1 - w.at], axis=0),
        )
        y = difference(x)               # in a forward, x (B, F, L)
    """

    def __init__(
        self,
        name: str,
        *,
        counts: Callable[..., tuple[Any, Any]],
        need: Callable[[Any], Any],
        forward: Callable[..., Any],
        features: Sequence[int] | None = None,
        rate: Any = 1,
    ) -> None:
        self.name = name
        self.features = None if features is None else tuple(int(f) for f in features)
        self.rate: Fraction = read_rate(rate, f"{name}: rate")
        self._counts, self._need, self.forward = counts, need, forward

    def core(self, inputs: Sequence[_core.Signature]) -> _core.Op:
        """Return the operator's integers for inputs of these signatures."""
        program = _Program()
        pairs = [Pair(program.node("known", i), program.node("total", i)) for i in range(len(inputs))]
        roots = [program.lift(v)._index for v in self._counts(*pairs)]
        backward = _Program()
        first = self._need(backward.node("m"))
        needs = [backward.lift(v)._index for v in (first if isinstance(first, tuple) else (first,))]
        dtype, shape, num, den = inputs[0]
        rate = Fraction(num, den) * self.rate
        output = (dtype, shape if self.features is None else self.features, rate.numerator, rate.denominator)
        return _core.Op.declare(inputs, [output], (program.nodes, roots), (backward.nodes, needs))

    def _bind(self, inputs: Sequence[_core.Signature]) -> _Bound:
        return _Bound(self.name, self.core(inputs), self.forward)

    def __call__(self, *inputs: Tensor) -> Any:
        """Apply the operator to tensors ``(B, F, L)`` (offline), or to streams inside a forward."""
        for kind, apply in _FOREIGN.items():
            if any(isinstance(x, kind) for x in inputs):
                return apply(self, inputs)
        if not any(x.is_stream for x in inputs):
            return self._offline(inputs)
        streams = [x.in_order() for x in inputs if isinstance(x, StreamTensor)]
        if len(streams) != len(inputs) or any(x.edge is None for x in streams):
            raise ModeError(f"{self.name} works on streams inside an online module, or on plain tensors")
        edges: list[Edge] = [x.edge for x in streams if x.edge is not None]
        bound = self._bind([e.signature for e in edges])
        request = Request(self.name, {}, edges, [x.value for x in streams], op=bound)
        ((value, edge),) = edges[0].entry.run(request)
        return streams[0].made(value, edge)

    def _offline(self, inputs: Sequence[Tensor]) -> Tensor:
        arrays = [np.moveaxis(x.numpy(), -1, 1) for x in inputs]
        if any(a.ndim < 2 for a in arrays):
            raise ShapeError(f"{self.name}: expected (B, ..., L), got {[x.shape for x in inputs]}")
        bound = self._bind([(a.dtype.name, a.shape[2:], 1, 1) for a in arrays])
        n_rows = arrays[0].shape[0]
        counts = [np.tile([0, -1, a.shape[1], a.shape[1]], (n_rows, 1)) for a in arrays]
        ended = np.ones(n_rows, bool)
        out = bound.counts(counts, ended)
        values = [np.ascontiguousarray(a).reshape(-1, *a.shape[2:]) for a in arrays]
        results, _ = bound.run(values, counts, out, ended, None, (), False)
        frames = results[0].reshape(n_rows, -1, *results[0].shape[1:])
        return Tensor(np.ascontiguousarray(np.moveaxis(frames, 1, -1)))


class _Bound:
    """A declared operator for given inputs: what an eager call runs."""

    whole = lockstep = carries = same_counts = False
    in_python = True

    def __init__(self, name: str, core: _core.Op, forward: Callable[..., Any]) -> None:
        self.name, self.core, self.forward = name, core, forward
        self.outputs, self.n_values = core.outputs, core.n_values
        self.counts = core.counts

    def run(
        self,
        values: Any,
        inputs: Any,
        outputs: Any,
        ended: Any,
        states: Any,
        weights: Any,
        blas: bool,
        ids: Sequence[str] = (),
        prepared: None = None,
    ) -> tuple[list[Any], list[Any]]:
        """As `_core.Op.run`: each row's state has the kept frames of each input."""
        kept = self.core.kept(inputs, outputs)
        dtype, features, _, _ = self.outputs[0]
        parts, new = [np.zeros((0, *features), dtype)], []
        for r in range(len(ended)):
            windows, tails = [], []
            before = flatten(states[r]) if states is not None else None
            for i, value in enumerate(values):
                first, last = (int(n) for n in kept[i][r])
                start, stop = inputs[i][r, 0], inputs[i][r, 2]
                offset = int((inputs[i][:r, 2] - inputs[i][:r, 0]).sum())
                fresh = value[offset : offset + int(stop - start)]
                n_bytes = int(start - first) * int(np.prod(value.shape[1:], dtype=int)) * value.itemsize
                old = np.frombuffer((before or b"")[:n_bytes], value.dtype).reshape(-1, *value.shape[1:])
                before = (before or b"")[n_bytes:]
                frames = np.concatenate([old, fresh])
                frames.flags.writeable = False
                windows.append(Window(frames, first, int(inputs[i][r, 3]) if ended[r] else None))
                tails.append(frames[last - first :].copy())
            m0, m1 = int(outputs[0][r, 0]), int(outputs[0][r, 2])
            if m1 > m0:
                made = np.asarray(self.forward(*windows, m0, m1))
                if made.shape != (m1 - m0, *features):
                    raise ShapeError(f"{self.name}: forward returned {made.shape} for frames {m0} to {m1}")
                parts.append(made.astype(dtype, copy=False))
            new.append(None if ended[r] else {f"kept.{i}": t for i, t in enumerate(tails) if len(t)} or None)
        return [np.concatenate(parts)], new
