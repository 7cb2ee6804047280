"""What operations do to names, ids, sos, eos and lengths: pure functions that never see values.

Both the native and the PyTorch stream tensor use them. Inside a forward they receive frame counts
and never compute them. Each file says by its ``__all__`` which of its names are public.
"""

from ..metadata import set_rules
from . import frame_slices, rows
from .batch_folding import *  # noqa: F403
from .bits import *  # noqa: F403
from .branches import *  # noqa: F403
from .combine import *  # noqa: F403
from .compare import *  # noqa: F403
from .frame_slices import *  # noqa: F403
from .index import *  # noqa: F403
from .lengths import *  # noqa: F403
from .lineage import *  # noqa: F403
from .names import *  # noqa: F403
from .reshape import *  # noqa: F403
from .rows import *  # noqa: F403
from .sizes import *  # noqa: F403
from .slices import *  # noqa: F403

set_rules(rows, frame_slices)
