"""Forwards as users write them."""

from fractions import Fraction
from typing import Any

from .case import Given
from .tables import BCL, BLC, F, case, ds, forward, module, net, nn

SAMPLES = (Given(("B", "L")),)


# ---------------------------------------------------------------- residuals, branches, crops
@module(BCL(2), reach=24)
def _two_levels_down_and_up(nn: Any, F: Any, ds: Any) -> Any:
    """A U-Net whose levels are cut to what comes back up."""

    def forward(self: Any, x: Any) -> Any:
        kept = []
        for down in self.downs:
            kept.append(x)
            x = F.leaky_relu(down(x), 0.1)
        for up in self.ups:
            x = up(x)
            x = x + kept.pop()[..., : x.size(2)]
        return x

    downs = nn.ModuleList([nn.Conv1d(2, 4, 4, stride=2), nn.Conv1d(4, 6, 4, stride=2)])
    ups = nn.ModuleList([nn.ConvTranspose1d(6, 4, 2, stride=2), nn.ConvTranspose1d(4, 2, 2, stride=2)])
    return net(nn, forward, downs=downs, ups=ups)


for _name, _crop, _delay in [
    ("crop-at-the-start", lambda x: x[..., 2:], 2),
    ("crop-at-the-end", lambda x: x[:, :, :-3], 3),
    ("every-third", lambda x: x[..., ::3], 0),
    ("every-second-from-one", lambda x: x[..., 1::2], None),
    ("strided-and-cropped", lambda x: x[:, :, 1:-2:3], None),
    ("neighbours", lambda x: x[..., 1:-1] - x[..., :-2] * x[..., 2:], 2),
]:
    case(_name, BCL(3), lambda nn, F, ds, c=_crop: net(nn, lambda self, x: c(x)), delay=_delay)


# ---------------------------------------------------------------- positions and lengths
@forward(BLC(4), lambda: {"lin": nn.Linear(4, 6), "norm": nn.GroupNorm(2, 6)}, delay=0)
def _network_per_frame(self: Any, x: Any) -> Any:
    b, n, f = x.size()
    return F.relu(self.norm(self.lin(x.reshape(b * n, f)))).view(b, n, 6)


