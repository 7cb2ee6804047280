"""Patched modules: modes, live streams, states, copies, the audit."""

import copy
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from small_model import Model, frames

import dreamstream as ds
from dreamstream import nn
from dreamstream.errors import ModeError, NotStreamableError, StreamIdError


def stream(n, seed=0, ids="a", **flags):
    return ds.stream_tensor(frames(n, seed)[None], ids=ids, **flags)


def same(a, b):
    assert a.meta == b.meta and a.starts == b.starts
    np.testing.assert_array_equal(a.value, b.value)


def patched(**options):
    return ds.patch_module(Model(), **options).online()


def under_way():
    """Two patched models, each with the first frames of a stream."""
    model, twin = patched(), patched()
    for m in (model, twin):
        m(stream(9, sos=True))
    return model, twin


# ---------------------------------------------------------------------- patching


def test_patching_twice_changes_nothing():
    model, twin = under_way()
    before = {n: m.__dict__["_patch"] for n, m in model.named_modules()}
    assert ds.patch_module(model) is model and model.is_online and model.live_ids == ["a"]
    assert {n: m.__dict__["_patch"] for n, m in model.named_modules()} == before
    same(model(stream(6, 1, eos=True)), twin(stream(6, 1, eos=True)))


def test_patching_is_recursive():
    model = ds.patch_module(Model())
    assert [m.is_online for m in model.modules()] == [False] * 4
    model.online()
    assert [m.is_online for m in model.modules()] == [True] * 4
    model.near.offline()
    assert [m.is_online for m in model.modules()] == [True, True, False, True]
    model(stream(9, sos=True))  # inside the outermost module modes don't matter
    assert model.live_ids == ["a"] and model.down.live_ids == []


def test_options_can_change_between_streams():
    model = patched(skew=1)
    model(stream(9, sos=True))
    for options in ({}, {"skew": 2}, {"unstreamable": "buffer", "skew": 1}):
        with pytest.raises(ModeError) as caught:
            ds.patch_module(model, **options)
        assert caught.value.ids == ("a",)
    model.reset()
    ds.patch_module(model, unstreamable="buffer")
    assert model.is_online and model.live_ids == []
    for options in (
        {"train_variant": "standard"}, {"unstreamable": "ignore"}, {"buffer_limit": -1}, {"skew": -1},
        {"skew": 0.5}, {"buffer_limit": "1"},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(iter(options))):
            ds.patch_module(Model(), **options)


def test_unpatching():
    """Not while streams live, of the module or of one below; afterwards there is no trace."""
    model = patched()
    model.near(ds.stream_tensor([np.ones((4, 3), np.float32)], ids="n", sos=True))
    model(stream(9, sos=True))
    with pytest.raises(ModeError) as caught:
        ds.unpatch_module(model)
    assert sorted(caught.value.ids) == ["a", "n"]
    model.reset()
    with pytest.raises(ModeError) as caught:
        ds.unpatch_module(model)
    assert caught.value.ids == ("n",)
    model.near.reset("n")
    assert ds.unpatch_module(model) is model and ds.unpatch_module(model) is model
    assert all("_patch" not in m.__dict__ for m in model.modules())
    with pytest.raises(AttributeError):
        _ = model.live_ids
    x = ds.tensor(frames(9)[None])
    np.testing.assert_allclose(model(x), Model()(x), atol=1e-6)


def test_what_cannot_stream_is_refused_when_patched():
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.LSTM(4, 4, bidirectional=True)))
    with pytest.raises(NotStreamableError, match=r"1\.0 \(LSTM\).*bidirectional=False.*buffer"):
        ds.patch_module(model)
    assert all("_patch" not in m.__dict__ for m in model.modules())
    with pytest.raises(NotStreamableError, match=r"the model \(Conv1d\)"):
        ds.patch_module(nn.Conv1d(3, 3, 3, padding=1, padding_mode="circular"))


# ---------------------------------------------------------------------- modes


def test_train_and_online_are_independent():
    model = ds.patch_module(Model())
    for mode in (True, False):
        for online in (True, False):
            assert model.train(mode).online(online) is model
            assert (model.training, model.is_online) == (mode, online)
            assert model.eval().is_online == online and model.training is False
            assert model.train().is_online == online
            model.offline()
            assert model.training is True


