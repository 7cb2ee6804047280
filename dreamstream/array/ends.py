"""The last frames of streams, which are known at their ends."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..errors import NotStreamableError, ShapeError
from ..source_line import user_line
from ..stream.edge import Request
from ..stream.rules import Length, is_full_slice, open_branch
from .base import is_number
from .deferred import as_number, has_formula
from .dimension_arguments import numbered, parts_of
from .elementwise import ones_of, where, with_frames
from .fades import placed
from .lengths_of import SAME_ORDER
from .operators import run
from .protocol import unless_refused
from .stream_tensor import StreamTensor
from .symbolic import Symbolic
from .tensor import Tensor, take


def last_frame(x: StreamTensor, behind: int = 1) -> StreamTensor:
    """Return the frame that so many frames from the end are behind, itself included, once a stream has ended.

    All others are zeros in a sum.
    """
    if behind > 1:
        x = x._through("slice", {"start": 0, "crop": behind - 1, "step": 1})
    x = with_frames(x)
    zeros: Any = where(x.eq(x), 0.0, 0.0)
    behind_all = zeros._through("pad", {"left": 0, "right": 1, "value": 1.0})
    later = behind_all._through("slice", {"start": 1, "crop": 0, "step": 1})
    ends: Any = where(later.gt(0.5), x, zeros.to(x.dtype))
    return ends.sum(x.dims.index("L"))


def _last_window(x: StreamTensor, count: int) -> StreamTensor:
    """Return the last frames in L's place; streams of fewer are refused."""
    x.require_frames(count)
    axis = x.dims.index("L")
    made: Any = last_frame(x.unfold(axis, count, 1)).movedim(-1, axis)
    return made


def first_frames(x: StreamTensor, count: int) -> StreamTensor:
    """Return the first frames of what is given once, `count` of them in L's place: the last, from the last on."""
    return _last_window(x._through("flip", {}), count).flip(x.dims.index("L"))


#: What stands before a stream so that functions of its last frames, some of which it has not, don't change.
_NEUTRAL: dict[str, dict[str, Any]] = {
    "sum": {"value": 0.0},
    "mean": {"value": 0.0},
    "amax": {"mode": "replicate"},
    "amin": {"mode": "replicate"},
}


class Later:
    """In a view's place: the last frames are computed where they are used, for a model's cache seldom is.

    What functions of elements give of them is computed when it is used, too: of all frames, where it stands behind
    others (`put_last`), else of the last ones alone.

    Parameters
    ----------
    of : StreamTensor
        The frames, or others that are as many.
    count : int
        How many of its frames.
    times : int or Length
        How often they stand there, one behind the other.
    given : (function, arguments), optional
        What gives them of others.
    """

    def __init__(self, of: StreamTensor, count: int, times: Any = 1, given: Any = None) -> None:
        self.of, self.count, self.times, self.given = of, count, times, given
        self.is_once = isinstance(times, int) and times == 1
        self.line = user_line()
        self._everywhere: Any = None

    def through(self, call: Callable[..., Any], args: Sequence[Any], of_positions: Any = None) -> Any:
        """Return what a function of elements gives of these frames and of others that are the last ones."""
        lasts = [getattr(x, "_ends", None) for x in args]
        alike = [v._is_beside(self) for v in lasts if v is not None]
        others = [x for x, v in zip(args, lasts) if v is None]
        plain = all(is_number(x) or (isinstance(x, Tensor) and not x.is_stream) for x in others)
        if not plain or not all(alike):
            return call(*[x if v is None else v.taken() for x, v in zip(args, lasts)])
        held = [x if v is None else v.copied() for x, v in zip(args, lasts)]
        return standing_for(Later(self.of, self.count, 1, (call, held)))

    def _is_beside(self, other: Later) -> bool:
        a, b = self.of, other.of
        same = self.is_once and self.count == other.count and a.dims == b.dims
        return same and (a.edge is b.edge or (a.size(a.dims.index("L")) == b.size(a.dims.index("L"))) is True)

    def copied(self) -> Later:
        """Return the same, whatever is written into what they are taken of."""
        of = self.of.with_dims(self.of.dims, self.of.names)
        return Later(of, self.count, self.times, self.given)

    def everywhere(self) -> StreamTensor:
        """Return the frames that they are the last ones of."""
        if self.given is None:
            return self.of
        if self._everywhere is not None:
            return self._everywhere
        (call, args), axis = self.given, self.of.dims.index("L")
        args = [x.everywhere() if type(x) is Later else x for x in args]
        self._everywhere = call(*placed(args, self.of, axis, self.count, lambda table: table, last=True))
        return self._everywhere

    def taken(self) -> StreamTensor:
        """Return them in L's place; streams of fewer are refused."""
        if self.given is None:
            return _last_window(self.of, self.count)
        call, args = self.given
        made: StreamTensor = call(*(x.taken() if type(x) is Later else x for x in args))
        return made

    def reduced(self, kind: str, dim: Any = None, keepdim: bool = False, **more: Any) -> Any:
        """Return a sum, a mean or an extreme of these frames, in short streams of all; None for another."""
        (dim,) = dim if isinstance(dim, (tuple, list)) and len(dim) == 1 else (dim,)
        if not self.is_once or type(dim) is not int or more or kind not in _NEUTRAL:
            return None
        x = self.everywhere()
        if x.dims[dim] != "L" or (x.dtype.kind == "b" and kind != "sum"):
            return None

        def over(y: StreamTensor, kind: str) -> StreamTensor:
            padded = y._through("pad", {"left": self.count, "right": 0, **_NEUTRAL[kind]})
            out: StreamTensor = getattr(_last_window(padded, self.count), kind)(dim, keepdim)
            return out

        if kind != "mean":
            return over(x.to(np.dtype(np.int64)) if x.dtype.kind == "b" else x, kind)
        return over(x, "sum") / over(ones_of(x, x.dtype), "sum")

    def retake(self, out: StreamTensor) -> None:
        """Give the tensor its value."""
        if not isinstance(self.times, int):
            raise NotStreamableError(
                f"the last frame, at {self.line}: it is repeated as often as the stream's length says, which is "
                "known at its end; torch.cat([x, last], L) puts it behind its own stream, as F.pad does"
            )
        out._view = None if out._view is self else out._view
        made = self.taken()
        if self.times > 1:
            axis = self.of.dims.index("L")
            made = made.repeat(*[self.times if i == axis else 1 for i in range(made.ndim)])
        out.value, out.edge, out.dims, out._names = made.value, made.edge, made.dims, made._names


