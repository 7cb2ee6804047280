"""Gates and mixtures of experts by their definitions in plain torch, and models of them, torch's and native."""

import math

import torch

from dreamstream import nn as native
from dreamstream.torch import nn as T

D, E, H = 8, 6, 16


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------------- plain definitions
def chosen_by(values, k):
    """The k greatest, the first of equals first, one after the other."""
    values, out = values.clone(), []
    for _ in range(k):
        out.append(values.argmax(-1))
        values = values.scatter(-1, out[-1].unsqueeze(-1), -math.inf)
    return torch.stack(out, -1)


def among_the_chosen(gate, x, k):
    logits = x @ gate.gate.weight.T + gate.gate.bias
    index = chosen_by(logits, k)
    return index, logits.gather(-1, index).softmax(-1), logits


def among_all(gate, x, k):
    logits = x @ gate.gate.weight.T + gate.gate.bias
    index = chosen_by(logits, k)
    return index, logits.softmax(-1).gather(-1, index), logits


def noisy(gate, x, k):
    logits = x @ gate.w_gate
    index = chosen_by(logits, k)
    return index, logits.gather(-1, index).softmax(-1), logits


def zero(gate, x, k):
    return torch.zeros(*x.shape[:-1], k, dtype=torch.int64), torch.full((*x.shape[:-1], k), 1 / k), x[..., :0]


def of_language_models(gate, x, k):
    logits = x @ gate.weight.T + (0 if gate.bias is None else gate.bias)
    scores = logits.softmax(-1) if gate.score == "softmax" else 1 / (1 + torch.exp(-logits))
    choice = scores if gate.choice_bias is None else scores + gate.choice_bias
    if gate.groups > 1:
        groups = choice.reshape(*choice.shape[:-1], gate.groups, -1)
        best = groups.amax(-1) if gate.group_score == "max" else groups.sort(-1)[0][..., -2:].sum(-1)
        keep = torch.zeros_like(best).scatter(-1, chosen_by(best, gate.top_groups), 1.0)
        choice = torch.where(keep.unsqueeze(-1) > 0, groups, -math.inf).reshape(choice.shape)
    index = chosen_by(choice, k)
    score = scores.gather(-1, index)
    if gate.renormalise:
        score = score / score.sum(-1, keepdim=True)
    return index, score * gate.scale, choice


def mixed(experts, x, index, score):
    """Every token through its experts, one by one."""
    rows, at, weights = (
        x.reshape(-1, x.shape[-1]),
        index.reshape(-1, index.shape[-1]),
        score.reshape(-1, index.shape[-1]),
    )
    out = []
    for row, e, v in zip(rows, at.tolist(), weights):
        parts = [v[j] * experts(row, i) for j, i in enumerate(e) if i >= 0]
        out.append(sum(parts, torch.zeros_like(row)))
    return torch.stack(out).reshape(x.shape)


def mlp(m):
    up, down = m.experts.htoh4, m.experts.h4toh
    return lambda row, e: down.weight[e] @ m.experts.activation(up.weight[e] @ row + up.bias[e]) + down.bias[e]


LANGUAGE = {
    "mixtral": {"renormalise": True},
    "qwen": {"renormalise": False, "top_k": 3},
    "deepseek-2": {"groups": 3, "top_groups": 2, "scale": 2.5},
    "deepseek-3": {
        "score": "sigmoid", "renormalise": True, "choice_bias": True, "groups": 3, "top_groups": 2,
        "group_score": "top2", "scale": 2.5,
    },
    "biased": {"gate_bias": True, "choice_bias": True},
}  # fmt: skip
GATES = {
    "zero": ("ZeroGate", {}, zero),
    "naive": ("NaiveGate", {}, among_the_chosen),
    "naive of 1": ("NaiveGate", {"top_k": 1}, among_the_chosen),
    "naive of all": ("NaiveGate", {"top_k": E}, among_the_chosen),
    "faster": ("FasterGate", {}, among_the_chosen),
    "swipe": ("SwipeGate", {}, among_the_chosen),
    "noisy": ("NoisyGate", {}, noisy),
    "switch": ("SwitchGate", {}, among_all),
    "gshard": ("GShardGate", {"random_routing": False}, among_the_chosen),
    "dc": ("DCGate", {"random_routing": False}, among_the_chosen),
    **{name: ("TopKGate", options, of_language_models) for name, options in LANGUAGE.items()},
}


def made(name: str) -> torch.nn.Module:
    torch.manual_seed(1)
    kind, options, _ = GATES[name]
    model = T.FMoETransformerMLP(E, D, H, gate=getattr(T, kind)(D, E, **options)).eval()
    for p in model.parameters():
        p.data += 0.3 * drawn(*p.shape, seed=p.numel())
    if getattr(model.gate, "choice_bias", None) is not None:
        model.gate.choice_bias.copy_(0.2 * drawn(E, seed=5))
    return model


def twin(model: torch.nn.Module, name: str) -> native.Module:
    kind, options, _ = GATES[name]
    out = native.FMoETransformerMLP(E, D, H, gate=getattr(native.gates, kind)(D, E, **options)).eval()
    out.load_state_dict({k: v.detach().numpy() for k, v in model.state_dict().items()})
    return out


def clear_of_ties(model, x):
    """Whether all margins are above 1e-4."""
    margin = model.route(x).margin
    return margin is None or bool((margin > 1e-4).all())