def test_a_stream_may_be_trained_on_and_evaluated():
    """Where train() was said calls are recorded; a new module is in training mode without anybody's wish."""
    model = ds.patch_module(Model()).online()
    a, b, c = (ds.stream_tensor([frames(7, n)], ids="a", sos=n == 0, eos=n == 2) for n in range(3))
    assert model.training
    y = [model(a)]
    for told in (copy.deepcopy(model.train()), model):
        got = told(b)
        assert got.requires_grad
    y += [got, model.eval()(c)]
    assert not y[0].requires_grad and not y[2].requires_grad
    whole = Model().train()(ds.tensor(np.concatenate([frames(7, n) for n in range(3)], 1)[None]))
    np.testing.assert_allclose(np.concatenate([part["a"].numpy() for part in y]), whole.numpy()[0], atol=1e-6)


def test_variants_of_training_are_taken():
    for variant in ("full-file-aligned", "full-file-unaligned"):
        assert ds.patch_module(Model(), train_variant=variant)._patch.train_variant == variant

        class Whole(ds.StreamModule):
            train_variant = variant

        assert Whole().online()._patch.train_variant == variant
    model = Model()
    assert ds.patch_module(model, "chunk-wise-aligned") is model


def test_a_layer_alone_and_inside():
    """A submodule that is called by itself has streams of its own."""
    model, twin = under_way()
    model.down(stream(5, 3, sos=True))
    model.down(stream(5, 4))
    assert model.live_ids == ["a"] and model.down.live_ids == ["a"]
    same(model(stream(7, 1)), twin(stream(7, 1)))
    model.reset()
    assert model.down.live_ids == ["a"]


def test_ids_and_lengths_inside():
    """They are those of the tensor at hand; a rate is exact."""
    seen = []

    class Looks(Model):
        def forward(self, x):
            seen.append((x.ids, list(x.lengths), x.starts, list(x.sos), list(x.eos), x.rate))
            y = self.down(x)
            seen.append((y.ids, list(y.lengths), y.starts, list(y.sos), list(y.eos), y.rate))
            return y

    model = ds.patch_module(Looks()).online()
    model(ds.stream_tensor([frames(9), frames(2)], ids=["a", "b"], sos=True, eos=[False, True], rate=3))
    model(stream(4, eos=True, rate=3))
    assert seen == [
        (["a", "b"], [9, 2], (0, 0), [True, True], [False, True], 3),
        (["a", "b"], [4, 1], (0, 0), [True, True], [False, True], Fraction(3, 2)),
        (["a"], [4], (9,), [False], [True], 3),
        (["a"], [3], (4,), [False], [True], Fraction(3, 2)),
    ]


# ---------------------------------------------------------------------- streams


def test_live_ids_and_reset():
    model = patched()
    assert model.live_ids == []
    model.reset()
    model(ds.stream_tensor([frames(3)] * 4, ids=list("abcd"), sos=True, eos=[False, True, False, False]))
    assert model.live_ids == ["a", "c", "d"]
    model.reset("c")
    assert model.live_ids == ["a", "d"]
    for ids in ("c", ["a", "c"]):
        with pytest.raises(StreamIdError) as caught:
            model.reset(ids)
        assert caught.value.ids == ("c",) and model.live_ids == ["a", "d"]
    model.reset([])
    model.reset(("a",))
    same(model(stream(5, sos=True)), patched()(stream(5, sos=True)))
    model.reset()
    assert model.live_ids == []
    with pytest.raises(StreamIdError):
        ds.patch_module(Model()).reset("a")


def test_an_empty_batch():
    """No rows: nothing happens, and nothing comes out."""
    model = patched()
    for _ in range(2):
        y = model(ds.stream_tensor(np.zeros((0, 3, 5), np.float32), ids=[]))
        assert y.ids == [] and y.shape == (0, 0, 4)
        model(stream(5, sos=True, restart=True))
    assert model.live_ids == ["a"]


# ---------------------------------------------------------------------- states


