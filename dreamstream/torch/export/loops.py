"""Loops over frames and recurrent layers in exported graphs.

A loop is ONNX's Scan, or, of a fixed number of frames, one frame after the other.

While torch makes a graph, a loop stands in it as a node of our own. `scanned` puts Scan in its place, whose body
is a graph that torch makes of one frame of all rows. Recurrent layers run over padded rows of any lengths, without
looking at the lengths; ONNX has layers that take these, which stand in its graph instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from ...errors import NotStreamableError
from ...stream.within import within
from ..run.kernels import KERNELS, Step, Window
from ..run.kernels.loops import bodies_of, one_step
from ..run.kernels.pointwise import TYPES
from ..run.kernels.positions import traced
from ..run.kernels.recurrent import as_rows, begun, of_rows, over_padding, split

_DOMAIN = "dreamstream"


class _Frame(torch.nn.Module):
    """What a loop makes of one frame of all rows: (position, frames left, *carried, *frames)."""

    def __init__(self, step: Step, weights: Sequence[Any], frames: Sequence[Tensor], n_carried: int) -> None:
        super().__init__()
        self._step, self._weights, self.n_carried = step, weights, n_carried
        self._bodies = bodies_of(step, frames, weights)

    def gives(self) -> list[tuple[torch.dtype, tuple[int, ...]]]:
        """Return the types and sizes of the outputs."""
        return [(TYPES[dtype], tuple(features)) for dtype, features, *_ in self._bodies[0].gives]

    def forward(self, place: Tensor, left: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        state, frames = given[: self.n_carried], given[self.n_carried :]
        ys, after = one_step(self._step, self._bodies, frames, place, left > 0, self._weights, state)
        return place + 1, left - 1, *after, *ys


#: The loops of the graph that is being made, each with an example of a frame; None where no Scan is wanted.
_FOUND: ContextVar[list[tuple[_Frame, tuple[Tensor, ...]]] | None] = ContextVar("_FOUND", default=None)


def scan(step: Step, windows: Sequence[Any], weights: Sequence[Any], state: Any) -> Any:
    """Return what the kernel of loops does, as a node of the graph."""
    loops = _FOUND.get()
    if loops is None:
        if traced() and not torch.onnx.is_in_onnx_export():
            raise NotStreamableError(
                "a loop over frames (scan) is exported to ONNX, or for a fixed number of frames; save the engine"
            )
        return KERNELS["scan"].run(step, windows, weights, state)
    parts = [w.new() for w in windows]
    narrowest = parts[0][0]
    for x, _ in parts[1:]:  # inputs may be padded to different widths, which Scan refuses
        narrowest = narrowest[:, : x.shape[1]]
    parts = [(x[:, : narrowest.shape[1]] if len(parts) > 1 else x, valid) for x, valid in parts]
    frames = [x.transpose(0, 1) for x, _ in parts]
    place = step.first[0] + torch.zeros_like(parts[0][1])
    body = _Frame(step, [w if w is None else w.detach() for w in weights], [x for x, _ in parts], len(state))
    example = place, parts[0][1], *state, *(x[0] for x in frames)
    loops.append((body, tuple(x.clone() for x in example)))
    given = [x.clone() for x in (place, parts[0][1], *state, *frames)]  # a Function's arguments have no other uses
    try:
        made = _OnnxLoop.apply(len(loops) - 1, *given)
    except RuntimeError as error:  # torch's tracer loses what some loops read
        raise NotStreamableError(f"a loop over frames (scan) has no form in ONNX: {error}") from None
    carried, ys = made[2 : 2 + len(state)], made[2 + len(state) :]
    return tuple(y.transpose(0, 1) for y in ys), tuple(carried)


class _OnnxLoop(torch.autograd.Function):
    """The node; what it computes here has the right shapes."""

    @staticmethod
    def forward(ctx: Any, at: int, *given: Tensor) -> tuple[Tensor, ...]:
        body = (_FOUND.get() or [])[at][0]
        n = 2 + body.n_carried
        x = given[n]
        ys = (x.new_zeros(*x.shape[:2], *size, dtype=dtype) for dtype, size in body.gives())
        return *(x.clone() for x in given[:n]), *ys

    @staticmethod
    def symbolic(g: Any, at: int, *given: Any) -> Any:
        body, example = (_FOUND.get() or [])[at]
        made = body.forward(*example)
        out = g.op(f"{_DOMAIN}::Loop", *given, at_i=at, outputs=len(made))
        for i, (value, like) in enumerate(zip(out, made)):
            rank = like.dim() + (i >= 2 + body.n_carried)
            value.setType(given[0].type().with_dtype(like.dtype).with_sizes([None] * rank))
        return out


def scanned(package: Any, make: Callable[[], Any], graph_of: Callable[..., Any]) -> Any:
    """Return the model that `make` gives, with Scan for each of its loops.

    `package` is the module onnx, and `graph_of` makes a model of a module and its arguments.
    """
    loops: list[tuple[_Frame, tuple[Tensor, ...]]] = []
    with within(_FOUND, loops):
        model = make()
    for k, node in enumerate(n for n in model.graph.node if n.domain == _DOMAIN):
        body, example = loops[next(a.i for a in node.attribute if a.name == "at")]
        graph = graph_of(body, example)
        _name_apart(graph, f"loop{k}.")
        del node.attribute[:]
        node.op_type, node.domain = "Scan", ""
        node.attribute.append(package.helper.make_attribute("num_scan_inputs", len(example) - 2 - body.n_carried))
        node.attribute.append(package.helper.make_attribute("body", graph))
    for i in reversed(range(len(model.opset_import))):
        if model.opset_import[i].domain == _DOMAIN:
            del model.opset_import[i]
    return model


def _name_apart(graph: Any, prefix: str) -> None:
    """Put a prefix before all names of values in a graph and the graphs within."""
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = prefix + value.name
    for node in graph.node:
        node.name = prefix + node.name
        node.input[:] = [prefix + name if name else name for name in node.input]
        node.output[:] = [prefix + name if name else name for name in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _name_apart(attribute.g, prefix)


Layer = tuple[str, int, str]
"""ONNX's name of a layer, the size of h, its activation where that is not the usual one."""

