"""Live streams on a Ray of several nodes on this machine, in which all that may go goes.

    python tests/helpers/ray_faults.py --streams 200 --nodes 3 --workers 2 --longest 20

It prints a line of figures, and ends with 1 where a stream is not what it is offline. It has a network of its own
with nothing but `lo`, where the system allows that.
"""

import argparse
import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def alone():
    """Enter a network with nothing but `lo`; return whether that is allowed."""
    new_user, new_net, up = 0x10000000, 0x40000000, 0x1
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None, use_errno=True).unshare(new_user | new_net):
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with contextlib.suppress(OSError):
            Path(f"/proc/self/{name}").write_text(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", up))  # SIOCSIFFLAGS
    return True


def nodes_of(n):
    """Be a Ray of a head, which has no processors, and nodes; for each line that comes, replace one of them."""
    from ray.cluster_utils import Cluster

    common = {"node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20}
    cluster = Cluster(True, head_node_args={"num_cpus": 0, "include_dashboard": False, **common})
    nodes = [cluster.add_node(wait=False, num_cpus=8, **common) for _ in range(n)]
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for _ in sys.stdin:
        cluster.remove_node(nodes.pop(0), allow_graceful=False)
        nodes.append(cluster.add_node(wait=False, num_cpus=8, **common))
    cluster.shutdown()


class Nodes:
    """A Ray of several nodes, in another process."""

    def __init__(self, folder, n):
        self.folder = str(folder)
        os.environ |= {
            "RAY_TMPDIR": self.folder,
            "HOME": self.folder,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
        }
        command = [sys.executable, __file__, "--be", str(n)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        lines = iter(self.process.stdout.readline, b"")
        self.address = next(line.decode().strip() for line in lines if line.startswith(b"127."))

    def processes(self, name):
        """The processes of actors of a class, of this Ray alone."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                title = (path / "cmdline").read_bytes().partition(b"\0")[0].decode()
                its = (path / "environ").read_bytes()
                if title.split(".")[0] == f"ray::{name}" and f"RAY_TMPDIR={self.folder}".encode() in its:
                    found.append(int(path.name))
        return found

    def remove(self):
        """Let a node go, with all that is on it, and another come."""
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def close(self):
        """End it."""
        self.process.stdin.close()
        self.process.wait(30)


class Router:
    """`dreamstream serve`."""

    def __init__(self, model, address, workers, port):
        self.command = [sys.executable, "-m", "dreamstream", "serve", f"net={model}", "--port", str(port)]
        self.command += ["--ray", address, "--workers", workers, "--save", "0.5"]
        self.begin()

    def begin(self):
        """Start it, again."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE)

    def wait(self):
        """Wait until it listens."""
        assert b" at ws://" in self.process.stdout.readline()

    def kill(self):
        """End it at once."""
        self.process.kill()
        self.process.wait()


async def caller(urls, offline, gaps, versions, seed, length):
    """Stream samples in real time; return the number of frames that came, all of them right."""
    from serving import RATE, samples

    from dreamstream.client import connect

    x, chunk, found = samples(length, seed), 96 * RATE // 1000, [[], []]
    last = None
    async with connect(urls[seed[0] % 2 :] + urls[: seed[0] % 2], patience=60.0) as stream:
        want = offline[stream.told["fingerprint"]](x)
        versions.add(stream.told["fingerprint"])

        async def read():
            nonlocal last
            async for port, position, frames in stream:
                assert position == sum(map(len, found[port]))
                found[port].append(frames)
                if port == 1:
                    now = time.monotonic()
                    if last is not None:
                        gaps.append(now - last)
                    last = now

        reader, begin = asyncio.create_task(read()), time.monotonic()
        for at in range(0, length, chunk):
            await asyncio.sleep(begin + at / RATE - time.monotonic())
            await stream.send(x[at : at + chunk])
        await stream.end()
        await reader
    for parts, whole in zip(found, want):
        assert np.array_equal(np.concatenate(parts), whole), "not what is offline"
    return sum(len(whole) for whole in want)


async def main(args, folder):
    import serving
    from serving import Net

    class Other(Net):
        def forward(self, x):
            y, z = super().forward(x)
            return y, z * 1.5

    engines = [serving.engine(Net), serving.engine(Other)]
    offline = {
        e.fingerprint: lambda x, e=e: [np.asarray(y) for y in e.step({"a": x}, "a", "a")["a"]] for e in engines
    }
    model = folder / "net.dsm"
    engines[0].save(model)
    with contextlib.ExitStack() as stack:
        nodes = Nodes(folder, args.nodes)
        stack.callback(nodes.close)
        await under_faults(args, nodes, model, engines, offline, stack)


async def under_faults(args, nodes, model, engines, offline, stack):
    import serving

    ports = []
    for _ in range(2):
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
            ports.append(free.getsockname()[1])
    routers = [Router(model, nodes.address, args.workers, port) for port in ports]
    for router in routers:
        stack.callback(router.kill)
        router.wait()
    urls = [f"ws://127.0.0.1:{port}" for port in ports]
    generator, gaps, versions, asleep = random.Random(args.seed), [], set(), []
    until = [float("inf")]  # when no more streams begin

    async def line(k):
        n = streams = 0
        await asyncio.sleep(generator.uniform(0, args.warm))
        while streams == 0 or time.monotonic() < until[0]:
            length = generator.randrange(serving.RATE, args.longest * serving.RATE)
            n += await caller(urls, offline, gaps, versions, [k, streams], length)
            streams += 1
        return streams, n

    async def fault(what):
        workers = [pid for pid in nodes.processes("Worker") if pid not in asleep]
        if what == "kill":
            os.kill(generator.choice(workers), signal.SIGKILL)
        elif what == "stop":
            asleep.append(generator.choice(workers))
            os.kill(asleep[-1], signal.SIGSTOP)
            asyncio.get_running_loop().call_later(5.0, wake, asleep[-1])
        elif what == "vault":
            os.kill(generator.choice(nodes.processes("_Vault")), signal.SIGKILL)
        elif what == "node":
            nodes.remove()
        elif what == "router":
            router = generator.choice(routers)
            router.kill()
            router.begin()
            await asyncio.get_running_loop().run_in_executor(None, router.wait)
        elif what == "version":
            engines[1].save(model.with_suffix(".part"), "dsm")
            model.with_suffix(".part").replace(model)
            for router in routers:
                router.process.send_signal(signal.SIGHUP)

    def wake(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    kinds, start = args.faults.split(","), time.monotonic()
    print(f"{time.process_time():.1f} s until streams begin", file=sys.stderr)
    tasks = [asyncio.create_task(line(k)) for k in range(args.streams)]
    await asyncio.sleep(args.warm)
    for what in kinds:
        while not (len(nodes.processes("Worker")) >= 2 and len(nodes.processes("_Vault")) == 2):
            await asyncio.sleep(0.1)
        await fault(what)
        await asyncio.sleep(args.every)
        print(f"{time.monotonic() - start:.1f} {what}", file=sys.stderr, flush=True)
    until[0] = time.monotonic()
    done = await asyncio.gather(*tasks)
    for router in routers:
        router.process.send_signal(signal.SIGTERM)
    codes = [router.process.wait(30) for router in routers]
    outages = sorted(gap for gap in gaps if gap > 0.4) or [0.0]
    told = {
        "streams": sum(streams for streams, _ in done),
        "frames": sum(n for _, n in done),
        "faults": len(kinds),
        "versions": len(versions),
        "outages": len(outages),
        "p50": round(float(np.percentile(outages, 50)), 2),
        "p99": round(float(np.percentile(outages, 99)), 2),
        "codes": codes,
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--workers", default="1")
    parser.add_argument("--faults", default="kill,vault,version,stop,node,router")
    parser.add_argument("--every", type=float, default=1.5)
    parser.add_argument("--warm", type=float, default=2.0)
    parser.add_argument("--longest", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--be", type=int, metavar="NODES", help="be the nodes alone")
    given = parser.parse_args()
    if given.be:
        nodes_of(given.be)
        sys.exit()
    sys.path.insert(0, os.path.dirname(__file__))
    alone()
    place = Path(tempfile.mkdtemp(prefix="ds"))
    try:
        asyncio.run(main(given, place))
    finally:
        shutil.rmtree(place, ignore_errors=True)
