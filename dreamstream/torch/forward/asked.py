"""What a call of a torch function asks for, so that it is known when the same is asked for again."""

from __future__ import annotations

from typing import Any

import torch

from ...array.stream_tensor import StreamTensor as NativeStream
from ...stream.course import seen
from ..tensor.stream_tensor import SHELL

#: Arguments that mean to streams what they mean to torch.
ATOMS = frozenset((int, float, bool, str, type(None)))
_INTS = frozenset((int,))


class Asked:
    """What a call of a torch function asks for, as far as it can be told again.

    Attributes
    ----------
    tokens : list
        Equal where the same is asked for.
    held : list
        Whose identities are among them.
    streams : list
        The native tensors of the arguments; none where something else has a say.
    """

    __slots__ = ("held", "streams", "tokens")

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.tokens: list[Any] = [func, *kwargs]
        self.held: list[Any] = []
        self.streams: list[Any] = []
        for x in (*args, *kwargs.values()) if kwargs else args:
            kind = type(x)
            if kind is SHELL:
                inner = x._inner
                if type(inner) is not NativeStream or inner.edge is None:
                    break
                self.tokens += seen(inner)
                self.streams.append(inner)
            elif kind is torch.nn.Parameter:
                self.tokens.append(id(x))
                self.held.append(x)
            elif kind is float:
                self.tokens.append(x.hex())
            elif kind in ATOMS or (kind is tuple and _INTS.issuperset(map(type, x))):
                self.tokens += (kind, x)
            else:
                break
        else:
            return
        self.streams = []
