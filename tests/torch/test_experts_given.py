"""Mixtures of experts: what doesn't fit, checkpoints of both layouts, and statistics of routing."""

import math

import numpy as np
import pytest
import torch
from torch_references.experts import D, E, H, drawn, made, twin

import dreamstream as ds
from dreamstream import nn as native
from dreamstream.torch import nn as T

NAMES = ("B", "L", "F")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


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
        name = "experts.1.htoh4.weight"
        with pytest.raises(ds.FormatError, match=r"expert 1 has shape \(1, 16, 9\), expected \(1, 16, 8\)"):
            model.load_state_dict(as_given({**other, name: np.zeros((1, H, D + 1), np.float32)}))
        with pytest.raises(ds.FormatError, match=r"for all experts together, and experts\.\*\.htoh4\.weight for"):
            model.load_state_dict(as_given({**own, **other}))
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

    def test_not_a_number(self):
        """A token without probabilities has a place among the counts alone."""
        model, x = made("naive"), drawn(1, 12, D)
        model.keep_statistics()
        model(x)
        wanted = model.statistics()
        x = torch.cat([x, torch.full((1, 1, D), math.nan)], 1)
        model.reset_statistics()
        model(x)
        told = model.statistics()
        assert told["tokens"] == 13 and told["counts"].sum() == 26
        for name in ("token_entropy", "margin", "least_margin", "near_ties"):
            assert math.isclose(told[name], wanted[name], rel_tol=1e-6), name
        np.testing.assert_allclose(told["probability"], wanted["probability"], rtol=1e-6)
