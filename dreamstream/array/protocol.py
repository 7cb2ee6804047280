"""Python's operators, conversions and containers' methods of what has no values: refused in its own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import NotStreamableError
from ..operations import ARITHMETIC, BITWISE, RELATIONS
from ..stream.tree import leaves

_BOTH = (*ARITHMETIC, *BITWISE, "matmul", "divmod")
NAMES = (
    *_BOTH, *(f"{kind}{name}" for kind in "ri" for name in _BOTH[:-1]), "rdivmod", *RELATIONS, "neg", "pos", "abs",
    "invert", "bool", "int", "float", "complex", "index", "round", "trunc", "floor", "ceil", "len", "iter",
    "getitem", "setitem", "delitem", "contains", "array", "reduce_ex",
)  # fmt: skip


def refuse_the_rest(kind: type, refuse: Callable[..., Any], copies: bool = False) -> None:
    """Give a class every method of Python's operators that it lacks: it calls ``refuse(self, name)``.

    With `copies` its instances may be copied and pickled.
    """
    for name in NAMES[: -1 if copies else None]:  # reduce_ex is the last
        if getattr(kind, f"__{name}__", None) in (None, getattr(object, f"__{name}__", None)):
            setattr(kind, f"__{name}__", _refusal(name, refuse))


def _refusal(name: str, refuse: Callable[..., Any]) -> Callable[..., NoReturn]:
    def method(self: Any, *_: Any) -> NoReturn:
        refuse(self, name)
        raise AssertionError(f"{refuse} lets {name} pass")

    return method


class Unread:
    """A part of a stream that no stream gives, as its first two frames: it raises `why` where it is used."""

    is_stream = False

    def __init__(self, why: NotStreamableError) -> None:
        self._why = why

    def refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Say why no stream gives it."""
        raise self._why.with_traceback(None)

    def as_output(self) -> NoReturn:
        """Refuse to leave the forward."""
        self.refuse()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self.refuse()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        next(x for x in leaves((args, kwargs or {})) if isinstance(x, cls)).refuse()


refuse_the_rest(Unread, lambda part, _: part.refuse(), copies=True)


def unless_refused(part: Callable[[], Any]) -> Any:
    """Return a part of a stream that is taken apart, of which the forward may read the others alone."""
    try:
        return part()
    except NotStreamableError as error:
        return Unread(error)
