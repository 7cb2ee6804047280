"""Inputs given once: what comes with the start of a stream and holds until its end.

A module is called with ``ds.static({id: value})`` for the streams that start, and with None where none does.
Inside the forward such an input is a tensor without L, an edge of rate 0 whose one frame per stream is known from
its start on; where it meets the stream's frames, the operator ``hold`` gives it to each of them. One of several
frames, a memory, is a stream of its own that ends with the call in which it starts: what works on it alone runs
once, and attention keeps the keys and values that follow from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..array.chunk_values import RowNames, Wanted, read_chunk
from ..array.dimension_arguments import numbered
from ..errors import DTypeError, ShapeError, StreamIdError, StreamMismatchError
from ..stream.tree import leaves


class Static:
    """What streams are given once, by id; see `static`."""

    def __init__(self, rows: Mapping[str, Any], dims: Sequence[Any] | None = None) -> None:
        self.rows = dict(rows)
        self.dims = None if dims is None else tuple(dims)

    def __repr__(self) -> str:
        return f"static({', '.join(self.rows)})"


def static(rows: Mapping[str, Any], dims: Sequence[Any] | None = None) -> Static:
    """Return what streams are given once, with their start: a speaker, a language, a text.

    A patched module, or an engine, takes it as an argument beside its streams. It holds until the streams end;
    calls in which none starts get None in its place. Inside the forward it is a tensor ``(B, ...)`` without L,
    which broadcasts against streams, expands over ``x.size(L)`` and serves as the initial state of an RNN. A text,
    or another memory, is ``(B, M, ...)`` with an M of its own for each stream: queries of the stream attend to it.

    Parameters
    ----------
    rows : dict of str to array
        One array, without B, for each stream that starts; all of one shape, but for M.
    dims : tuple, optional
        What their dimensions are, as in a spec: ``("B", 256)``, ``("B", "M", 512)``, ``("B", 80, "M")``. Without
        it, arrays of two dimensions are ``(M, features)``, and others have no M. An engine knows from its spec.

    Raises
    ------
    TypeError
        For what is no dict by id.
    ShapeError
        For dimensions that don't name B once, and M at most once.

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
    if dims is not None:
        names = [d for d in dims if isinstance(d, str)]
        if sorted(names) not in (["B"], ["B", "M"]):
            raise ShapeError(f'static: dims name "B" once, and "M" at most once, beside sizes; got {tuple(dims)}')
    return Static(rows, dims)


Kind = tuple[str, tuple[Any, ...]]
"""Element type and dimensions of a row, without B: sizes, and "M" where it has frames."""


class Given:
    """One input given once, in one call."""

    def __init__(self, name: str, given: Static | None, known: Kind | None, dtype: str | None = None) -> None:
        self.name = name  #: The forward's argument.
        self.wanted = Wanted(dtype, name=f"input {name}")
        #: By id what starts with it.
        self.rows = {} if given is None else {i: self._read(i, value) for i, value in given.rows.items()}
        wants = any(getattr(value, "requires_grad", False) for value in (given.rows if given else {}).values())
        #: The same as tensors, where one of them wants a gradient.
        self.tensors = dict(given.rows) if wants and given else {}
        dims = None if given is None else given.dims
        roles = tuple(d for d in dims if d != "B") if dims else known[1] if known else None
        kinds = [self._kind_of(value, roles) for value in self.rows.values()]
        found = {*kinds, *([known] if known else [])}
        if len(found) > 1:
            odd = [i for i, kind in zip(self.rows, kinds) if kind != known]
            raise (DTypeError if len({kind[0] for kind in found}) > 1 else ShapeError)(
                f"input {name}: the streams' values differ: "
                f"{', '.join(f'{d} {s}' for d, s in sorted(found, key=str))}",
                odd if known else RowNames(list(self.rows), True).odd(kinds),
            )
        #: Element type and dimensions of a row; None while nobody knows.
        self.kind: Kind | None = next(iter(kinds), known)
        empty = [i for i, value in self.rows.items() if self.at is not None and not value.shape[self.at]]
        if empty:
            raise ShapeError(f"input {name}: expected a frame at least, got none", empty)

    def _read(self, stream_id: str, value: Any) -> Any:
        """Return one stream's value as what the front end computes with."""
        return read_chunk(value, self.wanted, (stream_id,))

    def _type_of(self, value: Any) -> str:
        return str(value.dtype)

    def _kind_of(self, value: Any, roles: tuple[Any, ...] | None) -> Kind:
        """Return what a value is, where its dimensions are said to be `roles`."""
        shape = tuple(value.shape)
        if roles is None:
            roles = ("M", shape[1]) if len(shape) == 2 else shape
        fits = len(roles) == len(shape)
        return self._type_of(value), tuple("M" if fits and r == "M" else n for r, n in zip(roles, shape)) + (
            () if fits else shape[len(roles) :]
        )

    def stacked(self, ids: Sequence[str]) -> Any:
        """Return the frames of the streams that start, in the order of the batch."""
        rows = [self.rows[i] for i in ids if i in self.rows]
        return self.joined(rows) if rows else self._nothing()

    def joined(self, rows: list[Any]) -> Any:
        """Return the frames of rows as one."""
        at = self.at
        return np.stack(rows) if at is None else np.concatenate([np.moveaxis(row, at, 0) for row in rows])

    def _nothing(self) -> Any:
        dtype, features = self.kind_of_frame()
        return np.zeros((0, *features), dtype)

    @property
    def roles(self) -> tuple[Any, ...]:
        """The dimensions of a row: somebody knows."""
        return () if self.kind is None else self.kind[1]

    @property
    def at(self) -> int | None:
        """The axis of a row along which it has frames, where it has."""
        return self.roles.index("M") if "M" in self.roles else None

    @property
    def rate(self) -> Fraction:
        """1 where it has frames, else 0."""
        return Fraction("M" in self.roles)

    def kind_of_frame(self) -> tuple[str, tuple[int, ...]]:
        """Return element type and shape of a frame, which somebody knows."""
        assert self.kind is not None
        return self.kind[0], tuple(d for d in self.roles if d != "M")

    @property
    def dims(self) -> tuple[Any, ...]:
        """The dimensions inside the forward."""
        return numbered(["B", *("L" if d == "M" else 0 for d in self.roles)])

    def lengths(self, ids: Sequence[str]) -> list[int]:
        """Return for each row how many frames of it come now: one, where it has no M."""
        return [0 if i not in self.rows else 1 if self.at is None else self.rows[i].shape[self.at] for i in ids]

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
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], known: Mapping[str, Any], kind: type[Given] = Given
) -> tuple[tuple[Any, ...], dict[str, Any], list[Given]]:
    """Return a call's arguments with a `Given` where an input is given once, and these.

    `known` has the inputs that live streams were given, with the kind of their values: in their places None means
    that no stream starts.
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


def input_names(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: Sequence[Any]) -> list[str]:
    """Return the forward's arguments that the inputs of a call are, or are in."""
    bound = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
    within = {id(leaf): name for name, value in bound.items() for leaf in leaves(value)}
    return [within.get(id(x), "?") for x in inputs]


def forgotten(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StreamMismatchError | None:
    """Return what is wrong with a call whose forward failed on None where its argument has no default."""
    bound = inspect.signature(module.forward).bind_partial(*args, **kwargs)
    for name, parameter in bound.signature.parameters.items():
        if parameter.default is parameter.empty and bound.arguments.get(name, name) is None:
            return StreamMismatchError(
                f"input {name} is None: what is given once comes with the start of a stream, as in "
                f"ds.static({{'anna': {name}}})"
            )
    return None
