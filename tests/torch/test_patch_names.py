"""Names that a patched module offers, those that it has itself, and the functions that serve always."""

import operator
import warnings

import pytest
import torch
from torch import nn
from wrappers import Forwards

import dreamstream as ds
from dreamstream.errors import ModeError, StreamIdError, StreamWarning

NAMES = ("online", "offline", "reset", "get_state", "set_state", "is_online", "live_ids")
FRONTS = (nn, ds.nn)


def own(library, held):
    """A class of modules with attributes of their own of some names, held in one of many ways."""

    class Own(library.Module):
        def __init__(self):
            super().__init__()
            self.layer = library.Linear(3, 2)
            for name, value in held.items():
                if name in NAMES and not isinstance(value, (property, type(own))):
                    setattr(self, name, value)

        def forward(self, x):
            return self.layer(x)

    for name, value in held.items():
        if isinstance(value, (property, type(own))):
            setattr(Own, name, value)
    return Own()


def raising(self):
    raise RuntimeError("nobody is to ask")


HELD = {
    "methods": lambda library: {"reset": lambda self: "mine", "get_state": lambda self: "mine"},
    "children": lambda library: {"online": library.Linear(3, 3), "offline": library.Linear(3, 3)},
    "parameters": lambda library: {"set_state": library.Linear(1, 1).weight},
    "values": lambda library: {"is_online": "no", "live_ids": 3},
    "properties": lambda library: {"live_ids": property(raising), "online": property(raising)},
    "all": lambda library: {name: name for name in NAMES},
}


def stream(model, **options):
    x = [[1.0, 2.0, 3.0]] * 4
    x = torch.tensor(x) if isinstance(model, nn.Module) else ds.tensor(x).numpy()
    return ds.stream_tensor([x], ids=["a"], names=("B", "L", "F"), **options)


def driven(model):
    """Everything by functions."""
    model.eval()
    assert ds.online(model) is model and ds.is_online(model) and ds.live_ids(model) == []
    want = model(stream(model, sos=True, eos=True))["a"]
    first = model(stream(model, sos=True))["a"]
    assert ds.live_ids(model) == ["a"]
    state = ds.get_state(model, "a")
    assert list(state) == ["a"] and isinstance(state["a"], bytes)
    ds.reset(model, "a")
    with pytest.raises(StreamIdError):
        ds.reset(model, ["a"])
    ds.set_state(model, state)
    rest = model(stream(model, eos=True))["a"]
    assert (first == want).all() and (rest == want).all() and not ds.live_ids(model)
    ds.reset(model)
    assert ds.offline(model) is model and not ds.is_online(model)
    assert ds.online(model, False) is model and not ds.is_online(model)
    with pytest.raises(ValueError, match="mode must be a bool"):
        ds.online(model, 1)


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("library", FRONTS)
def test_names_of_a_model_stay_its_own(library, held):
    given = HELD[held](library)
    model, twin = own(library, given), own(library, given)
    words = ", ".join(n for n in NAMES if n in given)
    with pytest.warns(StreamWarning, match=rf"the model \(Own\): {words}; use the functions") as caught:
        ds.patch_module(model)
    assert len(caught) == 1 and caught[0].filename == __file__
    for name in given:
        kept = model.__dict__.get(name, vars(type(model)).get(name))
        assert getattr(kept, "__self__", model) is model
        if not isinstance(given[name], property):
            assert type(getattr(model, name)) is type(getattr(twin, name))
    driven(model)
    for name in set(NAMES) - set(given):
        assert getattr(model, name) is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.patch_module(model)
    ds.unpatch_module(model)
    assert list(model.__dict__) == list(twin.eval().__dict__)


@pytest.mark.parametrize("library", FRONTS)
def test_names_within_a_model(library):
    parts = [own(library, {"reset": "mine"}) for _ in range(5)]
    with pytest.warns(StreamWarning, match=r"0 \(Own\): reset; 1 \(Own\): reset; 2 .* and 2 more modules; use"):
        model = ds.patch_module(library.Sequential(*parts))
    assert model[0].reset == "mine" and model.online() is model and parts[4].is_online
    assert model.offline().is_online is False


