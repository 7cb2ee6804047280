"""What each operation is, said once.

- `OPERATORS`: the operators of the C registry, a row each. Functions of single elements have more to say
  (`elementwise.py`), since all of their front ends follow from their row.
- `OPERATIONS`: torch's names that are no function of single elements, and what they mean for streams (`names.py`).
- `ALIASES`: what torch calls otherwise; `ours` looks it up.

`refusals.py` has what does not stream, why, and what would.
"""

from .elementwise import ARITHMETIC, BINARY, BITWISE, ELEMENTWISE, LOGICAL, RELATIONS, UNARY, Elementwise
from .names import ALIASES, OPERATIONS, ours
from .operator import Operation, Operator
from .operators import OPERATORS, row_of

__all__ = [
    "ALIASES", "ARITHMETIC", "BINARY", "BITWISE", "ELEMENTWISE", "LOGICAL", "OPERATIONS", "OPERATORS", "RELATIONS",
    "UNARY", "Elementwise", "Operation", "Operator", "ours", "row_of",
]  # fmt: skip
