"""Placeholders for the lengths of streams before a forward has them, and for the order of streams."""

from __future__ import annotations

from typing import Any, NoReturn

from ..errors import NotStreamableError


class _Unserved(NotStreamableError, AttributeError):
    """An attribute that the order of streams does not have."""


_Unserved.__name__ = _Unserved.__qualname__ = NotStreamableError.__name__  # as tracebacks have it


class _Order:
    """The order of streams, by their lengths or as they come: each is what it is wherever it stands."""

    device = "cpu"

    def to(self, *_: Any, **__: Any) -> _Order:
        """Return it: it is the same everywhere."""
        return self

    cpu = cuda = long = scatter_ = argsort = to

    def sort(self, *_: Any, **__: Any) -> tuple[_Order, _Order]:
        """Return it and its inverse, which is the same."""
        return self, self

    def __getattr__(self, name: str) -> NoReturn:
        self._refuse()

    def _refuse(self, *_: Any) -> NoReturn:
        raise _Unserved.here(
            "the order of streams is computed with,",
            ": it serves as an index, as in y[torch.arange(B), lengths - 1]",
        )

    __add__ = __radd__ = __sub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = __getitem__ = _refuse
    __iter__ = __len__ = __int__ = __index__ = __bool__ = __lt__ = __ge__ = _refuse

    def numel(self) -> int:
        """Return the number of its elements, of which it has none."""
        return 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> _Order:
        return SAME_ORDER


SAME_ORDER = _Order()


class LengthsOf:
    """A placeholder for the lengths of a stream in a call or a spec; see `lengths_of`."""

    def __init__(self, of: Any, relative: bool = False) -> None:
        self.of, self.relative = of, relative

    def __repr__(self) -> str:
        return f"lengths_of({self.of!r})"


def lengths_of(x: Any, relative: bool = False) -> LengthsOf:
    """Return a placeholder for the lengths of streams, which models take beside the streams.

    Many models are called as ``forward(xs, xs_lens)``. A stream's length is known at its end; ``lengths_of(xs)``
    stands for it until then. Masks made of it are the identity where the counts show that it covers all frames;
    lengths that the forward derives and returns are one number per stream, at its end.

    Parameters
    ----------
    x : StreamTensor or str
        The argument of the same call; in the spec of `compile` its name.
    relative : bool
        Whether lengths are parts of the longest, from 0 to 1: each stream by itself is all of it.

    Examples
    --------
    ::

        y, y_lens = encoder(x, ds.lengths_of(x))
        engine = ds.compile(encoder, {"xs": ("B", "L", 80), "xs_lens": ds.lengths_of("xs")})
    """
    return LengthsOf(x, relative)