@pytest.mark.parametrize("library", FRONTS)
def test_functions_serve_always(library):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        driven(ds.patch_module(library.Linear(3, 2)))
    for function in (getattr(ds, name) for name in NAMES):
        with pytest.raises(ModeError, match=rf"{function.__name__}: Linear is not patched; call ds\.patch_module"):
            function(library.Linear(3, 2), *[{}] * (function is ds.set_state))
        with pytest.raises(
            TypeError, match=rf"{function.__name__} takes a module of dreamstream\.nn or torch\.nn"
        ):
            function("model", *[{}] * (function is ds.set_state))
    assert set(NAMES) < set(ds.__all__)


@pytest.mark.parametrize("library", FRONTS)
def test_what_is_offered(library):
    model = ds.patch_module(library.Sequential(library.Linear(3, 2), library.ReLU()).eval())
    assert model.is_online is False and model[1].is_online is False
    ids = model.online().live_ids
    assert model.is_online is True and model[0].is_online is True and not ids and ids == []
    model(stream(model, sos=True))
    assert ids == ["a"] and ids == model.live_ids and ids != ["b"] and repr(ids) == "['a']"
    assert list(ids) == sorted(ids) == [*ids] == ids[:] == ids[-1:] and "a" in ids
    assert operator.add(ids, ["b"]) == ["a", "b"] and operator.add(["b"], ids) == ["b", "a"]
    assert operator.eq([], ids) is False and operator.eq(["a"], ids)
    assert len(ids) == 1 and set(ids) == {"a"} and f"{ids}" == "['a']" and bool(ids)
    model.reset(ids)
    assert ids == [] and model[0].offline().is_online is False and model.is_online is True
    assert "Stream from now on" in model.online.__doc__


def test_a_model_whose_class_is_called_generator():
    """As HiFi-GAN's and MelGAN's are: it is none of random numbers, though it offers states."""

    class Generator(nn.Sequential):
        pass

    model = ds.patch_module(nn.Sequential(Generator(nn.Linear(3, 2)))).eval()
    driven(model)
    driven(model[0])


def test_names_that_are_given_later_stay():
    model = ds.patch_module(nn.Linear(3, 2)).eval()
    model.get_state, model.online = nn.Linear(3, 3), (lambda: "mine")
    model.is_online = nn.Linear(3, 3)
    driven(model)
    assert isinstance(model.get_state, nn.Linear) and isinstance(model.is_online, nn.Linear)
    assert model.online() == "mine" and model.offline() is model
    ds.unpatch_module(model)
    assert model.online() == "mine" and set(model._modules) == {"get_state", "is_online"}
    assert set(model.__dict__) == {*nn.Linear(3, 2).__dict__, "online"}


def test_a_compile_of_a_class():
    class Trained(nn.Linear):
        def compile(self, optimizer):
            return f"compiled with {optimizer}"

    model = ds.patch_module(Trained(3, 2))
    assert model.compile("adam") == "compiled with adam"
    driven(model)


def test_wrappers_that_forward_attributes():
    driven(ds.patch_module(Forwards(nn.Linear(3, 2))))
    inner = ds.patch_module(nn.Linear(3, 2))
    model = ds.patch_module(Forwards(inner))
    assert model.reset.__self__.module is model
    with pytest.warns(StreamWarning, match=r"the model \(Forwards\): reset; inner \(Own\): reset; use"):
        ds.patch_module(Forwards(own(nn, {"reset": lambda self: "mine"})))


def test_modules_that_patch_themselves_and_have_names():
    class Itself(ds.torch.StreamModule):
        def __init__(self):
            super().__init__()
            self.reset = nn.Linear(3, 2)

        def forward(self, x):
            return self.reset(x)

    model = Itself()
    with pytest.warns(StreamWarning, match=r"the model \(Itself\): reset; use"):
        assert model.online() is model
    assert isinstance(model.reset, nn.Linear)
    driven(model)
    assert not hasattr(Itself(), "anything_else")
