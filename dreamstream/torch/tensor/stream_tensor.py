"""Torch tensors of streams.

Outside a forward a `StreamTensor` is the padded tensor itself, in the order of its dimensions, with names
and metadata (:mod:`dreamstream.torch.outside` says what operations do to them). Inside an online forward it
is a shell around a native stream tensor. Which of the two meets an operation is asked here, once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from ...array.symbolic import Symbolic
from ...errors import ShapeError
from ...operations import ARITHMETIC, BITWISE, RELATIONS
from ...stream.metadata import OfStreams, StreamMetadata
from ...stream.rules import BATCH, LENGTH, Names, check_names, order_of, resolve
from ...stream.tensor_info import JOINED, Info, Starts, check
from ..private import runs_uncompiled, without_functions, without_subclass
from .padding import cleaned, padding, unpad

Call = Callable[..., Any]

#: What a shell is made of: nothing ever looks at its values.
STAND_IN = torch.empty(0)
_NUMBER = torch.zeros((), dtype=torch.int64)  # taken where torch takes numbers


def _unfilled(*_: Any) -> Any:
    raise RuntimeError("dreamstream.torch is not loaded; import it")


@dataclass
class Takers:
    """What takes calls on stream tensors: it lies above this file, and enters itself when it is loaded."""

    making: Call = _unfilled  #: ``(data, meta, names)``: makes a stream tensor of a padded one.
    #: ``(func, types, args, kwargs)``: calls on tensors of a running forward, and all others.
    inside: Call = _unfilled
    outside: Call = _unfilled
    beneath: Call = _unfilled  #: Likewise: calls on the data of tensors of a running forward, which have none.
    aliased: Call = _unfilled  #: ``(tensor,)``: likewise, where the data are handed on as they are.


TAKERS = Takers()


def _any_inside(items: Any) -> bool:
    for x in items:
        if isinstance(x, StreamTensor):
            if x._inner is not None:
                return True
        elif isinstance(x, (list, tuple)):
            if _any_inside(x):
                return True
        elif isinstance(x, dict) and _any_inside(x.values()):
            return True
    return False


@lru_cache(maxsize=256)
def _seen(dims: tuple[Any, ...], names: Names | None) -> tuple[Names, tuple[int, ...] | None]:
    """Return the names of a tensor's dimensions, and the order of its stored frames if it is another one."""
    own = (None,) * len(dims) if names is None else names
    features = [d for d in dims if isinstance(d, int)]
    order = None if features == sorted(features) else (0, *(1 + d for d in features))
    return tuple([d if isinstance(d, str) else n for d, n in zip(dims, own)]), order


def collates() -> bool:
    """Whether torch's DataLoader may be making a batch in a worker.

    It stacks into shared memory, which can't hold whose frames they are, and takes as much as `numel` says, which
    leaves padding out. So what it asks of `new` is not used.
    """
    return torch.utils.data.get_worker_info() is not None


