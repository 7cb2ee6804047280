"""WAV files of random samples, made byte by byte; a pipe in the place of standard input."""

import os
import struct
import sys
from contextlib import contextmanager

import numpy as np

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
KINDS = [(PCM, 8), (PCM, 16), (PCM, 24), (PCM, 32), (FLOAT, 32), (FLOAT, 64)]
TAIL = bytes.fromhex("000000001000800000aa00389b71")
AMBISONIC = bytes.fromhex("00002107d3118644c8c1ca000000")


def encode(samples, form, bits):
    """Samples (integers of these bits, or floats) as a WAV file holds them."""
    if form == FLOAT:
        return samples.astype(f"<f{bits // 8}").tobytes()
    if bits == 8:
        return (samples + 128).astype(np.uint8).tobytes()
    wide = np.ascontiguousarray(samples.astype("<i4")).view(np.uint8).reshape(*samples.shape, 4)
    return wide[..., : bits // 8].tobytes()


def wav(
    samples,
    form=PCM,
    bits=16,
    rate=16000,
    extensible=False,
    size=None,
    riff=None,
    extra=b"",
    tag=None,
    said=None,
    block=None,
    tail=TAIL,
    after=b"",
):
    """A WAV file of ``(frames, channels)``, whose header may say other bits and frames of another size."""
    data = encode(samples, form, bits)
    channels = samples.shape[1]
    block = channels * bits // 8 if block is None else block
    tag = form if tag is None else tag
    fmt = EXTENSIBLE if extensible else tag, channels, rate, rate * block, block, bits if said is None else said
    fmt = struct.pack("<HHIIHH", *fmt)
    if extensible:
        fmt += struct.pack("<HHIH", 22, bits if said is None else said, 0, tag) + tail
    body = b"WAVE" + extra + b"fmt " + struct.pack("<I", len(fmt)) + fmt
    body += b"data" + struct.pack("<I", len(data) if size is None else size)
    data += after
    return b"RIFF" + struct.pack("<I", len(body) + len(data) if riff is None else riff) + body + data


def draw(rng, form, bits, shape):
    if form == FLOAT:
        return rng.standard_normal(shape).astype(f"f{bits // 8}")
    samples = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), shape)
    samples[:2, 0] = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return samples


def as_float(samples, form, bits):
    return samples.astype(np.float32) if form == FLOAT else (samples / 2 ** (bits - 1)).astype(np.float32)


@contextmanager
def piped_stdin(monkeypatch):
    """Standard input is a pipe: its other end."""
    read_end, write_end = os.pipe()
    with open(read_end, encoding="utf-8") as text, open(write_end, "wb", buffering=0) as out:
        monkeypatch.setattr(sys, "stdin", text)
        yield out


def write_wav(path, samples, rate):
    """Write 16-bit samples ``(frames,)``."""
    path.write_bytes(wav(np.asarray(samples, np.int16)[:, None], rate=rate))
