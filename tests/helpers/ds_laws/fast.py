"""Which laws are held against what in the fast tier and in the default one.

The fast tier holds so much of them that every planted fault is noticed: `tests/laws/test_planted.py` holds the
faults against this selection alone. The default tier holds all laws against operators, but of the pointwise ones
one member of each family goes through all of them: the members share all code but one expression. Models, which
are made of operators, go through the first laws, by turns where these run them many times, and through a sixth of
the others by turns: what these hold of streams is not a model's own, and the random models of
`tests/laws/test_random_graphs.py` are held to all of it.
"""

import os
import zlib
from collections.abc import Iterable

from dreamstream.operations import BINARY, LOGICAL, RELATIONS, UNARY

from .check import ALONG, n_cases
from .operators import GENERATORS

#: The pointwise operators whose kernel has the same shape, by the member that all laws are held against.
FAMILIES = {
    "relu": {row.name for row in UNARY if not row.tries and row.name not in ("sin", "cos")},
    "sin": {"sin", "cos"},  # their kernels take whole arrays
    "clamp": {row.name for row in UNARY if row.tries},
    "add": {row.name for row in BINARY if row.name not in RELATIONS},
    "lt": {row.name for row in BINARY if row.name in RELATIONS},
}
_OF_TRUTHS = {row.name for row in LOGICAL if row.operands == 2}
FAMILIES[min(_OF_TRUTHS)] = _OF_TRUTHS
#: What the laws hold of a member alone: that its expression is right, and gives the same bits in every chunk.
OF_MEMBERS = {"values", "chunking", "slopes"}
#: Those of a family that differ from the member above by an expression alone.
MEMBERS = set().union(*FAMILIES.values()) - FAMILIES.keys()

#: Held against all operators.
FIRST = {"values", "chunking", "finality", "snapshots", "slopes", "slopes-in-chunks"}
#: Of these laws that run a case again and again: a half of the models each, by turns.
AGAIN = {"chunking", "finality", "snapshots"}
#: Of these every second one of two thirds of an operator's cases; of *chunking* every third.
PART = {"finality", "snapshots", "slopes-in-chunks"}
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
#: To interrupt each of its operations takes seconds.
TOO_LONG = {("failed-call", "u2-conformer")}


def is_default(law: str, name: str) -> bool:
    """Whether the default tier holds a law against an operator or model; the slow one holds all."""
    if name in GENERATORS:
        return law in OF_MEMBERS or name not in MEMBERS
    turn = zlib.crc32(f"{law} {name}".encode())
    one_in = 1 if law in FIRST - AGAIN else 2 if law in AGAIN else 6
    return name in FAST_MODELS or (turn % one_in == 0 and (law, name) not in TOO_LONG)


def is_fast(law: str, name: str) -> bool:
    """Whether the fast tier holds a law against an operator or model."""
    if not is_default(law, name):
        return False
    if name not in GENERATORS:
        return name in FAST_MODELS
    return law in FIRST or (name in ALONG and law not in LONG) or name in FURTHER.get(law, ())


def usual_cases(law: str, name: str) -> Iterable[int]:
    """Which cases of an operator or model a law is held against in the default tier: also in the fast one."""
    n = n_cases(name)
    if "DREAMSTREAM_LAW_CASES" in os.environ or name in FURTHER.get(law, ()):
        return range(n)
    of_all = min(3, n) if law in PART | {"chunking"} else min(4, n)
    turn = zlib.crc32(f"{name} {law}".encode()) % of_all
    if law in PART:
        return [k for k in range(n) if n < 3 or k % 3 != turn][::2]
    return range(n) if law in FIRST and law != "chunking" else range(turn, n, of_all)


def of_fast(law: str, name: str) -> Iterable[int]:
    """The cases that the fast tier has of a law: none where it doesn't hold it at all."""
    return usual_cases(law, name) if is_fast(law, name) else ()
