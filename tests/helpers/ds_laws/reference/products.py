"""Products and recurrences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Array, Arrays, no_frames, sigmoid

__all__ = ["REFERENCES"]


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
        return [no_frames(n_out)]
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
        return [no_frames(n_out)]
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


def _lstm_cell(x: Array, weights: Arrays, h: Array, c: Array) -> tuple[Array, Array, Array]:
    n = len(h)
    out = np.zeros((len(x), n))
    bias = weights[2] + weights[3] if len(weights) == 4 else np.zeros(4 * n)
    for t in range(len(x)):
        gates = weights[0] @ x[t] + weights[1] @ h + bias
        i, f, o = (sigmoid(gates[k * n : (k + 1) * n]) for k in (0, 1, 3))
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
        return [no_frames(directions * hidden), no_frames(cells, hidden), no_frames(cells, hidden)]
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


REFERENCES: dict[str, Callable[..., list[Array]]] = {
    "linear": linear,
    "conv1d": conv1d,
    "conv_transpose1d": conv_transpose1d,
    "layer_norm": layer_norm,
    "lstm": lstm,
}
