"""Small torch models for exporting, besides the shared cases."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from dreamstream import Context, manual_seed, nn as native
from dreamstream.models import StreamingTransformer, U2Encoder


class _Written(nn.Module):
    """A forward with its layers."""

    def __init__(self, run: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Any) -> Any:
        return self.run(self, x)


def _residual() -> nn.Module:
    return _Written(
        lambda m, x: x + m.b(F.gelu(m.a(x))), a=nn.Conv1d(3, 5, 7, padding=3), b=nn.Conv1d(5, 3, 3, padding=1)
    )


def _lstm() -> nn.Module:
    return _Written(
        lambda m, x: F.log_softmax(m.head(m.rnn(F.relu(m.conv(x)).transpose(1, 2))[0]), -1),
        conv=nn.Conv1d(3, 6, 3, stride=2, padding=1),
        rnn=nn.LSTM(6, 5, 2, batch_first=True),
        head=nn.Linear(5, 4),
    )


def _pooled() -> nn.Module:
    def run(m: Any, x: Any) -> dict[str, Any]:
        y = m.conv(x)
        return {"word": m.head(y.mean(2)).log_softmax(-1), "loudest": y.amax(2), "frames": y}

    return _Written(run, conv=nn.Conv1d(3, 4, 3, padding=1), head=nn.Linear(4, 5))


def _embedding() -> nn.Module:
    return _Written(
        lambda m, x: m.conv(m.table(x).transpose(1, 2)),
        table=nn.Embedding(7, 4),
        conv=nn.Conv1d(4, 3, 3, padding=2),
    )


def _images() -> nn.Module:
    def run(m: Any, x: Any) -> Any:
        y = F.relu(m.conv(x.unsqueeze(1)))  # (B, 2, 4, L)
        return m.head(y.permute(0, 3, 1, 2).flatten(2))

    return _Written(run, conv=nn.Conv2d(1, 2, 3, stride=2, padding=1), head=nn.Linear(8, 3))


def _framed() -> nn.Module:
    return _Written(lambda m, x: m.head(x.unfold(1, 10, 4)).abs(), head=nn.Linear(10, 3, bias=False))


def _tasnet() -> nn.Module:
    """A learned basis, causal dilated layers with gates and residuals, a mask."""

    def run(m: Any, x: Any) -> Any:
        w = F.relu(m.basis(x.unsqueeze(1)))
        y, skip = m.narrow(w), 0
        for i, (wide, out) in enumerate(zip(m.wide, m.out)):
            a, b = wide(F.pad(F.layer_norm(y.mT, (4,)).mT, (2 << i, 0))).chunk(2, 1)
            h = out(torch.tanh(a) * torch.sigmoid(b))
            y, skip = y + h, skip + h
        return m.back(w * torch.sigmoid(m.mask(F.leaky_relu(skip, 0.2)))).squeeze(1)

    return _Written(
        run,
        basis=nn.Conv1d(1, 6, 4, stride=2, bias=False),
        narrow=nn.Conv1d(6, 4, 1),
        wide=nn.ModuleList(nn.Conv1d(4, 8, 3, dilation=1 << i) for i in range(2)),
        out=nn.ModuleList(nn.Conv1d(4, 4, 1) for _ in range(2)),
        mask=nn.Conv1d(4, 6, 1),
        back=nn.ConvTranspose1d(6, 1, 4, stride=2, bias=False),
    )


def _halved() -> nn.Module:
    """Gates at half the rate, laid over the frames that they were made of: as many as are in pairs."""

    def run(m: Any, x: Any) -> Any:
        y = F.interpolate(m.b(F.avg_pool1d(F.relu(m.a(x)), 2)), scale_factor=2, mode="nearest")
        return torch.sigmoid(x[..., : y.size(-1)]) * y

    return _Written(run, a=nn.Conv1d(3, 3, 5, padding=2), b=nn.Conv1d(3, 3, 3, padding=1))


def _speaker() -> nn.Module:
    """Statistics of frames, weighed by how much they say, over layers that look ahead."""

    def run(m: Any, x: Any) -> Any:
        y = F.relu(m.a(x))
        y = y + m.b(torch.cat([y[:, :3], F.relu(m.c(y[:, 3:]))], 1))
        w = torch.softmax(m.d(torch.tanh(y)), 2)
        mean = (w * y).sum(2)
        return m.head(torch.cat([mean, ((w * y * y).sum(2) - mean * mean).clamp(min=1e-2).sqrt()], 1)), y

    conv = nn.Conv1d
    return _Written(
        run,
        a=conv(3, 6, 5),
        b=conv(6, 6, 1),
        c=conv(3, 3, 3, padding=2, dilation=2),
        d=conv(6, 6, 1),
        head=nn.Linear(12, 4),
    )


def _experts() -> nn.Module:
    from dreamstream.torch.nn import FMoETransformerMLP

    return FMoETransformerMLP(4, 5, 6, top_k=2)


def _conformer() -> Any:
    """Not causal, under a chunk mask."""
    sizes = {"output_size": 8, "attention_heads": 2, "linear_units": 9, "num_blocks": 1, "cnn_module_kernel": 5}
    return U2Encoder(8, **sizes, decoding_chunk_size=2, num_decoding_left_chunks=1)


def _rotary() -> Any:
    return StreamingTransformer(8, 4, 2, 9, 2, context=Context(left=5))


def _alibi() -> Any:
    return StreamingTransformer(8, 2, 1, 9, positions="alibi", context=Context(3, 4, 1))


def _relative() -> Any:
    return native.RelPositionMultiheadAttention(8, 2, context=Context(2, 5, 1))


FEATURES, SAMPLES, FRAMES = ("B", 3, "L"), ("B", "L"), ("B", "L", 8)
#: Makes a model, torch's or native; its input's dimensions and type.
MODELS: dict[str, tuple[Callable[[], Any], tuple[Any, ...], str]] = {
    "conformer": (_conformer, FRAMES, "float32"),
    "angles": (_rotary, FRAMES, "float32"),
    "alibi": (_alibi, FRAMES, "float32"),
    "relative": (_relative, FRAMES, "float32"),
    "residual": (_residual, FEATURES, "float32"),
    "lstm": (_lstm, FEATURES, "float32"),
    "experts": (_experts, ("B", "L", 5), "float32"),
    "tasnet": (_tasnet, SAMPLES, "float32"),
    "halved": (_halved, FEATURES, "float32"),
    "speaker": (_speaker, FEATURES, "float32"),
    "pooled": (_pooled, FEATURES, "float32"),
    "embedding": (_embedding, SAMPLES, "int64"),
    "images": (_images, ("B", 8, "L"), "float32"),
    "framed": (_framed, SAMPLES, "float32"),
}


def made(name: str, seed: int = 0) -> tuple[Any, tuple[Any, ...], str]:
    """Return a model in eval mode, its spec and its type."""
    make, spec, dtype = MODELS[name]
    torch.manual_seed(seed)
    manual_seed(seed)
    return make().eval(), spec, dtype
