"""The WAV reader against bytes that nobody should have written: every fault is named, and nothing else happens."""

import io
import struct

import numpy as np
import pytest

from dreamstream.data.wav import WavReader
from dreamstream.errors import FormatError

TAIL = bytes.fromhex("000000001000800000aa00389b71")
AT = 12 + 16 + 8  # where the format's first byte lies behind a chunk LIST


def recording(
    form=1,
    channels=2,
    bits=16,
    content=b"",
    size=None,
    riff_size=4000,
    riff=b"RIFF",
    data64=None,
    extensible=False,
):
    """A WAV file with chunks that nobody knows."""
    frame = channels * bits // 8
    fmt = struct.pack("<HHIIHH", 0xFFFE if extensible else form, channels, 16000, 16000 * frame, frame, bits)
    if extensible:
        fmt += struct.pack("<HHIH", 22, bits, 0, form) + TAIL
    head = riff + struct.pack("<I", riff_size) + b"WAVE"
    if riff != b"RIFF":
        data64 = len(content) if data64 is None else data64
        head += b"ds64" + struct.pack("<IQQQI", 28, 5000, data64, len(content), 0)
    head += b"LIST" + struct.pack("<I", 7) + b"dddddddd" + b"fmt " + struct.pack("<I", len(fmt)) + fmt
    head += b"fact" + struct.pack("<I", 4) + b"dddd"
    return head + b"data" + struct.pack("<I", len(content) if size is None else size) + content


def with_bytes(content, at, new):
    return content[:at] + new + content[at + len(new) :]


def read_all(source, step, dtype="float32"):
    """The frames that could be read, and what came instead of the others."""
    reader, frames = WavReader(source, dtype), []
    try:
        while len(piece := reader.read(step)):
            assert len(piece) <= step and piece.dtype == dtype
            frames.append(piece)
    except FormatError as error:
        assert "\n" not in str(error) and "offset " in str(error)
        fault = str(error)
    else:
        fault = None
    return reader, np.concatenate([np.empty((0, reader.channels), dtype), *frames]), fault


@pytest.mark.parametrize("size", [0, 2**32 - 1])
@pytest.mark.parametrize("riff_size", [0, 2**32 - 1])
def test_open_lengths(size, riff_size):
    content = recording(channels=1, content=bytes(range(18)), size=size, riff_size=riff_size)
    for n, frames in ((len(content), 9), (len(content) - 1, 8)):  # half a frame at the end is none
        reader, got, fault = read_all(content[:n], 4)
        assert reader.frames is None and got.shape == (frames, 1) and fault is None


def test_lengths():
    assert WavReader(recording()).frames == 0
    empty = recording(channels=1)
    content = recording(channels=1, content=bytes(18), size=0, riff_size=len(empty) - 8)
    assert WavReader(content).frames is None  # the RIFF chunk ends where the samples begin
    assert WavReader(recording(channels=1, content=bytes(18), size=17)).frames == 8
    wide = {"channels": 1, "content": bytes(18), "size": 2**32 - 1, "riff": b"RF64"}
    reader, got, fault = read_all(recording(**wide, data64=2**41), 4)
    assert reader.frames == 2**40 and len(got) == 9 and "the recording ends" in fault
    assert WavReader(recording(**wide, data64=2**64 - 1)).frames is None
    assert WavReader(recording(**wide, data64=0xFEFFFFFFFFFFFFFF)).frames is None  # more than there can be


def test_large_frames():
    _, got, fault = read_all(recording(channels=65535, bits=8, content=bytes(2 * 65535)), 2)
    assert got.shape == (2, 65535) and fault is None and (got == -1).all()


GOOD = recording(content=bytes(40))
WIDE = recording(content=bytes(40), riff=b"RF64")
LONG = recording(content=bytes(40), extensible=True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "offset 0: expected 12 more bytes of a RIFF header"),
        (with_bytes(GOOD, 0, b"\n"), "offset 0: expected a WAV file ('RIFF', 'RF64' or 'BW64'), got '?IFF'"),
        (with_bytes(GOOD, 8, b"A"), "offset 8: expected a form 'WAVE', got 'AAVE'"),
        (with_bytes(GOOD, AT, b"\x55"), "integer (0x0001) or floating-point (0x0003) samples, got format 0x0055"),
        (with_bytes(GOOD, AT, b"\3"), "samples of 32 or 64 floating-point bits, got 16"),
        (with_bytes(GOOD, AT + 2, b"\0"), f"offset {AT + 2}: expected at least 1 channel, got 0"),
        (with_bytes(GOOD, AT + 2, b"\3"), "frames of 6 bytes (3 channels of 16 bits), got 4"),
        (with_bytes(GOOD, AT + 4, bytes(4)), f"offset {AT + 4}: expected a sample rate, got 0"),
        (
            with_bytes(GOOD, AT + 12, b"\2"),
            f"offset {AT + 12}: expected frames of 4 bytes (2 channels of 16 bits), got 2",
        ),
        (with_bytes(GOOD, AT + 14, b"\0"), f"offset {AT + 14}: expected samples of 1 to 32 bits, got 0"),
        (with_bytes(GOOD, AT + 14, b"\x40"), "samples of 1 to 32 bits, got 64"),
        (with_bytes(GOOD, AT - 4, b"\x0f"), "a chunk 'fmt ' of 16 bytes or more, got 15"),
        (with_bytes(GOOD, AT - 8, b"fnt "), "a chunk 'fmt ' before 'data'"),
        (with_bytes(GOOD, len(GOOD) - 48, b"dada"), "a chunk 'data', but the recording ends"),
        (with_bytes(GOOD, 16, b"\xff" * 4), "more bytes of a chunk before 'data', but the recording ends"),
        (GOOD[: AT + 16] + GOOD[AT - 8 :], "one chunk 'fmt ', got a second"),
        (with_bytes(LONG, AT + 24, b"\6"), "got format 0x0006"),
        (with_bytes(LONG, AT + 31, b"\7"), f"offset {AT}: expected integer (0x0001) or floating-point"),
        (with_bytes(LONG, AT - 4, b"\x26"), "an extensible chunk 'fmt ' of 40 bytes or more, got 38"),
        (with_bytes(WIDE, 12, b"D"), "offset 12: expected a chunk 'ds64' of 28 bytes or more, got 'Ds64' of 28"),
        (
            with_bytes(WIDE, 16, b"\x1b"),
            "offset 12: expected a chunk 'ds64' of 28 bytes or more, got 'ds64' of 27",
        ),
    ],
)
def test_refused(content, says):
    with pytest.raises(FormatError) as error:
        WavReader(content)
    assert says in str(error.value) and str(error.value).startswith("recording: offset ")


