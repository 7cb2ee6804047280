"""What `audit` says that training keeps, beside the memory that is freed when the tape goes."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import nn
from dreamstream.online.kept import bytes_of

VARIANTS = ("chunk-wise-aligned", "full-file-aligned", "full-file-unaligned")
NUMPY = np.lib.tracemalloc_domain


class Tagger(nn.Module):
    """Its states are 4 frames of 8 features, and h and c of 16; nothing reads what its last layer gives."""

    STATE = 4 * (4 * 8 + 2 * 16)

    def __init__(self):
        super().__init__()
        self.conv, self.rnn = nn.Conv1d(8, 16, 5, stride=2, padding=2), nn.LSTM(16, 16, batch_first=True)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x):
        y, _ = self.rnn(self.conv(x).relu().transpose(1, 2))
        return self.head(self.norm(y * 2 + 1))


def arrays_traced():
    gc.collect()
    found = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, NUMPY)])
    return sum(t.size for t in found.traces)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("chunk", "ids"), [(10, ["anna", "bob"]), (64, ["anna"])])
def test_kept_is_what_is_freed(variant, chunk, ids):
    model, n_calls = Tagger(), 4
    said = ds.audit(model, ("B", 8, "L"), train_variant=variant, chunk=chunk, ids=ids, n_calls=n_calls).training
    assert not hasattr(model, "online")
    ds.patch_module(model, train_variant=variant).train().online()
    tracemalloc.start()
    try:
        outputs, freed = [], []
        for k in range(n_calls):
            outputs.append(
                model(ds.stream_tensor([np.zeros((8, chunk), np.float32) for _ in ids], ids=ids, sos=k == 0))
            )
            if variant == VARIANTS[0]:
                own = outputs[0].value.nbytes
                before = arrays_traced()
                outputs.clear()
                freed.append(before - arrays_traced() - own)
        if variant != VARIANTS[0]:
            own = sum(y.value.nbytes for y in outputs)
            model.reset()  # which knows the places of its streams on the tape
            before = arrays_traced()
            outputs.clear()
            freed = [before - arrays_traced() - own]
    finally:
        tracemalloc.stop()
    states = [0, *[Tagger.STATE * len(ids)] * (n_calls - 1)]  # bytes, no arrays
    if variant == VARIANTS[0]:
        assert [n + s for n, s in zip(freed, states)] == list(said)
    elif variant == VARIANTS[1]:
        assert freed[0] + sum(states) == sum(said)
    else:  # outputs that are held back are on the same tape
        options = {"chunk": chunk, "ids": ids, "n_calls": n_calls}
        assert said == ds.audit(Tagger(), ("B", 8, "L"), train_variant=VARIANTS[1], **options).training
    assert len(set(said[1:])) == 1 and said[1] > 0


def test_nothing_has_changed():
    ds.manual_seed(3)
    model = nn.Sequential(nn.Conv1d(8, 4, 3), nn.Dropout(0.0))
    before, state = model.state_dict(), ds.manual_seed(3).bit_generator.state
    ds.audit(model.eval(), ("B", 8, "L"), train_variant=VARIANTS[0])
    assert not model.training and all(np.array_equal(v, before[k]) for k, v in model.state_dict().items())
    assert ds.array.creation.generator().bit_generator.state == state


def test_memory_that_tensors_share_counts_once():
    """The same frames are read by three operators."""

    class Shared(nn.Module):
        def forward(self, x):
            return (x * x + x.tanh() * x) * self.w

    one = Shared()
    one.w = nn.Parameter(ds.ones(1))
    said = ds.audit(one, ("B", 8, "L"), train_variant=VARIANTS[0], chunk=100).training[0]
    assert said < 6 * 8 * 100 * 4


class Looking(nn.Module):
    """Attention whose queries see all that came before."""

    def __init__(self):
        super().__init__()
        self.all, self.out = nn.Linear(6, 18), nn.Linear(6, 2)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (3, 2)).transpose(1, 2) for t in self.all(x.mT).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2)).tanh()


def test_keys_that_only_grow_are_kept_once():
    """Every call adds as much, gradients are the whole file's, and states are the same as in evaluation."""
    ids, n_calls, files = ["anna", "bob"], 30, np.random.default_rng(5).standard_normal((2, 6, 90))
    options = {"train_variant": VARIANTS[1], "chunk": 3, "ids": ids, "n_calls": n_calls}
    said = ds.audit(Looking(), ("B", 6, "L"), **options).training
    assert len(set(said[1:])) == 1 and said[1] < 5000
    model = ds.patch_module(Looking().double(), train_variant=VARIANTS[1]).train().online()
    outputs, states = [], []
    for training in (False, True):
        model.reset()
        model.train(training)
        for k in range(n_calls):
            if k == n_calls - 1:
                states.append(model.get_state())
            rows = list(files[:, :, 3 * k : 3 * k + 3])
            y = model(ds.stream_tensor(rows, ids=ids, sos=k == 0, eos=k == n_calls - 1))
            outputs += [y] * training
    assert states[0] == states[1]
    sum((y.square().sum() for y in outputs), ds.zeros((), dtype=ds.float64)).backward()
    got = [p.grad for p in model.parameters()]
    model.zero_grad()
    model.offline()(ds.tensor(files)).square().sum().backward()
    for a, p in zip(got, model.parameters()):
        np.testing.assert_allclose(a, p.grad, rtol=1e-11, atol=1e-11)


