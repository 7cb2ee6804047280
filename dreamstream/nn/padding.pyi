"""The layers made from functions; tests/source/test_stubs.py writes this."""

from ..array import Tensor
from .derived import Derived
from .functional.arguments import Ints

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ZeroPad1d",
    "ZeroPad2d",
]

class CircularPad1d(Derived):
    """The last elements added before the first, and the first behind the last, of the last dimension."""
    def __init__(self, padding: Ints) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class CircularPad2d(Derived):
    """The last elements added before the first, and the first behind the last, of the last two dimensions."""
    def __init__(self, padding: Ints) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ConstantPad1d(Derived):
    """A number added at both ends of the last dimension."""
    def __init__(self, padding: Ints, value: float) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ConstantPad2d(Derived):
    """A number added at both ends of the last two dimensions."""
    def __init__(self, padding: Ints, value: float) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ReflectionPad1d(Derived):
    """Frames mirrored at the first and at the last one, at both ends of the last dimension."""
    def __init__(self, padding: Ints) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ReflectionPad2d(Derived):
    """Elements mirrored at the first and at the last one, at both ends of the last two dimensions."""
    def __init__(self, padding: Ints) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ReplicationPad1d(Derived):
    """The first and the last frame repeated at both ends of the last dimension."""
    def __init__(self, padding: Ints) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ReplicationPad2d(Derived):
    """The first and the last element repeated at both ends of the last two dimensions."""
    def __init__(self, padding: Ints) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ZeroPad1d(Derived):
    """Zeros added at both ends of the last dimension."""
    def __init__(self, padding: Ints) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ZeroPad2d(Derived):
    """Zeros added at both ends of the last two dimensions."""
    def __init__(self, padding: Ints) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...
