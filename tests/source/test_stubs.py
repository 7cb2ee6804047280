"""``.pyi`` files say what is made from tables: tensors' methods by `dreamstream.operations`, layers and torch's
functions by native functions.

``python tests/source/test_stubs.py`` writes them.
"""

import inspect
import re
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from dreamstream.array import Tensor
from dreamstream.nn import activation, dropout, frames, functional, loss, padding, pooling

PACKAGE = Path(__file__).resolve().parents[2] / "dreamstream"
METHODS = '''"""The tensor with its methods; tests/source/test_stubs.py writes this."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from typing_extensions import Self

from .base import Base, Number
from .reductions import Extreme

__all__ = ["Tensor", "each", "take"]

Flag = bool
Real = float
Operand = Any
Dims = int | Sequence[int] | None

def take(cls: type[Any], module: Mapping[str, Any] | None = None, /, **others: Any) -> None: ...
def each(**words: str) -> Callable[[Callable[[str], Any]], dict[str, Any]]: ...

class Tensor(Base):
'''
#: Above the methods that write, which need no text each.
WRITING = "    # x.relu_() writes what x.relu() gives into x, and returns x; so do all of these"
LAYERS = '''"""The layers made from functions; tests/source/test_stubs.py writes this."""

from typing import Any

from ..array import Tensor
from .derived import Derived
from .functional.arguments import Ints
'''

FUNCTIONS = '''"""Functions that torch lacks; tests/source/test_stubs.py writes this."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

'''


def methods() -> str:
    """The stub of tensors: what their class has taken from other files."""
    lines, writing = [], [WRITING]
    for name, member in vars(Tensor).items():
        function = getattr(member, "fget", member)
        if not inspect.isfunction(function):
            continue
        text = f"def {name}{written(function, len(name))}".replace("self: Tensor", "self")
        head, arrow, result = text.rpartition(" -> ")
        text = head + arrow + result.replace("Tensor", "Self")
        text = re.sub(r"\bbool\b", "Flag", re.sub(r"\bfloat\b", "Real", text))  # they are methods, too
        doc = (function.__doc__ or "").partition("\n")[0]
        if doc.startswith("Write what `"):
            writing.append(f"    {text}: ...")
            continue
        lines += ["    @property"] if isinstance(member, property) else []
        override = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
        lines += [f"    {text}:{override}", f'        """{doc}"""'] if doc else [f"    {text}: ...{override}"]
    return METHODS + "\n".join(lines + writing) + "\n"


def written(function: object, more: int = 0) -> str:
    """A signature as the sources have it, where `more` letters of a name stand before it."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    parts = [
        {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        + p.name
        + (f": {p.annotation}" if p.annotation is not p.empty else "")
        + (f" = {p.default!r}" if p.default is not p.empty else "")
        for p in signature.parameters.values()
    ]
    kinds = [p.kind for p in signature.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    behind = f") -> {signature.return_annotation}"
    text = f"({', '.join(parts)}{behind}"
    if len(text) + more < 100:
        return text
    whole = [part.replace(" ", "\0") for part in parts]  # lines end behind parameters alone
    inner = textwrap.fill(", ".join(whole), 115, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return f"(\n{inner}\n    {behind}".replace("\0", " ")


def layers(module: ModuleType) -> str:
    """The stub of a module of layers."""
    text = ""
    own = sorted((getattr(module, name) for name in module.__all__), key=lambda cls: len(cls.__mro__))
    for cls in own:
        text += f"\nclass {cls.__name__}({cls.__base__.__name__}):\n"
        text += f'    """{inspect.cleandoc(cls.__doc__).partition(chr(10) * 2)[0]}"""\n'
        text += f"    def __init__{written(cls.__init__, 8)}: ...\n"
        if len(inspect.signature(cls.forward).parameters) > 2:
            text += f"    def forward{written(cls.forward, 7)}: ...  # type: ignore[override]\n"
    head = LAYERS if "Any" in text else LAYERS.replace("from typing import Any\n\n", "")
    head = head if " Tensor" in text else head.replace("from ..array import Tensor\n", "")
    return (head if "Ints" in text else head.replace("from .functional.arguments import Ints\n", "")) + text


def functions() -> str:
    """The stub of torch's functions on streams."""
    own = [name for name in functional.__all__ if hasattr(getattr(functional, name), "torch_lacks")]
    text = f"{FUNCTIONS}def of_streams(function: Callable[..., Any]) -> Callable[..., Any]: ...\n"
    for name in sorted(own):
        function = getattr(functional, name)
        text += f'def {name}{written(function, len(name))}:\n    """{function.__doc__.partition(chr(10))[0]}"""\n'
    return text


def stubs() -> dict[Path, str]:
    """Every stub's text."""
    made = {PACKAGE / "array" / "tensor.pyi": methods(), PACKAGE / "torch" / "functional.pyi": functions()}
    for module in (activation, dropout, frames, loss, padding, pooling):
        made[Path(str(module.__file__)).with_suffix(".pyi")] = layers(module)
    return made


@pytest.mark.parametrize("path", stubs(), ids=lambda path: path.stem)
def test_stub_is_what_the_table_says(path):
    assert path.read_text() == stubs()[path], f"run python {Path(__file__).name}"


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text)
