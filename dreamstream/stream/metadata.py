"""What a batch knows of its streams: ids, beginnings, ends and lengths.

`StreamMetadata` is an immutable value: it is checked when it is made, its arrays can't be written,
and tensors may share one object without copying it. What operations do to it is the business of the
pure functions in `dreamstream.stream.rules`; the methods here are short names for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ..errors import DTypeError, ShapeError, StreamIdError

#: Longest row: positions are 64-bit, and the sum of two of them must be one too.
MAX_LENGTH = 2**62 - 1

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Copy a 1-D array into memory that nobody can make writable again."""
    if array.size == 0:
        empty = np.empty(0, array.dtype)
        empty.flags.writeable = False
        return empty
    return np.frombuffer(array.tobytes(), array.dtype)


def _rows(values: npt.ArrayLike, field: str) -> npt.NDArray[Any]:
    """Read a field as an array of at most one dimension."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{field} must be a sequence with one entry per stream: {error}") from error
    if array.ndim > 1:
        raise ShapeError(f"{field} must have one dimension, got shape {array.shape}")
    return array


def _fit(array: npt.NDArray[Any], n_rows: int, field: str) -> npt.NDArray[Any]:
    """Broadcast a scalar to all rows and freeze, or check the number of rows and freeze."""
    if array.ndim == 0:
        array = array.repeat(n_rows)
    elif array.size != n_rows:
        raise ShapeError(f"{field} has {array.size} entries for {n_rows} ids")
    return _frozen(array)


def _read_ids(ids: str | Iterable[str]) -> tuple[str, ...]:
    items = (ids,) if isinstance(ids, str) else tuple(ids)
    for item in items:
        if not isinstance(item, str):
            raise StreamIdError(f"ids must be strings, got {item!r} of type {type(item).__name__}")
    plain = tuple(str.__str__(item) for item in items)
    if len(set(plain)) != len(plain):
        seen: set[str] = set()
        twice: dict[str, None] = {}
        for item in plain:
            if item in seen:
                twice[item] = None
            seen.add(item)
        raise StreamIdError("a stream may occur only once in a batch; duplicate ids", twice)
    return plain


def _read_flags(values: npt.ArrayLike, n_rows: int, field: str) -> BoolArray:
    array = _rows(values, field)
    if array.dtype != np.bool_:
        if array.size or array.ndim == 0:
            got = array.dtype if array.dtype.kind in "biufc" else repr(values)
            raise DTypeError(f"{field} must be True or False for each stream, in the order of ids; got {got}")
        array = array.astype(np.bool_)
    return _fit(array, n_rows, field)


def _read_lengths(values: npt.ArrayLike, n_rows: int, ids: Sequence[str]) -> IntArray:
    array = _rows(values, "lengths")
    if array.size == 0 and array.ndim == 1:
        return _fit(array.astype(np.int64), n_rows, "lengths")
    if array.dtype.kind in "fO" and not isinstance(values, np.ndarray):
        # NumPy turns integers beyond 64 bits into floats or objects: tell those from real floats.
        exact = np.asarray(values, dtype=object)
        if all(isinstance(v, (int, np.integer)) and not isinstance(v, bool) for v in exact.flat):
            array = exact
    whole = array.dtype.kind in "iu" or (array.dtype.kind == "O" and all(type(v) is int for v in array.flat))
    if not whole:
        raise DTypeError(f"lengths must be integers, got {array.dtype}")
    numbers = array.ravel().tolist()
    if min(numbers) < 0 or max(numbers) > MAX_LENGTH:
        rows = [r for r, n in enumerate(numbers) if n < 0] or [r for r, n in enumerate(numbers) if n > MAX_LENGTH]
        named = [ids[r] for r in rows] if len(ids) == len(numbers) else ()
        text = "0 or more" if numbers[rows[0]] < 0 else "below 2**62"
        raise ShapeError(f"lengths must be {text}, got {numbers[rows[0]]}", named)
    return _fit(array.astype(np.int64), n_rows, "lengths")


class StreamMetadata:
    """The streams of one batch, one entry per row; immutable and hashable.

    Parameters
    ----------
    ids : str or iterable of str
        Names of the streams, all different. A lone string is one row.
    sos, eos : bool or array_like of bool, ``(B,)``
        Whether the row begins (ends) its stream. A scalar holds for all rows. Both are events of
        the call: a row without frames can carry them.
    lengths : int or array_like of int, ``(B,)``
        Number of valid frames of each row; what a padded array holds behind them is padding.

    Raises
    ------
    StreamIdError
        An id is no string, or occurs twice.
    ShapeError
        The sizes differ, or a length is negative or beyond 2**62 - 1.
    DTypeError
        A flag is no bool, or a length is no integer.

    Examples
    --------
    >>> meta = StreamMetadata(["anna", "bob"], sos=True, eos=[False, True], lengths=[40, 7])
    >>> len(meta), meta.max_length, meta.any_ending
    (2, 40, True)
    >>> meta[1]
    StreamMetadata(ids=['bob'], sos=[True], eos=[True], lengths=[7])
    """

    __slots__ = ("_eos", "_ids", "_key", "_lengths", "_sos")
    _ids: tuple[str, ...]
    _sos: BoolArray
    _eos: BoolArray
    _lengths: IntArray
    _key: tuple[Any, ...]

    def __init__(
        self, ids: str | Iterable[str], sos: npt.ArrayLike, eos: npt.ArrayLike, lengths: npt.ArrayLike
    ) -> None:
        names = _read_ids(ids)
        n = len(names)
        self._set(names, _read_flags(sos, n, "sos"), _read_flags(eos, n, "eos"), _read_lengths(lengths, n, names))

    def _set(self, *fields: Any) -> StreamMetadata:
        key = [getattr(field, "base", field) for field in fields]  # frozen arrays lie in bytes
        for name, field in zip(("_ids", "_sos", "_eos", "_lengths", "_key"), (*fields, tuple(key))):
            object.__setattr__(self, name, field)
        return self

    @classmethod
    def _of(cls, ids: tuple[str, ...], sos: BoolArray, eos: BoolArray, lengths: IntArray) -> StreamMetadata:
        """Make one of fields that are known to be right (for the rules)."""
        return object.__new__(cls)._set(ids, _frozen(sos), _frozen(eos), _frozen(lengths))

    # ---- fields

    @property
    def ids(self) -> list[str]:
        """Names of the streams, as a new list."""
        return list(self._ids)

    @property
    def sos(self) -> BoolArray:
        """Whether each row begins its stream, ``(B,) bool``, read-only."""
        return self._sos

    @property
    def eos(self) -> BoolArray:
        """Whether each row ends its stream, ``(B,) bool``, read-only."""
        return self._eos

    @property
    def lengths(self) -> IntArray:
        """Valid frames of each row, ``(B,) int64``, read-only."""
        return self._lengths

    # ---- derived

    @property
    def min_length(self) -> int:
        """Shortest row; 0 on an empty batch."""
        return min(self._lengths.tolist(), default=0)

    @property
    def max_length(self) -> int:
        """Longest row; 0 on an empty batch."""
        return max(self._lengths.tolist(), default=0)

    @property
    def any_starting(self) -> bool:
        """Whether some row begins its stream."""
        return bool(self._sos.any())

    @property
    def all_starting(self) -> bool:
        """Whether every row begins its stream."""
        return bool(self._sos.all())

    @property
    def any_ending(self) -> bool:
        """Whether some row ends its stream."""
        return bool(self._eos.any())

    @property
    def all_ending(self) -> bool:
        """Whether every row ends its stream."""
        return bool(self._eos.all())

    @property
    def any_starting_or_ending(self) -> bool:
        """Whether some row begins or ends its stream."""
        return self.any_starting or self.any_ending

    @property
    def all_starting_and_ending(self) -> bool:
        """Whether every row holds a whole stream."""
        return bool(np.logical_and.reduce(self._sos & self._eos))

    @property
    def starting_lengths(self) -> IntArray:
        """Lengths of the rows that begin."""
        return self._lengths[self._sos]

    @property
    def ending_lengths(self) -> IntArray:
        """Lengths of the rows that end."""
        return self._lengths[self._eos]

    def row_of(self, stream_id: str) -> int:
        """Return the row that holds a stream.

        Raises
        ------
        StreamIdError
            No row has that id.
        """
        try:
            return self._ids.index(stream_id)
        except ValueError:
            raise StreamIdError(
                f"no stream of that id among the {len(self._ids)} of this batch", [str(stream_id)]
            ) from None

    def replace(self, **fields: Any) -> StreamMetadata:
        """Return metadata with some of `ids`, `sos`, `eos`, `lengths` exchanged, checked anew."""
        unknown = fields.keys() - {"ids", "sos", "eos", "lengths"}
        if unknown:
            raise TypeError(f"StreamMetadata has no field {sorted(unknown)[0]!r}")
        mine = {"ids": self._ids, "sos": self._sos, "eos": self._eos, "lengths": self._lengths}
        return StreamMetadata(**{**mine, **fields})

    def with_lengths(self, lengths: IntArray) -> StreamMetadata:
        """Return metadata of the same rows with other lengths, which are known to be right."""
        if lengths.tobytes() == self._lengths.tobytes():
            return self
        return object.__new__(StreamMetadata)._set(self._ids, self._sos, self._eos, _frozen(lengths))

    # ---- value semantics

    def __len__(self) -> int:
        return len(self._ids)

    def size(self) -> int:
        """Return the number of rows."""
        return len(self._ids)

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, StreamMetadata) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("StreamMetadata is immutable; replace(...) returns a changed one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("StreamMetadata is immutable")

    def __copy__(self) -> StreamMetadata:
        return self

    def __deepcopy__(self, memo: object) -> StreamMetadata:
        return self

    def clone(self) -> StreamMetadata:
        """Return itself: nothing of it can change."""
        return self

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self._ids, self._sos.tolist(), self._eos.tolist(), self._lengths.tolist())
        return StreamMetadata, fields

    def __repr__(self) -> str:
        return (
            f"StreamMetadata(ids={self.ids}, sos={self._sos.tolist()}, "
            f"eos={self._eos.tolist()}, lengths={self._lengths.tolist()})"
        )

    # ---- short names for the rules

    def __getitem__(self, index: Any) -> StreamMetadata:
        """Index rows, or with a pair ``(rows, frames)`` rows and then frames; None skips a side."""
        if not isinstance(index, tuple):
            return self if index is None else _rules.rows.index_batch(self, index)
        if len(index) != 2:
            raise ShapeError(f"metadata has rows and frames, got {len(index)} indices")
        meta = self if index[0] is None else _rules.rows.index_batch(self, index[0])
        return meta if index[1] is None else _rules.frames.index_length(meta, index[1])

    def __iter__(self) -> NoReturn:
        raise TypeError("StreamMetadata is not iterable; iterate over .ids or .unbind_batch()")

    def index(self, index: Any) -> StreamMetadata:
        """Return ``self[index]``."""
        return self[index]

    def index_batch(self, index: Any) -> StreamMetadata:
        """Keep the rows that an index picks; see `rules.rows.index_batch`."""
        return _rules.rows.index_batch(self, index)

    def index_length(self, index: Any) -> StreamMetadata:
        """Keep the frames that an index picks; see `rules.frame_slices.index_length`."""
        return _rules.frames.index_length(self, index)

    def split_batch(self, sizes: int | Sequence[int]) -> list[StreamMetadata]:
        """Split into groups of rows; see `rules.rows.split_batch`."""
        return _rules.rows.split_batch(self, sizes)

    def split_length(self, sizes: int | Sequence[int]) -> list[StreamMetadata]:
        """Split into runs of frames; see `rules.frame_slices.split_length`."""
        return _rules.frames.split_length(self, sizes)

    def unbind_batch(self) -> list[StreamMetadata]:
        """Return one metadata per row."""
        return _rules.rows.unbind_batch(self)

    def drop_empty(self) -> StreamMetadata:
        """Keep the rows that have frames."""
        return _rules.rows.drop_empty(self)

    def split(self, sizes: int | Sequence[int], dim: str) -> list[StreamMetadata]:
        """Split along ``"B"`` or ``"L"``."""
        return self.split_batch(sizes) if _axis(dim) == "B" else self.split_length(sizes)

    @staticmethod
    def cat(metas: Sequence[StreamMetadata], dim: str) -> StreamMetadata:
        """Concatenate along ``"B"`` or ``"L"``."""
        cat = _rules.rows.cat_batch if _axis(dim) == "B" else _rules.frames.cat_length
        return cat(metas)


class OfStreams:
    """What a tensor of streams knows of its rows, by its `meta` and its `dims`."""

    meta: StreamMetadata
    dims: Any
    stream: Any

    @property
    def ids(self) -> list[str]:
        """The rows' streams."""
        return self.meta.ids

    @property
    def sos(self) -> BoolArray:
        """Whether each row starts its stream, ``(B,)`` on the host."""
        return self.meta.sos

    @property
    def eos(self) -> BoolArray:
        """Whether each row ends its stream, ``(B,)`` on the host."""
        return self.meta.eos

    @property
    def lengths(self) -> IntArray:
        """Valid frames of each row, ``(B,)`` on the host."""
        return self.meta.lengths

    @property
    def stream_axis(self) -> int:
        """The stream axis of ``y[id]``."""
        kept = [d for d in self.dims if d != "B"]
        return next((i for i, d in enumerate(kept) if d in ("L", "B_L")), 0)

    def unpad_sequence(self) -> list[Any]:
        """Return each row without padding and without B."""
        return [self.stream(i) for i in self.ids]


class _Rules:
    """The modules of `dreamstream.stream.rules`, which build on this one and enter themselves when loaded."""

    rows: Any
    frames: Any


_rules = _Rules()


def set_rules(rows: Any, frames: Any) -> None:
    """Set the modules behind the methods that index, split and join."""
    _rules.rows, _rules.frames = rows, frames


def _axis(dim: str) -> str:
    if dim not in ("B", "L"):
        raise ShapeError(f'metadata has the dimensions "B" and "L", not {dim!r}')
    return dim
