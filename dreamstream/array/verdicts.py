"""Whether all, or any, values of a call are true: what a forward asserts, as in ``assert x.isfinite().all()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from .deferred_stream import DeferredStream
from .stream_tensor import StreamTensor


class Verdict(DeferredStream):
    """What ``all`` or ``any`` over the batch say. It serves where a forward raises, and chooses nothing else.

    ``holds(trusted)`` is whether it does in this call; `trusted` where its values are not at hand. `refusing`
    raises for any other use.
    """

    def __init__(
        self, whole: StreamTensor, holds: Callable[[bool], bool], refusing: Callable[[], NoReturn]
    ) -> None:
        self._stand(whole, (), ())
        self.holds, self._refusing = holds, refusing

    @classmethod
    def of(cls, x: StreamTensor, kind: str, refusing: Callable[[], NoReturn]) -> Verdict:
        """Return what ``x.all()`` or ``x.any()`` say of all streams."""

        def holds(trusted: bool) -> bool:
            return trusted if x.value is None else bool(getattr(x.value, kind)())

        return cls(x, holds, refusing)

    def refuse(self, *_: object, **__: object) -> NoReturn:
        self._refusing()

    roles = property(refuse)
    by_element = numel = permute = __bool__ = refuse

    def opposite(self) -> Verdict:
        """Return the contrary."""
        return Verdict(self.base, lambda trusted: not self.holds(not trusted), self._refusing)

    def both(self, other: Verdict) -> Verdict:
        """Return whether this one and another hold."""
        others = other.holds if isinstance(other, Verdict) else self.refuse()
        return Verdict(self.base, lambda trusted: self.holds(trusted) and others(trusted), self._refusing)

    def either(self, other: Verdict) -> Verdict:
        """Return whether one of two holds."""
        return self.opposite().both(other.opposite()).opposite()

    def item(self) -> Verdict:
        """Return the same: it is one value."""
        return self.opposite().opposite()
