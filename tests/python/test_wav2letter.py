"""Networks of wav2letter@anywhere: their modules, their files, their streams in chunks and from first to last."""

from pathlib import Path

import numpy as np
import pytest
from cereal import written
from wav_files import write_wav

import dreamstream as ds
from dreamstream import cli, nn
from dreamstream.models import TDSNet, load_wav2letter
from dreamstream.models.tds import LocalNorm, Mfsc, ScalarNorm

RNG = np.random.default_rng(0)
BANDS = 8
NUMBERS = Path(__file__).parents[1] / "golden" / "wav2letter.npz"


def randn(*shape, scale=0.3):
    return (RNG.standard_normal(shape) * scale).astype(np.float16).astype(np.float32)


def streamed(engine, x, chunk):
    """The output of one stream in chunks."""
    with engine.stream("a") as stream:
        parts = [stream.step(x[at : at + chunk]) for at in range(0, len(x), chunk)]
        return np.concatenate([*parts, stream.finish()])


# ---------------------------------------------------------------- written once more, plainly
def norm(x, weight=1.0, bias=0.0):
    x = x.astype(np.float64)
    deviation = x.std(-1, keepdims=True)
    return (x - x.mean(-1, keepdims=True)) / np.where(deviation <= 1e-5, 1, deviation) * weight + bias


def local_norm(x, left):
    """Normalised frames, and what rounding the means of numbers in float32 may change of them."""
    out, slack = np.empty(x.shape), np.empty((len(x), 1))
    for t in range(len(x)):
        window = x[max(0, t - left) : t + 1].astype(np.float64)
        deviation = 1 if window.std() <= 1e-5 else window.std()
        out[t], slack[t] = (x[t] - window.mean()) / deviation, 1e-6 * abs(window).max() / deviation
    return out, slack


