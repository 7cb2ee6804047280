"""Every operator in every form of an export gives what the engine gives, or is refused by its name."""

import io
import json

import numpy as np
import pytest
import torch

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from ds_laws import MEMBERS, made
from ds_laws.drive import schedule
from ds_laws.operators.norms import CANCELS
from exported import Exported, in_onnxruntime, scaled
from turns import by_turns

import dreamstream as ds
from dreamstream import _core
from dreamstream.errors import CaptureError, DreamStreamError, NotStreamableError
from dreamstream.stream.tree import leaves

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about its own code
TOLERANCE = 1e-5

#: What has no form, always, or for some of its attributes; all that waits for the end is refused besides.
REFUSED = {"flip", "hold", "sort", "spread"}
PARTLY = {("onnx", "lstm"), ("onnx", "lstm_within"), ("onnx", "cumulative")}
NEVER = {("torchscript", "scan")}


def called(engine, rng):
    module = ds.torch.functionalize(engine)
    return Exported(module, module.manifest, rng)


def torchscript(engine, rng):
    file, extra = io.BytesIO(), {"manifest.json": ""}
    ds.export.torchscript(engine, None, file)
    loaded = torch.jit.load(io.BytesIO(file.getvalue()), _extra_files=extra)
    return Exported(loaded, json.loads(extra["manifest.json"]), rng)


def onnx(engine, rng):
    file = io.BytesIO()
    ds.export.onnx(engine, None, file, dynamic_axes=True)
    return Exported(*in_onnxruntime(file.getvalue()), rng)


def furthest(case, rng, engine, exported):
    """Stream the calls of the laws through both; return the largest difference, None where nothing came out."""
    order = [0 if d == "L" else d + 1 for d in case.layout if d != "B"]
    data = {f"s{k}": case.stream(rng) for k in range(3)}
    worst = None
    for call in filter(None, schedule(case, rng, data)):
        chunks = {r.id: [a[slice(*cut)].transpose(order) for a, cut in zip(data[r.id], r.cuts)] for r in call}
        sos, eos = [r.id for r in call if r.sos], [r.id for r in call if r.eos]
        arrays = {i: c[0] if len(c) == 1 else dict(zip(case.names, c)) for i, c in chunks.items()}
        try:
            wanted = engine.step(arrays, sos, eos)
        except DreamStreamError:  # a length that an exported model can't refuse
            break
        got = exported.step(chunks, sos, eos)
        for i in chunks:
            gaps = [scaled(a, b) for a, b in zip(got[i], leaves(wanted[i]))]
            worst = max([worst or 0.0, *gaps]) if any(np.size(a) for a in got[i]) else worst
    return worst


NAMES = [o["name"] for o in _core.operators()]
FORMS = {form.__name__: form for form in (called, torchscript, onnx)}


# In the default tier each operator takes turns: as a call or as a file of TorchScript, which hold the same, and as
# ONNX here or in tests/torch/test_export_static.py, one case each. What a family's members have alike one of them
# shows; tests/torch/test_export_edges.py has their expressions.
SHOWN = [name for name in NAMES if name not in MEMBERS]
PAIRS = [*by_turns(SHOWN, ["onnx", "static"]), *by_turns(SHOWN, ["called", "torchscript"])]
PAIRS = [pair for pair in PAIRS if pair.values[1] != "static"]
OF_MEMBERS = [pytest.param(name, way, marks=pytest.mark.slow) for name in sorted(MEMBERS) for way in FORMS]


@pytest.mark.parametrize(("name", "way"), PAIRS + OF_MEMBERS)
def test_operators(name, way):
    compare_cases(name, way, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_more_cases_of_onnx(name):
    compare_cases(name, "onnx", 4)


def compare_cases(name, way, cases):
    """Export cases of an operator until so many gave something, or eight were refused."""
    form, compared, refusals = FORMS[way], 0, []
    for index in range(30):
        case, rng = made("values", name, index)
        if "engine" not in case.modes:
            continue
        engine = case.engine()
        try:
            exported = form(engine, rng)
        except (NotStreamableError, CaptureError) as error:
            assert engine.state_bytes_per_frame or (way, name) in PARTLY | NEVER or name in REFUSED, error
            refusals.append(str(error))
            assert name in refusals[-1]
        else:
            worst = furthest(case, rng, engine, exported)
            compared += worst is not None
            assert worst is None or worst <= TOLERANCE or name in CANCELS, (index, case)
        if compared == cases or len(refusals) == 8:
            break
    assert compared or (refusals and (name in REFUSED or (way, name) in NEVER))
