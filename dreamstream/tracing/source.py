"""The source of a function: where it stands in its file, held against the code that runs.

The whole file is parsed, so that lines and columns are the file's own, and the class is known in which a function
stands (names such as ``__x`` depend on it). What is found is compiled unchanged and compared with the function's
code: this tells two lambdas of one line apart, and files that were edited since they were imported.
"""

import __future__

import ast
import itertools
import linecache
import sys
import threading
import types
import warnings
from collections import OrderedDict
from typing import Any, NamedTuple

from .nodes import placed

FUTURE = 0
for _name in __future__.all_feature_names:
    FUTURE |= getattr(__future__, _name).compiler_flag
_ASYNC = 0x80 | 0x200  # coroutines and asynchronous generators
_NESTED = 0x10

Function = ast.FunctionDef | ast.Lambda


class NoCopy(Exception):
    """A function can't be converted; the message says which, and why."""


class Found(NamedTuple):
    """A function in its file."""

    node: Function
    cls: str | None
    """The class in which it stands."""
    imports: tuple[str, ...]
    """Names that the module imports: the compiler writes calls of their attributes in another way."""


class _File(NamedTuple):
    lines: list[str]
    functions: dict[tuple[str, int], list[tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, str | None]]]
    """By name and first line: functions, and the classes in which they stand."""
    imports: tuple[str, ...]

    def candidates(self, code: types.CodeType) -> list[tuple[Any, str | None]]:
        """Return the functions that a code may be of; those of other names where it was given its name later."""
        line = code.co_firstlineno
        named = self.functions.get((code.co_name, line))
        return named or [each for (_, at), found in self.functions.items() if at == line for each in found]


#: The files that were read last.
_files: "OrderedDict[str, _File]" = OrderedDict()
_KEPT_FILES = 8
_lock = threading.RLock()


def place(code: types.CodeType) -> str:
    """Return where a function stands, for messages."""
    return f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"


def qualified_name(function: types.FunctionType) -> str:
    """Return the name under which a function's code was compiled."""
    return getattr(function.__code__, "co_qualname", function.__qualname__)


def find(function: types.FunctionType) -> Found:
    """Return a copy of a function's node, without defaults, annotations and decorators.

    NoCopy is raised where there is no source, or it is not what runs, or the function is asynchronous.
    """
    code = function.__code__
    if code.co_flags & _ASYNC:
        raise NoCopy(f"{place(code)}: functions that are asynchronous are not converted")
    file = _file(code.co_filename, function.__globals__)
    if not file.functions:
        raise NoCopy(f"{place(code)}: there is no source of it (made by exec, in a console, or frozen)")
    rewritten: dict[int, Found] = {}
    by_parts = dict.fromkeys((file.imports, ()))  # a file may have been run part by part
    for (node, cls), imports in itertools.product(file.candidates(code), by_parts):
        if isinstance(node, ast.AsyncFunctionDef):
            continue
        found = Found(_bare(node, code.co_name), cls, imports)
        try:
            made = compiled(found, code, code.co_freevars, qualified_name(function))
        except (SyntaxError, ValueError):
            continue
        if _equal(made, code):
            return found
        if _rewritten(made, code):
            rewritten[id(node)] = found
    if len(rewritten) == 1:
        return next(iter(rewritten.values()))
    raise NoCopy(
        f"{place(code)}: its source is not what runs (edited since it was imported, or made by another program)"
    )


