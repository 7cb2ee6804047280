"""StreamLoader: batches of many streams, the same whatever reads them, and from wherever they go on."""

import faulthandler
import itertools
import json
import multiprocessing
import os
import queue
import signal
from collections import defaultdict

import numpy as np
import pytest
from wav_files import write_wav

import dreamstream as ds
from dreamstream.data import AudioReader, StreamLoader

LENGTHS = (70, 30, 0, 41, 40, 5, 80, 1, 120, 39)


@pytest.fixture
def folder(tmp_path):
    """Recordings, some of them in a folder below."""
    (tmp_path / "more").mkdir()
    for n, length in enumerate(LENGTHS):
        write_wav(
            tmp_path / ("more" if n % 3 == 0 else "") / f"{n}.wav", np.arange(1, length + 1) + 1000 * n, 8000
        )
    (tmp_path / "notes.txt").write_text("no recording")
    return tmp_path


def bits(batch):
    x, targets = batch if isinstance(batch, tuple) else (batch, None)
    return x.ids, x.lengths.tolist(), x.sos.tolist(), x.eos.tolist(), x.value.tobytes(), targets


def joined(batches):
    """Return the frames of each stream, laid end to end; its first chunk begins it, its last one ends it."""
    parts, ended = defaultdict(list), set()
    for x in batches:
        for i, sos, eos in zip(x.ids, x.sos, x.eos):
            assert bool(sos) == (i not in parts) and i not in ended
            parts[i].append(np.asarray(x[i]))
            ended |= {i} if eos else set()
    assert ended == set(parts)
    return {i: np.concatenate(p, axis=-1) for i, p in parts.items()}


def numbers(n):
    """Give arrays of uneven sizes."""
    at = 0
    for size in itertools.cycle((3, 1, 9)):
        if at >= n:
            return
        yield np.arange(at, min(n, at + size), dtype=np.float32)
        at += size


class Made:
    """A function that gives pieces, and can be sent to another process."""

    def __init__(self, n):
        self.n = n

    def __call__(self):
        return numbers(self.n) if self.n else iter([np.zeros(0, np.float32)])


# ---------------------------------------------------------------------- what comes
def test_each_recording_once_and_whole(folder):
    got = joined(StreamLoader(folder, chunk=40, lanes=3))
    paths = sorted(map(str, folder.rglob("*.wav")))
    assert sorted(got) == paths and len(paths) == len(LENGTHS)
    for path in paths:
        assert np.array_equal(got[path], AudioReader(path).read())


@pytest.mark.parametrize(
    "chunk, lanes, together", [(40, 3, False), (1000, 4, True), (7, 20, False), (None, 3, False)]
)
def test_rows_of_batches(folder, chunk, lanes, together):
    batches = list(StreamLoader(folder, chunk, lanes, together=together))
    for x, after in zip(batches, batches[1:]):
        assert len(x.ids) <= lanes and (chunk is None or max(x.lengths) <= chunk)
        assert all(n == chunk for n, eos in zip(x.lengths, x.eos) if not eos)
        left = [i for i, eos in zip(x.ids, x.eos) if not eos]
        assert set(left) <= set(after.ids)  # who goes on is in the next batch
        if together:
            assert not (left and any(after.sos))
        elif not all(after.eos):
            assert len(after.ids) == min(lanes, len(left) + sum(after.sos))


