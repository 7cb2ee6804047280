"""What a user is told who does the wrong thing first: where it was, what came, what to do.

Each is said by all that can say it: modules of ours, torch's, engines.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import clone, nn
from dreamstream.errors import StreamWarning

HERE = Path(__file__).name
RNG = np.random.default_rng(3)


def noise(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def model_of(library, layer):
    class Model(library.Module):
        def __init__(self):
            super().__init__()
            self.encoder = library.Sequential(layer(library))

        def forward(self, x):
            return self.encoder(x)

    return Model().eval()


class Native:
    library = nn
    given = staticmethod(lambda array: array)

    def online(self, layer):
        return ds.patch_module(model_of(self.library, layer)).online()

    def __call__(self, layer, array, names=None):
        stream = ds.stream_tensor([self.given(array)], names=names, ids="anna", sos=True)
        return self.online(layer)(stream)


class Torch(Native):
    def __init__(self):
        torch = pytest.importorskip("torch")
        self.library, self.given = torch.nn, torch.from_numpy


class Compiled(Native):
    """The model is compiled for what is not its input."""

    def __call__(self, layer, array, names=("B", None, "L")):
        return ds.compile(model_of(nn, layer), [n or array.shape[0] if n != "B" else n for n in names])


@pytest.fixture(params=[Native, Torch, Compiled])
def front(request):
    return request.param()


@pytest.fixture(params=[Native, Torch])
def eager(request):
    return request.param()


def conv(library):
    return library.Conv1d(16, 16, 3)


LINE = rf"at {HERE}:\d+ in forward: `return self\.encoder\(x\)`"


# ---------------------------------------------------------------------- shapes
@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (conv, r"conv1d LINE: expected an input of shape \(\.\.\., 16\), got \(80,\), with weights \(16, 16, 3\)"),
        (
            lambda m: m.ConvTranspose1d(16, 8, 4, stride=2),
            r"conv_transpose1d LINE: expected an input of shape \(\.\.\., 16\), got \(80,\), .*\(16, 8, 4\)",
        ),
        (
            lambda m: m.BatchNorm1d(16),
            r"(BatchNorm1d LINE: expected 16 channels in .*, got 80|"
            r"batch_norm LINE: expected .*\(\.\.\., 16\), got \(80,\).*)"
            r"( \(stream: 'anna'\))?$",  # compiled, there are none
        ),
    ],
)
def test_channels_that_do_not_fit(front, layer, says):
    """The module, the user's line, what came in."""
    with pytest.raises(ds.ShapeError, match=r"^encoder\.0 \(\w+\): " + says.replace("LINE", LINE)):
        front(layer, noise(80, 10))


def test_features_that_do_not_fit(eager):
    for layer, name, weight in (
        (lambda m: m.GRU(16, 8, batch_first=True), "gru", "weight 'weight_ih_l0' of shape (24, 16)"),
        (lambda m: m.LSTM(16, 8, batch_first=True), "lstm", "weight 'weight_ih_l0' of shape (32, 16)"),
    ):
        says = f"{name} {LINE}: expected an input of 16 features, as its {re.escape(weight)} has, got 80"
        with pytest.raises(ds.ShapeError, match=says):
            eager(layer, noise(10, 80), ("B", "L", None))
    with pytest.raises(
        ds.ShapeError, match=rf"linear {LINE}: expected an input of shape \(\.\.\., 16\), got \(80,\)"
    ):
        eager(lambda m: m.Linear(16, 3), noise(10, 80), ("B", "L", None))


def test_a_plain_call_names_its_line():
    with pytest.raises(ds.ShapeError, match=rf"^conv1d {LINE}: expected an input of shape \(\.\.\., 16\)"):
        model_of(nn, conv)(ds.tensor(noise(1, 80, 10)))


