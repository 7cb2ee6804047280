"""Weights that are stored in fewer bits: which layers' are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

__all__ = ["FORMATS", "Weights", "stored"]

#: What weights can be stored in, by the engine's numbers.
FORMATS = ("fp32", "fp16", "bf16", "int8")

#: A format for all layers, or for those within the modules whose paths fit a pattern.
Weights = str | Mapping[str, str]


def stored(weights: Weights, nodes: Sequence[tuple[str, str, bool, int]]) -> bytes:
    """Return how each node's weights are stored, as a byte of its number.

    Parameters
    ----------
    weights : str or mapping
        Where several patterns fit, the last one counts; where none does, a layer keeps what it has.
    nodes : sequence of (operator, path, whether it can, what it has)

    Raises
    ------
    ValueError
        For a format that there is not, or a pattern that fits no layer whose weights can be stored so.
    """
    rules = {"": weights} if isinstance(weights, str) else weights
    for name in rules.values():
        if name not in FORMATS:
            raise ValueError(f"weights: expected one of {', '.join(FORMATS)}, got {name!r}")
    able = [path for _, path, can, _ in nodes if can]
    for pattern in rules:
        if not any(_fits(pattern, path) for path in able) and pattern:
            some = ", ".join(dict.fromkeys(able[:8]))
            raise ValueError(f"weights: {pattern!r} fits no layer with matrices; there are {some or 'none'}")
    return bytes(
        next((FORMATS.index(rules[p]) for p in reversed(list(rules)) if _fits(p, path)), has)
        for _, path, _, has in nodes
    )


def _fits(pattern: str, path: str) -> bool:
    """Whether a path lies within a module that fits; ``*`` stands for anything in a name between dots."""
    names, own = pattern.split(".") if pattern else [], path.split(".")
    return len(names) <= len(own) and all(map(fnmatchcase, own, names))
