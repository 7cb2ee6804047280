"""Which laws are held against what in the fast tier: so much of them that every planted fault is noticed.

`tests/laws/test_planted.py` holds the faults against this selection alone.
"""

from __future__ import annotations

from .check import ALONG
from .operators import GENERATORS

__all__ = ["is_fast"]

#: Held against all operators.
FIRST = {"values", "chunking", "finality", "snapshots"}
#: Not even against those that stand along the stream, but for some.
LONG = {"reset", "batching"}
#: What else it takes to notice the planted faults: names by law.
FURTHER = {
    "allocation": {"add"},
    "batching": {"relu"},
    "edited-weights": {"linear"},
    "failed-call": {"attention", "embedding", "expert_linear"},
    "reset": {"delay"},
}

FAST_MODELS = {"tagger", "residual", "twice", "lstm-2-from-a-state", "conv-reflect"}


def is_fast(law: str, name: str) -> bool:
    """Whether the fast tier holds a law against an operator or model."""
    if name not in GENERATORS:
        return name in FAST_MODELS
    return law in FIRST or (name in ALONG and law not in LONG) or name in FURTHER.get(law, ())
