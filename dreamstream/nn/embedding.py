"""Embedding: a learned row for every index."""

from __future__ import annotations

from typing import Any, ClassVar

from ..array import Tensor
from ..errors import ModeError, ShapeError
from . import functional as F, init
from .functional.lookup import ERRORS, ROWS, row_of
from .functional.texts import described
from .linear import new_parameter
from .module import Module
from .parameter import Parameter

__all__ = ["Embedding"]


@described("", ERRORS, **ROWS, num_embeddings="Rows.", embedding_dim="Their length.")
class Embedding(Module):
    """A table whose rows are looked up by index.

    Attributes
    ----------
    weight : Parameter
        ``(num_embeddings, embedding_dim)``.

    Notes
    -----
    Input ``(*) int64``, output ``(*, embedding_dim)``. **Streaming.** Delay 0, no state.
    Source: torch.nn.Embedding.
    """

    _shown = "{num_embeddings}, {embedding_dim}"
    _usual: ClassVar = {"padding_idx": None, "norm_type": 2, "scale_grad_by_freq": False, "sparse": False}

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if max_norm is not None:
            raise ModeError("Embedding: max_norm would write into the weights; renormalise them beforehand")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else row_of("Embedding", padding_idx, num_embeddings)
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            self.weight = new_parameter(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.reset_parameters()
        elif tuple(_weight.shape) != (num_embeddings, embedding_dim):
            raise ShapeError(
                f"Embedding: expected weights of shape {(num_embeddings, embedding_dim)}, got {_weight.shape}"
            )
        else:
            self.weight = Parameter(_weight)
        self.weight.requires_grad = not _freeze

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """Return a layer around given rows ``(num_embeddings, embedding_dim)``, which it shares."""
        if embeddings.ndim != 2:
            raise ShapeError(f"from_pretrained: expected two dimensions, got shape {embeddings.shape}")
        n, size = embeddings.shape
        return cls(n, size, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze)

    def reset_parameters(self) -> None:
        """Draw new initial values: normally distributed, the padding row zero."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            self.weight.numpy()[self.padding_idx] = 0

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(*, embedding_dim)`` for an input ``(*)``."""
        return F.embedding(input, self.weight, self.padding_idx, scale_grad_by_freq=self.scale_grad_by_freq)
