"""Random numbers that layers draw in training: what is dropped, and noise.

What a frame of a stream draws is a function of its stream's key, the place in the forward and the frame's
position, so that neither chunks nor other streams of a batch change it (`online.draws` has the keys). What plain
tensors draw comes from `manual_seed`'s generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core, autograd
from ..errors import NotStreamableError
from ..stream.edge import Edge, Line
from ..stream.rules import holds
from ..stream.within import within
from . import creation, loop_body
from .loop_body import Body
from .stream_tensor import StreamTensor
from .tensor import Tensor

Array = NDArray[Any]

#: Operators that drop within themselves: weights of attention, outputs between recurrent layers.
DROPPING_OPERATORS = frozenset(
    ("attention", "cross_attention", "lstm", "gru", "rnn", "lstm_within", "gru_within", "rnn_within")
)

#: The probability of dropout within operators of `DROPPING_OPERATORS` that run now; 0 outside `dropping`.
DROPPING: ContextVar[float] = ContextVar("DROPPING", default=0.0)


def dropping(p: float) -> AbstractContextManager[float]:
    """Return a context in which operators of `DROPPING_OPERATORS` drop with probability `p`."""
    return within(DROPPING, p)


def drop_probability(name: str) -> float:
    """Return the probability with which the operator `name` drops now; 0 for one that never does."""
    p = DROPPING.get()
    return p if p and name in DROPPING_OPERATORS else 0.0


def fresh_keys(n: int) -> NDArray[np.uint64]:
    """Draw `n` keys from the generator of `manual_seed`; operators on plain tensors drop by them."""
    return creation.generator().integers(0, 1 << 64, n, np.uint64)


# ------------------------------------------------------------------ numbers of streams
def frames_of(name: str, x: StreamTensor) -> Any:
    """Return the edge of `x`, or of the frames its loop goes over; captures, which can't draw, are refused."""
    edge = x.edge
    if edge is not None and isinstance(edge.entry, Body):
        edge = edge.entry.loop.clock
    if edge is None or not hasattr(edge.entry, "draw_keys"):
        raise NotStreamableError.here(
            f"{name}: random numbers are drawn in training, and an engine draws none; call module.eval()"
        )
    return edge


def uniform(name: str, x: StreamTensor, features: Sequence[int], by_frame: bool = True) -> Array:
    """Return numbers in [0, 1) for each frame of a stream, or the same ones for all of its frames."""
    edge = frames_of(name, x)
    keys = edge.entry.draw_keys()
    first = np.ascontiguousarray(np.maximum(edge.counts[:, 0], 0))
    n = np.ascontiguousarray(edge.counts[:, 2] - edge.counts[:, 0])
    width = prod(features)
    if by_frame:
        return _core.draws(keys, first, n, width).reshape(-1, *features)
    once = _core.draws(keys, np.zeros_like(n), np.ones_like(n), width)
    return np.repeat(once, n, 0).reshape(-1, *features)


def normal(name: str, x: StreamTensor, features: Sequence[int]) -> Array:
    """Return numbers of the standard normal distribution for each frame (Box and Muller)."""
    u = uniform(name, x, (*features, 2))
    return np.sqrt(-2 * np.log1p(-u[..., 0])) * np.cos(2 * np.pi * u[..., 1])


def with_values(x: Any, value: Any) -> Any:
    """Return a stream with `value` in place of the values of `x`, off the tape: no gradient goes back to `x`."""
    return StreamTensor.inside(value, x.dims, _drawn_edge(x.edge, x.edge.line), x._names)


def _drawn_edge(edge: Edge, like: Line) -> Edge:
    """Return an edge of the same frames as another, for numbers with the element type and features of a line."""
    line, key = edge.line, ("drawn", like.dtype, like.features)
    own = line.facts.get(key)
    if own is None:
        own = line.facts[key] = Line(line.cid, line.rate, like.dtype, like.features, static=line.static)
    return Edge(edge.entry, own, edge.counts)


def is_in_loop(x: Any) -> bool:
    """Whether a stream is a frame in the body of a loop that runs in a call, not in a capture."""
    body = x.edge.entry if x.edge is not None else None
    return isinstance(body, Body) and hasattr(body.loop.entry, "draw_keys")


def in_loop(name: str, x: Any, draw: Callable[..., Array]) -> Any:
    """Return random numbers of a frame's shape, in a loop's body; `draw` makes those of all frames.

    `draw` is `uniform`, `normal` or what takes their arguments.
    """
    x = x.in_order()
    edge, line, loop = frames_of(name, x), x.edge.line, x.edge.entry.loop

    def make() -> Any:
        value = edge.entry.library.values(draw(name, x, line.features).astype(line.dtype))
        return StreamTensor.inside(value, ("B", "L", *range(len(line.features))), _drawn_edge(edge, line))

    return loop.drawn(line, make)


