"""Files of other programs in the place of a model or of weights: it is said what they are and how to go on."""

import io
import random
import struct
import zipfile

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import cli, nn
from dreamstream.file_kinds import MARKS, kind_of_file

SPEC = ("B", 2, "L")


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"some bytes" * 9)
    return file.getvalue()


def array(save, *args, **kwargs) -> bytes:
    file = io.BytesIO()
    save(file, *args, **kwargs)
    return file.getvalue()


def onnx_model(producer: bytes = b"tool", graph: bytes = b"\x0a\x03abc" * 50) -> bytes:
    """The fields of a ModelProto: its version, who made it, the graph, the operator sets."""
    field = {2: producer, 7: graph, 8: b"\x10\x11"}
    parts = [bytes([n << 3 | 2]) + varint(len(text)) + text for n, text in field.items() if text]
    return b"\x08\x08" + b"".join(parts)


def varint(n: int) -> bytes:
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def snapshot() -> bytes:
    engine = ds.compile(nn.Conv1d(2, 2, 3).eval(), SPEC)
    engine.step({"anna": np.zeros((2, 4), np.float32)}, sos="anna")
    return engine.snapshot("anna")


TAR = b"model_weights.ckpt".ljust(257, b"\0") + b"ustar\0" + bytes(300)
COMPILES = "ds.compile(model, spec).save"
FILES = {
    "onnx": (onnx_model(), "an ONNX model", COMPILES),
    "onnx without producer": (onnx_model(b""), "an ONNX model", COMPILES),
    "onnx of a large graph": (onnx_model(graph=bytes(9000)), "an ONNX model", COMPILES),
    "onnx, cut": (onnx_model(graph=bytes(9000))[:5000], "an ONNX model that is cut short", "fetch it again"),
    "a graph of tensorflow": (b"\x0a\x04\x0a\x02ab" * 9, "a protobuf file", COMPILES),
    "torchscript": (zipped("m/data.pkl", "m/code/a.py", "m/constants.pkl"), "a TorchScript archive", COMPILES),
    "state dict": (zipped("m/data.pkl", "m/data/0"), "what torch.save wrote, a zip archive", "--weights FILE"),
    "state dict, cut": (zipped("m/data.pkl")[:60], "torch.save wrote, a zip archive that is cut", "fetch it"),
    "older state dict": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "a pickle", "--weights"),
    "torch.export": (zipped("m/archive_format", "m/models/model.json"), "a program of torch.export", COMPILES),
    "keras": (zipped("metadata.json", "config.json", "model.weights.h5"), "a Keras model", COMPILES),
    "pickle": (b"\x80\x04\x95\n\0\0\0\0\0\0\0}\x94.", "a Python pickle", "a pickle can run anything"),
    "npy": (array(np.save, np.zeros(3)), "a NumPy array (.npy)", COMPILES),
    "npz": (array(np.savez, a=np.zeros(3)), "an archive of NumPy arrays (.npz)", COMPILES),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(90), "an HDF5 file", COMPILES),
    "gguf": (b"GGUF\3\0\0\0" + bytes(90), "a GGUF file", COMPILES),
    "tensorflow lite": (b"\x1c\0\0\0TFL3" + bytes(90), "a TensorFlow Lite model", COMPILES),
    "onnx runtime": (b"\x1c\0\0\0ORTM" + bytes(90), "an ONNX Runtime model", COMPILES),
    "gzip": (b"\x1f\x8b\x08\0" + bytes(90), "a gzip archive", "unpack it"),
    "tar": (TAR, "a tar archive", "unpack it"),
    "nemo": (b"./model_config.yaml".ljust(100, b"\0") + TAR[100:], "a tar archive of NeMo", "unpack it"),
    "zip": (zipped("readme.txt"), "a zip archive", "unpack it"),
    "wav": (b"RIFF\x24\0\0\0WAVEfmt " + bytes(90), "a WAV recording", "dreamstream run MODEL AUDIO"),
    "flac": (b"fLaC\0\0\0\x22" + bytes(90), "a FLAC recording", "dreamstream run MODEL AUDIO"),
    "web page": (b"\n<!DOCTYPE html>\n<html><body>404</body></html>", "a web page", "fetch it again"),
    "git lfs": (b"version https://git-lfs.github.com/spec/v1\noid 12\n", "a pointer of Git LFS", "git lfs pull"),
    "empty": (b"", "an empty file", "fetch it again"),
    "zeros": (bytes(5000), "a file of zeros", "fetch it again"),
    "json": (b'{"model_type": "llama"}', "a JSON file of another program", "dreamstream convert"),
    "xml": (b'<?xml version="1.0"?>\n<net name="x"/>', "an XML file of another program", "dreamstream convert"),
    "python": (b"import torch\n\nclass Net(torch.nn.Module):\n    pass\n", "Python source", "FILE.py:FUNCTION"),
    "text": (b"a line\nand another\n", "a text", "dreamstream convert"),
    "snapshot": (snapshot(), "a snapshot of a stream", "engine.restore"),
}  # fmt: skip


