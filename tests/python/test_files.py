"""Model files from Python: to and from paths and file objects, the same bytes and bits, what is refused."""

import contextlib
import errno
import io
import json
import os
import pathlib
import stat
import subprocess
import sys
import textwrap
from collections import namedtuple

import numpy as np
import pytest
from nets import net
from same_bits import answers, content

import dreamstream as ds
from dreamstream import container, nn
from dreamstream.cli import main as cli
from dreamstream.engine import files
from dreamstream.engine.text import KEY, parts_of, to_json, to_xml
from dreamstream.errors import ClosedError, FormatError
from dreamstream.models import SileroVAD

ROOT = pathlib.Path(__file__).resolve().parents[2]

Pair = namedtuple("Pair", ["first", "second"])


class Two(nn.Module):
    """Two inputs of two rates, three outputs of three rates, in a dict, a list and a tuple."""

    def __init__(self):
        super().__init__()
        ds.manual_seed(3)
        self.sound = nn.Conv1d(4, 6, 5, stride=2, padding=2)
        self.lips = nn.Conv1d(3, 6, 3, padding=1)
        self.rnn = nn.GRU(6, 5, batch_first=True)

    def forward(self, sound, lips):
        both = self.sound(sound) + self.lips(lips)
        y, h = self.rnn(both.transpose(1, 2))
        return {"frames": [y, (both[:, :, ::2],)], "last": h}


SPEC = {"sound": ("B", 4, "L"), "lips": ("B", 3, "L")}


def two(**options):
    return ds.compile(Two().eval(), SPEC, rate={"sound": 100, "lips": 50}, verify=False, **options)


@pytest.fixture(scope="module")
def whole():
    return content(two())


def small(seed=1):
    ds.manual_seed(seed)
    return ds.compile(nn.Conv1d(3, 4, 5, padding=2).eval(), ("B", 3, "L"), rate=100)


# ---------------------------------------------------------------------- there and back
def test_two_inputs_two_rates_three_outputs(tmp_path, whole):
    engine, path = two(), tmp_path / "two.dsm"
    engine.save(path)
    loaded = ds.load(path)
    assert path.read_bytes() == whole and content(loaded) == whole
    assert loaded.by_name and [s.name for s in loaded.inputs] == ["sound", "lips"]
    assert [(o.name, o.rate) for o in loaded.outputs] == [("frames.0", 50), ("frames.1.0", 25), ("last", 0)]
    assert (loaded.inputs, loaded.outputs) == (engine.inputs, engine.outputs)
    assert answers(loaded) == answers(engine)
    out = loaded.step({"a": {"sound": np.ones((4, 8)), "lips": np.ones((3, 4))}}, "a", "a")["a"]
    assert list(out) == ["frames", "last"] and isinstance(out["frames"], list)
    assert isinstance(out["frames"][1], tuple) and out["last"].shape[0] == 1


def test_stream_tensors_and_verify(whole):
    loaded, model = ds.load(whole), Two().eval()
    assert ds.verify(model, loaded).ok
    rng = np.random.default_rng(0)
    sound, lips = (
        ds.stream_tensor([rng.standard_normal((f, n), dtype=np.float32)], ids=["a"], sos=True, eos=True, rate=r)
        for f, n, r in ((4, 20, 100), (3, 10, 50))
    )
    mine, theirs = loaded(sound, lips), two()(sound, lips)
    for a, b in zip([*mine["frames"][:1], mine["last"]], [*theirs["frames"][:1], theirs["last"]]):
        assert np.array_equal(a["a"], b["a"]) and a.names == b.names


def test_the_same_bytes_in_every_process(whole):
    script = """
        import sys
        sys.path.insert(0, {here!r}), sys.path.insert(0, {helpers!r})
        import test_files
        sys.stdout.buffer.write(test_files.content(test_files.two()))
    """
    script = textwrap.dedent(script).format(
        here=os.path.dirname(__file__), helpers=str(ROOT / "tests" / "helpers")
    )
    for seed in "0", "77":
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout == whole


def test_silero():
    model = SileroVAD().eval()
    given = os.environ.get("DREAMSTREAM_TEST_DATA")
    weights = pathlib.Path(given or ".") / "silero_vad_16k.safetensors"
    if weights.exists():
        model.load_state_dict(weights)
    engine = ds.compile(model, ("B", "L"), rate=16000)
    loaded = ds.load(content(engine))
    names = set(model.state_dict())
    assert names <= set(weight_names(loaded))
    assert answers(loaded, most=3000) == answers(engine, most=3000)
    assert ds.verify(model, loaded).ok and (loaded.delay, loaded.rate) == (511, 16000)


