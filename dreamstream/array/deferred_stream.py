"""Deferred values that are made of a whole stream and are used like streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..stream.edge import Edge
from .stream_tensor import Dims, StreamTensor


class DeferredStream(StreamTensor):
    """A value that is made of a whole stream, until something computes it."""

    whole: StreamTensor
    _elements = "the value"  # what is read of it, for messages
    refuse: Callable[..., Any]  # a use, at the line that runs or at another
    #: ``(run, name, attributes, inputs, weights, dims)``: what an operator makes of it among inputs; None: frames.
    by_element: Callable[..., Any]

    def _stand(self, whole: StreamTensor, dims: Dims, names: Sequence[str | None]) -> None:
        self.base, self.dims, self._names, self._rate = whole, dims, tuple(names), whole.rate
        self._meta = self._starts = None

    @property
    def dtype(self) -> Any:
        return self.base.dtype

    @property
    def edge(self) -> Edge | None:  # type: ignore[override]
        return self.base.edge

    @property
    def value(self) -> Any:  # type: ignore[override]
        return self.refuse(self._elements)

    def as_output(self) -> StreamTensor:
        return self.refuse("a result")

    def in_order(self, stored: Sequence[int] | None = None) -> StreamTensor:
        return self

    _make = StreamTensor._make  # what is made of its frames is none
