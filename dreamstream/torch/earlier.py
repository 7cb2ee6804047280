"""What a patched convolution of the earlier DreamStream offered."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .. import dispatch

__all__ = ["PROPERTIES"]


def kernel_width(module: Any) -> int:
    """Frames that one output frame sees."""
    return int(module.dilation[0] * (module.kernel_size[0] - 1) + 1)


def stream_buffer(module: Any) -> dict[str, torch.Tensor]:
    """Frames ``(channels, frames)`` kept for each live stream, where the module itself is called with streams.

    What it keeps inside a larger module is with that module's streams (`get_state`).
    """
    session = module._patch.session
    kept: dict[str, torch.Tensor] = {}
    with session.hold():
        for i in session.live_ids:
            state = session.state_of(i)
            (name, attributes, *_), n = session.script[0], int(state.frames[0])
            signature = (_name(module.weight.dtype), (module.in_channels,), 1, 1)
            op = dispatch.operator(name, dict(attributes), [signature], [module.weight, module.bias])
            counts = np.array([[0, 0, n, n]], np.int64)
            (after,) = op.counts([counts], np.zeros(1, bool))
            size = n - int(op.kept([counts], [after])[0][0, 1])
            rows = state.states.store.tensors.get((0, 0))
            frames = (
                module.weight.new_zeros(0, module.in_channels)
                if rows is None
                else rows[state.states.row]
            )
            kept[i] = frames[:size].detach().T.clone()
    return kept


def _name(dtype: torch.dtype) -> str:
    return "float64" if dtype == torch.float64 else "float32"


PROPERTIES = {"kernel_width": property(kernel_width), "stream_buffer": property(stream_buffer)}
