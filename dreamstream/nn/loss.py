"""Losses as layers, each made from the function of its name."""

from __future__ import annotations

from typing import Any

from . import functional as F
from .derived import layer

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CrossEntropyLoss", "KLDivLoss", "L1Loss", "MSELoss", "NLLLoss",
    "SmoothL1Loss",
]  # fmt: skip


def _keep_tensors(self: Any) -> None:
    """Make buffers of tensors among the arguments."""
    for name in ("weight", "pos_weight"):
        if hasattr(self, name):
            self.register_buffer(name, getattr(self, name))


def _loss(name: str, function: Any, operands: int = 2, **more: Any) -> Any:
    called = f"Input and target as the function has them, `functional.{function.__name__}`."
    notes = f"Notes\n-----\n{called} Source: torch.nn.{name}."
    return layer(__name__, notes, name, function, operands=operands, prepare=_keep_tensors, **more)


_SHORT = ("size_average", "reduce", "reduction")

MSELoss = _loss("MSELoss", F.mse_loss, order=_SHORT)
L1Loss = _loss("L1Loss", F.l1_loss, order=_SHORT)
SmoothL1Loss = _loss("SmoothL1Loss", F.smooth_l1_loss)
BCELoss = _loss("BCELoss", F.binary_cross_entropy)
BCEWithLogitsLoss = _loss("BCEWithLogitsLoss", F.binary_cross_entropy_with_logits)
KLDivLoss = _loss("KLDivLoss", F.kl_div)
NLLLoss = _loss("NLLLoss", F.nll_loss)
CrossEntropyLoss = _loss("CrossEntropyLoss", F.cross_entropy)
CTCLoss = _loss("CTCLoss", F.ctc_loss, operands=4)
