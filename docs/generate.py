"""What of the documentation is made from the sources: ``generated/``, written whenever Sphinx runs.

- ``operators/NAME.md``: a page per operator of the engine's registry, with the text that stands at the top of
  its C file and the layers and functions that come down to it; ``operators.inc``: a table of them.
- ``PART.inc``: autodoc directives for every public name of the package, by part.
- ``command_line.inc``: the help of every command.
- ``c_api.inc``: the sections of ``dreamstream.h``.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dreamstream
import dreamstream.export
import dreamstream.torch.functional
import dreamstream.torch.nn
from dreamstream import _core, cli, data, decode, errors, models, nn, optim, torch as bridge, train
from dreamstream.array import Tensor
from dreamstream.array.maths import NAMES
from dreamstream.operations import OPERATORS

ROOT = Path(__file__).resolve().parent.parent
OPS = ROOT / "csrc" / "ops"
HEADER = ROOT / "csrc" / "include" / "dreamstream.h"
PACKAGE = ROOT / "dreamstream"

# ---------------------------------------------------------------------- operators: the registry


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
    return {"int": "integer", "ints": "integers", "real": "number", "text": "text"}[attribute["kind"]]


def cell(text: str) -> str:
    """A description without a full stop, safe in a table and in a line of Markdown."""
    return re.sub(r"([|*<\[])", r"\\\1", text.rstrip("."))


def inputs_of(op: dict[str, Any]) -> str:
    text = number_of(op["n_inputs"], op["variadic"])
    if op["lockstep"]:
        return text + ", lockstep"
    if op["n_values"] == 0:
        return text + ", only counted"
    if 0 < op["n_values"] < op["n_inputs"]:
        return text + f", of which {op['n_values']} is read and the rest only counted"
    return text


def shapes_of(op: dict[str, Any]) -> str:
    """The line of words by which shapes of inputs, and weights, are checked."""
    return f"`{op['shapes']}`".replace("|", "\\|") if op["shapes"] else "any"


def operator_table() -> str:
    lines = ["| operator | what it does | inputs | outputs | frames; weights |", "|---|---|---|---|---|"]
    for op in _core.operators():
        link = f"[`{op['name']}`](/generated/operators/{op['name']}.md)"
        lines.append(f"| {link} | {cell(op['doc'])} | {inputs_of(op)} | {op['n_outputs']} | {shapes_of(op)} |")
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------------- operators: their C files


def opening(path: Path) -> str:
    """The comment at the top of a C file, without its marks and the file's name."""
    match = re.match(r"/\*(.*?)\*/", path.read_text(encoding="utf-8"), re.DOTALL)
    if match is None:
        raise ValueError(f"{path} does not begin with a comment")
    lines = [re.sub(r"^ ?\* ?", "", line).rstrip() for line in match[1].splitlines()]
    text = re.sub(r"^ *ops/[\w.]+: ", "", "\n".join(lines)).strip()
    return text[0].upper() + text[1:]


def file_of(name: str) -> Path:
    """The C file that defines an operator: as it is, or by a line of a table of such."""
    table = (OPS.parent / "kernels" / "pointwise.def").read_text(encoding="utf-8")
    if re.search(rf"^[A-Z]+\({name}, ", table, re.MULTILINE):
        return OPS / "pointwise.c"
    for pattern in (rf"\bds_op_{name}\b *=", rf"^[A-Z_]+\({name}, "):
        for path in sorted(OPS.glob("*.c")):
            if re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE):
                return path
    raise ValueError(f"no file of {OPS} defines the operator {name}")


def definition(name: str) -> list[tuple[str, str]]:
    """The texts that define an operator, with their files: its own, then of the headers that it names."""
    texts: dict[Path, str] = {}
    wanted = [file_of(name)]
    for path in wanted:
        if path not in texts:
            texts[path] = opening(path)
            named = (OPS / header for header in re.findall(r"(?:ops/)?(\w+\.h)\b", texts[path]))
            wanted += [p for p in named if p.exists() and p.name not in ("op.h", "expr.h")]
    return [(path.relative_to(ROOT).as_posix(), text) for path, text in texts.items()]


# ---------------------------------------------------------------------- operators: who uses them


