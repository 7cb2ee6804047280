"""Tensors whose elements say of lengths what they are: ``lengths``, positions, and masks made of them.

Inside a forward a stream's length is no number. What models compute of it, the `Symbolic` of ``ds.lengths_of(x)``,
``arange(x.size(L))`` and ``zeros(x.size(B), x.size(L))`` say as formulas: one value for all streams and frames, to
which the position may be added. A comparison whose answer the counts know for every position of every stream is a
mask of that answer; any other is refused.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, partialmethod
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np

from ..errors import NotStreamableError, ShapeError, StreamMismatchError
from ..operations import ARITHMETIC, RELATIONS, UNARY
from ..stream.rules import BatchSize, Length, Quotient, Rows, Token, is_full_slice, taken
from . import hook
from .deferred import Deferred
from .dimension_arguments import Described, axis_of, numbered, parts_of, sizes_of
from .filled import Filled, Formula, SharesMemory, formula, gives_several, sharing
from .formula_types import KINDS, NoFormula, Typed
from .lengths_of import SAME_ORDER, LengthsOf
from .stream_tensor import StreamTensor
from .tensor import Tensor

_OF_NUMBERS = frozenset(("pow", "square", *(row.name for row in UNARY if row.doc and not row.integers)))


def as_symbolic(given: LengthsOf, entered: Mapping[Any, Any]) -> Symbolic:
    """Return lengths as a tensor inside a forward.

    `entered` has the forward's streams, by the identity, or the name, of what was given.
    """
    inner = entered.get(id(given.of), None) if not isinstance(given.of, str) else entered.get(given.of)
    if inner is None:
        raise StreamMismatchError(f"{given!r} is not of an argument of the same call")
    length = inner.edge.entry.library.length(inner.edge)
    return Symbolic(1.0 if given.relative else length, ("B",), length)


def measured(x: Any) -> Any:
    """Turn lengths that a forward returns into a stream of one integer at the end; return all else unchanged."""
    if isinstance(x, Length):
        x = Symbolic(x, ("B",), x)
    return x.as_output() if hasattr(type(x), "as_output") else x


def _number(x: Any) -> Any:
    """Return the number that a plain tensor of one element holds; all else as it is."""
    plain = hasattr(x, "item") and not (isinstance(x, (Token, Symbolic)) or getattr(x, "is_stream", False))
    return x.item() if plain and math.prod(x.shape) == 1 else x


def _role(size: Any) -> Any:
    """Return "B", "L" or a number for a size."""
    return "B" if isinstance(size, BatchSize) else "L" if isinstance(size, Length) else int(size)


class Symbolic(Typed, Described, Filled, Deferred):
    """A deferred value that a formula says: one value for all streams and frames, and the position along L added.

    The `roles` of its dimensions are "B", "L" or an int, its size; `length` is what "L" is long. With `position`
    element l has l more than `value`. `kind` is the element type, where that is not the one that `value` has.

    What is taken of a tensor of zeros shares its memory. Where one of them is written into, all become the streams
    that they stand for, each taken of the other as it was (`become`).
    """

    is_stream = False
    func: Formula

    def __init__(
        self,
        value: Any,
        roles: Sequence[Any],
        length: Any,
        position: builtins.bool = False,
        kind: str | None = None,
    ) -> None:
        self.library, self.args, self.kwargs = length.edge.entry.library, (value, length), {}
        self.value, self.length = value, length
        self.func = formula(tuple(roles), position, kind)

    @classmethod
    def filled(cls, size: Sequence[Any], one: Tensor) -> Any:
        """Return a tensor of the value of a tensor with one element; some of its sizes are those of B and L."""
        length, *others = (s for s in size if isinstance(s, Length))
        value = one.item()
        if any(s.key() != length.key() for s in others):
            return length.edge.entry.library.defer_method("full", (tuple(size), value), {})
        return cls(
            value, [_role(s) for s in size], length, kind=kind if (kind := str(one.dtype)) in KINDS else None
        )

    def _refuse(self, what: str) -> NoReturn:
        raise NotStreamableError.here(
            f"{what} of {self!r},",
            ": it is not known before the stream's end; lengths serve in masks that counts show to cover all "
            "frames, and as outputs",
        )

    def _otherwise(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception | None = None
    ) -> Any:
        """Return a deferred value for a method that has no formula here, or raise an error."""
        out = self.library.defer_method(name, (self, *args), kwargs)
        if out is not NotImplemented:
            return out
        if isinstance(error, NotStreamableError):
            raise error
        return self._refuse(str(error or name))

    def _like(self, value: Any, roles: Sequence[Any] | None = None) -> Symbolic:
        kind = self.kind if builtins.type(value) is builtins.type(self.value) else None
        return Symbolic(value, self.roles if roles is None else roles, self.length, self.position, kind)

    # ------------------------------------------------------------------ what it is
    is_formula, is_constant = True, False
    value: Any = None
    roles = parts = property(attrgetter("func.roles"))
    position, kind = property(attrgetter("func.position")), property(attrgetter("func.kind"))
    ndim = property(lambda self: len(self.roles))

    def lengths(self) -> Iterator[Length]:
        """Give the length that it is made of."""
        return iter((self.length,))

    def exchanged(self, other: Callable[[Any], Any]) -> Symbolic:
        """Return it with what `other` gives in place of its value."""
        return self._like(other(self.value))

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes; B and L are tokens."""
        batch = self.library.batch(self.length.edge)
        return tuple(batch if r == "B" else self.length if r == "L" else r for r in self.roles)

    data = property(lambda self: self)
    hold, shares, _within = SharesMemory.hold, SharesMemory.shares, SharesMemory._within

    def beside_frames(self) -> Tensor:
        """Return it as a tensor that broadcasts against streams: B and L have one element; positions are one."""
        if getattr(self.value, "is_stream", False):
            behind = self.ndim - self.roles.index("B") - 1
            value: Tensor = self.value.reshape(self.value.shape[0], *(1,) * behind)
            return value
        if self.position:
            return self.stream((self.kind or "float32") if isinstance(self.value, builtins.float) else "int64")
        if isinstance(self.value, Token):
            if not isinstance(self.value, Length) or self.roles[:1] != ("B",) or "L" in self.roles:
                self._refuse("elements")
            out: Any = StreamTensor._at_the_end(self.value, np.float32, self.roles[1:])
            out.counts = self.value
            return out
        return Tensor._plain(self.func(self.value, 1, 1))

    def stream(self, dtype: str, steps: Sequence[builtins.int] = ()) -> StreamTensor:
        """Return positions, and what integers (the operator's steps) make of them, as the stream that they are."""
        of = self.length.of
        if not isinstance(self.value, (builtins.int, builtins.float)) or of.rate == 0:
            self._refuse("elements")
        own = [0, builtins.int(self.value)] if self.value else []
        attributes = {"length": self.length.steps(rises=True), "steps": [*own, *steps], "to": dtype}
        out = StreamTensor._operate_on("positions", attributes, [of], [], ("L",))
        sizes = [r for r in self.roles if not isinstance(r, str)]
        for name, shape in (("reshape", [1 for _ in sizes]), ("expand", sizes)):
            if tuple(shape) != out.features:
                out = hook.one(name, {"shape": shape}, [out], (), out.dims)
        return out.with_dims(numbered(self.roles))

    def as_stream(self) -> Any:
        """Return what frames meet: a stream of its number or of the positions, or its value."""
        return self.filled_stream() if self.is_filled else self.beside_frames()

    def item(self, name: str = "item") -> Any:
        """Return the value of a tensor without dimensions."""
        return self.value if not self.roles and not self.position else self._refuse("a number")

    # ------------------------------------------------------------------ dimensions
    def _seen(self, roles: Sequence[Any]) -> Symbolic:
        return self._like(self.value, roles)

    def __getitem__(self, index: Any) -> Symbolic:
        parts = parts_of(index, self.ndim)
        roles: list[Any] = []
        own = list(self.roles)
        length = self.length
        if self.roles[:1] == ("B",) and type(parts[0]) is builtins.int and parts[0] in (0, -1):
            return self._like(self.value, self.roles[1:])[tuple(parts[1:])]  # each stream by itself
        for part in parts:
            role = 1 if part is None else own.pop(0)
            whole = part is None or part is SAME_ORDER or is_full_slice(part)
            if not whole and self.position:
                return self._otherwise("__getitem__", (index,), {})
            if not (whole or (role != "B" and isinstance(part, (builtins.int, slice)))):
                self._refuse(f"the index {part!r}")
            if whole or role == "L":
                length = length if whole else self._cut(length, part)
                roles.append(role)
            else:
                kept = np.empty(role, np.bool_)[part].shape
                roles += kept
        return Symbolic(self.value, roles, length, self.position, self.kind)

    def _cut(self, length: Any, part: Any) -> Any:
        """Return how many frames a slice takes of so many."""
        out = taken(length, part) if isinstance(part, slice) else None
        if out is None:
            self._refuse(f"the index {part!r}")
        if out is part.stop:
            self._require_as_long(out, "L")
        return out

    def expand(self, *given: Any, size: Any = ()) -> Any:
        """Return it with dimensions of size 1 repeated."""
        sizes = sizes_of(given, size)
        roles = [1] * (len(sizes) - self.ndim) + list(self.roles)
        out, length = [], self.length
        for wanted, role in zip(sizes, roles):
            if isinstance(wanted, Length):
                self._require_as_long(wanted, role)
                length = wanted
            out.append(role if isinstance(wanted, int) and wanted in (-1, role) else _role(wanted))
        if self.position and out.count("L") > 1:  # the position along which of them
            return self._otherwise("expand", sizes, {})
        return Symbolic(self.value, out, length, self.position, self.kind)

    def repeat(self, *given: Any, repeats: Any = ()) -> Any:
        """Return it with dimensions of size 1 repeated."""
        sizes = sizes_of(given, repeats)
        roles = [1] * (len(sizes) - self.ndim) + list(self.roles)
        once = [isinstance(n, int) and n == 1 for n in sizes]
        if any(role != 1 and not one for role, one in zip(roles, once)):
            return self._refuse(f"repeat{sizes}")
        return self.expand(*(-1 if one else n for n, one in zip(sizes, once)))

    def _require_as_long(self, length: Any, role: Any) -> None:
        if role == "L":
            length.require("eq", self.length)

    def view(self, *given: Any, size: Any = ()) -> Symbolic:
        """Return it with its features in another shape."""
        sizes = sizes_of(given, size)
        kept = [r for r in self.roles if r != 1]
        if len(kept) == sum(not isinstance(s, int) or s != 1 for s in sizes):
            return self._like(self.value, [1 if isinstance(s, int) and s == 1 else kept.pop(0) for s in sizes])
        if self.position or any(isinstance(s, Rows) and not isinstance(s, BatchSize) for s in sizes):
            self._refuse(f"the shape {sizes}")
        roles: list[Any] = [_role(s) for s in sizes]
        features = math.prod(r for r in self.roles if isinstance(r, int))
        known = math.prod(r for r in roles if isinstance(r, int) and r != -1)
        if -1 in roles:
            missing = [r for r in ("B", "L") if r in self.roles and r not in roles]
            roles[roles.index(-1)] = missing[0] if missing else features // known
        own, new = ([r for r in x if isinstance(r, str)] for x in (self.roles, roles))
        if own != new or features != math.prod(r for r in roles if isinstance(r, int)):
            self._refuse(f"the shape {sizes}")
        for size in sizes:
            self._require_as_long(size, "L" if isinstance(size, Length) else "")
        return self._like(self.value, roles)

    reshape = view

    def _same(self, *_: Any, **__: Any) -> Symbolic:
        return self

    contiguous = detach = cpu = cuda = numpy = tensor = as_tensor = _same

    def clone(self, *_: Any, **__: Any) -> Symbolic:
        """Return a copy."""
        return self._like(self.value)

    # ------------------------------------------------------------------ arithmetic
    def _met(self, other: Any) -> tuple[tuple[Any, ...], Any]:
        """Return the roles, and the length, of what comes of meeting another."""
        if not isinstance(other, Symbolic):
            return self.roles, self.length
        n = max(self.ndim, other.ndim)
        roles: list[Any] = []
        for a, b in zip(*((1,) * (n - s.ndim) + s.roles for s in (self, other))):
            if a != b and 1 not in (a, b):
                raise ShapeError.here(f"{self!r} and {other!r} don't line up")
            roles.append(b if a == 1 else a)
        if roles.count("L") > 1:
            raise NoFormula("two stream axes")
        if "L" in self.roles and "L" in other.roles:
            self._require_as_long(other.length, "L")
        return tuple(roles), self.length if "L" in self.roles or "L" not in other.roles else other.length

    def _apply(self, other: Any, function: Callable[[Any, Any], Any], keeps: builtins.bool = False) -> Any:
        value = other.value if isinstance(other, Symbolic) else other
        if getattr(value, "is_stream", False):
            return NotImplemented
        if isinstance(value, np.ndarray) or (hasattr(value, "item") and not isinstance(value, Token)):
            if math.prod(value.shape) != 1 or self.library.learns(value, self.length.edge.entry):
                raise NoFormula("arithmetic")
            value = value.item()
        positions = self.position + getattr(other, "position", False)
        if positions and not (keeps and positions == 1):
            raise NoFormula("arithmetic")
        own, kind = self.value, self.kind_beside(other if isinstance(other, Symbolic) else value)
        if isinstance(value, Token) and isinstance(own, float) and own == math.floor(own):
            own = math.floor(own)
        if isinstance(own, Token) and isinstance(value, float) and value == math.floor(value):
            value = math.floor(value)
        roles, length = self._met(other)
        if function is operator.truediv and isinstance(value, Length) and not isinstance(own, Token):
            value, own = StreamTensor._at_the_end(value, np.float32), float(own)
            roles = roles if "B" in roles else ("B", *roles)
        made = function(own, value)
        kept = isinstance(made, Length) or (isinstance(made, float) and kind == "float64")
        return Symbolic(made, roles, length, bool(positions), kind if kept else None)

    def div(self, other: Any, *, rounding_mode: str | None = None) -> Any:
        """Return the quotient, rounded as torch does."""
        if self.position and rounding_mode is not None:
            return self._otherwise("div", (other,), {"rounding_mode": rounding_mode})
        out = self / other
        if rounding_mode is None:
            return out
        return out.floor().to(self.library.types[self.kind_beside(other) or "int64"])

    def _rounded(self, function: Callable[[Any], Any]) -> Symbolic:
        if isinstance(self.value, Quotient):
            return Symbolic(
                function(self.value),
                self.roles,
                self.length,
                kind=str(self.library.types[builtins.float]).rpartition(".")[2],
            )
        return self._like(function(self.value) if isinstance(self.value, Token) else float(function(self.value)))

    floor = trunc = partialmethod(_rounded, math.floor)
    ceil = partialmethod(_rounded, math.ceil)
    round = partialmethod(_rounded, round)

    def clamp(self, min: Any = None, max: Any = None) -> Any:
        """Return it within limits: as a formula, where counts show for every stream on which side it is."""
        out: Symbolic = self
        limits = {name: limit for name, limit in (("min", min), ("max", max)) if limit is not None}
        if not all(isinstance(limit, _LIMITS) for limit in limits.values()):
            return self._otherwise("clamp", (), limits)
        try:
            for name, limit in limits.items():
                given = limit if isinstance(limit, Symbolic) else self._like(limit)
                is_within = out._compare(limit, "ge" if name == "min" else "le").value
                out = out._as_beside(given) if is_within else given._as_beside(out)
        except (NoFormula, NotStreamableError) as error:
            if self.position and not any(isinstance(limit, Symbolic) for limit in limits.values()):
                return self._otherwise("clamp", (), limits)
            if isinstance(error, NotStreamableError):
                raise
            out._refuse(str(error))
        return out

    def _as_beside(self, other: Symbolic) -> Symbolic:
        """Return it in the shape, and of the kind of number, that it has once it meets another."""
        roles, length = self._met(other)
        out = self if roles == self.roles else Symbolic(self.value, roles, length, self.position, self.kind)
        return out.to(other.dtype) if isinstance(other.value, float) and not isinstance(out.value, float) else out

    clip = clamp

    def _reduced(self, last: builtins.bool, dim: Any = None, keepdim: builtins.bool = False) -> Any:
        if getattr(dim, "shape", None) is not None:
            return self.maximum(dim) if last else self.minimum(dim)
        if self.position and dim is None and isinstance(self.value, builtins.int):
            return Symbolic(self.value + self.length - 1 if last else self.value, (), self.length)
        return self._refuse("a reduction") if self.position or "L" in self.roles else self._like(self.value, ())

    max = amax = partialmethod(_reduced, True)
    min = amin = partialmethod(_reduced, False)

    def _limited(self, other: Any, side: str) -> Any:
        other = _number(other)
        if isinstance(other, _LIMITS):
            return self.clamp(**{side: other})
        return self._otherwise("maximum" if side == "min" else "minimum", (other,), {})

    maximum, minimum = partialmethod(_limited, side="min"), partialmethod(_limited, side="max")

    def sum(self, dim: Any = None, keepdim: builtins.bool = False) -> Symbolic:
        """Return the sum over the frames of each stream: of a mask that covers them, their number."""
        if dim is None:
            self._refuse("a sum over the batch")
        at = axis_of("sum", dim, self.ndim)
        if self.roles[at] != "L" or self.position or self.value not in (0, 1):
            self._refuse("a sum")
        roles = [1 if i == at else r for i, r in enumerate(self.roles) if keepdim or i != at]
        return self._like(self.length if self.value else 0, roles)

    def cumsum(self, dim: builtins.int, *args: Any, **kwargs: Any) -> Any:
        """Return sums of the frames so far: of a mask that covers them, their number."""
        covers = self.roles.count("L") == 1 and not self.position and self.value == 1
        if not covers or self.roles[axis_of("cumsum", dim, self.ndim)] != "L" or args or kwargs:
            return self._otherwise("cumsum", (dim, *args), kwargs)
        return Symbolic(self.value if self.value is not True else 1, self.roles, self.length, True, self.kind)

    def sort(self, *_: Any, **__: Any) -> tuple[Symbolic, Any]:
        """Return lengths in the order in which they are, and that order."""
        return (self, SAME_ORDER) if self.roles == ("B",) else self._refuse("the order")

    # ------------------------------------------------------------------ truths
    def _compare(self, other: Any, relation: str) -> Any:
        if getattr(other, "is_stream", False):
            return NotImplemented
        o = other if isinstance(other, Symbolic) else Symbolic(other, (), self.length)
        roles, length = self._met(other)
        if self.position == o.position:
            answer = getattr(operator, relation)(self.value, o.value)
        elif relation in ("eq", "ne"):
            raise NoFormula("a comparison for equality")
        else:
            answer = self._of_positions(self.value - o.value, relation, self if self.position else o)
        if not isinstance(answer, bool):
            if not roles and isinstance(answer, Token):
                return answer
            raise NoFormula(f"a mask that is not the same for all frames ({relation})")
        return Symbolic(answer, roles, length)

    def _of_positions(self, first: Any, relation: str, positions: Symbolic) -> Any:
        """Return how all frames' positions compare, if the first differs by `first`; None where that depends."""
        far = positions.length - 1 if positions is self else 1 - positions.length
        frames = positions.length.counting()  # where there are none, nothing is compared
        answers = {
            apart.compares(relation, frames)
            if isinstance(apart, Length)
            else getattr(operator, relation)(apart, 0)
            for apart in (first, first + far)
        }
        return answers.pop() if len(answers) == 1 else None

    def __invert__(self) -> Any:
        return self._otherwise("__invert__", (), {}) if self.position else self._like(not self.value)

    def logical_not(self) -> Any:
        return self._otherwise("logical_not", (), {}) if self.position else ~self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.is_filled and (name.endswith("_") or gives_several(getattr(Tensor, name, None))):
            self.become()
            return getattr(self, name)
        if name in _OF_NUMBERS and isinstance(self.value, Length) and self.roles[:1] == ("B",):
            return getattr(self.beside_frames(), name)  # once streams end
        return super().__getattr__(name)

    def __bool__(self) -> builtins.bool:
        return bool(self.item())

    def __int__(self) -> builtins.int:
        self._refuse("a number")

    __index__ = __float__ = __iter__ = __array__ = __int__

    def __len__(self) -> builtins.int:
        return 1 if self.roles[:1] == ("B",) else self.__int__()  # each stream by itself

    def __repr__(self) -> str:
        text = ", ".join(map(str, self.roles))
        return f"<{self.value!r}{' + position' if self.position else ''} for each of ({text})>"

    # ------------------------------------------------------------------ in and out
    def as_output(self) -> StreamTensor:
        """Return the stream of its number, or one of the length that it is: an integer per stream at its end."""
        if self.is_filled and "B" in self.roles:
            return self.as_stream()
        if self.position or self.roles != ("B",) or not isinstance(self.value, Length):
            self._refuse("an output")
        value, edge = self.value.measured()
        out = StreamTensor.inside(value, ("B",), edge)
        return out if self.kind is None else self.library.as_type(out, self.kind)


