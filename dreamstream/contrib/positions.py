"""Methods by which layers make their tables of positions, in packages that copy them from each other."""

from __future__ import annotations

from typing import Any

import torch

from ..array.shape_of import ShapeOf, shape_alone
from ..online.register import register
from ..online.registered import called_with_numbers
from ..stream.rules import Length
from ..stream.tree import map_leaves
from ..torch.forward.library import TORCH

#: Frames for which tables are made.
_ROWS = 5000


@register("*.make_pe")
def table(function: Any, *args: Any, **kwargs: Any) -> Any:
    """They make a table of positions of a length."""
    return called_with_numbers(function, *args, **kwargs)


@register("*.extend_pe")
@register("*.extend_pos_enc")
@register("*.update_max_seq_length")
def grown(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a table as long as others are from the start; the call that passes its end says so."""

    def long(x: Any) -> Any:
        if isinstance(x, Length):
            return _ROWS
        alone = shape_alone(x)
        if not isinstance(alone, ShapeOf):
            return x
        return torch.zeros((), dtype=alone.dtype).expand(alone.at(lambda _: _ROWS).shape)

    with TORCH.evaluating():
        return function(*map_leaves(args, long), **map_leaves(kwargs, long))
