"""Mixtures of experts as layers, written once for NumPy's tensors and for torch's, as gates are (`routing`)."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import DTypeError, FormatError, ModeError, NotStreamableError, ShapeError
from ..stream.tree import leaves, map_leaves
from . import routing
from .functional.arguments import require_positive
from .functional.texts import described
from .routing import FrontEndModule, Gate, Route
from .routing_statistics import RoutingStatistics

PARAMETERS = {
    **routing.PARAMETERS,
    "num_expert": "Number of experts.",
    "in_feat": "Features of an input.",
    "out_feat": "Features of an output.",
    "bias": "Whether there are biases.",
    "rank": "For FastMoE's sake.",
    "d_hidden": "Features between an expert's layers.",
    "activation": "module: Between the layers; GELU, of gated experts SiLU, without it.",
    **dict.fromkeys(("mp_group", "slice_group", "moe_group"), "None: Experts lie in one process."),
    "gate": "class or module: What chooses; a naive gate without it.",
    "expert": "class, list or module: What makes an expert of `d_model`, one for all or one for each; experts "
    "that are made; or a module of all of them, called with tokens and choices.",
    "gate_hook": "callable, optional: Called with choices, weights and None.",
    "mask": "Tensor, optional: A number for each token of a batch; experts see those of 0 alone.",
    "mask_dict": "What stands in place of what experts give, by number, weighted; 0 for those that it lacks.",
    "shared": "module, optional: An expert of all tokens, whose output is added.",
    "expert_dp_comm": "For FastMoE's sake.",
    "expert_rank": "For FastMoE's sake.",
    "kwargs": "Those of `FMoE`.",
}
_described = described(
    "",
    {
        "ShapeError": "For numbers and shapes that don't fit.",
        "StreamIndexError": "For an expert that isn't there.",
    },
    **PARAMETERS,
)

__all__ = ["Gated", "MLPs", "Mixture", "MixtureOfMLPs", "RoutingCounter", "Stacked", "stacked"]


@_described
class Stacked(FrontEndModule):
    """A linear layer of every expert, one behind the other in memory.

    Attributes
    ----------
    weight : Parameter
        ``(num_expert, out_feat, in_feat)``.
    bias : Parameter or None
        ``(num_expert, out_feat)``.

    Notes
    -----
    Input ``(*, in_feat)``, output ``(*, k * out_feat)``. **Streaming.** Delay 0, no state.
    Source: fmoe.linear.FMoELinear.
    """

    bias: Any

    def __init__(self, num_expert: int, in_feat: int, out_feat: int, bias: bool = True, rank: int = 0) -> None:
        super().__init__()
        require_positive(type(self).__name__, num_expert=num_expert, in_feat=in_feat, out_feat=out_feat)
        self.num_expert, self.in_feat, self.out_feat, self.rank = num_expert, in_feat, out_feat, rank
        self.weight = self.ops.parameter(num_expert, out_feat, in_feat, bound=1 / math.sqrt(in_feat))
        self.register_parameter("bias", self.ops.parameter(num_expert, out_feat) if bias else None)  # type: ignore[attr-defined]

    def forward(self, inp: Any, index: Any) -> Any:
        """Return ``(*, k * out_feat)`` for ``(*, in_feat)`` or ``(*, k * in_feat)`` and experts ``(*, k)``.

        As FastMoE has it, `index` may also be the numbers of tokens of every expert ``(num_expert,)``, where the
        tokens ``(n, in_feat)`` are sorted by expert.
        """
        if inp.ndim == 2 and index.ndim == 1 and not self.ops.is_stream(index):
            n, total, given = self.num_expert, inp.shape[0], self.ops.array(index)
            if given.shape != (n,) or given.sum() != total or given.min() < 0:
                wrong = f"the numbers of tokens of {n} experts must add up to {total}, got {given.tolist()}"
                raise ShapeError(f"{type(self).__name__}: {wrong}")
            index = self.ops.arange(n, device=index.device).repeat_interleave(index).unsqueeze(-1)
        return self.ops.expert_linear(inp, index, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        return (
            f"num_expert={self.num_expert}, in_features={self.in_feat}, out_features={self.out_feat}, "
            f"bias={self.bias is not None}"
        )


def stacked(state: Mapping[str, Any], prefix: str, n: int, cat: Callable[[list[Any]], Any]) -> dict[str, Any]:
    """Bring weights of single experts, ``prefix + "3.htoh4.weight"``, together into ``prefix + "htoh4.weight"``.

    It is a FormatError where some experts' are missing, or there are more.
    """
    pattern = re.compile(re.escape(prefix) + r"(\d+)\.(\w+\.(?:weight|bias))$")
    out: dict[str, Any] = {}
    parts: dict[str, dict[int, Any]] = {}
    for key, value in state.items():
        found = pattern.match(key)
        if found is None:
            out[key] = value
        else:
            parts.setdefault(found[2], {})[int(found[1])] = value
    for name, by_expert in parts.items():
        missing = [e for e in range(n) if e not in by_expert]
        if missing or len(by_expert) > n:
            wrong = f"expert {missing[0]} is missing" if missing else f"expert {max(by_expert)} is one too many"
            raise FormatError(f"{prefix}*.{name}: {wrong}; {len(by_expert)} experts came, expected {n}")
        rank = 3 if name.endswith("weight") else 2
        arrays = [by_expert[e] for e in range(n)]
        arrays = [a[None] if a.ndim == rank - 1 else a for a in arrays]
        shapes = [tuple(a.shape) for a in arrays]
        other = next((e for e in range(n) if shapes[e] != (1, *shapes[0][1:]) or len(shapes[e]) != rank), None)
        if other is not None:
            wrong = f"expert {other} has shape {shapes[other]}, expected {(1, *shapes[0][1:])}, as of the others"
            raise FormatError(f"{prefix}*.{name}: {wrong}")
        if prefix + name in out:
            raise FormatError(f"{prefix}{name}: came for all experts together, and {prefix}*.{name} for each")
        out[prefix + name] = cat(arrays)
    return out


@_described
class MLPs(FrontEndModule):
    """Experts of two linear layers: ``h4toh(activation(htoh4(x)))``.

    Notes
    -----
    Input ``(*, d_model)``, output ``(*, k * d_model)``.
    Loads the weights of single experts, too. **Streaming.** Delay 0, no state.
    Source: fmoe.transformer.
    """

    def __init__(
        self,
        num_expert: int,
        d_model: int,
        d_hidden: int,
        activation: Any = None,
        bias: bool = True,
        rank: int = 0,
    ) -> None:
        super().__init__()
        self.num_expert = num_expert
        self.htoh4 = self.ops.stacked(num_expert, d_model, d_hidden, bias=bias, rank=rank)
        self.h4toh = self.ops.stacked(num_expert, d_hidden, d_model, bias=bias, rank=rank)
        self.activation = self.ops.gelu() if activation is None else activation

    def forward(self, inp: Any, index: Any) -> Any:
        """Return ``(*, k * d_model)`` for tokens ``(*, d_model)`` and experts ``(*, k)``."""
        return self.h4toh(self.activation(self.htoh4(inp, index)), index)


@_described
class Gated(FrontEndModule):
    """Experts with a gate: ``down(activation(gate x) * up x)``, gate and up one weight behind the other.

    Attributes
    ----------
    gate_up_proj : Parameter
        ``(num_expert, 2 * d_hidden, d_model)``.
    down_proj : Parameter
        ``(num_expert, d_model, d_hidden)``.

    Notes
    -----
    Input ``(*, d_model)``, output ``(*, k * d_model)``. **Streaming.** Delay 0, no state.
    Source: the experts of Mixtral, Qwen-MoE and DeepSeek.
    """

    gate_up_proj: Any
    gate_up_proj_bias: Any
    down_proj: Any
    down_proj_bias: Any

    def __init__(
        self, num_expert: int, d_model: int, d_hidden: int, activation: Any = None, bias: bool = False
    ) -> None:
        super().__init__()
        require_positive(type(self).__name__, num_expert=num_expert, d_model=d_model, d_hidden=d_hidden)
        self.num_expert = num_expert
        for name, out, of in (("gate_up_proj", 2 * d_hidden, d_model), ("down_proj", d_model, d_hidden)):
            setattr(self, name, self.ops.parameter(num_expert, out, of, bound=1 / math.sqrt(of)))
            given = self.ops.parameter(num_expert, out) if bias else None
            self.register_parameter(f"{name}_bias", given)  # type: ignore[attr-defined]
        self.activation = self.ops.silu() if activation is None else activation

    def forward(self, inp: Any, index: Any) -> Any:
        """Return ``(*, k * d_model)`` for tokens ``(*, d_model)`` and experts ``(*, k)``."""
        both = self.ops.expert_linear(inp, index, self.gate_up_proj, self.gate_up_proj_bias)
        both = both.unflatten(-1, (int(index.shape[-1]), 2, -1))
        hidden = (self.activation(both[..., 0, :]) * both[..., 1, :]).flatten(-2)
        return self.ops.expert_linear(hidden, index, self.down_proj, self.down_proj_bias)


class RoutingCounter(FrontEndModule):
    """What counts how its tokens are routed, if it is asked to."""

    num_expert: int
    top_k: int

    #: What gathers statistics, while it is asked for.
    routed: RoutingStatistics | None = None

    def keep_statistics(self, keep: bool = True) -> None:
        """Gather from now on how tokens are routed, in calls that compute; or stop, and forget it."""
        self.routed = RoutingStatistics(self.num_expert) if keep else None

    def reset_statistics(self) -> None:
        """Begin anew."""
        self.keep_statistics(self.routed is not None)

    def statistics(self) -> dict[str, Any]:
        """Return what was gathered since `keep_statistics`: of all tokens, and under "streams" of each stream's.

        ``tokens``; ``counts``, ``load`` (its shares) and ``probability`` (its mean) by expert; ``dead`` experts,
        ``cv`` (unbiased deviation of the counts by their mean) and ``balance`` (1 at best); ``entropy`` of the
        load and mean ``token_entropy`` of a token's probabilities, in nats; mean ``margin``, ``least_margin``, and
        the shares of ``near_ties`` (below 1e-4), of ``dropped`` choices, and of ``switches`` of the first expert
        from a stream's frame to its next.

        Raises
        ------
        ModeError
            Before `keep_statistics`.
        """
        if self.routed is None:
            raise ModeError(f"{type(self).__name__}: no statistics are kept; call keep_statistics() first")
        return self.routed.as_dict()

    def count(self, x: Any, found: Route) -> None:
        """Add how tokens ``(*, d_model)`` are routed, where somebody wants to know and there are values."""
        if self.routed is None or self.ops.is_symbolic(x):
            return
        index = self.ops.array(found.index).reshape(-1, self.top_k)
        logits = None if found.logits is None else self.ops.array(found.logits).reshape(len(index), -1)
        margin = None if found.margin is None else self.ops.array(found.margin).reshape(-1)
        self.routed.add(index, logits, margin, self.ops.rows(x))


@_described
class Mixture(RoutingCounter):
    """A mixture of experts: what `gate` chooses for a token, weighted and added.

    Notes
    -----
    Input and output ``(*, d_model)``. **Streaming.** Delay 0, no state.
    Source: fmoe.layers.FMoE.
    """

    def __init__(
        self,
        num_expert: int = 32,
        d_model: int = 1024,
        world_size: int = 1,
        mp_group: None = None,
        slice_group: None = None,
        moe_group: None = None,
        top_k: int = 2,
        gate: Any = None,
        expert: Any = None,
        gate_hook: Any = None,
        mask: Any = None,
        mask_dict: Mapping[Any, Any] | None = None,
        gate_bias: bool = True,
        *,
        shared: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if world_size != 1 or any(g is not None for g in (mp_group, slice_group, moe_group)):
            raise ShapeError(f"{name}: experts lie in one process; leave out world_size and groups")
        self.num_expert, self.d_model, self.world_size, self.top_k = num_expert, d_model, world_size, top_k
        self.gate = self._made_gate(gate, gate_bias)
        self.top_k = getattr(self.gate, "top_k", top_k)
        self.experts = self._made_experts(expert)
        self.gate_hook, self.mask, self.mask_dict = gate_hook, mask, mask_dict
        self.shared = shared

    def _made_gate(self, gate: Any, gate_bias: bool) -> Any:
        gate = self.ops.naive() if gate is None else gate
        if isinstance(gate, type):
            wanted = inspect.signature(gate).parameters
            more = {"gate_bias": gate_bias} if "gate_bias" in wanted else {}
            return gate(self.d_model, self.num_expert, self.world_size, self.top_k, **more)
        self._is_module("gate", gate)
        n = getattr(gate, "tot_expert", self.num_expert)
        if n != self.num_expert:
            raise ShapeError(
                f"{type(self).__name__}: the gate chooses among {n} experts, but there are {self.num_expert}"
            )
        return gate

    def _made_experts(self, expert: Any) -> Any:
        name = type(self).__name__
        if expert is None:
            return None
        if isinstance(expert, type) or inspect.isfunction(expert):
            expert = [expert] * self.num_expert
        if isinstance(expert, Sequence):
            if len(expert) != self.num_expert:
                raise ShapeError(f"{name}: {len(expert)} experts are given, but num_expert is {self.num_expert}")
            made = [e if self.ops.is_module(e) else e(self.d_model) for e in expert]
            for e in made:
                self._is_module("expert", e)
            return self.ops.module_list(made)
        self._is_module("expert", expert)
        n = getattr(expert, "num_expert", self.num_expert)
        if n != self.num_expert:
            raise ShapeError(f"{name}: {n} experts are given, but num_expert is {self.num_expert}")
        return expert

    def _is_module(self, what: str, given: Any) -> None:
        if not self.ops.is_module(given):
            raise DTypeError(
                f"{type(self).__name__}: {what} is a module or a class of modules, all of them native or all "
                f"of them torch's; got {type(given).__name__}"
            )

    # ------------------------------------------------------------------ running
    def route(self, inp: Any, embed: Any = None, *, index: Any = None) -> Route:
        """Return how tokens ``(*, d_model)`` are routed; `index` forces experts."""
        if (embed is None) is hasattr(self.gate, "joined"):
            takes = "takes an embedding besides, model(x, embed)" if embed is None else "takes no embedding"
            raise ShapeError(f"{type(self).__name__}: its gate, a {type(self.gate).__name__}, {takes}")
        if embed is not None:
            inp = self.gate.joined(inp, embed)
        first = leaves(inp)[0]
        if isinstance(self.gate, Gate):
            if first is not inp:
                raise ShapeError(
                    f"{type(self).__name__}: its gate, a {type(self.gate).__name__}, takes one tensor; nested "
                    "inputs need a gate of your own, which says what it sees of them"
                )
            return self.gate.route(inp, index)
        if index is not None:
            routing.check_forced(self.ops, type(self).__name__, first, index, self.top_k, self.num_expert)
        found, score = self.gate(inp)[:2]
        return Route(found if index is None else index, score, None, None)

    def expert_fn(self, inp: Any, index: Any) -> Any:
        """Return what the chosen experts give for each token ``(*, k * d_model)``."""
        if self.experts is None:
            raise ShapeError(f"{type(self).__name__}: it has no experts; give expert=, or use FMoETransformerMLP")
        if not self.ops.is_list(self.experts):
            return self.experts(inp, index)
        if leaves(inp)[0] is not inp:
            raise ShapeError(
                f"{type(self).__name__}: nested inputs need experts that are one module, called with them and the "
                "choices"
            )
        given = [_called(e, inp) for e in self.experts]
        parts = []
        for j in range(int(index.shape[-1])):
            chosen = index[..., j : j + 1].to(inp.dtype)
            part = given[0] * 0
            for e, out in enumerate(given):
                part = self.ops.where(chosen == e, out, part)
            parts.append(part)
        return self.ops.cat(parts, -1)

    def forward(self, moe_inp: Any, embed: Any = None, *, index: Any = None) -> Any:
        """Return ``(*, d_model)`` for tokens ``(*, d_model)``.

        Parameters
        ----------
        moe_inp : Tensor
            Or what a gate and a module of all experts take, nested; then what these give is returned.
        embed : Tensor, optional
            ``(*, d_embed)``, what the gate sees besides (`EmbeddingGate`).
        index : Tensor, optional
            ``(*, k) int64``: experts that are forced; their weights are the gate's.
        """
        first = leaves(moe_inp)[0]
        if first is moe_inp and first.shape[-1] != self.d_model:
            raise ShapeError(f"{type(self).__name__}: expected (..., {self.d_model}), got {tuple(first.shape)}")
        found = self.route(moe_inp, embed, index=index)
        if self.gate_hook is not None:
            self.gate_hook(found.index, found.score, None)
        self.count(first, found)
        given = self.expert_fn(moe_inp, found.index)
        out = map_leaves(given, lambda part: self.ops.combine(self._masked(part), found.score))
        return out if self.shared is None else out + self.shared(moe_inp)

    def _masked(self, parts: Any) -> Any:
        """Return what the experts gave ``(*, k * n)``, or stands in its place."""
        if self.mask is None or self.mask_dict is None:
            return parts
        name = type(self).__name__
        if self.ops.is_stream(parts):
            raise NotStreamableError.here(
                f"{name}: mask= says of which tokens of one batch outputs are replaced, which no stream knows; "
                "leave it out"
            )
        lead = tuple(parts.shape[:-1])
        if math.prod(self.mask.shape) != math.prod(lead):
            raise ShapeError(f"{name}: its mask has shape {tuple(self.mask.shape)}, but the tokens are {lead}")
        mask = self.mask.reshape((*lead, 1, 1))
        out = parts.unflatten(-1, (self.top_k, -1))
        out = self.ops.where(mask == 0, out, 0.0)
        for value, instead in self.mask_dict.items():
            out = self.ops.where(mask == value, instead, out)
        return out.flatten(-2)


def _called(expert: Any, inp: Any) -> Any:
    """Return what an expert gives; FastMoE's take the number of tokens, too."""
    wanted = [
        p
        for p in inspect.signature(expert.forward).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return expert(inp, None) if len(wanted) > 1 else expert(inp)


@_described
class MixtureOfMLPs(Mixture):
    """A mixture of experts of two linear layers each.

    Notes
    -----
    Input and output ``(*, d_model)``. **Streaming.** Delay 0, no state.
    Source: fmoe.transformer.FMoETransformerMLP.
    """

    def __init__(
        self,
        num_expert: int = 32,
        d_model: int = 1024,
        d_hidden: int = 4096,
        activation: Any = None,
        expert_dp_comm: str = "none",
        expert_rank: int = 0,
        **kwargs: Any,
    ) -> None:
        if "expert" in kwargs:
            raise TypeError(f"{type(self).__name__} makes its own experts; FMoE takes expert=")
        super().__init__(num_expert=num_expert, d_model=d_model, **kwargs)
        self.d_hidden = d_hidden
        self.experts = self.ops.experts(num_expert, d_model, d_hidden, activation, rank=expert_rank)
