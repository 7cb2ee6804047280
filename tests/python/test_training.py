"""Training of native modules online: every variant's gradients are the whole file's, the chunk's, and torch's."""

import copy
import gc
import pickle

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import ModeError, StreamIdError

VARIANTS = ("chunk-wise-aligned", "full-file-aligned", "full-file-unaligned")
FULL = VARIANTS[1:]


def layers(model, library):
    model.conv = library.Conv1d(3, 4, 5, stride=2, padding=2)
    model.wide = library.Conv1d(4, 4, 3, padding=2, dilation=2)
    model.rnn = library.GRU(4, 5, batch_first=True)
    model.norm = library.LayerNorm(5)
    model.head = library.Linear(5, 2)


class Recogniser(nn.Module):
    """Convolutions, one of them with stride, and a recurrent layer."""

    def __init__(self):
        super().__init__()
        layers(self, nn)

    def forward(self, x):
        y = self.conv(x).relu()
        y = (y + self.wide(y).tanh()).transpose(1, 2)
        return self.head(self.norm(self.rnn(y)[0]))


def block(model, library):
    """A small Conformer block, of either library."""
    model.before, model.inner, model.behind = (library.LayerNorm(8) for _ in range(3))
    model.q, model.k, model.v, model.out = (library.Linear(8, 8) for _ in range(4))
    model.wide, model.depth = library.Conv1d(8, 16, 1), library.Conv1d(8, 8, 5, padding=2, groups=8)
    model.front, model.head = library.Conv1d(3, 8, 3, stride=2, padding=1), library.Linear(8, 2)
    model.functions = library.functional