@pytest.fixture(params=FILES, ids=[name.replace(" ", "_") for name in FILES])
def other(request, tmp_path):
    """The path of a file, its content, and what is said of it; the suffix is that of a model of ours."""
    content, *says = FILES[request.param]
    path = tmp_path / "m.dsm"
    path.write_bytes(content)
    return path, content, says


def test_load_says_what_a_file_is(other):
    path, content, says = other
    for source in (path, str(path), content, io.BytesIO(content)):
        with pytest.raises(ds.FormatError) as caught:
            ds.load(source)
        assert all(words in str(caught.value) for words in says), str(caught.value)
        assert str(caught.value).startswith(str(path) if source in (path, str(path)) else "this is ")
        assert "byte 0" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".dsm", ".onnx", ".bin", ""])
def test_each_command_says_what_a_file_is(other, tmp_path, capsys, suffix):
    path, _, says = other
    path = path.rename(tmp_path / f"m{suffix}")
    out = tmp_path / "out.dsm"
    for args in (("info", path), ("run", path, "x.wav"), ("bench", path), ("convert", path, out)):
        assert cli.main(list(map(str, args))) == 1
        said = capsys.readouterr().err
        assert all(words in said for words in says) and str(path) in said and said.count("\n") == 1, said
    assert not out.exists()


def test_load_state_dict_says_what_a_file_is(other):
    path, _, (what, _) = other
    with pytest.raises(ds.FormatError, match="no safetensors file") as caught:
        nn.Conv1d(2, 2, 3).load_state_dict(path)
    assert str(caught.value).startswith(f"{path} is ") and what in str(caught.value)
    if "torch.save" in str(caught.value) and "cut" not in what:
        assert "torch.load(FILE, weights_only=True) gives what load_state_dict takes" in str(caught.value)


def test_weights_without_a_graph(tmp_path):
    pytest.importorskip("safetensors")
    from safetensors.numpy import save_file

    layer = nn.Conv1d(2, 2, 3).eval()
    path = tmp_path / "weights.dsm"
    save_file({name: tensor.numpy() for name, tensor in layer.state_dict().items()}, path)
    for source in (path, path.read_bytes()):
        with pytest.raises(ds.FormatError, match=r"without it holds weights, and no graph.*FILE\.py:FUNCTION"):
            ds.load(source)
    assert not layer.load_state_dict(path).missing_keys


def test_what_torch_writes(tmp_path):
    torch = pytest.importorskip("torch")
    layer = torch.nn.Conv1d(2, 2, 3)
    files = {
        "a TorchScript archive": lambda path: torch.jit.script(layer).save(path),
        "what torch.save wrote, a zip": lambda path: torch.save(layer.state_dict(), path),
        "what torch.save wrote, in its older form": lambda path: torch.save(
            layer.state_dict(), path, _use_new_zipfile_serialization=False
        ),
    }
    for what, write in files.items():
        write(str(tmp_path / "m.pt2"))
        with pytest.raises(ds.FormatError, match=what):
            ds.load(tmp_path / "m.pt2")


