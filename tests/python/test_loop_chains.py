"""Steps of a loop that work by elements: the bits of their nodes, and of any chunks, however many frames come."""

import json
from typing import Any

import numpy as np
import pytest
from ds_laws.operators.loops import by_elements
from turns import in_blocks

import dreamstream as ds
from dreamstream import _core
from dreamstream.nn import functional as F

FRAMES = 1_000_000


def run(body: dict[str, Any], inputs: list[Any], weights: list[Any], dtype: str, streams: list[Any]) -> Any:
    """Return the outputs of whole streams in one call."""
    signatures = [
        [(dtype, x.shape[1:], 1, 1) for x in streams[0]],
        [w if w is None else (dtype, w.shape) for w in weights],
    ]
    op = _core.Op("scan", {"body": json.dumps(body)}, *signatures)
    counts = []
    for k in range(len(inputs)):
        lengths = np.array([[0, -1, len(s[k]), len(s[k])] for s in streams])
        counts.append(lengths)
    ended = np.ones(len(streams), bool)
    values = [np.concatenate([s[k] for s in streams]) for k in range(len(inputs))]
    given = [w if w is None else np.ascontiguousarray(w) for w in weights]
    return op.run(values, counts, op.counts(counts, ended), ended, None, given, True)[0]


def beside(body: dict[str, Any], n_inputs: int, dtype: str) -> dict[str, Any]:
    """Return the same loop that also carries something of another size: its steps run node by node."""
    n = len(body["carried"])

    def moved(value: int) -> int:
        return value + (value >= n_inputs + n)

    (steady,) = body["bodies"]
    nodes = [
        {**node, "inputs": [*map(moved, node["inputs"])], "weights": [w + (w >= n) for w in node["weights"]]}
        for node in steady["nodes"]
    ]
    kept = [*map(moved, steady["carried"]), n_inputs + n]
    return {
        "carried": [*body["carried"], {"name": "beside", "dtype": dtype, "shape": [1]}],
        "bodies": [{"nodes": nodes, "carried": kept, "outputs": [*map(moved, steady["outputs"])]}],
    }


@pytest.mark.fast
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@in_blocks("seed", range(20), 10)
def test_steps_by_elements_have_the_bits_of_their_nodes(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    case = by_elements(rng, dtype)
    body, n = json.loads(case.attributes["body"]), len(case.inputs)
    streams = [[rng.standard_normal((k, *i.features)).astype(dtype) for i in case.inputs] for k in (7, 0, 3, 40)]
    weights = list(case.weights)
    carried = len(body["carried"])
    apart = [*weights[:carried], None, *weights[carried:]]
    ours = run(body, case.inputs, weights, dtype, streams)
    for y, z in zip(ours, run(beside(body, n, dtype), case.inputs, apart, dtype, streams)):
        np.testing.assert_array_equal(y, z)


class Recurrence(ds.nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return F.linear_recurrence(a, b)


def test_a_million_frames_are_as_exact_as_the_first_ones() -> None:
    rng = np.random.default_rng(0)
    a = rng.uniform(0.9, 0.999, (FRAMES, 2)).astype(np.float32)
    b = rng.standard_normal((FRAMES, 2)).astype(np.float32)
    spec = {"a": ("B", "L", 2), "b": ("B", "L", 2)}
    engine = ds.compile(Recurrence().eval(), spec, verify=False)
    whole = engine.step({"s": {"a": a, "b": b}}, sos="s", eos="s")["s"]
    ends = np.sort(rng.integers(0, FRAMES, 200))
    parts = []
    for begin, end in zip([0, *ends], [*ends, FRAMES]):
        chunk = {"s": {"a": a[begin:end], "b": b[begin:end]}}
        parts.append(engine.step(chunk, sos=["s"] if begin == 0 else [], eos=["s"] if end == FRAMES else [])["s"])
    np.testing.assert_array_equal(np.concatenate(parts), whole)

    h = np.zeros(2, np.float32)
    for t in range(2000):
        h = a[t] * h + b[t]
        np.testing.assert_array_equal(whole[t], h)

    # h[t] is a sum over pairs (a, b) that are put together by twos: (a, b) then (c, d) is (a c, c b + d)
    decays, sums, reach = a.astype(np.float64), b.astype(np.float64), 1
    while reach < 65_536:  # 0.999 ** 65536 is 3e-29
        sums[reach:] += decays[reach:] * sums[:-reach].copy()
        decays[reach:] = decays[reach:] * decays[:-reach].copy()
        reach *= 2
    error = np.abs(whole - sums)
    assert error.max() <= 2 * 2.0**-24 * np.abs(sums).max() / (1 - 0.999)
    assert error[-100_000:].max() <= 2 * error[:100_000].max()


class Written(ds.nn.Module):
    """h = a h + b, a and b as a form says, read as it is or by the sum of h c."""

    def __init__(self, decay: str, given: str, summed: bool, n: int) -> None:
        super().__init__()
        self.decay, self.given, self.summed = decay, given, summed
        self.table = ds.nn.Parameter(-np.random.default_rng(0).random((24, n)).astype(np.float32))

    def forward(self, x: Any, w: Any) -> Any:  # (B, L, 24), (B, L, n)
        h, ys = ds.zeros(x.size(0), *self.table.shape), []
        for t in range(x.size(1)):
            rows, across = x[:, t].unsqueeze(2), w[:, t].unsqueeze(1)
            a = {
                "table": self.table,
                "rows": rows,
                "across": across,
                "outer": rows * across,
                "weighed": rows * self.table,
                "exp": ds.exp(rows * self.table),
                "both": ds.exp(rows * across),
            }[self.decay]
            b = {"rows": rows, "across": across, "outer": rows * across, "weighed": across * self.table}[
                self.given
            ]
            h = b + h * a if self.given == "rows" else a * h + b
            ys.append((across * h).sum(-1) if self.summed else h)
        return ds.stack(ys, 1)


@pytest.mark.parametrize(("summed", "n"), [(True, 5), (False, 16), (False, 40), (True, 40)])
@pytest.mark.parametrize("given", ["rows", "across", "outer", "weighed"])
@in_blocks("decay", ["table", "rows", "across", "outer", "weighed", "exp", "both"], 7)
def test_a_linear_recurrence_has_the_bits_of_its_operators(decay: str, given: str, summed: bool, n: int) -> None:
    rng = np.random.default_rng(n)
    x, w = (rng.uniform(-1, 1, (1, 30, k)).astype(np.float32) for k in (24, n))
    model = Written(decay, given, summed, n).eval()
    engine = ds.compile(model, {"x": ("B", "L", 24), "w": ("B", "L", n)}, verify=False)
    parts = [
        engine.step({"s": {"x": x[0, i : i + 7], "w": w[0, i : i + 7]}}, sos=["s"] if i == 0 else [])["s"]
        for i in range(0, 30, 7)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), model(ds.tensor(x), ds.tensor(w)).numpy()[0])


class StateSpace(ds.nn.Module):
    def __init__(self, outside: bool) -> None:
        super().__init__()
        self.outside = outside
        self.table = ds.nn.Parameter(np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32))

    def forward(self, x: Any) -> Any:  # (B, L, 40)
        h, ys = ds.zeros(x.size(0), 40, 8), []
        decays = ds.exp(-ds.exp(x.unsqueeze(3) * self.table)) if self.outside else None
        for t in range(x.size(1)):
            decay = decays[:, t] if self.outside else ds.exp(-ds.exp(x[:, t].unsqueeze(2) * self.table))
            h = decay * h + x[:, t].unsqueeze(2)
            ys.append((h * self.table).sum(-1))
        return ds.stack(ys, 1)


