"""Reading recordings: WAV of every kind against what was written, other formats by soundfile."""

import gc
import io
import os
import struct
import sys
import threading
import wave
from types import SimpleNamespace

import numpy as np
import pytest
from together import in_threads
from turns import in_blocks
from wav_files import AMBISONIC, FLOAT, KINDS, PCM, as_float, draw, encode, piped_stdin, wav

from dreamstream.data import AudioReader, read_audio
from dreamstream.data.wav import WavReader
from dreamstream.errors import ClosedError, DTypeError, FormatError, ShapeError, StreamBusyError


# ---------------------------------------------------------------- WAV
@pytest.mark.parametrize(("form", "bits"), KINDS)
@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize("extensible", [False, True])
def test_every_kind(rng, form, bits, channels, extensible, tmp_path):
    samples = draw(rng, form, bits, (1000, channels))
    expected = as_float(samples, form, bits)
    content = wav(samples, form, bits, extensible=extensible, extra=b"LIST\3\0\0\0abc\0")
    path = tmp_path / "a recording.wav"
    path.write_bytes(content)
    for source in (path, str(path), content, bytearray(content), memoryview(content), io.BytesIO(content)):
        with AudioReader(source, mono=False) as reader:
            assert (reader.sample_rate, reader.channels, reader.frames) == (16000, channels, 1000)
            got = reader.read()
            assert got.dtype == np.float32
            np.testing.assert_array_equal(got, expected)
            assert reader.read().shape == (0, channels)
    with AudioReader(content) as reader:
        mono = expected.mean(1, dtype=np.float64).astype(np.float32)
        np.testing.assert_array_equal(reader.read(), mono)


@pytest.mark.parametrize("channels", [1, 3])
def test_chunks_are_the_whole(rng, channels):
    content = wav(draw(rng, PCM, 16, (1003, channels)))
    whole = AudioReader(content).read()
    for n in (1, 7, 256, 1003, 5000):
        pieces = list(AudioReader(content).chunks(n))
        assert [len(p) for p in pieces[:-1]] == [n] * (len(pieces) - 1) and 0 < len(pieces[-1]) <= n
        assert np.concatenate(pieces).tobytes() == whole.tobytes()
    reader = AudioReader(content)
    parts = [reader.read(0), reader.read(10), *reader.chunks(100), reader.read(5)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()


def test_int16_is_exact(rng):
    samples = draw(rng, PCM, 16, (500, 2)).astype(np.int16)
    got = AudioReader(wav(samples), mono=False, dtype="int16").read()
    assert got.dtype == np.int16
    np.testing.assert_array_equal(got, samples)
    with pytest.raises(DTypeError, match="mean of 2 channels is no int16"):
        AudioReader(wav(samples), dtype="int16")
    with pytest.raises(DTypeError, match="float32 or int16, got 'float64'"):
        AudioReader(wav(samples), dtype="float64")
    with pytest.raises(DTypeError, match="these have 24; read float32"):
        AudioReader(wav(samples[:, :1], bits=24), dtype="int16").read()


def test_what_wave_writes(rng, tmp_path):
    """The standard library as a writer, and as a second reader."""
    path = tmp_path / "w.wav"
    for width in (1, 2, 3, 4):
        for channels in (1, 2):
            raw = rng.bytes(300 * width * channels)
            with wave.open(str(path), "wb") as file:
                file.setnchannels(channels)
                file.setsampwidth(width)
                file.setframerate(8000)
                file.writeframes(raw)
            with wave.open(str(path)) as file:
                again = file.readframes(1000)
            assert again == raw
            got = AudioReader(path, mono=False).read()
            back = np.round(got * 2.0 ** (8 * width - 1)).astype(np.int64)
            if width < 4:  # 32 bits do not fit into a float
                assert encode(back, PCM, 8 * width) == raw


def test_a_stream_that_is_still_recorded(rng):
    """Sizes unknown, through a pipe that gives little at a time."""
    samples = draw(rng, PCM, 16, (3000, 2))
    for size, riff in ((0xFFFFFFFF, 0xFFFFFFFF), (0, 0), (0, 36), (0, 0xFFFFFFFF)):
        content = wav(samples, size=size, riff=riff)
        read_end, write_end = os.pipe()

        def write(content=content, write_end=write_end):
            with open(write_end, "wb", buffering=0) as out:
                for at in range(0, len(content), 777):
                    out.write(content[at : at + 777])

        writer = threading.Thread(target=write)
        writer.start()
        with open(read_end, "rb", buffering=0) as pipe, AudioReader(pipe, mono=False) as reader:
            assert reader.frames is None
            got = np.concatenate(list(reader.chunks(100)))
        writer.join()
        np.testing.assert_array_equal(got, as_float(samples, PCM, 16))


def test_a_fifo_by_path(rng, tmp_path):
    samples = draw(rng, PCM, 16, (3000, 1))
    path = tmp_path / "fifo"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(wav(samples, size=0xFFFFFFFF),))
    writer.start()
    got = AudioReader(path).read()
    writer.join()
    np.testing.assert_array_equal(got, as_float(samples, PCM, 16)[:, 0])


