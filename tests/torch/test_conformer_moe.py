"""3M-ASR's Conformers with experts: offline the plain definition in torch, online offline, for every feeding."""

import numpy as np
import pytest
import torch
from many_streams import come_and_go
from one_stream import held, patched, stepped
from same_bits import content
from torch_references.conformer_moe import ConformerMoE as Definition

import dreamstream as ds
from dreamstream.models import ConformerMoE

FEATURES, CLASSES = 20, 7
SMALL = {
    "attention_dim": 16,
    "num_blocks": 2,
    "embed_conf": {"num_blocks": 1},
    "moe_conf": {"num_experts": 6, "hidden_units": 24},
    "cnn_module_kernel": 5,
}
STREAMING = {"causal": True, "decoding_chunk_size": 4, "num_decoding_left_chunks": 2}
OPTIONS = {
    "streaming": STREAMING,
    "all chunks on the left": {"causal": True, "decoding_chunk_size": 3},
    "no chunk on the left": {**STREAMING, "num_decoding_left_chunks": 0, "cnn_module_kernel": 4},
    "a whole recording": {"decoding_chunk_size": -1},
    "a whole recording, causal": {"causal": True, "decoding_chunk_size": -1},
    "looks ahead": {"decoding_chunk_size": 4, "num_decoding_left_chunks": 1},
    "another width": {
        **STREAMING,
        "attention_heads": 2,
        "embed_conf": {"num_blocks": 1, "attention_dim": 8, "linear_units": 12},
        "moe_conf": {"num_experts": 32, "hidden_units": 8, "router_with_bias": True, "capacity_factor": -1.0},
    },
    "not weighted": {**STREAMING, "moe_conf": {"num_experts": 5, "hidden_units": 9, "keep_expert_output": True}},
    "batch norm": {**STREAMING, "cnn_module_norm": "batch_norm"},
}


def pair(name):
    """The native model and the definition, with the same weights."""
    options = {**SMALL, **OPTIONS[name]}
    torch.manual_seed(len(name))
    theirs = Definition(FEATURES, CLASSES, **options).eval()
    with torch.no_grad():
        for key, value in [*theirs.named_parameters(), *theirs.named_buffers()]:
            if "norm" in key and value.is_floating_point():
                value.copy_(torch.rand(value.shape) + 0.5)
            elif "subsampling" in key:
                value.mul_(3 if "weight" in key else 0)  # frames that differ, so that their experts do
    ours = ConformerMoE(FEATURES, CLASSES, **options).eval()
    state = {k: v.numpy() for k, v in theirs.state_dict().items()}
    unused = {k for k in state if "concat_linear" in k or k.startswith("embed.out_linear")}
    assert set(ours.state_dict()) == set(state) - unused
    ours.load_state_dict(state)
    return ours, theirs


def speech(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, FEATURES), dtype=np.float32)


def said(theirs, x, index=None):
    with torch.no_grad():
        return theirs(torch.from_numpy(x)[None], index)[0].numpy()


@pytest.mark.parametrize("name", OPTIONS)
def test_it_is_the_definition(name):
    ours, theirs = pair(name)
    x = speech(110)
    want = said(theirs, x)
    chosen = [block.feed_forward.chosen for block in theirs.blocks]
    assert min(float(block.feed_forward.margin.min()) for block in theirs.blocks) > 1e-4, "choose another seed"
    assert len(torch.cat(chosen).unique()) > 2
    np.testing.assert_allclose(ours(ds.tensor(x[None])).numpy()[0], want, rtol=0, atol=1e-5)
    forced = [(c + 1) % 5 for c in chosen]
    got = ours(ds.tensor(x[None]), [ds.tensor(f.numpy()[..., None]) for f in forced])
    np.testing.assert_allclose(got.numpy()[0], said(theirs, x, forced), rtol=0, atol=1e-5)
    waits = {"unstreamable": "buffer"} if "whole" in name else {}
    engine = ds.compile(ours, ours.spec, verify=False, **waits)
    loaded = ds.load(content(engine))
    online = ds.patch_module(ours, **waits).online()
    assert len(held([patched(online), stepped(engine), stepped(loaded)], x, want)) == 1


def test_streams_that_come_and_go():
    ours, theirs = pair("streaming")
    lengths = np.random.default_rng(5).integers(20, 200, 24)
    arrays = [speech(int(n), seed) for seed, n in enumerate(lengths)]
    come_and_go(ds.compile(ours, ours.spec), arrays, 12, 40, 5, lambda x: said(theirs, x))