class StreamTensor(OfStreams, torch.Tensor):
    """The chunks of many streams, as a torch tensor; see :func:`dreamstream.stream_tensor`.

    Its data are the padded tensor: dtype, device, autograd and storage are torch's own. What stands behind a
    row's frames is nobody's business: reductions and losses see valid frames only.

    Attributes
    ----------
    meta : StreamMetadata
        ids, sos, eos and lengths of the rows.
    names : tuple of (str or None)
        One per dimension: ``"B"`` the streams, ``"L"`` the stream axis, others are free.
    starts : tuple of (int or None) or None
        Absolute position of each row's first frame, None where it is not known.
    rate : Fraction
        Frames per frame of the reference clock.
    restart : bool
        Whether ``sos`` on a live stream starts it anew.
    """

    __module__ = "dreamstream.torch.tensor"

    is_stream = True

    _inner: Any = None
    _info: Info
    #: Inside a forward: the node of the graph that backward hooks of a layer hang on.
    _node: Any = None

    def __new__(cls, data: Any, meta: StreamMetadata, names: Sequence[str | None] | None = None) -> StreamTensor:
        """Return a stream tensor that shares the storage of a padded tensor."""
        return TAKERS.making(data, meta, names)

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    # ---------------------------------------------------------------- making
    @classmethod
    def outside(
        cls,
        padded: torch.Tensor,
        names: Sequence[str | None],
        meta: StreamMetadata,
        starts: Sequence[int | None] | None = None,
        rate: Fraction = Fraction(1),
        restart: bool = False,
    ) -> StreamTensor:
        """Return a padded tensor with its streams; it shares storage and autograd.

        Raises
        ------
        ShapeError
            Names or lengths don't fit its shape.
        """
        known = None if starts is None else tuple(starts)
        return cls.of(padded, Info(check(names, padded.dim()), meta, known, rate, restart))

    @classmethod
    def of(cls, padded: torch.Tensor, info: Info) -> StreamTensor:
        """Return a padded tensor with what is known of it, which must be true."""
        with without_subclass():
            wrong = info.fits(padded.shape)
            if wrong:
                raise ShapeError(f"a stream tensor with {info.names}: {wrong}")
            out = padded.as_subclass(cls)
        out._info = info
        return out

    @classmethod
    def from_frames(
        cls,
        value: torch.Tensor,
        dims: Sequence[Any],
        meta: StreamMetadata,
        starts: Sequence[int | None] | None = None,
        rate: Fraction = Fraction(1),
        names: Sequence[str | None] | None = None,
    ) -> StreamTensor:
        """Return the padded tensor of ragged frames, ``(frames of all rows, *features)``; differentiable.

        `dims` has for each visible dimension ``"B"``, ``"L"``, ``"B_L"`` or the stored feature axis. Zeros
        stand behind each row's frames. Where there is no L it is ``(B, ...)``, with NaN (0 for integers) for
        rows that have no frame.
        """
        return cls.making(dims, meta, rate, names, value.shape[1:])(value, starts)

    @classmethod
    def making(
        cls,
        dims: Sequence[Any],
        meta: StreamMetadata,
        rate: Fraction,
        names: Sequence[str | None] | None,
        features: Sequence[int],
        plain: bool = False,
    ) -> Callable[[torch.Tensor, Sequence[int | None] | None], StreamTensor]:
        """Return what does `from_frames` with frames of these features, of the same dimensions and rows.

        `plain`: see `padding.unpadding`.
        """
        roles, order = _seen(tuple(dims), None if names is None else tuple(names))
        if order is not None:
            features = [features[axis - 1] for axis in order[1:]]
        padded = padding(Info(roles, meta, None, rate), features, plain=plain)

        def make(value: torch.Tensor, starts: Sequence[int | None] | None) -> StreamTensor:
            if order is not None:
                value = value.permute(order)
            with without_subclass():
                out = padded(value).as_subclass(cls)
            out._info = Info(roles, meta, None if starts is None else tuple(starts), rate)
            return out

        return make

    @classmethod
    def shell(cls, inner: Any) -> StreamTensor:
        """Return a tensor of a running forward around a native stream tensor."""
        with without_functions():
            if isinstance(inner, Symbolic) and not inner.roles:
                out = _NUMBER.as_subclass(_Shell)
            else:
                out = STAND_IN.as_subclass(_Shell)
                if torch.is_grad_enabled():  # so that torch records Functions of the user (forward/custom.py)
                    out.requires_grad_()
        out._inner = inner
        return out

    @classmethod
    @partial(runs_uncompiled, below=True)
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _any_inside(args) or (kwargs and _any_inside(kwargs.values())):
            return TAKERS.inside(func, types, args, kwargs)
        return TAKERS.outside(func, types, args, kwargs)

    # ---------------------------------------------------------------- what it is
    @property
    def _knowledge(self) -> Info:
        """Where meta, starts and rate are found: the native tensor inside a forward."""
        return self._info if self._inner is None else self._inner

    @property
    def names(self) -> Any:
        """One name per dimension."""
        return self._knowledge.names

    @property
    def meta(self) -> StreamMetadata:  # type: ignore[override]
        """ids, sos, eos and lengths of the rows."""
        return self._knowledge.meta

    @property
    def starts(self) -> Starts | None:
        """Absolute position of each row's first frame; None where it is not known."""
        return self._knowledge.starts

    @property
    def rate(self) -> Fraction:
        """Frames per frame of the reference clock, exactly."""
        return self._knowledge.rate

    @property
    def restart(self) -> bool:
        """Whether ``sos`` on a live stream starts it anew."""
        return bool(self._knowledge.restart)

    @property
    def dims(self) -> tuple[Any, ...]:
        """For each dimension ``"B"``, ``"L"``, ``"B_L"``, or the number of the feature axis."""
        return self._knowledge.dims

    @property
    def batch_dim(self) -> int | None:
        """Number of the dimension B, None where there is none."""
        return self.names.index(BATCH) if self.has_batch_dim() else None

    @property
    def length_dim(self) -> int | None:
        """Number of the dimension L, None where there is none."""
        return self.names.index(LENGTH) if self.has_length_dim() else None

    def has_batch_dim(self) -> bool:
        """Return whether there is a dimension B."""
        return BATCH in self.names

    def has_length_dim(self) -> bool:
        """Return whether there is a dimension L."""
        return LENGTH in self.names

    def is_batch_dim(self, dim: int) -> bool:
        """Return whether a dimension is B."""
        return bool(self.names[resolve(self.names, dim)] == BATCH)

    def is_length_dim(self, dim: int) -> bool:
        """Return whether a dimension is L."""
        return bool(self.names[resolve(self.names, dim)] == LENGTH)

    def batch_size(self) -> int:
        """Return the number of rows."""
        return len(self.meta)

    def max_length(self) -> int:
        """Return the extent along L, padding included."""
        return self._require_outside("the padded width").width_of(self._plain().shape)

    # ---------------------------------------------------------------- values
    def _require_outside(self, what: str) -> Info:
        if self._inner is not None:
            self._inner._require_outside(what)
        return self._info

    def _plain(self) -> torch.Tensor:
        """Return the tensor itself as torch's, sharing storage and autograd."""
        with without_subclass():
            return self.as_subclass(torch.Tensor)

    def tensor(self, keep_names: bool = False) -> torch.Tensor:
        """Return the padded plain tensor; it shares the storage. Torch's tensors have no names to keep."""
        self._require_outside("the values")
        return self._plain()

    def named_tensor(self) -> torch.Tensor:
        """Return the padded plain tensor (torch's tensors have no names any more)."""
        return self.tensor()

    def decouple(self, copy_meta: bool = False) -> tuple[torch.Tensor, StreamMetadata, Names]:
        """Return the padded plain tensor, the metadata and the names; metadata never change."""
        return self.tensor(), self.meta, self.names

    def padded(self) -> torch.Tensor:
        """Return the padded plain tensor with zeros behind each row's frames (where there is no L: as it is)."""
        info = self._require_outside("the values")
        return cleaned(self._plain(), info) if info.has_frames else self._plain()

    def frames(self) -> torch.Tensor:
        """Return the frames of all rows, ``(frames, *features)``, features as they are seen; differentiable."""
        info = self._require_outside("the frames")
        return unpad(self, info)

    def stream(self, stream_id: str) -> torch.Tensor:
        """Return one stream's frames without padding and without B, sharing storage."""
        info = self._require_outside("the frames")
        row = info.meta.row_of(stream_id)
        n = int(info.meta.lengths[row])
        x = self._plain()
        width = info.width_of(x.shape)
        batch, length, joined = info.axis(BATCH), info.axis(LENGTH), info.axis(JOINED)
        if joined is not None:
            return x.narrow(joined, row * width, n)
        if length is None:
            x = x.narrow(batch, row, 1).movedim(batch, 0) if batch is not None else x.unsqueeze(0)
            return x.narrow(0, 0, n)
        x = x.narrow(length, 0, n)
        return x if batch is None else x.select(batch, row)

    def drop_empty(self) -> StreamTensor | None:
        """Return the rows that have frames, None if none has."""
        rows = np.flatnonzero(self.lengths > 0)
        if not len(rows):
            return None
        if len(rows) == len(self.meta):
            return self
        (batch,) = (i for i, d in enumerate(self.dims) if d == BATCH)
        return self[(slice(None),) * batch + (rows,)]

    # ---------------------------------------------------------------- dimensions by name
    def size(self, dim: Any = None) -> Any:
        """Return the shape, or the size of a dimension given by number or name."""
        if self._inner is not None:
            return TAKERS.inside(torch.Tensor.size, (type(self),), (self,) if dim is None else (self, dim), {})
        return self.shape if dim is None else self.shape[resolve(self._info.names, dim)]

    def align_to(self, *names: Any) -> StreamTensor:
        """Return the tensor with its dimensions in the order of `names`; new names have size 1.

        An Ellipsis stands for all that are not named.
        """
        wanted = list(names[0]) if len(names) == 1 and isinstance(names[0], (list, tuple)) else list(names)
        if Ellipsis in wanted:
            at = wanted.index(Ellipsis)
            wanted[at : at + 1] = [n for n in self.names if n not in wanted]
        missing = [n for n in self.names if n not in wanted]
        if missing:
            raise ShapeError(f"align_to{tuple(wanted)}: {missing[0]!r} of {self.names} is not among them")
        x: StreamTensor = self
        for name in wanted:
            if name not in x.names:
                x = self.of(x._plain().unsqueeze(0), x._info.with_names((name, *x.names)))
        order = order_of(x.names, wanted)
        return self.of(x._plain().permute(order), x._info.with_names(wanted))

    def align_as(self, other: StreamTensor) -> StreamTensor:
        """Return the tensor with its dimensions in the order of another's."""
        return self.align_to(*other.names)

    def with_names(self, names: Sequence[str | None]) -> StreamTensor:
        """Return the tensor with other names for its features' dimensions.

        Raises
        ------
        ShapeError
            Another dimension would become B or L.
        """
        info = self._require_outside("renaming")
        found = check_names(names, len(info.names))
        if any(
            (a in (BATCH, LENGTH, JOINED) or b in (BATCH, LENGTH, JOINED)) and a != b
            for a, b in zip(info.names, found)
        ):
            raise ShapeError(
                f"{info.names} can't be renamed to {found}: B and L are what the dimensions are, not only "
                "names; x.tensor() is the plain tensor"
            )
        return self.of(self._plain(), info.with_names(found))

    def rename(self, *names: Any, **renamed: str | None) -> StreamTensor:
        """Return the tensor with other names: all of them, or by keyword those that change."""
        if renamed:
            unknown = [n for n in renamed if n not in self.names]
            if unknown or names:
                raise ShapeError(f"rename: there is no dimension {unknown or names} in {self.names}")
            return self.with_names([renamed.get(n, n) if n is not None else None for n in self.names])
        return self.with_names(names[0] if len(names) == 1 and isinstance(names[0], (list, tuple)) else names)

    def rename_(self, *names: Any, **renamed: str | None) -> StreamTensor:
        """Rename in place; see `rename`."""
        self._info = self.rename(*names, **renamed)._info
        return self

    def refine_names(self, *names: Any) -> StreamTensor:
        """Return the tensor with names where it has none."""
        both = [b if a is None else a for a, b in zip(self.names, names)]
        if len(names) != len(self.names) or any(b is not None and a != b for a, b in zip(both, names)):
            raise ShapeError(f"names {self.names} can't be refined to {names}")
        return self.with_names(both)

    # ---------------------------------------------------------------- as a Python object
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            return self.stream(index)
        taker = type(self).__torch_function__ if self._inner is None else TAKERS.inside
        return taker(torch.Tensor.__getitem__, (type(self),), (self, index), {})

    def __iter__(self) -> Any:
        if isinstance(getattr(self._inner, "dims", (0,))[0], str):
            return iter(self._inner)  # which refuses it
        return iter(self.unbind(0))

    def new(self, *args: Any, **options: Any) -> Any:
        """Return what torch's `new` does, which is no stream tensor."""
        return torch.empty(0, dtype=self.dtype) if collates() else super().new(*args, **options)

    def __copy__(self) -> StreamTensor:
        return self.of(self._plain(), self._require_outside("a copy"))

    def __deepcopy__(self, memo: dict[int, Any]) -> StreamTensor:
        info = self._require_outside("a deep copy")
        with without_subclass():
            if not self.is_leaf:
                raise RuntimeError("only stream tensors without a graph can be copied deeply; detach() it")
            out = self.of(self.detach().clone(), info)
            out.requires_grad_(self.requires_grad)
            out.grad = copy.deepcopy(self.grad, memo)
        memo[id(self)] = out
        return out

    def __reduce_ex__(self, protocol: Any) -> Any:
        info = self._require_outside("pickling")
        with without_subclass():
            plain = self.detach().as_subclass(torch.Tensor).requires_grad_(self.requires_grad)
        return _rebuild, (plain, info.names, info.meta, info.starts, info.rate, info.restart)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        if self._inner is not None:
            return repr(self._inner)
        with without_subclass():
            shape, dtype, device = self.shape, self.dtype, self.device
        roles = [n if self._info.is_stream(i) else str(shape[i]) for i, n in enumerate(self.names)]
        rows = ", ".join(f"{i}: {n}" for i, n in zip(self.ids[:8], self.lengths[:8]))
        more = ", ..." if len(self.ids) > 8 else ""
        where = "" if device.type == "cpu" else f", device={str(device)!r}"
        return f"StreamTensor({', '.join(map(str, roles))}; {rows}{more}; dtype={dtype}{where})"

    __hash__ = torch.Tensor.__hash__