def _answering(answer: Callable[[Symbolic, Any], Any], *names: str) -> None:
    def method(self: Symbolic, other: Any, name: str) -> Any:
        other = other.meeting(self) if hasattr(type(other), "meeting") else other  # a constant of the batch
        try:
            out = answer(self, other)
        except (NoFormula, NotStreamableError) as error:
            return self._otherwise(names[0], (other,), {}, error)
        foreign = out is NotImplemented and not name.startswith("__")
        return self._otherwise(name, (other,), {}) if foreign else out

    for name in names:
        setattr(Symbolic, name, lambda self, other, name=name: method(self, other, name))


def _arithmetic(name: str, keeps: builtins.bool) -> None:
    function = getattr(operator, name)

    def forwards(self: Symbolic, other: Any) -> Any:
        if isinstance(other, Symbolic) and self.position != other.position:
            at, same = (self, other) if self.position else (other, self)
            if type(same.value) in (int, float) and self._met(other)[0] == at.roles:  # a number everywhere
                return getattr(at, f"__{name}__" if at is self else f"__r{name}__")(same.value)
        return self._apply(other, function, keeps and (name == "add" or not getattr(other, "position", False)))

    def backwards(self: Symbolic, other: Any) -> Any:
        if getattr(other, "is_stream", False):
            return function(other, self.beside_frames())
        return self._apply(other, lambda a, b: function(b, a), name == "add")

    short = "true_divide" if name == "truediv" else ARITHMETIC[name]  # div is a method of its own
    _answering(forwards, f"__{name}__", short)
    _answering(backwards, f"__r{name}__")
    setattr(Symbolic, f"__i{name}__", lambda self, other: self._in_place(f"__i{name}__", other))