def test_a_transposed_chunk(eager):
    with pytest.raises(ds.ShapeError, match=r"got \(10,\).*; chunks are \(features, L\) here: transpose"):
        eager(conv, noise(10, 16).T.copy().T)
    with pytest.raises(ds.ShapeError, match=r"expected dimensions \('B', 'L', 'F'\).*; transpose it, or name"):
        eager(lambda m: m.GRU(16, 8, batch_first=True), noise(16, 10))
    with pytest.raises(
        ds.ShapeError, match=r"differ in features: \[\(5,\), \(7,\)\].*by names=\('B', 'L', None\)"
    ):
        ds.stream_tensor([eager.given(noise(n, 16)) for n in (5, 7)], ids=["anna", "bob"], sos=True)


# ---------------------------------------------------------------------- element types
def test_integers_where_samples_are_meant(eager):
    says = rf"conv1d {LINE}: expected a float32 or float64 tensor, got int64; .*by x\.float\(\) / 32768"
    with pytest.raises(ds.DTypeError, match=says):
        eager(conv, np.ones((16, 9), np.int16))


def test_other_types(eager):
    with pytest.raises(ds.DTypeError, match=rf"conv1d {LINE}: input is float64 but weight is float32; convert"):
        eager(conv, np.ones((16, 9)))


def test_arrays_of_the_other_kind():
    torch = pytest.importorskip("torch")
    array, tensor = noise(16, 9), torch.randn(16, 9)
    with pytest.raises(ds.ModeError, match=r"computes with NumPy and got a StreamTensor of torch; .*t\.numpy\(\)"):
        Native().online(conv)(ds.stream_tensor([tensor], ids="anna", sos=True))
    with pytest.raises(
        ds.ModeError, match=r"is a torch module and got a StreamTensor of NumPy.*torch\.from_numpy"
    ):
        Torch().online(conv)(ds.stream_tensor([array], ids="anna", sos=True))
    with pytest.raises(
        ds.DTypeError, match=rf"conv1d {LINE}: expected a tensor, got torch's Tensor; .*t\.numpy\(\)"
    ):
        model_of(nn, conv)(tensor[None])
    for rows in ([array, tensor], [tensor, array]):
        with pytest.raises(
            ds.DTypeError, match=r"the rows are arrays and torch's tensors; give all as t\.numpy\(\)"
        ):
            ds.stream_tensor(rows, ids=["anna", "bob"], sos=True)


def test_no_streams():
    with pytest.raises(ds.ShapeError, match="there are no streams: leave out the call, or give zeros of shape"):
        Native().online(conv)(ds.stream_tensor([], ids=[]))
    with pytest.raises(ds.ModeError, match="NumPy arrays, as an empty list makes, too; make it of torch tensors"):
        Torch().online(conv)(ds.stream_tensor([], ids=[]))


@pytest.mark.parametrize(
    ("data", "more", "error", "says"),
    [
        (noise(16, 9), {"ids": ["anna"]}, ds.StreamIdError, r"1 ids for 16 rows; one chunk is given in a list"),
        (None, {"ids": ["anna"]}, ds.DTypeError, "made of arrays or numbers, not of dicts, None or other objects"),
        ({"anna": noise(16, 9)}, {"ids": ["anna"]}, ds.DTypeError, "made of arrays or numbers, not of dicts"),
        ([noise(16, 9)], {"ids": "anna", "sos": "anna"}, ds.DTypeError, "for each stream, .*; got 'anna'"),
    ],
)
def test_data_that_are_no_streams(data, more, error, says):
    with pytest.raises(error, match=says):
        ds.stream_tensor(data, **more)


# ---------------------------------------------------------------------- specs
@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (noise(1, 16, 9), r'a spec is a tuple such as ("B", 80, "L"), got an array of shape (1, 16, 9)'),
        ((("B", 16, "L"),), 'several inputs are a dict by argument, as in {"x": ("B", 80, "L"), …}; got'),
        (("B", "L", 16), "transpose it, or name the input's dimensions so, in the spec or by names="),
        (("B", 16, "T"), """each dimension is "B", "L" or a size"""),
    ],
)
def test_specs_that_are_none(spec, says):
    with pytest.raises(ds.ShapeError, match=re.escape(says)):
        ds.compile(model_of(nn, conv), spec)


def fusion(self, audio, video):
    return audio[..., ::2] + video


