"""Where streams' states live: tables indexed by slot in evaluation, records on the tape in training.

Both hold, by key, tensors with one row per state. A stream's state is a place: a store and a row in it. A
table's slot has two rows; a call reads one and writes the other, so that the state before it stays whole until the
session publishes the place of the new one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set as AbstractSet
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..tensor.padding import to_device
from .rooms import Grown, Room

Ints = npt.NDArray[np.int64]


class _Slot:
    """A slot of a table, given back when nothing refers to it."""

    __slots__ = ("_free", "index")

    def __init__(self, index: int, free: list[int]) -> None:
        self.index, self._free = index, free

    def __del__(self) -> None:
        self._free.append(self.index)


class StateRow:
    """Where one stream's state is: a row of a store's tensors, and the slot of a table that it belongs to."""

    __slots__ = ("row", "slot", "store")

    def __init__(self, store: Any, row: int, slot: _Slot | None = None) -> None:
        self.store, self.row, self.slot = store, row, slot


class Table:
    """States of many streams, on one device, that are overwritten call by call."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device
        self.tensors: dict[Hashable, Tensor] = {}
        self._free: list[int] = []
        self.n_rows = 0  #: How many rows the tensors need, two for every slot.

    def next_rows(self, old: Sequence[StateRow | None]) -> list[StateRow]:
        """Return where the states after a call go: the other halves, or new slots."""
        return [self._next(p) for p in old]

    def _next(self, old: StateRow | None) -> StateRow:
        if old is not None and old.store is self:
            return StateRow(self, old.row ^ 1, old.slot)  # a slot's rows stand side by side
        try:
            index = self._free.pop()
        except IndexError:
            index, self.n_rows = self.n_rows // 2, self.n_rows + 2
        return StateRow(self, 2 * index, _Slot(index, self._free))

    def get(self, key: Hashable) -> Tensor | None:
        """Return the tensor of a key, with a row for every slot: a new slot may not have been written yet."""
        own = self.tensors.get(key)
        if own is not None and own.shape[0] < self.n_rows:
            own = self.tensors[key] = _grown(own, own, self.n_rows)
        return own

    def write(self, key: Hashable, rows: Tensor, index: Tensor | slice) -> None:
        """Put the rows ``(B, ...)`` where `index` says; kept frames may be wider than before."""
        rows = rows.detach()
        own, n, shape = self.tensors.get(key), self.n_rows, rows.shape
        if own is None or own.shape[0] < n or (len(shape) > 1 and own.ndim > 1 and own.shape[1] < shape[1]):
            own = self.tensors[key] = _grown(own, rows, n)
        own[index] = rows if len(shape) < 2 or shape[1] == own.shape[1] else _widened(rows, own.shape[1])


@torch.inference_mode(False)
def _grown(own: Tensor | None, rows: Tensor, n: int) -> Tensor:
    """Return a table's tensor with room for n rows, and for rows of this width.

    It is an ordinary one in inference mode too, so that calls outside it can write there.
    """
    if own is None:
        return rows.new_zeros(n, *rows.shape[1:])
    shape = list(own.shape)
    shape[0] = max(n, 2 * len(own)) if n > len(own) else len(own)
    if rows.ndim > 1:
        shape[1] = max(own.shape[1], rows.shape[1])
    out = rows.new_zeros(shape)
    out[tuple(slice(0, size) for size in own.shape)] = own
    return out


def rows_index(rows: list[int], device: torch.device) -> Tensor | slice:
    """Return what picks rows of a store: a slice where they lie evenly."""
    first, step = (rows[0], rows[1] - rows[0] if len(rows) > 1 else 1) if rows else (0, 0)
    if step > 0 and (len(rows) < 3 or rows == list(range(first, first + step * len(rows), step))):
        return slice(first, rows[-1] + 1, step)
    return to_device(np.array(rows, np.int64), device)


def row_of(place: StateRow) -> dict[Hashable, Tensor]:
    """Return one stream's state as tensors ``(1, ...)`` of its own."""
    row, store = place.row, place.store
    return {k: store.get(k)[row : row + 1].detach().clone() for k in store.tensors}


def state_row_of(tensors: dict[Hashable, Tensor]) -> StateRow:
    """Return the place of a state given as `row_of` gives it."""
    record = Record(detach=True)
    record.tensors.update(tensors)
    return StateRow(record, 0)


class Record:
    """States of the rows of one call, which stay on the tape or are cut off from it."""

    def __init__(self, detach: bool) -> None:
        #: The versions of parameters in the calls on whose tape the states are.
        self.versions: AbstractSet[Any] = frozenset()
        self.tensors: dict[Hashable, Tensor | Grown] = {}
        self.detach = detach

    def next_rows(self, old: Sequence[StateRow | None]) -> list[StateRow]:
        """Return one place per row."""
        return [StateRow(self, row) for row in range(len(old))]

    def get(self, key: Hashable) -> Tensor | None:
        """Return the tensor of a key."""
        found = self.tensors.get(key)
        return found[:] if isinstance(found, Grown) else found

    def write(self, key: Hashable, rows: Tensor, index: Tensor | slice | None) -> None:
        """Keep the rows ``(B, ...)``, in memory that neither inputs nor outputs share."""
        self.tensors[key] = (rows.detach() if self.detach else rows).clone()


