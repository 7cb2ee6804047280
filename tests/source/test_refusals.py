"""`docs/howto/refused.md` lists the refusals of `dreamstream.operations`, and each is what is raised.

``python tests/source/test_refusals.py`` writes the page's table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.operations import REFUSALS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "refused.md"
HEAD = "| refused | because | what works |\n|---|---|---|\n"

Forward = Callable[[Any], Any]

#: What is refused, by the first words of its row: layers, or functions of a stream (B, 4, L).
SAMPLES: dict[str, nn.Module | Forward] = {
    "attention": lambda x: F.scaled_dot_product_attention(*3 * [x.transpose(1, 2)]),
    "`attn_mask=`": lambda x: F.scaled_dot_product_attention(*3 * [x.transpose(1, 2)], ds.ones(9, 9)),
    "bidirectional": nn.LSTM(4, 2, bidirectional=True),
    "GroupNorm": nn.GroupNorm(2, 4),
    "BatchNorm": nn.BatchNorm1d(4, track_running_stats=False),
    "circular padding of a": nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular"),
    "circular padding of both": nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"),
    "adaptive": nn.AdaptiveAvgPool1d(2),
    "`F.interpolate`": lambda x: F.interpolate(x, scale_factor=1.5),
    "`F.pad`": lambda x: F.pad(x, (1, 1), "circular"),
    "softmax": lambda x: F.softmax(x, 2),
    "`x.cumsum(2)`": lambda x: x.cumsum(2),
    "`x[..., -1]`": lambda x: x[..., -1],
    "`x[..., -9:]`": lambda x: x[..., -9:],
    "`x[..., :9]`": lambda x: x[..., :9],
    "`if": lambda x: x if x.size(2) > 10 else -x,
    "`int": lambda x: x * int(x.size(2)),
    "`np.asarray(x)`": np.asarray,
    "`x - x.mean": lambda x: x - x.mean(2, keepdim=True),
    "`x.std(2)`": lambda x: x.std(2),
    "`x.sum(0)`": lambda x: x.sum(0),
    "`x + x": lambda x: x + x[..., ::2],
    "a constant": lambda x: x + ds.ones(9),
    "`cat`": lambda x: ds.cat([x, x], 2),
    "`x @ y`": lambda x: x @ x.transpose(1, 2),
}


class Model(nn.Module):
    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def table() -> str:
    """The page's table."""
    lines = []
    for row in REFUSALS:
        remedy = row.remedy + (', or `unstreamable="buffer"`' if row.waits else "")
        lines.append(f"| {row.what} | {row.reason} | {remedy} |\n")
    return HEAD + "".join(lines)


def written(text: str) -> str:
    """The page with the table in it."""
    return re.sub(re.escape(HEAD) + r"(\|.*\n)*", lambda _: table(), text)


def test_page():
    assert HEAD in PAGE.read_text()
    assert written(PAGE.read_text()) == PAGE.read_text(), f"run python {Path(__file__).name}"


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row.what)
def test_what_is_raised(row):
    sample = next(sample for begin, sample in SAMPLES.items() if row.what.startswith(begin))
    x = ds.stream_tensor([np.ones((4, 9), np.float32)], ids=["anna"], sos=True)
    model = sample if isinstance(sample, nn.Module) else Model(sample)
    with pytest.raises((ds.NotStreamableError, ds.StreamMismatchError)) as raised:
        ds.patch_module(model).online()(x)
    reason, remedy = row.words
    assert reason in str(raised.value)
    assert remedy in str(raised.value)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
