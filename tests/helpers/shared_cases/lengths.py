"""What models say of lengths: compared, computed with, padded to."""

import math
from typing import Any

import numpy as np

from .case import Given
from .tables import BCL, BLC, F, ds, forward, module, net, nn


# ---------------------------------------------------------------- compared
@forward(BCL(4), lambda: {"conv": nn.Conv1d(4, 4, 3, padding=1)}, reach=8, delay=1)
def _lengths_asserted(self: Any, x: Any) -> Any:
    """What counts decide, in an assert, an if and a residual's crop."""
    y = self.conv(x)
    assert y.shape == x.shape, f"{y.shape} is not {x.shape}"
    if y.size(2) < x.size(2):
        raise ValueError("shorter")
    crop = (x.shape[-1] - y.shape[-1]) // 2
    return y + (x[..., crop:-crop] if crop > 0 else x)


@forward(BLC(4), lambda: {"line": nn.Linear(4, 4)}, reach=4)
def _values_asserted(self: Any, x: Any) -> Any:
    """What values say of a call serves in an assert and an if that raises."""
    y = self.line(x)
    assert (y == y).all() and not (y > 1e4).any(), "NaN"
    if not (y < 1e4).all() or (x != x).any().item():
        raise ValueError("NaN")
    return y.cumsum(1)


@forward(BLC(4), lambda: {"window": nn.Linear(4, 1)}, reach=4, delay=1)
def _constants_laid_over_each_other(self: Any, x: Any) -> Any:
    """As windows' envelopes, by which overlapped frames are divided."""
    size = (1, (x.size(1) - 1) * 2 + 4)
    y = F.fold(x.transpose(1, 2), size, (1, 4), stride=(1, 2))[:, 0, 0]
    windows = self.window.weight.square().expand(1, x.size(1), -1).transpose(1, 2)
    envelope = F.fold(windows, size, (1, 4), stride=(1, 2)).squeeze()
    assert (envelope > 0).all()
    return (y / (envelope + 1))[:, 1:-1]


@forward(BCL(4), lambda: {"down": nn.Conv1d(4, 3, 4, stride=4)}, multiple=4, delay=3)
def _lengths_checked_at_the_end(self: Any, x: Any) -> Any:
    """Multiples of four only: what is asserted of it can be known at the end."""
    frames = x.size(2)
    assert (
        frames % 4  # over two lines
        == 0
    ), "no multiple"
    if frames % 2:
        raise ValueError(f"odd: {frames}")
    if not frames // 4 * 4 == frames or frames < 4:
        raise RuntimeError
    y = self.down(x)
    assert y.size(2) * 4 == x.size(2) and y.size(1) == 3
    return y


@forward(BCL(4), lambda: {"conv": nn.Conv1d(4, 4, 3, padding=1)}, reach=8, delay=1)
def _features_in_front_taken_apart(self: Any, x: Any) -> Any:
    """A loop over what stands before the streams."""
    q, k = self.conv(x).unflatten(1, (2, 2)).permute(1, 0, 2, 3)
    return q * k - [part for part in x.permute(1, 0, 2)][0].unsqueeze(1)


# ---------------------------------------------------------------- the smaller of a length and a number
@forward(BLC(4))
def _what_there_is_of_ends(self: Any, x: Any) -> Any:
    """Streams of fewer frames have fewer at their ends, too."""
    n = x.size(1)
    k = min(n, 3)
    halved = ds.cat([x[:, :k] * 0.5, x[:, k:]], 1)
    doubled = ds.cat([x[:, : n - k], x[:, n - k :] * 2], 1)
    return halved + doubled, x[:, : n - min(n, 2)], x[:, -k:].mean(1), (x[:, -2:] * x[:, -2:]).sum(1)


@module(BCL(4), multiple=6)
def _faded(nn: Any, F: Any, ds: Any) -> Any:
    """A window of a fixed number of frames over the first and the last ones, and between two streams."""

    def forward(self: Any, x: Any) -> Any:
        y, w = x * 2, self.window
        faded = ds.cat([x[..., :3] * w, x[..., 3:-3], x[..., -3:] * w.flip((0,))], 2)
        crossed = ds.cat([x[..., :-3], x[..., -3:] * (1 - w) + y[..., -3:] * w], 2)
        y[..., -3:] *= w
        y[..., :3] *= w
        return faded, crossed, y

    return net(nn, forward, window=nn.Parameter(ds.arange(3.0) / 4 + 0.25))


