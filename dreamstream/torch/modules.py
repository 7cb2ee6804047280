"""A torch module that patches itself."""

from __future__ import annotations

from typing import Any

import torch

from ..online.patch import Patch, patch_module

__all__ = ["StreamModule"]


class StreamModule(torch.nn.Module):
    """A torch module that patches itself: ``online()`` works right after it is made.

    Options of `dreamstream.patch_module` can be given as class attributes ``train_variant``,
    ``unstreamable_policy`` (there ``unstreamable``), ``buffer_limit`` and ``skew``.
    """

    train_variant = "chunk-wise-aligned"
    unstreamable_policy = "raise"
    buffer_limit: int | None = None
    skew = 0

    def __getattr__(self, name: str) -> Any:
        if name in (*Patch.METHODS, *Patch.PROPERTIES) and "_patch" not in self.__dict__:
            patch_module(self, self.train_variant, self.unstreamable_policy, self.buffer_limit, self.skew)
            return getattr(self, name)
        return super().__getattr__(name)
