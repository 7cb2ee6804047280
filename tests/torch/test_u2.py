"""U2's encoders: offline the plain definition in torch, online offline, for every way of feeding."""

import numpy as np
import pytest
import torch
from one_stream import held, patched, stepped
from torch_references.u2 import Encoder

import dreamstream as ds
from dreamstream.models import GlobalCMVN, U2Encoder

SMALL = {"output_size": 16, "attention_heads": 4, "linear_units": 24, "num_blocks": 2, "decoding_chunk_size": 4}
FEATURES = 20
OPTIONS = {
    "conformer": {"cnn_module_kernel": 5},
    "causal": {"causal": True, "num_decoding_left_chunks": 2, "cmvn": True, "vocab_size": 11},
    "layer norm": {"cnn_module_norm": "layer_norm", "causal": True, "num_decoding_left_chunks": 0},
    "by 6": {"input_layer": "conv2d6", "num_decoding_left_chunks": 1, "cnn_module_kernel": 7},
    "by 8": {"input_layer": "conv2d8", "cnn_module_kernel": 3, "activation_type": "gelu"},
    "not subsampled": {"input_layer": "linear", "causal": True, "decoding_chunk_size": 1},
    "norms behind": {"normalize_before": False, "num_decoding_left_chunks": 3, "cnn_module_kernel": 3},
    "without macaron": {"macaron_style": False, "cnn_module_kernel": 3, "num_decoding_left_chunks": 2},
    "without convolutions": {"use_cnn_module": False, "num_decoding_left_chunks": 2},
    "positions added": {"pos_enc_layer_type": "abs_pos", "selfattention_layer_type": "selfattn", "causal": True},
    "positions added and beside": {"pos_enc_layer_type": "abs_pos", "causal": True},
    "no positions": {"pos_enc_layer_type": "no_pos", "selfattention_layer_type": "selfattn", "causal": True},
    "transformer": {"architecture": "transformer", "num_decoding_left_chunks": 2, "cmvn": True, "vocab_size": 5},
    "transformer, norms behind": {"architecture": "transformer", "normalize_before": False},
}


def pair(name):
    """The native model and the definition, with the same weights."""
    options = {**SMALL, **OPTIONS[name]}
    torch.manual_seed(len(name))
    theirs = Encoder(FEATURES, options).eval()
    with torch.no_grad():
        for key, value in [*theirs.named_parameters(), *theirs.named_buffers()]:
            if "norm" in key and value.is_floating_point():
                value.copy_(torch.rand(value.shape) + 0.5)
    cmvn = GlobalCMVN(np.zeros(FEATURES), np.ones(FEATURES)) if options.pop("cmvn", False) else None
    ours = U2Encoder(FEATURES, global_cmvn=cmvn, **options).eval()
    assert set(ours.state_dict()) == set(theirs.state_dict())
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return ours, theirs


def speech(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, FEATURES), dtype=np.float32)


def said(theirs, x):
    with torch.no_grad():
        return theirs(torch.from_numpy(x)[None])[0].numpy()


@pytest.mark.parametrize("name", OPTIONS)
def test_it_is_the_definition(name):
    ours, theirs = pair(name)
    x = speech(110)
    want = said(theirs, x)
    np.testing.assert_allclose(ours(ds.tensor(x[None])).numpy()[0], want, rtol=0, atol=1e-5)
    engine = ds.compile(ours, ours.spec)
    held([patched(ds.patch_module(ours).online()), stepped(engine)], x, want)


def test_look_ahead_of_a_convolution_under_a_chunk_mask():
    """Kernel 15, symmetric: frames leave as soon as their values are final, no sooner, and the audit says when."""
    torch.manual_seed(2)
    options = {**SMALL, "num_blocks": 2, "num_decoding_left_chunks": 2}
    theirs = Encoder(FEATURES, {**options}).eval()
    ours = U2Encoder(FEATURES, **options).eval()
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    engine = ds.compile(ours, ours.spec)
    audit = ds.audit(ours, ours.spec, rate=100)
    assert engine.delay == audit.delay and audit.latency == 10 * audit.delay
    x, theirs = speech(260), theirs.double()

    def whole(x):
        with torch.no_grad():
            return theirs(torch.from_numpy(x).double()[None])[0].numpy()

    want, out, latest = whole(x), 0, 0
    for n in range(1, 200):
        latest = max(latest, n - 4 * out)  # frames that have come since the first that belongs to output `out`
        out += len(engine.step({"s": x[n - 1 : n]}, sos=["s"] * (n == 1))["s"])
        if n % 17 == 0:
            changed = (
                abs(whole(np.concatenate([x[:n], speech(90, n)]))[: out + 1] - want[: out + 1]).max(1) > 1e-12
            )
            assert not changed[:out].any(), "never early"
            assert changed[out], "never late"
    assert latest == audit.delay + 1


