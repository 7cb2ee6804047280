"""Write docs/operators.md from the engine's own registry: ``python docs/make_operators.py [--check]``."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from dreamstream import _core

PAGE = Path(__file__).parent / "operators.md"

HEAD = """\
# Operators

What the engine computes with. Layers, functions and tensor methods come down to these, in every mode; the
list is the engine's registry. This page is made by `python docs/make_operators.py`: don't edit it.

A *frame* is one element along the stream axis L; what it holds are *features*, of any number of dimensions.
Weights are constants: `?` marks those that may be left out, `*` those of which there may be several.
Inputs in *lockstep* are used frame by frame together: where they progress differently, each first goes
through a `sync` with the others.

"""


def number_of(n: int, variadic: bool) -> str:
    return f"{n} or more" if variadic else str(n)


def default_of(attribute: dict[str, Any]) -> str:
    if attribute["required"]:
        return "required"
    kind = attribute["kind"]
    if kind == "choice":
        return f"`{attribute['choices'].split('|')[attribute['int']]}`"
    if kind == "real":
        value = attribute["real"]
        return f"{value:g}" if math.isfinite(value) else "none"
    return str(attribute["int"]) if kind == "int" else "none"


def kind_of(attribute: dict[str, Any]) -> str:
    if attribute["kind"] == "choice":
        return ", ".join(f"`{c}`" for c in attribute["choices"].split("|"))
    return {"int": "integer", "ints": "integers", "real": "number"}[attribute["kind"]]


def sentence(text: str) -> str:
    """The description without a full stop, safe in a table."""
    return text.rstrip(".").replace("|", "\\|")


def row(op: dict[str, Any]) -> str:
    inputs = number_of(op["n_inputs"], op["variadic"])
    if op["lockstep"]:
        inputs += ", lockstep"
    elif op["n_values"] == 0:
        inputs += ", only counted"
    elif 0 < op["n_values"] < op["n_inputs"]:
        inputs += f", of which {op['n_values']} is read and the rest only counted"
    weights = " ".join(f"`{w}`" for w in (op["weights"] or "").split())
    return f"| `{op['name']}` | {sentence(op['doc'])} | {inputs} | {op['n_outputs']} | {weights} |"


def table(ops: list[dict[str, Any]]) -> str:
    head = "| operator | what it does | inputs | outputs | weights |\n|---|---|---|---|---|\n"
    return head + "".join(f"{row(op)}\n" for op in ops)


def attributes(op: dict[str, Any]) -> str:
    lines = [f"### {op['name']}\n", "| attribute | kind | default | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{a['name']}` | {kind_of(a)} | {default_of(a)} | {sentence(a['doc'])} |" for a in op["attributes"]
    ]
    return "\n".join(lines) + "\n\n"


def page() -> str:
    """The page as it should be."""
    ops = _core.operators()
    operands = [op for op in ops if op["lockstep"] and [a["name"] for a in op["attributes"]] == ["order"]]
    others = [op for op in ops if op not in operands]
    own = [op for op in others if op["attributes"]]
    plain = [op for op in others if not op["attributes"]]
    text = HEAD
    text += f"## With attributes\n\n{table(own)}\n"
    text += f"## Without attributes\n\n{table(plain)}\n"
    text += (
        "## Of several operands\n\n"
        "Streams and constants, in any order. Constants have the features' shape, or broadcast to it; the\n"
        "attribute `order` says which operand is which (0: the next input, 1: the next constant).\n\n"
        f"{table(operands)}\n"
    )
    text += "## Attributes\n\n" + "".join(map(attributes, own))
    return text.rstrip() + "\n"


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current != text:
            print(f"{PAGE} is out of date: run python docs/make_operators.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