@pytest.mark.parametrize(
    ("spec", "rate", "says"),
    [
        (("B", 4, "L"), 1, r"^forward also takes video; a spec of several inputs is a dict by argument, as in \{"),
        ({"audio": ("B", 4, "L")}, 1, "^forward also takes video; a spec of several inputs is a dict by argument"),
        (
            dict.fromkeys(("audio", "video"), ("B", 4, "L")),
            1,
            rf"^add at {HERE}.* give the inputs theirs, by rate=",
        ),
    ],
)
def test_specs_of_several_inputs(spec, rate, says):
    model = type("Fusion", (nn.Module,), {"forward": fusion})().eval()
    with pytest.raises(ds.DreamStreamError, match=says):
        ds.compile(model, spec, rate=rate)


def test_chunks_of_several_inputs():
    model = type("Fusion", (nn.Module,), {"forward": fusion})().eval()
    spec = dict.fromkeys(("audio", "video"), ("B", 4, "L"))
    engine = ds.compile(model, spec, rate={"audio": 2, "video": 1})
    with pytest.raises(ds.ShapeError, match="there is no input 'vid'; inputs are audio, video"):
        engine.step({"anna": {"audio": noise(4, 4), "vid": noise(4, 2)}}, sos="anna")


# ---------------------------------------------------------------------- engines
@pytest.fixture(scope="module")
def engine():
    return ds.compile(model_of(nn, conv), ("B", 16, "L"))


@pytest.mark.parametrize(
    ("chunk", "error", "says"),
    [
        (
            np.zeros((80, 9), np.float32),
            ds.ShapeError,
            r"shape (16, L) and type float32, got (80, 9) and float32 (",
        ),
        (np.zeros((9, 16), np.float32), ds.ShapeError, r"got (9, 16) and float32; its transpose fits, chunk.T"),
        (
            np.zeros((1, 16, 9), np.float32),
            ds.ShapeError,
            r"got (1, 16, 9) and float32; a chunk is of one stream, without the batch: chunk[0]",
        ),
        (
            np.zeros((16, 9), np.int16),
            ds.DTypeError,
            r"and int16; 16-bit samples become what is expected by chunk.as",
        ),
        (np.zeros((16, 9), complex), ds.DTypeError, r"type float32, got (16, 9) and complex128 ("),
    ],
)
def test_chunks_of_an_engine(engine, chunk, error, says):
    for call in (lambda: engine.step({"anna": chunk}, sos="anna"), lambda: engine.stream("anna").step(chunk)):
        with pytest.raises(error, match=rf"^input x: expected an array of .*{re.escape(says)}") as caught:
            call()
        assert caught.value.ids == ("anna",)
    assert not engine.ids


def test_batches_of_an_engine(engine):
    with pytest.raises(
        ds.ShapeError, match=re.escape("input x: expected an array of shape (1, 16, L) and type float32")
    ):
        engine.step_batch(["anna"], noise(1, 80, 9), sos=True)
    out = np.zeros((1, 8, 7), np.float32)
    with pytest.raises(ds.ShapeError, match=re.escape("out: output 0: expected an array of shape (1, 16, L)")):
        engine.step_batch(["anna"], noise(1, 16, 9), sos=True, out=out)


@pytest.mark.parametrize("flags", [{"sos": True}, {"sos": "anna", "eos": True}])
def test_flags_that_are_no_ids(engine, flags):
    with pytest.raises(
        ds.StreamIdError, match=r'expected the ids of the streams .* as in sos="anna" or .*, got True'
    ):
        engine.step({"anna": noise(16, 9)}, **flags)


def test_what_step_takes(engine):
    for chunks in (noise(16, 9), [noise(16, 9)]):
        with pytest.raises(
            TypeError, match=r"takes a dict of arrays by id, as in engine\.step\(\{'anna': chunk\}"
        ):
            engine.step(chunks, sos="anna")
    torch = pytest.importorskip("torch")
    with pytest.raises(
        ds.DTypeError, match=r"a tensor that requires grad; give t\.detach\(\)\.numpy\(\) .*'anna'"
    ):
        engine.step({"anna": torch.ones(16, 9, requires_grad=True)}, sos="anna")
    with pytest.raises(
        ds.ModeError, match=r"an engine takes StreamTensors of NumPy arrays, or arrays by step\(\)"
    ):
        engine(torch.ones(1, 16, 9))


