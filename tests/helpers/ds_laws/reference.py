"""What every operator computes, in plain NumPy: the values that the suite believes.

A function takes the operator's attributes by name, its weights and its inputs, each ``[frames][features]``
of one whole sequence, and returns its outputs. Inputs of floating point arrive as float64. Nothing here
imports dreamstream. `Refused` is raised for lengths that are an error at the end of a stream.

Where torch raises only because a sequence is too short, or empty, there are no frames; nothing comes out
of no frames. An output without a stream axis is one frame, or none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["REFERENCES", "Refused", "length_of"]

Array = npt.NDArray[Any]
Arrays = Sequence[Array]


class Refused(Exception):
    """A stream of such a length is an error."""


def _no_frames(*features: int) -> Array:
    return np.zeros((0, *features))


def length_of(steps: Sequence[int], n: int) -> int:
    """Apply a length's function, in pairs: 0 c adds, 1 c multiplies, 2 c divides."""
    for code, c in zip(steps[::2], steps[1::2]):
        n = n + c if code == 0 else n * c if code == 1 else n // c
    return n


# ---------------------------------------------------------------- products and recurrences
def linear(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    y = np.einsum("...k,nk->...n", x, w[0])
    return [y if w[1] is None else y + w[1]]


def padded(x: Array, left: int, right: int, mode: str, value: float = 0.0) -> Array | None:
    """Add frames at both ends; None where there are too few to do so."""
    n = len(x)
    needed = {"reflect": max(left, right) + 1, "circular": max(left, right), "replicate": 1}.get(mode, 0)
    if n == 0 or (n < needed and (left or right)):
        return None
    names = {
        "zeros": "constant",
        "constant": "constant",
        "replicate": "edge",
        "reflect": "reflect",
        "circular": "wrap",
    }
    more = {"constant_values": value} if mode in ("zeros", "constant") else {}
    return np.pad(x, [(left, right)] + [(0, 0)] * (x.ndim - 1), mode=names[mode], **more)


def conv1d(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    weight, bias = w
    n_out, per_group, kernel = weight.shape
    groups, stride, dilation = a["groups"], a["stride"], a["dilation"]
    span = dilation * (kernel - 1) + 1
    x = padded(x, a["left"], a["right"], a["mode"])
    if x is None or len(x) < span:
        return [_no_frames(n_out)]
    n = (len(x) - span) // stride + 1
    y = np.zeros((n, n_out))
    per_out = n_out // groups
    for g in range(groups):
        part = x[:, g * per_group : (g + 1) * per_group]
        for tap in range(kernel):
            rows = part[tap * dilation :][: (n - 1) * stride + 1 : stride]
            y[:, g * per_out : (g + 1) * per_out] += (
                rows @ weight[g * per_out : (g + 1) * per_out, :, tap].T
            )
    return [y if bias is None else y + bias]


def conv_transpose1d(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    weight, bias = w
    n_in, per_out, kernel = weight.shape
    groups, stride, dilation, padding = a["groups"], a["stride"], a["dilation"], a["padding"]
    n_out = per_out * groups
    n = (len(x) - 1) * stride - 2 * padding + dilation * (kernel - 1) + a["output_padding"] + 1
    if len(x) == 0 or n <= 0:
        return [_no_frames(n_out)]
    y = np.zeros((n + 2 * padding, n_out))
    per_in = n_in // groups
    for g in range(groups):
        part = x[:, g * per_in : (g + 1) * per_in]
        for i in range(len(x)):
            for tap in range(kernel):
                at = i * stride + tap * dilation
                y[at, g * per_out : (g + 1) * per_out] += (
                    part[i] @ weight[g * per_in : (g + 1) * per_in, :, tap]
                )
    y = y[padding : padding + n]
    return [y if bias is None else y + bias]


def layer_norm(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    axes = tuple(range(-a["axes"], 0))
    centred = x - x.mean(axes, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + a["eps"])
    y = y if w[0] is None else y * w[0]
    return [y if w[1] is None else y + w[1]]


def _sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def _lstm_cell(x: Array, weights: Arrays, h: Array, c: Array) -> tuple[Array, Array, Array]:
    n = len(h)
    out = np.zeros((len(x), n))
    bias = weights[2] + weights[3] if len(weights) == 4 else np.zeros(4 * n)
    for t in range(len(x)):
        gates = weights[0] @ x[t] + weights[1] @ h + bias
        i, f, o = (_sigmoid(gates[k * n : (k + 1) * n]) for k in (0, 1, 3))
        c = f * c + i * np.tanh(gates[2 * n : 3 * n])
        h = o * np.tanh(c)
        out[t] = h
    return out, h, c


def lstm(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    per_cell, directions = 4 if a["bias"] else 2, 2 if a["bidirectional"] else 1
    cells = a["layers"] * directions
    hidden = w[1].shape[1]
    rest = [*list(w[cells * per_cell :]), None, None]
    h0, c0 = (np.zeros((cells, hidden)) if s is None else s for s in rest[:2])
    if not len(x):
        return [_no_frames(directions * hidden), _no_frames(cells, hidden), _no_frames(cells, hidden)]
    h_n, c_n = np.zeros((cells, hidden)), np.zeros((cells, hidden))
    for layer in range(a["layers"]):
        parts = []
        for d in range(directions):
            k = layer * directions + d
            turned = x[::-1] if d else x
            y, h_n[k], c_n[k] = _lstm_cell(turned, w[k * per_cell : (k + 1) * per_cell], h0[k], c0[k])
            parts.append(y[::-1] if d else y)
        x = np.concatenate(parts, axis=1)
    return [x, h_n[None], c_n[None]]


# ---------------------------------------------------------------- along the stream
def pad(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    y = padded(x, a["left"], a["right"], a["mode"], a["value"])
    return [x[:0] if y is None else y]


def slice_(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [x[a["start"] : max(len(x) - a["crop"], 0) : a["step"]]]


def cut(a: dict[str, Any], w: Arrays, x: Array, y: Array) -> list[Array]:
    if not len(x) or not len(y):
        return [x[:0]]
    return [x[a["start"] : max(length_of(a["length"], len(y)), 0) : a["step"]]]


def delay(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [np.concatenate([np.zeros((a["frames"], *x.shape[1:]), x.dtype), x])[: len(x)]]


def sync(a: dict[str, Any], w: Arrays, *xs: Array) -> list[Array]:
    if not all(map(len, xs)):
        return [xs[0][:0]]
    if len({len(x) for x in xs}) > 1:
        raise Refused
    return [xs[0]]


def limit(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    if len(x) > a["frames"]:
        raise Refused
    return [x]


def frame(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    size, step, dilation = a["size"], a["step"], a["dilation"]
    if a["exact"] and len(x) % size:
        raise Refused
    span = dilation * (size - 1) + 1
    windows = [x[m : m + span : dilation] for m in range(0, len(x) - span + 1, step)]
    return [np.stack(windows) if windows else np.zeros((0, size, *x.shape[1:]), x.dtype)]


def unstack(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [x.reshape(-1, *x.shape[2:])]


def table(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    n = length_of(a["length"], len(x)) if len(x) else 0
    if n > len(w[0]):
        raise Refused
    return [w[0][: max(n, 0)]]


def reduce_frames(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    if not len(x):
        return [x[:0]]
    return [getattr(np, a["kind"])(x, axis=0)[None]]


# ---------------------------------------------------------------- elementwise
def operands(a: dict[str, Any], w: Arrays, xs: Arrays) -> list[Array]:
    """The operands in turn: streams, and constants that serve every frame; features aligned at the right."""
    queues = [list(xs), list(w)]
    order = a.get("order") or [0] * len(xs)
    found = [(queues[kind].pop(0), kind) for kind in order]
    rank = max(x.ndim - (not kind) for x, kind in found)
    out = []
    for x, kind in found:
        features = x.shape if kind else x.shape[1:]
        lead = (1,) if kind else x.shape[:1]
        out.append(x.reshape(*lead, *(1,) * (rank - len(features)), *features))
    return out


def elementwise(f: Callable[..., Array]) -> Callable[..., list[Array]]:
    def reference(a: dict[str, Any], w: Arrays, *xs: Array) -> list[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(f(*operands(a, w, xs)))]

    return reference


def unary(f: Callable[..., Array]) -> Callable[..., list[Array]]:
    def reference(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(f(x, **a))]

    return reference


_erf = np.vectorize(math.erf, otypes=[float])


def _gelu(x: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def _softplus(x: Array, beta: float, threshold: float) -> Array:
    return np.where(beta * x > threshold, x, np.log1p(np.exp(np.minimum(beta * x, 700))) / beta)


def _clamp(x: Array, min: float = -math.inf, max: float = math.inf) -> Array:
    return np.minimum(np.maximum(x, min), max)


def cast(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [x.astype(a["to"])]


# ---------------------------------------------------------------- within a frame
def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def glu(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    n = x.shape[-1] // 2
    return [x[..., :n] * _sigmoid(x[..., n:])]


def cat(a: dict[str, Any], w: Arrays, *xs: Array) -> list[Array]:
    return [np.concatenate(xs, axis=a["axis"] + 1)]


def permute(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [x.transpose(0, *(d + 1 for d in a["order"]))]


def reshape(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [x.reshape(len(x), *a["shape"])]


def narrow(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [
        np.moveaxis(
            np.moveaxis(x, a["axis"] + 1, 0)[a["start"] :][: a["length"] : a["step"]], 0, a["axis"] + 1
        )
    ]


def expand(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    features = (1,) * (len(a["shape"]) - x.ndim + 1) + x.shape[1:]
    return [np.broadcast_to(x.reshape(len(x), *features), (len(x), *a["shape"]))]


REFERENCES: dict[str, Callable[..., list[Array]]] = {
    "linear": linear,
    "conv1d": conv1d,
    "conv_transpose1d": conv_transpose1d,
    "layer_norm": layer_norm,
    "lstm": lstm,
    "pad": pad,
    "slice": slice_,
    "cut": cut,
    "delay": delay,
    "sync": sync,
    "limit": limit,
    "frame": frame,
    "unstack": unstack,
    "table": table,
    "reduce_frames": reduce_frames,
    "add": elementwise(np.add),
    "sub": elementwise(np.subtract),
    "mul": elementwise(np.multiply),
    "div": elementwise(np.divide),
    "minimum": elementwise(np.minimum),
    "maximum": elementwise(np.maximum),
    "pow": elementwise(np.power),
    "eq": elementwise(np.equal),
    "ne": elementwise(np.not_equal),
    "lt": elementwise(np.less),
    "le": elementwise(np.less_equal),
    "gt": elementwise(np.greater),
    "ge": elementwise(np.greater_equal),
    "where": elementwise(np.where),
    "logical_not": unary(np.logical_not),
    "logical_and": elementwise(np.logical_and),
    "logical_or": elementwise(np.logical_or),
    "relu": unary(lambda x: np.where(x < 0, 0, x)),
    "gelu": unary(_gelu),
    "silu": unary(lambda x: x * _sigmoid(x)),
    "sigmoid": unary(_sigmoid),
    "tanh": unary(np.tanh),
    "exp": unary(np.exp),
    "log": unary(np.log),
    "sqrt": unary(np.sqrt),
    "rsqrt": unary(lambda x: 1 / np.sqrt(x)),
    "abs": unary(np.abs),
    "neg": unary(np.negative),
    "reciprocal": unary(np.reciprocal),
    "square": unary(np.square),
    "clamp": unary(_clamp),
    "sin": unary(np.sin),
    "cos": unary(np.cos),
    "log1p": unary(np.log1p),
    "expm1": unary(np.expm1),
    "erf": unary(_erf),
    "log2": unary(np.log2),
    "log10": unary(np.log10),
    "floor": unary(np.floor),
    "ceil": unary(np.ceil),
    "round": unary(np.round),
    "sign": unary(np.sign),
    "softplus": unary(_softplus),
    "logsigmoid": unary(lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))),
    "cast": cast,
    "softmax": unary(lambda x: np.exp(_log_softmax(x))),
    "log_softmax": unary(_log_softmax),
    "glu": glu,
    "cat": cat,
    "permute": permute,
    "reshape": reshape,
    "narrow": narrow,
    "expand": expand,
}
