"""What a forward builds over stream axes: positions, masks and terms by position.

``torch.arange(x.size(1))`` is not known while streams are open. What is computed of it is noted, and computed for
a length that shows all of it once attention asks what it says (`dreamstream.stream.pairs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn
from weakref import ref

import torch

from ...array.scores import Scores
from ...array.symbolic import Symbolic
from ...errors import NotStreamableError
from ...stream.pairs import LONGEST, MASKED, Recognised, Unrecognised, long_enough, recognised
from ...stream.rules import BatchSize, Length
from ...stream.where import user_line
from ..private import without_functions
from ..run.dropping import dropping
from . import constants, names
from .constants import Constant
from .mode import current
from .places import cut_complex, looked_up, met, plain
from .sizes import TorchLength

__all__ = ["Pairs"]

#: Elements of a tensor whose numbers may be positions.
_FEW = 16

SERVES = "what is computed of positions serves as a mask or a term of attention, and to index tables"


class Pairs:
    """A tensor whose size along some axes is a stream's length.

    Parameters
    ----------
    func : callable
        The function of torch that gives it.
    args, kwargs
        Its arguments; lengths and other pairs stand for what they are at a number of frames.
    """

    is_stream = True
    dims = features = ("pairs",)  # what is written in place stays such

    def __init__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs

    # ------------------------------------------------------------------ at a number of frames
    def at(self, count: Callable[[Length], int]) -> Any:
        """Return the tensor where lengths are what `count` says."""
        return self.func(*(_at(a, count) for a in self.args), **{k: _at(v, count) for k, v in self.kwargs.items()})

    def says(self, steps: Sequence[Any], keys: Any) -> Recognised:
        """Return what steps say of the attention to keys."""
        tensors: list[torch.Tensor] = []
        key = tuple(_key(x, keys, tensors) for x in steps)
        found, held = _SAID.get(key, (None, ()))
        if found is None or any(ref() is not t for ref, t in zip(held, tensors)):
            programs = [x for _, x, _ in steps if isinstance(x, Pairs)]
            most = min((x.ends for x in programs if x.ends is not None), default=LONGEST)
            n = max(x.frames for x in programs)
            with torch.no_grad():
                found = recognised(lambda n: _added(steps, n, keys).cpu().numpy(), min(n, most), most)
            while len(_SAID) >= _REMEMBERED:
                del _SAID[next(iter(_SAID))]
            _SAID[key] = found, tuple(map(ref, tensors))
        return found

    def constant(self, found: Recognised, steps: Sequence[Any], keys: Any) -> Constant:
        """Return what is added to scores by distance, as operators take it, with the gradient that it has."""
        forward = current()
        if found.cells is None or keys.value is None or not torch.is_grad_enabled():
            like = torch.get_default_dtype() if keys.value is None else keys.value.dtype
            return Constant(torch.as_tensor(found.bias, dtype=like, device=forward.device), forward.arrays)
        rows, columns = (torch.from_numpy(c) for c in found.cells)
        at = _added(steps, int(max(rows.max(), columns.max())) + 1, keys)
        return Constant((at[:, rows, columns] - at[:, rows, rows]).to(keys.value), forward.arrays)

    @property
    def frames(self) -> int:
        """How many frames show all that its numbers say."""
        return long_enough({math.ceil(abs(c)) for c in self._numbers() if abs(c) > 1})

    @property
    def ends(self) -> int | None:
        """The frames at which the first table ends that is cut to the stream's length."""
        return min(self._tables(), default=None)

    def _numbers(self) -> Iterator[float]:
        """Numbers that may be positions, or parts of one: all but what scores are filled or scaled with."""
        name = self.func.__name__.strip("_")
        filling = name in ("full", "masked_fill", "full_like", "new_full", "where")
        scaling = filling or name in ("mul", "rmul", "imul", "multiply")
        for x in _flat((*self.args, *self.kwargs.values())):
            found: list[float] = []
            if isinstance(x, Pairs):
                yield from x._numbers()
            elif isinstance(x, Symbolic) and isinstance(x.value, int):
                found = [x.value]
            elif isinstance(x, torch.Tensor) and x.numel() <= _FEW:
                found = [c for c in x.flatten().tolist() if abs(c) > 1]
            elif isinstance(x, (int, float)) and not isinstance(x, bool):
                found = [x]
            for c in found:
                real = isinstance(c, float)
                if not math.isfinite(c) or (real and (filling or c <= MASKED or (scaling and c >= -MASKED))):
                    continue
                yield 1 / c if 0 < abs(c) < 1 else c

    def _tables(self) -> Iterator[int]:
        for x in _flat((self.args, self.kwargs)):
            if isinstance(x, Pairs):
                yield from x._tables()
        if self.func is torch.Tensor.__getitem__ and isinstance(self.args[0], torch.Tensor):
            index = self.args[1] if isinstance(self.args[1], tuple) else (self.args[1],)
            for axis, part in enumerate(index):
                if isinstance(part, slice) and isinstance(part.stop, Length):
                    yield self.args[0].shape[axis - len(index) if Ellipsis in index else axis]

    def as_output(self) -> NoReturn:
        """Refuse to be what a forward returns."""
        raise NotStreamableError(f"{self!r} are returned, at {user_line()}; {SERVES}")

    # ------------------------------------------------------------------ what it looks like
    def _probe(self, n: int) -> torch.Tensor:
        with torch.no_grad(), without_functions():
            out: torch.Tensor = self.at(lambda length: length.apply(n))
            return out

    @property
    def shape(self) -> tuple[Any, ...]:
        length = next(x for x in self._lengths())
        few, more = self._probe(40).shape, self._probe(48).shape
        return tuple(length if (a, b) == (40, 48) else a for a, b in zip(few, more))

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return self._probe(40).dim()

    ndim = property(dim)

    @property
    def dtype(self) -> torch.dtype:
        return self._probe(40).dtype

    @property
    def device(self) -> torch.device:
        return current().device

    requires_grad = property(lambda self: False)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return False

    def _lengths(self) -> Iterator[Length]:
        for x in _flat((self.args, self.kwargs)):
            if isinstance(x, Length):
                yield x
            elif isinstance(x, Symbolic):
                yield x.length
            elif isinstance(x, Pairs):
                yield from x._lengths()

    def __bool__(self) -> bool:
        found = {bool(self._probe(n)) for n in (40, 41, 63, 64, 65)}
        if len(found) > 1:
            raise NotStreamableError(
                f"a comparison of positions at {user_line()} depends on the length of the stream; {SERVES}"
            )
        return found.pop()

    def __repr__(self) -> str:
        return f"<{self.func.__name__} of positions>"


