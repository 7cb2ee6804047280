"""Training on chunks of streams."""

from .align import align
from .callbacks import Average, Callback, ClipGradNorm, ClipGradValue, Schedule
from .trainer import ChunkTrainer, Result

__all__ = ["Average", "Callback", "ChunkTrainer", "ClipGradNorm", "ClipGradValue", "Result", "Schedule", "align"]
