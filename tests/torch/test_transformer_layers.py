"""Native layers of Transformers say what torch's say, with torch's weights, in torch's masks."""

import inspect
import math

import numpy as np
import pytest
import torch
from one_stream import held, patched, stepped

import dreamstream as ds
from dreamstream import nn

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")

OPTIONS = [
    {},
    {"norm_first": True, "activation": "gelu"},
    {"batch_first": True, "bias": False},
    {"activation": "tanh", "layer_norm_eps": 1e-3, "dim_feedforward": 5},
]


def made(library, kind, options):
    """A stack of three layers with a norm behind them."""
    options = dict(options)
    if (
        options.get("activation") == "tanh"
    ):  # a module's copy in a decoder layer of torch forgets one that is a module
        options["activation"] = library.functional.tanh
    layer = getattr(library, f"Transformer{kind}Layer")(8, 2, **{"dim_feedforward": 12, **options})
    return getattr(library, f"Transformer{kind}")(layer, 3, library.LayerNorm(8)).eval()


def pair(kind, options):
    """The same stack of both libraries, its layers of different weights."""
    torch.manual_seed(3)
    theirs = made(torch.nn, kind, options)
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(0.1 * torch.randn_like(p))
    ours = made(nn, kind, options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return ours, theirs


def laid(x, options):
    return x if options.get("batch_first") else x.transpose(0, 1)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@torch.no_grad()
def test_an_encoder(options):
    ours, theirs = pair("Encoder", options)
    x = laid(torch.randn(3, 11, 8), options)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(11)
    given = ds.tensor(x.numpy())
    for got, want in [
        (ours(given, is_causal=True), theirs(x, mask=mask)),
        (ours(given), theirs(x)),
        (ours.layers[0](given, is_causal=True), theirs.layers[0](x, src_mask=mask)),
    ]:
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@torch.no_grad()
def test_a_decoder(options):
    ours, theirs = pair("Decoder", options)
    x, memory = (laid(torch.randn(3, 11, 8), options) for _ in range(2))
    mask = torch.nn.Transformer.generate_square_subsequent_mask(11)
    given = [ds.tensor(x.numpy()), ds.tensor(memory.numpy())]
    for got, want in [
        (ours(*given, tgt_is_causal=True), theirs(x, memory, tgt_mask=mask)),
        (ours(*given), theirs(x, memory)),
        (ours.layers[0](*given, tgt_is_causal=True), theirs.layers[0](x, memory, tgt_mask=mask)),
    ]:
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("context", [ds.Context(4, 8), ds.Context(left=5, right=1), ds.Context()], ids=str)
@pytest.mark.parametrize("said", ["by the layer", "declared"])
@torch.no_grad()
def test_an_encoder_streams(context, said):
    """As torch offline with the mask, patched and compiled, whoever says the context."""
    ours, theirs = pair("Encoder", {"batch_first": True})
    if said == "by the layer":
        for layer in ours.layers:
            layer.self_attn.context = context
    declared = {"context": {"layers.*": context}} if said == "declared" else {}
    x = torch.randn(1, 37, 8)
    i = torch.arange(37)
    begin = i[:, None] // context.chunk * context.chunk
    hidden = i >= begin + context.chunk + context.right
    hidden |= i < begin - (99 if context.left is None else context.left)
    want = theirs(x, mask=hidden)[0].numpy()
    steps = [stepped(ds.compile(ours, ("B", "L", 8), **declared))]
    held([*steps, patched(ds.patch_module(ours, **declared).online())], x[0].numpy(), want)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@torch.no_grad()
def test_a_decoder_streams(options, tmp_path):
    """Streams with memories of other lengths, patched and from a file, as torch offline with its mask."""
    ours, theirs = pair("Decoder", options)

    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.decoder = ours

        def forward(self, x, memory):
            return laid(self.decoder(laid(x, options), laid(memory, options), tgt_is_causal=True), options)

    model, names = Causal().eval(), ("B", "L", None)
    ds.compile(model, {"x": ("B", "L", 8), "memory": ("B", "M", 8)}).save(tmp_path / "decoder.dsm")
    engine = ds.load(tmp_path / "decoder.dsm")
    ds.patch_module(model).online()
    given = {"long": torch.randn(9, 8), "short": torch.randn(1, 8)}
    frames = {"long": torch.randn(5, 8), "short": torch.randn(12, 8)}
    got = {i: [] for i in given}
    for k, low in enumerate((0, 2, 3, 3)):
        high = (2, 3, 3, None)[k]
        chunks = {i: x[low:high].numpy() for i, x in frames.items()}
        once = {i: m.numpy() for i, m in given.items()} if k == 0 else {}
        x = ds.stream_tensor(list(chunks.values()), ids=list(chunks), sos=k == 0, eos=k == 3, names=names)
        patched = model(x, ds.static(once) if once else None)
        step = {i: {"x": c} | ({"memory": once[i]} if once else {}) for i, c in chunks.items()}
        stepped = engine.step(step, sos=list(once), eos=list(given) if k == 3 else [])
        for i, parts in got.items():
            np.testing.assert_allclose(patched[i].numpy(), stepped[i], rtol=0, atol=1e-6)
            parts.append(stepped[i])
    for i, x in frames.items():
        mask = torch.nn.Transformer.generate_square_subsequent_mask(len(x))
        want = laid(theirs(laid(x[None], options), laid(given[i][None], options), tgt_mask=mask), options)[0]
        np.testing.assert_allclose(np.concatenate(got[i]), want.numpy(), rtol=0, atol=1e-5)


def test_initial_values_and_arguments():
    """Spreads of new weights are torch's, and so are names, order and defaults of arguments."""
    ours, theirs = nn.TransformerDecoderLayer(64, 4), torch.nn.TransformerDecoderLayer(64, 4)
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert tuple(a.shape) == tuple(b.shape), name
        spread, wanted = a.numpy().std(), b.detach().numpy().std()  # each known up to 1 / sqrt(2 n) of itself
        assert abs(spread - wanted) <= 6 / math.sqrt(b.numel()) * wanted + 1e-9, name
    for name in ("TransformerEncoderLayer", "TransformerEncoder", "TransformerDecoderLayer", "TransformerDecoder"):
        a, b = (inspect.signature(getattr(library, name)) for library in (nn, torch.nn))
        assert [n for n in a.parameters if n != "context"] == list(b.parameters)
        a, b = (inspect.signature(getattr(library, name).forward) for library in (nn, torch.nn))
        assert [(n, p.default) for n, p in a.parameters.items()] == [
            (n, p.default) for n, p in b.parameters.items()
        ]


def test_what_does_not_fit():
    with pytest.raises(ValueError, match='activation is "relu", "gelu" or a function'):
        nn.TransformerEncoderLayer(8, 2, activation="swish")
    with pytest.raises(ValueError, match="3 heads don't divide 8 features"):
        nn.TransformerEncoderLayer(8, 3)
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with pytest.raises(ds.NotStreamableError, match=r"self_attn.*sees the whole stream"):
        ds.compile(layer, ("B", "L", 8))
