"""Operations that see every element by itself, and operands where they broadcast."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from ...errors import ShapeError
from ...operations import OPERATORS, ours
from ...stream.tensor_info import Info
from ...stream.tree import leaves, map_leaves
from ..private import is_pointwise_operator, without_subclass
from ..tensor import StreamTensor
from ..tensor.padding import mask_of
from .common import agree, cut, fall_back, in_place, inputs, keep, name_of, plain, rule, run, streams_in


@lru_cache(maxsize=1024)
def is_pointwise(name: str) -> bool:
    """Return whether an operation sees every element by itself: by our table, or as torch tags its operators."""
    row = OPERATORS.get(ours(name))
    own = row is not None and row.kind == "elementwise"
    return own or any(map(is_pointwise_operator, (name, name.removeprefix("special_"))))


@rule("same", dims=False)
def same(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run what gives the same shape: conversions, copies, and tensors that are filled anew."""
    x = args[0]
    first = x if in_place(func) else plain(x)
    result = run(func, (first, *map_leaves(args[1:], plain)), kwargs)
    if result is first or not isinstance(x, StreamTensor):  # what needed no conversion is x itself
        return x if result is first else result
    return keep(result, x._info)


def _line_up(tensors: list[StreamTensor], what: str) -> Info:
    """Return the info of tensors that meet, whose dimensions broadcast from the right."""
    info = agree(tensors, what)
    for x in tensors:
        own = x._info
        lead = len(info.names) - len(own.names)
        for i in range(len(info.names)):
            a = own.names[i - lead] if i >= lead and own.is_stream(i - lead) else None
            b = info.names[i] if info.is_stream(i) else None
            if a != b and not (i < lead and b == "B"):
                raise ShapeError(
                    f"{what}: dimensions {own.names} don't line up with {info.names}; B and L must stand in "
                    "the same places"
                )
    return info


@rule("elementwise", dims=False, anywhere=True)
def pointwise(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operation on elements; the result keeps the metadata that all operands have."""
    name = name_of(func)
    tensors = streams_in(args, kwargs)
    info = _line_up(tensors, name)
    writes = in_place(func)
    if writes and not isinstance(args[0], StreamTensor):
        return run(func, map_leaves(args, plain), map_leaves(kwargs, plain))
    if len(tensors) > 1:
        args, kwargs = cut((args, kwargs), args[0] if writes else None)
        tensors = streams_in(args, kwargs)
    target = args[0] if writes else None
    rest, options = inputs(args[1:] if writes else args, kwargs)
    if writes:
        _write_zeros(args)
        run(func, (target, *rest), options)
        assert target is not None
        target._info = target._info.with_rows(info.meta, info.starts)
        return target
    result = run(func, rest, options)
    model = max(tensors, key=lambda t: len(t._info.names))
    shape = model._plain().shape
    for t in leaves(result):
        if not isinstance(t, torch.Tensor):
            return result
        lead = t.dim() - len(shape)
        if lead < 0 or any(info.is_stream(i) and t.shape[lead + i] != size for i, size in enumerate(shape)):
            return fall_back(func, args, kwargs, f"{name} that repeats B or L")
    n_new = next(leaf.dim() for leaf in leaves(result)) - len(shape)
    return keep(result, info.with_names((None,) * n_new + info.names))


def _write_zeros(args: Any) -> None:
    """Before a tensor is written to: let no gradient come out of its padding."""
    x = args[0]
    with without_subclass():
        wanted = torch.is_grad_enabled() and x.requires_grad and not x.is_leaf
        if wanted and not x._info.is_full(x._info.width_of(x.shape)) and x.is_floating_point():
            x.masked_fill_(~mask_of(x._info, x.shape, x.device), 0)