KINDS = {
    "arrays": (lambda: {str(n): np.arange(n, dtype=np.float32) for n in LENGTHS}, -1),
    "functions": (lambda: {str(n): Made(n) for n in LENGTHS}, -1),
    "iterables": (lambda: {str(n): list(Made(n)()) for n in LENGTHS}, -1),
    "pairs": (lambda: [(str(n), Made(n)) for n in LENGTHS], -1),
    "an iterator": (lambda: ((str(n), Made(n)) for n in LENGTHS), -1),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("workers", [0, 2])
def test_kinds_of_sources(name, workers):
    make, axis = KINDS[name]
    got = joined(StreamLoader(make(), 20, 3, workers, axis=axis))
    assert {i: x.tolist() for i, x in got.items()} == {str(n): list(range(n)) for n in LENGTHS}


@pytest.mark.parametrize("axis, shape, names", [(-1, (2, 3), ("B", None, "L")), (0, (3, 2), ("B", "L", None))])
def test_features(axis, shape, names):
    one, other = np.arange(6.0).reshape(shape), np.arange(10.0).reshape([-1 if n == 3 else n for n in shape])
    batches = list(StreamLoader([one, other], 2, axis=axis))
    assert batches[0].names == names and batches[0].ids == ["0", "1"]
    parts = [np.asarray(x["1"]) for x in batches]
    assert np.array_equal(np.concatenate(parts, axis=axis), other)


def test_npy_files_are_read_in_parts(tmp_path):
    whole = np.random.default_rng(0).standard_normal((4, 50)).astype(np.float32)
    np.save(tmp_path / "x.npy", whole)
    loader = StreamLoader([tmp_path / "x.npy"], 8, workers=1)
    assert np.array_equal(joined(loader)[str(tmp_path / "x.npy")], whole)
    assert loader.padding().frames == 50


def test_recordings_of_several_rates(tmp_path):
    rng = np.random.default_rng(0)
    for name, rate in (("a", 8000), ("b", 16000), ("c", 11025)):
        write_wav(tmp_path / f"{name}.wav", rng.integers(-9000, 9000, 4000), rate)
    loader = StreamLoader(tmp_path, 500, sample_rate=16000)
    got = joined(loader)
    for path, x in got.items():
        want, _ = ds.data.read_audio(path, 16000)
        np.testing.assert_allclose(x, want, atol=1e-6)
    assert loader.padding().frames == sum(map(len, got.values()))
    with pytest.raises(
        ds.SourceError, match=r"b.wav has? .*16000|it has 16000 samples per second, .*a.wav 8000; sample"
    ):
        list(StreamLoader(tmp_path, 500))


# ---------------------------------------------------------------------- targets
ROWS = [("more/0.wav", 3), ("1.wav", 5)]


@pytest.mark.parametrize(
    "name, text, want",
    [
        ("a.csv", "path,target\nmore/0.wav,3\n1.wav,5\n", dict(ROWS)),
        ("a.tsv", "\ufefftarget\tpath\none\tmore/0.wav\n5\t1.wav\n", {"more/0.wav": "one", "1.wav": "5"}),
        ("a.csv", 'id,path,target\nanna,1.wav,"a, b"\n', {"anna": "a, b"}),
        ("a.jsonl", '{"path": "1.wav", "target": [1, 2]}\n\n', {"1.wav": [1, 2]}),
        ("a.csv", "path\n1.wav\n", None),
        ("a.csv", "target , path\n\n5, 1.wav\n", {"1.wav": 5}),
    ],
)
def test_manifests(folder, name, text, want):
    (folder / name).write_text(text, encoding="utf-8")
    batches = list(StreamLoader(folder / name, 1000))
    if want is None:
        assert batches[0].ids == ["1.wav"]
    else:
        assert {i: t for _, targets in batches for i, t in targets.items()} == want


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("a.csv", "file,target\n1.wav,5\n", "line 2 has no path in the column 'path'; it has 'file', 'target'"),
        ("a.csv", "path,target\n1.wav\n", "line 2: expected 2 cells"),
        ("a.jsonl", '{"path": "1.wav"}\n{path\n', "line 2 is no JSON"),
        ("a.jsonl", '{"path": "1.wav", "target": 1}\n{"path": "2.wav"}\n', "these have none .*2.wav"),
        ("a.jsonl", "[1]\n", "line 1: expected an object, got list"),
        ("a.csv", "path\n1.wav\n1.wav\n", "occurs twice"),
        ("a.csv", "1.wav,5\n", "no recordings in this manifest"),
        ("a.csv", "path,target\n1.wav,\xe9\n", "a manifest is UTF-8"),
    ],
)
def test_manifests_that_are_refused(folder, name, text, said):
    (folder / name).write_text(text, encoding="latin-1")
    with pytest.raises(ds.DreamStreamError, match=said):
        StreamLoader(folder / name, 10)


