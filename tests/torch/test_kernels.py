"""torch's kernels give what the C operators give: every operator, in whole sequences and in ragged chunks."""

import zlib

import numpy as np
import pytest
import torch
from ds_laws import GENERATORS, MEMBERS, n_cases
from ds_laws.case import DEFINITIONS, Case, Input
from ds_laws.drive import Row, schedule
from ds_laws.operators.norms import CANCELS, far
from torch_windows import Online, Plain, tensors
from turns import in_blocks

import dreamstream as ds
from dreamstream import _core, dispatch
from dreamstream.torch.run.kernels import KERNELS

NAMES = [o["name"] for o in _core.operators()]
WINDOWED = [name for name in NAMES if not KERNELS[name].framewise]
MEANS = [
    name
    for name in WINDOWED
    if any("mean" in (a["choices"] or "").split("|") for a in DEFINITIONS[name]["attributes"])
]


def test_every_operator_has_a_kernel():
    assert set(KERNELS) == set(NAMES)


# ---------------------------------------------------------------------- cases
def case_of(name, dtype, seed):
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    case = GENERATORS[name](rng, dtype)
    if DEFINITIONS[name]["lockstep"]:
        case.skew = 0  # the door brings them together before
    types = [(i.dtype, i.features, i.rate.numerator, i.rate.denominator) for i in case.inputs]
    return case, dispatch.operator(name, case.attributes, types, case.weights), rng


def cases(name, dtype):
    usual = 10 if name in WINDOWED else 26 if name == "reduce_features" else 4
    for seed in range(n_cases(name, usual)):
        case, op, rng = case_of(name, dtype, seed)
        if dtype == "float64" or name not in CANCELS or case.inputs[0].draw is not far:
            yield seed, case, op, rng


def calls_of(case, rng, data, style):
    """The schedule's calls: rows, counts of all inputs, which rows end."""
    for rows in schedule(case, rng, data, style):
        if rows:
            cuts = [np.array([r.cuts[k] for r in rows], np.int64) for k in range(len(case.inputs))]
            ended, counts = np.array([r.eos for r in rows]), [np.repeat(c, 2, 1) for c in cuts]
            begun = np.any([c > 0 for c in cuts], 0) | (ended[:, None] & [False, True])
            for c in counts:
                c[:, 1::2][~begun] = -1
            yield rows, counts, ended


def parts_of(case, op, data, rows):
    """``[input][row]``: the frames of a call."""
    return [[data[r.id][k][slice(*r.cuts[k])] for r in rows] for k in range(op.n_values)]


def near(got, wanted, bound):
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    scale = max(1.0, np.abs(np.where(np.isfinite(b), b, 0)).max(initial=0.0))
    np.testing.assert_allclose(a, b, rtol=0, atol=bound * scale)


# ---------------------------------------------------------------------- values
def compare(driver, case, op, rng, style, bound, spoilt=0.0):
    data = {f"s{i}": case.stream(rng) for i in range(int(rng.integers(1, 6)))}
    for array in (a for arrays in data.values() for a in arrays if a.dtype.kind == "f"):
        array[rng.random(len(array)) < spoilt] = np.nan
    weights = [None if w is None else np.asarray(w, order="C") for w in case.weights]
    streams, states = driver(case, op, tensors(case.weights)), {}
    for rows, counts, ended in calls_of(case, rng, data, style):
        parts, ids = parts_of(case, op, data, rows), [r.id for r in rows]
        outputs, old = op.counts(counts, ended, ids), [None if r.sos else states[r.id] for r in rows]
        frames = [np.concatenate(p) for p in parts]
        wanted, new = op.run(frames, counts, outputs, ended, old, weights, False)
        states.update(zip(ids, new or [None] * len(ids)))
        for y, w in zip(streams.call(rows, [tensors(p) for p in parts], counts, ended), wanted, strict=True):
            if y is None:
                assert not len(w)
            else:
                near(y.numpy(), w, bound)


