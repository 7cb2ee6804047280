"""Patched torch modules: modes, errors, states, hooks, shared memory, and that nothing waits for the device."""

import functools
import subprocess
import sys
from inspect import signature

import numpy as np
import pytest
import torch
from nets import net as net_of
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import dreamstream as ds
from dreamstream.errors import ModeError, NotStreamableError, StreamIdError, StreamMismatchError
from dreamstream.operations import ours
from dreamstream.torch.run.tables import Gathered


class Net(nn.Module):
    """Look-ahead, a residual, a recurrent layer, a head."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 5, padding=2)
        self.rnn = nn.LSTM(4, 6, 2, batch_first=True)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        y = F.relu(self.conv(x) + F.pad(x, (0, 0, 0, 1)))
        y, (h, _) = self.rnn(y.transpose(1, 2))
        return {"y": self.head(y).transpose(1, 2), "h": h}


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def xs():
    torch.manual_seed(1)
    return [torch.randn(3, 23), torch.randn(3, 14)]


def step(model, xs, begin, end, ids=("a", "b")):
    chunks = [x[:, begin:end] for x in xs]
    eos = [end >= x.shape[1] for x in xs]
    return model(ds.stream_tensor(chunks, ids=list(ids), sos=begin == 0, eos=eos))


def close(a, b):
    return a.shape == b.shape and bool(((a - b).abs() <= 1e-6).all())


# ---------------------------------------------------------------------- modes
def test_importing_dreamstream_does_not_import_torch():
    code = "import sys, dreamstream as ds; ds.patch_module(ds.nn.Linear(2, 2)).online()"
    code += "; ds.stream_tensor([[[1.]]], ids='a'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_wrong_modes_raise_at_the_top_and_at_every_leaf(net, xs):
    ds.patch_module(net)
    x = ds.stream_tensor([xs[0]], ids=["a"], sos=True)
    for module, plain in ((net, xs[0][None]), (net.conv, xs[0][None]), (net.rnn, torch.zeros(1, 5, 4))):
        with pytest.raises(ModeError, match="offline and got a StreamTensor"):
            module.offline()(x)
        with pytest.raises(ModeError, match="online and got no StreamTensor"):
            module.online()(plain)
        net.offline()
    net.train().online()
    assert net.is_online and net.conv.is_online and net.training
    net.eval()
    assert net.is_online


def test_streams_of_the_other_kind_are_told_apart(net):
    a = np.zeros((1, 3, 4), np.float32)
    with pytest.raises(ModeError, match="torch module and got a StreamTensor of NumPy"):
        ds.patch_module(net).online()(ds.stream_tensor(a, ids=["a"], sos=True))
    torchs = ds.stream_tensor(torch.from_numpy(a), ids=["a"], sos=True)
    with pytest.raises(ModeError, match="computes with NumPy and got a StreamTensor of torch"):
        ds.patch_module(ds.nn.Conv1d(3, 4, 1)).online()(torchs)
    with pytest.raises(ModeError, match="input x: an engine takes StreamTensors of NumPy"):
        ds.compile(net, ("B", 3, "L"))(torchs)


def test_a_model_of_float64_is_not_compiled(net):
    with pytest.raises(ds.DTypeError, match=r"conv.weight is float64.*copy.deepcopy\(model\).float\(\)"):
        ds.compile(net.double(), ("B", 3, "L"))
    assert ds.compile(net, ("B", 3, "L"), dtype="float32").inputs[0].dtype == "float32"
    assert next(net.parameters()).dtype == torch.float64


def test_offline_keeps_streams_to_validate_in_between(net, xs):
    want = net(xs[0][None])
    ds.patch_module(net).online()
    first = step(net, xs[:1], 0, 9, "a")
    assert close(net.offline()(xs[0][None])["y"], want["y"])
    rest = step(net.online(), xs[:1], 9, 99, "a")
    assert close(torch.cat([first["y"]["a"], rest["y"]["a"]], 1), want["y"][0])
    with pytest.raises(ModeError, match="live"):
        step(net, xs[:1], 0, 9, "a")
        ds.unpatch_module(net)
    net.reset()
    ds.unpatch_module(net)


@pytest.mark.parametrize("name", [n for n in torch.special.__all__ if hasattr(ds.Tensor, ours(n))])
def test_functions_of_torch_special(name):
    function = getattr(torch.special, name)
    given = (1,) * ("dim" in signature(getattr(ds.Tensor, ours(name))).parameters or name == "xlogy")
    model, x = forward_of(lambda m, x: function(x, *given)), torch.rand(2, 5)
    want = model(x[None])[0]
    got = ds.patch_module(model).online()(ds.stream_tensor([x], ids=["a"], sos=True, eos=True))
    assert close(got["a"], want)


# ---------------------------------------------------------------------- what can't be
def test_refusals_name_path_reason_and_remedy(net):
    net.rnn = nn.LSTM(4, 6, batch_first=True, bidirectional=True)
    with pytest.raises(NotStreamableError, match=r"rnn \(LSTM\).*backward direction.*bidirectional=False"):
        ds.patch_module(net)
    net.rnn = nn.MultiheadAttention(4, 2, batch_first=True)
    net.forward = lambda x: net.rnn(*3 * [net.conv(x).transpose(1, 2)])[0]
    with pytest.raises(NotStreamableError, match=r"rnn \(MultiheadAttention\).*sees the whole stream"):
        ds.compile(net, ("B", 3, "L"))
    net.rnn = nn.GroupNorm(2, 4)
    net.forward = lambda x: net.rnn(net.conv(x))
    ds.patch_module(net).online()
    with pytest.raises(NotStreamableError, match=r"rnn.*whole stream"):
        net(ds.stream_tensor([torch.zeros(3, 5)], ids=["a"], sos=True))


forward_of = functools.partial(net_of, nn)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda m, x: x.flip(-1), "flip"),
        (lambda m, x: torch.sort(x, -1)[0], "sort"),
        (lambda m, x: x.softmax(-1), "softmax|function over L"),
        (lambda m, x: torch.cat([x, x], -1), "cat along L"),
        (lambda m, x: x[..., :9], "constant position 9"),
        (lambda m, x: x if x.size(-1) > 30 else -x, "compared"),
        (lambda m, x: x + torch.rand(x.shape[-1]), "length of a stream"),
        (lambda m, x: x + torch.zeros(1, 3, 7), "extent 7 where the stream has L"),
        (lambda m, x: x if x.sum() > 0 else -x, "."),
        (lambda m, x: x if float(x[:, 0].amax(-1)) > 0 else -x, "."),
        (lambda m, x: torch.fft.rfft(x), r"rfft at .*its dimension is L of a stream"),
        (lambda m, x: x.to("meta"), "moved to meta"),
        (lambda m, x: torch.add(x, x, out=torch.empty(0)), "out="),
        (lambda m, x: torch.linalg.norm(x @ x.transpose(1, 2)), "matrix product of two streams"),
        (lambda m, x: torch.linalg.norm(x.unsqueeze(1), 2, (1, 2)), "norm of matrices of order 2 .*singular"),
    ],
)
def test_what_does_not_stream_is_refused_with_the_line(forward, words):
    model = ds.patch_module(forward_of(forward)).online()
    for call in (
        lambda: model(ds.stream_tensor([torch.ones(3, 5)], ids=["a"], sos=True)),
        lambda: ds.compile(model, ("B", 3, "L")),
    ):
        with pytest.raises(NotStreamableError, match=words) as error:
            call()
        assert "test_bridge.py" in str(error.value)
    assert model.live_ids == []


def test_streams_that_do_not_fit(net, xs):
    ds.patch_module(net).online()
    step(net, xs, 0, 5)
    with pytest.raises(StreamIdError, match="live already"):
        step(net, xs, 0, 5)
    with pytest.raises(StreamIdError, match="no such streams"):
        step(net, xs, 5, 9, ("a", "c"))
    with pytest.raises(StreamMismatchError, match="from outside"):
        inner = ds.stream_tensor([xs[0]], ids=["a"], sos=True)
        bad = ds.patch_module(forward_of(lambda m, x: x + inner)).online()
        bad(ds.stream_tensor([xs[0]], ids=["a"], sos=True))
    assert sorted(net.live_ids) == ["a", "b"]
    swapped = ds.patch_module(forward_of(lambda m, x: leak.append(x) or x)).online()
    leak: list = []
    swapped(ds.stream_tensor([xs[0]], ids=["a"], sos=True))
    with pytest.raises(ModeError, match="returned"):
        leak[0] + 1


# ---------------------------------------------------------------------- states
def test_states_of_streams_that_have_no_frames_yet(xs):
    conv = nn.Conv1d(3, 3, 3, padding=1)
    want = conv(xs[0][None])[0]
    ds.patch_module(conv).online()
    for i in "abcd":
        conv(ds.stream_tensor([xs[0][:, : 4 if i == "a" else 0]], ids=[i], sos=True))
        state = conv.get_state(i)
        conv.reset([i])
        conv.set_state(state)
    got = conv(ds.stream_tensor([xs[0]] * 3, ids=list("bcd"), eos=True))
    assert all(close(got[i], want) for i in "bcd")


def test_states_follow_a_module_to_its_device(net, xs):
    ds.patch_module(net).online()
    step(net, xs, 0, 5)
    elsewhere = torch.device("meta")
    session = net._patch.session
    for places in (
        [session.state_of(i).states for i in ("a", "b")],
        [session.from_parts(session.to_parts(session.state_of(i).states)) for i in ("a", "b")],
    ):
        gathered = Gathered(places, elsewhere)
        keys = places[0].store.tensors
        assert keys and all(gathered.rows(k).device == elsewhere for k in keys)


def test_streams_join_and_leave(net, xs):
    """Slots are used again; who shares a batch changes nothing."""
    want = [net(x[None])["y"][0] for x in xs]
    ds.patch_module(net).online()
    for turn in range(5):
        a, b = f"a{turn}", f"b{turn}"
        parts = {a: [], b: []}

        def take(out, parts=parts):
            for i in out["y"].ids:
                parts[i].append(out["y"][i])

        take(step(net, xs[:1], 0, 5, [a]))
        take(net(ds.stream_tensor([xs[1][:, :3], xs[0][:, 5:11]], ids=[b, a], sos=[True, False])))
        take(net(ds.stream_tensor([xs[0][:, 11:], xs[1][:, 3:6]], ids=[a, b], eos=[True, False])))
        take(net(ds.stream_tensor([xs[1][:, 6:]], ids=[b], eos=True)))
        for i, whole in zip((a, b), want):
            assert close(torch.cat(parts[i], 1), whole)
    session = net._patch.session
    assert all(len(t) <= 8 for t in session.table.tensors.values())


# ---------------------------------------------------------------------- torch's own ways
def test_in_place_keeps_the_shape():
    model = ds.patch_module(forward_of(lambda m, x: x[:, :1].add_(x))).online()
    with pytest.raises(ds.ShapeError, match="can't take values"):
        model(ds.stream_tensor([torch.ones(3, 4)], ids=["a"], sos=True))


def test_element_types_stay_while_streams_live(net, xs):
    ds.patch_module(net).online()
    step(net, xs, 0, 5)
    net.double()
    with pytest.raises(ModeError, match=r"float32 and is torch.float64, but streams are live") as error:
        step(net, [x.double() for x in xs], 5, 9)
    assert sorted(error.value.ids) == ["a", "b"]
    step(net.float(), xs, 5, 99)
    step(net.double(), [x.double() for x in xs], 0, 99)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_element_types(xs, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ELU(), nn.BatchNorm1d(4), nn.Conv1d(4, 2, 3)).to(dtype).eval()
    xs = [x.to(dtype) for x in xs]
    want = [model(x[None])[0] for x in xs]
    ds.patch_module(model).online()
    first, rest = step(model, xs, 0, 8), step(model, xs, 8, 99)
    for i, whole in zip("ab", want):
        got = torch.cat([first[i], rest[i]], 1)
        assert got.dtype == dtype and got.shape == whole.shape
        assert ((got - whole).abs() <= 4 * torch.finfo(dtype).eps).all()


def test_complex_streams_are_what_they_are_offline():
    window = torch.hann_window(16)

    def forward(m, x):
        z = torch.stft(x, 16, 4, window=window, return_complex=True)
        assert z.dtype == torch.complex64 and torch.is_complex(z) and z.is_complex() and not z.requires_grad
        z = z.detach().to(x.device).to(torch.complex64) * (0.5 + 2j)
        return (z * torch.tensor(1j)).real - z.data.imag

    x = torch.randn(100)
    model = forward_of(forward)
    want = model(x[None])[0]
    y = ds.patch_module(model).online()(ds.stream_tensor([x], ids=["a"], sos=True, eos=True))
    assert y["a"].shape == want.shape and (y["a"] - want).abs().max() <= 1e-5 * want.abs().max()

    turned = ds.patch_module(forward_of(lambda m, x: (x * torch.tensor(1j)).imag)).online()
    assert torch.equal(turned(ds.stream_tensor([x], ids=["a"], sos=True))["a"], x)
    with pytest.raises(ds.DTypeError, match="complex64"):
        ds.patch_module(forward_of(lambda m, x: x * 2)).online()(ds.stream_tensor([x + 1j], ids=["a"], sos=True))


def test_register_says_how_a_class_streams():
    class Backwards(nn.Module):
        def forward(self, x):
            return F.pad(x, (x.shape[-1] % 2 + 1, 0))[..., : x.shape[-1]]  # asks for the length

    class Shift(Backwards):
        pass

    @ds.register(Shift)
    def shift(module, x):
        return F.pad(x, (1, 0))[..., :-1]

    x = torch.randn(3, 8)
    model = ds.patch_module(nn.Sequential(Shift())).online()
    y = model(ds.stream_tensor([x], ids=["a"], sos=True, eos=True))
    assert close(y["a"], model.offline()(x[None])[0])
    with pytest.raises(NotStreamableError):
        ds.patch_module(Backwards()).online()(ds.stream_tensor([x], ids=["a"], sos=True))


def test_registered_classes_and_what_is_below_them():
    """A subclass with a forward of its own isn't meant, and layers that nobody calls aren't asked."""

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.unused = nn.GroupNorm(1, 3)
            self.inner = nn.Sequential(nn.LSTM(3, 3, bidirectional=True))

        def forward(self, x):
            return x / (x.cumsum(2).flip(2).flip(2) + 100)

    class Same(Norm):
        def __init__(self):
            super().__init__()
            self.more = nn.AdaptiveAvgPool1d(2)

    class Other(Norm):
        def forward(self, x):
            return x * 2

    @ds.register(Norm)
    def stream(module, x):
        return x / (x.cumsum(2) + 100)

    x = torch.randn(3, 8)
    for kind in (Norm, Same):
        model = nn.Sequential(nn.ReLU(), kind())
        want = model(x[None])[0].detach()
        engine = ds.compile(model, ("B", 3, "L"))
        assert close(torch.from_numpy(engine.step({"a": x.numpy()}, sos="a", eos="a")["a"]), want)
        y = ds.patch_module(model).online()(ds.stream_tensor([x], ids=["a"], sos=True, eos=True))
        assert close(y["a"], want)
    with pytest.raises(NotStreamableError, match=r"inner\.0 \(LSTM\)"):
        ds.patch_module(Other())
    other = ds.patch_module(Other(), unstreamable="buffer").online()
    assert close(other(ds.stream_tensor([x], ids=["a"], sos=True, eos=True))["a"], 2 * x)

    @ds.register(Other)
    def calls_what_waits(module, x):
        return module.unused(x)

    with pytest.raises(NotStreamableError, match="over the whole stream"):
        ds.patch_module(Other()).online()(ds.stream_tensor([x], ids=["a"], sos=True, eos=True))


def test_a_module_that_patches_itself(xs):
    class Model(ds.torch.StreamModule):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(3, 2, 3, padding=1)

        def forward(self, x):
            return self.conv(x)

    model = Model().online()
    y = model(ds.stream_tensor(xs, ids=["a", "b"], sos=True, eos=True))
    assert close(y["b"], model.offline()(xs[1][None])[0])


# ---------------------------------------------------------------------- devices
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique")


class NoWaiting(TorchDispatchMode):
    """Refuses what makes the host wait for a device: numbers read from values (positions live on the host)."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::")
        tensors = [a for a in torch.utils._pytree.tree_leaves(args) if isinstance(a, torch.Tensor)]
        values = any(t.is_floating_point() for t in tensors)
        assert not (values and name.startswith(WAITS)), f"{name} waits for the device"
        masks = any(t.dtype == torch.bool for t in tensors)
        by_mask = values and masks and name.startswith(("index.", "index_put"))
        assert not by_mask, f"{name} by a mask waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("training", [False, True])
