"""What operations do to names, ids, sos, eos and lengths: pure functions that never see values.

Both the native and the PyTorch stream tensor use them. Inside a forward they receive frame counts
and never compute them.
"""

from ..metadata import set_rules
from . import frames, rows
from .combine import require_same, require_same_streams
from .compare import Comparison
from .frames import cat_length, index_length, kept_lengths, read_length_index, split_length
from .index import Fallback, IndexParts, IndexPlan, is_whole, parse_index, plan_index
from .length import BatchLength, BatchSize, Length, Quotient, Sizes
from .lineage import (
    ONE,
    Cid,
    after,
    as_cid,
    entry,
    joined,
    lineages,
    read_rate,
    require_equal_rates,
    same_lineage,
)
from .names import (
    BATCH,
    LENGTH,
    Names,
    check_names,
    default_names,
    holds,
    insert,
    join,
    order_of,
    permute,
    remove,
    resolve,
    split,
    transpose,
)
from .power import Power
from .regroup import lanes_of
from .reshape import ReshapePlan, plan_reshape
from .rows import cat_batch, drop_empty, index_batch, rows_of, split_batch, unbind_batch
from .shape import Shape
from .slices import StreamSlice, stream_slice, taken, takes_all
from .tokens import Edge, Rows, Token

__all__ = [
    "BATCH",
    "LENGTH",
    "ONE",
    "BatchLength",
    "BatchSize",
    "Cid",
    "Comparison",
    "Edge",
    "Fallback",
    "IndexParts",
    "IndexPlan",
    "Length",
    "Names",
    "Power",
    "Quotient",
    "ReshapePlan",
    "Rows",
    "Shape",
    "Sizes",
    "StreamSlice",
    "Token",
    "after",
    "as_cid",
    "cat_batch",
    "cat_length",
    "check_names",
    "default_names",
    "drop_empty",
    "entry",
    "holds",
    "index_batch",
    "index_length",
    "insert",
    "is_whole",
    "join",
    "joined",
    "kept_lengths",
    "lanes_of",
    "lineages",
    "order_of",
    "parse_index",
    "permute",
    "plan_index",
    "plan_reshape",
    "read_length_index",
    "read_rate",
    "remove",
    "require_equal_rates",
    "require_same",
    "require_same_streams",
    "resolve",
    "rows_of",
    "same_lineage",
    "split",
    "split_batch",
    "split_length",
    "stream_slice",
    "taken",
    "takes_all",
    "transpose",
    "unbind_batch",
]

set_rules(rows, frames)
