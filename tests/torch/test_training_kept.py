"""What `audit` says that training keeps, beside the memory that is freed with the graph of a call."""

import gc

import pytest
import torch
from kept_models import KINDS, network
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import dreamstream as ds


class Storages(TorchDispatchMode):
    """Knows the memory that torch's operations have given, as long as it is there.

    Without numbers of rows, which come from NumPy: where each stands, and whether it ends.
    """

    def __init__(self, model):
        super().__init__()
        self.own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
        self.found = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() not in self.own:
                storage = t.untyped_storage()
                known = self.found.get(storage.data_ptr())
                if known is None or known[0].expired():
                    n_bytes = 0 if func is torch.ops.aten.lift_fresh.default else storage.nbytes()
                    self.found[storage.data_ptr()] = StorageWeakRef(storage), n_bytes
        return out

    def n_bytes(self):
        return sum(n for alive, n in self.found.values() if not alive.expired())


VARIANTS = ("chunk-wise-aligned", "full-file-aligned")
SIZES = ((10, ["anna", "bob"]), (64, ["anna"]))


@pytest.mark.parametrize(
    ("variant", "chunk", "ids"),
    [
        pytest.param(v, *s, marks=[pytest.mark.slow] * (i != j))
        for i, v in enumerate(VARIANTS)
        for j, s in enumerate(SIZES)
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_kept_is_what_is_freed(kind, variant, chunk, ids):
    model, context = network(torch, kind)
    options = {"chunk": chunk, "ids": ids, "n_calls": 4, "context": context}
    said = ds.audit(model, ("B", "L", 8), train_variant=variant, **options).training
    ds.patch_module(model, train_variant=variant, context=context).online()
    outputs, seen, freed = [], [], []
    gc.collect()
    gc.disable()
    try:
        with Storages(model) as storages:
            for k in range(4):
                rows = [torch.zeros(chunk, 8) for _ in ids]
                outputs.append(model(ds.stream_tensor(rows, None, ("B", "L", None), ids=ids, sos=k == 0)))
                seen.append(outputs[-1].detach())
                if variant == "chunk-wise-aligned":
                    before = storages.n_bytes()
                    outputs.clear()
                    freed.append(before - storages.n_bytes())
            if outputs:
                model.reset()
                before = storages.n_bytes()
                outputs.clear()
                freed, said = [before - storages.n_bytes()], [sum(said)]
    finally:
        gc.enable()
    assert list(said) == freed


class Looking(nn.Module):
    """Attention whose queries see all that came before: by torch's own function, with slopes, or with dropout."""

    def __init__(self, kind="causal"):
        super().__init__()
        self.all, self.out, self.kind = nn.Linear(6, 18), nn.Linear(6, 2), kind
        self.slopes = nn.Parameter(torch.tensor([0.5, 0.25]).reshape(2, 1, 1))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (2, 3)).transpose(1, 2) for t in self.all(x).chunk(3, -1))
        if self.kind == "sloped":
            at = torch.arange(x.shape[1])
            far = at[:, None] - at
            y = (q @ k.mT - self.slopes * far).masked_fill(far < 0, -torch.inf).softmax(-1) @ v
        else:
            p = 0.3 if self.kind == "dropping" else 0.0
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
        return self.out(y.transpose(1, 2).flatten(2)).tanh()


def in_calls(model, files, turns):
    """Return what a model gives of each file, whose frames come in turns: how many of each."""
    at, out = dict.fromkeys(files, 0), {name: [] for name in files}
    for turn in turns:
        ids = [i for i in turn if at[i] < len(files[i])]
        ends = [min(at[i] + turn[i], len(files[i])) for i in ids]
        rows = [files[i][at[i] : end] for i, end in zip(ids, ends)]
        sos = [not out[i] for i in ids]
        at.update(zip(ids, ends))
        eos = [at[i] == len(files[i]) for i in ids]
        y = model(ds.stream_tensor(rows, None, ("B", "L", None), ids=ids, sos=sos, eos=eos))
        for i in ids:
            out[i].append(y[i])
    return {i: torch.cat(parts) for i, parts in out.items()}


TURNS = {
    "even": [{"anna": 3, "bob": 3}] * 5,
    "ragged": [{"anna": k % 3, "bob": (k + 2) % 3} for k in range(15)],
    "that come and go": [{"anna": 2}, {"bob": 4, "anna": 3}, {"bob": 3}, {"anna": 15, "bob": 15}],
}


KEEPING = ("causal", "sloped", "dropping")
#: By default each kind has one way, and each way one kind.
WAYS = [
    pytest.param(kind, turns, marks=[pytest.mark.slow] * (KEEPING.index(kind) != list(TURNS).index(turns)))
    for kind in KEEPING
    for turns in TURNS
]


@pytest.mark.parametrize(("kind", "turns"), WAYS)
def test_keys_that_only_grow_are_kept_once(kind, turns):
    """Memory grows with the frames; gradients are the whole file's, and so are second ones."""
    said = [sum(training_of(Looking(kind), n)) for n in (16, 64)]
    assert said[1] < 5 * said[0]
    model = Looking(kind).double()
    torch.manual_seed(1)
    files = {"anna": torch.randn(15, 6).double(), "bob": torch.randn(12, 6).double()}
    weights = list(model.parameters())

    def slopes(outputs, anomaly=False):
        loss = sum(y.square().sum() for y in outputs.values())
        with torch.autograd.set_detect_anomaly(anomaly):
            again = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
            first = torch.autograd.grad(loss, weights, create_graph=True, allow_unused=True)
            used = [p for p, g in zip(weights, first) if g is not None]
            second = torch.autograd.grad(sum(g.square().sum() for g in first if g is not None), used)
        assert all(a is b is None or torch.equal(a, b) for a, b in zip(again, first))
        return [g for g in (*first, *second) if g is not None]

    ds.patch_module(model, train_variant="full-file-aligned").train().online()
    if kind == "dropping":  # no file has these masks: by differences

        def loss_of():
            torch.manual_seed(2)
            return sum(y.square().sum() for y in in_calls(model, files, TURNS[turns]).values())

        (got,) = torch.autograd.grad(loss_of(), [model.all.bias])
        for i in (0, 7, 17):
            values = []
            for step in (1e-6, -1e-6):
                with torch.no_grad():
                    model.all.bias[i] += step
                values.append(loss_of().item())
                with torch.no_grad():
                    model.all.bias[i] -= step
            assert abs((values[0] - values[1]) / 2e-6 - got[i]) < 1e-7
        return
    got = slopes(in_calls(model, files, TURNS[turns]), turns == "even")
    model.offline()
    with sdpa_kernel(SDPBackend.MATH):  # which has second derivatives
        whole = slopes({i: model(x[None])[0] for i, x in files.items()})
    assert len(got) == len(whole)
    for a, b in zip(got, whole):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def training_of(model, n_calls):
    options = {"chunk": 3, "ids": ["anna", "bob"], "n_calls": n_calls}
    return ds.audit(model, ("B", "L", 6), train_variant="full-file-aligned", **options).training
