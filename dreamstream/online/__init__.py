"""Online modules: patching, sessions, audit."""

from .audit import Audit, audit
from .declared import Op
from .given import static
from .patch import StreamModule, patch_module, unpatch_module
from .register import register

__all__ = ["Audit", "Op", "StreamModule", "audit", "patch_module", "register", "static", "unpatch_module"]
