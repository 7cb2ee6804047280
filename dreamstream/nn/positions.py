"""Layers that say where a frame stands."""

from __future__ import annotations

from typing import ClassVar

from ..array import Tensor
from . import functional as F
from .functional.attention import TURNS
from .functional.texts import described
from .module import Module

__all__ = ["RotaryEmbedding"]


@described(**{**TURNS, "dim": "Features that are turned, from the first on, an even number."})
class RotaryEmbedding(Module):
    """Queries and keys turned by angles that grow with their absolute positions.

    Notes
    -----
    Called with queries and keys, or any tensors ``(B, H, L, D)`` or ``(B, L, D)``, D at least `dim`; it returns as
    many, and has no parameters. **Streaming.** Delay 0, no state; positions never run out. Source: Su et al.,
    "RoFormer" (2021).

    Examples
    --------
    >>> import dreamstream as ds
    >>> rotary = RotaryEmbedding(8)
    >>> q, k = rotary(ds.ones(1, 2, 5, 8), ds.ones(1, 1, 5, 8))
    >>> q.shape, k.shape
    ((1, 2, 5, 8), (1, 1, 5, 8))
    """

    _shown = "{dim}, base={base}"
    _usual: ClassVar = {"interleaved": False}

    def __init__(
        self, dim: int, base: float = 10000.0, interleaved: bool = False, scaling_factor: float = 1.0
    ) -> None:
        super().__init__()
        if dim < 2 or dim % 2:
            raise ValueError(f"RotaryEmbedding: dim is an even number of features, got {dim}")
        self.dim, self.base, self.interleaved, self.scaling_factor = dim, base, interleaved, scaling_factor

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the tensors turned; a single one by itself."""
        given = (self.dim, self.base, self.interleaved, self.scaling_factor)
        turned = tuple(F.rotary_embedding(x, *given) for x in inputs)
        return turned[0] if len(turned) == 1 else turned
