"""Tensors of one stream's state as bytes, and back; they distrust what they read."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...errors import FormatError

_TYPES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "bool": 1}


def to_bytes(tensors: Mapping[Hashable, torch.Tensor], n: int) -> list[bytes | None]:
    """Return a piece for each of n operations: what its tensors are called, their types and shapes, and bytes.

    Keys are tuples that begin with the operation's number.
    """
    of: dict[int, list[tuple[Any, torch.Tensor]]] = {}
    key: Any
    for key, tensor in tensors.items():
        of.setdefault(key[0], []).append((key[1:], tensor))
    return [_piece(of[i]) if i in of else None for i in range(n)]


def _piece(tensors: Sequence[tuple[Any, torch.Tensor]]) -> bytes:
    plain = [(rest, t.detach().cpu().contiguous()) for rest, t in tensors]
    header = json.dumps([[rest, str(t.dtype).partition(".")[2], list(t.shape)] for rest, t in plain]).encode()
    bodies = [t.reshape(-1).view(torch.uint8).numpy().tobytes() for _, t in plain]
    return struct.pack("<I", len(header)) + header + b"".join(bodies)


def from_bytes(pieces: Sequence[bytes | None], device: Any = None) -> dict[Hashable, torch.Tensor]:
    """Return the tensors that `to_bytes` was given; FormatError is raised where the bytes are something else."""
    out: dict[Hashable, torch.Tensor] = {}
    for ordinal, piece in enumerate(pieces):
        if piece is None:
            continue
        try:
            (n,) = struct.unpack("<I", piece[:4])
            at = 4 + n
            for rest, name, shape in json.loads(piece[4:at]):
                size = math.prod(shape) * _TYPES[name]
                if not (shape and shape[0] == 1 and all(isinstance(s, int) and s >= 0 for s in shape)):
                    raise ValueError(f"shape {shape}")
                if len(piece) - at < size or not all(isinstance(r, (int, str)) for r in rest):
                    raise ValueError("sizes that do not add up")
                raw = torch.from_numpy(np.frombuffer(piece, np.uint8, size, at).copy())
                key = (ordinal, *rest)
                out[key] = raw.view(getattr(torch, name)).reshape(shape).to(device)
                at += size
            if at != len(piece):
                raise ValueError("bytes left over")
        except (ValueError, KeyError, TypeError, struct.error, RecursionError) as error:
            raise FormatError(f"the state of operation {ordinal} is damaged: {error}") from None
    return out
