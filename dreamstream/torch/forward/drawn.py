"""Numbers that a forward draws at random and that all frames of a stream share.

Offline such a number is drawn once for a whole file; a call would draw it anew for every chunk. Drawing alone does
no harm (a layer may ask for a random number and use it in training only), so what is drawn, and what plain tensors
are computed of it, is remembered by its memory, and refused where it meets a stream or becomes a number of Python.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import NotStreamableError, StreamWarning
from ...operations.refusals import DRAWN
from ...source_line import user_line
from ...stream.tree import leaves
from ..private import is_random_operator, without_functions, without_subclass
from .held import memory_of
from .names import writes

#: Functions of Python that draw by operators of torch.
_OF_PYTHON = frozenset(
    ("dropout1d", "dropout2d", "dropout3d", "gumbel_softmax", "fractional_max_pool2d", "fractional_max_pool3d")
)
#: What makes a number of a tensor.
MAKE_NUMBERS = frozenset(
    ("item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__", "is_nonzero")
)


@lru_cache(maxsize=4096)
def draws(func: Any) -> bool:
    """Return whether a function of torch may draw numbers."""
    name = func.__name__
    return (
        name in _OF_PYTHON
        or getattr(func, "__module__", None) == "torch.nn.init"
        or is_random_operator(name)
        or (name.endswith("_") and is_random_operator(name[:-1]))
    )


@lru_cache(maxsize=1024)
def only_computes(func: Any) -> bool:
    """Return whether a function of torch neither writes into its arguments nor draws numbers."""
    return not (writes(func.__name__, {}) or draws(func))


class Drawn:
    """The numbers that were drawn during one forward."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held: dict[int, tuple[Tensor, str]] = {}  # by memory, which the tensor keeps from being used again

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of plain tensors and remember what it draws."""
        generator = kwargs.get("generator")
        before = _states(self._device, generator) if draws(func) else []
        line = next((self._held[m][1] for m in map(memory_of, _tensors((args, kwargs))) if m in self._held), None)
        if line is not None and func.__name__ in MAKE_NUMBERS:
            raise _refusal(line)
        out = func(*args, **kwargs)
        if before and not all(map(torch.equal, before, _states(self._device, generator))):
            line = user_line()
        if line is not None:
            self._held.update({memory_of(x): (x, line) for x in _tensors(out)})
        return out

    def holds(self, x: Tensor) -> bool:
        """Return whether a tensor was drawn, or computed of what was."""
        return bool(self._held) and memory_of(x) in self._held

    def require_none(self, x: Tensor) -> None:
        """Raise for a tensor that meets a stream, where it was drawn."""
        if self.holds(x):
            raise _refusal(self._held[memory_of(x)][1])


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in leaves(tree) if isinstance(x, Tensor) and x.layout == torch.strided and x.numel()]


def _refusal(line: str) -> NotStreamableError:
    return NotStreamableError(f"numbers drawn at {line}: {DRAWN.text}")


def _states(device: torch.device, generator: Any = None) -> list[Tensor]:
    with without_subclass(), without_functions():
        return [generator.get_state()] if generator is not None else random_states(device)


def random_states(device: torch.device) -> list[Tensor]:
    """Return the states of torch's generators."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def _places() -> tuple[Any, ...]:
    """Return how far the generators of Python and NumPy have come."""
    state = np.random.get_state(legacy=False)
    inner = state["state"]
    return random.getstate(), inner["pos"] if "pos" in inner else repr(inner), repr(state["gauss"])


@contextmanager
def places_of_draws(forward: Any) -> Iterator[list[str]]:
    """Enter a forward; give the line of the first operation on streams after Python's or NumPy's generator drew.

    It often uses what was drawn.
    """
    lines: list[str] = []
    before = _places()

    def watching() -> None:
        if not lines and _places() != before:
            lines.append(user_line())

    forward.watching = watching
    try:
        with forward:
            yield lines
    finally:
        forward.watching = None


def warn_of_others(name: str, lines: list[str]) -> None:
    """Warn that a forward draws numbers of Python's or NumPy's generator, which are not followed."""
    at = f" at or before {lines[0]}" if lines else ""
    warnings.warn(
        f"the forward of {name} draws numbers by random or np.random{at}. If frames use them, {DRAWN.words[0]}: "
        f"{DRAWN.words[1]}",
        StreamWarning,
        stacklevel=2,
    )