def test_sizes_are_not_believed(rng):
    """1 GiB is announced; no such memory is asked for, and the fault is told where it is found."""
    content = wav(draw(rng, PCM, 16, (100, 1)), size=0x3FFFFFFE)
    reader = AudioReader(content)
    assert reader.frames == 0x1FFFFFFF
    assert len(reader.read(64)) == 64
    assert len(reader.read(64)) == 36
    with pytest.raises(FormatError, match=r"recording: offset 244: expected \d+ more frames"):
        reader.read(64)
    with pytest.raises(FormatError, match="the recording ends"):
        AudioReader(content).read()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (wav(np.zeros((4, 2)))[:30], "offset 30: expected 6 more bytes of the chunk 'fmt '"),
        (wav(np.zeros((4, 0)), size=8), "offset 22: expected at least 1 channel, got 0"),
        (wav(np.zeros((4, 2)), rate=0), "offset 24: expected a sample rate, got 0"),
        (wav(np.zeros((4, 2)))[:36], "offset 36: expected a chunk 'data', but the recording ends"),
    ],
)
def test_broken_files_are_named(content, says, tmp_path):
    path = tmp_path / "broken.wav"
    path.write_bytes(content)
    with pytest.raises(FormatError) as error:
        AudioReader(path)
    assert str(error.value).startswith(f"{path}: ") and says in str(error.value)
    with open(path, "rb") as file, pytest.raises(FormatError) as error:
        AudioReader(file)
    assert str(error.value).startswith(f"{path}: ") and says in str(error.value)


