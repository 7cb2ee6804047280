"""What attention sees of a stream, in three integers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ..source_line import user_line
from .within import within


@dataclass(frozen=True)
class Context:
    """The keys that a query sees: those of its block, and some before and behind it.

    Blocks of `chunk` frames lie at absolute positions, all in frames at the rate of the attention. The query at
    position i is in block b = i // chunk and sees the keys from ``b * chunk - left`` up to and without
    ``(b + 1) * chunk + right``.

    Parameters
    ----------
    chunk : int or None
        Frames of a block: 1 for a window that slides; None for one block of the whole stream, which waits for its
        end.
    left : int or None
        Frames seen before the block; None for all.
    right : int or None
        Frames seen behind it; None for all, which waits for the stream's end.
    keep : int
        Frames from the stream's start on that stay seen, however far the others move on (attention sinks).

    Raises
    ------
    ValueError
        For what is no number of frames.

    Notes
    -----
    **Streaming.** Delay ``chunk - 1 + right`` frames. Kept are the keys and values of ``left + chunk + right``
    frames at most, and of the first `keep`; of all where `left` is None.

    Examples
    --------
    >>> Context(chunk=16, left=64)
    Context(chunk=16, left=64, right=0, keep=0)
    """

    chunk: int | None = 1
    left: int | None = None
    right: int | None = 0
    keep: int = 0

    def __post_init__(self) -> None:
        if self.keep is None:
            raise ValueError("Context: keep is a number of frames, got None; left=None sees all that came before")
        for name, least in (("chunk", 1), ("left", 0), ("right", 0), ("keep", 0)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ValueError(f"Context: {name} is a number of frames from {least} on, or None, got {value!r}")

    @property
    def waits(self) -> bool:
        """Whether nothing can be computed before the stream's end."""
        return self.chunk is None or self.right is None

    @property
    def behind(self) -> int | None:
        """The most frames before its block that a query sees; None where there is no bound to it."""
        return None if self.keep else self.left

    @property
    def attributes(self) -> dict[str, Any]:
        """Those of the operator."""
        own = {
            "chunk": self.chunk or 0,
            "left": -1 if self.left is None else self.left,
            "right": -1 if self.right is None else self.right,
        }
        return own | {"keep": self.keep} if self.keep and self.left is not None else own


#: All that came before, and the frame itself.
CAUSAL = Context()
#: The whole stream.
EVERYTHING = Context(chunk=None)

#: The declared context, and a list with an entry for each time that attention has asked for it.
_DECLARED: ContextVar[tuple[Context, list[bool]] | None] = ContextVar("dreamstream_context", default=None)
#: Gives something, not None, where a context is declared around the code that runs.
is_declared = _DECLARED.get


@contextmanager
def declared(context: Context) -> Iterator[list[bool]]:
    """Give attention that runs within the block this context; it yields a list, empty if none has asked."""
    asked: list[bool] = []
    with within(_DECLARED, (context, asked)):
        yield asked


def declared_here() -> tuple[Context | None, list[bool]]:
    """Return the declared context, or None, and the list that gets an entry when attention asks for it."""
    return _DECLARED.get() or (None, [])


def seen_by(name: str, is_causal: bool, context: Context | None = None) -> Context:
    """Return the context of a call: its own argument, the one declared around it, or the whole stream.

    It is a ValueError where that is given twice.
    """
    around = _DECLARED.get()
    if around is not None:
        around[1].append(True)
    given = [c for c in (around and around[0], context, CAUSAL if is_causal else None) if c is not None]
    if len(given) > 1:
        raise ValueError(
            f"{name} at {user_line()}: {given[0]} and {given[1]} both say what a query sees; give one of them"
        )
    return given[0] if given else EVERYTHING


def contexts_of(given: Mapping[str, Context] | Context | None, paths: list[str]) -> dict[str, Context]:
    """Return the context that is given for each path, where one is; ``*`` stands for a name between dots.

    A context without a path is the whole model's. A pattern that no path fits, a path that two fit, and one within
    another are ValueErrors.
    """
    found: dict[str, Context] = {}
    if isinstance(given, Context):
        given = {"": given}
    if not isinstance(given or {}, Mapping):
        raise TypeError(f"context: expected a ds.Context, or a dict of them by path, got {type(given).__name__}")
    for pattern, context in (given or {}).items():
        if not isinstance(context, Context):
            raise TypeError(f"context: expected a ds.Context for {pattern!r}, got {type(context).__name__}")
        names = pattern.split(".")
        parts = {p: p.split(".") for p in paths if p.count(".") == pattern.count(".")}
        fitting = [p for p, own in parts.items() if all(map(fnmatchcase, own, names))]
        if not fitting:
            raise ValueError(f"context: no module's path fits {pattern!r}; there are {', '.join(paths[1:9])}, ...")
        for path in fitting:
            if path in found:
                raise ValueError(f"context: two patterns fit {path!r}")
            found[path] = context
    for path in found:
        outer = next((p for p in found if p != path and (not p or path.startswith(f"{p}."))), None)
        if outer is not None:
            raise ValueError(f"context: {path!r} lies within {outer!r}, which has a context too")
    return found
