"""Which operator a deferred value becomes, by what is done with it: one table.

Methods of streams whose argument may be deferred ask it (`hook.lowered`) for products, indices, reshapes,
sums and softmax, and for what broadcasts: the rows under that name are tried in their order. The other rows
are there to be read and tested: they name the method of the deferred value's own class. Each row has an
example, and one that is refused: code that sets y, of a stream x ``(B, L, 8)``, queries, keys and values q,
k, v ``(B, 2, L, 4)`` that follow from it, bools m and falling numbers c ``(B, L)``, positions i, and a table
of 40 rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import attend, mask_terms, pair_terms, positions
from .deferred import Deferred, is_computed
from .filled import Filled
from .masked_select import MaskedSelect, same_mask
from .merged_dimensions import Merged, merged
from .scores import Scores, scores_of
from .shape_of import Empty
from .softmax_pooling import Weights, product
from .symbolic import Symbolic
from .tensor import Tensor


class Lowering(NamedTuple):
    """What is made of a deferred value where something is done with it, or of streams so that it is deferred."""

    pattern: str  #: What meets what.
    becomes: str  #: The operator that computes it; a class, where that is still open.
    run: Callable[..., Any]  #: Makes it. Of what is done to streams: None where the pattern is not met.
    example: str  #: Code in which it is met.
    refused: str  #: Code that is refused there.
    because: str  #: What the refusal says.


# ---------------------------------------------------------------------- of streams
def _by_positions(x: Any, other: Any, reverse: bool) -> Any:
    if not is_computed(other):
        return None
    return other.library.defer(Tensor.__matmul__, (other, x) if reverse else (x, other), {})


def _over_frames(x: Any, other: Any, reverse: bool) -> Any:
    """Return a product that sums over L; None of all others."""
    both = not reverse and getattr(other, "is_stream", False) and len(x.dims) == len(other.dims) >= 2
    return product(x, other) if both and x.dims[-1] == other.dims[-2] == "L" else None


def _masked_select(x: Any, index: Any) -> Any:
    mask = getattr(index, "is_stream", False) and index.dtype == bool and "L" in index.dims
    return (
        MaskedSelect(x.with_dims(x.dims, x.names), index)
        if mask and index.roles == x.roles[: index.ndim]
        else None
    )


_MASKED = "(q @ k.mT).masked_fill(i > i[:, None], -1e9)"
_LEFT_ALONE = "scores of attention are"
_EACH_POSITION = "meet a stream"

_ROWS: dict[str, Sequence[tuple[str, str, Any, str, str, str]]] = {
    "product": (
        ("values @ softmax(scores), transposed", "attention",
         lambda x, other, reverse: other.__rmatmul__(x) if isinstance(other, Scores) else None,
         f"y = (v.mT @ {_MASKED}.softmax(-1).mT).mT",
         f"y = v.mT @ {_MASKED}.mT", "the weights of pairs"),
        ("frames @ a function of two positions", "scan", _by_positions,
         "y = (i[:, None] >= i).float() @ x",
         "y = (i[:, None] - i).float() @ x", "the weights of pairs"),
        ("queries @ keys, transposed", "Scores",
         lambda x, other, reverse: None if reverse else scores_of(x, other),
         f"y = {_MASKED}.softmax(-1) @ v",
         "y = (q @ k.mT).softmax(-1) @ v", "every query sees the whole stream"),
        ("softmax over L, transposed, @ frames", "softmax_sum", _over_frames,
         "y = (x[..., :1].softmax(1).mT @ x)[:, 0]",
         "y = x[..., :1].softmax(1) @ x[..., :1].mT", "softmax over L"),
    ),
    "scores @ values": (
        ("softmax(scores) @ values, also by einsum", "attention", attend.valued,
         f"y = ds.einsum('bhij,bhjd->bhid', {_MASKED}.softmax(-1), v)",
         "y = (q @ k.mT).sin() @ v", _LEFT_ALONE),
    ),
    "scores": (
        ("a comparison of positions fills scores, a function of the distance is added", "attention",
         mask_terms.recognise,
         "y = (q @ k.mT - (i[:, None] - i).abs() / 2).masked_fill(i > i[:, None], -1e9).softmax(-1) @ v",
         "y = (q @ k.mT).masked_fill(i + i[:, None] < 9, -1e9).softmax(-1) @ v", "does not stream: "),
    ),
    "broadcast": (
        ("frames beside frames at another dimension", "scan", pair_terms.of_streams,
         "d = c[:, None, :, None] - c[:, None, None]\n"
         "y = (q @ k.mT * d.masked_fill(i > i[:, None], -1e9).exp()) @ v",
         "y = (c[:, :, None] + c[:, None]).sin()", _LEFT_ALONE),
    ),
    "reshape": (
        ("features and frames behind them become one dimension", "Merged", merged,
         "y = x.mT.flatten(1).sum(1)",
         "y = x.mT.flatten(1).unsqueeze(1)", "of which features and frames are one dimension"),
    ),
    "places": (
        ("frames at positions at fixed or even distances", "slice", positions.index_frames,
         "y = x * x[:, (i - 2).clamp(min=0)]",
         "y = x[:, i // 2]", "no fixed distance"),
    ),
    "index": (
        ("frames at a stream of bools", "MaskedSelect", _masked_select,
         "y = x * 1; y[m] = y[m] * 2",
         "y = x[m]", "of elements that a stream of bools picks"),
    ),
    "softmax": (
        ("softmax over L", "Weights", lambda x, axis: Weights(x) if x.dims[axis] == "L" else None,
         "y = (x[..., :1].softmax(1) * x).sum(1)",
         "y = x.softmax(1)", "softmax over L"),
    ),
    "reduce": (
        ("a sum over a joined dimension", "reduce_frames",
         lambda x, *given: x.reduced(*given) if isinstance(x, Merged) else None,
         "y = x.mT.flatten(1).mean(1)",
         "y = x.mT.flatten(1).argmax(1)", "argmax of a stream"),
    ),
    "sum": (
        ("softmax over L times frames, summed over L", "softmax_sum", Weights.sum,
         "y = (x * x[..., :1].softmax(1)).sum(1)",
         "y = (x[..., :1].softmax(1) + x).sum(1)", "softmax over L"),
    ),
    "elementwise": (
        ("what one stream of bools picks, of several streams", "where", MaskedSelect.by_element,
         "y = x * 1; y[m] = (x[m] - y[m] / 2).abs()",
         "y = x * 1; y[m] = y[m].softmax(0)", "of elements that a stream of bools picks"),
        ("a joined dimension and a number", "mul", Merged.by_element,
         "y = (x.mT.flatten(1) * 2).sum(1)",
         "y = (x.mT.flatten(1) + x.flatten(1)).sum(1)", "of which features and frames are one dimension"),
    ),
    "setitem": (
        ("frames at bools become a function of those at the same bools", "where", same_mask,
         "y = x * 1; y[c < -3] = x[c < -3] * 2",
         "y = x * 1; y[m] = x[c < -3]", "a write by other bools"),
        ("frames are written into one number for all B and L", "positions", Filled.become,
         "y = ds.zeros(x.size(0), x.size(1), 8); y[..., :4] = x[..., 4:]",
         "y = x * 1; y[i > 3] = 0", "assignment to a mask"),
    ),
    "cat": (
        ("scores and a column of a number per head", "attention", Scores.beside,
         f"n = ds.zeros(1, 2, 1, 1).expand(x.size(0), 2, x.size(1), 1)\n"
         f"y = ds.cat([{_MASKED}, n], -1).softmax(-1)[..., :-1] @ v",
         f"y = ds.cat([{_MASKED}, q], -1).softmax(-1)", "joined with what is no number per head"),
        ("frames, and others without features", "Empty", Empty.beside,
         "y = ds.cat([x * 2, x[..., 8:]], -1)",
         "y = x[..., 8:]", "keeps none"),
    ),
    "frames": (
        ("one number for all B and L meets frames", "add", Symbolic.beside_frames,
         "y = x + ds.ones(x.size(0), x.size(1), 8)",
         "y = (x[:, :, None] + ds.zeros(1, 1, x.size(1), 1)).sum(2)", "don't line up"),
        ("a function of one position meets frames", "sin", Deferred.as_stream,
         "y = x * ((i % 3).float() / 8).sin()[:, None]",
         "y = x[..., :1] + (i[:, None] - i)", _EACH_POSITION),
    ),
    "take": (
        ("rows of a table at positions in turn", "table", positions.first_row,
         "y = F.embedding(i, table) + x",
         "y = F.embedding(i // 2, table) + x", "beyond a table at lengths that streams may have"),
    ),
    "number": (
        ("what is the same at all lengths", "mul", Deferred.item,
         "y = x * float((i * 0).sum())",
         "y = x * (2 if (i > 5).any() else 3)", "a comparison of positions"),
    ),
    "output": (
        ("a length", "length", Symbolic.as_output,
         "y = x.size(1) - 2",
         "y = i > i[:, None]", _EACH_POSITION),
    ),
}  # fmt: skip
LOWERINGS = {done: tuple(Lowering(*row) for row in rows) for done, rows in _ROWS.items()}


def lowered(done: str, *given: Any) -> Any:
    """Return what the first row whose pattern is met makes of streams; None where none is."""
    for row in LOWERINGS[done]:
        if (out := row.run(*given)) is not None:
            return out
    return None
