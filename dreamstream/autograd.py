"""The tape: what operations did, so that gradients find their way back.

An operation on tensors of which one wants a gradient leaves a `Record`: the records and leaves that its inputs
came from, and a function that makes gradients of its inputs out of those of its outputs. Tensors refer to
records, records to earlier ones and to leaves: a tape is freed with the last tensor that needs it.

`gradients` visits records in the order in which they were made, last first: what reads a value was recorded
after it, so a gradient is whole when its record's turn comes. All that can be refused is refused before the
first visit, and leaves get their gradients after the last: a backward that raises leaves no gradient half done.

Tensors are whatever has `grad_fn`, `requires_grad` and `grad`; gradients on their way are arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ContextDecorator
from contextvars import ContextVar
from typing import Any, ClassVar
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from .errors import DTypeError, ModeError, ShapeError
from .stream.where import refuse_gradient
from .stream.within import within

__all__ = ["enable_grad", "grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled"]

Array = NDArray[Any]
Back = Callable[..., Sequence[Array | None]]
"""Of the outputs' gradients (None: of zeros alone): those of the inputs, None where there is none."""

# ------------------------------------------------------------------ whether operations are recorded
_RECORDING: ContextVar[bool] = ContextVar("RECORDING", default=True)


def is_grad_enabled() -> bool:
    """Return whether operations are recorded for gradients here."""
    return _RECORDING.get()


class _Mode(ContextDecorator):
    """A context, or a decorator of functions, in which operations are recorded or not."""

    _records: ClassVar[bool]

    def __new__(cls, function: Any = None) -> Any:
        return cls()(function) if callable(function) else super().__new__(cls)

    def _recreate_cm(self) -> Any:
        return type(self)()

    def __enter__(self) -> None:
        self._before = _RECORDING.set(self._records)

    def __exit__(self, *_: object) -> None:
        _RECORDING.reset(self._before)


class no_grad(_Mode):
    """A context, or a decorator of functions, in which nothing is recorded for gradients.

    Notes
    -----
    Source: torch.no_grad.

    Examples
    --------
    >>> import dreamstream as ds
    >>> x = ds.tensor([2.0], requires_grad=True)
    >>> with ds.no_grad():
    ...     (x * x).requires_grad
    False
    """

    _records = False


class enable_grad(_Mode):
    """A context, or a decorator of functions, in which operations are recorded, within `no_grad` too.

    Notes
    -----
    Source: torch.enable_grad.
    """

    _records = True


class set_grad_enabled(_Mode):
    """Records operations from now on, or not; as a context until its end.

    Parameters
    ----------
    mode : bool

    Notes
    -----
    Source: torch.set_grad_enabled.
    """

    _records: bool  # type: ignore[misc]

    def __new__(cls, mode: bool) -> Any:
        return object.__new__(cls)

    def __init__(self, mode: bool) -> None:
        self._records = bool(mode)
        self._before = _RECORDING.set(self._records)

    def __enter__(self) -> None:
        """The mode holds since it was set."""

    def _recreate_cm(self) -> Any:
        _RECORDING.reset(self._before)
        return set_grad_enabled(self._records)


class inference_mode(_Mode):
    """`no_grad` under torch's other name.

    Parameters
    ----------
    mode : bool
        False: operations are recorded as they were outside.

    Notes
    -----
    What is computed in it is an ordinary tensor, which may serve in training later. Source: torch.inference_mode.
    """

    _records: bool  # type: ignore[misc]

    def __new__(cls, mode: Any = True) -> Any:
        return cls()(mode) if callable(mode) else object.__new__(cls)

    def __init__(self, mode: Any = True) -> None:
        self._wanted = bool(mode)

    def _recreate_cm(self) -> Any:
        return inference_mode(self._wanted)

    def __enter__(self) -> None:
        self._records = _RECORDING.get() and not self._wanted
        super().__enter__()


# ------------------------------------------------------------------ writing in place
#: How often memory was written into, by the identity of the array that owns it; a reference takes the entry out.
_edits: dict[int, tuple[int, Any]] = {}


def _owner(array: Array) -> Array:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def edits_of(array: Array) -> int:
    """Return how often an array's memory was written into by tensors and optimizers."""
    return _edits.get(id(_owner(array)), (0, None))[0]


def edited(array: Array) -> None:
    """Say that an array's memory was written into."""
    owner = _owner(array)
    key = id(owner)
    n, alive = _edits.get(key, (0, None))
    _edits[key] = n + 1, alive or ref(owner, lambda _: _edits.pop(key, None))


