"""Static exports give what the engine gives of whole streams: from the first frame to the last one flushed."""

import io

import numpy as np
import pytest
import torch

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from ds_laws import MEMBERS, made
from ds_laws.operators.norms import CANCELS
from exported_models import MODELS, made as model_of
from shared_cases import CASES, schedule, theirs
from static_streams import furthest, in_onnxruntime, total_of
from turns import by_turns

import dreamstream as ds
from dreamstream import _core
from dreamstream.errors import CaptureError, DTypeError, NotStreamableError

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about its own code
TOLERANCE = 1e-5

#: What no export has.
REFUSED = {"flip", "hold", "sort", "spread"}
NAMES = [o["name"] for o in _core.operators()]


def saved(model, path, frames, rows, **spec):
    """Export; return the call and the manifest. Every size is a number, so that no graph asks for one."""
    manifest = ds.export.onnx(model, spec.pop("spec", None), path, rows=rows, frames=frames, static=True, **spec)
    for name in manifest["phases"]:
        graph = onnx.load(path if name is None else path.with_name(name)).graph
        assert all(node.op_type not in ("Shape", "ConstantOfShape", "Range") for node in graph.node)
    return in_onnxruntime(path, manifest), manifest


def whole_frames(rates, frames):
    """The least number of frames from `frames` on that gives every input whole ones."""
    while any((frames * r / rates[0]).denominator != 1 for r in rates):
        frames += 1
    return frames


#: An operator takes turns with tests/torch/test_export_operators.py; a family's members are in the slow tier.
SLOW = {p.values[0] for p in by_turns(NAMES, ["onnx", "static"]) if p.values[1] == "static" and p.marks} | MEMBERS


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in NAMES])
def test_operators(name, tmp_path):
    worst, refusals = None, []
    for index in range(30):
        case, rng = made("values", name, index)
        if "engine" not in case.modes:
            continue
        engine = case.engine()
        frames = whole_frames([s.rate for s in engine.inputs], int(rng.choice([1, 2, 3, 5, 8])))
        try:
            call, manifest = saved(engine, tmp_path / "o.onnx", frames, int(rng.integers(1, 4)))
        except (NotStreamableError, CaptureError) as error:
            refusals.append(str(error))
            if len(refusals) == 8:
                break
            continue
        worst = furthest(call, manifest, engine, [case.stream(rng) for _ in range(4)], rng)
        assert worst is None or worst <= TOLERANCE or name in CANCELS, (index, case)
        if worst is not None:
            break
    assert (worst is None) == (name in REFUSED), refusals


@pytest.mark.parametrize(("name", "frames"), by_turns(MODELS, [1, 6], one_in=2))
def test_models(name, frames, tmp_path):
    model, spec, dtype = model_of(name)
    engine = ds.compile(model, spec, dtype=dtype, verify=False)
    rng = np.random.default_rng(0)
    call, manifest = saved(model, tmp_path / "m.onnx", frames, 2, spec=spec, dtype=dtype)
    shape = [d for d in spec if isinstance(d, int)]
    draw = rng.standard_normal if dtype == "float32" else lambda s: rng.integers(0, 7, s)
    streams = [[np.asarray(draw((n, *shape)), dtype)] for n in (1, 5, 23, 40)]
    assert furthest(call, manifest, engine, streams, rng) <= TOLERANCE


@pytest.mark.parametrize(
    ("name", "way"), by_turns([n for n in CASES if CASES[n].exports and CASES[n].onnx], ["static"], one_in=64)
)
def test_shared_cases(name, way, tmp_path):
    case = CASES[name]
    spec, more = case.spec()
    rng = np.random.default_rng(0)
    engine = ds.compile(theirs(case), spec, skew=case.skew, verify=False, **more)
    frames = whole_frames([s.rate for s in engine.inputs], int(rng.choice([1, 2, 3, 4, 7])))
    call, manifest = saved(theirs(case), tmp_path / "c.onnx", frames, 2, spec=spec, skew=case.skew, **more)
    plan = schedule(case)
    streams = []
    for i in list(plan.data)[:3]:
        given = [x.arranged(a) for x, a in zip(case.inputs, plan.data[i])]
        at = [[d for d in x.dims if d != "B"].index("L") for x in case.inputs]
        streams.append([np.moveaxis(x, k, 0) for x, k in zip(given, at)])
    worst = furthest(call, manifest, engine, streams, rng)
    assert worst is None or worst <= 2 * TOLERANCE


