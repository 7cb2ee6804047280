"""Copies of patched torch modules: deep and shallow ones, pickles, replicas, and those that classes make."""

import copy
import gc
import io
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import dreamstream as ds

NAMES = ("B", "L", "F")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv1d(3, 4, 3, padding=1), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.conv(x.transpose(1, 2)).relu().transpose(1, 2))


class Itself(Net):
    """It copies itself, as torch's documentation of `copy.deepcopy` has it."""

    def __deepcopy__(self, memo):
        out = type(self).__new__(type(self))
        memo[id(self)] = out
        out.__dict__.update({k: copy.deepcopy(v, memo) for k, v in self.__dict__.items()})
        return out


class WithoutMemo(Net):
    """It copies itself, and tells nobody."""

    def __deepcopy__(self, memo):
        out = type(self).__new__(type(self))
        out.__dict__.update({k: copy.deepcopy(v) for k, v in self.__dict__.items()})
        return out


class OwnState(Net):
    def __getstate__(self):
        return {k: v for k, v in super().__getstate__().items() if k != "cache"}

    def __setstate__(self, state):
        super().__setstate__(state)
        self.cache = "made anew"


def weighted():
    model = Net()
    parametrizations.weight_norm(model.conv)
    return model


def traced():
    return torch.fx.symbolic_trace(Net())


def made(make=Net):
    torch.manual_seed(0)
    return make().eval().requires_grad_(False)


def frames():
    return torch.randn(12, 3, generator=torch.Generator().manual_seed(1))


def chunk(a, b, i="a"):
    return ds.stream_tensor([frames()[a:b]], ids=[i], sos=a == 0, eos=b == 12, names=NAMES)


def streamed(model):
    return torch.cat([model(chunk(a, b))["a"] for a, b in ((0, 5), (5, 12))])


def zeroed(model):
    """A module whose head is another one, the copied one's being as it was."""
    model.head = copy.deepcopy(model.head)
    model.head.weight.zero_()
    return model


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def pickled(model):
    return pickle.loads(pickle.dumps(model))


def pickled_in_python(model):
    file = io.BytesIO()
    pickle._Pickler(file).dump(model)
    return pickle._Unpickler(io.BytesIO(file.getvalue())).load()


def within_a_list(model):
    return copy.deepcopy([model, {"again": model}])[0]


# ---------------------------------------------------------------------- copies that are patched
@pytest.mark.parametrize("way", [copy.deepcopy, within_a_list, pickled, pickled_in_python, saved])
@pytest.mark.parametrize("make", [Net, Itself, OwnState, weighted])
@pytest.mark.parametrize("online", [False, True])
def test_copies_have_handles_of_their_own(way, make, online):
    if make is weighted and way not in (copy.deepcopy, within_a_list):
        with pytest.raises(RuntimeError, match="parametrized modules is only supported through state_dict"):
            way(ds.patch_module(made(make)))
        return
    model = ds.patch_module(made(make)).online(online)
    other = way(model)
    want = made(make)(frames()[None])[0]
    assert type(other) is type(model) and other.is_online is online
    assert {n for n, _ in other.named_modules()} == {n for n, _ in model.named_modules()}
    for a, b in zip(model.modules(), other.modules()):
        assert set(a.__dict__) - {"cache"} == set(b.__dict__) - {"cache"}
        if "_patch" in b.__dict__:
            assert b._patch is not a._patch and b._patch.module is b and b.reset.__self__ is b._patch
    assert other.online() is other and model.is_online is online
    torch.testing.assert_close(streamed(other), want)
    zeroed(other)
    torch.testing.assert_close(streamed(model.online()), want)
    torch.testing.assert_close(streamed(other), other.head.bias.expand(12, 2))
    ds.unpatch_module(other)
    clean = set(made(make).__dict__) | {"cache"}
    assert set(other.__dict__) | {"cache"} == clean and "_patch" in model.__dict__
    torch.testing.assert_close(streamed(model), want)


def test_deep_copies_take_streams_along():
    model = ds.patch_module(made()).online()
    want = made()(frames()[None])[0]
    first = model(chunk(0, 5))["a"]
    other = copy.deepcopy(model)
    assert other.live_ids == ["a"] and saved(model).live_ids == []
    for each in (model, other):
        torch.testing.assert_close(torch.cat([first, each(chunk(5, 12))["a"]]), want)
        assert each.live_ids == []


