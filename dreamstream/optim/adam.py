"""Adam and AdamW: steps divided by the size that gradients have had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import _core
from ..array import Tensor
from .optimizer import Array, Optimizer, Params, kept, positive


class Adam(Optimizer):
    """Divides the mean of gradients by the root of the mean of their squares.

    Parameters
    ----------
    params : iterable of Parameter, of (name, Parameter), or of dict
        What changes, in groups with options of their own if they are dicts.
    lr : float
        The learning rate.
    betas : (float, float)
        Which part of the means of gradients and of their squares stays in a step.
    eps : float
        What is added to the root.
    weight_decay : float
        How much of the parameter is added to its gradient.
    amsgrad : bool
        Whether the largest mean of squares so far divides.
    maximize : bool
        Whether steps follow the gradient.
    decoupled_weight_decay : bool
        Whether the weight decay shrinks the parameter itself, as in `AdamW`.
    foreach, capturable, differentiable, fused : object
        For torch's sake: they change nothing.

    Raises
    ------
    ValueError
        For negative numbers, and `betas` that are not within [0, 1).

    Notes
    -----
    Source: torch.optim.Adam.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        name = type(self).__name__
        positive(name, lr=lr, eps=eps, weight_decay=weight_decay)
        if not all(0 <= b < 1 for b in betas):
            raise ValueError(f"{name}: betas are from 0 to below 1, got {betas}")
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
            "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)

    def update(self, p: Array, g: Array, state: dict[str, Any], group: Mapping[str, Any]) -> None:
        """Change a parameter in place."""
        lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
        n = float(state["step"]) + 1 if "step" in state else 1.0
        state["step"] = Tensor(np.array(n, np.float32))
        mean, square = kept(state, "exp_avg", p), kept(state, "exp_avg_sq", p)
        most = kept(state, "max_exp_avg_sq", p) if group["amsgrad"] else None
        added, shrink = (0, 1 - lr * decay) if group["decoupled_weight_decay"] else (decay, 1)
        root, rate = (1 - beta2**n) ** 0.5, lr / (1 - beta1**n)
        _core.adam(p, g, mean, square, most, added, shrink, 1 - beta1, beta2, 1 - beta2, root, group["eps"], rate)


class AdamW(Adam):
    """`Adam` whose weight decay shrinks the parameter itself.

    Parameters
    ----------
    params, lr, betas, eps, amsgrad, maximize, foreach, capturable, differentiable, fused
        As of `Adam`.
    weight_decay : float
        Times the learning rate, how much of the parameter goes in a step.

    Notes
    -----
    Source: torch.optim.AdamW.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad,
            foreach=foreach, maximize=maximize, capturable=capturable, differentiable=differentiable, fused=fused,
            decoupled_weight_decay=True,
        )  # fmt: skip
