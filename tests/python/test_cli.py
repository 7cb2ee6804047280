"""The command line: what it prints, and its exit status."""

import functools
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import wave
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import cli
from dreamstream.cli import demo
from dreamstream.data import progress as shown
from dreamstream.data.progress import Progress

SHORT = ["demo", "--streams", "9", "--words", "2"]


def status(argv):
    try:
        return cli.main(argv)
    except SystemExit as error:
        return error.code


def run(*argv, **kwargs):
    command = [sys.executable, "-m", "dreamstream", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **kwargs)


@pytest.mark.parametrize("variable", ["DREAMSTREAM_ISA", "DREAMSTREAM_THREADS"])
def test_an_environment_that_asks_for_what_there_is_not(variable):
    """One line that names the variable and what it may be, from a process that starts with it."""
    environment = {**os.environ, variable: "fast"}
    ran = run("demo", env=environment)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert re.fullmatch(rf"dreamstream[a-z ]*: {variable}.*'fast'.*\n", ran.stderr)
    assert run("--version", env=environment).returncode == 0


# ---------------------------------------------------------------- the demo
def test_demo_prints_outputs_then_what_holds(capsys):
    assert status(["demo"]) == 0
    out, err = capsys.readouterr()
    assert err == ""  # no terminal, no progress
    rows = [re.split("  +", line.strip()) for line in out.splitlines() if line.startswith("  caller-")]
    assert [name for name, *_ in rows] == [f"caller-{i:02d}" for i in range(1, demo.MOST_ROWS + 1)]
    assert rows[3][2:4] == ["-", "-"] and sum(said == heard for _, _, said, heard, _ in rows) > 8
    assert all(float(gap) < 1e-4 for *_, gap in rows) and "  and 12 calls more\n" in out
    assert int(re.search(r"^word errors +(\d+) of \d\d words", out, re.MULTILINE)[1]) < 12
    for line in (
        r"^24 calls, [\d.]+ s, at the same time",
        r"^offline model +\d{4,} frames, as many as streamed; the same words; largest difference \d\.\de[-+]0\d$",
        r"^one at a time .* the same bits$",
        r"^delay +2959 samples, 184\.9 ms \(4\.6 output frames\)$",
        r"^real time +factor 0\.\d+: [\d.]+ s for [\d.]+ s of audio, 1 thread",
        r"^step latency +50 %: [\d.]+ ms, 90 %: [\d.]+ ms, 99 %: [\d.]+ ms, of \d+ steps$",
        r"^state +\d+ bytes per stream",
        rf"^kernels +{ds.config.config()['kernels']}$",
    ):
        assert re.search(line, out, re.MULTILINE), line


