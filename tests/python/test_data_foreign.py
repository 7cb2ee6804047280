"""Recordings that soundfile reads, held against what their headers promise."""

import io
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from wav_files import PCM, as_float, draw, piped_stdin, wav

from dreamstream.data import AudioReader, read_audio
from dreamstream.data.foreign import SoundFileReader
from dreamstream.data.wav import WavReader
from dreamstream.errors import ClosedError, DTypeError, FormatError, ShapeError


def test_without_soundfile(monkeypatch, rng, tmp_path):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    flac, law = tmp_path / "a.flac", tmp_path / "law.wav"
    flac.write_bytes(b"fLaC" + bytes(40))
    law.write_bytes(wav(np.zeros((4, 1)), bits=8, tag=7))
    for source in (flac, law, b"OggS" + bytes(40), io.BytesIO(law.read_bytes())):
        with pytest.raises(FormatError, match="pip install soundfile"):
            AudioReader(source)
    with pytest.raises(FormatError, match=r"flac: .*pip install"):
        AudioReader(flac)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
@pytest.mark.parametrize("form", ["WAV", "WAVEX", "RF64"])
def test_soundfile_agrees(rng, subtype, form, tmp_path):
    soundfile = pytest.importorskip("soundfile")
    path = tmp_path / "s.wav"
    soundfile.write(path, rng.uniform(-1, 1, (500, 3)), 22050, subtype, format=form)
    expected, rate = soundfile.read(path, dtype="float32", always_2d=True)
    reader = AudioReader(path, mono=False)
    assert isinstance(reader._decoder, WavReader)
    assert (reader.sample_rate, reader.frames) == (rate, 500)
    np.testing.assert_array_equal(reader.read(), expected)


@pytest.mark.parametrize(("form", "subtype"), [("FLAC", "PCM_16"), ("WAV", "ULAW"), ("AU", "PCM_16")])
def test_other_formats(rng, form, subtype, tmp_path):
    soundfile = pytest.importorskip("soundfile")
    path = tmp_path / "s.audio"
    soundfile.write(path, rng.uniform(-1, 1, (500, 2)), 8000, subtype, format=form)
    expected, _ = soundfile.read(path, dtype="float32", always_2d=True)
    content = path.read_bytes()
    for source in (path, content, io.BytesIO(content)):
        with AudioReader(source, mono=False) as reader:
            assert isinstance(reader._decoder, SoundFileReader)
            assert (reader.sample_rate, reader.channels, reader.frames) == (8000, 2, 500)
            np.testing.assert_array_equal(np.concatenate(list(reader.chunks(99))), expected)
    if subtype == "PCM_16":
        exact = AudioReader(path, mono=False, dtype="int16").read()
        np.testing.assert_array_equal(exact / 32768, expected)
    else:
        with pytest.raises(DTypeError, match="ULAW is no int16"):
            AudioReader(path, mono=False, dtype="int16").read()
    with pytest.raises(ShapeError):
        AudioReader(path).read(-1)
    reader = AudioReader(path)
    reader.close()
    with pytest.raises(ClosedError, match=r"s\.audio: the reader was closed"):
        reader.read(1)