def weight_names(engine):
    return [tensor.name for tensor in container.read(content(engine))[0]]


def test_names_of_weights():
    """What is a parameter is called as in the state dict, once where it is shared; the file opens elsewhere."""

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.b = nn.Linear(3, 3)
            self.b.weight = self.a.weight
            self.scale = nn.Parameter(np.ones(3, np.float32))

        def forward(self, x):
            return self.b(self.a(self.a(x))) * self.scale + 2 * x

    model = Shared().eval()
    engine = ds.compile(model, ("B", "L", 3))
    names = weight_names(engine)
    assert names[:4] == ["a.weight", "a.bias", "b.bias", "scale"] and len(names) == len(set(names)) == 5
    safetensors = pytest.importorskip("safetensors.numpy")
    for name, array in safetensors.load(content(engine)).items():
        if name in model.state_dict():
            assert np.array_equal(array, model.state_dict()[name].numpy())


def test_named_tuples_become_tuples():
    engine = ds.compile(net(nn, lambda self, x: Pair(x + 1, x * 2)), ("B", "L"))
    x = np.ones(3, np.float32)
    assert type(engine.step({"a": x}, "a")["a"]) is Pair
    out = ds.load(content(engine)).step({"a": x}, "a")["a"]
    assert type(out) is tuple and np.array_equal(out[1], x * 2)


def test_outputs_with_awkward_names():
    engine = ds.compile(
        net(nn, lambda self, x: {"": x + 1, 'a"\\\n\x01é\U0001f600': [x * 2, {"list": (x,)}], "dict": x - 1}),
        ("B", "L"),
    )
    for form in "dsm", "json", "xml":
        loaded = ds.load(content(engine, form))
        assert [o.name for o in loaded.outputs] == [o.name for o in engine.outputs]
        assert answers(loaded) == answers(engine)


def test_keys_that_are_no_str():
    engine = ds.compile(net(nn, lambda self, x: {1: x + 1}), ("B", "L"))
    with pytest.raises(FormatError, match="the key 1; a model file holds dicts whose keys are str"):
        engine.save(io.BytesIO())


def test_keys_that_are_no_text():
    class Odd(nn.Module):
        def __init__(self, key):
            super().__init__()
            self.key = key

        def forward(self, x):
            return {self.key: x + 1}

    for key in "\ud800", "a\0b":
        engine = ds.compile(Odd(key), ("B", "L"))
        with pytest.raises(FormatError):
            engine.save(io.BytesIO())


def test_options(whole):
    engine = ds.load(whole, threads=3, max_streams=2, blas=False)
    assert engine.threads == 3 and not engine._core.blas
    engine.step({}, sos=["a", "b"])
    with pytest.raises(ds.StreamLimitError):
        engine.step({}, sos=["c"])
    assert answers(ds.load(whole, threads=3)) == answers(ds.load(whole))
    for wrong in {"threads": 0}, {"threads": "2"}, {"max_streams": 0}:
        with pytest.raises(ValueError, match="a number from 1"):
            ds.load(whole, **wrong)


def test_skew_and_openblas_are_kept():
    engine = two(skew=3)
    loaded = ds.load(content(engine))
    loaded.step({"a": {"sound": np.ones((4, 7))}}, "a")
    with pytest.raises(ds.StreamMismatchError):
        two().step({"a": {"sound": np.ones((4, 7))}}, "a")
    if not ds.config.config()["blas"]:
        return
    engine = two(blas=True)
    assert ds.load(content(engine))._core.blas and content(ds.load(content(engine))) == content(engine)
    env = {**os.environ, "DREAMSTREAM_BLAS": "none"}  # where there is none, own kernels do it
    script = (
        "import sys, dreamstream as ds; e = ds.load(sys.stdin.buffer); print(e._core.blas); e.save('/dev/stderr')"
    )
    done = subprocess.run([sys.executable, "-c", script], input=content(engine), capture_output=True, env=env)
    assert done.stdout == b"False\n" and done.stderr == content(engine)