def test_routing_agrees_where_experts_are_nearly_tied():
    """Pairs of routers' columns that differ by a rounding: chunks, batch and threads don't change a bit."""
    ours, _ = pair("streaming")
    for i, layer in enumerate(ours.blocks):
        weights = layer.feed_forward.router_weights.numpy()
        noise = np.random.default_rng(i).standard_normal(weights[:, :3].shape).astype(np.float32)
        weights[:, 3:] = weights[:, :3] + 1e-7 * noise
    arrays = {str(i): speech(60 + 7 * i, i) for i in range(5)}
    for layer in ours.blocks:
        layer.feed_forward.keep_statistics()
    ours(ds.tensor(arrays["0"][None]))
    assert sum(layer.feed_forward.statistics()["near_ties"] for layer in ours.blocks) / 2 > 0.8
    single = ds.compile(ours, ours.spec)
    report = ds.verify(ours, single)  # offline, products by OpenBLAS are rounded otherwise
    assert report.ok and report.tied > 10
    wanted = {name: single.step({name: x}, name, name)[name] for name, x in arrays.items()}
    ds.patch_module(ours).online()

    def patched(chunks, sos, eos):
        flags = {"sos": [i in sos for i in chunks], "eos": [i in eos for i in chunks]}
        x = ds.stream_tensor(list(chunks.values()), ids=list(chunks), names=("B", "L", None), **flags)
        y = ours(x)
        return {name: y[name].numpy() for name in chunks}

    more = ds.compile(ours, ours.spec, threads=2)
    for step, sizes in [
        (single.step, [13] * 7),
        (more.step, [1, 40, 0, 3] * 3),
        (more.step, [99]),
        (patched, [44] * 3),
    ]:
        out, at = {name: [] for name in arrays}, 0
        for k, n in enumerate(sizes):
            end = list(arrays) if k == len(sizes) - 1 else []
            said = step({name: x[at : at + n] for name, x in arrays.items()}, [] if k else list(arrays), end)
            for name, y in said.items():
                out[name].append(y)
            at += n
        for name in arrays:
            np.testing.assert_array_equal(np.concatenate(out[name]), wanted[name])


def test_exact_look_ahead():
    """Kernel 15, symmetric: half a kernel per layer, in chunks; a frame leaves as soon as it is final."""
    options = {**SMALL, "num_blocks": 3, "embed_conf": {"num_blocks": 2}, "cnn_module_kernel": 15}
    ours = ConformerMoE(FEATURES, CLASSES, **options, decoding_chunk_size=8, num_decoding_left_chunks=1).eval()
    engine = ds.compile(ours, ours.spec)
    # a chunk for each of 2 embedding layers and of 3 - 1 others; the second frame of its own waits for 6 more
    assert engine.delay == ds.audit(ours, ours.spec).delay == 4 * (8 * 4 + 6) + 6


def test_names_and_what_is_left():
    """A whole model's state dict: decoders, the embedding network's head and `concat_linear` are left."""
    ours, theirs = pair("streaming")
    state = {f"encoder.{k}": v.numpy() for k, v in theirs.state_dict().items()}
    state["decoder.embed.0.weight"] = np.zeros((3, 3), np.float32)
    other = ConformerMoE(FEATURES, CLASSES, **SMALL, **STREAMING).eval()
    other.load_state_dict(state)
    for key, value in ours.state_dict().items():
        np.testing.assert_array_equal(other.state_dict()[key].numpy(), value.numpy())
    assert not any("concat_linear" in key or key.startswith("embed.out_linear") for key in ours.state_dict())
    name = "blocks.1.feed_forward.experts.w_1.weight"
    with pytest.raises(ds.FormatError, match=f"different shapes: {name}"):
        other.load_state_dict({**state, f"encoder.{name}": np.zeros((4, 24, 16), np.float32)})
    del state[f"encoder.{name}"]
    with pytest.raises(ds.FormatError, match=f"missing: {name}"):
        other.load_state_dict(state)


def test_what_does_not_fit():
    for wrong, message in [
        ({"moe_conf": {"experts": 3}}, "moe_conf knows no 'experts'"),
        ({"embed_conf": {"layers": 3}}, "embed_conf knows no 'layers'"),
        ({"moe_conf": {"num_experts": 0}}, "num_expert must be at least 1"),
        ({"attention_heads": 3}, "3 heads don't divide 16"),
    ]:
        with pytest.raises(ds.ShapeError, match=message):
            ConformerMoE(FEATURES, CLASSES, **{**SMALL, **wrong})
    ours, _ = pair("streaming")
    x = ds.tensor(speech(30)[None])
    with pytest.raises(ds.ShapeError, match="experts of 1 layers, but there are 2"):
        ours(x, [None])
    with pytest.raises(IndexError, match="6"):
        ours(x, [ds.tensor(np.full((1, 6, 1), 6))] * 2)