def _flat(tree: Any) -> Iterator[Any]:
    for x in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(x, (list, tuple, dict)):
            yield from _flat(x)
        elif isinstance(x, slice):
            yield from (x.start, x.stop, x.step)
        else:
            yield x


def _at(x: Any, count: Callable[[Length], int]) -> Any:
    if isinstance(x, Pairs):
        return x.at(count)
    if isinstance(x, Symbolic):
        return _of_symbolic(x, count)
    if isinstance(x, Length):
        return count(x)
    if isinstance(x, BatchSize):
        return 1
    if isinstance(x, slice):
        return slice(*(_at(i, count) for i in (x.start, x.stop, x.step)))
    if isinstance(x, (list, tuple)) and not isinstance(x, torch.Size):
        items = [_at(i, count) for i in x]
        return items if isinstance(x, list) else tuple(items)
    return x


def _of_symbolic(x: Symbolic, count: Callable[[Length], int]) -> torch.Tensor:
    """Return lengths and positions at a number of frames, which are those of all streams."""
    n = count(x.length)
    value = count(x.value) if isinstance(x.value, Length) else x.value
    out = torch.full([1 if r == "B" else n if r == "L" else r for r in x.roles], value)
    if x.position:
        at = x.roles.index("L")
        out = out + torch.arange(n).reshape([-1 if i == at else 1 for i in range(len(x.roles))])
    return out


def _added(steps: Sequence[Any], n: int, keys: Any) -> torch.Tensor:
    with without_functions():
        out = torch.zeros(1, n, n)
        for name, x, by in steps:
            if name == "mul":
                out = out * x
                continue
            at = x.at(lambda length: _frames(length, n, keys))
            while at.dim() > 3 and at.shape[0] == 1:
                at = at[0]
            if at.dim() not in (2, 3) or at.shape[-2:] != (n, n):
                raise Unrecognised(f"it has the shape {tuple(at.shape)} at {n} frames")
            at = at if at.dim() == 3 else at[None]
            if name == "add":
                out = out + by * at
            else:
                out = out.masked_fill(at.bool() if name == "fill" else ~at.bool(), by)
        return out


