"""Each row of the table of lowerings: its example is right and runs the row's operator, and what it refuses is."""

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.array.lowerings import LOWERINGS

ROWS = {f"{done}: {row.pattern}": row for done, rows in LOWERINGS.items() for row in rows}
#: Other spellings of frames at positions, and of parts.
PICKED = {
    "by name": "y = x.index_select(dim=1, index=(i - 3).clamp(0)) + x[:, (i - 1).clamp(0)]",
    "gather": "y = x.gather(dim=1, index=(i - 3).clamp(0).view(1, -1, 1).expand(x.size(0), -1, 8))",
    "along a dimension": "y = x.take_along_dim(indices=(i - 3).clamp(0).view(1, -1, 1), dim=1)",
    "slices": "y = x[:, ds.arange(2, x.size(1))] + x.index_select(dim=1, index=i[2:])",
    "every other, twice": "y = x[:, ds.arange(0, x.size(1), 2)]; y = y[:, ds.arange(2 * y.size(1)) // 2]",
    "split": "y = x.split([2, x.size(1) - 2], 1)[1]",
    "split in three": "a, y, b = x.split([2, x.size(1) - 5, 3], 1)",
}
EXAMPLES = ROWS | {name: LOWERINGS["places"][0]._replace(example=code) for name, code in PICKED.items()}


class Example(nn.Module):
    """Runs a row's code, in the names that its page gives."""

    def __init__(self, code):
        super().__init__()
        self.code, self.qkv = compile(code, "the example", "exec"), nn.Linear(8, 24)
        self.table = nn.Parameter(ds.randn(40, 8))

    def forward(self, x):
        q, k, v = (y.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        own = {
            "x": x,
            "q": q / 2,
            "k": k,
            "v": v,
            "i": ds.arange(x.shape[1]),
            "table": self.table,
            "F": F,
            "ds": ds,
        }
        own |= {"i": ds.arange(x.shape[1]), "m": x[..., 0] > 0, "c": -x[..., 0].abs().cumsum(1)}
        exec(self.code, own)
        return own["y"]


@pytest.mark.parametrize("row", EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_becomes_what_it_says(row, rng):
    model = Example(row.example).eval()
    x = rng.standard_normal((11, 8)).astype(np.float32)
    want = np.asarray(getattr(whole := model(ds.tensor(x[None])), "_array", whole))
    engine = ds.compile(model, ("B", "L", 8))
    out = [engine.step({"a": x[a : a + 4]}, sos=["a"] * (a == 0), eos=["a"] * (a == 8))["a"] for a in (0, 4, 8)]
    found = np.concatenate([np.atleast_1d(y) for y in out if y is not None], -2 if want.ndim == 4 else 0)
    np.testing.assert_allclose(found.reshape(want.shape), want, atol=1e-5)
    assert row.becomes in {node["name"] for node in engine._core.nodes} or row.becomes[0].isupper()


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_what_a_row_refuses(row):
    with pytest.raises((ds.NotStreamableError, ds.ShapeError), match=row.because):
        ds.compile(Example(row.refused).eval(), ("B", "L", 8))
