"""``functions.pyi`` says what the rows of `dreamstream.operations` make of tensors.

``python tests/source/test_stubs.py`` writes it.
"""

from __future__ import annotations

from pathlib import Path

from dreamstream.operations import ELEMENTWISE

STUB = Path(__file__).resolve().parents[2] / "dreamstream" / "array" / "functions.pyi"
HEAD = '''"""The methods that are a row of `dreamstream.operations`; tests/source/test_stubs.py writes this."""

from typing import Any

from .base import Base
from .tensor import Tensor

__all__ = ["NAMES", "Functions"]

NAMES: tuple[str, ...]

class Functions(Base):
'''


def stub() -> str:
    """The text of the stub."""
    lines = []
    for row in ELEMENTWISE.values():
        if row.doc:
            arguments = "self" if row.operands == 1 else "self, other: Any"
            lines += [f"    def {row.name}({arguments}) -> Tensor:", f'        """Return {row.doc}."""']
    return HEAD + "\n".join(lines) + "\n"


def test_stub_is_what_the_table_says():
    assert STUB.read_text() == stub(), f"run python {Path(__file__).name}"


if __name__ == "__main__":
    STUB.write_text(stub())
