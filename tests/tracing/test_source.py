"""Where the source of a function comes from, and why there is none."""

import importlib
import inspect
import linecache
import sys
import textwrap
import threading
import types
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from dreamstream.tracing import Hooks, NoCopy, why_not
from dreamstream.tracing.copies import converted, is_copy


class Notes(Hooks):
    def __init__(self):
        super().__init__()
        self.notes = []

    def not_copied(self, f, why):
        self.notes.append((f, str(why)))


def load(folder, monkeypatch, text, name="module_of_source"):
    (folder / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    module = importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name)
    return module


def from_text(text, filename="<string>"):
    namespace = {"__name__": "made"}
    exec(compile(textwrap.dedent(text), filename, "exec"), namespace)
    return namespace["f"]


async def asynchronous(x):
    return x


async def asynchronous_generator(x):
    yield x


def holds_asynchronous(x):
    async def inner():
        return x or 1

    coroutine = inner()
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value


NO_SOURCE = {
    "exec": (lambda: from_text("def f(x):\n    return x or 1\n"), "there is no source of it"),
    "a console": (lambda: from_text("f = lambda x: x or 1", "<stdin>"), "there is no source of it"),
    "eval": (lambda: eval("lambda x: x or 1"), "there is no source of it"),
    "async": (lambda: asynchronous, "asynchronous"),
    "async generator": (lambda: asynchronous_generator, "asynchronous"),
}


@pytest.mark.parametrize("make, reason", NO_SOURCE.values(), ids=NO_SOURCE)
def test_no_source(make, reason):
    f, hooks = make(), Notes()
    assert why_not(f.__code__) is None or f.__code__.co_filename == __file__
    assert hooks.of(f) is f
    assert hooks.of(f) is f
    assert [g for g, _ in hooks.notes] == [f]
    why = why_not(f.__code__)
    assert reason in why
    assert f"{f.__code__.co_filename}:{f.__code__.co_firstlineno} in {f.__code__.co_name}" in why
    assert hooks.notes[0][1] == why
    with pytest.raises(NoCopy, match="in "):
        converted(f)


def test_asynchronous_functions_inside_are_left_alone():
    assert is_copy(Hooks().of(holds_asynchronous).__code__)
    assert Hooks().of(holds_asynchronous)(0) == 1


def test_a_console_that_keeps_its_lines(monkeypatch):
    """As notebooks do."""
    text = "def f(x):\n    return x or 1\n"
    monkeypatch.setitem(linecache.cache, "<cell 1>", (len(text), None, text.splitlines(True), "<cell 1>"))
    f = from_text(text, "<cell 1>")
    assert Hooks().of(f) is not f


def test_sources_of_loaders(tmp_path, monkeypatch):
    import zipfile

    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as z:
        z.writestr("zipped_module.py", "def f(x):\n    return x or 1\n")
    monkeypatch.syspath_prepend(tmp_path / "packed.zip")
    module = importlib.import_module("zipped_module")
    monkeypatch.delitem(sys.modules, "zipped_module")
    assert Hooks().of(module.f)(0) == 1
    assert is_copy(Hooks().of(module.f).__code__)


EDITS = {
    "constant": ("return x * 2 or 1", "return x * 3 or 1"),
    "name": ("return x * 2 or y", "return x * 2 or z"),
    "sign of zero": ("return x or 0.0", "return x or -0.0"),
    "type": ("return x or 1", "return x or True"),
    "inner function": ("return (lambda: x or 1)()", "return (lambda: x or 2)()"),
    "moved": ("return x or 1", "pass\n    return x or 1"),
    "parameter": ("return x or 1", "return x or 1  # (y)"),
    "gone": ("return x or 1", None),
    "broken": ("return x or 1", "return x or (1"),
}


@pytest.mark.parametrize("before, after", EDITS.values(), ids=EDITS)
def test_files_that_were_edited_since(tmp_path, monkeypatch, before, after):
    text = "y = z = 5\n\n\ndef f(x):\n    {}\n"
    name = f"edited_{abs(hash((before, after)))}"
    module = load(tmp_path, monkeypatch, text.format(before), name)
    new = "" if after is None else text.format(after)
    (tmp_path / f"{name}.py").write_text(new.replace("f(x)", "f(x, y=2)") if after and "(y)" in after else new)
    linecache.checkcache(module.__file__)
    copy = Hooks().of(module.f)
    assert copy is module.f
    assert "its source is not what runs" in why_not(module.f.__code__) or "no source" in why_not(module.f.__code__)


def test_an_edit_elsewhere_in_the_file_does_no_harm(tmp_path, monkeypatch):
    module = load(tmp_path, monkeypatch, "def f(x):\n    return x or 1\n", "edited_elsewhere")
    with open(module.__file__, "a") as file:
        file.write("\n\ndef g(x):\n    return x or 2\n")
    linecache.checkcache(module.__file__)
    assert Hooks().of(module.f) is not module.f


