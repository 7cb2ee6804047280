"""torch as the library of a forward: what deferred values are computed with, and what is deferred.

Where what is computed of ``arange(x.size(1))`` meets frames, each meets what is computed of its own position:
torch's functions run once more, now on the stream of the positions. Tables are cut to a stream's length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha1
from typing import Any, NoReturn
from weakref import ref

import numpy as np
import torch
from torch.utils.weak import WeakIdRef

from ...array import creation, positions
from ...array.attend import of_all
from ...array.batch_constants import is_constant, lifts, plain_beside
from ...array.deferred import LOWEST, SERVES, SERVES_FRAMES, Deferred, flat, has_formula, is_deferred, is_filled
from ...array.dtypes import nominal
from ...array.einsum import table_product
from ...array.facts import recalled
from ...array.frame_numbers import number_in
from ...array.lengths_as_numbers import count_of
from ...array.library import FEW_BYTES, Library
from ...array.mask_terms import terms_by_distance
from ...array.over_time import require_waiting
from ...array.rolled import settled
from ...array.score_steps import OverKeys
from ...array.scores import Scores
from ...array.shape_of import Empty, ShapeOf
from ...array.stream_tensor import StreamTensor
from ...array.symbolic import Symbolic
from ...array.versions import checksum
from ...array.writing import copied
from ...errors import NotStreamableError
from ...nn.functional.lookup import require_as_it_is
from ...stream.mask_recognition import Recognised
from ...stream.rules import BatchSize, Length, Quotient
from ...stream.rules.sums import Unknown
from ...stream.tree import leaves, map_leaves
from ..private import without_functions
from ..tensor.stream_tensor import StreamTensor as Shell
from . import names
from .arguments import inner_of
from .complex_streams import cut_complex
from .composed import without_sums
from .constants import HALF, NARROW, Constant
from .conversions import with_value
from .integers import typed
from .keys import bytes_of
from .names import ATTRIBUTES, HANDLERS
from .places import repeated
from .recordings import converted, dropping, looked_at, noted, same
from .running import current
from .sizes import TorchBatch, TorchBatchLength, TorchLength, TorchStride


class _Shaped(torch.Tensor):
    """A tensor without values that reports the device of a stream."""

    stands: Any = None

    @property
    def device(self) -> Any:  # type: ignore[override]
        return self.stands or super().device


class TorchLibrary(Library):
    """torch's tensors, and its functions."""

    tensor = torch.Tensor
    batch, length, joined, stride = TorchBatch, TorchLength, TorchBatchLength, TorchStride
    types = {bool: torch.bool, float: torch.float32, int: torch.int64} | {
        str(kind).removeprefix("torch."): kind
        for kind in (torch.bool, torch.float32, torch.float64, torch.int64, *NARROW, *HALF)
    }
    see = staticmethod(Shell.shell)
    real = staticmethod(torch.get_default_dtype)
    atoms = frozenset((torch.dtype, torch.device, torch.memory_format, torch.layout, torch.Size))
    has_gradients = staticmethod(torch.is_grad_enabled)

    @staticmethod
    def casts() -> str:
        if not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")):
            return ""
        kind = current().device.type
        return str(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else ""

    def is_without_gradients(self) -> bool:
        """Whether the user has turned gradients off, and not torch, for a Function's forward."""
        gradients = current().gradients
        return not torch.is_grad_enabled() and (gradients is None or not gradients.wanted)

    dropped = staticmethod(dropping)

    @property
    def device(self) -> Any:
        return current().device

    def draw(self) -> int:
        """Return a number of torch's generator."""
        with without_functions():
            return int(torch.randint(1 << 62, ()))

    # ------------------------------------------------------------------ what deferred values are computed with
    @contextmanager
    def evaluating(self) -> Iterator[None]:
        with torch.no_grad(), without_functions():
            yield

    def compute(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        try:
            out = func(*args, **kwargs)
        except (RuntimeError, NotImplementedError) as error:
            if "meta" not in str(error):
                raise
            out = None
        if out is None or getattr(out, "is_meta", False):
            ShapeOf((), None, None)._refuse("a value")
        return out

    def array(self, values: Any) -> Any:
        return torch.from_numpy(values)

    def values(self, values: Any) -> Any:
        return torch.from_numpy(values).to(self.device)

    def alike(self, tensor: Any, values: Any) -> Any:
        return torch.from_numpy(values).to(tensor)

    def beside(self, x: Any, other: Any) -> Any:
        wanted = getattr(other.torch if isinstance(other, Constant) else other.value, "dtype", None)
        if wanted not in NARROW | HALF:
            return x
        return x._like(x.torch.to(wanted)) if isinstance(x, Constant) else with_value(x, lambda v: v.to(wanted))

    def put_back(self, view: Any, part: Any) -> Any:
        args, kwargs = view.given()
        of, own = [x if type(x) is Shell else Shell.shell(x) for x in (view.of, part)]
        known_as = view.put, "put back"
        whole = repeated(
            current(), known_as, (of, own, *args), kwargs, lambda: Shell.shell(view.back(view.of, part))
        )
        return whole._inner

    def as_kind_of(self, x: Any, value: Any) -> Any:
        dtype_of = ATTRIBUTES["dtype"]
        kind = dtype_of(x)
        if (value.value is None and kind in HALF) or dtype_of(value) == kind:
            return value
        return HANDLERS["to"](value, kind)

    def least(self, x: Any) -> float:
        return max(torch.finfo(ATTRIBUTES["dtype"](x)).min, super().least(x))

    def meeting(self, kind: Any, other: Any) -> str:
        given = torch.empty(1, dtype=other) if isinstance(other, torch.dtype) else other
        return str(torch.result_type(torch.empty(1, dtype=kind), given)).removeprefix("torch.")

    def as_type(self, x: Any, kind: str) -> Any:
        dtype = getattr(torch, kind)
        if (types := getattr(x.edge.entry, "types", None)) is None:
            return with_value(x.to(nominal(dtype)), lambda value: value.to(dtype))
        made = x._operate("cast", {"to": nominal(dtype).name})
        types |= {} if kind == made.dtype.name else {made.edge.handle: kind}
        return made

    def constant(self, tensor: Any) -> Constant:
        return Constant(tensor, current().arrays)

    def records(self, entry: Any) -> bool:
        return torch.is_grad_enabled() and hasattr(entry, "keeps_tape")

    def without_values(self, x: ShapeOf) -> torch.Tensor:
        out = torch.empty(x.shape, dtype=x.dtype, device="meta").as_subclass(_Shaped)
        out.stands = x.device
        return out

    def share(self, out: Any, args: Sequence[Any]) -> bool:
        own = out.untyped_storage().data_ptr()
        return any(isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() == own for x in flat(args))

    def as_terms(self, x: Any) -> Any:
        return x

    def key(self, tensor: torch.Tensor, by_identity: list[Any]) -> Any:
        """Return a key of what a tensor holds; of a great one on another device, of which it is."""
        kind = tuple(tensor.shape), tensor.dtype, tensor.device
        if tensor.nbytes <= FEW_BYTES or tensor.is_inference():
            return *kind, sha1(bytes_of(tensor)).digest()
        base = tensor if tensor._base is None else tensor._base  # of what a forward cuts anew in each call
        which = *kind, id(base), base._version, tensor.data_ptr(), tensor.stride()
        if tensor.device.type != "cpu":
            by_identity.append(base)
            return which
        known = current().sums.get(which)  # each is looked at once in a call
        if known is None or known[0]() is not base:
            known = current().sums[which] = ref(base), checksum(bytes_of(tensor))
        return *kind, known[1]

    def content(self, tensor: torch.Tensor) -> Any:
        learned = tensor.requires_grad and torch.is_grad_enabled()
        if learned or tensor.layout != torch.strided or (tensor.is_inference() and tensor.nbytes > FEW_BYTES):
            raise Unknown
        by_identity: list[torch.Tensor] = []
        return *self.key(tensor, by_identity), *map(WeakIdRef, by_identity)

    def bias(self, found: Recognised, steps: Sequence[Any], keys: Any) -> Constant:
        """Return what is added to scores by distance, with the gradient that it has."""
        forward = current()
        if found.cells is None or not self.records(keys.shape[2].edge.entry):
            like = torch.get_default_dtype() if keys.value is None else keys.value.dtype
            bias = noted(torch.as_tensor, found.bias, dtype=like, device=forward.device)
            return Constant(bias, forward.arrays)
        with without_functions():
            return Constant(terms_by_distance(found, steps, keys).to(keys.value), forward.arrays)

    def table(self, make: Callable[[], Any], found: Any, keys: Any) -> Constant:
        forward = current()
        like = torch.get_default_dtype() if keys.value is None else keys.value.dtype
        if torch.is_grad_enabled():
            with without_functions():
                found = make()
        return Constant(same(found.to(forward.device, like)), forward.arrays)

    # ------------------------------------------------------------------ what is deferred
    def of_every_stream(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        out = super().of_every_stream(func, args, kwargs)
        for x in _tensors((args, kwargs)):
            looked_at(x)
        for x in _tensors(out):
            same(x)
        return out

    def function(self, name: str) -> Any:
        places = (torch.Tensor, torch.nn.functional, torch)
        return next((getattr(place, name) for place in places if hasattr(place, name)), None)

    def defer(self, func: Callable[..., Any], *arguments: Any) -> Any:
        args, kwargs = map(plain, arguments)
        if lifts((args, kwargs)):
            return self.of_every_stream(func, args, kwargs)
        args, kwargs = settled(self, func, *plain_beside(*arguments))
        if func.__name__ in ("to", "type_as"):
            args = tuple(torch.float32 if _streams((a,)) else a for a in args)
            func = torch.Tensor.to
        found = looked_up(func, args, kwargs)
        if found is not None:
            return found
        given, named = plain(args), plain(kwargs)
        if _streams((given, named)):
            name, of_native = names.meaning_of(func).name, names.spelled(named)
            picks = name in positions.PICKING
            if picks and (moved := positions.index_frames(given[0], name, *given[1:], **of_native)) is not None:
                return moved
            out = table_product(func.__name__, given, lambda: met(func, given, named))
            return met(func, args, kwargs) if out is None else out
        return self.deferred(func, given, named)

    def met(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return met(func, tuple(args), dict(kwargs))

    def defer_method(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        forward = current()
        given = [a if has_formula(a) else forward.unwrap(a) for a in args]
        return forward._wrapped(super().defer_method(name, given, kwargs))

    def defer_call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return current()._wrapped(super().defer_call(func, args, kwargs))

    def of_lengths(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of torch on lengths."""
        owner, *rest = args = args or (kwargs.pop("input"),)
        forward = current()
        table = is_constant(owner) and owner.ndim > 1
        several = isinstance(owner, (str, list, tuple)) or (isinstance(owner, torch.Tensor) and owner.numel() != 1)
        if table or several or self.learns(owner, forward.entry):
            return forward._defer(func, names.meaning_of(func), None, args, kwargs)
        owner = Symbolic(owner, (), owner.over) if isinstance(owner, Quotient) else owner
        if not has_formula(owner):
            length = next(x.length for x in leaves((args, kwargs)) if has_formula(x))
            number, kind = (owner.item(), owner.dtype) if isinstance(owner, torch.Tensor) else (owner, None)
            owner = Symbolic(number, (), length).to(kind)
        method = getattr(owner, name, None)
        given = {k: v for k, v in kwargs.items() if k not in names.IGNORED and v is not None}
        out = NotImplemented if method is None else method(*rest, **given)
        if out is NotImplemented:
            return forward._defer(func, names.meaning_of(func), None, args, kwargs)
        return out.item() if isinstance(args[0], Quotient) and name not in ("tensor", "as_tensor") else out

    def beside_frames(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a function's operands with streams in place of what is computed of positions, beside frames."""
        inner = [*map(inner_of, args)]
        kinds = {*map(type, inner)}
        if Deferred not in kinds or StreamTensor not in kinds or kinds - {Deferred, StreamTensor, type(None)}:
            return args
        frames = [x for x in inner if type(x) is StreamTensor]
        deferred = [type(x) is Deferred and not x.is_constant for x in inner]
        if any(vars(x).get("_view") is not None and x._waiting for x in frames):
            return args
        if any(at and sum(isinstance(s, Length) for s in x.shape) != 1 for x, at in zip(inner, deferred)):
            return args
        real = _number_type([x.dtype for x in frames])
        return tuple([_of_frames(x, real) if at else a for a, x, at in zip(args, inner, deferred)])

    def take(self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function on deferred values, or on lengths that it makes a tensor of; else NotImplemented."""
        kinds = {Scores if issubclass(kind, Scores) else kind for kind in map(type, flat((*args, kwargs)))}
        alone = name == "einsum" and kinds & {Deferred, Symbolic} and Scores not in kinds
        if name == "new_tensor" and len(args) > 1 and isinstance(args[1], Deferred):
            return args[1] if "dtype" not in kwargs else args[1].to(kwargs["dtype"])
        if name in _OURS and not alone:
            return NotImplemented
        if name in names.WRITERS and args and isinstance(args[0], Deferred) and _streams((args, kwargs)):
            raise NotStreamableError.here("frames' values are written into positions,", f"; {SERVES}")
        if len(args) > 1 and isinstance(args[0], Deferred) and number_in(args[1]):
            return args[0].as_stream()[args[1]]
        if args and isinstance(args[0], Deferred) and name in _READ:
            return getattr(args[0], name)(*args[1:], **kwargs)
        if name == "cat" and kinds & {Scores, Empty}:
            return creation.cat(*args, **{names.SPELLINGS.get(k, k): v for k, v in kwargs.items()})
        if Empty in kinds:
            empty = next(x for x in flat((args, kwargs)) if isinstance(x, Empty))
            if args[0] is not empty:
                empty._misuse(f"given to {name}")
            return getattr(empty, name)(*args[1:], **kwargs)
        if Scores in kinds and not name.startswith("new_") and not name.endswith("_like"):
            return _on_scores(name, args, kwargs)
        if OverKeys in kinds:
            return getattr(args[0], name)(*args[1:], **kwargs)
        if Deferred in kinds and name in _NUMBERS:
            raise NotStreamableError.here(f"positions are made numbers by {name}", f"; {SERVES}")
        return self.defer(func, args, kwargs) if kinds & {Deferred, Symbolic} else NotImplemented

    def cut(self, table: torch.Tensor, index: Any) -> Any:
        """Return a table cut to a stream's length along two dimensions, or one of complex numbers."""
        cut = cut_complex(table, index) if table.is_complex() else None
        return cut or Deferred(self, torch.Tensor.__getitem__, (table, index), {})

    def stream_of(self, x: Deferred) -> Any:
        return current().unwrap(streamed_of(x))

    def output_of(self, x: Deferred) -> NoReturn:
        raise NotStreamableError.here(f"{x!r} are returned,", f"; {SERVES}")


def _streams(tree: Any) -> bool:
    return any(getattr(x, "is_stream", False) and not isinstance(x, Deferred) for x in flat(tree))


#: What has a handler that takes deferred values.
_OURS = ("scaled_dot_product_attention", "multi_head_attention_forward", "einsum", "baddbmm")
#: What is read of a deferred value.
_READ = (
    "__bool__", "__int__", "__float__", "index_add", "item", "size", "dim", "stride", "as_strided",
    "is_floating_point", "is_complex",
)  # fmt: skip
_NUMBERS = ("__index__", "__len__", "__iter__", "tolist", "numpy", "__array__")


def _on_scores(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(args[0], Scores):
        return getattr(args[0], "assigned" if name == "__setitem__" else name)(*args[1:], **kwargs)
    if name == "where_function" and isinstance(args[1], Scores):
        return args[1].filled_where(args[0], args[2])
    if name == "where_function":
        return args[2].masked_fill(args[0], args[1])
    if name in ("add", "__add__", "mul", "__mul__"):
        return getattr(args[1], name)(args[0], **kwargs)
    if name in ("matmul", "__matmul__", "bmm"):
        return args[1].__rmatmul__(args[0])
    if name in ("view_as", "reshape_as", "expand_as"):
        return args[0].reshape(*args[1].shape)
    raise NotStreamableError.here(f"{name} of scores of attention")


def plain(x: Any) -> Any:
    """Return arguments with torch's tensors in place of constants."""
    return map_leaves(x, lambda a: a.torch if isinstance(a, Constant) else a)


def _tensors(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in a tree, those of constants of the batch among them."""
    found = [x.args[0] if is_constant(x) else x for x in leaves(plain(tree))]
    return [x for x in found if isinstance(x, torch.Tensor)]


# ---------------------------------------------------------------------- functions of the position alone
def met(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function of positions and a stream: each frame meets what is computed of its position."""
    forward, name = current(), names.meaning_of(func).name
    types = [x.dtype for x in leaves((args, kwargs)) if getattr(x, "is_stream", False) and not is_deferred(x)]
    real = _number_type(types)

    def own(x: Any) -> Any:
        return forward.unwrap(_of_frames(x, real)) if is_deferred(x) else x

    return typed(partial(forward._run, func, name), name, map_leaves(args, own), map_leaves(kwargs, own))


def _of_frames(x: Any, real: torch.dtype | None) -> torch.Tensor:
    """Return what frames meet of a deferred value: the number that it is everywhere, or the stream that it is."""
    alike = None if has_formula(x) else _everywhere(x)
    return streamed_of(x, real) if alike is None else same(alike.to(x.dtype).to(current().device))


def _everywhere(x: Deferred) -> torch.Tensor | None:
    """Return the number that a deferred value is at every length, with its features and its gradient, or None."""
    if not (TORCH.records(current().entry) and x.learned()):
        alike = x.everywhere()
        if alike is None:
            return None
        found = torch.tensor(alike)
    elif any(x.varied(low).everywhere() is None for low in LOWEST):
        return None
    else:
        with without_functions():
            found = x.at(lambda length: count_of(length, 1)).flatten()[0]
    features = [n if isinstance(n, int) else 1 for n in x.shape]
    return found.expand(features) if any(n != 1 for n in features) else found


#: Types of numbers in the order in which integers of positions take those that they meet.
_REAL = {np.dtype(str(t).removeprefix("torch.")): t for t in (torch.float64, torch.float32, torch.int64)}
#: Types that integers of positions have.
_INTEGERS = (torch.int64, torch.int32, torch.int16)


def _number_type(types: Sequence[Any]) -> torch.dtype | None:
    """Return the type that integers of positions take beside frames of these."""
    return next((t for own, t in _REAL.items() if own in types), None)


def streamed_of(x: Any, wanted: torch.dtype | None = None) -> Any:
    """Return what is computed of positions as the stream that it is: torch's functions of that of the positions.

    Integers become numbers of the type `wanted`, float32 without it; other numbers do if it is wider.
    """
    wanted = None if wanted == torch.int64 and x.dtype not in _INTEGERS else wanted
    known, key = x.__dict__.setdefault("_streams", {}), (current().entry, wanted)
    if key not in known:
        known[key] = _streamed_anew(x, wanted)
        converted(x, wanted, known[key])  # what asks for it later finds it, and runs no operator
    return known[key]


def _streamed_anew(x: Any, wanted: torch.dtype | None) -> Any:
    forward = current()
    if isinstance(x, Deferred) and x.func is torch.nn.functional.one_hot and is_deferred(x.args[0]):
        places = streamed_of(x.args[0], torch.int64)
        return torch.nn.functional.one_hot(places, *x.args[1:], **x.kwargs).to(wanted or torch.float32)
    if is_filled(x):
        return forward._wrapped(x.as_stream())
    if has_formula(x):
        kind = wanted or torch.float32
        to = str(torch.float32 if kind in HALF else kind).removeprefix("torch.")
        return forward._wrapped(x.stream(to)).to(kind)
    in_integers = x.dtype in _INTEGERS and not positions.of_masks(x)
    if sum(isinstance(s, Length) for s in x.shape) != 1:
        raise NotStreamableError.here(f"{x.func.__name__} of positions and a stream,", f"; {SERVES_FRAMES}")
    func, name = x.func, x.func.__name__.strip("_")
    real = torch.int64 if in_integers else recalled(x, "computed in", lambda: _computed_in(x, name))

    def own(a: Any) -> Any:
        a = positions.number_of_all(a)
        if is_deferred(a):
            return streamed_of(a, real)
        if isinstance(a, torch.Tensor) and a.dtype in _INTEGERS:
            return noted(torch.Tensor.to, a, real)
        return a

    args = map_leaves(x.args, own)
    kwargs = {k: map_leaves(v, own) for k, v in x.kwargs.items() if k not in ("device", "dtype")}
    if name in _TYPES:
        out = args[0].to(x.dtype)
    else:
        func, args = without_sums(func, name, positions.lined_up(func, args))
        out = func(*args, **kwargs) if hasattr(func, "__wrapped__") else forward.call(func, args, kwargs)
        if out is NotImplemented:
            edge = next(a._inner.edge for a in leaves((args, kwargs)) if hasattr(a, "_inner"))
            require_waiting(f"{name}: positions meet a length,", edge)
            raise positions.unknown(x)
    if in_integers:
        return out.to(wanted or torch.float32)
    return out.to(wanted) if (x.dtype, wanted) == (torch.float32, torch.float64) else out


def _computed_in(x: Deferred, name: str) -> torch.dtype:
    """Return the type in which a function of positions is computed as a stream."""
    if name in ("embedding", "index_select", "gather"):
        raise NotStreamableError.here(f"{name}: rows of a table are read in turn, one for each frame")
    given = [*map(positions.number_of_all, leaves((x.args, x.kwargs)))]
    if not any(map(is_deferred, given)):
        raise positions.unknown(x)
    types = [a.dtype for a in (x, *given) if is_deferred(a) or isinstance(a, torch.Tensor)]
    compares = x.dtype == torch.bool and any(t in _INTEGERS for t in types)
    return next((t for t in types if t.is_floating_point), torch.int64 if compares else torch.float32)


_TYPES = ("to", "type", "float", "double", "half", "bfloat16", "long", "int", "bool", "type_as")


# ---------------------------------------------------------------------- tables
def looked_up(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the rows of a table for positions in turn, the table cut to the stream's length; None otherwise."""
    dim: Any = 0
    if func is torch.nn.functional.embedding:
        at, weight = args[0], _learned(args[1] if len(args) > 1 else kwargs["weight"], kwargs)
        require_as_it_is(kwargs.get("max_norm"))
    elif args and (name := names.meaning_of(func).name) in positions.PICKING:
        weight, (dim, at) = args[0], positions.indexed(args[0], name, *args[1:], **names.spelled(kwargs))
        if dim is None or name in ("gather", "take_along_dim"):
            return None if dim is None else _gathered(weight, dim, at)
    else:
        return None
    cut = not is_deferred(weight) and dim == 0 and getattr(weight, "dims", ("",))[0] == "L"  # and all its rows
    if not is_deferred(at) or not (cut or isinstance(weight, (torch.Tensor, Constant))):
        return None
    found = positions.first_row(at)
    if found is None:
        return None if cut or dim else _rows_at(weight, at)
    start, length, axes, axis = found
    if cut and start == 0:
        weight.require_length(length)
        for i in range(axes):
            weight = weight if i == axis else weight.unsqueeze(i)
        return weight
    table = weight if isinstance(weight, Constant) else Constant(weight, current().arrays)
    dim %= table.ndim
    table = table.narrow(dim, start, table.shape[dim] - start)
    for i in range(axes):
        table = table if i == axis else table.unsqueeze(dim + i)
    return _apart(table[(slice(None),) * (dim + axis) + (slice(None, length),)])


def _rows_at(table: Any, at: Any) -> Any:
    """Return the rows of a table at integers that are computed of one position each; None for others."""
    if not recalled(at, "of each", lambda: positions.is_of_each(at)):
        return None
    places, table = streamed_of(at, torch.int64), getattr(table, "torch", table)
    if table.ndim == 1:
        return torch.nn.functional.embedding(places, table.unsqueeze(1)).squeeze(-1)
    return torch.nn.functional.embedding(places, table)


def _learned(weight: Any, options: dict[str, Any]) -> Any:
    """Return a table whose row for padding, if an embedding has one, gets no gradient."""
    row, table = options.get("padding_idx"), getattr(weight, "torch", weight)
    if row is None or not isinstance(table, torch.Tensor) or not table.requires_grad:
        return weight
    row %= len(table)
    return torch.cat([table[:row], table[row : row + 1].detach(), table[row + 1 :]])


def _apart(rows: Any) -> Any:
    """Return rows of a table as what torch gives, which shares nothing with it."""
    return copied(rows) if isinstance(rows, StreamTensor) else rows


def _gathered(input: Any, dim: int, index: Any) -> Any:
    """Return a table cut to the stream's length along an axis, where the index says so; None otherwise."""
    table = of_all(input)
    if not is_deferred(index) or not isinstance(table, Constant) or table.ndim != len(index.shape):
        return None
    axis, length = dim % table.ndim, index.shape[dim]
    sizes = [1 if i == axis or isinstance(n, BatchSize) else n for i, n in enumerate(index.shape)]
    if not isinstance(length, Length) or any(
        n not in (1, m) for i, (n, m) in enumerate(zip(sizes, table.shape)) if i != axis
    ):
        return None
    found = positions.first_row(index, repeated=True)
    if found is None:
        return None
    kept = tuple(slice(None if i == axis else n) for i, n in enumerate(sizes))
    return _apart(table[kept][(slice(None),) * axis + (slice(found[0], length + found[0]),)])


#: torch in the place of NumPy.
TORCH = TorchLibrary()


@names.function("eye")
def eye(*sizes: Any, device: Any = None, **options: Any) -> Any:
    return Deferred(TORCH, torch.eye, sizes, options)
