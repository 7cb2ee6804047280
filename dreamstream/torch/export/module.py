"""A streaming model as a plain module whose states are arguments and results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...engine import Engine
from ...errors import NotStreamableError
from ...stream.place import Operation
from ..private import own_tensors
from ..run.kernels import KERNELS, Kernel, Step
from .eager import EagerCall, takes_numbers
from .forms import kernel_of
from .graph import FunctionalNode, Graph
from .integers import Counter
from .manifest import make_manifest, unique, with_states
from .window import PaddedWindow, fit, zero_behind


class Port:
    """An input or output: its name, and where "B", "L" and features stand in the caller's tensor."""

    def __init__(self, name: str, dims: Sequence[Any]) -> None:
        if "B_L" in dims:
            raise NotStreamableError(
                f"output {name} joins B and L in one dimension, which rows of different lengths can't share in an "
                "exported model; return it with B and L apart"
            )
        self.name = name
        self.dims = tuple(dims) if "B" in dims else ("B", *dims)  # a table has one for all
        stored: list[Any] = [d for d in ("B", "L") if d in self.dims]
        stored += range(sum(isinstance(d, int) for d in dims))
        self.inward = [self.dims.index(d) for d in stored]
        self.outward = [stored.index(d) for d in self.dims]


class FunctionalModule(torch.nn.Module):
    """What `dreamstream.torch.functionalize` returns.

    ``module(x, lengths, sos, eos, states) -> (y, lengths, states)``: one call for the rows of a batch, each row
    the next chunk of some stream. Rows don't see one another: which stream is in which row may change from call
    to call, as long as its states move along.

    - ``x``: padded as the spec says, ``(B, 80, L)``; what stands in the padding does not matter, NaN included.
      L is at least 1.
    - ``lengths``: ``(B,)`` int64, frames of each row, 0 included.
    - ``sos``, ``eos``: ``(B,)`` bool, rows whose stream starts, and ends, with this call. The states of a row that
      starts are not read.
    - ``states``: a tuple of tensors ``(B, ...)``, what the last call returned; `initial` before the first.
    - ``y``: the frames that are final now, padded with zeros, at L or after B where the model's output has its L;
      ``lengths`` how many. An output without L is there where its length is 1.

    Several inputs are a tuple, their lengths too; so are several outputs.

    Attributes
    ----------
    manifest : dict
        What a caller needs to know, of JSON's types: see `docs/howto/export.md`.
    """

    def __init__(self, engine: Engine, graph: Graph, parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.graph = graph
        inputs = [Port(s.name, s.dims) for s in engine.inputs]
        outputs = [Port(o.name, d) for o, d in zip(engine.outputs, engine._dims)]
        self.inputs, self.outputs = inputs, outputs
        self._weights: dict[int, list[str | None]] = {}
        self._kernels: dict[int, Kernel] = {}
        self._add_weights(parameters)
        self._widths = _widths(graph)
        #: Edges that keep frames, nodes that carry tensors with the names of these: the order of states.
        self._kept: list[int] = []
        self._carried: dict[int, list[str]] = {}
        self._add_carried()
        self.manifest = make_manifest(engine)
        self.keep({})
        #: What calls on numbers know of the operators, by number: one for each of the calls at the same time.
        self.operations: list[dict[int, Operation]] = []
        self.eval()

    # ---------------------------------------------------------------- making
    def _add_weights(self, parameters: Mapping[str, Tensor]) -> None:
        """Register every weight once: the model's own tensors by their names, others as buffers."""
        names: dict[Any, str] = {}
        for j, node in enumerate(self.graph.nodes):
            self._kernels[j] = kernel_of(node)
            given: list[str | None] = []
            for i, weight in enumerate(node.weights):
                if weight is None:
                    given.append(None)
                    continue
                key, array = weight
                tensor = parameters.get(key) if key is not None else None
                if tensor is not None and tuple(tensor.shape) != array.shape:
                    tensor = None
                place = (j, i) if key is None else (key, array.shape)
                if place not in names:
                    wanted = (key or f"{node.path}.{node.name}.{i}").replace(".", "_").lstrip("_")
                    names[place] = unique(f"w_{wanted}", own_tensors(self))
                    if isinstance(tensor, torch.nn.Parameter):
                        self.register_parameter(names[place], tensor)
                    else:
                        held = torch.from_numpy(array.copy()) if tensor is None else tensor
                        self.register_buffer(names[place], held)
                given.append(names[place])
            self._weights[j] = given

    def _add_carried(self) -> None:
        for j, node in enumerate(self.graph.nodes):
            carries = self._kernels[j].carries
            if carries is None or node.silent:
                continue
            dtype = getattr(torch, self.graph.edges[node.inputs[0]].dtype)
            first = carries(self._step(node), self._given(j), torch.zeros((), dtype=dtype))
            self._carried[j] = []
            for k, tensor in enumerate(first):
                name = unique(f"initial_{j}_{k}", own_tensors(self))
                self.register_buffer(name, tensor.detach().clone(), persistent=False)
                self._carried[j].append(name)

    def _step(self, node: FunctionalNode, **moment: Any) -> Step:
        ends = node.inputs[: node.op.n_values], node.outputs
        given, made = (tuple(self.graph.edges[e].features for e in edges) for edges in ends)
        return Step(node.name, node.op.attributes, given, made, **moment)

    def _given(self, j: int) -> list[Tensor | None]:
        return [None if name is None else getattr(self, name) for name in self._weights[j]]

    def _states(self) -> list[tuple[str, tuple[int, ...], str, Tensor | None]]:
        """Return name, shape without B, dtype and what a stream starts with (None: zeros) of every state."""
        edges, producer = self.graph.edges, dict(zip(self.graph.inputs, (p.name for p in self.inputs)))
        for node in self.graph.nodes:
            for e in node.outputs:
                producer[e] = f"{node.path}.{node.name}" if node.path else node.name
        out: list[tuple[str, tuple[int, ...], str, Tensor | None]] = [
            ("frames", (len(self.inputs),), "int64", None)
        ]
        out.extend(
            (f"{producer[e]}.kept", (edges[e].kept, *edges[e].features), edges[e].dtype, None) for e in self._kept
        )
        for j, names in self._carried.items():
            for k, name in enumerate(names):
                tensor = getattr(self, name)
                whose = producer[self.graph.nodes[j].outputs[0]]
                dtype = str(tensor.dtype).removeprefix("torch.")
                value = tensor[0] if bool((tensor != 0).any()) else None
                out.append((f"{whose}.carried{k}", tuple(tensor.shape[1:]), dtype, value))
        return out

    def keep(self, more: Mapping[int, int]) -> None:
        """Keep so many more frames of edges."""
        for e, n in more.items():
            self.graph.edges[e].kept += n
        self._kept = [e for e, edge in enumerate(self.graph.edges) if edge.kept > 0]
        self.manifest = with_states(self.manifest, self._states())

    # ---------------------------------------------------------------- for callers
    def initial(self, n_rows: int = 1) -> tuple[Tensor, ...]:
        """Return the states of so many streams that have not started."""
        weight = next(iter([*self.parameters(), *self.buffers()]), torch.zeros(()))
        out = [torch.zeros((n_rows, len(self.inputs)), dtype=torch.int64, device=weight.device)]
        for e in self._kept:
            edge = self.graph.edges[e]
            dtype = getattr(torch, edge.dtype)
            out.append(torch.zeros((n_rows, edge.kept, *edge.features), dtype=dtype, device=weight.device))
        for names in self._carried.values():
            out.extend(getattr(self, name).repeat_interleave(n_rows, 0) for name in names)
        return tuple(out)

    def example(self, n_rows: int = 2, n_frames: int = 4) -> tuple[Any, ...]:
        """Return arguments of a call: rows that start, `n_frames` frames of the first input."""
        xs, lengths = [], []
        first = self.graph.edges[self.graph.inputs[0]].rate
        for port, e in zip(self.inputs, self.graph.inputs):
            edge = self.graph.edges[e]
            n = max(1, int(n_frames * edge.rate / first))
            x = torch.zeros((n_rows, n, *edge.features), dtype=getattr(torch, edge.dtype))
            xs.append(x.permute(port.outward).contiguous())
            lengths.append(torch.full((n_rows,), n, dtype=torch.int64))
        given: Any = (xs[0], lengths[0]) if len(xs) == 1 else (tuple(xs), tuple(lengths))
        starts = torch.ones(n_rows, dtype=torch.bool)
        return *given, starts, ~starts, self.initial(n_rows)

    # ---------------------------------------------------------------- running
    def forward(self, x: Any, lengths: Any, sos: Tensor, eos: Tensor, states: Any) -> Any:
        """Advance every row by its chunk."""
        xs = [x] if len(self.inputs) == 1 else list(x)
        ns = [lengths] if len(self.inputs) == 1 else list(lengths)
        kind = EagerCall if takes_numbers([*xs, *ns, sos, eos, *states]) else _Call
        call = kind(self, xs, ns, sos, eos, states)
        outputs = [call.output(port, e) for port, e in zip(self.outputs, self.graph.outputs)]
        ys, counts = tuple(y for y, _ in outputs), tuple(n for _, n in outputs)
        if len(ys) == 1:
            return ys[0], counts[0], call.states
        return ys, counts, call.states

    def __prepare_scriptable__(self) -> torch.nn.Module:
        """Return what `torch.jit.script` compiles in place of this: the operations of one call, for any sizes."""
        return _scriptable(self)


def _widths(graph: Graph) -> dict[int, Any]:
    """Return per edge what its padded extent depends on: edges with equal ones are equally wide."""
    widths: dict[int, Any] = {e: ("input", e) for e in graph.inputs}
    widths[graph.inputs[0]] = graph.edges[graph.inputs[0]].gain
    for j, node in enumerate(graph.nodes):
        if KERNELS[node.name].framewise:
            shared = {widths[e] for e in node.inputs[: node.op.n_values]}
            made = shared.pop() if len(shared) == 1 else graph.edges[node.outputs[0]].gain
            widths.update(dict.fromkeys(node.outputs, made))
        else:  # as wide as they can become, but for what repeats or splits the frames that it is given
            own = node.name in ("repeat_frames", "unstack")
            widths.update({e: ("node", j) if own else graph.edges[e].gain for e in node.outputs})
    return widths


class _Call:
    """One call: values of edges as they come, and the states after it."""

    def __init__(
        self,
        module: FunctionalModule,
        xs: Sequence[Tensor],
        lengths: Sequence[Tensor],
        sos: Tensor,
        eos: Tensor,
        states: Sequence[Tensor],
    ) -> None:
        self.module, self.graph = module, module.graph
        self.eos, self.sos = eos, sos
        given: Iterator[Tensor] = iter(states)
        so_far = next(given).masked_fill(sos[:, None], 0)
        before = [so_far[:, i] for i in range(len(lengths))]
        now = [b + n for b, n in zip(before, lengths)]
        self.before = self.graph.pairs(Counter(), before)
        self.now = self.graph.pairs(Counter(eos), now)
        self.n_frames = xs[0].shape[module.inputs[0].dims.index("L")]
        self.fresh: dict[int, Tensor] = {}
        self.windows: dict[int, PaddedWindow] = {}
        self.kept = dict(zip(module._kept, given))
        for port, e, x, n in zip(module.inputs, self.graph.inputs, xs, lengths):
            self.fresh[e] = zero_behind(x.permute(port.inward), n)
        carried: list[Tensor] = []
        for j, node in enumerate(self.graph.nodes):
            if not node.silent:
                names = module._carried.get(j, [])
                old = [self._started(getattr(module, name), next(given)) for name in names]
                carried += self.run(j, node, old)
        tails = [self.window(e).tail(self.graph.edges[e].kept) for e in module._kept]
        self.states = (torch.stack(now, 1).masked_fill(eos[:, None], 0), *tails, *carried)

    def _started(self, initial: Tensor, old: Tensor) -> Tensor:
        """Return carried tensors, those of rows that start as streams start."""
        starts = self.sos.reshape((-1,) + (1,) * (old.dim() - 1))
        return torch.where(starts, initial, old)

    def window(self, e: int) -> PaddedWindow:
        if e not in self.windows:
            known, total = self.now[e]
            before = self.before[e][0]
            self.windows[e] = PaddedWindow(self.kept.get(e), self.fresh[e], before, known, total)
        return self.windows[e]

    def run(self, j: int, node: FunctionalNode, carried: Sequence[Tensor]) -> Sequence[Tensor]:
        """Run an operator; return what it carries on."""
        values, weights, kernel = (node.inputs[: node.op.n_values], self.module._given(j), self.module._kernels[j])
        step = self.module._step(
            node,
            first=[self.before[e][0] for e in node.outputs],
            n=[self.graph.edges[e].most(self.n_frames) for e in node.outputs],
            total=lambda: self.now[node.inputs[0]][1],
            ended=self.eos,
        )
        if kernel.framewise:
            given = [self.fresh[e] for e in values]
            if len({self.module._widths[e] for e in values}) > 1:
                given = [fit(x, step.n[0]) for x in given]
            out = kernel.run(step, *given, *weights)
        elif kernel.carries is None:
            out = kernel.run(step, *map(self.window, values), *weights)
        else:
            out, carried = kernel.run(step, [self.window(e) for e in values], weights, tuple(carried))
        self.fresh.update(zip(node.outputs, out if isinstance(out, tuple) else (out,)))
        return carried

    def output(self, port: Port, e: int) -> tuple[Tensor, Tensor]:
        """Return an output as the caller has it, and each row's frames."""
        lengths = self.now[e][0] - self.before[e][0]
        y = zero_behind(self.fresh[e], lengths)
        if "L" not in port.dims:
            y = y[:, 0]
        return y.permute(port.outward), lengths


# ---------------------------------------------------------------------- what TorchScript compiles in its place
def _scriptable(module: FunctionalModule) -> torch.nn.Module:
    """Return a module that `torch.jit.script` takes, with the manifest as text.

    A compiler can't follow code that walks a graph held in Python's data. One call's operations are the same for
    any sizes, so they are recorded once, and what is compiled hands its arguments on to them.
    """
    graph = torch.fx.Graph()
    given = [graph.placeholder(name, _type_of(value)) for name, value in zip(_ARGUMENTS, module.example())]
    graph.output(graph.call_module("recorded", tuple(given)))
    recorded = torch.jit.trace(module, module.example(), check_trace=False)
    out = torch.fx.GraphModule({"recorded": recorded}, graph, type(module).__name__)
    out.manifest = json.dumps(module.manifest)  # type: ignore[assignment]
    return out.eval()


_ARGUMENTS = ("x", "lengths", "sos", "eos", "states")


def _type_of(value: Any) -> Any:
    """Return the type of a tensor, or of a tuple of tensors."""
    if isinstance(value, tuple):
        return tuple[tuple(torch.Tensor for _ in value)]  # type: ignore[misc]
    return torch.Tensor
