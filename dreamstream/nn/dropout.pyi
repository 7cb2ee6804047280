"""The layers made from functions; tests/source/test_stubs.py writes this."""

from .derived import Derived

class Dropout(Derived):
    """The input; in training elements are dropped, and the others divided by 1 - p."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...

class AlphaDropout(Dropout):
    """The input; in training elements are dropped so that a SELU's mean and variance stay."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...

class Dropout1d(Dropout):
    """The input; in training channels ``(B, C, L)`` are dropped, and the others divided by 1 - p."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...

class Dropout2d(Dropout):
    """The input; in training channels ``(B, C, H, W)`` are dropped, and the others divided by 1 - p."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...

class Dropout3d(Dropout):
    """The input; in training channels ``(B, C, D, H, W)`` are dropped, and the others divided by 1 - p."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...

class FeatureAlphaDropout(Dropout):
    """The input; in training channels are dropped so that a SELU's mean and variance stay."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
