"""Gates of mixtures of experts, FastMoE's names and arguments, and what language models use.

A gate takes tokens ``(*, d_model)`` and returns the chosen experts ``(*, k) int64`` and their weights ``(*, k)``;
`route` says more. A choice is made by sums of fixed order, so that it is the same for all chunks, batches, threads
and instruction sets; the first of equals is chosen. A token whose logits are NaN has NaN weights; no other has.
Noise, in training, follows from a frame's stream and position, however a stream is cut.

**Streaming.** Delay 0, no state. What looks at a batch, `capacity` and `random_routing`, is refused in streams,
but where ``allow_batch_dependence=True`` says that a call's frames are the batch; engines have none.
Source: fmoe.gates; EmbeddingGate: 3M-ASR; TopKGate: Mixtral, Qwen-MoE, DeepSeek.
"""

from __future__ import annotations

from . import routing, routing_models
from .module import Module
from .native_ops import OPS

__all__ = [
    "DCGate", "EmbeddingGate", "FasterGate", "GShardGate", "NaiveGate", "NoisyGate", "SwipeGate", "SwitchGate",
    "TopKGate", "ZeroGate",
]  # fmt: skip


class ZeroGate(routing.Zero, Module, ops=OPS): ...


class NaiveGate(routing.Naive, Module, ops=OPS): ...


class FasterGate(routing.Faster, Module, ops=OPS): ...


class SwipeGate(routing.Swipe, Module, ops=OPS): ...


class NoisyGate(routing.Noisy, Module, ops=OPS): ...


class SwitchGate(routing.Switch, Module, ops=OPS): ...


class GShardGate(routing.GShard, Module, ops=OPS): ...


class DCGate(routing.DC, Module, ops=OPS): ...


class EmbeddingGate(routing_models.Embedding, Module, ops=OPS): ...


class TopKGate(routing_models.TopK, Module, ops=OPS): ...
