"""What a forward builds over stream axes: positions, masks and terms by position.

``torch.arange(x.size(1))`` is not known while streams are open. What is computed of it is noted, and computed for a
length that shows all of it once attention asks what it says (`dreamstream.stream.pairs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from ...array.scores import Scores
from ...errors import NotStreamableError
from ...stream.pairs import Unrecognised, long_enough
from ...stream.rules import BatchSize, Length
from ...stream.where import user_line
from ..private import without_functions
from ..run.dropping import dropping
from . import constants
from .constants import Constant
from .mode import current
from . import names

__all__ = ["Pairs"]

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

    def __init__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs

    # ------------------------------------------------------------------ at a number of frames
    def at(self, count: Callable[[Length], int]) -> Any:
        """Return the tensor where lengths are what `count` says."""
        return self.func(*(_at(a, count) for a in self.args), **{k: _at(v, count) for k, v in self.kwargs.items()})

    def values_of(self, n: int, keys: Any) -> Any:
        """Return the values at n frames of the keys' stream."""
        with torch.no_grad(), without_functions():
            return self.at(lambda length: _frames(length, n, keys)).cpu().numpy()

    @property
    def frames(self) -> int:
        """How many frames show all that its numbers say."""
        constants = {c for c in map(abs, self._integers()) if c > 1}
        n = long_enough(constants)
        tables = list(self._tables())
        return min([n, *tables]) if tables else n

    def _integers(self) -> Iterator[int]:
        filling = self.func.__name__ in ("full", "masked_fill", "masked_fill_", "full_like", "new_full")
        for x in _flat((self.args[: 2 if filling else None], {} if filling else self.kwargs)):
            if isinstance(x, Pairs):
                yield from x._integers()
            elif isinstance(x, int) and not isinstance(x, bool):
                yield x

    def _tables(self) -> Iterator[int]:
        """Sizes at which tables end that are cut to the stream's length."""
        for x in _flat((self.args, self.kwargs)):
            if isinstance(x, Pairs):
                yield from x._tables()
        if self.func is torch.Tensor.__getitem__ and isinstance(self.args[0], torch.Tensor):
            index = self.args[1] if isinstance(self.args[1], tuple) else (self.args[1],)
            for axis, part in enumerate(index):
                if isinstance(part, slice) and isinstance(part.stop, Length):
                    yield self.args[0].shape[axis - len(index) if Ellipsis in index else axis]

    def constant(self, values: Any) -> Constant:
        """Return what is added to scores as operators take it."""
        forward = current()
        dtype = torch.get_default_dtype()
        return Constant(torch.as_tensor(np.asarray(values), dtype=dtype, device=forward.device), forward.arrays)

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
    if func is torch.nn.functional.embedding:
        found = _looked_up(args[0], args[1])
        if found is not None:
            return found
    given = tuple(a.torch if isinstance(a, Constant) else a for a in args)
    named = {k: a.torch if isinstance(a, Constant) else a for k, a in kwargs.items()}
    for x in _flat((*given, named)):
        if getattr(x, "is_stream", False) and not isinstance(x, Pairs):
            raise NotStreamableError(f"{func.__name__} of positions and a stream, at {user_line()}; {SERVES}")
    return Pairs(func, given, named)


def _looked_up(at: Any, weight: Any) -> Any:
    """Return the rows of a table for all positions in turn: the table, cut to the stream's length."""
    if not isinstance(at, Pairs) or not isinstance(weight, Constant):
        return None
    probe = at._probe(40)
    if probe.shape not in ((40,), (1, 40)) or not torch.equal(probe.flatten(), torch.arange(40)):
        return None
    length = next(at._lengths())
    return weight[:length] if probe.dim() == 1 else weight.unsqueeze(0)[:, :length]


def _type_of(x: Any) -> Any:
    """Return a stream's type in its place."""
    return torch.float32 if getattr(x, "is_stream", False) and not isinstance(x, Pairs) else x


# ---------------------------------------------------------------------- where they come from
def note(func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function on pairs or scores, and on lengths where it makes a tensor of them; else NotImplemented."""
    if name in ("scaled_dot_product_attention", "einsum"):
        return NotImplemented
    kinds = set(map(type, _flat((*args, kwargs))))
    if args and isinstance(args[0], Pairs) and name in ("__bool__", "size", "dim", "is_floating_point", "is_complex"):
        return getattr(args[0], name)(*args[1:], **kwargs)
    if Scores in kinds:
        return _on_scores(name, args, kwargs)
    if Pairs in kinds or (name in _MAKERS and any(issubclass(k, Length) for k in kinds)):
        return _noted(func, args, kwargs)
    return NotImplemented


_MAKERS = ("arange", "eye", "zeros", "ones", "full", "empty", "tril_indices")


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


names.NOTED.update((Pairs, Scores))
names.set_note(note)
constants.set_pairs(lambda tensor, index: Pairs(torch.Tensor.__getitem__, (tensor, index), {}))
Scores.dropping = staticmethod(dropping)  # type: ignore[assignment]
