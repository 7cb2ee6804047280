"""What a trainer does besides its steps: clipping, schedules, averages of weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .. import nn
from ..errors import FormatError
from .front import is_native, no_grad_of, torch_module


class Callback:
    """What `ChunkTrainer` calls around its steps; a subclass defines what it needs.

    What `state_dict` returns is kept in checkpoints: numbers, texts, arrays, and lists and dicts of these.
    """

    def before_step(self, trainer: Any) -> None:
        """Run when the gradients of a step are whole (and unscaled), before the optimizer uses them."""

    def after_step(self, trainer: Any) -> None:
        """Run behind each step; ``trainer.save`` may be called here."""

    def after_epoch(self, trainer: Any) -> None:
        """Run behind each epoch, whose loss is ``trainer.result``, and ``trainer.validation`` in `fit`."""

    def state_dict(self) -> dict[str, Any]:
        """Return what has to be kept from one process to the next."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` has returned."""


class Call(Callback):
    """A function of the trainer, which is called behind each step."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def after_step(self, trainer: Any) -> None:
        """Call the function."""
        self.function(trainer)


class ClipGradNorm(Callback):
    """Bounds the norm of all gradients together, by `clip_grad_norm_`.

    Parameters
    ----------
    max_norm, norm_type : float
        As of ``nn.utils.clip_grad_norm_``.
    """

    def __init__(self, max_norm: float, norm_type: float = 2.0) -> None:
        self.max_norm, self.norm_type = max_norm, norm_type

    def before_step(self, trainer: Any) -> None:
        """Clip."""
        _utils_of(trainer.model).clip_grad_norm_(trainer.model.parameters(), self.max_norm, self.norm_type)


class ClipGradValue(Callback):
    """Bounds each element of the gradients, by `clip_grad_value_`.

    Parameters
    ----------
    clip_value : float
        As of ``nn.utils.clip_grad_value_``.
    """

    def __init__(self, clip_value: float) -> None:
        self.clip_value = clip_value

    def before_step(self, trainer: Any) -> None:
        """Clip."""
        _utils_of(trainer.model).clip_grad_value_(trainer.model.parameters(), self.clip_value)


class Schedule(Callback):
    """Steps a schedule of learning rates.

    Parameters
    ----------
    scheduler : torch.optim.lr_scheduler.LRScheduler or dreamstream.optim.lr_scheduler.LRScheduler
        ReduceLROnPlateau gets the loss of the validation, else of the epoch.
    each : {"step", "epoch"}
        When it takes a step.
    """

    def __init__(self, scheduler: Any, each: str = "step") -> None:
        if each not in ("step", "epoch"):
            raise ValueError(f'Schedule: each is "step" or "epoch", got {each!r}')
        self.scheduler, self.each = scheduler, each

    def after_step(self, trainer: Any) -> None:
        """Take a step of the schedule."""
        if self.each == "step":
            self._advance(trainer.last)

    def after_epoch(self, trainer: Any) -> None:
        """Take a step of the schedule."""
        if self.each == "epoch":
            self._advance(trainer.result if trainer.validation is None else trainer.validation)

    def _advance(self, loss: float) -> None:
        if hasattr(self.scheduler, "num_bad_epochs"):
            self.scheduler.step(float(loss))
        else:
            self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the schedule's."""
        state: dict[str, Any] = self.scheduler.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the schedule its own."""
        self.scheduler.load_state_dict(dict(state))


class Average(Callback):
    """Keeps an exponential moving average of the weights.

    Parameters
    ----------
    model : Module
    decay : float
        Which part of the average stays in a step.

    Examples
    --------
    >>> import dreamstream as ds
    >>> model = ds.nn.Linear(1, 1, bias=False)
    >>> average = Average(model, decay=0.5)
    >>> with average.applied():  # to evaluate or save the model
    ...     pass
    """

    def __init__(self, model: Any, decay: float = 0.999) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"Average: decay is from 0 to below 1, got {decay}")
        self.model, self.decay = model, decay
        self.weights = self._now()

    def _now(self) -> dict[str, Any]:
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def after_step(self, trainer: Any) -> None:
        """Let the average follow the weights."""
        with no_grad_of(self.model)():
            for name, p in self.model.named_parameters():
                known = self.weights[name]
                self.weights[name] = known + (p.detach() - known) * (1 - self.decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the model have the averaged weights within it, and its own again after it."""
        own = self._now()
        try:
            self.model.load_state_dict(self.weights, strict=False)
            yield
        finally:
            self.model.load_state_dict(own, strict=False)

    def state_dict(self) -> dict[str, Any]:
        """Return the averages."""
        return {"weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take averages over."""
        given = state["weights"]
        if given.keys() != self.weights.keys():
            raise FormatError("these are averages of the weights of another model")
        self.weights = {name: given[name].to(like.device) for name, like in self.weights.items()}


def _utils_of(model: Any) -> Any:
    return nn.utils if is_native(model) else torch_module().nn.utils
