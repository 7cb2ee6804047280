"""What layers do in training alone: gradients of tables, random numbers that frames share, weights that change."""

import copy
import random
import warnings

import numpy as np
import pytest
import torch
from torch_training import VARIANTS, assert_close, assert_same_gradients
from turns import in_blocks

import dreamstream as ds
from dreamstream.errors import ModeError, NotStreamableError, StreamWarning

nn, F = torch.nn, torch.nn.functional
INDICES = torch.tensor([0, 3, 0, 1, 2, 0, 5, 4, 0])


def parts(x, names, n=3):
    """Yield one stream in n calls."""
    bounds = [len(x) * k // n for k in range(n + 1)]
    for k, (a, b) in enumerate(zip(bounds, bounds[1:])):
        yield ds.stream_tensor([x[a:b]], ids=["anna"], sos=k == 0, eos=k == n - 1, names=names)


class Of(nn.Module):
    """A module whose forward is a function of it and its input."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def trained(model, x, names, variant="full-file-aligned", n=3):
    """Return the untouched model after a backward through a whole file, and one that got it in n calls."""
    plain = copy.deepcopy(model).train()
    wanted = plain(x[None])
    wanted.square().sum().backward()
    online = ds.patch_module(model, train_variant=variant).train().online()
    ys = [online(part) for part in parts(x, names, n)]
    sum(y.square().sum() for y in ys).backward()
    assert_close(torch.cat([y["anna"] for y in ys if y.ids]), wanted[0])
    return plain, online


# ---------------------------------------------------------------------- tables
OPTIONS = [{}, {"padding_idx": 0}, {"padding_idx": -1}, {"sparse": True}, {"sparse": True, "padding_idx": 3}]


def dense(model):
    for p in model.parameters():
        assert p.grad.is_sparse == model.sparse
        p.grad = p.grad.to_dense()
    return model


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("way", ["layer", "function"])
def test_tables_have_torchs_gradients(way, options, variant):
    torch.manual_seed(0)
    table = nn.Embedding(6, 4, **options).double()
    if way == "layer":
        model = Of(lambda m, x: m.table(x) + 1, table=table)
    else:
        model = Of(lambda m, x: F.embedding(x, m.table.weight, **options) + 1, table=table)
    model.sparse = options.get("sparse", False)
    plain, online = trained(model, INDICES, ("B", "L"), variant)
    assert_same_gradients(dense(online), dense(plain))


@pytest.mark.parametrize("padding_idx", [None, 1])
def test_tables_of_positions_have_torchs_gradients(padding_idx):
    torch.manual_seed(0)
    model = Of(
        lambda m, x: m.table(x) + m.positions(torch.arange(x.size(1))),
        table=nn.Embedding(6, 4),
        positions=nn.Embedding(30, 4, padding_idx=padding_idx),
    )
    assert_same_gradients(*reversed(trained(model.double(), INDICES, ("B", "L"))))


def test_how_often_an_index_occurs_is_counted_over_whole_files():
    torch.manual_seed(0)
    model = Of(lambda m, x: m.table(x) + 1, table=nn.Embedding(6, 4, scale_grad_by_freq=True).double())
    assert_same_gradients(*reversed(trained(copy.deepcopy(model), INDICES, ("B", "L"), n=1)))
    with pytest.raises(NotStreamableError, match=r"test_training_options\.py:\d+ .* counted over a whole file"):
        trained(model, INDICES, ("B", "L"))
    model.requires_grad_(False)
    model.eval()
    assert len(model(next(parts(INDICES, ("B", "L"))))["anna"]) == 3


@pytest.mark.parametrize("index", [lambda x: x, lambda x: torch.arange(x.size(1))], ids=["values", "positions"])
def test_rows_are_not_renormalised(index):
    model = Of(lambda m, x: m.table(index(x)) + 0.0 * x.unsqueeze(-1), table=nn.Embedding(9, 4, max_norm=1.0))
    with pytest.raises(ModeError, match="max_norm would write into the weights"):
        ds.patch_module(model).online()(next(parts(INDICES, ("B", "L"))))


# ---------------------------------------------------------------------- random numbers that frames share
ONES = torch.ones(16)
G = torch.Generator()
DRAWS = {
    "bernoulli": lambda m, x: x * torch.bernoulli(0.5 * ONES),
    "rand": lambda m, x: x * (torch.rand(16) > 0.5),
    "rand_like": lambda m, x: x * torch.rand_like(m.layer.bias),
    "randn": lambda m, x: x + torch.randn(16),
    "randint": lambda m, x: x + torch.randint(0, 1000, (16,)).float(),
    "randperm": lambda m, x: x[..., torch.randperm(16)],
    "normal": lambda m, x: x + torch.normal(0 * ONES, ONES),
    "multinomial": lambda m, x: x * torch.multinomial(ONES, 16),
    "poisson": lambda m, x: x * torch.poisson(9 * ONES),
    "bernoulli_": lambda m, x: x * torch.empty(16).bernoulli_(0.5),
    "uniform_": lambda m, x: x * torch.empty(16).uniform_(),
    "normal_": lambda m, x: x * torch.empty(16).normal_(),
    "a part in place": lambda m, x: x * _in_part(torch.ones(16)),
    "exponential_": lambda m, x: x * torch.empty(16).exponential_(),
    "random_": lambda m, x: x * torch.empty(16).random_(99),
    "init": lambda m, x: x * nn.init.normal_(torch.empty(16)),
    "out=": lambda m, x: x * torch.rand(16, out=torch.empty(16)),
    "generator": lambda m, x: x * torch.rand(16, generator=G),
    "Bernoulli": lambda m, x: x * torch.distributions.Bernoulli(0.5).sample((16,)),
    "Normal": lambda m, x: x * torch.distributions.Normal(0.0, 1.0).rsample((16,)),
    "dropout": lambda m, x: x * F.dropout(ONES),
    "nn.Dropout": lambda m, x: x * nn.Dropout(0.5).train()(ONES),
    "torch.dropout": lambda m, x: x * torch.dropout(ONES, 0.5, True),
    "gumbel_softmax": lambda m, x: x * F.gumbel_softmax(ONES),
    "dropped weights": lambda m, x: F.linear(x, F.dropout(m.layer.weight)),
    "weights of a recurrent layer": lambda m, x: _dropped(m.gru)(x)[0],
    "what is computed of it": lambda m, x: x * (1 + torch.rand(16).exp().cumsum(0)[:1]),
    "a number": lambda m, x: x * torch.rand(1).item(),
    "an if": lambda m, x: x if torch.rand(1) < 0.5 else -x,
}  # fmt: skip


def _in_part(x):
    x[:8].uniform_()
    return x


def _dropped(gru):
    twin = copy.copy(gru)
    twin._parameters = dict(gru._parameters)
    weight = twin._parameters.pop("weight_hh_l0")
    twin.__dict__["weight_hh_l0"] = F.dropout(weight)
    return twin


def drawing(name):
    torch.manual_seed(0)
    return Of(DRAWS[name], layer=nn.Linear(16, 16), gru=nn.GRU(16, 16, batch_first=True))


SHARED = "each chunk of a file would get others"


@pytest.mark.parametrize("training", [True, False])
@in_blocks("name", DRAWS, 15)
def test_what_frames_share_is_not_drawn_for_each_chunk(name, training):
    model = ds.patch_module(drawing(name)).train(training).online()
    with pytest.raises(NotStreamableError, match=rf"test_training_options\.py:\d+ .*{SHARED}"):
        model(next(parts(torch.ones(6, 16), ("B", "L", "F"))))
    assert model.live_ids == []


@pytest.mark.parametrize("name", ["rand", "generator", "an if", "dropped weights"])
def test_engines_draw_nothing(name):
    with pytest.raises(NotStreamableError, match=SHARED):
        ds.compile(drawing(name), ("B", "L", 16))


@pytest.mark.parametrize("name", [n for n in DRAWS if n not in ("generator", "weights of a recurrent layer")])
def test_whole_files_in_one_call_draw_what_torch_draws(name):
    model, x = drawing(name), torch.randn(6, 16)
    torch.manual_seed(1)
    wanted = model(x[None])[0]
    torch.manual_seed(1)
    (call,) = parts(x, ("B", "L", "F"), 1)
    assert torch.allclose(ds.patch_module(model).train().online()(call)["anna"], wanted)


def test_what_is_drawn_and_not_used_does_no_harm():
    """As where a layer asks for a random number and uses it in training only."""
    model = ds.patch_module(Of(_skipping)).eval().online()
    assert all((model(part)["anna"] == 1).all() for part in parts(torch.ones(6, 16), ("B", "L", "F")))
    assert ds.compile(Of(_skipping), ("B", "L", 16)).step({"a": np.ones((3, 16), np.float32)}, sos="a")["a"].all()


def _skipping(m, x):
    drawn = torch.rand([])
    return x * 2 if m.training and drawn < 0.5 else x


def _in_a_loop(drop):
    def forward(m, x):
        h, ys = torch.zeros(x.size(0), 16, dtype=x.dtype), []
        for t in range(x.size(1)):
            h = drop(m.cell(x[:, t], h), 0.5, m.training)
            ys.append(drop(h + x[:, t], 0.2, m.training))
        return torch.stack(ys, 1)

    return forward


def _of_channels(kind):
    dims = {"Dropout2d": 1, "Dropout3d": 2}.get(kind, 0)

    def forward(m, x):
        x = m.line(x).transpose(1, 2)
        x = m.layer(x[(..., *(None,) * dims)]).flatten(2) if dims else m.layer(x)
        return x.transpose(1, 2)

    return forward


def _looking(attend):
    """Attention with two heads, to all that came before."""

    def forward(m, x):
        q = m.line(x).unflatten(-1, (2, 8)).transpose(1, 2)
        k, v = (y.unflatten(-1, (2, 8)).transpose(1, 2) for y in m.two(x).chunk(2, -1))
        return attend(q, k, v, m.training).transpose(1, 2).flatten(2) + 5.0

    return forward


def _by_hand(q, k, v, training):
    score = (q @ k.mT).masked_fill(torch.ones(q.size(2), q.size(2)).triu(1).bool(), -torch.inf)
    return F.dropout(score.softmax(-1), 0.3, training) @ v


def _by_function(q, k, v, training):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.3 * training)


CHANNELS = ["Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]
FOLLOWING = {
    **{kind: (getattr(nn, kind)(0.5), _of_channels(kind)) for kind in CHANNELS},
    **{
        kind: (getattr(nn, kind)(), lambda m, x: m.layer(m.line(x)))
        for kind in ("Dropout", "AlphaDropout", "RReLU")
    },
    "dropout in a loop": (nn.Identity(), _in_a_loop(F.dropout)),
    "alpha dropout in a loop": (nn.Identity(), _in_a_loop(F.alpha_dropout)),
    "attention": (nn.Identity(), _looking(_by_function)),
    "attention by hand": (nn.Identity(), _looking(_by_hand)),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_neither_chunks_nor_companions_change_what_is_dropped(name):
    layer, forward = FOLLOWING[name]
    torch.manual_seed(0)
    frames = torch.randn(11, 16, dtype=torch.float64)
    x = {"anna": frames, "bob": frames[:9]}
    model = Of(forward, layer=layer, line=nn.Linear(16, 16), cell=nn.GRUCell(16, 16))
    model.two = nn.Linear(16, 32)
    ds.patch_module(model.double(), "full-file-aligned").train().online()

    def run(*bounds):
        """Give both streams in calls that end at these frames."""
        torch.manual_seed(1)
        model.zero_grad()
        given, losses = {i: [] for i in x}, []
        for ends in zip((dict.fromkeys(x, 0), *bounds), bounds):
            rows = {i: x[i][ends[0].get(i, 0) : n] for i, n in ends[1].items() if n > ends[0].get(i, 0)}
            flags = {"sos": [ends[0].get(i, 0) == 0 for i in rows], "eos": [ends[1][i] == len(x[i]) for i in rows]}
            y = model(ds.stream_tensor(list(rows.values()), ids=list(rows), names=("B", "L", "F"), **flags))
            for i in y.ids:
                given[i].append(y[i].detach())
            losses.append(y.square().sum())
        sum(losses).backward()
        return {i: torch.cat(ys) for i, ys in given.items()}, [p.grad for p in model.parameters()]

    first, slopes = run({"anna": 4, "bob": 5}, {"anna": 11, "bob": 9})
    again, others = run(
        {"anna": 1}, {"anna": 7}, {"anna": 7, "bob": 3}, {"anna": 10, "bob": 8}, {"anna": 11, "bob": 9}
    )
    for i, y in first.items():
        torch.testing.assert_close(again[i], y)
    for p, q in zip(others, slopes):
        torch.testing.assert_close(p, q)
    assert not torch.allclose(first["anna"][:9], first["bob"])
    assert model.eval()(next(parts(frames, ("B", "L", "F"))))["anna"].all()


def test_channels_of_single_frames_are_dropped_chunk_by_chunk():
    """Here torch drops elements of (B, L): whole frames."""
    model = ds.patch_module(Of(lambda m, x: F.dropout1d(x, 0.5))).train().online()
    y = torch.cat([model(part)["anna"] for part in parts(torch.ones(60, 16), ("B", "L", "F"))])
    assert 0 < int(y[:, 0].count_nonzero()) < 60 and bool((y == y[:, :1]).all())


@pytest.mark.parametrize("draw", [F.dropout, torch.rand_like])
def test_what_is_given_once_is_not_drawn_for_each_chunk(draw):
    class Scaled(nn.Module):
        def forward(self, x, scale):
            return x * draw(scale.exp()).unsqueeze(1)

    model, once = ds.patch_module(Scaled()).train().online(), ds.static({"anna": torch.ones(16)})
    first, whole = (next(parts(torch.ones(6, 16), ("B", "L", "F"), n)) for n in (3, 1))
    with pytest.raises(NotStreamableError, match=SHARED):
        model(first, once)
    y = model(whole, once)["anna"]
    assert bool((y == y[0]).all())


@pytest.mark.parametrize("name", ["rand_like", "randn_like", "bernoulli"])
def test_each_frame_has_numbers_of_its_own(name):
    draw = getattr(torch, name)
    model, x = Of(lambda m, x: x + draw(x)), torch.rand(6, 16)
    torch.manual_seed(1)
    wanted = model(x[None])[0]
    torch.manual_seed(1)
    (call,) = parts(x, ("B", "L", "F"), 1)
    online = ds.patch_module(model).train().online()
    assert torch.equal(online(call)["anna"], wanted)
    y = torch.cat([online(part)["anna"] for part in parts(torch.full((60, 16), 0.5), ("B", "L", "F"))])
    assert len(torch.unique(y, dim=0)) > 50
    with pytest.raises(NotStreamableError, match="an engine draws none"):
        ds.compile(model, ("B", "L", 16))


@pytest.mark.parametrize("draw", [random.random, lambda: float(np.random.rand())], ids=["random", "NumPy"])
def test_other_generators_are_told_of(draw):
    model = ds.patch_module(Of(lambda m, x: x * draw())).train().online()
    line = r"by random or np\.random at or before test_training_options\.py:\d+ in <lambda>: `.*x \* draw\(\)"
    with pytest.warns(StreamWarning, match=f"{line}.*{SHARED}"):
        model(next(parts(torch.ones(6, 16), ("B", "L", "F"))))
    (call,) = parts(torch.ones(6, 16), ("B", "L", "F"), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.patch_module(Of(lambda m, x: x * draw())).train().online()(call)


# ---------------------------------------------------------------------- weights that change with every call
def _old(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.spectral_norm(layer)


@pytest.mark.parametrize("norm", [_old, nn.utils.parametrizations.spectral_norm], ids=["old", "new"])
def test_spectral_norm_changes_weights_between_whole_files_alone(norm):
    torch.manual_seed(0)
    model = Of(lambda m, x: m.layer(x), layer=norm(nn.Linear(16, 16))).double()
    x = torch.randn(6, 16, dtype=torch.float64)
    wanted = model.train()(x[None])[0].detach()
    torch.manual_seed(0)
    model = Of(lambda m, x: m.layer(x), layer=norm(nn.Linear(16, 16))).double()
    x = torch.randn(6, 16, dtype=torch.float64)
    online = ds.patch_module(model).train().online()
    (call,) = parts(x, ("B", "L", "F"), 1)
    assert_close(online(call)["anna"], wanted)
    before = copy.deepcopy(online.state_dict())
    with pytest.raises(ModeError, match=r"spectral_norm at .* call \.eval\(\)") as raised:
        online(next(parts(x, ("B", "L", "F"))))
    assert raised.value.ids == ("anna",)
    assert all(torch.equal(a, before[name]) for name, a in online.state_dict().items())
    online.layer.eval()
    assert torch.isfinite(online(next(parts(x, ("B", "L", "F"))))["anna"]).all()


# ---------------------------------------------------------------------- arguments that would be dropped
def test_keys_of_a_projection_made_elsewhere_are_refused():
    attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(m, x):
        y = x.transpose(0, 1)
        a = m.attention
        weights = (a.in_proj_weight, a.in_proj_bias, None, None, False, 0.0, a.out_proj.weight, a.out_proj.bias)
        return F.multi_head_attention_forward(y, y, y, 16, 2, *weights, static_k=torch.zeros(2, 6, 8))[0]

    model = ds.patch_module(Of(forward, attention=attention)).online()
    with pytest.raises(NotStreamableError, match="static_k"):
        model(next(parts(torch.ones(6, 16), ("B", "L", "F"))))
