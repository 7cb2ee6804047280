"""A complex stream inside a forward: two real ones of the same frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...array.loop_frames import Frames, InParts
from ...source_line import user_line


class Complex:
    """A complex stream of two native ones. What torch's functions do with it stands in `complex_streams`."""

    is_stream = True
    #: Loops over frames carry and gather its parts.
    in_parts = True

    def __init__(self, real: Any, imag: Any) -> None:
        self.real, self.imag = real, imag
        #: In a capture, where it is made.
        self.line = user_line() if getattr(real, "__dict__", {}).get("value", ()) is None else ""

    def __getattr__(self, name: str) -> Any:
        if name in ("dims", "shape", "ndim", "features", "roles", "names", "edge", "meta", "starts", "rate"):
            return getattr(self.real, name)
        raise AttributeError(name)

    def __repr__(self) -> str:
        return f"{self.real!r} + 1j * {self.imag!r}"

    @property
    def dtype(self) -> torch.dtype:
        return torch.complex128 if "float64" in str(self.real.dtype) else torch.complex64  # a first frame's

    @property
    def requires_grad(self) -> bool:
        return any(p.value is not None and p.value.requires_grad for p in (self.real, self.imag))

    @property
    def T(self) -> Any:
        return self.each(lambda part: part.T)

    @property
    def mT(self) -> Any:
        return self.each(lambda part: part.mT)

    def each(self, fn: Callable[[Any], Any]) -> Any:
        """Apply a function to both parts; if it gives tuples, return a tuple, if it gives frames, frames."""
        real, imag = fn(self.real), fn(self.imag)
        if isinstance(real, Frames):
            see = self.edge.entry.library.see
            return InParts((real, imag), lambda parts: see(Complex(*parts)))
        return tuple(map(Complex, real, imag)) if isinstance(real, tuple) else Complex(real, imag)


def parts_of(x: Any) -> tuple[Any, ...]:
    """Return both parts of a complex stream; of any other, that alone."""
    return (x.real, x.imag) if type(x) is Complex else (x,)