class _Shell(StreamTensor):
    """A stream tensor of a running forward: what comes past torch's functions to its data finds none there."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in (torch.ops.aten.alias.default, torch.ops.aten.detach.default):  # torch.Tensor(x), what is saved
            out = StreamTensor.shell(args[0]._inner)
            TAKERS.aliased(out)
            return out
        return TAKERS.beneath(func, types, args, kwargs or {})


SHELL: type = _Shell
_Shell.__name__ = _Shell.__qualname__ = StreamTensor.__name__  # what callers see of it


def _rebuild(
    padded: torch.Tensor, names: Names, meta: StreamMetadata, starts: Any, rate: Fraction, restart: bool
) -> Any:
    requires_grad = padded.requires_grad
    out = StreamTensor.outside(padded.detach(), names, meta, starts, rate, restart)
    with without_subclass():
        return out.requires_grad_(requires_grad)


_rebuild.__module__ = StreamTensor.__module__  # what pickles say


def _operator(name: str) -> Any:
    """A Python operator: torch's own makes NotImplemented of a TypeError, and the reason would be lost."""
    theirs = getattr(torch.Tensor, name)

    def operator(self: StreamTensor, *other: Any) -> Any:
        if self._inner is None:
            return theirs(self, *other)
        return TAKERS.inside(theirs, (type(self),), (self, *other), {})

    operator.__name__ = name
    return operator


_names = [f"{kind}{name}" for name in (*ARITHMETIC, *BITWISE, "matmul") for kind in ("", "r", "i")]
#: The methods of Python's operators.
OPERATORS = [f"__{name}__" for name in (*_names, *RELATIONS) if hasattr(torch.Tensor, f"__{name}__")]
for _name in OPERATORS:
    setattr(StreamTensor, _name, _operator(_name))
StreamTensor.__hash__ = torch.Tensor.__hash__  # type: ignore[method-assign, assignment]
