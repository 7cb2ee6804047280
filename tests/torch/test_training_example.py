"""The example that trains on a folder of WAV files, run small."""

import importlib.util
import wave
from importlib import resources
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "train_wav.py"

pytestmark = pytest.mark.skipif(not EXAMPLE.is_file(), reason="the tests are away from the sources")


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("train_wav", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path):
    """The speech that the package ships, cut into recordings; the last is too short for a frame."""
    with wave.open(str(resources.files("dreamstream") / "assets" / "speech.wav")) as speech:
        for k, seconds in enumerate((2.0, 0.7, 3.1, 0.01)):
            with wave.open(str(tmp_path / f"part{k}.wav"), "wb") as part:
                part.setparams(speech.getparams())
                part.writeframes(speech.readframes(int(seconds * speech.getframerate())))
    return tmp_path


def test_the_loss_falls_below_that_of_nothing_changing(example, folder, capsys):
    errors = example.main([str(folder), "--epochs", "6", "--lanes", "2", "--chunk", "40"])
    still = float(capsys.readouterr().out.splitlines()[0].rpartition(" ")[2])
    assert len(errors) == 6 and errors[-1] < errors[0] and errors[-1] < 0.9 * still


def test_a_folder_without_recordings_is_told(example, tmp_path):
    with pytest.raises(SystemExit, match="no WAV files"):
        example.main([str(tmp_path)])