# ------------------------------------------------------------------ records
class Record:
    """What one operation did.

    `parents` are for each input a leaf tensor, or (Record, number of its output), or None where no gradient goes.
    `back` makes gradients of `n_outputs` outputs, or is a text that says why there are none. It reads the arrays
    `reads`, which must not be written into before.
    """

    __slots__ = ("back", "hooks", "kept", "n_outputs", "name", "number", "parents", "reads")

    _count = itertools.count()

    fresh: ClassVar[bool] = False
    """Whether nobody else refers to the arrays that `back` gives."""

    def __init__(
        self, name: str, parents: Sequence[Any], back: Back | str, reads: Iterable[Array] = (), n_outputs: int = 1
    ) -> None:
        self.name = name
        self.n_outputs = n_outputs
        self.parents = tuple(parents)
        self.back: Back | str | None = back
        self.reads = tuple([(a, edits_of(a)) for a in reads])
        self.number = next(self._count)
        self.hooks: dict[int, dict[int, Callable[[Any], Any]]] = {}  #: By output: hooks on its gradient.
        self.kept: dict[int, Any] = {}  #: By output: a reference to the tensor that retains it.

    def __repr__(self) -> str:
        return f"<{self.name} of the tape>"

    def check(self) -> None:
        """Raise ModeError where no gradient can go through it."""
        if self.back is None:
            raise ModeError(
                f"backward: {self.name} was gone through by an earlier backward, which freed what it kept; give "
                "that one retain_graph=True, or make one backward of both"
            )
        if isinstance(self.back, str):
            raise ModeError(f"backward: {self.back}")
        for array, edits in self.reads:
            if self.has_changed(array, edits):
                raise ModeError(
                    f"backward: {self.name} needs {self.called(array)} as it was, but it was written "
                    "into in place after that; use .clone() before the write, or compute a new tensor"
                )

    def has_changed(self, array: Array, edits: int) -> bool:
        """Return whether an array that it reads was written into since, when that had been done so often."""
        return edits_of(array) != edits

    def called(self, array: Array) -> str:
        """Return what an array that it reads is called in messages."""
        return f"a tensor of shape {array.shape}"

    def free(self) -> None:
        self.back, self.parents, self.reads = None, (), ()


#: While operators that are recorded get constants: by the identity of an array it, and the tensor whose it is.
CONSTANTS: ContextVar[dict[int, tuple[Array, Any]] | None] = ContextVar("CONSTANTS", default=None)


def in_training() -> bool:
    """Return whether a call in training runs here, and operations are recorded."""
    return CONSTANTS.get() is not None and is_grad_enabled()


def noting() -> AbstractContextManager[Any]:
    """Keep, within it, which arrays that operators get as constants are whose."""
    return within(CONSTANTS, {})


def of_constant(noted: Mapping[int, tuple[Array, Any]], array: Any) -> Any:
    """Return where the gradient of a constant's array goes."""
    return source(noted.get(id(array), (None, None))[1])


def source(tensor: Any) -> Any:
    """Return where a tensor's gradient goes: (Record, number), the leaf itself, or None."""
    if tensor is None or not tensor.requires_grad:
        return None
    return tensor if tensor.grad_fn is None else (tensor.grad_fn, tensor.output_nr)


def sources(tensors: Sequence[Any]) -> list[Any] | None:
    """Return `source` of each; None where nothing is to be recorded."""
    if not _RECORDING.get():
        return None
    found = [source(t) for t in tensors]
    return found if any(f is not None for f in found) else None


def recorded(record: Record, outputs: Sequence[Any]) -> None:
    """Let tensors of real numbers follow from a record, whose outputs they are."""
    for i, out in enumerate(outputs):
        if out.is_floating_point():
            out.grad_fn, out.output_nr = record, i


def follow(out: Any, place: Any, name: str) -> Any:
    """Let a tensor have the gradient of another place, where there is one, and return it."""
    if place is not None and not isinstance(place, tuple):
        place = Record(name, [place], lambda g: [g]), 0
    if place is not None:
        out.grad_fn, out.output_nr = place
    return out


class _Sums:
    """Gradients on their way: by the number of a record and of its output, or by the identity of a leaf."""

    def __init__(self) -> None:
        self._arrays: dict[Any, Array] = {}
        self._own: set[Any] = set()

    def add(self, key: Any, array: Array, fresh: bool = False) -> None:
        known = self._arrays.get(key)
        if known is None:
            self._arrays[key] = array
            if fresh and isinstance(array, np.ndarray):
                self._own.add(key)
        elif key in self._own:
            known += array
        elif isinstance(known, np.ndarray):
            self._arrays[key] = np.asarray(known + array)
            self._own.add(key)
        else:  # of a stream's state
            self._arrays[key] = known + array

    def set(self, key: Any, array: Array) -> None:
        self._arrays[key] = array
        self._own.discard(key)

    def get(self, key: Any) -> Array | None:
        return self._arrays.get(key)

    def pop(self, key: Any) -> Array | None:
        """Return and forget a gradient."""
        self._own.discard(key)
        return self._arrays.pop(key, None)

    def own(self, key: Any) -> Array | None:
        """Return a gradient that nobody else refers to."""
        array = self._arrays.get(key)
        return array if array is None or key in self._own else array.copy()


