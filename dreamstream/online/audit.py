"""Audit: what streaming a model costs, layer by layer, before it is deployed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .patch import front_of

__all__ = ["Audit", "AuditRow", "audit", "set_capture"]


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
    """

    rows: list[AuditRow]
    delay: float
    receptive_field: float
    state_size: int
    state_bytes_per_frame: float

    def __str__(self) -> str:
        head = ("path", "layer", "delay", "field", "stride", "state bytes", "streams")
        table = [head]
        for r in self.rows:
            verdict = "yes" if r.streamable else f"no: {r.reason}"
            table.append(
                (
                    r.path or "(forward)",
                    r.layer,
                    _number(r.delay),
                    _number(r.receptive_field),
                    str(r.stride),
                    str(r.state_bytes),
                    verdict,
                )
            )
        total = "yes" if all(r.streamable for r in self.rows) else "no"
        table.append(
            (
                "in total",
                "",
                _number(self.delay),
                _number(self.receptive_field),
                "",
                str(self.state_size),
                total,
            )
        )
        widths = [max(len(row[i]) for row in table) for i in range(len(head) - 1)]
        lines = []
        for row in table:
            cells = [c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
            lines.append("  ".join([*cells, row[-1]]).rstrip())
        if self.state_bytes_per_frame:
            lines.append(f"and {self.state_bytes_per_frame:g} bytes per frame of a stream")
        return "\n".join(lines)


def _number(value: float) -> str:
    return "inf" if math.isinf(value) else str(int(value))


#: Filled by the engine: captures and plans a model, with every node as an output.
_plan: Callable[..., Any] | None = None


def set_capture(plan: Callable[..., Any]) -> None:
    """Set what captures and plans a model for `audit`."""
    global _plan
    _plan = plan


def audit(model: Any, spec: Any, rate: Any = 1, dtype: Any = "float32", skew: int = 0) -> Audit:
    """Say what streaming a model takes: delay, receptive field, stride and state, per layer and in total.

    Parameters
    ----------
    model : dreamstream.nn.Module or torch.nn.Module
    spec, rate, dtype, skew
        As for :func:`dreamstream.compile`.

    Returns
    -------
    Audit
        Layers that can't stream are listed with the reason and what would work; sizes are then those
        with ``unstreamable="buffer"``.
    """
    if _plan is None:
        raise RuntimeError("the engine is not loaded; import dreamstream")
    front = front_of(model, "audit")
    core, nodes, n_outputs = _plan(model, spec, rate, dtype, skew)
    planned = {n["id"]: n for n in core.nodes}
    modules = dict(model.named_modules())
    rate0 = nodes[0][3] if nodes else Fraction(1)
    groups: dict[str, list[int]] = {}
    for i, (path, *_) in enumerate(nodes):
        groups.setdefault(path, []).append(i)
    rows = []
    kept = sum(core.input_bytes)
    if kept:  # what the layers that read the model's input need of it
        rows.append(AuditRow("(input)", "", (), 0, 1, Fraction(1), kept, True, ""))
    for path, indices in groups.items():
        last = indices[-1]
        delay, field = core.delays[n_outputs + last], core.fields[n_outputs + last]
        kept = sum(planned[i]["kept_bytes"] + planned[i]["carried_bytes"] for i in indices if i in planned)
        out_rate = nodes[last][2]
        found = front.unstreamable(modules[path]) if path in modules else None
        if found is None and any(planned[i]["whole"] for i in indices if i in planned):
            found = ("it needs the whole stream", 'unstreamable="buffer" waits for its end')
        rows.append(
            AuditRow(
                path,
                type(modules[path]).__name__ if path in modules else "",
                tuple(nodes[i][1] for i in indices),
                math.inf if delay is None else delay,
                math.inf if field is None else field,
                rate0 / out_rate if out_rate else Fraction(0),
                kept,
                found is None,
                "" if found is None else f"{found[0]}; {found[1]}",
            )
        )
    delays = [math.inf if d is None else d for d in core.delays[:n_outputs]]
    fields = [math.inf if f is None else f for f in core.fields[:n_outputs]]
    return Audit(rows, max(delays), max(fields), core.state_size, core.state_bytes_per_frame)
