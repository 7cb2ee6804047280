"""Online modules: patching, sessions."""

from .declared import Op
from .given import static
from .patch import (
    StreamModule,
    get_state,
    is_online,
    live_ids,
    offline,
    online,
    patch_module,
    reset,
    set_state,
    unpatch_module,
)
from .register import register

__all__ = [
    "Op", "StreamModule", "get_state", "is_online", "live_ids", "offline", "online", "patch_module", "register",
    "reset", "set_state", "static", "unpatch_module",
]  # fmt: skip
