"""Exceptions and warnings of DreamStream.

Every exception derives from `DreamStreamError` and from the builtin that a caller would expect, so
``except ValueError`` goes on working in code that knows nothing of this package. An exception that
concerns single streams carries their ids in `DreamStreamError.ids`: a server can drop those streams
and repeat the call for the others, because a call that raises leaves every stream as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, TypeVar

from .source_line import user_line

__all__ = [
    "CaptureError", "ClosedError", "DTypeError", "DreamStreamError", "FormatError", "LossError", "ModeError",
    "NotStreamableError", "OutOfMemoryError", "ShapeError", "SourceError", "StreamBusyError",
    "StreamFallbackWarning", "StreamIdError", "StreamIndexError", "StreamLimitError", "StreamMismatchError",
    "StreamWarning",
]  # fmt: skip

_E = TypeVar("_E", bound="DreamStreamError")

_MAX_NAMED, _MAX_ID = 8, 60
#: A place in a file, as ``model.py:12 in forward``, and a message that begins with an operation's name.
_PLACE, _NAMED = re.compile(r":\d+ in "), re.compile(r"([\w.]+): ")

shown: Callable[..., str] = str
"""Makes a message one line that controls no terminal, whatever it quotes: `_core` puts its `shown` here."""


def _named(stream_id: str) -> str:
    """Return an id as it stands in a message: in one line, its middle left out where it is long."""
    text = repr(stream_id)
    return text if len(text) <= _MAX_ID else f"{text[: _MAX_ID - 13]}...{text[-10:]}"


def _with_ids(message: str, ids: tuple[str, ...]) -> str:
    """Append the ids to a message, naming the first eight only."""
    if not ids:
        return message
    named = ", ".join(map(_named, ids[:_MAX_NAMED]))
    more = f" and {len(ids) - _MAX_NAMED} more" if len(ids) > _MAX_NAMED else ""
    return f"{message} ({'stream' if len(ids) == 1 else 'streams'}: {named}{more})"


def _rebuild(cls: type[DreamStreamError], message: str, ids: tuple[str, ...]) -> DreamStreamError:
    """Make an exception again from what `DreamStreamError.__reduce__` kept."""
    return cls(message, ids)


class DreamStreamError(Exception):
    """Base of all exceptions that DreamStream raises on purpose.

    Parameters
    ----------
    message : str
        What went wrong and what to do next, in one line: characters that control a terminal, which names out of
        files may hold, are written as ``\\x1b``.
    ids : iterable of str or str, optional
        The streams that the error concerns. They are named at the end of the message (at most eight,
        then their number; the middle of a long one is left out).

    Attributes
    ----------
    ids : tuple of str
        All streams concerned, ``()`` where the error is not about single streams.
    refusals : tuple of str
        All that stands in a model's way, where that was asked for (``ds.compile(…, explain=True)``, `ds.audit`).

    Examples
    --------
    >>> error = StreamIdError("unknown stream without sos", ids=["anna", "bob"])
    >>> str(error)
    "unknown stream without sos (streams: 'anna', 'bob')"
    >>> error.ids
    ('anna', 'bob')
    """

    ids: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    def __init__(self, message: str = "", ids: Iterable[str] = ()) -> None:
        self._message = shown(str(message), True)
        self.ids = (ids,) if isinstance(ids, str) else tuple(ids)
        super().__init__(_with_ids(self._message, self.ids))

    @classmethod
    def here(cls: type[_E], message: str, rest: str | None = None, line: str = "", ids: Iterable[str] = ()) -> _E:
        """Make an error that names the user's line, which is the one that runs unless `line` says another.

        It stands before the first colon of the message, or at its end; where there is a `rest`, between the two.
        """
        if rest is None:
            message, colon, rest = message.partition(": ")
            message, rest = (message, colon + rest) if colon else (f"{message},", "")
        return cls(f"{message} at {line or user_line()}{rest}", ids)

    def concern(self, ids: Iterable[str]) -> None:
        """Make it an error about these streams."""
        self.ids = tuple(ids)
        self.args = (_with_ids(self._message, self.ids),)

    def __reduce__(self) -> tuple[object, ...]:
        extra = {k: v for k, v in self.__dict__.items() if k not in ("_message", "ids")}
        return _rebuild, (getattr(type(self), "_pickled_as", type(self)), self._message, self.ids), extra or None

    def at(self, line: str) -> None:
        """Name the user's line in a message that names none: behind the operation at its beginning, or last."""
        if _PLACE.search(self._message) or not _PLACE.search(line):
            return
        name = _NAMED.match(self._message)
        if name is None:
            self._say(f"{self._message}, at {line}")
        else:
            self._say(f"{name[1]} at {line}{self._message[len(name[1]) :]}")

    def add(self, advice: str) -> None:
        """Put what to do at the message's end."""
        self._say(f"{self._message}; {advice}")

    def _say(self, message: str) -> None:
        self._message = message = shown(message, True)
        self.args = (_with_ids(message, self.ids),)


