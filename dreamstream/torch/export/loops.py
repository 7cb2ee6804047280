"""Loops over frames in exported graphs: ONNX's Scan, or, of a fixed number of frames, one after the other.

While torch makes a graph, a loop stands in it as a node of our own. `scanned` puts Scan in its place, whose body
is a graph that torch makes of one frame of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from ...errors import NotStreamableError
from ..run.kernels import KERNELS, Step
from ..run.kernels.loops import bodies_of, one_step
from ..run.kernels.pointwise import TYPES
from ..run.kernels.positions import traced

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

    Parameters
    ----------
    package : module
        onnx.
    make : callable
        Gives the model.
    graph_of : callable
        Makes a model of a module and its arguments.
    """
    loops: list[tuple[_Frame, tuple[Tensor, ...]]] = []
    token = _FOUND.set(loops)
    try:
        model = make()
    finally:
        _FOUND.reset(token)
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
