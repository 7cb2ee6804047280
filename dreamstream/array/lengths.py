"""What stands for the lengths of streams before a forward has them, and for their order."""

from __future__ import annotations

from typing import Any

__all__ = ["SAME_ORDER", "LengthsOf", "lengths_of"]


class _Order:
    """The order of streams by their lengths where it changes nothing: each is what it is wherever it stands."""

    device = "cpu"

    def to(self, *_: Any, **__: Any) -> _Order:
        """Return it: it is the same everywhere."""
        return self

    cpu = scatter_ = argsort = to

    def sort(self, *_: Any, **__: Any) -> tuple[_Order, _Order]:
        """Return it and its inverse, which is the same."""
        return self, self

    def numel(self) -> int:
        """Return the number of its elements, of which it has none."""
        return 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> _Order:
        return SAME_ORDER


SAME_ORDER = _Order()


class LengthsOf:
    """What stands for the lengths of a stream in a call or a spec; see `lengths_of`."""

    def __init__(self, of: Any, relative: bool = False) -> None:
        self.of = of
        self.relative = relative

    def __repr__(self) -> str:
        return f"lengths_of({self.of!r})"


def lengths_of(x: Any, relative: bool = False) -> LengthsOf:
    """Return what stands for the lengths of streams, which models take beside them.

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
