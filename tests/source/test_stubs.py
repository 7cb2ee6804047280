"""``.pyi`` files say what is made from tables: tensors' methods by `dreamstream.operations`, layers by functions.

``python tests/source/test_stubs.py`` writes them.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

import pytest

from dreamstream.array.functions import COMPARISONS, OPERATORS
from dreamstream.nn import activation, dropout, frames, pooling
from dreamstream.operations import ELEMENTWISE

PACKAGE = Path(__file__).resolve().parents[2] / "dreamstream"
METHODS = '''"""The methods that are a row of `dreamstream.operations`; tests/source/test_stubs.py writes this."""

from typing import Any

from .base import Base
from .tensor import Tensor

__all__ = ["COMPARISONS", "NAMES", "OPERATORS", "Functions"]

COMPARISONS: tuple[str, ...]
NAMES: tuple[str, ...]
OPERATORS: dict[str, Any]

class Functions(Base):
'''
LAYERS = '''"""The layers made from functions; tests/source/test_stubs.py writes this."""

from typing import Any

from ..array import Tensor
from .derived import Derived
from .functional.arguments import Ints

'''


def methods() -> str:
    """The stub of the methods of tensors."""
    lines = []
    for row in ELEMENTWISE.values():
        if row.doc:
            arguments = "self" if row.operands == 1 else "self, other: Any"
            lines += [f"    def {row.name}({arguments}) -> Tensor:", f'        """Return {row.doc}."""']
    for name in COMPARISONS:
        other, note = ("object", "  # type: ignore[override]") if name in ("eq", "ne") else ("Any", "")
        lines += [f"    def __{name}__(self, other: {other}) -> Tensor: ...{note}"]
    for name in OPERATORS:
        lines += [f"    def __{way}{name}__(self, other: Any) -> Tensor: ..." for way in ("", "r")]
    return METHODS + "\n".join(lines) + "\n"


def written(function: object) -> str:
    """A signature as the sources have it."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    parts = [
        p.name
        + (f": {p.annotation}" if p.annotation is not p.empty else "")
        + (f" = {p.default!r}" if p.default is not p.empty else "")
        for p in signature.parameters.values()
    ]
    text = f"({', '.join(parts)}) -> {signature.return_annotation}"
    if len(text) < 85:
        return text
    return "(\n        " + ",\n        ".join(parts) + f",\n    ) -> {signature.return_annotation}"


def layers(module: ModuleType) -> str:
    """The stub of a module of layers."""
    text = "__all__ = [\n" + "".join(f'    "{name}",\n' for name in module.__all__) + "]\n"
    own = sorted((getattr(module, name) for name in module.__all__), key=lambda cls: len(cls.__mro__))
    for cls in own:
        text += f"\nclass {cls.__name__}({cls.__base__.__name__}):\n"
        text += f'    """{inspect.cleandoc(cls.__doc__).partition(chr(10) * 2)[0]}"""\n'
        text += f"    def __init__{written(cls.__init__)}: ...\n"
        text += f"    def forward{written(cls.forward)}: ...\n"
    head = LAYERS if "Any" in text else LAYERS.replace("from typing import Any\n\n", "")
    return (head if "Ints" in text else head.replace("from .functional.arguments import Ints\n", "")) + text


def stubs() -> dict[Path, str]:
    """Every stub's text."""
    made = {PACKAGE / "array" / "functions.pyi": methods()}
    for module in (activation, dropout, frames, pooling):
        made[Path(str(module.__file__)).with_suffix(".pyi")] = layers(module)
    return made


@pytest.mark.parametrize("path", stubs(), ids=lambda path: path.stem)
def test_stub_is_what_the_table_says(path):
    assert path.read_text() == stubs()[path], f"run python {Path(__file__).name}"


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text)
