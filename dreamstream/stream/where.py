"""What a forward raises for an error: with the user's line, and as a refusal where a stream caused it."""

from __future__ import annotations

import ast
import linecache
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from traceback import walk_tb
from types import CodeType, FrameType, TracebackType
from typing import Any, NoReturn, TypeVar, cast

from ..errors import DreamStreamError, LocatedError, ModeError, NotStreamableError, refusal_like
from ..operations.refusals import GRADIENTS
from ..source_line import UNKNOWN, is_of_user, is_own, line_of, user_line
from ..tracing import why_not
from .tree import leaves

F = TypeVar("F", bound=Callable[..., Any])

#: What to do about an operation that nobody has declared how to stream.
INSTEAD = "apply it to the outputs of a stream that has ended, or say how it streams (@ds.register, ds.Op)"

#: What is wrong with a stream that a model keeps from call to call, as a cache written by hand does.
RETURNED = "a stream of a forward that has returned; keep none by hand: what layers need again is kept for them"

#: What is wrong with frames that are written into a buffer or another constant, as a cache written by hand does.
WRITTEN = (
    "writes frames into a constant, which all streams share; compute a new tensor instead. A cache can be left "
    "out: slices of the stream reach back across calls, and what layers need again is kept for them"
)

#: Where the classes are of what stands for streams, lengths and masks inside a forward.
_STAND_INS = tuple(f"dreamstream.{room}" for room in ("array", "stream.rules", "torch.forward", "torch.tensor"))
#: Functions of this package that call what isn't of it: what that raises is its own.
_PASSING: set[CodeType] = set()
#: Functions that run the forward of a module, of this package's or of torch's.
_RUNNING: set[CodeType] = set()
#: What torch calls for every function, whoever calls that.
_SEEN_BY_MODE = "__torch_function__"
#: What is wrong with the host, not with a forward; torch's are found by their names.
_OF_HOST = ("MemoryError", "OutOfMemoryError", "AcceleratorError")


def why_no_copy() -> str:
    """Return why what runs in the user's code is not a private copy, where one should have been made; else ""."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_of_user(frame):
        frame = frame.f_back
    reason = "" if frame is None else why_not(frame.f_code)
    return f" No private copy of it could be made: {reason}." if reason else ""


def runs_forward(function: F) -> F:
    """Say of a function of ``self``, ``args`` and ``kwargs`` that it runs a module's forward."""
    _RUNNING.add(function.__code__)
    return function


def refuse_offline(kind: type) -> None:
    """Raise ModeError where a stream of a class came to a module that is patched and offline.

    Such a module is called as if it were not patched: that it got a stream shows where that meets an operation.
    """
    frame: FrameType | None = sys._getframe(1)
    outermost = None
    while frame is not None:
        if frame.f_code in _RUNNING and "_patch" in frame.f_locals["self"].__dict__:
            given = leaves((frame.f_locals["args"], frame.f_locals["kwargs"]))
            outermost = frame.f_locals["self"] if any(isinstance(x, kind) for x in given) else outermost
        frame = frame.f_back
    if outermost is not None:
        raise offline_error(outermost)


def offline_error(module: Any) -> ModeError:
    """Return the error for streams that come to a module which is offline, or has a patched one's dictionary."""
    name = type(module).__name__
    if getattr(module.__dict__.get("_patch"), "module", None) is module:
        return ModeError(f"{name} is offline and got a StreamTensor; call .online() first")
    return ModeError(f"this {name} is a copy of one that is patched, and is not: ds.patch_module lets it stream")


def refuse_gradient(name: str, tensor: Any) -> None:
    """Refuse what asks for the gradient of a stream inside a forward."""
    if getattr(tensor, "edge", None) is not None:
        raise NotStreamableError.here(name, f": {GRADIENTS.text}")


def passes_on(function: F) -> F:
    """Mark a function of this package that calls users' or libraries' functions: their errors stay their own."""
    _PASSING.add(function.__code__)
    return function


def explained(error: Exception) -> Exception:
    """Return what a forward raises for an error; the user's line is named where it is one of this package's.

    What Python, or a library, says of a stream or of what stands for one becomes a NotStreamableError. Errors of
    the user's own code, and of libraries that it calls with values of its own, are returned as they are.
    """
    line = line_of(error)
    line = user_line() if line == UNKNOWN else line
    if isinstance(error, DreamStreamError):
        error.at(line)
    elif is_of_streams(error):
        return refused("an operation", line, error)
    return error


