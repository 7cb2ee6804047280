"""What a forward of this package computes of positions: `pairs` with the functions and methods of its tensors.

Where it meets frames, each meets what is computed of its own position: the functions run once more, now on the
stream of the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, partialmethod
from typing import Any, NoReturn

from ..errors import NotStreamableError
from ..operations import RELATIONS
from ..stream.rules import Length
from ..stream.tree import map_leaves
from ..stream.where import user_line
from . import counted, creation
from .axes import LikeOthers
from .einsum import noted_product
from .filled import Shared, kept
from .functions import OPERATORS
from .pairs import Pairs, flat, to_a_copy
from .protocol import refuse_the_rest
from .score_views import Greatest
from .scores import Scores
from .stream_tensor import StreamTensor
from .symbolic import Symbolic
from .tensor import Tensor


class _NoNumber(NotStreamableError, AttributeError):
    """Positions have no numbers, and so none of the methods that give them."""


class Noted(Shared, LikeOthers, Pairs):
    """A tensor of this package whose size along some axes is a stream's length."""

    __array_ufunc__ = None
    _stream: Any = None

    @classmethod
    def of(cls, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return what a function, or a method of tensors, gives of positions and lengths."""
        given = list(flat((args, kwargs)))
        if any(isinstance(x, (StreamTensor, Scores, Greatest)) for x in given):
            found = noted_product(cls, func.__name__, args, lambda: _run(func, args, kwargs))
            return _run(func, args, kwargs) if found is None else found
        out = cls(func, *(map_leaves(x, kept) for x in (tuple(args), dict(kwargs))))
        if args and isinstance(args[0], Shared) and func.__name__ in _VIEWS:
            out._shares(args[0])
        return out

    def as_stream(self) -> StreamTensor:
        """Return it as the stream that it is, where only one of its axes is a stream's.

        Raises
        ------
        NotStreamableError
            Where it says something of pairs of frames.
        """
        if self._stream is None:
            if sum(isinstance(s, Length) for s in self.shape) != 1 or not any(
                map(counted.noted, self.arguments())
            ):
                raise NotStreamableError(f"{self!r} meet a stream, at {user_line()}; {counted.SERVES}")
            if counted.integers(self):
                self._stream = counted.streamed(self, "int64")
            else:
                self._stream = _run(self.func, self.args, self.kwargs)
        out: StreamTensor = self._stream
        return out

    def as_output(self) -> Any:
        """Return what a forward returns."""
        return self.as_stream()

    @property
    def T(self) -> Any:
        return self.t()

    @property
    def mT(self) -> Any:
        return self.transpose(-2, -1)

    view_as = LikeOthers.reshape_as

    def __getattr__(self, name: str) -> Any:
        func = getattr(Tensor, name, None)
        if name in _NUMBERS:
            raise _NoNumber(f"positions are made numbers by {name} at {user_line()}; {counted.SERVES}")
        if name.startswith("_") or not callable(func):
            raise AttributeError(name)
        if name.endswith("_"):
            return partial(self.assigned if name in _WRITERS else self.written, name)
        if str(func.__annotations__.get("return")).startswith(("tuple", "Extreme")):  # several
            return getattr(self.as_stream(), name)
        return partial(Noted.of, func, self)

    def _refuse(self, name: str) -> NoReturn:
        raise NotStreamableError(f"{name} of {self!r}, at {user_line()}; {counted.SERVES}")

    def _number(self, name: str, *_: Any, **__: Any) -> NoReturn:
        self.__getattr__(name)
        raise AttributeError(name)

    def assigned(self, name: str, *args: Any) -> Any:
        """Hold what a method that writes leaves."""
        return self.hold(Noted.of(to_a_copy(getattr(Tensor, name)), self, *args))

    def __setitem__(self, index: Any, value: Any) -> None:
        self.assigned("__setitem__", index, value)


_NUMBERS = ("tolist", "numpy", "int", "__index__", "__len__", "__iter__", "__array__")
_VIEWS = (
    "unsqueeze", "squeeze", "view", "reshape", "expand", "expand_as", "transpose", "permute", "t", "flatten",
    "unflatten", "narrow", "select", "diagonal", "unfold", "movedim", "contiguous", "detach", "to", "long", "int",
    "float", "bool", "double", "__getitem__",
)  # fmt: skip
_WRITERS = ("copy_", "fill_", "zero_")


def _run(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a function where each frame meets what is computed of its position."""
    given, named = (map_leaves(x, _stream_of) for x in (tuple(args), dict(kwargs)))
    method = getattr(given[0], func.__name__, None) if getattr(Tensor, func.__name__, None) is func else None
    out = func(*given, **named) if method is None else method(*given[1:], **named)
    if out is NotImplemented:
        raise NotStreamableError(f"{func.__name__} of positions and a stream, at {user_line()}; {counted.SERVES}")
    return out


def _stream_of(x: Any) -> Any:
    if isinstance(x, Noted):
        return x.as_stream()
    return x.constant() if isinstance(x, Symbolic) and x.position else x


def _operator(name: str) -> Callable[..., Any]:
    func = getattr(Tensor, name)

    def method(self: Noted, *others: Any) -> Any:
        if any(isinstance(x, (Scores, Greatest)) for x in others):
            return NotImplemented  # they know what is done to them
        return Noted.of(func, self, *others)

    return method


for _name in (
    *OPERATORS,
    *(f"r{name}" for name in OPERATORS),
    *RELATIONS,
    "neg",
    "invert",
    "abs",
    "getitem",
    "matmul",
    "rmatmul",
):
    setattr(Noted, f"__{_name}__", _operator(f"__{_name}__"))
for _name in ("index", "len", "iter", "array"):
    setattr(Noted, f"__{_name}__", partialmethod(Noted._number, f"__{_name}__"))
Noted.__hash__ = object.__hash__  # type: ignore[method-assign]
refuse_the_rest(Noted, Noted._refuse)


def _of_lengths(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a function, or a method of lengths and positions, that says nothing of every frame alike."""
    func = getattr(creation if name in ("arange", "eye", "full") else Tensor, name, None)
    if name == "__setitem__":
        func = to_a_copy(Tensor.__setitem__)
    if func is None:
        return NotImplemented
    out = Noted.of(func, *args, **kwargs)
    lengths = any(isinstance(a, Symbolic) and not a.position for a in args)
    if lengths and name.strip("_") in RELATIONS and sum(isinstance(s, Length) for s in out.shape) < 2:
        return NotImplemented  # a mask of frames by their number, which is refused
    return out


Length.note = staticmethod(_of_lengths)
Length.note_call = staticmethod(Noted.of_call)
Length.noting = Noted
