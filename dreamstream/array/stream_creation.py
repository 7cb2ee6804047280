"""Making tensors of streams from arrays."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core, autograd
from ..errors import DTypeError, ModeError, ShapeError, StreamIdError, StreamMismatchError
from ..stream.foreign import bridge
from ..stream.metadata import StreamMetadata
from ..stream.rules import ONE, Names, check_names, default_names, read_rate
from ..stream.tree import leaves
from . import dtypes
from .chunk_values import RowNames, Wanted, read_chunk, read_each
from .dimension_arguments import in_c_order, numbered
from .stream_tensor import StreamTensor
from .tensor import Tensor

Array = npt.NDArray[Any]


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
) -> StreamTensor:
    """Make a tensor of streams; the data are copied, and tensors hand their gradients on to what they follow from.

    Parameters
    ----------
    data : array_like or list of array_like
        A padded array with a dimension per name, or a list of arrays without B of different lengths. Torch's
        tensors give a `dreamstream.torch.StreamTensor`.
    meta : StreamMetadata, optional
        Instead of `ids`, `sos`, `eos` and `lengths`.
    names : sequence of (str or None), optional
        One per dimension, ``"B"`` for the streams and ``"L"`` for the stream axis; by default
        ``("B", "F", "L")`` for three dimensions, ``("B", "L")`` for two.
    ids : sequence of str
        One name per row.
    sos, eos : bool or sequence of bool
        Whether the rows start, and whether they end, their streams.
    lengths : sequence of int, optional
        Valid frames of each row of a padded array; all of them by default.
    rate : number or Fraction, optional
        Frames per unit of time, where several inputs differ; 1 by default.
    restart : bool
        Let ``sos`` on a live stream start it anew.
    dtype : dtype, optional
        Element type. Of floats the chunks are read as by an input of that type: int16 ``("B", "L")`` are samples,
        divided by 32768, other integers are refused. Without it arrays keep their own, integers become int64, and
        floats that are narrower, or stand in lists, float32.
    device : device, optional
        Of torch's tensors; arrays live on the host.
    requires_grad : bool
        Whether the frames are a leaf that gets a gradient; the tensors that they were made of get none then.

    Returns
    -------
    StreamTensor

    Raises
    ------
    ShapeError, DTypeError, StreamIdError, StreamMismatchError
        For data that do not fit together; the message says what was expected.
    ModeError
        Where a gradient of arrays is wanted.

    Examples
    --------
    >>> import numpy as np
    >>> x = stream_tensor([np.zeros((80, 40)), np.zeros((80, 7))], ids=["anna", "bob"], sos=True)
    >>> x
    StreamTensor(B, 80, L; anna: 40, bob: 7)
    """
    own = {"ids": ids, "sos": sos, "eos": eos, "lengths": lengths, "rate": rate, "dtype": dtype, "device": device}
    torch = _torch_creation(data, row_names(meta, ids, sos))
    if torch is not None:
        more = {"restart": restart, "requires_grad": requires_grad}
        return torch.stream_tensor(data, meta, names, **own, **more)
    out = _build(data, meta, names, True, **own)
    out.restart = bool(restart)
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
    """Make a tensor of streams without a copy where the layout allows it; see `stream_tensor`.

    That is for one row whose frames lie one after another, and for a StreamTensor.
    """
    own = {"ids": ids, "sos": sos, "eos": eos, "lengths": lengths, "rate": rate, "dtype": dtype, "device": device}
    torch = _torch_creation(data, row_names(meta, ids, sos))
    if torch is not None:
        return torch.as_stream_tensor(data, meta, names, **own)
    if isinstance(data, StreamTensor) and meta is None and ids is None and dtype is None:
        dtypes.check_device(device)
        return data if names is None else data.with_dims(data.dims, check_names(names, data.ndim))
    return _build(data, meta, names, False, **own)


def _torch_creation(data: Any, who: RowNames) -> Any:
    """Return the bridge where the data are torch's, None for all other data."""
    torch = sys.modules.get("torch")
    rows = data if isinstance(data, (list, tuple)) else (data,)
    theirs = [issubclass(type(row), getattr(torch, "Tensor", ())) for row in rows]
    if any(theirs) and not all(theirs):
        raise DTypeError(
            "the rows are arrays and torch's tensors; give all as t.numpy() or torch.from_numpy(a)",
            who.odd(theirs),
        )
    return bridge() if any(theirs) else None


