"""What is known of deferred values from call to call.

A forward makes the same positions and masks of lengths in every call, of edges of the same lines. Equal ones have
the same `Facts` as long as the session lives: their shape, their type, the number that they are. By these, too, a
call knows that the same is asked for as in the one before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial, reduce
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from ..stream.edge import Edge
from ..stream.rules import BatchLength, BatchSize, Length, Token
from ..stream.rules.sums import Unknown, index_of, key_of_length, length_maker
from .distance_tables import DistanceProduct
from .filled import Formula, SharesMemory, kept
from .score_layout import Axes
from .shape_of import ShapeOf
from .stream_tensor import StreamTensor

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
#: The flag of classes that Python's `class` has made.
_OF_PYTHON = 1 << 9
#: Facts of how many deferred values a session keeps at most.
_MOST = 4096
#: Makes something of edges and queries (see `facts_of`), and of what a function was given.
Maker = Callable[[Sequence[Any], Sequence[Any]], Any]
#: What of scores has a key of its own, or none; and of what types all else has to be.
_NO_STATE = frozenset(("q", "k", "axes", "steps", "head_part", "_source", "_taken", "_facts"))
#: What scores have for themselves, whatever others have.
_OF_EACH = ("steps", "_source", "_taken", "_facts")
_STATE = frozenset((int, bool, float, type(None)))
_ATOMS = frozenset((str, type(None), type(...), type))


class Facts(dict[str, Any]):
    """What was found out about equal deferred values, by name; compared by identity."""

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


def facts_of(x: Any) -> tuple[Facts, list[Any]]:
    """Return what is known of a deferred value, or of scores, and the edges whose lengths are in it, in order.

    Among these are the queries, streams, of a product with a table by distance, each behind its edge, and the
    queries and keys of scores. Where nothing can be known, as of one that holds a tensor that is learned, it
    raises Unknown.
    """
    records, found = _library_of(x).has_gradients(), x.__dict__.get("_facts")
    if found is None or found[2] is not records:  # of what is learned nothing is known while they are
        edges: list[Any] = []
        try:
            found = _interned(x, edges), edges, records
        except Unknown:
            found = None, edges, records
        x.__dict__["_facts"] = found
    if found[0] is None:
        raise Unknown
    return found[0], found[1]


def _library_of(x: Any) -> Any:
    return x.library if hasattr(type(x), "probe") else x.q.edge.entry.library


def _interned(x: Any, edges: list[Any]) -> Facts:
    library = _library_of(x)
    if not hasattr(type(x), "probe"):
        key = _key_of_scores(x, edges, library)
        return _known(key, x.q.edge.entry, edges)
    func = x.func
    if type(func) is DistanceProduct:
        func = _key_of_product(func, edges, library)
    elif not _lasts(func):
        raise Unknown
    parts = (*x.args, *(p for item in x.kwargs.items() for p in item))
    key = (type(x), func, x.constants, library.real(), *[key_of(part, edges, library) for part in parts])
    return _known(key, edges[0].entry if edges else None, edges)


def _known(key: Any, entry: Any, edges: list[Any]) -> Facts:
    known = getattr(entry, "facts", None)
    if known is None or any(x.entry is not entry for x in edges if type(x) is Edge):
        raise Unknown
    facts = known.get(key)
    if facts is None:
        if len(known) > _MOST:
            known.clear()
        facts = known[key] = Facts()
    return facts


def _lasts(func: Any) -> bool:
    """Whether a function is the same in every call, and no object or closure that may hold values of one."""
    if type(func) is Formula:
        return True
    if type(func) is not FunctionType:
        owner = getattr(func, "__self__", None)  # of a builtin, whatever that is a function of
        return hasattr(func, "__objclass__") or (
            type(func) is BuiltinFunctionType and (owner is None or isinstance(owner, (type, ModuleType)))
        )
    if not func.__closure__ or func.__code__.co_filename.startswith(_PACKAGE):
        return True
    return (
        reduce(
            lambda x, name: getattr(x, name, None), func.__qualname__.split("."), sys.modules.get(func.__module__)
        )
        is func
    )


def key_of(x: Any, edges: list[Any], library: Any) -> Any:
    """Return a key of an argument; the edges whose lengths are in it, and queries, are appended to `edges`."""
    kind = type(x)
    if kind is int or kind is bool:
        return kind, x
    if kind is float:
        return x.hex()
    if kind in _ATOMS or kind in library.atoms:
        return x
    if kind is tuple or kind is list:
        return (kind, *[key_of(part, edges, library) for part in x])
    if kind is slice:
        return (kind, *[key_of(part, edges, library) for part in (x.start, x.stop, x.step)])
    if isinstance(x, (BatchSize, BatchLength)):
        if isinstance(x, BatchLength):
            return kind, x.times, key_of_length(x.length, edges)
        edges.append(x.edge)  # any of the forward's, which all have the same streams
        return kind, x.times
    if isinstance(x, Length):
        return kind, key_of_length(x, edges)
    if isinstance(x, SharesMemory):
        facts, own = facts_of(x)
        edges += own
        return facts
    if kind is dict:
        return (kind, *[(name, key_of(part, edges, library)) for name, part in x.items()])
    if kind is ShapeOf:
        return kind, key_of(x.shape, edges, library), x.dtype, x.device
    if isinstance(x, library.tensor):
        return library.content(x)
    if _holds_all(kind):  # type: ignore[arg-type]
        return kind, key_of(vars(x), edges, library)
    raise Unknown


def _key_of_product(x: DistanceProduct, edges: list[Any], library: Any) -> tuple[Any, ...]:
    """Return a key of a product with a table by distance; its queries are appended to `edges`."""
    own: list[Any] = []
    queries = key_of_stream(x.queries, own)
    edges += (x.queries.edge, *own)
    return DistanceProduct, x.dims, x.order, queries, key_of(x.table, edges, library)


def key_of_stream(x: Any, edges: list[Any]) -> tuple[Any, ...]:
    """Return a key of a stream whose values are there; it is appended to `edges`."""
    edge = vars(x).get("edge") if type(x) is StreamTensor else None
    if edge is None or x.alike[0] is not None:
        raise Unknown
    edges.append(x)
    return edge.line, x.dims, x._names


def _key_of_scores(x: Any, edges: list[Any], library: Any) -> tuple[Any, ...]:
    """Return a key of scores of attention; their queries and keys are appended to `edges`."""
    state = tuple([value for name, value in vars(x).items() if name not in _NO_STATE])
    if not _STATE.issuperset(map(type, state)):
        raise Unknown
    steps = [(s.name, s.axes.key(), key_of((s.by, s.value), edges, library)) for s in x.steps]
    streams = key_of_stream(x.q, edges), key_of_stream(x.k, edges)
    return (type(x), x.axes.key(), str(x.head_part), state, *streams, *steps)


def streams_in(x: Any) -> list[Any]:
    """Return the streams that a deferred value, or scores of attention, is made of."""
    if hasattr(type(x), "probe"):
        return [n.func.queries for n in x.nodes() if type(n.func) is DistanceProduct][:1]
    return [x.q, x.k]


@lru_cache(maxsize=256)
def _holds_all(kind: Any) -> bool:
    """Whether objects of a class are their attributes, as a model's configuration is, and nothing beside them."""
    classes = [cls for cls in kind.__mro__ if cls is not object]
    return not issubclass(kind, type) and all(
        cls.__flags__ & _OF_PYTHON and not vars(cls).get("__slots__") for cls in classes
    )