def test_states_travel():
    """As bytes per id, to another module with the same weights; those left behind stay."""
    model, other, twin = patched(), patched(), patched()
    for m in (model, twin):
        m(ds.stream_tensor([frames(9), frames(4)], ids=["a", "b"], sos=True))
    states = model.get_state()
    assert list(states) == ["a", "b"] and all(type(s) is bytes for s in states.values())
    assert model.get_state("a") == {"a": states["a"]} and model.get_state(["b"]) == {"b": states["b"]}
    other(stream(3, ids="c", sos=True))
    other.set_state({"a": states["a"], "d": states["b"]})
    assert other.live_ids == ["c", "a", "d"] and model.live_ids == ["a", "b"]
    y = other(ds.stream_tensor([frames(6, 1), frames(6, 2)], ids=["a", "d"], eos=True))
    want = twin(ds.stream_tensor([frames(6, 1), frames(6, 2)], ids=["a", "b"], eos=True))
    np.testing.assert_array_equal(y.value, want.value)
    assert y.starts == want.starts
    model.reset()
    model.set_state(states)
    same(model(ds.stream_tensor([frames(6, 1), frames(6, 2)], ids=["a", "b"], eos=True)), want)


# ---------------------------------------------------------------------- copies


def test_deep_copies_have_streams_of_their_own():
    model, twin = under_way()
    other = copy.deepcopy(model)
    assert other.live_ids == ["a"] and other.is_online and other.near.is_online
    other(stream(4, 5, eos=True))
    assert other.live_ids == [] and model.live_ids == ["a"]
    other = copy.deepcopy(model)
    same(other(stream(6, 1)), twin(stream(6, 1)))
    again = copy.deepcopy(model)
    same(model(stream(6, 1)), again(stream(6, 1)))
    other.down.weight.numpy()[...] = 0
    assert model.down.weight.numpy().any()


def test_pickles_hold_no_streams():
    """Options and modes go along; live streams travel by get_state."""
    model = patched(skew=2)
    model(stream(9, sos=True))
    other = pickle.loads(pickle.dumps(model))
    assert other.is_online and other.live_ids == [] and model.live_ids == ["a"]
    assert ds.patch_module(other, skew=2).__dict__["_patch"].options.skew == 2
    other.set_state(model.get_state())
    same(other(stream(6, 1)), model(stream(6, 1)))


def bare(model):
    out = object.__new__(type(model))
    out.__dict__ = model.__dict__.copy()
    return out


@pytest.mark.parametrize("way", [copy.copy, bare])
def test_shallow_copies_are_not_patched(way):
    model, x = ds.patch_module(Model()), ds.tensor(frames(9)[None])
    other = way(model)
    other._modules = {**model._modules, "near": nn.Conv1d(4, 4, 3, padding=1)}
    want = bare(other)
    assert not (other(x).numpy() == model(x).numpy()).all() and (other(x).numpy() == want(x).numpy()).all()
    assert copy.deepcopy(other)(x).shape
    if way is bare:
        with pytest.raises(ModeError, match="Model is a copy of one that is patched"):
            way(model.online())(stream(9, sos=True))
    ds.patch_module(other).online()(stream(9, sos=True))
    assert other.live_ids == ["a"] and model.live_ids == []


def test_no_trace_is_left():
    """Dictionaries of modules hold what they held, in the same order, and classes are what they were."""
    model = nn.Sequential(Model(), nn.LSTM(4, 4, batch_first=True), Itself())
    before = [(m, type(m), list(m.__dict__.items()), list(vars(type(m)))) for m in model.modules()]
    ds.patch_module(model).online().offline()
    ds.patch_module(model, skew=1)
    assert [m[:2] for m in before] == [(m, type(m)) for m in model.modules()]
    ds.unpatch_module(model)
    assert before == [(m, type(m), list(m.__dict__.items()), list(vars(type(m)))) for m in model.modules()]


# ---------------------------------------------------------------------- modules that patch themselves


class Itself(ds.StreamModule):
    skew = 1

    def __init__(self):
        super().__init__()
        self.model = Model()

    def forward(self, x):
        return self.model(x)


def test_stream_modules_patch_themselves():
    module = Itself()
    assert not module.is_online and module.live_ids == [] and module.get_state() == {}
    x = ds.tensor(frames(9)[None])
    np.testing.assert_allclose(Itself()(x), Model()(x), atol=1e-6)
    module = Itself()
    assert module.offline() is module and module.online() is module and module.is_online
    assert module.model.near.is_online and module.__dict__["_patch"].options.skew == 1
    same(module(stream(9, sos=True)), patched()(stream(9, sos=True)))
    assert module.online().live_ids == ["a"]  # patching again is a no-op
    assert ds.patch_module(module, skew=1).live_ids == ["a"]
    assert not module.offline().is_online
    module.online().reset()
    assert not hasattr(module, "anything_else")

    class Waits(ds.StreamModule):
        unstreamable_policy = "buffer"
        buffer_limit = 5

        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(3, 2, bidirectional=True)

        def forward(self, x):
            return self.rnn(x.permute(2, 0, 1))[0]

    y = Waits().online()(stream(5, sos=True, eos=True))
    assert y["a"].shape == (5, 4)


