"""Audit: what streaming a model costs, layer by layer, before it is deployed.

How far an operator looks ahead stands beside what would look less far, or would stream.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from ..array.stream_creation import stream_tensor
from ..errors import CaptureError, NotStreamableError
from ..online.front import Front
from ..online.given import static
from ..online.handle import VARIANTS
from ..online.patch import as_it_was, front_of, patch_module
from ..operations import row_of
from ..stream.context import Context
from ..stream.edge import Edge, Line, Request
from ..stream.tree import leaves
from .capture import captured
from .explain import in_full
from .load import MOST_BYTES
from .spec import read_specs


@dataclass(frozen=True)
class AuditRow:
    """One layer.

    Attributes
    ----------
    path, layer : str
        The module's path and class; ``""`` is the model's own forward, ``"(input)"`` its input.
    operators : tuple of str
        What it runs.
    delay, receptive_field : int or float
        From the model's input up to this layer's output, in frames of the first input.
    stride : Fraction
        Frames of the first input per output frame; 0 where the output has no stream axis.
    state_bytes : int
        What its operators keep per stream, and what later ones keep of its output.
    streamable : bool
    reason : str
        Why not, and what would work; empty if streamable.
    latency : float or None
        The delay in milliseconds; None where no rate was given.
    context : Context or None
        What its attention sees, built in its forward or declared, in frames at its own rate.
    ahead : int
        How far it looks ahead by itself, in frames of the first input.
    substitute : str
        What would look less far ahead in its place, or would stream; weights are to be trained so.
    last : int or None
        The last frame, at its own rate, that a table of positions reaches; a call that passes it raises.
    memory_bytes : int
        What it keeps besides for each frame of a memory, an input that is given once.
    """

    path: str
    layer: str
    operators: tuple[str, ...]
    delay: float
    receptive_field: float
    stride: Fraction
    state_bytes: int
    streamable: bool
    reason: str
    latency: float | None = None
    context: Context | None = None
    ahead: int = 0
    substitute: str = ""
    last: int | None = None
    memory_bytes: int = 0


@dataclass(frozen=True)
class Audit:
    """What `audit` found; prints as a table.

    Attributes
    ----------
    rows : list of AuditRow
    delay, receptive_field : int or float
        Of the whole model, in frames of the first input.
    state_size : int
        Bytes per stream, exactly.
    state_bytes_per_frame : float
        Growth per frame of the first input, where something waits for the end.
    latency : float or None
        The delay in milliseconds; None where no rate was given.
    max_delay : int or None
        The delay that is allowed, as it was given.
    training : tuple of int
        Bytes that each of the first calls in training keeps for its backward, where `train_variant` was given.
    """

    rows: list[AuditRow]
    delay: float
    receptive_field: float
    state_size: int
    state_bytes_per_frame: float
    latency: float | None = None
    max_delay: int | None = None
    training: tuple[int, ...] = ()

    def __str__(self) -> str:
        late = self.max_delay is not None and self.delay > self.max_delay
        whole = AuditRow(
            "in total",
            "",
            (),
            self.delay,
            self.receptive_field,
            Fraction(0),
            self.state_size,
            all(r.streamable for r in self.rows),
            "",
            self.latency,
        )
        columns: list[tuple[str, Callable[[AuditRow], str]]] = [
            ("path", lambda r: _core.shown(r.path) or "(forward)"),
            ("layer", lambda r: _core.shown(r.layer)),
            ("context", lambda r: _seen(r.context)),
            ("delay", lambda r: _number(r.delay)),
            ("ms", lambda r: f"{r.latency:.4g}"),
            ("field", lambda r: _number(r.receptive_field)),
            ("stride", lambda r: "" if r is whole else str(r.stride)),
            ("last", lambda r: "" if r.last is None else str(r.last)),
            ("state bytes", lambda r: str(r.state_bytes)),
            ("streams", lambda r: _verdict(r, late)),
        ]
        absent = {"ms"} if self.latency is None else set()
        absent |= set() if any(r.context for r in self.rows) else {"context"}
        absent |= set() if any(r.last is not None for r in self.rows) else {"last"}
        columns = [(name, cell) for name, cell in columns if name not in absent]
        table = [[name for name, _ in columns], *([cell(r) for _, cell in columns] for r in (*self.rows, whole))]
        widths = [max(len(row[i]) for row in table) for i in range(len(columns) - 1)]
        lines = []
        for row in table:
            cells = [c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
            lines.append("  ".join([*cells, row[-1]]).rstrip())
        if self.state_bytes_per_frame:
            lines.append(f"and {self.state_bytes_per_frame:g} bytes per frame of a stream")
        if (of_memories := sum(r.memory_bytes for r in self.rows)) > 0:
            lines.append(f"and {of_memories} bytes per frame of what is given once")
        if self.training:
            lines.append(f"training keeps {', '.join(map(str, self.training))} bytes of the first calls")
        if late:
            lines.append(f"{_number(self.delay)} frames late, of {self.max_delay} that are allowed")
        return "\n".join(lines)


def _number(value: float) -> str:
    return "inf" if math.isinf(value) else str(int(value))


def _seen(context: Context | None) -> str:
    """A context's chunk, what it sees before and behind, and what it keeps of the start."""
    if context is None:
        return ""
    sizes = (context.chunk, context.left, context.right, *(context.keep,) * bool(context.keep))
    return ", ".join("all" if n is None else str(n) for n in sizes)


