"""Mixtures of experts, torch's and native, against plain definitions: values, gradients, streams, engines."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import torch

import dreamstream as ds
from dreamstream import nn as native
from dreamstream.torch import nn as T

NAMES = ("B", "L", "F")
D, E, H = 8, 6, 16


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


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


@pytest.mark.parametrize("name", GATES)
class TestGates:
    def test_values_and_gradients(self, name):
        model, x = made(name), drawn(2, 40, D).requires_grad_()
        assert clear_of_ties(model, x)
        index, score, _ = GATES[name][2](model.gate, x, model.top_k)
        wanted = mixed(mlp(model), x, index, score)
        found = model.route(x)
        assert torch.equal(found.index, index)
        got = model(x)
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
        weights = [p for p in model.parameters()]
        up = drawn(*got.shape, seed=9)
        ours = torch.autograd.grad(got, [x, *weights], up, allow_unused=True)
        theirs = torch.autograd.grad(wanted, [x, *weights], up, allow_unused=True)
        for a, b in zip(ours, theirs):
            a, b = (torch.zeros(1) if t is None else t for t in (a, b))
            torch.testing.assert_close(a, b.expand_as(a), rtol=1e-5, atol=2e-5)

    def test_native(self, name):
        model, x = made(name), drawn(3, 20, D)
        own = twin(model, name)
        wanted = model(x).detach().numpy()
        assert np.array_equal(own.route(ds.tensor(x.numpy())).index.numpy(), model.route(x).index.numpy())
        np.testing.assert_allclose(own(ds.tensor(x.numpy())).numpy(), wanted, atol=1e-5)

    @pytest.mark.parametrize("of", ["torch", "native"])
    def test_streams(self, name, of):
        model = made(name)
        x = drawn(2, 37, D)
        wanted = model(x).detach().numpy()
        subject = model if of == "torch" else twin(model, name)
        engine = ds.compile(subject, ("B", "L", D))
        online = ds.patch_module(copy.deepcopy(subject)).online()
        for chunk in (1, 5, 37):
            parts, compiled = [], []
            for at in range(0, 37, chunk):
                piece = [row[at : at + chunk] for row in x]
                piece = piece if of == "torch" else [p.numpy() for p in piece]
                ids, start, end = ["a", "b"], at == 0, at + chunk >= 37
                given = ds.stream_tensor(piece, ids=ids, sos=[start] * 2, eos=[end] * 2, names=NAMES)
                parts.append(np.asarray(online(given).detach().numpy()))
                out = engine.step(
                    dict(zip(ids, map(np.asarray, piece))), sos=ids if start else (), eos=ids if end else ()
                )
                compiled.append(np.stack([out[i] for i in ids]))
            np.testing.assert_allclose(np.concatenate(parts, 1), wanted, atol=1e-5)
            np.testing.assert_allclose(np.concatenate(compiled, 1), wanted, atol=1e-5)

    def test_pickled(self, name):
        model, x = made(name), drawn(3, D)
        assert torch.equal(pickle.loads(pickle.dumps(model))(x), model(x))


class TestEmbedding:
    def both(self):
        torch.manual_seed(2)
        gate = T.EmbeddingGate(D, E, gate_bias=True, d_embed=5)
        model = T.FMoETransformerMLP(E, D, H, torch.nn.SiLU(), gate=gate).eval()
        own = native.FMoETransformerMLP(
            E, D, H, native.SiLU(), gate=native.gates.EmbeddingGate(D, E, gate_bias=True, d_embed=5)
        ).eval()
        own.load_state_dict({k: v.detach().numpy() for k, v in model.state_dict().items()})
        return model, own

    def test_values(self):
        model, own = self.both()
        x, embed = drawn(2, 30, D), drawn(2, 30, 5, seed=1)
        p = (torch.cat([embed, x], -1) @ model.gate.router_weights + model.gate.router_bias).softmax(-1)
        index = chosen_by(p, 1)
        wanted = mixed(mlp(model), x, index, p.gather(-1, index))
        torch.testing.assert_close(model(x, embed), wanted, rtol=1e-5, atol=1e-5)
        got = own(ds.tensor(x.numpy()), ds.tensor(embed.numpy())).numpy()
        np.testing.assert_allclose(got, wanted.detach().numpy(), atol=1e-5)

    def test_kept_experts(self):
        model, _ = self.both()
        model.gate.keep_expert_output = True
        assert torch.equal(model.route(drawn(3, D), drawn(3, 5)).score, torch.ones(3, 1))

    def test_losses(self):
        model, _ = self.both()
        x, embed = drawn(50, D), drawn(50, 5, seed=1)
        model.train()(x, embed)
        sparsity, balance = model.gate.get_loss()
        p = (torch.cat([embed, x], -1) @ model.gate.router_weights + model.gate.router_bias).softmax(-1)
        torch.testing.assert_close(sparsity, (p.abs().sum(1) / p.norm(dim=1)).mean())
        torch.testing.assert_close(balance, E * (p.mean(0) ** 2).sum())
        assert not model.gate.has_loss


class TestLosses:
    def test_switch(self):
        model = made("switch").train()
        model.gate.switch_eps = 0.0
        x = drawn(60, D)
        model(x)
        p = (x @ model.gate.gate.weight.T + model.gate.gate.bias).softmax(-1)
        f = torch.nn.functional.one_hot(p.argmax(-1), E).float().mean(0)
        torch.testing.assert_close(model.gate.get_loss(), E * (f * p.mean(0)).sum())

    @pytest.mark.parametrize("name", ["gshard", "faster"])
    def test_gshard(self, name):
        model, x = made(name).train(), drawn(60, D)
        model(x)
        logits = x @ model.gate.gate.weight.T + model.gate.gate.bias
        c = torch.nn.functional.one_hot(logits.argmax(-1), E).float().mean(0)
        torch.testing.assert_close(model.gate.get_loss(), (c * logits.softmax(-1).mean(0)).mean() * E * E)

    def test_noisy(self):
        torch.manual_seed(0)
        gate = T.NoisyGate(D, E, seed=3)
        gate.w_noise.data.normal_()
        x = drawn(60, D)
        index, score, noisy = gate(x, return_all_scores=True)
        clean, size = x @ gate.w_gate, torch.nn.functional.softplus(x @ gate.w_noise) + 0.01
        noise = torch.randn(60, E, generator=torch.Generator().manual_seed(3))
        torch.testing.assert_close(noisy, clean + noise * size)
        top = noisy.sort(-1, descending=True)[0]
        importance = torch.zeros(60, E).scatter(1, index, score).sum(0)
        threshold = torch.where(noisy > top[:, 2:3], top[:, 2:3], top[:, 1:2])
        load = torch.distributions.Normal(0, 1).cdf((clean - threshold) / size).sum(0)
        cv = [t.var() / (t.mean() ** 2 + 1e-10) for t in (importance, load)]
        torch.testing.assert_close(gate.get_loss(), cv[0] + cv[1])

    def test_noise_repeats_by_its_seed(self):
        x = drawn(20, D)
        gates = [T.SwitchGate(D, E, seed=4) for _ in range(2)]
        gates[1].load_state_dict(gates[0].state_dict())
        assert torch.equal(gates[0](x)[1], gates[1](x)[1]) and not torch.equal(
            gates[0](x)[1], gates[1].eval()(x)[1]
        )


class TestBatches:
    """What depends on the batch."""

    def test_capacity_in_the_order_of_tokens(self):
        gate = T.SwitchGate(D, E, capacity=(1.2, 0.5)).eval()
        for p in gate.parameters():
            p.data.zero_()  # all choose expert 0
        model = T.FMoETransformerMLP(E, D, H, gate=gate).eval()
        out = model(drawn(24, D))
        limit = math.ceil(0.5 * 24 / E)
        assert model.route(drawn(24, D)).index.flatten().tolist() == [0] * limit + [-1] * (24 - limit)
        assert not out[limit:].any() and out[:limit].any(1).all()

    def test_gshard_drops_second_choices(self):
        gate = T.GShardGate(D, E, seed=0).eval()
        x = drawn(200, D)
        u = torch.rand(200, 1, generator=torch.Generator().manual_seed(0))
        index, score = gate(x)
        assert torch.equal(index[:, 1:] == -1, 2 * score[:, 1:] < u) and (index[:, 0] >= 0).all()

    def test_limits(self):
        assert T.GShardGate(D, 6, capacity=(1.2, 2.4)).eval().limit(25) == math.ceil(2.4 * 25) * 2 // 6
        assert T.DCGate(D, 6, capacity=(1.2, 2.4)).limit(25) == 30
        assert T.SwitchGate(D, 6, capacity=2.0).limit(25) == math.ceil(50 / 6)

    @pytest.mark.parametrize("kind, options", [("SwitchGate", {"capacity": 1.0}), ("GShardGate", {})])
    @pytest.mark.parametrize("of", [T, native])
    def test_refused_in_streams(self, of, kind, options):
        gates = T if of is T else native.gates
        frames = drawn(5, D) if of is T else drawn(5, D).numpy()
        given = ds.stream_tensor([frames], ids=["a"], sos=[True], names=NAMES)
        gate = getattr(gates, kind)(D, E, **options)
        model = ds.patch_module(of.FMoETransformerMLP(E, D, H, gate=gate).eval()).online()
        with pytest.raises(ds.NotStreamableError, match=f"{kind} at .*allow_batch_dependence=True"):
            model(given)
        gate = getattr(gates, kind)(D, E, allow_batch_dependence=True, seed=1, **options)
        model = of.FMoETransformerMLP(E, D, H, gate=gate).eval()
        assert ds.patch_module(copy.deepcopy(model)).online()(given).shape == (1, 5, D)
        with pytest.raises(ds.DreamStreamError, match="which an engine has not"):
            ds.compile(model, ("B", "L", D))


class TestExperts:
    def test_gated_and_shared(self):
        torch.manual_seed(0)
        shared = torch.nn.Linear(D, D)
        model = T.FMoE(E, D, gate=T.TopKGate(D, E), expert=T.GatedExperts(E, D, H), shared=shared).eval()
        x = drawn(2, 30, D)
        up, down = model.experts.gate_up_proj, model.experts.down_proj

        def expert(row, e):
            gate, value = (up[e] @ row).chunk(2)
            return down[e] @ (torch.nn.functional.silu(gate) * value)

        index, score, _ = of_language_models(model.gate, x, 2)
        wanted = mixed(expert, x, index, score) + shared(x)
        torch.testing.assert_close(model(x), wanted, rtol=1e-5, atol=1e-5)
        engine = ds.compile(model, ("B", "L", D))
        got = engine.step({"a": x[0].numpy()}, sos="a", eos="a")["a"]
        np.testing.assert_allclose(got, wanted[0].detach().numpy(), atol=1e-5)

    def test_different_experts(self):
        torch.manual_seed(0)

        class OfFastMoE(torch.nn.Module):
            def __init__(self, d_model):
                super().__init__()
                self.linear = torch.nn.Linear(d_model, d_model)

            def forward(self, inp, fwd_expert_count):
                return self.linear(inp)

        kinds = [OfFastMoE, lambda d: torch.nn.Identity(), lambda d: torch.nn.Linear(d, d), OfFastMoE]
        model = T.FMoE(4, D, expert=kinds).eval()
        x = drawn(2, 30, D)
        index, score, _ = among_the_chosen(model.gate, x, 2)

        def expert(row, e):
            own = model.experts[e]
            return own.linear(row) if isinstance(own, OfFastMoE) else own(row)

        wanted = mixed(expert, x, index, score).detach().numpy()
        np.testing.assert_allclose(model(x).detach().numpy(), wanted, atol=1e-5)
        engine = ds.compile(model, ("B", "L", D))
        np.testing.assert_allclose(engine.step({"a": x[0].numpy()}, sos="a", eos="a")["a"], wanted[0], atol=1e-5)

    def test_a_single_class(self):
        model = T.FMoE(4, D, expert=lambda d: torch.nn.Linear(d, d), top_k=1)
        assert len(model.experts) == 4 and model(drawn(3, D)).shape == (3, D)

    @pytest.mark.parametrize("of", [T, native])
    def test_linear_by_counts(self, of):
        layer = of.FMoELinear(3, D, 5)
        x = drawn(7, D) if of is T else ds.tensor(drawn(7, D).numpy())
        counts = torch.tensor([2, 0, 5]) if of is T else ds.tensor(np.array([2, 0, 5]))
        got = np.asarray(layer(x, counts).detach().numpy())
        w, b = (np.asarray(p.detach().numpy()) for p in (layer.weight, layer.bias))
        wanted = [w[e] @ row + b[e] for e, row in zip([0, 0, 2, 2, 2, 2, 2], np.asarray(x.numpy()))]
        np.testing.assert_allclose(got, wanted, atol=1e-5)
        with pytest.raises(ds.ShapeError, match="must add up to 7"):
            layer(x, counts + 1)

    def test_hook_and_mask(self):
        seen = []
        hook = lambda index, score, context: seen.append((index, score, context))  # noqa: E731
        gate = T.SwitchGate(D, E)
        mask, rows = torch.tensor([0, 1, 0, 2, 3]), {1: 7.0, 2: drawn(D)}
        model = T.FMoETransformerMLP(E, D, H, gate=gate, gate_hook=hook, mask=mask, mask_dict=rows).eval()
        x = drawn(5, D)
        x[4, 0] = math.nan
        found = model.route(x)
        given = mixed(mlp(model), x[:4], found.index[:4], found.score[:4])
        sevens = torch.full((D,), 7.0)
        wanted = torch.stack([given[0], found.score[1] * sevens, given[2], found.score[3] * rows[2]])
        out = model(x)
        assert torch.equal(seen[0][0], found.index) and seen[0][2] is None
        torch.testing.assert_close(out[:4], wanted, rtol=1e-5, atol=1e-5)
        assert out[4].isnan().all()  # 0, weighted by what its gate says
        own = native.FMoETransformerMLP(
            E, D, H, gate=native.gates.SwitchGate(D, E), mask=ds.tensor(mask[:4].numpy()),
            mask_dict={1: 7.0, 2: ds.tensor(rows[2].numpy())},
        ).eval()  # fmt: skip
        own.load_state_dict({k: v.detach().numpy() for k, v in model.state_dict().items()})
        np.testing.assert_allclose(own(ds.tensor(x[:4].numpy())).numpy(), wanted.detach().numpy(), atol=1e-5)
        with pytest.raises(ds.ShapeError, match=r"its mask has shape \(4,\), but the tokens are \(3,\)"):
            own(ds.tensor(x[:3].numpy()))

    @pytest.mark.parametrize("of", [T, native])
    def test_nested_inputs(self, of):
        """A gate and experts of one's own, which take them apart."""
        base = torch.nn.Module if of is T else native.Module

        class Gate(base):
            def __init__(self, d_model, num_expert, world_size, top_k):
                super().__init__()
                self.of = (T if of is T else native.gates).NaiveGate(d_model, num_expert, top_k=top_k)

            def forward(self, inp):
                return self.of(inp["x"])

        class Both(base):
            def __init__(self):
                super().__init__()
                self.x, self.z = of.FMoELinear(4, D, D), of.FMoELinear(4, 3, 5)

            def forward(self, inp, index):
                return {"x": self.x(inp["x"], index), "z": [self.z(inp["z"], index)]}

        model = of.FMoE(4, D, gate=Gate, expert=Both()).eval()
        given = {"x": drawn(6, D), "z": drawn(6, 3)}
        rows = given if of is T else {k: ds.tensor(v.numpy()) for k, v in given.items()}
        found, out = model.route(rows), model(rows)
        index, score = (torch.from_numpy(np.array(t.detach().numpy())) for t in found[:2])
        for name, got, x in (("x", out["x"], given["x"]), ("z", out["z"][0], given["z"])):
            layer = getattr(model.experts, name)
            w, b = (torch.from_numpy(np.array(p.detach().numpy())) for p in (layer.weight, layer.bias))
            wanted = torch.einsum("tk,tkn->tn", score, torch.einsum("tkni,ti->tkn", w[index], x) + b[index])
            np.testing.assert_allclose(got.detach().numpy(), wanted.numpy(), atol=1e-5)
        with pytest.raises(ds.ShapeError, match="a NaiveGate, takes one tensor; nested inputs need a gate"):
            of.FMoE(4, D, expert=Both()).eval()(rows)

    def test_empty_experts_get_zeros_as_gradients(self):
        model = T.FMoETransformerMLP(E, D, H, gate=T.ZeroGate(D, E))
        model(drawn(4, D)).sum().backward()
        for p in model.experts.parameters():
            assert p.grad[0].any() and not p.grad[1:].any()


