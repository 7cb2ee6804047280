"""Exported functions of elements give what the engine gives at signed zeros, infinities, NaN and subnormals."""

import io
import json
from itertools import product
from operator import attrgetter

import numpy as np
import pytest
import torch

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from edge_functions import words
from edge_values import NUMBERS, PAIRS
from exported import Exported, in_onnxruntime
from torch import nn

import dreamstream as ds
from dreamstream.operations import BINARY, LOGICAL, UNARY

F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about its own code
BOUND = 1e-5


# ---------------------------------------------------------------- the functions
def _of_one():
    for row in (r for r in UNARY if not r.alone):
        function = F.elu if row.name == "elu" else attrgetter(row.torch or row.name)(torch)
        tries = {"alpha": (1.0, 0.5)} if row.name == "elu" else row.tries
        for values in product(*tries.values()):
            given = dict(zip(tries, values))
            yield f"{row.name} {given or ''}".strip(), lambda x, f=function, given=given: f(x, **given)
    for name in words(
        "tan, exp2, frac, sinc, deg2rad, rad2deg, nan_to_num, logit, isnan, isinf, isfinite, "
        "isposinf, isneginf, signbit, angle"
    ):
        yield name, getattr(torch, name)
    for name in words(
        "selu, celu, hardtanh, relu6, hardsigmoid, hardswish, hardshrink, softshrink, mish, softsign, tanhshrink"
    ):
        yield name, getattr(F, name)
    yield "logical_not", torch.logical_not
    yield "leaky_relu", F.leaky_relu
    for name, c in product(words("pow, remainder, floor_divide"), (2.0, 0.5, -0.5, 3.0, -1.0)):
        yield f"{name} {c}", lambda x, name=name, c=c: getattr(torch, name)(x, c)


def _of_two():
    for row in (*BINARY, *(r for r in LOGICAL if r.operands == 2)):
        function = (lambda x, w: torch.where(x > 0, x, w * x)) if row.name == "prelu" else None
        yield row.name, function or attrgetter(row.torch or row.name)(torch)
    for name in words("fmax, fmin, logaddexp, xlogy, heaviside, logical_xor"):
        yield name, getattr(torch, name)
    yield "trunc_divide", lambda a, b: a.div(b, rounding_mode="trunc")
    yield "lerp", lambda a, b: a.lerp(b, 0.3)
    for name in ("abs", "angle"):
        yield f"complex {name}", lambda a, b, name=name: getattr(torch.complex(a, b), name)()


ONE, TWO = dict(_of_one()), dict(_of_two())
EXACT = {r.name for r in (*UNARY, *BINARY, *LOGICAL) if r.exact}
TABLE = {r.name for r in (*UNARY, *BINARY, *LOGICAL)} | {"angle", "complex abs", "complex angle"}


class All(nn.Module):
    """All functions of one number, or of two, as outputs."""

    def forward(self, x):
        if x.dim() == 2:
            return tuple(f(x) for f in ONE.values())
        return tuple(f(x[..., 0], x[..., 1]) for f in TWO.values())


# ---------------------------------------------------------------- exclusions
LARGEST = np.abs(NUMBERS[np.isfinite(NUMBERS)]).max()


def _zeros(x):
    return (x[:, 0] == 0) & (x[:, 1] == 0)


def _nan_and_negative_zero(x):
    return np.isnan(x).any(1) & ((x == 0) & np.signbit(x)).any(1)


def _largest(x):
    return np.abs(x).reshape(len(x), -1).max(1) >= LARGEST


_WHERE = "of a choice of -0 ONNX Runtime's Where makes 0"
_VECTORS = "torch's vectors give NaN for inf and for quotients that overflow"
_INSTRUCTION = "which of 0 and -0 is larger torch leaves to the instruction"
_OF_TORCH = {
    **dict.fromkeys(("minimum", "maximum", "fmax", "fmin"), (_zeros, _INSTRUCTION)),
    **dict.fromkeys(words("gelu, fmod, remainder"), (_largest, _VECTORS)),
}

