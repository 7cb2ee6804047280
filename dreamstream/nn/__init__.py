"""Layers with the names, arguments, initial values and state dict keys of torch.nn.

Each file says by its ``__all__`` which of its names are public.
"""

from . import functional, gates, init, utils
from .activation import *  # noqa: F403
from .attention import *  # noqa: F403
from .batch_norm import *  # noqa: F403
from .cepstra import *  # noqa: F403
from .containers import *  # noqa: F403
from .conv import *  # noqa: F403
from .dropout import *  # noqa: F403
from .embedding import *  # noqa: F403
from .experts import *  # noqa: F403
from .features import *  # noqa: F403
from .frames import *  # noqa: F403
from .group_norm import *  # noqa: F403
from .linear import *  # noqa: F403
from .loss import *  # noqa: F403
from .module import *  # noqa: F403
from .normalization import *  # noqa: F403
from .padding import *  # noqa: F403
from .parameter import *  # noqa: F403
from .pooling import *  # noqa: F403
from .positions import *  # noqa: F403
from .rectifiers import *  # noqa: F403
from .recurrent import *  # noqa: F403
from .recurrent_cell import *  # noqa: F403
from .relative import *  # noqa: F403
from .resampling import *  # noqa: F403
from .shape import *  # noqa: F403
from .transformer import *  # noqa: F403

__all__ = [
    "functional",
    "gates",
    "init",
    "utils",
    *(n for n, value in list(globals().items()) if isinstance(value, type)),
]
