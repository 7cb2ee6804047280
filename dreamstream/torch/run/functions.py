"""Functions of torch that are operators of an eager call, where the C registry has their parts only.

What the native front end composes of several operators has torch's values, but the gradient of the composition:
another one, or NaN, where elements are equal, zero, at a limit, or infinite. So torch's own function runs in a
call. A capture takes the composition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import _core
from ...array.dtypes import nominal
from ...array.operators import MAKERS
from ..private import without_functions
from .kernels import Kernel, Step
from .kernels.pointwise import TYPES, aligned
from .kernels.pooling import max_pool_across
from .kernels.reductions import chosen_frame, nothing_chosen


class Function:
    """A function of torch in an operator's place, which sees every frame by itself."""

    whole = carries = False
    framewise = lockstep = same_counts = in_python = True

    def __init__(
        self,
        name: str,
        attributes: Mapping[str, Any],
        inputs: Sequence[Any],
        weights: Sequence[Any],
        *,
        kernel: Kernel,
    ) -> None:
        self.name, self.attributes = name, {"order": [], **attributes}
        self.n_values = len(inputs)
        self.kernel = kernel  #: What computes it.
        frames = tuple(tuple(features) for _, features, _, _ in inputs)
        like = [torch.empty((1, *f), dtype=TYPES[i[0]], device="meta") for i, f in zip(inputs, frames)]
        like += [torch.empty(shape, dtype=TYPES[dtype], device="meta") for dtype, shape in weights]
        with without_functions():
            made = kernel.run(Step(name, self.attributes, frames, ()), *like)
        rate = tuple(inputs[0][2:])
        outputs: Sequence[Tensor] = [made] if isinstance(made, Tensor) else made
        #: As `_core.Op` has them: type, features and rate of each.
        self.outputs = [(nominal(y.dtype).name, tuple(y.shape[1:]), *rate) for y in outputs]

    def counts(self, inputs: Sequence[Any], ended: Any, ids: Sequence[str] = ()) -> list[Any]:
        """Return the outputs' counts, which are the inputs'; where an input is missing, so are they."""
        least = np.minimum.reduce(inputs)
        return [least.copy() for _ in self.outputs]


def of_elements(name: str, function: Callable[..., Any]) -> None:
    """Enter a function of single elements, whose operands broadcast.

    Its attributes are ``order``, as binary operators have it, ``named``, the parameters that are operands, and all
    other arguments by name; the name of the first parameter is empty.
    """

    def alone(step: Step, weights: Sequence[Any]) -> Callable[..., Any] | None:
        options = _options(step)
        return None if list(step.attributes["named"]) != [""] else lambda step, x: function(x, **options)

    _enter(name, lambda step, *given: _called(function, step, aligned(step, given)), alone)


def of_frames(name: str, function: Callable[..., Any]) -> None:
    """Enter a function of every frame's features, whose axes count from the end; see `of_elements`."""

    def run(step: Step, *given: Tensor) -> Any:
        n, order = len(step.ranks), step.attributes["order"]
        operands = {0: iter(given[:n]), 1: iter(given[n:])}
        return _called(function, step, [next(operands[kind]) for kind in order or [0] * n])

    _enter(name, run)


def _called(function: Callable[..., Any], step: Step, operands: Sequence[Any]) -> Any:
    named = {**dict(zip(step.attributes["named"], operands)), **_options(step)}
    return function(named.pop(""), **named)


def _options(step: Step) -> dict[str, Any]:
    return {k: v for k, v in step.attributes.items() if k not in ("order", "named")}


class Stand:
    """An operator of the C registry whose values another kernel computes."""

    in_python = True

    def __init__(self, op: Any, kernel: Kernel) -> None:
        self.op, self.kernel = op, kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self.op, name)


def _in_place_of(operator: str, name: str, kernel: Kernel) -> None:
    """Enter what computes the values of an operator of the C registry under another name."""

    def make(_: str, attributes: Mapping[str, Any], inputs: Sequence[Any], weights: Sequence[Any]) -> Stand:
        return Stand(_core.Op(operator, attributes, inputs, weights), kernel)

    MAKERS[name] = make


_in_place_of("reduce_frames", "chosen_frame", Kernel(chosen_frame, False, carries=nothing_chosen))
_in_place_of("max_pool", "max_pool_across", Kernel(max_pool_across, False, numbers=True))


def _enter(name: str, run: Callable[..., Any], alone: Callable[..., Any] | None = None) -> None:
    MAKERS[name] = partial(Function, kernel=Kernel(run, True, alone=alone))
