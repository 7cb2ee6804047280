"""Streams that come and go, twelve at a time, through models of attention: each gets what it gets alone."""

import copy

import numpy as np
import pytest
import torch
from many_streams import Patched, come_and_go
from torch_references.transformer import Relative, Transformer
from torch_references.u2 import Encoder
from turns import by_turns

import dreamstream as ds
from dreamstream import nn
from dreamstream.models import StreamingTransformer, U2Encoder

WIDTH, BLOCKS = 16, ds.Context(chunk=4, left=8, right=2, keep=5)


class RelativeLayer(nn.Module):
    def __init__(self, context):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.RelPositionMultiheadAttention(WIDTH, 4, context=context)

    def forward(self, x):
        return x + self.attention(self.norm(x))


def u2(**options):
    options = {"linear_units": 24, "num_blocks": 2, "decoding_chunk_size": 4, **options}
    options |= {"output_size": WIDTH, "attention_heads": 4}
    return U2Encoder(WIDTH, **options).eval(), Encoder(WIDTH, options).eval()


def transformer(**options):
    ours = StreamingTransformer(WIDTH, 4, 2, num_kv_heads=2, **options).eval()
    return ours, Transformer(ours).eval()


def relative(context):
    theirs = torch.nn.Sequential(*(Relative(WIDTH, 4, context) for _ in range(2)))
    return nn.Sequential(*(RelativeLayer(context) for _ in range(2))).eval(), theirs.eval()


MODELS = {
    "conformer, kernel 15": lambda: u2(num_decoding_left_chunks=2),
    "conformer, by 6": lambda: u2(cnn_module_kernel=5, vocab_size=5, input_layer="conv2d6"),
    "conformer, causal": lambda: u2(causal=True, num_decoding_left_chunks=1, cnn_module_norm="layer_norm"),
    "conformer, transformer": lambda: u2(architecture="transformer", num_decoding_left_chunks=2),
    "angles": transformer,
    "angles, a window": lambda: transformer(context=ds.Context(left=6, keep=3)),
    "alibi": lambda: transformer(positions="alibi", context=BLOCKS),
    "alibi, all before": lambda: transformer(positions="alibi", gated=False, norm="layer_norm"),
    "transformer-xl": lambda: relative(BLOCKS),
    "transformer-xl, all before": lambda: relative(ds.Context()),
}
FORMS = {
    "compiled": lambda ours, theirs: ds.compile(ours, ("B", "L", WIDTH), verify=False),
    "patched": lambda ours, theirs: Patched(ours),
    "patched, of torch": lambda ours, theirs: Patched(theirs),
    "compiled, of torch": lambda ours, theirs: ds.compile(theirs, ("B", "L", WIDTH), verify=False),
}


@pytest.mark.parametrize(("name", "form"), by_turns(MODELS, list(FORMS)))
def test_streams_that_come_and_go(name, form):
    torch.manual_seed(len(name))
    ours, theirs = MODELS[name]()
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()}, strict="conf" in name)
    whole, rng = copy.deepcopy(theirs).double(), np.random.default_rng(5)
    slow = 4 if "conf" in name else 1
    arrays = [rng.standard_normal((int(n) * slow, WIDTH), np.float32) for n in rng.integers(0, 50, 20)]

    def expected(x):
        if len(x) < (11 if "by 6" in name else 7 if slow > 1 else 1):
            return np.zeros((0, 5 if "by 6" in name else WIDTH))  # torch raises
        with torch.no_grad():
            return whole(torch.from_numpy(x).double()[None])[0].numpy()

    come_and_go(FORMS[form](ours, theirs), arrays, 12, 10 * slow, 5, expected)
