"""Experts that are forced in streams: choices come as an input beside the frames."""

import numpy as np
import pytest
import torch

import dreamstream as ds
from dreamstream import nn as native
from dreamstream.torch import nn as T

D, H = 8, 6


@pytest.mark.parametrize("of", [T, native])
def test_a_forced_expert_of_one_stream(of):
    """Out of range in one of two streams: that stream is named, and neither has advanced."""

    class Forced(of.Module if of is native else torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.moe = of.FMoETransformerMLP(4, D, H)

        def forward(self, x, index):
            return self.moe(x, index=index)

    model, x = Forced().eval(), np.random.default_rng(0).standard_normal((3, D), dtype=np.float32)
    right, wrong = np.array([[0, 3], [2, 2], [1, -1]]), np.array([[0, 3], [2, 4], [1, -1]])
    dims = {"x": ("B", "L", D), "index": ("B", "L", 2)}
    engine = ds.compile(model, dims, dtype={"index": "int64"})
    ds.patch_module(model).online()

    def patched(given):
        as_given = np.asarray if of is native else torch.from_numpy
        sos = [True] * len(given)
        xs = [
            ds.stream_tensor([as_given(g[k]) for g in given.values()], ids=list(given), sos=sos, names=names)
            for k, names in zip(dims, [("B", "L", None)] * 2)
        ]
        y = model(*xs)
        return {i: y[i].detach().numpy() for i in given}

    for step in (lambda given: engine.step(given, sos=list(given)), patched):
        with pytest.raises(ds.StreamIndexError, match="expert 4 is out of range, expected 0 to 3") as seen:
            step({"anna": {"x": x, "index": right}, "bob": {"x": x, "index": wrong}})
        assert seen.value.ids == ("bob",)
        out = step({"anna": {"x": x, "index": right}, "bob": {"x": x, "index": right}})
        assert np.isfinite(out["bob"]).all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_rows_by_narrower_integers(dtype):
    table = torch.nn.Embedding(5, 3)
    online = ds.patch_module(table).online()

    def rows(*index):
        at = [torch.tensor(index, dtype=dtype)]
        return online(ds.stream_tensor(at, ids=["anna"], sos=[True], eos=[True], names=("B", "L")))["anna"]

    assert torch.equal(rows(1, 4), table.weight[[1, 4]])
    with pytest.raises(ds.StreamIndexError, match="index 5 is out of range, expected 0 to 4") as seen:
        rows(1, 5)
    assert seen.value.ids == ("anna",)
