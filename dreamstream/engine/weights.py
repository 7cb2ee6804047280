"""Weights that are stored in fewer bits, and products of rows that are, too: which layers'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

__all__ = ["AS_IT_IS", "FORMATS", "PRODUCTS", "Narrowing", "Weights", "stored"]

#: What weights can be stored in, by the engine's numbers.
FORMATS = ("fp32", "fp16", "bf16", "int8")

#: What the rows that weights are multiplied with can be.
PRODUCTS = ("fp32", "int8")

#: A format for all layers, or for those within the modules whose paths fit a pattern.
Weights = str | Mapping[str, str]

Nodes = Sequence[tuple[str, str, bool, int]]


class Narrowing(NamedTuple):
    """What a user asks for; None: as it is."""

    weights: Weights | None = None
    products: Weights | None = None

    @property
    def nothing(self) -> bool:
        """Whether all stays."""
        return self.weights is None and self.products is None


AS_IT_IS = Narrowing()


def stored(how: Narrowing, nodes: Nodes) -> bytes:
    """Return how each node's weights are stored, as a byte of its number, 4 more where products are narrow.

    Parameters
    ----------
    how : Narrowing
        Where several patterns fit, the last one counts; where none does, a layer keeps what it has. Weights are
        what products are.
    nodes : sequence of (operator, path, whether it can, what it has)

    Raises
    ------
    ValueError
        For a format that there is not, or a pattern that fits no layer whose weights can be stored so.
    """
    numbers = []
    for (*_, has), weights, products in zip(
        nodes, _chosen("weights", how.weights, FORMATS, nodes), _chosen("products", how.products, PRODUCTS, nodes)
    ):
        own, narrow = has & 3, has >= 4
        now = own if weights is None else FORMATS.index(weights)
        if products is not None:
            narrow = products != "fp32"
            now = FORMATS.index(products) if narrow else now
        numbers.append(now + 4 * (narrow and (now == own or products is not None)))
    return bytes(numbers)


def _chosen(argument: str, asked: Weights | None, formats: Sequence[str], nodes: Nodes) -> Iterator[str | None]:
    """Yield what is asked for of each node."""
    rules = {} if asked is None else {"": asked} if isinstance(asked, str) else asked
    for name in rules.values():
        if name not in formats:
            raise ValueError(f"{argument}: expected one of {', '.join(formats)}, got {name!r}")
    able = [path for _, path, can, _ in nodes if can]
    for pattern in rules:
        if not any(_fits(pattern, path) for path in able) and pattern:
            some = ", ".join(dict.fromkeys(able[:8]))
            raise ValueError(f"{argument}: {pattern!r} fits no layer with matrices; there are {some or 'none'}")
    for _, path, _, _ in nodes:
        yield next((rules[p] for p in reversed(list(rules)) if _fits(p, path)), None)


def _fits(pattern: str, path: str) -> bool:
    """Whether a path lies within a module that fits; ``*`` stands for anything in a name between dots."""
    names, own = pattern.split(".") if pattern else [], path.split(".")
    return len(names) <= len(own) and all(map(fnmatchcase, own, names))