def convolved(x, weight, bias, groups, stride, left, right):
    n_out, kernel, n_in = weight.shape
    x = np.pad(x.astype(np.float64), ((left, right), (0, 0))).reshape(-1, groups, n_in)
    n = max(0, (len(x) - kernel) // stride + 1)
    out = np.empty((n, groups, n_out))
    for t in range(n):
        out[t] = np.einsum("kgc,okc->go", x[t * stride : t * stride + kernel], weight) + bias
    return out.reshape(n, groups * n_out)


def relu(x):
    return np.maximum(x, 0)


def features(x, n_mels, size, shift, n_fft, rate):
    out = np.empty((max(0, (len(x) - size) // shift + 1), n_mels))
    mel = np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), n_mels + 2)
    edges = 700 * (10 ** (mel / 2595) - 1) * n_fft / rate
    for t in range(len(out)):
        frame = x[t * shift : t * shift + size] * 32768.0
        frame = np.concatenate([frame[:1] * 0.03, frame[1:] - 0.97 * frame[:-1]])
        frame *= 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(size) / (size - 1))
        magnitude = abs(np.fft.fft(frame, n_fft)[: n_fft // 2 + 1])
        for b in range(n_mels):
            low, top, high = edges[b : b + 3]
            k = np.arange(len(magnitude))
            weights = np.clip(np.minimum((k - low) / (top - low), (high - k) / (high - top)), 0, None)
            out[t, b] = np.log(max(1.0, weights @ magnitude))
    return out


# ---------------------------------------------------------------- modules
@pytest.mark.parametrize("left", [0, 1, 30, 300])
def test_local_norm(left):
    x = RNG.standard_normal((120, 5)).astype(np.float32) + 3
    x[40:60] = 5
    x[60:80] = 5 + 1e-4 * RNG.standard_normal((20, 5)).astype(np.float32)
    got = LocalNorm(left).eval()(ds.tensor(x[None])).numpy()[0]
    want, slack = local_norm(x, left)
    assert (abs(got - want) <= slack + 1e-6 * (1 + abs(want))).all() and slack.max() > 1e-3 * (left < 20)


def test_scalar_norm_of_frames_that_are_all_but_equal():
    layer = ScalarNorm().eval()
    layer.weight.numpy()[:], layer.bias.numpy()[:] = 0.2, 0.1
    x = np.stack([np.full(100, 5.0), np.zeros(100), RNG.standard_normal(100) * 3 - 7]).astype(np.float32)
    assert abs(layer(ds.tensor(x[None])).numpy()[0] - norm(x, 0.2, 0.1)).max() < 1e-5
    near = (5 + 1e-4 * RNG.standard_normal((50, 200))).astype(np.float32)
    assert abs(layer(ds.tensor(near[None])).numpy()[0] - norm(near, 0.2, 0.1)).max() < 5e-3


def test_features():
    x = RNG.standard_normal(166_960).astype(np.float32) * 0.1
    x[4000:6000] = 0
    got = Mfsc().eval()(ds.tensor(x[None])).numpy()[0]
    assert abs(got[:60] - features(x[:10_000], 80, 400, 160, 512, 16000)[:60]).max() < 2e-4
    engine = ds.compile(Mfsc().eval(), ("B", "L"), rate=16000)
    whole = streamed(engine, x, len(x))
    assert abs(whole - got).max() < 1e-5  # whose products may be OpenBLAS's
    for ms in (50, 49.9375, 200):
        assert np.array_equal(streamed(engine, x, int(ms * 16)), whole)


# ---------------------------------------------------------------- files
def block(channels, kernel, right):
    size = channels * BANDS
    conv = (randn(channels, kernel, channels), randn(channels), BANDS, 1, kernel - 1 - right, right)
    lines = (randn(size, 12), randn(12)), (randn(12, size), randn(size))
    modules = (
        ("Residual", ("Sequential", ("Conv1dFbGemm", *conv), ("Relu",))),
        ("LayerNorm", size, 1.5, -0.25),
        ("Residual", ("Sequential", ("LinearFbGemm", *lines[0]), ("Relu",), ("LinearFbGemm", *lines[1]))),
        ("LayerNorm", size, 0.5, 0.125),
    )

    def run(x):
        x = norm(x + relu(convolved(x, *conv)), 1.5, -0.25)
        y = relu(x @ lines[0][0] + lines[0][1]) @ lines[1][0] + lines[1][1]
        return norm(x + y, 0.5, 0.125)

    return ("TDSBlock", *modules), run


def network():
    """Modules of an acoustic model, and what they give, written plainly."""
    first = (randn(3, 10, 1), randn(3), BANDS, 2, 5, 3)
    second = (randn(4, 12, 3), randn(4), BANDS, 2, 9, 1)
    last = randn(4 * BANDS, 11), randn(11)
    blocks = [block(3, 9, 1), block(3, 5, 0), block(4, 9, 1)]
    modules = [
        ("Conv1dFbGemm", *first),
        ("Relu",),
        ("LayerNorm", 3 * BANDS, 1.0, 0.0),
        *(b for b, _ in blocks[:2]),
        ("Conv1dFbGemm", *second),
        ("Relu",),
        ("LayerNorm", 4 * BANDS, 1.0, 0.0),
        blocks[2][0],
        ("LinearFbGemm", *last),
    ]

    def run(x):
        x = norm(relu(convolved(x, *first)))
        for _, b in blocks[:2]:
            x = b(x)
        return blocks[2][1](norm(relu(convolved(x, *second)))) @ last[0] + last[1]

    return modules, run


def line(n_in, n_out):
    weight, bias = randn(n_in, n_out), randn(n_out)
    return [("LinearFbGemm", weight, bias)], lambda x: x @ weight + bias


def conv(groups, n_in, n_out, kernel, stride, left, right):
    given = (randn(n_out, kernel, n_in), randn(n_out), groups, stride, left, right)
    return [("Conv1dFbGemm", *given)], lambda x: convolved(x, *given)


def residual(*made):
    """Modules with what goes by them, where an input that changes shows each frame that is out of place."""
    inner, run = made
    return [("Residual", ("Sequential", *inner))], lambda x: x + run(x)


def behind(module, function, size):
    """A module, then a linear layer, which says how wide an input is."""
    lines, run = line(size, size)
    return [module, *lines], lambda x: run(function(x))


def blocks():
    module, run = block(2, 3, 1)
    return [module], run


#: What the authors' own tests look at, each with inputs that differ from frame to frame, and more frames.
MODULES = {
    "convolution": lambda: conv(5, 2, 2, 3, 1, 1, 1),
    **{
        f"convolution-{stride}-{pads}": lambda s=stride, p=pads: conv(4, 2, 3, 10, s, *p)
        for stride in (1, 2, 3)
        for pads in ((0, 0), (5, 3), (0, 4), (9, 0))
    },
    "identity": lambda: behind(("Identity",), lambda x: x, 4),
    "norm": lambda: behind(("LayerNorm", 1000, 0.5, 0.125), lambda x: norm(x, 0.5, 0.125), 1000),
    "local-norm": lambda: behind(("LocalNorm", 9, 7, 0), lambda x: local_norm(x, 7)[0], 9),
    "one-neuron": lambda: line(1, 1),
    "linear": lambda: line(3, 2),
    "relu": lambda: behind(("Relu",), relu, 10),
    "residual": lambda: residual(*conv(5, 2, 2, 3, 1, 2, 0)),
    "residual-ahead": lambda: residual(*conv(5, 2, 2, 9, 1, 3, 5)),
    "block": blocks,
    "network": network,
}


@pytest.mark.parametrize("name", MODULES)
def test_serialized_modules(tmp_path, name):
    modules, run = MODULES[name]()
    (tmp_path / "acoustic_model.bin").write_bytes(written(*modules))
    net = load_wav2letter(tmp_path / "acoustic_model.bin")
    engine = ds.compile(net, net.spec, rate=net.rate)
    for n in (0, 1, 3, 10, 17, 700):  # more frames than the 332 at which their version of it overflows
        x = RNG.standard_normal((n, net.spec[2])).astype(np.float32)
        want, whole = run(x), streamed(engine, x, 10_000)
        assert whole.shape == want.shape and abs(whole - want).max(initial=0) < (
            1e-5 if name.startswith("convolution") else 1e-4
        )
        for chunk in (1, 7, 50):
            assert np.array_equal(streamed(engine, x, chunk), whole)


@pytest.mark.parametrize("name", ["conv", "block"])
def test_numbers_of_the_authors(tmp_path, name):
    """What wav2letter's own tests (MIT licence) expect of a convolution and of a block, to four digits."""
    numbers = np.load(NUMBERS)
    given = {key.removeprefix(f"{name}_"): numbers[key] for key in numbers if key.startswith(name)}
    module = "Conv1dFbGemm", given["conv_weights"].reshape(2, 3, 2), given["conv_bias"], 5, 1, 1, 1
    if name == "block":
        weights = (given[f"lin{i}_weights"].reshape(10, 10) for i in (1, 2))
        first, second = (("LinearFbGemm", w, given[f"lin{i}_bias"]) for i, w in enumerate(weights, 1))
        norm = "LayerNorm", 10, 1.0, 0.0
        conv, linear = ("Sequential", module, ("Relu",)), ("Sequential", first, ("Relu",), second)
        module = "TDSBlock", ("Residual", conv), norm, ("Residual", linear), norm
    (tmp_path / "acoustic_model.bin").write_bytes(written(module))
    net = load_wav2letter(tmp_path / "acoustic_model.bin")
    engine = ds.compile(net, net.spec, rate=net.rate)
    x, want = given["x"].reshape(10, 10), given["y"].reshape(10, 10)
    whole = streamed(engine, x, 10)
    assert abs(whole - want).max() < 2e-3
    assert all(np.array_equal(streamed(engine, x, chunk), whole) for chunk in (1, 3, 7))


def test_its_text_describes_the_same_network(tmp_path):
    modules, _ = network()
    (tmp_path / "acoustic_model.bin").write_bytes(written(*modules))
    text = "V -1 NFEAT 1 0\nSAUG 80 27 2 100 1.0 2\nPD 0 5 3\nC2 1 3 10 1 2 1 0 0\nR\nDO 0.1\nLN 1 2\n"
    text += f"TDS 3 9 {BANDS} 0.1 12 1 0\nTDS 3 5 {BANDS} 0.1 12 0 0\nPD 0 9 1\nC2 3 4 12 1 2 1 0 0\nR\nLN 1 2\n"
    text += f"TDS 4 9 {BANDS} 0.1 12 1 0\nRO 2 1 0 3\nV 2160 -1 1 0\nL {4 * BANDS} NLABEL\n"
    (tmp_path / "am.arch").write_text(text)
    net = TDSNet(tmp_path / "am.arch", BANDS, 11)
    read = load_wav2letter(tmp_path / "acoustic_model.bin")
    net.load_state_dict(read.state_dict())
    x = ds.tensor(RNG.standard_normal((2, 90, BANDS)).astype(np.float32))
    assert np.array_equal(net.eval()(x).numpy(), read(x).numpy())
    assert TDSNet(text, BANDS, 11).spec == ("B", "L", BANDS)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("LN 0 1 2", "line 2, 'LN 0 1 2': expected PD"),
        ("TDS 3 9 8 0.1 0 1 1", "norms over time"),
        ("TDS 3 9 8 0.1 0 9 0", "at most 8 are ahead"),
        ("TDS 3", "line 2"),
        ("C2 1 3 10 3 2 1 0 0", "across bands"),
        ("PD 1 5 3", "expected zeros"),
        ("PD 0 1 1\nR", "line 3, 'R': PD stands before a C2"),
        ("GLU 3", "GLU"),
        ("PD 0 2 1", "the last line: PD"),
        ("PD 0 2 1\nPD 0 2 1\nC2 1 3 4 1 2 1 0 0", "line 3, 'PD 0 2 1': PD stands before a C2"),
        ("PD 0 99999 1\nC2 1 3 4 1 2 1 0 0", "4096 at most"),
        ("C2 1 3 4", "line 2"),
        ("C2 0 3 4 1 2 1 0 0", "from 1 on"),
        ("C2 1 3 999999999 1 2 1 0 0", "weights at most"),
        ("C2 1 3 4 1 2 1 5 0", "no zeros of its own"),
        ("L 8 0", "from 1 on"),
        ("L 999999999 999999999", "weights at most"),
        ("TDS 0 9 8 0.1 0 1 0", "from 1 on"),
        ("TDS 99999 9 80 0.1 0 1 0", "weights at most"),
        ("TDS 3 9 8 0.1 -1 1 0", "from 1 on"),
    ],
)
def test_texts_that_are_no_network(line, said):
    with pytest.raises(ds.FormatError, match=said):
        TDSNet(f"R\n{line}\n", BANDS, 11)


def test_converted_on_the_command_line(tmp_path, capsys):
    modules, run = network()
    am, front, out = tmp_path / "acoustic_model.bin", tmp_path / "feature_extractor.bin", tmp_path / "out.dsm"
    am.write_bytes(written(*modules))
    front.write_bytes(written(("LogMelFeature", BANDS, 25, 10, 16000), ("LocalNorm", BANDS, 20, 0)))
    assert cli.main(["convert", str(am), str(out), "--features", str(front)]) == 0
    engine = ds.load(out)
    stored = {node["path"]: node["stored"] for node in engine._core.nodes if node["name"] in ("linear", "conv2d")}
    assert stored.pop("0") == "fp32" and {*stored.values()} == {"fp16"}, "bands of features stand in no file"
    x = RNG.standard_normal(16000).astype(np.float32) * 0.1
    want = run(local_norm(features(x, BANDS, 400, 160, 512, 16000), 20)[0])
    got = streamed(engine, x, 1234)
    assert got.shape == want.shape and abs(got - want).max() < 2e-3
    assert engine.outputs[0].rate == 25
    assert cli.main(["convert", str(out), str(tmp_path / "x.dsm"), "--features", str(front)]) == 1
    assert "--features goes with" in capsys.readouterr().err
    front.write_bytes(written(("LogMelFeature", BANDS + 1, 25, 10, 16000)))
    assert cli.main(["convert", str(am), str(out), "--features", str(front)]) == 1
    assert "gives 9 features" in capsys.readouterr().err


def test_a_recogniser_from_its_files(tmp_path, capsys, monkeypatch):
    """Four letters are tones in bands of their own; words of them come out of the files, in chunks as at once."""
    letters = "abc|"
    weight = np.zeros((BANDS, 5), np.float32)
    weight[range(1, 5), range(4)] = 4
    half = np.full((1, 2, 1), 0.5, np.float32), np.zeros(1, np.float32), BANDS, 2, 1, 0
    score = ("LinearFbGemm", weight, np.array([0, 0, 0, 0, 3], np.float32))
    files = {
        "acoustic_model.bin": written(("Conv1dFbGemm", *half), ("Relu",), score),
        "feature_extractor.bin": written(("LogMelFeature", BANDS, 25, 10, 16000), ("LocalNorm", BANDS, 9, 0)),
        "tokens.txt": b"a\nb\nc\n|\n#\n",
        "lexicon.txt": b"ab\ta b |\ncab\tc a b |\nbob\tb c b |\n",
        "decoder_options.json": b'{"beamSize": 20, "beamSizeToken": 5, "beamThreshold": 100, "lmWeight": 0.5, '
        b'"wordScore": 0.1, "unkScore": -Infinity, "silScore": 0, "eosScore": 0, "logAdd": false, '
        b'"criterionType": "CTC"}',
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), BANDS + 2) / 2595) - 1)
    t = np.arange(2400) / 16000
    silence = np.zeros(1600, np.float32)
    tones = {letter: 0.3 * np.sin(2 * np.pi * edges[2 + i] * t) for i, letter in enumerate(letters)}
    sound = np.concatenate([part for letter in "cab|ab|bcb|" for part in (silence, tones[letter])] + [silence])
    write_wav(tmp_path / "call.wav", sound * 32767, 16000)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["convert", "acoustic_model.bin", "m.dsm", "--features", "feature_extractor.bin"]) == 0
    command = ["transcribe", "call.wav", "--model", "m.dsm", "--tokens", "tokens.txt", "--blank", "#"]
    command += ["--lexicon", "lexicon.txt", "--decoder-options", "decoder_options.json", "--chunk-ms"]
    for chunk in ("10", "130", "100000"):
        capsys.readouterr()
        assert cli.main([*command, chunk]) == 0
        assert capsys.readouterr().out == "cab ab bob\n"