def later(x: Any) -> Later | None:
    """Return what a tensor stands for that is the last frames of a stream, as they are."""
    own = x._ends if isinstance(x, StreamTensor) else None
    return own if own is None or own.given is None else None


def end_repeated(x: StreamTensor, times: Sequence[Any]) -> StreamTensor | None:
    """Return the last frame so often as numbers of repeats say; None where it isn't repeated along L alone."""
    own = later(x)
    if own is None or own.count != 1 or not own.is_once or len(times) != own.of.ndim:
        return None
    axis = own.of.dims.index("L")
    others = (n for i, n in enumerate(times) if i != axis)
    if any(not isinstance(n, int) or n != 1 for n in others):
        return None
    return last_frames(own.of, 1, times[axis])


def expanded(x: StreamTensor, sizes: Sequence[Any]) -> StreamTensor | None:
    """Return the last frame as often as sizes to which it is expanded say; None as `end_repeated`."""
    own = later(x)
    if own is None or len(sizes) != own.of.ndim:
        return None

    def same(size: Any, of: Any) -> bool:
        return (isinstance(size, int) and size == -1) or size is of or (type(size) is type(of) and size == of)

    of = zip(sizes, own.of.shape, own.of.dims)
    return end_repeated(x, [size if d == "L" else 1 if same(size, n) else 0 for size, n, d in of])


def last_frames(x: StreamTensor, count: int, times: Any = 1) -> StreamTensor:
    """Return the last frames, ``count`` of them in L's place, once a stream of as many has ended."""
    return standing_for(Later(x, count, times))


def standing_for(ends: Later) -> StreamTensor:
    """Return a tensor in the place of last frames."""
    out = ends.of.with_dims(ends.of.dims, ends.of.names)
    out.forget()
    out._view = out._ends = ends
    return out


def put_last(before: StreamTensor, x: StreamTensor) -> StreamTensor | None:
    """Return frames with the last ones of a stream behind them, of which that has so many before, or some more."""
    ends = x._ends
    if ends is None or not ends.is_once or before.dims != ends.of.dims:
        return None
    axis = before.dims.index("L")
    more = before.size(axis) - (ends.of.size(axis) - ends.count).at_least(0)
    more = more.soon() if isinstance(more, Length) else more
    if not isinstance(more, int):
        return None
    made = ends.everywhere()
    if made.dims != before.dims or made.features != before.features:
        return None
    if more > 0:
        made = made._through("pad", {"left": more, "right": 0, "mode": "replicate"})
    elif more < 0:
        ends.of.require_frames(ends.count - more)
        made = made._through("slice", {"start": -more, "crop": 0, "step": 1})
    whole, v = made.in_order(), before.to(made.dtype).in_order()
    attributes = {"start": 0, "crop": ends.count, "step": 1}
    out = whole._told("put", attributes, [whole.edge, v.edge], [whole.value, v.value], whole.dims)
    return out.with_dims(numbered(before.dims), before.names)


