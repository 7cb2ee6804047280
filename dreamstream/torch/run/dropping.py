"""Weights of attention that are dropped in training, of which no operator's attributes speak."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

__all__ = ["dropped", "dropping"]

_PROBABILITY: ContextVar[float] = ContextVar("dreamstream_attention_dropout", default=0.0)


@contextmanager
def dropping(p: float) -> Iterator[None]:
    """Let attention that runs meanwhile drop its weights with probability p."""
    token = _PROBABILITY.set(p)
    try:
        yield
    finally:
        _PROBABILITY.reset(token)


def dropped(weight: torch.Tensor) -> torch.Tensor:
    """Return weights of attention, some of them dropped and the others larger."""
    p = _PROBABILITY.get()
    return torch.nn.functional.dropout(weight, p) if p else weight