# ---------------------------------------------------------------- functions in the forward
@module(BLC(5), delay=0)
def _products_and_gates(nn: Any, F: Any, ds: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        y = F.glu(F.linear(x, self.w, self.b), dim=-1)
        p, q, r = y.split([1, 2, 3], dim=-1)
        return ds.cat([r @ self.square, q, p], -1), F.softmax(y, -1) * F.log_softmax(y, -1)

    shapes = {"w": (12, 5), "b": (12,), "square": (3, 3)}
    return net(nn, forward, **{k: nn.Parameter(ds.randn(*s)) for k, s in shapes.items()})


# ---------------------------------------------------------------- states
@module(BLC(3), delay=0)
def _state_of_zeros(nn: Any, F: Any, ds: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        h = ds.zeros(2, x.size(0), 4, dtype=x.dtype)
        return self.gru(self.lstm(x, (h, h))[0], h)[0]

    lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True)
    return net(nn, forward, lstm=lstm, gru=nn.GRU(4, 4, num_layers=2, batch_first=True))


@forward(BLC(3), lambda: {"rnn": nn.LSTM(3, 4, batch_first=True), "head": nn.Linear(4, 2)})
def _last_states(self: Any, x: Any) -> Any:
    """What is left at the end: states, and means over all frames."""
    y, (h, c) = self.rnn(x)
    return {"y": y, "state": (h, c), "head": self.head(h[-1]), "mean": x.mean(1), "most": y.amax(1)}


@forward(BLC(4), lambda: {"rnn": nn.LSTM(4, 4, batch_first=True), "conv": nn.Conv1d(4, 4, 3)}, delay=4)
def _one_module_twice(self: Any, x: Any) -> Any:
    y, _ = self.rnn(x)
    z, _ = self.rnn(y)
    return self.conv(self.conv(z.transpose(1, 2)))


@module(BCL(4), reach=10, delay=2)
def _weights_normalised(nn: Any, F: Any, ds: Any) -> Any:
    """torch's parametrization; dreamstream folds it when weights are loaded."""
    norm = nn.utils.parametrizations.weight_norm if ds.__name__ == "torch" else lambda m: m
    return nn.Sequential(norm(nn.Conv1d(4, 4, 3, padding=1)), nn.ELU(), norm(nn.Conv1d(4, 2, 3, padding=1)))


RAMP = [[0.5], [-1.0], [2.0], [0.25]]
for _name, _of in {
    "numbers": lambda ds, F, x, ramp: (x * 2 + 1).relu().clamp(0, 3) - ramp + 1 / (x.abs() + 1),
    "powers": lambda ds, F, x, ramp: 2**x + x**2 + x.pow(3) + x.square(),
    "where": lambda ds, F, x, ramp: ds.where(x > 0, x, -x).masked_fill(x < -1, 5.0),
    "flags": lambda ds, F, x, ramp: ds.where((x > 0) & (x < 1) | ~(x > -1), x, ds.zeros_like(x)),
    "exclusive-flags": lambda ds, F, x, ramp: ds.where((x > 0) ^ (x < 1), x, 2.0),
    "truth": lambda ds, F, x, ramp: ds.where((x > 0).logical_or(x.isnan()), x, ds.ones_like(x)),
    "rounding": lambda ds, F, x, ramp: x % 2 + x // 3 + x.div(2, rounding_mode="trunc"),
    "extremes": lambda ds, F, x, ramp: x.maximum(x.square()).minimum(ramp),
    "layer-norm": lambda ds, F, x, ramp: F.layer_norm(x.transpose(1, 2), (4,)),
    "pad-of-another-axis": lambda ds, F, x, ramp: F.pad(x.transpose(1, 2), (0, 0, 2, 1)),
    "matrix": lambda ds, F, x, ramp: x.mT @ ramp.expand(4, 5),
    "parts": lambda ds, F, x, ramp: x.chunk(2, 1)[1] + x.split(2, 1)[0],
    "joined": lambda ds, F, x, ramp: ds.cat([x, x * 2], 1),
    "stacked": lambda ds, F, x, ramp: ds.stack([x, x * 2], 1).flatten(1, 2),
    "centred": lambda ds, F, x, ramp: x - x.mean(1, keepdim=True),
    "filled": lambda ds, F, x, ramp: ds.full_like(x, 2) * x,
}.items():

    def _function(nn: Any, F: Any, ds: Any, of: Any = _of) -> Any:
        ramp = nn.Parameter(ds.tensor(RAMP), requires_grad=False)
        return net(nn, lambda self, x: of(ds, F, x, self.ramp), ramp=ramp)

    case(f"function-of-{_name}", BCL(4), _function)


# ---------------------------------------------------------------- containers, inputs, results
@module(BCL(4), reach=10, delay=3)
def _containers(nn: Any, F: Any, ds: Any) -> Any:
    def block(self: Any, x: Any) -> Any:
        y = self.net(x)
        for scale in self.scales:
            y = y + x * scale
        return {name: head(y) for name, head in self.heads.items()}

    def made(n: int) -> Any:
        inner = nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.Sequential(nn.GLU(dim=1), nn.Tanh()))
        scales = nn.ParameterList([nn.Parameter(ds.rand(4, 1)) for _ in range(n)])
        heads = nn.ModuleDict({"a": nn.Conv1d(4, 2, 1), "b": nn.Identity()})
        return net(nn, block, net=inner, scales=scales, heads=heads)

    def forward(self: Any, x: Any) -> Any:
        for part in self.blocks:
            x = part(x)["b"]
        return self.last(x)

    return net(nn, forward, blocks=nn.ModuleList([made(1), made(2)]), last=nn.Conv1d(4, 4, 3, padding=1))


@module((Given(("B", 4, "L"), Fraction(2)), Given(("B", "L", 3))), reach=8)
def _audio_and_video(nn: Any, F: Any, ds: Any) -> Any:
    def forward(self: Any, audio: Any, video: Any) -> Any:
        fine = self.up(video.transpose(1, 2))
        both = ds.cat([audio[..., : fine.size(2)], fine[..., : audio.size(2)]], dim=1)
        return {"both": self.head(both), "audio": self.down(audio)}

    up, head = nn.ConvTranspose1d(3, 4, 2, stride=2), nn.Conv1d(8, 2, 3, padding=1)
    return net(nn, forward, up=up, head=head, down=nn.Conv1d(4, 2, 2, stride=2))


@forward(
    (Given(("B", "L"), below=9),),
    lambda: {"table": nn.Embedding(9, 4), "conv": nn.Conv1d(4, 3, 5, padding=2)},
    reach=10,
    delay=2,
)
def _tokens(self: Any, x: Any) -> Any:
    return self.conv(self.table(x).transpose(1, 2)) + 1


@forward(BCL(4), lambda: {"conv": nn.Conv1d(4, 2, 3, padding=1)}, reach=8)
def _nested_results(self: Any, x: Any) -> Any:
    y, z = self.conv(x), x[..., 2:]
    return {"a": [y, (z, x)], "b": z}