def network_of(library):
    nn = library.nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.rnn = nn.Conv1d(4, 6, 3, padding=1), nn.GRU(6, 6, batch_first=True)

        def forward(self, x, gain):
            y = self.conv(x).transpose(1, 2) * gain.unsqueeze(-1)
            return self.rnn(y)[0].cumsum(1)

    return Network()


@pytest.mark.parametrize("variant", VARIANTS[:2])
def test_kept_of_what_is_given_once(variant):
    """As of inputs that a call brings; only those of the first call may be more."""
    ids, spec = ["anna", "bob"], {"x": ("B", 4, "L"), "gain": ("B", 1)}
    model, n_calls = network_of(ds), 4
    said = ds.audit(model, spec, train_variant=variant, chunk=20, ids=ids, n_calls=n_calls).training
    ds.patch_module(model, train_variant=variant).train().online()
    outputs, kept = [], []
    for k in range(n_calls):
        x = ds.stream_tensor([np.zeros((4, 20), np.float32)] * 2, ids=ids, sos=k == 0)
        outputs.append(model(x, ds.static({i: np.zeros(1, np.float32) for i in ids}) if k == 0 else None))
        own = {id(p.numpy().base) for p in model.parameters()}
        kept.append(bytes_of(outputs[-1:] if variant == VARIANTS[0] else outputs, own))
    assert list(said) == (kept if variant == VARIANTS[0] else np.diff([0, *kept]).tolist())
    assert said[1] == said[2] == said[3] > 6 * 20 * 4 * 2


@pytest.mark.parametrize(("front", "last"), [("native", 1000), ("torch", 150)])
def test_the_last_of_many_chunks_keeps_what_the_tenth_keeps(front, last):
    """With the collector off. Interpreters keep freed tuples for themselves: so objects are counted."""
    torch = pytest.importorskip("torch") if front == "torch" else None
    library = torch or ds
    model = ds.patch_module(network_of(library)).train().online()
    optimizer = library.optim.Adam(model.parameters())
    make = np.float32 if torch is None else torch.tensor
    frames, gain = make([[0.5] * 3] * 4), make([2.0])

    def kept():
        objects = gc.get_objects()
        arrays = [x for x in objects if issubclass(type(x), torch.Tensor if torch else np.ndarray)]
        return len(arrays), sum(x.nbytes for x in arrays), len(objects)

    gc.collect()
    gc.disable()
    try:
        found = {}
        for k in range(last + 1):
            x = ds.stream_tensor([frames], ids="a", sos=k == 0)
            loss = model(x, ds.static({"a": gain}) if k == 0 else None)["a"].square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if k in (9, 10, last):
                found[k] = kept()
    finally:
        gc.enable()
    assert found[last][:2] == found[10][:2] and found[last][2] - found[10][2] < 10