# ---------------------------------------------------------------- trained
def of_torch(torch):
    """The same layers in torch, written plainly."""
    modules, functional = torch.nn, torch.nn.functional

    class Of(modules.Module):
        def __init__(self, function, **inner):
            super().__init__()
            self.function = function
            for name, of in inner.items():
                setattr(self, name, of)

        def forward(self, x):
            return self.function(self, x)

    def divided(x, of):
        deviation = of.std(-1, correction=0, keepdim=True)
        return x / torch.where(deviation > 1e-5, deviation, 1.0)

    def local(m, x):
        windows = [x[:, max(0, t - 6) : t + 1].flatten(1) for t in range(x.shape[1])]
        return torch.stack([divided(x[:, t] - w.mean(-1, True), w) for t, w in enumerate(windows)], 1)

    def norm():
        weight, bias = (modules.Parameter(torch.empty(1)) for _ in range(2))
        return Of(lambda m, x: divided(x - x.mean(-1, True), x) * m.weight + m.bias, weight=weight, bias=bias)

    def bands(n_in, n_out, kernel, stride, *pads):
        def run(m, x):
            x = functional.pad(x.unflatten(-1, (BANDS, n_in)).permute(0, 3, 1, 2), (0, 0, *pads))
            return m.conv(x).permute(0, 2, 3, 1).flatten(2)

        return Of(run, conv=modules.Conv2d(n_in, n_out, (kernel, 1), (stride, 1)))

    def added(*layers):
        return Of(lambda m, x: x + m.layers(x), layers=modules.Sequential(*layers))

    def tds(channels, kernel, right, hidden):
        size, relu = channels * BANDS, modules.ReLU()
        conv = bands(channels, channels, kernel, 1, kernel - 1 - right, right)
        lines = modules.Linear(size, hidden), relu, modules.Linear(hidden, size)
        return modules.Sequential(added(conv, relu), norm(), added(*lines), norm())

    net = bands(1, 3, 10, 2, 5, 3), modules.ReLU(), norm(), tds(3, 9, 1, 12)
    net += bands(3, 4, 12, 2, 9, 1), modules.ReLU(), norm(), tds(4, 5, 0, 4 * BANDS)
    return modules.Sequential(Of(local), modules.Sequential(*net, modules.Linear(4 * BANDS, 5)))


