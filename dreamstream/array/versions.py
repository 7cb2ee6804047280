"""Version numbers of parameters: whether their memory may have been written to since somebody looked at it.

The array in which a parameter has its values is given to operators alone. Everybody else gets a view of the same
memory, and each such view counts: the parameter has another version from then on, and as long as a view, or what
was made of it, is alive, it has none, since its holder may write at any time. So whatever way values are edited
(``p.data[...] = 1``, ``p += 1``, ``p.numpy()[0] = 1``, an optimizer's step), there is another version, or none,
behind it. Addresses of memory alone (``array.ctypes.data``) are not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from sys import getrefcount
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from .. import _core

Array = NDArray[Any]

#: By the identity of a parameter's array: its version, and a reference that takes the entry out with the array.
_versions: dict[int, tuple[int, Any]] = {}
_count = count()

_one_view = np.zeros(1).view()
#: What `getrefcount` says of memory that one view alone refers to.
_ALONE = getrefcount(_one_view.base)


def kept(array: Array) -> Array:
    """Return the array in which a parameter keeps its values: a view of this one's memory."""
    own = array.view()
    key = id(own)
    _versions[key] = next(_count), ref(own, lambda _: _versions.pop(key, None))
    return own


def lent(own: Array) -> Array:
    """Return a view of a parameter's values that may be written to."""
    known = _versions.get(id(own))
    if known is not None:
        _versions[id(own)] = next(_count), known[1]
    return own.view()


def version_of(arrays: Sequence[Array | None]) -> tuple[int, ...] | None:
    """Return the version of some weights; None where they may be written to without anybody's notice."""
    found = []
    for array in arrays:
        if array is None:
            continue
        known = _versions.get(id(array))
        if known is None or type(array.base) is not np.ndarray or not array.base.flags.owndata:
            return None
        if getrefcount(array.base) != _ALONE:
            return None
        found.append(known[0])
    return tuple(found)


def checksum(array: Array) -> int:
    """Return a number that is another one where the array holds other bytes."""
    return _core.checksum(np.ascontiguousarray(array))


class Contents:
    """What a parameter held when an operator read it.

    Its checksum is made anew only where somebody may have written to it since.
    """

    __slots__ = ("_checksum", "_version", "array")

    def __init__(self, array: Array) -> None:
        self.array, self._version, self._checksum = array, version_of([array]), checksum(array)

    @classmethod
    def of(cls, array: Array, known: dict[int, Contents]) -> Contents | None:
        """Return what a parameter holds now, found among those that are known; None of other arrays."""
        if id(array) not in _versions:
            return None
        found = known.get(id(array))
        if found is None or found.array is not array or not found.are_now:
            found = known[id(array)] = cls(array)
        return found

    @property
    def are_now(self) -> bool:
        """Whether it holds the same still."""
        version = version_of([self.array])
        if version is None or version != self._version:
            if checksum(self.array) != self._checksum:
                return False
            self._version = version
        return True
