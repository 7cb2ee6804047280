"""What tensors of streams do outside a forward in both libraries: functions of (B, 4, L); a row is a batch."""

from inspect import signature
from typing import Any

from dreamstream.array import Tensor
from dreamstream.nn.functional import activation, rectifiers
from dreamstream.operations import LOGICAL, OPERATIONS, UNARY

#: Functions of single elements that are defined for some numbers alone.
NARROW = {r.name for r in UNARY if r.domain not in ("any", "ties", "halves")}
METHODS = (
    *(r.name for r in UNARY if r.doc and r.name not in NARROW),
    *["isnan", "clone", "detach", "contiguous", "double", "long", "bool", "nan_to_num", "frac"],
    *(r.name for r in LOGICAL if r.operands == 1),
)
#: Functions of single elements that take no more than those.
FUNCTIONS = [
    name
    for module in (activation, rectifiers)
    for name in module.__all__
    if name not in NARROW
    and "dim" not in (takes := signature(getattr(module, name)).parameters)
    and sum(p.default is p.empty for p in takes.values()) == 1
]


def function(lib: Any, name: str) -> Any:
    """Return a library's function of this name; torch has some in `torch.special` alone."""
    return getattr(lib.nn.functional, name, None) or getattr(lib.special, name)


#: Of methods along a dimension, that of features here.
GIVEN = {"dim": 1, "dims": 1, "k": 2, "n": 1, "q": 0.3, "repeats": 2, "shifts": 1}


def along() -> dict[str, dict[str, Any]]:
    """What methods of both libraries along a dimension, reductions among them, are given."""
    found = {}
    for row in OPERATIONS.values():
        method = getattr(Tensor, row.name, None)
        if row.outside in ("along", "reduction") and method is not None:
            takes = [p for p in signature(method).parameters.values() if p.kind is not p.VAR_POSITIONAL]
            asked = {p.name for p in takes if p.default is p.empty} - {"self"}
            if asked <= GIVEN.keys() and GIVEN.keys() & {p.name for p in takes}:
                found[row.name] = {p.name: GIVEN[p.name] for p in takes if p.name in GIVEN}
    return found