def raise_explained(error: Exception, path: str, layer: str) -> NoReturn:
    """Raise what `explained` makes of an error, with the module of a path and a class named before the message."""
    found = explained(error)
    if isinstance(found, LocatedError):
        found.locate(path, layer)
    if found is error:
        raise error
    raise found from error


def refused(what: str, line: str, error: Exception) -> NotStreamableError:
    """Return the refusal of what failed with an error of Python's, of a library's, or a plain one of ours."""
    text, kind = str(error).strip().partition("\n")[0], cast("Any", type(error))
    if kind in (ValueError, TypeError) and is_own(_innermost(error).tb_frame) and _is_raised(error):
        out = refusal_like(kind)(text)
        out.at(line)
    else:
        text = f"{kind.__name__}: {text}".removesuffix(": ")
        out = refusal_like(kind)(
            f"{what} on a stream inside a forward, at {line}: it does not stream with these arguments ({text}); "
            f"{INSTEAD}"
        )
    return out.with_traceback(error.__traceback__)


def _innermost(error: BaseException) -> TracebackType:
    """Return where an error arose."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    assert at is not None
    return at


def _is_raised(error: BaseException) -> bool:
    """Whether a statement that raises did raise an error, and not what Python or a function in C did there.

    That is read from the source. Python 3.10 knows lines alone, later ones whether it was the whole statement.
    """
    at = _innermost(error)
    code = at.tb_frame.f_code
    source = "".join(linecache.getlines(code.co_filename, at.tb_frame.f_globals))
    found = [s for s in _raising(source) if s.lineno <= at.tb_lineno <= (s.end_lineno or s.lineno)]
    if not found or isinstance(found[0], ast.Assert):
        return bool(found) and isinstance(error, AssertionError)
    if not hasattr(code, "co_positions"):
        return True
    position = next(islice(code.co_positions(), at.tb_lasti // 2, None))
    return None in position or any(
        position == (s.lineno, s.end_lineno, s.col_offset, s.end_col_offset) for s in found
    )


@lru_cache(maxsize=16)
def _raising(source: str) -> list[ast.Raise | ast.Assert]:
    """Return the statements of a source that raise; none of what isn't Python's."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, (ast.Raise, ast.Assert))]


#: How errors about environment variables begin.
_OF_ENVIRONMENT = "DREAMSTREAM_"


def is_of_streams(error: Exception) -> bool:
    """Whether an error comes of this package's code, or of what Python does with what stands for a stream."""
    if isinstance(error, Warning) or type(error).__name__ in _OF_HOST or str(error).startswith(_OF_ENVIRONMENT):
        return False
    frames = [f for f, _ in walk_tb(error.__traceback__)]
    known = (f for f in reversed(frames) if is_of_user(f) or (is_own(f) and f.f_code.co_name != _SEEN_BY_MODE))
    frame = next(known, None)
    if frame is None or is_own(frame):
        return frame is not None and frame.f_code not in _PASSING
    if frame is frames[-1] and _is_raised(error):
        return False
    if isinstance(error, AttributeError) and error.name is not None:
        return is_stand_in(type(error.obj)) and any(hasattr(kind, error.name) for kind in _kinds_of_values())
    return bool(_stand_ins().intersection(re.findall(r"\w+", str(error))))


def _kinds_of_values() -> list[Any]:
    """Return the classes of what stand-ins stand for."""
    homes = ("torch", "dreamstream.array.tensor")
    return [int, *(sys.modules[home].Tensor for home in homes if home in sys.modules)]


def is_stand_in(kind: type) -> bool:
    """Whether a class is of what stands for streams, lengths and masks inside a forward."""
    return kind.__module__.startswith(_STAND_INS)


def _stand_ins() -> set[str]:
    """Return the names of all classes of stand-ins, as Python's messages have them."""
    homes = [m for name, m in list(sys.modules.items()) if name.startswith(_STAND_INS)]
    return {
        kind.__name__
        for home in homes
        for kind in vars(home).values()
        if isinstance(kind, type) and is_stand_in(kind)
    }