def _verdict(row: AuditRow, late: bool) -> str:
    """Whether a layer streams, and what would, or would be less late."""
    instead = f"; {row.substitute}" if row.substitute else ""
    if not row.streamable:
        return f"no: {row.reason}{instead}" if row.reason else "no"
    return f"yes, {row.ahead} ahead{instead}" if late and row.ahead else "yes"


#: The path of the module that ran an operation, the operation, and its first output.
Node = tuple[str, Request, Edge]


def _plan(model: Any, spec: Any, rate: Any, dtype: Any, skew: int) -> tuple[_core.Engine, list[Node], int, Any]:
    """Plan a model with every node as an output after its own; return also the nodes and the first rate."""
    capture, result = captured(model, spec, rate, dtype, True)
    tensors = leaves(result)
    edges = [x.edge for x in tensors] + [edge for _, _, edge in capture.nodes]
    for edge in edges:
        capture.graph.output(edge.handle)
    core = _core.Engine(capture.graph, skew=skew, max_bytes=MOST_BYTES)  # it is not run
    nodes = capture.nodes
    capture.close()
    return core, nodes, len(tensors), capture.specs[0].rate


def _kept_by_calls(
    front: Front, model: Any, specs: Sequence[Any], variant: str, chunk: int, ids: Sequence[str], n_calls: int
) -> Iterator[int]:
    """Yield the bytes that each of the first calls of streams adds to what their backward needs, for zeros."""
    copied = copy.deepcopy(model)
    if not getattr(copied, "told_to_train", copied.training):
        copied.train()
    patch_module(copied, train_variant=variant).online()
    outputs: list[Any] = []
    with front.keeping(copied) as kept:
        for k in range(n_calls):
            if variant == VARIANTS[0]:
                outputs.clear()
            before, inputs = kept(outputs), dict[str, Any]()
            for s in specs:
                if s.once:
                    given = {i: front.zeros(copied, s.shape_of(chunk), s.dtype) for i in ids}
                    inputs[s.name] = static(given, s.dimensions) if k == 0 else None
                    continue
                frames = front.zeros(copied, s.shape_of(int(chunk * s.rate / specs[0].rate)), s.dtype)
                names = [d if isinstance(d, str) else None for d in s.dimensions]
                inputs[s.name] = stream_tensor([frames] * len(ids), None, names, ids=ids, sos=k == 0)
            outputs.append(copied(*inputs.values()) if len(specs) == 1 else copied(**inputs))
            yield kept(outputs) - before