# ---------------------------------------------------------------------- paths
def test_suffixes_and_formats(tmp_path, whole):
    engine = ds.load(whole)
    for name, begin in ("m.dsm", whole[:9]), ("m.json", b'{"dream'), ("m.XML", b"<?xml"), ("m", whole[:9]):
        engine.save(str(tmp_path / name))
        assert (tmp_path / name).read_bytes().startswith(begin)
        assert content(ds.load(tmp_path / name)) == whole
    engine.save(tmp_path / "m.dsm", format="xml")
    assert (tmp_path / "m.dsm").read_bytes().startswith(b"<?xml")
    assert content(ds.load(tmp_path / "m.dsm")) == whole
    with pytest.raises(ValueError, match="format is one of dsm, json, xml, got 'onnx'"):
        engine.save(tmp_path / "other", format="onnx")
    assert not (tmp_path / "other").exists()


def test_a_file_is_replaced_while_it_is_mapped(tmp_path):
    path = tmp_path / "m.dsm"
    first, second = small(1), small(2)
    first.save(path)
    path.chmod(0o640)
    loaded = ds.load(path)
    os.symlink(path, tmp_path / "link")
    second.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and path.stat().st_mode & 0o777 == 0o640
    assert answers(loaded) == answers(first) and answers(ds.load(path)) == answers(second)
    assert content(loaded) == content(first)
    loaded.save(path)
    loaded.save(path)  # onto the file that it was mapped from
    assert answers(ds.load(path)) == answers(first)
    path.unlink()
    assert answers(loaded) == answers(first)
    assert sorted(os.listdir(tmp_path)) == ["link"]


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.dsm"
    small(1).save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(os, "fsync", full)
        small(2).save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["m.dsm"]


def test_paths_that_can_not_be(tmp_path):
    engine = small()
    with pytest.raises(FileNotFoundError, match=r"nowhere/m\.dsm"):
        engine.save(tmp_path / "nowhere" / "m.dsm")
    with pytest.raises(IsADirectoryError):
        engine.save(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"missing\.dsm"):
        ds.load(tmp_path / "missing.dsm")
    with pytest.raises(IsADirectoryError):
        ds.load(tmp_path)
    for wrong in 3, None, ["m.dsm"]:
        with pytest.raises(TypeError, match="expected a path"):
            engine.save(wrong)
        with pytest.raises(TypeError, match="expected a path"):
            ds.load(wrong)


def test_a_pipe(tmp_path, whole):
    os.mkfifo(tmp_path / "pipe")
    script = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"
    with subprocess.Popen([sys.executable, "-c", script, tmp_path / "pipe"], stdin=subprocess.PIPE) as writer:
        writer.stdin.write(whole)
        writer.stdin.close()
        assert content(ds.load(tmp_path / "pipe")) == whole


# ---------------------------------------------------------------------- file objects
class Grudging:
    """Takes and gives few bytes at a time."""

    def __init__(self, data=b""):
        self.data, self.taken = data, bytearray()

    def read(self, n):
        piece, self.data = self.data[: min(n, 1000)], self.data[min(n, 1000) :]
        return piece

    def write(self, piece):
        assert type(piece) is bytes
        self.taken += piece[:777]
        return min(777, len(piece))


@pytest.mark.parametrize("form", ["dsm", "json", "xml"])
def test_objects_that_take_and_give_little(whole, form):
    file = Grudging()
    ds.load(whole).save(file, form)
    assert content(ds.load(Grudging(bytes(file.taken)))) == whole


def test_objects_that_do_not_count(whole):
    taken = []
    ds.load(whole).save(type("Takes", (), {"write": lambda self, piece: taken.append(piece)})())
    assert b"".join(taken) == whole


def test_buffers(whole):
    for source in whole, bytearray(whole), memoryview(whole), io.BytesIO(whole):
        assert content(ds.load(source)) == whole


class Raises:
    def __init__(self, after=0):
        self.after = after

    def write(self, piece):
        raise OSError(errno.ENOSPC, "No space left on device")

    def read(self, n):
        self.after -= 1
        if self.after < 0:
            raise ConnectionResetError("gone")
        return b"x"


def test_objects_that_raise(whole):
    engine = ds.load(whole)
    for form in "dsm", "json", "xml":
        with pytest.raises(OSError, match="No space left"):
            engine.save(Raises(), form)
    for after in 0, 5:
        with pytest.raises(ConnectionResetError, match="gone"):
            ds.load(Raises(after))
    with pytest.raises(TypeError, match='must return bytes \\(open it with "rb"\\), got str'):
        ds.load(io.StringIO("{}"))
    with pytest.raises(TypeError):
        engine.save(io.StringIO())
    for taken in 0, -1, 10**9, "3":
        with pytest.raises(OSError, match=f"took {taken} of"):
            engine.save(type("Odd", (), {"write": lambda self, piece, taken=taken: taken})())
    assert answers(engine) == answers(ds.load(whole))


