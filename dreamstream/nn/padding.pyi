"""The layers made from functions; tests/source/test_stubs.py writes this."""

from .derived import Derived
from .functional.arguments import Ints

class CircularPad1d(Derived):
    """The last elements added before the first, and the first behind the last, of the last dimension."""
    def __init__(self, padding: Ints) -> None: ...

class CircularPad2d(Derived):
    """The last elements added before the first, and the first behind the last, of the last two dimensions."""
    def __init__(self, padding: Ints) -> None: ...

class ConstantPad1d(Derived):
    """A number added at both ends of the last dimension."""
    def __init__(self, padding: Ints, value: float) -> None: ...

class ConstantPad2d(Derived):
    """A number added at both ends of the last two dimensions."""
    def __init__(self, padding: Ints, value: float) -> None: ...

class ReflectionPad1d(Derived):
    """Elements mirrored at the first and at the last one, at both ends of the last dimension."""
    def __init__(self, padding: Ints) -> None: ...

class ReflectionPad2d(Derived):
    """Elements mirrored at the first and at the last one, at both ends of the last two dimensions."""
    def __init__(self, padding: Ints) -> None: ...

class ReplicationPad1d(Derived):
    """The first and the last element repeated at both ends of the last dimension."""
    def __init__(self, padding: Ints) -> None: ...

class ReplicationPad2d(Derived):
    """The first and the last element repeated at both ends of the last two dimensions."""
    def __init__(self, padding: Ints) -> None: ...

class ZeroPad1d(Derived):
    """Zeros added at both ends of the last dimension."""
    def __init__(self, padding: Ints) -> None: ...

class ZeroPad2d(Derived):
    """Zeros added at both ends of the last two dimensions."""
    def __init__(self, padding: Ints) -> None: ...