def _key(place: Any) -> Any:
    return (place[0].number, place[1]) if isinstance(place, tuple) else id(place)


def gradients(
    roots: Sequence[tuple[Any, Array]], retain_graph: bool, wanted: Sequence[Any] | None = None
) -> list[tuple[Any, Array | None]]:
    """Go back along the tape; return places, each with its gradient or None.

    Each root is a place, which is a leaf or (Record, number), and its gradient. The places are those that are
    `wanted`, or all leaves without it. With `retain_graph` the records can be gone back along again.
    """
    records = _reached(place[0] for place, _ in roots if isinstance(place, tuple))
    asked = {_key(w) for w in wanted or ()}
    if wanted is not None:
        records = _leading_to(records, asked)
    for record in records:
        record.check()
    sums, leaves = _Sums(), {}
    found: dict[Any, Array] = {}

    def give(place: Any, array: Array, fresh: bool = False) -> None:
        key = _key(place)
        if not isinstance(place, tuple):
            leaves[key] = place
        sums.add(key, array, fresh)

    for place, array in roots:
        give(place, array)
    for record in records:  # the latest first
        given = [_heeded(record, o, sums.pop((record.number, o))) for o in range(record.n_outputs)]
        keys = [(record.number, o) for o in range(record.n_outputs)]
        found.update({key: g for key, g in zip(keys, given) if g is not None and key in asked})
        if any(g is not None for g in given):
            assert callable(record.back)
            for place, made in zip(record.parents, record.back(*given)):
                if place is not None and made is not None:
                    give(place, made, record.fresh)
        if not retain_graph:
            record.free()
    for key, leaf in leaves.items():
        for hook in list((leaf._hooks or {}).values()):
            sums.set(key, _hooked(hook, sums.get(key)))
    if wanted is None:
        return [(leaf, sums.own(key)) for key, leaf in leaves.items()]
    return [(w, found.get(_key(w)) if isinstance(w, tuple) else sums.own(_key(w))) for w in wanted]


def _reached(first: Iterable[Record]) -> list[Record]:
    """Return all records that a gradient reaches from these, the latest first."""
    todo, seen = list(first), {}
    while todo:
        record = todo.pop()
        if record.number not in seen:
            seen[record.number] = record
            todo += [p[0] for p in record.parents if isinstance(p, tuple)]
    return [seen[number] for number in sorted(seen, reverse=True)]


def _leading_to(records: Sequence[Record], asked: set[Any]) -> list[Record]:
    """Return those of the records through which a gradient comes to what is asked for."""
    leading: set[int] = {key[0] for key in asked if isinstance(key, tuple)}
    for record in reversed(records):
        places = [p for p in record.parents if p is not None]
        if any(_key(p) in asked or (isinstance(p, tuple) and p[0].number in leading) for p in places):
            leading.add(record.number)
    return [r for r in records if r.number in leading]


_as_tensor: Callable[[Array], Any]


def fill(as_tensor: Callable[[Array], Any]) -> None:
    """Set what makes a tensor of an array: the tensors' room does."""
    global _as_tensor
    _as_tensor = as_tensor


def _heeded(record: Record, output: int, gradient: Array | None) -> Array | None:
    """Show an output's gradient to its hooks, and to the tensor that retains it."""
    if gradient is None:
        return None
    for hook in list(record.hooks.get(output, {}).values()):
        gradient = _hooked(hook, gradient)
    if output in record.kept and (tensor := record.kept[output]()) is not None:
        collect(tensor, gradient.copy())
    return gradient


def _hooked(hook: Callable[[Any], Any], gradient: Any) -> Array:
    with no_grad():
        given = hook(_as_tensor(gradient))
    array = gradient if given is None else np.asarray(given)
    if array.shape != gradient.shape:
        raise ShapeError(f"a hook returned a gradient of shape {array.shape} for one of {gradient.shape}")
    return array.astype(gradient.dtype, copy=False)


def collect(tensor: Any, gradient: Array) -> None:
    """Add a gradient to a tensor's `grad`."""
    known = tensor.grad
    if known is not None:
        gradient = np.asarray((known.value if known.is_stream else known.numpy()) + gradient)
    tensor.grad = tensor.like(gradient) if tensor.is_stream else _as_tensor(gradient)


