"""What is called in a callee's place: its copy, what stands for it, or itself."""

import collections
import functools
import gc
import importlib
import json
import linecache
import math
import operator
import sys
import types
import weakref
from typing import ClassVar

import pytest

from dreamstream.tracing import Hooks, Symbolic, why_not
from dreamstream.tracing.callees import GOES_ON, ORIGINALS
from dreamstream.tracing.copies import is_copy


@pytest.fixture
def hooks():
    return Hooks()


def converted(f):
    return is_copy(getattr(f, "__func__", f).__code__)


def double(x):
    return x * 2 if x else None


def calls_double(x):
    return double(x) or -1


class Layer:
    def forward(self, x):
        return x + 1 if x else 0

    @classmethod
    def made(cls, x):
        return cls.__name__ if x else None

    @staticmethod
    def plain(x):
        return x or "static"

    def __call__(self, x):
        return self.forward(x) or "zero"


class Unhashable(Layer):
    def __eq__(self, other):
        raise RuntimeError("compared")

    __hash__ = None


class OneMethod:
    """An attribute that is no method, and gets functions from elsewhere."""

    def __init__(self, f):
        self.f = f


def test_functions_are_converted_once(hooks):
    assert converted(hooks.of(double))
    assert hooks.of(double) is hooks.of(double)
    assert hooks.of(double)(3) == 6
    assert hooks.of(hooks.of(double)) is hooks.of(double)


def test_each_tracer_has_copies_of_one_code():
    one, two = Hooks().of(double), Hooks().of(double)
    assert one is not two
    assert one.__code__ is two.__code__


@pytest.mark.parametrize("layer", [Layer(), Unhashable()])
def test_methods_are_bound_to_the_same_object(hooks, layer):
    method = hooks.of(layer.forward)
    assert method.__self__ is layer
    assert converted(method)
    assert hooks.of(Layer.made).__self__ is Layer
    assert hooks.of(Layer.made)(1) == "Layer"
    assert hooks.of(layer.plain)(0) == "static"
    assert hooks.of(staticmethod(double))(2) == 4


@pytest.mark.parametrize("layer", [Layer(), Unhashable()])
def test_callable_objects(hooks, layer):
    call = hooks.of(layer)
    assert converted(call)
    assert call.__self__ is layer
    assert call(0) == "zero"


def test_partials(hooks):
    made = hooks.of(functools.partial(double, x=4))
    assert made() == 8
    assert converted(made.func)
    assert hooks.of(functools.partial(len, "ab")).func is len


def called(f):
    """Return the same name of a callable in every process."""
    return getattr(f, "__name__", type(f).__name__)


BUILTINS = [
    len, print, math.sqrt, [].append, "a".join, int, list, Layer, str.upper, operator.add, object().__str__,
    operator.itemgetter(0), types.FunctionType, type, collections.OrderedDict, "".__add__, dict.get,
]  # fmt: skip


@pytest.mark.parametrize("f", BUILTINS, ids=called)
def test_builtins_and_classes_are_themselves(hooks, f):
    assert hooks.of(f) is f


@pytest.mark.parametrize(
    "f", [json.dumps, functools.wraps, Hooks, pytest.raises, weakref.finalize, types.resolve_bases]
)
def test_skipped_packages_are_themselves(hooks, f):
    assert hooks.of(f) is f


