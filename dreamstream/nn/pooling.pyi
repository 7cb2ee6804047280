"""The layers made from functions; tests/source/test_stubs.py writes this."""

from typing import Any

from .derived import Derived
from .functional.arguments import Ints

class AdaptiveAvgPool1d(Derived):
    """The means of a number of parts of the last dimension."""
    def __init__(self, output_size: Any) -> None: ...

class AdaptiveAvgPool2d(Derived):
    """The means of a number of parts of each of the last two dimensions."""
    def __init__(self, output_size: Any) -> None: ...

class AdaptiveMaxPool1d(Derived):
    """The largest elements of a number of parts of the last dimension."""
    def __init__(self, output_size: Any, return_indices: bool = False) -> None: ...

class AdaptiveMaxPool2d(Derived):
    """The largest elements of a number of parts of each of the last two dimensions."""
    def __init__(self, output_size: Any, return_indices: bool = False) -> None: ...

class AvgPool1d(Derived):
    """The mean of each window over the last dimension."""
    def __init__(
        self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
        count_include_pad: bool = True
    ) -> None: ...

class AvgPool2d(Derived):
    """The mean of each window over the last two dimensions."""
    def __init__(
        self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None
    ) -> None: ...

class LPPool1d(Derived):
    """(sum x ** p) ** (1 / p) of each window over the last dimension; NaN where the sum is negative."""
    def __init__(
        self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False
    ) -> None: ...

class MaxPool1d(Derived):
    """The largest element of each window over the last dimension."""
    def __init__(
        self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
        return_indices: bool = False, ceil_mode: bool = False
    ) -> None: ...

class MaxPool2d(Derived):
    """The largest element of each window over the last two dimensions."""
    def __init__(
        self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
        return_indices: bool = False, ceil_mode: bool = False
    ) -> None: ...
