"""Inputs given once in torch's models, as they are written: patched, compiled, trained."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from given_once import called, driven, require_gradients, stepped
from torch import nn

import dreamstream as ds


class Modulated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv1d(8, 16, 3, padding=1), nn.Conv1d(16, 10, 3, padding=2, dilation=2)
        self.both = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 32))

    def forward(self, x: Any, speaker: Any) -> Any:
        gamma, beta = self.both(speaker).chunk(2, dim=-1)
        return self.after((1 + gamma[..., None]) * F.relu(self.before(x)) + beta[..., None]).transpose(1, 2)


class Filtered(nn.Module):
    """After VoiceFilter: the speaker's vector beside every frame."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 5, padding=2)
        self.rnn, self.out = nn.LSTM(14, 10, batch_first=True), nn.Linear(10, 8)

    def forward(self, x: Any, speaker: Any) -> Any:
        y = self.conv(x).transpose(1, 2).contiguous()
        wide = speaker.unsqueeze(1).repeat(1, y.size(1), 1)
        y, _ = self.rnn(torch.cat((y, wide), dim=2))
        return torch.sigmoid(self.out(F.relu(y)))


class Begun(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.h, self.c = nn.LSTM(8, 10, 2, batch_first=True), nn.Linear(6, 20), nn.Linear(6, 20)

    def forward(self, x: Any, speaker: Any) -> Any:
        h = self.h(speaker).view(speaker.size(0), 2, 10).transpose(0, 1).contiguous()
        c = torch.tanh(self.c(speaker)).view(-1, 2, 10).permute(1, 0, 2).contiguous()
        return self.rnn(x.transpose(1, 2), (h, c))[0]


class BegunAtZero(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.h = nn.LSTM(8, 10, batch_first=True), nn.Linear(6, 10)

    def forward(self, x: Any, speaker: Any) -> Any:
        h = self.h(speaker)[None]
        return self.rnn(x.transpose(1, 2), (h, torch.zeros_like(h)))[0]


class TimeFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.h = nn.GRU(8 + 6, 10), nn.Linear(6, 10)

    def forward(self, x: Any, speaker: Any) -> Any:
        x = x.permute(2, 0, 1)
        x = torch.cat([x, speaker.unsqueeze(0).expand(x.shape[0], -1, -1)], -1)
        return self.rnn(x, torch.tanh(self.h(speaker)).unsqueeze(0))[0].permute(1, 0, 2)


class Conditioned(nn.Module):
    """After VITS and WaveNet: a convolution of one tap over the speaker."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.condition = nn.Conv1d(8, 20, 3, padding=1), nn.Conv1d(6, 20, 1)

    def forward(self, x: Any, g: Any) -> Any:
        y = self.conv(x) + self.condition(g.unsqueeze(-1))
        return (torch.tanh(y[:, :10]) * torch.sigmoid(y[:, 10:])).transpose(1, 2)


class Slower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.embed, self.norm = nn.Conv1d(8, 10, 4, 2, 1), nn.Linear(6, 10), nn.BatchNorm1d(10)

    def forward(self, x: Any, speaker: Any) -> Any:
        y, e = self.conv(x), torch.tanh(self.norm(self.embed(F.normalize(speaker))))
        return torch.cat([y, e[:, :, None].expand(-1, -1, y.size(-1))], 1).transpose(1, 2)


class Similar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 6, 3, padding=1)

    def forward(self, x: Any, speaker: Any) -> Any:
        y = self.conv(x).transpose(1, 2)
        return y * F.cosine_similarity(y, speaker.unsqueeze(1), dim=-1).unsqueeze(-1)


class Drawn(nn.Module):
    """A matrix and a gate for each stream, and one state for all layers."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix, self.gate, self.h = nn.Linear(6, 80), nn.Linear(6, 10), nn.Linear(6, 10)
        self.rnn = nn.GRU(10, 10, 2, batch_first=True)

    def forward(self, x: Any, speaker: Any) -> Any:
        y = torch.bmm(self.matrix(speaker).view(-1, 10, 8), x).transpose(1, 2)
        y = y * torch.sigmoid(y @ self.gate(speaker).unsqueeze(-1))
        return self.rnn(y, self.h(speaker).expand(2, -1, -1).contiguous())[0]


class Prefixed(nn.Module):
    """Behind a speaker's tokens: frames that attend to them, a recurrence, a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.own = nn.Linear(6, 16), nn.Parameter(torch.randn(1, 1, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.rnn, self.conv = nn.LSTM(8, 10, batch_first=True), nn.Conv1d(8, 10, 3, 1, 1)

    def forward(self, x: Any, speaker: Any) -> Any:
        frames, (one, two) = x.transpose(1, 2), self.embed(speaker).chunk(2, -1)
        y = torch.cat([one.unsqueeze(1), self.own.expand(x.size(0), -1, -1), frames], 1)
        y = self.layer(y, nn.Transformer.generate_square_subsequent_mask(y.size(1)))[:, 2:]
        y = torch.cat(torch.broadcast_tensors(y, two.unsqueeze(1)), -1)[..., 3:13]
        y = y + self.rnn(ds.prepend(frames, torch.stack([two, one], 1)))[0][:, 2:]
        return y + self.conv(torch.cat([two[..., None], x], -1)).transpose(1, 2)[:, 1:]


MODELS = (Modulated, Filtered, Begun, BegunAtZero, TimeFirst, Conditioned, Slower, Similar, Drawn, Prefixed)


def streams(rng: Any, n: int, least: int = 2) -> dict[str, tuple[Any, Any]]:
    return {
        f"s{k}": (
            rng.standard_normal((8, rng.integers(least, 25)), np.float32),
            rng.standard_normal(6, np.float32),
        )
        for k in range(n)
    }


def compiled(model: Any) -> Any:
    name = list(inspect.signature(model.forward).parameters)[1]
    return stepped(ds.compile(model, {"x": ("B", 8, "L"), name: ("B", 6)}))


@pytest.mark.parametrize("form", [called, compiled])
@pytest.mark.parametrize("kind", MODELS)
def test_streams_that_come_and_go(kind: Any, form: Any) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(MODELS.index(kind))
    model, given = kind().eval(), streams(rng, 8)
    got = driven(form(model), rng, given, 1)
    for i, (x, e) in given.items():
        with torch.no_grad():
            expected = model(torch.from_numpy(x)[None], torch.from_numpy(e)[None])[0].numpy()
        np.testing.assert_allclose(got[i], expected, atol=2e-6)


@pytest.mark.parametrize("variant", ["full-file-aligned", "full-file-unaligned"])
@pytest.mark.parametrize("kind", MODELS)
def test_gradients_are_those_of_the_whole(kind: Any, variant: str) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    model = kind().train()
    for part in model.modules():
        part.train(not isinstance(part, nn.BatchNorm1d))
    require_gradients(model, streams(rng, 3, 9), 1, None, lambda y: y.square().sum(), variant)


def test_every_chunk_has_its_gradient() -> None:
    torch.manual_seed(0)
    model = ds.patch_module(Modulated().train()).online()
    once = {i: torch.randn(6) for i in "ab"}
    for k in range(3):
        x = ds.stream_tensor([torch.randn(8, 6), torch.randn(8, 5)], ids=list("ab"), sos=k == 0, eos=k == 2)
        y = model(x, ds.static(once) if k == 0 else None)
        model.zero_grad()
        y.tensor().square().sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.both.parameters())


def test_what_was_given_in_evaluation_is_there_in_training() -> None:
    torch.manual_seed(0)
    model = ds.patch_module(Modulated().eval()).online()
    e, chunks = torch.randn(6), [torch.randn(8, 5) for _ in range(2)]
    first = model(ds.stream_tensor([chunks[0]], ids=["a"], sos=True), ds.static({"a": e}))["a"]
    state = model.get_state(["a"])
    model.reset()
    model.set_state(state)
    model.train()
    rest = model(ds.stream_tensor([chunks[1]], ids=["a"], eos=True), None)["a"]
    rest.sum().backward()
    assert model.both[1].weight.grad.abs().sum() > 0
    model.offline()
    whole = model(torch.cat(chunks, 1)[None], e[None])[0]
    torch.testing.assert_close(torch.cat([first, rest]), whole)


def test_exports_refuse_it() -> None:
    with pytest.raises(ds.NotStreamableError, match="input speaker is given once"):
        ds.torch.functionalize(Modulated().eval(), {"x": ("B", 8, "L"), "speaker": ("B", 6)})
