"""Functional modules: called, traced, scripted and exported they give what the engine gives, call by call."""

import copy
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from exported import Exported, compare
from exported_models import MODELS, made
from nets import net
from random_graphs.trial import Subject
from turns import by_turns

import dreamstream as ds
from dreamstream.errors import DreamStreamError, NotStreamableError
from dreamstream.models import StreamingTransformer
from dreamstream.torch.export.manifest import with_chunk

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about its own code
TOLERANCE = 1e-5


def recorded(module):
    return torch.jit.trace(module, module.example(), check_trace=False)


FORMS = {"called": lambda m: m, "traced": recorded, "scripted": torch.jit.script}


@pytest.mark.parametrize(("name", "form"), by_turns(MODELS, list(FORMS)))
def test_models(name, form):
    model, spec, dtype = made(name)
    module = ds.torch.functionalize(model, spec, dtype=dtype)
    engine = ds.compile(model, spec, dtype=dtype, verify=False)
    rng = np.random.default_rng(1)
    frames, worst = compare(Exported(FORMS[form](module), module.manifest, rng), engine, rng)
    assert frames > 10
    assert worst <= TOLERANCE


@pytest.mark.parametrize("name", ["residual", "lstm"])
def test_one_chunk_is_torch_offline(name):
    """All frames with sos and eos are the offline model, with its gradients."""
    model, spec, dtype = made(name)
    module = ds.torch.functionalize(model, spec, dtype=dtype)
    x = torch.randn(2, 3, 23)
    _, lengths, sos, _, states = module.example(2, 23)
    y, counts, _ = module(x, lengths, sos, sos, states)
    whole = model(x)
    at = module.outputs[0].dims.index("L")
    assert counts.tolist() == [whole.shape[at]] * 2
    got = y.narrow(at, 0, whole.shape[at])
    assert torch.allclose(got, whole, rtol=0, atol=TOLERANCE)
    weights = list(model.parameters())
    for a, b in zip(torch.autograd.grad(got.sum(), weights), torch.autograd.grad(whole.sum(), weights)):
        assert torch.allclose(a, b, rtol=0, atol=1e-4 * float(b.abs().max().clamp(min=1)))


@pytest.mark.parametrize("name", ["residual", "lstm"])
def test_torch_export(name):
    """Any number of rows; of frames too where no layer is recurrent, from 2 on, as torch has it."""
    model, spec, _ = made(name)
    module = ds.torch.functionalize(model, spec)
    args, any_size = module.example(3, 7), torch.export.Dim.DYNAMIC
    rows = {0: any_size}
    chunk = rows if name == "lstm" else {0: any_size, 2: any_size}
    shapes = (chunk, rows, rows, rows, tuple(rows for _ in args[4]))
    program = torch.export.export(module, args, dynamic_shapes=shapes).module()
    rng = np.random.default_rng(2)
    for n_rows, n_frames in ((2, 7), (3, 7 if name == "lstm" else 13)):
        manifest = with_chunk(module.manifest, n_rows, [n_frames])
        exported = Exported(program, manifest, rng)
        frames, worst = compare(exported, ds.compile(model, spec), rng, rows=n_rows)
        assert frames > 10
        assert worst <= TOLERANCE


@pytest.mark.parametrize("first", [0, 10, 20])
def test_random_models(first):
    for seed in range(first, first + 10):
        subject = Subject.of(seed)
        engine = subject.compiled()
        try:
            module = ds.torch.functionalize(engine)
        except NotStreamableError:
            assert engine.state_bytes_per_frame
            continue
        rng = np.random.default_rng(seed)
        try:
            _, worst = compare(Exported(module, module.manifest, rng), engine, rng, calls=10)
        except DreamStreamError:  # lengths that don't fit together
            continue
        assert worst <= TOLERANCE, seed


def test_weights_are_the_models_own():
    model = torch.nn.Sequential(torch.nn.Conv1d(3, 4, 3, padding=1), torch.nn.BatchNorm1d(4)).eval()
    module = ds.torch.functionalize(model, ("B", 3, "L"))
    own = {id(p) for p in [*model.parameters(), *model.buffers()] if p.dtype.is_floating_point}
    assert {id(p) for p in module.parameters()} <= own
    x, lengths, sos, eos, states = module.example(1, 9)
    before = module(x + 1, lengths, sos, eos, states)[0]
    with torch.no_grad():
        model[0].bias += 1
    assert not torch.equal(before, module(x + 1, lengths, sos, eos, states)[0])


def test_calls_change_nothing_that_they_are_given():
    model, spec, _ = made("lstm")
    module = ds.torch.functionalize(model, spec)
    args = copy.deepcopy(module.example(3, 8))
    before = copy.deepcopy(args)
    module(*args)
    for a, b in zip([*args[:4], *args[4]], [*before[:4], *before[4]]):
        assert torch.equal(a, b)