#: By name a function of the library and the batch that keeps the streams.
KEEP: dict[str, Any] = {
    **{name: (lambda lib, t, name=name, how=how: getattr(t, name)(**how)) for name, how in along().items()},
    **{name: (lambda lib, t, name=name: getattr(t, name)()) for name in METHODS},
    **{"F." + n: (lambda lib, t, n=n: function(lib, n)(t)) for n in FUNCTIONS},
    "add": lambda lib, t: t + 1.5,
    "radd": lambda lib, t: 1.5 + t,
    "rsub": lambda lib, t: 2 - t,
    "mul": lambda lib, t: t * 3 * 0.5,
    "div": lambda lib, t: t / 3,
    "pow": lambda lib, t: t**2,
    "floordiv": lambda lib, t: t.detach() // 2,
    "mod": lambda lib, t: t % 2,
    "clamp": lambda lib, t: t.clamp(-1, 1),
    "constant": lambda lib, t: t * lib.tensor([[0.0], [1.0], [2.0], [3.0]]),
    "comparison": lambda lib, t: t > 0,
    "not": lambda lib, t: ~(t > 0),
    "and": lambda lib, t: (t > 0) & (t < 1),
    "where": lambda lib, t: lib.where(t > 0, t, 0.5),
    "masked_fill": lambda lib, t: t.masked_fill(t > 1, 9),
    "maximum": lambda lib, t: t.maximum(-t),
    "minimum": lambda lib, t: t.minimum(t * t),
    "lerp": lambda lib, t: t.lerp(-t, 0.3),
    "addcmul": lambda lib, t: t.addcmul(t, t, value=0.5),
    "two of them": lambda lib, t: (t + t.exp()) * (t - 1) / (t.abs() + 1),
    "permute": lambda lib, t: t.permute(2, 0, 1),
    "transpose": lambda lib, t: t.transpose(1, 2),
    "swapaxes": lambda lib, t: t.swapaxes(0, 2).swapaxes(0, 1),
    "round to decimals": lambda lib, t: t.round(decimals=1) + t.round(decimals=-1),
    "permute, by name": lambda lib, t: t.permute(dims=(2, 0, 1)).swapaxes(axis0=0, axis1=1),
    "flip, by name": lambda lib, t: t.flip(dims=(1,)),
    "reshape, by name": lambda lib, t: t.reshape(shape=(t.size(0), 2, 2, t.size(2))),
    "view, by name": lambda lib, t: t.view(size=(t.size(0), 2, 2, t.size(2))),
    "repeat, by name": lambda lib, t: t.unsqueeze(1).expand(size=(-1, 3, -1, -1)).repeat(repeats=(1, 1, 2, 1)),
    "mT": lambda lib, t: t.mT,
    "movedim": lambda lib, t: t.movedim(1, 2),
    "unsqueeze": lambda lib, t: t.unsqueeze(1),
    "unsqueeze, last": lambda lib, t: t.unsqueeze(-1),
    "squeeze": lambda lib, t: t[:, :1].squeeze(1),
    "unflatten": lambda lib, t: t.unflatten(1, (2, -1)),
    "flatten": lambda lib, t: t.unflatten(1, (2, 2)).flatten(1, 2),
    "reshape": lambda lib, t: t.reshape(t.size(0), 2, 2, t.size(2)),
    "view": lambda lib, t: t.view(t.size(0), 2, 2, t.size(2)),
    "expand": lambda lib, t: t.unsqueeze(1).expand(-1, 3, -1, -1),
    "repeat": lambda lib, t: t.repeat(1, 2, 1),
    "index": lambda lib, t: t[:, 1],
    "index slice": lambda lib, t: t[:, ::2],
    "index list": lambda lib, t: t[:, [3, 0, 0]],
    "index mask": lambda lib, t: t[:, [True, False, True, False]],
    "index ellipsis": lambda lib, t: t[..., 1, :],
    "index none": lambda lib, t: t[:, None, 1:, ..., None],
    "flip": lambda lib, t: t.flip(1),
    "narrow": lambda lib, t: t.narrow(1, 1, 2),
    "select": lambda lib, t: t.select(1, -1),
    "split": lambda lib, t: tuple(t.split(3, 1)),
    "split sizes": lambda lib, t: tuple(t.split([1, 3], 1)),
    "chunk": lambda lib, t: tuple(t.chunk(2, 1)),
    "unbind": lambda lib, t: tuple(t.unbind(1)),
    "cat": lambda lib, t: lib.cat([t, t.sin()], 1),
    "stack": lambda lib, t: lib.stack([t, t.cos()], 1),
    "stack, last": lambda lib, t: lib.stack([t, -t], -1),
    "glu": lambda lib, t: lib.nn.functional.glu(t, 1),
    "layer_norm": lambda lib, t: lib.nn.functional.layer_norm(t.transpose(1, 2), (4,)),
    "normalize": lambda lib, t: lib.nn.functional.normalize(t, dim=1),
    "cosine_similarity": lambda lib, t: lib.nn.functional.cosine_similarity(t, t.sin(), dim=1),
    "linear": lambda lib, t: lib.nn.functional.linear(t.transpose(1, 2), lib.ones(3, 4, dtype=t.dtype)),
    "matmul": lambda lib, t: t.transpose(1, 2) @ lib.ones(4, 3, dtype=t.dtype),
    "matmul of vectors": lambda lib, t: t.transpose(1, 2) @ lib.ones(4, dtype=t.dtype),
    "rmatmul": lambda lib, t: lib.ones(3, 4, dtype=t.dtype) @ t,
    "sum, kept": lambda lib, t: t.sum(1, keepdim=True),
    "mean": lambda lib, t: t.mean(dim=-2),
    "var": lambda lib, t: t.var(1),
    "std": lambda lib, t: t.std(dim=1, unbiased=False),
    "norm": lambda lib, t: t.norm(dim=1),
    "norm of two": lambda lib, t: t.unflatten(1, (2, 2)).norm(1, (1, 2)),
}  # fmt: skip

#: By name a function of a tensor and a dimension that leaves one value of a row's frames.
OVER_L: dict[str, Any] = {
    **{
        name: (lambda t, d, name=name: getattr(t, name)(d))
        for name in ["sum", "mean", "prod", "var", "std", "logsumexp", "amax", "amin", "argmax", "argmin"]
    },
    "norm": lambda t, d: t.norm(dim=d),
    "max": lambda t, d: tuple(t.max(d)),
    "min": lambda t, d: tuple(t.min(d)),
    "all": lambda t, d: (t > -1).all(d),
    "any": lambda t, d: (t > 2).any(d),
}
