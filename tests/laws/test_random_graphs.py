"""Random models: 2 to 8 nodes of all operators, written as forwards of users, held to the contract.

Every model is streamed in eager mode and in an engine, in random batches with joins, ends, restarts, forks,
snapshots, interruptions and misuse, and compared with itself offline; what leaves when is compared with brute
force over all futures. How models are made and what is asked of them: tests/helpers/random_graphs.

A failure names its seed. One seed again::

    DREAMSTREAM_SEEDS=123 pytest tests/laws/test_random_graphs.py

Thousands (DREAMSTREAM_MODELS of them, 10000 by default; half an hour to an hour)::

    pytest -m slow tests/laws/test_random_graphs.py
"""

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from random_graphs.drafts import build, grid
from random_graphs.futures import delays_and_fields, emissions, finality, most_kept
from random_graphs.trial import Subject, offline, run

from dreamstream import _core
from dreamstream.errors import ShapeError, StreamLimitError

#: Operators that no random model can hold, and why.
ELSEWHERE: dict[str, str] = {
    "fft": "two streams that are one complex stream: tests/helpers/shared_cases",
    "ifft": "as fft",
    "irfft": "as fft",
    "rfft": "as fft",
    "length": "an output that is one number: tests/torch/test_lengths_of.py",
    "pad_to": "a length from another stream: tests/helpers/shared_cases/lengths.py",
    "require": "what lengths must be at the end: tests/helpers/shared_cases/lengths.py",
    "cross_attention": "its keys are given once: tests/torch/test_memory.py",
    "hold": "an input that is given once: tests/python/test_given_once.py",
    "unless_empty": "which streams are refused: tests/torch/test_no_frames.py",
    "scan": "its bodies are random by themselves: ds_laws/operators/loops.py",
    "embedding": "its indices are an input of whole numbers: tests/python/test_nn_embedding.py",
}

#: Why a frame may be final although its count says no: between the taps of a transposed convolution there are
#: zeros, whatever comes; and what waits for the end by design may hold frames that don't need it.
LATE = re.compile(r"ConvTranspose|conv_transpose|circular|bidirectional")
#: Only near a stream's start: zeros of delays and pads that a pad at the end would hold as well, and frames
#: mirrored at the start, which are final out of order.
LATE_AT_START = re.compile(r"Delay|F\.pad|Pad1d|reflect")


def seeds(default: Iterable[int]) -> list[int]:
    """Return DREAMSTREAM_SEEDS, as in ``7`` or ``0:500``, or the default."""
    given = os.environ.get("DREAMSTREAM_SEEDS")
    if not given:
        return list(default)
    first, _, end = given.partition(":")
    return list(range(int(first), int(end or int(first) + 1)))


def each(numbers: Iterable[int], check: Callable[[int], None]) -> None:
    """Check every seed; say of the first that fails how to see it again, and of the others their seeds."""
    failed: dict[int, Exception] = {}
    for seed in numbers:
        try:
            check(seed)
        except Exception as error:
            failed[seed] = error
            if len(failed) > 4:
                break
    if failed:
        seed, error = next(iter(failed.items()))
        again = f"DREAMSTREAM_SEEDS={seed} pytest tests/laws/test_random_graphs.py"
        text = f"{type(error).__name__}: {error}\nseeds {list(failed)}; again: {again}\n{Subject.of(seed).draft}"
        raise AssertionError(text) from error


# ---------------------------------------------------------------- the checks of one model
def finality_of(seed: int, stats: Counter[str]) -> None:
    """Nothing leaves early, and hardly anything late."""
    subject = Subject.of(seed)
    n_seen, horizon = (31, 24) if len(subject.inputs) == 1 else (19, 14)
    seen = grid(subject.inputs, n_seen)
    rng = np.random.default_rng([seed, 2])
    engine = subject.compiled()
    said = emissions(subject, engine, seen, rng)
    final, certain = finality(subject, seen, n_seen + horizon, horizon, rng)
    probed = (final >= 0) & (said >= 0)
    early, late = probed & (said > final), probed & (said < final) & certain
    # The futures that were tried must go as far as an output waits, or more of it seems final than is.
    waits = np.array([float(o.delay / subject.inputs[0].rate) for o in engine.outputs])
    late &= np.isinf(waits) | (waits <= horizon)
    for i, k in np.argwhere(early)[:1]:
        raise AssertionError(f"EARLY: output {k} after {seen[i]} frames: {said[i, k]} out, {final[i, k]} final")
    for i, k in np.argwhere(late):
        what = f"late: output {k} after {seen[i]} frames: {said[i, k]} out, {final[i, k]} final"
        at_start = i < 2 * len(seen) // 3 and LATE_AT_START.search(subject.draft.source)
        assert at_start or LATE.search(subject.draft.source), what
    stats.update(probes=int(probed.sum()), late=int(late.sum()))


def delay_of(seed: int, stats: Counter[str]) -> None:
    """Delay and receptive field are what can be measured."""
    subject = Subject.of(seed)
    engine = subject.compiled()
    first = subject.inputs[0]
    seen = [tuple(int(n * x.rate / first.rate) for x in subject.inputs) for n in range(120)]
    rng = np.random.default_rng([seed, 3])
    known = emissions(subject, engine, seen, rng)
    if (known < 0).any():
        return  # a table or a buffer that is soon too short
    measured = delays_and_fields(subject, known, [o.rate for o in engine.outputs], rng)
    for k, ((delay, field), said) in enumerate(zip(measured, engine.outputs)):
        assert said.delay == delay, f"output {k}: delay {delay}, not {said.delay}"
        planned = engine._core.fields[k]
        if planned is None or math.isnan(field):
            continue
        stats["fields"] += 1
        assert field <= planned, f"output {k}: receptive field {field}, more than {planned}"
        # What the end would read back widens the plan; structural zeros, and windows of which one element is
        # used, narrow what is measured.
        if not re.search(
            r"replicate|reflect|Replication|Reflection|ranspose[12]d|OverlapAdd|\] \+?= ", subject.draft.source
        ):
            assert field == planned, f"output {k}: receptive field {field}, not {planned}"
    assert engine.delay == max(d for d, _ in measured)
    stats["delays"] += len(measured)


