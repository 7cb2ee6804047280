"""Memory and files: loading leaks nothing, weights stay where the file is mapped, streams cost their state.

Each script runs in a process of its own and prints, as JSON, what it measured in KiB.
"""

import json
import textwrap

import pytest
from processes import MEMORY, printed

HEAD = """
    path = sys.argv[1]

    def own():  # what no file holds
        return resident(1) - resident(2)

    def made(size):
        return nn.Sequential(nn.Conv1d(4, size, 5, padding=2), nn.Conv1d(size, 4, 1)).eval()
"""

LOADS = """
    faults.install()
    ds.compile(made(64), ("B", 4, "L"), verify=False).save(path)
    content = open(path, "rb").read()
    text = io.BytesIO()
    ds.load(path).save(text, "xml")
    broken = [content[:-1], content.replace(b"conv1d", b"conv9d"), text.getvalue()[:-9]]

    def step(k):
        engine = ds.load((path, content, text.getvalue())[k % 3], threads=1 + k % 2)
        engine.step({"a": np.ones((4, 7), np.float32)}, sos="a")
        other = (copy.copy, lambda e: pickle.loads(pickle.dumps(e)))[k % 2](engine)
        if k % 5:
            engine.close()
        other.step({}, sos="b")
        del engine
        other.save(io.BytesIO())
        try:
            ds.load(broken[k % 3])
        except ds.FormatError:
            pass
        else:
            raise AssertionError

    for k in range(100):
        step(k)
    before, blocks = [resident()], faults.stats()["live_blocks"]
    for _ in range(2):  # what leaks grows in both, what the allocator keeps of other threads' memory in one
        for k in range(250):
            step(k)
        before.append(resident())
    stats = faults.stats()
    print(json.dumps({"grown": [b - a for a, b in zip(before, before[1:])],
                      "blocks": stats["live_blocks"] - blocks,
                      "bad": stats["bad_releases"]}))
"""

STREAMS = """
    ds.compile(made(20_000), ("B", 4, "L"), verify=False).save(path)
    engine = ds.load(path)
    chunk = np.ones((4, 3), np.float32)
    engine.step({"first": chunk}, sos=["first"])
    before = resident()
    for k in range(10_000):
        engine.step({str(k): chunk[:, :1]}, sos=[str(k)])
    assert len(engine.ids) == 10_001
    print(json.dumps({"grown": resident() - before, "states": 10_000 * engine.state_size // 1024,
                      "weights": os.path.getsize(path) // 1024}))
"""

MAPPED = """
    if not os.path.exists(path):
        weight = nn.Linear(2048, 8192)
        weight.weight.numpy()[...] = 0.5
        ds.compile(nn.Sequential(weight).eval(), ("B", "L", 2048), verify=False).save(path)
        sys.exit()
    before = own()
    engine = ds.load(path)
    loaded = own()
    y = engine.step({"a": np.ones((1, 2048), np.float32)}, "a")["a"]
    assert abs(y[0, 0] - 1024) < 1
    print(json.dumps({"own": own() - before, "file": os.path.getsize(path) // 1024,
                      "weights": engine.weights_size // 1024}))
"""

PEAKS = """
    def grown(call):
        '''Return how much memory a call takes beyond what there was, at most.'''
        before = resident()
        open("/proc/self/clear_refs", "w").write("5")
        call()
        status = open("/proc/self/status").read()
        return int(status.partition("VmHWM:")[2].split()[0]) - before

    ds.compile(made(2), ("B", 4, "L"))
    model = nn.LSTM(768, 768, 4, batch_first=True).eval()
    engine = ds.compile(model, ("B", "L", 768), weights="int8", verify=False)
    print(json.dumps({"wide": sum(p.numpy().nbytes for p in model.parameters()) // 1024,
                      "saved": grown(lambda: engine.save(path)), "loaded": grown(lambda: ds.load(path))}))
"""


def run(body, path, **env):
    said = printed("-c", MEMORY + textwrap.dedent(HEAD) + textwrap.dedent(body), path, **env)
    return json.loads(said) if said else None


def test_hundreds_of_loads(tmp_path):
    seen = run(LOADS, tmp_path / "m.dsm")
    assert min(seen["grown"]) < 256 and (seen["blocks"], seen["bad"]) == (0, 0), seen


def test_ten_thousand_streams(tmp_path):
    """Their states, the table of ids, and no copy of weights."""
    seen = run(STREAMS, tmp_path / "m.dsm")
    per_stream = 1  # KiB besides the state: id, slot
    assert seen["grown"] < 1.3 * seen["states"] + 10_000 * per_stream, seen


def test_weights_stay_in_the_file(tmp_path):
    """Where kernels read weights as they are, a loaded engine's memory is the file's pages."""
    path, plain = tmp_path / "m.dsm", {"DREAMSTREAM_ISA": "ref", "DREAMSTREAM_BLAS": "none"}
    run(MAPPED, path)
    seen = run(MAPPED, path, **plain)
    assert seen["file"] > 60_000
    if seen["weights"] > 1.5 * seen["file"]:
        pytest.skip("these kernels prepare weights of their own")
    assert seen["own"] < 4096, seen


def test_files_take_one_weight_at_a_time(tmp_path):
    """Narrow weights are neither unpacked nor widened all at once, as they are written or read."""
    seen = run(PEAKS, tmp_path / "m.dsm")
    assert seen["saved"] < 0.5 * seen["wide"] and seen["loaded"] < seen["wide"], seen