# ---------------------------------------------------------------------- the audit


def test_audit_of_a_stack():
    """Delay and field up to each layer, stride, what is kept of each output."""
    first, last = nn.Conv1d(3, 4, 5, padding=2), nn.Conv1d(2, 2, 4, padding="causal")
    model = nn.Sequential(first, nn.ReLU(), nn.Conv1d(4, 2, 3, stride=2), last)
    audit = ds.audit(model, ("B", 3, "L"), rate=100)
    rows = [(r.path, r.layer, r.delay, r.receptive_field, r.stride, r.state_bytes) for r in audit.rows]
    assert rows == [
        ("(input)", "", 0, 1, 1, 4 * 3 * 4),
        ("0", "Conv1d", 2, 5, 1, 0),
        ("1", "ReLU", 2, 5, 1, 2 * 4 * 4),
        ("2", "Conv1d", 4, 7, 2, 3 * 2 * 4),
        ("3", "Conv1d", 4, 13, 2, 0),
    ]
    assert [r.operators for r in audit.rows] == [(), ("conv1d",), ("relu",), ("conv1d",), ("conv1d",)]
    assert all(r.streamable and r.reason == "" for r in audit.rows)
    engine = ds.compile(model, ("B", 3, "L"), rate=100)
    assert (audit.delay, audit.receptive_field, audit.state_size) == (4, 13, engine.state_size)
    assert (engine.delay, engine.receptive_field) == (4, 13)
    assert sum(r.state_bytes for r in audit.rows) <= audit.state_size and audit.state_bytes_per_frame == 0
    lines = str(audit).splitlines()
    assert len(lines) == 7 and lines[0].split()[:3] == ["path", "layer", "delay"]
    assert lines[4].split() == ["2", "Conv1d", "4", "40", "7", "2", "24", "yes"]
    assert lines[-1].split() == ["in", "total", "4", "40", "13", str(engine.state_size), "yes"]
    without = str(ds.audit(model, ("B", 3, "L"))).splitlines()
    assert without[4].split() == ["2", "Conv1d", "4", "7", "2", "24", "yes"]


def test_audit_names_what_cannot_stream():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.front = nn.Conv1d(3, 4, 3, stride=2, padding=1)
            self.rnn = nn.LSTM(4, 5, bidirectional=True, batch_first=True)
            self.head = nn.Linear(10, 2)

        def forward(self, x):
            return self.head(self.rnn(self.front(x).transpose(1, 2))[0])

    audit = ds.audit(Encoder(), ("B", 3, "L"))
    rows = {r.path: r for r in audit.rows}
    assert rows["front"].streamable and rows["front"].delay == 1 and rows["head"].streamable
    assert not rows["rnn"].streamable and rows["rnn"].delay == math.inf
    assert "backward" in rows["rnn"].reason and "bidirectional=False" in rows["rnn"].reason
    assert audit.delay == math.inf and audit.state_bytes_per_frame == 4 * 4 / 2
    text = str(audit)
    assert "no: " in text and "8 bytes per frame" in text and text.splitlines()[-2].endswith("no")


def test_audit_leaves_the_model_alone():
    model, twin = under_way()
    audit = ds.audit(model, ("B", 3, "L"))
    assert audit.state_size == ds.compile(Model(), ("B", 3, "L")).state_size
    assert [r.path for r in audit.rows] == ["(input)", "down", "near", "", "rnn"]
    assert model.live_ids == ["a"] and model.is_online
    same(model(stream(6, 1)), twin(stream(6, 1)))


def test_audit_of_a_forward_of_its_own():
    """Operations that no layer makes are the model's own; outputs without frames have stride 0."""

    class Statistics(nn.Module):
        def forward(self, x):
            return x.mean(-1), (x[..., 2:] * 2)

    audit = ds.audit(Statistics(), ("B", 3, "L"))
    (row,) = [r for r in audit.rows if r.path == ""]
    assert row.layer == "Statistics" and row.operators == ("reduce_frames", "slice", "mul") and row.streamable
    assert audit.delay == math.inf
