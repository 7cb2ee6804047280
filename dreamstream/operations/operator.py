"""What every operator's row says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .refusals import Refusal

__all__ = ["Kind", "Lanes", "Operator"]

Kind = Literal["elementwise", "frame", "window", "carried"]
Lanes = Literal["", "as they come", "behind", "axis", "axes", "shape"]


@dataclass(frozen=True)
class Operator:
    """An operator of the C registry.

    Attributes
    ----------
    name : str
        As `csrc/ops/operators.def` has it.
    kind : {"elementwise", "frame", "window", "carried"}
        What an output sees: elements in its place, its own frame, a run of frames, or all so far, of which
        something is carried from call to call.
    torch : str
        torch's function that computes it, behind ``torch.``; without it a kernel is written by hand.
    takes : tuple of str
        The attributes that this function takes, as arguments of these names.
    written : str
        How users write it, where no layer, function or method is named after it; L is the stream axis.
    alone : str
        Why torch has nothing to compare it with, for those where this is so.
    lanes : {"", "as they come", "behind", "axis", "axes", "shape"}
        How it runs where B is joined with features, one axis in front of the others (`array.lanes`): it looks
        behind that axis or moves frames, and takes it as it comes; it works on the first axis, or makes one, and
        lanes step behind that; it has an attribute of this name, which counts one axis more. Empty for what has a
        function of its own there, or none.
    by_position : bool
        Whether what it gives depends on where a frame stands, by its definition.
    whole : Refusal or None
        Why it needs the whole stream, where some of its attributes let it do so.
    instead : str
        What would stream in place of that.
    """

    name: str
    kind: Kind = field(default="elementwise", kw_only=True)
    torch: str = field(default="", kw_only=True)
    takes: tuple[str, ...] = field(default=(), kw_only=True)
    written: str = field(default="", kw_only=True)
    alone: str = field(default="", kw_only=True)
    lanes: Lanes = field(default="", kw_only=True)
    by_position: bool = field(default=False, kw_only=True)
    whole: Refusal | None = field(default=None, kw_only=True)
    instead: str = field(default="", kw_only=True)
