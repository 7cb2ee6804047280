"""Statistics of whole streams: as outputs, and as what their frames use, which wait for them."""

from typing import Any

from .tables import BCL, BLC, F, case, ds, forward, module, net, nn

WAITS = {"whole": True, "exports": False}

# ---------------------------------------------------------------- outputs at the end
for _name, _statistic in {
    "var": lambda x: x.var(2),
    "var-of-the-population": lambda x: x.var(2, unbiased=False),
    "std-that-stays": lambda x: x.std(-1, correction=0, keepdim=True),
    "var-of-two-axes": lambda x: x.var((1, 2)),
    "mean-of-two-axes": lambda x: x.mean((1, 2), keepdim=True),
    "norm": lambda x: x.norm(dim=2),
    "largest": lambda x: x.max(2)[0] - x.min(dim=2).values,
    "largest-and-where": lambda x: (*x.max(2), *x.transpose(1, 2).min(dim=1, keepdim=True)),
    "where-the-extremes-are": lambda x: (x.argmax(2), x.argmin(-1, keepdim=True), x[:, 0].argmax(1)),
    "where-among-equals": lambda x: (x.round().argmax(2), x.round().min(2)[1]),
    "product": lambda x: (x.prod(2), x.prod(dim=-1, keepdim=True)),
    "logsumexp": lambda x: (x.logsumexp(2), (x * 50).logsumexp((1, 2), keepdim=True)),
    "of-integers": lambda x: (
        x.round().long().sum(2),
        x.round().long().amax(2),
        x.round().long().prod(2),
        *x.round().long().min(2),
    ),
    "of-truths": lambda x: ((x > 0).sum(2), (x > 2).amax(2), (x > 0).prod(2), *(x > 0).max(2)),
    "counted": lambda x: (x.round().count_nonzero(2), x[:, 0].round().count_nonzero(dim=-1)),
    "but-for-nan": lambda x: (x.sqrt().nansum(2), x.sqrt().nanmean(2, keepdim=True).nan_to_num()),
    "any-and-all": lambda x: ((x > 1).any(2).float(), (x > -1).all(2).float()),
    "mean-by-length": lambda x: (x * x).sum(2) / x.size(2),
    "weighted-by-sigmoid": lambda x: (x * x.sigmoid()).sum(2) / x.sigmoid().sum(2),
    "products-of-features": lambda x: x @ x[:, :2].transpose(1, 2),
    "softmax-of-each": lambda x: (x * x.softmax(2)).sum(2),
    "softmax-masked": lambda x: (x[:, 1:] * x[:, :1].masked_fill(x[:, :1] > 1, -1e9).softmax(-1)).sum(-1),
}.items():
    case(
        f"over-L-{_name}",
        BCL(4),
        lambda nn, F, ds, f=_statistic: net(nn, lambda self, x: f(x)),
        multiple=2 if _name == "var" else 1,  # of one frame there is none
    )


@forward(BLC(4), lambda: {"hidden": nn.Linear(4, 3), "heads": nn.Linear(3, 2), "one": nn.Linear(4, 1)})
def _self_attentive_pooling(self: Any, x: Any) -> Any:
    """Two heads, as a product of matrices, and one as a sum."""
    heads = F.softmax(self.heads(self.hidden(x).tanh()), dim=1).transpose(1, 2) @ x
    w = F.dropout(self.one(x).softmax(1) / 2, 0.1, self.training)
    return heads.flatten(1), (w * x).sum(dim=1, keepdim=True)


@forward(BLC(4), lambda: {"one": nn.Linear(4, 1)}, native=False, multiple=2)
def _pooling_by_einsum(self: Any, x: Any) -> Any:
    w = self.one(x).squeeze(-1).softmax(-1)
    spread, mean = ds.var_mean(x, 1)
    return ds.einsum("bt,btc->bc", w, x), ds.bmm(w.unsqueeze(1), x), spread, mean