def compiled(found: Found, code: types.CodeType, free: tuple[str, ...], qualname: str) -> types.CodeType:
    """Compile a function's node where ``free`` are variables of a function around it.

    The node is compiled in a class of the original's name, so that names are mangled as there, but for underscores
    in front, which don't count. The class also hides the function's own name: a function that calls itself looks
    for it where it did before.
    """
    node = found.node
    outer, inside = "<outer>", "_" * 20 + (found.cls or "")
    body: ast.stmt = ast.copy_location(ast.Expr(node), node) if isinstance(node, ast.Lambda) else node
    around = ast.ClassDef(name=inside, bases=[], keywords=[], body=[body], decorator_list=[])
    parameters = [ast.arg(name) for name in free]
    arguments = ast.arguments(posonlyargs=[], args=parameters, kwonlyargs=[], kw_defaults=[], defaults=[])
    function = ast.FunctionDef(name=outer, args=arguments, body=[around], decorator_list=[])
    if sys.version_info >= (3, 12):
        around.type_params = function.type_params = []
    before: list[ast.stmt] = [ast.Import([ast.alias(n)]) for n in found.imports]
    module = ast.Module([placed(s, node) for s in (*before, function)], [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user has seen what the compiler says of the file
        made = compile(module, code.co_filename, "exec", code.co_flags & FUTURE, True)
    for name in (outer, inside, code.co_name):
        made = next(c for c in made.co_consts if isinstance(c, types.CodeType) and c.co_name == name)
    made = _renamed(made, f"{outer}.<locals>.{inside}.{code.co_name}", qualname)
    return made.replace(co_flags=made.co_flags & ~_NESTED | code.co_flags & _NESTED)


def _file(filename: str, namespace: dict[str, object]) -> _File:
    lines = linecache.getlines(filename, namespace)
    with _lock:
        known = _files.get(filename)
        if known is None or (known.lines is not lines and known.lines != lines):
            known = _files[filename] = _read(lines, filename)
        _files.move_to_end(filename)
        while len(_files) > _KEPT_FILES:
            _files.popitem(last=False)
        return known


def _read(lines: list[str], filename: str) -> _File:
    file = _File(lines, {}, ())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse("".join(lines), filename)
    except (SyntaxError, ValueError, RecursionError):
        return file
    imports: dict[str, None] = {}
    waiting: list[tuple[ast.AST, str | None, bool]] = [(tree, None, True)]
    while waiting:
        parent, cls, outside = waiting.pop()
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                file.functions.setdefault((node.name, first), []).append((node, cls))
            elif isinstance(node, ast.Lambda):
                file.functions.setdefault(("<lambda>", node.lineno), []).append((node, cls))
            elif isinstance(node, (ast.Import, ast.ImportFrom)) and outside:
                imports.update((a.asname or a.name.partition(".")[0], None) for a in node.names if a.name != "*")
            inner = outside and not isinstance(
                node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
            )
            waiting.append((node, node.name if isinstance(node, ast.ClassDef) else cls, inner))
    return file._replace(imports=tuple(imports))


def _bare(node: Function, name: str) -> Function:
    """Copy a function's node without what is evaluated where it is made. It still begins at its decorators."""
    new: Function = _copied(node)
    args = new.args
    args.defaults = [ast.copy_location(ast.Constant(None), d) for d in args.defaults]
    args.kw_defaults = [d and ast.copy_location(ast.Constant(None), d) for d in args.kw_defaults]
    for argument in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
        if argument is not None:
            argument.annotation = None
    if isinstance(new, ast.FunctionDef):
        new.name = name
        new.decorator_list = [ast.copy_location(ast.Constant(None), d) for d in new.decorator_list]
        new.returns = new.type_comment = None
        if sys.version_info >= (3, 12):
            new.type_params = []
    return new


def _copied(value: Any) -> Any:
    """Copy a node with all that is in it; `copy.deepcopy` takes longer, for it looks for what is there twice."""
    if isinstance(value, list):
        return [_copied(v) for v in value]
    if not isinstance(value, ast.AST):
        return value
    new = value.__class__.__new__(value.__class__)
    vars(new).update(
        (name, _copied(v) if isinstance(v, (ast.AST, list)) else v) for name, v in vars(value).items()
    )
    return new


def _equal(a: types.CodeType, b: types.CodeType) -> bool:
    """Whether two codes do the same, with what they contain."""
    if (a.co_code, a.co_names, a.co_varnames, a.co_freevars, a.co_cellvars) != (
        (b.co_code, b.co_names, b.co_varnames, b.co_freevars, b.co_cellvars)
    ) or (a.co_argcount, a.co_kwonlyargcount, len(a.co_consts)) != (
        b.co_argcount,
        b.co_kwonlyargcount,
        len(b.co_consts),
    ):
        return False
    if getattr(a, "co_exceptiontable", b"") != getattr(b, "co_exceptiontable", b""):
        return False
    return all(map(_equal_constants, a.co_consts, b.co_consts))


def _equal_constants(a: object, b: object) -> bool:
    if isinstance(a, types.CodeType) and isinstance(b, types.CodeType):
        return _equal(a, b)
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return sorted(map(repr, a)) == sorted(map(repr, b))
    return type(a) is type(b) and repr(a) == repr(b)  # as texts: 0.0 is not -0.0, and nan is nan


def _rewritten(made: types.CodeType, code: types.CodeType) -> bool:
    """Whether ``code`` is ``made`` with its asserts rewritten by pytest."""
    return (
        "@pytest_ar" in _names(code)
        and (made.co_varnames[: made.co_argcount], made.co_freevars)
        == (code.co_varnames[: code.co_argcount], tuple(n for n in code.co_freevars if n[:1] != "@"))
        and _names(made) <= _names(code) | {"AssertionError"}
        and _constants(made) <= _constants(code)
    )


def _names(code: types.CodeType) -> set[str]:
    inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _constants(code: types.CodeType) -> set[str]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    own = {repr(c) for c in code.co_consts if isinstance(c, (int, float, complex, bytes)) and c not in (0, 1)}
    return own.union(*map(_constants, inner))


def _renamed(code: types.CodeType, before: str, after: str) -> types.CodeType:
    """Give a code and those within it qualified names that begin otherwise; until 3.10 these are constants."""
    constants: list[object] = []
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            constants.append(_renamed(c, before, after))
        elif type(c) is str and c.startswith(f"{before}.<locals>."):
            constants.append(after + c[len(before) :])
        else:
            constants.append(c)
    if sys.version_info < (3, 11):
        return code.replace(co_consts=tuple(constants))
    name = code.co_qualname
    name = after + name[len(before) :] if name == before or name.startswith(before + ".") else name
    return code.replace(co_consts=tuple(constants), co_qualname=name)