def test_a_call_of_no_frames():
    calls = queue.Queue()
    calls.put(("anna", b"12"))
    with pytest.raises(ds.ShapeError, match="axis is -1, but an array has 0 dimensions"):
        list(StreamLoader(calls, 5))


def test_columns_of_other_names(folder):
    (folder / "a.jsonl").write_text('{"audio_filepath": "1.wav", "text": "one"}\n')
    ((_, targets),) = StreamLoader(folder / "a.jsonl", 100, columns=("audio_filepath", "text"))
    assert targets == {"1.wav": "one"}
    with pytest.raises(ds.FormatError, match="no column 'txt' of targets"):
        StreamLoader(folder / "a.jsonl", 100, columns=("audio_filepath", "txt"))


def test_targets_meet_their_frames():
    model = ds.patch_module(ds.nn.Conv1d(1, 1, 3, padding=1).eval()).online()
    arrays = {i: np.ones((1, n), np.float32) for i, n in (("anna", 25), ("bob", 8))}
    targets = {"anna": np.arange(25.0), "bob": np.arange(8.0)}
    got = defaultdict(list)
    for x, of_batch in StreamLoader(arrays, 10, targets=targets):
        assert set(of_batch) == set(x.ids)
        aligned = ds.train.align(model(x), of_batch)
        for i in x.ids:
            got[i] += aligned[i].numpy().tolist()
    assert got == {i: t.tolist() for i, t in targets.items()}


# ---------------------------------------------------------------------- who reads
@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_the_same_batches_whoever_reads(folder, start_method):
    def run(workers):
        loader = StreamLoader(folder, 33, 4, workers, shuffle=True, bucket=8, seed=5, start_method=start_method)
        return [[bits(x) for x in loader] for _ in range(2)]

    one = run(0)
    assert one[0] != one[1] and run(1) == one
    if start_method == "fork":
        assert run(4) == one
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("kind", ["files", "functions", "iterator"])
@pytest.mark.parametrize("at", [0, 3, 11, -1])
def test_resumes_in_mid_file(folder, kind, at):
    def make(workers):
        if kind == "files":
            return StreamLoader(folder, 17, 4, workers, shuffle=True, bucket=5, seed=1)
        items = [(str(n), Made(n)) for n in LENGTHS]
        return StreamLoader(iter(items) if kind == "iterator" else items, 17, 4, workers)

    whole = [bits(x) for x in make(0)]
    loader, at = make(2), at % len(whole)
    for _ in zip(range(at + 1), loader):
        pass
    state = json.loads(json.dumps(loader.state_dict()))
    other = make(1)
    other.load_state_dict(state)
    assert [bits(x) for x in other] == whole[at + 1 :]
    assert other.epoch == 1


def test_epochs_follow_from_seed_and_number(folder):
    def orders(seed):
        loader = StreamLoader(folder, 1000, 2, shuffle=True, seed=seed)
        return [[i for x in loader for i in x.ids] for _ in range(3)]

    first = orders(7)
    assert len({tuple(o) for o in first}) == 3 and orders(7) == first and orders(8) != first
    assert all(sorted(o) == sorted(first[0]) for o in first)


def test_an_epoch_that_was_left_is_not_gone_through_again(folder):
    loader = StreamLoader(folder, 10, shuffle=True)
    first = next(iter(loader)).ids
    assert loader.epoch == 0 and next(iter(loader)).ids != first and loader.epoch == 1


