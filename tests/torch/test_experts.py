"""Mixtures of experts, torch's and native, against plain definitions: values, gradients, streams, engines."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from torch_references.experts import (
    GATES,
    D,
    E,
    H,
    among_the_chosen,
    chosen_by,
    clear_of_ties,
    drawn,
    made,
    mixed,
    mlp,
    of_language_models,
    twin,
)

import dreamstream as ds
from dreamstream import nn as native
from dreamstream.torch import nn as T

NAMES = ("B", "L", "F")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


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
