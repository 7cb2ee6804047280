"""``torch.stack`` and ``torch.cat`` of what a loop over frames has gathered, which is a stream.

torch takes lists of tensors alone, before a mode sees the call: so the copies of forwards call these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...array.loop_lists import Gathered
from ...online.tracer import TRACER


def _of(original: Callable[..., Any], method: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        tensors = args[0] if args else kwargs.get("tensors")
        if not isinstance(tensors, Gathered):
            return original(*args, **kwargs)
        dim = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis", 0))
        return getattr(tensors, method)(dim)

    return call


for _function, _method in (
    (torch.stack, "stacked"),
    (torch.cat, "joined"),
    (torch.concat, "joined"),
    (torch.concatenate, "joined"),
):
    TRACER.stand_in(_function, _of(_function, _method))
