"""What one assignment changes of many streams: slots, which hold what was before a call or what is behind it."""

from __future__ import annotations

from typing import Any


class Transaction:
    """Becomes true by one assignment when a call has succeeded."""

    __slots__ = ("committed",)

    def __init__(self) -> None:
        self.committed = False


class Slot:
    """What is known before a call and after it, of a stream or of all; which holds, the transaction says."""

    __slots__ = ("content",)

    def __init__(self, first: Any = None) -> None:
        self.content: tuple[Transaction | None, Any, Any] = (None, None, first)

    def current(self) -> Any:
        transaction, new, old = self.content
        return new if transaction is not None and transaction.committed else old

    def prepare(self, transaction: Transaction, new: Any) -> None:
        self.content = (transaction, new, self.current())

    def settle(self) -> bool:
        """Let go of what no longer holds; return whether anything does."""
        transaction, new, old = self.content
        state = new if transaction is not None and transaction.committed else old
        self.content = (None, None, state)
        return state is not None
