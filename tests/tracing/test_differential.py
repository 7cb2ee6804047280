"""A copy does what the original does: results, exceptions and where they come from, the lines that run."""

import gc
import inspect
import linecache
import sys
import traceback
import types

import pytest
from tracing_snippets import CALLS, FILES, MODULES
from turns import in_blocks

from dreamstream.tracing import Hooks, why_not

ORIGINAL, COPY = "original", "copy"


def outcome(function, args, lines=None):
    """What a call gives: its result as text, or its exception with the places that it went through."""

    def trace(frame, event, _):
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            lines.add((frame.f_code.co_name, frame.f_lineno))
        return trace

    if lines is not None:
        before = sys.gettrace()
        sys.settrace(trace)
    try:
        result = function(*args)
        return "returned", repr(list(result) if isinstance(result, types.GeneratorType) else result)
    except Exception as error:
        return "raised", type(error).__name__, str(error), places(error)
    finally:
        if lines is not None:
            sys.settrace(before)


def places(error):
    """The lines and columns of a traceback, but for the call in this file."""
    entries = traceback.extract_tb(error.__traceback__)[1:]
    found = []
    for entry, then in zip(entries, [*entries[1:], None]):
        # which columns a truth has, an assert's too, differs from Python to Python, and between statements
        truth = then.name == "__bool__" if then is not None else isinstance(error, AssertionError)
        columns = (getattr(entry, n, None) for n in ("end_lineno", "colno", "end_colno"))
        found.append((entry.filename, entry.name, entry.lineno, *(() if truth else columns)))
    return found


@in_blocks(("function", "several"), CALLS, 27)
def test_copies_give_the_same(function, several):
    copy = Hooks().of(function)
    assert copy is not function, why_not(function.__code__)
    for args in several:
        assert outcome(copy, args) == outcome(function, args)


@in_blocks(("function", "several"), CALLS, 27)
def test_copies_run_the_same_lines(function, several):
    for args in several:
        lines = {ORIGINAL: set(), COPY: set()}
        outcome(function, args, lines[ORIGINAL])
        outcome(Hooks().of(function), args, lines[COPY])
        assert lines[COPY] == lines[ORIGINAL]


@in_blocks(("function", "several"), CALLS, 27)
def test_copies_look_like_their_functions(function, several):
    copy = Hooks().of(function)
    for name in (
        "__name__",
        "__qualname__",
        "__module__",
        "__doc__",
        "__defaults__",
        "__kwdefaults__",
        "__dict__",
    ):
        assert getattr(copy, name) == getattr(function, name), name
    assert copy.__globals__ is function.__globals__
    assert all(any(cell is own for own in copy.__closure__ or ()) for cell in function.__closure__ or ())
    for name in ("co_filename", "co_name", "co_firstlineno", "co_qualname", "co_argcount", "co_kwonlyargcount"):
        assert getattr(copy.__code__, name, None) == getattr(function.__code__, name, None), name
    no_free = 0x40  # what Python 3.10 notes of codes without free variables
    assert copy.__code__.co_flags | no_free == function.__code__.co_flags | no_free


def state():
    """Everything of the module's functions and classes, and of what they hold."""
    found = {}
    waiting = list(MODULES)
    while waiting:
        holder = waiting.pop()
        for name, value in vars(holder).items():
            value = getattr(value, "__wrapped__", value)
            value = getattr(value, "__func__", getattr(value, "fget", value))
            key = f"{holder.__name__}.{getattr(holder, '__qualname__', '')}.{name}"
            if isinstance(value, types.FunctionType) and value.__code__.co_filename in FILES:
                cells = [id(c.cell_contents) for c in value.__closure__ or ()]
                found[key] = (id(value), id(value.__code__), id(value.__globals__), cells, value.__defaults__)
                found[key] += (value.__kwdefaults__, dict(value.__dict__), value.__annotations__)
            elif isinstance(value, type) and value.__module__ in {m.__name__ for m in MODULES}:
                found[key] = id(value), sorted(vars(value)), value.__mro__
                waiting.append(value)
            elif name not in ("__warningregistry__", "GLOBAL", "LOG"):
                found[key] = id(value)
    return found


def test_nothing_of_the_users_changes():
    gc.collect()
    before, modules = state(), set(sys.modules)
    lines = {file: linecache.getlines(file) for file in FILES}
    builtins = dict(vars(__builtins__ if isinstance(__builtins__, types.ModuleType) else sys.modules["builtins"]))
    hooks = Hooks()
    for function, several in CALLS:
        for args in several:
            outcome(hooks.of(function), args)
    assert state() == before
    assert len(before) > 100
    assert all(linecache.getlines(file) is lines[file] for file in FILES)
    assert set(sys.modules) - modules <= {"json", "string"} | {m for m in sys.modules if m.startswith("json")}
    assert vars(sys.modules["builtins"]) == builtins


def test_enough_is_compared():
    assert len(CALLS) >= 60


NEWER = {
    "except_star": (
        (3, 11),
        """
        def f(x):
            out = []
            try:
                if x:
                    raise ExceptionGroup("g", [ValueError("a" if x > 1 else "b"), KeyError("k")])
            except* ValueError as e:
                out.append(str(e.exceptions[0]))
            except* KeyError:
                out.append("key" if x else None)
            return out
        """,
    ),
    "type_parameters": (
        (3, 12),
        """
        def f[T: int](x: T, *more: T) -> list[T]:
            type L = list[T]
            class C[U]:
                def g(self, u: U) -> T: return u or T.__name__
            return C().g(x), L.__value__.__args__[0] is T, x if x else None
        """,
    ),
    "nested_quotes": ((3, 12), """
        def f(x):
            return f"{x if x else "none"} {", ".join(f"{i or "zero"}" for i in range(x))}"
        """),
}  # fmt: skip


@pytest.mark.parametrize("version, text", NEWER.values(), ids=NEWER)
def test_newer_syntax(tmp_path, monkeypatch, version, text):
    if sys.version_info < version:
        pytest.skip("this Python doesn't know it")
    module = written(tmp_path, monkeypatch, inspect.cleandoc(text))
    copy = Hooks().of(module.f)
    assert copy is not module.f, why_not(module.f.__code__)
    for x in range(4):
        assert outcome(copy, (x,)) == outcome(module.f, (x,))


def written(folder, monkeypatch, text):
    """Import a text as a module."""
    name = f"written_{abs(hash(text))}"
    (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setitem(sys.modules, name, None)
    del sys.modules[name]
    return __import__(name)