def test_what_is_larger_than_what_it_is_made_of_is_made_in_the_loop(tmp_path: Any) -> None:
    x = np.random.default_rng(1).standard_normal((30, 40)).astype(np.float32)
    outputs = []
    for outside in (True, False):
        engine = ds.compile(StateSpace(outside).eval(), ("B", "L", 40))
        engine.save(tmp_path / "loop.dsm")
        raw = (tmp_path / "loop.dsm").read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        nodes = json.loads(header["__metadata__"]["dreamstream"])["graph"]["nodes"]
        assert nodes[-1]["op"] == "scan" and nodes[-1]["inputs"] == [0]  # the engine's own
        outputs.append(engine.step({"s": x}, sos="s", eos="s")["s"])
    np.testing.assert_array_equal(*outputs)


@pytest.mark.fast
def test_what_a_loop_is_given_may_be_made_by_many_operations() -> None:
    """Each is looked at once: a walk back by every path would take two to the power of 60 steps."""

    class Deep(ds.nn.Module):
        def forward(self, x: Any) -> Any:  # (B, L, 3)
            h, ys = ds.zeros(x.size(0), 3), []
            for _ in range(60):
                x = x * 0.5 + x.tanh()
            for t in range(x.size(1)):
                h = 0.5 * h + x[:, t]
                ys.append(h)
            return ds.stack(ys, 1)

    x = np.random.default_rng(2).standard_normal((9, 3)).astype(np.float32)
    model = Deep().eval()
    y = ds.compile(model, ("B", "L", 3)).step({"s": x}, sos="s", eos="s")["s"]
    np.testing.assert_allclose(y, model(ds.tensor(x[None])).numpy()[0], atol=1e-6)


@pytest.mark.fast
@pytest.mark.parametrize(("value", "right"), [("-inf", True), (0.5, True), ("infinite", False), ([1], False)])
def test_numbers_of_a_body_are_numbers_or_the_words_for_those_that_json_lacks(value: Any, right: bool) -> None:
    node = {"op": "elu", "attributes": {"alpha": value}, "inputs": [0], "weights": []}
    body = json.dumps({"carried": [], "bodies": [{"nodes": [node], "carried": [], "outputs": [1]}]})
    signatures = [("float32", (2,), 1, 1)]
    if right:
        assert _core.Op("scan", {"body": body}, signatures).outputs == signatures
    else:
        with pytest.raises(ds.DreamStreamError, match=r"attributes\.alpha: expected a number"):
            _core.Op("scan", {"body": body}, signatures)
