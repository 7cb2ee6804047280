"""Worker processes of StreamLoader beside the process that asks: how they begin, how they end, what they hold."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from wav_files import wav, write_wav

import dreamstream as ds
from dreamstream.data import StreamLoader


def environment():
    return {**os.environ, "PYTHONPATH": str(Path(ds.__file__).parents[1])}


def python(script, *args, **options):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, args)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), **options,
    )  # fmt: skip


def is_there(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


HELD = """
    import multiprocessing, sys, time
    import numpy as np
    from dreamstream.data import StreamLoader

    def forever():
        while True:
            yield np.zeros(100, np.float32)

    multiprocessing.set_start_method("fork")
    loader = iter(StreamLoader({str(n): forever for n in range(4)}, 10, workers=2))
    other = iter(StreamLoader({str(n): forever for n in range(4)}, 10, workers=1))
    next(loader), next(other)
    print(*(p.pid for p in multiprocessing.active_children()), flush=True)
    until = time.monotonic() + 60  # lest it stay where the tests were killed
    for _, _ in zip(loader, iter(lambda: time.monotonic() > until, True)):
        pass
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_who_asked(number):
    process = python(HELD, start_new_session=True)
    workers = list(map(int, process.stdout.readline().split()))
    assert len(workers) == 3 and all(map(is_there, workers))
    send = os.killpg if number == signal.SIGINT else os.kill  # Ctrl-C goes to all
    send(process.pid, number)
    _, said = process.communicate(timeout=20)
    for _ in range(100):
        if not any(map(is_there, workers)):
            break
        signal.sigtimedwait([], 0.1)
    assert not any(map(is_there, workers))
    assert said.count("Traceback") == (number == signal.SIGINT)


def test_a_script_without_a_main_guard(tmp_path):
    script = """
        import sys
        from dreamstream.data import StreamLoader
        print(len(list(StreamLoader(sys.argv[1], 40, workers=2, start_method=sys.argv[2]))))
    """
    (tmp_path / "x").mkdir()
    write_wav(tmp_path / "x" / "a.wav", np.arange(100), 16000)
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    outputs = {}
    for method in ("fork", "spawn"):
        command = [sys.executable, tmp_path / "script.py", tmp_path / "x", method]
        outputs[method] = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert outputs["fork"].stdout == "3\n"
    said = outputs["spawn"].stderr.splitlines()[-1]
    assert "SourceError" in said and 'under if __name__ == "__main__":' in said and "a.wav" in said


def test_functions_that_only_fork_can_take():
    with pytest.raises(TypeError, match='start_method="fork"'):
        list(StreamLoader({"a": lambda: [np.zeros(3)]}, 2, workers=1, start_method="spawn"))


LONG = """
    import resource, sys
    from dreamstream.data import StreamLoader
    frames = 0
    for x in StreamLoader(sys.argv[1:], 16000, workers=int(sys.stdin.read())):
        frames += int(x.lengths.sum())
    print(frames, *(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_an_hour_in_the_memory_of_seconds(tmp_path, workers):
    def peaks(seconds):
        path = tmp_path / f"{seconds}.wav"
        n_bytes = 2 * 16000 * seconds
        head = wav(np.zeros((0, 1), np.int16), size=n_bytes)
        path.write_bytes(head)
        os.truncate(path, len(head) + n_bytes)  # a hole, which reads as zeros
        process = python(LONG, path, stdin=subprocess.PIPE)
        out, said = process.communicate(str(workers))
        frames, *peaks = map(int, out.split())
        assert frames == 16000 * seconds, said
        return np.array(peaks)

    assert (peaks(3600) - peaks(10) < 6000).all()  # kB; an hour is 115 MB


def test_a_run_over_a_folder_that_is_killed_again_and_again(tmp_path):
    ds.compile(ds.nn.Conv1d(1, 2, 80, stride=80).eval(), ("B", 1, "L"), rate=8000).save(tmp_path / "model.dsm")
    (tmp_path / "in").mkdir()
    for n in range(60):
        write_wav(tmp_path / "in" / f"{n}.wav", np.random.default_rng(n).integers(-9000, 9000, 15000), 8000)
    out, killed = tmp_path / "out.jsonl", 0
    command = [sys.executable, "-m", "dreamstream", "run", tmp_path / "model.dsm", tmp_path / "in", "-o", out]
    for attempt in range(6):
        before = out.stat().st_size if out.exists() else 0
        process = subprocess.Popen(
            [*command, "--chunk-ms", "20", "--workers", str(attempt % 2)], env=environment()
        )
        while attempt < 5 and process.poll() is None and (not out.exists() or out.stat().st_size <= before):
            time.sleep(0.001)
        if attempt < 5:
            time.sleep(0.003 * attempt)
            process.kill()
        killed += process.wait() == -signal.SIGKILL
    assert killed >= 3 and process.returncode == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(row["file"] for row in found) == sorted(map(str, (tmp_path / "in").glob("*.wav")))
    assert {row["frames"] for row in found} == {187}
