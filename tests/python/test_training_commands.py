"""The example that trains the recogniser, for a few steps on made recordings: its weights are the model's."""

from pathlib import Path

import numpy as np
import pytest

import dreamstream as ds
from dreamstream.models import Commands
from dreamstream.models.commands import WORDS
from dreamstream.nn.state import read_safetensors

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "docs" / "examples" / "train_commands.py"
pytestmark = pytest.mark.skipif(not EXAMPLE.is_file(), reason="the tests are away from the sources")


def write_flac(path, x):
    sound = pytest.importorskip("soundfile")
    path.parent.mkdir(exist_ok=True)
    sound.write(path, x, 16000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tones for words, by two people who train and one who doesn't."""
    path, rng, rows = tmp_path_factory.mktemp("commands"), np.random.default_rng(0), ["file,word,speaker,split"]
    for k, word in enumerate((*WORDS, "bed")):
        for person, split in (("ann", "train"), ("bob", "train"), ("eve", "valid")):
            t = np.arange(16000) / 16000
            tone = np.sin(2 * np.pi * (300 + 150 * k) * t) * np.exp(-(((t - 0.5) / 0.12) ** 2))
            write_flac(path / word / f"{person}_0.flac", 0.3 * tone + 0.003 * rng.standard_normal(16000))
            rows.append(f"{word}/{person}_0.flac,{word},{person},{split}")
    (path / "split.csv").write_text("\n".join(rows))
    write_flac(path / "_background_noise_" / "hum.flac", 0.1 * rng.standard_normal(32000))
    write_flac(path / "_other_speech_" / "one.flac", 0.1 * rng.standard_normal(32000))
    (path / "_other_speech_" / "files.csv").write_text("file,seconds,split\none.flac,2,train\n")
    return path


def test_a_few_steps_give_weights_of_the_model(folder, tmp_path, capsys):
    import train_commands

    out = tmp_path / "weights.safetensors"
    log = tmp_path / "log.csv"
    share = train_commands.main([str(folder), str(out), "--minutes", "0.03", "--rows", "2", "--log", str(log)])
    first, *lines = [line.split(",") for line in log.read_text().splitlines()]
    assert first == ["step", "minutes", "ctc", "second", "right"] and [int(k[0]) for k in lines] == [
        *range(1, len(lines) + 1)
    ]
    assert (
        lines
        and np.isfinite(np.array(lines, float)).all()
        and float(lines[-1][4]) == pytest.approx(share, abs=1e-4)
    )
    printed = capsys.readouterr().out
    assert 0 <= share <= 1 and printed.startswith("step 1: CTC ") and "% of single words" in printed
    model, weights = Commands().eval(), read_safetensors(out)
    assert set(weights) == {name for name, _ in model.named_parameters()}
    model.load_state_dict({**model.state_dict(), **weights})
    assert all(np.isfinite(np.asarray(value, np.float32)).all() for value in weights.values())
    fresh = {name: p.numpy().copy() for name, p in Commands().named_parameters()}
    assert any(np.abs(np.asarray(weights[name], np.float32) - fresh[name]).max() > 1e-3 for name in fresh)
    assert model(ds.tensor(np.zeros((1, 16000), np.float32))).shape == (1, 25, 11)


def test_what_rows_are_made_of(folder):
    """Targets are the commands among what lies in a row, each where it is marked."""
    import train_commands

    maker = train_commands.Maker(train_commands.Recordings(folder, "train"), 1)
    assert set(maker.of.words) == {"ann", "bob"} and len(maker.of.others) == 2 and len(maker.of.noise[0]) == 22400
    rows = [maker.row() for _ in range(30)]
    assert {len(targets) for _, targets, _ in rows} >= {0, 1, 2, 3}
    for samples, targets, marks in rows:
        assert np.isfinite(samples).all() and all(1 <= k <= len(WORDS) for k in targets)
        assert [label for label, _, _ in marks if label <= len(WORDS)] == list(targets)
        assert all(begin <= end <= len(samples) for _, begin, end in marks)


def test_training_goes_on_where_a_smaller_network_ended(folder):
    """Weights of fewer and narrower blocks give the same scores in the network of today."""
    import train_commands

    small, large = Commands(hidden=160, blocks=5).eval(), Commands().eval()
    weights = train_commands.grown({name: p.numpy() for name, p in small.named_parameters()})
    large.load_state_dict({**large.state_dict(), **weights})
    x = ds.tensor(0.1 * np.random.default_rng(2).standard_normal((1, 16000)).astype(np.float32))
    np.testing.assert_allclose(large(x).numpy(), small(x).numpy(), rtol=0, atol=1e-5)


def test_what_is_measured(folder):
    import measure_commands

    assert measure_commands.errors(["go", "no"], ["go", "up", "no"]) == 1
    assert measure_commands.errors(["go", "no"], []) == 2 and measure_commands.errors(["up"], ["go"]) == 1
    got = measure_commands.measure(Commands(pretrained=True).eval(), folder, "valid", few=2, seconds=2)
    assert got["of other words"] == 1 and 0 <= got["singles right"] <= 1 and len(got) == 28 + 12 + 7
    of = measure_commands.Recordings(folder, "valid")
    for said, parts in measure_commands.strings(of, np.random.default_rng(0), 20):
        assert 1 <= len(said) <= 4 and len(parts) == 2 * len(said) + 2 and not parts[0].any()
