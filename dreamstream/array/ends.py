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
    """Return the `behind`-th frame from the end, 1 being the last: ``(B, ...)``, known once a stream has ended.

    It is a sum over L, in which all other frames have been replaced by zeros.
    """
    x = with_frames(x._padded(0, 1 - behind))
    zeros: Any = where(x.eq(x), 0.0, 0.0)
    is_last = zeros._padded(-1, 1, value=1.0).gt(0.5)
    ends: Any = where(is_last, x, zeros.to(x.dtype))
    return ends.sum(x.dims.index("L"))


def _last_window(x: StreamTensor, count: int) -> StreamTensor:
    """Return the last `count` frames, with a dimension of that size in L's place; shorter streams are refused.

    Nothing comes of a stream without frames.
    """
    x.require_frames(count, also_empty=False)
    axis = x.dims.index("L")
    made: Any = last_frame(x.unfold(axis, count, 1)).movedim(-1, axis)
    return made


def first_frames(x: StreamTensor, count: int) -> StreamTensor:
    """Return the first `count` frames of a stream that is given once, as the last ones of the flipped stream."""
    return _last_window(x._operate("flip", {}), count).flip(x.dims.index("L"))


#: How a reduction pads streams in front, so that one of fewer than `count` frames is reduced as it is.
_NEUTRAL: dict[str, dict[str, Any]] = {
    "sum": {"value": 0.0},
    "mean": {"value": 0.0},
    "amax": {"mode": "replicate"},
    "amin": {"mode": "replicate"},
}


class LastFrames:
    """A stream's last frames, as in ``x[:, -3:]``, computed only if they are used: a returned cache seldom is.

    Elementwise functions of them are put off, too: `given` is such a function and its arguments, some of them
    `LastFrames`, and `of` a stream of their length. They run on the whole stream where their result is put behind
    other frames (`put_last`), else on the last frames alone. The frames are repeated `times` times along L.
    """

    def __init__(self, of: StreamTensor, count: int, times: Any = 1, given: Any = None) -> None:
        self.of, self.count, self.times, self.given = of, count, times, given
        self.is_once = isinstance(times, int) and times == 1
        self.line = user_line()
        self._everywhere: Any = None

    def apply_function(self, call: Callable[..., Any], args: Sequence[Any], of_positions: Any = None) -> Any:
        """Put off an elementwise function; it runs at once if an argument has other frames than these."""
        lasts = [getattr(x, "_ends", None) for x in args]
        alike = [v._is_beside(self) for v in lasts if v is not None]
        others = [x for x, v in zip(args, lasts) if v is None]
        plain = all(is_number(x) or (isinstance(x, Tensor) and not x.is_stream) for x in others)
        if not plain or not all(alike):
            return call(*[x if v is None else v.taken() for x, v in zip(args, lasts)])
        held = [x if v is None else v.copied() for x, v in zip(args, lasts)]
        return standing_for(LastFrames(self.of, self.count, 1, (call, held)))

    def _is_beside(self, other: LastFrames) -> bool:
        a, b = self.of, other.of
        same = self.is_once and self.count == other.count and a.dims == b.dims
        return same and (a.edge is b.edge or (a.size(a.dims.index("L")) == b.size(a.dims.index("L"))) is True)

    def copied(self) -> LastFrames:
        """Return the same frames, which later writes into their stream don't change."""
        of = self.of.with_dims(self.of.dims, self.of.names)
        return LastFrames(of, self.count, self.times, self.given)

    def everywhere(self) -> StreamTensor:
        """Return the whole stream of which these are the last frames; it runs a function that was put off."""
        if self.given is None:
            return self.of
        if self._everywhere is not None:
            return self._everywhere
        (call, args), axis = self.given, self.of.dims.index("L")
        args = [x.everywhere() if type(x) is LastFrames else x for x in args]
        self._everywhere = call(*placed(args, self.of, axis, self.count, lambda table: table, last=True))
        return self._everywhere

    def taken(self) -> StreamTensor:
        """Return the frames, with a dimension of size `count` in L's place; shorter streams are refused."""
        if self.given is None:
            return _last_window(self.of, self.count)
        call, args = self.given
        made: StreamTensor = call(*(x.taken() if type(x) is LastFrames else x for x in args))
        return made

    def reduced(self, kind: str, dim: Any = None, keepdim: bool = False, **more: Any) -> Any:
        """Return their sum, mean, amax or amin over L, in a shorter stream of all frames; None for others."""
        (dim,) = dim if isinstance(dim, (tuple, list)) and len(dim) == 1 else (dim,)
        if not self.is_once or type(dim) is not int or more or kind not in _NEUTRAL:
            return None
        x = self.everywhere()
        if x.dims[dim] != "L" or (x.dtype.kind == "b" and kind != "sum"):
            return None

        def over(y: StreamTensor, kind: str) -> StreamTensor:
            padded = y._padded(self.count, 0, **_NEUTRAL[kind])
            out: StreamTensor = getattr(_last_window(padded, self.count), kind)(dim, keepdim)
            return out

        if kind != "mean":
            return over(x.to(np.dtype(np.int64)) if x.dtype.kind == "b" else x, kind)
        return over(x, "sum") / over(ones_of(x, x.dtype), "sum")

    def retake(self, out: StreamTensor) -> None:
        """Compute the frames and make them the value of `out`, the tensor in whose view these were put off."""
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


