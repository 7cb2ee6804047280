"""Making torch tensors of streams from torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...array.chunk_values import Naming, RowNames, Wanted, check_dense, factor, read_each
from ...array.stream_creation import meta_of, names_of, require_equal, require_like, row_names
from ...errors import DTypeError, StreamMismatchError
from ...stream.collectors import register_arrays
from ...stream.metadata import StreamMetadata
from ...stream.rules import BATCH, LENGTH, ONE, Names, read_rate
from ...stream.tensor_info import Info, check
from .padding import cleaned
from .stream_tensor import StreamTensor


def stream_tensor(
    data: Any,
    meta: StreamMetadata | None = None,
    names: Sequence[str | None] | None = None,
    *,
    ids: Sequence[str] | str | None = None,
    sos: Any = False,
    eos: Any = False,
    lengths: Any = None,
    rate: Any = None,
    restart: bool = False,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> StreamTensor:
    """Make a torch tensor of streams; data are copied, with their graph, and zeros put behind each row's frames.

    Parameters
    ----------
    data : Tensor or list of Tensor
        A padded tensor with a dimension per name, or tensors without B of different lengths.
    meta, names, ids, sos, eos, lengths, rate, restart
        As of :func:`dreamstream.stream_tensor`, which returns this one for torch's tensors.
    dtype, device, pin_memory
        As of :func:`torch.tensor`.
    requires_grad : bool
        Whether the frames are a leaf that gets a gradient; the tensors that they were made of get none then.

    Raises
    ------
    ShapeError, DTypeError, StreamIdError, StreamMismatchError
        For data that do not fit together; the message says what was expected.
    """
    out: Any = _build(data, meta, names, restart, True, ids, sos, eos, lengths, rate, dtype, device)
    if pin_memory:
        out = out.pin_memory()
    return out.detach().requires_grad_() if requires_grad else out


def as_stream_tensor(
    data: Any,
    meta: StreamMetadata | None = None,
    names: Sequence[str | None] | None = None,
    *,
    ids: Sequence[str] | str | None = None,
    sos: Any = False,
    eos: Any = False,
    lengths: Any = None,
    rate: Any = None,
    dtype: Any = None,
    device: Any = None,
) -> StreamTensor:
    """Make a torch tensor of streams that shares the storage of a padded tensor; see `stream_tensor`.

    What stands behind each row's frames is left there. A list of tensors has to be copied.
    """
    if isinstance(data, StreamTensor) and meta is None and ids is None:
        out: Any = data if names is None else data.refine_names(*names)
        return out.to(device=device, dtype=dtype)
    return _build(data, meta, names, False, False, ids, sos, eos, lengths, rate, dtype, device)


def _build(
    data: Any, meta: StreamMetadata | None, names: Any, restart: bool, copy: bool, *own: Any
) -> StreamTensor:
    ids, sos, eos, lengths, rate, dtype, device = own
    known: Info | None = None
    if isinstance(data, StreamTensor):
        if data._inner is not None:
            raise StreamMismatchError("a tensor of a running forward can't be made anew")
        known = data._info
        meta = known.meta if meta is None and ids is None else meta
        names, data = names or known.names, data.tensor()
    who = row_names(meta, ids, sos)
    real = getattr(dtype, "is_floating_point", False)  # read as an input of that type
    wanted = Wanted(str(dtype).removeprefix("torch.") if real else None, name="stream_tensor")
    single = names is None or len(names) == 2  # B and L alone
    if isinstance(data, (list, tuple)):
        if lengths is not None:
            raise StreamMismatchError("lengths are for padded data; a list's tensors have their own")
        padded, found, widths = _padded(data, names, wanted._replace(samples=int(single)), who)
    else:
        padded = data if known else _read(data, who.of(1)[0], wanted._replace(samples=2 * single))
        found = names_of(names, padded.dim(), who)
        batch, length = found.index(BATCH), found.index(LENGTH)
        widths = [padded.shape[length]] * padded.shape[batch]
    own_meta = meta_of(meta, ids, _on_host(sos), _on_host(eos), _on_host(lengths), widths)
    info = Info(check(found, padded.dim()), own_meta, None, ONE if rate is None else read_rate(rate), restart)
    if known is not None and own_meta == known.meta:
        info = replace(info, starts=known.starts, rate=known.rate if rate is None else info.rate)
    if device is not None or dtype is not None:
        padded = padded.to(device=device, dtype=dtype)
    if copy and not isinstance(data, (list, tuple)):
        padded = cleaned(padded, info)
        padded = padded.clone() if info.is_full(info.width_of(padded.shape)) else padded
    return StreamTensor.of(padded, info)


def _on_host(values: Any) -> Any:
    return values.cpu().numpy() if isinstance(values, Tensor) else values


def _read(row: Any, ids: Sequence[str], wanted: Wanted) -> Tensor:
    """Return a row's tensor, converted where a type is wanted."""
    if type(row) is Tensor and wanted.dtype is None and _is_dense(row):
        return row
    with Naming(wanted.name, ids):
        if not isinstance(row, Tensor):
            raise DTypeError(f"expected torch tensors, got {type(row).__name__}")
        row = row.tensor() if isinstance(row, StreamTensor) else row
        check_dense(row)
        if wanted.dtype is not None:
            scale = factor(str(row.dtype).removeprefix("torch."), wanted, row.shape)
            row = row.to(getattr(torch, wanted.dtype))
            row = row if scale == 1 else row * scale
    return row


