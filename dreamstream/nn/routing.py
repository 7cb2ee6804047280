"""What gates compute, written once for NumPy's tensors and for torch's.

Classes here are mixed into modules, of `dreamstream.nn.gates` and of `dreamstream.torch.nn`, whose `ops` are the
functions of their tensors. Choices are first-come where experts take a limited number, in the order of tokens.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

from ..errors import DTypeError, NotStreamableError, ShapeError
from .functional.arguments import require_positive
from .functional.texts import described

__all__ = ["DC", "Faster", "GShard", "Gate", "Naive", "Noisy", "Route", "Swipe", "Switch", "Zero"]

Described = TypeVar("Described")
#: What the parameters are.
PARAMETERS = {
    "d_model": "Features of a token.",
    "num_expert": "Experts among which is chosen.",
    "world_size": "1: Experts lie in one process.",
    "top_k": "Experts of a token.",
    "gate_bias": "Whether logits have a bias.",
    "seed": "Of what is drawn; torch's own state without it.",
    "capacity": "float or (float, float), optional: How many tokens an expert takes, as a rate, in training and "
    "in evaluation; True stands for (1.2, 2.4).",
    "allow_batch_dependence": "Whether the frames of a streaming call may serve as a batch.",
    "switch_eps": "How far noise is from 1, in training.",
    "random_routing": "Whether second choices are dropped by chance, in evaluation too.",
    "d_embed": "Features of the embedding; `d_model` without it.",
    "keep_expert_output": "Whether what the expert gives is not weighted.",
    "score": '{"softmax", "sigmoid"}: What makes logits weights.',
    "renormalise": "Whether the weights of the chosen add up to 1.",
    "choice_bias": "Whether there is a buffer of that name, added to what is compared, not to the weights.",
    "groups": "Groups of neighbouring experts.",
    "top_groups": "Groups within which is chosen; all without it.",
    "group_score": '{"max", "top2"}: What a group is chosen by, its greatest or the sum of its two greatest.',
    "scale": "Factor of the weights.",
}
_described = described(
    "",
    {
        "ShapeError": "For numbers that don't fit.",
        "NotStreamableError": "In streams, for what depends on the batch.",
    },
    **PARAMETERS,
)
_NOTES = """Notes
-----
Input ``(*, d_model)``, outputs ``(*, top_k)`` int64 and floats. **Streaming.** Delay 0, no state.
Source: """


def described_gate(source: str) -> Callable[[type[Described]], type[Described]]:
    """Add to a gate's docstring what all of them say, and where it comes from."""

    def add(gate: type[Described]) -> type[Described]:
        gate.__doc__ = f"{gate.__doc__}\n\n{_NOTES}{source}."
        return _described(gate)

    return add


TINY = 1e-20
SMALL = 1e-10
NOISE = 1e-2
RATES = (1.2, 2.4)


class Route(NamedTuple):
    """How tokens are routed."""

    index: Any  #: ``(*, k) int64``, the chosen experts, -1 for a choice that is dropped.
    score: Any  #: ``(*, k)``, their weights.
    logits: Any  #: ``(*, num_expert)``; None where nothing is computed.
    #: ``(*,)``, by how much the last of the chosen exceeds the best of the others, in what is compared; None where
    #: there are no others.
    margin: Any


