"""What a torch function does is noted while it runs: operators, what becomes of plain tensors, what is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np
import torch

from ...array.deferred import Deferred
from ...array.loop_body import Body
from ...array.scores import Scores
from ...array.stream_tensor import StreamTensor as NativeStream
from ...array.symbolic import Symbolic
from ...stream.context import Context, declared_here
from ...stream.place import Recording
from ...stream.rules import Token
from ...stream.rules.sums import Unknown
from ...stream.tree import leaves, map_leaves
from ..run.kernels import attention
from ..tensor.padding import picking
from ..tensor.stream_tensor import StreamTensor
from .keys import Asked, is_put_off, is_small
from .replay import Place, operation_of
from .results import Results, asking, converting, editing, lending
from .sizes import TensorOfSizes

#: Functions of what a tensor is, whatever it holds.
_OF_KIND = frozenset(("dim", "is_complex", "is_floating_point", "size"))
#: What a recording of the function that runs now notes.
_NOTED: ContextVar[FunctionRecording | None] = ContextVar("dreamstream_noted", default=None)


def noted(function: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> Any:
    """Run a function of torch on plain tensors, of which operators get weights."""
    out = function(*args, **kwargs)
    noted = _NOTED.get()
    if noted is not None and isinstance(out, torch.Tensor) and not (args and out is args[0]):
        noted.steps.append((function, args, kwargs, out))
    return out


def looked_at(tensor: torch.Tensor | None = None) -> None:
    """Say that what runs now depends on the numbers of a plain tensor, or on more than its arguments."""
    noted = _NOTED.get()
    if noted is not None and not (tensor is not None and noted.reads(tensor)):
        noted.forget()


def same(x: torch.Tensor) -> torch.Tensor:
    """Say that a tensor is the same whenever the same is asked for, and return it."""
    noted = _NOTED.get()
    if noted is not None:
        noted.same.append(x)
    return x


def converted(x: Any, wanted: Any, stream: Any) -> None:
    """Say that positions have become a stream, as which they are used in this call from now on."""
    noted, stream._inner.edge.entry.has_converted = _NOTED.get(), True
    if noted is not None:
        noted.converted.append((x, wanted, stream))


def handled() -> None:
    """Say that a function does more than run operators, unless it runs some."""
    noted = _NOTED.get()
    if noted is not None:
        noted.handled = True


def dropping(p: float) -> AbstractContextManager[None]:
    """Let attention that runs meanwhile drop its weights with probability p, of which no operator speaks."""
    if p:
        looked_at()
    return attention.dropping(p)


class FunctionRecording(Recording):
    """A recording that also notes what is made of plain tensors."""

    def __init__(self, asked: Asked, entry: Any) -> None:
        self.entry = entry
        super().__init__(asked.streams, asked.edges)
        self.asked = asked
        #: Each is a function, its args and kwargs, and its result.
        self.steps: list[tuple[Any, tuple[Any, ...], dict[str, Any], torch.Tensor]] = []
        self.same: list[torch.Tensor] = []  #: Those that are the same whenever the same is asked for.
        self.converted: list[tuple[Any, Any, Any]] = []  #: Positions, the dtype, and the stream they have become.
        self.edits: list[tuple[Any, ...]] = []  #: What `edited` was told.
        #: Whether it may do more than run operators where it runs none, as ``requires_grad_`` does.
        self.handled = False
        #: Whether it read small tensors that were given, so that it does the same with the same numbers only.
        self.read = False
        self.asks = False  #: Whether it asked for the context that is declared for attention.
        others = (x for x in asked.tokens if not isinstance(x, Token))
        self._before: list[tuple[Any, type, Any]] = [(x, type(x), vars(x)) for x in others]
        self._asked_before = len(declared_here()[1])
        self._token: Any = None

    def __enter__(self) -> FunctionRecording:
        self._token = _NOTED.set(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _NOTED.reset(self._token)

    def making(self, make: Callable[[Any], Any], weight: Any) -> Any:
        return noted(make, weight)

    def edited(self, *edit: Any) -> None:
        self.edits.append(edit)

    def reads(self, tensor: torch.Tensor) -> bool:
        """Note that the numbers of a tensor were read; say whether they follow from what can be in a key."""
        if is_small(tensor) and any(x is tensor for x in self.asked.tensors):
            self.read = True
            return True
        made = next((step for step in self.steps if step[3] is tensor), None)
        if made is not None:
            return all(self.reads(x) for x in leaves(made[1:3]) if isinstance(x, torch.Tensor))
        return any(x is tensor for x in (*self.same, *_within(self.asked.tokens)))

    def place(self, out: Any) -> Place | None:
        """Return the place whose call gave `out`; None where it can't be repeated."""
        of_lengths = isinstance(out, StreamTensor) and type(out._inner) in (Symbolic, Deferred)
        known = self.asked.streams or of_lengths or getattr(self.asked.key[0], "__name__", "") in _OF_KIND
        made: Any = isinstance(out, StreamTensor) and type(out._inner) is Scores  # of queries and keys
        made = made and all(x is not out._inner for x in self.asked.tokens)
        made = self._operations or made or type(out) is TensorOfSizes
        if not self._whole or ((self.handled or not known) and not made):
            return None
        if any(type(x) is not kind or vars(x) is not held for x, kind, held in self._before):
            return None  # what it was given has become another
        if any(kind is NativeStream and not is_put_off(x) for x, kind, _ in self._before):
            return None  # last frames were computed, of which others have use
        asks = self.asks = len(declared_here()[1]) > self._asked_before
        func = self.asked.key[0]
        if asks and not (type(func) is tuple and isinstance(func[-1], Context)):
            return None  # what it asks for is no part of the key
        try:
            recipe = _Recipe(self.asked, self.steps, self.same, self.entry)
            weights = [recipe.of(each) for each in self._weights]
            operations = tuple(map(operation_of, self._operations, self._sources, weights))
            form = (results := Results(self, out)).form(out)
            lends = [recipe.of([x]) for x in results.lends]
            making = recipe.making([*weights, *lends])
            if lends and (making is None or len(lends) > 1):
                return None
            making = partial(lending, making, results.lent) if lends else making
            for edit in self.edits:
                form = partial(editing, form, *results.edit(out, *edit))
            if self.converted:
                form = partial(converting, form, results.converted(self.converted))
            return Place(operations, making, partial(asking, form) if asks else form, self.asked.by_identity)
        except Unknown:
            return None


