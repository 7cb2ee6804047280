"""What a forward of torch builds over stream axes: `dreamstream.array.pairs` with torch's functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, wraps
from hashlib import sha1
from typing import Any

import torch

from ...array import creation
from ...array.einsum import noted_product
from ...array.pairs import SERVES, Pairs as NativePairs, flat, to_a_copy
from ...array.score_views import Greatest
from ...array.scores import Scores
from ...array.shape_of import Empty, ShapeOf
from ...array.symbolic import Symbolic
from ...errors import NotStreamableError
from ...operations import RELATIONS
from ...stream.pairs import Recognised
from ...stream.rules import Length
from ...stream.tree import leaves, map_leaves
from ...stream.where import user_line
from ..private import without_functions
from ..run.kernels.attention import dropping
from ..tensor.stream_tensor import TAKERS
from . import names
from .constants import Constant
from .mode import current
from .places import cut_complex, looked_up, met, plain, streamed_of
from .sizes import TorchLength

#: Elements of a tensor that is known by its values; greater ones are known by what they are a view of.
_FEW = 4096


class _Shaped(torch.Tensor):
    """A tensor without values, which says that it is where a stream is."""

    stands: Any = None

    @property
    def device(self) -> Any:  # type: ignore[override]
        return self.stands or super().device


class Pairs(NativePairs):
    """A tensor of torch whose size along some axes is a stream's length."""

    tensor = torch.Tensor

    @staticmethod
    def made(array: Any) -> Any:
        return torch.from_numpy(array)

    @staticmethod
    def shaped(x: ShapeOf) -> torch.Tensor:
        out = torch.empty(x.shape, dtype=x.dtype, device="meta").as_subclass(_Shaped)
        out.stands = x.device
        return out

    def at(self, count: Any) -> Any:
        try:
            out = super().at(count)
        except (RuntimeError, NotImplementedError) as error:
            if "meta" not in str(error):
                raise
            out = None
        if out is None or getattr(out, "is_meta", False):
            ShapeOf((), None, None)._refuse("a value")
        return out

    @staticmethod
    @contextmanager
    def quietly() -> Iterator[None]:
        with torch.no_grad(), without_functions():
            yield

    @classmethod
    def told(cls, x: torch.Tensor, tensors: list[Any]) -> Any:
        with cls.quietly():
            kind = tuple(x.shape), x.dtype, x.device
            if x.is_inference() or (x.numel() <= _FEW and x.device.type == "cpu"):
                return *kind, sha1(
                    x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
                ).digest()
            base = x if x._base is None else x._base  # of what a forward cuts anew in each call
            tensors.append(base)
            return *kind, id(base), x._version, x.storage_offset(), x.stride()

    @staticmethod
    def indexes(func: Callable[..., Any]) -> bool:
        return func is torch.Tensor.__getitem__

    @staticmethod
    def numbers(x: Any) -> Any:
        return x

    def constant(self, found: Recognised, steps: Sequence[Any], keys: Any) -> Constant:
        """Return what is added to scores by distance, with the gradient that it has."""
        forward = current()
        if found.cells is None or keys.value is None or not torch.is_grad_enabled():
            like = torch.get_default_dtype() if keys.value is None else keys.value.dtype
            return Constant(torch.as_tensor(found.bias, dtype=like, device=forward.device), forward.arrays)
        rows, columns = (torch.from_numpy(c) for c in found.cells)
        with without_functions():
            at = self.added(steps, int(max(rows.max(), columns.max())) + 1, keys)
        return Constant((at[:, rows, columns] - at[:, rows, rows]).to(keys.value), forward.arrays)

    def learned(self, make: Callable[[], Any], found: Any, keys: Any) -> Constant:
        forward = current()
        like = torch.get_default_dtype() if keys.value is None else keys.value.dtype
        if torch.is_grad_enabled():
            with without_functions():
                found = make()
        return Constant(found.to(forward.device, like), forward.arrays)

    def as_stream(self) -> Any:
        """Return it as the stream that it is, where only one of its axes is a stream's."""
        return current().unwrap(streamed_of(self))

    @property
    def T(self) -> Pairs:
        return Pairs(torch.Tensor.t, (self,), {})

    @property
    def mT(self) -> Pairs:
        return Pairs(torch.Tensor.transpose, (self, -2, -1), {})

    @property
    def device(self) -> torch.device:
        return current().device

    def is_floating_point(self) -> bool:
        return bool(self.dtype.is_floating_point)

    def shares(self) -> bool:
        """Whether it shares the memory of what it is taken of."""
        if names.writes(self.func.__name__, {}) or self.func.__name__ in names.WRITERS:
            return isinstance(self.args[0], Pairs) and self.args[0].shares()
        with self.quietly():
            args, kwargs = (self._at(x, lambda length: length.apply(64)) for x in (self.args, self.kwargs))
            own = self.func(*args, **kwargs).untyped_storage().data_ptr()
        return any(isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() == own for x in flat(args))