#: By form and function: the numbers at which it differs, and why.
UNLIKE = {
    "onnx": {
        "elu": (lambda x: np.abs(x) < 1e-37, "ONNX Runtime's Elu gives 0 for negative subnormals, not -0"),
        "gelu": (_largest, "the cube in ONNX's form is infinite"),
        "heaviside": (_zeros, _WHERE),
        **dict.fromkeys(("fmax", "fmin"), (_nan_and_negative_zero, _WHERE)),
    },
    "torchscript": _OF_TORCH,
    "torch": _OF_TORCH,
}


def differ(name, got, wanted):
    """Return where results differ: NaN is NaN, a zero's sign counts, and what is not exact may be rounded."""
    if wanted.dtype == bool:
        return got != wanted
    same = (got == wanted) & ((got != 0) | (np.signbit(got) == np.signbit(wanted)))
    same |= np.isnan(got) & np.isnan(wanted)
    if name not in EXACT:
        a, b = got.astype(np.float64), wanted.astype(np.float64)
        with np.errstate(invalid="ignore"):
            near = np.abs(a - b) <= BOUND * np.maximum(1, np.abs(b))
        same |= near & ((a != 0) | (b != 0))
    return ~same


@pytest.fixture(scope="module", params=[1, 2], ids=["one", "two"])
def engine(request):
    spec = ("B", "L") if request.param == 1 else ("B", "L", 2)
    numbers, functions = (NUMBERS, ONE) if request.param == 1 else (PAIRS, TWO)
    made = ds.compile(All(), spec, verify=False)
    outputs = made.step({"a": numbers}, ["a"], ["a"])["a"]
    return made, numbers, dict(zip(functions, map(np.asarray, outputs), strict=True))


def compare(form, numbers, found, wanted):
    wrong = []
    for name, y in found.items():
        kind = name.partition(" ")[0] if not name.startswith("complex") else name
        where = differ(kind, y, wanted[name])
        if kind == "gelu" and form != "onnx":  # torch's vectors of eight lose the sign of a zero
            where &= (y != 0) | (wanted[name] != 0)
        if kind in UNLIKE[form]:
            where &= ~UNLIKE[form][kind][0](numbers)
        if where.any():
            wrong.append((name, numbers[where][:4], y[where][:4], wanted[name][where][:4]))
    assert not wrong


def exported(engine, save):
    made, numbers, wanted = engine
    file = io.BytesIO()
    save(made, file)
    return numbers, wanted, file


def test_onnx(engine):
    numbers, wanted, file = exported(engine, lambda e, f: ds.export.onnx(e, None, f, dynamic_axes=True))
    model = Exported(*in_onnxruntime(file.getvalue()), np.random.default_rng(0))
    found = model.step({"a": [numbers]}, ["a"], ["a"])["a"]
    compare("onnx", numbers, dict(zip(wanted, found, strict=True)), wanted)


def test_torchscript(engine):
    numbers, wanted, file = exported(engine, lambda e, f: ds.export.torchscript(e, None, f))
    loaded = torch.jit.load(io.BytesIO(file.getvalue()))
    model = Exported(loaded, json.loads(loaded.manifest), np.random.default_rng(0))
    found = model.step({"a": [numbers]}, ["a"], ["a"])["a"]
    compare("torchscript", numbers, dict(zip(wanted, found, strict=True)), wanted)


def test_the_engine_is_as_torch(engine):
    _, numbers, wanted = engine
    with torch.no_grad():
        found = dict(zip(wanted, (y[0].numpy() for y in All()(torch.tensor(numbers)[None]))))
    table = {n: y for n, y in found.items() if n.partition(" ")[0] in TABLE or n in TABLE}
    compare("torch", numbers, table, wanted)
