"""Online training with torch: failed calls leave no trace, nothing grows, nothing is kept alive."""

import gc
import sys
import weakref
from functools import partial

import numpy as np
import pytest
import torch

import dreamstream as ds
from dreamstream.errors import ModeError

F = torch.nn.functional

from torch_training import (
    MODELS,
    VARIANTS,
    assert_close,
    calls,
    gathered,
    made,
    noise,
    offline,
    online,
    sequences,
    streams,
)
from turns import by_turns


# ---------------------------------------------------------------------- all or nothing
class Buffered(torch.nn.Module):
    """Buffers that are written into in every way that torch has, and one that is assigned anew."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(3, 3, 3, padding=1)
        self.norm = torch.nn.BatchNorm1d(3)
        for name in ("method", "operator", "item", "out", "data", "view", "assigned"):
            self.register_buffer(name, torch.zeros(2, dtype=torch.float64))
        self.fail = None

    def forward(self, x):
        x = self.conv(x)
        self.method.add_(1)
        self.operator += 1
        self.item[0] = self.item[0] + 1
        torch.add(self.out, 1, out=self.out)
        self.data.data.mul_(2).add_(1)
        self.view[1:].add_(1)
        self.assigned = self.assigned + 1
        x = self.norm(x)
        if self.fail is not None:
            raise self.fail
        return self.conv(x)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_call_that_raises_leaves_buffers_and_streams_as_they_were(variant, error):
    _, model = online(Buffered, variant)
    twin = ds.patch_module(made(Buffered), variant).online().train()
    x = noise(3, 8)
    for _ in range(3):
        before = {k: v.clone() for k, v in model.state_dict().items()}
        model.fail = error()
        with pytest.raises(error):
            model(streams({"a": x}, ["a"], ["a"]))
        assert model.live_ids == []
        for k, v in model.state_dict().items():
            assert torch.equal(v, before[k]), k
        model.fail = None
        y, z = (m(streams({"a": x}, ["a"], ["a"])) for m in (model, twin))
        assert torch.equal(y.tensor(), z.tensor())
        for k, v in model.state_dict().items():
            assert torch.equal(v, twin.state_dict()[k]), k
    assert float(model.assigned[0]) == 3


@pytest.mark.parametrize(("name", "variant"), by_turns(MODELS, VARIANTS, one_in=2))
def test_a_call_interrupted_at_any_operation_is_as_none(name, variant, monkeypatch):
    from dreamstream.torch.run.calls import TorchCall

    plain, model = online(name, variant)
    xs = sequences(np.random.default_rng(1), {"a": 17, "b": 12})
    begin = TorchCall.begin
    stop = [None]

    def beginning(self, *args):
        self.fail_at = stop[0]
        begin(self, *args)

    monkeypatch.setattr(TorchCall, "begin", beginning)
    ys = []
    for x in calls(xs, {"a": [5, 6, 6], "b": [4, 0, 8]}):
        done = False
        stop[0] = 0
        while not done:
            try:
                ys.append(model(x))
                done = True
            except KeyboardInterrupt:
                stop[0] += 1
        assert stop[0] > 1
    for i, y in gathered(ys).items():
        assert_close(y, offline(plain, xs[i]), i)
    sum(y.tensor().square().sum() for y in ys).backward()
    assert model.live_ids == []


TRACED = ("session.py", "train/outputs.py", "train/groups.py", "torch/patch.py", "forward/mode.py", "held.py")


def interrupted(function, at):
    """Call a function; raise KeyboardInterrupt at the at-th line that the bridge or the session runs."""
    lines = [0]

    def trace(frame, event, arg):
        if event == "line":
            lines[0] += 1
            if lines[0] == at:
                raise KeyboardInterrupt
        return trace

    def enter(frame, event, arg):
        return trace if frame.f_code.co_filename.endswith(TRACED) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        function()
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_call_interrupted_at_any_line_has_happened_as_a_whole_or_not_at_all(variant, step):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv1d(3, 3, 3, padding=1)
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count += 1
            return self.conv(x)

    def seen():
        session = model._patch.session
        groups = session.groups
        rows = {i: session.state_of(i).frames for i in sorted(session.live_ids)}
        return (rows, groups.live, groups.waiting, [len(g.held_back) for g in groups.groups], float(model.count))

    x = noise(3, 4)
    happened, total = 0, 0
    for at in range(1 + VARIANTS.index(variant) % step, 100_000, step):  # the variants share the lines
        _, model = online(Counting, variant)
        model(streams({"a": x, "b": x}, "ab"))
        before = seen()
        try:
            interrupted(partial(model, streams({"a": x, "b": x, "c": x}, "c", "a")), at)
        except KeyboardInterrupt:
            after = seen()
            if after == before:
                model(streams({"a": x, "b": x, "c": x}, "c", "a"))
            else:
                happened += 1
            total += 1
            assert set(model.live_ids) == {"b", "c"} and float(model.count) == 2, at
            done = seen()
            assert done[0] == {"b": (8,), "c": (4,)}, at
            assert done[3] == [2] or variant != VARIANTS[2], at
            assert done[1] == (frozenset("bc") if variant != VARIANTS[0] else frozenset()), at
        else:
            break
    assert total > 100 / step and 0 < happened < total / 2


class FramesFirst(torch.nn.Module):
    """Takes and gives frames as they are stored, so that nothing has to be copied; and what the layer carries."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(3, 3, 5, padding=2)
        self.rnn = torch.nn.GRU(3, 3, batch_first=True)

    def forward(self, x):
        y = torch.nn.functional.conv1d(x.transpose(1, 2), self.conv.weight, padding=2).transpose(1, 2)
        y, h = self.rnn(y)
        return y, h