def with_last(x: StreamTensor, index: Any, value: Any) -> StreamTensor | None:
    """Return a stream with a value in the place of as many last frames, at an index; None where it is another."""
    ends = getattr(value, "_ends", None)
    if ends is None or x.edge is None or "L" not in x.dims:
        return None
    axis, parts = x.dims.index("L"), parts_of(index, x.ndim)
    at: Any = parts.pop(axis) if axis < len(parts) else None
    if type(at) is not slice or at.stop is not None or at.step not in (None, 1):
        return None
    if not all(type(p) is slice and p == slice(None) for p in parts):
        return None
    if bound_of(at.start, x.size(axis)) != -ends.count:
        return None
    if ends.of is x and ends.given is None:  # which has been written into them
        return x
    return put_last(x[(slice(None),) * axis + (slice(-ends.count),)], value)


def parted(x: Any, axis: int, sizes: Sequence[Any]) -> Any:
    """Return parts of a stream of these sizes, counted from the end that is a number of frames away."""
    more, ends = sum(sizes) - x.shape[axis], []
    if isinstance(more, int) and more:
        raise ShapeError.here(f"split: sizes {list(sizes)} don't add up to {x.shape[axis]!r}")
    for i in range(1, len(sizes)):
        before, behind = sum(sizes[:i]), sum(sizes[i:])
        ends.append(before if isinstance(before, int) or not isinstance(behind, int) or not behind else -behind)
    return cut_at(axis, ends, partial(operator.getitem, x))


def cut_at(axis: int, ends: Sequence[Any], take: Callable[[Any], Any]) -> Any:
    """Return the parts between places along a dimension, each refused only where it is read."""
    slices = map(slice, (None, *ends), (*ends, None))
    return tuple(unless_refused(partial(take, (slice(None),) * axis + (part,))) for part in slices)


def padded_to(x: Any, length: Length, left: int, mode: str, value: float, longest: int = 0) -> Any:
    """Return a stream with frames at its end, until it has a length; by mode "replicate" so many at most."""
    length = in_most_streams(length, length)
    attributes = {"left": left, "mode": mode, "value": value, "length": length.steps(), "longest": longest}
    of: Any = length.of
    ((out, edge),) = run(Request("pad_to", attributes, [x.edge, of], [x.value]))
    return type(x).inside(out, x.dims, edge, x.names)


def continued(x: Any, times: Any, mode: str = "replicate", value: float = 0.0) -> Any:
    """Return a stream with its last frame, or by mode "constant" a number, so often behind it."""
    branch: Any = open_branch(x.edge.entry)
    if branch is not None:
        size = x.size(x.dims.index("L"))
        return branch.padded(x, [0, times], 1, size, lambda y, pads: _continued(y, pads[1], mode, value))
    return _continued(x, times, mode, value)


def _continued(x: Any, times: Any, mode: str, value: float) -> Any:
    if isinstance(times, int):
        return x._through("pad", {"left": 0, "right": times, "mode": mode, "value": value})
    times = in_most_streams(x.size(x.dims.index("L")) + times, times)
    if isinstance(times, int):
        return _continued(x, times, mode, value)
    if (most := times.most()) is None and mode == "replicate":
        raise NotStreamableError.here(
            f"a stream continued by its last frame {times!r} times: there is no bound to that; pad with a number"
        )
    return padded_to(x, x.size(x.dims.index("L")) + times, 0, mode, value, most or 0)


def at_least_before(x: Any, axis: int, more: Length, value: float) -> Any:
    """Return a stream with a number before it, up to a least length; None where `more` frames are others."""
    size = x.size(axis)
    whole: Any = size + more
    atom: Any
    (_, atom), *others = whole.of_one().terms if isinstance(whole, Length) else [(0, None)]
    if others or getattr(atom, "op", "") != "max":
        return None
    least = atom.by + whole.of_one().plus
    if not _is_nothing(whole - size.at_least(least)):
        return None
    return x._through("pad_to_multiple", {"mode": "before", "value": value, "multiple": 1, "least": least})


def in_most_streams(whole: Any, more: Any) -> Any:
    """Return by how many frames a stream grows to a whole length.

    Where that is a function of several lengths it is what it is in all but short streams, which are refused at
    their ends.
    """
    return more.soon() if isinstance(whole, Length) and len(whole.of_one().terms) > 1 else more


