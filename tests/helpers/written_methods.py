"""Cases of methods that write into a tensor, or what they would write into a copy."""

from dreamstream.array import METHODS
from dreamstream.operations import BINARY, LOGICAL


def written(tensor, write):
    """The tensor after a method that writes in place, and what the method returned."""
    out = write(tensor)
    return tensor, out


def places(d, numbers):
    return d.ds.tensor(numbers, dtype=d.ds.int64)


COPIES = {
    "index_add": [
        lambda d: d.x.index_add(0, places(d, [0, 0, d.x.shape[0] - 1]), d.y[[0, 0, 0]]),
        lambda d: d.x.index_add(-1, places(d, [0]), d.y[:, :, :1], alpha=2),
    ],
    "index_copy": [lambda d: d.x.index_copy(1, places(d, [0]), d.y[:, :1])],
    "index_fill": [lambda d: d.x.index_fill(1, places(d, [0, 0]), 2.5)],
    "scatter": [
        lambda d: d.x.scatter(1, d.index[:, :1], d.y),
        lambda d: d.x.scatter(1, d.index[:1, :1], value=2.5),
    ],
    "scatter_add": [lambda d: d.x.scatter_add(1, d.index, d.index.to(d.x))],
    "take_along_dim": [lambda d: d.x.take_along_dim(d.index, 1), lambda d: d.x.take_along_dim(d.index)],
}
WRITERS = {
    "zero_": [lambda d: written(d.x, lambda x: x.zero_())],
    "fill_": [lambda d: written(d.x, lambda x: x[0].fill_(2))],
    "copy_": [lambda d: written(d.x, lambda x: x.copy_(d.row)), lambda d: written(d.x, lambda x: x.copy_(d.mask))],
}
#: Arguments of methods that write, where there are some.
WRITTEN = {
    **dict.fromkeys((r.name for r in BINARY), lambda d: (d.row,)),
    **{r.name: lambda d, n=r.operands: (d.mask,)[: n - 1] for r in LOGICAL},
    "logical_xor": lambda d: (d.mask,),
    **dict.fromkeys(("cumsum", "cumprod"), lambda d: (1,)),
    **dict.fromkeys(("addcmul", "addcdiv"), lambda d: (d.y, d.p)),
    **dict.fromkeys(("mul", "pow", "clamp_min", "clamp_max"), lambda d: (2,)),
    **dict.fromkeys(("clamp", "clip"), lambda d: (-1, 1)),
    "add": lambda d: (d.row * 2,),
    "lerp": lambda d: (d.y, 0.25),
    "masked_fill": lambda d: (d.mask, 3.0),
    "index_add": lambda d: (0, places(d, [0, 0]), d.y[[0, 0]]),
    "index_copy": lambda d: (2, places(d, [0]), d.y[:, :, :1]),
    "index_fill": lambda d: (1, places(d, [0]), 2.0),
    "scatter": lambda d: (1, d.index[:, :1], d.y),
    "scatter_add": lambda d: (1, d.index[:, :1], d.y),
}


def in_place(name):
    def case(d):
        given = WRITTEN.get(name, lambda d: ())(d)
        return written(d.x, lambda x: getattr(x, f"{name}_")(*given))

    return [case]


def cases():
    """Cases by name."""
    names = {n for n in METHODS if n.endswith("_")} - {"requires_grad_", *WRITERS}
    return {**COPIES, **WRITERS, **{name: in_place(name[:-1]) for name in names}}
