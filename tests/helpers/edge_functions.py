"""Functions of torch by name, written for tensors ``(B, 4, L)``, that show every derivative of the bridge's.

A name may have several, behind a colon; the test that uses them asks for each name of the tables.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import product
from math import inf
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from edge_values import STREAMS
from stream_methods import FUNCTIONS as OF_ELEMENTS, function as of_torch

import dreamstream.torch  # noqa: F401  (what the bridge computes is entered)
from dreamstream.array.operators import MAKERS
from dreamstream.array.stream_tensor import StreamTensor as Native
from dreamstream.nn import functional as native_functional
from dreamstream.operations import BINARY, OPERATIONS, UNARY
from dreamstream.torch.forward.names import HANDLERS

Function = Callable[[Any], Any]
FUNCTIONS: dict[str, Function] = {}

W = torch.tensor([[0.5], [-1.0], [0.0], [2.0]], dtype=torch.double)
HANN = torch.hann_window(4, dtype=torch.double)


def words(text: str) -> list[str]:
    """Return names that stand in a text."""
    return text.split(", ")


def _enter(rows: dict[str, Function]) -> None:
    FUNCTIONS.update(rows)


# ---------------------------------------------------------------- elements
def _of_one() -> Iterator[tuple[str, Function]]:
    for row in UNARY:
        if row.name == "elu" or row.alone:  # F.elu is torch's; of others torch has none
            continue
        function = attrgetter(row.torch or row.name)(torch)
        for values in product(*row.tries.values()):
            given = dict(zip(row.tries, values))
            name = f"{row.name}: {given}" if given else row.name
            yield name, lambda x, function=function, given=given: function(x, **given)
    for name in words("tan, exp2, frac, sinc, deg2rad, rad2deg, nan_to_num, logit, angle"):
        yield name, lambda x, name=name: getattr(x, name)()
    for name in OF_ELEMENTS:
        yield f"{name}: F", of_torch(torch, name)


def _of_two() -> Iterator[tuple[str, Function]]:
    others = words("fmax, fmin, logaddexp, xlogy, heaviside")
    functions = {r.name: attrgetter(r.torch or r.name)(torch) for r in BINARY if r.name != "prelu"}
    for name, f in {**functions, **{name: getattr(torch, name) for name in others}}.items():
        yield f"{name}: another", lambda x, f=f: f(x, x.flip(1))
        yield f"{name}: itself", lambda x, f=f: f(x, x)
        yield f"{name}: constant", lambda x, f=f: f(x, W)
        yield f"{name}: of a constant", lambda x, f=f: f(W.expand(1, 4, 1), x)
        yield f"{name}: later", lambda x, f=f: f(x, F.pad(x, (1, 0))[..., :-1])
    for name in words("pow, remainder, div"):
        for c in (0.0, 1.0, 2.0, 0.5, -0.5, -1.0, 3):
            yield f"{name}: {c}", lambda x, f=functions[name], c=c: f(x, c)


_enter(dict([*_of_one(), *_of_two()]))
_enter(
    {
        "elu: 0.5": lambda x: F.elu(x, 0.5),
        "celu: 2": lambda x: F.celu(x, 2.0),
        "hardtanh: wide": lambda x: F.hardtanh(x, -0.5, 3.0),
        "hardshrink: 1": lambda x: F.hardshrink(x, 1.0),
        "softshrink: 0": lambda x: F.softshrink(x, 0.0),
        "threshold: 0": lambda x: F.threshold(x, 0, 0.0),
        "threshold: 0.5": lambda x: F.threshold(x, 0.5, 3.0),
        "prelu: channels": lambda x: F.prelu(x, W[:, 0]),
        "prelu: one": lambda x: F.prelu(x, W[:1, 0]),
        "clamp: least": lambda x: x.clamp(min=0),
        "clamp: crossed": lambda x: x.clamp(1, -1),
        "clamp: constants": lambda x: x.clamp(W - 1, W),
        "clamp: streams": lambda x: x.clamp(x.flip(1) - 1, x.flip(1)),
        "clip": lambda x: x.clip(-1, 1),
        "clamp_min: 0.5": lambda x: x.clamp_min(0.5),
        "clamp_min: constant": lambda x: x.clamp_min(W),
        "clamp_max: 0.5": lambda x: x.clamp_max(0.5),
        "clamp: in place": lambda x: (x * 1).clamp_(-1, 1),
        "logit: eps": lambda x: x.logit(0.1),
        "nan_to_num: numbers": lambda x: x.nan_to_num(1, 2, 3),
        "round: decimals": lambda x: x.round(decimals=1),
        "xlogy: 2": lambda x: x.xlogy(2.0),
        "xlogy: of 2": lambda x: torch.xlogy(2.0, x),
        "lerp: near": lambda x: x.lerp(x.flip(1), 0.3),
        "lerp: far": lambda x: x.lerp(x.flip(1), 0.8),
        "lerp: streams": lambda x: x.lerp(x.flip(1), x.roll(1, 1)),
        "addcmul": lambda x: x.addcmul(x.flip(1), x, value=2),
        "addcdiv": lambda x: x.addcdiv(x.flip(1), x, value=2),
        "div: trunc": lambda x: x.div(x.flip(1), rounding_mode="trunc"),
        "pow: of numbers": lambda x: 2.0**x,
        "pow: of 0": lambda x: 0.0**x,
        "__pow__: third root": lambda x: x ** (1 / 3),
        "reciprocal: of 1": lambda x: 1 / x,
        "where": lambda x: torch.where(x > 0, x.sqrt(), 0.0),
        "masked_fill": lambda x: x.masked_fill(x <= 0, 1.0).log(),
    }
)


# ---------------------------------------------------------------- along dimensions
def _along(d: Any) -> Iterator[tuple[str, Function]]:
    for name in words("sum, mean, nansum, nanmean, amax, amin, logsumexp, std, var"):
        yield f"{name}: {d}", lambda x, name=name: getattr(x, name)(d, keepdim=d == 2)
    yield f"std: {d} 0", lambda x: x.std(d, correction=0)
    yield f"std_mean: {d}", lambda x: torch.std_mean(x, d)
    yield f"var_mean: {d}", lambda x: torch.var_mean(x, d)
    for p in (0, 0.5, 1, 1.5, 2, 3, inf, -inf, -1, -2):
        yield f"norm: {d} {p}", lambda x, p=p: x.norm(p, d)
    yield f"linalg_vector_norm: {d}", lambda x: torch.linalg.vector_norm(x, 2, d)
    yield f"linalg_norm: {d}", lambda x: torch.linalg.norm(x, dim=d)


def _along_one(d: int) -> Iterator[tuple[str, Function]]:
    for name in words("max, min, prod, median, nanmedian, cumsum, cumprod, logcumsumexp, cummax, cummin, sort"):
        yield f"{name}: {d}", lambda x, name=name: getattr(x, name)(d)
    yield f"max: {d} kept", lambda x: x.max(d, keepdim=True).values
    yield f"aminmax: {d}", lambda x: x.aminmax(dim=d)
    yield f"kthvalue: {d}", lambda x: x.kthvalue(2, d)
    yield f"topk: {d}", lambda x: x.topk(2, d)
    yield f"values of topk: {d}", lambda x: x.topk(2, d).values
    yield f"values of kthvalue: {d}", lambda x: x.kthvalue(2, d).values
    yield f"quantile: {d}", lambda x: x.quantile(0.3, d)
    yield f"quantile: {d} midpoint", lambda x: x.quantile(0.5, d, interpolation="midpoint")
    yield f"nanquantile: {d}", lambda x: x.nanquantile(0.3, d)
    yield f"softmax: {d}", lambda x: x.softmax(d)
    yield f"log_softmax: {d}", lambda x: x.log_softmax(d)
    yield f"softmin: {d}", lambda x: F.softmin(x, d)
    yield f"diff: {d}", lambda x: x.diff(dim=d)
    for p in (0.5, 1.0, 2.0, 3.0, inf):
        yield f"normalize: {d} {p}", lambda x, p=p: F.normalize(x, p, d)


for _d in (1, 2, (1, 2)):
    _enter(dict(_along(_d)))
for _d in (1, 2):
    _enter(dict(_along_one(_d)))
_enter(
    {
        "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(1), 1),
        "entr": torch.special.entr,
        "ndtr": torch.special.ndtr,
        "cosine_similarity: itself": lambda x: F.cosine_similarity(x, x, 1),
        "glu": lambda x: F.glu(x, 1),
        "softmax: pooling": lambda x: (x.softmax(2) * x.flip(1)).sum(2),
        "std: standardised": lambda x: (x - x.mean(2, keepdim=True)) / (x.std(2, keepdim=True) + 1e-5),
        "norm: distance": lambda x: (x - x.flip(1)).norm(dim=1),
        "norm: matrices": lambda x: torch.linalg.norm(x.unfold(2, 2, 2), inf, (1, 3)),
        "layer_norm": lambda x: F.layer_norm(x.mT, (4,), W[:, 0], W[:, 0]),
        "layer_norm: no eps": lambda x: F.layer_norm(x.mT, (4,), eps=0.0),
        "rms_norm": lambda x: F.rms_norm(x.mT, (4,), W[:, 0], 1e-6),
        "group_norm: channels": lambda x: F.group_norm(x, 2, W[:, 0], W[:, 0]),
        "instance_norm": F.instance_norm,
        "batch_norm": lambda x: F.batch_norm(x, W[:, 0], W[:, 0].abs()),
        "mse_loss": lambda x: F.mse_loss(x, x.flip(1), reduction="none"),
        "l1_loss": lambda x: F.l1_loss(x, x.flip(1), reduction="none"),
    }
)


# ---------------------------------------------------------------- windows
def _pools() -> Iterator[tuple[str, Function]]:
    for given in ((3, 1, 1), (2, 2, 0), (3, 2, 1)):
        for kind in ("max", "avg"):
            line, plane = getattr(F, f"{kind}_pool1d"), getattr(F, f"{kind}_pool2d")
            yield f"{kind}_pool1d: {given}", lambda x, f=line, a=given: f(x, *a)
            yield f"{kind}_pool1d: {given} ceil", lambda x, f=line, a=given: f(x, *a, ceil_mode=True)
            yield f"{kind}_pool1d: {given} features", lambda x, f=line, a=given: f(x.mT, *a)
            yield f"{kind}_pool2d: {given}", lambda x, f=plane, a=given: f(x[:, None], *a)
            yield f"{kind}_pool2d: {given} frames first", lambda x, f=plane, a=given: f(x.mT[:, None], *a)
            yield (
                f"{kind}_pool2d: {given} in frames",
                lambda x, f=plane, a=given: f(x.mT.unflatten(2, (2, -1)), *a),
            )
    for p in (0.5, 1.0, 2.0, 3.0, inf):
        yield f"lp_pool1d: {p}", lambda x, p=p: F.lp_pool1d(x, p, 3, 2)
        yield f"lp_pool1d: {p} features", lambda x, p=p: F.lp_pool1d(x.mT, p, 2, 1)


def _boxes() -> Iterator[tuple[str, Function]]:
    for kind, kernel in (("max", (3, 2, 1)), ("max", (2, 1, 0)), ("avg", (2, 1, 0)), ("avg", (2, 2, 0))):
        box, name = getattr(F, f"{kind}_pool3d"), f"{kind}_pool3d: {kernel}"
        yield name, lambda x, f=box, a=kernel: f(x.unflatten(1, (1, 2, -1)), *a)
        yield f"{name} in between", lambda x, f=box, a=kernel: f(x.unflatten(1, (1, 2, -1)).mT, *a)
        yield f"{name} frames first", lambda x, f=box, a=kernel: f(x.mT.unflatten(2, (2, -1))[:, None], *a)


_enter(dict(_pools()))
_enter(dict(_boxes()))
_enter(
    {
        "max_pool1d: whole": lambda x: F.max_pool1d(x, x.size(2)),
        "adaptive_max_pool1d: 1": lambda x: F.adaptive_max_pool1d(x, 1),
        "adaptive_max_pool1d: 3": lambda x: F.adaptive_max_pool1d(x, 3),
        "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x, 1),
        "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x[:, None], (3, None)),
        "adaptive_max_pool2d: frames, too": lambda x: F.adaptive_max_pool2d(x[:, None], (2, 1)),
        "adaptive_max_pool2d: frames first": lambda x: F.adaptive_max_pool2d(x.mT[:, None], (1, 2)),
        "adaptive_max_pool2d: parts of frames": lambda x: F.adaptive_max_pool2d(x.mT[:, None], (2, 1)),
        "adaptive_max_pool2d: in frames": lambda x: F.adaptive_max_pool2d(x.mT.unflatten(2, (2, -1)), (1, 2)),
        "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x[:, None], (3, None)),
        "interpolate": lambda x: F.interpolate(x, scale_factor=2.0),
        "interpolate: linear": lambda x: F.interpolate(x, scale_factor=2.0, mode="linear"),
        "max: of windows": lambda x: x.unfold(2, 3, 1).max(-1).values,
        "std: of windows": lambda x: x.unfold(2, 3, 1).std(-1),
    }
)


# ---------------------------------------------------------------- complex numbers
def _windows(x: Any, **given: Any) -> Any:
    return torch.stft(x[:, 0], 4, 2, window=HANN, return_complex=True, pad_mode="constant", **given)


def _complex() -> Iterator[tuple[str, Function]]:
    for name in words("abs, angle, log, sqrt, sgn, exp, reciprocal, square"):
        yield f"complex {name}: a pair", lambda x, name=name: getattr(torch.complex(x, x.flip(1)), name)()
        yield f"complex {name}: a spectrum", lambda x, name=name: getattr(_windows(x), name)()
    for p in (0, 0.3, 0.5, 1, 2, -1):
        yield f"complex pow: {p}", lambda x, p=p: _windows(x) ** p


_enter(dict(_complex()))
_enter(
    {
        "complex div": lambda x: _windows(x) / _windows(x).flip(1),
        "complex div: by its size": lambda x: _windows(x) / (_windows(x).abs() + 1e-8),
        "complex __rtruediv__": lambda x: 1 / torch.complex(x + 3, x),
        "complex mul": lambda x: _windows(x) * _windows(x).flip(1),
        "complex mean": lambda x: _windows(x).mean(1).abs(),
        "polar": lambda x: torch.polar(_windows(x).abs(), _windows(x).angle()),
        "rfft: sizes": lambda x: torch.fft.rfft(x, dim=1).abs(),
        "irfft: twice": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1) * 2, dim=1),
        "stft": lambda x: _windows(x).abs().square(),
        "stft: parts": lambda x: torch.view_as_real(_windows(x)).norm(dim=-1),
        "istft: masked": lambda x: torch.istft(_windows(x) * 1.5, 4, 2, window=HANN),
        "istft: length": lambda x: torch.istft(_windows(x), 4, 2, window=HANN, length=x.size(2)),
    }
)

# ---------------------------------------------------------------- what is compared, and what is not
#: Of which torch doesn't say which of equal elements they take.
_ANY = {*STREAMS} - {"ordinary", "limits", "one frame", "empty"}
_INFINITE = {"some inf", "some -inf", "all inf", "all -inf", "infinite"}

#: By the beginning of a name: streams on which a function has other values, with the reason.
UNLIKE: dict[str, tuple[set[str], str]] = {
    **dict.fromkeys(("kthvalue", "topk"), (_ANY, "torch leaves open which of equal elements it takes")),
    "cumprod: 2": ({"huge", *_INFINITE}, "products overflow in another order"),
    **dict.fromkeys(
        ("std: 2", "std: (1, 2)", "std: standardised", "var: 2", "var: (1, 2)", "group_norm", "complex pow: 2"),
        ({"huge"}, "squares overflow in another order"),
    ),
    **dict.fromkeys(
        ("std_mean", "var_mean"), ({"huge", *_INFINITE}, "torch's mean beside a deviation of infinities is NaN")
    ),
    "interpolate: linear": (_INFINITE, "0 times infinity, where torch takes a neighbour that has no part in it"),
    **dict.fromkeys(
        ("complex sgn:", "complex square", "complex mean"),
        (_INFINITE, "infinite parts: C leaves open which parts of their products are NaN"),
    ),
    **dict.fromkeys(
        ("complex abs", "complex sgn", "complex div", "rfft:", "stft"),
        ({"tiny"}, "of subnormal numbers torch's vectors and its single elements differ"),
    ),
}

#: The same of gradients, where values are equal.
UNLIKE_GRADIENTS: dict[str, tuple[set[str], str]] = {
    "values of": (_ANY, "torch leaves open which of equal elements it takes"),
    "prod": (_INFINITE, "torch divides the product by each element, unless there is a zero anywhere in the batch"),
    "cumprod: 2": ({"tiny"}, "torch divides by each element, which leaves nothing of subnormal numbers"),
    "var": ({"some inf", "some -inf"}, "of a variance that is NaN"),
    "log_softmax: 2": (_INFINITE, "of values that are NaN"),
    **dict.fromkeys(("norm: 2 -", "norm: (1, 2) -"), (_INFINITE, "of infinities alone torch's is 0 / 0")),
    **dict.fromkeys(
        ("logsumexp: (1, 2)", "logcumsumexp: 2"),
        ({"huge"}, "equal numbers of 1e300 are all the largest to torch's"),
    ),
    "max_pool": ({"some -inf", "all -inf"}, "what pads is -inf as well, and comes first"),
    "cosine_similarity": ({"tiny"}, "rounded otherwise"),
}
if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14):
    UNLIKE_GRADIENTS |= dict.fromkeys(
        ("quantile", "nanquantile"), ({*_ANY, "limits"}, "of equal elements, as 0 and -0, it takes no certain one")
    )


def unlike(name: str, table: dict[str, tuple[set[str], str]] = UNLIKE) -> set[str]:
    """Return the streams that are left out for a function."""
    return set().union(*(streams for begin, (streams, _) in table.items() if name.startswith(begin)))


#: Files of functions without edges: linear ones, those that move or look up elements, and dropout.
SMOOTH = words("attention, convolution, dropout, experts, frames, lookup, padding, products, resampling")
#: Others that are linear, move elements, or have no gradient.
ELSEWHERE = frozenset(
    words(
        "adaptive_avg_pool1d, fft, ifft, running_mean, argmax, argmin, all, any, count_nonzero, "
        "flip, roll, argsort, "
        "scatter, scatter_add, index_add, index_copy, index_fill, repeat_interleave, fft_fft, fft_ifft, fft_rfft, "
        # losses, which are of outputs (tests/python/test_losses.py), and loops (tests/torch/test_loops.py)
        "binary_cross_entropy, binary_cross_entropy_with_logits, cross_entropy, ctc_loss, kl_div, nll_loss, "
        "smooth_l1_loss, scan, linear_recurrence"
    )
)


#: What torch computes itself, but for what enters when it is first asked for.
_OWN = [n.removeprefix("torch.") for n in MAKERS if n.startswith("torch.")]


def required() -> set[str]:
    """Return the names of all that the bridge computes, but for `ELSEWHERE`."""
    tables = {*(n.replace("complex_", "complex ") for n in _OWN), *(r.name for r in (*UNARY, *BINARY))}
    rows = [r.name for r in OPERATIONS.values() if r.outside in ("reduction", "along", "angles")]
    tables |= {n for n in rows if hasattr(Native, n) or n in HANDLERS}
    modules = [import_module(f"{native_functional.__name__}.{name}") for name in SMOOTH]
    smooth = {name for module in modules for name in module.__all__}
    return (tables | {*native_functional.__all__}) - ELSEWHERE - smooth