class TestBadInput:
    @pytest.mark.parametrize("of", [T, native])
    def test_arguments(self, of):
        gates = T if of is T else native.gates
        with pytest.raises(ds.ShapeError, match="top_k is from 1 to num_expert = 4, got 5"):
            gates.NaiveGate(D, 4, top_k=5)
        with pytest.raises(ds.ShapeError, match="num_expert must be at least 1, got 0"):
            gates.NaiveGate(D, 0)
        with pytest.raises(ds.ShapeError, match="capacity is None, or two positive rates"):
            gates.SwitchGate(D, 4, capacity=(1.0, 0))
        with pytest.raises(ds.ShapeError, match="groups divide num_expert = 4"):
            gates.TopKGate(D, 4, groups=3)
        with pytest.raises(ds.ShapeError, match="the gate chooses among 5 experts, but there are 4"):
            of.FMoETransformerMLP(4, D, H, gate=gates.NaiveGate(D, 5))
        with pytest.raises(ds.ShapeError, match="3 experts are given, but num_expert is 4"):
            of.FMoE(4, D, expert=of.GatedExperts(3, D, H))
        with pytest.raises(ds.ShapeError, match="2 experts are given, but num_expert is 4"):
            of.FMoE(4, D, expert=[lambda d: of.Identity()] * 2 if of is native else [torch.nn.Identity] * 2)
        with pytest.raises(ds.ShapeError, match="experts lie in one process"):
            of.FMoETransformerMLP(4, D, H, world_size=2)

    @pytest.mark.parametrize("of", [T, native])
    def test_forced_experts(self, of):
        model = of.FMoETransformerMLP(4, D, H).eval()
        x, index = drawn(3, D), torch.tensor([[0, 3], [2, 2], [1, -1]])
        if of is native:
            x, index = ds.tensor(x.numpy()), ds.tensor(index.numpy())
        assert np.array_equal(np.asarray(model.route(x, index=index).index), np.asarray(index))
        assert model(x, index=index).shape == (3, D)
        with pytest.raises(ds.DreamStreamError, match="expert 4 is out of range, expected 0 to 3"):
            model(x, index=index + 1)
        with pytest.raises(ds.DreamStreamError, match="expert 4 is out of range, expected 0 to 3"):
            model.route(x, index=index + 1)
        with pytest.raises(ds.StreamIndexError, match="expert -2 is out of range, expected 0 to 3"):
            model.experts(x, index - 1)
        with pytest.raises(ds.ShapeError, match=r"expected \(..., 8\), got \(3, 7\)"):
            model(x[:, :7])
        for wrong in (index[:2], index[:, :1], index[:, 0]):
            with pytest.raises(ds.ShapeError, match=r"experts \(..., 2\), of each token 2, .*\(3, 8\), got"):
                model(x, index=wrong)
        with pytest.raises(ds.DTypeError, match=r"expected experts of int64, got .*float32"):
            model(x, index=x[:, :2])

    @pytest.mark.parametrize("of", [T, native])
    def test_what_does_not_fit_a_gate(self, of):
        gates = T if of is T else native.gates
        x = drawn(3, D) if of is T else ds.tensor(drawn(3, D).numpy())
        for gate, given, words in [
            (gates.NaiveGate(D + 1, 4), (x,), r"NaiveGate: expected \(..., 9\), got \(3, 8\)"),
            (gates.NaiveGate(D, 4), (x, x), "a NaiveGate, takes no embedding"),
            (gates.EmbeddingGate(D, 4), (x,), r"takes an embedding besides, model\(x, embed\)"),
            (gates.EmbeddingGate(D, 4, d_embed=5), (x, x), r"an embedding \(..., 5\) of each token"),
            (gates.EmbeddingGate(D, 4), (x, x[:2]), r"of each token of \(3, 8\), got \(2, 8\)"),
        ]:
            with pytest.raises(ds.ShapeError, match=words):
                of.FMoETransformerMLP(4, D, H, gate=gate).eval()(*given)
        with pytest.raises(ds.DTypeError, match=r"gate is a module or a class of modules, .* got int"):
            of.FMoETransformerMLP(4, D, H, gate=3)
        with pytest.raises(ds.DTypeError, match=r"expert is a module or a class of modules, .* got int"):
            of.FMoE(4, D, expert=3)
        for capacity in ((1.0, None), "ab", ()):
            with pytest.raises(ds.ShapeError, match="capacity is None, or two positive rates"):
                gates.SwitchGate(D, 4, capacity=capacity)

    def test_dropped_choices_in_training(self):
        gate = T.NoisyGate(D, 4, seed=0)
        model = T.FMoETransformerMLP(4, D, H, gate=gate)
        out = model(drawn(3, D), index=torch.tensor([[0, 3], [2, 2], [-1, -1]]))
        assert not out[2].any() and torch.isfinite(gate.get_loss())

    @pytest.mark.parametrize("of", [T, native])
    @pytest.mark.parametrize("name", ["naive", "switch", "deepseek-3"])
    def test_nan_stays_with_its_token(self, of, name):
        model, x = made(name), drawn(1, 9, D)
        wanted = model(x).detach().numpy()
        x[0, 4, 2] = math.nan
        subject = model if of is T else twin(model, name)
        got = np.asarray(subject(x if of is T else ds.tensor(x.numpy())).detach().numpy())
        assert np.isnan(got[0, 4]).all()
        np.testing.assert_allclose(np.delete(got, 4, 1), np.delete(wanted, 4, 1), atol=1e-5)

    @pytest.mark.parametrize("of", [T, native])
    def test_checkpoints_of_single_experts(self, of):
        model = of.FMoETransformerMLP(3, D, H).eval()
        own = {k: np.array(v.detach().numpy()) for k, v in model.state_dict().items()}
        other = {k: v for k, v in own.items() if not k.startswith("experts.")}
        for k, v in own.items():
            if k.startswith("experts."):
                other |= {k.replace("experts.", f"experts.{e}."): v[e : e + 1] + 1 for e in range(3)}
        as_given = (lambda s: {k: torch.from_numpy(v.copy()) for k, v in s.items()}) if of is T else (lambda s: s)
        model.load_state_dict(as_given(other))
        assert np.array_equal(
            np.asarray(model.experts.htoh4.weight.detach().numpy()), own["experts.htoh4.weight"] + 1
        )
        del other["experts.1.h4toh.bias"]
        with pytest.raises(ds.FormatError, match=r"experts\.\*\.h4toh\.bias: expert 1 is missing; 2 experts came"):
            model.load_state_dict(as_given(other))


