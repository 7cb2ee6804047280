"""Attention whose scores depend on where a key stands relative to its query."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..array import Tensor, arange, cat, ones_like, tensor as new_tensor
from ..array.attend import across, attend
from ..dispatch import apply
from ..errors import ShapeError
from ..stream.context import Context
from ..stream.mask_recognition import Recognised
from . import functional as F, init
from .embedding import Embedding
from .functional.attention import streamed
from .functional.texts import described
from .linear import Linear, new_parameter
from .module import Module

__all__ = ["ALiBi", "RelPositionMultiheadAttention"]

SCHEMES = ("transformer-xl", "wenet", "shaw", "t5")


@described(
    "",
    {
        "ValueError": "Where heads don't divide the features, or no scheme has that name.",
        "ShapeError": "Where an input has another number of features.",
        "NotStreamableError": "Where nothing says what a query sees.",
    },
    embed_dim="Features of queries, keys, values and outputs.",
    num_heads="Heads, each of d = ``embed_dim / num_heads`` features.",
    scheme="{'transformer-xl', 'wenet', 'shaw', 't5'}: How positions enter.",
    bias="Whether projections have a bias.",
    max_distance="Beyond it distances count as it: of Shaw's, and of T5's buckets.",
    num_buckets="Of T5's distances.",
    context="What a query sees.",
)
class RelPositionMultiheadAttention(Module):
    r"""Attention of several heads with terms by relative position.

    ==================  ==========================================================================================
    scheme              score of query i and key j, where r are sinusoids
    ==================  ==========================================================================================
    ``transformer-xl``  ((q_i + u) · k_j + (q_i + v) · W r(i - j)) / √d: Conformers of ESPnet and NeMo
    ``wenet``           ((q_i + u) · k_j + (q_i + v) · W r(j)) / √d: no shift, positions of keys are absolute
    ``shaw``            q_i · (k_j + e(clip(j - i))) / √d
    ``t5``              q_i · k_j + b(bucket(j - i))
    ==================  ==========================================================================================

    Attributes
    ----------
    linear_q, linear_k, linear_v, linear_out : Linear
        ``(embed_dim, embed_dim)``.
    linear_pos : Linear
        W, without bias, and
    pos_bias_u, pos_bias_v : Parameter
        ``(num_heads, d)``, of the first two schemes.
    distance_embedding : Embedding
        ``(2 * max_distance + 1, d)``, of Shaw's; its first row is that of the key farthest behind.
    relative_attention_bias : Embedding
        ``(num_buckets, num_heads)``, of T5's.

    Notes
    -----
    Inputs and outputs ``(B, L, embed_dim)``. **Streaming.** Delay and state are the context's, distances
    have no end: Transformer-XL's are a table as long as the context; without a bound they are computed anew, in
    double. Source: Dai et al., "Transformer-XL" (2019); Shaw et al., "Self-Attention with Relative Position
    Representations" (2018); Raffel et al., "T5" (2020); WeNet's RelPositionMultiHeadedAttention.
    """

    _shown = "{embed_dim}, {num_heads}, scheme={scheme!r}"
    _usual: ClassVar = {"context": None}

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        scheme: str = "transformer-xl",
        bias: bool = True,
        max_distance: int = 128,
        num_buckets: int = 32,
        device: Any = None,
        dtype: Any = None,
        context: Context | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"{name}: {num_heads} heads don't divide {embed_dim} features")
        if scheme not in SCHEMES:
            raise ValueError(f"{name}: scheme is one of {', '.join(SCHEMES)}, got {scheme!r}")
        self.embed_dim, self.num_heads, self.scheme, self.context = embed_dim, num_heads, scheme, context
        self.max_distance, self.num_buckets = max_distance, num_buckets
        like = {"device": device, "dtype": dtype}
        width = embed_dim // num_heads
        for part in ("q", "k", "v", "out"):
            setattr(self, f"linear_{part}", Linear(embed_dim, embed_dim, bias=bias, **like))
        if scheme in ("transformer-xl", "wenet"):
            self.linear_pos = Linear(embed_dim, embed_dim, bias=False, **like)
            for part in ("u", "v"):
                self.register_parameter(f"pos_bias_{part}", new_parameter(num_heads, width, **like))
                init.xavier_uniform_(getattr(self, f"pos_bias_{part}"))
        elif scheme == "shaw":
            self.distance_embedding = Embedding(2 * max_distance + 1, width, **like)
        else:
            self.relative_attention_bias = Embedding(num_buckets, num_heads, **like)

    def forward(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None) -> Tensor:
        """Return the attended values; keys are the queries without `key`, values the keys without `value`."""
        name = type(self).__name__
        given = [query, query if key is None else key]
        given.append(given[1] if value is None else value)
        for x in given:
            if x.ndim != 3 or x.shape[-1] != self.embed_dim:
                raise ShapeError(f"{name}: expected (B, L, {self.embed_dim}), got {tuple(x.shape)}")
        seen = streamed(name, query, False, self.context)
        parts = (self.linear_q, self.linear_k, self.linear_v)
        q, k, v = (self._heads(linear(x)) for linear, x in zip(parts, given))
        out = getattr(self, f"_by_{self.scheme.replace('-', '_')}")(q, k, v, seen)
        return self.linear_out(out.transpose(1, 2).flatten(-2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _by_transformer_xl(self, q: Tensor, k: Tensor, v: Tensor, seen: Context) -> Tensor:
        """Look distances up that have bounds; any other is computed from what is projected in place of it."""
        u, v_bias = (b.unsqueeze(1) for b in (self.pos_bias_u, self.pos_bias_v))
        if seen.behind is None or seen.waits:
            odd = self.embed_dim % 2
            weight = F.pad(self.linear_pos.weight, (0, odd)).unflatten(0, (self.num_heads, -1))
            base = 10000.0 ** ((self.embed_dim + odd) / self.embed_dim)
            return _attended(q + u, k, v, seen, projected=((q + v_bias) @ weight, base))
        assert seen.chunk is not None and seen.right is not None
        back, ahead = seen.behind + seen.chunk - 1, seen.chunk - 1 + seen.right
        places = new_tensor(np.arange(back, -ahead - 1, -1, dtype=np.float32)).to(q.dtype)
        rows = F.linear(sinusoids(places, self.embed_dim), self.linear_pos.weight)
        rows = rows.unflatten(-1, (self.num_heads, -1)).transpose(0, 1)
        return _attended(q + u, k, v, seen, rows=(q + v_bias, rows, back))

    def _by_wenet(self, q: Tensor, k: Tensor, v: Tensor, seen: Context) -> Tensor:
        """Keep of keys and positions their sum, and one number that says what the biases make of both."""
        places = sinusoids(arange(k.shape[2]).to(k.dtype), self.embed_dim)
        p = self.linear_pos(places).unflatten(-1, (self.num_heads, -1)).transpose(0, 1)
        p = p.unsqueeze(0)
        u, v_bias = (b.unsqueeze(1) for b in (self.pos_bias_u, self.pos_bias_v))
        number = (k * u + p * v_bias).sum(-1, keepdim=True)
        q, k = cat([q, ones_like(q[..., :1])], -1), cat([k + p, number], -1)
        return _attended(q, k, v, seen, scale=(self.embed_dim // self.num_heads) ** -0.5)

    def _by_shaw(self, q: Tensor, k: Tensor, v: Tensor, seen: Context) -> Tensor:
        rows = self.distance_embedding.weight.unsqueeze(0)
        return _attended(q, k, v, seen, rows=(q, rows, self.max_distance))

    def _by_t5(self, q: Tensor, k: Tensor, v: Tensor, seen: Context) -> Tensor:
        far = self.max_distance
        buckets = _buckets(
            np.arange(far, -far - 1, -1), self.num_buckets, far, seen.right == 0 and seen.chunk == 1
        )
        bias = F.embedding(new_tensor(buckets), self.relative_attention_bias.weight).transpose(0, 1)
        return _attended(q, k, v, seen, bias=(bias, -far), scale=1.0)


@described(num_heads="Heads of queries.", context="What a query sees.")
class ALiBi(Module):
    """Attention, without projections, whose scores fall with the distance, in each head less steeply.

    Notes
    -----
    Called with queries ``(B, num_heads, L, E)``, keys ``(B, G, L, E)`` and values ``(B, G, L, Ev)``, G a divisor
    of `num_heads`; returns ``(B, num_heads, L, Ev)``, and has no parameters. Scores are
    ``q_i · k_j / √E - m |i - j|``; m of head h of n is ``2 ** (-8 h / n)``, h = 1, 2, …, in finer steps where n
    is no power of two. **Streaming.** Delay and state are the context's; distances have no end. Source: Press et
    al., "Train Short, Test Long" (2022).

    Raises
    ------
    ShapeError
        Where heads of queries are others than `num_heads`, or those of keys don't divide them; for keys of another
        length, as a memory has, to which there are no distances.
    NotStreamableError
        Where nothing says what a query sees.

    Examples
    --------
    >>> import dreamstream as ds
    >>> attention = ALiBi(4, ds.Context(left=99))
    >>> attention(ds.ones(1, 4, 7, 8), ds.ones(1, 2, 7, 8), ds.ones(1, 2, 7, 8)).shape
    (1, 4, 7, 8)
    """

    _shown = "{num_heads}"
    _usual: ClassVar = {"context": None}

    def __init__(self, num_heads: int, context: Context | None = None) -> None:
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"ALiBi: expected at least one head, got {num_heads}")
        self.num_heads, self.context = num_heads, context
        whole = 2 ** int(math.log2(num_heads))
        slopes = 2.0 ** (-8 / whole * np.arange(1, whole + 1))
        slopes = np.concatenate([slopes, 2.0 ** (-4 / whole * np.arange(1, 2 * (num_heads - whole), 2))])
        falling = -slopes[:, None] * np.abs(np.arange(-1, 2))
        self.register_buffer("falling", Tensor(falling.astype(np.float32)), persistent=False)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
        """Return the attended values."""
        given = [tuple(x.shape) for x in (query, key, value)]
        if {x.ndim for x in (query, key, value)} != {4} or query.shape[1] != self.num_heads:
            raise ShapeError(f"ALiBi: expected (B, {self.num_heads}, L, E) and (B, G, L, E) twice, got {given}")
        if across(query, key):
            raise ShapeError("ALiBi: keys are of another length than queries, to which there are no distances")
        seen = Recognised(streamed("ALiBi", query, is_causal, self.context), first=-1, linear=True)
        scale = 1 / math.sqrt(query.shape[-1])
        return attend(query, key, value, seen, scale, self.falling.to(query.dtype))


def sinusoids(places: Tensor, features: int) -> Tensor:
    """Return ``(L, features)`` for positions ``(L,)``: sines and cosines in turn, of falling frequencies."""
    powers = np.arange(0, features, 2, dtype=np.float32) * np.float32(-math.log(10000.0) / features)
    angles = places.unsqueeze(1) * new_tensor(np.exp(powers)).to(places.dtype)
    out: Tensor = cat([angles.sin().unsqueeze(-1), angles.cos().unsqueeze(-1)], -1).flatten(-2)
    return out if features % 2 == 0 else out[..., :features]


def _attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Context,
    *,
    rows: Any = None,
    projected: Any = None,
    bias: Any = None,
    scale: float = 0.0,
) -> Tensor:
    """Run the operator with (queries, rows, first), (queries, base) of sinusoids, or a (bias, first) distance."""
    attributes: dict[str, Any] = {**seen.attributes, "scale": scale}
    inputs, weights = (q, k, v), [] if bias is None else [bias[0]]
    if bias is not None:
        attributes["first"] = bias[1]
    if rows is not None:
        inputs, weights = (q, k, v, rows[0]), [None, rows[1]]  # type: ignore[assignment]
        attributes["rows_first"] = rows[2]
    if projected is not None:
        inputs, attributes["sinusoids"] = (q, k, v, projected[0]), projected[1]  # type: ignore[assignment]
    return apply("attention", attributes, inputs, weights, ("B", 0, "L", 1))[0]


def _buckets(ahead: npt.NDArray[Any], n: int, far: int, causal: bool) -> npt.NDArray[np.int64]:
    """Return T5's bucket of each number of frames by which a key is ahead of its query."""
    out = np.zeros(len(ahead), np.int64)
    if not causal:
        n //= 2
        out += (ahead > 0) * n
    size = np.maximum(-ahead, 0) if causal else np.abs(ahead)
    exact = n // 2
    ratio = np.log(np.maximum(size, 1).astype(np.float32) / exact) / math.log(far / exact) * (n - exact)
    out += np.where(size < exact, size, np.minimum(exact + ratio.astype(np.int64), n - 1))
    return out
