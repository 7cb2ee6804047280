"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import _core
from .optimizer import Array, Optimizer, Params, kept, positive


class SGD(Optimizer):
    """Steps against the gradient, with momentum or without.

    Parameters
    ----------
    params : iterable of Parameter, of (name, Parameter), or of dict
        What changes, in groups with options of their own if they are dicts.
    lr : float
        The learning rate.
    momentum : float
        Which part of the last step's direction stays.
    dampening : float
        Which part of the gradient the direction does without.
    weight_decay : float
        How much of the parameter is added to its gradient.
    nesterov : bool
        Whether the step looks ahead along the direction.
    maximize : bool
        Whether steps follow the gradient.
    foreach, differentiable, fused : object
        For torch's sake: they change nothing.

    Raises
    ------
    ValueError
        For negative numbers, and `nesterov` without momentum or with dampening.

    Notes
    -----
    Source: torch.optim.SGD.

    Examples
    --------
    >>> import dreamstream as ds
    >>> w = ds.nn.Parameter(ds.ones(2))
    >>> optimizer = SGD([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.0, 0.0]
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        positive("SGD", lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("SGD: nesterov needs momentum, and no dampening")
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize, "foreach": foreach, "differentiable": differentiable,
            "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)

    def update(self, p: Array, g: Array, state: dict[str, Any], group: Mapping[str, Any]) -> None:
        """Change a parameter in place."""
        momentum, decay = group["momentum"], group["weight_decay"]
        first = bool(momentum) and state.get("momentum_buffer") is None
        mean = kept(state, "momentum_buffer", p) if momentum else None
        fresh = 1 - group["dampening"]
        _core.sgd(p, g, mean, first, group["nesterov"], decay, momentum, fresh, group["lr"])