# ---------------------------------------------------------------- of all frames so far
for _name, _running in {
    "product": lambda x: (x.cumprod(2), x.cumprod(1)),
    "largest": lambda x: (*x.cummax(2), *x.round().cummax(-1)),
    "smallest": lambda x: (*x.transpose(1, 2).cummin(1), x.round().cummin(2).indices),
    "logsumexp": lambda x: (x.logcumsumexp(2), (x * 50).logcumsumexp(dim=2)),
    "of-integers": lambda x: (x.round().long().cumsum(2), (x > 0).cumsum(2), *x.round().long().cummax(2)),
}.items():
    case(f"so-far-{_name}", BCL(4), lambda nn, F, ds, f=_running: net(nn, lambda self, x: f(x)), onnx=False)
case(
    "so-far-of-features",
    BCL(4),
    lambda nn, F, ds: net(nn, lambda self, x: (*x.cummax(1), *x.round().cummin(1), (x * 50).logcumsumexp(1))),
)


@module(BCL(4), **WAITS, multiple=5)
def _the_largest_five(nn: Any, F: Any, ds: Any) -> Any:
    return net(
        nn, lambda self, x: (x.topk(5, dim=2)[0].mean(2), *x.topk(3, -1, largest=False), x.kthvalue(4, 2)[0])
    )


# ---------------------------------------------------------------- what frames use
for _name, _use in {
    "centred": lambda x, F: x - x.mean(2, keepdim=True),
    "standardised": lambda x, F: (x - x.mean(2).unsqueeze(2)) / (x.std(2, correction=0, keepdim=True) + 0.1),
    "by-the-peak": lambda x, F: x / x.abs().max(dim=2, keepdim=True)[0],
    "global-norm": lambda x, F: (
        (x - x.mean((1, 2), keepdim=True)) / (x.var((1, 2), unbiased=False, keepdim=True) + 1e-8).sqrt()
    ),
    "global-norm-by-steps": lambda x, F: (
        (x - x.mean(1, keepdim=True).mean(2, keepdim=True)).pow(2).mean((1, 2), keepdim=True) * x
    ),
    "the-largest-alone": lambda x, F: x * (x.max(2, keepdim=True)[0] == x),
    "by-the-product": lambda x, F: x * x.clamp(0.9, 1.1).prod(2, keepdim=True),
    "softmax": lambda x, F: F.softmax(x, dim=2) * 2,
    "log-softmax": lambda x, F: F.log_softmax(x, -1),
    "softmax-and-its-sum": lambda x, F: (x.softmax(2), (x * x.softmax(2)).sum(2)),
    "logsumexp": lambda x, F: x - x.logsumexp(2, keepdim=True),
    "flip": lambda x, F: x.flip(2),
    "sort": lambda x, F: (*x.sort(2), x.argsort(-1, descending=True)),
    "sort-of-integers": lambda x, F: (*x.round().long().sort(dim=2, stable=True), (x > 0).sort(dim=-1)[0]),
    "median": lambda x, F: (x.median(2).values, x - x.median(2, keepdim=True)[0], x.nanmedian(dim=-1).indices),
    "largest-frames": lambda x, F: (*x.topk(1, 2), *x.transpose(1, 2).kthvalue(1, 1, keepdim=True)),
    "quantiles": lambda x, F: (x.quantile(0.3, 2), x.nanquantile(0.77, dim=-1, keepdim=True)),
    "rounded-quantiles": lambda x, F: (
        x.quantile(0.4, 2, interpolation="nearest"),
        x.quantile(0.4, 2, interpolation="lower"),
        x.quantile(0.4, 2, interpolation="higher"),
        x.quantile(0.4, 2, interpolation="midpoint"),
    ),
    "frames-by-their-places": lambda x, F: x.gather(2, x[:, :2].argmax(2, keepdim=True)),
    "expanded": lambda x, F: x.amax(2, keepdim=True).expand(-1, -1, x.size(2)) - x,
    "repeated": lambda x, F: x.amax(2).unsqueeze(-1).repeat(1, 1, x.size(2)) * x,
    "a-part-of-it": lambda x, F: x[..., 1:] - x[..., :-1].mean(2, keepdim=True),
    "delayed": lambda x, F: F.avg_pool1d(x, 3, 1, 1) - F.adaptive_max_pool1d(x, 1),
    "normalize": lambda x, F: F.normalize(x, dim=2),
}.items():
    case(f"waits-{_name}", BCL(4), lambda nn, F, ds, f=_use: net(nn, lambda self, x: f(x, F)), **WAITS)


