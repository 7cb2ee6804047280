"""Tensors that have no values yet, where they are written into.

Those of one number become streams. All others hold a new value, and what was computed of the old one has a copy of
it (`kept`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partialmethod, wraps
from typing import Any
from weakref import ref

import numpy as np

from ..stream.foreign import inner_of
from ..stream.rules import Length, Token
from .frame_numbers import number_in
from .stream_tensor import StreamTensor

#: Element types of Python's numbers.
_KINDS = {bool: "bool", float: "float32", int: "int64"}


class Whatever(list[Any]):
    """Tensors of a cache key that holds whatever the values are of what is learned."""


class SharesMemory:
    """A tensor without values, the variable that a forward holds; others may share its memory.

    A write makes it another value, as it does all that share its memory. What was computed of it before does not
    change, since that holds a copy (`kept`).
    """

    #: The tensor of which it is a view, with the function or method and its arguments; and its own views.
    _source: tuple[Any, ...] | None = None
    _taken: tuple[Callable[[], Any], ...] = ()

    def _shares(self, of: SharesMemory, *how: Any) -> None:
        """Record that it is a view of another, made by a function or method with arguments."""
        self._source = (of, *how)
        of._taken = (*of._taken, ref(self))

    def shares(self) -> bool:
        """Whether it shares the memory of what it was taken of, or of a constant."""
        return self._source is not None

    def apart(self) -> Any:
        """Return a tensor of the same value that shares nothing."""
        out = kept(self)
        out.__dict__ = {**self.__dict__, "_source": None, "_taken": ()}
        return out

    def hold(self, out: Any) -> Any:
        """Hold what was written, in this tensor and in all that share its memory."""
        if not isinstance(out, (SharesMemory, StreamTensor)) or out is self:
            return out
        if self.shares():
            of, *source = self._source or (self,)
            of.hold(self._within(of, out, *source))
        else:
            self._become(out)
        return self

    def _become(self: Any, new: Any) -> None:
        """Hold another value, or be another tensor; all views become the same views of that."""
        taken = [x for x in (at() for at in self._taken) if x is not None and x.shares()]
        own = {"_source": self._source, "_taken": self._taken}
        self.__class__, self.__dict__ = type(new), new.__dict__
        if isinstance(new, SharesMemory):
            self.__dict__ = {**new.__dict__, **own}
        for x in taken:
            view = x._retaken(self, *x._source[1:])
            if isinstance(self, StreamTensor):
                self._views = [(ref(x) if at() is view else at, certain) for at, certain in self._views]
            x._become(view)

    def _retaken(self, of: Any, *source: Any) -> Any:
        """Return the same view of another tensor."""
        how, args, kwargs = source
        if isinstance(how, str):
            return getattr(of, how)(*args, **kwargs)
        if isinstance(of, StreamTensor):
            return own_method(of, how)(of, *args, **kwargs)
        return of.library.defer(how, (of, *args), kwargs)

    def _within(self, of: Any, out: Any, *source: Any) -> Any:
        """Return the value of the whole of which this is a view, once `out` is written into the view."""
        library, (how, args, kwargs) = of.library, source
        how = getattr(library.tensor, how) if isinstance(how, str) else how
        return library.defer(with_part(how), (of, out, *args), kwargs)

    def written(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Hold the result of a method that writes in place, or of an operator such as ``+=``."""
        plain = getattr(self, f"__{name[3:]}" if name.startswith("__") else name[:-1], None)
        return NotImplemented if plain is None else self.hold(plain(*args, **kwargs))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
    setattr(SharesMemory, f"__i{_name}__", partialmethod(SharesMemory.written, f"__i{_name}__"))


