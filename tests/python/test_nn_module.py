"""Modules: attributes, walking, conversion, state dicts, text."""

import copy
import json
import pickle
import sys

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import nn
from dreamstream.errors import DTypeError, FormatError, ModeError, StreamIndexError
from dreamstream.nn.state import read_safetensors


class Block(nn.Module):
    def __init__(self, n=3):
        super().__init__()
        self.linear = nn.Linear(n, n)
        self.scale = nn.Parameter(ds.ones(n))
        self.register_buffer("mean", ds.zeros(n))
        self.register_buffer("cache", ds.zeros(1), persistent=False)
        self.register_parameter("nothing", None)
        self.register_buffer("count", ds.tensor(np.arange(2)))

    def forward(self, x):
        return self.linear(x) * self.scale


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Block()
        self.second = nn.Sequential(nn.ReLU(), Block())
        self.tied = self.first.linear


KEYS = [
    "first.scale",
    "first.mean",
    "first.count",
    "first.linear.weight",
    "first.linear.bias",
    "second.1.scale",
    "second.1.mean",
    "second.1.count",
    "second.1.linear.weight",
    "second.1.linear.bias",
    "tied.weight",
    "tied.bias",
]


# ---------------------------------------------------------------------- attributes


def test_attributes():
    block = Block()
    assert isinstance(block.scale, nn.Parameter)
    assert block.nothing is None
    with pytest.raises(DTypeError, match="scale"):
        block.scale = ds.ones(3)
    with pytest.raises(DTypeError):
        block.linear = 3
    with pytest.raises(DTypeError):
        block.mean = 3
    block.mean = ds.ones(3)
    assert block.mean.tolist() == [1, 1, 1]
    block.scale = None
    assert block.scale is None
    assert "scale" not in block.state_dict()
    block.linear = nn.Parameter(ds.ones(1))
    assert "linear" not in dict(block.named_children())
    del block.linear
    with pytest.raises(AttributeError, match="linear"):
        _ = block.linear
    with pytest.raises(AttributeError):
        del block.linear
    assert "mean" in dir(block)


def test_names_are_checked():
    block = Block()
    for name in ("", "a.b"):
        with pytest.raises(KeyError):
            block.register_buffer(name, None)
    with pytest.raises(DTypeError):
        block.register_parameter("p", ds.ones(1))
    with pytest.raises(DTypeError):
        block.add_module("m", 3)

    class Hasty(nn.Module):
        def __init__(self):
            self.linear = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match="super"):
        Hasty()


def test_a_patch_takes_the_call():
    block = Block()

    class Patch:
        takes_calls = True

        def call(self, module, args, kwargs):
            return module, args, kwargs

    block._patch = Patch()
    assert block(1, x=2) == (block, (1,), {"x": 2})
    block._patch.takes_calls = False
    assert block(ds.zeros(2, 3)).shape == (2, 3)
    del block._patch
    assert block(ds.zeros(2, 3)).shape == (2, 3)
    with pytest.raises(NotImplementedError, match="Model"):
        Model()(1)


# ---------------------------------------------------------------------- walking


def test_walking():
    model = Model()
    assert list(model.state_dict()) == KEYS
    names = [n for n, _ in model.named_parameters()]
    assert names == [
        "first.scale",
        "first.linear.weight",
        "first.linear.bias",
        "second.1.scale",
        "second.1.linear.weight",
        "second.1.linear.bias",
    ]
    assert len(list(model.named_parameters(remove_duplicate=False))) == len(names) + 2
    assert [n for n, _ in model.named_modules()] == [
        "",
        "first",
        "first.linear",
        "second",
        "second.0",
        "second.1",
        "second.1.linear",
    ]
    assert [n for n, _ in model.named_children()] == ["first", "second", "tied"]
    assert len(list(model.buffers())) == 6
    assert list(model.parameters(recurse=False)) == []
    assert model.get_submodule("second.1") is model.second[1]
    assert model.get_submodule("") is model
    assert model.get_parameter("first.scale") is model.first.scale
    assert model.get_buffer("first.cache") is model.first.cache
    for wrong in ("second.7", "nope", "first.scale"):
        with pytest.raises(AttributeError):
            model.get_submodule(wrong)
    seen = []
    assert model.apply(lambda m: seen.append(type(m).__name__)) is model
    assert seen[-1] == "Model"


def test_modes_and_types():
    model = Model()
    assert model.eval() is model
    assert not any(m.training for m in model.modules())
    model.train()
    assert all(m.training for m in model.modules())
    with pytest.raises(ValueError, match="bool"):
        model.train(1)

    weight = model.first.linear.weight
    assert model.double() is model
    assert model.first.linear.weight is weight
    assert {t.dtype for t in model.parameters()} == {ds.float64}
    assert model.first.mean.dtype == ds.float64
    assert model.first.count.dtype == ds.int64
    model.to("cpu", ds.float32)
    assert weight.dtype == ds.float32
    for wrong, error in (
        (lambda: model.half(), DTypeError),
        (lambda: model.to(ds.int64), DTypeError),
        (lambda: model.to("float16"), DTypeError),
        (lambda: model.to("cuda"), ModeError),
    ):
        with pytest.raises(error):
            wrong()


