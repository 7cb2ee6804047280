"""Tensors that are only noted, where they are written into.

Those of one number become streams. All others hold a new value, and whoever noted the old one has a copy of it
(`kept`); what shares their memory, which would see the change, is refused from then on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partialmethod, wraps
from typing import Any, cast
from weakref import ref

from ..errors import NotStreamableError
from ..stream.rules import Token
from ..stream.where import user_line
from .stream_tensor import StreamTensor

#: Element types of Python's numbers.
_KINDS = {bool: "bool", float: "float32", int: "int64"}


class Shared:
    """What is noted of a tensor, and which others share its memory."""

    #: What it was taken of, by which method with which arguments, and what was taken of it.
    _source: tuple[Any, ...] | None = None
    _taken: tuple[Callable[[], Any], ...] = ()

    def _shares(self, of: Shared, *how: Any) -> None:
        """Let it share the memory of another, of which it was taken by a method with arguments."""
        self._source = (of, *how)
        of._taken = (*of._taken, ref(self))

    def _root(self) -> Shared:
        root = self
        while root._source is not None:
            root = root._source[0]
        return root

    def is_alone(self) -> bool:
        """Whether no other tensor shares its memory."""
        return self._source is None and not any(at() is not None for at in self._taken)

    def hold(self, out: Any) -> Any:
        """Be what was written into it; parts of it, and what it is a part of, are refused from now on."""
        if not isinstance(out, Shared) or out is self:
            return out
        family, line = [self._root()], user_line()
        for member in family:
            family += [x for x in (at() for at in member._taken) if x is not None]
        for member in family:
            if member is not self:
                member.__dict__, member.__class__ = {"line": line}, _gone(cast("Any", type(member)))
        own: Any = self
        own.__class__, own.__dict__ = type(out), {**out.__dict__, "_source": None, "_taken": ()}
        return self

    def written(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Hold what a method in place, or an operator, gives."""
        plain = getattr(kept(self), f"__{name[3:]}" if name.startswith("__") else name[:-1], None)
        return NotImplemented if plain is None else self.hold(plain(*args, **kwargs))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
    setattr(Shared, f"__i{_name}__", partialmethod(Shared.written, f"__i{_name}__"))


@lru_cache(maxsize=64)
def _gone(kind: type) -> type:
    """Return the class of tensors of a class that others have written into."""

    def refuse(self: Any, name: str) -> Any:
        raise NotStreamableError(
            f"positions, a mask or scores are used at {user_line()}, whose memory was written into by another "
            f"name, at {object.__getattribute__(self, '__dict__')['line']}: compute a new tensor there instead "
            "(m = m & other)"
        )

    return type(kind.__name__, (kind,), {"__getattribute__": refuse})


def kept(x: Any) -> Any:
    """Return what stays as it is now, whatever is written into it."""
    if not isinstance(x, Shared):
        return x
    out: Any = object.__new__(type(x))
    out.__dict__ = x.__dict__
    return out


def holds_nowhere(mask: Any) -> bool:
    """Whether a mask is known to hold nowhere, at whatever length."""
    if hasattr(type(mask), "everywhere"):
        return mask.everywhere() in (False, 0)
    return isinstance(mask, Filled) and not mask.position and mask.value is False


class Filled(Shared):
    """What `Symbolic` does where it holds one number, and its memory is shared."""

    value: Any
    roles: tuple[Any, ...]
    length: Any
    position: bool
    kind: str | None
    _refuse: Callable[[str], Any]
    _otherwise: Callable[..., Any]

    @property
    def is_filled(self) -> bool:
        """Whether it holds one number for all frames of streams."""
        number = isinstance(self.value, (bool, int, float))
        return number and not self.position and self.roles.count("L") == 1

    def as_stream(self) -> StreamTensor:
        """Return a stream of the number."""
        if not self.is_filled:
            self._refuse("a stream of the values")
        kind = self.kind or _KINDS[type(self.value)]
        of: Any = type(self)
        out: Any = of(0, self.roles, self.length, True).stream("int64" if kind == "bool" else kind, [1, 0])
        if kind == "bool":
            out = out.eq(0) if self.value else out.ne(0)
        elif self.value:
            out = out + self.value
        made: StreamTensor = out
        return made

    def become(self, mask: Any = None) -> None:
        """Be the stream that this stands for, as becomes all that shares its memory: it will be written into.

        Where it is written into under a mask that holds nowhere it stays as it is.
        """
        if holds_nowhere(getattr(mask, "_inner", None)):
            return
        root: Any = self._root()
        if not root.is_filled:
            raise NotStreamableError(
                f"positions or lengths are written into at {user_line()}, and others share their memory: "
                "compute a new tensor instead (i = i + 1)"
            )
        root._turn(root.as_stream())

    def is_floating_point(self) -> bool:
        """Whether it holds real numbers."""
        return "float" in str(cast("Any", self).dtype)

    def full_like(self, fill_value: Any, dtype: Any = None, **_: Any) -> Any:
        """Return another number in its shape."""
        of: Any = type(self)
        number = fill_value.item() if hasattr(fill_value, "item") else fill_value
        return of(number, self.roles, self.length).to(dtype or cast("Any", self).dtype)

    zeros_like = partialmethod(full_like, 0)
    ones_like = partialmethod(full_like, 1)

    def masked_fill(self, mask: Any, value: Any) -> Any:
        """Return it where a mask is known to hold nowhere."""
        return self if holds_nowhere(mask) else self._otherwise("masked_fill", (mask, value), {})

    def any(self, dim: Any = None, keepdim: bool = False) -> Any:
        """Return whether one is true: all are alike."""
        if keepdim or self.position or isinstance(self.value, Token):
            return self._refuse("a reduction")
        at = None if dim is None else dim % len(self.roles)
        of: Any = type(self)
        return of(bool(self.value), () if at is None else self.roles[:at] + self.roles[at + 1 :], self.length)

    all = any

    def numel(self) -> Any:
        """Return the number of elements, a token."""
        return math.prod(cast("Any", self).shape)

    def tolist(self) -> Any:
        """Return the lengths of streams as a list, of one: each stream is by itself."""
        return [self.value] if self.roles == ("B",) and not self.position else self._refuse("a list")

    def _turn(self, stream: StreamTensor) -> None:
        taken = [x for x in (at() for at in self._taken) if x is not None]
        own: Any = self
        own.__class__, own.__dict__ = StreamTensor, stream.__dict__
        for x in taken:
            _, name, args, kwargs = x._source
            view = getattr(own, name)(*args, **kwargs)
            own._views = [(ref(x) if at() is view else at, certain) for at, certain in own._views]
            x._turn(view)

    def __setitem__(self, index: Any, value: Any) -> None:
        if not self.is_filled:
            self.hold(self._otherwise("__setitem__", (index, value), {}))
            return
        self.become()
        self[index] = value

    def _in_place(self, name: str, other: Any) -> Any:
        if not self.is_filled:
            return self.written(name, other)
        self.become()
        return getattr(self, name)(other)


def sharing(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Let what a method of this name gives share the tensor's memory."""

    @wraps(method)
    def taken(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = method(self, *args, **kwargs)
        if isinstance(out, Filled) and out is not self:
            out._shares(self, name, args, kwargs)
        return out

    return taken