def row_names(meta: StreamMetadata | None, ids: Any, sos: Any) -> RowNames:
    """Return who the rows are, by metadata or their fields."""
    return RowNames(ids, sos) if meta is None else RowNames(meta.ids, meta.sos)


def _rows_of(data: Any, names: Any, lengths: Any, dtype: Any, who: RowNames) -> tuple[list[Array], Names, Array]:
    """Return B-less arrays, the names of all dimensions, and frames ``(0, *features)`` for no row."""
    to = None if dtype is None else dtypes.as_dtype(dtype)
    single = names is None or len(names) == 2  # B and L alone
    real = to.name if to is not None and dtypes.is_float(to) else None
    chunk, whole = (Wanted(real, rank * single, "stream_tensor") for rank in (1, 2))

    def read(given: Any, row: Sequence[str], wanted: Wanted = chunk) -> Array:
        array = read_chunk(given, wanted, row)
        return array if to is None else array.astype(to, copy=False)

    if isinstance(data, (list, tuple)) and _are_rows(data, names, lengths):
        if lengths is not None:
            raise StreamMismatchError("lengths are for padded data; a list's arrays have their own")
        rows = read_each(read, data, who.of(len(data)))
        if len({r.dtype for r in rows}) > 1:
            rows = _with_types(data, rows)
        require_equal("their number of dimensions", [r.ndim for r in rows], who)
        rank = 1 + (rows[0].ndim if rows else 2 if names is None else len(names) - 1)
        unknown = np.zeros((0,) + (1,) * (rank - 2), to or dtypes.float32)
        return rows, names_of(names, rank, who, len(rows)), unknown
    padded = read(data, who.of(1)[0], whole)
    found = names_of(names, padded.ndim, who)
    features = [size for size, name in zip(padded.shape, found) if name not in ("B", "L")]
    return list(np.moveaxis(padded, found.index("B"), 0)), found, np.zeros((0, *features), padded.dtype)


def _with_types(data: Sequence[Any], rows: list[Array]) -> list[Array]:
    """Return the rows, those of empty lists in the type of the first that has one."""
    untyped = [not r.size and isinstance(d, (list, tuple)) for d, r in zip(data, rows)]
    dtype = next(r.dtype for r, without in zip(rows, untyped) if not without)
    return [r.astype(dtype) if without else r for r, without in zip(rows, untyped)]


def _are_rows(data: Sequence[Any], names: Any, lengths: Any) -> bool:
    """Whether the items of a list are the rows' chunks, rather than parts of one padded array."""
    numbers = [issubclass(type(d), (int, float, complex, np.generic)) for d in data]
    lists = [issubclass(type(d), (list, tuple)) for d in data]
    if all(lists) and data:
        return lengths is None and (names is None or list(names[:1]) == ["B"])
    return not data or not all(numbers)


def names_of(names: Any, rank: int, who: RowNames, n_rows: int = 1) -> Names:
    """Return the names of all dimensions, among them B and L."""
    try:
        found = default_names(rank) if names is None else check_names(names, rank)
        for needed in ("B", "L"):
            if needed not in found:
                raise ShapeError(f"names {found}: a stream tensor needs a dimension {needed!r}")
    except ShapeError as error:
        error.concern([i for row in who.of(n_rows) for i in row])
        raise
    return found


def require_like(features: Sequence[tuple[int, ...]], names: Names, who: RowNames) -> None:
    """Raise ShapeError unless all rows have the same features."""
    if len(set(features)) > 1:
        raise ShapeError(
            f"the rows differ in features: {sorted(set(features))}, where the dimensions are {names}; those of "
            "chunks that are (L, features) have to be named, by names=('B', 'L', None)",
            who.odd(features),
        )


def require_equal(what: str, kinds: Sequence[Any], who: RowNames) -> None:
    """Raise DTypeError, or ShapeError for numbers, unless all rows have the same of it."""
    if len(set(kinds)) > 1:
        found = sorted({str(kind).removeprefix("torch.") for kind in kinds})
        error = ShapeError if isinstance(kinds[0], int) else DTypeError
        raise error(f"the rows differ in {what}: {', '.join(found)}", who.odd(kinds))