def _is_dense(row: Tensor) -> bool:
    return row.layout is torch.strided and not row.is_quantized and not row.is_nested


def _padded(given: Sequence[Any], names: Any, wanted: Wanted, who: RowNames) -> tuple[Tensor, Names, list[int]]:
    """Return tensors without B in one, zeros behind each."""
    ids = who.of(len(given))
    rows = read_each(partial(_read, wanted=wanted), given, ids)
    dtypes = {r.dtype for r in rows}
    if len(dtypes) > 1 and dtypes <= {torch.float16, torch.bfloat16, torch.float32}:
        rows = [r.float() for r in rows]
    require_equal("number of dimensions", [r.dim() for r in rows], who)
    require_equal("dtype", [r.dtype for r in rows], who)
    require_equal("device", [r.device for r in rows], who)
    rank = rows[0].dim() + 1
    found = names_of(names, rank, who, len(rows))
    axes = [n for n in found if n != BATCH]
    length = axes.index(LENGTH)
    require_like([(*r.shape[:length], *r.shape[length + 1 :]) for r in rows], found, who)
    widths = [r.shape[length] for r in rows]
    if len(set(widths)) == 1 and {Tensor}.issuperset(map(type, rows)):
        return torch.stack(rows, found.index(BATCH)), found, widths
    shape = list(rows[0].shape)
    shape[length] = max(widths)
    shape.insert(found.index(BATCH), len(rows))
    out = rows[0].new_zeros(shape)
    at: list[str] = []
    with Naming(wanted.name, at):
        for k, (row, n, row_ids) in enumerate(zip(rows, widths, ids)):
            at[:] = row_ids
            out.select(found.index(BATCH), k).narrow(length, 0, n).copy_(row)
    return out, found, widths


def targets_like(y: Any, rows: Sequence[Any], dims: Sequence[Any]) -> Any:
    """Return frames ``(L, ...)``, one array per row of `y`, as a stream tensor with its rows and positions."""
    device = y.tensor().device
    frames = [(r if isinstance(r, Tensor) else torch.as_tensor(np.asarray(r))).to(device) for r in rows]
    value = torch.cat(frames) if frames else torch.zeros(0, device=device)
    return type(y).from_frames(value, dims, y.meta, y.starts, y.rate)


def _keep(array: Tensor) -> Tensor:
    """What a collector stores: without a graph its own copy, in training the tensor with its graph."""
    return array if array.requires_grad else array.detach().clone()


register_arrays(Tensor, lambda arrays, axis: torch.cat(list(arrays), axis), _keep)
