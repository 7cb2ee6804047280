"""What is called in a callee's place: its copy, a function that stands for it, or itself."""

import functools
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from .copies import Converted, converted, is_copy, make
from .source import NoCopy

Callee = Callable[..., Any]

#: Packages whose functions are not converted, beside the standard library's.
SKIPPED = frozenset(("torch", "numpy", "scipy", "dreamstream", "_pytest", "pytest", "pluggy", "hypothesis"))
_STANDARD = os.path.dirname(os.__file__) + os.sep

#: Functions of skipped packages that do nothing but call those of users: module and name. Other rooms add theirs.
GOES_ON: set[tuple[str, str]] = set()

#: Each returns what a compiled callable was made from, or None where it knows of none. Other rooms add theirs.
ORIGINALS: list[Callable[[Any], Any]] = []

# What is kept of a function: what is called (None: itself; `Converted`: a copy that is made for each call, for one
# that is kept would keep the function's cells, and so perhaps the function), what that was made from, a reference.
_Known = tuple[
    "Callee | Converted | None", types.CodeType, "tuple[Any, ...] | None", "dict[str, Any] | None", "_Reference"
]


class _Reference(weakref.ref[types.FunctionType]):
    __slots__ = ("key",)
    key: int


class Callees:
    """Looks up what is called in a callee's place. The call itself is made by the user's own line."""

    #: Functions and what stands for them in every tracer of this class.
    instead: ClassVar[dict[Any, Callee]] = {}
    #: Whether operators are calls in copies.
    spells = False

    def __init__(self) -> None:
        self.cell = types.CellType(self)  # what copies ask
        self._known: dict[int, _Known] = {}
        known = self._known
        self._gone: Callable[[_Reference], object] = lambda reference: known.pop(reference.key, None)
        self._modules: dict[str, weakref.ref[types.ModuleType]] = {}
        self._builtins: dict[Any, Callee] = {}  # stand-ins of builtin functions and classes
        self._stand_ins: dict[int, Callee] = {}  # of these and all others
        self._originals: list[Any] = []  # keeps what `_stand_ins` and `_by_code` go by
        self._by_code: dict[int, Callee] = {}
        self._by_name: dict[str, Callee] = {}
        self._awaited: set[str] = set()  # modules of `_by_name`
        #: By the ``__call__`` of their class: gives what is called in an object's place, or None.
        self.direct: dict[Any, Callable[[Any], Callee | None]] = {}
        for original, replacement in self.instead.items():
            self.stand_in(original, replacement)

    # --------------------------------------------------------------------------------------------- stand-ins
    def stand_in(self, original: Callee | str, replacement: Callee) -> None:
        """Have a function called in another's place.

        The original is a function, a builtin, a class, or any callable. A function of Python stands for all that
        have its code, the descriptor of a builtin class method for the methods of all classes that inherit it. It
        may also be given as a name, ``module.qualname``, whose module need not have been imported.

        In the place of a method the replacement is bound to the same object.
        """
        if isinstance(original, str):
            self._by_name[original] = replacement
            self._awaited.add(original.rpartition(".")[0])
            original = _named(original)
            if original is None:
                return
        original = getattr(original, "__func__", original)
        self._originals.append(original)
        self._stand_ins[id(original)] = replacement
        if type(original) in (types.BuiltinFunctionType, type):
            self._builtins[original] = replacement
        if isinstance(original, types.FunctionType) and not original.__code__.co_freevars:
            self._by_code[id(original.__code__)] = replacement
            self._originals.append(original.__code__)
        self.forget()

    def stands_for(self, f: Callee) -> Callee | None:
        """Return the function that stands for this one, if any; of a function of Python it is asked once."""
        found = self._stand_ins.get(id(f))
        if found is None and isinstance(f, types.FunctionType):
            found = self._by_code.get(id(f.__code__))
        if found is None and self._by_name:
            found = self._by_name.get(f"{getattr(f, '__module__', '')}.{getattr(f, '__qualname__', '')}")
        return found

    # --------------------------------------------------------------------------------------------- looking up
    def of(self, f: Any) -> Any:
        """Return what is to be called in the place of ``f``."""
        kind = type(f)
        if kind is types.FunctionType:
            known = self._known.get(id(f))
            if known is not None:
                copy, code, defaults, keywords, _ = known
                if code is f.__code__ and defaults is f.__defaults__ and keywords is f.__kwdefaults__:
                    if copy is None:
                        return f
                    return copy if copy.__class__ is not Converted else make(f, copy, self.cell)
            return self._of_function(f)
        if kind is types.MethodType:
            function = f.__func__
            inner = self.of(function)
            return f if inner is function else types.MethodType(inner, f.__self__)
        if kind is types.BuiltinFunctionType or kind is type:
            if kind is not type and isinstance(f.__self__, type):
                return self._of_class_method(f)
            found = self._builtins.get(f)
            if found is None and self._awaited and f.__module__ in self._awaited:
                found = self.stands_for(f)
            return f if found is None else found
        return self._of_object(f, kind)

    def _of_class_method(self, f: Any) -> Any:
        """Return what stands for a builtin method of a class or of one it inherits from, bound to the class."""
        for base in f.__self__.__mro__:
            found = self._stand_ins.get(id(vars(base).get(f.__name__)))
            if found is not None:
                return types.MethodType(found, f.__self__)
        return f

    def not_copied(self, f: types.FunctionType, why: NoCopy) -> None:
        """Called where a function runs as it is because it can't be converted."""

    def holds_symbols(self, values: Any) -> bool:
        """Whether arguments hold what must not reach a user's cache."""
        return False

    @contextmanager
    def spelling(self) -> Iterator[None]:
        """Within it operators are calls in the copies that are looked up, by any thread."""
        self.spells = True
        self.forget()
        try:
            yield
        finally:
            self.spells = False
            self.forget()

    def forget(self) -> None:
        """Drop the function objects that are kept, as after a change of what stands for what."""
        self._known.clear()

    def _of_function(self, f: types.FunctionType) -> Any:
        if is_copy(f.__code__):
            return f
        for original in ORIGINALS:
            if (found := original(f)) is not None:
                return self.of(found)
        stand_in = self.stands_for(f)
        if stand_in is not None:
            return self._keep(f, stand_in)
        if not wanted(f):
            return self._keep(f, None)
        copy = self.copied(f)
        if copy is f:
            return self._keep(f, None)
        self._keep(f, copy if self._lives_on(f) else converted(f, self.spells))
        return copy

    def copied(self, f: types.FunctionType) -> types.FunctionType:
        """Return a new copy of a function, whatever stands for it; itself where there can be none."""
        try:
            return make(f, converted(f, self.spells), self.cell)
        except NoCopy as why:
            self.not_copied(f, why)
            return f

    def _keep(self, f: types.FunctionType, copy: "Callee | Converted | None") -> Callee:
        known = self._known
        reference = _Reference(f, self._gone)
        reference.key = id(f)
        known[id(f)] = copy, f.__code__, f.__defaults__, f.__kwdefaults__, reference
        return f if copy is None or isinstance(copy, Converted) else copy

    def _lives_on(self, f: types.FunctionType) -> bool:
        """Whether all that a function holds is a module's, and so lives as long as that, at least.

        So it is with a function without cells, but for that of the module's class in which it is a method.
        """
        name = f.__globals__.get("__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        if not isinstance(name, str) or module is None or getattr(module, "__dict__", None) is not f.__globals__:
            return False
        if f.__closure__ is not None:
            cls = f.__closure__[0].cell_contents if f.__code__.co_freevars == ("__class__",) else None
            if cls is None or _named(f"{name}.{cls.__qualname__}") is not cls:
                return False
        if name not in self._modules:
            known, modules = self._known, self._modules

            def gone(_: object) -> None:
                known.clear()
                modules.pop(name, None)

            modules[name] = weakref.ref(module, gone)
        return True

    def _of_object(self, f: Any, kind: type) -> Any:
        found = self._stand_ins.get(id(f))
        if found is not None:
            return found
        call = kind.__call__
        is_function = type(call) is types.FunctionType  # others may have no hash
        if is_function and call in self.direct and (direct := self.direct[call](f)) is not None:
            return direct
        if not is_function:
            if kind is functools.partial:
                inner = self.of(f.func)
                return f if inner is f.func else functools.partial(inner, *f.args, **f.keywords)
            if kind is functools._lru_cache_wrapper:
                return self._past_cache(f)
            if kind is staticmethod:
                return self.of(f.__func__)
        for original in ORIGINALS:
            if (found := original(f)) is not None:
                return self.of(found)
        inner = self.of(call) if is_function else call
        return f if inner is call else types.MethodType(inner, f)

    def _past_cache(self, f: Any) -> Any:
        """A function with ``lru_cache``: what holds symbols goes past the cache."""
        inner = self.of(f.__wrapped__)
        if inner is f.__wrapped__:
            return f

        def call(*args: Any, **keywords: Any) -> Any:
            return inner(*args, **keywords) if self.holds_symbols((args, keywords)) else f(*args, **keywords)

        return call


def wanted(f: types.FunctionType) -> bool:
    """Whether a function may hold what a tracer has to see: those of users and of packages for models."""
    for _ in range(20):
        module = f.__globals__.get("__name__") or ""
        top = module.partition(".")[0] if isinstance(module, str) else ""
        if (top not in SKIPPED and not _is_standard(f.__code__)) or (module, f.__code__.co_name) in GOES_ON:
            return True
        inner = f.__dict__.get("__wrapped__")  # torch.no_grad() around a user's function
        if not isinstance(inner, types.FunctionType):
            return False
        f = inner
    return False


def _is_standard(code: types.CodeType) -> bool:
    """Whether a code is of the standard library: by its file, for users have modules of the same names."""
    file = code.co_filename
    return file.startswith("<frozen ") or (file.startswith(_STANDARD) and "-packages" + os.sep not in file)


def _named(name: str) -> Any:
    """Return what ``module.qualname`` names in a module that has been imported, or None."""
    parts = name.split(".")
    for i in range(len(parts) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:i]))
        if found is not None:
            for part in parts[i:]:
                found = getattr(found, part, None)
            return found
    return None
