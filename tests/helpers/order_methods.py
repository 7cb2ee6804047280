"""Cases of methods that put elements in order, for test_tensor_methods.py."""

REAL = {
    "sort": [lambda d: d.x.sort(0).values, lambda d: d.x[:0].sort(0).indices, lambda d: d.row[0].sort(0).values],
    "median": [
        lambda d: d.x.median(),
        lambda d: d.odd.median(1).values,
        lambda d: d.x.median(dim=-1, keepdim=True).values,
    ],
    "kthvalue": [lambda d: d.x.kthvalue(1, 0).values, lambda d: d.odd.kthvalue(1, keepdim=True)[0]],
    "topk": [lambda d: d.x.topk(1, 0).values],
}

FLOAT = {
    "sort": [
        lambda d: d.x.sort(-1, descending=True).indices,
        lambda d: d.x.sort(descending=True).values,
        lambda d: d.odd.sort(1)[0],
    ],
    "argsort": [lambda d: d.x.argsort(1), lambda d: d.x.argsort(dim=0, descending=True)],
    "topk": [lambda d: d.x.topk(1, largest=False).indices],
    "median": [lambda d: d.x.median(1).indices, lambda d: d.odd.median()],
    "nanmedian": [lambda d: d.odd.nanmedian(1)[0], lambda d: d.odd.nanmedian(), lambda d: d.x.nanmedian(0)[1]],
    "kthvalue": [lambda d: d.x.kthvalue(1, -1)[1]],
    "quantile": [
        lambda d: d.x.quantile(0.3),
        lambda d: d.x.quantile(d.column[:, 0].sigmoid(), keepdim=True),
        lambda d: d.odd.quantile(0.8, 1),
        lambda d: d.x.quantile(d.column[:, 0].sigmoid(), dim=2, keepdim=True),
        *(lambda d, how=how: d.x.quantile(0.6, 0, interpolation=how) for how in ("lower", "higher", "midpoint")),
    ],
    "nanquantile": [
        lambda d: d.odd.nanquantile(0.45, 2, keepdim=True),
        lambda d: d.odd.nanquantile(0.45, keepdim=True),
        lambda d: d.odd.nanquantile(d.column[:, 0].sigmoid(), interpolation="nearest"),
    ],
}