@pytest.mark.filterwarnings("ignore:LSTM with projections", "ignore:.*degrees of freedom")
@pytest.mark.parametrize("dtype, bound", [("float32", 1e-5), ("float64", 1e-10)])
@pytest.mark.parametrize("name", NAMES)
def test_as_the_c_operator(name, dtype, bound):
    """Call by call, whatever the chunks: the same frames as C gives, in the plain driver and in the bridge's."""
    for seed, case, op, rng in cases(name, dtype):
        if dtype == "float32" and seed % 4 in (1, 2):  # what another type changes, half of them show
            continue
        style = ("random", "whole", "random", "frames")[seed % 4]
        try:
            with torch.no_grad():
                compare((Plain, Online)[seed // 2 % 2], case, op, rng, style, bound)
        except Exception as error:
            raise AssertionError(f"case {seed}, {style}: {case}\n{error!r}") from error


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", [n for n in WINDOWED if n not in CANCELS])
def test_nan_reaches_what_reads_it(name):
    """Frames that hold NaN show where C shows them, and nowhere else."""
    for seed, case, op, rng in cases(name, "float64"):
        try:
            with torch.no_grad():
                compare((Plain, Online)[seed % 2], case, op, rng, "random", 1e-10, spoilt=0.15)
        except Exception as error:
            raise AssertionError(f"case {seed}: {case}\n{error!r}") from error


@in_blocks("name", sorted({*NAMES} - {"length", "require"}), 24)  # these are numbers of the host
def test_no_number_is_read_from_the_device(name):
    """On the device without values everything but values comes out, in chunks that differ."""
    for seed, case, op, rng in cases(name, "float32"):
        if seed not in (0, 2) or (seed and name in MEMBERS):  # values are nothing here
            continue
        data = {f"s{i}": case.stream(rng) for i in range(3)}
        weights = [None if w is None else w.to("meta") for w in tensors(case.weights)]
        streams = (Online, Plain)[seed // 2 % 2](case, op, weights)
        streams.device = "meta"
        with torch.no_grad():
            for rows, counts, ended in calls_of(case, rng, data, "random"):
                parts = [[x.to("meta") for x in tensors(p)] for p in parts_of(case, op, data, rows)]
                outputs = op.counts(counts, ended, [r.id for r in rows])
                for y, c, o in zip(streams.call(rows, parts, counts, ended), outputs, op.outputs):
                    assert y is None or y.is_meta
                    assert y is None or y.shape == ((c[:, 2] - c[:, 0]).sum(), *o[1])


@pytest.mark.parametrize("name", MEANS)
def test_long_sums_are_taken_in_double(name):
    """Far from zero, and over many frames, a mean in single precision would drift."""
    rng = np.random.default_rng(3)
    case = Case(name, [Input((2,))], {"kind": "mean"})
    op = dispatch.operator(name, case.attributes, [("float32", (2,), 1, 1)], [])
    streams, n, size = Online(case, op, []), 60, 1500
    x = (1e4 + rng.standard_normal((n * size, 2))).astype(np.float32)
    with torch.no_grad():
        for k in range(n):
            low, high = k * size, (k + 1) * size
            row, ended = Row("s", k == 0, k == n - 1, ((low, high),)), np.array([k == n - 1])
            (y,) = streams.call([row], [tensors([x[low:high]])], [np.array([[low, low, high, high]])], ended)
    np.testing.assert_allclose(y[-1].numpy(), x.mean(0, dtype=np.float64), rtol=1e-7)


# ---------------------------------------------------------------------- gradients
def outputs_of(driver, case, op, rng, style, streams, weights):
    """Each stream's outputs end to end."""
    out: dict[str, list] = {i: [[] for _ in op.outputs] for i in streams}
    plain = {i: [a.detach().numpy() for a in arrays] for i, arrays in streams.items()}
    driven = driver(case, op, weights)
    for rows, counts, ended in calls_of(case, rng, plain, style):
        parts, outputs = (parts_of(case, op, streams, rows), op.counts(counts, ended, [r.id for r in rows]))
        for k, y in enumerate(driven.call(rows, parts, counts, ended)):
            lengths = (outputs[k][:, 2] - outputs[k][:, 0]).tolist()
            if y is not None:
                for r, frames in zip(rows, y.split(lengths)):
                    out[r.id][k].append(frames)
    return {(i, k): torch.cat(parts) for i, all_ in out.items() for k, parts in enumerate(all_) if parts}


def gradients(outputs, probes, leaves):
    total = sum((outputs[key] * probe).sum() for key, probe in probes.items())
    if not total.requires_grad:  # windows that see nothing but padding
        return [torch.zeros_like(x) for x in leaves]
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found)]


#: What torch takes for constants.
STATISTICS = {"batch_norm": 2}


def differentiable(name):
    _, op, _ = case_of(name, "float64", 0)
    return op.outputs[0][0].startswith("float")


@pytest.mark.filterwarnings("ignore:LSTM with projections", "ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", [n for n in NAMES if differentiable(n)])
def test_gradients_of_chunks_are_those_of_whole_streams(name):
    """States on the tape: gradients into inputs, weights and starts, however the streams are cut."""
    for seed, case, op, rng in cases(name, "float64"):
        if not op.outputs[0][0].startswith("float"):
            continue
        streams = {f"s{i}": tensors(case.stream(rng)) for i in range(int(rng.integers(1, 4)))}
        weights = tensors(case.weights)
        leaves = [x for arrays in streams.values() for x in arrays] + weights[STATISTICS.get(name, 0) :]
        leaves = [x for x in leaves if x is not None and x.is_floating_point()]
        for x in leaves:
            x += torch.from_numpy(rng.standard_normal(x.shape)) / 1000  # no two are equal
            x.requires_grad_()
        whole = outputs_of(Plain, case, op, rng, "whole", streams, weights)
        probes = {
            key: torch.from_numpy(rng.standard_normal(y.shape))
            for key, y in whole.items()
            if y.requires_grad and y.numel()
        }
        if probes:
            wanted = gradients(whole, probes, leaves)
            got = outputs_of((Plain, Online)[seed % 2], case, op, rng, "random", streams, weights)
            for a, b in zip(gradients(got, probes, leaves), wanted, strict=True):
                near(a.numpy(), b.numpy(), 1e-10)


def test_frames_as_images_have_their_dilation():
    """What torch computes of frames as of images of one row: groups, where no gradient is asked for."""
    conv, x = torch.nn.Conv1d(4, 4, 3, dilation=2, groups=2, padding=2).eval(), torch.randn(4, 50)
    online = ds.patch_module(conv).online()
    with torch.no_grad():
        parts = [online(ds.stream_tensor([x[:, :30]], ids=["a"], sos=True))["a"]]
        parts.append(online(ds.stream_tensor([x[:, 30:]], ids=["a"], eos=True))["a"])
        torch.testing.assert_close(torch.cat(parts, 1), online.offline()(x[None])[0])