@lru_cache(maxsize=256)
def with_part(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that writes into a part of a copy of its first argument, and gives the whole."""

    @wraps(view, assigned=())
    def put(whole: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        whole = whole.clone()
        own_method(whole, view)(whole, *args, **kwargs)[...] = value
        return whole

    return put


@lru_cache(maxsize=256)
def to_a_copy(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that writes into a copy of its first argument, and gives it."""

    @wraps(func)
    def written(x: Any, *args: Any, **kwargs: Any) -> Any:
        x = x.clone()
        own_method(x, func)(x, *args, **kwargs)
        return x

    return written


def own_method(x: Any, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method of that name that a stream has in place of the library's tensors'."""
    if not isinstance(x, StreamTensor) or hasattr(method, "is_part"):  # a part's function asks for its whole's
        return method
    return getattr(type(x), method.__name__, method)


def kept(x: Any) -> Any:
    """Return a copy that keeps the value of now, whatever is written into the tensor later."""
    if not isinstance(x, SharesMemory):
        return x
    out: Any = object.__new__(type(x))
    out.__dict__ = x.__dict__
    return out


def gives_several(method: Any) -> bool:
    """Whether a method of the library's tensors gives several tensors."""
    return str(getattr(method, "__annotations__", {}).get("return")).startswith(("tuple", "Extreme"))


def holds_nowhere(mask: Any) -> bool:
    """Whether a mask is known to hold nowhere, at whatever length."""
    return hasattr(type(mask), "everywhere") and mask.everywhere() in (False, 0)


class Formula:
    """A function of a value and a length that gives a tensor of the value, to which positions may be added.

    The `roles` of its dimensions are "B", "L" or an int, its size. With `position` element l along L has l more.
    `kind` is the element type, where that is not the one that the value has.
    """

    __slots__ = ("kind", "position", "roles")
    __name__ = "full"

    def __init__(self, roles: tuple[Any, ...], position: bool, kind: str | None) -> None:
        self.roles, self.position, self.kind = roles, position, kind

    def __call__(self, value: Any, length: int, rows: int) -> Any:
        """Return the array for a number of frames and of streams."""
        out = np.full([rows if r == "B" else length if r == "L" else r for r in self.roles], value)
        if self.position:
            at = self.roles.index("L")
            out = out + np.arange(length).reshape([-1 if i == at else 1 for i in range(len(self.roles))])
        return out.astype("float64" if self.kind == "float64" else "float32") if out.dtype.kind == "f" else out


#: Makes formulas: equal ones are the same.
formula = lru_cache(maxsize=1024)(Formula)


class Filled:
    """The part of `Symbolic` for its values, for tensors of one number, and for sharing memory."""

    _source: Any
    _shares: Any

    @property
    def is_filled(self: Any) -> bool:
        """Whether it holds one number for all frames of streams."""
        number = isinstance(self.value, (bool, int, float))
        return number and not self.position and self.roles.count("L") == 1

    def at(self: Any, count: Callable[[Length], int], rows: int = 1) -> Any:
        """Compute the tensor for so many streams, and for lengths that `count` turns into numbers."""
        value = count(self.value) if isinstance(self.value, Length) else self.value
        out = self.library.array(self.func(value, count(self.length), rows))
        return out if self.kind is None else out.to(self.library.types[self.kind])

    def everywhere(self: Any) -> Any:
        """Return the number that all its elements are at every length, or None."""
        return self.value if isinstance(self.value, (bool, int, float)) and not self.position else None

    def filled_stream(self: Any) -> Any:
        """Return a stream of the number."""
        kind, own = self.kind or _KINDS[type(self.value)], type(self.value)
        wide = kind if kind in _KINDS.values() or kind == "float64" else _KINDS[own]
        out = type(self)(0, self.roles, self.length, True).stream("int64" if kind == "bool" else wide, [1, 0])
        if kind == "bool":
            return out.eq(0) if self.value else out.ne(0)
        out = out + self.value if self.value else out
        return out if wide == kind else self.library.as_type(out, kind)

    def become(self: Any, mask: Any = None) -> None:
        """Become the stream that this stands for, with all that share its memory, since it will be written into.

        Where it is written into under a mask that holds nowhere it stays as it is.
        """
        if holds_nowhere(inner_of(mask)):
            return
        root = self
        while root._source is not None:
            root = root._source[0]
        loop = getattr(self.length.of.entry, "open_loop", None)
        root._become(root.as_stream() if loop is None else loop.once(root.as_stream))

    def requires_grad_(self: Any, requires_grad: bool = True) -> Any:
        """Say that no gradient is wanted; what stands for frames becomes a stream."""
        if not self.is_filled:
            self._refuse("requires_grad_")
        self.become()
        return self.requires_grad_(requires_grad)

    def full_like(self: Any, fill_value: Any, dtype: Any = None, **_: Any) -> Any:
        """Return another number in its shape."""
        number = fill_value.item() if hasattr(fill_value, "item") else fill_value
        return type(self)(number, self.roles, self.length).to(dtype or self.dtype)

    zeros_like = partialmethod(full_like, 0)
    ones_like = partialmethod(full_like, 1)

    def masked_fill(self: Any, mask: Any, value: Any) -> Any:
        """Return it where a mask is known to hold nowhere."""
        return self if holds_nowhere(mask) else self._otherwise("masked_fill", (mask, value), {})

    def any(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        """Return whether one is true: all are alike."""
        if keepdim or self.position or isinstance(self.value, Token):
            return self._refuse("a reduction")
        at = None if dim is None else dim % len(self.roles)
        return type(self)(
            bool(self.value), () if at is None else self.roles[:at] + self.roles[at + 1 :], self.length
        )

    all = any

    def numel(self: Any) -> Any:
        """Return the number of elements, a token."""
        return math.prod(self.shape)

    def tolist(self: Any) -> Any:
        """Return the lengths of streams as a list, of one: each stream is by itself."""
        return [self.value] if self.roles == ("B",) and not self.position else self._refuse("a list")

    def __setitem__(self: Any, index: Any, value: Any) -> None:
        if not self.is_filled:
            self.hold(self._otherwise("__setitem__", (index, value), {}))
            return
        if not self.begins(index, value):
            self.become()
            self[index] = value

    def begins(self: Any, index: Any, value: Any) -> bool:
        """Become the stream that is written into its first frames, if that is shorter; return whether it does."""
        joined = self.begun_by(index, value) if self.is_filled else None
        if joined is not None:
            self._become(joined)
        return joined is not None

    def _in_place(self: Any, name: str, other: Any) -> Any:
        if not self.is_filled:
            return self.written(name, other)
        self.become()
        return getattr(self, name)(other)


def sharing(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method's results views, which share the tensor's memory."""

    @wraps(method)
    def taken(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name == "__getitem__" and number_in(args[0]):
            if self.position:
                known = self.__dict__
                if "_stream" not in known:
                    known["_stream"] = self.as_stream()
                return known["_stream"][args[0]]
            self.become()  # a loop reads a frame, which it may write into
            return self[args[0]]
        out = method(self, *args, **kwargs)
        if isinstance(out, Filled) and out is not self and out._source is None:
            out._shares(self, name, args, kwargs)
        return out

    return taken
