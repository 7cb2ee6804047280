"""Modules of either library from a forward, written once."""

from collections.abc import Callable
from typing import Any


def net(nn: Any, forward: Callable[..., Any], **parts: Any) -> Any:
    """Return a module of a library with this forward and these layers, parameters and other attributes."""

    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

    Net.forward = forward
    return Net().eval()