# ---------------------------------------------------------------------- advice
def test_what_does_not_stream(front):
    """An operation that mixes streams, of which nobody has said how it streams: what to do is what can be done."""

    def turned(library):
        class Turned(library.Module):
            def forward(self, x):
                return x.roll(1, 0)

        return Turned()

    with pytest.raises(ds.NotStreamableError, match=r"not among the operations that stream; keep streams apart"):
        front(turned, noise(16, 9))


@pytest.mark.parametrize("library", [Native, Torch])
def test_advice_for_attention(library):
    layer = library().library.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with pytest.raises(ds.NotStreamableError, match=r"say what it sees: .* or context= with a ds\.Context, or"):
        ds.compile(layer, ("B", "L", 8))
    assert ds.compile(layer, ("B", "L", 8), context=ds.Context(left=3)).receptive_field == 4
    with pytest.raises(TypeError, match=r"context: expected a ds\.Context, or a dict of them by path, got int"):
        ds.compile(layer, ("B", "L", 8), context=3)


def test_whole_numbers_and_layers_without_shapes():
    with pytest.raises(ds.DTypeError, match=rf'^embedding at {HERE}.*expected an int64 tensor.* dtype="int64"$'):
        ds.compile(nn.Embedding(10, 4).eval(), ("B", "L"))
    torch = pytest.importorskip("torch")
    with pytest.raises(ds.ModeError, match=r"^weight has no shape yet: call the model once"):
        ds.compile(torch.nn.LazyConv1d(8, 3).eval(), ("B", 4, "L"))


def of_torch(forward):
    """A torch module of a function."""
    torch = pytest.importorskip("torch")
    return type("Model", (torch.nn.Module,), {"forward": lambda self, x: forward(torch, x)})()


@pytest.mark.parametrize(
    ("forward", "error", "says"),
    [
        (
            lambda torch, x: x ** x.size(2),
            ds.DreamStreamError,
            r"^the length of a stream .* operand of pow beside",
        ),
        (
            lambda torch, x: torch.where(x > 0),
            ds.NotStreamableError,
            r"^torch\.where of a condition alone at HERE",
        ),
        (
            lambda torch, x: x[x > 0],
            ds.NotStreamableError,
            "^a result of elements that a stream of bools picks, at HERE.*: which frames it picks",
        ),
        (
            lambda torch, x: x[x > 0].sum(),
            ds.NotStreamableError,
            "^an operation of elements that a stream of bools picks, at HERE",
        ),
        (
            lambda torch, x: torch.where(x > 0, x, x[x > 0].numel()),
            ds.NotStreamableError,
            "^the number of elements that a stream of bools picks, at HERE",
        ),
        (
            lambda torch, x: x.clone().__setitem__(x > 0, x[x < 0]),
            ds.NotStreamableError,
            r"^a write by other bools of elements .* at HERE.*\(m = y < 0; y\[m\] \*= 2\)",
        ),
        (
            lambda torch, x: x[..., : x.size(2) // 2],
            ds.StreamMismatchError,
            "^cut at HERE.*: input 0 has rate 1/1",
        ),
        (lambda torch, x: torch.complex(x, x).view(-1), ds.DreamStreamError, "is one dimension|complex stream"),
    ],
)
def test_what_functions_of_torch_refuse(forward, error, says):
    torch = pytest.importorskip("torch")
    stream = ds.stream_tensor([torch.zeros(16, 9)], ids="anna", sos=True)
    for call in (
        lambda: ds.patch_module(of_torch(forward)).online()(stream),
        lambda: ds.compile(of_torch(forward), ("B", 16, "L")),
    ):
        with pytest.raises(error, match=says.replace("HERE", HERE)) as caught:
            call()
        assert caught.type.__name__ in ds.errors.__all__


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        (lambda torch, x: (x, x.shape[0]), "returned the number of streams that is no stream"),
        (lambda torch, x: None, "returned None that is no stream"),
        (lambda torch, x: (x, 3), "returned a value of type int that is no stream"),
    ],
)
def test_what_no_engine_returns(forward, says):
    with pytest.raises(ds.CaptureError, match=says) as caught:
        ds.compile(of_torch(forward), ("B", 16, "L"))
    assert caught.type.__name__ == "CaptureError"


