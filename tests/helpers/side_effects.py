"""Forwards that change what is around them, written once for torch.nn and dreamstream.nn."""

import random
from collections import OrderedDict, deque
from types import SimpleNamespace
from typing import Any

import numpy as np

COUNT = 0
LOG: list[Any] = []


class Slotted:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n: Any = 0


class Settings:
    """An object of the user's own."""

    def __init__(self) -> None:
        self.n, self.seen, self.inner = 0, [], Slotted()


class Table(dict):  # type: ignore[type-arg]
    """A dictionary whose methods do more than a dictionary's."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.sets = getattr(self, "sets", 0) + 1

    def clear(self) -> None:
        raise AssertionError("nobody asked for this")


def _global_counter(self: Any, x: Any) -> None:
    global COUNT
    COUNT += 1
    LOG.append(COUNT)


def _class_counter(self: Any, x: Any) -> None:
    type(self).made = getattr(type(self), "made", 0) + 1


def _default(self: Any, x: Any, seen: list[int] = []) -> None:  # noqa: B006
    seen.append(1)


def _moved(self: Any, x: Any) -> None:
    conv, self.second = self.second, None
    del self.second
    self.second = conv


def _nested(self: Any, x: Any) -> None:
    self.config["a"]["n"] += 1
    self.config["b"].append(self.config["a"])
    self.config.pop("c", None)


def _settings(self: Any, x: Any) -> None:
    self.settings.n += 1
    self.settings.seen.append(self.settings.n)
    self.settings.inner.n += 1
    self.settings.new = True


def _containers(self: Any, x: Any) -> None:
    self.queue.append(self.queue.popleft() + 1)
    self.seen.add(len(self.seen))
    self.ordered.move_to_end("a")
    self.table["n"] = len(self.table)
    self.pair[0].append(1)
    self.long[300] = 0


def _generators(self: Any, x: Any) -> None:
    random.random()
    np.random.rand()
    self.random.random()
    self.generator.random()


#: What a forward does besides, to itself: by name.
EFFECTS: dict[str, Any] = {
    "a counter": lambda self, x: setattr(self, "calls", self.calls + 1),
    "a new attribute": lambda self, x: setattr(self, "new", object()),
    "a deleted attribute": lambda self, x: self.__dict__.pop("calls", None),
    "what is set to None": lambda self, x: setattr(self, "settings", None),
    "nested containers": _nested,
    "an object": _settings,
    "containers": _containers,
    "the order of its parts": _moved,
    "training": lambda self, x: (self.second.train(), setattr(self, "training", True)),
    "a part replaced": lambda self, x: setattr(self, "second", self.library.Conv1d(4, 4, 1)),
    "a part added": lambda self, x: self.add_module("third", self.library.ReLU()),
    "a buffer assigned": lambda self, x: setattr(self, "n", self.n + 1),
    "a buffer added": lambda self, x: self.register_buffer("m", self.n + 1),
    "a buffer in place": lambda self, x: self.n.add_(1) if hasattr(self.n, "add_") else self.n.__iadd__(1),
    "a buffer's element": lambda self, x: self.n.__setitem__(0, 7.0),
    "a tensor of its own": lambda self, x: self.own[0].__setitem__(0, 7.0),
    "an array": lambda self, x: self.array.__iadd__(1),
    "random numbers": _generators,
    "globals": _global_counter,
    "its class": _class_counter,
    "defaults": _default,
}


def made(library: Any, tensor: Any, effect: Any, fail: bool = False) -> Any:
    """Return a module of ``torch.nn`` or ``dreamstream.nn`` whose forward does something besides."""
    count = 0

    class Changing(library.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.library = library
            self.first, self.second = library.Conv1d(4, 4, 3), library.Conv1d(4, 4, 1)
            self.register_buffer("n", tensor([1.0, 2.0]))
            self.own = [tensor([1.0, 2.0])]
            self.array = np.zeros(3)
            self.calls, self.fail = 0, fail
            self.config = {"a": {"n": 0}, "b": [], "c": 1}
            self.settings = Settings()
            self.queue, self.seen, self.pair, self.long = deque([1, 2]), {0}, ([], []), [1] * 1000
            self.ordered, self.table = OrderedDict(a=1, b=2), Table(k=1)
            self.random, self.generator = random.Random(1), np.random.default_rng(1)

        def forward(self, x: Any) -> Any:
            nonlocal count
            count += 1
            effect(self, x)
            y = self.first(x)
            if self.fail:
                raise ValueError("in mid-forward")
            return y

        def counted(self) -> int:
            return count

    return Changing().eval()


# ---------------------------------------------------------------------- what forwards keep of streams
def _buffer(self: Any, x: Any) -> Any:
    y = x + self.cache[:, :, :1]
    self.cache = x[:, :, -2:]
    return self.conv(y)


def _detached(self: Any, x: Any) -> Any:
    y = x + self.cache[:, :, :1]
    self.cache = x[:, :, -2:].detach()
    return self.conv(y)


def _attribute(self: Any, x: Any) -> Any:
    y = x if self.h is None else x + self.h
    self.h = x[:, :, -1:]
    return self.conv(y)


def _missing(self: Any, x: Any) -> Any:
    y = self.cat([self.prev, x], 2) if hasattr(self, "prev") else x
    self.prev = x[:, :, -2:]
    return self.conv(y)


def _of_a_part(self: Any, x: Any) -> Any:
    y = x if self.conv.h is None else x + self.conv.h
    self.conv.h = x[:, :, -1:]
    return self.conv(y)


def _in_a_dictionary(self: Any, x: Any) -> Any:
    y = x + self.caches["x"] if "x" in self.caches else x
    self.caches["x"] = x[:, :, -1:]
    return self.conv(y)


def _in_a_list(self: Any, x: Any) -> Any:
    y = x + self.frames[-1] if self.frames else x
    self.frames.append(x[:, :, -1:])
    return self.conv(y)


def _in_an_object(self: Any, x: Any) -> Any:
    y = x + self.state.h if self.state.h is not None else x
    self.state.h = x[:, :, -1:]
    return self.conv(y)


def _added_up(self: Any, x: Any) -> Any:
    self.total += x
    return self.conv(x)


def _a_length(self: Any, x: Any) -> Any:
    y = x * self.seen
    self.seen = self.seen + x.size(2)
    return self.conv(y)


def _in_a_slot(self: Any, x: Any) -> Any:
    y = x if self.slot.n is None else x + self.slot.n
    self.slot.n = x[:, :, -1:]
    return self.conv(y)


#: Forwards that keep what a next call reads, by what keeps it, with the attribute's name.
CACHES: dict[str, tuple[str, Any]] = {
    "a buffer": ("cache", _buffer),
    "a buffer of detached frames": ("cache", _detached),
    "an attribute": ("h", _attribute),
    "an attribute that is not there": ("prev", _missing),
    "an attribute of a part": ("conv.h", _of_a_part),
    "a dictionary": ("caches", _in_a_dictionary),
    "a list": ("frames", _in_a_list),
    "an object": ("state.h", _in_an_object),
    "a slot": ("slot.n", _in_a_slot),
    "a sum": ("total", _added_up),
    "a length": ("seen", _a_length),
}


LAST: Any = None


def _of_its_class(self: Any, x: Any) -> Any:
    y = x if self.of_all is None else x + self.of_all
    type(self).of_all = x[:, :, -1:]
    return self.conv(y)


def _global(self: Any, x: Any) -> Any:
    global LAST
    y = x if LAST is None else x + LAST
    LAST = x[:, :, -1:]
    return self.conv(y)


def _closure() -> Any:
    last = None

    def closure(self: Any, x: Any) -> Any:
        nonlocal last
        y = x if last is None else x + last
        last = x[:, :, -1:]
        return self.conv(y)

    return closure


#: Likewise, outside the model: traces refuse them.
CACHES_OUTSIDE = {"of_all": _of_its_class, "LAST": _global, "last": _closure()}


def _mask(self: Any, x: Any) -> Any:
    self.last_mask = x > 0
    return self.conv(x * self.last_mask)


def _lengths(self: Any, x: Any) -> Any:
    self.frames_seen = x.size(2)
    return self.conv(x) + 0 * self.frames_seen


def _plots(self: Any, x: Any) -> Any:
    self.maps.append(self.conv(x))
    self.by_name["y"] = self.maps[-1]
    return self.maps[-1]


def _pair(self: Any, x: Any) -> Any:
    self.pair = (x, {"y": [x * 2]})
    return self.conv(self.pair[1]["y"][0])


def _for_a_part(self: Any, x: Any) -> Any:
    self.conv.scale = x[:, :1]
    return self.conv(x * self.conv.scale)


#: Forwards that keep what only this call reads.
KEEPING: dict[str, Any] = {
    "a mask": _mask,
    "lengths": _lengths,
    "plots": _plots,
    "a tuple": _pair,
    "for a part": _for_a_part,
}


def keeping(library: Any, of: Any, forward: Any) -> Any:
    """Return a module of ``torch.nn`` or ``dreamstream.nn`` with this forward; `of` has the functions."""

    class Keeping(library.Module):  # type: ignore[misc, name-defined]
        of_all: Any = None

        def __init__(self) -> None:
            super().__init__()
            self.conv = library.Conv1d(4, 4, 3)
            self.conv.h = self.h = self.last_mask = None
            self.register_buffer("cache", of.zeros(1, 4, 2))
            self.cat, self.total, self.seen = of.cat, 0, 1
            self.caches, self.frames, self.state = {}, [], SimpleNamespace(h=None)
            self.maps, self.by_name, self.slot = [], {}, Slotted()
            self.slot.n = None

    Keeping.forward = forward
    return Keeping().eval()
