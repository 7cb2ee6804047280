"""A mixture's weights exist once, however it is copied or loaded; scratch grows with tokens, not with experts.

Each script runs in a process of its own and prints, as JSON, what it measured in KiB. The large model's takes
minutes, 2.8 GB of disk, and 9 GB of memory while it is built.
"""

import json
import sys
import textwrap

import pytest
from processes import printed

HEAD = """
    import copy, gc, json, pickle, sys, time
    import numpy as np
    import dreamstream as ds
    from dreamstream import _core
    from dreamstream.models import ConformerMoE

    path = sys.argv[1]

    def status(name):
        gc.collect()
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))

    def speech(n, features=40):
        return np.random.default_rng(0).standard_normal((n, features), dtype=np.float32)

    STREAMING = {"causal": True, "decoding_chunk_size": 16, "num_decoding_left_chunks": 4}
"""

ONCE = """
    def made(hidden):
        conf = {"num_experts": 32, "hidden_units": hidden}
        small = {"num_blocks": 1, "linear_units": 64}
        return ConformerMoE(40, 10, attention_dim=256, num_blocks=2, embed_conf=small, moe_conf=conf, **STREAMING)

    model = made(1024).eval()  # 134 MB of experts
    weights = sum(p.numpy().nbytes for p in model.parameters()) // 1024
    before = status("RssAnon")
    ds.patch_module(model).online()
    patched = status("RssAnon") - before
    ds.compile(model, model.spec, verify=False).save(path)
    del model
    out = {"weights": weights, "patched": patched}
    _core.give_back()
    start = status("RssAnon")
    engine = ds.load(path)
    engine.step({"a": speech(206)}, sos="a", eos="a")
    loaded = status("RssAnon")
    out["loaded"] = loaded - start
    engines = [copy.copy(engine), copy.deepcopy(engine)]
    for e in engines:
        e.step({str(i): speech(8) for i in range(20)}, sos=[str(i) for i in range(20)])
    out["streams"], out["state"] = status("RssAnon") - loaded, 40 * engine.state_size // 1024
    out["pickle"] = len(pickle.dumps(engine)) // 1024
    few, = engine.step({"f": speech(206)}, sos="f", eos="f").values()
    del engines, engine, e
    _core.give_back()  # what the allocator keeps of freed memory
    out["left"] = status("RssAnon") - start
    print(json.dumps(out))
"""

LARGE = """
    model = ConformerMoE.of_18_layers(**STREAMING).eval()
    n = sum(p.numpy().size for p in model.parameters())
    engine = ds.compile(model, model.spec, rate=100, verify=False)
    engine.save(path)
    print(json.dumps({"parameters": n}))
"""

LARGE_LOADED = """
    x = speech(206)
    cpu = time.process_time()
    engine = ds.load(path, backend=sys.argv[2] or None)
    cpu = time.process_time() - cpu
    whole = engine.step({"s": x}, sos="s", eos="s")["s"]
    parts = []
    for at in range(0, 206, 64):
        sos, eos = ["s"] * (at == 0), ["s"] * (at + 64 > 206)
        parts.append(engine.step({"s": x[at : at + 64]}, sos=sos, eos=eos)["s"])
    print(json.dumps({"cpu": cpu, "peak": status("VmHWM"), "own": status("RssAnon"), "frames": len(whole),
                      "finite": bool(np.isfinite(whole).all()),
                      "same": bool(np.array_equal(np.concatenate(parts), whole))}))
"""


def measured(script: str, *arguments: object) -> dict[str, float]:
    whole = textwrap.dedent(HEAD) + textwrap.dedent(script)
    return json.loads(printed("-c", whole, *arguments, MALLOC_ARENA_MAX="1"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it asks Linux for memory")
def test_weights_exist_once(tmp_path):
    got = measured(ONCE, tmp_path / "model.dsm")
    small = 0.1 * got["weights"]
    assert got["patched"] < small, "patching copies nothing"
    assert got["loaded"] < got["weights"] + small, "one copy, or panels of it"
    assert got["streams"] < got["state"] + small, "copies of engines and their streams share weights"
    assert got["pickle"] < 16, "the path of the file"
    assert got["left"] < small, "weights are given back"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it asks Linux for memory")
def test_the_large_model(tmp_path):
    """18 layers, 32 experts: 711,262,004 parameters there, of which `concat_linear` and a head are not loaded."""
    path = tmp_path / "large.dsm"
    unused = 24 * (2 * 512 * 512 + 512) + 513 * 1434
    weights = 711_262_004 - unused
    assert measured(LARGE, path)["parameters"] == weights
    for backend in ("ref", ""):
        got = measured(LARGE_LOADED, path, backend)
        print(backend, got)
        assert (got["frames"], got["finite"], got["same"]) == (50, True, True)
        assert got["peak"] < 1.1 * weights * 4 / 1024
        if backend == "ref":  # its kernels read weights as they lie in the file
            assert got["cpu"] < 1 and got["own"] < 0.1 * weights * 4 / 1024
    path.unlink()