def test_demo_quiet(capsys):
    assert status([*SHORT, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("options", [["--streams", "1", "--words", "0"], ["--seed", "3", "--threads", "2"]])
def test_demo_options(options, capsys):
    assert status([*SHORT, *options]) == 0
    out, err = capsys.readouterr()
    assert "same bits" in out and not err


def test_demo_seeds_change_the_traffic(capsys):
    outputs = []
    for seed in "112":
        assert status([*SHORT, "--seed", seed]) == 0
        outputs.append(re.search(r"^offline model +(\d+) frames", capsys.readouterr().out, re.MULTILINE)[1])
    assert outputs[0] == outputs[1] != outputs[2]


def spoiled(change):
    def offline(model, samples):
        whole = right(model, samples).copy()
        return change(whole) if len(whole) > 2 else whole

    right = demo.offline
    return offline


def add(whole, gap):
    whole[len(whole) // 2, 3] += gap
    return whole


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda whole: add(whole, 0.01), "differs from the offline model by 0.0"),
        (lambda whole: add(whole, float("nan")), "differs from the offline model by nan"),
        (lambda whole: whole[:-1], "frames, the offline model"),
        (lambda whole: np.concatenate([whole, whole[-1:]]), "frames, the offline model"),
    ],
    ids=["value", "nan", "frame missing", "frame too many"],
)
@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_demo_mismatch_is_an_error(change, says, quiet, monkeypatch, capsys):
    monkeypatch.setattr(demo, "offline", spoiled(change))
    assert status([*SHORT, *quiet]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("dreamstream demo: MISMATCH: caller-") and says in err and err.count("\n") == 1
    assert "offline model " not in out


def test_demo_mismatch_in_bits_is_an_error(monkeypatch, capsys):
    step = ds.Engine.step

    def last_bit(self, chunks, **kwargs):
        return {i: y * np.float32(1 + 1e-7) for i, y in step(self, chunks, **kwargs).items()}

    compare = demo._compare

    def spoil(*args):
        monkeypatch.setattr(ds.Engine, "step", last_bit)
        return compare(*args)

    monkeypatch.setattr(demo, "_compare", spoil)
    assert status(SHORT) == 1
    assert "differs in its bits" in capsys.readouterr().err


def test_demo_streams_are_of_all_kinds():
    rng = np.random.default_rng(0)
    callers = demo._callers(24, 6, rng)
    lengths = [len(c.samples) for c in callers]
    assert 0 in lengths and max(lengths) > 5 * demo.SAMPLE_RATE
    assert any(0 < n < 1000 for n in lengths)
    sizes, late_ends, started, ended = set(), 0, [], []
    for chunks, sos, eos in demo._traffic(callers, rng):
        assert set(sos) | set(eos) <= set(chunks)
        assert not set(chunks) & set(ended)
        sizes |= {len(c) for c in chunks.values()}
        late_ends += sum(len(chunks[i]) == 0 for i in eos)
        started += sos
        ended += eos
    assert sorted(started) == sorted(ended) == sorted(c.id for c in callers)
    assert 0 in sizes and max(sizes) > demo.SAMPLE_RATE // 2 and len(sizes) > 100
    assert 0 < late_ends < len(callers)


def test_demo_that_hears_other_words_is_an_error(monkeypatch, capsys):
    step = demo.CTCDecoder.step
    monkeypatch.setattr(demo, "_same_bits", lambda *args: True)

    def swapped(self, scores, **kwargs):
        return step(
            self,
            {i: x[:, [0, 2, 1, *range(3, 11)]] if kwargs["sos"] == i else x for i, x in scores.items()},
            **kwargs,
        )

    monkeypatch.setattr(demo.CTCDecoder, "step", swapped)
    assert status(["demo", "--words", "9"]) == 1
    assert re.match(r"dreamstream demo: MISMATCH: caller-\d+ was heard to say '", capsys.readouterr().err)


@pytest.mark.parametrize(
    "said, heard, errors",
    [
        ("", "", 0),
        ("a b c", "a b c", 0),
        ("a b c", "", 3),
        ("", "a", 1),
        ("a b c", "a c", 1),
        ("a b", "b a b c", 2),
    ],
)
def test_word_errors(said, heard, errors):
    assert demo.word_errors(said.split(), heard.split()) == errors


def test_a_line_per_caller_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(demo, "PACE", 0.0)
    assert status(SHORT) == 0
    out = capsys.readouterr().out
    live = out[: out.rindex("\x1b[J")].split("\x1b[9A")
    assert len(live) > 10 and all(re.findall(r"^  (caller-\d+)", text, re.MULTILINE) for text in live[1:-1])
    assert status([*SHORT, "--fast"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["speech", "commands"])
def test_recordings_that_come_with_the_package(name):
    path = Path(cli.__file__).parent.parent / "assets" / f"{name}.wav"
    assert path.stat().st_size < 400_000
    with wave.open(str(path)) as w:
        assert (w.getframerate(), w.getnchannels(), w.getsampwidth()) == (16000, 1, 2)
        assert 6 <= w.getnframes() / 16000 <= 10


# ---------------------------------------------------------------- progress
class Terminal:
    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True


@pytest.fixture
def no_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)


def test_progress_line(no_tqdm, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    clock = iter(np.arange(100, 200, 0.1))
    monkeypatch.setattr(shown.time, "monotonic", lambda: next(clock))
    with Progress(100.0, quiet=False) as progress:
        for _ in range(60):
            progress.advance(1.0)
    lines = terminal.text.split("\r\x1b[K")
    assert lines[0] == lines[-1] == ""  # the line is cleared at the end
    assert lines[1] == "  1 of 100 s" and 10 < len(lines) < 40


@pytest.mark.parametrize("quiet, tty", [(True, True), (False, False)])
def test_no_progress(no_tqdm, monkeypatch, quiet, tty):
    terminal = Terminal()
    terminal.isatty = lambda: tty
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress(10.0, quiet) as progress:
        progress.advance(5.0)
    assert terminal.text == ""


def test_processes_without_streams_or_docstrings():
    """A service may have neither stdout nor stderr, and `-OO` leaves out what docstrings are made of."""
    command = [sys.executable, "-OO", "-m", "dreamstream", *SHORT, "--words", "1"]
    closed = f"exec {shlex.join(command)} >&- 2>&-"
    assert subprocess.run(["sh", "-c", closed], check=False).returncode == 0


class Bar:
    """Stands for tqdm.tqdm."""

    def __init__(self, **options):
        self.calls = [options]

    def update(self, n):
        self.calls.append(n)

    def close(self):
        self.calls.append("close")


def test_progress_by_tqdm(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=Bar))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress(10.0, quiet=False) as progress:
        progress.advance(5.0)
    options, *calls = progress.bar.calls
    assert options["total"] == 10.0 and calls == [5.0, "close"]
    assert capsys.readouterr().out == terminal.text == ""


# ---------------------------------------------------------------- the command
def test_version(capsys):
    assert status(["--version"]) == 0
    assert capsys.readouterr().out == f"dreamstream {ds.__version__}\n"


@pytest.mark.parametrize("argv", [["--help"], ["demo", "--help"]])
def test_help(argv, capsys):
    assert status(argv) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: dreamstream") and "demo" in out and not err


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nonsense"],
        ["--nonsense"],
        ["demo", "--nonsense"],
        ["demo", "more"],
        ["demo", "--streams", "0"],
        ["demo", "--streams", "many"],
        ["demo", "--streams", "2.5"],
        ["demo", "--seconds", "-1"],
        ["demo", "--seconds", "nan"],
        ["demo", "--seconds", "inf"],
        ["demo", "--threads", "0"],
        ["demo", "--seed", "-1"],
    ],
)
def test_what_is_not_understood(argv, capsys):
    assert status(argv) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("dreamstream") and err.count("\n") == 1 and "--help" in err


