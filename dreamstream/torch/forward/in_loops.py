"""What torch does to values, in the body of a loop over frames, where they are computed later."""

from __future__ import annotations

from ...array.loops import Body
from ...array.stream_tensor import StreamTensor as Native
from ...errors import NotStreamableError


def in_loop(inner: Native, note: str) -> Native:
    """Return a frame of a loop's body as the loop's kernel is to compute it; itself in a capture."""
    body = inner.edge.entry if inner.edge is not None else None
    if not isinstance(body, Body) or hasattr(body.loop.entry, "graph"):
        return inner
    if not note:
        raise NotStreamableError.here(
            "an operation",
            " needs the values of frames, which a loop over them computes later; apply it to the whole stream "
            "before or after the loop",
        )
    return body.noted(inner, note)