@module(BCL(4), **WAITS)
def _squeeze_and_excite(nn: Any, F: Any, ds: Any) -> Any:
    """Two blocks, by convolutions and by linear layers."""

    def forward(self: Any, x: Any) -> Any:
        x = F.relu(self.conv(x))
        x = x * self.up(F.relu(self.down(self.pool(x)))).sigmoid()
        b, c, _ = x.size()
        return x * self.gate(self.pool(x).view(b, c)).sigmoid().view(b, c, 1).expand_as(x) + x

    layers = {"conv": nn.Conv1d(4, 4, 3, padding=1), "down": nn.Conv1d(4, 2, 1), "up": nn.Conv1d(2, 4, 1)}
    return net(nn, forward, pool=nn.AdaptiveAvgPool1d(1), gate=nn.Linear(4, 4), **layers)


@module(BCL(4), **WAITS)
def _attention_with_global_context(nn: Any, F: Any, ds: Any) -> Any:
    """As in ECAPA-TDNN: attention sees mean and deviation of the whole stream."""

    def forward(self: Any, x: Any) -> Any:
        n = x.size()[-1]
        mean, deviation = x.mean(2, keepdim=True), x.var(2, keepdim=True, correction=0).clamp(min=1e-4).sqrt()
        w = self.attention(ds.cat([x, mean.repeat(1, 1, n), deviation.expand(-1, -1, n)], 1))
        mean = (w * x).sum(2)
        return ds.cat([mean, (w * (x - mean.unsqueeze(2)).pow(2)).sum(2).clamp(1e-8).sqrt()], 1)

    attention = nn.Sequential(nn.Conv1d(12, 3, 1), nn.Tanh(), nn.Conv1d(3, 4, 1), nn.Softmax(dim=2))
    return net(nn, forward, attention=attention)


@module(BCL(4), native=False, **WAITS)
def _statistics_under_a_mask_of_lengths(nn: Any, F: Any, ds: Any) -> Any:
    """As in speechbrain's ECAPA-TDNN: without lengths the mask is all ones."""

    def of_frames(x: Any, m: Any) -> tuple[Any, Any]:
        mean = (m * x).sum(2)
        return mean, (m * (x - mean.unsqueeze(2)).pow(2)).sum(2).clamp(1e-6).sqrt()

    def forward(self: Any, x: Any) -> Any:
        n = x.shape[-1]
        lengths = ds.ones(x.shape[0]) * n
        mask = ds.arange(n, dtype=lengths.dtype).expand(len(lengths), n) < lengths.unsqueeze(1)
        mask = ds.as_tensor(mask, dtype=lengths.dtype).unsqueeze(1)
        mean, spread = of_frames(x, mask / mask.sum(dim=2, keepdim=True).float())
        scores = self.score(ds.cat([x, mean.unsqueeze(2).repeat(1, 1, n), spread.unsqueeze(2).repeat(1, 1, n)], 1))
        scores = scores.masked_fill(mask == 0, float("-inf"))
        return ds.cat(of_frames(x, F.softmax(scores, dim=2)), 1).unsqueeze(2)

    return net(nn, forward, score=nn.Conv1d(12, 4, 1))
