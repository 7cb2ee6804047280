"""Finding the user's line of source for an error message."""

from __future__ import annotations

import linecache
import os
import sys
from functools import lru_cache
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any

#: What stands for the line where no frame is the user's.
UNKNOWN = "unknown line"

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PLUMBING = frozenset({"copy", "torch", "numpy", "functools", "contextlib", "runpy", "importlib"})
_TORCH_CALLS = ("torch.overrides", "torch.nn.functional")  # between a layer of torch and the mode that sees it


def user_line() -> str:
    """Return the place in the user's code that is running, and its text.

    It is the innermost frame outside this package and outside the libraries through which calls come
    back to it, as ``file.py:12 in forward: `if x.size(1) > 10:```. Without source text the part
    after the colon is left out; without such a frame the answer is ``"unknown line"``.
    """
    # What `is_of_user` asks stands here: calls of loops look for lines in case that they are refused later.
    frame: FrameType | None = sys._getframe(1)
    found: FrameType | None = None
    while frame is not None:
        if not _is_own_file(frame.f_code.co_filename):
            module = str(frame.f_globals.get("__name__") or "")
            if module.partition(".")[0] not in _PLUMBING:
                found = frame
                break
            if module not in _TORCH_CALLS:
                found = found or frame
        frame = frame.f_back
    return UNKNOWN if found is None else _place(found, found.f_lineno)


def line_of(error: BaseException) -> str:
    """Return the place in the user's code where an error was raised, as `user_line` does."""
    found = [(frame, line) for frame, line in walk_tb(error.__traceback__) if is_of_user(frame)]
    return _place(*found[-1]) if found else UNKNOWN


def place(code: CodeType, line: int, names: dict[str, Any] | None = None) -> str:
    """Return a line of a function as messages have it, with its text; `names` are those of its module."""
    text = linecache.getline(code.co_filename, line, names).strip()
    found = f"{os.path.basename(code.co_filename)}:{line} in {code.co_name}"
    return f"{found}: `{text}`" if text else found


def _place(frame: FrameType, line: int) -> str:
    return place(frame.f_code, line, frame.f_globals)


def is_of_user(frame: FrameType) -> bool:
    """Whether a frame is outside this package and the libraries through which calls come back to it."""
    module = str(frame.f_globals.get("__name__") or "")
    return not is_own(frame) and module.partition(".")[0] not in _PLUMBING


def is_own(frame: FrameType) -> bool:
    """Whether a frame runs a function of this package."""
    return _is_own_file(frame.f_code.co_filename)


@lru_cache(maxsize=1024)
def _is_own_file(name: str) -> bool:
    return os.path.abspath(name).startswith(_PACKAGE)
