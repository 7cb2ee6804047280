"""Tools of torch on patched modules: parametrizations, pruning, compilers, scripts, exports, wrappers."""

import copy
import re
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import dreamstream as ds

NAMES = ("B", "L", "F")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.norm(self.conv(x.transpose(1, 2))).relu().transpose(1, 2))


class Doubled(Net):
    def __call__(self, x):
        return super().__call__(x) * 2


def made(cls=Net):
    torch.manual_seed(0)
    return cls().eval()


def patched(cls=Net):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ds.errors.StreamWarning)
        return ds.patch_module(made(cls))


def frames():
    return torch.randn(12, 3, generator=torch.Generator().manual_seed(1))


def chunk(a, b, **options):
    return ds.stream_tensor([frames()[a:b]], ids=["a"], sos=a == 0, eos=b == 12, names=NAMES, **options)


@torch.no_grad()
def streamed(model):
    return torch.cat([model(chunk(a, b))["a"] for a, b in ((0, 5), (5, 12))])


@torch.no_grad()
def whole(model):
    return model(frames()[None])


def assert_streams(model, want=None):
    want = whole(ds.offline(model))[0] if want is None else want
    torch.testing.assert_close(streamed(ds.online(model)), want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(whole(ds.offline(model))[0], want, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------------- weights that are computed, and changed
def old(norm, remove):
    def register(layer):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            norm(layer)

    return register, remove


def new(register):
    return register, lambda layer: parametrize.remove_parametrizations(layer, "weight")


class Halved(nn.Module):
    def forward(self, x):
        return x / 2


WEIGHTS = {
    "weight_norm": new(parametrizations.weight_norm),
    "spectral_norm": new(parametrizations.spectral_norm),
    "orthogonal": new(parametrizations.orthogonal),
    "own": new(lambda layer: parametrize.register_parametrization(layer, "weight", Halved())),
    "old weight_norm": old(nn.utils.weight_norm, nn.utils.remove_weight_norm),
    "old spectral_norm": old(nn.utils.spectral_norm, nn.utils.remove_spectral_norm),
    "pruning": (lambda m: prune.l1_unstructured(m, "weight", 0.5), lambda m: prune.remove(m, "weight")),
    "random pruning": (
        lambda m: prune.random_structured(m, "weight", 0.5, 0),
        lambda m: prune.remove(m, "weight"),
    ),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_computed_from_now_on_and_no_more(name):
    model, (register, remove) = patched(), WEIGHTS[name]
    for layer in (model.conv, model.head):
        register(layer)
    model.eval()
    assert_streams(model)
    assert_streams(copy.deepcopy(model))
    want = whole(model)[0]
    for layer in (model.conv, model.head):
        remove(layer)
    assert type(model.conv) is nn.Conv1d and set(model.state_dict()) == set(made().state_dict())
    assert_streams(model, want)
    ds.unpatch_module(model)
    torch.testing.assert_close(whole(model)[0], want)


def test_other_values():
    model, zeros = patched(), {n: torch.zeros_like(p) for n, p in made().named_parameters()}
    want = whole(model)
    assert not torch.func.functional_call(model, zeros, (frames()[None],)).any()
    model.online()
    with torch.no_grad():
        assert not torch.func.functional_call(model, zeros, (chunk(0, 12),))["a"].any()
    assert_streams(model, want[0])
    assert model.load_state_dict(made().state_dict()) and list(model.state_dict()) == list(made().state_dict())
    model.double().float().bfloat16().float()
    model.load_state_dict(made().state_dict())
    assert_streams(model.share_memory(), want[0])
    fused = nn.utils.fuse_conv_bn_eval(model.conv, model.norm)
    model.conv, model.norm = fused, nn.Identity()
    assert_streams(ds.patch_module(model), want[0])


def test_models_side_by_side():
    models = [patched() for _ in range(2)]
    state, base = torch.func.stack_module_state(models), copy.deepcopy(models[0]).to("meta")
    x = frames()[None]
    out = torch.vmap(lambda p, b: torch.func.functional_call(base, (p, b), (x,)))(*state)
    torch.testing.assert_close(out[1], whole(made()))


def test_lazy_layers():
    model = ds.patch_module(nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2)))
    whole(model)
    assert type(model[0]) is nn.Linear
    assert_streams(model)


def test_averaged_and_quantized_models():
    averaged = torch.optim.swa_utils.AveragedModel(patched())
    assert torch.equal(whole(averaged), whole(made())) and averaged.module._patch.module is averaged.module
    quantized, plain = (torch.ao.quantization.quantize_dynamic(m, {nn.Linear}) for m in (patched(), made()))
    assert type(quantized.head) is type(plain.head) and torch.equal(whole(quantized), whole(plain))


# ---------------------------------------------------------------------- what follows a forward
def exported(model, strict):
    program = torch.export.export(model, (frames()[None],), strict=strict)
    return program.graph, program.module()


def scripted(model):
    out = torch.jit.script(model)
    kept = re.sub(r"___torch_mangle_\d+\.| at 0x\w+", "", out._c.dump_to_str(True, True, False))
    lent = ("is_online", "kernel_width", "stream_buffer")  # values, which scripted modules show
    names = sorted({n for part in out.modules() for n in dir(part) if n not in lent})
    return out.code, kept, names, out


def traced(model):
    out = torch.jit.trace(model, frames()[None])
    return out.code, out


def symbolic(model):
    out = torch.fx.symbolic_trace(model)
    return out.code, out.graph, out


FOLLOWERS = {
    "script": scripted, "trace": traced, "fx": symbolic,
    "export": lambda m: exported(m, False), "strict export": lambda m: exported(m, True),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", FOLLOWERS)
def test_offline_models_are_followed_as_untouched_ones(name):
    found = [FOLLOWERS[name](model) for model in (patched(), made())]
    assert list(map(str, found[0][:-1])) == list(map(str, found[1][:-1]))
    for *_, model in found:
        assert torch.equal(whole(model), whole(made()))


# ---------------------------------------------------------------------- torch.compile
def hooked(model):
    model.register_forward_hook(lambda *_: None)
    model.head.register_forward_pre_hook(lambda *_: None)
    return model


COMPILED = {
    "the model": lambda m, b: m.compile(backend=b) or m,
    "a wrapper": lambda m, b: torch.compile(m, backend=b),
    "a layer": lambda m, b: m.head.compile(backend=b) or m,
    "of a container": lambda m, b: nn.Sequential.compile(m, backend=b) or m,
}


def compiled(make, way, before, hooks, patch=True):
    """A compiled model, and the sizes of the graphs that its calls compile."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph, _):
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    model = hooked(made(make)) if hooks else made(make)
    called = COMPILED[way](model, backend) if before else model
    if patch:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ds.errors.StreamWarning)
            ds.patch_module(model)
    called = called if before else COMPILED[way](model, backend)
    return model, called, graphs


@pytest.mark.parametrize(
    ("way", "before", "make", "hooks"),
    [
        ("the model", False, Net, True), ("the model", True, Net, False), ("the model", True, Doubled, True),
        ("a wrapper", False, Net, False), ("a wrapper", True, Net, True), ("a wrapper", False, Doubled, False),
        ("a layer", False, Net, True), ("a layer", True, Net, True), ("of a container", False, Net, False),
    ],
)  # fmt: skip
def test_compiled_models(way, before, make, hooks):
    """Offline they are what torch compiles of the untouched model; streams run as ever."""
    plain, called, wanted = compiled(make, way, before, hooks, False)
    want = [whole(called) for _ in range(2)]
    model, called, graphs = compiled(make, way, before, hooks)
    assert all(torch.equal(whole(called), y) for y in want) and graphs == wanted
    ds.online(model)
    torch.testing.assert_close(streamed(called), want[0][0], rtol=1e-5, atol=1e-5)
    ds.offline(model)
    assert torch.equal(whole(called), want[0])
    ds.unpatch_module(model)
    assert torch.equal(whole(called), want[0])
    kept = ("_compiled_call_impl" in model.__dict__, "_compiled_call_impl" in model.head.__dict__)
    assert kept == ("_compiled_call_impl" in plain.__dict__, "_compiled_call_impl" in plain.head.__dict__)


def test_compiled_as_one_graph():
    """A call of streams has none; torch says so."""
    torch._dynamo.reset()
    model = patched()
    called = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(whole(called), whole(made()))
    model.online()
    with pytest.raises(RuntimeError, match="fullgraph=True"):
        called(chunk(0, 5))


def test_compiled_functions_of_streams():
    """What surrounds a model is compiled where there are no streams in it."""
    torch._dynamo.reset()
    model = patched()
    step = torch.compile(lambda x: model(x).tanh(), backend="eager")
    want = whole(step)
    torch.testing.assert_close(streamed(lambda x: step(x) if model.online() else x), want[0], rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------------- wrappers for training
@pytest.fixture
def group(tmp_path):
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def test_distributed_data_parallel(group):
    plain, model = patched(), patched()
    wrapper = nn.parallel.DistributedDataParallel(model)
    assert torch.equal(whole(wrapper), whole(plain))
    for a, b in ((0, 5), (5, 12)):
        for each, m in ((wrapper, model), (plain, plain)):
            m.online()
            each(chunk(a, b)).square().mean().backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in plain.parameters()])
    with pytest.raises(ds.ModeError, match="DistributedDataParallel is not patched"):
        ds.reset(wrapper)


@pytest.mark.parametrize("first", [False, True])
def test_fully_sharded(group, first):
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    model = made()
    if first:
        fully_shard(model, mesh=group)
    ds.patch_module(model)
    if not first:
        fully_shard(model, mesh=group)
    assert_streams(model, whole(made())[0])
    wrapped = FullyShardedDataParallel(patched(), device_id=torch.device("cpu"))
    assert torch.equal(whole(wrapped), whole(made()))
