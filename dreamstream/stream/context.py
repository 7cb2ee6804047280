"""What attention sees of a stream, in three integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["CAUSAL", "EVERYTHING", "Context"]


@dataclass(frozen=True)
class Context:
    """The keys that a query sees: those of its block, and some before and behind it.

    Blocks of `chunk` frames lie at absolute positions; the query at position i is in block b = i // chunk and sees the
    keys from ``b * chunk - left`` up to and without ``(b + 1) * chunk + right``. All in frames at the rate of the
    attention.

    Parameters
    ----------
    chunk : int or None
        Frames of a block: 1 for a window that slides; None for one block of the whole stream, which waits for its
        end.
    left : int or None
        Frames seen before the block; None for all.
    right : int or None
        Frames seen behind it; None for all, which waits for the stream's end.

    Raises
    ------
    ValueError
        For what is no number of frames.

    Notes
    -----
    **Streaming.** Delay ``chunk - 1 + right`` frames. Kept are the keys and values of ``left + chunk + right`` frames
    at most; of all where `left` is None.

    Examples
    --------
    >>> Context(chunk=16, left=64)
    Context(chunk=16, left=64, right=0)
    """

    chunk: int | None = 1
    left: int | None = None
    right: int | None = 0

    def __post_init__(self) -> None:
        for name, least in (("chunk", 1), ("left", 0), ("right", 0)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ValueError(f"Context: {name} is a number of frames from {least} on, or None, got {value!r}")

    @property
    def attributes(self) -> dict[str, Any]:
        """Those of the operator."""
        return {
            "chunk": self.chunk or 0,
            "left": -1 if self.left is None else self.left,
            "right": -1 if self.right is None else self.right,
        }


#: All that came before, and the frame itself.
CAUSAL = Context()
#: The whole stream.
EVERYTHING = Context(chunk=None)
