"""Memories: inputs given once with a length of their own, and attention to them, as torch's models write it."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from given_once import called, driven, require_gradients
from torch import nn

import dreamstream as ds

SPEC = {"x": ("B", "L", 8), "m": ("B", "M", 6)}


class Decoded(nn.Module):
    """A decoder of torch's, with its own mask."""

    def __init__(self, norm_first: bool = False, batch_first: bool = True) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=batch_first, norm_first=norm_first)
        self.read, self.decoder = nn.Linear(6, 8), nn.TransformerDecoder(layer, 2, nn.LayerNorm(8))
        self.batch_first = batch_first

    def forward(self, x: Any, m: Any) -> Any:
        m = self.read(m)
        if not self.batch_first:
            x, m = x.transpose(0, 1), m.transpose(0, 1)
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1 if self.batch_first else 0))
        y = self.decoder(x, m, tgt_mask=mask, tgt_is_causal=True)
        return y if self.batch_first else y.transpose(0, 1)


class Read(nn.Module):
    """Everything over the memory first: convolution, attention, recurrence, positions, a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(6, 8, 3, padding=1), nn.LayerNorm(8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.rnn, self.attend = nn.GRU(8, 8, batch_first=True), nn.MultiheadAttention(8, 2, batch_first=True)
        self.register_buffer("table", torch.randn(1, 50, 8))

    def forward(self, x: Any, m: Any) -> Any:
        m = self.norm(self.conv(m.transpose(1, 2)).transpose(1, 2))
        m, h = self.rnn(self.encoder(m + self.table[:, : m.size(1)]))
        return self.attend(x, m, m)[0] + m.mean(1, keepdim=True) * h[0].unsqueeze(1)


class ByHand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(8, 8), nn.Linear(6, 16)

    def forward(self, x: Any, m: Any) -> Any:
        b, t, _ = x.shape
        q = self.q(x).view(b, t, 2, 4).transpose(1, 2)
        k, v = (part.view(b, -1, 2, 4).transpose(1, 2) for part in self.kv(m).chunk(2, -1))
        weights = torch.softmax(q @ k.transpose(-2, -1) / 2, dim=-1)
        return (weights @ v).transpose(1, 2).reshape(b, t, 8)


class ByEinsum(ByHand):
    def forward(self, x: Any, m: Any) -> Any:
        q = self.q(x).unflatten(-1, (2, 4))
        k, v = self.kv(m).unflatten(-1, (2, 2, 4)).unbind(2)
        weights = torch.einsum("bthd,bmhd->bhtm", q * 0.5, k).softmax(-1)
        return torch.einsum("bhtm,bmhd->bthd", weights, v).flatten(2)


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(6, 2), nn.Linear(6, 3)

    def forward(self, x: Any, m: Any) -> Any:
        q = self.q(x).unflatten(-1, (4, 2)).transpose(1, 2)
        k, v = self.k(m).unsqueeze(1), self.v(m).unsqueeze(1)
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2)


class Twice(nn.Module):
    """Frames before and behind attention that are late."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv1d(8, 8, 4, 2, 1), nn.Conv1d(8, 8, 3, padding=1)
        self.attend = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)

    def forward(self, x: Any, m: Any) -> Any:
        x = self.before(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.attend(x, m, m, need_weights=False)[0]
        return x + self.after(x.transpose(1, 2)).transpose(1, 2)


class Ends(nn.Module):
    """Both directions of a memory, its last and first frames, and tokens that all streams have alike."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.state = nn.LSTM(6, 4, bidirectional=True, batch_first=True), nn.GRU(6, 8, batch_first=True)
        self.attend, self.tokens = (
            nn.MultiheadAttention(8, 2, batch_first=True),
            nn.Parameter(torch.randn(1, 3, 8)),
        )
        self.rnn = nn.GRU(8, 8, batch_first=True)

    def forward(self, x: Any, m: Any) -> Any:
        tokens = self.tokens.expand(x.size(0), -1, -1)
        x = x + self.attend(x, tokens, tokens)[0]
        q, k = x.unflatten(-1, (2, 4)).transpose(1, 2), tokens.unflatten(-1, (2, 4)).transpose(1, 2)
        x = x + F.scaled_dot_product_attention(q, k, k).transpose(1, 2).flatten(2)
        both = self.both(m)[0]
        x = self.rnn(x, self.state(m)[1])[0]
        return x + self.attend(x, both, both, need_weights=False)[0] + (both[:, -1] - both[:, 0]).unsqueeze(1)


class Translated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read, self.whole = nn.Linear(6, 8), nn.Transformer(8, 2, 1, 2, 16, 0.0, batch_first=True)

    def forward(self, x: Any, m: Any) -> Any:
        seen = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), 1)
        return self.whole(self.read(m), x, tgt_mask=seen)


class Hidden(nn.Module):
    """Memories of which some frames are hidden, by what is in them: torch's layers."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.attend = nn.Linear(6, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.whole = nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)

    def forward(self, x: Any, m: Any) -> Any:
        hidden = (m[..., 0] < 0) & (torch.arange(m.size(1)) > 0)
        none = torch.zeros(x.size(1), m.size(1))
        seen = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), 1)
        read = self.read(m)
        y = self.whole(
            read,
            x,
            tgt_mask=seen,
            memory_mask=none,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden.float() * -1e9,
        )
        own = torch.triu(torch.ones(m.size(1), m.size(1), dtype=torch.bool), 1)
        late = self.attend(read, read, read, key_padding_mask=hidden, attn_mask=own)[0]
        return y + self.attend(x, late, late, key_padding_mask=hidden, need_weights=False)[0]


