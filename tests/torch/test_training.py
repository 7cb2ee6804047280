"""Online training with torch, full files and chunks: outputs and gradients against torch itself, in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_training import (
    MODELS,
    VARIANTS,
    assert_close,
    assert_same_gradients,
    calls,
    cuts,
    gathered,
    made,
    offline,
    online,
    sequences,
    streams,
)
from turns import by_turns

import dreamstream as ds
from dreamstream.errors import ModeError, StreamIdError
from dreamstream.torch.run.kernels.registry import KERNELS

LENGTHS = {"a": 23, "b": 9, "c": 16}


def states(model):
    """Return the tensors of all stored states."""
    session = model._patch.session
    stores = [session.state_of(i).states.store for i in session.live_ids]
    return [store.get(key) for store in stores for key in store.tensors]


def loss_of(ys, seed=1):
    """Return a sum over frames, each element weighted by random numbers that belong to its stream."""
    total = 0.0
    for i, y in sorted(ys.items()):
        rng = np.random.default_rng([seed, ord(i[0])])
        weight = torch.tensor(rng.standard_normal(tuple(y.shape)))
        total = total + (weight * y.square()).sum()
    return total


# ---------------------------------------------------------------------- E, M
@pytest.mark.parametrize(("name", "variant"), by_turns(MODELS, VARIANTS))
def test_evaluation_gives_what_the_offline_model_gives_and_keeps_no_graph(name, variant):
    rng = np.random.default_rng(3)
    plain, model = online(name, variant)
    model.eval()
    for p in model.parameters():
        assert p.requires_grad
    xs = sequences(rng, LENGTHS)
    ys = []
    for x in calls(xs, {i: cuts(rng, n) for i, n in LENGTHS.items()}):
        ys.append(model(x))
        assert not any(t.requires_grad for t in model._patch.session.table.tensors.values())
    for i, y in gathered(ys).items():
        assert_close(y, offline(plain, xs[i]), i)
    assert model.live_ids == []


def test_train_and_eval_leave_online_and_offline_alone_and_the_other_way_round():
    plain, model = online("conv", VARIANTS[0])
    assert model.is_online and model.training
    assert model.eval().is_online and not model.training
    assert not model.offline().is_online and not model.training
    assert not model.train().is_online and model.training
    assert model.online().training and all(m.is_online for m in model.modules())
    x = torch.randn(2, 3, 12, dtype=torch.float64)
    assert torch.equal(model.offline()(x), plain(x))
    entry = streams({"a": x[0]}, ["a"], ["a"])
    for part, given in ((model, entry), (model.down, entry)):
        with pytest.raises(RuntimeError, match="offline"):
            part(given)
    model.online()
    for part, given in ((model, x), (model.down, x)):
        with pytest.raises(RuntimeError, match="online"):
            part(given)


# ---------------------------------------------------------------------- A: chunk by chunk
@pytest.mark.parametrize("name", MODELS)
def test_chunks_give_what_the_offline_model_gives(name):
    rng = np.random.default_rng(4)
    plain, model = online(name, VARIANTS[0])
    xs = sequences(rng, LENGTHS)
    sizes = {i: cuts(rng, n) for i, n in LENGTHS.items()}
    ys = gathered(model(x) for x in calls(xs, sizes, late=("c",)))
    for i in xs:
        assert_close(ys[i], offline(plain, xs[i]), i)


@pytest.mark.parametrize("name", MODELS)
def test_states_are_cut_off_from_the_tape_after_every_chunk(name):
    rng = np.random.default_rng(5)
    _, model = online(name, VARIANTS[0])
    xs = sequences(rng, LENGTHS, requires_grad=True)
    sizes = {i: [n // 2, 0, n - n // 2 - 1, 1] for i, n in LENGTHS.items()}
    seen = 0
    for x in calls(xs, sizes):
        y = model(x)
        assert y.requires_grad
        assert all(t.grad_fn is None and not t.requires_grad for t in states(model))
        seen += len(states(model))
    assert seen > 0
    x = torch.zeros(3, 4, dtype=torch.float64)  # nor does one of the parameters lead there
    model(streams({"a": x}, ["a"]))
    assert states(model) and all(t.grad_fn is None for t in states(model))


@pytest.mark.parametrize("ends", [False, True])
def test_a_chunks_gradient_is_that_of_its_own_frames_and_constant_states(ends):
    """Convolutions and an LSTM by hand: activations before the chunk are constants."""
    rng = np.random.default_rng(6)

    class Stack(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv1d(3, 4, 5, padding=(2,))
            self.rnn = torch.nn.LSTM(4, 3, num_layers=2, batch_first=True)

        def forward(self, x):
            return self.rnn(torch.tanh(self.conv(x)).transpose(1, 2))[0].transpose(1, 2)

    plain, model = online(Stack, VARIANTS[0])
    first, second = (torch.tensor(rng.standard_normal((3, n)), requires_grad=True) for n in (11, 8))
    model(streams({"a": first}, ["a"]))
    y = model(streams({"a": second}, (), ["a"] if ends else ()))
    loss_of({"a": y["a"]}).backward()
    # by hand: 9 frames of the convolution were known after 11 frames, so the chunk brings 8, 10 at the end
    own = second.detach().clone().requires_grad_()
    window = torch.cat([torch.zeros(3, 2, dtype=torch.float64), first.detach(), own], 1)
    window = torch.nn.functional.pad(window, (0, 2)) if ends else window
    with torch.no_grad():
        before = torch.tanh(plain.conv(first[None]))[..., :9]
        _, state = plain.rnn(before.transpose(1, 2))
    new = torch.nn.functional.conv1d(window[None, :, 9:], plain.conv.weight, plain.conv.bias)
    want = plain.rnn(torch.tanh(new).transpose(1, 2), state)[0].transpose(1, 2)
    assert want.shape[2] == (10 if ends else 8)
    assert_close(y["a"], want[0])
    loss_of({"a": want[0]}).backward()
    assert_same_gradients(model, plain)
    assert_close(second.grad, own.grad)
    assert first.grad is None


def test_a_chunks_gradient_is_that_of_constant_keys_and_values():
    """Attention by hand: keys and values of earlier chunks are constants, those of its own are on the tape."""
    rng = np.random.default_rng(6)

    class Window(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(3, 12), torch.nn.Linear(4, 2)

        def attended(self, q, k, v, first):
            i, j = first + torch.arange(q.size(1)), torch.arange(k.size(1))
            seen = (j <= i[:, None]) & (i[:, None] - j <= 5)
            return self.out((q @ k.mT).masked_fill(~seen, -torch.inf).softmax(-1) @ v).mT

        def forward(self, x):
            return self.attended(*self.qkv(x.mT).chunk(3, -1), 0)

    plain, model = online(Window, VARIANTS[0])
    first, second = (torch.tensor(rng.standard_normal((3, n)), requires_grad=True) for n in (11, 8))
    model(streams({"a": first}, ["a"]))
    y = model(streams({"a": second}))["a"]
    loss_of({"a": y}).backward()
    own = second.detach().clone().requires_grad_()
    parts = plain.qkv(torch.cat([first.detach(), own], 1)[None].mT)
    kept = torch.cat([parts[:, :11].detach(), parts[:, 11:]], 1)
    q, k, v = kept.chunk(3, -1)
    want = plain.attended(q[:, 11:], k, v, 11)[0]
    assert_close(y, want)
    loss_of({"a": want}).backward()
    assert_same_gradients(model, plain)
    assert_close(second.grad, own.grad)
    assert first.grad is None


def test_a_learned_initial_state_has_its_gradient_behind_an_empty_chunk():
    class Begun(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.h = torch.nn.GRU(3, 3, batch_first=True), torch.nn.Parameter(torch.ones(1, 1, 3))

        def forward(self, x):
            return self.rnn(x.transpose(1, 2), self.h.expand(1, x.size(0), 3))[0]

    model, found = ds.patch_module(Begun()).train().online(), []
    for empty in ({"a", "b"}, {"b"}, set()):
        model.zero_grad()
        model.reset()
        first = [torch.ones(3, 0 if i in empty else 2) for i in "ab"]
        model(ds.stream_tensor(first, ids=["a", "b"], sos=True)).sum().backward()
        if empty:
            model(ds.stream_tensor([torch.ones(3, 2)] * len(empty), ids=sorted(empty))).sum().backward()
        found.append(model.h.grad.clone())
    assert torch.allclose(found[0], found[2]) and torch.allclose(found[1], found[2])


@pytest.mark.parametrize("name", ["transformer", "causal", "conformer"])
def test_attention_learns_chunk_by_chunk(name):
    """A task that has to look back: the mean of six frames."""
    rng = np.random.default_rng(17)
    _, model = online(name, VARIANTS[0])
    optimizer, losses = torch.optim.Adam(model.parameters(), 0.04), []
    for _ in range(20):
        xs = sequences(rng, {"a": 40, "b": 33})
        means = {
            i: torch.nn.functional.avg_pool1d(torch.nn.functional.pad(x, (5, 0)), 6, 1) for i, x in xs.items()
        }
        targets = {i: 3 * y[:1].T.numpy() for i, y in means.items()}
        total, n = 0.0, 0
        for chunk in calls(xs, {i: cuts(rng, x.shape[1], 14) for i, x in xs.items()}):
            y = model(chunk)
            aligned = ds.train.align(y, targets)
            errors = [(y[i][0] - torch.as_tensor(aligned[i][:, 0])).square() for i in y.ids]
            if sum(e.numel() for e in errors):
                optimizer.zero_grad()
                torch.cat(errors).mean().backward()
                optimizer.step()
                total, n = total + float(torch.cat(errors).detach().sum()), n + sum(e.numel() for e in errors)
        losses.append(total / n)
    assert np.mean(losses[-5:]) < 0.5 * losses[0], losses


# ---------------------------------------------------------------------- B: whole files, chunk by chunk
@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_whole_files_are_the_offline_ones(name):
    rng = np.random.default_rng(9)
    plain, model = online(name, VARIANTS[1])
    xs = sequences(rng, LENGTHS, requires_grad=True)
    own = {i: x.detach().clone().requires_grad_() for i, x in xs.items()}
    sizes = {i: cuts(rng, n) for i, n in LENGTHS.items()}
    ys, on_tape = [], 0
    for x in calls(own, sizes, late=("b",)):
        ys.append(model(x))
        on_tape += sum(t.grad_fn is not None for t in states(model))
    assert on_tape > 0
    assert model.live_ids == [] and model._patch.session.groups.groups == ()
    ys = gathered(ys)
    wanted = {i: offline(plain, x) for i, x in xs.items()}
    for i, y in ys.items():
        assert_close(y, wanted[i], i)
    loss_of(ys).backward()
    loss_of(wanted).backward()
    assert_same_gradients(model, plain)
    for i in xs:
        assert_close(own[i].grad, xs[i].grad, i)


@pytest.mark.parametrize("name", ["transformer", "causal", "conformer"])
def test_keys_that_lose_their_tape_are_noticed(name, monkeypatch):
    """A planted fault: keys and values that were kept are constants."""
    kernel = KERNELS["attention"]

    class Cut:
        def __init__(self, window):
            self.window = window

        def __getattr__(self, name):
            return getattr(self.window, name)

        def run(self, first, n):
            x = self.window.run(first, n)
            old = first[:, None] + torch.arange(n) < self.window.before[:, None]
            return torch.where(old[..., None, None], x.detach(), x)

    def run(step, windows, *rest):
        return kernel.run(step, [windows[0], *map(Cut, windows[1:])], *rest)

    monkeypatch.setitem(KERNELS, "attention", replace(kernel, run=run))
    with pytest.raises(AssertionError):
        test_gradients_of_whole_files_are_the_offline_ones(name)


def test_the_end_frees_the_states_and_the_graph_lives_by_the_outputs_alone():
    import weakref

    rng = np.random.default_rng(11)
    _, model = online("lstm", VARIANTS[1])
    xs = sequences(rng, {"a": 12, "b": 12})
    records, ys = [], []
    for x in calls(xs, {"a": [4, 4, 4], "b": [4, 4, 4]}):
        ys.append(model(x))
        records += [weakref.ref(model._patch.session.state_of(i).states.store) for i in model.live_ids]
    assert records and not any(r() for r in records)
    nodes = [weakref.ref(e) for e in model._patch.session.guard.exits]
    assert len(nodes) == 3
    loss_of(gathered(ys)).backward()
    del ys, x
    assert not any(n() for n in nodes)


def no_gradients(model, *tensors):
    return all(t.grad is None for t in (*model.parameters(), *tensors))


@pytest.mark.parametrize("name", MODELS)
def test_a_backward_in_mid_file_raises_before_any_gradient_and_a_whole_one_works(name):
    rng = np.random.default_rng(12)
    plain, model = online(name, VARIANTS[1])
    xs = sequences(rng, {"a": 40}, requires_grad=True)
    ys = []
    for k, x in enumerate(calls(xs, {"a": [20, 10, 10]})):
        ys.append(model(x))
        if k < 2:
            for _ in range(2):
                with pytest.raises(ModeError, match="mid-file") as caught:
                    loss_of(gathered(ys[-1:])).backward()
                assert caught.value.ids == ("a",) and no_gradients(model, xs["a"])
            with pytest.raises(ModeError):
                torch.autograd.grad(loss_of(gathered(ys)), list(model.parameters()))
    loss_of(gathered(ys)).backward(retain_graph=True)
    first = {n: p.grad.clone() for n, p in model.named_parameters()}
    offline_loss = loss_of({"a": offline(plain, xs["a"].detach())})
    offline_loss.backward()
    assert_same_gradients(model, plain)
    loss_of(gathered(ys)).backward()  # of a retained graph, once more
    for n, p in model.named_parameters():
        assert_close(p.grad, 2 * first[n], n)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_of_gradients_are_the_offline_ones(variant):
    plain, model = online("conv", variant)
    x = sequences(np.random.default_rng(17), {"a": 14}, requires_grad=True)
    own = {"a": x["a"].detach().clone().requires_grad_()}
    y = model(streams(own, "a", "a"))["a"]
    for loss, given in ((y.square().sum(), own), (offline(plain, x["a"]).square().sum(), x)):
        (slope,) = torch.autograd.grad(loss, given["a"], create_graph=True)
        slope.square().sum().backward()
    assert_same_gradients(model, plain)
    assert_close(own["a"].grad, x["a"].grad)


def test_the_error_names_the_live_streams_of_the_whole_connected_group():
    rng = np.random.default_rng(13)
    _, model = online("gru", VARIANTS[1])
    x = {i: torch.tensor(rng.standard_normal((3, 8)), requires_grad=True) for i in "abcdz"}

    def call(ids, sos="", eos=""):
        return model(streams({i: x[i] for i in ids}, list(sos), list(eos)))

    ya = call("ab", sos="ab")
    call("bc", sos="c", eos="b")
    call("z", sos="z")
    yd = call("cd", sos="d", eos="c")
    end = call("a", eos="a")
    assert set(model.live_ids) == {"z", "d"}
    for y in (ya, yd, end):  # d is live, and joined to a through c and b; z is not
        with pytest.raises(ModeError) as caught:
            y.tensor().sum().backward()
        assert caught.value.ids == ("d",)
    assert no_gradients(model, *x.values())
    model.reset("d")  # streams that are given up count no more
    sum(y.tensor().square().sum() for y in (ya, yd, end)).backward()
    assert x["a"].grad is not None and x["z"].grad is None


def test_two_groups_are_independent_and_one_that_goes_on_spoils_a_backward_of_both():
    rng = np.random.default_rng(14)
    _, model = online("residual", VARIANTS[1])
    a, b = (torch.tensor(rng.standard_normal((3, 20)), requires_grad=True) for _ in "ab")
    yb = model(streams({"b": b}, ["b"]))
    ya = model(streams({"a": a}, ["a"], ["a"]))
    with pytest.raises(ModeError) as caught:
        (ya.tensor().sum() + yb.tensor().sum()).backward()
    assert caught.value.ids == ("b",) and no_gradients(model, a, b)
    ya = model(streams({"a": a}, ["a"], ["a"]))
    ya.tensor().sum().backward()
    assert a.grad is not None and b.grad is None
    yb = (yb, model(streams({"b": b}, (), ["b"])))
    sum(y.tensor().sum() for y in yb).backward()
    assert b.grad is not None


def test_a_stream_that_starts_anew_leaves_its_old_group():
    _, model = online("conv", VARIANTS[1])
    x = torch.randn(3, 12, dtype=torch.float64, requires_grad=True)
    y = model(streams({"a": x}, ["a"]))
    z = model(streams({"a": x}, ["a"], restart=True))
    y.tensor().sum().backward()
    assert x.grad is not None
    with pytest.raises(ModeError, match="mid-file"):
        z.tensor().sum().backward()


def test_a_failed_call_joins_no_groups():
    _, model = online("conv", VARIANTS[1])
    x = torch.randn(3, 12, dtype=torch.float64)
    y = model(streams({"a": x}, ["a"]))
    model(streams({"b": x}, ["b"]))
    handle = model.up.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(streams({"a": x, "b": x}, (), ["a"]))
    handle.remove()
    model(streams({"a": x}, (), ["a"]))
    y.tensor().sum().backward()  # b goes on, in a group of its own
    assert model.live_ids == ["b"]


# ---------------------------------------------------------------------- options
def test_an_unknown_variant_and_another_one_while_streams_live_are_refused():
    with pytest.raises(ValueError, match="train_variant"):
        ds.patch_module(made("conv"), "whole-file")
    _, model = online("conv", VARIANTS[0])
    model(streams({"a": torch.zeros(3, 9, dtype=torch.float64)}, ["a"]))
    with pytest.raises(ModeError) as caught:
        ds.patch_module(model, VARIANTS[1])
    assert caught.value.ids == ("a",)
    model.reset()
    ds.patch_module(model, VARIANTS[1])
    assert model._patch.train_variant == VARIANTS[1] and model.is_online


@pytest.mark.parametrize(("name", "variant"), by_turns(MODELS, VARIANTS[:2]))
def test_the_mode_may_change_in_mid_stream(name, variant):
    rng = np.random.default_rng(15)
    plain, model = online(name, variant)
    xs = sequences(rng, {"a": 48, "b": 40})
    ys = []
    for k, x in enumerate(calls(xs, {"a": [8] * 6, "b": [9, 0, 9, 9, 9, 4]})):
        with (torch.no_grad, torch.inference_mode)[k // 3]() if k % 3 == 1 else torch.enable_grad():
            ys.append(model.train(k % 3 != 1)(x))
        if k % 3 == 1:
            assert not ys[-1].requires_grad and not any(t.requires_grad for t in states(model))
    for i, y in gathered(ys).items():
        assert_close(y, offline(plain, xs[i]), i)
    sum(y.tensor().sum() for y in ys if y.requires_grad).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_streams_that_evaluation_took_off_the_tape_hold_no_backward_up():
    _, model = online("gru", VARIANTS[1])
    x = torch.randn(3, 9, dtype=torch.float64)
    y = model(streams({"a": x}, ["a"]))
    model.eval()(streams({"a": x}))
    y.tensor().sum().backward()
    y = model.train()(streams({"a": x}))
    with pytest.raises(ModeError, match="mid-file"):
        y.tensor().sum().backward()


def test_ids_of_other_streams_stay_untouched_by_reset():
    rng = np.random.default_rng(16)
    plain, model = online("lstm", VARIANTS[1])
    xs = sequences(rng, {"a": 10, "b": 10})
    first = model(streams({i: x[:, :6] for i, x in xs.items()}, "ab"))
    with pytest.raises(StreamIdError):
        model.reset(["a", "nobody"])
    model.reset("a")
    second = model(streams({"b": xs["b"][:, 6:]}, (), ["b"]))
    got = torch.cat([first["b"], second["b"]], 1)
    assert_close(got, offline(plain, xs["b"]))
    loss_of({"b": got}).backward()
    loss_of({"b": offline(plain, xs["b"])}).backward()
    assert_same_gradients(model, plain)