class Conformer(nn.Module):
    """Attention over all frames so far, a gated convolution that looks ahead, residual branches."""

    def __init__(self):
        super().__init__()
        block(self, nn)

    def forward(self, x):
        f = self.functions
        x = self.front(x).transpose(1, 2)
        y = self.before(x)
        q, k, v = (layer(y).unflatten(-1, (2, 4)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        x = x + self.out(f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = f.silu(self.depth(f.glu(self.wide(self.inner(x).transpose(1, 2)), 1)))
        return self.head(self.behind(x + y.transpose(1, 2)))


class Branches(nn.Module):
    """Branches that progress differently, a computed weight, a statistic of all frames so far, an LSTM."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Conv1d(3, 4, 4), nn.Conv1d(3, 4, 1)
        self.scale = nn.Parameter(ds.ones(4, 1))
        self.rnn = nn.LSTM(4, 3, num_layers=2, batch_first=True)

    def forward(self, x):
        y = F.pad(self.left(x), (2, 1)) * self.scale.exp() + self.right(x)
        y = y - y.cumsum(2) * 0.1
        return self.rnn(nn.AvgPool1d(3, 2)(y).transpose(1, 2))[0]


class Pooled(nn.Module):
    """One vector for each whole stream."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv1d(3, 4, 3), nn.Linear(8, 2)

    def forward(self, x):
        y = self.conv(x)
        return self.head(ds.cat([y.mean(2), y.logsumexp(2)], 1))


def made(kind, seed=0):
    model, rng = kind(), np.random.default_rng(seed)
    for p in model.parameters():
        p.numpy()[...] = rng.standard_normal(p.shape) * 0.5
    return model.double()


FILES = {"a": 23, "b": 9, "c": 1, "d": 16}


def recordings(seed=1):
    rng = np.random.default_rng(seed)
    return {i: rng.standard_normal((3, n)) for i, n in FILES.items()}


def calls(data, seed):
    """Ragged batches: in each call some streams that are live, or begin, get a chunk of some length, or none."""
    rng, at = np.random.default_rng(seed), {}
    while len(at) < len(data) or any(n < data[i].shape[1] for i, n in at.items()):
        able = [i for i in data if at.get(i, 0) < data[i].shape[1]]
        ids = [i for i in rng.permutation(able) if rng.random() < 0.7] or able[:1]
        new = {i: int(rng.integers(0, 7)) for i in ids}
        x = ds.stream_tensor(
            [data[i][:, at.get(i, 0) : at.get(i, 0) + n] for i, n in new.items()],
            ids=ids, sos=[i not in at for i in ids],
            eos=[at.get(i, 0) + n >= data[i].shape[1] for i, n in new.items()],
        )  # fmt: skip
        for i, n in new.items():
            at[i] = at.get(i, 0) + n
        yield x


def weighted(y, weights):
    """A loss whose gradient differs from frame to frame."""
    if "L" in y.dims:
        return (y * ds.train.align(y, weights)).sum()
    return sum(((y[i] * ds.tensor(weights[i][:1])).sum() for i in y.ids), ds.zeros((), dtype=ds.float64))


def gradients(model):
    return {n: p.grad.numpy().copy() for n, p in model.named_parameters()}


def assert_equal(ours, theirs, tolerance=1e-10):
    assert ours.keys() == theirs.keys()
    for name, g in theirs.items():
        np.testing.assert_allclose(ours[name], g, rtol=0, atol=tolerance * max(1, np.abs(g).max()), err_msg=name)


@pytest.mark.parametrize("variant", FULL)
@pytest.mark.parametrize("kind", [Recogniser, Conformer, Branches, Pooled])
@pytest.mark.parametrize("seed", range(3))
def test_full_files_have_the_gradients_of_offline(kind, variant, seed):
    model, data = made(kind), recordings()
    if kind in (Branches, Pooled):
        data.pop("c")  # too short for them
    with ds.no_grad():
        frames = {i: model(ds.tensor(x[None])).numpy()[0] for i, x in data.items()}
    rng = np.random.default_rng(seed)
    weights = {i: rng.standard_normal((1, *f.shape)[-2:]) for i, f in frames.items()}
    for i, x in data.items():
        (model(ds.tensor(x[None]))[0] * ds.tensor(weights[i].reshape(frames[i].shape))).sum().backward()
    offline = gradients(model)
    model.zero_grad()
    ds.patch_module(model, train_variant=variant).train().online()
    total = None
    for x in calls(data, seed):
        y = model(x)
        if y.ids:
            loss = weighted(y, weights)
            total = loss if total is None else total + loss
    total.backward()
    assert_equal(gradients(model), offline)


@pytest.mark.parametrize("variant", VARIANTS)
def test_whole_files_in_one_call_train_as_offline(variant):
    model, data = made(Recogniser), recordings()
    sum(model(ds.tensor(x[None])).square().sum() for x in data.values()).backward()
    offline = gradients(model)
    model.zero_grad()
    ds.patch_module(model, train_variant=variant).train().online()
    y = model(ds.stream_tensor(list(data.values()), ids=list(data), sos=True, eos=True))
    y.square().sum().backward()
    assert_equal(gradients(model), offline)


def test_gradients_of_inputs():
    model, data = made(Recogniser), recordings()
    x = ds.tensor(data["a"][None], requires_grad=True)
    model(x).square().sum().backward()
    ds.patch_module(model, train_variant="full-file-aligned").train().online()
    parts, losses = [], []
    for n in range(0, 23, 6):
        part = ds.stream_tensor([data["a"][:, n : n + 6]], ids="a", sos=n == 0, eos=n == 18, requires_grad=True)
        parts.append(part)
        losses.append(model(part).square().sum())
    sum(losses).backward()
    got = np.concatenate([p.grad["a"].numpy() for p in parts], 1)
    np.testing.assert_allclose(got, x.grad.numpy()[0], atol=1e-12)


# ---------------------------------------------------------------------- chunk by chunk
def test_chunks_have_gradients_of_their_own():
    """Each backward at once, or one for several calls: states are constants either way."""
    model, data = made(Recogniser), recordings()
    ds.patch_module(model).train().online()
    found = []
    for together in (False, True):
        model.zero_grad()
        losses = []
        for x in calls(data, 5):
            losses.append(model(x).square().sum())
            if not together:
                losses.pop().backward()
        if together:
            sum(losses).backward()
        found.append(gradients(model))
    assert_equal(*found)


def test_what_chunks_keep_does_not_grow():
    model, sizes = made(Recogniser), []
    ds.patch_module(model).train().online()
    rng = np.random.default_rng(0)
    gc.collect()
    gc.disable()
    try:
        for n in range(60):
            model(ds.stream_tensor([rng.standard_normal((3, 8))], ids="a", sos=n == 0)).square().sum().backward()
            if n in (10, 59):
                sizes.append(len(gc.get_objects()))
    finally:
        gc.enable()
    assert sizes[1] - sizes[0] < 50


# ---------------------------------------------------------------------- what is refused
BACKWARDS = {
    "a sum": lambda lib, y, weights: y.square().sum().backward(),
    "a row": lambda lib, y, weights: y["a"].square().sum().backward(),
    "some frames": lambda lib, y, weights: y["a"][:2].square().mean().backward(),
    "padded": lambda lib, y, weights: y.tensor().square().sum().backward(),
    "a gradient": lambda lib, y, weights: y["a"].backward(lib.ones_like(y["a"])),
    "with a weight": lambda lib, y, weights: (y["a"].sum() + weights[0].sum()).backward(),
    "autograd": lambda lib, y, weights: lib.autograd.backward([y["a"].sum()]),
    "of some weights": lambda lib, y, weights: lib.autograd.backward([y["a"].sum()], inputs=weights[:2]),
    "grad": lambda lib, y, weights: lib.autograd.grad(y["a"].sum(), weights[:2]),
}


@pytest.mark.parametrize("front", ["native", "torch"])
@pytest.mark.parametrize("how", BACKWARDS)
def test_a_backward_in_mid_file_changes_nothing(how, front):
    """However it is begun; an ended stream takes no more frames, and what is given up can be gone back through."""
    lib, data = (ds if front == "native" else pytest.importorskip("torch")), recordings()
    frames = {i: np.float32(x) if lib is ds else lib.from_numpy(np.float32(x)) for i, x in data.items()}
    net = lib.nn.Sequential(lib.nn.Conv1d(3, 4, 5, stride=2, padding=2), lib.nn.Tanh(), lib.nn.Conv1d(4, 2, 1))
    model = ds.patch_module(net, train_variant="full-file-aligned").train().online()
    weights = list(model.parameters())
    y = model(ds.stream_tensor([frames["a"], frames["b"]], ids=["a", "b"], sos=True, eos=[True, False]))
    with pytest.raises(ModeError, match="mid-file") as error:
        BACKWARDS[how](lib, y, weights)
    assert error.value.ids == ("b",) and all(p.grad is None for p in weights)
    with pytest.raises(StreamIdError, match="no such streams are live") as error:
        model(ds.stream_tensor([frames["a"]], ids="a"))
    assert error.value.ids == ("a",)
    model.reset("b")
    found = BACKWARDS[how](lib, y, weights) or [p.grad for p in weights[:2]]
    assert all(np.asarray(g).any() for g in found)


@pytest.mark.parametrize("variant", ["full-file", "standard", "Chunk-wise-aligned", "full-file-aligned ", None, 3])
def test_variants_that_there_are_not(variant):
    with pytest.raises(ValueError, match="train_variant is one of chunk-wise-aligned, full-file-aligned, full-f"):
        ds.patch_module(made(Recogniser), train_variant=variant)


def test_outputs_that_are_held_back():
    model, data = made(Recogniser), recordings()
    ds.patch_module(model, train_variant="full-file-unaligned").train().online()
    first = model(ds.stream_tensor([data["a"], data["b"]], ids=["a", "b"], sos=True, eos=[True, False]))
    assert list(first.ids) == []
    with pytest.raises(StreamIdError, match="wait for the end"):
        model(ds.stream_tensor([data["a"]], ids="a", sos=True))
    with pytest.raises(ModeError, match=r"eval\(\)"):
        model.eval()(ds.stream_tensor([data["b"][:, :2]], ids="b"))
    y = model.train()(ds.stream_tensor([data["b"][:, :0]], ids="b", eos=True))
    assert list(y.ids) == ["a", "b"] and y.lengths.tolist() == [12, 5]


# ---------------------------------------------------------------------- modes
def test_train_and_eval_may_change_in_mid_stream():
    model, data = made(Recogniser), recordings()
    with ds.no_grad():
        whole = model(ds.tensor(data["a"][None])).numpy()[0]
    ds.patch_module(model).online()
    got, other = [], None
    for n, mode in ((0, True), (6, False), (12, True), (18, False)):
        y = model.train(mode)(ds.stream_tensor([data["a"][:, n : n + 6]], ids="a", sos=n == 0, eos=n == 18))
        assert y.requires_grad == mode
        got.append(y["a"].detach().numpy())
        if n == 6:
            other = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(np.concatenate(got), whole, atol=1e-12)
    assert other is not None and other[0].live_ids == ["a"]


def test_nothing_is_recorded_unless_it_is_asked_for():
    model, data = made(Recogniser), recordings()
    ds.patch_module(model).online()
    x = ds.stream_tensor([data["a"]], ids="a", sos=True, eos=True)
    assert model.training and not model(x).requires_grad  # a new module is in training without anybody's wish
    with ds.no_grad():
        assert not model.train()(x).requires_grad
    assert model(x).requires_grad
    model.requires_grad_(False)
    assert not model(x).requires_grad


# ---------------------------------------------------------------------- given once, trainers, memory
class Voiced(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.voice, self.head = nn.Conv1d(3, 4, 3, padding=1), nn.Linear(2, 4), nn.Linear(4, 2)

    def forward(self, x, speaker):
        y = self.conv(x) + self.voice(speaker).relu().unsqueeze(-1)
        return self.head(y.transpose(1, 2))


def test_what_is_given_once(rng):
    model, x, speaker = made(Voiced), rng.standard_normal((3, 20)), rng.standard_normal(2)

    def chunks():
        for n in range(0, 20, 6):
            part = ds.stream_tensor([x[:, n : n + 6]], ids="a", sos=n == 0, eos=n == 18)
            yield model(part, ds.static({"a": speaker}) if n == 0 else None).square().sum()

    model(ds.tensor(x[None]), ds.tensor(speaker[None])).square().sum().backward()
    offline = gradients(model)
    model.zero_grad()
    ds.patch_module(model, "full-file-aligned").train().online()
    sum(chunks()).backward()
    assert_equal(gradients(model), offline)


def conditioned(lib, kind):
    """A model of streams of 4 and what they are given once: a vector of 3, or a memory of 4 features."""
    nn = lib.nn

    class Conditioned(nn.Module):
        def __init__(self):
            super().__init__()
            self.voice, self.conv = nn.Linear(4 if kind == "memory" else 3, 4), nn.Conv1d(4, 4, 3, padding=1)
            self.rnn, self.keys = nn.GRU(4, 4, batch_first=True), nn.MultiheadAttention(4, 2, batch_first=True)
            self.head = nn.Linear(4, 2)

        def forward(self, x, once):
            y, voice = self.conv(x).transpose(1, 2), lib.tanh(self.voice(once))
            if kind == "sum":
                y = y * voice.unsqueeze(1)
            elif kind == "state":
                y, _ = self.rnn(y, voice.unsqueeze(0))
            elif kind == "both":
                y = y + voice.unsqueeze(1)
                y, _ = self.rnn(y * self.head(voice).unsqueeze(1)[..., :1], voice.unsqueeze(0))
            else:
                y = y + self.keys(y, voice, voice, need_weights=False)[0]
            return self.head(y)

    return Conditioned()


@pytest.mark.parametrize("kind", ["sum", "state", "both", "memory"])
def test_what_is_given_once_has_its_gradient_in_every_chunk(rng, kind):
    """As in torch's front end, while weights change, rows come and go, and states go to another session."""
    torch = pytest.importorskip("torch")
    ours, theirs = conditioned(ds, kind).double(), conditioned(torch, kind).double()
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in ours.state_dict().items()})
    frames = {i: rng.standard_normal((4, 12)) for i in "abc"}
    once = {i: rng.standard_normal((n, 4) if kind == "memory" else 3) for i, n in zip("abc", (2, 5, 3))}
    calls = ["a0-5", "a5-6 b0-7", "b7-7 a6-12", "c0-4 b7-12", "c4-12"]
    found = []
    for model, lib, make in ((ours, ds, ds.tensor), (theirs, torch, torch.tensor)):
        ds.patch_module(model).train().online()
        given = {i: make(e) for i, e in once.items()}
        for tensor in given.values():
            tensor.requires_grad_()
        for n, call in enumerate(calls):
            rows = [(part[0], *map(int, part[1:].split("-"))) for part in call.split()]
            new = {i: given[i] for i, begin, _ in rows if begin == 0}
            x = ds.stream_tensor(
                [make(frames[i][:, a:b]) for i, a, b in rows], ids=[i for i, _, _ in rows],
                sos=[a == 0 for _, a, _ in rows], eos=[b == 12 for _, _, b in rows],
            )  # fmt: skip
            y = model(x, ds.static(new) if new else None)
            sum(y[i].square().sum() for i in y.ids).backward()
            for p in [*model.parameters(), *given.values()]:
                found.append((n, None if p.grad is None else p.grad.numpy().copy()))
            with lib.no_grad():
                for p in model.parameters():
                    if p.grad is not None:
                        p -= 0.01 * p.grad
            if n == 2:
                states = model.get_state()
                model.reset()
                model.set_state(states)
    half = len(found) // 2
    for (n, own), (_, other) in zip(found[:half], found[half:]):
        assert (own is None) == (other is None), n
        if own is not None:
            np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-10, err_msg=str(n))


def test_what_was_given_in_evaluation_is_known_in_training(rng):
    model, x, speaker = made(Voiced), rng.standard_normal((3, 20)), rng.standard_normal(2)
    ds.patch_module(model).eval().online()
    model(ds.stream_tensor([x[:, :9]], ids="a", sos=True), ds.static({"a": speaker}))
    y = model.train()(ds.stream_tensor([x[:, 9:]], ids="a", eos=True), None)
    y.square().sum().backward()
    assert np.abs(model.voice.weight.grad.numpy()).sum() > 0


def test_a_new_module_has_to_be_told_to_train():
    model = ds.patch_module(made(Recogniser))
    trainer = ds.train.ChunkTrainer(model, ds.optim.SGD(model.parameters()), F.mse_loss, chunk=5)
    with pytest.raises(ModeError, match=r"train\(\)"):
        trainer.epoch({}, {})


def test_full_files_are_freed_without_the_collector():
    model, data = made(Recogniser), recordings()
    ds.patch_module(model, "full-file-aligned").train().online()
    gc.collect()
    gc.disable()
    try:
        sizes = []
        for _ in range(3):
            losses = [model(x).square().sum() for x in calls(data, 1)]
            sum(losses).backward()
            del losses
            sizes.append(len(gc.get_objects()))
    finally:
        gc.enable()
    assert sizes[2] - sizes[1] < 50


#: Pieces of streams that a call gave, as a loss may want them.
PIECES = {
    "features": lambda x: x[..., :2],
    "a feature": lambda x: x[:, :, 1],
    "chosen features": lambda x: x[..., [0, 2]],
    "features by a mask": lambda x: x[..., np.array([True, False, True, False])],
    "a new dimension": lambda x: x[..., None],
    "all": lambda x: x[...],
    "rows": lambda x: x[:1],
    "a row": lambda x: x[1],
    "rows in another order": lambda x: x[[1, 0]],
    "frames": lambda x: x[:, 1:],
    "every second frame": lambda x: x[:, ::2],
    "the last frames": lambda x: x[:, -1:],
    "a frame": lambda x: x[:, 2],
    "narrow": lambda x: x.narrow(-1, 1, 2),
    "narrow along L": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(-1, 0),
    "chunk": lambda x: x.chunk(2, -1)[1],
    "split": lambda x: x.split(3, -1)[0],
    "unbind": lambda x: x.unbind(-1)[2],
    "unbind along B": lambda x: x.unbind(0)[0],
    "squeeze": lambda x: x[..., :1].squeeze(-1),
    "cat of features": lambda x: ds.cat([x, x], -1),
    "stack": lambda x: ds.stack([x, x], -1),
}


@pytest.mark.filterwarnings("ignore::dreamstream.errors.StreamFallbackWarning")
@pytest.mark.parametrize("name", PIECES)
def test_a_piece_of_streams_has_the_gradient_of_that_piece_of_a_plain_tensor(name):
    frames = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
    plain = ds.tensor(frames, requires_grad=True)
    streams = ds.stream_tensor(frames, ids=["anna", "otto"], names=("B", "L", None), sos=True, eos=True)
    streams.requires_grad = True
    for x in (plain, streams):
        PIECES[name](x).square().sum().backward()
    np.testing.assert_array_equal(streams.grad.numpy(), plain.grad.numpy())


@pytest.mark.parametrize("axis", [0, 1])
def test_streams_that_are_joined_keep_their_gradients(axis):
    def leaf(i, **ends):
        x = ds.stream_tensor([np.ones((3, 2), np.float32)], ids=[i], names=("B", "L", None), **ends)
        x.requires_grad = True
        return x

    first = leaf("anna", sos=True, eos=axis == 0)
    second = leaf("otto" if axis == 0 else "anna", sos=axis == 0, eos=True)
    joined = ds.cat([first * 2, second * 3], axis)
    joined.square().sum().backward()
    assert (first.grad.numpy() == 8).all() and (second.grad.numpy() == 18).all()