def recalled(x: Any, what: str, make: Callable[[], Any]) -> Any:
    """Return what was found out about an equal deferred value (a number, type, tuple or length), or find it."""
    try:
        facts, edges = facts_of(x)
    except Unknown:
        return make()
    if what in facts:
        return facts[what](edges, ())
    out = make()
    with suppress(Unknown):
        facts[what] = maker(out, edges, ())
    return out


def maker(out: Any, edges: Sequence[Edge], given: Sequence[Any]) -> Maker:
    """Return what makes the same of other edges of the same lines, and of other equal values that were given.

    Where something else is in it, it raises Unknown.
    """
    kind = type(out)
    if kind in _OF_PARTS:
        parts = (out.start, out.stop, out.step) if kind is slice else out.values() if kind is dict else out
        return _parts_maker(out, [maker(p, edges, given) for p in parts])
    if isinstance(out, Token):
        own = [i for i, x in enumerate(given) if x is out]
        return (lambda e, g: g[own[0]]) if own else _size_maker(out, edges)
    if hasattr(kind, "probe"):
        at = next((i for i, x in enumerate(given) if getattr(x, "__dict__", None) is out.__dict__), None)
        if at is not None:
            return lambda e, g: kept(g[at])
        return _deferred_maker(out, edges, given)
    if kind is Axes:
        return partial(constant, out)
    if kind is StreamTensor:
        place = index_of(out, edges)
        return lambda e, g: e[place]
    if isinstance(out, SharesMemory):
        return _scores_maker(out, edges, given)
    if kind is ShapeOf:
        sizes, device, dtype = maker(out.shape, edges, given), out.device, out.dtype
        return lambda e, g: ShapeOf(sizes(e, g), device, dtype)
    if isinstance(out, tuple) or hasattr(out, "edge") or hasattr(out, "shape"):
        place = index_of(out, given)
        return lambda e, g: g[place]
    if hasattr(out, "__dict__") and not callable(out):
        raise Unknown
    return partial(constant, out)


def _parts_maker(out: Any, parts: Sequence[Maker]) -> Maker:
    """Return what makes a container of what makes its parts."""
    same = [p.args[0] if type(p) is partial else None for p in parts]
    others = [(i, p) for i, p in enumerate(parts) if type(p) is not partial]
    if not others and type(out) is not list:  # nothing of a call is in it
        return partial(constant, out)
    names = list(out) if type(out) is dict else ()
    build = _OF_PARTS[type(out)] or (lambda values: dict(zip(names, values)))

    def filled(e: Sequence[Any], g: Sequence[Any]) -> Any:
        made = [*same]
        for i, part in others:
            made[i] = part(e, g)
        return build(made)

    return filled