class Causal(torch.nn.Module):
    """A causal network with a batch norm and a recurrence."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv1d(3, 4, 3), torch.nn.BatchNorm1d(4)
        self.rnn = torch.nn.GRU(4, 5, batch_first=True)

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(torch.nn.functional.pad(x, (2, 0)))))
        return self.rnn(y.transpose(1, 2))[0]


def test_a_causal_model_has_no_integers(tmp_path):
    """No counts, masks or flags: frames and states come in and go out, and nothing but arithmetic is between."""
    path = tmp_path / "m.onnx"
    manifest = ds.export.onnx(Causal().eval(), ("B", 3, "L"), path, rows=2, frames=1, static=True)
    graph = onnx.load(path).graph
    assert [i.name for i in graph.input] == ["x", *(state["name"] for state in manifest["states"])]
    assert len(manifest["states"]) == 2 and manifest["inputs"][0]["total"] is None
    kinds = {n.op_type for n in graph.node}
    assert not kinds & {"Where", "Gather", "Less", "Shape", "Range", "Equal", "Constant"}
    assert len(graph.node) < 20


@pytest.mark.parametrize("frames", [1, 10])
def test_layers_that_look_ahead_share_their_masks(tmp_path, frames):
    """Dilated layers lie as convolutions want them, states too, and ask once which frames there are."""

    class Dilated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Conv1d(4, 4, 3, padding=d, dilation=d) for d in (1, 2, 4))

        def forward(self, x):
            for layer in self.layers:
                x = x + layer(torch.nn.functional.leaky_relu(x, 0.1))
            return x

    model, rng = Dilated().eval(), np.random.default_rng(0)
    call, manifest = saved(model, tmp_path / "m.onnx", frames, 2, spec=("B", 4, "L"))
    kinds = [n.op_type for n in onnx.load(tmp_path / "m.onnx").graph.node]
    assert "Transpose" not in kinds and [kinds.count(k) for k in ("Less", "GreaterOrEqual", "Or")] == [1, 1, 1]
    assert kinds.count("LeakyRelu") == 3 and "PRelu" not in kinds
    assert [s["dims"][1] for s in manifest["states"][1:]] == [4] * (len(manifest["states"]) - 1)
    engine = ds.compile(model, ("B", 4, "L"))
    streams = [[rng.standard_normal((n, 4)).astype(np.float32)] for n in (1, 5, 23, 30)]
    assert furthest(call, manifest, engine, streams, rng) <= TOLERANCE


@pytest.mark.parametrize("frames", [1, 4])
def test_distances_are_constants(tmp_path, frames):
    """What attention computes of the frames so far is known beforehand where they cancel out."""

    class Biased(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.qkv = torch.nn.Embedding(9, 2), torch.nn.Linear(8, 24)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
            at = torch.arange(x.size(1))
            gap = at[:, None] - at
            scores = q @ k.mT + self.table(gap.clamp(0, 8)).permute(2, 0, 1)
            seen = scores.masked_fill((gap < 0) | (gap > 8), -torch.inf).softmax(-1)
            return (seen @ v).transpose(1, 2).flatten(2)

    model, rng, path = Biased().eval(), np.random.default_rng(0), tmp_path / "m.onnx"
    call, manifest = saved(model, path, frames, 2, spec=("B", "L", 8))
    kinds = [n.op_type for n in onnx.load(path).graph.node]
    assert kinds.count("Gather") <= 5 and not {"Mod", "Sign", "Min"} & {*kinds} and len(kinds) < 100, kinds
    streams = [[rng.standard_normal((n, 8)).astype(np.float32)] for n in (1, 5, 23, 30)]
    assert furthest(call, manifest, ds.compile(model, ("B", "L", 8)), streams, rng) <= TOLERANCE


def test_phases(tmp_path):
    """Of calls that are no whole periods there is one graph for each phase; each says what all are."""
    model = torch.nn.Conv1d(2, 2, 3, stride=3, padding=1).eval()
    path = tmp_path / "m.onnx"
    call, manifest = saved(model, path, 2, 1, spec=("B", 2, "L"))
    assert manifest["phases"] == ["m.0.onnx", "m.1.onnx", "m.2.onnx"]
    assert sum(manifest["outputs"][0]["frames"]) == 2
    engine, rng = ds.compile(model, ("B", 2, "L")), np.random.default_rng(0)
    streams = [[rng.standard_normal((n, 2)).astype(np.float32)] for n in (1, 2, 7, 30)]
    assert furthest(call, manifest, engine, streams, rng) <= TOLERANCE
    with pytest.raises(
        ValueError, match="of 2 frames need 3 graphs, in as many files: give a path, or a multiple of 3 frames"
    ):
        ds.export.onnx(model, ("B", 2, "L"), io.BytesIO(), frames=2, static=True)


@pytest.mark.parametrize("value", [0.0, 0.5])
@pytest.mark.parametrize("rows", [1, 2])
def test_padding_in_phases_without_frames(tmp_path, rows, value):
    """Frames in front of an edge that gets none in some phases: masks of no columns crash torch's exporter."""

    class Picked(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.pad(x[..., 3::4], (1, 1), value=value)

    call, manifest = saved(Picked(), tmp_path / "m.onnx", 3, rows, spec=("B", 2, "L"))
    engine, rng = ds.compile(Picked(), ("B", 2, "L")), np.random.default_rng(0)
    streams = [[rng.standard_normal((n, 2)).astype(np.float32)] for n in (4, 7, 8, 30)]
    assert furthest(call, manifest, engine, streams, rng) <= TOLERANCE


def test_how_many_frames_leave(tmp_path):
    """A stream's frames out follow from its frames in, padded starts and odd ends included."""
    model = torch.nn.Conv1d(2, 2, 4, stride=3, padding=2).eval()
    manifest = ds.export.onnx(model, ("B", 2, "L"), tmp_path / "m.onnx", frames=3, static=True)
    told = manifest["outputs"][0]
    with torch.no_grad():
        wanted = [model(torch.zeros(1, 2, n)).shape[2] for n in range(1, 30)]
    assert [total_of(told, n) for n in range(1, 30)] == wanted


class Reflected(torch.nn.Module):
    """A reflection beside what has none, joined; a recurrent layer behind."""

    def __init__(self):
        super().__init__()
        self.mirrored = torch.nn.Conv1d(2, 2, 9, padding=4, padding_mode="reflect")
        self.plain, self.cell = torch.nn.Conv1d(2, 2, 3, padding=1), torch.nn.GRU(4, 2, batch_first=True)

    def forward(self, x):
        y = torch.cat([self.mirrored(x) + x, self.plain(x)], 1)
        return self.cell(y.transpose(1, 2))[0].transpose(1, 2)


class Subsampled(torch.nn.Module):
    """Strided windows without padding, a causal convolution behind them, both joined frame by frame."""

    def __init__(self):
        super().__init__()
        conv = torch.nn.Conv1d
        self.first, self.second, self.causal = conv(2, 4, 4, 2), conv(4, 4, 3, 2), conv(4, 4, 3, dilation=2)
        self.up = torch.nn.ConvTranspose1d(4, 2, 4, 2)

    def forward(self, x):
        y = self.second(self.first(x).relu()) + 1
        return self.up(y * self.causal(torch.nn.functional.pad(y, (4, 0))))


class Averaged(torch.nn.Module):
    """The mean of all frames so far behind strided windows, padded: before the first frame it is 0 / 0."""

    def __init__(self):
        super().__init__()
        self.windows, self.causal = torch.nn.Conv1d(2, 2, 3, 2), torch.nn.Conv1d(2, 2, 3)

    def forward(self, x):
        y = self.windows(x)
        y = y.cumsum(2) / torch.arange(1, y.size(2) + 1, dtype=y.dtype)
        return self.causal(torch.nn.functional.pad(y, (2, 0)))


class Summed(torch.nn.Module):
    """Sums of all frames so far, those of a pad in front among them, which a first call alone adds."""

    def forward(self, x):
        y = torch.nn.functional.pad(x, (2, 0), value=1.0).cumsum(2)
        return y / torch.arange(1, y.size(2) + 1)


@pytest.mark.parametrize(
    ("name", "frames"),
    by_turns(["joined", "vocoder", "strided", "padded", "subsampled", "averaged", "summed"], [1, 3, 8]),
)
def test_starts(tmp_path, name, frames):
    """Streams that begin otherwise than they go on: mirrored ones, and those whose first windows are not full."""
    pad, conv, up = torch.nn.ReflectionPad1d, torch.nn.Conv1d, torch.nn.ConvTranspose1d
    torch.manual_seed(0)
    model = {
        "joined": Reflected,
        "padded": lambda: torch.nn.Sequential(conv(2, 2, 5, stride=2), torch.nn.ConstantPad1d((2, 0), 0.0)),
        "subsampled": Subsampled,
        "averaged": Averaged,
        "summed": Summed,
        "vocoder": lambda: torch.nn.Sequential(
            conv(2, 2, 7, padding=3), up(2, 2, 8, 4, 2), pad((1, 0)), conv(2, 2, 5), up(2, 1, 8, 4, 2)
        ),
        "strided": lambda: torch.nn.Sequential(pad((3, 3)), conv(2, 2, 4, stride=4), pad((1, 1)), conv(2, 2, 3)),
    }[name]().eval()
    engine, rng = ds.compile(model, ("B", 2, "L")), np.random.default_rng(0)
    streams = [[rng.standard_normal((n, 2)).astype(np.float32)] for n in (1, 2, 5, 8, 9, 11, 30)]
    call, manifest = saved(model, tmp_path / "m.onnx", frames, 1, spec=("B", 2, "L"))
    assert furthest(call, manifest, engine, streams, rng) <= TOLERANCE


def test_refusals(tmp_path):
    model = torch.nn.Conv1d(2, 2, 9, padding=4, padding_mode="reflect").eval()
    with pytest.raises(ValueError, match="static=True is for calls of one size"):
        ds.export.onnx(model, ("B", 2, "L"), tmp_path / "m.onnx", True, static=True)
    for wrong in ({"rows": "2"}, {"frames": 1.5}):
        with pytest.raises(DTypeError, match=r"(rows|frames) must be an integer, got"):
            ds.export.onnx(model, ("B", 2, "L"), tmp_path / "m.onnx", static=True, **wrong)
    assert not list(tmp_path.iterdir())
