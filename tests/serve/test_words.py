"""Models with a decoder: words leave once, and are those of the whole recording, whatever breaks in between."""

import asyncio
import json
import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

pytest.importorskip("websockets"), pytest.importorskip("h11"), pytest.importorskip("prometheus_client")

from serving import RATE, ByHand, by_hand, posted, received, recorded, running
from thread_cluster import Threads

import dreamstream as ds
from dreamstream import nn
from dreamstream.decode import CTCDecoder, Endpoints, log_probabilities
from dreamstream.serve import FolderStore, Limits, MemoryStore, Model, Service
from dreamstream.serve.pool import Pool
from dreamstream.serve.runner import Runner

TOKENS = ["-", "|", "a", "b", "c"]


class Recogniser(nn.Module):
    """Scores of tokens, which look ahead."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, len(TOKENS), 9, stride=4, padding=4)

    def forward(self, x):
        return 4 * self.conv(x.unsqueeze(1)).transpose(1, 2)


def recogniser():
    ds.manual_seed(0)
    return ds.compile(Recogniser().eval(), ("B", "L"), rate=RATE, verify=False)


def decoder(**options):
    return CTCDecoder(TOKENS, beam=4, rate=RATE / 4, endpoints=Endpoints(0.0, 0.02, 0.5), **options)


def service(store=None, **options):
    limits, store = Limits(grace=0.2, save=0.05, drain=1.0), store or MemoryStore()
    return Service({"net": Model("net", recogniser(), limits, decoder(**options))}, store, limits)


def samples(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def offline(x):
    scores = log_probabilities(np.asarray(recogniser().step({"a": x}, "a", "a")["a"]))
    return [(word.text, round(word.start, 3)) for word in decoder().step({"a": scores}, "a", "a")["a"].words]


async def heard(url, x, chunk, pause=0.0):
    """Stream samples; return the words, and what was pending each time."""
    found, pending = [], []
    for position, words, rest in await received(url, x, chunk, pause):
        assert position == len(found)
        found += [(word.text, word.start) for word in words]
        pending.append(rest)
    return found, pending


async def test_words_are_those_of_the_whole():
    async with running(service()) as url:
        xs = [samples(n, n) for n in (0, 3, 100, 1601, 4000, 6000)]
        told = await asyncio.gather(*(heard(url, x, c) for x, c in zip(xs, (1, 1, 7, 51, 99, 5000))))
        for x, (found, _) in zip(xs, told):
            assert found == offline(x)
        assert len(told[-1][0]) > 20
        found, pending = await heard(url, xs[4], 40, 0.002)
        assert found == offline(xs[4]) and any(pending) and not pending[-1]


async def test_words_of_workers_that_die():
    """They are made again elsewhere, by a decoder that was sent there, and heard once."""
    cluster, limits = Threads(), Limits(save=0.1)
    make = partial(Runner, recogniser(), decoder())
    pool = Pool(cluster, lambda: pickle.loads(pickle.dumps(make))(), deadline=0.4)
    own = Service({"net": Model("net", recogniser(), limits, decoder(), pool)}, MemoryStore(), limits)
    async with running(own) as url:
        xs = [samples(4000, k) for k in range(4)]
        tasks = [asyncio.create_task(heard(url, x, 51, 0.02)) for x in xs]
        for _ in range(2):
            await asyncio.sleep(0.6)
            next(w for w in cluster.alive() if w.done > 3).die()
        for x, task in zip(xs, tasks):
            assert (await task)[0] == offline(x)
        assert own.metrics.moved._value.get() > 0


async def test_words_that_never_arrived_are_sent_again(tmp_path):
    x = samples(4000)
    async with running(service(FolderStore(tmp_path))) as url, ByHand(url) as client:
        told = await client.start()
        assert (told["names"], told["types"], told["output"]) == (["words"], ["words"], 0)
        await client.give(0, x[:3000])
        while (saved := (await client.told("saved"))["input"]) < 3000:
            pass
    async with running(service(FolderStore(tmp_path))) as url, ByHand(url) as client:
        await client.say("resume", stream=told["stream"], output=2, saved=saved)
        again = await client.told("started")
        await client.give(again["input"], x[again["input"] :])
        await client.say("end", input=4000)
        found = []
        while len(found) < len(offline(x)) - 2:
            told = await client.told("result")
            assert told["output"] + len(told["words"]) >= 2 + len(found)
            found += [(word["word"], word["start"]) for word in told["words"][2 + len(found) - told["output"] :]]
        assert found == offline(x)[2:]
        assert (await client.told("ended"))["output"] == len(offline(x))


async def test_another_decoder_takes_no_stream_up(tmp_path):
    async with running(service(FolderStore(tmp_path))) as url, ByHand(url) as client:
        told = await client.start()
        await client.give(0, samples(1000))
        await client.told("saved")
    own = service(FolderStore(tmp_path), word_score=1.0)
    async with running(own) as url, ByHand(url) as client:
        await client.say("resume", stream=told["stream"], output=0, saved=0)
        assert await client.closed() == 4410
        assert own.models["net"].engine.ids == []


async def test_scores_that_are_none_end_one_stream():
    own = service()
    async with running(own) as url, ByHand(url) as client:
        await client.start()
        bad = samples(500)
        bad[300] = np.nan
        other = asyncio.create_task(heard(url, samples(2000), 100, 0.001))
        await client.give(0, bad)
        assert await client.closed() == 4500
        assert (await other)[0] == offline(samples(2000))
        assert own.models["net"].engine.ids == [] and own.models["net"].decoder.ids == []


async def test_a_recording_that_is_sent_whole():
    x = (samples(5000) * 8000).astype(np.int16)
    async with by_hand(service()) as (url, _):
        status, body = await posted(url, "/v1/files", recorded(x))
        found, want = json.loads(body), offline(x.astype(np.float32) / 32768)
        assert (status, found["samples"], found["text"]) == (200, 5000, " ".join(text for text, _ in want))
        assert [(word["word"], word["start"]) for word in found["words"]] == want


@pytest.mark.parametrize(("source", "types"), [("Commands", ["words"]), ("net.dsm", ["float32"])])
def test_which_models_of_the_command_give_words(source, types, tmp_path):
    recogniser().save(tmp_path / "net.dsm")
    command = [sys.executable, "-m", "dreamstream", "serve", f"it={source}", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            url = process.stdout.readline().split()[-1]

            async def main():
                async with ByHand(url) as client:
                    assert (await client.start(model="it"))["types"] == types

            asyncio.run(main())
        finally:
            process.kill()
