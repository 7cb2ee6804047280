"""The C API as strangers use it: the programs of docs/examples and tests/c/dsm_run.c, compiled against the
installed package by its own flags, give the same bits as Python."""

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
from c_library import LIBRARY, needs_library

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.models import Commands

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "docs" / "examples"
STRICT = ["-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
SPEECH = Path(ds.__file__).parent / "assets" / "speech.wav"
VALGRIND = ["valgrind", "-q", "--error-exitcode=99", "--leak-check=full", "--trace-children=yes"]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

pytestmark = [
    pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the tests are away from the sources"),
    needs_library,
]


# ---------------------------------------------------------------------- programs and models
@functools.cache
def flags():
    """What the package says of itself."""
    command = [sys.executable, "-m", "dreamstream.config", "--cflags", "--libs"]
    return shlex.split(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def build(cc, source, program, *more):
    command = [*cc, *STRICT, str(source), "-o", str(program), "-pthread", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def program(c_build, tmp_path_factory):
    """(name of a source, flags) -> the program, compiled as the guide says."""
    folder, made = tmp_path_factory.mktemp("programs"), {}

    def make(name, *more):
        if (name, more) not in made:
            source = ROOT / "tests" / "c" / name if name == "dsm_run.c" else EXAMPLES / name
            cc = [*c_build.cc(), "-std=c11"]
            if name.endswith(".cpp"):
                cc = [os.environ.get("CXX", "c++"), "-std=c++17"]
                if not shutil.which(cc[0]):
                    pytest.skip("no C++ compiler")
            made[name, more] = folder / f"{Path(name).stem}-{len(made)}"
            build(cc, source, made[name, more], *flags(), *more)
        return made[name, more]

    return make


def run(*command, given=None, status=0, text=True, before=(), **environment):
    """Standard output; where another status is expected, standard error."""
    done = subprocess.run(
        [*before, *map(str, command)], input=given, capture_output=True, text=text, timeout=300,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == status, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout if status == 0 else done.stderr


class Features(nn.Module):
    """Several operators with state on frames of features, two outputs."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(6, 8, 5, stride=2, padding=2)
        self.rnn = nn.LSTM(8, 5, batch_first=True)

    def forward(self, x):
        y, _ = self.rnn(F.relu(self.conv(x)).transpose(1, 2))
        return y, x.mean(2)


class TwoRates(nn.Module):
    """Two inputs, two rates, four outputs: one at each rate, one at the end, one with two axes."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv1d(5, 6, 4, stride=2, padding=1)
        self.mix = nn.Linear(12, 6)
        self.rnn = nn.GRU(6, 7, batch_first=True)
        self.fine = nn.Conv1d(5, 3, 3, padding=1)

    def forward(self, x, y):
        a = self.down(x).transpose(1, 2)
        b = self.mix(y.reshape(y.size(0), y.size(1), 12))
        h, _ = self.rnn(F.relu(a + b))
        return {"tags": h, "fine": self.fine(x), "whole": h.mean(1), "turned": y.transpose(2, 3) > 0}


def compiled(make, *arguments, seed=3, **options):
    """Without OpenBLAS: to the bit, on any instruction set."""
    ds.manual_seed(seed)
    return ds.compile(make().eval(), *arguments, blas=False, **options)


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    engine, path = compiled(Features, ("B", 6, "L"), rate=100), tmp_path_factory.mktemp("features") / "f.dsm"
    engine.save(path)
    return engine, path


@pytest.fixture(scope="module")
def two_rates(tmp_path_factory):
    spec = {"x": ("B", 5, "L"), "y": ("B", "L", 4, 3)}
    engine = compiled(TwoRates, spec, rate={"x": 100, "y": 50})
    path = tmp_path_factory.mktemp("two") / "two.dsm"
    engine.save(path)
    return engine, path


def frames(engine, k, array):
    """An output as C has it: [frames][frame...]."""
    return np.ascontiguousarray(np.moveaxis(array, engine.stream_axis(k), 0))


def flat(out):
    """What forward returns, as a list of arrays."""
    return list(out.values()) if isinstance(out, dict) else list(out) if isinstance(out, tuple) else [out]


# ---------------------------------------------------------------------- stream_wav
def write_wav(path, samples, rate=16000, channels=1, width=2):
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    return path


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """(samples, path) of a piece of speech."""
    with wave.open(str(SPEECH)) as file:
        samples = np.frombuffer(file.readframes(20_123), np.int16)
    return samples, write_wav(tmp_path_factory.mktemp("wav") / "speech.wav", samples)


@pytest.fixture(scope="module")
def listener(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "demo.dsm"
    engine = compiled(Commands, Commands.spec, rate=16000)
    engine.save(path)
    return engine, path


def parsed(text):
    """name -> values [frames][...], positions checked."""
    rows = {}
    for line in text.splitlines():
        name, position, *values = line.split()
        rows.setdefault(name, []).append([np.float32(v) for v in values])
        assert int(position) == len(rows[name]) - 1
    return {name: np.array(values, np.float32) for name, values in rows.items()}


@pytest.mark.parametrize("milliseconds", [7, 100, 5000])
def test_stream_wav(program, listener, recording, milliseconds):
    engine, path = listener
    samples, wav = recording
    printed = run(program("stream_wav.c"), path, wav, milliseconds)
    (name,) = (o.name for o in engine.outputs)
    given = parsed(printed)[name]
    whole = engine.step({"a": samples}, sos="a", eos="a")["a"]
    assert given.tobytes() == whole.tobytes()
    size, parts = 16 * milliseconds + 1, []
    with engine.stream("b") as stream:  # the same chunks
        for start in range(0, len(samples), size):
            last = start + size >= len(samples)
            parts.append((stream.finish if last else stream.step)(samples[start : start + size]))
    assert np.concatenate(parts).tobytes() == given.tobytes()


def test_stream_wav_says_what_is_wrong(program, listener, features, recording, tmp_path):
    samples, wav = recording
    model = listener[1]
    stereo = write_wav(tmp_path / "stereo.wav", samples[:1000], channels=2)
    short = tmp_path / "short.wav"
    short.write_bytes(wav.read_bytes()[:-1000])
    cases = {
        "can't be opened": (model, tmp_path / "none.wav"),
        "is no WAV file": (model, model),
        "expected 16-bit PCM with one channel": (model, stereo),
        "ends before its last sample": (model, short),
        "the recording has 8000": (model, write_wav(tmp_path / "slow.wav", samples, rate=8000)),
        "expected a model with one input": (features[1], wav),
        "none.dsm": (tmp_path / "none.dsm", wav),
        "the model: ": (wav, wav),
    }
    for message, arguments in cases.items():
        error = run(program("stream_wav.c"), *arguments, status=1)
        assert message in error, (message, error)
        assert error.startswith("stream_wav: ")
        assert error.count("\n") == 1
    assert "usage" in run(program("stream_wav.c"), model, status=2)


# ---------------------------------------------------------------------- many_streams
def scatter(z):
    z = z * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(32)) * np.uint64(0xD6E8FEB86659FD93)
    return z ^ z >> np.uint64(32)


def noise(s, shape):
    """The frames that many_streams makes for stream s."""
    i = np.arange(np.prod(shape), dtype=np.uint64)
    z = scatter(np.uint64((s + 1) << 40) | i)
    return ((z & np.uint64(0xFFFF)).astype(np.float32) / np.float32(32768) - np.float32(1)).reshape(shape)


def checksum(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def expected_lines(engine):
    """What the program must print: every stream alone, in one chunk, in Python."""
    for s in range(32):
        given = noise(s, (400 + 37 * s, 6)).T
        for k, out in enumerate(flat(engine.step({"s": given}, sos="s", eos="s")["s"])):
            raw = frames(engine, k, out)
            yield f"stream {s} output {k}: {len(raw)} frames, checksum {checksum(raw.tobytes()):016x}"


def test_many_streams(program, features, tmp_path):
    engine, path = features
    expected = list(expected_lines(engine))
    tool, snapshots = program("many_streams.c"), tmp_path / "snapshots"
    for seed in (1, 2, 3):
        assert run(tool, path, snapshots, seed).splitlines() == expected
    run(tool, "--begin", path, snapshots, 4, DREAMSTREAM_ISA="ref")  # as another machine would
    assert run(tool, "--resume", path, snapshots, 5, DREAMSTREAM_THREADS="2").splitlines() == expected


def test_many_streams_says_what_is_wrong(program, features, listener, two_rates, tmp_path):
    tool, snapshots = program("many_streams.c"), tmp_path / "snapshots"
    run(tool, "--begin", features[1], snapshots)
    whole = snapshots.read_bytes()
    for size in (0, 7, 100, len(whole) - 1):
        snapshots.write_bytes(whole[:size])
        assert "the snapshots: " in run(tool, "--resume", features[1], snapshots, status=1)
    snapshots.write_bytes(whole[:8] + bytes(100) + whole[108:])
    assert "a snapshot: " in run(tool, "--resume", features[1], snapshots, status=1)
    snapshots.write_bytes(whole)
    run(tool, "--resume", listener[1], snapshots, status=1)  # another model's
    assert "expected a model with one input" in run(tool, two_rates[1], snapshots, status=1)
    assert "can't be written" in run(tool, features[1], tmp_path / "none" / "snapshots", status=1)


# ---------------------------------------------------------------------- any model, any calls
class Script:
    """The same calls for dsm_run and for an engine of two_rates."""

    def __init__(self, rng, folder, lengths):
        self.rng, self.folder = rng, folder
        (folder / "in").mkdir()
        (folder / "out").mkdir()
        self.at = {name: [0, 0] for name in lengths}
        self.end = {name: [2 * n, n] for name, n in lengths.items()}
        self.x, self.y = {}, {}
        for name, n in lengths.items():
            self.x[name] = rng.standard_normal((5, 2 * n), dtype=np.float32)
            self.y[name] = rng.standard_normal((n, 4, 3), dtype=np.float32)
            self.write_inputs(name, name)

    def write_inputs(self, name, source):
        self.x[name], self.y[name] = self.x[source], self.y[source]
        np.ascontiguousarray(self.x[name].T).tofile(self.folder / "in" / f"{name}.0")
        self.y[name].tofile(self.folder / "in" / f"{name}.1")

    def call(self, most=9):
        """The next call: some streams, each by a random chunk, and its ends."""
        rows = {}
        for name, (i, j) in self.at.items():
            if (i, j) == tuple(self.end[name]) or self.rng.random() < 0.2:
                continue
            n, total = j + int(self.rng.integers(0, most)), self.end[name][1]
            if n >= total:
                m, n, flags = 2 * total, total, 2
            else:
                m, flags = max(i, 2 * n + int(self.rng.integers(-1, 2))), 0
                if m > 2 * n + 1:
                    m, n = i, j
            rows[name] = (flags | (i == j == 0 and self.rng.random() < 0.5), m - i, n - j)
            self.at[name] = [m, n]
        return rows

    def line(self, rows):
        return "step " + " ".join(f"{name} {int(flags)} {m},{n}" for name, (flags, m, n) in rows.items())

    def chunks(self, rows):
        out = {}
        for name, (_, m, n) in rows.items():
            i, j = self.at[name]
            out[name] = {"x": self.x[name][:, i - m : i], "y": self.y[name][j - n : j]}
        return out

    def step(self, engine, rows, got):
        """The call in Python; what comes out is laid end to end in `got`."""
        live = set(engine.ids)
        ends = [name for name, (flags, *_) in rows.items() if flags & 2]
        out = engine.step(self.chunks(rows), sos=[name for name in rows if name not in live], eos=ends)
        for name, arrays in out.items():
            for k, array in enumerate(flat(arrays)):
                raw = frames(engine, k, array)
                data, counts = got.setdefault((name, k), (bytearray(), []))
                start = sum(n for _, n in counts)
                counts.append((start, len(raw)))
                data += raw.tobytes()

    def check(self, got):
        names = {name for name, _ in got}
        for name in names:
            lines = (self.folder / "out" / f"{name}.counts").read_text().splitlines()
            for k in range(4):
                data, counts = got[name, k]
                assert (self.folder / "out" / f"{name}.{k}").read_bytes() == data, (name, k)
                given = [tuple(map(int, line.split()[k].split("+"))) for line in lines]
                assert [n for _, n in given] == [n for _, n in counts]
                assert [g for g in given if g[1]] == [c for c in counts if c[1]]

    def run(self, tool, path, lines, threads=1, **options):
        return run(tool, path, self.folder / "in", self.folder / "out", threads, given="\n".join(lines) + "\n",
                   **options)  # fmt: skip


LENGTHS = {"a": 60, "b": 1, "c": 0, "d": 33, "e": 100}


@pytest.mark.parametrize("threads", [1, 2])
def test_any_calls(program, two_rates, rng, tmp_path, threads):
    """Ragged batches, step by step and to the bit; and the whole at once."""
    engine, path = two_rates
    script, got = Script(rng, tmp_path, LENGTHS), {}
    lines = [f"open {name}" for name in LENGTHS]
    while any(script.at[n] != script.end[n] for n in LENGTHS):
        rows = script.call()
        lines.append(script.line(rows))
        script.step(engine, rows, got)
    lines.append("finish c")  # nothing was ever given to it
    script.step(engine, {"c": (2, 0, 0)}, got)
    script.run(program("dsm_run.c"), path, lines, threads)
    script.check(got)
    for name, n in LENGTHS.items():
        assert script.at[name] == [2 * n, n]
        assert [len(got[name, k][0]) for k in range(4)] == [n * 28, 2 * n * 12, 28 * (n > 0), n * 12]
        whole = engine.step({name: {"x": script.x[name], "y": script.y[name]}}, sos=name, eos=name)[name]
        for k, array in enumerate(flat(whole)):
            assert frames(engine, k, array).tobytes() == got[name, k][0], (name, k)


def test_inputs_given_once(program, rng, tmp_path):
    """One frame where a stream starts (of a memory all it has), none in later steps; else nothing changes."""

    class Decoder(ds.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.layer = ds.nn.Linear(3, 4), ds.nn.TransformerDecoderLayer(4, 2, 6, batch_first=True)

        def forward(self, x, speaker, memory):
            return self.layer(x * self.scale(speaker).unsqueeze(1), memory, tgt_is_causal=True)

    engine = ds.compile(Decoder().eval(), {"x": ("B", "L", 4), "speaker": ("B", 3), "memory": ("B", "M", 4)})
    engine.save(tmp_path / "decoder.dsm")
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir()
    given = {}
    for name, n in (("a", 9), ("b", 1)):
        shapes = {"x": (20, 4), "speaker": (3,), "memory": (n, 4)}
        given[name] = {k: rng.standard_normal(shape, np.float32) for k, shape in shapes.items()}
        for k, array in enumerate(given[name].values()):  # twice, for steps that fail
            np.concatenate([array, array]).tofile(tmp_path / "in" / f"{name}.{k}")
    lines = [
        "open a",
        "open b",
        "fails DS_MISMATCH step a 1 7,0,9",
        "fails DS_MISMATCH step a 1 7,2,9",
        "fails DS_MISMATCH step a 1 7,1,9 b 1 7,1,0",
        "step a 1 7,1,9 b 1 7,1,1",
        "fails DS_MISMATCH step a 0 5,1,0",
        "fails DS_MISMATCH step b 0 5,0,1",
        f"snapshot a {tmp_path / 'a.snapshot'}",
        "step a 0 5,0,0",
        "step a 2 8,0,0 b 0 13,0,0",
        "step b 2 0,0,0",
    ]
    folders = tmp_path / "in", tmp_path / "out"
    run(program("dsm_run.c"), tmp_path / "decoder.dsm", *folders, 1, given="\n".join(lines) + "\n")
    whole = engine.step(given, sos=["a", "b"], eos=["a", "b"])
    for name, y in whole.items():
        assert (tmp_path / "out" / f"{name}.0").read_bytes() == y.tobytes(), name
    engine.restore((tmp_path / "a.snapshot").read_bytes(), "a")
    assert np.array_equal(engine.step({"a": given["a"]["x"][7:]}, eos="a")["a"], whole["a"][7:])


def both(script, engine, lines, got, name, m, n, flags=0):
    """One stream's step in both."""
    script.at[name][0] += m
    script.at[name][1] += n
    rows = {name: (flags, m, n)}
    lines.append(script.line(rows))
    script.step(engine, rows, got)


def test_snapshots_cross_the_border(program, two_rates, rng, tmp_path):
    """From C to Python and back, forks and resets in between."""
    engine, path = two_rates
    tool, (script, got) = program("dsm_run.c"), (Script(rng, tmp_path, {"a": 50}), {})
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    lines = ["open a"]
    both(script, engine, lines, got, "a", 21, 10)
    lines.append(f"snapshot a {first}")
    script.run(tool, path, lines)
    assert first.read_bytes() == engine.snapshot("a")  # the same bytes, too

    engine.reset("a")
    engine.restore(first.read_bytes(), "a")  # C to Python
    lines = []
    both(script, engine, lines, got, "a", 18, 10)
    second.write_bytes(engine.snapshot("a"))

    lines = ["open a", f"restore a {second}", "fork a b"]  # Python to C, in a new process
    outputs = script.folder / "out"
    for file in outputs.iterdir():  # what Python made meanwhile is not there
        file.unlink()
    mine, script.at["b"], later = {}, list(script.at["a"]), {}
    script.write_inputs("b", "a")
    engine.fork("a", "b")
    both(script, engine, lines, mine, "a", 11, 5)
    both(script, engine, lines, mine, "b", 61, 30, 2)
    lines += [f"snapshot a {third}", "reset a"]
    later["a"] = engine.snapshot("a")
    script.run(tool, path, lines)
    assert third.read_bytes() == later["a"]
    for name in ("a", "b"):
        for k in range(4):
            assert (outputs / f"{name}.{k}").read_bytes() == mine[name, k][0]
    whole = flat(engine.step({"w": {"x": script.x["a"], "y": script.y["a"]}}, sos="w", eos="w")["w"])
    for k, array in enumerate(whole):
        expected = frames(engine, k, array).tobytes()
        assert got["a", k][0] + mine["b", k][0] == expected
    engine.reset()


def test_models_cross_the_border(program, two_rates, rng, tmp_path):
    """Python saves, C loads and saves, C loads that from memory, and Python does: the same bytes and bits."""
    engine, path = two_rates
    script, got, saved = Script(rng, tmp_path, {"a": 30}), {}, tmp_path / "saved.dsm"
    lines = [f"save {saved}", f"reload {saved}", "open a"]
    both(script, engine, lines, got, "a", 60, 30, 2)
    script.run(program("dsm_run.c"), path, lines)
    script.check(got)
    assert saved.read_bytes() == path.read_bytes()
    again = ds.load(saved)
    mine = {}
    script.step(again, {"a": (2, 60, 30)}, mine)
    assert mine == got


def test_errors(program, two_rates, features, rng, tmp_path):
    engine, path = two_rates
    script, got, other = Script(rng, tmp_path, {"a": 30}), {}, tmp_path / "other"
    features[0].step({"s": np.zeros((6, 9), np.float32)}, sos="s")
    other.write_bytes(features[0].snapshot("s"))
    features[0].reset("s")
    lines = ["open a", "open b"]
    both(script, engine, lines, got, "a", 21, 10)
    lines += [
        "fails DS_STREAM_ID step a 1 3,2",
        "fails DS_MISMATCH step a 0 20,2",
        "fails DS_ARGUMENT step a 4 2,1",
        f"fails DS_FORMAT restore a {other}",
        "fails DS_ARGUMENT step a 0 2,1 a 0 2,1",
        f"fails DS_FORMAT reload {other}",
    ]
    both(script, engine, lines, got, "a", 39, 20, 2)
    lines += ["fails DS_STREAM_ID step a 0 0,0", f"fails DS_STREAM_ID snapshot a {other}", "close a"]
    assert script.run(program("dsm_run.c"), path, lines).count("\n") == 8
    script.check(got)  # nothing that failed has left a trace


# ---------------------------------------------------------------------- other languages, other examples
@pytest.mark.parametrize("way", ["C++", "ctypes"])
def test_pipes(program, tmp_path, rng, way):
    """Programs from standard input to standard output."""
    engine, path = compiled(lambda: nn.Conv1d(6, 4, 5, padding=2), ("B", 6, "L")), tmp_path / "conv.dsm"
    engine.save(path)
    x = rng.standard_normal((1000, 6), dtype=np.float32)
    if way == "C++":
        command = [program("pipe.cpp"), path]
    else:
        command = [sys.executable, "-I", EXAMPLES / "from_ctypes.py", LIBRARY, path]
    expected = frames(engine, 0, engine.step({"s": x.T}, sos="s", eos="s")["s"])
    assert run(*command, given=x.tobytes(), text=False) == expected.tobytes()


def test_inspect_model(program, two_rates):
    engine, path = two_rates
    tool = program("inspect_model.c")
    backends = [line.split()[1][:-1] for line in run(tool, path).splitlines() if line.startswith("backend ")]
    assert "ref" in backends
    for name in backends:
        usable = f"backend {name}: usable" in run(tool, path)
        text = run(tool, path, name, status=0 if usable else 1)
        assert not usable or f"model TwoRates on {name}, 1 thread(s)" in text
    text = run(tool, path)
    assert f"library {ds.__version__}, header {ds.__version__}\n" in text
    assert "input y: float32[frames][4][3], 50/1 frames per second, 0 frames of input 0 late\n" in text
    assert "output fine: float32[frames][3], 100/1 frames per second, 1 frames of input 0 late\n" in text
    assert "output whole: float32[frames][7], one frame at the end\n" in text
    assert "output turned: bool[frames][3][4], 50/1 frames per second, " in text
    assert f"a stream remembers {engine.state_size} bytes\n" in text
    assert "DS_ARGUMENT" in run(tool, path, "none", status=1)


@pytest.mark.parametrize("how", ["sanitizers", pytest.param("valgrind", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["stream_wav.c", "many_streams.c", "inspect_model.c", "dsm_run.c"])
def test_memory(program, two_rates, features, listener, recording, rng, tmp_path, name, how):
    """No byte is touched that is not the program's, none is read before it was written, none is lost."""
    if how == "valgrind" and not shutil.which("valgrind"):
        pytest.skip("valgrind is not installed")
    before, more = (VALGRIND, ()) if how == "valgrind" else ((), SANITIZED)
    tool, plain = program(name, *more), program(name)
    if name == "dsm_run.c":
        script = Script(rng, tmp_path, {"a": 20, "b": 7})
        snapshot, saved = tmp_path / "snapshot", tmp_path / "saved"
        lines = ["open a", "open b", script.line({"a": (0, 20, 10), "b": (2, 14, 7)}), f"snapshot a {snapshot}",
                 "fork a c", "fails DS_STREAM_ID step b 0 0,0", f"restore b {snapshot}", "close a",
                 f"save {saved}", f"reload {saved}", "open b", "finish b"]  # fmt: skip
        script.run(tool, two_rates[1], lines, 2, before=before)
    elif name == "stream_wav.c":
        wav = write_wav(tmp_path / "short.wav", recording[0][:3000])
        assert run(tool, listener[1], wav, 40, before=before) == run(plain, listener[1], wav)
    elif name == "many_streams.c":
        text = run(tool, features[1], tmp_path / "snapshots", 1, before=before)
        assert text == run(plain, features[1], tmp_path / "snapshots", 2)
    else:
        run(tool, two_rates[1], before=before)


def test_the_guide_shows_the_examples():
    """Every piece of C and C++ in the guide stands in an example, line by line."""
    guide = (ROOT / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")
    sources = [p.read_text(encoding="utf-8") for p in EXAMPLES.iterdir() if p.suffix in (".c", ".cpp")]
    lines = [[line.strip() for line in text.splitlines()] for text in sources]
    pieces = re.findall(r"^```(?:c|cpp)\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert len(pieces) > 5
    for piece in pieces:
        for part in piece.split("...\n"):  # what is left out
            wanted = [line.strip() for line in part.strip().splitlines()]
            assert any(
                wanted == text[i : i + len(wanted)] for text in lines for i in range(len(text) - len(wanted) + 1)
            ), part


def test_shipped_elsewhere(c_build, features, tmp_path):
    """A program with the library's folders beside it, without the package, as the guide says."""
    for folder in ("lib", "_openblas"):
        if (LIBRARY.parent.parent / folder).is_dir():
            shutil.copytree(LIBRARY.parent.parent / folder, tmp_path / folder)
    tool = tmp_path / "inspect_model"
    cflags = [f for f in flags() if f.startswith("-I")]
    build([*c_build.cc(), "-std=c11"], EXAMPLES / "inspect_model.c", tool, *cflags, f"-L{tmp_path / 'lib'}",
          "-Wl,-rpath,$ORIGIN/lib", "-ldreamstream")  # fmt: skip
    assert "model Features on " in run(tool, features[1])
    mapped = subprocess.run(["ldd", str(tool)], capture_output=True, text=True).stdout
    assert f"libdreamstream.so.1 => {tmp_path / 'lib' / 'libdreamstream.so.1'}" in mapped
    assert str(LIBRARY.parent.parent) not in mapped