class Gathered:
    """The states of a batch, row by row: where they are, or go."""

    def __init__(self, places: Sequence[StateRow | None], device: torch.device) -> None:
        self.n_rows, self._device = len(places), device
        self.places = places  #: The place of each row's state; None where a stream begins.
        self.some_fresh = None in places
        self._indices: dict[tuple[int, bool], Tensor] = {}
        found = [p for p in places if p is not None]
        stores = {p.store for p in found}
        is_one = len(stores) < 2 and not self.some_fresh
        #: The table or record of all of them; None where that differs, where a stream begins, and of no rows.
        self.store: Any = found[0].store if found and is_one else None
        #: Which rows of the store they are.
        self.index: Any = rows_index([p.row for p in found], device) if is_one else None

    @cached_property
    def fresh(self) -> npt.NDArray[np.bool_]:
        """Which rows begin."""
        return np.array([p is None for p in self.places], bool)

    @cached_property
    def _stores(self) -> list[tuple[Any, Ints, Ints]]:
        """The stores, each with the rows there and those of the batch that have them."""
        found: dict[int, tuple[Any, list[int], list[int]]] = {}
        for i, p in enumerate(self.places):
            if p is not None:
                _, rows, own = found.setdefault(id(p.store), (p.store, [], []))
                rows.append(p.row)
                own.append(i)
        return [(s, np.array(rows, np.int64), np.array(own, np.int64)) for s, rows, own in found.values()]

    @property
    def versions(self) -> frozenset[Any]:
        """Those of the parameters on whose tape the rows go on."""
        stores = {p.store for p in self.places if p is not None}
        return frozenset[Any]().union(*[s.versions for s in stores if isinstance(s, Record)])

    def run_in(self, store: Any) -> slice | None:
        """Return where all rows lie evenly in this store, None where they don't."""
        return self.index if self.store is store and isinstance(self.index, slice) else None

    def rows(self, key: Hashable, copy: bool = False) -> Tensor | None:
        """Return ``(B, ...)`` of a key; what new streams have there is anything. None: nobody has it.

        Without `copy` it may share the store's memory, which the call after the next overwrites.
        """
        if self.store is not None and isinstance(self.index, slice):
            whole = self.store.get(key)
            if whole is not None and whole.device == self._device:
                part: Tensor = whole if whole.shape[0] == self.n_rows else whole[self.index]
                return part.clone() if copy else part
        found = [(store.get(key), rows, own) for store, rows, own in self._stores]
        parts = [(tensor.to(self._device), rows, own) for tensor, rows, own in found if tensor is not None]
        if not parts:
            return None
        if len(parts) == 1:
            tensor, rows, own = parts[0]
            return tensor.index_select(0, self._index(id(rows), rows, own))
        width = max(t.shape[1] if t.ndim > 1 else 0 for t, _, _ in parts)
        picked = [_widened(t.index_select(0, self._index(id(r), r, None)), width) for t, r, _ in parts]
        order = np.zeros(self.n_rows, np.int64)
        order[np.concatenate([own for _, _, own in parts])] = np.arange(sum(len(o) for _, _, o in parts))
        return torch.cat(picked).index_select(0, to_device(order, self._device))

    def grown(self, key: Hashable, lengths: Sequence[int]) -> list[tuple[Tensor, Room | None] | None]:
        """Return every row's frames, as many as there are, and the room where they stand; None of new streams."""
        out: list[tuple[Tensor, Room | None] | None] = [None] * self.n_rows
        for store, rows, own in self._stores:
            found = store.tensors.get(key)
            for row, i in zip(rows, own):
                if isinstance(found, Grown):
                    out[i] = found.frames[row], found.rooms[row]
                elif found is not None:
                    out[i] = found[row, : lengths[i]], None
        return out

    def _index(self, key: int, rows: Ints, own: Ints | None) -> Tensor:
        """Return the rows of the store on the device, one per row of the batch if `own` says which have one."""
        found = self._indices.get((key, own is None))
        if found is None:
            index = rows
            if own is not None:
                index = np.zeros(self.n_rows, np.int64)
                index[own] = rows
            found = to_device(np.ascontiguousarray(index), self._device)
            self._indices[key, own is None] = found
        return found


def _widened(rows: Tensor, width: int) -> Tensor:
    if rows.ndim < 2 or rows.shape[1] == width:
        return rows
    out = rows.new_zeros(len(rows), width - rows.shape[1], *rows.shape[2:])
    return torch.cat([rows, out], 1)
