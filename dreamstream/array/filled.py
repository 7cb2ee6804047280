"""Tensors of one number for all frames, which become streams where they are written into."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from weakref import ref

from .stream_tensor import StreamTensor

__all__ = ["Filled", "sharing"]


#: Element types of Python's numbers.
_KINDS = {bool: "bool", float: "float32", int: "int64"}


class Filled:
    """What `Symbolic` does where it holds one number, and its memory is shared."""

    value: Any
    roles: tuple[Any, ...]
    length: Any
    position: bool
    kind: str | None
    _refuse: Callable[[str], Any]
    #: What it was taken of, by which method with which arguments, and what was taken of it.
    _source: tuple[Any, ...] | None
    _taken: list[Callable[[], Any]]

    @property
    def is_filled(self) -> bool:
        """Whether it holds one number for all frames of streams."""
        number = isinstance(self.value, (bool, int, float))
        return number and not self.position and "L" in self.roles and "B" in self.roles

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

    def is_alone(self) -> bool:
        """Whether no other tensor shares its memory."""
        return self._source is None and not any(at() is not None for at in self._taken)

    def become(self) -> None:
        """Be the stream that this stands for, as becomes all that shares its memory: it will be written into."""
        root = self
        while root._source is not None:
            root = root._source[0]
        root._turn(root.as_stream())

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
        self.become()
        self[index] = value

    def _in_place(self, name: str, other: Any) -> Any:
        if not self.is_filled and self.is_alone():
            return NotImplemented  # the name is bound anew
        self.become()
        return getattr(self, name)(other)


def sharing(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Let what a method of this name gives share the tensor's memory."""

    @wraps(method)
    def taken(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = method(self, *args, **kwargs)
        if isinstance(out, Filled) and out is not self:
            out._source = (self, name, args, kwargs)
            self._taken.append(ref(out))
        return out

    return taken
