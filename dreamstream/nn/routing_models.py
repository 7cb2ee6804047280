"""What the gates of certain models compute, as `routing` has the general ones."""

from __future__ import annotations

import math
from typing import Any

from ..errors import ShapeError
from .routing import TINY, Full, Gate, described_gate, one_hot

__all__ = ["Embedding", "TopK", "within_groups"]


def within_groups(ops: Any, scores: Any, groups: int, top_groups: int, group_score: str) -> Any:
    """Return scores ``(*, experts)``, -inf outside the best groups."""
    grouped = scores.unflatten(-1, (groups, -1))
    best = grouped.amax(-1) if group_score == "max" else ops.topk(grouped, k=2)[0].sum(-1)
    _, found = ops.topk(best, k=top_groups)
    among = one_hot(ops, found, groups).sum(-2) > 0
    return ops.where(among.unsqueeze(-1), grouped, -math.inf).flatten(-2)


@described_gate("3M-ASR")
class Embedding(Full):
    """3M's router: the best experts of softmax over all, by an embedding and the token together."""

    router_bias: Any

    def __init__(
        self,
        d_model: int,
        num_expert: int,
        world_size: int = 1,
        top_k: int = 1,
        gate_bias: bool = False,
        *,
        d_embed: int | None = None,
        keep_expert_output: bool = False,
    ) -> None:
        super().__init__(d_model, num_expert, world_size, top_k)
        self.d_embed = d_model if d_embed is None else d_embed
        self.width = width = self.d_embed + d_model
        self.router_weights = self.ops.parameter(width, self.tot_expert, bound=1 / math.sqrt(width))
        self.register_parameter("router_bias", self.ops.parameter(self.tot_expert) if gate_bias else None)  # type: ignore[attr-defined]
        self.keep_expert_output = keep_expert_output

    def joined(self, x: Any, embed: Any) -> Any:
        """Return what the router sees: the embedding first."""
        same = self.ops.is_stream(x) or tuple(embed.shape[:-1]) == tuple(x.shape[:-1])
        if embed.shape[-1] != self.d_embed or not same:
            raise ShapeError(
                f"{type(self).__name__}: expected an embedding (..., {self.d_embed}) of each token of "
                f"{tuple(x.shape)}, got {tuple(embed.shape)}"
            )
        return self.ops.cat([embed, x], -1)

    def logits(self, x: Any) -> Any:
        return self.ops.router(x, self.router_weights.transpose(0, 1), self.router_bias)

    def weights(self, logits: Any, index: Any) -> Any:
        score = super().weights(logits, index)
        return score * 0 + 1 if self.keep_expert_output else score

    def loss_of(self, logits: Any, chosen: Any, index: Any, score: Any) -> Any:
        probability = logits.softmax(-1)
        norm = (probability * probability).sum(-1).sqrt().clamp(min=TINY)
        sparsity = (probability.sum(-1) / norm).mean()
        mean = probability.sum(0) / probability.shape[0]
        return sparsity, self.tot_expert * (mean * mean).sum()


@described_gate("the routers of Mixtral, Qwen-MoE and DeepSeek")
class TopK(Gate):
    """What language models use: softmax or sigmoid, groups of experts, a bias of the choice."""

    bias: Any
    choice_bias: Any

    def __init__(
        self,
        d_model: int,
        num_expert: int,
        world_size: int = 1,
        top_k: int = 2,
        gate_bias: bool = False,
        *,
        score: str = "softmax",
        renormalise: bool = False,
        choice_bias: bool = False,
        groups: int = 1,
        top_groups: int | None = None,
        group_score: str = "max",
        scale: float = 1.0,
    ) -> None:
        super().__init__(d_model, num_expert, world_size, top_k)
        name = type(self).__name__
        top_groups = groups if top_groups is None else top_groups
        if score not in ("softmax", "sigmoid"):
            raise ShapeError(f"{name}: score is 'softmax' or 'sigmoid', got {score!r}")
        if group_score not in ("max", "top2"):
            raise ShapeError(f"{name}: group_score is 'max' or 'top2', got {group_score!r}")
        if groups < 1 or self.num_expert % groups or not 1 <= top_groups <= groups:
            raise ShapeError(
                f"{name}: groups divide num_expert = {self.num_expert}, and top_groups is from 1 to groups; got "
                f"{groups} and {top_groups}"
            )
        if top_groups * (self.num_expert // groups) < self.top_k:
            raise ShapeError(
                f"{name}: {top_groups} groups of {self.num_expert // groups} experts are fewer than "
                f"top_k = {self.top_k}"
            )
        if group_score == "top2" and groups > 1 and self.num_expert < 2 * groups:
            raise ShapeError(f"{name}: group_score='top2' needs groups of two experts or more")
        self.score, self.renormalise, self.groups = score, renormalise, groups
        self.top_groups, self.group_score, self.scale = top_groups, group_score, scale
        self.weight = self.ops.parameter(self.tot_expert, d_model, bound=1 / math.sqrt(d_model))
        self.register_parameter("bias", self.ops.parameter(self.tot_expert) if gate_bias else None)  # type: ignore[attr-defined]
        self.register_buffer("choice_bias", self.ops.zeros(self.tot_expert) if choice_bias else None)  # type: ignore[attr-defined]

    def logits(self, x: Any) -> Any:
        return self.ops.router(x, self.weight, self.bias)

    def scores(self, logits: Any) -> Any:
        """Return the probabilities of all experts."""
        return logits.softmax(-1) if self.score == "softmax" else logits.sigmoid()

    def compared(self, logits: Any) -> Any:
        scores = self.scores(logits)
        if self.choice_bias is not None:
            scores = scores + self.choice_bias
        if self.top_groups == self.groups:
            return scores
        return within_groups(self.ops, scores, self.groups, self.top_groups, self.group_score)

    def weights(self, logits: Any, index: Any) -> Any:
        score = self.scores(logits).gather(-1, index)
        if self.renormalise:
            score = score / (score.sum(-1, keepdim=True) + TINY)
        return score * self.scale if self.scale != 1 else score
