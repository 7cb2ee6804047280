"""A kernel of which a graph keeps the arguments alone: its backward runs it again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from ...private import without_functions


def checkpointed(
    kernel: Callable[..., Any], draws: bool, step: Any, windows: Any, weights: Any, state: Any
) -> Any:
    """Return what a windowed kernel with one output makes, and its state, through which no gradient goes.

    See `registry` for `kernel`, `step`, `windows`, `weights` and `state`; a window has `parts`. `draws` is whether
    the kernel draws random numbers, which are the same in the backward.
    """
    step = copy(step)  # the next call fills it anew
    makers = [(make, len(tensors)) for make, tensors in (w.parts() for w in windows)]
    tensors = [t for w in windows for t in w.parts()[1]]
    states: list[Any] = []

    def run(*given: Tensor | None) -> Tensor:
        parts = iter(given)
        with without_functions():
            made, now = kernel(step, [make(*islice(parts, n)) for make, n in makers], list(parts), state)
        states[:] = [now]
        return made[0]

    out: Tensor = _Checkpointed.apply(run, draws, *tensors, *weights)
    return (out,), states.pop()


class _Checkpointed(torch.autograd.Function):
    """A function of tensors, of which nothing else is kept."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Tensor], draws: bool, *tensors: Tensor | None) -> Tensor:
        kind = next(t.device.type for t in tensors if t is not None)
        ctx.run, ctx.generators = run, torch.cuda if kind == "cuda" else torch
        ctx.drawn = ctx.generators.get_rng_state() if draws else None
        ctx.cast = torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        ctx.save_for_backward(*tensors)
        return run(*tensors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        higher, saved = torch.is_grad_enabled(), ctx.saved_tensors
        own: list[Any] = [t if t is None else t.view_as(t) if higher else t.detach() for t in saved]
        wanted = [i for i, needs in enumerate(ctx.needs_input_grad[2:]) if needs]
        devices = [gradient.device] if ctx.generators is torch.cuda else []
        with nullcontext() if ctx.drawn is None else torch.random.fork_rng(devices), torch.enable_grad(), ctx.cast:
            if ctx.drawn is not None:
                ctx.generators.set_rng_state(ctx.drawn)
            inputs = [own[i].requires_grad_() for i in wanted]
            out = ctx.run(*own)
        found = torch.autograd.grad(out, inputs, gradient, create_graph=higher, allow_unused=True)
        slopes = dict(zip(wanted, found))
        return None, None, *map(slopes.get, range(len(own)))
