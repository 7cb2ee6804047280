"""Inputs given once: what comes with a stream's start and holds until its end."""

from typing import Any

import numpy as np
import pytest
from given_once import Step, driven, stepped
from nets import net
from same_bits import content
from snapshot_bytes import seal

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.online.given import Given

SIZES = {"x": 4, "speaker": 3}


class Modulated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv1d(4, 6, 3, padding=1), nn.Conv1d(6, 5, 3, padding=2, dilation=2)
        self.scale, self.shift = nn.Linear(3, 6), nn.Linear(3, 6)

    def forward(self, x: Any, speaker: Any) -> Any:
        x = F.relu(self.before(x)) * self.scale(speaker).unsqueeze(-1) + self.shift(speaker)[:, :, None]
        return self.after(x).transpose(1, 2)


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.gate = nn.LSTM(4 + 3, 5, batch_first=True), nn.Linear(3, 5)

    def forward(self, x: Any, speaker: Any) -> Any:
        x = x.transpose(1, 2)
        x = ds.cat([x, speaker.unsqueeze(1).expand(-1, x.size(1), -1)], dim=-1)
        return self.rnn(x)[0] * F.sigmoid(self.gate(speaker)).unsqueeze(1)


class Begun(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.h, self.c = nn.LSTM(4, 5, 2, batch_first=True), nn.Linear(3, 10), nn.Linear(3, 10)

    def forward(self, x: Any, speaker: Any) -> Any:
        h, c = (layer(speaker).view(speaker.size(0), 2, 5).transpose(0, 1) for layer in (self.h, self.c))
        return self.rnn(x.transpose(1, 2), (h, F.tanh(c)))[0]


class Repeated(nn.Module):
    """Time first; one of an LSTM's states is a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.h = nn.LSTM(4 + 3, 5), nn.Linear(3, 5)

    def forward(self, x: Any, speaker: Any) -> Any:
        x = x.permute(2, 0, 1)
        wide = speaker.unsqueeze(0).repeat(x.size(0), 1, 1)
        h = F.tanh(self.h(speaker)).unsqueeze(0)
        return self.rnn(ds.cat([x, wide], -1), (h, ds.zeros(1, x.size(1), 5)))[0].transpose(0, 1)


class Prefixed(nn.Module):
    """Two tokens before the first frame, each stream's own."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.both = nn.GRU(4, 5, batch_first=True), nn.Linear(3, 8)

    def forward(self, x: Any, speaker: Any) -> Any:
        tokens = self.both(speaker).unflatten(-1, (2, 4))
        own = ds.cat([tokens[:, :1].mT, x], dim=-1).mT[:, 1:]
        return self.rnn(ds.prepend(x.mT, tokens))[0][:, 2:] * own.sum(-1, keepdim=True)


MODELS = (Modulated, Joined, Begun, Repeated, Prefixed)


def compiled(model: Any) -> ds.Engine:
    return ds.compile(model, {"x": ("B", 4, "L"), "speaker": ("B", 3)})


def given(rows: list[Any]) -> Any:
    rows = [r for r in rows if r[3]]
    return ds.static({i: e for i, _, e, _, _ in rows}) if rows else None


def tensor(rows: list[Any]) -> Any:
    ids, chunks, _, sos, eos = (list(part) for part in zip(*rows))
    return ds.stream_tensor(chunks, ids=ids, sos=sos, eos=eos)


def padded(engine: ds.Engine) -> Step:
    def step(rows: Any) -> dict[str, Any]:
        x = np.full((len(rows), 4, max(r[1].shape[1] for r in rows)), np.nan, np.float32)
        for row, r in zip(x, rows):
            row[:, : r[1].shape[1]] = r[1]
        e = np.stack([r[2] if r[3] else np.full(3, np.nan, np.float32) for r in rows])
        ids, sos, eos = [r[0] for r in rows], [r[3] for r in rows], [r[4] for r in rows]
        y, lengths = engine.step_batch(ids, x, e, lengths={"x": [r[1].shape[1] for r in rows]}, sos=sos, eos=eos)
        return {i: row[:n] for i, row, n in zip(ids, y, lengths)}

    return step


def called(model: Any) -> Step:
    def step(rows: Any) -> dict[str, Any]:
        y = model(tensor(rows), given(rows))
        return {r[0]: y[r[0]].numpy() for r in rows}

    return step


def in_turn(steps: list[Step], hand_over: Any) -> Step:
    """Each call of a stream by the next of three, which gets its state from the one before."""
    where: dict[str, int] = {}

    def step(rows: Any) -> dict[str, Any]:
        out = {}
        for row in rows:
            here = where.get(row[0], 0)
            there = where[row[0]] = (here + 1) % 3
            if not row[3]:
                hand_over(here, there, row[0])
            out |= steps[there]([row])
        return out

    return step


def moving(model: Any) -> Step:
    """Each call of a stream in another engine, by its snapshot."""
    file = content(compiled(model))
    engines = [ds.load(file) for _ in range(3)]

    def hand_over(here: int, there: int, stream: str) -> None:
        engines[there].restore(engines[here].snapshot(stream), stream)
        engines[here].reset(stream)

    return in_turn(list(map(stepped, engines)), hand_over)


def restored(model: Any) -> Step:
    """Each call of a stream in another module, by its state."""
    modules = [ds.patch_module(m).online() for m in (model, *(type(model)().eval() for _ in range(2)))]
    for module in modules[1:]:
        module.load_state_dict(model.state_dict())

    def hand_over(here: int, there: int, stream: str) -> None:
        modules[there].set_state(modules[here].get_state(stream))
        modules[here].reset(stream)

    return in_turn(list(map(called, modules)), hand_over)


FORMS = {
    "eager": lambda m: called(ds.patch_module(m).online()),
    "engine": lambda m: stepped(compiled(m)),
    "engine's call": lambda m: called(compiled(m)),
    "step_batch": lambda m: padded(compiled(m)),
    "snapshots": moving,
    "states": restored,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", MODELS)
def test_streams_that_come_and_go(kind: Any, form: str) -> None:
    rng = np.random.default_rng(MODELS.index(kind))
    model = kind().eval()
    streams = {
        f"s{k}": (rng.standard_normal((4, rng.integers(1, 25)), np.float32), rng.standard_normal(3, np.float32))
        for k in range(16)
    }
    whole = {i: np.asarray(model(ds.tensor(x[None]), ds.tensor(e[None])))[0] for i, (x, e) in streams.items()}
    got = driven(FORMS[form](model), rng, streams, 1)
    for i, expected in whole.items():
        np.testing.assert_allclose(got[i], expected, atol=1e-6)


def test_another_streams_value_is_noticed(monkeypatch: Any) -> None:
    stacked = Given.stacked
    monkeypatch.setattr(Given, "stacked", lambda self, ids: np.roll(stacked(self, ids), 1, 0))
    with pytest.raises(AssertionError):
        test_streams_that_come_and_go(Modulated, "eager")


# ---------------------------------------------------------------- what is wrong
X, E = np.ones((4, 3), np.float32), np.ones(3, np.float32)
FORGOTTEN = "input speaker is given once, with the start of a stream: these start without it"
TWICE = "input speaker is given once, with the start of a stream: these have it"


def chunk(**flags: Any) -> Any:
    return ds.stream_tensor([X], ids=["anna"], **flags)


@pytest.mark.parametrize("mode", ["eager", "engine"])
def test_it_is_given_once(mode: str) -> None:
    model = Modulated().eval()
    whole = np.asarray(model(ds.tensor(np.concatenate([X, X], 1)[None]), ds.tensor(E[None])))[0]
    callee = compiled(model) if mode == "engine" else ds.patch_module(model).online()
    callee(ds.stream_tensor([X], ids=["bob"], sos=True), ds.static({"bob": E}))
    with pytest.raises(ds.StreamMismatchError, match=FORGOTTEN) as info:
        callee(chunk(sos=True), None)
    assert info.value.ids == ("anna",)
    with pytest.raises(ds.StreamIdError, match="input speaker is given for streams that are not in this call"):
        callee(chunk(sos=True), ds.static({"anna": E, "carl": E}))
    first = callee(chunk(sos=True), ds.static({"anna": E}))["anna"].numpy()
    with pytest.raises(ds.StreamMismatchError, match=TWICE) as info:
        callee(chunk(), ds.static({"anna": 2 * E}))
    assert info.value.ids == ("anna",)
    with pytest.raises(ds.ShapeError, match="input speaker: the streams' values differ"):
        callee(chunk(sos=True), ds.static({"anna": np.ones(4, np.float32)}))
    rest = callee(chunk(eos=True), None)["anna"].numpy()
    np.testing.assert_allclose(np.concatenate([first, rest]), whole, atol=1e-6)


def test_steps_that_forget_it_or_give_it_twice_change_nothing() -> None:
    engine = compiled(Modulated().eval())
    for given in ({"x": X}, X):
        with pytest.raises(ds.StreamMismatchError, match=FORGOTTEN) as info:
            engine.step({"anna": given}, sos="anna")
        assert info.value.ids == ("anna",) and engine.ids == []
    engine.step({"anna": {"x": X, "speaker": E}}, sos="anna")
    before = engine.snapshot("anna")
    with pytest.raises(ds.StreamMismatchError, match=TWICE) as info:
        engine.step({"anna": {"x": X, "speaker": E}, "bob": {"x": X, "speaker": E}}, sos="bob")
    assert info.value.ids == ("anna",) and engine.ids == ["anna"] and engine.snapshot("anna") == before
    with pytest.raises(ds.StreamMismatchError, match=FORGOTTEN):
        engine.step_batch(["bob"], X[None], None, sos=True)
    with pytest.raises(ds.ShapeError, match=r"input speaker: expected an array of shape \(3,\)"):
        engine.step({"bob": {"x": X, "speaker": X}}, sos="bob")


def test_it_may_start_a_stream_without_frames() -> None:
    model = Begun().eval()
    engine, nothing = compiled(model), X[:, :0]
    whole = np.asarray(model(ds.tensor(X[None]), ds.tensor(E[None])))[0]
    engine.step({"anna": {"x": nothing, "speaker": E}}, sos="anna")
    np.testing.assert_allclose(engine.step({"anna": X}, eos="anna")["anna"], whole, atol=1e-6)
    ds.patch_module(model).online()
    model(ds.stream_tensor([nothing], ids=["anna"], sos=True), speaker=ds.static({"anna": E}))
    np.testing.assert_allclose(model(chunk(eos=True))["anna"].numpy(), whole, atol=1e-6)


def test_languages() -> None:
    model = net(nn, lambda self, x, language: x + self.table(language).unsqueeze(-1), table=nn.Embedding(5, 4))
    whole = np.asarray(model(ds.tensor(X[None]), ds.tensor(np.array([3]))))[0]
    spec = {"x": ("B", 4, "L"), "language": ("B",)}
    engine = ds.compile(model, spec, dtype={"language": "int64"})
    got = engine.step({"anna": {"x": X, "language": np.array(3)}}, sos="anna")["anna"]
    np.testing.assert_array_equal(got, whole)
    with pytest.raises(IndexError):
        engine.step({"bob": {"x": X, "language": np.array(5)}}, sos="bob")
    ds.patch_module(model).online()
    np.testing.assert_array_equal(model(chunk(sos=True), ds.static({"anna": np.array(3)}))["anna"].numpy(), whole)


def test_what_is_no_frame_meets_frames_where_it_lines_up() -> None:
    with pytest.raises(ds.ShapeError, match="must have a dimension of size 1"):
        ds.compile(net(nn, lambda self, x, speaker: x * speaker), {"x": ("B", "L", 3), "speaker": ("B", 3)})


def test_specs_and_exports() -> None:
    with pytest.raises(ds.ShapeError, match="one input of a spec has an"):
        ds.compile(Modulated().eval(), {"speaker": ("B", 3)})
    first = ds.compile(Modulated().eval(), {"speaker": ("B", 3), "x": ("B", 4, "L")})
    assert [s.name for s in first.inputs] == ["x", "speaker"]
    x, given = ds.stream_tensor([X], ids=["a"], sos=True), ds.static({"a": E})
    assert np.array_equal(first(given, x)["a"].numpy(), compiled(Modulated().eval())(x, given)["a"].numpy())
    engine = compiled(Modulated().eval())
    assert engine.inputs[1].rate == 0 and engine.inputs[1].dimensions == ("B", 3)
    assert engine.delay == 3 and engine.kept_bytes <= engine.state_size
    engine.warmup(2, 5)
    assert ds.audit(Modulated().eval(), {"x": ("B", 4, "L"), "speaker": ("B", 3)}).delay == 3


def test_a_snapshot_with_frames_has_it() -> None:
    engine = compiled(Modulated().eval())
    engine.step({"anna": {"x": X, "speaker": E}}, sos="anna")
    data = bytearray(engine.snapshot("anna"))
    words = np.frombuffer(data, np.uint64)
    assert words[5:7].tolist() == [3, 1]  # frames of each input
    for times in (0, 2):
        words[6] = times
        with pytest.raises(ds.FormatError, match=f"input 1, which is given once, {times} times"):
            engine.restore(seal(bytes(data[:-8])), "bob")
