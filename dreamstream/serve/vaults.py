"""Records of streams in the memory of other machines: two vaults that all servers of a cluster have in common."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from .pool import Cluster, Handle, first_line
from .records import Record, Store, StoreError
from .store import MemoryStore
from .streams import LOG


class Vault(MemoryStore):
    """Records of all servers of a cluster, on another machine; forgotten `seconds` after the last has looked."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.key, self._seconds, self._is_filled = b"", seconds, False

    def signing(self, given: bytes) -> bytes:
        """Return what tokens are signed with; what is given where there is none."""
        self.key = self.key or given
        return self.key

    def refresh(self, live: Iterable[str]) -> None:
        """Forget what nobody has kept or looked at for long, but for live streams."""
        now = time.monotonic()
        for stream_id in self._entries.keys() & set(live):
            self._entries[stream_id] = self._entries[stream_id]._replace(then=now)
        self.sweep(self._seconds, set())

    def content(self) -> tuple[bytes, dict[str, Any]]:
        """Return all that it has, for another vault."""
        return self.key, self._entries

    def is_filled(self) -> bool:
        """Return whether another vault has filled it."""
        return self._is_filled

    def merge(self, content: tuple[bytes, Mapping[str, Any]]) -> None:
        """Take from another vault what is further than its own."""
        (key, entries), now = content, time.monotonic()
        self.key, self._is_filled = self.key or key, True
        for stream_id, entry in entries.items():
            if stream_id not in self._entries or _progress(self._entries[stream_id]) < _progress(entry):
                self._entries[stream_id] = entry._replace(then=now)


def _progress(entry: Any) -> list[int]:
    return max((record.progress for record in entry.records.values()), default=[])


#: For how many deadlines no vault may answer before those that are silent are replaced.
_SILENCE = 10


class VaultStore(Store):
    """Records in the vaults of a cluster.

    A record is kept when each vault that answers has it. One that does not is replaced, and filled from the other:
    where both are silent, for which the network may be to blame, or a machine that others load, only after a
    while, for what they know would be lost.

    With `durable` a record counts only when two vaults have it; `deadline` is the seconds for an answer.
    StoreError is raised where no vault answers, also by methods, which try again with the next call.
    """

    is_remote = True

    def __init__(self, cluster: Cluster, durable: bool = False, deadline: float = 2.0) -> None:
        self._cluster, self._least, self._deadline = cluster, 2 if durable else 1, deadline
        self._owner, self._refresh_at = secrets.token_hex(16), 0.0
        self._heard = time.monotonic()  # when a vault has answered
        self._vaults: dict[int, Handle] = {}
        # vaults that are being filled, whether they were before, by another server, and since when
        self._coming: dict[int, tuple[Future[Any], Future[bool], float]] = {}
        for number in range(2):
            self._vaults[number] = cluster.vault(number)
        self.key = b""
        known = [key for key in self._ask("signing", b"", patience=60.0) if key]
        self.key = known[0] if known else secrets.token_bytes(32)
        self.key = self._ask("signing", self.key, patience=60.0, among=(0,))[0]  # the first of several servers
        self._ask("signing", self.key, patience=60.0, among=(1,))

    def _ask(self, method: str, *args: Any, patience: float = 0.0, among: Sequence[int] = (0, 1)) -> list[Any]:
        """Return the answers of vaults; begin those anew that give none, and ask these where too few are left."""
        need = min(self._least, len(among))
        answers = self._answers(method, args, patience or self._deadline, among)
        if len(answers) < need:
            wait([f for f, _, _ in self._coming.values() if not f.done()], self._deadline, FIRST_COMPLETED)
            answers = self._answers(method, args, patience or self._deadline, among)
        if len(answers) < need:
            raise StoreError(f"{len(answers)} of {len(among)} vaults have answered")
        return answers

    def _answers(self, method: str, args: Sequence[Any], patience: float, among: Sequence[int]) -> list[Any]:
        for number, (filled, is_full, since) in list(self._coming.items()):
            was = is_full.done() and is_full.exception() is None and is_full.result()
            error = filled.exception() if filled.done() else None
            if was or (filled.done() and error is None):
                del self._coming[number]
            elif error is not None:  # it lacks what the other has
                LOG.warning("vault %d is not filled: %s", number, first_line(error))
                if is_full.done() and is_full.exception() is not None:
                    self._renew(number)
                else:
                    self._fill(number, since)
        asked = {number: self._vaults[number].call(method, *args) for number in among}
        wait([asked[n] for n in asked if n not in self._coming], patience)
        answers, lost, silent = [], [], []
        for number, answer in asked.items():
            if number in self._coming:
                if time.monotonic() - self._coming[number][2] > 60.0:
                    lost.append((number, "it does not start"))
            elif not answer.done():
                silent.append((number, f"no answer for {patience:g} s"))
            elif (error := answer.exception()) is not None:
                lost.append((number, first_line(error)))
            else:
                answers.append(answer.result())
        if answers:
            self._heard = time.monotonic()
        if answers or time.monotonic() - self._heard > _SILENCE * self._deadline:
            lost += silent
        for number, why in lost:
            LOG.warning("vault %d is lost: %s", number, why)
            self._renew(number)
            self._vaults[number].call(method, *args)  # for it to have at least this
        return answers

    def _renew(self, number: int) -> None:
        """Begin a vault anew, with what the other has."""
        self._vaults[number].kill()
        self._vaults[number] = self._cluster.vault(number)
        self._fill(number, time.monotonic())

    def _fill(self, number: int, since: float) -> None:
        vault, other = self._vaults[number], 1 - number
        is_full, filled = vault.call("is_filled"), vault.call("signing", self.key)
        if other not in self._coming:
            filled = vault.fill_from(self._vaults[other])
        self._coming[number] = filled, is_full, since

    def keep(self, records: Mapping[str, Record]) -> dict[str, str]:
        refused: dict[str, str] = {}
        for answer in self._ask("keep", dict(records), self._owner):
            refused |= {i: why for i, why in answer.items() if refused.get(i) != "taken"}
        return refused

    def find(self, stream_ids: Iterable[str]) -> dict[str, Record]:
        found: dict[str, Record] = {}
        for answer in self._ask("find", list(stream_ids), self._owner):
            further = (i for i, record in answer.items() if i not in found or found[i].progress < record.progress)
            found |= {i: answer[i] for i in further}
        return found

    def delete(self, stream_id: str) -> None:
        self._ask("delete", stream_id, self._owner)

    def sweep(self, seconds: float, live: set[str]) -> None:
        """Let live streams stay; the vaults themselves forget the others."""
        if time.monotonic() >= self._refresh_at:
            self._ask("refresh", list(live))
            self._refresh_at = time.monotonic() + min(5.0, seconds / 4)

    def close(self) -> None:
        """Leave the vaults to other servers."""
