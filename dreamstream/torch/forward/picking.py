"""torch's functions that pick frames, which are refused."""

from __future__ import annotations

from typing import Any

from ...array import where as native_where
from ...errors import NotStreamableError
from ...operations.refusals import PLACES
from ...stream.where import user_line
from .mode import Forward
from .names import function

__all__: list[str] = []


def _refuse(name: str) -> NotStreamableError:
    reason, remedy = PLACES.words
    return NotStreamableError(f"{name} at {user_line()}: {reason}; {remedy}")


def _of_frames(name: str) -> None:
    @function(name)
    def refuse(forward: Forward, *_: Any, **__: Any) -> Any:
        raise _refuse(name)


for _name in ("nonzero", "argwhere", "masked_select", "bincount"):
    _of_frames(_name)


@function("where_function")
def where(forward: Forward, *args: Any, **kwargs: Any) -> Any:
    if len(args) + len(kwargs) == 1:
        raise _refuse("torch.where of a condition alone")
    return native_where(*args, **kwargs)
