"""Masked select, as in ``y[m] = y[m] * 2``: the whole stream is computed, until it is written back where m holds.

How many elements there are depends on values, so their number can't be asked. What is computed of each by itself
is computed of all, and where it is written to the places that the same bools pick, the others stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, cast

from ..errors import NotStreamableError
from ..operations import LOGICAL
from ..operations.refusals import PLACES
from ..source_line import user_line
from ..stream.edge import Line
from .deferred_stream import DeferredStream
from .protocol import refuse_the_rest
from .stream_tensor import StreamTensor

#: Whose derivatives are finite wherever their values are, so that elements left out spoil no gradient.
_SMOOTH = frozenset(("add", "sub", "mul", "neg", "abs", "relu", "maximum", "minimum", "clamp", "where", "cast"))


class MaskedSelect(DeferredStream):
    """The elements of a stream where a stream of bools holds, or the features behind the dimensions of that."""

    def __init__(self, whole: StreamTensor, mask: Any) -> None:
        self.mask, self.line = mask, mask.edge.line
        self.behind = len(whole.dims) - len(mask.dims)
        self._stand(whole, ("B_L", *range(self.behind)), ("B_L", *[None] * self.behind))
        self._line = user_line()

    def refuse(self, what: str, line: str = "") -> NoReturn:
        reason, remedy = PLACES.words
        raise NotStreamableError.here(
            f"{what} of elements that a stream of bools picks,",
            f": {reason}; what is computed of each by itself is written back by the same bools (m = y < 0; "
            f"y[m] *= 2), or {remedy}",
            line,
        )

    @property
    def features(self) -> tuple[int, ...]:
        whole = self.base
        return tuple(whole.features[cast("int", d)] for d in whole.dims[len(whole.dims) - self.behind :])

    @property
    def roles(self) -> tuple[str, ...]:
        return self.refuse("an operation")

    @property
    def shape(self) -> tuple[Any, ...]:
        return _Shape((_Number(self), *self.features))

    def as_output(self) -> StreamTensor:
        return self.refuse("a result", self._line)

    def numel(self) -> int:
        return self.refuse("the number")

    def permute(self, *given: Any, dims: Any = ()) -> Any:
        return self.refuse("permute")

    def with_dims(self, dims: Any, names: Any = None) -> StreamTensor:
        return MaskedSelect(self.base, self.mask)

    def become(self, other: Any) -> None:
        """Hold what is written into all of it."""
        self.base = self._given(other, "a write")

    def _given(self, other: Any, what: str) -> StreamTensor:
        """Return the whole stream of another selection by the same mask."""
        if not isinstance(other, MaskedSelect) or not same_mask(self, other):
            self.refuse(what)
        return other.base

    def at(self, x: StreamTensor, mask: Any) -> StreamTensor:
        """Return the whole, to be written into x where a mask holds."""
        if not same_mask(self, MaskedSelect(x, mask)) or self.base.roles != x.roles:
            self.refuse("a write by other bools")
        return self.base

    def by_element(
        self, run: Any, name: str, attributes: Any, inputs: Sequence[Any], weights: Sequence[Any], dims: Any
    ) -> tuple[Any, ...]:
        """Run an operator that looks at each element by itself, on what the same bools pick of all inputs."""
        own = name == "cast" or (dims is not None and dims[0] is Ellipsis and len(dims) - 1 <= self.behind)
        if dims is not None and not own:
            self.refuse(name)
        whole = [self._given(x, f"{name} with others") for x in inputs]
        if dims is None and any(w is not None and w.numel() != 1 and w.ndim > self.behind for w in weights):
            self.refuse(f"{name} with a constant")
        if name not in _SMOOTH and any(getattr(x.value, "requires_grad", False) for x in whole):
            self.refuse(f"the gradient of {name}")
        if name == "cast":
            dims = whole[0]._straight()
            whole = [whole[0].with_dims(dims)]
        return tuple(MaskedSelect(y, self.mask) for y in run(name, attributes, whole, weights, dims))


class _Number:
    """How many elements are picked."""

    def __init__(self, of: MaskedSelect) -> None:
        self._of = of

    def __repr__(self) -> str:
        return "<number of elements that a stream of bools picks>"

    def _refuse(self, *_: Any) -> NoReturn:
        self._of.refuse("the number")

    _misuse = _refuse


refuse_the_rest(_Number, _Number._refuse)


class _Shape(tuple[Any, ...]):
    """Sizes, of which the number of elements can't be asked."""

    def __getitem__(self, index: Any) -> Any:
        size = super().__getitem__(index)
        return size._refuse() if isinstance(size, _Number) else size


def same_mask(a: MaskedSelect, b: MaskedSelect) -> bool:
    """Whether two masks hold in the same places: one stream, or the same comparison of the same streams."""
    return a.line is b.line or _alike(a.line, b.line)


#: Operators of bools that have no constants.
_OF_BOOLS = ("sync", *(row.name for row in LOGICAL))


def _alike(a: Any, b: Any) -> bool:
    if a is b or not (isinstance(a, Line) and isinstance(b, Line)):
        return a is b or (isinstance(a, (int, float)) and a == b)
    compared, other = (x.facts.get("compared") for x in (a, b))
    if compared is not None and other is not None:
        return (
            len(compared) == len(other) and compared[0] == other[0] and all(map(_alike, compared[1:], other[1:]))
        )
    one, two = a.source, b.source
    if one is None or two is None or one[0] is not two[0] or one[0].name not in _OF_BOOLS:
        return False
    return one[2] == two[2] and all(map(_alike, one[1], two[1]))
