"""Patched modules that an engine evaluates: what it gives, what it watches, what it refuses."""

import copy
import pickle
import threading

import numpy as np
import pytest
import torch
from torch import nn

import dreamstream as ds
from dreamstream import nn as native

NAMES = ("B", "L", "F")


class Net(nn.Module):
    def __init__(self, channels=3):
        super().__init__()
        self.conv, self.rnn = nn.Conv1d(channels, 4, 5, padding=2), nn.GRU(4, 4, batch_first=True)
        self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x):
        y = self.norm(self.conv(x.transpose(1, 2)).relu()).transpose(1, 2)
        return self.head(self.rnn(y)[0])


class Native(native.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.rnn = native.Conv1d(3, 4, 5, padding=2), native.GRU(4, 4, batch_first=True)

    def forward(self, x):
        return self.rnn(self.conv(x.transpose(1, 2)).transpose(1, 2))[0]


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def made(backend="engine", cls=Net):
    torch.manual_seed(0)
    ds.manual_seed(0)
    model = cls().eval()
    if cls is Net:
        model.norm.running_mean.uniform_(-1, 1)
    return ds.patch_module(model).online(backend=backend)


def frames(n=20, channels=3):
    return torch.from_numpy(np.random.default_rng(1).standard_normal((n, channels), np.float32))


def chunk(x, a, b, ids=("a",), **options):
    rows = [x[a:b] if isinstance(x, torch.Tensor) else x] * len(ids)
    return ds.stream_tensor(rows, ids=list(ids), names=NAMES, sos=a == 0, eos=b == len(x), **options)


def values(y):
    y = y.tensor() if hasattr(y, "tensor") else y
    return np.asarray(y.numpy() if hasattr(y, "numpy") else y)


def close(a, b):
    np.testing.assert_allclose(values(a), values(b), atol=2e-6)


# ---------------------------------------------------------------- what it gives
@pytest.mark.parametrize("cls", [Net, Native])
def test_the_same_as_the_forward(cls):
    model, other, x = made(cls=cls), made("auto", cls), frames()
    if cls is Native:
        x = x.numpy()

        def piece(a, b):
            return ds.stream_tensor([x[a:b]], ids=["a"], names=NAMES, sos=a == 0, eos=b == len(x))
    else:

        def piece(a, b):
            return chunk(x, a, b)

    for a, b in ((0, 1), (1, 8), (8, 8), (8, 20)):
        y, want = model(piece(a, b)), other(piece(a, b))
        assert type(y) is type(want) and y.names[:2] == want.names[:2] and list(y.lengths) == list(want.lengths)
        assert (list(y.starts), list(y.eos), y.rate) == (list(want.starts), list(want.eos), want.rate)
        close(y, want)
        assert list(model.live_ids) == list(other.live_ids) == ds.live_ids(model)
    with pytest.raises(ds.DreamStreamError, match="'a'"):
        model(piece(1, 8))


def test_the_forward_does_not_run():
    calls = []

    class Counting(Net):
        def forward(self, x):
            calls.append(None)
            return super().forward(x)

    model, x = made(cls=Counting), frames()
    model(chunk(x, 0, 5))
    n = len(calls)
    for k in range(5, 15):
        model(chunk(x, k, k + 1))
    assert len(calls) == n
    model.reset()
    model.online(backend="auto")(chunk(x, 0, 5))
    assert len(calls) > n


def test_half_precision_inputs_are_taken():
    x = frames()
    close(made()(chunk(x.bfloat16(), 0, 20)), made("auto")(chunk(x.bfloat16(), 0, 20)))


def test_inputs_given_once_and_lengths():
    class Told(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 4)

        def forward(self, x, lens, gain=None, scale=2.0):
            y = self.layer(x) * scale
            return (y if gain is None else y * gain.unsqueeze(1)), lens // 2

    x, gain = frames(), ds.static({"a": torch.arange(4.0)})
    models = [made(backend, Told) for backend in ("engine", "auto")]
    for a, b in ((0, 5), (5, 20)):
        got, want = (m(c := chunk(x, a, b), ds.lengths_of(c), gain if a == 0 else None) for m in models)
        close(got[0], want[0]), close(got[1], want[1])
    with pytest.raises(ds.ModeError, match=r"Told got '3\.0' as scale; an engine takes streams"):
        models[0](c := chunk(x, 0, 5), ds.lengths_of(c), None, 3.0)


def test_layers_that_wait():
    torch.manual_seed(0)
    model = nn.GRU(3, 2, bidirectional=True, batch_first=True).eval()
    with pytest.raises(ds.NotStreamableError):
        ds.patch_module(model)
    x, found = frames(), []
    for backend in ("engine", "auto"):
        one = ds.patch_module(copy.deepcopy(model), unstreamable="buffer").online(backend=backend)
        assert one(chunk(x, 0, 5))[0].lengths[0] == 0
        found.append(one(chunk(x, 5, 20))[0])
    close(*found)


# ---------------------------------------------------------------- what it watches
def copied(model):
    model.head.weight.copy_(model.head.weight * 2)


def through_data(model):
    model.head.weight.data.mul_(2)


def through_numpy(model):
    model.head.weight.numpy()[:] *= 2


def one_number(model):
    model.head.weight.numpy()[0, 0] += 0.5


def assigned(model):
    model.head.weight = nn.Parameter(model.head.weight * 2)


def other_data(model):
    model.head.weight.data = model.head.weight.data * 2


def buffer(model):
    model.norm.running_mean += 1


def layer(model):
    torch.manual_seed(3)
    model.head = ds.patch_module(nn.Linear(4, 2).eval())


def loaded(model):
    model.load_state_dict({k: v * 2 if v.is_floating_point() else v for k, v in model.state_dict().items()})


CHANGES = [copied, through_data, through_numpy, one_number, assigned, other_data, buffer, layer, loaded]


@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_change_between_streams(change):
    model, other, x = made(), made("auto"), frames()
    before = model(chunk(x, 0, 20))
    change(model), change(other)
    want = other(chunk(x, 0, 20))
    assert np.abs(values(before) - values(want)).max() > 1e-3
    close(model(chunk(x, 0, 20)), want)


class Scaled(nn.Module):
    def forward(self, x):
        return x * self.scale if hasattr(self, "scale") else x.abs()


def test_a_parameter_that_goes_from_one_module_to_the_next():
    model = nn.Sequential(Scaled(), Scaled()).eval()
    model[0].scale = nn.Parameter(torch.tensor(-2.0))
    x = ds.stream_tensor([torch.ones(4, 3)], ids=["a"], sos=True, eos=True)
    ds.patch_module(model).online(backend="engine")
    with torch.no_grad():
        assert values(model(x)["a"]).flatten().tolist() == [2.0] * 12
        scale = model[0].scale
        del model[0].scale
        model[1].scale = scale
        assert values(model(x)["a"]).flatten().tolist() == [-2.0] * 12


@pytest.mark.parametrize("change", [c for c in CHANGES if c is not one_number])  # which a start alone shows
def test_weights_that_change_while_streams_are_live(change):
    model, x = made(), frames()
    model(chunk(x, 0, 5))
    change(model)
    with pytest.raises(ds.ModeError, match="changed while streams are live") as caught:
        model(chunk(x, 5, 20))
    assert caught.value.ids == ("a",)
    model.reset()
    model(chunk(x, 0, 20))


def test_a_number_that_changes_is_seen_when_a_stream_starts():
    model, x = made(), frames()
    model(chunk(x, 0, 5))
    one_number(model)
    with pytest.raises(ds.ModeError, match=r"head\.weight has changed"):
        model(chunk(x, 0, 5, ids=("b",)))


def test_other_inputs_between_streams():
    model = ds.patch_module(nn.Conv1d(1, 1, 3, padding=1).eval()).online(backend="engine")
    wide = nn.ReLU()
    wide = ds.patch_module(wide.eval()).online(backend="engine")
    for n in (3, 5):
        x = frames(channels=n)
        assert wide(chunk(x, 0, 20)).shape == (1, 20, n)
    assert model(ds.stream_tensor([torch.ones(1, 4)], ids=["a"], sos=True, eos=True)).shape == (1, 1, 4)


# ---------------------------------------------------------------- what it refuses
def test_gradients_are_not_lost():
    model, x = made(), frames()
    with torch.enable_grad(), pytest.raises(ds.ModeError, match=r"gradients are recorded.*backend=\"auto\""):
        model(chunk(x, 0, 5))
    model.requires_grad_(False)
    with torch.enable_grad(), pytest.raises(ds.ModeError, match="gradients of an input") as caught:
        model(chunk(x, 0, 5).requires_grad_())
    assert caught.value.ids == ("a",)
    with torch.enable_grad():
        assert model(chunk(x, 0, 5)).shape


def test_training_goes_the_forwards_way():
    model, x = made(), frames()
    model.train(), model.norm.eval()
    with torch.enable_grad():
        model(chunk(x, 0, 5)).tensor().sum().backward()
    assert model.head.weight.grad is not None
    model.eval()
    with pytest.raises(ds.ModeError, match="begun without the engine") as caught:
        model(chunk(x, 5, 20))
    assert caught.value.ids == ("a",)
    model(chunk(x, 0, 5, ids=("b",)))
    assert sorted(model.live_ids) == ["a", "b"]
    model.train(), model.norm.eval()
    with pytest.raises(ds.ModeError, match=r"live on the engine.*\.eval\(\)") as caught:
        model(chunk(x, 5, 20, ids=("b",)))
    assert caught.value.ids == ("b",)
    model.reset("b")
    assert model.live_ids == ["a"]
    model.reset()
    assert model.live_ids == []


def test_hooks_layers_in_training_and_autocast_are_refused():
    model, x = made(), frames()
    model(chunk(x, 0, 5))
    handle = model.head.register_forward_hook(lambda *_: None)
    with pytest.raises(ds.ModeError, match="Linear has hooks"):
        model(chunk(x, 5, 20))
    handle.remove()
    model.rnn.train()
    with pytest.raises(ds.ModeError, match=r"rnn is in train\(\)"):
        model(chunk(x, 5, 20))
    model.eval()
    with torch.autocast("cpu"), pytest.raises(ds.ModeError, match="autocast is on"):
        model(chunk(x, 5, 20))
    close(model(chunk(x, 5, 20)), tail(made("auto"), x))


def tail(model, x):
    model(chunk(x, 0, 5))
    return model(chunk(x, 5, 20))


def test_backends_change_between_streams():
    model, x = made(), frames()
    model(chunk(x, 0, 5))
    with pytest.raises(ds.ModeError, match="before another backend") as caught:
        model.online(backend="auto")
    assert caught.value.ids == ("a",)
    with pytest.raises(ValueError, match='"auto" or "engine", got \'fast\''):
        model.online(backend="fast")
    model.offline()
    assert model(frames()[None]).shape == (1, 20, 2)  # torch's own
    close(model.online()(chunk(x, 5, 20)), tail(made("auto"), x))
    with pytest.raises(ds.ModeError, match="streams are live"):
        model(chunk(x, 0, 5))
        ds.unpatch_module(model)


# ---------------------------------------------------------------- streams
def test_states_travel():
    model, x = made(), frames()
    model(chunk(x, 0, 5))
    states = model.get_state()
    want = model(chunk(x, 5, 20))
    fresh = made()
    fresh.set_state(states)
    assert fresh.live_ids == ["a"]
    assert torch.equal(fresh(chunk(x, 5, 20)).tensor(), want.tensor())
    with pytest.raises(ds.FormatError):
        fresh.set_state({"a": states["a"][:40]})
    other = ds.patch_module(nn.Linear(3, 2).eval()).online(backend="engine")
    other(chunk(x, 0, 5, ids=("b",)))
    with pytest.raises(ds.FormatError):
        other.set_state(states)
    assert other.live_ids == ["b"]


def test_copies():
    model, x = made(), frames()
    model(chunk(x, 0, 5))
    other = copy.deepcopy(model)
    assert other.live_ids == ["a"]
    want = model(chunk(x, 5, 20))
    assert torch.equal(other(chunk(x, 5, 20)).tensor(), want.tensor())
    pickled = pickle.loads(pickle.dumps(model))
    close(tail(pickled, x), want)
    through_data(other)
    close(tail(other, x), tail((through_data(auto := made("auto")), auto)[1], x))


def test_threads():
    model, x = made(), frames()
    model(chunk(x, 0, 20))
    want, found = tail(made(), x), {}

    def run(i):
        with torch.no_grad():
            for _ in range(10):
                model(chunk(x, 0, 5, ids=(i,)))
                found.setdefault(i, []).append(model(chunk(x, 5, 20, ids=(i,))))

    threads = [threading.Thread(target=run, args=(f"{k}",)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(y.tensor(), want.tensor()) for ys in found.values() for y in ys) and len(found) == 4


def test_weights_that_lie_otherwise_and_narrow_ones():
    """A weight whose elements don't lie in order is watched where it is; one that no engine takes is named."""
    model, x = made(), frames()
    model.head.weight = nn.Parameter(model.head.weight.T.contiguous().T)
    model(chunk(x, 0, 5))
    model.head.weight.numpy()[:] *= 2
    with pytest.raises(ds.ModeError, match="changed while streams are live"):
        model(chunk(x, 5, 20))
    for kind in (torch.bfloat16, torch.float64):
        with pytest.raises(ds.ModeError, match=f"is {str(kind)[6:]}, and an engine computes in float32"):
            made().to(kind)(chunk(x.to(kind), 0, 5))