class TestStatistics:
    @pytest.mark.parametrize("of", [T, native])
    def test_of_streams_and_in_total(self, of):
        model = made("switch")
        x = [drawn(13, D), drawn(40, D, seed=2)]
        index = [model.route(frames).index[:, 0].numpy() for frames in x]
        margin = torch.cat([model.route(frames).margin for frames in x])
        subject = model if of is T else twin(model, "switch")
        with pytest.raises(ds.ModeError, match="no statistics are kept"):
            subject.statistics()
        subject.keep_statistics()
        online = ds.patch_module(subject).online()
        for at in range(0, 40, 7):
            live = [i for i in (0, 1) if at < len(x[i])]
            pieces = [x[i][at : at + 7] for i in live]
            pieces = pieces if of is T else [p.numpy() for p in pieces]
            end = [at + 7 >= len(x[i]) for i in live]
            online(
                ds.stream_tensor(
                    pieces, ids=["ab"[i] for i in live], sos=[at == 0] * len(live), eos=end, names=NAMES
                )
            )
        told = subject.statistics()
        counts = np.bincount(np.concatenate(index), minlength=E)
        assert told["tokens"] == 53 and np.array_equal(told["counts"], counts) and told["dropped"] == 0
        assert told["dead"] == (counts == 0).sum()
        assert math.isclose(told["cv"], counts.std(ddof=1) / counts.mean())
        assert math.isclose(told["margin"], margin.mean().item(), rel_tol=1e-4)
        assert math.isclose(told["least_margin"], margin.min().item(), rel_tol=1e-3)
        p = (torch.cat(x) @ model.gate.gate.weight.T + model.gate.gate.bias).softmax(-1).detach().numpy()
        np.testing.assert_allclose(told["probability"], p.mean(0), atol=1e-6)
        assert math.isclose(told["token_entropy"], -(p * np.log(p)).sum(1).mean(), rel_tol=1e-5)
        for i, stream in enumerate("ab"):
            own = told["streams"][stream]
            assert own["tokens"] == len(x[i])
            assert np.array_equal(own["counts"], np.bincount(index[i], minlength=E))
            assert math.isclose(own["switches"], (np.diff(index[i]) != 0).mean())
        switches = sum((np.diff(i) != 0).sum() for i in index)
        assert math.isclose(told["switches"], switches / (sum(map(len, index)) - 2))
        subject.reset_statistics()
        assert subject.statistics()["tokens"] == 0 and not subject.statistics()["streams"]
        subject.keep_statistics(False)
        assert subject.routed is None

    def test_of_plain_tensors(self):
        model = T.FMoETransformerMLP(E, D, H, gate=T.SwitchGate(D, E, capacity=0.25)).eval()
        for p in model.gate.parameters():
            p.data.zero_()
        model.keep_statistics()
        model(drawn(2, 12, D))
        told = model.statistics()
        assert told["tokens"] == 24 and told["dropped"] == 23 / 24 and told["dead"] == E - 1
        assert told["entropy"] == 0 and told["near_ties"] == 1