def test_graphs_of_fx():
    """Their classes write what is copied themselves: the copies are not patched."""
    model, want = ds.patch_module(made(traced)), made()(frames()[None])
    for other in (copy.deepcopy(model), pickled(model), copy.copy(model)):
        assert torch.equal(other(frames()[None]), want)
        torch.testing.assert_close(streamed(ds.patch_module(other).online()), want[0])
    torch.testing.assert_close(streamed(model.online()), want[0])


def test_what_a_class_copies_by_itself():
    model = ds.patch_module(made(WithoutMemo))
    other = zeroed(copy.deepcopy(model))
    want = other.head.bias.expand(12, 2)
    with pytest.raises(ds.ModeError, match="its class made by itself"):
        other.online()
    torch.testing.assert_close(other(frames()[None])[0], want)
    assert set(ds.unpatch_module(other).__dict__) == set(made(WithoutMemo).__dict__)
    torch.testing.assert_close(streamed(ds.patch_module(other).online()), want)
    torch.testing.assert_close(model(frames()[None]), made()(frames()[None]))


# ---------------------------------------------------------------------- copies that are not
def bare(model):
    out = object.__new__(type(model))
    out.__dict__ = model.__dict__.copy()
    return out


def updated(model):
    out = type(model)()
    out.__dict__.update(model.__dict__)
    return out


def replica(model):
    out = model._replicate_for_data_parallel()
    out._parameters = dict(model._parameters)
    return out


SHALLOW = [copy.copy, bare, updated, replica]


def apart(model):
    """A shallow copy whose children are its own, with a head of zeros."""
    model._modules = dict(model._modules)
    return zeroed(model)


@pytest.mark.parametrize("way", SHALLOW)
def test_shallow_copies_compute_by_themselves(way):
    model = ds.patch_module(made())
    want = made()(frames()[None])
    other = apart(way(model))
    zeros = other.head.bias.expand(1, 12, 2)
    assert torch.equal(model(frames()[None]), want)
    torch.testing.assert_close(other(frames()[None]), zeros)
    with pytest.raises(ds.ModeError, match=r"not patched; call ds.patch_module"):
        ds.online(other)
    torch.testing.assert_close(streamed(ds.patch_module(other).online()), zeros[0])
    torch.testing.assert_close(streamed(model.online()), want[0])


@pytest.mark.parametrize("way", [copy.deepcopy, copy.copy, pickled])
@pytest.mark.parametrize("first", SHALLOW)
def test_copies_of_shallow_copies(way, first):
    model = ds.patch_module(made())
    other = apart(first(model))
    if way is pickled and first is not copy.copy:
        with pytest.raises(ds.ModeError, match="unpatch it before"):
            way(other)
        ds.unpatch_module(other)
    torch.testing.assert_close(way(other)(frames()[None]), other.head.bias.expand(1, 12, 2))


@pytest.mark.parametrize("way", [bare, updated, replica])
def test_shallow_copies_do_not_stream_in_silence(way):
    model = ds.patch_module(made()).online()
    with pytest.raises(ds.ModeError, match=r"Net is a copy of one that is patched.*ds\.patch_module"):
        way(model)(chunk(0, 5))
    assert model.live_ids == []


@pytest.mark.parametrize("way", [copy.copy, bare, replica])
def test_shallow_copies_within_a_forward(way):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.rnn = nn.Linear(3, 3), nn.GRU(3, 3, batch_first=True)

        def forward(self, x):
            layer, rnn = way(self.layer), way(self.rnn)
            layer._parameters = {**layer._parameters, "bias": layer._parameters["bias"] * 2}
            return rnn(layer(x))[0]

    model = made(Twice)
    want = model(frames()[None])[0]
    assert torch.equal(ds.patch_module(model)(frames()[None])[0], want)
    if way is copy.copy:  # torch leaves the handle out
        model.rnn.register_forward_hook(lambda *_: None)
    try:
        torch.testing.assert_close(streamed(model.online()), want)
    except ds.NotStreamableError as error:
        assert way is copy.copy and "gru" in str(error)


def test_data_parallel_on_one_device():
    model = ds.patch_module(made())
    assert torch.equal(nn.DataParallel(model)(frames()[None]), made()(frames()[None]))


def test_memory_is_given_back():
    """The names that are lent know the module: it is freed by the collector of cycles, or when it is unpatched."""
    model = ds.patch_module(made())
    kept = weakref.ref(model.head.weight)
    del model
    gc.collect()
    assert kept() is None
    model = ds.unpatch_module(ds.patch_module(made()))
    kept = weakref.ref(model.head.weight)
    gc.disable()
    try:
        del model
        assert kept() is None
    finally:
        gc.enable()
