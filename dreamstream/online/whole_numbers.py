"""Functions that make lengths integers by ``int``, or numbers by ``float`` or by roots of ``math``.

A length is an integer as it is, but Python has ``int`` give a number and nothing else. So the code of a function
that failed in its ``int(length)`` is exchanged for one in which the name stands for a function of this file; of
everything but lengths it gives what it gave before. Functions that use the name in another way, as in
``isinstance(n, int)``, are left as they are.
"""

from __future__ import annotations

import ast
import gc
import math
from traceback import walk_tb
from types import CodeType, FunctionType
from typing import Any

from ..array.symbolic import Symbolic
from ..stream.rules import Token
from ..stream.rules.guarded import nodes_of
from ..stream.where import is_of_user


def _int(x: Any = 0, *more: Any, **base: Any) -> Any:
    number = _bared(x)
    return math.trunc(number) if isinstance(number, Token) else int(number, *more, **base)


def _float(x: Any = 0.0) -> Any:
    number = _bared(x)
    return number if isinstance(number, Token) else float(number)


def _bared(x: Any) -> Any:
    """Return the number that a tensor of lengths is."""
    inner = getattr(x, "_inner", x)
    return inner.item() if isinstance(inner, Symbolic) else x


def _sqrt(x: Any) -> Any:
    number = _bared(x)
    return number**0.5 if isinstance(number, Token) else math.sqrt(number)


class _Math:
    """The module `math`, whose root takes lengths."""

    sqrt = staticmethod(_sqrt)

    def __getattr__(self, name: str) -> Any:
        return getattr(math, name)


_INSTEAD: dict[str, tuple[str, Any]] = {
    "int": ("_int_of_streams", _int),
    "float": ("_float_of_streams", _float),
    "math": ("_math_of_streams", _Math()),
    "sqrt": ("_sqrt_of_streams", _sqrt),
}

#: What a forward's own names of modules and functions stand for, where they may be exchanged.
_GLOBAL = {"math": math, "sqrt": math.sqrt}


def kept_by(error: BaseException) -> bool:
    """Let the function that made a number of a length leave it as it is; return whether there is one.

    Functions of which it is part are exchanged with it, since they may make it anew.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    asked = (f.f_code.co_name.strip("_") for f in frames if f.f_code.co_name in ("__int__", "__float__"))
    name = next(asked, "")
    frame = next((f for f in reversed(frames) if is_of_user(f)), None)
    if frame is None or not name:
        return False
    if name == "float":  # or a root, which asks for one
        name = next((n for n in _GLOBAL if _is(frame, n) and "sqrt" in frame.f_code.co_names), name)
    if name not in frame.f_code.co_names or not _means(frame.f_globals, name):
        return False
    code, before = frame.f_code, error.__context__
    if not _only_called(code, name):
        return False
    while before is not None:
        if any(f.f_code is code for f, _ in walk_tb(before.__traceback__)):
            return False
        before = before.__context__
    instead, function = _INSTEAD[name]
    new = code.replace(co_names=tuple(instead if n == name else n for n in code.co_names))
    functions = [f for f in _tracked() if type(f) is FunctionType and f.__code__.co_filename == code.co_filename]
    functions = [f for f in functions if _means(f.__globals__, name)]  # copies may have others
    exchanged = [(f, after) for f in functions if (after := _with(f.__code__, code, new)) is not f.__code__]
    for f, after in exchanged:
        f.__globals__[instead], f.__code__ = function, after
    return bool(exchanged)


def _is(frame: Any, name: str) -> bool:
    return name in frame.f_code.co_names and _means(frame.f_globals, name)


def _means(names: dict[str, Any], name: str) -> bool:
    """Whether a name stands for what it does everywhere, among the names of a module."""
    return names.get(name) is _GLOBAL[name] if name in _GLOBAL else name not in names


def _tracked() -> list[Any]:
    """Return all objects that the collector knows, those that it leaves alone too."""
    frozen = gc.get_freeze_count()
    if frozen:
        gc.unfreeze()
    objects = gc.get_objects()
    if frozen:
        gc.freeze()
    return objects


def _with(code: CodeType, inner: CodeType, new: CodeType) -> CodeType:
    """Return code in which a function's code, it or that of a function in it, is exchanged."""
    if code is inner:
        return new
    constants = tuple(_with(c, inner, new) if isinstance(c, CodeType) else c for c in code.co_consts)
    same = all(a is b for a, b in zip(constants, code.co_consts))
    return code if same else code.replace(co_consts=constants)


def _only_called(code: CodeType, name: str) -> bool:
    """Whether a function calls what has this name and does nothing else with it, and no attribute is called so."""
    nodes = nodes_of(code)
    called = {id(n.func) for n in nodes if isinstance(n, ast.Call)}
    called |= {id(n.value) for n in nodes if isinstance(n, ast.Attribute) and name == "math"}
    noted = {id(n) for a in nodes for n in _annotations(a)}
    used = [n for n in nodes if isinstance(n, ast.Name) and n.id == name and id(n) not in noted]
    named = any(isinstance(n, ast.Attribute) and n.attr == name for n in nodes)
    return bool(used) and not named and all(id(n) in called for n in used)


def _annotations(node: ast.AST) -> list[ast.AST]:
    """Return what stands in annotations, which no call of a function evaluates."""
    said = (getattr(node, "annotation", None), getattr(node, "returns", None))
    return [n for part in said if part is not None for n in ast.walk(part)]