def test_a_users_module_may_be_called_as_one_of_pythons(hooks, tmp_path, monkeypatch):
    (tmp_path / "this.py").write_text("def f(x):\n    return x or 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "this", raising=False)
    module = importlib.import_module("this")
    monkeypatch.delitem(sys.modules, "this")
    assert converted(hooks.of(module.f))


def test_wrappers_of_skipped_packages_lead_to_users_functions(hooks):
    wrapper = functools.singledispatch(double)
    assert wrapper.__globals__["__name__"] == "functools"
    assert converted(hooks.of(wrapper))
    assert hooks.of(wrapper)(2) == 4


# ---------------------------------------------------------------------------------------------- stand-ins
def stand_in(*args):
    return ("stand-in", *args)


@pytest.mark.parametrize(
    "f",
    [double, len, math.sqrt, int, Layer, operator.itemgetter(1)],
    ids=lambda f: getattr(f, "__name__", type(f).__name__),
)
def test_stand_ins(hooks, f):
    hooks.stand_in(f, stand_in)
    assert hooks.of(f) is stand_in
    assert hooks.stands_for(f) is stand_in
    assert Hooks().of(f) is not stand_in


def test_a_stand_in_comes_after_a_copy_too(hooks):
    assert hooks.of(calls_double)(3) == 6
    hooks.stand_in(double, stand_in)
    assert hooks.of(calls_double)(3) == ("stand-in", 3)


def test_a_stand_in_of_a_method_is_bound(hooks):
    layer = Layer()
    hooks.stand_in(Layer.forward, stand_in)
    assert hooks.of(layer.forward)(3) == ("stand-in", layer, 3)
    assert hooks.of(layer)(3) == ("stand-in", layer, 3)
    bound = Hooks()
    bound.stand_in(Layer().forward, stand_in)
    assert bound.of(layer.forward)(3) == ("stand-in", layer, 3)


def test_a_stand_in_of_a_builtin_class_method_is_that_of_all_classes(hooks):
    class Named(dict):
        @classmethod
        def fromkeys(cls, *args):
            return hooks.of(super().fromkeys)(*args)

    hooks.stand_in(vars(dict)["fromkeys"], lambda cls, *args: (cls, *args))
    assert hooks.of(dict.fromkeys)("ab") == (dict, "ab")
    assert hooks.of(collections.Counter.__base__.fromkeys)("ab", 1) == (dict, "ab", 1)
    assert hooks.of(Named.fromkeys)("ab") == (Named, "ab")
    assert hooks.of(bytes.fromhex) == bytes.fromhex
    assert Hooks().of(dict.fromkeys)("a") == {"a": None}


def test_a_forward_of_an_instance_reaches_the_stand_in(hooks):
    layer = Layer()
    before = layer.forward
    layer.forward = lambda x: ("own", before(x))
    hooks.stand_in(Layer.forward, stand_in)
    assert hooks.of(layer)(3) == ("own", ("stand-in", layer, 3))


def test_a_stand_in_is_found_by_code(hooks):
    again = types.FunctionType(double.__code__, double.__globals__, "again")
    hooks.stand_in(double, stand_in)
    assert hooks.of(again) is stand_in


def test_closures_of_one_code_are_different_functions(hooks):
    def wrap(f):
        @functools.wraps(f)
        def inner(x):
            return f(x)

        return inner

    one, two = wrap(double), wrap(calls_double)
    hooks.stand_in(one, stand_in)
    assert hooks.of(one) is stand_in
    assert hooks.of(two)(3) == 6


def test_stand_ins_of_packages_that_are_not_imported_yet(hooks, tmp_path, monkeypatch):
    (tmp_path / "later_package").mkdir()
    (tmp_path / "later_package" / "__init__.py").write_text("")
    (tmp_path / "later_package" / "masks.py").write_text(
        "class C:\n    def m(self, x): return x\n\ndef mask(x): return x\n\ndef other(x): return x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    hooks.stand_in("later_package.masks.mask", stand_in)
    hooks.stand_in("later_package.masks.C.m", stand_in)
    hooks.stand_in("dreamstream_that_never_was.f", stand_in)
    assert "later_package" not in sys.modules
    masks = importlib.import_module("later_package.masks")
    assert hooks.of(masks.mask) is stand_in
    c = masks.C()
    assert hooks.of(c.m)(1) == ("stand-in", c, 1)
    assert hooks.of(masks.other)(1) == 1


def test_names_of_what_is_imported(hooks):
    hooks.stand_in("math.sqrt", stand_in)
    hooks.stand_in(f"{__name__}.Layer.forward", stand_in)
    assert hooks.of(math.sqrt) is stand_in
    if sys.modules.get(__name__) is not None:
        layer = Layer()
        assert hooks.of(layer.forward)(1) == ("stand-in", layer, 1)


def test_a_class_has_stand_ins_of_its_own():
    class Mine(Hooks):
        instead: ClassVar = {int: stand_in}

    assert Mine().of(int) is stand_in
    assert Hooks().of(int) is int


# ---------------------------------------------------------------------------------------------- caches, compilers
def test_a_cache_never_holds_a_symbol(hooks):
    got = []

    @functools.lru_cache(None)
    def cached(x, *more):
        got.append(x)
        return x

    symbol = Symbolic()
    call = hooks.of(cached)
    assert call(1) == call(1) == 1
    assert cached.cache_info().hits == 1
    assert call(symbol) is symbol
    assert call((1, symbol)) == (1, symbol)
    assert cached.cache_info().currsize == 1
    assert hooks.of(functools.lru_cache(None)(len)).__wrapped__ is len


def test_what_a_compiler_made_leads_to_its_original(hooks, monkeypatch):
    def compiled(x):
        raise AssertionError("the compiled one runs")

    compiled.made_from = double
    holder = OneMethod(double)
    monkeypatch.setattr(type(holder), "__call__", lambda self, x: compiled(x), raising=False)
    ORIGINALS.append(lambda f: getattr(f, "made_from", None) or getattr(f, "f", None))
    try:
        assert hooks.of(compiled)(2) == 4
        assert hooks.of(holder)(2) == 4
    finally:
        ORIGINALS.pop()


def test_functions_that_only_go_on(hooks):
    assert hooks.of(types.resolve_bases) is types.resolve_bases
    GOES_ON.add(("types", "resolve_bases"))
    try:
        assert converted(Hooks().of(types.resolve_bases))
    finally:
        GOES_ON.remove(("types", "resolve_bases"))


# --------------------------------------------------------------------------------------- functions that change
def test_a_function_that_is_changed_has_another_copy(hooks):
    def changing(x, y=1, *, z=2):
        return x or (y, z)

    def other(x, y=1, *, z=2):
        return "other", y, z

    code = "__code__"
    assert hooks.of(changing)(0) == (1, 2)
    changing.__defaults__ = (5,)
    assert hooks.of(changing)(0) == (5, 2)
    changing.__kwdefaults__ = {"z": 6}
    assert hooks.of(changing)(0) == (5, 6)
    changing.__kwdefaults__["z"] = 7
    assert hooks.of(changing)(0) == (5, 7)
    setattr(changing, code, getattr(other, code))
    assert hooks.of(changing)(0) == ("other", 5, 7)


def test_methods_reach_what_was_set_after(hooks, monkeypatch):
    layer = Layer()
    assert hooks.of(layer)(1) == 2
    monkeypatch.setattr(Layer, "forward", lambda self, x: "patched")
    assert hooks.of(layer)(1) == "patched"
    layer.forward = lambda x: "own"
    assert hooks.of(layer)(1) == "own"


# ---------------------------------------------------------------------------------------------- memory
def test_closures_die_with_their_function(hooks):
    class Value:
        pass

    value = Value()

    def make(v):
        def f(x):
            return v if x else None

        return f

    f = make(value)
    assert hooks.of(f)(1) is value
    gone = weakref.ref(f), weakref.ref(value)
    del f, value
    gc.collect()
    assert [r() for r in gone] == [None, None]


def recursive_closure():
    def f(x):
        return f(x - 1) if x else 0

    return f


def class_with_super():
    class Local(Layer):
        def forward(self, x):
            return super().forward(x) or None

    return Local().forward.__func__


def method_of_an_instance():
    layer = Layer()
    before = layer.forward
    layer.forward = lambda x: before(x) or layer
    return layer.forward


def function_of_a_module():
    """Of a module that has been imported, and is no longer."""
    name = "module_that_goes"
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = __file__.replace("test_callees.py", "goes.py")
    text = "def f(x):\n    return g(x) or f\n\ndef g(x):\n    return x\n"
    linecache.cache[module.__file__] = len(text), None, text.splitlines(True), module.__file__
    exec(compile(text, module.__file__, "exec"), vars(module))
    assert converted(Hooks().of(module.f))
    return module.f


@pytest.mark.parametrize(
    "make", [recursive_closure, class_with_super, method_of_an_instance, function_of_a_module]
)
def test_nothing_is_kept_alive_by_a_tracer(hooks, make):
    f = make()
    assert converted(hooks.of(f)), why_not(f.__code__)
    gone = weakref.ref(f), weakref.ref(hooks.of(f))
    sys.modules.pop("module_that_goes", None)
    del f
    gc.collect()
    assert [r() for r in gone] == [None, None]


def written(folder, name, text):
    path = folder / f"{name}.py"
    path.write_text(text)
    return str(path)


def test_codes_die_with_their_functions(hooks, tmp_path):
    path = written(tmp_path, "dies", text := "def f(x):\n    return (lambda: x or 1)()\n")
    namespace = {"__name__": "dies"}
    exec(compile(text, path, "exec"), namespace)
    f = namespace.pop("f")
    made = hooks.of(f)
    assert made(0) == 1
    codes = weakref.ref(f.__code__), weakref.ref(made.__code__)
    key, own = id(f.__code__), id(made.__code__)
    del f, made, namespace
    gc.collect()
    assert [c() for c in codes] == [None, None]
    copies = importlib.import_module("dreamstream.tracing.copies")
    assert key not in copies._converted and own not in copies._ours


def test_a_tracer_goes():
    hooks = Hooks()
    hooks.of(calls_double)(1)
    gone = weakref.ref(hooks)
    del hooks
    gc.collect()
    assert gone() is None