# ---------------------------------------------------------------- small architectures
@module((Given(("B", 1, 8, "L")),), reach=12)
def _convolutions_and_a_gru(nn: Any, F: Any, ds: Any) -> Any:
    """Planes of frequency and time, then a recurrence: a sound event detector."""

    def forward(self: Any, x: Any) -> Any:
        x = F.relu(self.bn(self.first(x)))
        x = F.max_pool2d(self.second(x), (2, 1))
        b, c, f, n = x.shape
        y, _ = self.rnn(x.permute(0, 3, 1, 2).reshape(b, n, c * f))
        return self.head(y).sigmoid()

    parts = {"first": nn.Conv2d(1, 3, 3, padding=1), "bn": nn.BatchNorm2d(3)}
    parts |= {"second": nn.Conv2d(3, 4, 3, stride=(2, 1), padding=1)}
    return net(nn, forward, **parts, rnn=nn.GRU(8, 5, batch_first=True), head=nn.Linear(5, 2))


@module((Given(("B", 1, "L")),), reach=24)
def _encoder_mask_decoder(nn: Any, F: Any, ds: Any) -> Any:
    """A filter bank, a mask by a small separable network, and the filter bank back: a Conv-TasNet."""

    def forward(self: Any, x: Any) -> Any:
        y = F.relu(self.encoder(x))
        m = y
        for depth, point, norm in zip(self.depths, self.points, self.norms):
            z = norm(F.pad(depth(F.pad(m, (2, 2))), (0, 0)).transpose(1, 2)).transpose(1, 2)
            m = m + point(F.prelu(z, self.slope))
        return self.decoder(y * m.sigmoid())

    depths = nn.ModuleList(nn.Conv1d(6, 6, 3, dilation=2, groups=6) for _ in range(2))
    parts = {"points": nn.ModuleList(nn.Conv1d(6, 6, 1) for _ in range(2))}
    parts |= {"norms": nn.ModuleList(nn.LayerNorm(6) for _ in range(2)), "slope": nn.Parameter(ds.rand(1))}
    encoder, decoder = (
        nn.Conv1d(1, 6, 4, stride=2, bias=False),
        nn.ConvTranspose1d(6, 1, 4, stride=2, bias=False),
    )
    return net(nn, forward, encoder=encoder, decoder=decoder, depths=depths, **parts)


@module((Given(("B", 1, "L")),), reach=30)
def _feature_encoder(nn: Any, F: Any, ds: Any) -> Any:
    """Strided convolutions over a waveform with layer norms, as speech encoders begin."""

    def forward(self: Any, x: Any) -> Any:
        for conv, norm in zip(self.convs, self.norms):
            x = F.gelu(norm(conv(x).transpose(1, 2)).transpose(1, 2))
        return x

    convs = [nn.Conv1d(1, 4, 10, stride=5, bias=False), nn.Conv1d(4, 4, 3, stride=2), nn.Conv1d(4, 5, 2, stride=2)]
    norms = [nn.LayerNorm(4), nn.LayerNorm(4), nn.LayerNorm(5)]
    return net(nn, forward, convs=nn.ModuleList(convs), norms=nn.ModuleList(norms))


# ---------------------------------------------------------------- of torch alone
def _stft(part: Any, **options: Any) -> Any:
    def make(nn: Any, F: Any, ds: Any) -> Any:
        def forward(self: Any, x: Any) -> Any:
            return part(ds.stft(x, 12, 5, window=self.window, return_complex=True, **options))

        return net(nn, forward, window=nn.Parameter(ds.rand(12), requires_grad=False))

    return make


for _name, _part in {
    "real": lambda z: z.real,
    "imag": lambda z: z.imag,
    "abs": lambda z: z.abs(),
    "power": lambda z: z.abs().square().add(1e-3).log(),
    "angle": lambda z: z[:, 1:-1].angle(),  # of the first and the last, signs of zeros decide
}.items():
    case(f"stft-{_name}", SAMPLES, _stft(_part, center=False), native=False, reach=20)
case("stft-centred", SAMPLES, _stft(lambda z: z.abs(), center=True), native=False, reach=20)


