"""The layers made from functions; tests/source/test_stubs.py writes this."""

from typing import Any

from ..array import Tensor
from .derived import Derived

class BCELoss(Derived):
    """-(target * log(input) + (1 - target) * log(1 - input)), logarithms being at least -100."""
    def __init__(
        self, weight: Tensor | None = None, size_average: Any = None, reduce: Any = None, reduction: str = 'mean'
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...  # type: ignore[override]

class BCEWithLogitsLoss(Derived):
    """`binary_cross_entropy` of sigmoid(input), exact for large inputs."""
    def __init__(
        self, weight: Tensor | None = None, size_average: Any = None, reduce: Any = None, reduction: str = 'mean',
        pos_weight: Tensor | None = None
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...  # type: ignore[override]

class CTCLoss(Derived):
    """-log of the probability of all ways to spell the targets, with blanks and repeated classes."""
    def __init__(self, blank: int = 0, reduction: str = 'mean', zero_infinity: bool = False) -> None: ...
    def forward(self, log_probs: Tensor, targets: Any, input_lengths: Any, target_lengths: Any) -> Tensor: ...  # type: ignore[override]

class CrossEntropyLoss(Derived):
    """`nll_loss` of log_softmax(input), of classes' indices ``(N, *)`` or probabilities ``(N, C, *)``."""
    def __init__(
        self, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
        reduction: str = 'mean', label_smoothing: float = 0.0
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...  # type: ignore[override]

class KLDivLoss(Derived):
    """target * (log(target) - input), where the input is a logarithm; "batchmean" divides by the rows."""
    def __init__(
        self, size_average: Any = None, reduce: Any = None, reduction: str = 'mean', log_target: bool = False
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...  # type: ignore[override]

class L1Loss(Derived):
    """The absolute difference."""
    def __init__(self, size_average: Any = None, reduce: Any = None, reduction: str = 'mean') -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...  # type: ignore[override]

class MSELoss(Derived):
    """The square of the difference."""
    def __init__(self, size_average: Any = None, reduce: Any = None, reduction: str = 'mean') -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...  # type: ignore[override]

class NLLLoss(Derived):
    """-input at the target's class, ``(N, C, *)`` and ``(N, *)``; the mean is weighted."""
    def __init__(
        self, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
        reduction: str = 'mean'
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...  # type: ignore[override]

class SmoothL1Loss(Derived):
    """The absolute difference, with a parabola around 0: square / (2 * beta) below beta."""
    def __init__(
        self, size_average: Any = None, reduce: Any = None, reduction: str = 'mean', beta: float = 1.0
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...  # type: ignore[override]
