"""The operators' integers as operations on int64 tensors.

An operator's counts are expressions of its inputs' pairs of *known* and *total* frames, which come from the C
registry as data. Here they become operations on tensors of any shape, one element per stream, so that an exported
graph computes the counts by itself. What no operator states stands in `Counter.step`, as in the engine's driver.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ..._core import Program

Pair = tuple[Tensor, Tensor]
"""Known and total frames of an edge, one element per stream."""

UNENDED = 1 << 40
"""A total beyond all streams', of one that has not ended."""

CONST, KNOWN, TOTAL, M, ADD, SUB, MUL, FLOORDIV, CEILDIV, MIN, MAX, SELECT = range(12)
"""csrc/ops/expr.h: the codes of nodes."""


class Counter:
    """Counts of edges at one moment, for streams that have ended or not; equal expressions are computed once."""

    def __init__(self, ended: Tensor | None = None, lasting: bool = False) -> None:
        self.ended = ended  #: Bool: which of the streams have ended; None: none has.
        #: Whether all streams become long enough for every edge to be there, whatever they would be now.
        self.lasting = lasting
        self._done: dict[Any, tuple[Any, tuple[Any, ...]]] = {}

    def start(self, frames: Sequence[Tensor]) -> list[Pair]:
        """Return the pairs of a graph's inputs, of which so many frames have come."""
        most = frames[0]
        for n in frames[1:]:
            most = self._do(MAX, most, n)
        begun = self._once(("begun", id(most)), (most,), lambda: most > 0)
        if self.ended is not None:
            begun = begun | self.ended
        return [(n, self._choose(begun, n, -1)) for n in frames]

    def step(self, program: Program, inputs: Sequence[Pair], kept: bool, needs_frames: bool) -> list[Pair]:
        """Return the pairs of an operator's outputs; a total of -1 is an edge that isn't there.

        The roots of `program` are known and total of each output, in turn. `kept` is whether the counts of output
        0, the only one, are those of input 0, and `needs_frames` whether a stream of no frames has no outputs, not
        even empty ones.
        """
        if kept and not needs_frames and all(total is inputs[0][1] for _, total in inputs):
            return [inputs[0]]
        least = inputs[0][1]
        for _, total in inputs[1:]:
            least = self._do(MIN, least, total)
        missing = self._below(least, 0)
        out = []
        roots = self._evaluate(program, inputs)
        for known, total in zip(roots[::2], roots[1::2]):
            total = self._do(MAX, self._full(total, missing), 0)
            if not self.lasting:
                none = missing
                if needs_frames:
                    none = none | self._below(self._do(MIN, inputs[0][1], total), 1)
                total = self._choose(none, -1, total)
            known = self._full(known, missing)
            if self.ended is not None:
                known = self._choose(self.ended, total, known)
            out.append((self._do(MAX, self._do(MIN, known, total), 0), total))
        return out

    def _below(self, value: Tensor, limit: int) -> Tensor:
        out: Tensor = self._once(("below", id(value), limit), (value,), lambda: value < limit)
        return out

    def _full(self, value: Any, like: Tensor) -> Tensor:
        """Return a constant for every stream."""
        if isinstance(value, torch.Tensor):
            return value
        key = "full", value, id(like)
        out: Tensor = self._once(key, (like,), lambda: torch.full_like(like, value, dtype=torch.int64))
        return out

    def _choose(self, condition: Tensor, then: Any, otherwise: Any) -> Any:
        if then is otherwise:
            return then
        key = ("choose", id(condition), _key(then), _key(otherwise))
        return self._once(key, (condition, then, otherwise), lambda: torch.where(condition, then, otherwise))

    def _evaluate(self, program: Program, inputs: Sequence[Pair]) -> list[Any]:
        nodes, roots = program
        values: list[Any] = []
        for code, a, b, c, k in nodes:
            if code == CONST:
                values.append(k)
            elif code == KNOWN:
                values.append(inputs[a][0])
            elif code == TOTAL:
                values.append(inputs[a][1])
            elif code == SELECT:
                values.append(self._select(values[a], values[b], values[c]))
            elif code == M:
                raise ValueError("counts don't depend on frames that are already out")
            else:
                values.append(self._do(code, values[a], values[b]))
        return [values[r] for r in roots]

    def _select(self, a: Any, then: Any, otherwise: Any) -> Any:
        if isinstance(a, int):
            return then if a > 0 else otherwise
        positive = self._once(("positive", id(a)), (a,), lambda: a > 0)
        return self._choose(positive, self._full(then, positive), self._full(otherwise, positive))

    def _do(self, code: int, a: Any, b: Any) -> Any:
        if isinstance(a, int) and not isinstance(b, int) and code in (ADD, MUL, MIN, MAX):
            a, b = b, a
        return self._once((code, _key(a), _key(b)), (a, b), lambda: COMPUTE[code](a, b))

    def _once(self, key: Any, operands: tuple[Any, ...], compute: Any) -> Any:
        # operands are held on to: while they live, nothing else has their id
        if key not in self._done:
            self._done[key] = (compute(), operands)
        return self._done[key][0]


def _key(value: Any) -> Any:
    return ("int", value) if isinstance(value, int) else id(value)


def _floor(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    return floored(torch.full_like(b, a) if isinstance(a, int) else a, b)


def floored(a: Tensor, b: Any) -> Tensor:
    """Return ``a // b`` of counts: by what is left over, for which ONNX has an operator that rounds down."""
    return torch.div(a - torch.remainder(a, b), b, rounding_mode="trunc")


def _least(a: Any, b: Any) -> Any:
    if isinstance(b, int):
        return min(a, b) if isinstance(a, int) else a.clamp(max=b)
    return torch.minimum(a, b)


def _most(a: Any, b: Any) -> Any:
    if isinstance(b, int):
        return max(a, b) if isinstance(a, int) else a.clamp(min=b)
    return torch.maximum(a, b)


#: Operations on ints, tensors, or one of each; of those that commute, a number comes second.
COMPUTE: dict[int, Callable[[Any, Any], Any]] = {
    ADD: operator.add,
    SUB: operator.sub,
    MUL: operator.mul,
    FLOORDIV: _floor,
    CEILDIV: lambda a, b: -_floor(-a, b),
    MIN: _least,
    MAX: _most,
}