#: What is done with a spectrum.
_OF_SPECTRA = {
    "views": lambda ds, F, z: ds.view_as_real(z[:, 2:6].transpose(1, 2).unsqueeze(1).squeeze(1)).flatten(2),
    "pad": lambda ds, F, z: F.pad(z, (2, 0, 1, 2)).abs(),
    "unfold": lambda ds, F, z: z.unfold(2, 3, 1).abs(),
    "cat": lambda ds, F, z: ds.cat([z, z.conj() * 1j], 1).imag,
    "stack": lambda ds, F, z: ds.stack([z, z * 2j], 1).sum(1).abs(),
    "where": lambda ds, F, z: ds.where(z.abs() > 1, z, z * 0.5).real,
    "masked-fill": lambda ds, F, z: z.masked_fill(z.abs() < 1, 2).real,
    "products": lambda ds, F, z: (z * z.conj()).real + (z / (z + 15)).imag + (2 / (z + (15 + 1j)) - z).real,
    "einsum": lambda ds, F, z: ds.einsum("bfl,bfl->bl", z, z.conj()).real,
    "exp": lambda ds, F, z: (z * 0.1).exp().real + (z + 15).log().imag,
    "powers": lambda ds, F, z: (z**2).real + z.pow(3).imag + (z.abs() + 0.1) ** 0.3 + (z + 15).sqrt().real,
    "in-place": lambda ds, F, z: z.mul_(2).add_(1).real,
    "polar": lambda ds, F, z: ds.polar(z.abs(), (z + 15).angle()).real,
    "parts": lambda ds, F, z: ds.complex(z.real, z.imag * 2).abs() + ds.sgn(z + 15).real,
}


def _of_spectra(part: Any) -> Any:
    def make(nn: Any, F: Any, ds: Any) -> Any:
        def forward(self: Any, x: Any) -> Any:
            return part(ds, F, ds.stft(x, 12, 5, window=self.window, center=False, return_complex=True))

        return net(nn, forward, window=nn.Parameter(ds.rand(12) + 0.1, requires_grad=False))

    return make


for _name, _use in _OF_SPECTRA.items():
    case(f"complex-{_name}", SAMPLES, _of_spectra(_use), native=False, reach=20)


def _samples_again(whole: bool, **options: Any) -> Any:
    def make(nn: Any, F: Any, ds: Any) -> Any:
        def forward(self: Any, x: Any) -> Any:
            z = ds.stft(x, 12, 5, window=self.window, return_complex=True, **options)
            length = x.shape[-1] if whole else None
            return ds.istft(z * 0.5, 12, 5, window=self.window, length=length, **options)

        return net(nn, forward, window=nn.Parameter(ds.rand(12) + 0.5, requires_grad=False))

    return make


for _name, _whole, _options in (
    ("of-the-length", True, {}),
    ("centred", False, {"normalized": True}),
    ("from-the-first", False, {"center": False}),
    ("of-two-sides", False, {"onesided": False}),
):
    case(f"istft-{_name}", SAMPLES, _samples_again(_whole, **_options), native=False, reach=20)


def _transforms(nn: Any, F: Any, ds: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        z = ds.fft.fft(ds.fft.rfft(x.unfold(1, 10, 5), n=12, norm="ortho")) * self.weight
        return ds.fft.irfft(ds.fft.ifft(z, norm="forward"), n=11)

    return net(nn, forward, weight=nn.Parameter(ds.rand(7), requires_grad=False))


case("fft-of-windows", SAMPLES, _transforms, native=False, reach=20)
case(
    "einsum-of-one-letter-twice",
    BLC(4),
    lambda nn, F, ds: net(
        nn,
        lambda self, x: (
            ds.einsum("btii->bti", x.unflatten(2, (2, 2))),
            ds.einsum("...ijj,jo->...io", x.unflatten(2, (1, 2, 2)), self.weight),
        ),
        weight=nn.Parameter(ds.rand(2, 3)),
    ),
)


@forward((Given(("B", "L"), below=5),), lambda: {"table": nn.Parameter(ds.randn(5, 3, 4))}, delay=0)
def _rows_of_a_table(self: Any, x: Any) -> Any:
    """By numbers that come in, or are computed; from the end where these are negative."""
    table = self.table
    return table[x], table[x - 2], table[x, 1], table[-1 - x, ..., 2], table[x, :, 1:3], table[:, 0, 0][x]


@forward(
    BLC(4),
    lambda: {
        "gate": nn.Linear(4, 5),
        "weight": nn.Parameter(ds.randn(5, 3, 4)),
        "bias": nn.Parameter(ds.randn(5, 3)),
    },
    delay=0,
)
def _experts_by_their_weights(self: Any, x: Any) -> Any:
    """The matrices of the chosen are brought to each frame."""
    score, index = self.gate(x).softmax(-1).topk(2, -1)
    y = ds.einsum("bld,blkhd->blkh", x, self.weight[index]) + self.bias[index]
    return (y * score.unsqueeze(-1)).sum(-2)