# ---------------------------------------------------------------- reshaped to
# ---------------------------------------------------------------- padded to
@module(BCL(4), multiple=3, reach=9, of_none=False)
def _padded_to_a_valid_length(nn: Any, F: Any, ds: Any) -> Any:
    """As Demucs does, whose least length differs for streams of one or two frames, and to what its input lacks."""

    def valid(n: Any) -> Any:
        windows = max(math.ceil((n - 4) / 2) + 1, 1)
        return (windows - 1) * 2 + 4

    def forward(self: Any, x: Any) -> Any:
        n = x.shape[-1]
        y = self.up(self.down(F.pad(x, (0, valid(n) - n))))[..., :n]
        if n < 3:
            x = F.pad(x, (0, 3 - n))
        return y, F.pad(self.conv(x), (0, math.ceil(n / 4) * 4 - n))

    layers = {"down": nn.Conv1d(4, 6, 4, stride=2), "up": nn.ConvTranspose1d(6, 4, 4, stride=2)}
    return net(nn, forward, conv=nn.Conv1d(4, 4, 3, padding=1), **layers)


@module(BLC(4), reach=9)
def _padded_before_to_a_least_length(nn: Any, F: Any, ds: Any) -> Any:
    """Zeros before streams that are too short, by a pad, in an if, and joined."""

    def forward(self: Any, x: Any) -> Any:
        n = x.size(1)
        y = F.pad(x, (0, 0, max(0, 6 - n), 1), value=0.5)
        z = x if n > 4 else F.pad(x, (0, 0, 4 - n, 0))
        joined = ds.cat([ds.zeros(x.size(0), max(0, 3 - n), 4), x * 2], 1)
        return y.unfold(1, 6, 1).mean(-1), z, joined

    return net(nn, forward)


# ---------------------------------------------------------------- constants of that length
@module(BCL(4), native=False, reach=9)
def _expanded_to_the_stream(nn: Any, F: Any, ds: Any) -> Any:
    """A cumulative norm's gain and bias, brought to all frames; features beside them; lengths of all frames."""

    def forward(self: Any, x: Any) -> Any:
        n = x.size(2)
        lens = ds.full((x.size(0),), n)
        mask = (ds.arange(n).unsqueeze(1) < lens.unsqueeze(0)).permute(dims=(1, 0))
        y = x * self.gain.expand_as(x).type(x.type()) + self.bias.expand_as(x)
        more = self.bias.repeat(x.size(0), 2, n)
        return ds.cat([y * mask.unsqueeze(1), more, self.gain.expand(x.size(0), -1, n)], 1)

    names = ("gain", "bias")
    return net(nn, forward, **{n: nn.Parameter(0.1 * ds.arange(4.0).view(1, 4, 1) + 1) for n in names})


# ---------------------------------------------------------------- an if that some streams enter
@forward(
    BCL(4),
    lambda: {"down": nn.Conv1d(4, 3, 4, stride=4), "up": nn.ConvTranspose1d(3, 4, 4, stride=4)},
    reach=9,
    delay=3,
)
def _padded_where_it_is_no_multiple(self: Any, x: Any) -> Any:
    """The end is cropped again, by what was padded."""
    n, pad = x.size(-1), 0
    if n % 4 != 0:
        pad = 4 - n % 4
        x = F.pad(x, (0, pad))
    y = self.up(self.down(x))
    if pad > 0:
        y = y[..., :-pad]
    return y


