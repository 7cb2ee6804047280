"""Attention written by hand: what the product of queries and keys is until it meets values.

``softmax(q @ k.transpose(-2, -1) * s + mask, -1) @ v`` has as many elements as pairs of frames, which no stream
can keep. So the product is only noted, with what is done to it, and the product with values is the operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NoReturn

import numpy as np

from ..errors import NotStreamableError
from ..operations.refusals import MASKED
from ..stream.context import seen_by
from ..stream.pairs import Recognised, Unrecognised
from ..stream.where import user_line
from . import hook

__all__ = ["Scores", "attend", "scores_of"]

SERVES = (
    "scores of attention are scaled, masked, given terms by position, brought through softmax and multiplied with "
    "values"
)


def attend(
    q: Any,
    k: Any,
    v: Any,
    found: Recognised,
    scale: float,
    bias: Any = None,
) -> Any:
    """Return the attended values ``(B, H, L, E)`` or ``(B, L, E)``.

    Parameters
    ----------
    q, k, v : tensors
        ``(B, heads, L, features)`` or ``(B, L, features)``.
    found : Recognised
        What queries see, and what is added to scores.
    scale : float
    bias : tensor, optional
        What is added to scores.
    """
    alone = q.ndim == 3
    q, k, v = (x.unsqueeze(1) for x in (q, k, v)) if alone else (q, k, v)
    attributes: dict[str, Any] = {**found.context.attributes, "scale": scale}
    if bias is not None:
        attributes |= {"first": found.first, "beyond": "linear" if found.linear else "constant"}
    (out,) = hook.apply("attention", attributes, (q, k, v), () if bias is None else (bias,), ("B", 0, "L", 1))
    return out.squeeze(1) if alone else out


def scores_of(x: Any, other: Any) -> Scores | None:
    """Return x @ other where these are queries and transposed keys of one attention; None where they are not."""
    if not getattr(other, "is_stream", False) or not hasattr(other, "dims"):
        return None
    n = len(x.dims)
    if n not in (3, 4) or len(other.dims) != n or x.dims[0] != "B" or other.dims[0] != "B":
        return None
    if x.dims[-2] != "L" or other.dims[-1] != "L":
        return None
    return Scores(x, other.transpose(-2, -1))


class Scores:
    """The products of queries and keys.

    Parameters
    ----------
    q, k : StreamTensor
        ``(B, heads, L, features)`` or ``(B, L, features)``.
    """

    is_stream = True
    dropping: Callable[[float], Any]  # within what it gives weights are dropped

    def __init__(self, q: Any, k: Any) -> None:
        self.q, self.k = q, k
        self.scale = 1.0
        self.steps: list[tuple[str, Any, Any]] = []  # done to zeros, they give what is added
        self.soft = False
        self.p = 0.0  # of dropout

    # ------------------------------------------------------------------ what it looks like
    @property
    def shape(self) -> tuple[Any, ...]:
        return (*self.q.shape[:-1], self.k.shape[-2])

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    @property
    def ndim(self) -> int:
        return int(self.q.ndim)

    def dim(self) -> int:
        return self.ndim

    @property
    def value(self) -> Any:
        return None

    @property
    def dims(self) -> Any:
        return self.q.dims

    @property
    def features(self) -> Any:
        return self.q.features

    # ------------------------------------------------------------------ what is done to it
    def _with(self, *step: Any, scale: float = 1.0) -> Scores:
        if self.soft:
            self._misuse(f"{step[0] if step else 'scaled'} behind softmax")
        out = self._copy()
        out.scale *= scale
        out.steps = [*self.steps, step] if step else self.steps
        return out

    def _copy(self) -> Scores:
        out = object.__new__(type(self))
        out.__dict__.update(self.__dict__)
        return out

    def mul(self, other: Any) -> Scores:
        factor = _number(other)
        if factor is None:
            self._misuse("multiplied by what is no number")
        return self._with("mul", factor, None, scale=factor)

    __mul__ = __rmul__ = mul

    def div(self, other: Any) -> Scores:
        divisor = _number(other)
        if divisor is None:
            self._misuse("divided by what is no number")
        return self.mul(1 / divisor)

    __truediv__ = div

    def add(self, other: Any, alpha: float = 1) -> Scores:
        number = _number(other)
        return self if number is not None else self._with("add", self._pairs(other), alpha)

    __add__ = __radd__ = add

    def sub(self, other: Any) -> Scores:
        return self.add(other, -1)

    __sub__ = sub

    def masked_fill(self, mask: Any, value: Any) -> Scores:
        if _number(mask) == 0:  # it is known to hold nowhere
            return self
        if self.soft:
            return self._hidden(mask, value)
        return self._with("fill", self._pairs(mask), _number(value))

    def filled_where(self, mask: Any, value: Any) -> Scores:
        """Return the scores where a mask holds, a number elsewhere."""
        if _number(mask) == 1:
            return self
        return self._with("keep", self._pairs(mask), _number(value))

    def softmax(self, dim: int = -1, *_: Any, **__: Any) -> Scores:
        if dim not in (-1, self.ndim - 1) or self.soft:
            self._misuse(f"brought through softmax along dimension {dim}, which is not that of the keys")
        out = self._copy()
        out.soft = True
        return out

    def dropout(self, p: float = 0.5, training: bool = True, inplace: bool = False) -> Scores:
        if not self.soft:
            self._misuse("dropped before softmax")
        out = self._copy()
        out.p = p if training else 0.0
        return out

    def _same(self, *_: Any, **__: Any) -> Scores:
        return self

    to = type_as = float = double = half = bfloat16 = contiguous = clone = type = _same

    def _hidden(self, mask: Any, value: Any) -> Scores:
        """Zero what softmax has made zero already, as is done where a row sees no key."""
        masked = Scores(self.q, self.k)._with("fill", self._pairs(mask), -math.inf)
        if _number(value) != 0 or masked._said().context != self._said().context:
            self._misuse("masked behind softmax otherwise than before")
        return self

    def _pairs(self, x: Any) -> Any:
        if not hasattr(x, "says"):
            raise NotStreamableError(f"scores of attention at {user_line()}: {MASKED.reason}; {MASKED.remedy}")
        return x

    # ------------------------------------------------------------------ what becomes of it
    def matmul(self, v: Any) -> Any:
        """Return the attended values."""
        if not self.soft or not getattr(v, "is_stream", False):
            self._misuse("multiplied before softmax")
        found, programs, q = self._said(), self._programs(), self.q
        bias = None if found.bias is None else programs[0].constant(found, self.steps, self.k)
        ends = min((x.ends for x in programs if x.ends is not None), default=None)
        if ends is not None:
            (q,) = hook.apply("limit", {"frames": ends, "of": "table"}, (q,), (), q.dims)
        with self.dropping(self.p) if self.p else nullcontext():
            return attend(q, self.k, v, found, self.scale, bias)

    __matmul__ = bmm = matmul

    def _programs(self) -> list[Any]:
        return [x for _, x, _ in self.steps if hasattr(x, "says")]

    def _said(self) -> Recognised:
        """Return what the steps say of attention."""
        programs = self._programs()
        said = seen_by("attention", bool(programs))
        if not programs:
            return Recognised(said)
        try:
            found: Recognised = programs[0].says(self.steps, self.k)
            return found
        except Unrecognised as error:
            remedy = MASKED.words[1]
            raise NotStreamableError(
                f"the mask of attention at {user_line()} does not stream: {error}; {remedy}"
            ) from None

    def as_output(self) -> NoReturn:
        """Refuse to be what a forward returns."""
        self._misuse("returned")

    def _misuse(self, use: str) -> NoReturn:
        raise NotStreamableError(f"scores of attention are {use}, at {user_line()}; {SERVES}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("dtype", "device"):
            raise AttributeError(name)
        return self._misuse(f"asked for {name}")


def _number(x: Any) -> Any:
    """Return a number, or a constant of one element as one; None of anything else."""
    if isinstance(x, (int, float)):
        return float(x)
    if getattr(x, "is_stream", None) is False and math.prod(x.shape) == 1:
        return float(np.asarray(x.numpy()).reshape(()))
    return None