class HiddenByHand(ByHand):
    """Masks and terms by frames of a memory as they are written out; all may be hidden."""

    def forward(self, x: Any, m: Any) -> Any:
        q = self.q(x).unflatten(-1, (2, 4)).transpose(1, 2)
        k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.kv(m).chunk(2, -1))
        hidden = (m[..., 0] < 0).float()[:, None, None].eq(1)
        plain = q @ k.transpose(2, 3) / 2
        out = torch.softmax(plain.masked_fill(hidden, torch.finfo(q.dtype).min), -1).masked_fill(hidden, 0.0) @ v
        out = out + (plain + hidden * torch.finfo(q.dtype).min).softmax(-1) @ v
        out = out + torch.where(~hidden, plain, torch.tensor(-1e9)).softmax(-1) @ v
        terms = m[..., :2].transpose(1, 2).unsqueeze(2) - 0.1 * torch.arange(m.size(1))
        out = out + (((k @ q.mT / 2 + terms.mT) * 0.5).softmax(2)).mT @ v
        seen = (~hidden).expand(-1, 2, -1, -1) | (torch.arange(m.size(1)) == 0)
        out = out + F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        out = out + F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], attn_mask=seen, enable_gqa=True)
        return out.transpose(1, 2).flatten(2)


class Latent(nn.Module):
    """Queries that all streams have alike read a memory; frames attend to what they found, and to a few frames."""

    def __init__(self) -> None:
        super().__init__()
        self.latents, self.norm = nn.Parameter(torch.randn(1, 3, 8)), nn.LayerNorm(8)
        self.read, self.own, self.attend = (nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(3))
        self.wide = nn.Linear(6, 8)

    def forward(self, x: Any, m: Any) -> Any:
        latents, hidden = self.latents.expand(m.size(0), -1, -1), (m[..., 1] > 0) & (torch.arange(m.size(1)) > 0)
        m = self.wide(m)
        y = self.norm(0.5 * latents + self.read(latents, m, m, key_padding_mask=hidden)[0])
        y = y + self.own(y, y, y)[0] + self.read(y, m, m, need_weights=False)[0]
        few = F.scaled_dot_product_attention(*(z.unflatten(-1, (2, 4)).transpose(1, 2) for z in (x, y, y)))
        x = x + few.transpose(1, 2).flatten(2)
        return self.attend(x, y, y, key_padding_mask=y[..., 0] > 1)[0] + self.attend(x, m[:, :1], m[:, :1])[0]


KINDS = [Decoded, lambda: Decoded(True), lambda: Decoded(False, False), Read, ByHand, ByEinsum, Grouped, Twice]
KINDS += [Ends, Translated, Hidden, HiddenByHand, Latent]


def streams(rng: Any, n: int, least: int = 2) -> dict[str, tuple[Any, Any]]:
    def drawn(frames: int, features: int) -> Any:
        return rng.standard_normal((frames, features), np.float32)

    return {f"s{k}": (drawn(rng.integers(least, 25), 8), drawn(rng.integers(1, 11), 6)) for k in range(n)}


