"""Inputs given once: what comes with the start of a stream and holds until its end.

A module is called with ``ds.static({id: value})`` for the streams that start, and with None where none does.
Inside the forward such an input is a tensor without L, an edge of rate 0 whose one frame per stream is known from
its start on; where it meets the stream's frames, the operator ``hold`` gives it to each of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..array.creation import as_tensor
from ..errors import DTypeError, ShapeError, StreamIdError, StreamMismatchError

__all__ = ["Given", "Static", "static", "take_given"]


class Static:
    """What streams are given once, by id; see `static`."""

    def __init__(self, rows: Mapping[str, Any]) -> None:
        self.rows = dict(rows)

    def __repr__(self) -> str:
        return f"static({', '.join(self.rows)})"


def static(rows: Mapping[str, Any]) -> Static:
    """Return what streams are given once, with their start: a speaker, a language.

    A patched module, or an engine, takes it as an argument beside its streams. It holds until the streams end;
    calls in which none starts get None in its place. Inside the forward it is a tensor ``(B, ...)`` without L,
    which broadcasts against streams, expands over ``x.size(L)`` and serves as the initial state of an RNN.

    Parameters
    ----------
    rows : dict of str to array
        One array, without B, for each stream that starts; all of one shape.

    Raises
    ------
    TypeError
        For what is no dict by id.

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> class Gained(ds.nn.Module):
    ...     def forward(self, x, gain):
    ...         return x * gain.unsqueeze(-1)
    >>> model = ds.patch_module(Gained().eval()).online()
    >>> x = np.ones((1, 2), np.float32)
    >>> gain = ds.static({"anna": np.full(1, 3, np.float32)})
    >>> model(ds.stream_tensor([x], ids=["anna"], sos=True), gain)["anna"].numpy()
    array([[3., 3.]], dtype=float32)
    >>> model(ds.stream_tensor([x], ids=["anna"], eos=True), None)["anna"].numpy()
    array([[3., 3.]], dtype=float32)
    """
    if not isinstance(rows, Mapping) or not all(isinstance(i, str) for i in rows):
        raise TypeError(f"static takes a dict of values by id, as in static({{'anna': e}}), got {rows!r}"[:200])
    return Static(rows)


class Given:
    """One input given once, in one call.

    Attributes
    ----------
    name : str
        The forward's argument.
    rows : dict
        By id what starts with it.
    kind : tuple or None
        Element type and shape of a row; None while nobody knows.
    """

    def __init__(self, name: str, given: Static | None, known: tuple[str, tuple[int, ...]] | None) -> None:
        self.name = name
        self.rows = {} if given is None else {i: self._read(i, value) for i, value in given.rows.items()}
        kinds = {self._kind_of(value): i for i, value in self.rows.items()}
        if known is not None and self.rows:
            kinds.setdefault(known, "")
        if len(kinds) > 1:
            different = {kind[0] for kind in kinds}
            raise (DTypeError if len(different) > 1 else ShapeError)(
                f"input {name}: the streams' values differ: {', '.join(f'{d} {s}' for d, s in sorted(kinds))}",
                [i for i in kinds.values() if i],
            )
        self.kind = next(iter(kinds), known)

    def _read(self, stream_id: str, value: Any) -> Any:
        """Return one stream's value as what the front end computes with."""
        return as_tensor(value, None).numpy()

    def _kind_of(self, value: Any) -> tuple[str, tuple[int, ...]]:
        return str(value.dtype), tuple(value.shape)

    def stacked(self, ids: Sequence[str]) -> Any:
        """Return the values of the streams that start, in the order of the batch."""
        dtype, shape = self.known()
        rows = [self.rows[i] for i in ids if i in self.rows]
        return np.stack(rows) if rows else np.zeros((0, *shape), dtype)

    def known(self) -> tuple[str, tuple[int, ...]]:
        """Return element type and shape of a row, which somebody knows."""
        assert self.kind is not None
        return self.kind

    @property
    def dims(self) -> tuple[Any, ...]:
        """The dimensions inside the forward."""
        return ("B", *range(len(self.known()[1])))

    def lengths(self, ids: Sequence[str]) -> list[int]:
        """Return for each row whether its value comes now."""
        return [int(i in self.rows) for i in ids]

    def check(self, ids: Sequence[str], starts: Sequence[bool]) -> None:
        """Refuse values of streams that don't start, and starts without one."""
        unknown = [i for i in self.rows if i not in ids]
        if unknown:
            raise StreamIdError(f"input {self.name} is given for streams that are not in this call", unknown)
        for starting, text in ((True, "these start without it"), (False, "these have it")):
            wrong = [i for i, sos in zip(ids, starts) if sos is starting and (i in self.rows) is not starting]
            if wrong:
                raise StreamMismatchError(
                    f"input {self.name} is given once, with the start of a stream: {text}", wrong
                )


def take_given(
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    known: Mapping[str, Any],
    kind: type[Given] = Given,
) -> tuple[tuple[Any, ...], dict[str, Any], list[Given]]:
    """Return a call's arguments with a `Given` where an input is given once, and these.

    Parameters
    ----------
    module, args, kwargs
    known : dict
        The inputs that live streams were given, with the kind of their values: in their places None means that no
        stream starts.
    """
    bound = inspect.signature(module.forward).bind_partial(*args, **kwargs)
    found = []
    for name in bound.signature.parameters:
        value = bound.arguments.get(name)
        if isinstance(value, Static) or (value is None and name in known):
            given = kind(name, value, known.get(name))
            if given.kind is None:
                raise StreamMismatchError(f"input {name} is given for no stream, while none is live")
            bound.arguments[name] = given
            found.append(given)
    order = [name for name in bound.signature.parameters if name in bound.arguments]
    bound.arguments = {name: bound.arguments[name] for name in order}
    return bound.args, bound.kwargs, found
