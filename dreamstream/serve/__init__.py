"""Serving: live streams over WebSockets, which survive broken connections and killed servers.

`dreamstream.serve.server.serve` listens; it needs the packages of the extra `serve`, the others here don't.
"""

from .limits import Limits
from .records import StoreError
from .service import Service
from .store import FolderStore, MemoryStore, open_store
from .streams import Model

__all__ = ["FolderStore", "Limits", "MemoryStore", "Model", "Service", "StoreError", "open_store"]
