"""Sockets: one port for WebSocket streams and for plain requests.

A connection is parsed by the sans-I/O protocols of `websockets` and h11: none has a task or a queue of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import signal
import ssl
import struct
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from ..client.protocol import CODES, FILES, MOST_BYTES, PATH, SUBPROTOCOL, WireError, message
from ..errors import DreamStreamError
from .files import answer
from .service import Service
from .streams import LOG, Live

#: The heads of frames, by what they hold, and how many bytes of it.
_SHORT, _MIDDLE, _LONG = (struct.Struct(form).pack for form in ("!BB", "!BBH", "!BBQ"))
#: Seconds until a server that waits for an address looks again whether it is free.
_BETWEEN_LOOKS = 0.02
#: The most bytes of a request's head.
_MOST_HEAD = 16384

try:
    import h11
    from websockets.frames import Frame, Opcode
    from websockets.http11 import Request
    from websockets.protocol import Protocol, Side, State
    from websockets.server import ServerProtocol
    from websockets.typing import Subprotocol

    try:
        from websockets.speedups import apply_mask
    except ImportError:
        from websockets.utils import apply_mask
except ImportError:
    raise ImportError("a server needs websockets and h11: pip install 'dreamstream[serve]'") from None


class Socket(asyncio.BufferedProtocol):
    """One connection.

    Whole messages and pongs are read here. A connection has a protocol of `websockets`, of more than a kB, for
    what is rare: its end, and other frames, good or bad.
    """

    __slots__ = (
        "_address", "_beginning", "_buffer", "_by_protocol", "_closed", "_is_open", "_is_text", "_loop",
        "_missed", "_pages", "_parts", "_paused", "_service", "_stream", "_timer", "_transport", "_upload",
        "_waiting", "_ws",
    )  # fmt: skip

    def __init__(self, service: Service, pages: Callable[[h11.Request], tuple[int, str, bytes]]) -> None:
        self._service, self._pages = service, pages
        self._ws: Protocol | None = None
        self._is_open = False  # for messages
        self._stream: Live | None = None
        self._parts: list[bytes] | None = None  # of a message that comes in several frames
        self._is_text = self._closed = False
        self._missed = 0
        self._upload: Upload | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._buffer = b""  # the beginning of a frame, or of a head
        self._waiting: list[str | bytes] = []  # for the stream to begin, or to have room
        self._paused = self._by_protocol = False

    # ---------------------------------------------------------------- asyncio's calls
    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else "local"
        transport.set_write_buffer_limits(self._service.limits.unread)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._service.limits.handshake, self._abort, "handshake")

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        if self._upload is not None:
            self._upload.close()
        self._closed = True
        if self._stream is not None:
            self._stream.detach(self)

    def pause_writing(self) -> None:
        if self._is_open:
            self._abort("unread")  # whatever it acknowledges

    def get_buffer(self, _: int) -> memoryview:
        return self._service.incoming

    def buffer_updated(self, n: int) -> None:
        came = self._service.incoming[:n]
        if self._is_open or self._by_protocol:
            self._frames(self._buffer + came if self._buffer else came)
            return
        data = bytes(came)
        if self._upload is not None:
            self._upload.take(data)
            return
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end >= 0 or len(self._buffer) > _MOST_HEAD:
            self._greet(self._buffer if 0 <= end <= _MOST_HEAD else b"")

    # ---------------------------------------------------------------- the handshake
    def _greet(self, head: bytes) -> None:
        plain = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEAD)
        try:
            plain.receive_data(head)
            request = plain.next_event()
        except h11.RemoteProtocolError:
            request = None
        if not isinstance(request, h11.Request):
            self._transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self._transport.close()
            return
        names = {name.lower(): value for name, value in request.headers}
        if names.get(b"upgrade", b"").lower() != b"websocket":
            if request.method == b"POST" and request.target.partition(b"?")[0] == FILES.encode():
                if not self._admitted(plain):
                    return
                self._timer.cancel()
                self._timer = self._loop.call_later(self._service.limits.idle, self._abort, "idle")
                self._upload = Upload(self._service, plain, request, self._address, self._answer)
                self._upload.take(b"")
                return
            status, kind, body = self._pages(request)
            self._answer(plain, status, kind, body if request.method != b"HEAD" else b"", len(body))
            return
        if request.target.partition(b"?")[0] != PATH.encode():
            self._answer(plain, 404, "text/plain", f"streams are at {PATH}\n".encode())
            return
        if not self._admitted(plain):
            return
        end = head.find(b"\r\n\r\n") + 4
        ours = Subprotocol(SUBPROTOCOL)
        ws = ServerProtocol(select_subprotocol=lambda _, offered: ours if ours in offered else None)
        ws.receive_data(head[:end])
        for event in ws.events_received():
            assert isinstance(event, Request)
            ws.send_response(ws.accept(event))
        self._transport.write(b"".join(ws.data_to_send()))
        self._is_open = ws.state is State.OPEN
        if self._is_open:
            self._frames(head[end:])
        else:
            self._transport.close()

    def _admitted(self, plain: h11.Connection) -> bool:
        """Return whether a stream or a recording may come now; say so where it may not."""
        try:
            self._service.admit(self._address)
        except WireError as error:
            self._service.metrics.closed.labels("opens" if self._service.draining is None else "ending").inc()
            wait = str(int(error.more.get("retry_after", 1)))
            self._answer(plain, 503, "text/plain", f"{error.reason}\n".encode(), more=[("retry-after", wait)])
            return False
        return True

    def _answer(
        self, plain: h11.Connection, status: int, kind: str, body: bytes, size: int | None = None, more: Any = ()
    ) -> None:
        headers = [
            ("content-type", kind),
            ("content-length", str(len(body) if size is None else size)),
            ("connection", "close"),
            *more,
        ]
        self._transport.write(plain.send(h11.Response(status_code=status, headers=headers)) or b"")
        self._transport.write(body)
        self._transport.close()

    # ---------------------------------------------------------------- messages
    def _frames(self, data: bytes | memoryview) -> None:
        """Take frames: whole messages and pongs here, all else by the protocol of `websockets`, one at a time."""
        at, size = 0, len(data)
        while size - at >= 2:
            first, n, begin = data[at], data[at + 1], at + 6
            if n >= 254:  # the number of bytes follows, in two or eight
                begin += 2 if n == 254 else 8
                n = int.from_bytes(data[at + 2 : begin - 4], "big") + 128
            end = begin + n - 128
            if n < 128 or n > MOST_BYTES + 128 or self._by_protocol:
                end, self._by_protocol = size, True  # no frame of a client's, or too large: the protocol says so
            elif begin > size or end > size:
                break
            elif first in (0x81, 0x82) and self._parts is None:
                if not self._closed:
                    self._take(apply_mask(data[begin:end], bytes(data[begin - 4 : begin])), first == 0x81)
                at = end
                continue
            elif first == 0x8A and n < 254:  # a pong
                self._missed, at = 0, end
                continue
            self._events(bytes(data[at:end]))
            at = end
        self._buffer = bytes(data[at:])

    def _events(self, data: bytes) -> None:
        ws = self._ws = self._ws or Protocol(Side.SERVER, max_size=MOST_BYTES)
        ws.receive_data(data)
        for event in ws.events_received():
            assert isinstance(event, Frame)
            if event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                if event.opcode is not Opcode.CONT:
                    self._is_text, self._parts = event.opcode is Opcode.TEXT, []
                assert self._parts is not None
                self._parts.append(bytes(event.data))
                if event.fin:
                    parts, self._parts = self._parts, None
                    if not self._closed:
                        self._take(b"".join(parts), self._is_text)
        self._flush(ws)

    def _take(self, data: bytes, is_text: bool) -> None:
        try:
            given = data.decode() if is_text else data
        except UnicodeDecodeError:
            self.close("malformed", "text is UTF-8")
            return
        self._missed = 0
        if self._stream is not None or self._beginning is not None:
            if self._waiting or self._paused or self._stream is None:
                self._waiting.append(given)
                return
            try:
                self._service.received(self._stream, given)
            except Exception as error:
                self._fail(error)
        else:
            self._timer.cancel()
            self._timer = self._loop.call_later(self._service.limits.ping, self._ping)
            self._transport.pause_reading()
            self._beginning = self._loop.create_task(self._begin(given))

    def _give(self) -> None:
        """Give the stream what has come, until it has no room."""
        try:
            while self._waiting and not self._paused and not self._closed and self._stream is not None:
                self._service.received(self._stream, self._waiting.pop(0))
        except Exception as error:
            self._fail(error)

    async def _begin(self, given: str | bytes) -> None:
        try:
            stream = await self._service.first(self, given, self._address)
        except Exception as error:
            self._fail(error)
            return
        if self._closed:
            stream.detach(self)
            return
        self._stream = stream
        if not self._paused and not self._transport.is_closing():
            self._transport.resume_reading()
        self._give()

    def _fail(self, error: Exception) -> None:
        """Close the connection with what was raised; a fault of the server's is not to end it."""
        if isinstance(error, WireError):
            self.close(error.kind, error.reason, **error.more)
        else:
            LOG.error("a message of %s", self._address, exc_info=error)
            self.close("engine", "the server has failed")

    def send(self, given: str | bytes) -> None:
        if self._is_open:
            first, data = (0x81, given.encode()) if isinstance(given, str) else (0x82, given)
            n = len(data)
            head = _SHORT(first, n) if n < 126 else _MIDDLE(first, 126, n) if n < 65536 else _LONG(first, 127, n)
            self._transport.write(head + data)

    def _flush(self, ws: Protocol) -> None:
        if ws.state is not State.OPEN:
            if self._is_open:  # once: whatever still comes doesn't make it longer
                self._timer.cancel()
                self._timer = self._loop.call_later(self._service.limits.handshake, self._transport.abort)
            self._is_open, self._by_protocol, sent = False, True, ws.close_sent
            if sent is not None and ws.close_rcvd is None and not self._closed:  # for what is no frame
                self._closed = True
                self._service.metrics.closed.labels("too large" if sent.code == 1009 else "malformed").inc()
        for data in ws.data_to_send():
            if data:
                self._transport.write(data)
            elif self._transport.can_write_eof():
                self._transport.write_eof()
            else:  # TLS ends both ways at once; a client that waits for it would otherwise wait for its own limit
                self._transport.close()

    def close(self, kind: str, reason: str, **more: Any) -> None:
        """Send the error, if it is one, and close the WebSocket."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.detach(self)
        if self._closed:
            return
        if kind not in ("done", "drained"):
            self.send(message("error", code=CODES[kind], reason=reason, **more))
        ws = self._ws = self._ws or Protocol(Side.SERVER, max_size=MOST_BYTES)
        self._closed = True
        self._transport.resume_reading()
        self._service.metrics.closed.labels(kind).inc()
        if ws.state is State.OPEN:
            ws.send_close(CODES[kind], reason.encode(errors="replace")[:120].decode(errors="ignore"))
        self._flush(ws)

    def pause(self, paused: bool) -> None:
        """Read no more for now, or again."""
        self._paused = paused
        (self._transport.pause_reading if paused else self._transport.resume_reading)()
        if not paused:
            self._loop.call_soon(self._give)

    # ---------------------------------------------------------------- time
    def _abort(self, kind: str) -> None:
        self._service.metrics.closed.labels(kind).inc()
        self._transport.abort()

    def _ping(self) -> None:
        if not self._is_open:
            return
        if self._missed >= 2:
            self._abort("ping")
            return
        self._missed += 1
        self._transport.write(b"\x89\x00")
        self._timer = self._loop.call_later(self._service.limits.ping, self._ping)


class Upload:
    """The body of a request that sends a recording.

    `plain` is the connection that has seen the request's head; `answer` takes it, status, type and body.
    """

    def __init__(
        self, service: Service, plain: h11.Connection, request: h11.Request, address: str, answer: Any
    ) -> None:
        self._plain, self._answer, self._service = plain, answer, service
        self._file, self._size = tempfile.TemporaryFile(), 0  # noqa: SIM115 (closed when the connection is)
        query = parse_qs(request.target.partition(b"?")[2].decode("ascii", "replace"))
        self._name = query.get("model", [next(iter(service.models))])[0]
        names = {name.lower(): value for name, value in request.headers}
        given = names.get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ")
        may = service.may_stream(given or None, address)
        self._refusal = None if may else (401, "the token is not accepted")
        if self._name not in service.models:
            self._refusal = (404, f"models are {', '.join(service.models)}")

    def take(self, data: bytes) -> None:
        """Take what has come of the body."""
        if self._refusal is not None:
            self._say(*self._refusal)
            return
        try:
            if data:
                self._plain.receive_data(data)
            while not isinstance(event := self._plain.next_event(), type(h11.NEED_DATA)):
                if isinstance(event, h11.Data):
                    self._size += len(event.data)
                    if self._size > self._service.limits.file:
                        self._say(413, f"more than {self._service.limits.file} bytes")
                        return
                    self._file.write(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    self._task = asyncio.get_running_loop().create_task(self._run())
                    return
                else:
                    return
        except h11.RemoteProtocolError as error:
            self._say(400, str(error))
        except OSError as error:
            self._say(507, error.strerror or "")

    async def _run(self) -> None:
        self._file.seek(0)
        model = self._service.models[self._name]
        try:
            async with self._service.files:
                if self._file.closed:  # its client has gone meanwhile
                    return
                found = await asyncio.get_running_loop().run_in_executor(None, answer, model, self._file)
            self._answer(self._plain, 200, "application/json", found)
        except (DreamStreamError, ImportError, OSError) as error:
            self._say(415, str(error))
        except Exception:  # a fault of the server's, which its client is not to wait for
            if not self._file.closed:
                LOG.exception("a recording for %s", self._name)
                self._say(500, "the server has failed")

    def _say(self, status: int, text: str) -> None:
        self._answer(self._plain, status, "text/plain; charset=utf-8", f"{text}\n".encode())

    def close(self) -> None:
        """Forget what has come."""
        self._file.close()


def pages(service: Service, request: h11.Request) -> tuple[int, str, bytes]:
    """Answer a plain request: status, type and body."""
    if request.method not in (b"GET", b"HEAD"):
        return 405, "text/plain", b"GET\n"
    path = request.target.partition(b"?")[0].decode("ascii", "replace")
    if path == "/":
        return 200, "text/html; charset=utf-8", files("dreamstream.serve").joinpath("page.html").read_bytes()
    if path == "/healthz":
        return 200, "text/plain", b"ok\n"
    if path == "/readyz":
        return (200, "text/plain", b"ready\n") if service.draining is None else (503, "text/plain", b"ending\n")
    if path == "/metrics":
        return 200, "text/plain; version=0.0.4", service.metrics.page()
    if path == "/models":
        return 200, "application/json", json.dumps([m.description for m in service.models.values()]).encode()
    there = "there are /, /healthz, /readyz, /metrics, /models, POST /v1/files and streams at /v1/stream\n"
    return 404, "text/plain", there.encode()


async def serve(
    service: Service,
    host: str = "127.0.0.1",
    port: int = 8765,
    tls: ssl.SSLContext | None = None,
    listening: Callable[[str, int], None] | None = None,
    wait: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain.

    Parameters
    ----------
    service : Service
    host, port
        Where to listen; port 0 takes a free one.
    tls : SSLContext, optional
    listening : callable, optional
        Told host and port once connections are taken.
    wait : bool
        Wait while another server listens there.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
            loop.add_signal_handler(number, ended.set)
    service.open()
    made, server = partial(Socket, service, partial(pages, service)), None
    while server is None:
        try:
            server = await loop.create_server(made, host, port, ssl=tls, backlog=4096)
        except OSError as error:
            if not wait or error.errno != errno.EADDRINUSE:
                await service.close()
                raise
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), _BETWEEN_LOOKS)
                await service.close()
                return
    try:
        if listening is not None:
            listening(*server.sockets[0].getsockname()[:2])
        await ended.wait()
        server.close()
        await service.drain()
    except asyncio.CancelledError:
        server.close()
        await service.close()
        raise