# ---------------------------------------------------------------------- lengths
@pytest.mark.parametrize(
    "chunk, lanes, together", [(16, 3, False), (None, 4, False), (16, 4, True), (200, 2, False)]
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_padding_is_what_batches_have(chunk, lanes, together, shuffle):
    lengths = np.random.default_rng(0).integers(1, 300, 60)
    arrays = {str(k): np.zeros(n, np.float32) for k, n in enumerate(lengths)}

    def padding(bucket):
        loader = StreamLoader(arrays, chunk, lanes, bucket=bucket, shuffle=shuffle, together=together)
        said = loader.padding()
        sizes = [x.lengths.tolist() for x in loader]
        assert said.frames == sum(map(sum, sizes)) == lengths.sum()
        assert said.padding == sum(len(s) * max(s) - sum(s) for s in sizes)
        return said

    none, some = padding(None), padding(60)
    assert none.unsorted == none.padding == some.unsorted
    if chunk is None:
        assert some.padding < 0.2 * none.padding
    elif together:
        assert some.padding <= none.padding


def test_lengths_that_nobody_knows():
    with pytest.raises(ds.SourceError, match="not known") as error:
        list(StreamLoader({"anna": np.zeros(3), "bob": Made(9)}, 4, bucket=2))
    assert error.value.ids == ("bob",)


# ---------------------------------------------------------------------- what goes wrong
def fail():
    yield np.zeros(30, np.float32)
    raise ValueError("the disk is gone")


def kill(number):
    def die():
        yield np.zeros(30, np.float32)
        faulthandler.disable()  # which pytest has turned on, and which tells of it on stderr
        os.kill(os.getpid(), number)

    return die


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_what_raises_names_its_stream(workers):
    items = {"anna": Made(90), "bob": fail, "carl": Made(90)}
    with pytest.raises(ds.SourceError, match=r"ValueError: the disk is gone \(stream: 'bob'") as error:
        list(StreamLoader(items, 10, workers=workers))
    assert error.value.ids == ("bob",) and isinstance(error.value.__cause__, ValueError)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_worker_that_dies_names_its_stream(number):
    items = {"anna": Made(900), "bob": kill(number), "carl": Made(900)}
    with pytest.raises(ds.SourceError, match=f"was killed by {number.name} while it read") as error:
        list(StreamLoader(items, 10, workers=1, start_method="fork"))
    assert error.value.ids == ("bob",)
    assert not multiprocessing.active_children()


def test_an_idle_worker_that_is_killed():
    batches = iter(StreamLoader({"anna": Made(10**6)}, 10, workers=1))
    next(batches)
    (worker,) = multiprocessing.active_children()
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(ds.SourceError, match="killed by SIGKILL") as error:
        list(batches)
    assert error.value.ids == ("anna",)


def test_broken_files_and_missing_ones(folder):
    whole = (folder / "1.wav").read_bytes()
    (folder / "1.wav").write_bytes(whole[:60])
    with pytest.raises(ds.SourceError, match=r"1\.wav: offset 60: expected 22 more frames"):
        list(StreamLoader(folder, 10))
    with pytest.raises(ds.SourceError, match="No such file") as error:
        list(StreamLoader(["gone.wav"], 10, workers=1))
    assert error.value.ids == ("gone.wav",)


@pytest.mark.parametrize(
    "source, options, error, said",
    [
        ({"a": np.zeros(3)}, {"chunk": 0}, ValueError, "chunk must be at least 1"),
        ({"a": np.zeros(3)}, {"lanes": 0}, ValueError, "lanes must be at least 1"),
        ({"a": np.zeros(3)}, {"workers": -1}, ValueError, "workers must be at least 0"),
        ({"a": np.zeros(3)}, {"chunk": 1.5}, ValueError, "chunk must be at least 1, a whole number, got 1.5"),
        ({"a": np.zeros(3)}, {"lanes": None}, ValueError, "lanes must be at least 1, a whole number, got None"),
        ({"a": np.zeros(3)}, {"tensors": "jax"}, ValueError, '"numpy" or "torch"'),
        ({"a": np.zeros(3)}, {"targets": {}}, ds.StreamIdError, "have no target"),
        ({7: np.zeros(3)}, {}, ds.StreamIdError, "id must be str, got 7"),
        (["x.wav", "x.wav"], {}, ds.StreamIdError, "occurs twice"),
        ([("a", np.zeros(3), 1), ("b", np.zeros(3))], {}, ds.StreamIdError, "these have none"),
        ([("a",)], {}, ds.StreamIdError, "expected .id, x. or"),
        (iter([]), {"shuffle": True}, ds.ModeError, "an iterator is gone through once"),
        (queue.Queue(), {"workers": 2}, ds.ModeError, "a live queue is gone through once"),
        ({"a": np.zeros(3)}, {"axis": 1}, ds.SourceError, "axis is 1, but an array has 1"),
        ({"a": 3}, {}, ds.SourceError, "expected a path, an array"),
        ({"a": iter([])}, {}, ds.SourceError, "gave no arrays"),
    ],
)
def test_refusals(source, options, error, said):
    with pytest.raises(error, match=said):
        list(StreamLoader(source, **{"chunk": 2, **options}))


def test_an_empty_folder(tmp_path):
    with pytest.raises(ds.FormatError, match="no recordings"):
        StreamLoader(tmp_path, 10)


def test_states_of_other_loaders():
    one = StreamLoader({"a": np.zeros(3), "b": np.zeros(3)}, 2)
    for other in (StreamLoader({"a": np.zeros(3)}, 2), StreamLoader({"a": np.zeros(3), "b": np.zeros(3)}, 3)):
        with pytest.raises(ds.StreamMismatchError, match="the state is of a loader with"):
            other.load_state_dict(one.state_dict())
    next(iter(one))
    shorter = StreamLoader({"a": np.zeros(1), "b": np.zeros(3)}, 2)
    shorter.load_state_dict(one.state_dict())
    with pytest.raises(ds.SourceError, match="2 of its frames had been read, now it has only 1"):
        list(shorter)


# ---------------------------------------------------------------------- live
def test_a_live_queue_gives_what_has_come():
    calls = queue.Queue()
    batches = iter(StreamLoader(calls, chunk=10, lanes=2))
    for event in [
        ("anna", np.arange(4.0)),
        ("bob", np.arange(15.0)),
        ("carl", np.arange(2.0)),
        ("anna", np.arange(3.0)),
    ]:
        calls.put(event)
    x = next(batches)
    assert x.ids == ["anna", "bob"] and x.lengths.tolist() == [7, 10] and x.sos.all() and not x.eos.any()
    x = next(batches)  # carl has his turn
    assert x.ids == ["carl", "bob"] and x.lengths.tolist() == [2, 5] and x.sos.tolist() == [True, False]
    calls.put(("bob", None))
    x = next(batches)
    assert x.ids == ["bob"] and x.lengths.tolist() == [0] and x.eos.all()
    calls.put(None)
    x = next(batches)
    assert set(x.ids) == {"anna", "carl"} and x.eos.all()
    assert list(batches) == []


@pytest.mark.parametrize(
    "event",
    [("b", None), "a", ("a", np.zeros(2), 3), (3, np.zeros(2)), ("a", 3.0), ("a", "no"), ("a", np.zeros((2, 2)))],
)
def test_an_event_that_is_refused_leaves_all_streams_as_they_were(event):
    calls = queue.Queue()
    for each in [("a", np.ones(4)), event, ("a", np.ones(3)), ("c", []), None]:
        calls.put(each)
    loader = StreamLoader(calls, 5)
    with pytest.raises(ds.DreamStreamError):
        list(loader)
    first, last = loader
    assert first.ids == ["a", "c"] and first.lengths.tolist() == [5, 0] and first.eos.tolist() == [False, True]
    assert last.ids == ["a"] and last.lengths.tolist() == [2] and last.eos.all()


def test_bulk_passes_over_what_a_live_queue_should_not_hold():
    engine, calls, bad = ds.compile(ds.nn.Conv1d(1, 1, 3), ("B", 1, "L")), queue.Queue(), []
    x = np.ones(9, np.float32)
    for each in [("a", x), ("b", x), ("b", "no"), ("b", x), None]:
        calls.put(each)
    found = ds.data.bulk(engine, calls, chunk=5, bad=bad.append)
    assert [(name, y.shape) for name, y in found] == [("a", (1, 7))] and bad[0].ids == ("b",)