def test_asserts_that_pytest_has_rewritten():
    def checked(x):
        assert x > 0, "too small"
        assert x < 10 and x != 5
        return x or 1

    names = set(checked.__code__.co_names) | set(checked.__code__.co_freevars)
    assert any(name.startswith("@py") for name in names), "pytest doesn't rewrite this file"
    copy = Hooks().of(checked)
    assert is_copy(copy.__code__)
    assert copy(3) == 3
    with pytest.raises(AssertionError, match="too small"):
        copy(-1)
    with pytest.raises(AssertionError):
        copy(5)


def test_names_that_a_class_mangles(tmp_path, monkeypatch):
    module = load(
        tmp_path,
        monkeypatch,
        """
        class _C_:
            __x = 1
            def __f(self, __a=2, *__b, **__c):
                class __D(object if self.__x else None):
                    def __g(self): return self.__y
                    __y = 3
                lambda: self.__x
                for __i in range(2): pass
                import os as __os
                return self.__x and dict(__k=__i, a=__a, **__c), __D()._D__g(), __os.__name__
            f = __f
        class _:
            def f(self, x): return self.__y or x
            __y = 0
        def f(x): return _().f(x), _C_().f(), C.__subclasses__()
        class C: pass
        """,
    )
    assert Hooks().of(module.f)(3) == module.f(3)
    for f in (module._C_.f, module._.f, module.f):
        assert is_copy(Hooks().of(f).__code__), why_not(f.__code__)


def test_files_are_read_again_only_if_they_change(tmp_path, monkeypatch):
    from dreamstream.tracing import source

    module = load(tmp_path, monkeypatch, "def f(x):\n    return x\n\ndef g(x):\n    return x\n", "read_once")
    file = source._file(module.__file__, vars(module))
    assert source._file(module.__file__, vars(module)) is file
    for i in range(40):
        source._file(f"<none {i}>", {})
    assert len(source._files) <= 8


def test_warnings_of_the_compiler_are_not_repeated(tmp_path, monkeypatch):
    text = "def f(x):\n    a = '\\\\d'\n    assert (x, 'always')\n    return (x is 3) or a\n".replace("\\\\", "\\")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = load(tmp_path, monkeypatch, text, "with_warnings")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_copy(Hooks().of(module.f).__code__)


@pytest.mark.parametrize("several", [False, True])
def test_threads_convert_a_function_at_once(tmp_path, monkeypatch, several):
    functions = "".join(f"def f{i}(x):\n    return f{(i + 1) % 20}(x - 1) if x else {i}\n\n" for i in range(20))
    module = load(tmp_path, monkeypatch, functions, f"threads_{several}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    shared, start = Hooks(), threading.Barrier(8)

    def run(i):
        hooks = Hooks() if several else shared
        start.wait()
        copy = hooks.of(module.f0)
        return copy.__code__, copy(40 + i), hooks

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(run, range(8)))
    assert len({id(code) for code, *_ in results}) == 1
    assert [value for _, value, _ in results] == [module.f0(40 + i) for i in range(8)]


def long_function(elifs, operands):
    lines = [f"    {'el' if i else ''}if x == {i}:\n        y = {i}" for i in range(elifs)]
    return (
        "def f(x):\n    y = None\n" + "\n".join(lines) + "\n    return y, " + " or ".join(["x == -1"] * operands)
    )


@pytest.mark.parametrize("elifs, operands", [(30, 30), (60, 1), (1, 80)])
def test_long_functions(tmp_path, monkeypatch, elifs, operands):
    module = load(tmp_path, monkeypatch, long_function(elifs, operands), f"long_{elifs}_{operands}")
    copy = Hooks().of(module.f)
    assert is_copy(copy.__code__), why_not(module.f.__code__)
    assert [copy(x) for x in (0, elifs - 1, -1)] == [module.f(x) for x in (0, elifs - 1, -1)]


def test_functions_that_are_too_long(tmp_path, monkeypatch):
    module = load(tmp_path, monkeypatch, long_function(1, 500), "too_long")
    assert Hooks().of(module.f)(3) == module.f(3)


def test_a_function_that_is_first_called_deep_down(tmp_path, monkeypatch):
    module = load(tmp_path, monkeypatch, long_function(8, 8), "deep_down")

    def down(n):
        return down(n - 1) if n else is_copy(Hooks().of(module.f).__code__)

    depth = len(inspect.stack())
    assert down(sys.getrecursionlimit() - depth - 60)


def test_a_copy_is_no_function_of_a_module():
    hooks = Hooks()
    copy = hooks.of(load)
    assert copy not in vars(sys.modules[type(hooks).__module__]).values()
    assert globals()["load"] is not copy
    assert isinstance(copy, types.FunctionType)
