"""The page of a server in a browser: its microphone, and its client, which hears what is offline."""

import asyncio
import base64
import wave

import numpy as np
import pytest

pytest.importorskip("websockets"), pytest.importorskip("h11"), pytest.importorskip("prometheus_client")

from browser import CHROMIUM, browsing

import dreamstream as ds
from dreamstream import nn
from dreamstream.serve import Limits, MemoryStore, Model, Service
from dreamstream.serve.server import serve

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
RATE = 16000


class Loudness(nn.Module):
    """The mean square of every 160 samples, which looks ahead a little."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Conv1d(1, 1, 320, stride=160, bias=False)
        self.mean.weight.numpy()[:] = 1 / 320

    def forward(self, x):
        return self.mean((x * x).unsqueeze(1)).squeeze(1)


def engine():
    return ds.compile(Loudness(), ("B", "L"), rate=RATE, verify=False)


def test_the_page(tmp_path):
    sound = tmp_path / "sound.wav"
    tone = (8000 * np.sin(np.arange(RATE * 2) * 0.2)).astype(np.int16)
    with wave.open(str(sound), "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(RATE)
        file.writeframes(tone.tobytes())
    x = np.random.default_rng(0).integers(-20000, 20000, 5000).astype(np.int16)
    want = engine().step({"a": x.astype(np.float32) / 32768}, "a", "a")["a"]

    async def main():
        limits, store = Limits(), MemoryStore()
        service = Service({"loudness": Model("loudness", engine(), limits)}, store, limits)
        port = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(serve(service, port=0, listening=lambda _, p: port.set_result(p)))
        url = f"http://127.0.0.1:{await port}/"
        async with browsing(url, tmp_path, sound) as browser:
            await browser.until("typeof models !== 'undefined' && models.length === 1")
            data = base64.b64encode(x.tobytes()).decode()
            got = await browser.run(f"""new Promise((done) => {{
                const bytes = Uint8Array.from(atob("{data}"), (c) => c.charCodeAt(0)), found = [];
                const own = new Stream(location.origin.replace("http", "ws") + "/v1/stream", {{format: "i16"}}, {{
                    frames: (port, position, values) => found.push(...values), closed: () => done(found)}});
                const samples = new Int16Array(bytes.buffer);
                for (let k = 0; k < samples.length; k += 700) own.give(samples.slice(k, k + 700));
                own.finish();
            }})""")
            assert np.array_equal(np.array(got, np.float32), want)  # a double has each float exactly
            await browser.run(f"""{{
                const bytes = Uint8Array.from(atob("{data}"), (c) => c.charCodeAt(0));
                const samples = new Int16Array(bytes.buffer), found = [];
                class Hasty extends Stream {{  // it has more to give before it hears where it is to go on
                    text(message) {{
                        if (message.type === "started" && this.told) {{
                            this.give(samples.slice(2000));
                            this.finish();
                            this.give(samples.slice(0, 10));  // a microphone's last, which comes too late
                        }}
                        super.text(message);
                    }}
                }}
                hasty = new Hasty(location.origin.replace("http", "ws") + "/v1/stream", {{format: "i16"}}, {{
                    frames: (port, position, values) => found.push(...values),
                    closed: () => {{ heard_by_hasty = found; }}}});
                hasty.give(samples.slice(0, 2000));
            }}""")
            await browser.until("hasty.have && hasty.have[0] > 0")
            (live,) = service.streams.values()
            live.connection._transport.abort()
            await browser.until("typeof heard_by_hasty !== 'undefined'")
            assert np.array_equal(np.array(await browser.run("heard_by_hasty"), np.float32), want)
            await browser.run("document.getElementById('microphone').click()")
            await browser.until("stream && stream.have && stream.have[0] > 100 && Math.max(...came) > 0.01")
            await browser.until("document.getElementById('trip').textContent.endsWith('ms')")
            (live,) = service.streams.values()
            live.connection._transport.abort()  # the network breaks
            before = await browser.run("stream.have[0]")
            await browser.until(f"stream.have[0] > {before} + 100")
            await browser.run("document.getElementById('stop').click()")
            await browser.until("stream.done")
            assert await browser.run("document.getElementById('said').textContent") == ""
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