# ------------------------------------------------------------------ what users call
def _place(name: str, tensor: Any, what: str) -> Any:
    """Return where a tensor's gradient goes, which must be somewhere."""
    refuse_gradient(name, tensor)
    if (place := source(tensor)) is None:
        raise ModeError(f"{name}: {what} requires_grad=True")
    return place


def _root(name: str, tensor: Any, gradient: Any) -> tuple[Any, Array]:
    """Return where to begin, and the gradient there."""
    place = _place(name, tensor, "this tensor does not follow from any with")
    array = tensor.value if tensor.is_stream else tensor.numpy()
    if gradient is None:
        if array.size != 1:
            raise ShapeError(
                f"{name}: a tensor of shape {array.shape} has one gradient per element; reduce it to a number, or "
                "give a gradient of its shape"
            )
        return place, np.ones_like(array)
    given = gradient.value if getattr(gradient, "is_stream", False) else np.asarray(gradient)
    if given.shape != array.shape:
        raise ShapeError(f"{name}: a gradient of shape {given.shape} for a tensor of {array.shape}")
    if given.dtype != array.dtype:
        raise DTypeError(f"{name}: a gradient of {given.dtype} for a tensor of {array.dtype}")
    return place, given


def refuse_create_graph(create_graph: bool) -> None:
    """Raise for gradients of gradients."""
    if create_graph:
        raise ModeError("create_graph=True: gradients of gradients are not recorded; torch has them")


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add the gradients of tensors to the `grad` of the leaves that they follow from.

    Parameters
    ----------
    tensors : Tensor or sequence of Tensor
    grad_tensors : Tensor or sequence of Tensor, optional
        Their own gradients, for those that have more than one element.
    retain_graph : bool, optional
        Whether another backward may go the same way.
    create_graph : bool
        For torch's sake: True raises ModeError.
    inputs : Tensor or sequence of Tensor, optional
        The only ones whose `grad` changes.

    Raises
    ------
    ModeError
        Where nothing is recorded, was freed, or was written into since. No `grad` has changed then.
    ShapeError
        For several elements without a gradient.

    Notes
    -----
    Source: torch.autograd.backward.
    """
    refuse_create_graph(create_graph)
    given = _listed(tensors)
    own = [None] * len(given) if grad_tensors is None else _listed(grad_tensors)
    wanted = None if inputs is None else _listed(inputs)
    roots = [_root("backward", t, g) for t, g in zip(given, own)]
    made = gradients(roots, bool(retain_graph), None if wanted is None else _places("backward", wanted))
    for tensor, (_, gradient) in zip(wanted or [leaf for leaf, _ in made], made):
        if gradient is not None:
            collect(tensor, gradient)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Return the gradients of tensors with respect to others; no `grad` changes.

    Parameters
    ----------
    outputs : Tensor or sequence of Tensor
    inputs : Tensor or sequence of Tensor
        With respect to which, leaves or not.
    grad_outputs : Tensor or sequence of Tensor, optional
        The outputs' own gradients.
    retain_graph : bool, optional
        Whether another backward may go the same way.
    create_graph : bool
        For torch's sake: True raises ModeError.
    allow_unused : bool, optional
        Whether inputs from which the outputs don't follow have None, instead of an error.
    materialize_grads : bool
        Whether these have zeros.

    Returns
    -------
    tuple of Tensor

    Raises
    ------
    ModeError
        As `backward`, and for an input from which the outputs don't follow.

    Notes
    -----
    Source: torch.autograd.grad.

    Examples
    --------
    >>> import dreamstream as ds
    >>> x = ds.tensor([3.0], requires_grad=True)
    >>> ds.autograd.grad(x * x, x)
    (tensor([6.]),)
    """
    refuse_create_graph(create_graph)
    given, wanted = _listed(outputs), _listed(inputs)
    own = [None] * len(given) if grad_outputs is None else _listed(grad_outputs)
    roots = [_root("grad", t, g) for t, g in zip(given, own)]
    made = gradients(roots, bool(retain_graph), _places("grad", wanted))
    if any(g is None for _, g in made) and not (allow_unused or materialize_grads):
        raise ModeError(
            "grad: an output does not follow from one of the inputs; allow_unused=True gives None for it"
        )
    zeros = [np.zeros_like(t.numpy()) if materialize_grads else None for t in wanted]
    found = [z if g is None else g for z, (_, g) in zip(zeros, made)]
    return tuple(None if g is None else _as_tensor(np.array(g)) for g in found)


def _places(name: str, tensors: Sequence[Any]) -> list[Any]:
    return [_place(name, t, "one of the inputs does not have") for t in tensors]


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (tuple, list)) else [given]
