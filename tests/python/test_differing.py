"""What containers held is told from what they hold, whether or not versions of dictionaries are kept."""

from collections import OrderedDict, defaultdict
from functools import partial

import numpy as np
import pytest
from turns import in_blocks

from dreamstream import _core

CHANGES = {
    "another value": lambda d: d.__setitem__("a", object()),
    "the same value": lambda d: d.__setitem__("a", d["a"]),
    "another key": lambda d: d.__setitem__("z", 1),
    "a key less": lambda d: d.pop("a"),
    "another order": lambda d: d.update(a=d.pop("a")),
    "several at once": lambda d: d.update(a=2, b=3),
    "merged": lambda d: d.__ior__({"b": 5}),
    "nothing left": lambda d: d.clear(),
    "an attribute": lambda d: None,
    "nothing": lambda d: None,
    "a default": lambda d: d.setdefault("a", 0),
}


class Holder:
    def __init__(self):
        self.a, self.b = 1, 2


@in_blocks("name", CHANGES, 11)
@pytest.mark.parametrize(
    "kind",
    [dict, OrderedDict, partial(defaultdict, int), list, set],
    ids=lambda kind: getattr(kind, "__name__", "defaultdict"),
)
def test_changes_are_seen(kind, name):
    holder = Holder()
    now = [kind({"a": 1, "b": 2}), vars(holder), {}, OrderedDict()]
    then = [list(now[0]) if isinstance(now[0], list) else dict(now[1]), dict(vars(holder)), None, None]
    versions = bytearray()
    before = _core.differing(now, then)
    for _ in range(2):
        assert _core.differing(now, then, versions) == before
    if name == "an attribute":
        holder.b = "other"
    elif isinstance(now[0], dict):
        CHANGES[name](now[0])
    assert _core.differing(now, then, versions) == _core.differing(now, then)
    then[1] = dict(vars(holder))  # as it is from now on
    assert _core.differing(now, then, versions) == _core.differing(now, then)
    now[2]["more"] = 1
    assert _core.differing(now, then, versions) == _core.differing(now, then)
    del now[2]["more"]
    assert _core.differing(now, then, versions) == _core.differing(now, then)


def test_values_are_found_by_name():
    place, versions = {"a": 1, "b": 2}, bytearray()
    given = [place, place, place], ["a", "b", "c"], [1, 2, None]
    assert _core.finds(*given, versions) and _core.finds(*given, versions)
    for change, right in (
        (lambda: place.update(c=3), False),
        (lambda: place.pop("c"), True),
        (place.clear, False),
    ):
        change()
        assert _core.finds(*given, versions) is right


def test_random_changes_are_seen():
    random, values = np.random.default_rng(0), [object() for _ in range(4)]
    now = [{} for _ in range(5)]
    then, versions = [{} for _ in now], bytearray()
    for _ in range(2000):
        place, key = now[random.integers(5)], int(random.integers(3))
        if random.random() < 0.3:
            place.pop(key, None)
        else:
            place[key] = values[random.integers(4)]
        found = _core.differing(now, then, versions)
        assert found == _core.differing(now, then)
        if random.random() < 0.3:
            for i in found:
                then[i] = dict(now[i])