def words_and_calls(node: ast.AST) -> tuple[set[str], set[str]]:
    """The strings in a function or class, and the functions that it calls by name or as ``F.name``."""
    words, calls, others = set(), set(), set()
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part not in others:
            words.add(part.value)
        elif isinstance(part, ast.Dict):  # keys, what is compared and defaults name other things
            others.update(filter(None, part.keys))
        elif isinstance(part, ast.Compare):
            others.update(ast.walk(part))
        elif isinstance(part, ast.Subscript):
            others.update(ast.walk(part.slice))
        elif isinstance(part, ast.arguments):
            others.update(part.defaults)
        elif isinstance(part, ast.Call):
            f = part.func
            if isinstance(f, ast.Name):
                calls.add(f.id)
        elif isinstance(part, ast.Attribute):
            if isinstance(part.value, ast.Name) and part.value.id == "F":
                calls.add(part.attr)
        elif isinstance(part, ast.ClassDef):
            calls |= {b.id for b in part.bases if isinstance(b, ast.Name)}
    return words, calls


SEES = {
    "elementwise": "the elements in its place",
    "frame": "its own frame",
    "window": "a window of frames",
    "carried": "all frames so far, by what is carried from call to call",
}


def methods(module: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Functions by name, and rows ``"name": (doc, lambda ...)`` of tables of them."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            yield node.name.removeprefix("_"), node
        for key, value in zip(node.keys, node.values) if isinstance(node, ast.Dict) else ():
            if isinstance(value, ast.Tuple) and [type(e) for e in value.elts[1:]] == [ast.Lambda]:
                yield str(getattr(key, "value", "")), value


def layers_and_functions() -> dict[str, list[str]]:
    """Per operator the public names whose code names it, themselves or through what they call."""
    operators = {op["name"] for op in _core.operators()}
    known: dict[str, tuple[set[str], set[str]]] = {}
    for path in sorted((PACKAGE / "nn").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                known[node.name] = words_and_calls(node)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):  # made from a function
                known[node.targets[0].id] = words_and_calls(node)

    def reached(name: str, seen: set[str]) -> set[str]:
        if name in seen or name not in known:
            return set()
        seen.add(name)
        words, calls = known[name]
        return (words & operators).union(*(reached(c, seen) for c in calls))

    users = defaultdict(list)
    for prefix, names in (
        ("dreamstream.nn.", [n for n in nn.__all__ if inspect.isclass(getattr(nn, n))]),
        ("dreamstream.nn.functional.", nn.functional.__all__),
    ):
        for name in names:
            for op in reached(name, set()):
                users[op].append(prefix + name)
    for path in sorted((PACKAGE / "array").glob("*.py")):
        for name, node in methods(ast.parse(path.read_text(encoding="utf-8"))):
            if name and not name.startswith("_") and hasattr(Tensor, name):
                for op in words_and_calls(node)[0] & operators:
                    users[op].append(f"dreamstream.Tensor.{name}")
    for op in NAMES:
        users[op].append(f"dreamstream.Tensor.{op}")
    return {op: list(dict.fromkeys(names)) for op, names in users.items()}


def operator_page(op: dict[str, Any], users: list[str]) -> str:
    row = OPERATORS[op["name"]]
    text = f"# {op['name']}\n\n{cell(op['doc'])[0].upper()}{cell(op['doc'])[1:]}.\n\n"
    text += f"| inputs | outputs | frames; weights | an output sees |\n|---|---|---|---|\n| {inputs_of(op)} "
    text += f"| {op['n_outputs']} | {shapes_of(op)} | {SEES[row.kind]} |\n\n"
    if op["attributes"]:
        text += "| attribute | kind | default | meaning |\n|---|---|---|---|\n"
        for a in op["attributes"]:
            text += f"| `{a['name']}` | {kind_of(a)} | {default_of(a)} | {cell(a['doc'])} |\n"
        text += "\n"
    text += "## Definition\n\n"
    for path, comment in definition(op["name"]):
        text += f"`{path}`:\n\n```text\n{comment}\n```\n\n"
    text += "## In Python\n\n"
    if row.written:
        text += f"Written {row.written}.\n\n".replace("Written nothing", "Not written")
    if users:
        text += autodoc(users, no_index=True)
    return text


# ---------------------------------------------------------------------- Python

PARTS = {
    "engine": "engine",
    "online": "streaming",
    "stream": "streaming",
    "array.stream_tensor": "streaming",
    "array.stream_creation": "streaming",
    "array": "tensors",
    "errors": "errors",
    "config": "configuration",
    "autograd": "autograd",
}
"""Which page a module's public names are on; the longest match holds."""


def resolve(name: str) -> Any:
    obj: Any = sys.modules["dreamstream"]
    for part in name.split(".")[1:]:
        obj = getattr(obj, part)
    return obj


def own_members(cls: type) -> list[str]:
    """What a class writes itself and users call, where it also wraps all that its base has."""
    named = {n: getattr(m, "fget", m) for n, m in vars(cls).items() if not n.startswith("_")}
    return [n for n, f in named.items() if getattr(f, "__qualname__", "") == f"{cls.__name__}.{n}"]


def autodoc(names: list[str], no_index: bool = False) -> str:
    """Directives for objects of any kind."""
    text = "```{eval-rst}\n"
    for name in names:
        obj = resolve(name)
        options = ["no-index"] if no_index else []
        if inspect.isclass(obj):
            layer = issubclass(obj, nn.Module) and obj is not nn.Module and name.startswith("dreamstream.nn.")
            text += f".. {'autoexception' if issubclass(obj, BaseException) else 'autoclass'}:: {name}\n"
            if obj is bridge.StreamTensor:
                options += [f"members: {', '.join(own_members(obj))}"]
            elif not layer:
                options += [] if no_index else ["members"]
                options += ["inherited-members"] if obj in (Tensor, dreamstream.Engine) else []
                options += ["inherited-members: Module"] if obj.__name__ == "StreamModule" else []
            elif obj.forward is not nn.Module.forward:
                options += ["members: forward", "inherited-members: Module"]
            elif not no_index:
                options += ["members"]
        elif name.startswith("dreamstream.Tensor."):
            text += f".. auto{'attribute' if isinstance(obj, property) else 'method'}:: {name}\n"
        elif inspect.isroutine(obj):
            text += f".. autofunction:: {name}\n"
        else:  # an element type
            text += f".. py:data:: {name}\n   :type: numpy.dtype\n"
            options = ["no-index"]  # "bool" and "float32" in other places are not these
        text += "".join(f"   :{option}{'' if ':' in option else ':'}\n" for option in options) + "\n"
    return text + "```\n\n"


def part_of(name: str) -> str:
    """The part of the manual that a public name of the package belongs to."""
    obj = getattr(dreamstream, name)
    room = "array" if name in dreamstream.array.__all__ else ""
    room = "errors" if name in errors.__all__ else room
    module = room or obj.__module__.removeprefix("dreamstream.")
    while module not in PARTS:
        module, _, rest = module.rpartition(".")
        if not module:
            raise ValueError(f"dreamstream.{name} ({rest}) has no page: add its module to PARTS")
    return PARTS[module]


def kind(name: str) -> int:
    """Functions first, then classes, then element types."""
    obj = resolve(name)
    return 0 if inspect.isroutine(obj) else 1 if inspect.isclass(obj) else 2


def bridge_names() -> list[str]:
    """The public names of the bridge to PyTorch that the package itself does not have."""
    own = [n for n in bridge.__all__ if getattr(bridge, n) is not getattr(dreamstream, n, None)]
    return sorted((f"dreamstream.torch.{n}" for n in own if n != "FRONT"), key=kind)


def package_parts() -> dict[str, str]:
    names = defaultdict(list)
    for name in dreamstream.__all__:
        if not isinstance(getattr(dreamstream, name), ModuleType):
            names[part_of(name)].append(f"dreamstream.{name}")
    out = {part: autodoc(sorted(found, key=kind)) for part, found in names.items()}
    out["data"] = autodoc([f"dreamstream.data.{n}" for n in data.__all__])
    out["decode"] = autodoc([f"dreamstream.decode.{n}" for n in decode.__all__])
    out["autograd"] += autodoc([f"dreamstream.autograd.{n}" for n in ("backward", "grad")])
    out["optim"] = autodoc([f"dreamstream.optim.{n}" for n in optim.__all__ if n != "lr_scheduler"])
    out["optim"] += autodoc([f"dreamstream.optim.lr_scheduler.{n}" for n in optim.lr_scheduler.__all__])
    out["train"] = autodoc([f"dreamstream.train.{n}" for n in train.__all__])
    out["models"] = "".join(
        autodoc([f"dreamstream.models.{n}" for n in models.__all__ if (n in nn.__all__) == shared], shared)
        for shared in (False, True)  # `GlobalCMVN` is a layer
    )
    out["export"] = autodoc([f"dreamstream.export.{n}" for n in dreamstream.export.__all__])
    out["torch"] = autodoc(bridge_names())
    out["torch_nn"] = autodoc([f"dreamstream.torch.nn.{n}" for n in bridge.nn.__all__])
    out["torch_functional"] = autodoc([f"dreamstream.torch.functional.{n}" for n in bridge.functional.__all__])
    return out


def by_module(package: ModuleType) -> str:
    """The public names of a package under the headings of the modules that hold them."""
    text = ""
    public = set(package.__all__)
    own = (nn.init, nn.gates)  # whose names are not the package's
    inside = re.compile(re.escape(package.__name__) + r"\.\w+")
    modules = [m for name, m in sys.modules.items() if inside.fullmatch(name)]  # in the order of imports
    for module in sorted((m for m in modules if "__path__" not in vars(m)), key=own.__contains__):
        held = {n: getattr(module, n) for n in getattr(module, "__all__", ())}
        names = [n for n, x in held.items() if module in own or (n in public and x is getattr(package, n))]
        prefix = module.__name__ if module in own else package.__name__
        if names:
            heading = (module.__doc__ or "").split("\n")[0].split(":")[0].rstrip(".")
            text += f"## {heading}\n\n" + autodoc([f"{prefix}.{n}" for n in names])
            public.difference_update(names)
    left = [n for n in public if not isinstance(getattr(package, n), ModuleType)]
    if left:
        raise ValueError(f"{package.__name__}: no module's __all__ holds {', '.join(sorted(left))}")
    return text


# ---------------------------------------------------------------------- command line, C


def command_line() -> str:
    parser = cli._parser()
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    text = f"```text\n{parser.format_help()}```\n\n"
    for name, command in commands.choices.items():
        text += f"## dreamstream {name}\n\n```text\n{command.format_help()}```\n\n"
    return text


def c_sections() -> list[tuple[str, str]]:
    """(heading, text) of the header's sections: what stands between ``/* ---- name ---- */``."""
    text = HEADER.read_text(encoding="utf-8")
    parts = re.split(r"^/\* -{2,} (.+?) -{2,} \*/\n", text, flags=re.MULTILINE)
    first = parts[0].split("#ifndef", 1)[0]
    sections = [("conventions", first), *zip(parts[1::2], parts[2::2])]
    end = re.compile(r"^#ifdef __cplusplus\n}.*", re.MULTILINE | re.DOTALL)
    return [(heading, end.sub("", body).strip("\n")) for heading, body in sections]


def c_api() -> str:
    return "".join(
        f"## {heading[0].upper()}{heading[1:]}\n\n```c\n{body}\n```\n\n" for heading, body in c_sections()
    )


# ---------------------------------------------------------------------- all


def files() -> dict[str, str]:
    """Every generated file by its path."""
    users = layers_and_functions()
    out = {f"operators/{op['name']}.md": operator_page(op, users.get(op["name"], [])) for op in _core.operators()}
    out["operators.inc"] = operator_table()
    out |= {f"{part}.inc": text for part, text in package_parts().items()}
    out["nn.inc"] = by_module(nn)
    out["functional.inc"] = by_module(nn.functional)
    out["command_line.inc"] = command_line()
    out["c_api.inc"] = c_api()
    return out


def write(folder: Path) -> None:
    """Write what has changed, remove what is no longer made."""
    made = {folder / name: text for name, text in files().items()}
    for path in [p for p in folder.rglob("*") if p.is_file() and p not in made]:
        path.unlink()
    for path, text in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
