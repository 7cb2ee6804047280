"""Weights that are stored in fewer bits, and products of rows that are, too: which layers'."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from numbers import Real
from typing import Any, NamedTuple

#: What weights can be stored in, by the engine's numbers.
FORMATS = ("fp32", "fp16", "bf16", "int8")

#: What the rows that weights are multiplied with can be.
TILES = "fp32-tiles"
STORED_PRODUCTS = ("fp32", "bf16", "int8")  # files say these
PRODUCTS = (*STORED_PRODUCTS, TILES)

#: What "auto" tries, the first that is near enough; fp32 where none is.
LADDER = ("int8", "bf16")

#: The error of a weight's channel up to which "auto" takes a format: about what int8 makes of even weights.
BOUND = 0.01

#: A format for all layers, or for those within the modules whose paths fit a pattern.
Weights = str | Mapping[str, str]

Nodes = Sequence[tuple[str, str, bool, int, int]]


class Narrowing(NamedTuple):
    """What a user asks for; None: as it is."""

    weights: Weights | None = None
    products: Weights | None = None
    bound: float = BOUND  # what "auto" allows
    tiled: Collection[str] = ()  # paths of layers whose products go by tiles already, as no file says

    @property
    def nothing(self) -> bool:
        """Whether all stays."""
        return self.weights is None and self.products is None and not self.tiled

    @property
    def chooses(self) -> bool:
        """Whether a layer's format is to be chosen by the error that it makes."""
        return self.weights == "auto" or (isinstance(self.weights, Mapping) and "auto" in self.weights.values())


AS_IT_IS = Narrowing()


def stored(how: Narrowing, nodes: Nodes, auto: Sequence[int] = ()) -> bytes:
    """Return how the weights of each node, as `_core.Graph.nodes` gives them, are stored: a byte of its number.

    It is 4 more where products are narrow, or by tiles. Where several patterns fit, the last one counts; where
    none does, a layer keeps what it has. Weights are what products are. `auto` is what "auto" stands for, node by
    node. A format that there is not, a pattern that is none, and one that fits no such layer are ValueErrors.
    """
    numbers = []
    for j, ((_, path, _, has, _), weights, products) in enumerate(
        zip(
            nodes,
            _chosen("weights", how.weights, (*FORMATS, "auto"), nodes),
            _chosen("products", how.products, PRODUCTS, nodes),
        )
    ):
        own, narrow = has & 3, has >= 4 or path in how.tiled
        now = own if weights is None else auto[j] if weights == "auto" else FORMATS.index(weights)
        if products is not None:
            narrow = products != "fp32"
            now = FORMATS.index(products.removesuffix("-tiles")) if narrow else now
        numbers.append(now + 4 * (narrow and (now == own or products is not None)))
    return bytes(numbers)


def products_of(number: int) -> str:
    """Return what products are where weights are stored so, by the number that `stored` gives."""
    how = FORMATS[number & 3]
    return "fp32" if number < 4 else TILES if how == "fp32" else how


def _chosen(argument: str, asked: Weights | None, formats: Sequence[str], nodes: Nodes) -> Iterator[str | None]:
    """Yield what is asked for of each node."""
    rules = {} if asked is None else asked if isinstance(asked, Mapping) else {"": asked}
    for pattern, name in rules.items():
        if not isinstance(pattern, str):
            raise ValueError(f"{argument}: expected patterns of modules' paths, got {pattern!r}")
        if not isinstance(name, str) or name not in formats:
            raise ValueError(f"{argument}: expected one of {', '.join(formats)}, got {name!r}")
    able = [path for _, path, can, *_ in nodes if can]
    for pattern in rules:
        if not any(_fits(pattern, path) for path in able) and pattern:
            some = ", ".join(dict.fromkeys(able[:8]))
            raise ValueError(f"{argument}: {pattern!r} fits no layer with matrices; there are {some or 'none'}")
    for _, path, *_ in nodes:
        yield next((rules[p] for p in reversed(list(rules)) if _fits(p, path)), None)


def narrowest(graph: Any, nodes: Nodes, bound: float) -> list[int]:
    """Return for each node of a `_core.Graph` the first format of `LADDER` whose error is within the bound.

    The nodes of one module and operator are stored alike. Raises ValueError for a bound below 0.
    """
    if not (isinstance(bound, Real) and bound >= 0):
        raise ValueError(f"weights_bound: expected 0 or more, got {bound!r}")
    layers = [(name, path) for name, path, *_ in nodes]
    chosen = dict.fromkeys(layers, 0)
    for number in map(FORMATS.index, LADDER):
        worst: dict[tuple[str, str], float] = {}
        for layer, error in zip(layers, graph.errors(number, bytes(chosen[layer] == 0 for layer in layers))):
            worst[layer] = max(error, worst.get(layer, 0.0))
        chosen |= {layer: number for layer in worst if chosen[layer] == 0 and worst[layer] <= bound}
    return [chosen[layer] for layer in layers]


def store(graph: Any, how: Narrowing) -> None:
    """Store the weights of a `_core.Graph` as is asked for; raises what `stored` and `narrowest` do."""
    nodes = graph.nodes()
    graph.store(stored(how, nodes, narrowest(graph, nodes, how.bound) if how.chooses else ()))


def _fits(pattern: str, path: str) -> bool:
    """Whether a path lies within a module that fits; ``*`` stands for anything in a name between dots."""
    names, own = pattern.split(".") if pattern else [], path.split(".")
    return len(names) <= len(own) and all(map(fnmatchcase, own, names))