def last_frames_of(x: Any) -> LastFrames | None:
    """Return the last frames that a tensor stands for; None if it is another, or a function of them."""
    own = x._ends if isinstance(x, StreamTensor) else None
    return own if own is None or own.given is None else None


def end_repeated(x: StreamTensor, times: Sequence[Any]) -> StreamTensor | None:
    """Return the last frame repeated as in ``x.repeat(*times)``; None where it isn't repeated along L alone."""
    own = last_frames_of(x)
    if own is None or own.count != 1 or not own.is_once or len(times) != own.of.ndim:
        return None
    axis = own.of.dims.index("L")
    others = (n for i, n in enumerate(times) if i != axis)
    if any(not isinstance(n, int) or n != 1 for n in others):
        return None
    return last_frames(own.of, 1, times[axis])


def expanded(x: StreamTensor, sizes: Sequence[Any]) -> StreamTensor | None:
    """Return the last frame repeated as in ``x.expand(*sizes)``; None where `end_repeated` returns None."""
    own = last_frames_of(x)
    if own is None or len(sizes) != own.of.ndim:
        return None

    def same(size: Any, of: Any) -> bool:
        return (isinstance(size, int) and size == -1) or size is of or (type(size) is type(of) and size == of)

    of = zip(sizes, own.of.shape, own.of.dims)
    return end_repeated(x, [size if d == "L" else 1 if same(size, n) else 0 for size, n, d in of])


def last_frames(x: StreamTensor, count: int, times: Any = 1) -> StreamTensor:
    """Return a tensor that stands for the last ``count`` frames; a stream of fewer is refused at its end."""
    return standing_for(LastFrames(x, count, times))


def standing_for(ends: LastFrames) -> StreamTensor:
    """Return the tensor that a forward sees in place of last frames that were put off."""
    out = ends.of.with_dims(ends.of.dims, ends.of.names)
    out.forget()
    out._view = out._ends = ends
    return out


def put_last(before: StreamTensor, x: StreamTensor) -> StreamTensor | None:
    """Return ``cat([before, x])`` along L, where `x` is a stream's last frames; None where it does not stream."""
    ends = x._ends
    if ends is None or not ends.is_once or before.dims != ends.of.dims:
        return None
    axis = before.dims.index("L")
    more = where_filled(before.size(axis) - (ends.of.size(axis) - ends.count).at_least(0))
    more = more.soon() if isinstance(more, Length) else more
    if not isinstance(more, int):
        return None
    made = ends.everywhere()
    if made.dims != before.dims or made.features != before.features:
        return None
    if more < 0:
        ends.of.require_frames(ends.count - more)
    whole, v = made._padded(more, 0, mode="replicate").in_order(), before.to(made.dtype).in_order()
    return whole._with(v, 0, ends.count).with_dims(numbered(before.dims), before.names)


def with_last(x: StreamTensor, index: Any, value: Any) -> StreamTensor | None:
    """Return `x` after ``x[:, -n:] = value``, of n last frames; None for another index or value."""
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
    if ends.of is x and ends.given is None:  # its own last frames are written onto themselves
        return x
    return put_last(x[(slice(None),) * axis + (slice(-ends.count),)], value)


def parted(x: Any, axis: int, sizes: Sequence[Any]) -> Any:
    """Return ``x.split(sizes, axis)``, with places at a fixed distance from the end counted from there."""
    more, ends = sum(sizes) - x.shape[axis], []
    if isinstance(more, int) and more:
        raise ShapeError.here(f"split: sizes {list(sizes)} don't add up to {x.shape[axis]!r}")
    for i in range(1, len(sizes)):
        before, behind = sum(sizes[:i]), sum(sizes[i:])
        ends.append(before if isinstance(before, int) or not isinstance(behind, int) or not behind else -behind)
    return cut_at(axis, ends, partial(operator.getitem, x))


def cut_at(axis: int, ends: Sequence[Any], take: Callable[[Any], Any]) -> Any:
    """Return the parts between the places `ends`; one that does not stream is refused only when it is read."""
    slices = map(slice, (None, *ends), (*ends, None))
    return tuple(unless_refused(partial(take, (slice(None),) * axis + (part,))) for part in slices)


def padded_to(x: Any, length: Length, left: int, mode: str, value: float, longest: int = 0) -> Any:
    """Return a stream padded at its end to a length; mode "replicate" adds at most `longest` frames."""
    length = in_most_streams(length, length)
    attributes = {"left": left, "mode": mode, "value": value, "length": length.steps(), "longest": longest}
    of: Any = length.of
    ((out, edge),) = run(Request("pad_to", attributes, [x.edge, of], [x.value]))
    return type(x).inside(out, x.dims, edge, x.names)


