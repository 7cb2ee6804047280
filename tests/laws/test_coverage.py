"""Nothing is left out: every operator has a generator and a reference, and runs in every mode of the door."""

import inspect
import sys

import numpy as np
import pytest
from ds_laws import GENERATORS, LAWS, MODELS
from ds_laws.case import DEFINITIONS
from ds_laws.drive import Eager, alone, plain
from ds_laws.reference import REFERENCES, Refused
from turns import in_blocks

from dreamstream import _core, dispatch, plain_operators
from dreamstream.array import operators
from dreamstream.engine.capture import Capture
from dreamstream.errors import DTypeError
from dreamstream.online.eager import EagerCall

#: The modes that these laws cover, and what runs operators in each; plain tensors go straight to the kernels.
MODES = {"offline": None, "eager": EagerCall, "captured": Capture}

#: What computes nothing by itself, and modes that other tests cover, with their place.
ABSTRACT = {"Entry", "Call"}
ELSEWHERE = {
    "TorchCall": "tests/torch/test_kernels.py, which enumerates the registry too",
    "TapedCall": "tests/laws/test_random_gradients.py, which streams what these laws do and reads it backwards",
    "Body": "tests/torch/test_loops.py: operations on single frames are recorded, for a loop",
}

#: Plain tensors do without these: they are indexed and joined by NumPy. `test_whole_sequences` runs them.
NUMPY_DOES = {"cut", "table", "positions", "cat", "pad_to"}


@pytest.mark.fast
def test_every_operator_has_a_generator_and_a_reference():
    registry = [o["name"] for o in _core.operators()]
    assert set(GENERATORS) == set(registry)
    assert set(REFERENCES) == set(registry)
    assert not set(MODELS) & set(GENERATORS), "laws name one thing by one name"


@pytest.mark.fast
def test_every_mode_is_known():
    entries = set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "dreamstream":
            for found in vars(module).values():
                if inspect.isclass(found) and {"run", "misuse"} <= set(dir(found)):
                    entries.add(found.__name__)
    known = {entry.__name__ for entry in MODES.values() if entry is not None}
    assert entries - ABSTRACT - set(ELSEWHERE) == known, "a mode of the door that no law covers"


@pytest.mark.fast
@pytest.mark.parametrize("name", GENERATORS)
def test_runs_in_every_mode(name, monkeypatch):
    """Whichever way a case is written, it is the operator that runs: the door is asked for it in every mode."""
    asked, operator = set(), dispatch.operator

    def watched(name, *args, **kwargs):
        asked.add(name)
        return operator(name, *args, **kwargs)

    for door in (dispatch, operators, plain_operators):
        monkeypatch.setattr(door, "operator", watched)
    rng, seen = np.random.default_rng(7), {"offline"} if name in NUMPY_DOES else set()
    for dtype in ("float32", "float64") * 10:
        if seen == set(MODES):
            break
        case = GENERATORS[name](rng, dtype)
        data = {"s": case.stream(rng)}
        for mode in MODES:
            asked.clear()
            if mode == "eager":
                alone(Eager(case, rng), data, rng)
            elif mode == "captured" and "engine" in case.modes:
                case.engine()
            elif mode == "offline" and len({len(a) for a in data["s"]}) == 1:
                case.model()(*plain(case, [data["s"]]))
            seen |= {mode} & (set(MODES) if name in asked else set())
    missing = set(MODES) - seen
    assert not missing, f"{name} never ran {', '.join(missing)}"


@pytest.mark.fast
@in_blocks("name", list(GENERATORS), 23)
def test_whole_sequences(name):
    """The C operator itself on whole sequences, ragged and all at once, in both types and through OpenBLAS."""
    rng = np.random.default_rng(8)
    for dtype in ("float32", "float64") * 3:
        case = GENERATORS[name](rng, dtype)
        streams = [case.stream(rng) for _ in range(4)]
        types = [(i.dtype, i.features, i.rate.numerator, i.rate.denominator) for i in case.inputs]
        op = dispatch.operator(name, case.attributes, types, case.weights)
        values = [np.ascontiguousarray(np.concatenate([s[k] for s in streams])) for k in range(len(types))]
        counts = []
        for k in range(len(types)):
            lengths = np.zeros((len(streams), 4), np.int64)
            lengths[:, 1] = -1  # they begin here
            lengths[:, 2:] = [[len(s[k])] * 2 for s in streams]
            counts.append(lengths)
        ended = np.ones(len(streams), bool)
        outputs = op.counts(counts, ended)
        weights = [None if w is None else np.asarray(w, order="C") for w in case.weights]
        results, _ = op.run(values, counts, outputs, ended, None, weights, True)
        at = [0] * len(results)
        for s in streams:
            for k, wanted in enumerate(case.expected(s)):
                got = results[k][at[k] : at[k] + len(wanted)]
                at[k] += len(wanted)
                assert got.shape == wanted.shape
                scale = (
                    max(1.0, float(np.abs(np.where(np.isfinite(wanted), wanted, 0)).max(initial=0.0)))
                    if wanted.size
                    else 1.0
                )
                np.testing.assert_allclose(
                    got, wanted, rtol=0, atol=(1e-5 if dtype == "float32" else 1e-10) * scale
                )
        assert at == [len(r) for r in results]


@pytest.mark.fast
@in_blocks("name", list(GENERATORS), 23)
def test_cases_vary(name):
    """Random attributes are random: every choice comes up, and streams of some length."""
    rng = np.random.default_rng(9)
    cases = [GENERATORS[name](rng, "float32") for _ in range(120)]
    for d in DEFINITIONS[name]["attributes"]:
        values = {str(c.attributes.get(d["name"])) for c in cases}
        if d["kind"] == "choice":
            assert values >= set(d["choices"].split("|")) - {"float64"}, f"{d['name']}: only {values}"
        else:
            assert len(values) > 1, f"{d['name']} is always {values}"
    most = max(len(a) for c in cases for a in c.stream(rng))
    assert most >= 8
    for case in cases[:20]:
        lengths = case.random_lengths(rng)
        try:
            case.expected(case.data(rng, lengths))
        except Refused:
            pytest.fail(f"a stream of {lengths} frames is refused: {case}")


@pytest.mark.fast
@in_blocks("name", list(GENERATORS), 23)
def test_engine_refuses_float64(name):
    """The engine computes in float32: inputs in float64 have one mode to stream in, and say so."""
    rng = np.random.default_rng(10)
    for case in (GENERATORS[name](rng, "float64") for _ in range(4)):
        if "float64" in [i.dtype for i in case.inputs]:
            with pytest.raises(DTypeError):
                case.engine()


@pytest.mark.fast
def test_laws_are_all_there():
    assert set(LAWS) == {
        "values",
        "offline-is-the-same",
        "chunking",
        "counts",
        "finality",
        "batching",
        "padding",
        "callers-memory",
        "plain-arrays",
        "allocation",
        "failed-call",
        "failed-allocation",
        "refused-length",
        "unstreamable",
        "reset",
        "snapshots",
        "forks",
        "empty-rows",
        "edited-weights",
        "far",
        "slopes",
        "slopes-in-chunks",
        "slopes-of-calls",
        "slopes-alone",
    }