def test_bad_sources(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        AudioReader(tmp_path / "none.wav")
    assert error.value.filename == tmp_path / "none.wav"
    with pytest.raises(IsADirectoryError):
        AudioReader(tmp_path)
    with pytest.raises(TypeError, match="expected a path, bytes or a file object with read\\(\\), got int"):
        AudioReader(3)
    with pytest.raises(TypeError, match='open it with "rb"'):
        WavReader(io.StringIO("RIFF"))
    with pytest.raises(ValueError, match="returned 13 bytes"):
        WavReader(SimpleNamespace(read=lambda n: b"RIFF" + bytes(9)))
    with pytest.raises(BlockingIOError, match="read\\(\\) gave None; a file object must wait for its bytes"):
        WavReader(SimpleNamespace(read=lambda n: None))
    with pytest.raises(TypeError, match="expected a path, bytes or a file object with read\\(\\), got NoneType"):
        AudioReader(None)
    with pytest.raises(FormatError, match="recording: offset 0: expected a recording, got nothing"):
        AudioReader(b"")
    with pytest.raises(ZeroDivisionError):
        WavReader(SimpleNamespace(read=lambda n: 1 // 0))
    with pytest.raises(TypeError):
        WavReader(b"", mono=True)


def test_bad_calls(rng):
    reader = AudioReader(wav(draw(rng, PCM, 16, (9, 1))))
    with pytest.raises(ShapeError, match="got -1"):
        reader.read(-1)
    with pytest.raises(ShapeError, match="at least 1 frame, got 0"):
        reader.chunks(0)
    reader.close()
    reader.close()
    with pytest.raises(ClosedError, match="recording: the reader was closed"):
        reader.read(1)


def test_one_call_at_a_time(rng):
    """A file object that reads from its own reader is refused, and so is closing meanwhile."""
    content, seen = wav(draw(rng, PCM, 16, (9, 1))), []
    file = io.BytesIO(content)

    def read(n):
        for call in calls:
            with pytest.raises(StreamBusyError):
                call()
            seen.append(call)
        return file.read(n)

    calls = []
    reader = WavReader(SimpleNamespace(read=read))
    calls = [lambda: reader.read(1), reader.close]
    assert reader.read(100).shape == (9, 1) and len(seen) >= 2


def test_bytes_are_held_and_released(rng):
    content = bytearray(wav(draw(rng, PCM, 16, (9, 1))))
    reader = AudioReader(content)
    with pytest.raises(BufferError):
        content.append(0)
    reader.close()
    content.append(0)
    held = SimpleNamespace(read=io.BytesIO(content).read)
    held.reader = WavReader(held)
    del held
    gc.collect()


def test_threads(rng, tmp_path):
    """Readers of their own, and one that all of them share: frames come once, or the call is refused."""
    path = tmp_path / "long.wav"
    samples = draw(rng, PCM, 16, (200_000, 1))
    path.write_bytes(wav(samples))
    whole = as_float(samples, PCM, 16)[:, 0]
    shared, taken = AudioReader(path), []

    def work():
        np.testing.assert_array_equal(AudioReader(path).read(), whole)
        while True:
            try:
                piece = shared.read(1000)
            except StreamBusyError:
                continue
            if not len(piece):
                return
            taken.append(len(piece))

    in_threads(*[work] * 4)
    assert sum(taken) == len(whole)


@in_blocks("said", range(1, 33), 32)
def test_fewer_bits_than_their_bytes(rng, said):
    """12 bits lie in the upper part of two bytes, 20 in that of three; a frame's size may be missing."""
    bits = -(-said // 8) * 8
    samples = draw(rng, PCM, bits, (300, 2))
    expected = as_float(samples, PCM, bits)
    for block in (None, 0):
        for extensible in (False, True):
            content = wav(samples, PCM, bits, said=said, block=block, extensible=extensible)
            np.testing.assert_array_equal(AudioReader(content, mono=False).read(), expected)


@pytest.mark.parametrize(("form", "bits"), KINDS)
def test_ambisonic(rng, form, bits):
    samples = draw(rng, form, bits, (300, 4))
    content = wav(samples, form, bits, extensible=True, tail=AMBISONIC)
    np.testing.assert_array_equal(AudioReader(content, mono=False).read(), as_float(samples, form, bits))


NO_SIZES = [
    0x7FFFF000,
    0x7FFFEFC2,
    0x7FFFFF00,
    0x7FFFFFFF,
    0x80000000,
    0x80000024,
    0xFFFFFFDB,
    0xFFFFFFFE,
    0xFFFFFFFF,
]


@pytest.mark.parametrize("size", [0, *NO_SIZES])
def test_sizes_that_are_none(rng, size, tmp_path):
    """What sox, espeak-ng, ffmpeg and arecord leave in a pipe: all there is, from a pipe, a file or bytes."""
    samples = draw(rng, PCM, 16, (500, 2))
    path = tmp_path / "dump.wav"
    for riff in {min(size + 36, 2**32 - 1), size, 36, 0xFFFFFFFF}:
        if size == 0 and riff == 0:
            continue
        content = wav(samples, size=size, riff=riff)
        path.write_bytes(content)
        pipe = SimpleNamespace(read=io.BytesIO(content).read)
        for source in (content, io.BytesIO(content), pipe, path):
            reader = AudioReader(source, mono=False)
            assert reader.frames is None
            got = np.concatenate(list(reader.chunks(33)))
            np.testing.assert_array_equal(got, as_float(samples, PCM, 16))


def test_sizes_near_those(rng, tmp_path):
    """A file that is as long as its header says has that many frames, and other sizes are promises."""
    head = wav(np.zeros((0, 1)), size=0x7FFFF000, riff=0x7FFFF000 + 36)
    path = tmp_path / "long.wav"
    path.write_bytes(head)
    os.truncate(path, 44 + 0x7FFFF000)
    assert AudioReader(path).frames == 0x7FFFF000 // 2
    os.truncate(path, 44 + 0x7FFFF000 - 10)
    assert AudioReader(path).frames is None
    for size in (0x7FFE0000, 0x80020000, 0xFFFE0000):
        with pytest.raises(FormatError, match=f"more frames of {size // 2}, but the recording ends"):
            AudioReader(wav(draw(rng, PCM, 16, (9, 1)), size=size)).read()


def test_rf64_without_sizes(rng):
    samples = draw(rng, PCM, 16, (500, 1))
    content = wav(samples, size=0xFFFFFFFF, riff=0xFFFFFFFF)
    for riff_bytes, data_bytes, frames in ((0, 0, None), (2**64 - 1, 2**64 - 1, None), (1080, 1000, 500)):
        sizes = struct.pack("<4sIQQQI", b"ds64", 28, riff_bytes, data_bytes, 0, 0)
        reader = AudioReader(b"RF64" + content[4:12] + sizes + content[12:])
        assert reader.frames == frames
        np.testing.assert_array_equal(reader.read(), as_float(samples, PCM, 16)[:, 0])


@pytest.mark.parametrize("n_frames", [1, 7, 100, 5000])
@pytest.mark.parametrize(("form", "bits"), [(PCM, 16), (PCM, 24), (FLOAT, 32)])
def test_cut_short(rng, n_frames, form, bits):
    """Cut at a chunk's end, within one or within a frame: what is whole comes, then the error."""
    samples = draw(rng, form, bits, (21, 2))
    content, frame_bytes = wav(samples, form, bits), bits // 4
    for end in range(4, len(content)):
        for source in (content[:end], SimpleNamespace(read=io.BytesIO(content[:end]).read)):
            got = [np.zeros((0, 2), np.float32)]
            with pytest.raises(FormatError, match=f"recording: offset {end}: expected "):
                got.extend(AudioReader(source, mono=False).chunks(n_frames))
            whole = max(0, end - (len(content) - 21 * frame_bytes)) // frame_bytes
            np.testing.assert_array_equal(np.concatenate(got), as_float(samples, form, bits)[:whole])


def test_what_follows_the_samples(rng):
    samples = draw(rng, PCM, 16, (9, 1))
    expected = as_float(samples, PCM, 16)[:, 0]
    extra = b"LIST\3\0\0\0abc\0"
    for after in (extra, b"\0", b"junk", extra + b"id3 \xff\0\0\0", extra[:9]):
        np.testing.assert_array_equal(AudioReader(wav(samples, after=after)).read(), expected)
    again = wav(samples)
    for after in (again[-26:], extra + again[-26:], again):
        for source in (wav(samples, after=after), io.BytesIO(wav(samples, after=after))):
            reader = AudioReader(source)
            np.testing.assert_array_equal(reader.read(9), expected)
            with pytest.raises(FormatError, match=r"offset (62|74): expected the recording's end, got a second '"):
                reader.read(1)
    with pytest.raises(FormatError, match="got a second 'data'"):
        AudioReader(wav(samples[:0], after=again[-26:])).read()
    waits = SimpleNamespace(read=io.BytesIO(wav(samples, after=again)).read)
    np.testing.assert_array_equal(AudioReader(waits).read(), expected)
    assert waits.read() == again  # nothing behind the samples is taken from a pipe


# ---------------------------------------------------------------- standard input
@pytest.fixture
def stdin(monkeypatch):
    with piped_stdin(monkeypatch) as out:
        yield out


def test_standard_input_as_it_comes(rng, stdin):
    samples = draw(rng, PCM, 16, (1000, 1))
    content = wav(samples, size=0x7FFFF000, riff=0x7FFFF024)
    stdin.write(content[: 44 + 2 * 300])
    with AudioReader("-") as reader:
        got = [reader.read(100) for _ in range(3)]  # the pipe is still open
        stdin.write(content[44 + 2 * 300 :])
        stdin.close()
        got += list(reader.chunks(100))
    np.testing.assert_array_equal(np.concatenate(got), as_float(samples, PCM, 16)[:, 0])
    assert [len(part) for part in got] == [100] * 10
    assert not sys.stdin.buffer.closed


def test_standard_input_that_breaks_off(rng, stdin):
    content = wav(draw(rng, PCM, 16, (100, 1)))
    stdin.write(content[:100])
    stdin.close()
    with pytest.raises(FormatError, match="standard input: offset 100: expected 72 more frames of 100"):
        read_audio("-")


def test_no_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(FormatError, match="standard input is closed"):
        AudioReader("-")


# ---------------------------------------------------------------- whole recordings
def test_read_audio(rng):
    content = wav(draw(rng, PCM, 16, (800, 2)))
    samples, rate = read_audio(content)
    assert rate == 16000 and samples.shape == (800,)
    both, rate = read_audio(content, mono=False)
    assert rate == 16000 and both.shape == (800, 2)
    same, rate = read_audio(content, 16000)
    assert same.tobytes() == samples.tobytes()


@pytest.mark.parametrize("rate", [8000, 44100])
def test_read_audio_at_another_rate(rng, rate):
    content = wav(draw(rng, PCM, 16, (800, 2)))
    mono, got = read_audio(content, rate)
    assert got == rate and mono.shape == (800 * rate // 16000,) and mono.dtype == np.float32
    both, _ = read_audio(content, rate, mono=False)
    np.testing.assert_allclose(both.mean(1), mono, atol=1e-5)


def test_real_recordings(data_folder):
    names = sorted(data_folder.glob("*.wav")) + sorted(data_folder.glob("fsdd/*_0.wav"))[:20]
    assert names
    for path in names:
        with wave.open(str(path)) as file:
            raw = np.frombuffer(file.readframes(file.getnframes()), "<i2")
            rate = file.getframerate()
        exact = AudioReader(path, dtype="int16")
        assert exact.sample_rate == rate and exact.frames == len(raw)
        np.testing.assert_array_equal(exact.read(), raw)
        pieces = list(AudioReader(path).chunks(1600))
        assert np.concatenate(pieces).tobytes() == (raw / 32768).astype(np.float32).tobytes()