@pytest.mark.parametrize("mode", ["eval", *VARIANTS[:2]])
def test_overwritten_inputs_and_outputs_change_no_stream(mode):
    plain, model = online(FramesFirst, VARIANTS[0] if mode == "eval" else mode)
    model.train(mode != "eval")
    whole, parts = noise(24, 3), []
    for k in range(6):
        memory = whole[4 * k : 4 * k + 4].clone()
        x = ds.as_stream_tensor(memory[None], ids=["a"], names=("B", "L", "F"), sos=k == 0, eos=k == 5)
        outputs = model(x)
        parts.append(outputs[0]["a"].detach().clone())
        with torch.no_grad():
            for t in (memory, *(y.tensor() for y in outputs)):
                t.detach().fill_(np.nan)
    assert_close(torch.cat(parts), plain(whole[None])[0][0])


# ---------------------------------------------------------------------- memory
def saved_bytes(model, x):
    """Return the bytes that a forward saves for its backward."""
    total = [0]

    def pack(t):
        total[0] += t.numel() * t.element_size()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = model(x)
    y.tensor().square().sum().backward()
    return total[0]


@pytest.mark.parametrize("n", [100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "causal"])  # which keeps all keys
def test_a_chunk_saves_as_many_bytes_after_many_chunks_as_after_ten(name, n):
    _, model = online(name)
    chunks = {i: noise(3, 4, seed=k) for k, i in enumerate("ab")}
    first = None
    for k in range(n + 1):
        x = streams(chunks, "ab" if k == 0 else ())
        if k in (10, n):
            found = saved_bytes(model, x)
            assert found > 0 and found == (first or found)
            first = found
        else:
            model(x)


@pytest.mark.parametrize("mode", ["eval", VARIANTS[0]])
def test_memory_is_flat_where_streams_last(mode):
    _, model = online("lstm")
    model.train(mode != "eval")
    x = noise(3, 4)

    def run(start, end):
        for k in range(start, end):
            y = model(streams({"a": x, "b": x}, "ab" if k == 0 else ()))
            if mode != "eval":
                y.tensor().sum().backward()

    run(0, 600)  # a few hundred calls only warm Python up
    assert grown(run, 250, 600) < 100
    assert model.live_ids == ["a", "b"]


@pytest.mark.parametrize("mode", ["eval", *VARIANTS[:2], pytest.param(VARIANTS[2], marks=pytest.mark.slow)])
def test_memory_is_flat_where_streams_come_and_go(mode):
    _, model = online("lstm", VARIANTS[0] if mode == "eval" else mode)
    model.train(mode != "eval")
    x = noise(3, 4)

    def run(start, end):
        for k in range(start, end):  # every stream lives for two calls
            a, b = f"a{k}", f"b{k}"
            first = model(streams({a: x, b: x}, [a, b], [b]))
            y = model(streams({a: x}, (), [a]))
            if mode != "eval":
                (y.tensor().sum() + first.tensor().sum()).backward()
            if k % 10 == 0:  # or is given up
                model(streams({a: x}, [a]))
                model.reset(a)

    assert grown(run, 500) < 200
    session = model._patch.session
    assert not session._slots and not session.groups.groups and not session.guard.exits
    assert len(session.table.tensors.get((0, "carried", 0), ())) <= 8


def grown(run, n, start=0):
    """Return by how many blocks Python's memory grows in half of n calls, behind as many others.

    It is the least of two halves: what is made once, however late, grows in one of them, a leak in both.
    """
    run(start, start + n // 2)
    least = None
    for k in (1, 2):
        gc.collect()
        before = sys.getallocatedblocks()
        run(start + k * n // 2, start + (k + 1) * n // 2)
        gc.collect()
        more = sys.getallocatedblocks() - before
        least = more if least is None else min(least, more)
    return least


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_keeps_a_graph_alive(variant):
    _, model = online("lstm", variant)
    seen = []

    class Marked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(weakref.ref(ctx))
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad

    x = noise(3, 6).requires_grad_()
    y = model(streams({"a": Marked.apply(x)}, ["a"], ["a"] if variant != VARIANTS[0] else ()))
    assert seen[0]() is not None
    y.tensor().sum().backward()
    del y
    assert seen[0]() is None
    model.reset()
    y = model(streams({"a": Marked.apply(x)}, ["a"]))
    del y
    model.reset()  # nor does a stream that was given up
    assert seen[1]() is None


def test_a_module_that_is_gone_takes_its_streams_along():
    _, model = online("gru", VARIANTS[1])
    x = noise(3, 6).requires_grad_()
    y = model(streams({"a": x}, ["a"]))
    session = weakref.ref(model._patch.session)
    with pytest.raises(ModeError):
        y.tensor().sum().backward()
    del model
    gc.collect()
    assert session() is None
    y = y.tensor().detach()


def test_a_table_made_in_inference_mode_serves_training_later():
    plain, model = online("residual")
    xs = sequences(np.random.default_rng(3), {"a": 20})
    chunks = list(calls(xs, {"a": [5] * 4}))
    with torch.inference_mode():
        ys = [model.eval()(chunks[0])]
    ys.append(model(chunks[1]))
    ys.append(model.train()(chunks[2]))
    ys[-1].tensor().sum().backward()
    with torch.inference_mode():
        ys.append(model.eval()(chunks[3]))
    assert_close(torch.cat([y["a"].clone() for y in ys], 1), offline(plain, xs["a"]))
