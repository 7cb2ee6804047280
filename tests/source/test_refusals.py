"""Each row of the table in `docs/howto/refused.md` is what is raised: samples are refused in its words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from turns import in_blocks

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.operations import refusals

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "refused.md"
TABLE = PAGE.read_text().partition("| refused | because | what works |\n|---|---|---|\n")[2].partition("\n\n")[0]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines()]
WAITS = ', or `unstreamable="buffer"`'

Forward = Callable[[Any], Any]


class Cached(nn.Module):
    """Adds what it keeps of the call before."""

    h: Any = None

    def forward(self, x: Any) -> Any:
        y = x if self.h is None else x + self.h
        self.h = x[..., -1:]
        return y


def leaving(x: Any) -> Any:
    for t in range(x.size(2)):
        if t == 5:
            break
    return x


def growing(x: Any) -> Any:
    ys: list[Any] = []
    for t in range(x.size(2)):
        ys.append(x[..., t])
        total = ds.stack(ys, 2).sum(2)
    return total


def changing(x: Any) -> Any:
    h = x.new_zeros(x.size(0), 1)
    for t in range(x.size(2)):
        h = ds.cat([h, x[..., t]], 1)
    return h


def numbering(x: Any) -> Any:
    k, ys = 0, []
    for t in range(x.size(2)):
        if t % 3 == 0:
            k = t
        ys.append(x[..., t] * k)
    return ds.stack(ys, 2)


def counting(x: Any) -> Any:
    y, t = x.clone(), 1
    while t < x.size(2):
        y[..., t] = y[..., t] - y[..., t - 1]
        t += 1
    return y


class Keeping(nn.Module):
    """Carries a state in an attribute."""

    def forward(self, x: Any) -> Any:
        self.h: Any = None
        ys = []
        for t in range(x.size(2)):
            self.h = x[..., t] if self.h is None else x[..., t] - self.h
            ys.append(self.h)
        return ds.stack(ys, 2)


#: What is refused, by the first words of its row: layers, or functions of a stream (B, 4, L).
SAMPLES: dict[str, nn.Module | Forward] = {
    "attention": lambda x: F.scaled_dot_product_attention(*3 * [x.transpose(1, 2)]),
    "`attn_mask=`": lambda x: F.scaled_dot_product_attention(*3 * [x.transpose(1, 2)], ds.ones(9, 9)),
    "masks": lambda x: F.scaled_dot_product_attention(*3 * [x.transpose(1, 2)], (x > 0).sum(1).unsqueeze(1)),
    "bidirectional": nn.LSTM(4, 2, bidirectional=True),
    "GroupNorm": nn.GroupNorm(2, 4),
    "BatchNorm": nn.BatchNorm1d(4, track_running_stats=False),
    "circular padding of a": nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular"),
    "circular padding of both": nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"),
    "adaptive": nn.AdaptiveAvgPool1d(2),
    "`F.interpolate`": lambda x: F.interpolate(x, scale_factor=1.5),
    "`F.pad`": lambda x: F.pad(x, (1, 1), "circular"),
    "`roll`": lambda x: x.roll(1, 2) + x,
    "`x[..., 3]`": lambda x: x[..., 3],
    "`x[..., -9::2]`": lambda x: x[..., -9::2],
    "`x[..., :9]`": lambda x: x[..., :9],
    "`if x": lambda x: x if x.size(2) > 10 else -x,
    "frames that are not gone": lambda x: [x[..., t] for t in range(x.size(2))],
    "`break` and": lambda x: leaving(x),
    "a loop over frames that goes": lambda x: ds.stack([x[..., t] for t in reversed(range(x.size(2)))]),
    "`if t": lambda x: ds.stack([x[..., t] * (t == x.size(2) - 1) for t in range(x.size(2))]),
    "what a loop over frames has": lambda x: growing(x),
    "a loop over frames that carries what": lambda x: changing(x),
    "a loop over frames that carries a number": lambda x: numbering(x),
    "`while t": lambda x: counting(x),
    "what a loop over frames keeps": Keeping(),
    "in a loop over frames": lambda x: ds.stack([x[..., t] + x[:, 0] for t in range(x.size(2))], 2),
    "`int": lambda x: x * int(x.size(2)),
    "`np.asarray(x)`": np.asarray,
    "`(index == e)": lambda x: x[x > 0],
    "`x.sort(2)`": lambda x: x.sort(2),
    "`self.h = h`": Cached(),
    "what its frames use": lambda x: x - x.mean(2, keepdim=True),
    "`x.sum(0)`": lambda x: x.sum(0),
    "`x + x": lambda x: x + x[..., ::2],
    "a constant": lambda x: x + ds.ones(9),
    "`cat`": lambda x: ds.cat([x, x], 2),
    "`x @ y`": lambda x: x @ x,
}

#: The dimensions of inputs, by how many they are.
SPECS = {3: ("B", None, "L"), 4: ("B", None, None, "L")}


def called(function: Callable[..., Any], *args: Any) -> None:
    """Call a function; both ways of running a model do so in this line."""
    function(*args)


#: Likewise, what is refused in torch modules in training: functions of torch and a stream (B, L, 4).
IN_TRAINING: dict[str, Callable[[Any, Any], Any]] = {
    "the backward": lambda torch, x: _identity(torch, lambda grad: grad - grad.mean()).apply(x),
    "gradients inside": lambda torch, x: torch.autograd.grad(x, x),
    "random numbers": lambda torch, x: x * torch.rand(4),
    "`F.embedding(x, w, scale": lambda torch, x: torch.nn.functional.embedding(
        x.detach().long(), torch.nn.Parameter(torch.ones(2, 4)), scale_grad_by_freq=True
    ),
}


def _identity(torch: Any, backward: Callable[[Any], Any]) -> Any:
    members = {
        "forward": staticmethod(lambda ctx, x: x * 1.0),
        "backward": staticmethod(lambda ctx, grad: backward(grad)),
    }
    return type("Identity", (torch.autograd.Function,), members)


def _in_training(function: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """Return a torch module and its input."""
    torch = pytest.importorskip("torch")

    class OfTorch(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return function(torch, self.layer(x))

    x = ds.stream_tensor([torch.ones(9, 4)], ids=["anna"], sos=True, names=("B", "L", "F"))
    return OfTorch().train(), x


class Model(nn.Module):
    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def test_every_sample_has_a_row():
    begins = [[b for b in (*SAMPLES, *IN_TRAINING) if what.startswith(b)] for what, _, _ in ROWS]
    assert all(len(b) == 1 for b in begins)
    assert len(ROWS) == len(SAMPLES) + len(IN_TRAINING)


def test_every_refusal_has_a_row():
    said = [getattr(refusals, name) for name in refusals.__all__ if name != "Refusal"]
    assert [r.what for r in said if [r.what, r.reason, r.remedy + WAITS * r.waits] not in ROWS] == []


@in_blocks(("what", "reason", "remedy"), ROWS, 20)
def test_what_is_raised(what, reason, remedy):
    samples: dict[str, Any] = {**SAMPLES, **IN_TRAINING}
    begin = next(begin for begin in samples if what.startswith(begin))
    sample, captured = samples[begin], None
    if begin in IN_TRAINING:
        model, x = _in_training(sample)
    else:
        model = sample if isinstance(sample, nn.Module) else Model(sample)
        shape = (1, 1, 4, 9) if isinstance(sample, nn.Conv2d) else (1, 4, 9)
        x = ds.stream_tensor(np.ones(shape, np.float32), names=SPECS[len(shape)], ids=["anna"], sos=True)
        spec = [size if name is None else name for name, size in zip(SPECS[len(shape)], shape)]
        with pytest.raises((ds.NotStreamableError, ds.StreamMismatchError)) as captured:
            called(ds.compile, model, spec)
    with pytest.raises((ds.NotStreamableError, ds.StreamMismatchError)) as raised:
        called(ds.patch_module(model).online(), x)
    message = str(raised.value)
    if captured is not None:
        assert (type(captured.value), str(captured.value)) == (type(raised.value), message)
    assert reason.replace("`", "") in message
    assert remedy.removesuffix(WAITS).replace("`", "") in message
    assert ("unstreamable=" in message) >= remedy.endswith(WAITS)


#: All samples of forwards, each with what its row says of why.
EVERY = [(reason, SAMPLES[b]) for what, reason, _ in ROWS for b in SAMPLES if what.startswith(b)]


def test_all_that_is_in_the_way_is_listed_at_once():
    """Behind each refusal the forward goes on."""

    class Every(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i, (_, sample) in enumerate(EVERY):
                setattr(self, f"part{i}", sample if isinstance(sample, nn.Module) else Model(sample))

        def forward(self, x: Any) -> Any:
            given = [x.unsqueeze(1) if isinstance(sample, nn.Conv2d) else x for _, sample in EVERY]
            return [getattr(self, f"part{i}")(y) for i, y in enumerate(given)]

    with pytest.raises(ds.NotStreamableError) as caught:
        ds.compile(Every().eval(), ("B", 4, "L"), explain=True)
    said = caught.value.refusals
    for i, (reason, _) in enumerate(EVERY):
        own = [
            text for text in said if text.startswith((f"part{i} (", f"part{i}.")) or not text.startswith("part")
        ]
        assert any(reason.replace("`", "") in text for text in own), (i, reason)
    assert str(caught.value) == f"{said[0]}. Also in the way: {'; '.join(said[1:])}"


def stored(x: Any) -> Any:
    ys, h = [], x.new_zeros(x.size(0), 4)
    for t in range(x.size(2)):
        h = ds.where(x[..., t] > 0, x[..., t], h)
        ys.append(h)
    return ds.stack(ys, 2), h * 2


class Rolled(nn.Module):
    def forward(self, x: Any) -> Any:
        y = x.roll(1, 2)
        y[..., :1] = 0
        return x + y


class Asserted(nn.Module):
    def forward(self, x: Any) -> Any:
        assert x.size(2) < 1000
        if x.size(2) > 2000:
            raise ValueError("too long")
        return -x


def _attention(x: Any, **options: Any) -> Any:
    return F.scaled_dot_product_attention(*3 * [x.transpose(1, 2)], **options)


def carried(x: Any) -> Any:
    k, ys = x.new_zeros(x.size(0), 1), []
    for t in range(x.size(2)):
        if t % 3 == 0:
            k = k * 0 + t
        ys.append(x[..., t] * k)
    return ds.stack(ys, 2)


def _normed(x: Any) -> Any:
    frames = x.transpose(1, 2).reshape(-1, 4)
    return F.group_norm(frames, 2).reshape(x.size(0), x.size(2), 4)


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.at = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.at(*3 * [x.transpose(1, 2)])[0]


BUFFER = {"unstreamable": "buffer"}
CAUSAL: list[Any] = [
    lambda x: _attention(x, is_causal=True),
    (Attending(), {"context": {"at": ds.Context(chunk=4, left=8)}}),
]

#: What works in each sample's place: layers or functions of a stream, some with what `ds.compile` is given.
REMEDIES: dict[str, list[Any]] = {
    "attention": [*CAUSAL, (SAMPLES["attention"], BUFFER)],
    "`attn_mask=`": CAUSAL,
    "masks": CAUSAL,
    "bidirectional": [
        nn.LSTM(4, 2, batch_first=True), (nn.LSTM(4, 2, batch_first=True, bidirectional=True), BUFFER),
    ],
    "GroupNorm": [
        nn.BatchNorm1d(4), _normed, (SAMPLES["GroupNorm"], BUFFER),
        lambda x: F.layer_norm(x.transpose(1, 2), (4,)),
    ],
    "BatchNorm": [nn.BatchNorm1d(4)],
    "circular padding of a": [
        *(nn.Conv1d(4, 4, 3, padding=1, padding_mode=mode) for mode in ("zeros", "replicate", "reflect")),
        (SAMPLES["circular padding of a"], BUFFER),
    ],
    "circular padding of both": [
        *(nn.Conv2d(1, 1, 3, padding=1, padding_mode=mode) for mode in ("zeros", "replicate", "reflect")),
        nn.Conv2d(1, 1, 3, padding=(1, 0), padding_mode="circular"),
        (SAMPLES["circular padding of both"], BUFFER),
    ],
    "adaptive": [nn.AvgPool1d(2), lambda x: x.mean(2), (SAMPLES["adaptive"], BUFFER)],
    "`F.interpolate`": [
        lambda x: F.interpolate(x, scale_factor=2), lambda x: F.interpolate(x, scale_factor=1 / 3),
        nn.Resample(2, 3),
    ],
    "`F.pad`": [lambda x: F.pad(x, (1, 1), "replicate"), lambda x: F.pad(x, (1, 1), "reflect")],
    "`roll`": [Rolled(), lambda x: x.roll(1, 2)[..., 1:], lambda x: F.pad(x, (1, 0))[..., :-1] + x],
    "`x[..., 3]`": [lambda x: x[..., 3:], lambda x: x[..., :-3], lambda x: x[..., ::3]],
    "`x[..., -9::2]`": [lambda x: x[..., 1::2]],
    "`x[..., :9]`": [lambda x: x[..., :-9], lambda x: x[..., : x[..., 9:].size(2)]],
    "`if x": [Asserted()],
    "frames that are not gone": [lambda x: ds.stack([-x[..., t] for t in range(x.size(2))], 2)],
    "`break` and": [stored],
    "a loop over frames that goes": [lambda x: ds.stack([-x[..., t] for t in range(x.size(2))], 2)],
    "`if t": [stored],
    "what a loop over frames has": [stored, lambda x: _attention(x, is_causal=True)],
    "a loop over frames that carries what": [stored, lambda x: _attention(x, is_causal=True)],
    "a loop over frames that carries a number": [carried],
    "`while t": [stored],
    "what a loop over frames keeps": [stored],
    "in a loop over frames": [nn.Conv1d(4, 4, 3, padding=1)],
    "`int": [lambda x: x.reshape(x.size(0), 2, 2, x.size(2)), lambda x: x * ds.ones(99)[: x.size(2)]],
    "`np.asarray(x)`": [lambda x: x],
    "`(index == e)": [lambda x: ds.where(x > 0, x, -x)],
    "`x.sort(2)`": [lambda x: x.amax(2), lambda x: x.argmax(2), (SAMPLES["`x.sort(2)`"], BUFFER)],
    "`self.h = h`": [lambda x: F.pad(x, (4, 0))[..., :-4] + x, lambda x: x[..., 1:] + x[..., :-1]],
    "what its frames use": [
        lambda x: x - x.cumsum(2) / ds.arange(1, x.size(2) + 1), lambda x: (x, x.mean(2)),
        lambda x: x - x.mean(1, keepdim=True), (SAMPLES["what its frames use"], BUFFER),
    ],
    "`x.sum(0)`": [lambda x: x.mean((1, 2))],
    "`x + x": [
        lambda x: x[..., ::2][..., : x[..., 1::2].size(2)] + x[..., 1::2],
        lambda x: x[..., ::2].repeat_interleave(2, 2)[..., : x.size(2)] + x,
    ],
    "a constant": [lambda x: x + ds.ones(1), lambda x: x + ds.arange(99).float()[: x.size(2)]],
    "`cat`": [lambda x: F.pad(x, (0, 3)), lambda x: ds.cat([x, x], 1)],
    "`x @ y`": [lambda x: x.transpose(1, 2) @ ds.ones(4, 3), lambda x: ds.ones(3, 4) @ x],
}  # fmt: skip


@in_blocks(("begin", "i"), [(b, i) for b, found in REMEDIES.items() for i in range(len(found))], 15)
def test_what_works_leads_through(begin, i):
    """Chunks of a model in which a remedy stands are compared with the whole when it is compiled."""
    remedy = REMEDIES[begin][i]
    part, options = remedy if isinstance(remedy, tuple) else (remedy, {})
    model = part if isinstance(part, nn.Module) else Model(part)
    spec = (
        ("B", 1, 4, "L")
        if isinstance(part, nn.Conv2d)
        else ("B", "L", 4)
        if isinstance(part, nn.LSTM)
        else ("B", 4, "L")
    )
    ds.compile(model.eval(), spec, **options)


def test_every_sample_has_remedies():
    assert [*REMEDIES] == [*SAMPLES]