@pytest.mark.parametrize(
    "content",
    [
        with_bytes(GOOD, AT + 14, b"\x0c"),  # 12 bits in two bytes
        with_bytes(LONG, AT + 16, b"\x15"),  # a size of the extension that nobody needs
        with_bytes(LONG, AT + 18, b"\x11"),  # more valid bits than a sample has
    ],
)
def test_what_says_little_is_read(content):
    reader, got, fault = read_all(content, 4)
    assert reader.frames == len(got) == 10 and fault is None and (got == 0).all()


def test_truncated_everywhere(rng):
    for form, channels, bits, more in (
        (1, 2, 16, {}),
        (3, 1, 64, {"extensible": True}),
        (1, 3, 24, {"riff": b"RF64", "size": 2**32 - 1}),
        (1, 1, 8, {"size": 2**32 - 1}),
    ):
        frame = channels * bits // 8
        content = recording(form, channels, bits, rng.bytes(20 * frame), **more)
        header = len(content) - 20 * frame
        for n in range(header):
            with pytest.raises(FormatError):
                WavReader(content[:n])
        _, whole, _ = read_all(content, 100)
        for n in range(header, len(content) + 1):
            reader, got, fault = read_all(content[:n], 3)
            assert got.tobytes() == whole[: (n - header) // frame].tobytes()
            assert (fault is not None) == (n < len(content) and reader.frames is not None)


def test_damaged():
    """Any pieces, and any kind of source, give the samples of one piece, as many as the header says."""
    hypothesis = pytest.importorskip("hypothesis")
    st = hypothesis.strategies
    kinds = st.sampled_from([(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)])
    sizes = st.sampled_from([None, 0, 7, 2**31, 2**32 - 1])
    byte = st.sampled_from([b"\0", b"\1", b"\x10", b"\x28", b"\x7f", b"\x80", b"\xff"]) | st.binary(
        min_size=1, max_size=4
    )
    damage = st.lists(
        st.tuples(st.sampled_from(["set", "insert", "cut", "end"]), st.integers(0, 140), byte), max_size=4
    )

    @hypothesis.settings(max_examples=10 * hypothesis.settings.default.max_examples)
    @hypothesis.given(
        kind=kinds,
        channels=st.integers(1, 3),
        content=st.binary(max_size=100),
        size=sizes,
        riff_size=sizes.map(lambda n: n or 0),
        riff=st.sampled_from([b"RIFF", b"RF64", b"BW64"]),
        data64=st.sampled_from([None, 0, 2**62 - 1, 2**62, 2**64 - 1]),
        extensible=st.booleans(),
        damage=damage,
        step=st.integers(1, 9),
    )
    def check(kind, channels, content, size, riff_size, riff, data64, extensible, damage, step):
        file = recording(*kind[:1], channels, kind[1], content, size, riff_size, riff, data64, extensible)
        for what, at, new in damage:
            if what == "end":
                file = file[: at + 20]
            else:
                after = {"set": at + len(new), "insert": at, "cut": at + 2 * len(new)}[what]
                file = file[:at] + (b"" if what == "cut" else new) + file[after:]
        try:
            reader, whole, fault = read_all(file, 2**40)
        except FormatError as error:
            assert "\n" not in str(error) and str(error).startswith("recording: offset ")
            return
        assert 1 <= reader.channels <= 65535 and reader.sample_rate > 0
        if reader.frames is not None:
            assert len(whole) <= reader.frames and (fault is None) == (len(whole) == reader.frames)
        else:
            assert fault is None
        assert len(whole) * reader.channels * reader.bits // 8 <= len(file)
        assert reader.floating or np.abs(whole).max(initial=0) <= 1
        for source in (file, io.BytesIO(file)):
            _, parts, again = read_all(source, step)
            assert parts.tobytes() == whole.tobytes() and again == fault
        if not reader.floating and reader.bits <= 16:
            _, exact, _ = read_all(file, step, "int16")
            assert (exact / 32768 == whole).all()

    check()
