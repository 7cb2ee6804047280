"""What changes parameters by their gradients: optimizers and schedules of their learning rates.

Names, arguments, numbers and state dicts are torch.optim's.
"""

from . import lr_scheduler
from .adam import Adam, AdamW
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]
