"""Sizes of B and L as torch's functions take them.

torch parses arguments before a mode sees the call: a size has to be a `torch.SymInt` to get through
``torch.zeros(x.size(0), 4)``. Nothing of SymInt but its name is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ...array.distance_tables import Stride
from ...array.protocol import refuse_the_rest
from ...errors import NotStreamableError
from ...stream.rules import BatchLength, BatchSize, Length


class TorchBatch(BatchSize, torch.SymInt):  # type: ignore[misc]
    """``x.size(B)``."""


class TorchLength(Length, torch.SymInt):
    """``x.size(L)``."""

    def to(self, *_: object, **__: object) -> TorchLength:
        """Return it as an integer of any type: what torch's functions made of lengths is a number to them."""
        return self

    long = int = item = to


class TorchBatchLength(BatchLength, torch.SymInt):  # type: ignore[misc]
    """``x.size(B) * x.size(L)``."""


class TorchStride(Stride, torch.SymInt):  # type: ignore[misc]
    """``x.stride(0)`` of a product with a table by distance, which ``as_strided`` is given."""


class TensorOfSizes:
    """``torch.tensor(x.shape)``: the sizes one by one, since some are no numbers."""

    def __init__(self, sizes: Sequence[Any]) -> None:
        self._sizes = tuple(sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._sizes)

    def __getitem__(self, index: Any) -> Any:
        found = self._sizes[index]
        return TensorOfSizes(found) if isinstance(index, slice) else found

    def __getattr__(self, name: str) -> Any:
        if not hasattr(torch.Tensor, name):
            raise AttributeError(name)
        raise NotStreamableError.here(
            f"a tensor of sizes has no {name} inside a forward,",
            ": lengths, one for each stream, are torch.full((x.size(0),), x.size(L)), or an argument, for which "
            "ds.lengths_of(x) stands",
        )

    def tolist(self) -> list[Any]:
        """Return the sizes as a list: ints, and tokens for B and L."""
        return list(self._sizes)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return TensorOfSizes(()).__getattr__(func.__name__)


refuse_the_rest(TensorOfSizes, TensorOfSizes.__getattr__)