def continued(x: Any, times: Any, mode: str = "replicate", value: float = 0.0) -> Any:
    """Return a stream with `times` frames behind it: its last one or, with mode "constant", a number."""
    branch: Any = open_branch(x.edge.entry)
    if branch is not None:
        size = x.size(x.dims.index("L"))
        return branch.padded(x, [0, times], 1, size, lambda y, pads: _continued(y, pads[1], mode, value))
    return _continued(x, times, mode, value)


def _continued(x: Any, times: Any, mode: str, value: float) -> Any:
    if isinstance(times, int):
        return x._padded(0, times, mode=mode, value=value)
    times = in_most_streams(x.size(x.dims.index("L")) + times, times)
    if isinstance(times, int):
        return _continued(x, times, mode, value)
    if (most := times.most()) is None and mode == "replicate":
        raise NotStreamableError.here(
            f"a stream continued by its last frame {times!r} times: there is no bound to that; pad with a number"
        )
    return padded_to(x, x.size(x.dims.index("L")) + times, 0, mode, value, most or 0)


def at_least_before(x: Any, axis: int, more: Length, value: float) -> Any:
    """Return a stream padded in front to a least length; None unless `more` is ``max(least - length, 0)``."""
    size = x.size(axis)
    whole: Any = size + more
    atom: Any
    (_, atom), *others = whole.of_one().terms if isinstance(whole, Length) else [(0, None)]
    if others or getattr(atom, "op", "") != "max":
        return None
    least = atom.by + whole.of_one().plus
    if not _is_nothing(whole - size.at_least(least)):
        return None
    return x._operate("pad_to_multiple", {"mode": "before", "value": value, "multiple": 1, "least": least})


def in_most_streams(whole: Any, more: Any) -> Any:
    """Return `more`, the frames by which a stream grows to the length `whole`.

    If `whole` depends on several lengths, this is what `more` is in all but short streams, which are refused at
    their ends.
    """
    return more.soon() if isinstance(whole, Length) and len(whole.of_one().terms) > 1 else more


def where_filled(length: Any) -> Any:
    """Return the number that lengths make in all streams of which each has frames there; else what is given."""
    return length.filled() if isinstance(length, Length) else length


def bound_of(at: Any, frames: Length) -> Any:
    """Return a slice's start or stop as an int, below 0 from the end, where that selects the same in every stream.

    A length that is one number in all but short streams becomes that number; the short ones are refused at their
    ends. Any other length is returned as it is, counted from the first frame.
    """
    if not isinstance(at := as_number(at), Length):
        return at
    if at.fact("behind", lambda formula: not formula.exceeds(-1)):
        at = frames + at
    if not isinstance(at, Length) or at.fact("short", lambda formula: formula.falls_below(0)):
        return at if at.in_most() is None else operator.index(at)  # of those below 0 it counts from the end
    if not isinstance(behind := at - frames, Length):
        return behind if behind < 0 else frames
    inside, front, back = _inside(at, frames), at.in_most(), behind.in_most()
    if front is not None and _is_nothing(inside - _inside(front, frames)):
        return front
    if back is not None and _is_nothing(inside - _inside(frames + back, frames)):
        return back if back < 0 else frames
    return at if front is None else operator.index(at)


def _is_nothing(number: Any) -> bool:
    return isinstance(number, int) and number == 0


def _inside(at: Any, frames: Length) -> Any:
    """Return a position limited to 0 ... `frames`, as Python limits the bounds of a slice."""
    return frames.at_most(at.at_least(0) if isinstance(at, Length) else max(at, 0))


def number_beside(tensors: Sequence[Any], dim: int, at: int) -> Symbolic | None:
    """Return ``tensors[at]`` if `cat` joins it with streams along L and it is one number, repeated; else None.

    Such is ``zeros(B, n, C)``, where n is a length.
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
    """Return the stream that ``zeros(B, n, C)`` becomes by ``z[:, :x.size(1)] = x``; None for other writes."""
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
    """Return what `cat` joins along L without repeats of the stream's last frame behind it, and their number."""
    rest, times = list(tensors), 0
    while len(rest) > 1 and (own := last_frames_of(rest[-1])) is not None:
        before = next((t for t in reversed(rest[:-1]) if last_frames_of(t) is None), None)
        fits = own.count == 1 and own.of.dims[axis : axis + 1] == ("L",)
        if not fits or getattr(before, "edge", None) is not own.of.edge:
            break
        times, rest = own.times + times, rest[:-1]
    return rest, times


def is_each(index: Any) -> bool:
    """Whether an index of B leaves every stream where it is, as ``arange(B)`` does."""
    if index is SAME_ORDER:
        return True
    first = isinstance(index, Tensor) and not index.is_stream and index.ndim == 1
    return first and index.numpy().tolist() == [0]


def frame_at_count(x: Any, axis: int, place: Any) -> Any:
    """Return each stream's last frame if `place`, an index along L, is ``lengths - 1``; None for others."""
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
