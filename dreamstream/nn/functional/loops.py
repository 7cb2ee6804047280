"""Recurrences over frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...array import scans
from ...array.creation import stack
from .texts import torch_lacks

__all__ = ["linear_recurrence", "scan"]


@torch_lacks
def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, dim: int = 1) -> tuple[Any, Any]:
    """Return what is carried after the last frame, and what each frame gives.

    Parameters
    ----------
    f : callable
        ``(carry, x)``, what is carried and one frame: gives ``(carry, y)``. `y` may be None.
    init : Tensor, or tuple, list or dict of tensors
        What is carried to the first frame: a constant with B, such as ``zeros(x.size(0), 4)``, or None.
    xs : Tensor or tuple of Tensor
        Frames, of which `f` gets a tuple where it is one.
    dim : int
        The dimension along which the frames lie: L.

    Returns
    -------
    carry, ys
        `ys` has the frames along `dim`; of a stream `carry` is known when it ends.

    Raises
    ------
    NotStreamableError
        Where `f` does what a loop over frames can't.
    DTypeError, ShapeError
        Where `f` is no function that returns two values, or `xs` no tensors of as many frames.

    Notes
    -----
    **Streaming.** No delay; what is carried is the state.

    Source: jax.lax.scan.
    """
    return scans.scan(f, init, xs, dim, stack)


@torch_lacks
def linear_recurrence(a: Any, b: Any, h0: Any = None, dim: int = 1) -> Any:
    """Return the frames of h with h[t] = a[t] * h[t - 1] + b[t].

    Parameters
    ----------
    a, b : Tensor
        Of equal shape, with L at `dim`.
    h0 : Tensor, optional
        What is before the first frame: a constant with B; zeros without it.
    dim : int
        The dimension along which the frames lie: L.

    Returns
    -------
    Tensor
        As `b`.

    Raises
    ------
    NotStreamableError
        Where `dim` is not L.
    DTypeError, ShapeError
        Where `a` and `b` are no tensors of as many frames.

    Notes
    -----
    **Streaming.** No delay; h is the state.
    """
    return scans.scan(scans.recurrence_step, h0, (a, b), dim, stack, "linear_recurrence")[1]