class LocatedError(DreamStreamError):
    """Base of what a layer says: in a forward the message names the module, and the user's line.

    Attributes
    ----------
    path : str
        The innermost module whose forward raised it; empty for the outermost one.
    """

    path: str = ""

    def locate(self, path: str, layer: str) -> None:
        """Name the module before the message, unless one already is."""
        if path and not self.path:
            self.path = path
            self._say(f"{path} ({layer}): {self._message}")


class ShapeError(LocatedError, ValueError):
    """A shape, a number of dimensions or a dimension's name doesn't fit."""


class StreamIndexError(ShapeError, IndexError):
    """An index is out of range, or of a form that its dimension doesn't take."""


class FormatError(DreamStreamError, ValueError):
    """A file or byte string is not what it should be; the message gives the offset."""


class CaptureError(DreamStreamError, ValueError):
    """A graph can't hold what a forward does or returns, though it may stream."""


class StreamIdError(DreamStreamError, ValueError, RuntimeError):
    """An unknown, duplicate, live or different stream id; `ids` names the offenders."""


class StreamMismatchError(DreamStreamError, ValueError, RuntimeError):
    """Tensors that differ in sos, eos, lengths, starts, rate or entry were combined."""


class DTypeError(LocatedError, TypeError):
    """An element type that is not taken here, or a mix of element types."""


class NotStreamableError(LocatedError, TypeError):
    """A layer or call that can't be streamed exactly; the message says what would work."""


@lru_cache(maxsize=64)
def refusal_like(kind: Any) -> type[NotStreamableError]:
    """Return NotStreamableError as a class that is another one too, for callers that expect that one."""
    members = {"__module__": __name__, "_pickled_as": NotStreamableError}
    try:
        return type(NotStreamableError.__name__, (NotStreamableError, kind), members)
    except TypeError:  # it is one already, or their instances differ in memory
        return NotStreamableError


class StreamBusyError(DreamStreamError, RuntimeError):
    """A second thread entered a stream or a session that is in use."""


class StreamLimitError(DreamStreamError, RuntimeError):
    """A limit on streams or on buffered frames was reached."""


class SourceError(DreamStreamError, RuntimeError):
    """A stream can't be read further: its file or iterable raised, or its worker process died; `ids` names it."""


class LossError(DreamStreamError, FloatingPointError):
    """A loss in training is no finite number; `ids` names the streams of its call, or those at fault."""


class ModeError(DreamStreamError, RuntimeError):
    """A call that doesn't fit the module's mode, or a ``forward`` that changed its course."""


class ClosedError(DreamStreamError, RuntimeError):
    """Something that has been closed was used."""


class OutOfMemoryError(DreamStreamError, MemoryError):
    """Memory could not be had; nothing was changed."""


BY_STATUS = (
    None, ShapeError, DTypeError, FormatError, StreamIdError, StreamMismatchError, NotStreamableError,
    StreamBusyError, StreamLimitError, ModeError, ClosedError, OutOfMemoryError, CaptureError, DreamStreamError,
    ShapeError, StreamIndexError,
)  # fmt: skip
"""What each status of ``dreamstream.h`` is raised as."""


class StreamWarning(RuntimeWarning):
    """Base of all warnings about streams."""


class StreamFallbackWarning(StreamWarning):
    """An operation could not keep the stream metadata and returned a plain tensor."""