def coded(form, subtype, n=16000):
    """A recording in a format of soundfile's, and what it holds."""
    soundfile = pytest.importorskip("soundfile")
    if form not in soundfile.available_formats() or subtype not in soundfile.available_subtypes(form):
        pytest.skip(f"soundfile without {form}")
    file = io.BytesIO()
    samples = np.random.default_rng(3).standard_normal(n) / 10
    samples[n // 3 : n // 2] = 0
    soundfile.write(file, samples.clip(-1, 1), 16000, subtype, format=form)
    return file.getvalue(), soundfile.read(io.BytesIO(file.getvalue()), dtype="float32")[0]


CODED = [
    ("WAV", "ULAW"),
    ("WAV", "ALAW"),
    ("WAVEX", "ULAW"),
    ("WAV", "IMA_ADPCM"),
    ("WAV", "GSM610"),
    ("RF64", "ALAW"),
    ("W64", "PCM_16"),
    ("AIFF", "PCM_16"),
    ("AIFF", "ULAW"),
    ("AU", "PCM_16"),
    ("CAF", "PCM_16"),
    ("NIST", "PCM_16"),
    ("SVX", "PCM_16"),
    ("VOC", "PCM_16"),
    ("VOC", "ULAW"),
    ("FLAC", "PCM_16"),
    ("OGG", "VORBIS"),
    ("OGG", "OPUS"),
    ("MP3", "MPEG_LAYER_III"),
]


@pytest.mark.parametrize(("form", "subtype"), CODED)
def test_other_formats_that_are_cut_short(form, subtype):
    """libsndfile takes them for shorter ones; each is refused with the offset."""
    content, expected = coded(form, subtype)
    np.testing.assert_allclose(read_audio(content)[0], expected, atol=1e-6)
    for end in (len(content) * k // 9 + 1 for k in range(2, 9)):
        for source in (content[:end], io.BytesIO(content[:end])):
            with pytest.raises(
                FormatError, match=f"recording: (offset {end}: expected|.*soundfile reads no audio)"
            ):
                list(AudioReader(source).chunks(1000))


@pytest.fixture
def stdin(monkeypatch):
    with piped_stdin(monkeypatch) as out:
        yield out


@pytest.mark.parametrize(("form", "subtype"), CODED)
def test_other_formats_through_a_pipe(form, subtype, stdin, tmp_path):
    """They need a file that goes back: what comes is kept until its end."""
    content, _ = coded(form, subtype)
    expected = AudioReader(content).read()
    writer = threading.Thread(target=lambda: (stdin.write(content), stdin.close()))
    writer.start()
    with AudioReader("-") as reader:
        np.testing.assert_array_equal(np.concatenate(list(reader.chunks(777))), expected)
    writer.join()
    inside = io.BytesIO(b"of others" + content)
    inside.seek(9)
    for source in (inside, SimpleNamespace(read=io.BytesIO(content).read)):
        np.testing.assert_array_equal(AudioReader(source).read(), expected)
    assert not inside.closed


def test_flac_of_unknown_length():
    content, expected = coded("FLAC", "PCM_16")
    content = bytearray(content)
    content[21] &= 0xF0  # the upper 4 of 36 bits, then the others
    content[22:26] = bytes(4)
    for n in (1000, 1003, 20000):
        reader = AudioReader(bytes(content))
        assert reader.frames is None
        np.testing.assert_array_equal(np.concatenate(list(reader.chunks(n))), expected)
    with pytest.raises(FormatError, match="offset 5000: expected more frames than"):
        AudioReader(bytes(content[:5000])).read()


def test_mp3_of_unknown_length():
    """Without the tag that counts its frames libsndfile guesses, and would leave out what is behind its guess."""
    content, expected = coded("MP3", "MPEG_LAYER_III", 48000)
    at = content.index(content[:2], 4)  # the second frame; the first is the tag
    for begin in (b"", b"ID3\3\0\0\0\0\4\0" + bytes(512)):
        with AudioReader(begin + content[at:]) as reader:
            assert reader.frames is None
            got = np.concatenate(list(reader.chunks(1000)))
        starts = [
            k
            for k in range(3000)
            if len(got) - k >= 48000 and np.allclose(got[k + 5000 : k + 6000], expected[5000:6000], atol=1e-4)
        ]
        assert len(got) >= 48000 and len(starts) == 1
    AudioReader(content[at:]).close()


def test_frames_of_another_size():
    """A frame's size that can't be is for soundfile to make sense of."""
    pytest.importorskip("soundfile")
    samples = draw(np.random.default_rng(0), PCM, 16, (300, 1))
    for block in (1, 3, 65535):
        reader = AudioReader(wav(samples, block=block))
        assert isinstance(reader._decoder, SoundFileReader)
        np.testing.assert_array_equal(reader.read(), as_float(samples, PCM, 16)[:, 0])
    with pytest.raises(
        FormatError, match="offset 34: expected samples of 1 to 32 bits, got 48; soundfile reads no"
    ):
        AudioReader(wav(samples, said=48))


def test_soundfile_refuses(tmp_path):
    pytest.importorskip("soundfile")
    path = tmp_path / "nonsense"
    path.write_bytes(b"nonsense" * 9)
    with pytest.raises(FormatError, match="nonsense: "):
        AudioReader(path)
    with pytest.raises(FormatError):
        AudioReader(b"nonsense" * 9)