def test_gradients_are_stored_only():
    model = Model()
    model.requires_grad_(False)
    assert not any(p.requires_grad for p in model.parameters())
    model.first.scale.grad = ds.ones(3)
    model.zero_grad(set_to_none=False)
    assert model.first.scale.grad.tolist() == [0, 0, 0]
    model.zero_grad()
    assert model.first.scale.grad is None


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies(again):
    model = Model().eval()
    other = again(model)
    assert list(other.state_dict()) == KEYS
    assert other.tied is other.first.linear
    assert not other.training
    assert isinstance(other.first.scale, nn.Parameter)
    for a, b in zip(model.parameters(), other.parameters()):
        assert a.equal(b)
        assert not np.shares_memory(a.numpy(), b.numpy())


# ---------------------------------------------------------------------- state dicts


def state_of(model, rng, dtype=np.float32):
    return {k: rng.standard_normal(v.shape).astype(dtype) for k, v in model.state_dict().items()}


def check_loaded(model, state):
    for key, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), np.asarray(state[key]).astype(tensor.dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_load_converts_and_keeps_sharing(rng, dtype):
    model, weight = Model(), None
    weight = model.first.linear.weight
    state = state_of(model, rng, dtype)
    for name in ("weight", "bias"):
        state[f"tied.{name}"] = state[f"first.linear.{name}"]
    result = model.load_state_dict(state)
    assert result == ([], [])
    assert result.missing_keys == []
    assert model.first.linear.weight is weight
    assert model.tied is model.first.linear
    check_loaded(model, state)
    other = Model()
    other.load_state_dict(model.state_dict())
    check_loaded(other, state)


def test_a_state_dict_shares_memory():
    model = Model()
    state = model.state_dict(prefix="x.")
    assert np.shares_memory(state["x.first.scale"].numpy(), model.first.scale.numpy())
    assert not isinstance(state["x.first.scale"], nn.Parameter)
    assert not state["x.first.scale"].requires_grad
    assert model.state_dict(keep_vars=True)["first.scale"] is model.first.scale


def test_load_names_all_faults_and_changes_nothing(rng):
    model = Model()
    state, before = state_of(model, rng), copy.deepcopy(model.state_dict())
    del state["first.mean"]
    state["stranger"] = np.ones(1)
    state["first.scale"] = np.ones(4)
    state["second.1.linear.weight"] = np.ones((3, 4))
    with pytest.raises(FormatError) as error:
        model.load_state_dict(state)
    for part in ("Model", "missing: first.mean", "unexpected: stranger", "(4,) there and (3,) here", "(3, 4)"):
        assert part in str(error.value)
    check_loaded(model, {k: v.numpy() for k, v in before.items()})
    with pytest.raises(FormatError, match="different shapes"):
        model.load_state_dict(state, strict=False)
    state["first.scale"], state["second.1.linear.weight"] = np.ones(3), np.ones((3, 3))
    assert model.load_state_dict(state, strict=False) == (["first.mean"], ["stranger"])
    assert model.first.scale.tolist() == [1, 1, 1]


def test_load_counts_what_it_does_not_name():
    with pytest.raises(FormatError, match="and 2 more"):
        Model().load_state_dict({})
    with pytest.raises(FormatError, match="numbers"):
        Block().load_state_dict({k: np.array(["a"]) for k in Block().state_dict()})


def safetensors_file(path, arrays, codes):
    """Write a file of the format by hand: header length, header, data."""
    header, data = {}, b""
    for key, array in arrays.items():
        raw = array.tobytes()
        header[key] = {
            "dtype": codes[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_load_safetensors(rng, tmp_path, monkeypatch):
    """The reader that is built in: the package of that name is not asked for."""
    monkeypatch.setitem(sys.modules, "safetensors", None)
    model = Model()
    state = state_of(model, rng)
    kinds = dict(zip(state, [np.float32, np.float16] * 6))
    kinds.update({k: np.int64 for k in state if k.endswith("count")})
    state = {k: v.astype(kinds[k]) for k, v in state.items()}
    state["tied.weight"] = state["first.linear.weight"]
    state["tied.bias"] = state["first.linear.bias"]
    path = tmp_path / "model.safetensors"
    safetensors_file(path, state, {"float32": "F32", "float16": "F16", "int64": "I64"})
    for name in (path, str(path)):
        fresh = Model()
        fresh.load_state_dict(name)
        check_loaded(fresh, state)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(FormatError, match=r"model\.safetensors"):
        Model().load_state_dict(path)


def test_load_bfloat16(tmp_path):
    values = np.array([1.5, -2.0, 3.0], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    safetensors_file(tmp_path / "b.safetensors", {"weight": bits}, {"uint16": "BF16"})
    norm = nn.LayerNorm(3, bias=False)
    norm.load_state_dict(tmp_path / "b.safetensors")
    assert norm.weight.tolist() == values.tolist()


KINDS = {
    "float64": "F64", "float32": "F32", "float16": "F16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def test_every_type_of_safetensors(tmp_path):
    """Each array's values, whatever it lies beside; the empty one and the number too."""
    arrays = {kind: np.arange(6).reshape(2, 3).astype(kind) for kind in KINDS}
    arrays |= {"none": np.zeros((0, 3), np.float32), "number": np.float32(7)}
    safetensors_file(tmp_path / "a.safetensors", arrays, KINDS)
    read = read_safetensors(tmp_path / "a.safetensors")
    assert list(read) == list(arrays)
    for key, array in arrays.items():
        assert read[key].dtype == array.dtype and read[key].shape == array.shape
        np.testing.assert_array_equal(read[key], array)


@pytest.mark.parametrize("content", [b"", b"no", b"\x02" + bytes(7) + b"{]", b"\xff" * 40])
def test_no_safetensors_file(tmp_path, content):
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(FormatError, match=r"a\.safetensors is .*no safetensors file"):
        Model().load_state_dict(tmp_path / "a.safetensors")
    with pytest.raises(FileNotFoundError):
        Model().load_state_dict(tmp_path / "b.safetensors")


def test_load_into_memory_that_cannot_be_written():
    frozen = np.ones(3, np.float32)
    frozen.flags.writeable = False
    norm = nn.LayerNorm(3, bias=False)
    norm.weight = nn.Parameter(frozen)
    norm.load_state_dict({"weight": np.zeros(3)})
    assert norm.weight.tolist() == [0, 0, 0]
    assert frozen.tolist() == [1, 1, 1]


# ---------------------------------------------------------------------- containers


def test_sequential():
    a, b, c = nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)
    s = nn.Sequential(a, b, c)
    assert (len(s), s[0], s[-1], list(s)) == (3, a, c, [a, b, c])
    assert list(s[1:]) == [b, c]
    assert isinstance(s[:2], nn.Sequential)
    x = ds.randn(4, 2)
    assert s(x).equal(c(b(a(x))))
    s.append(nn.Tanh()).insert(0, nn.Identity())
    assert [type(m).__name__ for m in s] == ["Identity", "Linear", "ReLU", "Linear", "Tanh"]
    s[2] = nn.Sigmoid()
    del s[0]
    assert list(s._modules) == ["0", "1", "2", "3"]
    assert isinstance(s.pop(-1), nn.Tanh)
    with pytest.raises(StreamIndexError):
        _ = s[9]
    named = nn.Sequential({"one": a, "two": c})
    assert list(named.state_dict()) == ["one.weight", "one.bias", "two.weight", "two.bias"]
    assert named.one is a
    assert list(named[1:]._modules) == ["two"]


def test_lists_and_dicts():
    layers = nn.ModuleList([nn.ReLU()])
    layers += [nn.Tanh(), nn.Sigmoid()]
    assert [type(m).__name__ for m in layers[1:]] == ["Tanh", "Sigmoid"]
    assert layers[0] in layers
    d = nn.ModuleDict({"a": nn.Linear(1, 1)})
    d["b"] = nn.ReLU()
    assert (list(d), len(d), "a" in d) == (["a", "b"], 2, True)
    assert list(d.state_dict()) == ["a.weight", "a.bias"]
    assert isinstance(d.pop("b"), nn.ReLU)
    assert [k for k, _ in d.items()] == ["a"]
    p = nn.ParameterList([ds.ones(2), nn.Parameter(ds.zeros(1))])
    p.append(ds.ones(3))
    assert list(p.state_dict()) == ["0", "1", "2"]
    assert all(isinstance(v, nn.Parameter) for v in p)
    assert p[-1].shape == (3,)
    p[0] = ds.zeros(2)
    assert p[0].tolist() == [0, 0]
    with pytest.raises(DTypeError):
        p.append(3)


def test_parameters():
    p = nn.Parameter(np.ones(2, np.float32))
    assert p.requires_grad
    assert repr(p) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    assert type(p + 1) is ds.Tensor
    assert type(p.data) is ds.Tensor
    assert np.shares_memory(p.data.numpy(), p.numpy())
    p.data = ds.zeros(2)
    assert p.tolist() == [0, 0]
    with pytest.raises(DTypeError):
        nn.Parameter(np.arange(2))
    assert not nn.Parameter(np.arange(2), requires_grad=False).requires_grad
