"""Training on chunks of streams."""

from .align import align
from .trainer import ChunkTrainer

__all__ = ["ChunkTrainer", "align"]
