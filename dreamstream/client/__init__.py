"""A client of `dreamstream serve`: it does what the protocol asks of one.

It keeps its input until the server has stored it, and acknowledges outputs. Where the connection breaks it comes
back, rewinds to what the server wants, and drops what it has already.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..array.chunk_values import Wanted, as_array, read_chunk
from ..errors import DreamStreamError, ModeError
from .protocol import FORMATS, MOST_BYTES, PATH, SUBPROTOCOL, message, packed, per_output, unpacked

__all__ = ["Output", "ServerError", "Stream", "Word", "Words", "connect"]

#: Codes after which a client comes back; the others say that it can't.
_COMES_BACK = frozenset({1001, 1006, 1011, 1012, 1013, 4408, 4413, 4429})
#: Codes after which other addresses are tried: of HTTP, of TLS that failed, of another version of the model.
_ELSEWHERE = frozenset({*range(1000), 1015, 4410})
_ACKNOWLEDGE = 64  # frames


class ServerError(DreamStreamError):
    """What a server has refused.

    Attributes
    ----------
    code : int
        Of the close, as docs/reference/protocol.md has it; else the status of HTTP, or 1015 where TLS failed.
    """

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason or f"the server has closed the stream with code {code}")
        self.code = code


class Output(NamedTuple):
    """Frames of an output: its number, the position of the first, and the frames, ``(n, *features)``."""

    port: int
    position: int
    frames: npt.NDArray[Any]


class Word(NamedTuple):
    """A word: its text, where it begins and ends in seconds, and how sure the model is of it, up to 1."""

    text: str
    start: float
    end: float
    confidence: float


class Words(NamedTuple):
    """Words of a model with a decoder: the number of the first, themselves, and what may change behind them.

    Each of `words` comes once and is never taken back; `pending` replaces what was pending before.
    """

    position: int
    words: list[Word]
    pending: str


class Stream:
    """One stream on a server; see `connect`.

    Attributes
    ----------
    told : dict
        What the server says of the model and of this stream.
    """

    def __init__(self, urls: Sequence[str], first: dict[str, Any], patience: float) -> None:
        self._urls, self._first, self._patience = deque(urls), first, patience
        self.told: dict[str, Any] = {}
        self._kept: deque[tuple[int, npt.NDArray[Any]]] = deque()  # input from what is stored on
        self._given = self._sent = 0
        self._is_there = False  # whether the server has the stream on this connection
        self._end: int | None = None
        self._have: list[int] = []
        self._acknowledged = 0
        self._outputs: asyncio.Queue[Output | Words | Exception | None] = asyncio.Queue()
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._started = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    # ---------------------------------------------------------------- for the caller
    async def __aenter__(self) -> Stream:
        if self._task is not None:
            self._raise()
            raise ModeError("a stream is entered once; connect gives another")
        self._task = asyncio.create_task(self._run())
        try:
            await self._started.wait()
            self._raise()
        except BaseException:  # whoever is cancelled leaves no task behind
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: Any) -> None:
        assert self._task is not None
        if self._task.cancel():
            self._fail(ConnectionError("the stream was left before its end"))
        await asyncio.gather(self._task, return_exceptions=True)

    async def send(self, frames: Any) -> None:
        """Give frames ``(n, *features)``; wait while the server is more than its window behind.

        They are floats, or samples in int16, which are divided by 32768; with ``format="i16"`` int16 alone.

        Raises
        ------
        ServerError
            Where the server has refused the stream.
        ValueError
            For frames of another shape, and after `end`.
        DTypeError
            For frames of another type.
        """
        self._raise()
        if self._end is not None:
            raise ValueError(f"the stream has ended after {self._end} frames; no more can be sent")
        kind, shape = np.dtype(FORMATS[self._first["format"]]), (*self.told["shape"],)
        wanted = Wanted(kind.name, 1 + len(shape) if shape in ((), (1,)) else 0, "frames")
        if kind == np.int16 and (array := as_array(frames)).dtype != kind and array.size:  # else it might wrap
            raise wanted.refusal(array.dtype.name, array.shape, 'format="f32" takes floats')
        frames = np.array(read_chunk(frames, wanted), kind)
        if not frames.ndim or frames.shape[1:] != shape:
            raise ValueError(f"expected frames of shape (n, {', '.join(map(str, shape))}), got {frames.shape}")
        most = (MOST_BYTES - 8) // (kind.itemsize * max(1, int(np.prod(shape))))
        for part in np.split(frames, range(most, len(frames), most)):
            while self._given - self._sent > self.told["window"] and self._error is None:
                self._room.clear()
                await self._room.wait()
            self._raise()
            if len(part):
                self._kept.append((self._given, part))
                self._given += len(part)
                self._more.set()
        await asyncio.sleep(0)

    async def end(self) -> None:
        """Say that no more frames come."""
        self._end = self._given
        self._more.set()

    def __aiter__(self) -> AsyncIterator[Output | Words]:
        return self

    async def __anext__(self) -> Output | Words:
        if self._task is None:
            self._raise()
        found = await self._outputs.get()
        if isinstance(found, Exception):
            self._outputs.put_nowait(found)
            raise found
        if found is None:
            self._outputs.put_nowait(None)
            raise StopAsyncIteration
        return found

    def _raise(self) -> None:
        if self._task is None:
            raise ModeError("the stream is not entered: async with connect(url) as stream")
        if self._error is not None:
            raise self._error

    # ---------------------------------------------------------------- connections
    async def _run(self) -> None:
        try:
            await self._connections()
            self._outputs.put_nowait(None)
        except Exception as error:  # whatever it is, who waits for outputs is to hear of it
            self._fail(error)

    async def _connections(self) -> None:
        """Stream over one connection after the other, until all is done."""
        try:
            from websockets.asyncio.client import connect as open_socket
            from websockets.exceptions import ConnectionClosed, InvalidHandshake
            from websockets.typing import Subprotocol
        except ImportError:
            raise ImportError("a client needs the package websockets: pip install 'dreamstream[serve]'") from None
        loop, wait, refusals = asyncio.get_running_loop(), 0.05, 0
        until = loop.time() + self._patience
        while True:
            self._is_there = False
            try:
                async with open_socket(
                    self._urls[0] + PATH, subprotocols=[Subprotocol(SUBPROTOCOL)], compression=None, max_size=None
                ) as socket:
                    if await self._stream(socket):
                        return
                    error: Exception = ConnectionError("the server has closed the connection")
            except ConnectionClosed as closed:
                close, error = closed.rcvd, closed
                if close is not None and close.code not in _COMES_BACK:
                    error = ServerError(close.reason, close.code)
            except (OSError, InvalidHandshake, TimeoutError, ServerError) as broken:
                error = broken
                if not self.told and (code := _wrong_address(broken)) is not None:
                    error = ServerError(f"{self._urls[0]} has no streams: {broken}", code)
            if isinstance(error, ServerError):
                refusals += 1
                if error.code not in _ELSEWHERE or refusals == len(self._urls):
                    raise error
            else:
                refusals = 0
            if self._is_there:
                until, wait = loop.time() + self._patience, 0.05
            elif loop.time() > until:
                raise ConnectionError(f"{self._urls[0]} is not there: {error}") from error
            self._urls.rotate(-1)
            await asyncio.sleep(wait * random.uniform(0.5, 1))  # not all clients at once
            wait = min(0.6, 2 * wait)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._outputs.put_nowait(error)
        self._room.set()
        self._started.set()

    async def _stream(self, socket: Any) -> bool:
        """Stream over a connection; return whether all is done."""
        from websockets.exceptions import ConnectionClosed

        if socket.subprotocol is None:
            raise ServerError(f"{self._urls[0]} does not speak {SUBPROTOCOL}", 1002)
        saved = self._kept[0][0] if self._kept else self._given
        if self.told:
            resume = message("resume", stream=self.told["stream"], output=per_output(self._have), saved=saved)
            await socket.send(resume)
        else:
            await socket.send(message("start", **self._first))
        sender = None
        try:
            async for data in socket:
                if isinstance(data, bytes):
                    self._take(data)
                    await self._acknowledge(socket, _ACKNOWLEDGE)
                    continue
                found = json.loads(data)
                if found["type"] == "started":
                    self.told = found
                    self._have = self._have or [0] * len(found["names"])
                    self._sent, self._is_there = found["input"], True
                    self._started.set()
                    sender = asyncio.create_task(self._send(socket))
                    sender.add_done_callback(lambda task: task.cancelled() or task.exception())  # as below
                elif found["type"] == "saved":
                    while self._kept and self._kept[0][0] + len(self._kept[0][1]) <= found["input"]:
                        self._kept.popleft()
                elif found["type"] == "result":
                    self._hear(found)
                    await self._acknowledge(socket, _ACKNOWLEDGE)
                elif found["type"] == "ended":
                    totals = found["output"] if isinstance(found["output"], list) else [found["output"]]
                    if totals != self._have or found["input"] != self._end:
                        raise ServerError(f"the server has made {totals} frames, {self._have} came", 4500)
                    with contextlib.suppress(OSError, ConnectionClosed):  # it has closed, having heard it before
                        await socket.send(message("ack", output=per_output(self._have)))
                    return True
                elif found["type"] == "error" and found.get("code") not in _COMES_BACK:
                    raise ServerError(found.get("reason", ""), found.get("code", 4500))
        finally:
            if sender is not None:
                sender.cancel()
        return False

    async def _send(self, socket: Any) -> None:
        """Send what the server has not got, and acknowledge what has come, at least once a second."""
        end_sent, loop = False, asyncio.get_running_loop()
        acknowledge_at = loop.time() + 1.0
        while True:
            self._more.clear()
            for position, part in list(self._kept):
                if position + len(part) > self._sent:
                    rest = part[max(0, self._sent - position) :]
                    await socket.send(packed(position + len(part) - len(rest), 0, rest))
                    self._sent = position + len(part)
                    self._room.set()
            if self._end is not None and self._sent == self._end and not end_sent:
                await socket.send(message("end", input=self._end))
                end_sent = True
            if loop.time() >= acknowledge_at:
                await self._acknowledge(socket)
                acknowledge_at = loop.time() + 1.0
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._more.wait(), 1.0)

    def _take(self, data: bytes) -> None:
        position, port, rest = unpacked(data)
        kind, shape = np.dtype(self.told["types"][port]).newbyteorder("<"), self.told["shapes"][port]
        frames = np.frombuffer(rest, kind).reshape(-1, *shape)
        if position > self._have[port]:
            raise ServerError(f"output {port}: expected frames from {self._have[port]} on, got {position}", 4500)
        new = frames[self._have[port] - position :]
        if len(new):
            self._outputs.put_nowait(Output(port, self._have[port], new))
            self._have[port] += len(new)

    def _hear(self, found: dict[str, Any]) -> None:
        at = self._have[0]
        if found["output"] > at:
            raise ServerError(f"expected words from {at} on, got {found['output']}", 4500)
        words = found["words"][at - found["output"] :]
        new = [Word(w["word"], w["start"], w["end"], w["confidence"]) for w in words]
        if new or "pending" in found:
            self._outputs.put_nowait(Words(at, new, found.get("pending", "")))
        self._have[0] += len(new)

    async def _acknowledge(self, socket: Any, least: int = 1) -> None:
        """Acknowledge what has come, if that is at least so many frames."""
        if sum(self._have) - self._acknowledged >= least:
            self._acknowledged = sum(self._have)
            await socket.send(message("ack", output=per_output(self._have)))


def _wrong_address(error: Exception) -> int | None:
    """Return the code of an error that the next attempt would meet again: of HTTP, or of TLS."""
    if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return 1015  # RFC 6455's number for it
    status = getattr(getattr(error, "response", None), "status_code", 500)  # of websockets' InvalidStatus
    return status if status < 500 and status not in (408, 425, 429) else None


def connect(
    url: str | Sequence[str],
    model: str | None = None,
    *,
    format: str = "f32",
    token: Any = None,
    patience: float = 60.0,
) -> Stream:
    """Return a stream on a server, to be entered: ``async with connect(url) as stream``.

    ``async for`` over it gives each `Output` once, or `Words` where the model has a decoder.

    Parameters
    ----------
    url : str or list of str
        As ``ws://127.0.0.1:8765``; of several, with a store in common, the next is tried where one is lost.
    model : str, optional
        The server's first by default.
    format : {"f32", "i16"}
        What frames are sent as; "i16" are samples, of which the server makes floats of 1/32768.
    token : optional
        For the server's check of who may stream.
    patience : float
        Seconds for which a server that is not there is looked for. An address that answers, but not with streams
        (HTTP 404), is given up at once.

    Raises
    ------
    ServerError
        When it is entered, or later: what the server refuses.
    ConnectionError
        Where the server stays away.
    """
    if format not in FORMATS:
        raise ValueError(f'format is "f32" or "i16", got {format!r}')
    first = {"format": format} | ({"model": model} if model else {}) | ({"token": token} if token else {})
    urls = [each.rstrip("/").removesuffix(PATH) for each in ([url] if isinstance(url, str) else url)]
    if not urls or not all(each.startswith(("ws://", "wss://")) for each in urls):
        raise ValueError(f'expected addresses like "ws://127.0.0.1:8765", got {url!r}')
    return Stream(urls, first, patience)
