"""The layers made from functions; tests/source/test_stubs.py writes this."""

from .derived import Derived

class CELU(Derived):
    """x above zero, alpha * (e ** (x / alpha) - 1) below."""
    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None: ...

class ELU(Derived):
    """x above zero, alpha * (e ** x - 1) below."""
    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None: ...

class GELU(Derived):
    """x times the normal distribution function of x."""
    def __init__(self, approximate: str = 'none') -> None: ...

class GLU(Derived):
    """The first half of dimension `dim` times the sigmoid of the second."""
    def __init__(self, dim: int = -1) -> None: ...

class SELU(Derived):
    """elu with the fixed alpha 1.673…, times 1.0507…."""
    def __init__(self, inplace: bool = False) -> None: ...

class Hardshrink(Derived):
    """x, but 0 where its size is at most `lambd`."""
    def __init__(self, lambd: float = 0.5) -> None: ...

class Hardsigmoid(Derived):
    """x + 3 moved into [0, 6], / 6."""
    def __init__(self, inplace: bool = False) -> None: ...

class Hardswish(Derived):
    """x * hardsigmoid(x)."""
    def __init__(self, inplace: bool = False) -> None: ...

class Hardtanh(Derived):
    """x moved into [min_val, max_val]."""
    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None: ...

class LeakyReLU(Derived):
    """x above zero, negative_slope * x below."""
    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None: ...

class LogSigmoid(Derived):
    """log(sigmoid(x))."""
    def __init__(self) -> None: ...

class LogSoftmax(Derived):
    """log(softmax(x)) along `dim`, which must be given."""
    def __init__(self, dim: int | None = None) -> None: ...

class Mish(Derived):
    """x * tanh(softplus(x))."""
    def __init__(self, inplace: bool = False) -> None: ...

class RReLU(Derived):
    """x above zero, and x times a slope below, which every element draws for itself in training."""
    def __init__(
        self, lower: float = 0.125, upper: float = 0.3333333333333333, inplace: bool = False
    ) -> None: ...

class ReLU(Derived):
    """max(x, 0)."""
    def __init__(self, inplace: bool = False) -> None: ...

class SiLU(Derived):
    """x * sigmoid(x)."""
    def __init__(self, inplace: bool = False) -> None: ...

class Sigmoid(Derived):
    """1 / (1 + e ** -x)."""
    def __init__(self) -> None: ...

class Softmax(Derived):
    """e ** x / sum(e ** x) along `dim`, which must be given."""
    def __init__(self, dim: int | None = None) -> None: ...

class Softmin(Derived):
    """softmax(-x) along `dim`, which must be given."""
    def __init__(self, dim: int | None = None) -> None: ...

class Softplus(Derived):
    """log(1 + e ** (beta * x)) / beta; x where beta * x is above `threshold`."""
    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None: ...

class Softshrink(Derived):
    """x, `lambd` nearer to 0; 0 where its size is at most that."""
    def __init__(self, lambd: float = 0.5) -> None: ...

class Softsign(Derived):
    """`x / (1 + |x|)`."""
    def __init__(self) -> None: ...

class Tanh(Derived):
    """The hyperbolic tangent."""
    def __init__(self) -> None: ...

class Tanhshrink(Derived):
    """x - tanh(x)."""
    def __init__(self) -> None: ...

class Threshold(Derived):
    """x above `threshold`, `value` elsewhere."""
    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None: ...