def bound_of(at: Any, frames: Length) -> Any:
    """Return where a slice of so many frames begins or ends, as a number where that takes the same of all streams.

    So is what is a number in all but short streams, which are refused at their ends. Another length stays one, and
    is counted from the first frame.
    """
    if not isinstance(at := as_number(at), Length):
        return at
    if at.fact("behind", lambda formula: not formula.exceeds(-1)):
        at = frames + at
    if not isinstance(at, Length) or at.fact("short", lambda formula: formula.falls_below(0)):
        return at  # of some streams it may be counted from the end
    if not isinstance(behind := at - frames, Length):
        return behind if behind < 0 else frames
    inside, front, back = _inside(at, frames), at.in_most(), behind.in_most()
    if front is not None and _is_nothing(inside - _inside(front, frames)):
        return front
    if back is not None and _is_nothing(inside - _inside(frames + back, frames)):
        return back or frames
    return at if front is None else operator.index(at)


def _is_nothing(number: Any) -> bool:
    return isinstance(number, int) and number == 0


def _inside(at: Any, frames: Length) -> Any:
    """Return a position as slices take it, that of the first frame at least and the end at most."""
    return frames.at_most(at.at_least(0) if isinstance(at, Length) else max(at, 0))


def number_beside(tensors: Sequence[Any], dim: int, at: int) -> Symbolic | None:
    """Return the number that is joined with frames of streams along L, as often as a length says; else None.

    It is the tensor at the place `at`.
    """
    x = next((t for t in tensors if type(t) is StreamTensor and t.edge is not None), None)
    number = tensors[at] if tensors else None
    if x is None or not isinstance(number, Symbolic) or not number.is_filled or number.ndim != x.ndim:
        return None
    if number.roles[dim] != "L" or x.dims[dim] != "L":
        return None
    if any(n != m for i, (n, m) in enumerate(zip(number.shape, x.shape)) if i != dim % x.ndim):
        raise ShapeError.here(f"cat: {number.roles} doesn't line up with {x.roles}")
    return number


def begun_by(self: Symbolic, index: Any, value: Any) -> Any:
    """Return what a number becomes where a shorter stream is written into its first frames; else None."""
    if type(value) is not StreamTensor or value.roles != tuple(map(str, self.roles)) or self.shares():
        return None
    axis, parts = self.roles.index("L"), parts_of(index, self.ndim)
    at: Any = parts.pop(axis)
    own = value.size(axis)
    fits = type(at) is slice and not at.start and at.step in (None, 1) and isinstance(at.stop, Length)
    if not (fits and (at.stop - own) == 0 and all(map(is_full_slice, parts))):
        return None
    more, dtype = self.length - own, np.dtype(str(self.dtype).rpartition(".")[2])
    if not isinstance(more, Length) or dtype.kind == "b":
        return None
    written: Any = value if value.dtype == dtype else value.to(dtype)
    out = continued(written, more, "constant", float(self.value))
    branch: Any = open_branch(written.edge.entry)
    return out if branch is None else branch.becomes(self, out)


take(Symbolic, begun_by=begun_by)


def ends_repeated(tensors: Sequence[Any], axis: int) -> tuple[list[Any], Any]:
    """Return what is joined along L without a stream's last frame behind it, and how often that stood there."""
    rest, times = list(tensors), 0
    while len(rest) > 1 and (own := later(rest[-1])) is not None:
        before = next((t for t in reversed(rest[:-1]) if later(t) is None), None)
        fits = own.count == 1 and own.of.dims[axis : axis + 1] == ("L",)
        if not fits or getattr(before, "edge", None) is not own.of.edge:
            break
        times, rest = own.times + times, rest[:-1]
    return rest, times


def is_each(index: Any) -> bool:
    """Whether an index of B takes each stream by itself."""
    if index is SAME_ORDER:
        return True
    first = isinstance(index, Tensor) and not index.is_stream and index.ndim == 1
    return first and index.numpy().tolist() == [0]


def where_counted(x: Any, axis: int, place: Any) -> Any:
    """Return a stream's last frame, where a place along L, lengths less one, is that; None where it is another."""
    at = place.value if has_formula(place) else getattr(place, "counts", None)
    if not isinstance(at, Length) or getattr(place, "position", False):
        return None
    frames = x.size(axis)
    differs = at - frames + 1
    if differs == 0 if isinstance(differs, int) else differs.compares("eq", frames):
        return x[(slice(None),) * axis + (-1,)]
    for inside in (at >= 0, at < frames):
        if inside is False:
            raise ShapeError.here(f"a frame at {at!r} of {frames!r} frames")
        if inside is not True:
            inside.require()
    return None
