"""Functions of torch that the native front end lacks, where they see single elements or a frame's matrices.

Those of `torch.special` see single elements, and what torch tags so; those of `torch.linalg` take batches of
matrices. They run in a call. A capture has no operator for them, and refuses them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from ...array.tensor import Tensor as NativeTensor
from ...errors import NotStreamableError
from ..private import is_pointwise_operator, is_random_operator, without_functions
from ..run.functions import of_elements, of_frames
from .own import computed, of_operands

#: What functions of matrices are called outside `torch.linalg`.
_OF_MATRICES = frozenset((
    "inverse", "pinverse", "det", "logdet", "slogdet", "matrix_exp", "cholesky", "cholesky_inverse",
    "cholesky_solve",
))  # fmt: skip


def run(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run such a function; None where it is none, or can't take its arguments."""
    function = _function(name)
    given = {"": args[0], **{str(i): x for i, x in enumerate(args[1:], 1)}, **kwargs} if args else {}
    of_elements_alone = hasattr(torch.special, name) or is_pointwise_operator(name)
    of_matrices = name.startswith("linalg_") or name in _OF_MATRICES
    if function is None or not given or is_random_operator(name) or not (of_elements_alone or of_matrices):
        return None
    if any(getattr(x, "is_stream", False) and x.value is None for x in given.values()):
        raise NotStreamableError.here(
            f"torch.{name.replace('linalg_', 'linalg.')} on a stream inside a forward,",
            ": engines, and the bodies of loops over frames, have no operator for it: compute it of all frames, "
            "outside of loops, in a model that is patched",
        )
    if of_elements_alone:
        outs = of_operands(_entered(name, function, of_elements), given)
        return outs if outs is None or len(outs) > 1 else outs[0]
    tensors: dict[str, Any] = {k: v for k, v in given.items() if isinstance(v, NativeTensor)}
    streams = {k: v.in_order() for k, v in tensors.items() if v.is_stream}
    if not streams or not computed(streams.values()):
        return None
    dims = next(iter(streams.values())).dims
    if dims[:2] != ("B", "L") or any(x.dims != dims or x.lanes for x in streams.values()):
        return None
    shapes = tuple((k, x.is_stream, tuple(x.features if x.is_stream else x.shape)) for k, x in tensors.items())
    options = tuple((k, v) for k, v in given.items() if k not in tensors)
    kind = _frame_by_frame(function, shapes, options)
    if kind is None:
        return None
    outs = of_operands(_entered(name, function, of_frames), {**given, **streams}, dims)
    return outs if outs is None else outs[0] if kind is torch.Tensor else kind(outs)


def _function(name: str) -> Callable[..., Any] | None:
    if name.startswith("linalg_"):
        return getattr(torch.linalg, name.removeprefix("linalg_"), None)
    return next((f for home in (torch.special, torch, torch.Tensor) if (f := getattr(home, name, None))), None)


def _placed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose arguments behind the first are given by the numbers of their places, or by names."""

    def call(first: Any, **named: Any) -> Any:
        places = sorted(filter(str.isdigit, named), key=int)
        return function(first, *[named.pop(i) for i in places], **named)

    return call


@cache
def _entered(name: str, function: Callable[..., Any], enter: Callable[[str, Callable[..., Any]], None]) -> str:
    """Enter a function, and return what its operator is called."""
    operator = f"torch.{name}"
    enter(operator, _placed(function))
    return operator


@cache
def _frame_by_frame(function: Callable[..., Any], shapes: Any, options: Any) -> type | None:
    """Return what a function gives if it gives the same of some frames together as of each by itself; else None.

    It is asked about matrices that differ little from one, which have all that functions of matrices ask for.
    """
    drawn, frames = torch.Generator().manual_seed(0), 3
    given = dict[str, torch.Tensor]()
    for key, is_stream, shape in shapes:
        x = torch.randn((frames, *shape) if is_stream else shape, generator=drawn, dtype=torch.float64) * 0.1
        rows = min(x.shape[-2:]) if len(shape) > 1 else 0
        x[..., range(rows), range(rows)] += 2
        given[key] = x + x.mT if rows and x.shape[-1] == x.shape[-2] else x
    call = _placed(function)

    def of(part: slice) -> Any:
        cut = {key: given[key][part] if is_stream else given[key] for key, is_stream, _ in shapes}
        made = {**cut, **dict(options)}
        return call(made.pop(""), **made)

    try:
        with without_functions():
            whole, *parts = map(of, (slice(None), *(slice(i, i + 1) for i in range(frames))))
        several = not isinstance(whole, torch.Tensor)
        for y, *each in zip(*([x] if not several else x for x in (whole, *parts))):
            torch.testing.assert_close(y, torch.cat(each))
    except (AssertionError, TypeError, ValueError, RuntimeError, IndexError):
        return None
    return type(whole)
