"""Learning rates that change with steps.

Names, arguments, numbers and state dicts are torch.optim.lr_scheduler's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .optimizer import Optimizer

__all__ = ["CosineAnnealingLR", "LRScheduler", "LambdaLR", "OneCycleLR", "ReduceLROnPlateau", "StepLR"]

Rates = list[float]


class LRScheduler:
    """Base class of schedules: sets the learning rates of an optimizer's groups with each `step`.

    Parameters
    ----------
    optimizer : Optimizer
    last_epoch : int
        The number of the last step; -1 begins.

    Notes
    -----
    A subclass defines `get_lr`. Call `step` behind the optimizer's. Source:
    torch.optim.lr_scheduler.LRScheduler.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = require_optimizer(optimizer)
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f"group {i} has no 'initial_lr', with which last_epoch={last_epoch} goes on; load the "
                    "optimizer's state first"
                )
        self.base_lrs: Rates = [g["initial_lr"] for g in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._is_initial = True
        self.step()
        self._is_initial = False
        self._get_lr_called_within_step = False  # stands in torch's state dicts

    def get_lr(self) -> Rates:
        """Return the learning rates of this step; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr")

    def get_last_lr(self) -> Rates:
        """Return the learning rates of all groups."""
        return self._last_lr

    def step(self) -> None:
        """Go on to the next step."""
        self._step_count += 1
        self.last_epoch += 1
        for group, lr in zip(self.optimizer.param_groups, self.get_lr()):
            group["lr"] = lr
        self._last_lr = self._rates()

    def _rates(self) -> Rates:
        return [g["lr"] for g in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return all but the optimizer, in torch's layout."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` of this class, or of torch's, has returned."""
        self.__dict__.update(state_dict)


def require_optimizer(optimizer: Any) -> Optimizer:
    """Return an optimizer; raise TypeError for anything else."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"a schedule takes an optimizer of dreamstream.optim, got {type(optimizer).__name__}")
    return optimizer


def _of_groups(name: str, value: Any, optimizer: Optimizer) -> list[Any]:
    """Return a number per group."""
    n = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * n
    if len(value) != n:
        raise ValueError(f"{name}: expected {n} values, one per group, got {len(value)}")
    return list(value)


class StepLR(LRScheduler):
    """Multiplies the rates by `gamma` every `step_size` steps.

    Parameters
    ----------
    optimizer : Optimizer
    step_size : int
    gamma : float
    last_epoch : int
        The number of the last step; -1 begins.

    Notes
    -----
    Source: torch.optim.lr_scheduler.StepLR.
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """Return the learning rates of this step."""
        due = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return [lr * self.gamma if due else lr for lr in self._rates()]


class LambdaLR(LRScheduler):
    """Multiplies the first rates by what a function gives for the number of the step.

    Parameters
    ----------
    optimizer : Optimizer
    lr_lambda : callable or list of callable
        Of the step's number; one for all groups, or one for each.
    last_epoch : int
        The number of the last step; -1 begins.

    Notes
    -----
    A state dict holds the attributes of objects that can be called; functions have to be given again. Source:
    torch.optim.lr_scheduler.LambdaLR.
    """

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Any], last_epoch: int = -1
    ) -> None:
        self.lr_lambdas = _of_groups("lr_lambda", lr_lambda, require_optimizer(optimizer))
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """Return the learning rates of this step."""
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs)]

    def state_dict(self) -> dict[str, Any]:
        """Return all but the optimizer and functions, in torch's layout."""
        held = [None if hasattr(f, "__code__") else dict(f.__dict__) for f in self.lr_lambdas]
        return {k: v for k, v in super().state_dict().items() if k != "lr_lambdas"} | {"lr_lambdas": held}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` of this class, or of torch's, has returned."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for f, held in zip(self.lr_lambdas, state_dict["lr_lambdas"]):
            if held is not None:
                f.__dict__.update(held)


class CosineAnnealingLR(LRScheduler):
    """Moves the rates along half a cosine from their first values to `eta_min` and back.

    Parameters
    ----------
    optimizer : Optimizer
    T_max : int
        Steps of the way down.
    eta_min : float
        The least rate.
    last_epoch : int
        The number of the last step; -1 begins.

    Notes
    -----
    Source: torch.optim.lr_scheduler.CosineAnnealingLR.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """Return the learning rates of this step, from those of the step before, which others may have changed."""
        if self._is_initial:
            return self._rates()
        n, low = self.last_epoch, self.eta_min
        if self._step_count == 1 and n > 0:
            return [low + (base - low) * (1 + math.cos(n * math.pi / self.T_max)) / 2 for base in self.base_lrs]
        if (n - 1 - self.T_max) % (2 * self.T_max) == 0:
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [lr + (base - low) * rise for lr, base in zip(self._rates(), self.base_lrs)]
        now, before = (1 + math.cos(math.pi * i / self.T_max) for i in (n, n - 1))
        return [now / before * (lr - low) + low for lr in self._rates()]


class OneCycleLR(LRScheduler):
    """Raises the rates to `max_lr` and lowers them far below where they began; momentum goes the other way.

    Parameters
    ----------
    optimizer : Optimizer
    max_lr : float or list of float
        The greatest rate, of all groups or of each.
    total_steps : int, optional
        Steps in all; or `epochs` times `steps_per_epoch`.
    epochs, steps_per_epoch : int, optional
    pct_start : float
        Which part of the steps leads upwards.
    anneal_strategy : {"cos", "linear"}
        The way between two rates.
    cycle_momentum : bool
        Whether momentum, or the first of `betas`, changes too.
    base_momentum, max_momentum : float or list of float
        Its bounds.
    div_factor : float
        What the greatest rate is divided by at first.
    final_div_factor : float
        What the first rate is divided by at the end.
    three_phase : bool
        Whether the way down stops at the first rate.
    last_epoch : int
        The number of the last step; -1 begins.

    Raises
    ------
    ValueError
        For numbers of steps below 1, other words, an optimizer without momentum where it is to change, and a step
        beyond the last.

    Notes
    -----
    Source: torch.optim.lr_scheduler.OneCycleLR.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        require_optimizer(optimizer)
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch if min(epochs, steps_per_epoch) > 0 else 0
        if not isinstance(total_steps, int) or total_steps < 1:
            raise ValueError(f"OneCycleLR: the number of steps must be at least 1, got {total_steps}")
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"OneCycleLR: pct_start is a float from 0 to 1, got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"OneCycleLR: anneal_strategy is 'cos' or 'linear', got {anneal_strategy!r}")
        self.total_steps = total_steps
        turns = [pct_start * total_steps - 1, *([2 * pct_start * total_steps - 2] if three_phase else [])]
        rates = ["initial_lr", "max_lr", *(["initial_lr"] if three_phase else []), "min_lr"]
        momenta = ["max_momentum", "base_momentum", *["max_momentum"] * (2 if three_phase else 1)]
        self._schedule_phases: list[dict[str, Any]] = [
            {
                "end_step": end, "start_lr": rates[i], "end_lr": rates[i + 1],
                "start_momentum": momenta[i], "end_momentum": momenta[i + 1],
            }
            for i, end in enumerate([*turns, total_steps - 1])
        ]  # fmt: skip
        self._anneal_func_type = anneal_strategy
        self.cycle_momentum = cycle_momentum
        begins = last_epoch == -1
        for group, most in zip(optimizer.param_groups, _of_groups("max_lr", max_lr, optimizer)):
            if begins:
                group["initial_lr"] = most / div_factor
                group["max_lr"] = most
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            if not {"momentum", "betas"} & {*optimizer.defaults}:
                raise ValueError("OneCycleLR: this optimizer has no momentum to change; give cycle_momentum=False")
            self.use_beta1 = "betas" in optimizer.defaults
            bounds = [_of_groups("momentum", m, optimizer) for m in (base_momentum, max_momentum)]
            for group, base, most in zip(optimizer.param_groups, *bounds):
                if begins:
                    group["max_momentum"], group["base_momentum"] = most, base
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, part: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * part + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)

    def get_lr(self) -> Rates:
        """Return the learning rates of this step, and change the momentum."""
        n = self.last_epoch
        if n > self.total_steps:
            raise ValueError(f"OneCycleLR: step {n} of {self.total_steps}")
        begin = 0.0
        for phase in self._schedule_phases:
            if n <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            begin = phase["end_step"]
        part = (n - begin) / (phase["end_step"] - begin)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[phase["start_lr"]], group[phase["end_lr"]], part))
            if self.cycle_momentum:
                momentum = self._between(group[phase["start_momentum"]], group[phase["end_momentum"]], part)
                if self.use_beta1:
                    group["betas"] = (momentum, *group["betas"][1:])
                else:
                    group["momentum"] = momentum
        return rates


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rates by `factor` when a number has not become better for `patience` steps.

    Parameters
    ----------
    optimizer : Optimizer
    mode : {"min", "max"}
        Whether smaller numbers are better.
    factor : float
        Below 1.
    patience : int
        Steps without a better number that are let pass.
    threshold : float
        By how much a number must be better.
    threshold_mode : {"rel", "abs"}
        Whether that is a part of the best number, or a number.
    cooldown : int
        Steps behind a change in which none is counted.
    min_lr : float or list of float
        The least rate, of all groups or of each.
    eps : float
        The least change that is made.

    Raises
    ------
    ValueError
        For a factor from 1 on, and other words.

    Notes
    -----
    Source: torch.optim.lr_scheduler.ReduceLROnPlateau.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1:
            raise ValueError(f"ReduceLROnPlateau: factor must be below 1, got {factor}")
        if mode not in ("min", "max"):
            raise ValueError(f"ReduceLROnPlateau: mode is 'min' or 'max', got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"ReduceLROnPlateau: threshold_mode is 'rel' or 'abs', got {threshold_mode!r}")
        self.factor = factor
        self.optimizer = require_optimizer(optimizer)
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.min_lrs = _of_groups("min_lr", min_lr, optimizer)
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._rates()
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether the last change was `cooldown` steps ago or less."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any) -> None:  # type: ignore[override]
        """Go on to the next step, by the number that it has reached."""
        current = float(metrics)
        self.last_epoch += 1
        if self._is_better(current):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._rates()

    def _is_better(self, number: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        if self.threshold_mode == "rel":
            return sign * number < sign * self.best * (1 - sign * self.threshold)
        return sign * number < sign * self.best - self.threshold

    def _reduce(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise ValueError(
                    f"min_lr has {len(self.min_lrs)} values for {len(groups)} groups; set min_lrs anew"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs):
            new = max(group["lr"] * self.factor, least)
            if group["lr"] - new > self.eps:
                group["lr"] = new
