"""What `audit` says that training keeps, beside the memory that is freed when the tape goes."""

import gc
import tracemalloc
from functools import partial

import numpy as np
import pytest
from kept_models import KINDS, network
from recipes import conformer, cross_entropy, ctc, tagger
from turns import by_turns

import dreamstream as ds
from dreamstream import nn
from dreamstream.online.kept import bytes_of

VARIANTS = ("chunk-wise-aligned", "full-file-aligned", "full-file-unaligned")
NUMPY = np.lib.tracemalloc_domain


def arrays_traced():
    found = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, NUMPY)])
    return sum(t.size for t in found.traces)


SIZES = ((10, ["anna", "bob"]), (64, ["anna"]))


@pytest.mark.parametrize(
    ("variant", "chunk", "ids"),
    [
        pytest.param(v, *s, marks=[pytest.mark.slow] * (i % 2 != j))
        for i, v in enumerate(VARIANTS)
        for j, s in enumerate(SIZES)
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_kept_is_what_is_freed(kind, variant, chunk, ids):
    n_calls, names = 4, ("B", "L", None)
    model, context = network(ds, kind)
    options = {"chunk": chunk, "ids": ids, "n_calls": n_calls, "context": context}
    said = ds.audit(model, ("B", "L", 8), train_variant=variant, **options).training
    assert not hasattr(model, "online") or context
    if variant == VARIANTS[2]:  # outputs that are held back are on the same tape
        again = network(ds, kind)[0]
        assert said == ds.audit(again, ("B", "L", 8), train_variant=VARIANTS[1], **options).training
        return
    ds.patch_module(model, train_variant=variant, context=context).online()
    tracemalloc.start()
    gc.collect()
    gc.disable()
    try:
        outputs, freed = [], []
        for k in range(n_calls):
            rows = [np.zeros((chunk, 8), np.float32) for _ in ids]
            outputs.append(model(ds.stream_tensor(rows, None, names, ids=ids, sos=k == 0)))
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
        gc.enable()
        tracemalloc.stop()
    # States are bytes, no arrays. Of whole files calls add to the keys; two frames of ten wait for their chunk.
    *_, state = KINDS[kind]
    states = [0] + [state or 64 * chunk] * (n_calls - 1)
    if kind == "attention" and variant == VARIANTS[0]:
        states = [64 * chunk * k for k in range(n_calls)]
    elif kind == "encoder" and chunk == 10:
        states = [0, state + 192, state, state + 192]
    states = [n * len(ids) for n in states] if state != 0 else [0] * n_calls
    if variant == VARIANTS[0]:
        assert [n + s for n, s in zip(freed, states)] == list(said)
    else:
        assert freed[0] + sum(states) == sum(said)


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


def looping(lib, table=False):
    """Two loops over the frames; or rows of a table by their positions."""

    class Looping(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.table = lib.nn.Linear(12, 6), lib.nn.Parameter(lib.ones(8000, 6))

        def forward(self, x):
            y = self.layer(x.transpose(1, 2))
            if table:
                return (y + self.table[: x.shape[2]]).tanh()
            h, gathered = lib.zeros(6), []
            for t in range(x.shape[2]):
                h = (y[:, t] + h * 0.5).tanh()
                gathered.append(h)
            return lib.stack([frame * 2 for frame in y.transpose(0, 1)], 1) + lib.stack(gathered, 1)

    return Looping()


#: Of each network: the features of its input, what its attention sees, and the loss of a chunk of its output.
CHUNKWISE = {
    "given once": (network_of, 4, None, lambda lib, y: y["a"].square().sum()),
    "convolution and GRU": (tagger, 12, None, lambda lib, y: cross_entropy(lib)(y, lib.tensor([[1] * 2]))),
    "Conformer": (
        partial(conformer, causal=False),
        12,
        ds.Context(left=8),
        lambda lib, y: cross_entropy(lib)(y, lib.tensor([[1] * 2])),
    ),
    "loops": (looping, 12, None, lambda lib, y: y["a"].square().sum()),
    "a table": (partial(looping, table=True), 12, None, lambda lib, y: y["a"].square().sum()),
    "CTC": (tagger, 12, None, lambda lib, y: ctc(lib)(y, [np.array([1])])),
}


@pytest.mark.parametrize("last", [25, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("recipe", "front"), by_turns(CHUNKWISE, ["native", "torch"]))
def test_the_last_of_many_chunks_keeps_what_the_tenth_keeps(recipe, front, last):
    """As many bytes of arrays with the collector off, and objects, but for those that interpreters keep."""
    lib = pytest.importorskip("torch") if front == "torch" else ds
    make, features, context, loss_of = CHUNKWISE[recipe]
    model = ds.patch_module(make(lib), context=context).train().online()
    optimizer = lib.optim.Adam(model.parameters())
    frames = np.full((features, 4), 0.5, np.float32)
    frames, gain = (x if lib is ds else lib.from_numpy(x) for x in (frames, np.float32([2.0])))

    def kept():
        objects = gc.get_objects()
        if lib is ds:
            traces = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, NUMPY)]).traces
            return len(traces), sum(t.size for t in traces), len(objects)
        arrays = [x for x in objects if issubclass(type(x), lib.Tensor)]
        return len(arrays), sum(x.untyped_storage().nbytes() for x in arrays), len(objects)

    gc.collect()
    gc.disable()
    if lib is ds:
        tracemalloc.start()
    try:
        found = {}
        for k in range(last + 1):
            x = ds.stream_tensor([frames], ids="a", sos=k == 0)
            once = ds.static({"a": gain}) if k == 0 else None
            y = model(x, once) if make is network_of else model(x)
            if y.lengths.sum() == 2 or recipe in ("given once", "loops", "a table"):
                optimizer.zero_grad()
                loss_of(lib, y).backward()
                optimizer.step()
            if k in (9, 10, last):
                found[k] = kept()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert found[last][:2] == found[10][:2]
    assert found[last][2] - found[10][2] < 10
