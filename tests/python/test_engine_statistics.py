"""How an engine's steps route tokens: what modules say of the same frames, and nothing where nobody asks."""

import io
from functools import partial

import numpy as np
import pytest
from together import in_threads

import dreamstream as ds
from dreamstream import nn

D = 8
GATES = {
    "naive": lambda: nn.FMoETransformerMLP(6, D, 5),
    "all chosen": lambda: nn.FMoETransformerMLP(3, D, 5, top_k=3),
    "groups": lambda: nn.FMoE(
        8,
        D,
        gate=nn.gates.TopKGate(D, 8, groups=4, top_groups=3, renormalise=True),
        expert=nn.GatedExperts(8, D, 5),
    ),
    "a list": lambda: nn.FMoE(3, D, expert=[nn.Linear(D, D) for _ in range(3)], top_k=1),
    "stacked": lambda: nn.Sequential(
        nn.FMoETransformerMLP(6, D, 5),
        nn.Linear(D, D),
        nn.FMoETransformerMLP(4, D, 5, gate=nn.gates.SwitchGate, top_k=1),
    ),
}


def speech(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, D), dtype=np.float32)


def equal(told, wanted):
    for key, value in wanted.items():
        if key != "streams":
            np.testing.assert_allclose(told[key], value, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", GATES)
def test_what_modules_say(name):
    model = GATES[name]().eval()
    engine = ds.compile(model, ("B", "L", D))
    file = io.BytesIO()
    engine.save(file)
    x = {"anna": speech(200), "bob": speech(90, 1)}
    silent = {i: engine.step({i: a}, i, i)[i] for i, a in x.items()}
    ds.patch_module(model).online()
    mixtures = {path: m for path, m in model.named_modules() if hasattr(m, "keep_statistics")}
    for m in mixtures.values():
        m.keep_statistics()
    ids = list(x)
    model(ds.stream_tensor(list(x.values()), ids=ids, names=("B", "L", None), sos=[True] * 2, eos=[True] * 2))
    for each in (engine, ds.load(file.getvalue(), threads=2)):
        each.keep_statistics(history=True)
        for at in range(0, 200, 2):  # more calls than are left unread
            chunks = {i: a[at : at + 2] for i, a in x.items() if at < len(a)}
            ends = [i for i in chunks if at + 2 >= len(x[i])]
            for i, y in each.step(chunks, sos=[] if at else ids, eos=ends).items():
                np.testing.assert_array_equal(y, silent[i][at : at + 2])
        told = each.statistics()
        assert list(told["layers"]) == list(mixtures)
        assert told["tokens"] == 290 * len(mixtures) and set(told["streams"]) == {"anna", "bob"}
        for path, m in mixtures.items():
            layer = told["layers"][path]
            equal(layer, m.statistics())
            for i, a in x.items():
                equal(layer["streams"][i], m.statistics()["streams"][i])
                assert layer["streams"][i]["experts"].shape == (len(a), m.top_k)
        assert told["counts"].sum() == sum(layer["counts"].sum() for layer in told["layers"].values())


def test_every_way_to_step():
    engine = ds.compile(GATES["naive"]().eval(), ("B", "L", D))
    with pytest.raises(ds.ModeError, match="keep_statistics"):
        engine.statistics()
    engine.keep_statistics()
    x = speech(12)
    engine.step_batch(["a", "b"], np.stack([x, x]), sos=True)
    with engine.stream("c") as stream:
        stream.step(x)
    y = ds.stream_tensor([x], ids=["d"], sos=True, eos=True, names=("B", "L", None))
    engine(y)
    told = engine.statistics()["layers"][""]
    assert {i: t["tokens"] for i, t in told["streams"].items()} == dict.fromkeys("abcd", 12)
    assert "experts" not in told["streams"]["a"]
    engine.reset_statistics()
    assert engine.statistics()["tokens"] == 0
    with pytest.raises(ds.StreamIdError):  # a call that didn't happen
        engine.step({"nobody": x})
    assert engine.statistics()["tokens"] == 0
    engine.keep_statistics(False)
    engine.step({"a": x})
    with pytest.raises(ds.ModeError, match="keep_statistics"):
        engine.statistics()


def test_streams_of_several_threads():
    engine = ds.compile(GATES["stacked"]().eval(), ("B", "L", D))
    engine.keep_statistics()

    def run(i):
        for k in range(150):
            engine.step({str(i): speech(3, i)}, sos=str(i) if k == 0 else ())

    in_threads(*(partial(run, i) for i in range(4)))
    assert engine.statistics()["tokens"] == 2 * 4 * 150 * 3


def test_a_model_without_experts():
    engine = ds.compile(nn.Linear(D, D).eval(), ("B", "L", D))
    engine.keep_statistics()
    engine.step({"a": speech(4)}, sos="a")
    assert engine.statistics()["tokens"] == 0 and engine.statistics()["layers"] == {}


def test_watching_what_is_not_there():
    core = ds.compile(nn.Linear(D, D).eval(), ("B", "L", D))._core
    for edges in (0, 99, -1):
        with pytest.raises(ValueError, match=f"no node has the edge {edges}"):
            core.watch(np.int32([edges]).tobytes(), [], list)
    with pytest.raises(TypeError, match="bytes, a list and a callable"):
        core.watch(b"")