ORDERS = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}
"""ONNX's order of gates, by their places in torch's."""


def recurrent(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return every frame's h, and the last h and c, as the kernel of the same operators does."""
    frames, lengths, state = as_rows(step, *windows[0].new(), tuple(state))
    run = _in_onnx if torch.onnx.is_in_onnx_export() else over_padding
    frames, carried = of_rows(step, *run(step, frames, lengths, begun(step, windows, state), weights))
    return (frames, *(s[:, None] for s in carried)), carried


def _in_onnx(
    step: Step, frames: Tensor, lengths: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the same of ONNX's own layers: every frame's h ``(B, n, h)``, and h and c after each row's last."""
    a, present = step.attributes, (lengths > 0)[:, None]
    own, after = split(step, weights)[0], []
    activation = a["nonlinearity"].capitalize() if step.name == "rnn" else ""
    per_layer = len(own) // a["layers"]
    for layer, before in enumerate(zip(*(s.unbind(1) for s in state))):
        first, hidden = layer * per_layer, own[layer * per_layer + 1].shape[1]
        parts = [w.unflatten(0, (-1, hidden)) for w in own[first : first + per_layer]]
        w_ih, w_hh, *biases = ([p[i] for i in ORDERS[step.name]] for p in parts)
        if not biases:
            biases = [[w.new_zeros(hidden) for w in w_ih]] * 2
        y, *ends = _OnnxLayer.apply(
            frames.transpose(0, 1),
            torch.cat(w_ih)[None],
            torch.cat(w_hh)[None],
            torch.cat([*biases[0], *biases[1]])[None],
            lengths.to(torch.int32),
            (step.name.upper(), hidden, activation),
            *(s[None] for s in before),
        )
        frames = y[:, 0].transpose(0, 1)
        after.append([torch.where(present, new[0], old) for new, old in zip(ends, before)])
    return frames, tuple(torch.stack(parts, 1) for parts in zip(*after))


class _OnnxLayer(torch.autograd.Function):
    """ONNX's LSTM, GRU or RNN; what it computes here has the right shapes and nothing else."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, r: Tensor, b: Tensor, lengths: Tensor, layer: Layer, *before: Tensor
    ) -> tuple[Tensor, ...]:
        y = x.new_zeros(x.shape[0], 1, x.shape[1], r.shape[2])
        return y, *(s.clone() for s in before)

    @staticmethod
    def symbolic(g: Any, x: Any, w: Any, r: Any, b: Any, lengths: Any, layer: Layer, *before: Any) -> Any:
        kind, hidden, activation = layer
        options: dict[str, Any] = {"hidden_size_i": hidden}
        if kind == "GRU":
            options["linear_before_reset_i"] = 1
        if activation:
            options["activations_s"] = [activation]
        return g.op(kind, x, w, r, b, lengths, *before, **options, outputs=1 + len(before))
