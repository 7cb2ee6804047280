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
    """A function, method or attribute of torch."""

    name: str
    outside: Rule = ""  #: The rule for stream tensors outside a forward.
    aliases: tuple[str, ...] = ()  #: torch's other names for it.
    native: str = ""  #: The native front end's name, where it is another one.
    #: Of rules that look at dimensions: the arguments behind the tensor, in their order.
    arguments: tuple[str, ...] = ()
    default: int | None = None  #: The dimension where none is given.
    #: Whether the result shares memory with the tensor: what is written into one is seen in the other.
    shares: bool = False


def each(rule: Rule, names: str, **more: Any) -> tuple[Operation, ...]:
    """Return rows of names of which the same is to be said."""
    return tuple(Operation(name, rule, **more) for name in names.split())


@dataclass(frozen=True)
class Operator:
    """An operator of the C registry."""

    name: str  #: As `csrc/ops/operators.def` has it.
    #: What an output sees: elements in its place, its own frame, a run of frames, or all so far, of which
    #: something is carried from call to call.
    kind: Kind = field(default="elementwise", kw_only=True)
    #: torch's function that computes it, behind ``torch.``; without it a kernel is written by hand.
    torch: str = field(default="", kw_only=True)
    #: The attributes that this function takes, as arguments of these names.
    takes: tuple[str, ...] = field(default=(), kw_only=True)
    #: How users write it, where no layer, function or method is named after it; L is the stream axis.
    written: str = field(default="", kw_only=True)
    #: Why torch has nothing to compare it with, for those where this is so.
    alone: str = field(default="", kw_only=True)
    #: How it runs where B is joined with features, which are stored as one more axis in front of the others
    #: (`array.batch_folding`). "as they come": unchanged, since it looks behind that axis or moves frames.
    #: "behind": it works on the first axis, or makes one, and lanes step behind that. "axis", "axes", "shape": its
    #: attribute of this name counts one axis more. "": a function of its own runs it there, or nothing does.
    lanes: Lanes = field(default="", kw_only=True)
    #: Whether what it gives depends on where a frame stands, by its definition.
    by_position: bool = field(default=False, kw_only=True)
    #: Why it needs the whole stream, where some of its attributes let it do so.
    whole: Refusal | None = field(default=None, kw_only=True)
    instead: str = field(default="", kw_only=True)  #: What would stream in place of that.
    #: Returns, of its attributes and its weights' shapes, the frames that a window spans, and by how many the
    #: stream is padded before and behind, where the padding decides how far it looks ahead.
    window: Callable[[Mapping[str, Any], Sequence[Any]], tuple[int, int, int]] | None = field(
        default=None, kw_only=True
    )
    #: Whether its integers say which elements it chose: one, or along an axis more than one.
    chooses: Literal["", "one", "several"] = field(default="", kw_only=True)
    #: torch's names for it, and what they mean for streams outside a forward, where there is more to say of them
    #: than of functions of single elements.
    named: tuple[Operation, ...] = field(default=(), kw_only=True)
