"""Serialized modules of wav2letter, cut, damaged or made to harm: errors that say where, and little memory."""

import contextlib
import struct
import tracemalloc

import numpy as np
import pytest
from cereal import Writer, written

import dreamstream as ds
from dreamstream.models import load_wav2letter

CONV = np.full((2, 3, 1), 0.5, np.float32), np.zeros(2, np.float32), 4, 1, 1, 1
MODULES = (
    ("Conv1dFbGemm", *CONV),
    ("Relu",),
    ("Residual", ("Sequential", ("LinearFbGemm", np.full((8, 8), 0.25, np.float32), np.zeros(8, np.float32)))),
    ("LayerNorm", 8, 1.0, 0.0),
    ("LocalNorm", 8, 5, 0),
    ("LogMelFeature", 8, 25, 10, 16000),
)
FILE = written(*MODULES)
SMALL = written(*MODULES, room=1)


def load(content, tmp_path):
    (tmp_path / "model.bin").write_bytes(content)
    return load_wav2letter(tmp_path / "model.bin")


def test_files_that_are_cut(tmp_path):
    load(FILE, tmp_path)
    for cut in (*(SMALL[:n] for n in range(len(SMALL))), *(FILE[:n] for n in range(400, len(FILE), 31))):
        with pytest.raises(ds.FormatError, match=r"model\.bin: byte"):
            load(cut, tmp_path)
    with pytest.raises(ds.FormatError, match="1 bytes follow"):
        load(FILE + b"x", tmp_path)


def wrong_everywhere(data):
    """The file with each of its bytes changed, by a bit or by all, in turns."""
    for at, byte in enumerate(data):
        yield data[:at] + bytes([byte ^ (1 if at % 2 else 255)]) + data[at + 1 :]


def wrong_at_random(rng):
    for _ in range(600):
        data = bytearray(FILE)
        if rng.integers(2):  # a part stands in another's place, or twice, or nowhere
            at, begin, end = rng.integers(0, 700, 3)
            data[at : at + rng.integers(40)] = data[begin : max(begin, end)]
        for at in rng.integers(0, 700, rng.integers(1, 4)):
            data[at] = rng.choice([0, 1, 127, 128, 255, rng.integers(256)])
        yield bytes(data)


def test_files_with_wrong_bytes(tmp_path):
    tracemalloc.start()
    for data in (*wrong_everywhere(SMALL), *wrong_at_random(np.random.default_rng(0))):
        with contextlib.suppress(ds.FormatError):
            load(data, tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 26
    tracemalloc.stop()


def nested(n):
    module = ("Relu",)
    for _ in range(n):
        module = ("Sequential", module)
    return written(module)


def pointing(number, parameter=False):
    """A file whose second module, or the bias of that, is the object of a number."""
    writer = Writer()
    writer.put("I", 1 << 30)
    writer.object()
    writer.put("Q", 2)
    writer.module(("LinearFbGemm", np.ones((2, 2), np.float32), np.ones(2, np.float32)))
    writer.put("I", 1)
    if parameter:
        writer.object()
        writer.put("II", 2, 2)
    writer.put("I", number)
    return writer.bytes()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (nested(60), "deep"),
        (pointing(1), "has not come"),
        (pointing(2), "in a second place"),  # doubled often enough, a network without an end
        (pointing(2, parameter=True), "the object is a Linear"),
        (pointing(0), "a pointer to nothing"),
        (written(("LocalNorm", 8, 1 << 23, 0)), "sizes"),
        (written(("LocalNorm", 8, 5, 1)), "looks ahead"),
        (written(("LogMelFeature", 80, 25, 10, 1 << 30)), "sizes"),
        (written(("LogMelFeature", 0, 25, 10, 16000)), "0 bands"),
        (written(("LogMelFeature", 2000, 2000, 10, 192_000)), "2000 bands in windows of 2000 ms"),
        (written(("LogMelFeature", 8, 25, 0, 16000)), "0 apart"),
        (written(("LogMelFeature", 8, 25, 10, 0)), "windows of 0 samples"),
        (written(("Conv1dFbGemm", *CONV[:4], 1 << 20, 0)), "frames of zeros"),
        (written(("LayerNorm", 8, float("nan"), 0.0), *MODULES), "infinite or none"),
        (written(("LinearFbGemm", np.full((2, 2), np.inf), np.ones(2))), "infinite or none"),
        (written(("Relu",)), "has none"),
        (written(("LinearFbGemm", np.ones((4, 2)), np.ones(2)), ("LayerNorm", 3, 1.0, 0.0)), "of 3 .* are 2"),
        (written(("LogMelFeature", 8, 25, 10, 16000), ("LocalNorm", 8, 5, 0)), "begins with features"),
        (written(("Residual", ("Sequential", ("Conv1dFbGemm", *CONV)))), "changes the number of features"),
        (
            written(("Residual", ("Sequential", ("Conv1dFbGemm", np.ones((2, 3, 2)), *CONV[1:5], 0)))),
            "or of frames",
        ),
        (b"", "it ends"),
        (struct.pack("<IIQ", 1 << 30, 1 | 1 << 31, 1 << 60), "more than the file has"),
    ],
)
def test_files_that_are_made_to_harm(content, said, tmp_path):
    with pytest.raises(ds.FormatError, match=said):
        load(content, tmp_path)