def test_an_export_of_ours(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnx")
    path = tmp_path / "m.bin"
    ds.export.onnx(torch.nn.Conv1d(2, 2, 3).eval(), SPEC, str(path), rows=1, frames=4)
    with pytest.raises(ds.FormatError, match="an ONNX model"):
        ds.load(path)


def test_weights_of_torch_whatever_their_suffix(tmp_path):
    torch = pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(
        "import torch\n\ndef net():\n    return torch.nn.Conv1d(2, 2, 3).eval(), ('B', 2, 'L'), 100\n"
    )
    layer = torch.nn.Conv1d(2, 2, 3)
    source, out = f"{tmp_path}/net.py:net", str(tmp_path / "out.dsm")
    for older, protocol in ((False, 2), (True, 2), (True, 3)):
        options = {"_use_new_zipfile_serialization": not older, "pickle_protocol": protocol}
        torch.save(layer.state_dict(), tmp_path / "w", **options)
        assert cli.main(["convert", source, out, "--weights", f"{tmp_path}/w"]) == 0
        x = torch.randn(2, 9)
        y = ds.load(out).step({"anna": x.numpy()}, sos="anna", eos="anna")["anna"]
        assert np.allclose(y, layer(x[None])[0].detach().numpy(), atol=1e-6)


def test_a_file_of_python_as_weights(tmp_path, capsys):
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(
        "import torch\n\ndef net():\n    return torch.nn.Conv1d(2, 2, 3).eval(), ('B', 2, 'L'), 100\n"
    )
    (tmp_path / "w.onnx").write_bytes(onnx_model())
    command = ["convert", f"{tmp_path}/net.py:net", f"{tmp_path}/out.dsm", "--weights", f"{tmp_path}/w.onnx"]
    assert cli.main(command) == 1
    assert "w.onnx is an ONNX model, no safetensors file" in capsys.readouterr().err


def test_a_checkpoint_holds_the_state_dict():
    layer = nn.Conv1d(2, 2, 3)
    with pytest.raises(ds.FormatError, match="what stands under state_dict"):
        layer.load_state_dict({"state_dict": layer.state_dict(), "epoch": 3})


def test_a_folder(tmp_path, capsys):
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01")
    for args in (("info", tmp_path), ("run", tmp_path, "x.wav"), ("bench", tmp_path)):
        assert cli.main(list(map(str, args))) == 1
        said = capsys.readouterr().err
        assert f"{tmp_path}: is a folder, a TensorFlow SavedModel, no model file" in said and COMPILES in said
    (tmp_path / "a.dsm").write_bytes(b"")
    with pytest.raises(IsADirectoryError, match=r"it holds a\.dsm"):
        ds.load(tmp_path)


def test_ours_damaged_are_ours(tmp_path):
    """Their reader names the place."""
    engine = ds.compile(nn.Conv1d(2, 2, 3).eval(), SPEC)
    for suffix, damage in ((".json", b"}}"), (".xml", b"<tensors>")):
        engine.save(tmp_path / f"m{suffix}")
        content = (tmp_path / f"m{suffix}").read_bytes().replace(damage, b"<t>", 1)
        with pytest.raises(ds.FormatError, match="the text of a model"):
            ds.load(content)


@pytest.mark.parametrize("call", [lambda m: ds.compile(m, SPEC), ds.patch_module, lambda m: ds.audit(m, SPEC)])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("m.onnx", "ds.load reads what Engine.save wrote"),
        ({"weight": np.zeros(3)}, "a module takes it by load_state_dict"),
        (nn.Conv1d, r"make one of the class: Conv1d\(\)"),
        (b"bytes", "got bytes$"),
    ],
)
def test_what_is_no_module(call, given, says):
    with pytest.raises(TypeError, match=says):
        call(given)


def test_load_of_a_module():
    with pytest.raises(TypeError, match=r"ds\.compile\(model, spec\) makes an engine of it"):
        ds.load(nn.Conv1d(2, 2, 3))
    with pytest.raises(TypeError, match=r"ds\.load\(path\)"):
        ds.Engine("m.onnx")


def test_marks_do_not_hide_each_other():
    for n, (at, mark, kind) in enumerate(MARKS):
        first = next(i for i, (a, m, _) in enumerate(MARKS) if (bytes(at) + mark).startswith(m, a))
        assert n == first, kind.what


@pytest.mark.fast
def test_any_bytes_are_told():
    """Damaged files of all kinds never raise; noise is hardly ever taken for something."""
    rng = random.Random(0)
    contents = [content for content, *_ in FILES.values()]
    for _ in range(3000):
        content = bytearray(rng.choice(contents))
        for _ in range(rng.choice((0, 1, 9)) if content else 0):
            content[rng.randrange(len(content))] = rng.randrange(256)
        kind_of_file(bytes(content[: rng.randrange(len(content) + 1)]))
    noise = [kind_of_file(rng.randbytes(5000)) for _ in range(2000)]
    assert sum(kind is not None for kind in noise) < 10
    assert kind_of_file(struct.pack("<Q", 2) + b"{}").what == "a safetensors file"
