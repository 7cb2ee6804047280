"""Functions on tensors with torch's names and arguments.

All go through the door, so that each means the same offline, inside an online forward (where a call
keeps its own state, like a layer) and in a captured graph. Tensors are float32 or float64, plain or
streams; weights are plain tensors of the same type, else `DTypeError` is raised. Shapes are those of
plain tensors: B rows, L frames, C, F features; a stream's dimensions must mean the same.

Each file says by its ``__all__`` which of its names are public. Source: torch.nn.functional, the function of
the same name.
"""

from types import FunctionType as _Function

from .activation import *  # noqa: F403
from .attention import *  # noqa: F403
from .convolution import *  # noqa: F403
from .ctc import *  # noqa: F403
from .distance import *  # noqa: F403
from .dropout import *  # noqa: F403
from .experts import *  # noqa: F403
from .frames import *  # noqa: F403
from .lookup import *  # noqa: F403
from .loops import *  # noqa: F403
from .loss import *  # noqa: F403
from .padding import *  # noqa: F403
from .pooling import *  # noqa: F403
from .products import *  # noqa: F403
from .rectifiers import *  # noqa: F403
from .resampling import *  # noqa: F403
from .spectra import *  # noqa: F403
from .statistics import *  # noqa: F403
from .upsampling import *  # noqa: F403

__all__ = [name for name, value in list(globals().items()) if isinstance(value, _Function)]
