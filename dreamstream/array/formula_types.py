"""Element types of tensors that say of lengths what they are."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from ..stream.rules import Length, Quotient, Token

#: Element types of NumPy.
TYPES: dict[Any, Any] = {bool: np.dtype(bool), float: np.dtype(np.float32), int: np.dtype(np.int64)}
KINDS = ("bool", "float32", "float64", "int64")
#: Types in which lengths are no integers as they are, or wrap around early: with such a one nothing is computed.
_LAST = ("bool", "float16", "bfloat16", "int16", "int8", "uint8")
_OLD_NAMES = {"FloatTensor": "float32", "DoubleTensor": "float64", "LongTensor": "int64", "BoolTensor": "bool"}
TYPES.update((name, np.dtype(name)) for name in KINDS)


class NoFormula(Exception):
    """No formula says what is asked for. It is caught in every call of a mask, so it does not look for a line."""


class Typed:
    """A formula's element type: that of its value, or another one, its `kind`."""

    @property
    def dtype(self: Any) -> Any:
        """Element type, of the library that the streams belong to."""
        kind = builtins.type(self.value)
        if kind not in (builtins.bool, builtins.float):
            kind = builtins.float if isinstance(self.value, Quotient) else builtins.int
        return self.library.types[self.kind or kind]

    def kind_beside(self: Any, other: Any) -> str | None:
        """Return the type of what a length becomes with another, or a number; None where its value says it."""
        kinds = self.kind, getattr(other, "kind", None)
        if any(kind in _LAST for kind in kinds):
            raise NoFormula("arithmetic")
        if kinds == (None, None) and builtins.type(other) is not builtins.float:
            return None
        met: str = self.library.meeting(self.dtype, other.dtype if isinstance(other, Typed) else other)
        return met

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Return it with another element type; on another device it is what it is."""
        given = (a.dtype if hasattr(a, "dim") else a for a in (*args, kwargs.get("dtype"), kwargs.get("other")))
        names = [str(a).rpartition(".")[2] for a in given]
        names = [_OLD_NAMES.get(n, n) for n in names]
        if isinstance(self.value, Length):
            named = next((n for n in names if n in self.library.types), None)
            return self if named is None else self._as(self.value, named)
        kind = next((k for k in ("float", "int", "bool") if any(k in n for n in names)), None)
        if kind is None or isinstance(self.value, Token):
            return self
        if self.position and kind != "int" and not {"float", "float32"} & {*names}:  # another width, or truths
            return self._otherwise("to", args, kwargs)
        value = {"float": float, "int": builtins.int, "bool": builtins.bool}[kind](self.value)
        widths = KINDS if self.position else self.library.types
        out = self._as(value, next((n for n in names if n in widths), None))
        return self if (out.dtype, builtins.type(out.value)) == (self.dtype, builtins.type(self.value)) else out

    type = to

    def _as(self: Any, value: Any, kind: str | None) -> Any:
        return builtins.type(self)(value, self.roles, self.length, self.position, kind)

    def float(self) -> Any:
        """Return it as real numbers."""
        return self.to("float32")

    def bool(self) -> Any:
        """Return it as truths."""
        return self.to("bool")


def _cast(name: str, kind: str) -> None:
    def method(self: Any) -> Any:
        if isinstance(self.value, Length) and kind in self.library.types:
            return self.to(kind)
        return self if name in ("long", "int") else self._otherwise(name, (), {})

    setattr(Typed, name, method)


for _name, _kind in (
    ("long", "int64"), ("int", "int32"), ("short", "int16"), ("char", "int8"), ("byte", "uint8"),
    ("half", "float16"), ("double", "float64"),
):  # fmt: skip
    _cast(_name, _kind)
