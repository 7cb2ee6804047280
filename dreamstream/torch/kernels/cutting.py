"""Frames added, dropped or held back: what only moves them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .frames import padded_run, strided_run
from .registry import Step, Window, windowed


@windowed("pad", numbers=True)
def pad(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the stream with frames before and behind it."""
    a, (x,) = step.attributes, windows
    return (padded_run(x, step.first[0] - a["left"], step.n[0], a["mode"], a["value"]),), state


@windowed("pad_to_multiple")
def pad_to_multiple(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the stream with frames before it, and behind it up to a whole number of blocks."""
    a, (x,) = step.attributes, windows
    more = (-x.total).remainder(a["multiple"]).maximum(a["least"] - x.total)
    right = a["right"] + more
    end = x.total.maximum(right.clamp(min=a["left"]) + 1)  # of too short a stream that is mirrored
    return (padded_run(x, step.first[0] - a["left"], step.n[0], a["mode"], a["value"], end),), state


@windowed("slice", "cut", numbers=True)
def part(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return every step-th frame from a start on; where they end the counts say."""
    a, x = step.attributes, windows[0]
    return (strided_run(x, a["start"] + step.first[0] * a["step"], step.n[0], a["step"]),), state


@windowed("delay", numbers=True)
def delay(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the stream some frames late."""
    return (windows[0].run(step.first[0] - step.attributes["frames"], step.n[0]),), state


@windowed("sync", numbers=True)
def sync(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the stream as far as the others have come."""
    return (windows[0].run(step.first[0], step.n[0]),), state