def test_bad_thread_count_in_the_environment(monkeypatch, capsys):
    monkeypatch.setenv("DREAMSTREAM_THREADS", "many")
    assert status(["demo"]) == 2
    err = capsys.readouterr().err
    assert "DREAMSTREAM_THREADS" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "error", [ds.OutOfMemoryError("no memory"), MemoryError("no memory"), OSError("no\nmemory")]
)
def test_failures_are_one_line(error, monkeypatch, capsys):
    def fail(*_):
        raise error

    monkeypatch.setattr(demo, "offline", fail)
    assert status(SHORT) == 1
    assert capsys.readouterr().err == "dreamstream: no memory\n"


def test_interrupt(monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "offline", interrupt)
    assert status(SHORT) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_interrupt_by_signal():
    command = [sys.executable, "-um", "dreamstream", "demo", "--streams", "5000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # shells mute background jobs
    with subprocess.Popen(command, **pipes, preexec_fn=heard) as process:
        assert process.stdout.readline().startswith("5000 ")
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == ""


def test_a_reader_that_stops(tmp_path):
    command = f"{sys.executable} -um dreamstream demo | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert re.match("24 (streams|calls), ", done.stdout) and done.stderr == ""


def test_python_m(tmp_path):
    done = run("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"dreamstream {ds.__version__}\n", "")
    done = run("nonsense", cwd=tmp_path)
    assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1
