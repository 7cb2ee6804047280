"""StreamTensor: torch tensors of streams. (Minimal: outside operations come apart.)"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import torch

__all__ = ["StreamTensor", "set_inside"]

_inside: Callable[..., Any] | None = None


def set_inside(fn: Callable[..., Any]) -> None:
    """Set what runs torch's functions on streams inside a forward."""
    global _inside
    _inside = fn


def _any_inside(tree: Any) -> bool:
    if isinstance(tree, StreamTensor):
        return tree._inner is not None
    if isinstance(tree, (list, tuple)):
        return any(map(_any_inside, tree))
    if isinstance(tree, dict):
        return any(map(_any_inside, tree.values()))
    return False


class StreamTensor(torch.Tensor):
    """Frames of many streams."""

    _inner: Any = None

    @classmethod
    def shell(cls, inner: Any, like: torch.Tensor) -> StreamTensor:
        """Return what stands for a native stream tensor inside a forward."""
        out = like.as_subclass(cls)
        out._inner = inner
        return out

    @classmethod
    def outside(cls, padded: torch.Tensor, names: Any, meta: Any, starts: Any, rate: Any) -> StreamTensor:
        out = padded.as_subclass(cls)
        out.names_, out.meta, out.starts, out.rate = tuple(names), meta, starts, rate
        out.restart = False
        return out

    @property
    def lengths(self): return self.meta.lengths
    @property
    def ids(self): return self.meta.ids

    def tensor(self):
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(torch.Tensor)

    @property
    def dims(self):
        it = iter(range(9))
        return tuple(n if n in ("B", "L", "B_L") else next(it) for n in self.names_)

    def frames(self) -> torch.Tensor:
        """Return ``[frames of all rows][features...]``."""
        t = self.tensor()
        d = self.dims
        order = [d.index("B"), d.index("L")] + [i for i, n in enumerate(d) if not isinstance(n, str)]
        t = t.permute(order)
        return torch.cat([t[i, :n] for i, n in enumerate(self.lengths)]) if len(self.lengths) else t.reshape(0, *t.shape[2:])

    @classmethod
    def from_frames(cls, value, dims, names, meta, starts, rate):
        feats = value.shape[1:]
        pooled = "L" not in dims
        n = 1 if pooled else meta.max_length
        out = value.new_full((len(meta), n, *feats), float("nan") if pooled else 0)
        at = 0
        rows = []
        for i, m in enumerate(meta.lengths):
            m = int(m)
            rows.append(torch.cat([value[at:at + m], out[i, m:]]))
            at += m
        out = torch.stack(rows) if rows else out
        if pooled:
            out = out[:, 0]
        axes = {"B": 0, "L": 1}
        lead = 1 if pooled else 2
        out = out.permute([axes[d] if isinstance(d, str) else lead + d for d in dims])
        return cls.outside(out, [d if isinstance(d, str) else None for d in dims], meta, starts, rate)

    def __getitem__(self, i):
        if isinstance(i, str):
            r = self.meta.row_of(i)
            d = [x for x in self.dims if x != "B"]
            t = self.tensor().select(self.dims.index("B"), r)
            return t.narrow(d.index("L"), 0, int(self.lengths[r])) if "L" in d else t[None][: int(self.lengths[r])]
        return super().__getitem__(i)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _any_inside((args, kwargs)):
            assert _inside is not None
            return _inside(func, args, kwargs or {})
        return super().__torch_function__(func, types, args, kwargs or {})