TRAINED = f"""PD 0 5 3\nC2 1 3 10 1 2 1 0 0\nR\nLN 1 2\nTDS 3 9 {BANDS} 0.1 12 1 0
PD 0 9 1\nC2 3 4 12 1 2 1 0 0\nR\nLN 1 2\nTDS 4 5 {BANDS} 0.1 0 0 0\nL {4 * BANDS} NLABEL\n"""


@pytest.mark.parametrize("variant", [None, "chunk-wise-aligned", "full-file-aligned", "full-file-unaligned"])
def test_trained_in_chunks_as_whole_files_and_as_torch(variant):
    torch = pytest.importorskip("torch")
    model, theirs = nn.Sequential(LocalNorm(6), TDSNet(TRAINED, BANDS, 5)), of_torch(torch).double()
    for p in model.parameters():
        p.numpy()[...] = randn(*p.shape)
    theirs.load_state_dict({name: torch.tensor(p.numpy()) for name, p in model.state_dict().items()})
    x = {name: RNG.standard_normal((n, BANDS)).astype(np.float32) for name, n in (("a", 83), ("b", 40))}
    wanted = {name: torch.tensor(of)[None].double().requires_grad_() for name, of in x.items()}
    whole = {name: theirs(of) for name, of in wanted.items()}
    factors = {name: RNG.standard_normal(y.shape[1:]).astype(np.float32) for name, y in whole.items()}
    sum((y * torch.tensor(factors[name])).sum() for name, y in whole.items()).backward()

    if variant is None:
        ours = {name: [ds.tensor(of, requires_grad=True)] for name, of in x.items()}
        for name, (of,) in ours.items():
            (model(of.unsqueeze(0)) * ds.tensor(factors[name])).sum().backward()
    else:
        ours = {name: [] for name in x}
        online, losses = ds.patch_module(model, train_variant=variant).train().online(), []
        chunk = 100 if variant.startswith("chunk") else 7
        for at in range(0, 83, chunk):
            names = [name for name in x if at < len(x[name])]
            for name in names:
                ours[name].append(ds.tensor(x[name][at : at + chunk], requires_grad=True))
            how = {"sos": at == 0, "eos": [at + chunk >= len(x[name]) for name in names]}
            y = online(ds.stream_tensor([ours[n][-1] for n in names], ids=names, names=("B", "L", None), **how))
            losses.append((y * ds.train.align(y, {n: ds.tensor(f) for n, f in factors.items()})).sum())
        sum(losses).backward()
    for name, leaves in ours.items():
        got = np.concatenate([leaf.grad.numpy() for leaf in leaves])
        np.testing.assert_allclose(got, wanted[name].grad[0], rtol=1e-4, atol=1e-4)
    for (name, p), q in zip(model.named_parameters(), theirs.parameters()):
        np.testing.assert_allclose(p.grad.numpy(), q.grad, rtol=1e-4, atol=1e-4, err_msg=name)
