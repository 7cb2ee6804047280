"""Losses as layers, each made from the function of its name."""

from __future__ import annotations

from typing import Any

from ..array import Tensor
from . import functional as F
from .functional.texts import parameters_of
from .module import Module

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CrossEntropyLoss", "KLDivLoss", "L1Loss", "MSELoss", "NLLLoss",
    "SmoothL1Loss",
]  # fmt: skip

_NOTES = "Notes\n-----\nInput and target as the function has them, {name}. Source: torch.nn.{layer}."


class _Loss(Module):
    """A function of an input and a target, with the constructor's arguments; tensors among them are buffers."""

    _function: Any

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = tuple(options)
        for name, value in options.items():
            if name in ("weight", "pos_weight"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        given = {name: getattr(self, name) for name in self._options}
        return type(self)._function(input, target, **given)


def _described(name: str) -> Any:
    """Make a class the layer of a function, whose parameters it has."""

    def add(cls: Any) -> Any:
        function = getattr(F, name)
        cls._function = staticmethod(function)
        names = [n for n in cls.__init__.__code__.co_varnames if n not in ("self", "size_average", "reduce")]
        notes = _NOTES.format(name=f"`functional.{name}`", layer=cls.__name__)
        cls.__doc__ = f"{cls.__doc__}\n\n{parameters_of(function, names)}\n\n{notes}"
        return cls

    return add


@_described("mse_loss")
class MSELoss(_Loss):
    """The square of the difference."""

    def __init__(self, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


@_described("l1_loss")
class L1Loss(_Loss):
    """The absolute difference."""

    def __init__(self, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


@_described("smooth_l1_loss")
class SmoothL1Loss(_Loss):
    """The absolute difference, with a parabola around 0."""

    def __init__(
        self, size_average: Any = None, reduce: Any = None, reduction: str = "mean", beta: float = 1.0
    ) -> None:
        super().__init__(reduction=reduction, beta=beta)


@_described("binary_cross_entropy")
class BCELoss(_Loss):
    """The cross entropy of probabilities of one of two classes."""

    def __init__(
        self, weight: Tensor | None = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
    ) -> None:
        super().__init__(weight=weight, reduction=reduction)


@_described("binary_cross_entropy_with_logits")
class BCEWithLogitsLoss(_Loss):
    """`BCELoss` of sigmoid(input), exact for large inputs."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(weight=weight, reduction=reduction, pos_weight=pos_weight)


@_described("kl_div")
class KLDivLoss(_Loss):
    """The divergence of a distribution, given by logarithms, from a target."""

    def __init__(
        self, size_average: Any = None, reduce: Any = None, reduction: str = "mean", log_target: bool = False
    ) -> None:
        super().__init__(reduction=reduction, log_target=log_target)


@_described("nll_loss")
class NLLLoss(_Loss):
    """The input at the target's class, negated."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        ignore_index: int = -100,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)


@_described("cross_entropy")
class CrossEntropyLoss(_Loss):
    """`NLLLoss` of log_softmax(input)."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        ignore_index: int = -100,
        reduce: Any = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            weight=weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
        )


@_described("ctc_loss")
class CTCLoss(_Loss):
    """The loss of all ways to spell a target, with blanks and repeated classes."""

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(blank=blank, reduction=reduction, zero_infinity=zero_infinity)

    def forward(  # type: ignore[override]
        self, log_probs: Tensor, targets: Any, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        """Return the loss."""
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )
