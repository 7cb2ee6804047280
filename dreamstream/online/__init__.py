"""Online modules: patching, sessions, audit."""

from .audit import Audit, audit
from .patch import StreamModule, patch_module, unpatch_module

__all__ = ["Audit", "StreamModule", "audit", "patch_module", "unpatch_module"]