# ---------------------------------------------------------------------- what is refused
def test_not_a_model(tmp_path):
    path = tmp_path / "m.dsm"
    for wrong in b"", b"x", b"{", b"<", b"[]", b"PK\x03\x04" * 9, b"\x08\0\0\0\0\0\0\0{}      ", b"null":
        path.write_bytes(wrong)
        for source in path, wrong:
            with pytest.raises(FormatError) as error:
                ds.load(source)
            assert (str(path) in str(error.value)) == (source is path)


def test_a_truncated_file(tmp_path):
    path, whole = tmp_path / "m.dsm", content(small())
    for n in range(len(whole)):
        with pytest.raises(FormatError):
            ds.load(whole[:n])
    path.write_bytes(whole[:-1])
    with pytest.raises(FormatError, match=r"m\.dsm"):
        ds.load(path)


def test_every_flipped_bit_is_found():
    """But those in the names of fillers, which say nothing."""
    whole, loaded = content(small()), set()
    filler = whole.index(b".pad.0")
    for at in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        with contextlib.suppress(FormatError):
            assert content(ds.load(damaged)) == whole
            loaded.add(at // 8)
    assert loaded and loaded <= set(range(filler, filler + len(b".pad.0")))


def test_all_of_a_path_is_covered():
    whole = content(
        ds.compile(
            net(nn, lambda self, x: self.layers["a b"](x), layers=nn.ModuleDict({"a b": nn.Linear(3, 2)})),
            ("B", "L", 3),
        )
    )
    assert whole.count(b"layers.a b") > 1
    with pytest.raises(FormatError, match="damaged or was changed"):
        ds.load(whole.replace(b"layers.a b", b"layers.a c"))


@pytest.mark.parametrize("form", ["dsm", "json", "xml"])
def test_weights_edited_on_purpose(tmp_path, form):
    engine, path, out = small(), tmp_path / f"m.{form}", tmp_path / "out.dsm"
    model, marks, tensors = parts_of(content(engine))
    mark = marks["fingerprint"]
    old = next(t for t in tensors if t.name.endswith("bias"))
    values = np.frombuffer(old.data, "<f4") + 1
    changed = [t._replace(data=values.tobytes()) if t is old else t for t in tensors]

    def write(*mark):
        texts = {KEY: json.dumps(model), **{f"{KEY}.fingerprint": m for m in mark}}
        forms = {"dsm": lambda c: [c], "json": to_json, "xml": to_xml}
        path.write_bytes(b"".join(forms[form](container.write(changed, texts))))

    write()  # as files were that had none
    right = content(ds.load(path))
    assert parts_of(right).marks["fingerprint"] != mark
    write(parts_of(right).marks["fingerprint"])
    assert content(ds.load(path)) == right
    write(mark)
    with pytest.raises(FormatError, match=r"the file is damaged or was changed: .* it says \"" + mark):
        ds.load(path)
    assert cli(["convert", str(path), str(out)]) == 1
    assert cli(["convert", "--reseal", str(path), str(out)]) == 0
    assert out.read_bytes() == right


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root alone gives files away")
def test_root_saves_over_the_file_of_another(tmp_path):
    path, link = tmp_path / "m.dsm", tmp_path / "link.dsm"
    link.symlink_to(path)
    for mode in 0o4755, 0o2640, 0o600, 0o6777:
        path.write_bytes(b"")
        os.chown(path, 1234, 4321)
        path.chmod(mode)
        small().save(link)
        seen = path.stat()
        assert (seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)) == (1234, 4321, mode & 0o777)
        assert link.is_symlink() and path.stat().st_size > 0


