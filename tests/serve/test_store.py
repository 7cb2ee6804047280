"""The records of a server's streams in a folder: what survives, cut short, out of date, or another's."""

import os
from dataclasses import replace

import pytest

import dreamstream as ds
from dreamstream.serve import FolderStore
from dreamstream.serve.records import Record


def records(n):
    return {
        f"s{k}": Record("f", k, [k, k], [0, k], b"x" * k, b"z" * (3 - k % 3), [(0, b"y" * 9)], bool(k % 2), k / 3)
        for k in range(n)
    }


def test_records_survive(tmp_path):
    store, made = FolderStore(tmp_path), records(5)
    for stream_id, record in made.items():
        store.keep({stream_id: record})
    store.delete("s3")
    key = store.key
    store.close()
    store = FolderStore(tmp_path)
    assert store.key == key and store.find(["s3"]) == {}
    assert {i: store.find([i]).get(i) for i in made if i != "s3"} == {i: r for i, r in made.items() if i != "s3"}
    with pytest.raises(ds.DreamStreamError, match="another server's"):
        FolderStore(tmp_path)
    store.close()
    assert oct(os.stat(tmp_path / "key").st_mode & 0o77) == "0o0"


def test_a_record_cut_in_two(tmp_path):
    store, made = FolderStore(tmp_path), records(4)
    sizes = []
    for stream_id, record in made.items():
        store.keep({stream_id: record})
        sizes.append(os.path.getsize(tmp_path / "log"))
    store.close()
    content = (tmp_path / "log").read_bytes()
    for cut in range(sizes[1], sizes[3] + 1, 3):
        (tmp_path / "log").write_bytes(content[:cut])
        store = FolderStore(tmp_path)
        assert [i for i in made if store.find([i]).get(i)] == list(made)[: sum(size <= cut for size in sizes)]
        store.keep({"new": made["s1"]})
        store.close()
        store = FolderStore(tmp_path)
        assert store.find(["new"]).get("new") == made["s1"]
        store.close()


def test_a_log_is_rewritten(tmp_path):
    store, record = FolderStore(tmp_path), replace(records(3)["s2"], snapshot=b"x" * 100_000)
    for k in range(100):
        store.keep({f"s{k % 3}": record})
    assert os.path.getsize(tmp_path / "log") < 3_000_000 and store.find(["s1"]) == {"s1": record}
    store.sweep(-1.0, {"s0"})
    assert store.find(["s0", "s1", "s2"]) == {"s0": record}
    store.close()


def test_a_disk_that_is_full_within_a_record(tmp_path):
    """What was kept before is there, and what is kept when there is room again."""
    store, made = FolderStore(tmp_path), records(3)
    store.keep({"s0": made["s0"]})
    log = store._log

    class Full:
        seek, truncate, fileno = log.seek, log.truncate, log.fileno
        room = 40

        def write(self, data):
            n, self.room = min(self.room, len(data)), 0
            if not n:
                raise OSError(28, "No space left on device")
            return log.write(data[:n])

    store._log = Full()
    with pytest.raises(OSError, match="No space"):
        store.keep({"s1": made["s1"]})
    assert store.find(["s1"]) == {}
    store._log = log
    store.keep({"s2": made["s2"]})
    store.close()
    store = FolderStore(tmp_path)
    assert [store.find([f"s{k}"]).get(f"s{k}") for k in range(3)] == [made["s0"], None, made["s2"]]
    store.close()
