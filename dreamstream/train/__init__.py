"""Training on chunks of streams."""

from .align import align

__all__ = ["align"]
