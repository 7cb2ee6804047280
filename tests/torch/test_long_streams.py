"""Streams of ten hours: bounded contexts keep no more than in the first second, and say the same of the last."""

import numpy as np
import pytest
import torch
from snapshot_bytes import shift
from torch_references import u2
from torch_references.transformer import Relative, Transformer

import dreamstream as ds
from dreamstream.models import StreamingTransformer, U2Encoder

WIDTH, SPEC, BLOCKS = 8, ("B", "L", 8), ds.Context(chunk=4, left=8, right=2)
HOURS = 10 * 3600 * 25
SMALL = {"output_size": 8, "attention_heads": 2, "linear_units": 8, "num_blocks": 1, "cnn_module_kernel": 5}


def transformer(**options):
    ours = StreamingTransformer(WIDTH, 2, 2, 8, **options).eval()
    return ours, Transformer(ours)


def relative():
    theirs = Relative(WIDTH, 2, BLOCKS)
    return theirs.eval(), theirs


def conformer():
    options = {**SMALL, "decoding_chunk_size": 4, "num_decoding_left_chunks": 2}
    ours, theirs = U2Encoder(WIDTH, **options).eval(), u2.Encoder(WIDTH, options).eval()
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return ours, theirs


MODELS = {
    "angles": (lambda: transformer(context=BLOCKS), 1),
    "alibi": (lambda: transformer(positions="alibi", context=BLOCKS), 1),
    "transformer-xl": (relative, 1),
    "conformer": (conformer, 4),
}


@pytest.mark.parametrize("name", MODELS)
def test_ten_hours(name, monkeypatch):
    """Behind where the definition starts anew, at a block's start, both know the same."""
    torch.manual_seed(1)
    make, stride = MODELS[name]
    ours, theirs = make()
    engine, rng = ds.compile(ours, SPEC, verify=False), np.random.default_rng(2)
    kept = set()
    for k in range(12):
        x = rng.standard_normal((HOURS * stride // 12, WIDTH), np.float32)
        y = engine.step({"s": x}, sos=["s"] * (k == 0))["s"]
        kept.add(len(engine.snapshot("s")))
    last = np.concatenate([y, engine.step({}, eos="s")["s"]])
    assert len(kept) == 1 and engine.state_bytes_per_frame == 0
    n = 100 * 4 * stride
    start, sinusoids = (HOURS * stride - n) // stride, u2.sinusoids
    monkeypatch.setattr(u2, "sinusoids", lambda n, width, dtype: sinusoids(n + start, width, dtype)[start:])
    with torch.no_grad():
        want = theirs.double()(torch.from_numpy(x[-n:]).double()[None])[0].numpy()
    np.testing.assert_allclose(last[-300:], want[-300:], rtol=0, atol=1e-5)


def test_rotary_positions_afar():
    """What lies within blocks alone depends on distances alone, wherever they begin."""
    ours, theirs = transformer(context=ds.Context(chunk=4, left=0))
    engine, rng = ds.compile(ours, SPEC, verify=False), np.random.default_rng(3)
    x = rng.standard_normal((64, WIDTH), np.float32)
    engine.step({"s": x}, sos="s")
    with torch.no_grad():
        want = theirs.double()(torch.from_numpy(x).double()[None])[0].numpy()
    for far in (1 << 31, 1 << 33, 1 << 40):
        engine.restore(shift(engine.snapshot("s"), engine, far), "far")
        np.testing.assert_allclose(engine.step({"far": x}, eos="far")["far"], want, rtol=0, atol=1e-5)


def test_what_grows_without_a_bound():
    """Keys and values alone, in what a stream keeps and in its snapshots."""
    ours, _ = transformer(num_kv_heads=1)
    engine, x = ds.compile(ours, SPEC, verify=False), np.zeros((1000, WIDTH), np.float32)
    sizes = [len(engine.snapshot("s")) for k in range(5) if engine.step({"s": x}, sos=["s"] * (k == 0))]
    per_frame = 2 * 2 * WIDTH // 2 * 4  # of two layers keys and values of half the heads
    assert engine.state_bytes_per_frame == per_frame
    assert set(np.diff(sizes)) == {1000 * per_frame}


def test_a_limit_ends_it_in_time():
    """With the stream's id, before anything is computed; what had come goes on to its end."""
    ours, theirs = transformer()
    x = np.random.default_rng(4).standard_normal((70, WIDTH), np.float32)
    with torch.no_grad():
        want = theirs(torch.from_numpy(x[:64])[None])[0].numpy()
    engine = ds.compile(ours, SPEC, context_limit=64)
    got = [engine.step({"s": x[:60], "t": x[:9]}, sos=["s", "t"])["s"]]
    with pytest.raises(ds.StreamLimitError, match=r"context_limit.*'s'") as caught:
        engine.step({"s": x[60:], "t": x[9:20]})
    assert caught.value.ids == ("s",) and engine.position("t") == 9
    got.append(engine.step({"s": x[60:64]}, eos="s")["s"])
    np.testing.assert_allclose(np.concatenate(got), want, rtol=0, atol=1e-5)
