"""What a process and a model are: recorded before something runs, and compared after it.

Here, and not in the package, the collector is asked for every object that there is.
"""

import gc
import random
import sys
import threading
import types
import warnings
from collections import deque
from typing import Any

import numpy as np

#: Python's own names in a module that change when it warns or is asked for its annotations.
PYTHONS = ("__warningregistry__", "__annotations__", "__builtins__")
#: What torch keeps on a function, in a closure and in a namespace when these are used for the first time.
KEPT_BY_TORCH = ("__dynamo_disable", "_check_pystubs_once.<locals>.inner", "_OpNamespace")
MISSING = object()


def _cells(function: Any) -> tuple[Any, ...]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            found.append(MISSING)
    return tuple(found)


def _same(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b))


def _own(x: Any) -> bool:
    """Whether it is the package's, or what runs these tests."""
    home = getattr(x, "__module__", None)
    return isinstance(home, str) and home.partition(".")[0] in (
        "dreamstream",
        "untouched",
        "__channelexec__",  # a worker of xdist, to which tests come meanwhile
        "_pytest",
        "pytest",
        "pluggy",
        "hypothesis",  # which counts the collector's work while it is loaded
        "tqdm",
    )


class Process:
    """Functions, classes, attributes of all objects, Python modules and what is set for all, as they are now.

    What belongs to the package itself is left out, but for the code of its functions.
    """

    def __init__(self) -> None:
        gc.unfreeze()  # what the collector passes by (tests/conftest.py) is asked for, too
        gc.collect()
        everything = gc.get_objects()
        gc.freeze()
        self.functions, self.classes, self.objects = [], [], []
        for x in everything:
            kind = type(x)
            if kind is types.FunctionType:
                state = (x.__code__, x.__defaults__, x.__kwdefaults__)
                self.functions.append((x, state, _cells(x)))
                if x.__dict__ and not _own(x):
                    self.objects.append((x, kind, dict(x.__dict__)))
            elif issubclass(kind, type):
                if not _own(x):
                    self.classes.append((x, dict(vars(x)), set(map(id, type.__subclasses__(x)))))
            elif kind.__dictoffset__ and not (
                _own(kind) or kind is types.ModuleType or kind.__name__ in KEPT_BY_TORCH
            ):
                try:
                    self.objects.append((x, kind, dict(object.__getattribute__(x, "__dict__"))))
                except (AttributeError, TypeError):
                    continue
        self.modules = {
            name: _of_module(m)
            for name, m in list(sys.modules.items())
            if not name.startswith(("dreamstream", "hypothesis", "tqdm"))
        }
        self.settings = settings()

    def differences(self) -> list[str]:
        """Return what is another now than it was, in words."""
        out = []
        for f, state, cells in self.functions:
            now = (f.__code__, f.__defaults__, f.__kwdefaults__)
            if not _same(now, state):
                out.append(f"code or defaults of {f.__module__}.{f.__qualname__}")
            if not (_own(f) or f.__qualname__ in KEPT_BY_TORCH or _same(_cells(f), cells)):
                out.append(f"closure of {f.__module__}.{f.__qualname__}")
        for cls, members, subclasses in self.classes:
            out += _changes(f"class {cls.__module__}.{cls.__qualname__}", dict(vars(cls)), members)
            new = [c for c in type.__subclasses__(cls) if id(c) not in subclasses and c.__module__ in self.modules]
            out += [f"class {cls.__qualname__} has the subclass {c.__module__}.{c.__qualname__}" for c in new]
        for x, kind, attributes in self.objects:
            if type(x) is not kind:
                out.append(f"class of {kind.__qualname__}: it is {type(x).__module__}.{type(x).__qualname__}")
            out += _changes(
                f"{kind.__module__}.{kind.__qualname__}", dict(object.__getattribute__(x, "__dict__")), attributes
            )
        for name, members in self.modules.items():
            if name in sys.modules:
                out += _changes(f"module {name}", _of_module(sys.modules[name]), members)
        after = settings()
        out += [
            f"{what}: {after[what]!r:.80}, not {then!r:.80}"
            for what, then in self.settings.items()
            if after[what] != then
        ]
        return out


def _of_module(module: Any) -> dict[str, Any]:
    """Return a Python module's attributes, but for others that were loaded into it."""
    return {k: v for k, v in vars(module).items() if not issubclass(type(v), types.ModuleType)}


def _changes(where: str, now: dict[Any, Any], then: dict[Any, Any]) -> list[str]:
    keys = [k for k in {**then, **now} if k not in (*PYTHONS, *KEPT_BY_TORCH)]
    return [f"{where}: {k}" for k in keys if not _is(now.get(k, MISSING), then.get(k, MISSING))]


def _is(a: Any, b: Any) -> bool:
    """Whether a value is another one's equal, where Python may make the same anew, and itself elsewhere."""
    return a is b or (type(a) is type(b) and isinstance(a, (int, float, str)) and a == b)


