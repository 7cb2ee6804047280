"""What a forward builds over stream axes: positions, masks and terms by position.

``arange(x.size(1))`` is not known while streams are open. What is computed of it is noted, and computed for a
length that shows all of it once attention asks what it says (`dreamstream.stream.pairs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property, lru_cache, partialmethod, wraps
from hashlib import sha1
from operator import methodcaller
from typing import Any, NoReturn
from weakref import ref

import numpy as np

from ..errors import NotStreamableError
from ..stream.context import Context
from ..stream.pairs import (
    FAR,
    FARTHEST_TRIED,
    LONGEST,
    MASKED,
    Recognised,
    Unrecognised,
    confirm,
    expected,
    extended,
    long_enough,
    recognised,
)
from ..stream.rules import BatchSize, Length
from ..stream.tree import map_leaves
from ..stream.where import user_line
from .relative import Places, Rows, rows_of
from .shape_of import ShapeOf, shape_alone
from .symbolic import Symbolic
from .tensor import Tensor

#: The most periods' frames between numbers that are tried in place of one that is too great.
_MOST_STEPS = 256
#: Elements of a tensor whose numbers may be positions.
_FEW = 16

BEYOND = "beyond a table at lengths that streams may have"
SERVES = "what is computed of positions serves as a mask or a term of attention, and to index tables"

Count = Callable[[Length], int]


class Pairs:
    """A tensor whose size along some axes is a stream's length: what a function gives.

    Lengths and other pairs among its arguments stand for what they are at a number of frames.
    """

    is_stream, requires_grad = True, False
    dims = features = ("pairs",)  # what is written in place stays such
    #: Whose functions compute it, and its tensors.
    tensor: Any = Tensor

    def __init__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.constants: tuple[int, ...] = ()  # that stand in the function

    def __iter__(self) -> NoReturn:
        raise NotStreamableError(f"{self!r} are taken one by one, at {user_line()}; {SERVES}")

    @classmethod
    def of_call(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pairs:
        """Return what a function of lengths gives that is called with integers, and with shapes of streams."""
        given, named = (map_leaves(x, shape_alone) for x in (args, kwargs))
        out = cls(func, given, named)
        out.constants = tuple(c for c in func.__code__.co_consts if type(c) is int)
        return out

    @classmethod
    def seen(cls, context: Context, length: Any) -> Pairs:
        """Return whether queries see keys in a context."""
        return cls(_seen, (cls.made, length, context.chunk, context.left, context.right, context.keep), {})

    # ------------------------------------------------------------------ of the library
    @staticmethod
    def quietly() -> AbstractContextManager[Any]:
        """Within it nothing is recorded."""
        return nullcontext()

    @staticmethod
    def made(array: Any) -> Any:
        """Return an array as a tensor."""
        return Tensor._plain(array)

    @staticmethod
    def shaped(x: ShapeOf) -> Any:
        """Return what functions of the library take in place of a stream of this shape."""
        return x

    @staticmethod
    def told(x: Any, tensors: list[Any]) -> Any:
        """Return what is equal of tensors that are equal; what it holds of by identity goes to a list."""
        values = np.ascontiguousarray(x.numpy())
        return x.shape, values.dtype.str, sha1(values.tobytes()).digest()

    @staticmethod
    def indexes(func: Callable[..., Any]) -> bool:
        """Whether a function takes elements by an index."""
        return func is Tensor.__getitem__

    @staticmethod
    def numbers(x: Any) -> Any:
        """Return a tensor as numbers that may be added."""
        return x.double()

    def constant(self, found: Recognised, steps: Sequence[Any], keys: Any) -> Any:
        """Return what is added to scores by distance, as operators take it."""
        return Tensor._plain(np.asarray(found.bias, keys.dtype))

    def learned(self, make: Callable[[], Any], found: Any, keys: Any) -> Any:
        """Return a table that has been found, as operators take it; one that is learned is made anew."""
        return found.to(keys.dtype)

    # ------------------------------------------------------------------ at a number of frames
    def at(self, count: Count) -> Any:
        """Return the tensor where lengths are what `count` says."""
        return self.func(*(self._at(a, count) for a in self.args), **self._at(self.kwargs, count))

    def _at(self, x: Any, count: Count) -> Any:
        if isinstance(x, Pairs):
            return x.at(count)
        if isinstance(x, Symbolic):
            return self._of_symbolic(x, count)
        if isinstance(x, Length):
            return count(x)
        if isinstance(x, BatchSize):
            return getattr(x, "times", 1)
        if isinstance(x, slice):
            return slice(*(self._at(i, count) for i in (x.start, x.stop, x.step)))
        if isinstance(x, dict):
            return {k: self._at(v, count) for k, v in x.items()}
        if type(x) in (list, tuple):
            return type(x)(self._at(i, count) for i in x)
        return self.shaped(x.at(count)) if isinstance(x, ShapeOf) else x

    def replaced(self, number: int, by: int) -> Any:
        """Return it with another number in place of one."""

        def exchanged(x: Any) -> Any:
            if isinstance(x, Pairs):
                return x.replaced(number, by)
            if isinstance(x, Symbolic):
                return x._like(exchanged(x.value)) if type(x.value) in (int, float) else x
            if type(x) in (int, float) and abs(x) == number:
                return type(x)(math.copysign(by, x))
            return slice(*map(exchanged, (x.start, x.stop, x.step))) if isinstance(x, slice) else x

        out = type(self)(self.func, *(map_leaves(x, exchanged) for x in (self.args, self.kwargs)))
        out.constants = self.constants
        return out

    def _of_symbolic(self, x: Symbolic, count: Count) -> Any:
        """Return lengths and positions at a number of frames, which are those of all streams."""
        n = count(x.length)
        value = count(x.value) if isinstance(x.value, Length) else x.value
        out = np.full([1 if r == "B" else n if r == "L" else r for r in x.roles], value)
        if x.position:
            at = x.roles.index("L")
            out = out + np.arange(n).reshape([-1 if i == at else 1 for i in range(len(x.roles))])
        return self.made(out.astype(np.float32) if out.dtype.kind == "f" else out)

    def says(self, steps: Sequence[Any], keys: Any) -> Recognised:
        """Return what steps say of the attention to keys."""
        tensors: list[Any] = []
        key = tuple(self._key(x, keys, tensors) for x in steps)

        span = max(1, _frames_for(keys, LONGEST)[0] // LONGEST)
        ends = (x.ends for step in steps for x in step.programs() if x.ends is not None)
        most = min(ends, default=LONGEST) // span

        def tried(steps: Sequence[Any]) -> Recognised:
            n = max(64, max(x.frames for step in steps for x in step.programs()) // span)
            return recognised(lambda n: self._added_always(steps, n, keys), min(n, most), most)

        def numbers(steps: Sequence[Any]) -> set[int]:
            return {math.ceil(abs(c)) for step in steps for x in step.programs() for c in x._numbers()}

        def of_smaller(c: int, others: set[int]) -> Recognised:
            """Return what steps say by what they say with smaller numbers in place of one."""
            period = math.lcm(*(x for x in others if x))
            near = c % period + period * (max(others | {_FEW}) // period + 1)
            tries = [[step.replaced(c, near + k * period) for step in steps] for k in range(3)]
            if period > _MOST_STEPS or near + 2 * period > c or c in numbers(tries[0]):
                raise Unrecognised(f"it looks at {c} frames, more than can be tried")
            found = extended([tried(x) for x in tries], (c - near) // period)
            reach = sum(n or 0 for n in vars(found.context).values())
            n = max(c, reach) + _FEW if c <= FARTHEST_TRIED else LONGEST // 4
            confirm(found, lambda n: self._added_always(steps, n, keys), min(n, most))
            return found

        def made() -> Recognised:
            every = numbers(steps)
            others = {x for x in every if x <= FAR}
            try:
                return of_smaller(max(every), others) if len(every - others) == 1 else tried(steps)
            except Unrecognised:
                return tried(steps)

        out: Recognised = self._once(key, tensors, made)
        return out

    def hides(self, steps: Sequence[Any], keys: Any) -> bool:
        """Whether steps hide a key from any query."""
        tensors: list[Any] = []
        key = ("hides", *(self._key(x, keys, tensors) for x in steps))

        def made() -> bool:
            n = max(64, max(x.frames for step in steps for x in step.programs()))
            return bool((self._added_always(steps, min(n, LONGEST), keys) <= MASKED).any())

        return bool(self._once(key, tensors, made))

    def _once(self, key: Any, tensors: Sequence[Any], make: Callable[[], Any]) -> Any:
        """Return what is made of tensors, known by a key; the same as long as they are."""
        found, held = _SAID.get(key, (None, ()))
        if found is None or any(one() is not t for one, t in zip(held, tensors)):
            try:
                with self.quietly():
                    found = make()
            except IndexError as error:
                raise Unrecognised(f"it looks {BEYOND}: {error}") from None
            while len(_SAID) >= _REMEMBERED:
                del _SAID[next(iter(_SAID))]
            _SAID[key] = found, tuple(map(ref, tensors))
        return found

    def rows(
        self, places: Places, steps: Sequence[Any], keys: Any, found: Recognised, scale: float
    ) -> tuple[Rows, Any]:
        """Return the term that a product of queries and positions is among steps, and its table."""

        @lru_cache(maxsize=4)
        def table(n: int) -> Any:
            return self._table(places, n, keys)

        def made() -> tuple[Rows, Any]:
            shown = max(x.frames for step in steps for x in step.programs())
            said = rows_of(places, found, scale, lambda n: self._added_always(steps, n, keys), table, shown)
            return said, table(said.keys)[:, said.picked]

        tensors: list[Any] = []
        key = ("rows", scale, *(self._key(x, keys, tensors) for x in ((places.table,), *steps)))
        said, rows = self._once(key, tensors, made)
        return said, self.learned(lambda: self._table(places, said.keys, keys)[:, said.picked], rows, keys)

    def _table(self, places: Places, n: int, keys: Any) -> Any:
        """Return the table of a product at n keys, ``(heads or 1, rows, features)``."""
        given = _frames_for(keys, n)[0]
        whole = places.table.at(lambda length: _frames(length, n, keys, given)).permute(*places.order)
        return whole.reshape(-1, *whole.shape[-2:])

    def _added_always(self, steps: Sequence[Any], n: int, keys: Any) -> Any:
        """Return what is added to scores, as an array, where all streams of so many keys have the same."""
        least, most, own = _frames_for(keys, n)
        out = [self.added(steps, own, keys, frames).cpu().numpy() for frames in {least, most}]
        if not np.array_equal(out[0], out[-1], equal_nan=True):
            raise Unrecognised("it depends on frames that attention does not see")
        return np.asarray(out[0])[:, :n, :n]

    def added(self, steps: Sequence[Any], n: int, keys: Any, frames: int | None = None) -> Any:
        """Return what steps add to scores of n keys, ``(1 or heads, n, n)``.

        Parameters
        ----------
        frames : int, optional
            Of the forward's input.
        """
        given = _frames_for(keys, n)[0] if frames is None else frames
        out, gone = self.made(np.zeros((1, n, n), np.float32)), False  # where scores are no more
        for step in steps:
            if step.name == "mul":
                out = out * step.by
                continue
            if step.name == "sum":
                out = out + step.value * self.added(step.by, n, keys, frames)
                continue
            whole = step.by.at(lambda length: _frames(length, n, keys, given))
            at = step.axes.read(whole, n)
            if at is None:
                raise Unrecognised(f"it has the shape {tuple(whole.shape)} at {n} frames")
            if step.name == "times":
                out, gone = out * at, gone | (at == 0)
                if not (gone | (at == 1)).all():
                    raise Unrecognised("scores are multiplied by positions, by other numbers than 0 and 1")
            elif step.name == "add":
                out = self.numbers(out) + step.value * self.numbers(at)
            else:
                at = at == 0 if step.name == "keep" else at != 0
                out, gone = out.masked_fill(at, step.value), gone | at
        if bool((gone & (out > MASKED)).any()):
            raise Unrecognised("scores give way to numbers where they are not hidden")
        return out

    # ------------------------------------------------------------------ what is in it
    @property
    def frames(self) -> int:
        """How many frames show all that its numbers say."""
        return long_enough({math.ceil(abs(c)) for c in self._numbers() if abs(c) > 1})

    @property
    def ends(self) -> int | None:
        """The frames at which the first table ends that is cut to the stream's length."""
        return min((size for size, part in self._cuts() if not isinstance(part.start, Length)), default=None)

    def _numbers(self) -> Iterator[float]:
        """Numbers that may be positions, or parts of one: all but what scores are filled or scaled with."""
        name = self.func.__name__.strip("_")
        filling = name in ("full", "masked_fill", "full_like", "new_full", "where", "setitem", "fill")
        scaling = filling or name in ("mul", "rmul", "imul", "multiply")
        adding = name in ("add", "radd", "iadd", "sub", "rsub", "isub", "clamp", "clamp_min", "maximum", "max")
        yield from self.constants
        for x in flat((*self.args, *self.kwargs.values())):
            found: list[float] = []
            if isinstance(x, Pairs):
                yield from x._numbers()
            elif isinstance(x, Symbolic) and isinstance(x.value, int):
                found = [x.value]
            elif isinstance(x, self.tensor) and math.prod(x.shape) <= _FEW:
                found = [c for c in x.flatten().tolist() if abs(c) > 1]
            elif isinstance(x, (int, float)) and not isinstance(x, bool):
                found = [x]
            for c in found:
                real = isinstance(c, float)
                if not math.isfinite(c) or (real and (filling or c <= MASKED or (scaling and c >= -MASKED))):
                    continue
                yield 1 / c if 0 < abs(c) < 1 and not adding else c

    def _cuts(self) -> Iterator[tuple[int, slice]]:
        """Give the cuts of tables, each with the size of what is cut."""
        for x in self.arguments():
            if isinstance(x, Pairs):
                yield from x._cuts()
        if self.indexes(self.func) and isinstance(self.args[0], self.tensor):
            index = self.args[1] if isinstance(self.args[1], tuple) else (self.args[1],)
            for axis, part in enumerate(index):
                if isinstance(part, slice) and any(isinstance(e, Length) for e in (part.start, part.stop)):
                    yield self.args[0].shape[axis - len(index) if Ellipsis in index else axis], part

    def arguments(self) -> Iterator[Any]:
        """Give all arguments."""
        return flat((self.args, self.kwargs))

    def lengths(self) -> Iterator[Length]:
        """Give the lengths in it."""
        for x in flat((self.args, self.kwargs)):
            if isinstance(x, Length):
                yield x
            elif isinstance(x, Symbolic):
                yield x.length
            elif isinstance(x, Pairs):
                yield from x.lengths()
            elif isinstance(x, ShapeOf):
                yield from (s for s in x.shape if isinstance(s, Length))

    def _key(self, x: Any, keys: Any, tensors: list[Any]) -> Any:
        """Return what is equal of equal programs; a list gets the tensors that are told apart by identity."""
        if isinstance(x, Pairs):
            return (x.func, self._key(x.args, keys, tensors), self._key(tuple(x.kwargs.items()), keys, tensors))
        if isinstance(x, Symbolic):
            own = (self._key(i, keys, tensors) for i in (x.length, x.value))
            return (x.roles, x.position, *own)
        if isinstance(x, Length) and keys is None:
            return tuple(_count(x, n) for n in (*_PROBED[0], LONGEST, LONGEST + 1))
        if isinstance(x, Length):
            return tuple(_frames(x, n, keys, _frames_for(keys, n)[0]) for n in (LONGEST, LONGEST + 1))
        if isinstance(x, self.tensor):
            return self.told(x, tensors)
        if isinstance(x, slice):
            return self._key((x.start, x.stop, x.step), keys, tensors)
        if isinstance(x, (list, tuple)):
            return tuple(self._key(i, keys, tensors) for i in x)
        if isinstance(x, ShapeOf):
            return self._key(x.shape, keys, tensors)
        return type(x), x.key() if hasattr(x, "key") else str(x)

    def as_output(self) -> NoReturn:
        """Refuse to be what a forward returns."""
        raise NotStreamableError(f"{self!r} are returned, at {user_line()}; {SERVES}")

    # ------------------------------------------------------------------ what it looks like
    def _probe(self, n: int) -> Any:
        """Return the tensor for so many frames of the forward's input."""
        try:
            with self.quietly():
                return self.at(lambda length: _count(length, n))
        except IndexError as error:
            raise NotStreamableError(f"{self!r} at {user_line()} look {BEYOND}: {error}; {SERVES}") from None

    @cached_property
    def shape(self) -> tuple[Any, ...]:
        if isinstance(self.func, Places):
            return tuple(self.args[0].shape)
        lengths, probed = list(self.lengths()), self._probed()
        sizes = zip(*(self._probe(n).shape for n in probed))
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
        growing = [count for count in counts if count.at(_MOST) >= few[-1]]
        return tuple(max((n, *(_first_of(count, n) for count in growing))) for n in few)

    def _length_of(self, sizes: Sequence[int], probed: Sequence[int], lengths: Sequence[Length]) -> Any:
        """Return the length that has these sizes, or is one of these, multiplied, shifted and divided."""
        for length in lengths:
            counts = [_count(length, n) for n in probed]
            times = (sizes[1] - sizes[0]) // ((counts[1] - counts[0]) or 1)
            rest = {s - times * c for s, c in zip(sizes, counts)}
            if times not in (0, 1) and len(rest) == 1:
                return length * times + rest.pop()
        for by in (1, 2, 3, 4, 5, 6, 7, 8):
            for length in lengths:
                plus = by * sizes[0] - _count(length, probed[0])
                for more in range(plus, plus + by):
                    if all((_count(length, n) + more) // by == s for n, s in zip(probed, sizes)):
                        return length if (by, more) == (1, 0) else ((length + more) // by).counting()
        raise NotStreamableError(f"the size of {self!r} at {user_line()} is none of a stream's; {SERVES}")

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    @cached_property
    def _kind(self) -> tuple[int, Any]:
        few = self._probe(self._probed()[0])
        return len(few.shape), few.dtype

    def dim(self) -> int:
        return self._kind[0]

    ndim = property(dim)

    @property
    def names(self) -> tuple[None, ...]:
        return (None,) * self.dim()

    @property
    def dtype(self) -> Any:
        return self._kind[1]

    def is_complex(self) -> bool:
        return False

    def _alike(self, read: Callable[[Any], Any]) -> Any:
        """Return what is read of it where that is the same at every length, or None."""
        most = min(LONGEST, self.ends or LONGEST)
        with suppress(Unrecognised), self.quietly():  # they may be too many to be tried
            few = sorted({min(n, most) for n in (40, 41, 63, 64, 65, self.frames, self.frames + 1)})
            found = {read(self._probe(n)) for n in self._input_for(few)}
            return found.pop() if len(found) == 1 else None
        return None

    def everywhere(self) -> Any:
        """Return the number that all its elements are at every length, or None."""
        tensors: list[Any] = []
        key = ("everywhere", self._key(self, None, tensors))
        return self._once(key, tensors, lambda: self._alike(_number_of))

    def item(self, name: str = "item") -> Any:
        """Return the number that it is at every length."""
        number = None if self.dim() else self._alike(methodcaller(name))
        if number is None:
            raise NotStreamableError(f"positions are made numbers by {name} at {user_line()}; {SERVES}")
        return number

    __int__ = partialmethod(item, "__int__")
    __float__ = partialmethod(item, "__float__")

    def __bool__(self) -> bool:
        found = self._alike(bool)
        if found is None:
            raise NotStreamableError(
                f"a comparison of positions at {user_line()} depends on the length of the stream; {SERVES}"
            )
        return bool(found)

    def __repr__(self) -> str:
        return f"<{self.func.__name__} of positions>"


#: Frames for which shapes are looked at, of the shortest stream that is asked for its length.
_PROBED = ((96, 128, 149), (48, 64, 75), (24, 32, 37), (12, 16, 19), (6, 8, 11))
#: The most that any stream has.
_MOST = 2**40


_SAID: dict[Any, tuple[Recognised, tuple[Any, ...]]] = {}
_REMEMBERED = 256


@lru_cache(maxsize=64)
def to_a_copy(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that writes into a copy of its first argument, and gives it."""

    @wraps(func)
    def written(x: Any, *args: Any, **kwargs: Any) -> Any:
        x = x.clone()
        func(x, *args, **kwargs)
        return x

    return written


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


def _seen(made: Callable[..., Any], n: int, *sizes: Any) -> Any:
    return made(expected(Context(*sizes), n))


def _fits(size: int, part: slice, frames: int) -> bool:
    """Whether a cut takes what is there, for so many frames of the forward's input."""
    start, stop = (_count(e, frames) if isinstance(e, Length) else e or 0 for e in (part.start, part.stop))
    return (start >= 0 or not isinstance(part.start, Length)) and stop <= size


def _count(length: Length, frames: int) -> int:
    """Return what a length is for so many frames of the forward's input."""
    formula = length.formula()
    return length.apply(frames) if formula is None else int(formula.count.at(frames))


def _frames_for(keys: Any, n: int) -> tuple[int, int, int]:
    """Return the fewest and most frames of the forward's input that give n keys, or the next number; and that."""
    formula = keys.shape[2].formula()
    if formula is None:
        return n, n, n
    own = formula.count.at(least := _first_of(formula.count, n))
    return least, _first_of(formula.count, own + 1) - 1, own


def _first_of(count: Any, n: int) -> int:
    """Return the first number at which a count is n or more."""
    high = 1
    while count.at(high) < n:
        high *= 2
        if high > _MOST:
            raise Unrecognised(f"it looks at {n} frames, which no stream has")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count.at(middle) < n else (low, middle)
    return high


def _frames(length: Length, n: int, keys: Any, given: int) -> int:
    """Return what a length is where the keys' stream has n frames, and the forward's input `given`."""
    if all(getattr(atom, "cid", None) == keys.edge.cid for _, atom in length.terms):
        return length.plus + n * sum(times for times, _ in length.terms)
    own, of = length.formula(), keys.shape[2].formula()
    if own is not None and of is not None and own.root == of.root:
        return int(own.count.at(given))
    more = length - keys.shape[2]
    if not isinstance(more, int):
        raise Unrecognised("it is as long as another stream")
    return n + more
