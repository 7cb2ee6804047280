"""Kept and new frames are put together in memory as by `cat` of torch, or left alone where it is not plain."""

import numpy as np
import pytest
import torch

from dreamstream import _core

ROWS, BACK, TAIL, WIDTH, FEATURES = 3, 4, 5, 6, 2


def asked(added, offset=1, seen=5, taps=(1, 1, 1), **other):
    """A window, and what its `take` is given; `added` frames come to each row; `taps`, stride and dilation."""
    generator, span = torch.Generator().manual_seed(len(added)), (taps[0] - 1) * taps[2] + 1
    table = torch.randn(2 * ROWS, WIDTH, FEATURES, generator=generator)
    counts = np.array([[9, -1, 9 + n, -1] for n in added])
    given = {
        "table": table,
        "old": slice(0, 2 * ROWS, 2),
        "next": slice(1, 2 * ROWS, 2),
        "value": torch.randn(sum(added), FEATURES, generator=generator),
        "counts": counts,
        "out": torch.full((ROWS, (seen - span) // taps[1] + 1, FEATURES * taps[0]), 7.0),
    }
    new = added[0] if len(set(added)) == 1 else -1
    return _core.Window(torch.Tensor, ROWS, BACK, new, TAIL, offset, seen, *taps), {**given, **other}


@pytest.mark.parametrize("added", [[3, 3, 3], [1, 1, 1], [3, 2, 3], [1, 4, 3]], ids=str)
def test_columns_are_what_torch_puts_together(added):
    window, given = asked(added)
    rows = zip(given["table"][given["old"], :BACK], given["value"].split(added))
    want = [torch.cat([kept, new]) for kept, new in rows]
    kept = given["table"][given["old"]].clone()
    assert window.take(*given.values())
    for row, (frames, out, after) in enumerate(zip(want, given["out"], given["table"][given["next"]])):
        seen = frames[1:6]
        assert torch.equal(out[: len(seen)], seen) and not out[len(seen) :].any(), row
        assert torch.equal(after[:TAIL], frames[-TAIL:]) and not after[TAIL:].any(), row
    assert torch.equal(given["table"][given["old"]], kept)  # the state before the call stays


@pytest.mark.parametrize("taps", [(1, 1, 1), (3, 1, 1), (2, 2, 1), (2, 1, 3), (5, 1, 1)], ids=str)
@pytest.mark.parametrize("added", [[3, 3, 3], [3, 2, 3]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_windows_are_laid_side_by_side(added, taps, dtype):
    window, given = asked(added, taps=taps)
    given = {name: x.to(dtype) if isinstance(x, torch.Tensor) else x for name, x in given.items()}
    given["value"] = given["value"].T.contiguous().T  # and frames that lie otherwise are read as they lie
    columns, plain = asked(added)
    assert columns.take(*plain.values()) and window.take(*given.values())
    size, stride, dilation = taps
    want = plain["out"].unfold(1, (size - 1) * dilation + 1, stride)[..., ::dilation]
    assert torch.equal(given["out"], want.flatten(2).to(dtype))
    assert torch.equal(given["table"], plain["table"].to(dtype))


OTHERS = {
    "rows that don't lie evenly": {"old": torch.tensor([0, 2, 4])},
    "rows beyond the table": {"next": slice(3, 9, 2)},
    "another type": {"value": torch.randn(9, FEATURES, dtype=torch.float64)},
    "a type of the same size": {"value": torch.zeros(9, FEATURES, dtype=torch.int32)},
    "planes that lie otherwise": {"value": torch.randn(9, 1, FEATURES).expand(9, 2, -1)[:, :, :1]},
    "frames to be negated": {
        "value": torch.complex(torch.randn(9, FEATURES), torch.randn(9, FEATURES)).conj().imag
    },
    "too few frames": {"value": torch.randn(8, FEATURES)},
    "a result that is too small": {"out": torch.empty(ROWS, 4, FEATURES)},
    "a narrow table": {"table": torch.randn(2 * ROWS, 3, FEATURES)},
    "a table elsewhere": {"table": torch.empty(2 * ROWS, WIDTH, FEATURES, device="meta")},
    "a parameter": {"value": torch.nn.Parameter(torch.randn(9, FEATURES))},
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_plain_is_left_alone(name):
    window, given = asked([3, 3, 3], **OTHERS[name])
    before = given["table"].clone()
    assert not window.take(*given.values())
    assert given["out"].eq(7).all() or name == "a result that is too small"
    assert given["table"].is_meta or torch.equal(given["table"], before)


def test_most_columns_must_have_frames():
    window, given = asked([1, 9, 1])
    assert not window.take(*given.values())


def test_what_is_no_window_is_refused():
    with pytest.raises(ValueError, match="no columns are before the first"):
        _core.Window(torch.Tensor, ROWS, BACK, 1, TAIL, -1, 5)
    with pytest.raises(ValueError, match="taps must be within"):
        _core.Window(torch.Tensor, ROWS, BACK, 1, TAIL, 0, 5, 3, 1, 3)
    window, given = asked([3, 3, 3])
    with pytest.raises(TypeError, match="take"):
        window.take(given["table"])