def settings() -> dict[str, Any]:
    """Return what is set for the whole process: hooks, filters, random numbers, and torch's modes."""
    found: dict[str, Any] = {
        "warnings": list(warnings.filters),
        "trace": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "hooks": (sys.excepthook, sys.displayhook, sys.unraisablehook, list(sys.meta_path), list(sys.path_hooks)),
        "recursion": sys.getrecursionlimit(),
        "random": random.getstate(),
        "numpy": (str(np.random.get_state()), np.geterr()),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        from torch.nn.modules import module as of_modules

        hooks = {
            n: dict(v) for n, v in vars(of_modules).items() if n.startswith("_global") and isinstance(v, dict)
        }
        found |= {
            "torch's random numbers": torch.get_rng_state().tolist(),
            "global hooks": hooks,
            "function modes": list(torch.overrides._get_current_function_mode_stack()),
            "dispatch modes": torch._C._len_torch_dispatch_stack(),
            "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
            "types": (torch.get_default_dtype(), torch.is_autocast_enabled("cpu"), torch.get_num_threads()),
            "determinism": (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark),
            "saved tensors": torch._C._autograd._top_saved_tensors_default_hooks(True),
        }
    return found


# ---------------------------------------------------------------------- one model
#: Entries of a patched module's own dictionary that belong to its handle.
OF_HANDLE = {
    "_patch", "_compiled_call_impl", "compile", "__getstate__", "__jit_ignored_attributes__", "online", "offline",
    "reset", "get_state", "set_state", "is_online", "live_ids", "kernel_width", "stream_buffer",
}  # fmt: skip


class Model:
    """What a model holds: attributes, containers, objects, classes by identity, tensors and arrays by value."""

    def __init__(self, model: Any, *besides: str) -> None:
        self.model, self.besides = model, besides
        self.held = list(_held(model, besides))
        self.keep = [x for _, _, x in self.held]

    def differences(self) -> list[str]:
        """Return what is another now than it was, in words."""
        now = list(_held(self.model, self.besides))
        out = []
        then_by = {path: (state, x) for path, state, x in self.held}
        now_by = {path: (state, x) for path, state, x in now}
        for path in {**then_by, **now_by}:
            a, b = then_by.get(path, (MISSING, MISSING)), now_by.get(path, (MISSING, MISSING))
            if not _is(a[1], b[1]):
                out.append(
                    f"{path}: another object"
                    if MISSING not in (a[1], b[1])
                    else f"{path}: {'new' if a[1] is MISSING else 'gone'}"
                )
            elif not _equal(a[0], b[0]):
                out.append(f"{path}: another value")
        if [p for p, _, _ in self.held] != [p for p, _, _ in now] and not out:
            out.append("the order in which it holds them")
        return out


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)


def _state(x: Any) -> Any:
    """Return what can change in an object that stays the same, but for what it holds."""
    if hasattr(x, "detach") and hasattr(x, "untyped_storage"):
        return x.detach().clone().numpy(), x.requires_grad, x.data_ptr(), type(x), id(x.grad)
    if hasattr(x, "numpy") and hasattr(x, "is_stream"):
        return x.numpy().copy(), type(x)
    if isinstance(x, np.ndarray):
        return x.copy()
    if isinstance(x, random.Random):
        return x.getstate()
    if isinstance(x, np.random.Generator):
        return str(x.bit_generator.state)
    if type(x).__name__ == "Generator" and hasattr(x, "initial_seed"):
        return x.get_state().tolist()
    if isinstance(x, (set, frozenset)):
        return tuple(sorted(map(repr, x)))
    return type(x)


def _held(model: Any, besides: tuple[str, ...]) -> Any:
    """Yield path, state and object of everything that a model holds."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", model)]
    while waiting:
        path, x = waiting.pop()
        yield path, _state(x), x
        if id(x) in seen or isinstance(x, (type, types.FunctionType, types.ModuleType)):
            continue
        seen.add(id(x))
        inside: list[tuple[str, Any]] = []
        if isinstance(x, dict):
            inside = [(f"{path}[{k!r}]", v) for k, v in dict.items(x)]
        elif isinstance(x, (list, tuple, deque)):
            inside = [(f"{path}[{i}]", v) for i, v in enumerate(x)]
        elif not type(x).__module__.startswith(("torch._C", "dreamstream.array", "dreamstream.online", "numpy")):
            slots = [
                n
                for k in type(x).__mro__
                for n in getattr(k, "__slots__", ())
                if n not in ("__dict__", "__weakref__")
            ]
            inside = [(f"{path}.{n}", getattr(x, n)) for n in slots if hasattr(x, n)]
            if not hasattr(x, "untyped_storage"):
                own = dict(getattr(x, "__dict__", {}))
                left_out = {*besides, *(OF_HANDLE if "_patch" in own else ())}
                inside += [(f"{path}.{k}", v) for k, v in own.items() if k not in left_out]
        waiting.extend(reversed(inside))