def test_a_cache_by_hand(eager):
    class Cached(eager.library.Module):
        def __init__(self):
            super().__init__()
            self.last = 0

        def forward(self, x):
            y, self.last = x + self.last, x[..., -1:]
            return y

    model = ds.patch_module(Cached().eval()).online()
    with pytest.raises(ds.NotStreamableError, match=rf"last keeps frames, at {HERE}.*take earlier frames from"):
        model(ds.stream_tensor([eager.given(noise(4, 5))], ids="anna", sos=True))
    assert model.last == 0


def test_a_number_that_each_call_changes(eager):
    """A warning names it where something is computed of it, once; what is counted for a log is left alone."""

    class Counting(eager.library.Module):
        def __init__(self):
            super().__init__()
            self.n = self.logged = 0
            self.rates = {"now": 1.0}

        def forward(self, x):
            self.n += 1
            self.rates["now"] *= 0.5
            self.logged = self.logged + 1
            if self.logged % 2:
                print(self.logged)
            return x * self.n * self.rates["now"]

    model = ds.patch_module(Counting().eval()).online()
    chunk = [eager.given(noise(4, 5))]
    model(ds.stream_tensor(chunk, ids="anna", sos=True))
    with pytest.warns(StreamWarning) as caught:
        model(ds.stream_tensor(chunk, ids="anna"))
        model(ds.stream_tensor(chunk, ids="anna"))
    told = sorted(str(each.message) for each in caught)
    assert [re.match(rf"(n|rates) holds another number after each call, at {HERE}", x)[1] for x in told] == [
        "n", "rates",
    ]  # fmt: skip


def test_a_cache_by_hand_behind_methods(eager):
    """Where no function is seen to read what it assigns, the next call that reads it is refused."""

    class Cached(eager.library.Module):
        def __init__(self):
            super().__init__()
            self.last = 0

        def keep(self, last):
            self.last = last

        def forward(self, x):
            y = x + self.last
            self.keep(x[..., -1:])
            return y

    model = ds.patch_module(Cached().eval()).online()
    model(ds.stream_tensor([eager.given(noise(4, 5))], ids="anna", sos=True))
    assert model.last == 0
    with pytest.raises(
        ds.ModeError, match=rf"at {HERE}.*a stream of a forward that has returned; keep none by hand"
    ):
        model(ds.stream_tensor([eager.given(noise(4, 5))], ids="anna"))
    assert model.last == 0


def test_what_verify_takes():
    with pytest.raises(TypeError, match="verify takes a model and the engine made of it, got tuple"):
        ds.verify(model_of(nn, conv), ("B", 16, "L"))


def test_a_length_that_is_returned_is_verified():
    engine = ds.compile(of_torch(lambda torch, x: {"y": x, "n": x.size(2)}), ("B", 16, "L"))
    assert engine.step({"anna": noise(16, 9)}, sos="anna", eos="anna")["anna"]["n"] == 9


# ---------------------------------------------------------------------- a clone that was not built
def test_a_clone_takes_the_installed_engine(tmp_path, monkeypatch):
    """Where versions are equal; else it says what to do."""
    built = Path(ds.__file__).parent
    installed, here = tmp_path / "site" / "dreamstream", tmp_path / "clone" / "dreamstream"
    for folder in (installed, here, installed / "include", here.parent / "csrc" / "include"):
        folder.mkdir(parents=True, exist_ok=True)
    core = Path(ds._core.__file__)
    (installed / core.name).symlink_to(core)
    for folder in (installed, here):
        (folder / "_core.pyi").write_text((built / "_core.pyi").read_text())
    headers = installed / "include" / "dreamstream.h", here.parent / "csrc" / "include" / "dreamstream.h"
    for header in headers:
        header.write_text('#define DS_VERSION_STRING "0.1.0"\n')
    monkeypatch.setattr(sys, "path", [str(here.parent), str(installed.parent)])
    path = [str(here)]
    clone.find_core(here, path)
    assert path == [str(here), str(installed)]
    headers[1].write_text('#define DS_VERSION_STRING "0.2.0"\n')
    with pytest.raises(
        ImportError, match=rf"{installed} is of another version: run `pip install -e \.` in {here.parent}"
    ):
        clone.find_core(here, [str(here)])
    monkeypatch.setattr(sys, "path", [str(here.parent)])
    with pytest.raises(
        ImportError, match=r"no compiled engine for Python 3\.\d+, and none is installed: run `pip"
    ):
        clone.find_core(here, [str(here)])


