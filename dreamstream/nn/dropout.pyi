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
    """The input; elements would be dropped in training, a ModeError unless p is 0."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class AlphaDropout(Dropout):
    """The input; elements would be dropped in training, a ModeError unless p is 0."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Dropout1d(Dropout):
    """The input; channels ``(B, C, L)`` would be dropped in training, a ModeError unless p is 0."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Dropout2d(Dropout):
    """The input; channels ``(B, C, H, W)`` would be dropped in training, a ModeError unless p is 0."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Dropout3d(Dropout):
    """The input; channels ``(B, C, D, H, W)`` would be dropped in training, a ModeError unless p is 0."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class FeatureAlphaDropout(Dropout):
    """The input; channels would be dropped in training, a ModeError unless p is 0."""
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...