def _within(tokens: Iterable[Any]) -> Iterator[Any]:
    """Give what is in deferred values beside others: what tensors among these hold is in their keys."""
    return (x for token in tokens if type(token) is Deferred for _, x in token.leaves())


class _At:
    """In a tree: where something is found in a list."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at


class _Recipe:
    """How the weights of operators come of the tensors that a function was given."""

    def __init__(self, asked: Asked, noted: Sequence[Any], same: Sequence[Any], entry: Any) -> None:
        self.entry = entry
        self._tokens: list[Any] = asked.tokens
        self._held = {id(x) for x in (*asked.by_identity, *same)}
        self._places = {id(x): i for i, x in enumerate(asked.made)}
        self._made = {id(step[3]): step for step in noted}
        self._n = len(asked.made)
        #: Each is a function, its args and kwargs, and whether an `_At` is nested in these. It adds a tensor to a
        #: list that begins with those that the function was given; an `_At` stands for one of that list.
        self.steps: list[Any] = []
        self.fixed = True  #: Whether all weights are the same tensors in every call.

    def of(self, weights: Sequence[Any]) -> Any:
        """Return an operator's weights, with `_At` for those that are made in every call."""
        return tuple(
            [w if w is None else self._array(w) if isinstance(w, np.ndarray) else self._find(w) for w in weights]
        )

    def _array(self, x: Any) -> Any:
        """Return numbers, made of those that were given, as a tensor; what is read of tensors is `looked_at`."""
        if isinstance(self.entry, Body):
            return x  # a loop tells its weights apart by identity, in each call as in the first
        return self.entry.session.constant(x, torch.empty(0, device=self.entry.device))

    def _find(self, x: Any) -> Any:
        key = id(x)
        if key in self._held:
            return x
        if key in self._places:
            self.fixed = False
            return _At(self._places[key])
        if key not in self._made:
            if not any(t is x for t in _within(self._tokens)):
                raise Unknown
            return x.detach().clone()  # whose numbers are in the key
        function, args, kwargs, _ = self._made[key]
        args, kwargs = (map_leaves(tree, self._argument) for tree in (args, kwargs))
        inner = [kwargs, *(x for x in args if isinstance(x, (list, tuple, dict)))]
        nested = any(type(x) is _At for x in leaves(inner))
        self.steps.append((function, args, kwargs, nested))
        self._places[key] = self._n + len(self.steps) - 1
        self.fixed = False
        return _At(self._places[key])

    def making(self, of: Sequence[Any]) -> Callable[[Sequence[torch.Tensor]], list[Any]] | None:
        """Return what makes the weights of operators of the tensors that are given; None where they stay."""
        if self.fixed:
            return None
        constants = [x for items in (*of, *(step[1] for step in self.steps)) for x in items if type(x) is not _At]
        n, left = len(constants), iter(range(len(constants)))

        def pick_of(items: Sequence[Any]) -> Callable[[Sequence[Any]], Sequence[Any]]:
            return picking([n + x.at if type(x) is _At else next(left) for x in items])

        picks = [pick_of(weights) for weights in of]
        steps = [(function, pick_of(args), *rest) for function, args, *rest in self.steps]

        def weights(given: Sequence[torch.Tensor]) -> list[Any]:
            made = [*constants, *given]
            for function, pick, kwargs, nested in steps:
                args = pick(made)
                if nested:
                    args, kwargs = _filled(args, made[n:]), _filled(kwargs, made[n:])
                made.append(function(*args, **kwargs))
            return [pick(made) for pick in picks]

        return weights

    def _argument(self, x: Any) -> Any:
        if isinstance(x, Token) or getattr(x, "is_stream", False):
            raise Unknown
        return self._find(x) if isinstance(x, torch.Tensor) else x


def _filled(tree: Any, found: Sequence[Any]) -> Any:
    """Return a tree with what `_At` stands for."""
    return map_leaves(tree, lambda x: found[x.at] if type(x) is _At else x)
