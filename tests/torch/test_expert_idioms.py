"""Mixtures of experts as others write them, and choices among nearly equals."""

import numpy as np
import pytest
import torch
from one_stream import held, patched, stepped

import dreamstream as ds
from dreamstream import nn as native
from dreamstream.torch.forward.capture import CHOOSE

D, E = 8, 6
#: So many products are summed in another order by torch than by an engine, on every processor.
WIDE = 600


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class AsWritten(torch.nn.Module):
    """What strangers write, token by token."""

    def __init__(self, how):
        super().__init__()
        torch.manual_seed(0)
        self.how, self.gate = how, torch.nn.Linear(D, E)
        self.weight = torch.nn.Parameter(torch.randn(E, D, D))

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        return getattr(self, self.how)(x, p, *torch.topk(p, 2, dim=-1))

    def all_of_them(self, x, w):
        return (torch.stack([x @ m.T for m in self.weight], -1) * w.unsqueeze(-2)).sum(-1)

    def one_hot(self, x, p, score, index):
        return self.all_of_them(x, (torch.nn.functional.one_hot(index, E) * score.unsqueeze(-1)).sum(-2))

    def scattered(self, x, p, score, index):
        return self.all_of_them(x, torch.zeros_like(p).scatter(-1, index, score))

    def marked(self, x, p, score, index):
        mask = torch.zeros_like(p)
        mask.scatter_(-1, index, 1)
        return self.all_of_them(x, p * mask)

    def masked(self, x, p, score, index):
        return self.all_of_them(x, torch.where(p >= score[..., -1:], p, 0.0))

    def gathered(self, x, p, score, index):
        return torch.gather(self.gate(x), -1, index) * score / score.sum(dim=-1, keepdim=True)

    def added(self, x, p, score, index):
        return self.all_of_them(x, torch.zeros_like(p).scatter_add(-1, index // 2, score))

    def taken(self, x, p, score, index):
        every = torch.stack([x @ m.T for m in self.weight], -2)
        return torch.take_along_dim(every, index[..., :1].unsqueeze(-1), dim=-2).squeeze(-2)

    def flat(self, x, p, score, index):
        rows, at, score = p.reshape(-1, E), index.reshape(-1, 2), score.reshape(-1, 2)
        marks = at.new_zeros((at.shape[0], E))
        marks.scatter_(1, at, 1)
        given = torch.zeros(at.size(0), E)
        given[:, :2] = rows[:, 1:3]
        given.add_(torch.zeros(rows.shape[0], E).scatter(1, at, score)).mul_(marks.bool())
        return self.all_of_them(x, given.view(x.size(0), x.size(1), E))

    def named(self, x, p, score, index):
        found = p.topk(3, largest=False)
        return found.values + found.indices


@pytest.mark.parametrize(
    "how", ["one_hot", "scattered", "marked", "masked", "gathered", "added", "taken", "flat", "named"]
)
def test_as_written(how):
    model, x = AsWritten(how).eval(), drawn(1, 29, D)
    with torch.no_grad():
        wanted = model(x)[0]
        steps = [stepped(ds.compile(model, ("B", "L", D))), patched(ds.patch_module(model).online())]
        held(steps, x[0], wanted)


class Loops(torch.nn.Module):
    """What picks frames, each in a way of its own."""

    def __init__(self, how):
        super().__init__()
        self.how, self.gate = how, torch.nn.Linear(D, E)

    def forward(self, x):
        index, out = self.gate(x).argmax(-1), torch.zeros_like(x)
        if self.how == "nonzero":
            out.index_add_(0, (index == 0).nonzero().squeeze(-1), x)
        elif self.how == "where of a condition alone":
            out[torch.where(index == 0)] += 1
        else:
            torch.bincount(index.flatten())
        return out


@pytest.mark.parametrize("how", ["nonzero", "where of a condition alone", "bincount"])
def test_loops_are_refused_with_what_works(how):
    words = rf"{how}, at|{how} at .*test_expert_idioms.py:\d+ in forward: .*which frames it picks.*@ds.register"
    with pytest.raises(ds.NotStreamableError, match=words):
        ds.compile(Loops(how).eval(), ("B", "L", D))


def test_experts_without_frames_are_not_skipped():
    class Model(torch.nn.Module):
        def forward(self, x):
            mask = x[..., 0] > 0
            return torch.where(mask.unsqueeze(-1), x * 2, x) if mask.any() else x

    words = "any over the batch .*an if that skips experts without frames is left out: torch.where.*@ds.register"
    with pytest.raises(ds.NotStreamableError, match=words):
        ds.compile(Model().eval(), ("B", "L", D))


def test_constants_of_all_streams_are_written_into_alone():
    """A part of such a constant, which shares its memory, is no tensor of its own."""

    class Model(torch.nn.Module):
        def forward(self, x):
            rows = x.reshape(-1, D)
            out = torch.zeros(rows.size(0), D)
            part = out[:, 2:4]
            part.copy_(rows[:, 2:4])
            return out.view(x.shape)

    with pytest.raises(
        ds.NotStreamableError, match=r"copy_ at .* writes into a constant that all streams have alike"
    ):
        ds.compile(Model().eval(), ("B", "L", D))


class Flat(torch.nn.Module):
    def forward(self, x):
        rows = x.reshape(-1, D)
        return rows.T, rows[:, :3]


def test_outputs_whose_rows_join_streams_and_frames():
    engine, x = ds.compile(Flat().eval(), ("B", "L", D)), drawn(5, D).numpy()
    one, other = engine.step({"a": x}, sos="a", eos="a")["a"]
    np.testing.assert_array_equal(one, x.T)
    np.testing.assert_array_equal(other, x[:, :3])


class Tied(torch.nn.Module):
    """Experts by a router whose rows differ in pairs by less than sums are rounded by, however one chooses."""

    def __init__(self, how):
        super().__init__()
        torch.manual_seed(0)
        self.how, self.before, self.gate = how, torch.nn.Linear(D, WIDE), torch.nn.Linear(WIDE, E, bias=False)
        self.gate.weight.data[1::2] = self.gate.weight.data[::2] + 1e-8 * drawn(E // 2, WIDE)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(WIDE, D) for _ in range(E))

    def forward(self, x):
        x = self.before(x)
        scores = self.gate(x)
        if self.how in self.by_comparison:
            chosen = getattr(self, self.how)(scores).unsqueeze(-2)
            return (torch.stack([e(x) for e in self.experts], -1) * chosen).sum(-1)
        given = {"k": 3, "dim": -1, "keepdim": True, "descending": True}
        own = {name: value for name, value in given.items() if name in CHOOSE[self.how].parameters}
        found = getattr(-scores if self.how.endswith("min") else scores, self.how)(**own)
        index = (found if isinstance(found, torch.Tensor) else found[1])[..., :3]
        chosen = torch.nn.functional.one_hot(index, E).sum(-2).unsqueeze(-2)
        return (torch.stack([e(x) for e in self.experts], -1) * chosen).sum(-1)

    by_comparison = ("at_least", "below", "equal", "given")

    def at_least(self, scores):
        p = scores.softmax(-1)
        return torch.where(p >= p.topk(3)[0][..., -1:], p, 0.0)

    def below(self, scores):
        p = scores.softmax(-1)
        return p.masked_fill(p < p.sort(-1)[0][..., 3:4], 0.0)

    def equal(self, scores):
        return (scores == scores.amax(-1, keepdim=True)).to(scores.dtype)

    def given(self, scores):
        return torch.gt(scores - scores.max(-1, keepdim=True)[0], -1e-9) * scores


@pytest.mark.parametrize("how", [*CHOOSE, *Tied.by_comparison])
def test_a_model_is_told_which_of_equals_its_engine_chose(how):
    model = Tied(how).eval()
    engine = ds.compile(model, ("B", "L", D))
    engine.keep_statistics()
    report = ds.verify(model, engine, n_frames=200)
    assert report.ok and report.tied > 10
    assert not engine.ids and engine.statistics()["tokens"] == 0
    engine.step({"a": drawn(3, D).numpy()}, sos="a", eos="a")
    assert engine.statistics()["tokens"] in (0, 3)  # hand-written layers may not be known as such
    model.experts[0].weight.data += 0.1
    assert not ds.verify(model, engine, n_frames=200).ok
    model.experts[0].weight.data -= 0.1
    model.gate.weight.data[0] += 1e-2
    assert not ds.verify(model, engine, n_frames=200).ok


@pytest.mark.parametrize(
    "chosen", [lambda s: s.topk(1)[1].squeeze(-1), lambda s: s.argmax(-1), lambda s: s >= s.amax(-1, keepdim=True)]
)
def test_a_native_model_is_told(chosen):
    class Model(native.Module):
        def __init__(self):
            super().__init__()
            ds.manual_seed(0)
            self.before, self.gate = native.Linear(D, 256), native.Linear(256, E, bias=False)
            weight = self.gate.weight.numpy()
            weight[1::2] = weight[::2] + 1e-8 * drawn(E // 2, 256).numpy()

        def forward(self, x):
            return chosen(self.gate(self.before(x))).to(ds.float32)

    model = Model().eval()
    report = ds.verify(model, ds.compile(model, ("B", "L", D)), n_frames=200)
    assert report.ok and report.tied > 10