def test_a_whole_model_s_state_dict():
    """The encoder and the head are taken out; what belongs to a decoder is left."""
    ours, theirs = pair("causal")
    state = {f"encoder.{k}": v.numpy() for k, v in theirs.state_dict().items() if not k.startswith("ctc")}
    state |= {k: v.numpy() for k, v in theirs.state_dict().items() if k.startswith("ctc")}
    state["decoder.embed.0.weight"] = np.zeros((3, 3), np.float32)
    other = U2Encoder(
        FEATURES,
        global_cmvn=GlobalCMVN(np.zeros(FEATURES), np.ones(FEATURES)),
        **{k: v for k, v in {**SMALL, **OPTIONS["causal"]}.items() if k != "cmvn"},
    ).eval()
    other.load_state_dict(state)
    x = ds.tensor(speech(60)[None])
    np.testing.assert_array_equal(other(x).numpy(), ours(x).numpy())


def test_a_context_in_place_of_chunks():
    """Said by the constructor, or declared; beside chunks that are said it is an error."""
    context = ds.Context(left=7, right=2)
    options = {k: v for k, v in SMALL.items() if k != "decoding_chunk_size"}
    said_so = U2Encoder(FEATURES, causal=True, context=context, **options).eval()
    bare = U2Encoder(FEATURES, causal=True, **options).eval()
    bare.load_state_dict(said_so.state_dict())
    x = speech(130)
    declared = ds.compile(bare, bare.spec, context={"encoders.*.self_attn": context})
    engine = ds.compile(said_so, said_so.spec)
    assert declared.delay == engine.delay
    for e in (declared, engine):
        y = np.concatenate([e.step({"s": x[:70]}, sos="s")["s"], e.step({"s": x[70:]}, eos="s")["s"]])
        np.testing.assert_allclose(y, said_so(ds.tensor(x[None])).numpy()[0], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="both say what a query sees"):
        ds.compile(said_so, said_so.spec, context={"encoders.*.self_attn": context})


def test_what_a_stream_of_the_usual_size_keeps():
    """12 layers of 256, kernel 15, chunks of 16, four on the left: caches of 1.75 MB, and little besides."""
    model = U2Encoder(80, 256, 4, 2048, 12, causal=True, decoding_chunk_size=16, num_decoding_left_chunks=4).eval()
    engine = ds.compile(model, model.spec, rate=100, verify=False)
    caches = 12 * 4 * (64 * 512 + 14 * 256)
    assert caches <= engine.kept_bytes <= 1.1 * 1.75e6
    assert engine.state_size <= 1.3 * 1.75e6
    assert engine.delay == 66 and ds.audit(model, model.spec, rate=100).latency == 660


def test_a_step_does_the_same_however_long_a_stream_is():
    """What is kept does not grow, and neither do positions: an hour is as a second."""
    ours, _ = pair("causal")
    engine = ds.compile(ours, ours.spec)
    x = speech(64)
    engine.step({"s": x}, sos="s")
    early = engine.snapshot("s")
    for _ in range(200):
        engine.step({"s": x})
    assert len(engine.snapshot("s")) == len(early) and engine.state_bytes_per_frame == 0


def test_what_does_not_fit():
    for wrong, message in [
        ({"input_layer": "conv2d5"}, "input_layer is one of linear, conv2d"),
        ({"pos_enc_layer_type": "rope"}, "pos_enc_layer_type is one of"),
        ({"attention_heads": 3}, "3 heads don't divide 16"),
        ({"cnn_module_kernel": 4}, "odd kernel"),
        ({"cnn_module_norm": "none"}, "cnn_module_norm is one of"),
        ({"activation_type": "cube"}, "activation_type is one of"),
        ({"architecture": "rnn"}, "architecture is one of"),
    ]:
        with pytest.raises(ds.ShapeError, match=message):
            U2Encoder(FEATURES, **{**SMALL, **wrong})
    whole = U2Encoder(FEATURES, **{**SMALL, "decoding_chunk_size": -1}).eval()
    with pytest.raises(ds.NotStreamableError, match="sees the whole stream"):
        ds.compile(whole, whole.spec)
