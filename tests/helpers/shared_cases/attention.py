"""Attention as users write it."""

from typing import Any

from .tables import BLC, F, forward, nn


@forward(
    BLC(8),
    lambda: {"q": nn.Linear(8, 12), "k": nn.Linear(8, 6), "v": nn.Linear(8, 10)},
    reach=20,
    delay=0,
    exports=False,
)
def _attention_of_grouped_heads(self: Any, x: Any) -> Any:
    """Four heads of queries, two of keys and values; queries wait for a convolution with look-ahead."""
    q = self.q(x).unflatten(-1, (4, 3)).transpose(1, 2)
    k = self.k(x).unflatten(-1, (2, 3)).transpose(1, 2)
    v = self.v(x).unflatten(-1, (2, 5)).transpose(1, 2)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.4, enable_gqa=True)
    return y.transpose(1, 2).flatten(2)


@forward(
    BLC(6), lambda: {"conv": nn.Conv1d(6, 6, 3, padding=1), "v": nn.Linear(6, 4)}, reach=20, delay=1, exports=False
)
def _attention_behind_a_convolution(self: Any, x: Any) -> Any:
    """Queries come late, keys at once."""
    q = self.conv(x.transpose(1, 2)).transpose(1, 2)
    return F.scaled_dot_product_attention(q, x, self.v(x), is_causal=True)
