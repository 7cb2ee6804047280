"""What rows say: of torch's names, and of operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .refusals import Refusal

Kind = Literal["elementwise", "frame", "window", "carried"]
Lanes = Literal["", "as they come", "behind", "axis", "axes", "shape"]


#: What happens to stream tensors outside a forward, as `dreamstream.torch.outside` names it. "": torch's tags tell
#: whether elements are seen one by one; "same": the shape, and nothing of the values; "along": one dimension or
#: several, of features; "as it is": torch's answer, which is no stream; "resizing", "whole streams": refused.
Rule = Literal[
    "", "elementwise", "same", "as it is", "resizing", "along", "last dimensions", "running statistics",
    "whole streams", "rows of tables", "angles", "reduction", "permuted", "unsqueeze", "squeeze", "reshaped",
    "repeated", "unfold", "pad", "as complex", "as real", "index", "assignment", "narrow", "select",
    "index_select", "gather", "take_along_dim", "split", "unbind", "cat", "stack", "stacked", "matmul",
    "linear", "einsum", "equal", "allclose", "number of elements", "sizes",
]  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """A function, method or attribute of torch.

    Attributes
    ----------
    name : str
    outside : str
        The rule for stream tensors outside a forward.
    aliases : tuple of str
        torch's other names for it.
    native : str
        The native front end's name, where it is another one.
    arguments : tuple of str
        Of rules that look at dimensions: the arguments behind the tensor, in their order.
    default : int or None
        The dimension where none is given.
    shares : bool
        Whether the result shares memory with the tensor: what is written into one is seen in the other.
    """

    name: str
    outside: Rule = ""
    aliases: tuple[str, ...] = ()
    native: str = ""
    arguments: tuple[str, ...] = ()
    default: int | None = None
    shares: bool = False


def each(rule: Rule, names: str, **more: Any) -> tuple[Operation, ...]:
    """Return rows of names of which the same is to be said."""
    return tuple(Operation(name, rule, **more) for name in names.split())


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
        How it runs where B is joined with features, which are stored as one more axis in front of the others
        (`array.batch_folding`). "as they come": unchanged, since it looks behind that axis or moves frames.
        "behind": it works on the first axis, or makes one, and lanes step behind that. "axis", "axes", "shape":
        its attribute of this name counts one axis more. "": a function of its own runs it there, or nothing does.
    by_position : bool
        Whether what it gives depends on where a frame stands, by its definition.
    whole : Refusal or None
        Why it needs the whole stream, where some of its attributes let it do so.
    instead : str
        What would stream in place of that.
    window : callable or None
        Of its attributes and its weights' shapes: the frames that a window spans, and by how many the stream is
        padded before and behind, where the padding decides how far it looks ahead.
    chooses : {"", "one", "several"}
        Whether its integers say which elements it chose: one, or along an axis more than one.
    named : tuple of Operation
        torch's names for it, and what they mean for streams outside a forward, where there is more to say of them
        than of functions of single elements.
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
    window: Callable[[Mapping[str, Any], Sequence[Any]], tuple[int, int, int]] | None = field(
        default=None, kw_only=True
    )
    chooses: Literal["", "one", "several"] = field(default="", kw_only=True)
    named: tuple[Operation, ...] = field(default=(), kw_only=True)