@pytest.mark.parametrize("error", [errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_saving_over_a_file_whose_owner_is_unknown_here(tmp_path, monkeypatch, error):
    """A container has numbers for some owners only (EINVAL), a file system perhaps none (EPERM, ENOTSUP)."""

    def refuse(*_):
        raise OSError(error, os.strerror(error))

    path, stranger = tmp_path / "m.dsm", os.stat_result
    path.write_bytes(b"old")
    path.chmod(0o664)
    known = os.stat(path)

    def seen(place, *more, **how):
        found = known if os.fspath(place) == os.fspath(path) else os.lstat(place)
        return stranger([*found[:4], 65534, 65534, *found[6:]])

    with monkeypatch.context() as patch:
        patch.setattr(os, "fchown", refuse)
        patch.setattr(files.os, "stat", seen)
        small().save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604 and path.stat().st_size > 100
    with monkeypatch.context() as patch:
        patch.setattr(os, "fchmod", refuse)
        small().save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and os.listdir(tmp_path) == ["m.dsm"]


def test_a_file_system_without_nameless_files(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_has_nameless", lambda folder: False)
    path = tmp_path / "m.dsm"
    for _ in range(2):
        small().save(path)
        assert ds.load(path).fingerprint and os.listdir(tmp_path) == ["m.dsm"]
    with pytest.raises(FormatError), files.replacing(str(path)) as file:
        file.write(b"half")
        raise FormatError("no more")
    assert os.listdir(tmp_path) == ["m.dsm"] and ds.load(path)


KILLED = """
import os, signal, sys, dreamstream as ds
from dreamstream.engine import files
with files.replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="no O_TMPFILE")
def test_a_process_that_is_killed_leaves_nothing(tmp_path):
    path = tmp_path / "m.dsm"
    path.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)])
    assert done.returncode == -9
    assert os.listdir(tmp_path) == ["m.dsm"] and path.read_bytes() == b"old"


def test_what_a_killed_process_left_goes_with_the_next_save(tmp_path, monkeypatch):
    """Where files have names from the start; what another process is just writing stays, and other files' do."""
    named = KILLED.replace("with files", "files._has_nameless = lambda folder: False\nwith files")
    for name in ("m.dsm", "other[1].dsm"):
        subprocess.run([sys.executable, "-c", named, str(tmp_path / name)])
    assert len(os.listdir(tmp_path)) == 2
    monkeypatch.setattr(files, "_has_nameless", lambda folder: False)
    path = tmp_path / "m.dsm"
    with files.replacing(str(path)) as file:
        assert len(os.listdir(tmp_path)) == 2
        (other,) = [
            n for n in os.listdir(tmp_path) if not n.startswith(os.path.basename(files._beginning(str(path))))
        ]
        small().save(path)
        assert sorted(os.listdir(tmp_path)) == sorted([other, os.path.basename(file_of(file)), "m.dsm"])
        file.write(b"new")
    assert sorted(os.listdir(tmp_path)) == sorted([other, "m.dsm"]) and path.read_bytes() == b"new"
    small().save(tmp_path / "other[1].dsm")
    assert sorted(os.listdir(tmp_path)) == ["m.dsm", "other[1].dsm"]


def file_of(file):
    return os.readlink(f"/proc/self/fd/{file.fileno()}")


def test_containers_are_written_alike(whole):
    """In Python as in C, fillers included."""
    tensors, texts = container.read(whole)
    assert container.write(tensors, texts) == whole
    for wrong, says in (
        (tensors[0]._replace(name="a\0b"), "null character"),
        (tensors[0], "a name of its own"),
        (tensors[0]._replace(name=".pad.1"), r"begin with \.pad\."),
        (tensors[0]._replace(name="a", dtype="F31"), "no element type F31"),
        (tensors[0]._replace(name="a", shape=(-1, -len(tensors[0].data) // 4)), r"are no F32 of shape \(-1, -"),
    ):
        with pytest.raises(FormatError, match=says):
            container.write([*tensors, wrong], texts)


def test_structures_of_others(whole):
    """Only lists, tuples and dicts, in the one way that they are written."""
    model, _, tensors = parts_of(whole)
    for wrong in (
        {"list": [0, 1], "dict": {"a": 2}},
        {"set": [0, 1, 2]},
        {"a": 0, "b": 1, "c": 2},
        {"list": {"a": 0, "b": [1, 2]}},
        {"dict": [0, 1, 2]},
        [0, 1],
        [0, 1, 2, 2],
        [0, 1, 2.0],
        [0, 1, None],
    ):
        model["interface"]["structure"] = wrong
        with pytest.raises(FormatError, match="structure"):
            ds.load(container.write(tensors, {KEY: json.dumps(model)}))


def test_a_closed_engine():
    engine = small()
    engine.close()
    with pytest.raises(ClosedError):
        engine.save(io.BytesIO())
