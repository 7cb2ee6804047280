"""The layers made from functions; tests/source/test_stubs.py writes this."""

from typing import Any

from .derived import Derived

class CumulativeMean(Derived):
    """The mean of all frames so far."""
    def __init__(self, dim: int = -1) -> None: ...

class CumulativeSum(Derived):
    """The sum of all frames so far."""
    def __init__(self, dim: int = -1) -> None: ...

class OverlapAdd(Derived):
    """windows of samples laid over each other, `step` apart, and added."""
    def __init__(self, step: int) -> None: ...

class RunningMean(Derived):
    """The mean of the last `size` frames, or of all so far where there are fewer."""
    def __init__(self, size: int, dim: int = -1) -> None: ...

class Upsample(Derived):
    """The last dimensions in another size, each element the nearest one below its place."""
    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = 'nearest', align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None
    ) -> None: ...
