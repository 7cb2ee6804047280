"""The recogniser that comes with the package: whole, in streams, and on the command line."""

import os
import wave

import numpy as np

import dreamstream as ds
from dreamstream import cli
from dreamstream.models import Commands
from dreamstream.models.commands import WEIGHTS, WORDS


def sounds(seconds, seed=0):
    """Tones that come and go, and noise."""
    rng, t = np.random.default_rng(seed), np.arange(int(16000 * seconds)) / 16000
    x = sum(np.sin(2 * np.pi * f * t) * (np.sin(2 * np.pi * t * r) > 0.3) for f, r in ((300, 1.1), (900, 1.7)))
    return (0.1 * x + 0.01 * rng.standard_normal(len(t))).astype(np.float32)


def test_streams_are_the_whole():
    model = Commands(pretrained=True).eval()
    engine = ds.compile(model, model.spec, rate=model.sample_rate)
    assert os.path.getsize(WEIGHTS) < 1_000_000 and engine.delay <= 0.2 * model.sample_rate
    assert model.tokens[1:] == list(WORDS) and engine.outputs[0].rate == model.rate
    x = sounds(3)
    whole = model(ds.tensor(x[None])).numpy()[0]
    parts = []
    for at in range(0, len(x), 1111):
        end = at + 1111 >= len(x)
        parts.append(
            engine.step({"a": x[at : at + 1111]}, sos="a" if at == 0 else (), eos="a" if end else ())["a"]
        )
    assert np.array_equal(np.concatenate(parts), engine.step({"b": x}, "b", "b")["b"])
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=2e-5)  # logarithms, down to -17
    assert whole.shape[1] == len(model.tokens) and np.allclose(np.exp(whole).sum(1), 1, atol=1e-5)


def test_silence_holds_no_word():
    model = Commands(pretrained=True).eval()
    scores = model(ds.tensor(np.zeros((1, 32000), np.float32))).numpy()[0]
    assert (scores.argmax(1) == 0).all()


def test_transcribing_needs_no_model(tmp_path, capsys):
    path = str(tmp_path / "quiet.wav")
    with wave.open(path, "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(8000)
        file.writeframes(bytes(16000))
    assert cli.main(["transcribe", path, "--json"]) == 0
    assert '"words": []' in capsys.readouterr().out
    assert cli.main(["transcribe", path, "--tokens", "tokens.txt"]) == 1
    assert "--tokens goes with --model" in capsys.readouterr().err