_OF_PARTS: dict[type, Any] = {tuple: tuple, list: list, slice: lambda parts: slice(*parts), dict: None}


def constant(out: Any, *_: Any) -> Any:
    """Return what is the same in every call."""
    return out


def _size_maker(out: Any, edges: Sequence[Edge]) -> Maker:
    kind = type(out)
    if isinstance(out, BatchLength):
        length, times = length_maker(out.length, edges), out.times
        return lambda e, g: kind(length(e), times)
    if isinstance(out, BatchSize):
        of, times = index_of(out.edge, edges), out.times
        return lambda e, g: kind(e[of], times)
    if not isinstance(out, Length):
        raise Unknown
    return length_maker(out, edges)


def _facts_maker(out: Any, edges: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    """Return what gives a value's facts, which `facts_of` finds again, with other edges."""
    facts, own = facts_of(out)
    places, records = [index_of(edge, edges) for edge in own], out.__dict__["_facts"][2]
    return lambda e: (facts, list(map(e.__getitem__, places)), records)


def _deferred_maker(out: Any, edges: Sequence[Any], given: Sequence[Any]) -> Maker:
    product = _product_maker(out.func, edges, given) if type(out.func) is DistanceProduct else None
    func = None if product else out.func
    args, kwargs = maker(out.args, edges, given), maker(out.kwargs, edges, given)
    found, share, kind = _facts_maker(out, edges), _share_maker(out, edges, given), type(out)
    fixed = kwargs.args[0] if type(kwargs) is partial else None
    library, constants = out.library, out.constants
    is_formula = out.is_formula

    def deferred(e: Sequence[Any], g: Sequence[Any]) -> Any:
        made: Any = object.__new__(kind)
        made.library, made.func = library, product(e, g) if product else func
        made.args, made.kwargs = args(e, g), kwargs(e, g) if fixed is None else fixed
        if is_formula:
            made.value, made.length = made.args
        made._facts = found(e)
        if constants:
            made.constants = constants
        if share:
            share(made, e, g)
        return made

    return deferred


def _scores_maker(out: Any, edges: Sequence[Any], given: Sequence[Any]) -> Maker:
    """Return what makes scores of attention: what they have of others that were given is what those have."""
    at = next((i for i, x in enumerate(given) if type(x) is type(out)), None)
    before = {} if at is None else vars(given[at])
    done = before.get("steps", ())
    if len(out.steps) < len(done) or any(a is not b for a, b in zip(out.steps, done)):
        raise Unknown
    changed = {n: x for n, x in vars(out).items() if x is not before.get(n, Unknown) and n not in _OF_EACH}
    own = {name: maker(x, edges, given) for name, x in changed.items()}
    fixed = {name: changed[name] for name, make in own.items() if type(make) is partial}
    made_anew = [(name, make) for name, make in own.items() if name not in fixed]
    more = [
        (s._replace(by=None, value=None), maker(s.by, edges, given), maker(s.value, edges, given))
        for s in out.steps[len(done) :]
    ]
    kind, share = type(out), _share_maker(out, edges, given)
    found: Callable[..., Any] = partial(constant, None)
    with suppress(Unknown):  # it has a key of its own if it is used
        found = _facts_maker(out, edges)

    def scores(e: Sequence[Any], g: Sequence[Any]) -> Any:
        made: Any = object.__new__(kind)
        known: Any = {} if at is None else vars(g[at])
        made.__dict__.update(known, _source=None, _taken=(), _facts=found(e), **fixed)
        for name, make in made_anew:
            setattr(made, name, make(e, g))
        if more or at is None:
            added = [step._replace(by=by(e, g), value=value(e, g)) for step, by, value in more]
            made.steps = [*known.get("steps", ()), *added]
        if share:
            share(made, e, g)
        return made

    return scores


def _product_maker(out: DistanceProduct, edges: Sequence[Any], given: Sequence[Any]) -> Maker:
    """Return what makes a product with a table by distance of other queries."""
    at, table, order, dims = index_of(out.queries, edges), maker(out.table, edges, given), out.order, out.dims
    return lambda e, g: DistanceProduct(e[at], table(e, g), order, dims)


def _share_maker(out: Any, edges: Sequence[Edge], given: Sequence[Any]) -> Callable[..., None] | None:
    """Return what notes that a tensor is a view of one that was given; None where it is no view."""
    if out._source is None:
        return None
    of, *how = out._source
    at, taken = next((i for i, x in enumerate(given) if x is of), None), maker(tuple(how), edges, given)
    whole = maker(of, edges, given) if at is None else lambda e, g: g[at]
    return lambda made, e, g: made._shares(whole(e, g), *taken(e, g))
