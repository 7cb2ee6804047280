"""Batches of torch's stream tensors: StreamLoader's, and what torch's DataLoader makes of single ones."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import dreamstream as ds
from dreamstream.data import StreamLoader


class Ones:
    def __call__(self):
        return [np.ones(7, np.float32)] * 3


SOURCES = {
    "tensors": lambda: {"anna": torch.arange(30.0), "bob": torch.ones(12)},
    "half precision": lambda: {"anna": torch.ones(30, dtype=torch.bfloat16)},
    "arrays": lambda: {"anna": np.ones(30, np.float32), "bob": np.ones(12, np.float32)},
    "functions": lambda: {"anna": Ones(), "bob": Ones()},
    "pieces": lambda: {"anna": [torch.ones(7), torch.ones(9)]},
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("workers", [0, 1])
def test_torch_batches(name, workers):
    batches = list(StreamLoader(SOURCES[name](), 8, workers=workers, tensors="torch"))
    assert all(isinstance(x, ds.torch.StreamTensor) and x.names == ("B", "L") for x in batches)
    if name == "tensors":
        assert torch.equal(torch.cat([x["anna"] for x in batches]), torch.arange(30.0))
        assert type(next(iter(StreamLoader(SOURCES[name](), 8, tensors="numpy")))) is ds.StreamTensor
        assert isinstance(next(iter(StreamLoader(SOURCES[name](), 8))), ds.torch.StreamTensor)
    if name == "half precision":
        assert batches[0].dtype == torch.bfloat16


def test_a_model_over_recordings():
    model = ds.patch_module(nn.LeakyReLU()).eval().online()
    items = {"anna": np.arange(-9.0, 40, dtype=np.float32), "bob": np.ones(3, np.float32)}
    got = dict(ds.data.bulk(model, items, chunk=10))
    assert torch.equal(got["anna"], nn.functional.leaky_relu(torch.arange(-9.0, 40))) and got["bob"].shape == (3,)
    assert not got["anna"].requires_grad
    model.train()
    with pytest.raises(ds.ModeError, match=r"eval\(\)"):
        ds.data.bulk(model, items)


# ---------------------------------------------------------------------- torch's DataLoader
def fails(loader):
    """Read from a loader that raises, and end its workers; torch waits five seconds for each that is collected."""
    batches = iter(loader)
    try:
        next(batches)
    finally:
        if loader.num_workers:
            batches._shutdown_workers()


def single(i, n, batched):
    x = ds.stream_tensor([torch.full((n, 3), float(n))], ids=[i], sos=True, eos=n == 4, names=("B", "L", "F"))
    return x if batched else x[0]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("form", ["alone", "pair", "dict"])
def test_rows_without_b_become_a_batch(workers, form):
    rows = [single("anna", 5, False), single("bob", 4, False)]
    data = {"alone": rows, "pair": [(x, 1) for x in rows], "dict": [{"x": x} for x in rows]}[form]
    (batch,) = DataLoader(data, batch_size=2, num_workers=workers)
    x = {"alone": lambda: batch, "pair": lambda: batch[0], "dict": lambda: batch["x"]}[form]()
    assert isinstance(x, ds.torch.StreamTensor)
    assert (x.ids, x.lengths.tolist(), x.eos.tolist()) == (["anna", "bob"], [5, 4], [False, True])
    assert torch.equal(x["bob"], torch.full((4, 3), 4.0))


@pytest.mark.parametrize("workers", [0, 1])
def test_rows_with_b_are_joined_by_cat(workers):
    data = [single("anna", 5, True), single("bob", 4, True)]
    with pytest.raises(ds.StreamIdError, match=r"collate_fn=torch\.cat"):
        fails(DataLoader(data, batch_size=2, num_workers=workers))
    (x,) = DataLoader(data, batch_size=2, num_workers=workers, collate_fn=torch.cat)
    assert x.ids == ["anna", "bob"] and x.lengths.tolist() == [5, 4]


def test_stack_of_the_same_streams_stays():
    x = single("anna", 5, True)
    assert torch.stack([x, x]).names == (None, "B", "L", "F")
    assert torch.stack([x]).shape == (1, 1, 5, 3)
    out = torch.empty(2, 1, 5, 3)
    assert torch.stack([x, x], out=out) is out and out.eq(5).all()


@pytest.mark.parametrize(
    "function", [torch.add, torch.maximum, torch.matmul, torch.cat, torch.cumsum, torch.softmax]
)
def test_out_of_none_is_as_if_it_were_not_given(function):
    x = single("anna", 5, True)
    args = {torch.matmul: (x, torch.eye(3)), torch.cat: ([x, x], 2), torch.cumsum: (x, 2), torch.softmax: (x, 2)}
    args = args.get(function, (x, x))
    assert torch.equal(function(*args, out=None).tensor(), function(*args).tensor())


class Loaded(IterableDataset):
    def __iter__(self):
        yield from StreamLoader({"anna": np.zeros(9, np.float32)}, 4, tensors="torch")


def test_a_loader_within_workers_of_torch():
    assert [x.lengths.tolist() for x in DataLoader(Loaded(), batch_size=None, num_workers=1)] == [[4], [4], [1]]
    with pytest.raises(ds.ModeError, match="each of the 2 workers of torch's DataLoader would read all streams"):
        fails(DataLoader(Loaded(), batch_size=None, num_workers=2))