def test_an_engine_that_is_older_than_its_sources(tmp_path):
    """Where it was compiled in the folder itself; one that is installed elsewhere has none beside it."""
    here, source = tmp_path / "clone" / "dreamstream", tmp_path / "clone" / "csrc" / "base" / "floats.h"
    core = here / Path(ds._core.__file__).name
    for file in (source, core):
        file.parent.mkdir(parents=True)
        file.touch()
    os.utime(core, ns=(5 * 10**9, 5 * 10**9))
    os.utime(source, ns=(4 * 10**9, 4 * 10**9))
    clone.find_core(here, [str(here)])
    os.utime(source, ns=(6 * 10**9, 6 * 10**9))
    with pytest.raises(ImportError, match=rf"{source} has changed .*: run `python setup\.py build_ext --inplace`"):
        clone.find_core(here, [str(here)])
    clone.find_core(tmp_path / "elsewhere", [str(here)])


@pytest.mark.parametrize("asked", ["ds.torch", "ds.export.torchscript(ds.nn.ReLU(), ('B', 'L'), 'x')"])
def test_without_torch(asked):
    code = f"import sys; sys.modules['torch'] = None; import dreamstream as ds; {asked}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: dreamstream.torch is the bridge to PyTorch, which is not installed: pip")


def test_import_in_a_clone_is_one_sentence(tmp_path):
    source = Path(ds.__file__).parent
    ignored = ["*.so", "__pycache__", "_openblas", "include", "lib"]
    shutil.copytree(source, tmp_path / "dreamstream", ignore=shutil.ignore_patterns(*ignored))
    command = [sys.executable, "-S", "-c", "import dreamstream"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={})
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and last.startswith(
        f"ImportError: {tmp_path / 'dreamstream'} has no compiled engine"
    )


def short_pieces(library):
    class Short(library.Module):
        def forward(self, x):
            if x.size(2) == 1:
                return x + 1
            return x * min(x.size(2), 60)

    return Short()


@pytest.mark.parametrize("library", ["dreamstream", "torch"])
def test_what_is_refused_at_the_end_names_the_line(library):
    """Eager, in an engine, and where an engine is compared with its model."""
    torch = pytest.importorskip("torch") if library == "torch" else None
    make = (lambda: model_of(torch.nn, short_pieces)) if torch else (lambda: model_of(nn, short_pieces))
    online, engine = ds.patch_module(make()).online(), ds.compile(make(), ("B", 3, "L"))
    arrays = noise(3, 1), noise(3, 9)
    for array, what in zip(arrays, ("1 must not equal 1", "9 must be at least 60")):
        given = torch.from_numpy(array) if torch else array
        for call, argument in (
            (online, ds.stream_tensor([given], ids="anna", sos=True, eos=True)),
            (lambda chunks: engine.step(chunks, ["anna"], ["anna"]), {"anna": array}),
        ):
            with pytest.raises(ds.ShapeError, match=what) as raised:
                call(argument)
            assert re.search(rf"encoder\.0\b.* at {HERE}:\d+ in forward", str(raised.value)), raised.value
    engine.step({"anna": noise(3, 70)}, ["anna"], ["anna"])
    with pytest.raises(ds.ShapeError, match=f"nothing could be compared: encoder.0 at {HERE}:.*at least 60"):
        ds.verify(make(), engine, lengths=[5])
