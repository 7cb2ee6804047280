"""Deferred values: what a forward has asked for and nothing can compute yet, such as masks over stream axes.

``arange(x.size(1))`` is not known while streams are open. A `Deferred` is an operation and its arguments; what it
means is decided by what is done with it. Attention computes it for a length that shows all of it (`mask_terms`);
where it meets frames, it is computed for each frame's own position (`library`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache, partial, partialmethod
from operator import methodcaller
from typing import Any, NoReturn, TypeGuard
from weakref import ref

import numpy as np

from ..errors import NotStreamableError
from ..operations import ARITHMETIC, BITWISE, OPERATIONS, RELATIONS, ours
from ..stream.mask_recognition import LONGEST, MASKED, Unrecognised, long_enough
from ..stream.rules import BatchSize, Length
from ..stream.tree import map_leaves
from .batch_constants import OfBatch, laid_out
from .dimension_arguments import LikeOthers
from .distance_tables import DistanceProduct, stride_of, strided
from .facts import recalled
from .filled import SharesMemory, Whatever, kept, to_a_copy
from .frame_numbers import number_in
from .lengths_as_numbers import MOST, count_of, first_of, frames_at, frames_for
from .protocol import refuse_the_rest
from .shape_of import ShapeOf

#: What fills with numbers, and what adds them.
_FILLING = frozenset(("full", "masked_fill", "full_like", "new_full", "where", "setitem", "fill"))
_ADDING = frozenset(("add", "radd", "iadd", "sub", "rsub", "isub", "clamp", "clamp_min", "maximum", "max"))
#: Elements of a tensor whose numbers may be positions.
FEW = 16

BEYOND = "beyond a table at lengths that streams may have"
SERVES = "what is computed of positions serves as a mask or a term of attention, and to index tables"
SERVES_FRAMES = (
    "what is computed of positions serves as a mask or a term of attention, to index tables, and with frames"
)

Count = Callable[[Length], int]


class _NoNumber(NotStreamableError, AttributeError):
    """Positions have no numbers, and so none of the methods that give them."""


#: What holds whatever is learned is asked of random numbers from each of these to one more.
LOWEST = (0.5, 2.0, -1.5)


class Varied:
    """A tensor that is learned, in a function of which is asked what holds of it whatever is learned.

    Its numbers lie between `low` and one more, at random.
    """

    def __init__(self, tensor: Any, low: float) -> None:
        self.tensor, self.shape, self.low = tensor, tuple(tensor.shape), low
        self.values = np.random.default_rng(id(tensor)).uniform(low, low + 1, self.shape)  # for a tensor the same

    def key(self) -> Any:
        """Return what answers depend on: not on what is learned."""
        return self.shape, str(self.tensor.dtype), self.low


class Deferred(OfBatch, SharesMemory, LikeOthers):
    """A tensor that nothing can compute yet, such as a mask: a function and its arguments.

    Lengths and other deferred values among these stand for what they are at a number of frames. It has the methods
    of the library's tensors; each gives another deferred value, or what comes of meeting a stream.
    """

    requires_grad = False
    is_stream = property(lambda self: self.func is not laid_out)
    dims = features = ("deferred",)  # what is written in place stays such
    __array_ufunc__ = None
    constants: tuple[int, ...] = ()  # that stand in the function
    #: Whether a formula says it, as of positions and of one number for all frames; see `Symbolic`.
    is_formula = position = False
    is_filled: Any = False

    def __init__(
        self, library: Any, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        self.library, self.func = library, func
        self.args, self.kwargs = map_leaves(tuple(args), kept), map_leaves(kwargs, kept)
        if args and isinstance(args[0], SharesMemory) and _may_share(func.__name__):
            self._shares(args[0], func, self.args[1:], self.kwargs)

    # ------------------------------------------------------------------ at a number of frames
    def at(self, count: Count, rows: int = 1) -> Any:
        """Compute the tensor for so many streams, and for lengths that `count` turns into numbers."""
        if self.is_constant:
            each, axis, many = self.args
            return laid_out(each, axis, getattr(many, "times", 1) * rows)
        args, kwargs = (self._at(x, count, rows) for x in (self.args, self.kwargs))
        return self.library.compute(self.func, args, kwargs)

    def _at(self, x: Any, count: Count, rows: int = 1) -> Any:
        if isinstance(x, Deferred):
            return x.at(count, rows)
        if isinstance(x, Length):
            return count(x)
        if isinstance(x, BatchSize):
            return getattr(x, "times", 1) * rows
        if isinstance(x, slice):
            return slice(*(self._at(i, count, rows) for i in (x.start, x.stop, x.step)))
        if isinstance(x, dict):
            return {k: self._at(v, count, rows) for k, v in x.items()}
        if type(x) in (list, tuple):
            return type(x)(self._at(i, count, rows) for i in x)
        if isinstance(x, Varied):
            return self.library.alike(x.tensor, x.values)
        return self.library.without_values(x.at(count)) if isinstance(x, ShapeOf) else x

    def replaced(self, number: int, by: int) -> Any:
        """Return it with another number in place of one."""

        def exchanged(x: Any) -> Any:
            if type(x) in (int, float) and abs(x) == number:
                return type(x)(math.copysign(by, x))
            return slice(*map(exchanged, (x.start, x.stop, x.step))) if isinstance(x, slice) else x

        return self.exchanged(exchanged)

    def learned(self) -> list[Any]:
        """Return the tensors in it of which a gradient is wanted."""
        return [x for _, x in self.leaves() if isinstance(x, self.library.tensor) and x.requires_grad]

    def varied(self, low: float) -> Any:
        """Return it with random numbers from `low` to one more in place of what is learned."""
        return self.exchanged(
            lambda x: Varied(x, low) if isinstance(x, self.library.tensor) and x.requires_grad else x
        )

    def exchanged(self, other: Callable[[Any], Any]) -> Any:
        """Return it with what `other` gives in place of each of its arguments."""

        def exchanged(x: Any) -> Any:
            return x.exchanged(other) if isinstance(x, Deferred) else other(x)

        out = Deferred(self.library, self.func, *(map_leaves(x, exchanged) for x in (self.args, self.kwargs)))
        out.constants = self.constants
        return out

    def answered(self, key: Any, tensors: Sequence[Any], make: Callable[[], Any]) -> Any:
        """Return the cached answer for a key and the same tensors; make it where there is none."""
        key = self.library.real(), key  # the type that numbers are computed in
        answer = _ANSWERS.get(key)
        if answer is None or any(one() is not t for one, t in zip(answer[1], tensors)):
            try:
                with self.library.evaluating():
                    answer = make(), tuple(map(ref, tensors))
            except IndexError as error:
                raise Unrecognised(f"it looks {BEYOND}: {error}") from None
            while len(_ANSWERS) >= _REMEMBERED:
                del _ANSWERS[next(iter(_ANSWERS))]
            _ANSWERS[key] = answer
        return answer[0]

    # ------------------------------------------------------------------ what is in it
    @property
    def frames(self) -> int:
        """How many frames show all that its numbers say."""
        return long_enough({math.ceil(abs(c)) for c in self.numbers() if abs(c) > 1})

    @property
    def ends(self) -> int | None:
        """The frames at which the first table ends that is cut to the stream's length."""
        return min((size for size, part in self._cuts() if not isinstance(part.start, Length)), default=None)

    def nodes(self) -> Iterator[Deferred]:
        """Give it, and the deferred values that it is made of."""
        yield self
        for x in self.arguments():
            if isinstance(x, Deferred):
                yield from x.nodes()

    def leaves(self) -> Iterator[tuple[Deferred, Any]]:
        """Give all other arguments in it, each with that whose argument it is."""
        for x in self.arguments():
            if isinstance(x, Deferred):
                yield from x.leaves()
            else:
                yield self, x

    def tables(self) -> list[tuple[int, ...]]:
        """Return the shapes of tensors of many numbers, which may say something else of each position."""
        tensors = (x for _, x in self.leaves() if isinstance(x, self.library.tensor))
        return [tuple(x.shape) for x in tensors if math.prod(x.shape) > FEW]

    def numbers(self) -> Iterator[float]:
        """Give the numbers that may be positions or parts of one: all but those that fill or scale scores."""
        for node in self.nodes():
            yield from node.constants
        for node, x in self.leaves():
            name = node.func.__name__.strip("_")
            filling = name in _FILLING
            scaling = filling or name in ("mul", "rmul", "imul", "multiply")
            found: list[float] = []
            if isinstance(x, self.library.tensor) and math.prod(x.shape) <= FEW:
                found = [c for c in x.flatten().tolist() if abs(c) > 1]
            elif isinstance(x, (int, float)) and not isinstance(x, bool):
                found = [x]
            for c in found:
                real = isinstance(c, float)
                if not math.isfinite(c) or (real and (filling or c <= MASKED or (scaling and c >= -MASKED))):
                    continue
                yield 1 / c if 0 < abs(c) < 1 and name not in _ADDING else c

    def _cuts(self) -> Iterator[tuple[int, slice]]:
        """Give the cuts of tables, each with the size of what is cut."""
        for node in self.nodes():
            if node.func is not self.library.tensor.__getitem__:
                continue
            table, index = node.args[:2]
            index = index if isinstance(index, tuple) else (index,)
            for axis, part in enumerate(index if isinstance(table, (self.library.tensor, Varied)) else ()):
                if isinstance(part, slice) and any(isinstance(e, Length) for e in (part.start, part.stop)):
                    yield table.shape[axis - len(index) if Ellipsis in index else axis], part

    def arguments(self) -> Iterator[Any]:
        """Give all arguments."""
        return flat((self.args, self.kwargs))

    def lengths(self) -> Iterator[Length]:
        """Give the lengths in it."""
        for _, x in self.leaves():
            yield from x.lengths() if isinstance(x, ShapeOf) else (x,) if isinstance(x, Length) else ()

    def key(self, x: Any, keys: Any, tensors: list[Any]) -> Any:
        """Return the cache key of an argument; tensors that are compared by identity are appended to `tensors`."""
        if isinstance(x, Deferred):
            return (x.func, self.key(x.args, keys, tensors), self.key(tuple(x.kwargs.items()), keys, tensors))
        if isinstance(x, Length) and keys is None:
            return tuple(count_of(x, n) for n in (*_PROBED[0], LONGEST, LONGEST + 1))
        if isinstance(x, Length):
            return tuple(frames_at(x, n, keys, frames_for(keys, n)[0]) for n in (LONGEST, LONGEST + 1))
        if isinstance(x, self.library.tensor):
            if type(tensors) is Whatever and x.requires_grad:
                return "learned", tuple(x.shape), str(x.dtype)
            return self.library.key(x, tensors)
        if isinstance(x, slice):
            return self.key((x.start, x.stop, x.step), keys, tensors)
        if isinstance(x, (list, tuple)):
            return tuple(self.key(i, keys, tensors) for i in x)
        if isinstance(x, ShapeOf):
            return self.key(x.shape, keys, tensors)
        return type(x), x.key() if hasattr(x, "key") else str(x)

    # ------------------------------------------------------------------ what it looks like
    def probe(self, n: int) -> Any:
        """Return the tensor for so many frames of the forward's input."""
        try:
            with self.library.evaluating():
                return self.at(lambda length: count_of(length, n))
        except IndexError as error:
            raise NotStreamableError.here(f"{self!r}", f" look {BEYOND}: {error}; {SERVES}") from None

    @cached_property
    def shape(self) -> tuple[Any, ...]:
        if isinstance(self.func, DistanceProduct):
            return tuple(self.args[0].shape)
        if self.is_constant:
            each, axis, rows = self.args
            return (*each.shape[:axis], rows, *each.shape[axis + 1 :])
        return recalled(self, "shape", self._shape)

    def _shape(self) -> tuple[Any, ...]:
        lengths, probed = list(self.lengths()), self._probed()
        sizes = zip(*(self.probe(n).shape for n in probed))
        return tuple(few[0] if len({*few}) == 1 else self._length_of(few, probed, lengths) for few in sizes)

    def _probed(self) -> tuple[int, ...]:
        """Return frames of the input for which tables that are cut have room."""
        for few in _PROBED:
            probed = self._input_for(few)
            if all(_fits(size, part, probed[-1]) for size, part in self._cuts()):
                break
        return probed

    def _input_for(self, few: Sequence[int]) -> tuple[int, ...]:
        """Return frames of the input, so many at least, for which every length that grows is that or more."""
        counts = [f.count for f in {x.formula() for x in self.lengths()} if f is not None]
        growing = [count for count in counts if count.at(MOST) >= few[-1]]
        return tuple(max((n, *(first_of(count, n) for count in growing))) for n in few)

    def _length_of(self, sizes: Sequence[int], probed: Sequence[int], lengths: Sequence[Length]) -> Any:
        """Return the length that has these sizes, or is one of these, multiplied, shifted and divided."""
        for length in lengths:
            counts = [count_of(length, n) for n in probed]
            times = (sizes[1] - sizes[0]) // ((counts[1] - counts[0]) or 1)
            rest = {s - times * c for s, c in zip(sizes, counts)}
            if times not in (0, 1) and len(rest) == 1:
                return length * times + rest.pop()
        for by in (1, 2, 3, 4, 5, 6, 7, 8):
            for length in lengths:
                plus = by * sizes[0] - count_of(length, probed[0])
                for more in range(plus, plus + by):
                    if all((count_of(length, n) + more) // by == s for n, s in zip(probed, sizes)):
                        return length if (by, more) == (1, 0) else ((length + more) // by).counting()
        raise NotStreamableError.here(f"the size of {self!r}", f" is none of a stream's; {SERVES}")

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    @cached_property
    def _kind(self) -> tuple[int, Any]:
        if self.is_constant:
            return len(self.args[0].shape), self.library.constant(self.args[0]).dtype

        def kind() -> tuple[int, Any]:
            few = self.probe(self._probed()[0])
            return len(few.shape), few.dtype

        return recalled(self, "kind", kind)

    def dim(self) -> int:
        return self._kind[0]

    ndim = property(dim)

    @property
    def names(self) -> tuple[str | None, ...]:
        return tuple("B" if self.is_constant and i == self.batch_axis else None for i in range(self.dim()))

    @property
    def dtype(self) -> Any:
        return self._kind[1]

    def is_complex(self) -> bool:
        return False

    def _alike(self, read: Callable[[Any], Any], short: Sequence[int] = ()) -> Any:
        """Return what `read` gives of it if that is the same at every length, also at `short` ones; else None."""
        most = min(LONGEST, self.ends or LONGEST)
        with suppress(Unrecognised), self.library.evaluating():  # they may be too many to be tried
            few = sorted({min(n, most) for n in (*short, 40, 41, 63, 64, 65, self.frames, self.frames + 1)})
            found = {read(self.probe(n)) for n in self._input_for(few)}
            return found.pop() if len(found) == 1 else None
        return None

    def everywhere(self) -> Any:
        """Return the number that all its elements are at every length, or None."""

        def found() -> Any:
            tensors: list[Any] = []
            key = ("everywhere", self.key(self, None, tensors))
            return self.answered(key, tensors, lambda: self._alike(_number_of))

        return recalled(self, "everywhere", found)

    def item(self, name: str = "item") -> Any:
        """Return the number that it is at every length."""
        if self.is_constant:
            self._refuse(name)
        number = None if self.dim() else recalled(self, name, lambda: self._alike(methodcaller(name), _SHORT))
        if number is None:
            raise NotStreamableError.here(f"positions are made numbers by {name}", f"; {SERVES}")
        return number

    __int__ = partialmethod(item, "__int__")
    __float__ = partialmethod(item, "__float__")

    def __bool__(self) -> bool:
        if self.is_constant:
            self._refuse("bool")
        found = recalled(self, "bool", lambda: self._alike(bool, _SHORT))
        if found is None:
            raise NotStreamableError.here(
                "a comparison of positions", f" depends on the length of the stream; {SERVES}"
            )
        return bool(found)

    def as_stream(self) -> Any:
        """Return it as the stream that it is; where more than one of its axes is a stream's, that is refused."""
        return self.library.stream_of(self)

    def __repr__(self) -> str:
        if self.is_constant:
            shape = ["B" if n is self.rows else str(n) for n in self.shape]
            return f"<constant of the batch ({', '.join(shape)}), {self.dtype}>"
        return f"<{self.func.__name__} of positions>"

    # ------------------------------------------------------------------ what is written into it
    def hold(self, out: Any) -> Any:
        return self._refuse("an operation in place") if self.is_constant else super().hold(out)

    def shares(self) -> bool:
        def found() -> bool:
            n = self._probed()[0]
            with self.library.evaluating():
                args, kwargs = (self._at(x, lambda length: count_of(length, n)) for x in (self.args, self.kwargs))
                return bool(self.library.share(self.library.compute(self.func, args, kwargs), args))

        return bool(recalled(self, "shares", found))

    def _within(self, of: Any, out: Any, *source: Any) -> Any:
        if not source:
            raise NotStreamableError.here(
                out.func.__name__,
                " writes into a part of a mask or term of attention: compute a new tensor instead (torch.where, "
                "masked_fill)",
            )
        return super()._within(of, out, *source)

    def assigned(self, name: str, *args: Any) -> Any:
        """Hold what the tensor is after a method has written into it."""
        return self.hold(self.then(to_a_copy(getattr(self.library.tensor, name)), *args))

    def __setitem__(self, index: Any, value: Any) -> None:
        if self.is_constant:
            self._refuse("an assignment to a part")
        self.assigned("__setitem__", index, value)

    # ------------------------------------------------------------------ as a tensor
    def as_output(self) -> Any:
        """Return what a forward returns."""
        if self.is_constant:
            raise NotStreamableError.here(
                "an output that is a constant for every stream of a batch,",
                ": no frame of an input is in it; make it outside the forward",
            )
        return self.library.output_of(self)

    T = property(lambda self: self.t())
    mT: Any = property(lambda self: self.transpose(-2, -1))
    device = property(lambda self: self.library.device)

    def is_floating_point(self) -> bool:
        return "float" in str(self.dtype)

    view_as, stride, as_strided = LikeOthers.reshape_as, stride_of, strided

    def __getattr__(self, name: str) -> Any:
        func = getattr(self.library.tensor, name, None)
        if self.is_constant and (name in _NUMBERS or name.endswith("_")):
            self._refuse(name)
        if name in _NUMBERS:
            raise _NoNumber.here(f"positions are made numbers by {name}", f"; {SERVES_FRAMES}")
        if name.startswith("_") or not callable(func):
            raise AttributeError(name)
        if name.endswith("_"):
            return partial(self.assigned if name in _WRITERS else self.written, name)
        return partial(self.then, func)

    def then(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Defer a method of the library's tensors."""
        met = self._beside(func.__name__, args, kwargs) if self.is_constant else None
        if met is not None:
            return met
        return self.library.defer(func, (self, *args), kwargs)

    def contiguous(self) -> Any:
        return self if self.is_constant else self.then(self.library.tensor.contiguous)

    def _refuse(self, name: str) -> NoReturn:
        if self.is_constant:
            super()._refuse(name)
        raise NotStreamableError.here(f"{name} of {self!r},", f"; {SERVES_FRAMES}")

    def _number(self, name: str, *_: Any, **__: Any) -> NoReturn:
        self.__getattr__(name)
        raise AttributeError(name)


_NUMBERS = ("tolist", "numpy", "int", "__index__", "__len__", "__iter__", "__array__")
_WRITERS = ("copy_", "fill_", "zero_")


def _operator(name: str) -> Callable[..., Any]:
    def method(self: Deferred, *others: Any) -> Any:
        if name == "__getitem__" and number_in(others[0]) and not self.is_constant:
            return self.as_stream()[others[0]]
        if any(getattr(type(x), "takes_deferred", False) for x in others):
            return NotImplemented  # they know what is done to them
        return self.then(getattr(self.library.tensor, name), *others)

    return method


_BOTH = (*ARITHMETIC, *BITWISE, "matmul")
for _name in (*_BOTH, *(f"r{name}" for name in _BOTH), *RELATIONS, "neg", "invert", "abs", "getitem"):
    setattr(Deferred, f"__{_name}__", _operator(f"__{_name}__"))
for _name in ("index", "len", "iter", "array"):
    setattr(Deferred, f"__{_name}__", partialmethod(Deferred._number, f"__{_name}__"))
Deferred.__hash__ = object.__hash__  # type: ignore[method-assign]
refuse_the_rest(Deferred, lambda x, name: x._refuse(name))


def is_deferred(x: Any) -> bool:
    """Whether something is computed of positions or lengths."""
    return isinstance(x, Deferred) and not x.is_constant


def is_computed(x: Any) -> TypeGuard[Deferred]:
    """Whether functions compute a deferred value, as masks, and no formula says it."""
    return isinstance(x, Deferred) and not x.is_formula


def is_filled(x: Any) -> TypeGuard[Any]:
    """Whether a deferred value is one number for all frames."""
    return isinstance(x, Deferred) and x.is_filled


def are_positions(x: Any) -> TypeGuard[Any]:
    """Whether a deferred value is positions from a number, or a length, on."""
    return isinstance(x, Deferred) and x.position


def has_formula(x: Any) -> TypeGuard[Any]:
    """Whether a formula says a deferred value: lengths, positions, and what is one number for all frames."""
    return isinstance(x, Deferred) and x.is_formula


def as_number(x: Any) -> Any:
    """Return the length, or the number, that a tensor of lengths without dimensions is; all else as it is."""
    return x.item() if has_formula(x) else x


def library_of(values: Iterable[Any]) -> Any:
    """Return the library of the first of `values` that is computed of lengths by no formula, or None."""
    return next((v.library for v in values if is_computed(v) and not v.is_constant), None)


def as_deferred(x: Any) -> Any:
    """Turn positions into a deferred value; return everything else unchanged."""
    return x.library.defer_method("clone", (x,), {}) if are_positions(x) else x


#: Frames for which shapes are looked at, of the shortest stream that is asked for its length.
_PROBED = ((96, 128, 149), (48, 64, 75), (24, 32, 37), (12, 16, 19), (6, 8, 11))
#: Frames of short streams, of which numbers and truths are often others.
_SHORT = (1, 2, 3, 7, 20)


_ANSWERS: dict[Any, tuple[Any, tuple[Any, ...]]] = {}
_REMEMBERED = 256


@lru_cache(maxsize=256)
def _may_share(name: str) -> bool:
    """Whether what a function of a name gives may share the memory of its first argument."""
    row = OPERATIONS.get(ours(name))
    return name == "diagonal" or (row is not None and row.shares)


def flat(tree: Any) -> Iterator[Any]:
    """Give all arguments in a tree of them, ends of slices included."""
    for x in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(x, (list, tuple, dict)):
            yield from flat(x)
        elif isinstance(x, slice):
            yield from (x.start, x.stop, x.step)
        else:
            yield x


def _number_of(x: Any) -> Any:
    few = {*x.flatten().tolist()}
    return few.pop() if len(few) == 1 else None


def _fits(size: int, part: slice, frames: int) -> bool:
    """Whether a cut takes what is there, for so many frames of the forward's input."""
    start, stop = (count_of(e, frames) if isinstance(e, Length) else e or 0 for e in (part.start, part.stop))
    return (start >= 0 or not isinstance(part.start, Length)) and stop <= size
