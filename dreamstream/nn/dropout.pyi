"""The layers made from functions; tests/source/test_stubs.py writes this."""

from ..array import Tensor
from .derived import Derived

__all__ = [
    "AlphaDropout",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
]

class Dropout(Derived):
    """The input; in training elements are dropped, and the others divided by 1 - p."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class AlphaDropout(Dropout):
    """The input; in training elements are dropped so that a SELU's mean and variance stay."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Dropout1d(Dropout):
    """The input; in training channels ``(B, C, L)`` are dropped, and the others divided by 1 - p."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Dropout2d(Dropout):
    """The input; in training channels ``(B, C, H, W)`` are dropped, and the others divided by 1 - p."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Dropout3d(Dropout):
    """The input; in training channels ``(B, C, D, H, W)`` are dropped, and the others divided by 1 - p."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class FeatureAlphaDropout(Dropout):
    """The input; in training channels are dropped so that a SELU's mean and variance stay."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...