def state_of(seed: int, stats: Counter[str]) -> None:
    """Streams keep as much as was planned, and never more.

    With inputs that may be far apart, random walks need not come to where the most is kept.
    """
    subject = Subject.of(seed)
    reached = subject.draft.skew == 0
    engine = subject.compiled()
    try:
        most = most_kept(subject, engine, 150, np.random.default_rng([seed, 4]))
    except (ShapeError, StreamLimitError):
        return  # a table or a buffer that is soon too short
    size = 64  # the block's header
    for node in engine._core.nodes:
        frames = sum(n for (i, array), n in most.items() if i == node["id"] and array >= 0)
        if not node["grows"]:
            planned = node["kept_bytes"]
            assert frames == planned or (frames < planned and not reached), (
                f"{node['name']} keeps {frames} bytes, not {planned}"
            )
        size += padded(node["carried_bytes"])
        stats["nodes"] += 1
    if not engine.state_bytes_per_frame:
        size += sum(padded(n) for (_, array), n in most.items() if array >= 0)
        assert size == engine.kept_bytes or (size < engine.kept_bytes and not reached)


def padded(n_bytes: int) -> int:
    """Return a size as it is laid out."""
    return -(-n_bytes // 64) * 64


# ---------------------------------------------------------------- the default tier
def test_streams():
    stats: Counter[str] = Counter()
    missing = {o["name"] for o in _core.operators()} - set(ELSEWHERE)
    numbers = seeds(range(45))

    def check(seed: int) -> None:
        missing.difference_update(run(seed, stats).operators)

    each(numbers, check)
    if len(numbers) < 45:
        return
    for seed in range(45, 600):  # those that have an operator which is in none of the first
        if not missing:
            break
        if missing & Subject.of(seed).operators:
            each([seed], check)
    print(dict(stats))
    for what in (
        "calls",
        "forks",
        "moves",
        "interrupted",
        "misused",
        "astray",
        "refused",
        "refused at the end",
        "out of memory",
    ):
        assert stats[what], f"no random model came to be {what}"
    assert stats["ill-conditioned"] <= stats["models"] / 100
    assert not missing, (
        f"give {sorted(missing)} a node in tests/helpers/random_graphs (source.py: a line of UNARY or JOINS; else "
        "a method of its name in KINDS), or a reason in ELSEWHERE"
    )


def test_frames_leave_as_soon_as_they_are_final():
    stats: Counter[str] = Counter()
    numbers = seeds(range(1000, 1030))
    each(numbers, lambda seed: finality_of(seed, stats))
    print(dict(stats))
    if len(numbers) >= 30:
        assert stats["late"] <= 0.02 * stats["probes"]


def test_delay_and_receptive_field():
    stats: Counter[str] = Counter()
    each(seeds(range(2000, 2040)), lambda seed: delay_of(seed, stats))
    print(dict(stats))


def test_state_is_what_was_planned():
    stats: Counter[str] = Counter()
    each(seeds(range(3000, 3020)), lambda seed: state_of(seed, stats))
    print(dict(stats))


def test_offline_is_torch():
    torch = pytest.importorskip("torch")
    from random_graphs.torch_twin import NAMESPACE

    stats: Counter[str] = Counter()

    def check(seed: int) -> None:
        subject = Subject.of(seed)
        model = build(subject.draft, NAMESPACE).double()
        rng = np.random.default_rng([seed, 5])
        for n in (36, int(rng.integers(0, 30))):
            frames = next(f for f in grid(subject.inputs, n + 1) if max(f) == n)
            data = [rng.standard_normal((2, m, x.size)) for m, x in zip(frames, subject.inputs)]
            ours = offline(subject, subject.double.forward, data, np.float64)
            try:
                with torch.no_grad():
                    theirs = offline(subject, model, data, np.float64, torch.from_numpy)
            except (RuntimeError, IndexError):  # too short, or lengths that don't go together
                stats["refused by torch"] += 1
                continue
            assert ours is not None, f"torch takes lengths {frames}"
            for k, (a, b) in enumerate(zip(ours, theirs or [])):
                assert a.shape == b.shape, f"output {k}: {a.shape}, torch {b.shape}"
                nothing = np.isnan(a) & np.isnan(b)  # the mean of no frames, in both
                a, b = (np.where(nothing, 0, v) for v in (a, b))
                assert not a.size or np.abs(a - b).max() <= 1e-9 * max(1, np.abs(b).max()), f"output {k}"
            stats["compared"] += 1

    numbers = seeds(range(4000, 4060))
    each(numbers, check)
    print(dict(stats))
    assert stats["compared"] >= len(numbers)


# ---------------------------------------------------------------- the slow tier
@pytest.mark.slow
def test_thousands():
    stats: Counter[str] = Counter()
    n_models = int(os.environ.get("DREAMSTREAM_MODELS", "10000"))

    def check(seed: int) -> None:
        run(seed, stats)
        finality_of(seed, stats)
        if seed % 4 == 0:
            delay_of(seed, stats)
        if seed % 8 == 0:
            state_of(seed, stats)
        if stats["models"] % 250 == 0:
            print(stats["models"], "models", dict(stats), flush=True)

    each(seeds(range(10_000, 10_000 + n_models)), check)
    print(dict(stats))
    assert stats["late"] <= 0.02 * stats["probes"]
