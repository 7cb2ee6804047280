"""Patching leaves no trace: classes, dictionaries, hooks and states of modules of many kinds, before and after."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from turns import in_blocks
from wrappers import Forwards

import dreamstream as ds

#: Constructors of torch.nn's layers.
LAYERS = [
    ("Identity", ()), ("Linear", (3, 4)), ("Bilinear", (3, 4, 5)), ("Flatten", ()), ("Unflatten", (1, (1, 3))),
    ("Conv1d", (3, 4, 3)), ("Conv2d", (3, 4, 3)), ("Conv3d", (3, 4, 3)), ("ConvTranspose1d", (3, 4, 3)),
    ("ConvTranspose2d", (3, 4, 3)), ("Fold", ((4, 5), (2, 2))), ("Unfold", ((2, 2),)),
    ("MaxPool1d", (2,)), ("AvgPool1d", (2,)), ("LPPool1d", (2, 3)), ("AdaptiveAvgPool1d", (2,)),
    ("MaxPool2d", (2,)), ("AvgPool2d", (2,)), ("MaxUnpool1d", (2,)), ("FractionalMaxPool2d", (2, (3, 3))),
    ("ZeroPad1d", (1,)), ("ConstantPad1d", (1, 2.0)), ("ReflectionPad1d", (1,)), ("ReplicationPad1d", (1,)),
    ("CircularPad1d", (1,)),
    ("ReLU", ()), ("ELU", ()), ("GELU", ()), ("SiLU", ()), ("PReLU", ()), ("Softmax", (-1,)), ("GLU", ()),
    ("Tanh", ()), ("Hardtanh", ()), ("Threshold", (0.1, 1.0)), ("LogSoftmax", (-1,)), ("Softshrink", ()),
    ("BatchNorm1d", (3,)), ("BatchNorm2d", (3,)), ("GroupNorm", (1, 3)), ("LayerNorm", (3,)), ("RMSNorm", (3,)),
    ("InstanceNorm1d", (3,)), ("LocalResponseNorm", (2,)), ("SyncBatchNorm", (3,)),
    ("LSTM", (3, 4)), ("GRU", (3, 4, 2)), ("RNN", (3, 4)), ("LSTMCell", (3, 4)), ("GRUCell", (3, 4)),
    ("RNNCell", (3, 4)), ("Embedding", (5, 3)), ("EmbeddingBag", (5, 3)),
    ("Dropout", (0.1,)), ("Dropout1d", ()), ("AlphaDropout", ()), ("CosineSimilarity", ()),
    ("PairwiseDistance", ()), ("Upsample", (None, 2)), ("PixelShuffle", (2,)), ("ChannelShuffle", (3,)),
    ("MultiheadAttention", (4, 2)), ("TransformerEncoderLayer", (4, 2, 8)), ("TransformerDecoderLayer", (4, 2, 8)),
    ("Transformer", (4, 2, 1, 1, 8)), ("MSELoss", ()), ("CrossEntropyLoss", ()), ("CTCLoss", ()),
    ("AdaptiveLogSoftmaxWithLoss", (4, 10, [3])), ("LazyLinear", (4,)), ("LazyConv1d", (4, 3)),
    ("LazyBatchNorm1d", ()),
]  # fmt: skip


def nothing(*_, **__):
    """A hook."""


class OwnCall(nn.Linear):
    def __call__(self, x):
        return super().__call__(x) * 2


class OwnNames(nn.Module):
    """All names that a patch lends are its own: a child, a parameter, a buffer, a property, methods, values."""

    def __init__(self):
        super().__init__()
        self.online, self.get_state = nn.Linear(3, 3), 7
        self.set_state = nn.Parameter(torch.zeros(2))
        self.register_buffer("live_ids", torch.ones(2))
        self.layer = nn.Linear(3, 3)

    @property
    def is_online(self):
        raise RuntimeError("nobody is to ask")

    def reset(self):
        return "mine"

    def offline(self):
        return "mine, too"

    def forward(self, x):
        return self.online(x) + self.layer(x)


class Slots(nn.Linear):
    __slots__ = ("kept",)


def hooked(module):
    module.register_forward_hook(nothing)
    module.register_forward_pre_hook(nothing, with_kwargs=True)
    module.register_full_backward_hook(nothing)
    module.register_full_backward_pre_hook(nothing)
    module.register_state_dict_post_hook(nothing)
    module.register_state_dict_pre_hook(nothing)
    module.register_load_state_dict_post_hook(nothing)
    module.register_load_state_dict_pre_hook(nothing)
    return module


def replaced(module):
    old = module.forward
    module.forward = lambda *args, **kwargs: old(*args, **kwargs)
    return module


def compiled(module):
    module.compile(backend="eager")
    return module


def old_weight_norm(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(module)


def shared():
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.ReLU(), layer)


def tied():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    return model


#: What else modules may be.
SPECIAL = {
    "sequential": lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Sequential(nn.Conv1d(4, 4, 1))),
    "lists": lambda: nn.Sequential(nn.ModuleList([nn.Linear(3, 3)]), nn.ModuleDict({"a": nn.Linear(3, 3)})),
    "parameters": lambda: nn.Sequential(nn.ParameterList([torch.ones(2)]), nn.ParameterDict({"a": torch.ones(1)})),
    "shared": shared,
    "tied": tied,
    "empty": lambda: nn.Module(),
    "own call": lambda: OwnCall(3, 3),
    "own names": OwnNames,
    "within": lambda: nn.Sequential(OwnNames(), OwnCall(3, 3)),
    "slots": lambda: Slots(3, 3),
    "forwards attributes": lambda: Forwards(nn.Linear(3, 3)),
    "hooks of every kind": lambda: hooked(nn.Linear(3, 3)),
    "another forward": lambda: replaced(nn.GRU(3, 3)),
    "compiled": lambda: compiled(nn.Linear(3, 3)),
    "weight_norm": lambda: parametrizations.weight_norm(nn.Conv1d(3, 4, 3)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(3, 3)),
    "spectral_norm": lambda: parametrizations.spectral_norm(nn.Linear(3, 3)),
    "old weight_norm": lambda: old_weight_norm(nn.Conv1d(3, 4, 3)),
    "pruned": lambda: prune.random_unstructured(nn.Linear(3, 3), "weight", 0.5),
    "traced by fx": lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU())),
    "compiled wrapper": lambda: torch.compile(nn.Linear(3, 3), backend="eager"),
    "data parallel": lambda: nn.DataParallel(nn.Linear(3, 3)),
    "meta": lambda: nn.Linear(3, 3, device="meta"),
    "training": lambda: nn.Linear(3, 3).train(),
    "frozen": lambda: nn.Linear(3, 3).requires_grad_(False),
    "own ignored attributes": lambda: type("Ignoring", (nn.Linear,), {"__jit_ignored_attributes__": ["a"]})(3, 3),
    "patches itself": lambda: type("Itself", (ds.torch.StreamModule, nn.Linear), {})(3, 3),
}
MAKERS = {**{name: lambda name=name, args=args: getattr(nn, name)(*args) for name, args in LAYERS}, **SPECIAL}


def seen(model):
    """All of a module and those below it that can be looked at, by identity; containers by what they hold."""
    out = []
    for path, module in model.named_modules(remove_duplicate=False):
        kept = {}
        for name, value in module.__dict__.items():
            held = value.items() if isinstance(value, dict) else value if isinstance(value, set) else ()
            kept[name] = (value, id(value), list(held))
        names = {cls: list(vars(cls)) for cls in type(module).__mro__}
        out.append((path, module, type(module), id(module.__dict__), list(kept.items()), names, repr(module)))
    return out, list(model.state_dict()), dir(model)


def patched(model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ds.errors.StreamWarning)
        return ds.patch_module(model, unstreamable="buffer", **options)


@in_blocks("name", MAKERS, 25)
def test_unpatching_leaves_no_trace(name):
    model = MAKERS[name]()
    before = seen(model)
    classes = [type(m) for m in model.modules()]
    patched(model)
    assert [type(m) for m in model.modules()] == classes
    assert repr(model) == before[0][0][-1] and list(model.state_dict()) == before[1]
    ds.online(model)
    ds.offline(model)
    patched(model, skew=1)
    ds.unpatch_module(model)
    after = seen(model)
    for old, new in zip(before[0], after[0], strict=True):
        for a, b in zip(old, new, strict=True):
            assert a == b
    assert before[1:] == after[1:]


def test_refused_patches_leave_no_trace():
    model = nn.Sequential(nn.Linear(3, 3), nn.GroupNorm(1, 3), nn.LSTM(3, 3, bidirectional=True))
    before = seen(model)
    for call in (lambda: ds.patch_module(model), lambda: ds.compile(model, ("B", "L", 3))):
        with pytest.raises(ds.NotStreamableError):
            call()
    with pytest.raises(ValueError, match="skew"):
        ds.patch_module(model, skew=-1)
    assert seen(model) == before


def test_captures_leave_no_trace():
    model = nn.Sequential(nn.Conv1d(3, 4, 3), hooked(nn.Conv1d(4, 2, 1)), nn.ReLU()).eval()
    before = seen(model)
    ds.compile(model, ("B", 3, "L"))
    ds.audit(model, ("B", 3, "L"))
    ds.torch.functionalize(model, ("B", 3, "L"))
    assert seen(model) == before


def test_parts_of_scripts_are_refused():
    inner = torch.jit.trace(nn.Linear(3, 3), torch.ones(1, 3))
    model = nn.Sequential(nn.ReLU(), inner)
    before = list(model.__dict__), list(model[0].__dict__)
    with pytest.raises(TypeError, match=r"1 is scripted.*take the module of which"):
        ds.patch_module(model)
    assert (list(model.__dict__), list(model[0].__dict__)) == before


def test_what_others_put_on_top_stays():
    """Entries that somebody has written over since then are theirs."""
    model = ds.patch_module(nn.Linear(3, 2)).online()
    mine, called = (lambda: "mine"), model.__dict__["_compiled_call_impl"]
    model.reset = mine
    model._compiled_call_impl = wrapped = lambda *args: called(*args) * 2
    x = torch.randn(4, 3)
    ds.unpatch_module(model)
    assert model.reset is mine and model._compiled_call_impl is wrapped
    assert torch.equal(model(x), torch.nn.functional.linear(x, model.weight, model.bias) * 2)