class FrontEndModule:
    """What is mixed into modules of both front ends: ``class X(Of, Module, ops=…)`` has its docstring."""

    ops: ClassVar[Any]  #: The functions of the front end's tensors.

    def __init_subclass__(cls, ops: Any = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if ops is not None:
            cls.ops, cls.__doc__ = ops, cls.__bases__[0].__doc__


def check_forced(ops: Any, name: str, x: Any, index: Any, k: int, n: int) -> None:
    """Refuse experts that are not ``(*, k)`` whole numbers from -1 on, below `n`, for tokens ``(*, features)``."""
    if not ops.is_integer(index):
        raise DTypeError(f"{name}: expected experts of int64, got {index.dtype}")
    same = ops.is_stream(x) or tuple(index.shape[:-1]) == tuple(x.shape[:-1])
    if index.ndim != x.ndim or index.shape[-1] != k or not same:
        raise ShapeError(
            f"{name}: expected experts (..., {k}), of each token {k}, for tokens {tuple(x.shape)}, got "
            f"{tuple(index.shape)}"
        )
    if not ops.is_stream(index):  # of streams the product looks
        ops.check_experts(name, index, n)


def one_hot(ops: Any, index: Any, n: int) -> Any:
    """Return where places ``(*, )`` are each of n ``(*, n)``, as float32; of streams that are computed, too."""
    places = ops.arange(n, dtype=ops.float32, device=index.device)
    return (index.to(ops.float32).unsqueeze(-1) == places).to(ops.float32)


class Gate(FrontEndModule):
    """What all gates share: arguments, choices by logits, what is compared, losses.

    Attributes
    ----------
    num_expert, world_size, tot_expert, top_k : int
    """

    training: bool
    loss: Any = None

    def __init__(self, d_model: int, num_expert: int, world_size: int = 1, top_k: int = 2) -> None:
        super().__init__()
        name = type(self).__name__
        if world_size != 1:
            raise ShapeError(f"{name}: world_size is {world_size}, but experts lie in one process: give 1")
        require_positive(name, d_model=d_model, num_expert=num_expert)
        if not 1 <= operator.index(top_k) <= num_expert:
            raise ShapeError(f"{name}: top_k is from 1 to num_expert = {num_expert}, got {top_k}")
        self.d_model, self.num_expert, self.world_size, self.top_k = d_model, num_expert, world_size, top_k
        self.tot_expert = num_expert * world_size
        self.loss, self.width = None, d_model

    # ------------------------------------------------------------------ parts that gates write
    def logits(self, x: Any) -> Any:
        """Return ``(*, num_expert)`` for tokens ``(*, d_model)``."""
        raise NotImplementedError

    def compared(self, logits: Any) -> Any:
        """Return what experts are chosen by."""
        return logits

    def weights(self, logits: Any, index: Any) -> Any:
        """Return the weights of the chosen: softmax among them."""
        return logits.gather(-1, index).softmax(-1)

    def pruned(self, index: Any, score: Any) -> Any:
        """Return the choices, -1 for those that are dropped."""
        return index

    def loss_of(self, logits: Any, chosen: Any, index: Any, score: Any) -> Any:
        """Return the loss of a batch ``(tokens, num_expert)``, or None."""
        return None

    def fits(self, x: Any, index: Any) -> None:
        """Refuse tokens of another width, and experts that don't fit them."""
        name = type(self).__name__
        if x.shape[-1] != self.width:
            raise ShapeError(f"{name}: expected (..., {self.width}), got {tuple(x.shape)}")
        if index is not None:
            check_forced(self.ops, name, x, index, self.top_k, self.tot_expert)

    # ------------------------------------------------------------------ what callers use
    def route(self, x: Any, index: Any = None) -> Route:
        """Return how tokens ``(*, d_model)`` are routed; `index` forces the choices."""
        self.fits(x, index)
        logits = self.logits(x)
        compared = self.compared(logits)
        n = min(self.top_k + 1, self.tot_expert)
        values, found = self.ops.topk(compared, k=n)
        margin = values[..., self.top_k - 1] - values[..., self.top_k] if n > self.top_k else None
        chosen = found[..., : self.top_k] if index is None else index
        # a choice that is forced to be dropped has some weight, which nothing is multiplied by
        score = self.weights(
            logits, chosen if index is None else self._replaced(chosen.to(logits.dtype) < 0, 0, chosen, logits)
        )
        kept = chosen if index is not None else self.pruned(chosen, score)
        if self.training and not self.ops.is_stream(x):
            self.set_loss(self.loss_of(*(t.reshape(-1, t.shape[-1]) for t in (logits, chosen, kept, score))))
        return Route(kept, score, logits, margin)

    def forward(self, inp: Any, return_all_scores: bool = False) -> Any:
        """Return the chosen experts ``(*, k)`` and their weights, and with `return_all_scores` the logits."""
        found = self.route(inp)
        return (found.index, found.score, found.logits) if return_all_scores else (found.index, found.score)

    def set_loss(self, loss: Any) -> None:
        """Keep the loss of the last batch."""
        self.loss = loss

    def get_loss(self, clear: bool = True) -> Any:
        """Return the loss of the last batch that was no stream, or None; `clear` forgets it."""
        loss = self.loss
        if clear:
            self.loss = None
        return loss

    @property
    def has_loss(self) -> bool:
        """Whether there is a loss."""
        return self.loss is not None

    def _replaced(self, where: Any, value: int, index: Any, like: Any) -> Any:
        """Return experts with others in some places; streams choose among floats alone."""
        return self.ops.where(where, float(value), index.to(like.dtype)).to(self.ops.int64)

    def _draws(self, x: Any) -> bool:
        """Whether numbers are drawn: in training, where there are values."""
        return self.training and not self.ops.is_symbolic(x)

    # ------------------------------------------------------------------ what depends on the batch
    allow_batch_dependence: bool = False

    def _batch(self, x: Any, what: str) -> None:
        """Refuse streams where an answer would depend on what else is in the batch."""
        if self.ops.is_stream(x) and not self.allow_batch_dependence:
            raise NotStreamableError.here(
                f"{type(self).__name__}: {what}, so that a frame's answer would depend on the chunks and on the "
                "other streams of a call; leave it out, or give allow_batch_dependence=True"
            )


@described_gate("fmoe.gates.NaiveGate")
class Naive(Gate):
    """The greatest logits, weighted by softmax among them."""

    def __init__(
        self, d_model: int, num_expert: int, world_size: int = 1, top_k: int = 2, gate_bias: bool = True
    ) -> None:
        super().__init__(d_model, num_expert, world_size, top_k)
        self.gate = self.ops.linear(d_model, self.tot_expert, gate_bias)

    def logits(self, x: Any) -> Any:
        return self.ops.router(x, self.gate.weight, self.gate.bias)


class _Balanced(Gate):
    """With GShard's loss."""

    def loss_of(self, logits: Any, chosen: Any, index: Any, score: Any) -> Any:
        """Return mean(c m) E^2 of the shares c of first choices and the mean probabilities m."""
        shares = one_hot(self.ops, chosen[..., 0], self.tot_expert).to(logits.dtype).sum(0) / chosen.shape[0]
        return (shares * logits.softmax(-1).sum(0) / chosen.shape[0]).sum() * self.tot_expert


@described_gate("fmoe.gates.FasterGate")
class Faster(_Balanced, Naive):
    """Naive at one worker, with GShard's loss."""


@described_gate("fmoe.gates.SwipeGate")
class Swipe(Naive):
    """Naive at one worker: what one expert has too much goes to others of the same worker."""


@described_gate("fmoe.gates.ZeroGate")
class Zero(Gate):
    """The first expert for all tokens, each choice with the same weight."""

    def route(self, x: Any, index: Any = None) -> Route:
        self.fits(x, index)
        never = x[..., :1] > x[..., :1]
        zeros = self.ops.cat([never] * self.top_k, -1)
        score = zeros.to(x.dtype) + 1 / self.top_k
        return Route(zeros.to(self.ops.int64) if index is None else index, score, None, None)


@described_gate("fmoe.gates.NoisyGate")
class Noisy(Gate):
    """Logits with noise of a learnt size, in training."""

    def __init__(
        self, d_model: int, num_expert: int, world_size: int = 1, top_k: int = 2, seed: int | None = None
    ) -> None:
        super().__init__(d_model, num_expert, world_size, top_k)
        self.w_gate = self.ops.parameter(d_model, self.tot_expert, bound=1 / math.sqrt(d_model))
        self.w_noise = self.ops.parameter(d_model, self.tot_expert)
        self.seed = seed
        self.random = self.ops.random(seed)

    def logits(self, x: Any) -> Any:
        clean = self.ops.router(x, self.w_gate.transpose(0, 1), None)
        if not self._draws(x):
            return clean
        size = self.ops.softplus(self.ops.router(x, self.w_noise.transpose(0, 1), None)) + NOISE
        noisy = clean + self.ops.normal(self, clean) * size
        self.drawn = (clean, size)
        return noisy

    def loss_of(self, logits: Any, chosen: Any, index: Any, score: Any) -> Any:
        n = self.tot_expert
        clean, size = (t.reshape(-1, n) for t in self.drawn)
        values, _ = self.ops.topk(logits, k=min(self.top_k + 1, n))
        importance = (one_hot(self.ops, chosen, n).to(logits.dtype) * score.unsqueeze(-1)).sum(-2).sum(0)
        if self.top_k == n:
            load = (one_hot(self.ops, chosen, n).to(logits.dtype)).sum(-2).sum(0)
        else:
            inside, outside = values[:, self.top_k].unsqueeze(-1), values[:, self.top_k - 1].unsqueeze(-1)
            threshold = self.ops.where(logits > inside, inside, outside)
            load = (0.5 * (1 + ((clean - threshold) / size / math.sqrt(2)).erf())).sum(0)
        return _variation(importance) + _variation(load)


def _variation(x: Any) -> Any:
    """Return the squared coefficient of variation, unbiased; 0 of a single number."""
    if x.shape[0] == 1:
        return x.sum() * 0
    mean = x.mean()
    return ((x - mean) * (x - mean)).sum() / (x.shape[0] - 1) / (mean * mean + SMALL)


class Full(Gate):
    """Chosen by the probabilities among all experts, which are the weights."""

    def compared(self, logits: Any) -> Any:
        return logits.softmax(-1)

    def weights(self, logits: Any, index: Any) -> Any:
        return logits.softmax(-1).gather(-1, index)


class _Limited(Naive):
    """Gates whose experts take a limited number of tokens of a batch."""

    capacity: Any
    allow_batch_dependence: bool

    def __init__(
        self,
        d_model: int,
        num_expert: int,
        world_size: int = 1,
        top_k: int = 2,
        gate_bias: bool = True,
        *,
        capacity: Any = None,
        seed: int | None = None,
        allow_batch_dependence: bool = False,
    ) -> None:
        super().__init__(d_model, num_expert, world_size, top_k, gate_bias)
        if isinstance(capacity, bool):
            capacity = RATES if capacity else None
        if isinstance(capacity, (int, float)):
            capacity = (capacity, capacity)
        numbers = capacity is None or all(isinstance(c, (int, float)) and c > 0 for c in capacity)
        if not numbers or (capacity is not None and len(capacity) != 2):
            raise ShapeError(
                f"{type(self).__name__}: capacity is None, or two positive rates, of training and of evaluation; "
                f"got {capacity!r}"
            )
        self.capacity, self.allow_batch_dependence = capacity, allow_batch_dependence
        self.seed = seed
        self.random = self.ops.random(seed)

    def limit(self, n_tokens: int) -> int:
        """Return how many tokens an expert takes of a batch."""
        return self._part_of(n_tokens)

    def _part_of(self, n_tokens: int, shares: int = 1) -> int:
        rate: float = self.capacity[0 if self.training else 1]
        return math.ceil(rate * n_tokens / shares)

    def pruned(self, index: Any, score: Any) -> Any:
        if self.capacity is None:
            return index
        self._batch(index, "its capacity is a part of the batch")
        return self.ops.limited(index, self.limit, self.tot_expert)


@described_gate("fmoe.gates.SwitchGate")
class Switch(Full, _Limited):
    """One expert, weighted by its probability; in training with noise between 1 - eps and 1 + eps."""

    def __init__(
        self,
        d_model: int,
        num_expert: int,
        world_size: int = 1,
        top_k: int = 1,
        switch_eps: float = 0.1,
        capacity: Any = None,
        gate_bias: bool = True,
        *,
        seed: int | None = None,
        allow_batch_dependence: bool = False,
    ) -> None:
        if top_k != 1:
            raise ShapeError(f"{type(self).__name__}: it chooses one expert, top_k must be 1, got {top_k}")
        limits = {"capacity": capacity, "seed": seed, "allow_batch_dependence": allow_batch_dependence}
        super().__init__(d_model, num_expert, world_size, top_k, gate_bias, **limits)
        self.switch_eps = switch_eps

    def logits(self, x: Any) -> Any:
        clean = Naive.logits(self, x)
        if self.switch_eps == 0 or not self._draws(x):
            return clean
        return clean + self.ops.uniform(self, clean) * (2 * self.switch_eps) + (1 - self.switch_eps)

    def limit(self, n_tokens: int) -> int:
        return self._part_of(n_tokens, self.tot_expert)

    def loss_of(self, logits: Any, chosen: Any, index: Any, score: Any) -> Any:
        valid = (index >= 0).sum().to(logits.dtype)
        hit = (index[..., :1] == self.ops.arange(logits.shape[-1], device=logits.device)).to(logits.dtype)
        return (hit.sum(0) / valid * (logits.softmax(-1).sum(0) / valid)).sum() * self.tot_expert


@described_gate("fmoe.gates.GShardGate")
class GShard(_Balanced, _Limited):
    """Two experts; the second is dropped by chance where its weight is small, and some by capacity."""

    def __init__(
        self,
        d_model: int,
        num_expert: int,
        world_size: int = 1,
        top_k: int = 2,
        capacity: Any = None,
        random_routing: bool = True,
        gate_bias: bool = True,
        *,
        seed: int | None = None,
        allow_batch_dependence: bool = False,
    ) -> None:
        if top_k != 2:
            raise ShapeError(f"{type(self).__name__}: it chooses two experts, top_k must be 2, got {top_k}")
        limits = {"capacity": capacity, "seed": seed, "allow_batch_dependence": allow_batch_dependence}
        super().__init__(d_model, num_expert, world_size, top_k, gate_bias, **limits)
        self.random_routing = random_routing

    def limit(self, n_tokens: int) -> int:
        return self._part_of(n_tokens) * self.top_k // self.tot_expert

    def pruned(self, index: Any, score: Any) -> Any:
        kept = super().pruned(index, score)
        if not self.random_routing:
            return kept
        self._batch(index, "random_routing drops second choices by numbers drawn in the order of tokens")
        unlikely = 2 * score[..., 1:] < self.ops.uniform(self, score[..., 1:])
        return self.ops.cat([kept[..., :1], self._replaced(unlikely, -1, kept[..., 1:], score)], -1)


@described_gate("fmoe.gates.DCGate")
class DC(GShard):
    """GShard, each expert limited by a part of all tokens."""

    limit = _Limited.limit
