"""Operations along one dimension, or on the last ones: features keep the metadata, B and L can't."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import ModeError
from ...operations import OPERATIONS, ours
from ...stream.rules import require_same
from ..tensor import StreamTensor
from .common import (
    along,
    axis_of,
    each,
    fall_back,
    in_place,
    inputs,
    keep,
    kept,
    name_of,
    plain,
    rule,
    run,
    same_sizes,
    streams_in,
)


@rule("along")
def one_dimension(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Run what works along one dimension, or several."""
    name = name_of(func).rstrip("_")
    row = OPERATIONS[ours(name)]
    key = next((a for a in row.arguments if a in ("dim", "dims")), "")
    position = row.arguments.index(key) if key else len(args)
    if name == "flip" and len(args) > 1:
        args = (args,)
    if name in ("sort", "argsort") and args and isinstance(args[0], bool):
        position = len(args)  # descending alone
    rest = list(args)
    given = rest[position] if len(rest) > position else kwargs.get(key, row.default)
    if given is None:
        return fall_back(func, (x, *args), kwargs, f"{name} of no given dimension")
    several = isinstance(given, (list, tuple))
    axes = [axis_of(x, d) for d in (given if several else [given])]
    number = axes if several else axes[0]
    if len(rest) > position:
        rest[position] = number
    elif key in kwargs:
        kwargs = {**kwargs, key: number}
    others = streams_in(rest, kwargs)
    if others and not any(map(x._info.is_stream, axes)):
        require_same([x.meta, *(t.meta for t in others)], [x.starts, *(t.starts for t in others)], name)
    return _unchanged(func, x, rest, kwargs, name, axes)


def _unchanged(func: Any, x: StreamTensor, rest: Any, kwargs: Any, name: str, axes: Sequence[int] = ()) -> Any:
    """Run what keeps the dimensions and works along some of them, which have to be of features."""
    if any(map(x._info.is_stream, axes)):
        return fall_back(func, (x, *rest), kwargs, f"{name} along {along(x, axes)}")
    if in_place(func):
        (others, options) = inputs(tuple(rest), kwargs)
        run(func, (x, *others), options)
        return x
    own, options = inputs((x, *rest), kwargs)
    result = run(func, own, options)
    if not all(same_sizes(x, t) for t in each(result)):
        return fall_back(func, (x, *rest), kwargs, name)
    return keep(result, x._info)


@rule("last dimensions")
def last_dimensions(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Run layer_norm or rms_norm, which see the last dimensions."""
    n, shape = len(x.names), args[0] if args else kwargs["normalized_shape"]
    return _unchanged(func, x, args, kwargs, name_of(func), range(n - len(tuple(shape)), n))


@rule("running statistics")
def of_running_statistics(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Run batch_norm in eval mode: every frame is seen by itself."""
    mean = args[0] if args else kwargs.get("running_mean")
    training = args[4] if len(args) > 4 else kwargs.get("training", False)
    if training or mean is None or x._info.is_stream(1):
        return of_whole_streams(func, x, *args, **kwargs)
    return _unchanged(func, x, args, kwargs, "batch_norm")


@rule("whole streams", anywhere=True)
def of_whole_streams(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse what needs the frames before this chunk, or behind it."""
    if not streams_in(args, kwargs):
        return run(func, args, kwargs)
    raise ModeError.here(
        f"{name_of(func)} on a StreamTensor,",
        ", needs what came before: it works inside an online module (ds.patch_module(model).online()); "
        "x.tensor() is the plain padded tensor",
    )


@rule("rows of tables")
def new_last(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Run what gives a vector per element: embedding, one_hot."""
    rest, options = inputs(args, kwargs)
    index = x.padded()  # what stands in padding need not be in range
    return keep(run(func, (index, *rest), options), x._info.with_names((*x.names, None)))


@rule("angles", anywhere=True)
def of_features(func: Any, x1: Any, x2: Any, dim: Any = 1, eps: float = 1e-8) -> Any:
    """Run cosine_similarity, which reduces a dimension."""
    tensors = streams_in((x1, x2))
    model = tensors[0]
    axis = axis_of(model, dim)
    alike = isinstance(x1, torch.Tensor) and isinstance(x2, torch.Tensor) and plain(x1).shape == plain(x2).shape
    if model._info.is_stream(axis) or not alike or any(t.dims != model.dims for t in tensors):
        return fall_back(func, (x1, x2, axis, eps), {}, "cosine_similarity of these")
    require_same([t.meta for t in tensors], [t.starts for t in tensors], "cosine_similarity")
    names = [n for i, n in enumerate(model.names) if i != axis]
    return kept(model._info.with_names(names), func, x1, x2, axis, eps)
