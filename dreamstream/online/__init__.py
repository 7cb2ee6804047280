"""Online modules: patching, sessions, audit."""

from .audit import Audit, audit
from .patch import StreamModule, patch_module, unpatch_module
from .register import register

__all__ = ["Audit", "StreamModule", "audit", "patch_module", "register", "unpatch_module"]
