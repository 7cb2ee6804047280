"""Mixture of experts, layer by layer of the stack: operators first."""

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def tensor(*shape: int, seed: int = 0, dtype: str = "float32") -> ds.Tensor:
    return ds.tensor(rng(seed).standard_normal(shape).astype(dtype))


class TestOperators:
    def test_choices_are_added_in_their_order(self):
        x = ds.tensor(np.array([[1e8, 1.0, -1e8]], np.float32))
        ones = ds.tensor(np.ones((1, 3), np.float32))
        assert F.combine(x, ones).numpy().item() == 0  # in any other order 1
        assert F.combine(ds.tensor(np.array([[1e8, -1e8, 1.0]], np.float32)), ones).numpy().item() == 1

    def test_the_first_of_equals_comes_first(self):
        values, indices = F.topk(ds.tensor(np.float32([[1, 3, 2, 3, 3]])), 2)
        assert indices.numpy().tolist() == [[1, 3]] and values.numpy().tolist() == [[3, 3]]
        assert F.topk(ds.tensor(np.float32([[1, np.nan, 2]])), 2).indices.numpy().tolist() == [[1, 2]]

    @pytest.mark.parametrize("limit", [2, 2**31, 2**31 + 2, 2**62])
    def test_integers_of_any_size(self, rng, limit):
        """Those of 32 bits are put in order otherwise than others: at both ends, and beyond."""
        x = rng.integers(-limit, limit, (20, 9))
        x[0, :4] = -limit, limit - 1, limit - 1, -limit
        at = np.argsort(-x, axis=-1, kind="stable")
        values, places = F.topk(ds.tensor(x), 5)
        assert np.array_equal(places.numpy(), at[:, :5])
        assert np.array_equal(values.numpy(), np.take_along_axis(x, at[:, :5], -1))

    def test_other_dimensions(self):
        x = tensor(4, 5)
        values, _ = F.topk(x, 2, dim=0, largest=False)
        assert np.array_equal(values.numpy(), np.sort(x.numpy(), 0)[:2])

    @pytest.mark.parametrize("k", [0, 6])
    def test_too_many(self, k):
        with pytest.raises(ds.ShapeError, match=f"topk: expected k from 1 to 5, got {k}"):
            F.topk(tensor(4, 5), k)

    def test_an_index_that_is_no_experts(self):
        with pytest.raises(ds.DreamStreamError, match="expert 3 is out of range, expected 0 to 2, or -1 for none"):
            F.expert_linear(tensor(2, 4), ds.tensor(np.array([[0], [3]])), tensor(3, 5, 4))

    def test_shapes_that_do_not_fit(self):
        index = ds.tensor(np.zeros((2, 1), np.int64))
        with pytest.raises(ds.ShapeError, match=r"expected input 0 to have shape \(..., 7\)"):
            F.expert_linear(tensor(2, 4), index, tensor(3, 5, 7))
        with pytest.raises(ds.ShapeError, match="'bias'"):
            F.expert_linear(tensor(2, 4), index, tensor(3, 5, 4), tensor(2, 5))
        with pytest.raises(ds.DTypeError, match="int64"):
            F.expert_linear(tensor(2, 4), tensor(2, 1), tensor(3, 5, 4))

    def test_logits_do_not_depend_on_how_many_rows_there_are(self):
        x, weight = tensor(300, 257), tensor(32, 257, seed=1)
        whole = F.router(x, weight).numpy()
        for n in (1, 2, 3, 7, 100):
            assert F.router(x[:n], weight).numpy().tobytes() == whole[:n].tobytes()


class Routed(nn.Module):
    """The tokens' experts by nearly tied logits."""

    def __init__(self) -> None:
        super().__init__()
        r = rng(3)
        one = r.standard_normal(64)
        near = one + 1e-7 * r.standard_normal((16, 64))
        self.gate = nn.Parameter(near.astype(np.float32))
        self.weight = nn.Parameter(r.standard_normal((16, 48, 64)).astype(np.float32))

    def forward(self, x):
        logits = F.router(x, self.gate)
        values, index = F.topk(logits, 2)
        return F.combine(F.expert_linear(x, index, self.weight), values.softmax(-1)), index


def test_near_ties_are_broken_alike():
    """Offline, and in chunks, batches, threads: the same experts for every token."""
    model = Routed().eval()
    streams = [rng(i).standard_normal((n, 64)).astype(np.float32) for i, n in enumerate((40, 1, 17, 133))]
    wanted = [model(ds.tensor(x[None]))[1].numpy()[0] for x in streams]
    gap = np.diff(np.sort(F.router(ds.tensor(streams[0]), model.gate).numpy(), -1)[:, -3:])
    assert gap.min() == 0 and gap.max() < 1e-3
    for threads in (1, 2):
        engine = ds.compile(model, ("B", "L", 64), threads=threads)
        for chunk in (1, 5, 200):
            got = [[] for _ in streams]
            for at in range(0, max(map(len, streams)), chunk):
                live = [i for i, x in enumerate(streams) if at < len(x)]
                out = engine.step(
                    {str(i): streams[i][at : at + chunk] for i in live},
                    sos=[str(i) for i in live] if at == 0 else (),
                    eos=[str(i) for i in live if at + chunk >= len(streams[i])],
                )
                for i in live:
                    got[i].append(np.asarray(out[str(i)][1]))
            for i, parts in enumerate(got):
                assert np.array_equal(np.concatenate(parts), wanted[i]), (threads, chunk, i)
