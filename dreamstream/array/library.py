"""The library whose tensors run in a forward: NumPy's here, torch's in `dreamstream.torch.forward.library`.

Every entry has one, as `Entry.library`. Where positions meet frames, each frame meets what is computed of its own
position: the functions run once more, now on the stream of the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, wraps
from hashlib import sha1
from typing import Any

import numpy as np

from .. import autograd
from ..errors import NotStreamableError, ShapeError
from ..operations import RELATIONS
from ..stream.mask_recognition import Recognised
from ..stream.rules import Length, Sizes
from ..stream.rules.sizes import Token
from ..stream.rules.sums import Unknown
from ..stream.tree import leaves, map_leaves
from . import creation, positions
from .batch_constants import is_constant, laid_out, lifts, plain_beside, repeats_itself, same, unlike
from .deferred import (
    SERVES_FRAMES,
    Deferred,
    are_positions,
    flat,
    has_formula,
    is_computed,
    is_deferred,
    is_filled,
)
from .dimension_arguments import axis_of
from .distance_tables import Stride
from .draws import dropping
from .einsum import table_product
from .filled import own_method, to_a_copy
from .formula_types import TYPES
from .mask_terms import terms_by_distance
from .rolled import settled
from .score_steps import OverKeys
from .scores import Scores
from .shape_of import ShapeOf, shape_alone
from .stream_tensor import StreamTensor
from .symbolic import Symbolic
from .tensor import Tensor


class Library(Sizes):
    """NumPy's arrays as this package's tensors, and what other libraries have alike."""

    tensor: Any = Tensor  #: The class of its tensors.
    stride: Any = Stride  #: How far elements of deferred values are apart.
    types: Mapping[Any, Any] = TYPES  #: Its element types, by Python's types and by their names.
    device: Any = "cpu"  #: Where its tensors are.
    atoms: frozenset[Any] = frozenset()  #: Types whose objects are what they are in every call, as element types.
    see: Callable[[Any], Any] = staticmethod(lambda native: native)  # shows a stream as the user's code sees it
    has_gradients: Callable[[], bool] = staticmethod(
        autograd.is_grad_enabled
    )  # whether they are recorded at the moment

    casts: Callable[[], str] = staticmethod(str)  # to which type autocast converts what layers get, "" without it

    def is_without_gradients(self) -> bool:
        """Whether the user has turned gradients off."""
        return not autograd.is_grad_enabled()

    # ------------------------------------------------------------------ what deferred values are computed with
    def evaluating(self) -> AbstractContextManager[Any]:
        """Within it functions run unseen, and no gradient is recorded."""
        return autograd.no_grad()

    def compute(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Compute a function of tensors and numbers."""
        return func(*args, **kwargs)

    def real(self) -> Any:
        """Return the element type of real numbers that nobody gives a type."""
        return np.float32

    def array(self, values: Any) -> Any:
        """Return an array of NumPy's as a tensor."""
        return Tensor._plain(values)

    def values(self, values: Any) -> Any:
        """Return an array of NumPy's as the values of a stream."""
        return values

    def alike(self, tensor: Any, values: Any) -> Any:
        """Return an array of NumPy's as a tensor of the type of another one, and where that is."""
        return self.array(values).to(tensor.dtype)

    def beside(self, x: Any, other: Any) -> Any:
        """Return numbers made of others in the type of those that they meet, where a library has narrower ones."""
        return x

    def put_back(self, view: Any, part: Any) -> Any:
        """Return the stream that a view was taken of, into which the view was written."""
        return view.back(view.of, part)

    def as_kind_of(self, x: Any, value: Any) -> Any:
        """Return what is written into a stream in the stream's type, where a library has narrower ones."""
        return value

    def least(self, x: Any) -> float:
        """Return the least finite number of a stream's type, or of float32."""
        return float(np.finfo(np.float32).min)

    def meeting(self, kind: Any, other: Any) -> str:
        """Return the name of the type in which numbers of one meet those of another, or a number."""
        return str(np.result_type(kind, np.float32 if type(other) is float else other))

    def as_type(self, x: Any, kind: str) -> Any:
        """Return a stream in the type of this name."""
        return x.to(np.dtype(kind))

    def constant(self, tensor: Any) -> Any:
        """Return a tensor as operators take it."""
        return tensor

    def records(self, entry: Any) -> bool:
        """Whether a call records gradients of what is learned."""
        return autograd.in_training()

    def learns(self, x: Any, entry: Any) -> bool:
        """Whether a call records gradients of a tensor, which is no mere number then."""
        return getattr(x, "requires_grad", False) and isinstance(x, self.tensor) and self.records(entry)

    def without_values(self, x: ShapeOf) -> Any:
        """Return what a function that makes a mask gets in place of a stream: a tensor of its shape."""
        return x

    def share(self, out: Any, args: Sequence[Any]) -> bool:
        """Whether what a function gave shares the memory of an argument."""
        return any(isinstance(x, Tensor) and np.shares_memory(out.numpy(), x.numpy()) for x in flat(args))

    def as_terms(self, x: Any) -> Any:
        """Return a tensor as numbers that may be added to others."""
        return x.double()

    def key(self, tensor: Any, by_identity: list[Any]) -> Any:
        """Return a constant's cache key; tensors that are compared by identity are appended to `by_identity`."""
        values = np.ascontiguousarray(tensor.numpy())
        return tensor.shape, values.dtype.str, sha1(values.tobytes()).digest()

    def content(self, tensor: Any) -> Any:
        """Return a key of what a tensor holds; where it is great, or learned, raise Unknown."""
        if tensor.requires_grad or tensor.numpy().nbytes > FEW_BYTES:
            raise Unknown
        return self.key(tensor, [])

    def bias(self, found: Recognised, steps: Sequence[Any], keys: Any) -> Any:
        """Return the recognised term by distance as operators take it, with the gradient that it has."""
        if found.cells is None or not self.records(keys.shape[2].edge.entry):
            return Tensor._plain(np.asarray(found.bias, keys.dtype))
        return terms_by_distance(found, steps, keys).to(keys.dtype)

    def table(self, make: Callable[[], Any], found: Any, keys: Any) -> Any:
        """Return a recognised table as operators take it; compute one that is learned again, with its gradient."""
        return (make() if self.records(keys.shape[2].edge.entry) else found).to(keys.dtype)

    def dropped(self, p: float) -> AbstractContextManager[Any]:
        """Within it attention drops its weights with a probability."""
        return dropping(p)

    def draw(self) -> int:
        """Return a number of the generator that a seed sets."""
        return int(creation.generator().integers(1 << 63))

    # ------------------------------------------------------------------ what is deferred
    def filled(self, value: Any, roles: Sequence[Any], length: Any) -> Symbolic:
        """Return a tensor of one value, whose dimensions are "B", "L", or as long as integers."""
        return Symbolic(value, roles, length)

    def function(self, name: str) -> Any:
        """Return the function, or the tensors' method, of a name; None where there is none."""
        if name == "__setitem__":
            return to_a_copy(Tensor.__setitem__)
        return getattr(creation if name in ("arange", "eye", "full") else Tensor, name, None)

    def defer(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Defer a function of deferred values and lengths; with a stream among its arguments, run it."""
        if lifts((args, kwargs)):
            return self.of_every_stream(func, args, dict(kwargs))
        args, kwargs = settled(self, func, *plain_beside(args, kwargs))
        if any(isinstance(x, (StreamTensor, Scores, OverKeys)) for x in flat((args, kwargs))):
            found = table_product(func.__name__, args, lambda: self.met(func, args, kwargs))
            return self.met(func, args, kwargs) if found is None else found
        return self.deferred(func, args, dict(kwargs))

    def of_batch(self, each: Any, batch_axis: int | Sequence[int], rows: Any, fresh: bool = False) -> Deferred:
        """Return a constant that every stream of a batch has alike.

        `each` is what each stream has, along the one batch dimension: mostly one element. `rows` is the number of
        streams, and with `fresh` nothing shares its memory.
        """
        axes = (batch_axis,) if isinstance(batch_axis, int) else tuple(batch_axis)
        if len(axes) != 1:
            raise ShapeError(f"the number of streams can be one size, not {len(axes)}")
        axis = axis_of("the number of streams", axes[0], len(each.shape))
        out = Deferred(self, laid_out, (getattr(each, "torch", each), axis, rows), {})
        out.fresh = fresh
        return out

    def of_every_stream(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return what a function gives of constants of the batch; refuse it where streams get different values."""
        given = [x for x in leaves((args, kwargs)) if is_constant(x)]
        for x in given:
            x.fresh = False  # what is taken of it may be written into
        call, rows = Deferred(self, func, args, kwargs), given[0].rows
        try:
            two, three = (call.at(len, n) for n in (2, 3))
        except ShapeError as error:
            raise unlike(func.__name__) from error
        if len(leaves(two)) != len(others := leaves(three)):  # as unbind along the streams
            raise unlike(func.__name__)
        more = iter(others)
        one = rows if getattr(rows, "times", 1) == 1 else type(rows)(rows.edge)
        return map_leaves(two, lambda x: self._of_each(func.__name__, x, next(more), one))

    def _of_each(self, name: str, x: Any, other: Any, one: Any) -> Any:
        """Return one value of both that a function gave, of two and three rows."""
        if type(x) is int and x != other and 2 * other == 3 * x:
            return one * (x // 2)
        if not hasattr(x, "narrow"):
            if x != other:
                raise unlike(name)
            return x
        axes = [i for i, (n, m) in enumerate(zip(x.shape, other.shape)) if n != m]
        if not axes:
            if not same(x, other):
                raise unlike(name)
            return self.constant(x)
        axis, *more = axes
        n = other.shape[axis] - x.shape[axis]
        if more or x.shape[axis] != 2 * n:
            raise unlike(name)
        alike = (m for m in (1, n) if repeats_itself(x, m, axis) and repeats_itself(other, m, axis))
        first = next((x.narrow(axis, 0, m) for m in alike), None)
        if first is None or not same(first, other.narrow(axis, 0, first.shape[axis])):
            raise unlike(name)
        return self.of_batch(first, axis, one * n)

    def met(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a function where each frame meets what is computed of its position."""
        given, named = (map_leaves(x, _stream_of) for x in (tuple(args), dict(kwargs)))
        given = positions.lined_up(func, given)
        method = getattr(given[0], func.__name__, None) if getattr(Tensor, func.__name__, None) is func else None
        out = func(*given, **named) if method is None else method(*given[1:], **named)
        if out is NotImplemented:
            raise NotStreamableError.here(f"{func.__name__} of positions and a stream,", f"; {SERVES_FRAMES}")
        return out

    def deferred(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return a deferred value, or as many as a function gives."""
        out = Deferred(self, func, args, kwargs)
        if func.__name__.strip("_") not in _OF_SEVERAL:
            return out
        few, more = map(out.probe, out._probed()[:2])
        if not isinstance(few, (tuple, list)):
            return out
        if len(few) != len(more):  # frames of the stream that it is
            return self.met(func, args, kwargs)
        parts = iter([Deferred(self, _part(func, i), args, kwargs) for i in range(len(few))])
        return map_leaves(few, lambda _: next(parts))

    def defer_method(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Defer a function, or a method of lengths and positions, for which there is no formula."""
        func = self.function(name)
        if func is None:
            return NotImplemented
        out = self.defer(func, args, kwargs)
        lengths = any(has_formula(a) and isinstance(a.value, Token) for a in args)
        compares = lengths and name.startswith("__") and name.strip("_") in RELATIONS and isinstance(out, Deferred)
        if compares and sum(isinstance(s, Length) for s in out.shape) < 2:
            return NotImplemented  # a mask of frames by their number, which is refused
        return out

    def defer_call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return a call of a user's function, which is called with integers and with shapes of streams."""
        out = Deferred(self, func, *(map_leaves(x, shape_alone) for x in (args, kwargs)))
        out.constants = tuple(c for c in func.__code__.co_consts if type(c) is int)
        return out

    def stream_of(self, x: Deferred) -> Any:
        """Return a deferred value as the stream that it is; refuse one that says something of pairs of frames."""
        known = x.__dict__
        if "_stream" not in known:
            if sum(isinstance(s, Length) for s in x.shape) != 1 or not any(map(is_deferred, x.arguments())):
                raise NotStreamableError.here(f"{x!r} meet a stream,", f"; {SERVES_FRAMES}")
            known["_stream"] = self.met(x.func, x.args, x.kwargs)
        return known["_stream"]

    def output_of(self, x: Deferred) -> Any:
        """Return a deferred value as a forward's result, or refuse it."""
        return self.stream_of(x)


#: Bytes of a tensor that is looked at whenever it is asked what it holds; a greater one once a call, or never.
FEW_BYTES = 1 << 15
#: Functions that may give several tensors.
_OF_SEVERAL = frozenset((
    "meshgrid", "broadcast_tensors", "split", "split_with_sizes", "tensor_split", "chunk", "unbind", "max", "min",
    "aminmax", "sort", "topk", "kthvalue", "median", "nanmedian", "mode", "cummax", "cummin", "var_mean",
    "std_mean", "hsplit", "vsplit", "dsplit", "frexp",
))  # fmt: skip


@lru_cache(maxsize=64)
def _part(func: Callable[..., Any], at: int) -> Callable[..., Any]:
    """Return a function that gives one of several."""

    @wraps(func)
    def part(*args: Any, **kwargs: Any) -> Any:
        return own_method(args[0], func)(*args, **kwargs)[at]

    part.is_part = True  # type: ignore[attr-defined]
    return part


def _stream_of(x: Any) -> Any:
    x = positions.number_of_all(x)
    return x.as_stream() if is_computed(x) or is_filled(x) or are_positions(x) else x


#: What stands for NumPy's arrays in forwards of this package.
NATIVE = Library()
