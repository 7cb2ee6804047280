"""The layers made from functions; tests/source/test_stubs.py writes this."""

from typing import Any

from ..array import Tensor
from .derived import Derived

__all__ = [
    "CumulativeMean",
    "CumulativeSum",
    "OverlapAdd",
    "RunningMean",
    "Upsample",
]

class CumulativeMean(Derived):
    """The mean of all frames so far."""
    def __init__(self, dim: int = -1) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class CumulativeSum(Derived):
    """The sum of all frames so far."""
    def __init__(self, dim: int = -1) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class OverlapAdd(Derived):
    """windows of samples laid over each other, `step` apart, and added."""
    def __init__(self, step: int) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class RunningMean(Derived):
    """The mean of the last `size` frames, or of all so far where there are fewer."""
    def __init__(self, size: int, dim: int = -1) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Upsample(Derived):
    """The last dimensions in another size, each element the nearest one below its place."""
    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = 'nearest',
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...
