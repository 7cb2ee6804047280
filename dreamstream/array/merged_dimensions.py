"""Features and the frames behind them as one dimension, as ``x.flatten(1)`` of ``(B, C, L)`` has: x itself.

How long such a dimension is differs from stream to stream, and no frame has all of it. It is deferred
until it is taken apart again, as `F.unfold` is with blocks as wide as the stream, or summed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NoReturn

from ..errors import NotStreamableError
from ..stream.rules import BatchSize, Length, Shape
from .deferred_stream import DeferredStream
from .dimension_arguments import sizes_of
from .stream_tensor import StreamTensor


class Merged(DeferredStream):
    """A stream after ``x.flatten(1)`` and the like: some neighbouring dimensions are shown as one.

    `groups` has for each dimension the dimensions of `whole` that are joined in it, in order.
    """

    features = ()
    roles = property(lambda self: self.dims)
    _elements = "the frames"

    def __init__(self, whole: StreamTensor, groups: Sequence[Sequence[int]]) -> None:
        self.groups = [list(g) for g in groups]
        dims = tuple("_".join(whole.roles[a] for a in g) for g in self.groups)
        self._stand(whole, dims, dims)

    def refuse(self, what: str, line: str = "") -> NoReturn:
        raise NotStreamableError.here(
            f"{what} of a stream {self.roles}",
            ", of which features and frames are one dimension: take it apart first, as in x.view(batch, features, "
            "length); sums and means over it stream",
            line,
        )

    @property
    def shape(self) -> tuple[Any, ...]:
        sizes = self.base.shape
        return Shape([prod(reversed([sizes[a] for a in g])) for g in self.groups])

    def in_order(self, stored: Sequence[int] | None = None) -> StreamTensor:
        return self.refuse("this use")

    def with_dims(self, dims: Any, names: Any = None) -> StreamTensor:
        return Merged(self.base, self.groups)

    # ------------------------------------------------------------------ what streams
    def reshape(self, *given: Any, shape: Any = (), size: Any = ()) -> Any:
        return self.base.reshape(*sizes_of(given, shape or size))

    view = reshape

    def permute(self, *given: Any, dims: Any = ()) -> Any:
        groups = [self.groups[self._axis("permute", d)] for d in sizes_of(given, dims)]
        whole = self.base.permute(*(a for g in groups for a in g))
        at = iter(range(len(whole.dims)))
        return Merged(whole, [[next(at) for _ in g] for g in groups])

    def unsqueeze(self, dim: int) -> Any:
        return self.refuse("unsqueeze")

    def squeeze(self, dim: Any = None) -> Any:
        return self.refuse("squeeze")

    def reduced(self, name: str, axes: Sequence[int], keepdim: bool, options: Mapping[str, Any]) -> Any:
        """Return a reduction over dimensions; every merged one must be among them."""
        if keepdim and any(len(self.groups[a]) > 1 for a in axes):
            self.refuse(f"{name} with keepdim=True")
        left = [g for i, g in enumerate(self.groups) if i not in axes]
        if any(len(g) > 1 for g in left):
            self.refuse(f"{name} along others")
        gone = [a for i in axes for a in self.groups[i]]
        if name[:3] == "arg" or name in ("max", "min"):
            self.refuse(name)
        return getattr(self.base, name)(dim=gone, keepdim=keepdim, **options)

    def by_element(
        self, run: Any, name: str, attributes: Any, inputs: Sequence[Any], weights: Sequence[Any], dims: Any
    ) -> tuple[Any, ...]:
        """Run an operator that looks at each element by itself."""
        alike = all(
            type(x) is Merged and x.groups == self.groups and x.base.roles == self.base.roles for x in inputs
        )
        if dims is not None or not alike or any(w is not None and w.numel() != 1 for w in weights):
            self.refuse(name)
        whole = run(name, attributes, [x.base for x in inputs], weights, None)
        return tuple(Merged(y, self.groups) for y in whole)


def merged(x: StreamTensor, shape: Sequence[Any]) -> Merged | None:
    """Return ``x.reshape(shape)`` if it merges features and frames in one dimension; else None."""
    left, sizes = list(range(len(x.dims))), list(x.shape)

    def taken(size: Any, end: int) -> list[int]:
        """Take the dimensions whose product is `size` off one end of those left; return [] if there are none."""
        group: list[int] = []
        while left and not (group and _is_product(size, [sizes[a] for a in group])):
            group = [*group, left.pop(0)] if end == 0 else [left.pop(), *group]
        return group if _is_product(size, [sizes[a] for a in group]) else []

    at = next((i for i, size in enumerate(shape) if isinstance(size, int) and size == -1), len(shape))
    front = [taken(size, 0) for size in shape[:at]]
    behind = [taken(size, -1) for size in reversed(shape[at + 1 :])]
    groups = [*front, *([left] if left or at < len(shape) else []), *reversed(behind)]
    if not all(groups) or len(groups) != len(shape):
        return None
    kinds = [[x.dims[a] for a in g] for g in groups]
    if any(len(k) > 1 and any(isinstance(d, str) and d != "L" for d in k) for k in kinds):
        return None
    return Merged(x, groups) if any(len(k) > 1 and "L" in k for k in kinds) else None


def _is_product(size: Any, sizes: Sequence[Any]) -> bool:
    """Whether a size is the product of others, for every stream."""
    tokens = [s for s in sizes if not isinstance(s, int)]
    number = prod(s for s in sizes if isinstance(s, int))
    if not tokens:
        return isinstance(size, int) and size == number
    if len(tokens) > 1 or isinstance(size, int):
        return False
    if isinstance(tokens[0], BatchSize):
        return isinstance(size, BatchSize) and len(sizes) == 1 and bool(size == tokens[0])
    return isinstance(size, Length) and isinstance(tokens[0], Length) and (size == tokens[0] * number) is True
