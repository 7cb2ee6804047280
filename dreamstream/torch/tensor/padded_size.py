"""The size along L of streams of different lengths: a number that warns where a tensor is divided by it."""

from __future__ import annotations

import math
import warnings
from typing import Any, cast

import torch

from ...errors import StreamWarning
from ...source_line import user_line
from ...stream.tree import map_leaves

_DIVISIONS = frozenset(("div", "divide", "true_divide", "__truediv__", "__itruediv__", "div_", "divide_"))


class PaddedSize(int):
    """A size that counts padding, and products with it."""

    def __mul__(self, other: Any) -> Any:
        product = int.__mul__(self, other)
        return product if product is NotImplemented else PaddedSize(product)

    __rmul__ = __mul__

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*without_padded_sizes(func, args), **map_leaves(kwargs or {}, _number))


def without_padded_sizes(func: Any, args: Any) -> Any:
    """Return arguments with plain numbers; warn where a tensor is divided by a size that counts padding."""
    if func.__name__ in _DIVISIONS and type(args[-1]) is PaddedSize:
        warnings.warn(
            f"a tensor is divided at {user_line()} by a size of streams, padding included; y.numel() and "
            'y.lengths leave it out, as y.mean("L") does',
            StreamWarning,
            stacklevel=2,
        )
    return map_leaves(args, _number)


def _number(x: Any) -> Any:
    return int(x) if type(x) is PaddedSize else x


class PaddedShape(tuple):  # type: ignore[type-arg]
    """A `torch.Size`, which allows no subclasses, whose products count padding and warn as its sizes do."""

    __class__ = property(lambda self: torch.Size)

    def numel(self) -> int:
        """Return how many elements the padded tensor has."""
        return self.prod()

    def prod(self, *_: Any, **__: Any) -> int:  # `np.prod(x.shape)` asks for it
        """Return how many elements the padded tensor has."""
        return PaddedSize(math.prod(self))

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return torch.Size(found) if isinstance(index, slice) else found

    def __add__(self, other: Any) -> Any:
        return torch.Size(self) + torch.Size(other)

    def __repr__(self) -> str:
        return repr(torch.Size(map(int, self)))

    def __reduce__(self) -> Any:
        return torch.Size, (tuple(map(int, self)),)


def padded_sizes(shape: torch.Size, length: int | None) -> torch.Size:
    """Return sizes of which that of dimension `length` counts padding."""
    sizes = (PaddedSize(n) if i == length else n for i, n in enumerate(shape))
    return cast(torch.Size, PaddedShape(sizes))