def audit(
    model: Any,
    spec: Any,
    rate: Any = None,
    dtype: Any = "float32",
    skew: int = 0,
    context: Mapping[str, Context] | Context | None = None,
    max_delay: int | None = None,
    *,
    train_variant: str | None = None,
    chunk: int = 100,
    ids: Sequence[str] = ("anna",),
    n_calls: int = 4,
) -> Audit:
    """Say what streaming a model takes: delay, receptive field, stride and state, per layer and in total.

    Parameters
    ----------
    model : dreamstream.nn.Module or torch.nn.Module
    spec, rate, dtype, skew
        As for :func:`dreamstream.compile`; a rate is in frames per second, and gives latencies in milliseconds.
    context : Context or dict of str to Context, optional
        As for `patch_module`, which it calls: what attention sees is part of the model from then on.
    max_delay : int, optional
        Frames of the first input that outputs may be late; where they are later, the table says which layers look
        ahead, and what would look back alone.
    train_variant : str, optional
        As for `patch_module`: `training` then has what calls keep until their backward, measured on a copy of the
        model: for "chunk-wise-aligned" what each call keeps by itself, else what it adds to what is kept
        until the streams end. Counted are the arrays and states that a backward reads, in bytes of memory and
        each once, inputs and outputs among them; with torch what its graphs save. Not counted are weights, their
        gradients, what an optimiser holds, and numbers and flags of a call's rows: where each stands, whether it
        ends. With torch, keys that attention sees from the first one on lie in memory that is twice as long when
        it is full.
    chunk, ids, n_calls
        Frames of the first input in a call, the streams, and how many calls are tried.

    Returns
    -------
    Audit
        Layers that can't stream are listed with the reason and what would work; sizes are then those
        with ``unstreamable="buffer"``.

    Raises
    ------
    NotStreamableError, CaptureError
        For what can't even wait for the end of its stream, like control flow that depends on values: then no sizes
        are known. The message, and `refusals`, have all that stands in the way, each with its line and what would
        work.
    """
    front = front_of(model, "audit")
    front.parts(model)  # which refuses what is scripted
    try:
        with as_it_was(model):
            if context is not None:
                patch_module(model, unstreamable="buffer", context=context)
            core, nodes, n_outputs, rate0 = _plan(model, spec, 1 if rate is None else rate, dtype, skew)
    except (NotStreamableError, CaptureError) as error:
        raise in_full(error, model, spec, 1 if rate is None else rate, dtype, True, context) from None
    planned = {n["id"]: n for n in core.nodes}
    modules = dict(model.named_modules())
    groups: dict[str, list[int]] = {}
    for i, (path, *_) in enumerate(nodes):
        groups.setdefault(path, []).append(i)

    def latency(delay: float) -> float | None:
        return None if rate is None else float(1000 * delay / rate0)

    delays, fields = ([math.inf if n is None else n for n in of] for of in (core.delays, core.fields))
    rows = []
    kept = sum(core.input_bytes)
    if kept:  # what the layers that read the model's input need of it
        rows.append(AuditRow("(input)", "", (), 0, 1, Fraction(1), kept, True, "", latency(0)))
    for path, indices in groups.items():
        last, lines = indices[-1], [nodes[i][2].line for i in indices]
        once = lines[-1].static  # it follows from what is given once
        delay = delays[n_outputs + last]
        field = 0 if once else fields[n_outputs + last]
        kept = sum(planned[i]["kept_bytes"] + planned[i]["carried_bytes"] for i in indices if i in planned)
        waiting = [i for i in indices if i in planned and planned[i]["whole"]]
        requests = [nodes[i][1] for i in indices]
        seen = [outlook(request, i in waiting) for i, request in zip(indices, requests)]
        found = front.unstreamable(modules[path]) if path in modules else None
        if found is None and waiting:
            refusal = row_of(nodes[waiting[0]][1].name).whole
            found = ("it needs the whole stream", "") if refusal is None else refusal.words
            found = (found[0], ", or ".join(filter(None, (found[1], 'unstreamable="buffer" waits for its end'))))
        out_rate = 0 if once else lines[-1].rate
        ahead = sum(look.ahead * rate0 / r.edges[0].rate for r, look in zip(requests, seen) if look.ahead)
        growing = [planned[i]["grows"] if i in planned else False for i in indices]
        rows.append(
            AuditRow(
                path,
                type(modules[path]).__name__ if path in modules else "",
                tuple(request.name for request in requests),
                delay,
                field,
                rate0 / out_rate if out_rate else Fraction(0),
                kept,
                found is None,
                "" if found is None else f"{found[0]}; {found[1]}",
                latency(delay),
                next((look.context for look in seen if look.context is not None), None),
                math.ceil(ahead),
                "; ".join(dict.fromkeys(look.substitute for look in seen if look.substitute)),
                min((look.last for look in seen if look.last is not None), default=None),
                sum(_frame_bytes(line) for line, grows in zip(lines, growing) if line.static and grows),
            )
        )
    latest = max(delays[:n_outputs])
    state = core.state_size, core.state_bytes_per_frame
    training: tuple[int, ...] = ()
    if train_variant is not None:
        specs = read_specs(model, spec, 1 if rate is None else rate, dtype)
        training = tuple(_kept_by_calls(front, model, specs, train_variant, chunk, ids, n_calls))
    return Audit(rows, latest, max(fields[:n_outputs]), *state, latency(latest), max_delay, training)