def _not_of_lengths(name: str) -> None:
    def method(self: Symbolic, *others: Any) -> Any:
        if isinstance(self.value, Token):
            self._refuse(name)
        return getattr(super(Symbolic, self), f"__{name}__")(*others)

    setattr(Symbolic, f"__{name}__", method)


for _name in ("neg", "abs", "pow", "rpow", "xor", "rxor"):
    _not_of_lengths(_name)
for _name in (n for n in ARITHMETIC if n != "pow"):
    _arithmetic(_name, _name in ("add", "sub"))
for _name in RELATIONS:
    _answering(partial(Symbolic._compare, relation=_name), f"__{_name}__", _name)
for _name in ("lshift", "rshift"):
    _answering(partial(Symbolic._apply, function=getattr(operator, _name)), f"__{_name}__")
for _both, _name in ((lambda a, b: bool(a) and bool(b), "and"), (lambda a, b: bool(a) or bool(b), "or")):
    _answering(partial(Symbolic._apply, function=_both), f"__{_name}__", f"__r{_name}__", f"logical_{_name}")
for _name in ("unsqueeze", "squeeze", "permute", "__getitem__", "expand", "expand_as", "view", "reshape"):
    setattr(Symbolic, _name, sharing(_name, getattr(Symbolic, _name)))
_LIMITS = (int, float, Token, Symbolic)  #: What formulas are compared with.
Symbolic.__hash__ = object.__hash__  # type: ignore[method-assign]
