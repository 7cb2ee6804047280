"""Tensors of streams: the frames of each stream, ragged, with what is known about them.

A StreamTensor stores ``[frames of all rows][features...]``, row after row, and says by `dims` which
visible dimension is which; a transpose moves nothing. Inside an online forward it also carries its edge
(lineage, rate, counts), and its stream axis means the whole stream; there the operations come from
:mod:`dreamstream.array.forward`. Outside, it is the frames of one call, and the operations come from
:mod:`dreamstream.array.chunks`. The methods stand in :mod:`dreamstream.array.stream_views`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from ..autograd import follow, source
from ..errors import NotStreamableError, ShapeError
from ..operations.refusals import LOOPS
from ..stream.edge import Edge, Request
from ..stream.metadata import OfStreams, StreamMetadata
from ..stream.place import as_before
from ..stream.rules import Comparison, Shape, holds, lanes_of
from ..stream.tensor_info import Info
from . import hook
from .dimension_arguments import numbered
from .operators import run
from .tensor import Tensor

Array = npt.NDArray[Any]
Dims = tuple[Any, ...]

#: What of a tensor changes when what it shares memory with is written into.
_STATE = ("value", "edge", "dims", "_names")

_AS_A_WHOLE = "read its frames outside the forward, where a call's frames are at hand"


class StreamTensor(OfStreams, Tensor):
    """The frames of many streams; see :func:`dreamstream.stream_tensor`.

    Attributes
    ----------
    value : ndarray
        ``(frames of all rows, *features)``.
    dims : tuple
        For each visible dimension ``"B"``, ``"L"``, ``"B_L"`` or the stored feature axis. Inside a forward B may
        also be joined with features, `lanes` of them in all (`stream.rules.batch_folding`).
    edge : Edge or None
        Inside a forward: where the value stands in it.
    """

    is_stream = True

    value: Array
    dims: Dims
    edge: Edge | None
    restart: bool = False
    _names: tuple[str | None, ...]
    _meta: StreamMetadata | None = None
    _starts: tuple[int | None, ...] | None = None
    _rate: Fraction
    #: Inside a forward, of a tensor that shares another's memory: how it is taken of it (`array.writing`).
    _view: Any = None
    #: Inside a forward: the edge that has a constant for every frame, and the constant.
    alike: tuple[Any, Any] = (None, None)
    #: What was taken of this one, or may share its memory: references, each with whether that is certain.
    _views: Sequence[tuple[Any, bool]] = ()

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError("use ds.stream_tensor(data, ids=..., sos=..., eos=...)")

    @classmethod
    def _make(
        cls,
        value: Any,
        dims: Dims,
        names: Sequence[str | None] | None,
        meta: StreamMetadata | None,
        starts: Sequence[int | None] | None,
        rate: Fraction,
        edge: Edge | None,
    ) -> StreamTensor:
        out = object.__new__(cls)
        out.value = value
        out.dims = dims
        out._names = tuple([d if isinstance(d, str) else None for d in dims] if names is None else names)
        out._meta = meta
        out._starts = None if starts is None else tuple(starts)
        out._rate = rate
        out.edge = edge
        return out

    @classmethod
    def inside(cls, value: Any, dims: Dims, edge: Edge, names: Sequence[str | None] | None = None) -> StreamTensor:
        """Return a tensor of a running forward."""
        return cls._make(value, dims, names, None, None, edge.line.rate, edge)

    @classmethod
    def _operate_on(
        cls,
        name: str,
        attributes: Mapping[str, Any],
        edges: Sequence[Any],
        values: Sequence[Any],
        dims: Dims,
        names: Sequence[str | None] | None = None,
        cid: Any = None,
    ) -> StreamTensor:
        """Run an operator on edges of a running forward, and see the result with these dimensions."""
        inputs = [cls.inside(value, dims, edge) for edge, value in zip_longest(edges, values)]

        def find() -> list[StreamTensor]:
            ((value, edge),) = run(Request(name, attributes, edges, values, cid=cid))
            return [cls.inside(value, dims, edge, names)]

        asked = [cls, name, attributes, dims, names, cid, *(e.line for e in edges)]
        return as_before(edges[0].entry, asked, inputs, find)[0]

    @classmethod
    def _at_the_end(cls, length: Any, dtype: Any, sizes: Sequence[int] = ()) -> StreamTensor:
        """Return a length, known when streams end, as a number of each, with features of these sizes."""
        value, edge = length.measured()
        out: Any = cls.inside(value, ("B",), edge).to(dtype)
        return out.reshape(out.shape[0], *(1 for _ in sizes)).expand(-1, *sizes) if sizes else out

    def like(
        self, frames: Tensor | Array, dims: Dims | None = None, names: Sequence[str | None] | None = None
    ) -> StreamTensor:
        """Return a tensor with the same rows and frames but other features (outside a forward)."""
        value = frames.numpy() if isinstance(frames, Tensor) else frames
        dims = self._dims_for(value.shape[1:], False) if dims is None else dims
        if names is None:
            names = self._names if dims == self.dims else None
        out = self._make(value, dims, names, self._meta, self._starts, self._rate, None)
        return follow(out, source(frames), "frames") if isinstance(frames, Tensor) else out

    def made(self, value: Any, edge: Edge) -> StreamTensor:
        """Return an operator's output, its dimensions in this tensor's order (inside a forward)."""
        dims = self._dims_for(edge.features[1:] if self.lanes else edge.features, edge.rate == 0)
        return self.inside(value, dims, edge, self._names if dims == self.dims else None)

    def _dims_for(self, features: tuple[int, ...], pooled: bool) -> Dims:
        kept = tuple(d for d in self.dims if not (pooled and d == "L"))
        if len(features) == sum(isinstance(d, int) for d in self.dims):
            return kept
        return tuple(d for d in kept if isinstance(d, str)) + tuple(range(len(features)))

    def with_dims(self, dims: Dims, names: Sequence[str | None] | None = None) -> StreamTensor:
        """Return the same value seen with other dimensions."""
        out = self._make(self.value, dims, names, self._meta, self._starts, self._rate, self.edge)
        return out if self.edge is not None else follow(out, source(self), "frames")

    # ---------------------------------------------------------------- what it is
    def __getattr__(self, name: str) -> Any:
        if name in _STATE and self._view is not None:
            self._view.retake(self)
            return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def forget(self) -> None:
        """Drop the value of a view; it is taken from its base again when it is asked for."""
        for name in _STATE:
            self.__dict__.pop(name, None)

    def _relatives(self) -> list[tuple[StreamTensor, bool]]:
        return [(x, certain) for x, certain in ((at(), certain) for at, certain in self._views) if x is not None]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        of = self._alike if self._ends is None or "edge" in self.__dict__ else self._ends.everywhere()
        return np.dtype(of.edge.line.dtype) if of.edge is not None else of.value.dtype

    @property
    def _waiting(self) -> Any:
        """What decides on frames that aren't known yet, None where all are."""
        return self._view if getattr(self._view, "waits", False) else None

    @property
    def _by_elements(self) -> Any:
        return self._waiting if self._ends is None else self._ends

    @property
    def _alike(self) -> StreamTensor:
        """A tensor of its shape and type: what rolled frames are made of, which wait for some."""
        return self if self._view is None or self._waiting is None else self._waiting.of

    @property
    def features(self) -> tuple[int, ...]:
        """Shape of one frame, as stored, or of one of its lanes."""
        if self.edge is None:
            return self.value.shape[1:]
        own = self.edge.line.features
        return own[1:] if lanes_of(self.dims) else own

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient is wanted, of the frames or of what they follow from."""
        made = self._wanted or self.grad_fn is not None
        return made if self.edge is None else self.edge.made is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self._require_outside("requires_grad")
        Tensor.requires_grad.fset(self, wanted)  # type: ignore[attr-defined]

    @property
    def has_gradients(self) -> bool:
        """Whether its value is at hand and of an arithmetic that has gradients."""
        return hasattr(self.value, "requires_grad")

    @property
    def lanes(self) -> int:
        """How many features are joined with B; 0 where none are."""
        return lanes_of(self.dims)

    def opened(self) -> StreamTensor:
        """Return the tensor with its lanes as a feature, all features in stored order behind B and L."""
        seen = [d for d in ("B", "L") if any(holds(own, d) for own in self.dims if isinstance(own, str))]
        return self.with_dims((*seen, *range((self.lanes > 0) + len(self.features))))

    @property
    def names(self) -> tuple[str | None, ...]:
        """One name per dimension."""
        return self._names

    @property
    def roles(self) -> tuple[str, ...]:
        """The dimensions as messages show them, B, L, and sizes of features."""
        return tuple(d if isinstance(d, str) else str(self.features[d]) for d in self.dims)

    @property
    def meta(self) -> StreamMetadata:  # type: ignore[override]
        """ids, sos, eos and the lengths of this call's rows."""
        if self._meta is None:
            assert self.edge is not None
            meta = getattr(self.edge.entry, "meta", None)
            if meta is None or self.edge.counts is None:
                raise self.edge.misuse("ids and lengths are not known while a model is captured")
            self._meta = meta.with_lengths(self.edge.counts[:, 2] - self.edge.counts[:, 0])
        return self._meta

    @property
    def starts(self) -> tuple[int | None, ...] | None:
        """Absolute position of each row's first frame; None where it is not known."""
        if self.edge is not None and self.edge.counts is not None:
            return tuple(self.edge.counts[:, 0].tolist())
        return self._starts

    @property
    def rate(self) -> Fraction:
        """Frames per frame of the reference clock, exactly."""
        return self._rate if self.edge is None else self.edge.rate

    @property
    def _info(self) -> Info:
        names = tuple(d if isinstance(d, str) else n for d, n in zip(self.dims, self._names))
        return Info(names, self.meta, self.starts, self._rate, self.restart)

    @property
    def offsets(self) -> Array:
        """First stored frame of each row, and the end."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes of the padded tensor; inside a forward B and L are tokens."""
        of = self._alike if getattr(self._view, "waits", False) else self
        if of.edge is not None:
            features, seen = of.features, list[Any]()
            for d in self.dims:
                seen.append(features[d] if d.__class__ is int else of._token(d))
            return Shape(seen)
        width = self.meta.max_length
        sizes = {"B": len(self.meta), "L": width, "B_L": len(self.meta) * width}
        return tuple(sizes[d] if isinstance(d, str) else self.features[d] for d in self.dims)

    def size(self, dim: int | None = None) -> Any:
        """Return all sizes, or that of dimension `dim`."""
        known = type(dim) is int and -len(self.dims) <= dim < len(self.dims)
        if known and self.edge is not None and not getattr(self._view, "waits", False):
            return self._token(self.dims[dim])  # type: ignore[index]
        return super().size(dim)

    def _token(self, dim: Any) -> Any:
        assert self.edge is not None
        if not isinstance(dim, str):
            return self.features[dim]
        library = self.edge.entry.library
        if dim == "B":
            return library.batch(self.edge, 1)
        if dim == "L":
            return library.length(self.edge)
        times = lanes_of((dim,)) or 1
        if not holds(dim, "L"):
            return library.batch(self.edge, times)
        length = library.length(self.edge)
        return library.joined(length, times) if holds(dim, "B") else length

    def as_output(self) -> StreamTensor:
        """Return the tensor as a forward's result; refuse one in which B or L is joined with features."""
        if self._view is not None and self._waiting is not None:
            self._waiting.refuse()
        for d in self.dims:
            if isinstance(d, str) and d not in ("B", "L", "B_L"):
                raise NotStreamableError(
                    f"the forward returns a stream {self.roles}, in which {d} is one dimension; take it "
                    "apart, as in y.view(batch, features, ...)"
                )
        return self

    def require_length(self, length: Any) -> None:
        """Refuse, at the end, streams that are not so long; those of another length at once, where all are."""
        assert self.edge is not None
        same = self.edge.entry.library.length(self.edge) == length
        if isinstance(same, Comparison):
            same.require()
        elif not same:
            raise ShapeError.here(f"a stream {self.roles} is never {length!r} long")

    def require_frames(self, count: int, also_empty: bool = True) -> None:
        """Refuse, at the end, streams of fewer frames; those that have none here only if asked."""
        assert self.edge is not None
        asked = self.edge.entry.library.length(self.edge).compare(count, "ge")
        if isinstance(asked, Comparison):
            asked.require(also_empty=also_empty)

    def of_length(self, length: Any) -> StreamTensor | None:
        """Return a length as a value of whole streams that broadcasts with this one, if it may meet such."""
        if self.edge is None or not (self.edge.rate == 0 or self.edge.may_wait):
            return None
        if "B" not in self.dims:  # positions
            return self._at_the_end(length, self.dtype, (1,)).with_dims((0,))
        return self._at_the_end(length, self.dtype, (1,) * (len(self.dims) - self.dims.index("B") - 1))

    def _axis(self, name: str, dim: Any) -> int:
        if isinstance(dim, str):
            if dim not in self._names:
                raise ShapeError(f"{name}: there is no dimension {dim!r} in {self._names}")
            return self._names.index(dim)
        return super()._axis(name, dim)

    def numel(self) -> int:
        """Return the number of valid elements; inside a forward a token."""
        if self.edge is not None:
            return math.prod(self.shape)
        return int(self.value.size)

    def __len__(self) -> int:
        size = self.shape[0]
        if not isinstance(size, int):
            size._misuse("taken as a Python length")
        return int(size)

    def is_contiguous(self) -> bool:
        """Return True: transposes move nothing, and every reshape that is possible works."""
        return True

    def _require_outside(self, what: str, instead: str = "") -> None:
        if self.edge is not None:
            raise self.edge.misuse(f"{what} of a stream inside a forward,", f": {instead}{_AS_A_WHOLE}")

    # ---------------------------------------------------------------- values
    def rows(self) -> list[Array]:
        """Return each row's frames ``(length, *features)``, views."""
        self._require_outside("the rows")
        return np.split(self.value, self.offsets[1:-1]) if len(self.meta) else []

    def _frames(self) -> Tensor:
        """Return the stored frames of all rows ``(frames, *features)`` as a plain tensor that shares memory."""
        return follow(Tensor._plain(self.value), source(self), "frames")

    def tensor(self) -> Tensor:
        """Return the padded plain tensor: zeros behind each row's frames (NaN where there is no L)."""
        self._require_outside("the values")
        pooled = not any(holds(d, "L") for d in self.dims if isinstance(d, str))
        n, width = len(self.meta), 1 if pooled else self.meta.max_length
        fill = np.nan if pooled and self.value.dtype.kind == "f" else 0
        if n != 1 and not any(d in ("B", "B_L") for d in self.dims):
            raise ShapeError(f"a tensor of {n} streams without a dimension B can't be padded")
        places: dict[Any, tuple[int, ...]] = {"B": (0,), "L": (1,), "B_L": (0, 1)}
        seen = [i for d in self.dims for i in (places[d] if isinstance(d, str) else (2 + d,))]
        order = (*seen, *(i for i in (0, 1) if i not in seen))  # of one element
        options = {"lengths": self.lengths, "width": width, "fill": fill, "order": order}
        out = hook.made("padded", self._frames(), **options)
        sizes = {"B": n, "L": width, "B_L": n * width}
        return out.reshape([sizes[d] if isinstance(d, str) else self.features[d] for d in self.dims])

    def padded(self) -> Array:
        """Return the padded array."""
        return self.tensor().numpy()

    numpy = padded

    def stream(self, stream_id: str) -> Tensor:
        """Return one stream's frames without padding and without B."""
        self._require_outside("the frames")
        row = self.meta.row_of(stream_id)
        kept = [d for d in self.dims if d != "B"]
        if not any(d in ("L", "B_L") for d in kept):
            kept.insert(0, "L")
        order = [0 if isinstance(d, str) else d + 1 for d in kept]
        start, stop = self.offsets[row : row + 2]
        return hook.made("frames", self._frames(), start=start, stop=stop, order=order)

    def in_order(self, stored: Sequence[int] | None = None) -> StreamTensor:
        """Return it with its feature axes stored in the order in which they are seen, or at these places."""
        own = [d for d in self.dims if isinstance(d, int)]
        places = list(range(len(own))) if stored is None else list(stored)
        if own == places:
            return self
        order = [own[places.index(i)] for i in range(len(own))]
        seen = iter(places)
        dims = tuple(d if isinstance(d, str) else next(seen) for d in self.dims)
        return self.stored_anew(order).with_dims(dims, self._names)

    def _operate(
        self, name: str, attributes: Mapping[str, Any], weights: Sequence[Any] = (), dims: Dims | None = None
    ) -> StreamTensor:
        """Run an operator on the stored value, and see the result with this tensor's dimensions or with others."""
        straight = self._straight()
        out = hook.one(name, attributes, [self.with_dims(straight)], weights, straight)
        return out.with_dims(self.dims, self._names) if dims is None else out.with_dims(dims)

    def _padded(self, left: int, right: int, **how: Any) -> StreamTensor:
        """Return the stream with so many frames more at its ends, made as `pad` says, or less where below 0."""
        more, less = [max(left, 0), max(right, 0)], [max(-left, 0), max(-right, 0)]
        out = self._operate("pad", {"left": more[0], "right": more[1], **how}) if any(more) else self
        return out._operate("slice", {"start": less[0], "crop": less[1], "step": 1}) if any(less) else out

    def _with(self, frames: StreamTensor, start: int, crop: int, step: int = 1) -> StreamTensor:
        """Return the stream with frames of another from `start` on, but for the last `crop`; both are in order."""
        attributes, edges = {"start": start, "crop": crop, "step": step}, [self.edge, frames.edge]
        return self._operate_on("put", attributes, edges, [self.value, frames.value], self.dims, self._names)

    def stored_anew(self, order: Sequence[int]) -> StreamTensor:
        """Return the tensor with its feature axes stored in another order, and seen in that."""
        moved = [i for i in order if self.features[i] != 1]
        if moved == sorted(moved):  # nothing moves but axes of one element
            shape = [self.features[i] for i in order]
            return self._operate("reshape", {"shape": shape}, (), self._straight())
        return self._operate("permute", {"order": list(order)}, (), self._straight())

    def _straight(self) -> Dims:
        """The dimensions with the feature axes in stored order, for operators on stored values."""
        return numbered(self.dims)

    def to(self, *args: Any, **kwargs: Any) -> StreamTensor:
        """Return the tensor with another element type."""
        dtype, copy = self._to_arguments(args, kwargs)
        if dtype is None or dtype == self.dtype:
            return self.clone() if copy else self
        made: Any = self.edge and getattr(self.edge.entry, "maker", lambda _: None)(self.edge)
        if made and made.name == "cast" and self.dtype == np.float64 and made.edges[0].dtype == np.dtype(dtype):
            own = made.edges[0]  # an engine, which has no float64, takes what was made one
            return self.inside(None, self.dims, own, self.names)
        return self._operate("cast", {"to": np.dtype(dtype).name})

    def __copy__(self) -> StreamTensor:
        out = object.__new__(type(self))
        out.__dict__.update(self.__dict__)
        return out

    def __deepcopy__(self, memo: dict[int, Any]) -> StreamTensor:
        self._require_outside("a deep copy")
        out = self.__copy__()
        memo[id(self)] = out
        out.value, out.grad_fn, out._hooks = self.value.copy(), None, None
        out.grad = copy.deepcopy(self.grad, memo)
        return out

    def detach(self) -> StreamTensor:
        """Return a tensor that shares the frames and has no gradient."""
        if not self.requires_grad:
            return self
        if self.edge is not None:
            out, at = self.with_dims(self.dims, self._names), self.edge
            out.edge = Edge(at.entry, at.line, at.counts, at.handle)
            return out
        return self._make(self.value, self.dims, self._names, self._meta, self._starts, self._rate, None)

    # ---------------------------------------------------------------- Python
    def __iter__(self) -> Any:
        if self.edge is not None:
            if not isinstance(self.dims[0], str):
                return iter(self.unbind(0))
            why = "x.unbind(dim) and x.chunk(n, dim) take features apart"
            if self.dims[0] == "L":
                why = LOOPS.text
            what = f"a loop over a stream {self.roles} inside a forward"
            raise NotStreamableError.here(f"{what},", f"; {why}")
        raise TypeError("iterate over y.ids and take y[id], or over y.unpad_sequence()")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        self._require_outside("a NumPy array")
        return super().__array__(dtype, copy)

    def __bool__(self) -> bool:
        self._require_outside("the truth", "choose for each frame by torch.where(condition, a, b), or ")
        return super().__bool__()

    def __reduce__(self) -> tuple[Any, ...]:
        self._require_outside("pickling")
        return (_rebuild, (self.value, self.dims, self._names, self.meta, self._starts, self._rate))

    def __repr__(self) -> str:
        if self.edge is not None:
            return f"StreamTensor({', '.join(self.roles)}, rate={self._rate}, inside a forward)"
        rows = ", ".join(f"{i}: {n}" for i, n in zip(self.ids[:8], self.lengths[:8]))
        return f"StreamTensor({', '.join(self.roles)}; {rows}{', ...' if len(self.ids) > 8 else ''})"


def _rebuild(
    value: Array, dims: Dims, names: Any, meta: StreamMetadata, starts: Any, rate: Fraction
) -> StreamTensor:
    return StreamTensor._make(value, dims, names, meta, starts, rate, None)