def patched(model: Any, path: Any) -> Any:
    return called(model, ("B", "L", None), moves=True)


def compiled(model: Any, path: Any) -> Any:
    ds.compile(model, SPEC).save(path / "model.dsm")
    engine = ds.load(path / "model.dsm")
    assert engine.inputs[1].dimensions == ("B", "M", 6) and engine.inputs[1].once

    def call(rows: Any) -> dict[str, Any]:
        chunks = {i: {"x": x, "m": m} if sos else {"x": x} for i, x, m, sos, _ in rows}
        out: dict[str, Any] = engine.step(
            chunks, sos=[r[0] for r in rows if r[3]], eos=[r[0] for r in rows if r[4]]
        )
        for i in engine.ids[:2]:
            data = engine.snapshot(i)
            engine.reset(i)
            engine.restore(data, "copy")
            engine.fork("copy", i)
            engine.reset("copy")
        return out

    return call


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        pytest.param(kind, form, marks=[pytest.mark.slow] * (kind % 2 != turn))
        for kind in range(len(KINDS))
        for turn, form in enumerate((patched, compiled))
    ],
)
def test_streams_that_come_and_go(kind: int, form: Any, tmp_path: Any) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(kind)
    model, given = KINDS[kind]().eval(), streams(rng, 8)
    got = driven(form(model, tmp_path), rng, given, 0)
    for i, (x, m) in given.items():
        with torch.no_grad():
            expected = model(torch.from_numpy(x)[None], torch.from_numpy(m)[None])[0].numpy()
        assert got[i].shape == expected.shape
        np.testing.assert_allclose(got[i], expected, atol=3e-6)


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_gradients_are_those_of_the_whole(kind: int) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    model = KINDS[kind]().train()
    names = ("B", "L", None)
    require_gradients(model, streams(rng, 3, 9), 0, names, lambda y: y.sin().sum(), "full-file-aligned")


@pytest.mark.parametrize("uses", [lambda y, w: (y, w), lambda y, w: y * w.mean(-1, keepdim=True)])
def test_weights_over_a_memory_are_refused_where_they_are_used(uses: Any) -> None:
    class Attends(nn.Module):
        def __init__(self, uses: Any) -> None:
            super().__init__()
            self.read, self.uses = nn.MultiheadAttention(8, 2, batch_first=True), uses
            self.memory = nn.Parameter(torch.randn(1, 5, 8))

        def forward(self, x: Any) -> Any:
            m = self.memory.expand(x.size(0), -1, -1)
            return self.uses(*self.read(x, m, m))

    assert ds.compile(Attends(lambda y, _: y).eval(), ("B", "L", 8)).delay == 0
    with pytest.raises(ds.NotStreamableError, match="weights of attention over what is given once"):
        ds.compile(Attends(uses).eval(), ("B", "L", 8))


def test_masks_of_a_memory_are_refused() -> None:
    class Masked(ByHand):
        def forward(self, x: Any, m: Any) -> Any:
            scores = self.q(x) @ self.kv(m)[..., :8].transpose(1, 2)
            seen = torch.arange(x.size(1))[:, None] >= torch.arange(m.size(1))
            return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ m

    class Added(ByHand):
        def forward(self, x: Any, m: Any) -> Any:
            return self.q(x) + self.kv(m)[..., :8]

    with pytest.raises(
        ds.NotStreamableError, match="a mask of keys that are given once is not supported where queries differ"
    ):
        ds.compile(Masked().eval(), SPEC)
    with pytest.raises(
        ds.NotStreamableError, match="frames of an input that is given once meet those of a stream"
    ):
        ds.compile(Added().eval(), SPEC)
    with pytest.raises(ds.NotStreamableError, match=r"input m is given once.* a constant of the model"):
        ds.torch.functionalize(ByHand().eval(), SPEC)


class Cut(nn.Module):
    """Two frames of a memory, and what is left of windows."""

    def forward(self, x: Any, m: Any) -> Any:
        rest = F.avg_pool1d(m.transpose(1, 2), 3, 1).sum(2) - m[:, 2] * 3 + m[:, 1:4:2].sum(1)
        parts = m[:, :2, 1:3].mean(1, keepdim=True) + m[:, 1, None, 4:5] - m[:, None, 0:1, 2:3][:, 0]
        return x + torch.cat([rest, rest[:, :2]], 1).unsqueeze(1) + parts.repeat(1, 1, 4) + m[:, -1:, :1]