def test_nothing_waits_for_the_device(net, xs, training):
    ds.patch_module(net).online().train(training)
    step(net, xs, 0, 5)
    chunk = ds.stream_tensor([x[:, 5:9] for x in xs], ids=["a", "b"])
    with NoWaiting():
        net(chunk)
    with NoWaiting():
        net(ds.stream_tensor([xs[0][:, 9:11], xs[1][:, 9:10]], ids=["a", "b"]))
    net.reset()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda(net, xs):
    want = [net(x[None])["y"][0] for x in xs]
    net.cuda()
    ds.patch_module(net).online()
    with pytest.raises(StreamMismatchError, match="is on cuda"):
        step(net, xs, 0, 5)
    xs = [x.cuda() for x in xs]
    first, rest = step(net, xs, 0, 8), step(net, xs, 8, 99)
    for i, whole in zip("ab", want):
        got = torch.cat([first["y"][i], rest["y"][i]], 1)
        assert got.is_cuda and (got.cpu() - whole).abs().max() < 1e-4


@pytest.mark.parametrize(
    "form", [lambda x: [x], lambda x: (x,), lambda x: {"x": x}], ids=["list", "tuple", "dict"]
)
def test_one_stream_in_a_container(form):
    def forward(m, given):
        return m.conv(given["x"] if isinstance(given, dict) else given[0])

    model = forward_of(forward, conv=nn.Conv1d(3, 4, 3)).eval()
    x = torch.randn(3, 9)
    whole = model(form(x[None]))[0]
    ds.patch_module(model).online()
    y = model(form(ds.stream_tensor([x], ids=["a"], sos=True, eos=True)))
    torch.testing.assert_close(y["a"], whole)