_SAID: dict[Any, tuple[Recognised, tuple[Any, ...]]] = {}
_REMEMBERED = 256


def _key(x: Any, keys: Any, tensors: list[torch.Tensor]) -> Any:
    """Return what is equal of equal programs; tensors go to a list, by whose identities they are told apart."""
    if isinstance(x, Pairs):
        return (x.func, _key(x.args, keys, tensors), _key(tuple(x.kwargs.items()), keys, tensors))
    if isinstance(x, Symbolic):
        return x.roles, x.position, _key(x.length, keys, tensors), _key(x.value, keys, tensors)
    if isinstance(x, Length):
        return tuple(_frames(x, n, keys) for n in (LONGEST, LONGEST + 1))
    if isinstance(x, torch.Tensor):
        tensors.append(x)
        return id(x), x._version
    if isinstance(x, slice):
        return _key((x.start, x.stop, x.step), keys, tensors)
    if isinstance(x, (list, tuple)):
        return tuple(_key(i, keys, tensors) for i in x)
    return type(x), str(x)


def _frames(length: Length, n: int, keys: Any) -> int:
    """Return what a length is where the keys' stream has n frames."""
    if length.of.cid == keys.edge.cid:
        return length.apply(n)
    more = length - type(length)(keys.edge)
    if not isinstance(more, int):
        raise Unrecognised("it is as long as another stream")
    return n + more


def _noted(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a function of torch gives of pairs and lengths."""
    if func.__name__ in ("to", "type_as"):
        args = tuple(_type_of(a) for a in args)
        func = torch.Tensor.to
    found = looked_up(func, args, kwargs)
    if found is not None:
        return found
    given, named = plain(args), plain(kwargs)
    if any(getattr(x, "is_stream", False) and not isinstance(x, Pairs) for x in _flat((given, named))):
        return met(func, args, kwargs)
    return Pairs(func, given, named)


def _type_of(x: Any) -> Any:
    """Return a stream's type in its place."""
    return torch.float32 if getattr(x, "is_stream", False) and not isinstance(x, Pairs) else x


# ---------------------------------------------------------------------- where they come from
def note(func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function on pairs or scores, and on lengths where it makes a tensor of them; else NotImplemented."""
    if name in ("scaled_dot_product_attention", "multi_head_attention_forward"):
        return NotImplemented
    kinds = set(map(type, _flat((*args, kwargs))))
    if name == "einsum" and (Scores in kinds or not kinds & {Pairs, Symbolic}):
        return NotImplemented
    if (
        args
        and isinstance(args[0], Pairs)
        and name in ("__bool__", "size", "dim", "is_floating_point", "is_complex")
    ):
        return getattr(args[0], name)(*args[1:], **kwargs)
    if Scores in kinds:
        return _on_scores(name, args, kwargs)
    if Pairs in kinds and name in _NUMBERS:
        raise NotStreamableError(f"positions are made numbers by {name} at {user_line()}; {SERVES}")
    if Pairs in kinds or Symbolic in kinds or (name in _MAKERS and any(issubclass(k, Length) for k in kinds)):
        return _noted(func, args, kwargs)
    return NotImplemented


_NUMBERS = ("__index__", "__int__", "__float__", "__len__", "__iter__", "item", "tolist", "numpy", "__array__")
_MAKERS = ("arange", "eye")


def _on_scores(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(args[0], Scores):
        return getattr(args[0], name)(*args[1:], **kwargs)
    if name == "where_function" and isinstance(args[1], Scores):
        return args[1].filled_where(args[0], args[2])
    if name == "where_function":
        return args[2].masked_fill(args[0], args[1])
    if name in ("add", "__add__", "mul", "__mul__"):
        return getattr(args[1], name)(args[0], **kwargs)
    raise NotStreamableError(f"{name} of scores of attention, at {user_line()}")


def _cut(table: torch.Tensor, index: Any) -> Any:
    """Return a table cut to a stream's length along two dimensions, or one of complex numbers."""
    return cut_complex(table, index) or Pairs(torch.Tensor.__getitem__, (table, index), {})


_COMPARISONS = frozenset(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge"))


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


names.NOTED.update((Pairs, Scores))
TorchLength.note = staticmethod(_of_symbolic_method)
names.set_note(note)
constants.set_pairs(_cut)
Scores.dropping = staticmethod(dropping)