def test_calls_at_the_same_time():
    """Threads give what calls in a row do; so do torch.func and forward differentiation."""
    model, spec, _ = made("residual")
    module = ds.torch.functionalize(model, spec)
    x, lengths, sos, eos, states = module.example(1, 40)
    chunks = [torch.randn_like(x)[..., :n] for n in range(1, 33)]
    run = torch.no_grad()(lambda c: module(c, torch.tensor([c.shape[-1]]), sos, eos, states)[0])
    with ThreadPoolExecutor(8) as pool:
        alone = [run(c) for c in chunks]
        for _ in range(5):
            assert all(map(torch.equal, pool.map(run, chunks), alone))
    each = lambda c: module(c, lengths, sos, eos, states)[0]  # noqa: E731
    tangent = torch.randn_like(x)
    wanted = torch.autograd.functional.jvp(each, x, tangent)[1]
    assert torch.allclose(torch.func.jvp(each, (x,), (tangent,))[1], wanted, rtol=0, atol=TOLERANCE)
    with torch.autograd.forward_ad.dual_level():
        y = torch.autograd.forward_ad.unpack_dual(each(torch.autograd.forward_ad.make_dual(x, tangent)))
    assert torch.allclose(y.tangent, wanted, rtol=0, atol=TOLERANCE)


def test_states_hold_their_own_frames_alone():
    model, spec, _ = made("residual")
    module = ds.torch.functionalize(model, spec)
    _, lengths, sos, eos, states = module.example(1, 500)
    _, _, states = module(torch.randn(1, 3, 500), lengths, sos, eos, states)
    assert all(s.untyped_storage().nbytes() == s.nbytes for s in states)


def test_states_behind_rows_of_padding_stand_still():
    """However often a row has no frames, nothing of it changes, not in the last bit."""
    model, spec, _ = made("lstm")
    module = ds.torch.functionalize(model, spec)
    _, lengths, sos, eos, states = module.example(2, 30)
    _, _, states = module(torch.randn(2, 3, 30), lengths, sos, eos, states)
    garbage, none = torch.full((2, 3, 30), torch.nan), torch.zeros(2, dtype=torch.int64)
    later = states
    for _ in range(20):
        y, counts, later = module(garbage, none, ~sos, eos, later)
        assert not counts.any()
        assert not y.any()
    for a, b in zip(states, later):
        assert torch.equal(a, b)


def test_manifest():
    model, spec, _ = made("pooled")
    module = ds.torch.functionalize(model, spec, rate=100)
    manifest = json.loads(json.dumps(module.manifest))
    assert manifest == module.manifest
    assert [p["name"] for p in manifest["outputs"]] == ["word", "loudest", "frames"]
    assert [p["delay"] for p in manifest["outputs"]] == [None, None, 1]
    assert [p["dims"] for p in manifest["outputs"]] == [["B", 5], ["B", 4], ["B", 4, "L"]]
    assert manifest["inputs"][0] == {
        "name": "x", "dims": ["B", 3, "L"], "dtype": "float32", "rate": [100, 1], "lengths": "x_lengths",
    }  # fmt: skip
    for state, tensor in zip(manifest["states"], module.initial(2)):
        assert ["B", *tensor.shape[1:]] == state["dims"]
        assert str(tensor.dtype) == f"torch.{state['dtype']}"
        first = np.broadcast_to(np.array(state["initial"], state["dtype"]), tensor.shape)
        assert np.array_equal(first, tensor.numpy())


def test_refusals():
    class Waits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.both = torch.nn.GRU(3, 2, bidirectional=True, batch_first=True)

        def forward(self, x):
            return self.both(x.transpose(1, 2))[0]

    spec = ("B", 3, "L")
    with pytest.raises(NotStreamableError, match="both"):
        ds.torch.functionalize(Waits(), spec)
    engine = ds.compile(Waits(), spec, unstreamable="buffer", verify=False)
    with pytest.raises(NotStreamableError, match="both: gru keeps what it has seen until the stream ends"):
        ds.torch.functionalize(engine)
    unbounded = StreamingTransformer(8, 2, 1).eval()
    with pytest.raises(NotStreamableError, match=r"layers.0.self_attn: attention keeps .* ds.Context\(left=64\)"):
        ds.torch.functionalize(unbounded, unbounded.spec)

    with pytest.raises(NotStreamableError, match="output joins B and L"):
        ds.torch.functionalize(net(torch.nn, lambda self, x: x.transpose(1, 2).reshape(-1, 3)), spec)
