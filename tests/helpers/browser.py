"""Chromium, headless, with a microphone that plays a recording."""

import asyncio
import contextlib
import itertools
import json
import shutil

from websockets.asyncio.client import connect as open_socket

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """Chromium, told what to do over its debugging port."""

    def __init__(self, socket):
        self._socket, self._ids = socket, itertools.count()

    async def call(self, method, **params):
        number = next(self._ids)
        await self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            found = json.loads(await asyncio.wait_for(self._socket.recv(), 30))
            if found.get("id") == number:
                assert "error" not in found, found
                return found["result"]

    async def run(self, code):
        """Evaluate an expression, or a promise of one."""
        found = await self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, code, seconds=20):
        for _ in range(int(seconds / 0.05)):
            if await self.run(code):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{code}: {await self.run('document.body.innerText')}")


@contextlib.asynccontextmanager
async def browsing(url, folder, sound):
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--remote-debugging-port=0",
    ]
    options += [
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--user-data-dir={folder / 'profile'}",
    ]
    options += [
        f"--use-file-for-fake-audio-capture={sound}",
        "--autoplay-policy=no-user-gesture-required",
        "--window-size=900,700",
    ]
    process = await asyncio.create_subprocess_exec(CHROMIUM, *options, url, stderr=asyncio.subprocess.PIPE)
    try:
        while True:
            line = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
            assert line, "chromium has ended"
            if line.startswith("DevTools listening on"):
                break
        port = line.split("127.0.0.1:")[1].split("/")[0]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(f"GET /json HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        targets = json.loads(await reader.readexactly(size))
        writer.close()
        target = next(t["webSocketDebuggerUrl"] for t in targets if t["type"] == "page")
        async with open_socket(target, max_size=None) as socket:
            yield Browser(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
