"""Rotary positions."""

from __future__ import annotations

from typing import Any

from ...array import Tensor
from ...dispatch import apply
from ...errors import ShapeError
from .arguments import checked
from .texts import described, torch_lacks

__all__ = ["rotary_embedding"]


#: Of the layer, too.
TURNS = {
    "dim": "Features that are turned, from the first on, an even number; all without it.",
    "base": "Pair i of n turns by ``base ** (-i / n)`` from frame to frame.",
    "interleaved": "Whether pairs are neighbours, ``x[..., ::2]`` and ``x[..., 1::2]``, not the two halves.",
    "scaling_factor": "What positions are divided by.",
}


@torch_lacks
@described(
    "As `input`.",
    {"ShapeError": "Where the last dimension is the stream's, odd, or smaller than `dim`."},
    input="``(B, H, L, D)`` or ``(B, L, D)``, float32 or float64; streams in any order that ends with features.",
    **TURNS,
    inv_freq="``(n,)`` of the input's type: the angles of a step in place of those that `base` gives.",
)
def rotary_embedding(
    input: Tensor,
    dim: int | None = None,
    base: float = 10000.0,
    interleaved: bool = False,
    scaling_factor: float = 1.0,
    inv_freq: Tensor | None = None,
) -> Tensor:
    """Return pairs of features turned by angles that grow with the frame's absolute position.

    Notes
    -----
    Angles are float64. **Streaming.** Delay 0, no state; positions never run out. Source: Su et al., "RoFormer"
    (2021).
    """
    x = checked("rotary_embedding", input)
    dims: tuple[Any, ...] = ("B", 0, "L", 1) if x.ndim == 4 else ("B", "L", 0)
    if x.is_stream:
        features = iter(range(x.ndim))
        dims = tuple(d if isinstance(d, str) else next(features) for d in x.dims)  # type: ignore[attr-defined]
    if len(dims) != x.ndim or isinstance(dims[-1], str):
        raise ShapeError(
            f"rotary_embedding: expected (B, H, L, D) or (B, L, D), got {getattr(x, 'roles', tuple(x.shape))}"
        )
    attributes = {
        "features": dim or 0,
        "base": float(base),
        "scale": 1 / float(scaling_factor),
        "form": "pairs" if interleaved else "halves",
    }
    return apply("rotary", attributes, (x,), (inv_freq,), dims)[0]
