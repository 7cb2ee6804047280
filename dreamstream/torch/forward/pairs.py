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
from .complex_pair import Complex
from .constants import Constant
from .mode import current
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
    found = _looked_up(func, args, kwargs)
    if found is not None:
        return found
    given = tuple(map(_torch, args))
    named = {k: _torch(a) for k, a in kwargs.items()}
    if any(getattr(x, "is_stream", False) and not isinstance(x, Pairs) for x in _flat((*given, named))):
        return _met(func, args, kwargs)
    return Pairs(func, given, named)


def _torch(x: Any) -> Any:
    """Return constants, in lists too, as torch's tensors."""
    if isinstance(x, (list, tuple)):
        return type(x)(map(_torch, x)) if type(x) in (list, tuple) else x
    return x.torch if isinstance(x, Constant) else x


# ---------------------------------------------------------------------- functions of the position alone
def _met(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function of positions and a stream: each frame meets what is computed of its position."""
    forward = current()
    types = [x.dtype for x in _flat((args, kwargs)) if getattr(x, "is_stream", False) and not isinstance(x, Pairs)]
    real = next((_REAL[str(t)] for t in types if str(t) in _REAL), None)

    def own(x: Any) -> Any:
        if isinstance(x, (Pairs, Symbolic)):
            return forward.unwrap(_streamed(x, real))
        return type(x)(map(own, x)) if type(x) in (list, tuple) else x

    given, named = tuple(map(own, args)), {k: own(v) for k, v in kwargs.items()}
    return forward._run(func, names.meaning_of(func).name, given, named)


_REAL = {"float32": torch.float32, "float64": torch.float64}
#: Types that integers of positions have.
_INTEGERS = (torch.int64, torch.int32, torch.int16)


def _streamed(x: Pairs | Symbolic, wanted: torch.dtype | None = None) -> Any:
    """Return what is computed of positions as the stream that it is: torch's functions of that of the positions.

    Integers become numbers of the type `wanted`, float32 without it; other numbers do if it is wider.
    """
    forward = current()
    if x.dtype in _INTEGERS or isinstance(x, Symbolic):
        leaf, steps = _counted(x)
        places = Symbolic(leaf.value, ["L" if isinstance(s, Length) else 1 for s in x.shape], leaf.length, True)
        name = str(wanted or torch.float32).rpartition(".")[2]
        return forward._wrapped(
            places.stream(name, steps).expand(*(s if isinstance(s, int) else -1 for s in x.shape))
        )
    if sum(isinstance(s, Length) for s in x.shape) != 1:
        raise NotStreamableError(f"{x.func.__name__} of positions and a stream, at {user_line()}; {SERVES}")
    func, name = x.func, x.func.__name__.strip("_")
    if name in ("embedding", "index_select", "gather"):
        raise NotStreamableError(f"{name} at {user_line()}: rows of a table are read in turn, one for each frame")
    given = [*_flat((x.args, x.kwargs))]
    types = [a.dtype for a in given if isinstance(a, (Pairs, Symbolic, torch.Tensor))]
    real = x.dtype if x.dtype.is_floating_point else next((t for t in types if t.is_floating_point), torch.float32)

    def own(a: Any) -> Any:
        if isinstance(a, (Pairs, Symbolic)):
            return _streamed(a, real)
        if isinstance(a, torch.Tensor) and a.dtype in _INTEGERS:
            return a.to(real)
        return type(a)(map(own, a)) if type(a) in (list, tuple) else a

    args, kwargs = (
        tuple(map(own, x.args)),
        {k: own(v) for k, v in x.kwargs.items() if k not in ("device", "dtype")},
    )
    if name in _TYPES:
        out = args[0].to(x.dtype)
    else:
        func, args = _without_sums(func, name, args)
        out = forward.call(func, args, kwargs)
    return out.to(wanted) if (x.dtype, wanted) == (torch.float32, torch.float64) else out


def _counted(x: Any) -> tuple[Symbolic, list[int]]:
    """Return the positions, and the steps that make integers of them, in the operator's codes."""
    if isinstance(x, Symbolic) and x.position and isinstance(x.value, (int, float)):
        return x, []
    if isinstance(x, Pairs):
        name, first = x.func.__name__.strip("_"), x.args[0]
        by = x.args[1] if len(x.args) > 1 else x.kwargs.get("other")
        if isinstance(by, torch.Tensor) and by.numel() == 1 and by.dtype in _INTEGERS:
            by = int(by)
        if name in _SHAPES:
            return _counted(first)
        if isinstance(by, int) and isinstance(first, (Pairs, Symbolic)):
            leaf, steps = _counted(first)
            floored = name == "div" and x.kwargs.get("rounding_mode") == "floor"
            code = 2 if floored else _CODES.get(name)
            if code is not None and (code < 2 or by >= 1) and not (x.kwargs.keys() & {"alpha"}):
                return leaf, [*steps, code, -by if name == "sub" else by]
        if name in ("add", "radd", "mul", "rmul") and isinstance(first, int):
            leaf, steps = _counted(by)
            return leaf, [*steps, _CODES[name], first]
    raise NotStreamableError(
        f"{x!r} meet a stream, at {user_line()}: integers that are no sum, product, quotient or "
        f"rest of one position; {SERVES}"
    )


_CODES = {
    "add": 0,
    "radd": 0,
    "sub": 0,
    "mul": 1,
    "rmul": 1,
    "floordiv": 2,
    "floor_divide": 2,
    "mod": 3,
    "remainder": 3,
}
_SHAPES = (
    "to", "long", "int", "type", "type_as", "unsqueeze", "squeeze", "view", "reshape", "expand", "expand_as",
    "repeat", "getitem", "contiguous", "clone", "detach",
)  # fmt: skip


_TYPES = ("to", "type", "float", "double", "half", "bfloat16", "long", "int", "bool", "type_as")


def _without_sums(func: Callable[..., Any], name: str, args: tuple[Any, ...]) -> tuple[Callable[..., Any], Any]:
    """Return products of matrices that add nothing up as products of elements."""
    if name in ("outer", "ger"):
        return torch.mul, (args[0].unsqueeze(1), args[1].unsqueeze(0))
    if name in ("matmul", "bmm", "mm", "rmatmul"):
        a, b = args[::-1] if name == "rmatmul" else args
        if 1 in [s for s in (a.shape[-1], b.shape[-2]) if isinstance(s, int)]:
            return torch.mul, (a, b)
    if name == "einsum" and len(args) == 3:
        inputs, _, made = args[0].replace(" ", "").partition("->")
        if inputs.count("...") == 1:
            own = next(i for i, part in enumerate(inputs.split(",")) if "..." in part)
            more = "ABCDEFGH"[: args[1 + own].ndim - len(inputs.split(",")[own]) + 3]
            inputs, made = inputs.replace("...", more), made.replace("...", more)
        letters = inputs.split(",")
        if {*made} == {*letters[0], *letters[1]}:
            return torch.mul, tuple(_spread(x, own, made) for x, own in zip(args[1:], letters))
    return func, args


def _spread(x: Any, own: str, made: str) -> Any:
    """Return a tensor with the dimensions `own` so that it broadcasts to `made`."""
    x = x.permute(*(own.index(c) for c in made if c in own))
    for i, c in enumerate(made):
        x = x if c in own else x.unsqueeze(i)
    return x


# ---------------------------------------------------------------------- tables
def _looked_up(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the rows of a table for positions in turn, the table cut to the stream's length; None otherwise."""
    if func is torch.nn.functional.embedding:
        at, weight = args[0], args[1] if len(args) > 1 else kwargs["weight"]
    elif func in (torch.index_select, torch.Tensor.index_select) and args[1:2] == (0,):
        weight, at = args[0], args[2] if len(args) > 2 else kwargs["index"]
    elif func is torch.Tensor.__getitem__ and isinstance(args[1], (Pairs, Symbolic)):
        weight, at = args
    else:
        return None
    cut = not isinstance(weight, Pairs) and getattr(weight, "dims", ("",))[0] == "L"  # all of its rows, then
    if not isinstance(at, (Pairs, Symbolic)) or not (cut or isinstance(weight, (torch.Tensor, Constant))):
        return None
    found = _first_row(at)
    if found is None:
        return None
    start, length, axes, axis = found
    if cut and start == 0:
        weight.require_length(length)
        for i in range(axes):
            weight = weight if i == axis else weight.unsqueeze(i)
        return weight
    table = weight if isinstance(weight, Constant) else Constant(weight, current().arrays)
    table = table[start:]
    for i in range(axes):
        table = table if i == axis else table.unsqueeze(i)
    return table[tuple([slice(None)] * axis + [slice(None, length)])]


def _first_row(at: Pairs | Symbolic) -> tuple[int, Length, int, int] | None:
    """Return the first of positions in turn, their length, how many axes there are and which theirs is."""
    shape = at.shape
    places = [i for i, s in enumerate(shape) if isinstance(s, Length)]
    if len(places) != 1 or any(isinstance(s, int) and s != 1 for s in shape) or at.dtype not in _INTEGERS:
        return None
    start, length = at.value if isinstance(at, Symbolic) else 0, shape[places[0]]
    if isinstance(at, Pairs):
        for n in (64, at.frames + 1):
            rows = at._probe(n).flatten()
            start = int(rows[0])
            if not torch.equal(rows, torch.arange(start, start + len(rows))):
                return None
    elif not at.position:
        return None
    return (start, length, len(shape), places[0]) if isinstance(start, int) and start >= 0 else None


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
    parts = index if isinstance(index, tuple) else (index,)
    if sum(isinstance(p, slice) and isinstance(p.stop, Length) for p in parts) > 1:
        return Pairs(torch.Tensor.__getitem__, (table, index), {})
    arrays = current().arrays
    return Complex(*(Constant(part.contiguous(), arrays)[index] for part in (table.real, table.imag)))


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