# ------------------------------------------------------------------ what is dropped
def dropped(name: str, x: Any, p: float, channels: bool, alpha: bool) -> Any:
    """Return a tensor some of whose elements are dropped, with probability `p` above 0.

    With `channels` those behind the first two dimensions are dropped together; `alpha` dropout keeps mean and
    variance of a SELU's output.
    """
    if x.is_stream and x.edge is not None:
        if isinstance(x.edge.entry, Body):
            return dropped_in_loop(name, x, p, channels, alpha)
        scale, shift = factors(kept_of_stream(name, x, p, channels), p, alpha)
        return _scaled(name, x, scale, shift)
    frames = x._frames() if x.is_stream else x  # of one call, outside of forwards
    shape = tuple(frames.shape)
    if channels and not x.is_stream:
        shape = (*shape[:2], *(1,) * (len(shape) - 2)) if len(shape) > 2 else (*shape[:1], *(1,) * len(shape[1:]))
    kept = creation.generator().random(shape) >= p
    scale, shift = (f if f is None else Tensor._plain(f.astype(x.dtype)) for f in factors(kept, p, alpha))
    out = frames * scale if shift is None else frames * scale + shift
    return x.like(out) if x.is_stream else out


def dropped_in_loop(name: str, x: Any, p: float, channels: bool, alpha: bool) -> Any:
    """Return a frame in a loop's body with elements dropped, which are drawn anew for each frame."""
    if channels:
        return loop_body.in_loop(x, "")
    x = x.in_order()
    scale, shift = factors(in_loop(name, x, lambda *of: uniform(*of) >= p), p, alpha)
    return x * scale if shift is None else x * scale + shift


def leaking(x: Any, lower: float, upper: float) -> Any:
    """Return rrelu in training: elements up to 0 times a slope, drawn for each of them between the two bounds."""
    if x.is_stream and x.edge is not None:
        frames_of("rrelu", x)
        if x.value is None:
            return loop_body.in_loop(x, "")
        u = uniform("rrelu", x, x.value.shape[1:])
        return _scaled("rrelu", x, np.where(x.value <= 0, lower + (upper - lower) * u, 1), None)
    frames = x._frames() if x.is_stream else x
    u = creation.generator().random(frames.shape)
    out = frames * Tensor._plain(np.where(frames.numpy() <= 0, lower + (upper - lower) * u, 1).astype(x.dtype))
    return x.like(out) if x.is_stream else out


def factors(kept: Any, p: float, alpha: bool) -> tuple[Any, Any]:
    """Return scale and shift (None for none) of dropout's elements; `kept` is 1 for those that stay, else 0."""
    if p == 1 or not alpha:
        return kept * (0.0 if p == 1 else 1 / (1 - p)), None
    low = -1.7580993408473766  # SELU(-inf), which dropped elements become
    a = ((1 - p) * (1 + p * low * low)) ** -0.5
    return kept * a, (kept - (1 - p)) * (-a * low)


def kept_of_stream(name: str, x: Any, p: float, channels: bool) -> Array:
    """Return bools that broadcast to the stream's stored values: True for elements that dropout keeps."""
    frames_of(name, x)
    features = tuple(x.value.shape[1:])
    if not channels:
        return uniform(name, x, features) >= p
    own = x.dims[:2] if len(x.dims) > 2 else x.dims[:1]
    if not any(isinstance(d, str) and holds(d, "B") for d in own):
        raise NotStreamableError.here(
            name,
            f" would drop the same of all streams of a batch in {x.roles}; B must be one of its first two "
            "dimensions",
        )
    lead = len(features) - len(x.features)  # features that are joined with B are stored in front
    shape = (*features[:lead], *(n if i in own else 1 for i, n in enumerate(x.features)))
    by_frame = any(isinstance(d, str) and holds(d, "L") for d in own)
    return uniform(name, x, shape, by_frame) >= p


def _scaled(name: str, x: Any, scale: Any, shift: Any) -> Any:
    """Return a stream's frames times `scale` plus `shift` (None: none), with the gradient on the tape."""
    scale, shift = (f if f is None else f.astype(x.dtype) for f in (scale, shift))
    out = with_values(x, x.value * scale if shift is None else x.value * scale + shift)
    out.edge.made = None
    if x.edge.made is not None and autograd.is_grad_enabled():
        out.edge.made = autograd.Record(name, [x.edge.made], lambda g: [g * scale]), 0
    return out