class Outlook(NamedTuple):
    """What an operator sees of a stream."""

    context: Context | None = None  #: Of attention.
    ahead: int = 0  #: Frames of its input that an output frame looks ahead; 0 where it needs the whole stream.
    substitute: str = ""  #: What would look less far, or would stream; empty where nothing needs to.
    last: int | None = None  #: Of a table of positions: the last frame of its input that it reaches.


def _frame_bytes(line: Line) -> int:
    return np.dtype(line.dtype).itemsize * math.prod(line.features)


def outlook(request: Request, whole: bool) -> Outlook:
    """Return what an operator sees; `whole`: it needs the whole stream."""
    name, a = request.name, request.op.attributes
    shapes = [None if w is None else tuple(w.shape) for w in request.weights]
    if name == "table" or (name == "limit" and a["of"] == "table"):
        rows = (shapes[0] or (0,))[0] if name == "table" else a["frames"]
        return Outlook(last=_longest(a.get("length", ()), rows) - 1)
    context = _context(a) if name == "attention" else None
    if whole:
        return Outlook(context, 0, row_of(name).instead)
    if context is not None and context.chunk is not None and context.right is not None:
        ahead = context.chunk - 1 + context.right
        left = None if context.left is None else context.left + context.chunk - 1
        kept = f", keep={context.keep}" if context.keep else ""
        return Outlook(context, ahead, f"ds.Context(left={left}{kept}) looks back alone" if ahead else "")
    spans = row_of(name).window
    if spans is None:
        return Outlook(context)
    span, left, right = spans(a, shapes)
    ahead = span - 1 - left
    if ahead <= 0:
        return Outlook(context)
    return Outlook(context, ahead, f"padding of {(span - 1, max(right - ahead, 0))} looks back alone")


def _longest(steps: Sequence[int], rows: int) -> int:
    """Return the most frames of which a function of the length, in steps, makes no more than these rows."""
    for code, k in reversed(list(zip(steps[::2], steps[1::2]))):
        rows = (rows - k, rows // k, rows * k + k - 1)[code]
    return rows


def _context(a: dict[str, Any]) -> Context:
    """Return what attention of these attributes sees."""
    left, right = (None if a[side] < 0 else a[side] for side in ("left", "right"))
    return Context(a["chunk"] or None, left, right, a["keep"])
