"""Callers in real time against a server: how late answers come, and what they cost.

    dreamstream serve NET.dsm --port 8765 &
    python docs/examples/load.py ws://127.0.0.1:8765 --callers 100 --seconds 20

Each caller sends a chunk of samples when its time has come, and notes when the server's next message arrives.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from fractions import Fraction

import numpy as np

from dreamstream.client import connect


async def caller(url: str, seconds: float, chunk: float, delay: float, late: list[float], form: str) -> int:
    """Stream noise in real time; return the number of frames that came."""
    await asyncio.sleep(delay)
    generator, frames = np.random.default_rng(), 0
    async with connect(url, format=form) as stream:
        n = round(chunk * Fraction(stream.told["rate"]))
        sent: list[float] = []

        async def read() -> None:
            nonlocal frames
            async for output in stream:
                frames += len(output.frames)
                if sent:
                    late.append(time.perf_counter() - sent[-1])

        reader, begin = asyncio.create_task(read()), time.perf_counter()
        for k in range(round(seconds / chunk)):
            await asyncio.sleep(max(0.0, begin + k * chunk - time.perf_counter()))
            noise = generator.standard_normal((n, *stream.told["shape"]), np.float32)
            sent.append(time.perf_counter())
            await stream.send((noise * 3000).astype(np.int16) if form == "i16" else noise)
        await stream.end()
        await reader
    return frames


async def run(args: argparse.Namespace) -> None:
    late: list[float] = []
    waits = np.random.default_rng(0).uniform(0, max(1.0, args.callers / 40), args.callers)
    frames = await asyncio.gather(
        *(caller(args.url, args.seconds, args.chunk_ms / 1000, w, late, args.format) for w in waits)
    )
    p50, p99, p999 = np.percentile(late, [50, 99, 99.9]) * 1000
    print(f"{args.callers} callers, {sum(frames)} frames")
    print(f"answers after {p50:.1f} ms; p99 {p99:.1f}, p99.9 {p999:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--callers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--chunk-ms", type=float, default=32.0)
    parser.add_argument("--format", choices=["f32", "i16"], default="i16")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