@forward(BCL(4), reach=16)
def _skips_of_other_lengths(self: Any, x: Any) -> Any:
    """U-Nets: padded in a loop on some condition more, then by half the difference on each side, or cropped."""
    skips = []
    for k in (2, 3):
        if x.size(2) % k != 0 and not self.training:
            more = k - x.size(2) % k
            x = F.pad(x, (0, more))
        skips.append(x)
        x = F.avg_pool1d(x, k)
    y, z = F.avg_pool1d(skips[0], 3), skips.pop()
    up = F.interpolate(y, scale_factor=3)
    less = min(up.size(2), skips[0].size(2))
    differs = skips[0].size(2) - up.size(2)
    up = up[..., :less] + skips[0][..., :less], F.pad(up, [differs // 3, differs - differs // 3]) + skips[0]
    for skip in (z, *skips):
        x = F.interpolate(x, scale_factor=2 if skip is not z else 3)
        if x.size(2) != skip.size(2):
            x = x[..., : skip.size(2)]
        x = x + skip
    return x, *up


@forward(BCL(4), lambda: {"down": nn.Conv1d(4, 3, 2, stride=2)}, reach=9, delay=3)
def _padded_by_one_of_two(self: Any, x: Any) -> Any:
    """Odd lengths, by a number; then what is chosen by a condition, with and without an else."""
    y = x
    if x.size(2) % 2:
        y = F.pad(y, (0, 1), mode="replicate")
    more = 0 if x.size(2) % 3 == 0 else 3 - x.size(2) % 3
    if x.size(2) % 4:
        rest = x.size(2) % 4
    else:
        rest = 0
    return self.down(y), F.pad(x, (0, more), value=2.0), x[..., : x.size(2) - rest]


@module(BCL(4), reach=9, delay=2)
def _lengths_made_integers(nn: Any, F: Any, ds: Any) -> Any:
    """By int and float, of a size and of quotients that Python or NumPy rounds, here and in a function."""

    def valid(length: Any) -> Any:
        return (int(np.ceil(length / 4)) * 2 - 1) * 2 + 2

    def forward(self: Any, x: Any) -> Any:
        batch, frames = int(x.size(0)), int(x.size(2))
        half: int = int(frames / 2 + 0.5)
        more = math.ceil(float(frames) / 3) * 3 - frames
        every = F.pad(x, (0, more)).reshape(batch, 4, int((frames + 2) / 3), 3)
        return (
            F.pad(x, (0, valid(frames) - frames)),
            x[..., ::2][..., :half],
            every,
            x[..., 1::3][..., : round(frames / 3)],
            x[..., ::2][..., : round(frames / 2)],
        )

    return net(nn, forward)


@forward(BCL(4), reach=9, delay=3)
def _resized_to_lengths(self: Any, x: Any) -> Any:
    y = F.avg_pool1d(F.pad(x, (0, -x.size(2) % 4)), 4)
    back = F.interpolate(y, size=4 * y.size(2))
    return (
        back[..., : x.size(2)] + x,
        F.interpolate(x, size=int(x.size(2) * 2.0)),
        F.interpolate(back, y.size(2)),
    )


@forward(BCL(4), lambda: {"down": nn.Conv1d(4, 4, 4, stride=4)}, reach=9, delay=4)
def _lengths_in_loops_and_bits(self: Any, x: Any) -> Any:
    """Up to a multiple, one by one or by padding; bits and shifts; an amount that an if adds to."""
    n = up = down = x.shape[-1]
    while up % 4 != 0:
        up += 1
    while down % 5 > 0:
        down -= 1
    padded = x
    while padded.shape[-1] % 4:
        padded = F.pad(padded, (0, 1))
    parts, rest = divmod(n, 4)
    more = 4 * parts + 4 if rest else n
    cut = x[..., : n >> 2 << 2], x[..., : n & ~3], F.pad(x, (0, -n & 3)), F.pad(x, (0, n & 1))
    return F.pad(x, (0, up - n)), x[..., :down], self.down(padded), F.pad(x, (0, more - n)), *cut


@module(BCL(4), reach=9, delay=3)
def _lengths_by_conditions(nn: Any, F: Any, ds: Any) -> Any:
    """Truths as numbers, loops over what is added, ifs within expressions, and what a block chooses to return."""

    def back(y: Any, pad: Any) -> Any:
        if pad > 0:
            return y[..., :-pad]
        return y

    def forward(self: Any, x: Any) -> Any:
        n, more, less = x.shape[-1], 0, x.size(2)
        rest, parts, windows = n % 4, n // 4, n // 4
        while (n + more) % 8 != 0:
            more += 1
        while (less - 2) % 3:
            less -= 1
        if n % 4:
            parts += 1
        windows += int(n % 4 > 0)
        missing = (4 - rest) * (rest != 0)
        y = self.down(F.pad(x, (0, missing)))
        return (
            F.pad(x, (0, more)),
            x[..., :less],
            F.pad(x, (0, parts * 4 - n)),
            back(self.up(y), missing) + x,
            y[..., :windows] * 2,
            self.down(F.pad(x, (0, 4 - rest if rest else 0))),
            x[..., :-rest] if rest else x,
            self.down(x if rest == 0 else F.pad(x, (0, 4 - rest))),
        )

    return net(nn, forward, down=nn.Conv1d(4, 3, 4, stride=4), up=nn.ConvTranspose1d(3, 4, 4, stride=4))


@module(BCL(4), reach=9, delay=3)
def _lengths_rounded_by_functions(nn: Any, F: Any, ds: Any) -> Any:
    """By functions that the forward makes itself; halves go to even numbers."""

    def forward(self: Any, x: Any) -> Any:
        n = x.size(2)
        half = lambda length: int(np.floor(length / 2))  # noqa: E731
        whole = (np.ceil(n / 4) * 4).astype(int)
        rounded = x[..., ::4][..., : round(n / 4)], x[..., ::6][..., : round(n / 6)]
        return x[..., 1::2][..., : half(n)], F.pad(x, (0, whole - n)), *rounded

    return net(nn, forward)


@forward(BCL(4), lambda: {"down": nn.Conv1d(4, 3, 4, stride=4)}, reach=9, delay=4)
def _numbers_made_of_conditions(self: Any, x: Any) -> Any:
    """Amounts that ifs set to numbers, comparisons as numbers, loops until something is as large."""
    n, odd, more, windows, whole, least = x.shape[-1], 0, 0, 0, 0, x.shape[-1]
    if n % 2:
        odd = 1
    if n % 4 != 0:
        parts = n // 4 + 1
        more = parts * 4 - n
    while windows * 4 < n:
        windows += 1
    while n > whole:
        whole += 3
    while 5 * least > n:
        least -= 1
    missing = (n % 4 == 1) * 3 + (n % 4 == 2) * 2 + int(n % 4 == 3)
    return (
        F.avg_pool1d(F.pad(x, (0, odd)), 2),
        self.down(F.pad(x, (0, more))),
        self.down(F.pad(x, (0, windows * 4 - n))),
        F.pad(x, (0, whole - n)),
        x[..., : least * 5],
        self.down(F.pad(x, (0, missing))),
    )


@module(BCL(4), reach=9)
def _amounts_that_branches_choose(nn: Any, F: Any, ds: Any) -> Any:
    """By elif, or, and, chained and stored conditions, in other functions, of several streams, as pairs."""

    def whole(x: Any, k: Any) -> Any:
        rest = x.size(2) % k
        if rest == 0:
            return x
        return F.pad(x, (0, k - rest))

    def forward(self: Any, x: Any) -> Any:
        n, y, odd = x.size(2), x * 2, x.size(2) % 2 == 1
        if n % 3 == 1:
            more = 2
        elif n % 3 == 2:
            more = 1
        else:
            more = 0
        if n % 4:
            rest = 4 - n % 4
            y, z = F.pad(y, (0, rest)), F.pad(x, (0, rest))
            assert y.size(2) % 4 == 0
        else:
            z = x
        if 0 < n % 5 < 5:
            cut = x[..., : -(n % 5)]
        else:
            cut = x
        if n % 2:
            even = False
        else:
            even = True
        pads = (0, 6 - n % 6) if n % 6 else (0, 0)
        return (
            F.pad(x, (0, more)), y + z, cut, whole(x, 3), F.pad(x, pads), F.pad(x, (0, 5 - (n % 5 or 5))),
            F.pad(x, (0, n % 7 and 7 - n % 7)), F.pad(x, (0, 1 if odd else 0)), F.pad(x, (0, 0 if even else 1)),
        )  # fmt: skip

    return net(nn, forward)


@forward(BLC(4), lambda: {"rnn": nn.GRU(4, 3, batch_first=True)}, multiple=2)
def _branches_for_single_frames(self: Any, x: Any, state: Any = None) -> Any:
    """What a model does that is stepped frame by frame, beside what it does otherwise."""
    if x.size(1) == 1 and state is not None:
        before = state
    else:
        before = F.pad(x, (0, 0, 1, -1))
    mixed = x * 0.3 + before * 0.7
    return mixed.tanh() if x.size(1) == 1 else self.rnn(mixed)[0]


@forward(BCL(4), reach=3)
def _roots_of_lengths(self: Any, x: Any) -> Any:
    """Sums scaled by them, as numbers that are known at the end."""
    n, total, half = x.size(2), x.sum(2), math.sqrt(0.25)
    return total / n**0.5, total * half / math.sqrt(n), total / np.sqrt(n), total + 2 * n**1.5


# ---------------------------------------------------------------- integers
@forward((Given(("B", "L"), below=12),), onnx=False)  # onnxruntime's sums and products of them are doubles
def _integers_beyond_reals(self: Any, x: Any) -> Any:
    """Each of them differs from the next, which no real number of 53 bits says."""
    y, z = x + 2**54, x * 2**50 + 1
    pair = ds.stack([y, 2**54 + 9 - x], -1)
    return (
        y, y // 7, y % 7, -y, y - 2**54 + z, y.clamp(max=2**54 + 3), ds.where(y > 2**54 + 4, y, -z),
        (y == 2**54 + 5).long(), pair.sort(-1)[0], pair.amax(-1), pair.argmax(-1), pair.sum(-1), z.cumsum(1),
        y.sum(1), y.amax(1), y.argmax(1), z.prod(1),
    )  # fmt: skip


@forward(
    BCL(4),
    lambda: {"table": nn.Embedding(4, 3), "boundaries": nn.Parameter(ds.tensor([-0.7, 0.1, 0.2]))},
    native=False,
)
def _between_boundaries(self: Any, x: Any) -> Any:
    b, at = self.boundaries, ds.bucketize(x[:, 0], self.boundaries, right=True)
    codes = ds.bucketize((x * 4).round(), ds.arange(-3.0, 4.0)), ds.searchsorted(b, x, side="right")
    return self.table(at), *codes, ds.searchsorted(b, x)


@forward((Given(("B", "L"), below=12),), lambda: {"table": nn.Embedding(5, 3)})
def _integers_computed(self: Any, x: Any) -> Any:
    """Indices that are shifted, wrapped, held within a table and masked."""
    rest, part = x % 5, (x - 20) // 3
    masked = ds.where(x > 9, ds.zeros_like(x), x).masked_fill(x == 3, 1)
    y = self.table(rest) + self.table((x * 2 - 7).clamp(0, 4)) * (masked != 0).unsqueeze(-1)
    return (
        y + self.table((x > rest).long()),
        part,
        -masked.abs() + (3 - x) % 4,
        x.clamp(max=4) - rest,
        x**2 + x**7,
        2**x,
    )


@forward((Given(("B", "L"), below=4000),))
def _bits_of_integers(self: Any, x: Any) -> Any:
    y = x * 2**42 - 7 * x
    shifted = x.clone()
    also = shifted
    also <<= 3
    also >>= 1
    return (
        x & 7,
        2 & -x,
        y & 0x5A5A00FF,
        y & -20,
        y | 1025,
        ~y,
        (1 - x) ^ 6,
        y ^ -3,
        y & (2**62 - 1),
        shifted,
        x << 40,
        y >> 9,
    )


@forward(BCL(4), lambda: {"table": nn.Embedding(4, 3)})
def _codes_of_real_frames(self: Any, x: Any) -> Any:
    """Signs as bits of a number, and the nearest of some, as indices."""
    bits = (x[:, 0] > 0).long() + (x[:, 1] > 0).long() * 2
    return self.table(bits), self.table(x.argmax(1)), ds.where(x > 0, 1, 0)
