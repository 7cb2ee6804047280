"""Draw page_wide.png and page_narrow.png: the page of `dreamstream serve SileroVAD` while it hears a recording.

    python docs/figures/make_page.py            # needs chromium and silero-vad

The microphone of the browser plays the recording of `dreamstream demo`.
"""

import asyncio
import base64
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "helpers"))

from browser import browsing  # noqa: E402

import dreamstream as ds  # noqa: E402
from dreamstream import models  # noqa: E402
from dreamstream.serve import Limits, MemoryStore, Model, Service  # noqa: E402
from dreamstream.serve.server import serve  # noqa: E402

SIZES = {"wide": (1100, 640), "narrow": (400, 760)}


async def main() -> None:
    """Draw both."""
    model = models.SileroVAD(pretrained=True).eval()
    engine, limits = ds.compile(model, model.spec, rate=model.sample_rate, verify=False), Limits()
    service = Service({"SileroVAD": Model("SileroVAD", engine, limits)}, MemoryStore(), limits)
    port = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(service, port=0, listening=lambda _, p: port.set_result(p)))
    sound = next((HERE.parents[1] / "dreamstream" / "assets").glob("*.wav"))
    for name, (width, height) in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            async with browsing(f"http://127.0.0.1:{await port}/", Path(folder), sound) as browser:
                size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
                await browser.call("Emulation.setDeviceMetricsOverride", **size)
                await browser.until("typeof models !== 'undefined' && models.length === 1")
                await browser.run("document.getElementById('microphone').click()")
                await browser.until("stream && stream.have && stream.have[0] > 200", 60)
                picture = await browser.call("Page.captureScreenshot")
                (HERE / f"page_{name}.png").write_bytes(base64.b64decode(picture["data"]))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