def _frames(array: Array, names: Names) -> Array:
    """Bring one B-less array into [frames][features]."""
    axes = [n for n in names if n != "B"]
    return np.moveaxis(array, axes.index("L"), 0)


def meta_of(meta: Any, ids: Any, sos: Any, eos: Any, lengths: Any, widths: Sequence[int]) -> StreamMetadata:
    """Return the metadata of rows of these widths, as given or made of its fields."""
    if meta is not None and (ids is not None or lengths is not None):
        raise StreamMismatchError("give meta, or ids and lengths, not both")
    if meta is None:
        if ids is None:
            raise StreamIdError("a stream tensor needs ids, one str per row")
        ids = [ids] if isinstance(ids, str) else list(ids)
        if len(ids) != len(widths):
            alone = "; one chunk is given in a list, as in [chunk]" if len(ids) == 1 else ""
            raise StreamIdError(f"{len(ids)} ids for {len(widths)} rows{alone}")
        meta = StreamMetadata(ids, sos, eos, widths if lengths is None else lengths)
    found: StreamMetadata = meta
    if len(found) != len(widths):
        raise StreamIdError(f"{len(found)} ids for {len(widths)} rows")
    bad = [i for i, n, w in zip(found.ids, found.lengths, widths) if n > w]
    if bad:
        raise StreamMismatchError(f"lengths go beyond the {max(widths)} frames that there are", bad)
    return found


def _build(
    data: Any,
    meta: StreamMetadata | None,
    names: Any,
    copy: bool,
    *,
    lengths: Any,
    rate: Any,
    dtype: Any,
    device: Any,
    **rows: Any,
) -> StreamTensor:
    dtypes.check_device(device)
    if isinstance(data, StreamTensor):
        meta = data.meta if meta is None and rows["ids"] is None else meta
        names, data = names or data.names, data.tensor()
    who = row_names(meta, rows["ids"], rows["sos"])
    arrays, names, empty = _rows_of(data, names, lengths, dtype, who)
    require_equal("dtype", [a.dtype for a in arrays], who)
    frames = [_frames(a, names) for a in arrays]
    require_like([f.shape[1:] for f in frames], names, who)
    meta = meta_of(meta, lengths=lengths, widths=[len(f) for f in frames], **rows)
    kept = [f[:n] for f, n in zip(frames, meta.lengths)]
    if len(kept) == 1 and not copy:
        value = in_c_order(kept[0])
    else:
        value = _core.joined(kept) if kept else empty
    dims = numbered([n if n in ("B", "L") else 0 for n in names])
    made = StreamTensor._make(value, dims, names, meta, None, ONE if rate is None else read_rate(rate), None)
    return _following(made, data, names)


def _following(made: StreamTensor, data: Any, names: Names) -> StreamTensor:
    """Let frames have the gradient of the tensors that they were copied from, rows or one padded tensor."""
    whole = isinstance(data, Tensor)
    rows = [data] if whole else [*data] if isinstance(data, (list, tuple)) else []
    tensors = [row if isinstance(row, Tensor) else None for row in rows]
    nested = leaves([row for row in rows if isinstance(row, (list, tuple))])
    if autograd.sources([x for x in nested if isinstance(x, Tensor)]):
        raise ModeError(
            "stream_tensor: tensors in nested lists would lose their gradients; give a tensor for each row, as "
            "ds.stack() makes them, or .detach() them"
        )
    sources = autograd.sources(tensors)
    if sources is None or made.dtype.kind != "f":
        return made
    at, axes = np.cumsum(made.lengths)[:-1], tuple(n for n in names if n != "B")

    def back(slope: Array) -> list[Array | None]:
        out: list[Any] = [None if t is None else np.zeros(t.shape, t.dtype) for t in tensors]
        for row, frames in zip(np.moveaxis(out[0], names.index("B"), 0) if whole else out, np.split(slope, at)):
            if row is not None:
                _frames(row, axes)[: len(frames)] = frames
        return out

    made.grad_fn, made.output_nr = autograd.Record("stream_tensor", sources, back), 0
    return made