def _noted(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a function of torch gives of pairs and lengths."""
    if func.__name__ in ("to", "type_as"):
        args = tuple(_type_of(a) for a in args)
        func = torch.Tensor.to
    found = looked_up(func, args, kwargs)
    if found is not None:
        return found
    given, named = plain(args), plain(kwargs)
    if any(getattr(x, "is_stream", False) and not isinstance(x, Pairs) for x in flat((given, named))):
        out = noted_product(Pairs, func.__name__, given, lambda: met(func, given, named))
        return met(func, args, kwargs) if out is None else out
    if func.__name__ in _SEVERAL:
        return tuple(Pairs(_part(func, i), given, named) for i in range(_SEVERAL[func.__name__](*given, **named)))
    return Pairs(func, given, named)


def _counted(*tensors: Any, **_: Any) -> int:
    return len(tensors[0]) if isinstance(tensors[0], (list, tuple)) else len(tensors)


#: Functions that give several tensors, and how many.
_SEVERAL: dict[str, Callable[..., int]] = {"meshgrid": _counted, "broadcast_tensors": _counted}


@lru_cache(maxsize=64)
def _part(func: Callable[..., Any], at: int) -> Callable[..., Any]:
    """Return a function that gives one of several."""

    @wraps(func)
    def part(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)[at]

    return part


def _type_of(x: Any) -> Any:
    """Return a stream's type in its place."""
    return torch.float32 if getattr(x, "is_stream", False) and not isinstance(x, Pairs) else x


# ---------------------------------------------------------------------- where they come from
@names.function("eye")
def eye(*sizes: Any, device: Any = None, **options: Any) -> Any:
    return Pairs(torch.eye, sizes, options)


def note(func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function on pairs or scores, and on lengths where it makes a tensor of them; else NotImplemented."""
    kinds = set(map(type, flat((*args, kwargs))))
    alone = name == "einsum" and kinds & {Pairs, Symbolic} and Scores not in kinds
    if name in _OURS and not alone:
        return NotImplemented
    if name in names.WRITERS and args and isinstance(args[0], (Pairs, Symbolic)):
        return _written(func, args, kwargs)
    if (
        args
        and isinstance(args[0], Pairs)
        and name in ("__bool__", "__int__", "__float__", "item", "size", "dim", "is_floating_point", "is_complex")
    ):
        return getattr(args[0], name)(*args[1:], **kwargs)
    if name == "cat" and kinds & {Scores, Empty}:
        return creation.cat(*args, **{names.SPELLINGS.get(k, k): v for k, v in kwargs.items()})
    if Empty in kinds:
        empty = next(x for x in flat((args, kwargs)) if isinstance(x, Empty))
        return getattr(empty, name)(*args[1:], **kwargs) if args[0] is empty else empty._misuse(f"given to {name}")
    if Scores in kinds and not name.startswith("new_") and not name.endswith("_like"):
        return _on_scores(name, args, kwargs)
    if Greatest in kinds:
        return getattr(args[0], name)(*args[1:], **kwargs)
    if Pairs in kinds and name in _NUMBERS:
        raise NotStreamableError(f"positions are made numbers by {name} at {user_line()}; {SERVES}")
    if Pairs in kinds or Symbolic in kinds:
        return _noted(func, args, kwargs)
    return NotImplemented


#: What has a handler that takes pairs and scores.
_OURS = ("scaled_dot_product_attention", "multi_head_attention_forward", "einsum", "baddbmm")
_NUMBERS = ("__index__", "__len__", "__iter__", "tolist", "numpy", "__array__")


def _written(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pairs:
    """Return what pairs are once something was written into them."""
    if any(getattr(x, "is_stream", False) and not isinstance(x, Pairs) for x in flat((args, kwargs))):
        raise NotStreamableError(f"frames' values are written into positions, at {user_line()}; {SERVES}")
    return Pairs(to_a_copy(func), plain(args), plain(kwargs))


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
    raise NotStreamableError(f"{name} of scores of attention, at {user_line()}")


def _cut(table: torch.Tensor, index: Any) -> Any:
    """Return a table cut to a stream's length along two dimensions, or one of complex numbers."""
    cut = cut_complex(table, index) if table.is_complex() else None
    return cut or Pairs(torch.Tensor.__getitem__, (table, index), {})


_COMPARISONS = frozenset(f"__{name}__" for name in RELATIONS)


def _of_symbolic_method(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a method of lengths or positions that says nothing of every frame alike."""
    forward = current()
    owners = (torch.Tensor, torch.nn.functional, torch)
    func = next((getattr(o, name) for o in owners if hasattr(o, name)), None)
    if func is None:
        return NotImplemented
    given = tuple(a if isinstance(a, Symbolic) else forward.unwrap(a) for a in args)
    out = _noted(func, given, kwargs)
    lengths = any(isinstance(a, Symbolic) and not a.position for a in args)
    if (
        isinstance(out, Pairs)
        and name in _COMPARISONS
        and sum(isinstance(s, Length) for s in out.shape) < 2
        and lengths
    ):
        return NotImplemented  # a mask of frames by their number, which is refused
    return forward._wrapped(out)


def _of_call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Note a call of a user's function of lengths."""
    noted = (
        x._inner if isinstance(getattr(x, "_inner", None), (Pairs, Symbolic)) else x
        for x in leaves((args, kwargs))
    )
    given, named = map_leaves((args, kwargs), lambda _: next(noted))
    return current()._wrapped(Pairs.of_call(func, given, named))


names.NOTED.update((Pairs, Scores, Greatest, Empty))
TorchLength.note = staticmethod(_of_symbolic_method)
TorchLength.note_call = staticmethod(_of_call)
TorchLength.noting = Pairs
TAKERS.noted, TAKERS.cut = note, _cut
Scores.dropping = staticmethod(dropping)