@pytest.mark.parametrize("form", [patched, compiled])
def test_frames_of_a_memory(form: Any, tmp_path: Any) -> None:
    given = {
        i: (x, np.concatenate([m, m[:1], m, m, m])) for i, (x, m) in streams(np.random.default_rng(3), 5).items()
    }
    plain = Cut()
    got = driven(form(plain, tmp_path), np.random.default_rng(4), given, 0)
    for i, (x, m) in given.items():
        want = plain(torch.from_numpy(x)[None], torch.from_numpy(m)[None])[0]
        np.testing.assert_allclose(got[i], want, atol=1e-5)


def test_a_memory_of_too_few_frames_is_refused() -> None:
    engine = ds.compile(Cut(), {"x": ("B", "L", 8), "m": ("B", "M", 6)}, verify=False)
    given = {
        name: {"x": np.ones((2, 8), np.float32), "m": np.ones((n, 6), np.float32)}
        for name, n in (("a", 5), ("b", 2))
    }
    with pytest.raises(ds.ShapeError, match=r"a length of 2 must be at least 3 .*b"):
        engine.step(given, sos=["a", "b"])
    assert list(engine.step({"a": given["a"]}, sos="a")) == ["a"]


@torch.no_grad()
def test_two_memories_of_one_kind() -> None:
    """Which is which holds in later calls, too."""

    class Two(ByHand):
        def forward(self, x: Any, m: Any, n: Any) -> Any:
            return super().forward(x, m) - 2 * super().forward(x, n)

    model, (x, m, n) = Two().eval(), (torch.randn(1, k, size) for k, size in ((7, 8), (3, 6), (5, 6)))
    want = model(x, m, n)[0]
    spec = {**SPEC, "n": SPEC["m"]}
    engine, audit = ds.compile(model, spec), ds.audit(model, spec)
    assert sum(row.memory_bytes for row in audit.rows) == 2 * 2 * 8 * 4
    assert "and 128 bytes per frame of what is given once" in str(audit)
    first = engine.step({"a": {"x": x[0, :4].numpy(), "m": m[0].numpy(), "n": n[0].numpy()}}, sos="a")["a"]
    rest = engine.step({"a": {"x": x[0, 4:].numpy()}}, eos="a")["a"]
    np.testing.assert_allclose(np.concatenate([first, rest]), want, atol=1e-5)
    ds.patch_module(model).online()
    for k, frames in enumerate(x[0].split([4, 1, 2])):
        chunk = ds.stream_tensor([frames], ids=["a"], sos=not k, eos=k == 2, names=("B", "L", None))
        got = model(chunk, *(ds.static({"a": y[0]}) if not k else None for y in (m, n)))["a"]
        np.testing.assert_allclose(got, want[(0, 4, 5)[k] : (4, 5, 7)[k]], atol=1e-5)


def test_memories_that_are_none() -> None:
    online = ds.patch_module(ByHand().eval()).online()
    x = ds.stream_tensor([torch.zeros(3, 8)] * 2, ids=["a", "b"], sos=True, names=("B", "L", None))
    with pytest.raises(ds.StreamMismatchError, match="input m is None: what is given once comes with the start"):
        online(x, None)
    with pytest.raises(ds.ShapeError, match=r"expected a frame at least, got none.*'b'"):
        online(x, ds.static({"a": torch.zeros(2, 6), "b": torch.zeros(0, 6)}))
    with pytest.raises(ds.StreamMismatchError, match=r"these start without it.*'b'"):
        online(x, ds.static({"a": torch.zeros(2, 6)}))
    with pytest.raises(ds.ShapeError, match="those of all streams, in a batch of 1"):
        ds.patch_module(nn.MultiheadAttention(8, 2, batch_first=True)).online()(x, *[torch.zeros(2, 3, 8)] * 2)
    online(x, ds.static({"a": torch.zeros(2, 6), "b": torch.zeros(7, 6)}))
    with pytest.raises(ds.StreamMismatchError, match=r"these have it.*'a'"):
        later = ds.stream_tensor([torch.zeros(3, 8)], ids=["a"], names=("B", "L", None))
        online(later, ds.static({"a": torch.zeros(2, 6)}))
