"""Prefix beam search: dreamstream.decode beside pyctcdecode and flashlight-text, where they are installed.

Usage: python benchmarks/decode.py [--seconds S] [--streams 1 8 32] [--beam 100] [--build-binary PROGRAM]

Made-up sentences of 500 words of letters are spelled at 25 frames per second, with a blank or two behind most
letters and with other letters mixed in; a made-up 4-gram model knows them (`pip install pyctcdecode kenlm
flashlight-text`). All get the same scores, the same beam and the same threshold. Ours takes the streams in chunks
of 8 frames together; the others, which know no streams, take one whole recording after the other. flashlight-text
as it is published has no n-gram models: it is timed without one, and so is ours beside it. With `--build-binary`,
the path of KenLM's program of that name, ours also scores by the binary of the same model.

Times are the CPU time of one thread, the best of some runs, per second of sound.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", DREAMSTREAM_THREADS="1")

import argparse
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine

from dreamstream.decode import CTCDecoder

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
TOKENS = ["-", " ", *LETTERS]
RATE, CHUNK, THRESHOLD = 25, 8, 15.0
Array = np.ndarray[Any, Any]


def made_up_words(rng: np.random.Generator, n: int) -> list[str]:
    words: set[str] = set()
    while len(words) < n:
        words.add("".join(rng.choice(list(LETTERS[:20]), int(rng.integers(2, 9)))))
    return sorted(words)


def made_up_model(rng: np.random.Generator, words: list[str], order: int = 4) -> str:
    """Return an ARPA file; of what follows a context a few follow a longer one too."""
    grams = [[(w,) for w in ("<s>", "</s>", "<unk>", *words)]]
    for n in range(1, order):
        behind: dict[tuple[str, ...], list[str]] = {}
        for g in grams[-1] if n > 1 else ():
            behind.setdefault(g[:-1], []).append(g[-1])
        longer = []
        for context in grams[-1]:
            if context[-1] not in ("</s>", "<unk>"):
                few = behind.get(context[1:], [])[:4] if n > 1 else [*rng.choice(words, 12, replace=False), "</s>"]
                longer += [(*context, w) for w in few]
        grams.append(longer)
    lines = ["\\data\\", *(f"ngram {n}={len(g)}" for n, g in enumerate(grams, 1))]
    for n, part in enumerate(grams, 1):
        lines += ["", f"\\{n}-grams:"]
        for g in part:
            p = -99 if g == ("<s>",) else -rng.uniform(0.3, 3)
            backoff = "" if n == order or g[-1] == "</s>" else f"\t{-rng.uniform(0, 0.6):.4f}"
            lines.append(f"{p:.4f}\t{' '.join(g)}{backoff}")
    return "\n".join([*lines, "", "\\end\\", ""])


def spoken(rng: np.random.Generator, words: list[str], seconds: float) -> Array:
    """Return scores ``(frames, tokens)`` of silence and a sentence, whose last frame is a letter.

    pyctcdecode takes any space behind the last word, however improbable, for one more word, which is unknown.
    """
    n, frames, said = int(seconds * RATE), list[int](), list[int]()
    while len(frames) + len(said) <= n:
        frames += said
        said = []
        for c in f" {rng.choice(words)}"[not frames :]:
            said += [TOKENS.index(c)] * int(rng.integers(1, 3)) + [0] * int(rng.integers(0, 3))
    while frames[-1] == 0:
        frames.pop()
    frames = [0] * (n - len(frames)) + frames
    x = rng.gumbel(0, 1.2, (n, len(TOKENS)))
    x[np.arange(n), frames] += 7
    x[-1, :2] = -60
    out: Array = (x - np.logaddexp.reduce(x, 1, keepdims=True)).astype(np.float32)
    return out


def streamed(decoder: CTCDecoder, sounds: list[Array]) -> list[str]:
    """Decode streams together, chunk by chunk."""
    n, found = len(sounds[0]), {}
    ids = [str(i) for i in range(len(sounds))]
    for at in range(0, n, CHUNK):
        chunks = {i: x[at : at + CHUNK] for i, x in zip(ids, sounds)}
        found = decoder.step(chunks, sos=ids if at == 0 else (), eos=ids if at + CHUNK >= n else ())
    return [found[i].text for i in ids]


def with_model(path: Path, beam: int, build_binary: str | None) -> dict[str, Callable[[list[Array]], list[str]]]:
    weight = 0.5 * float(np.log(10))
    options: Any = {"lm": path, "lm_weight": weight, "word_score": 1.0, "unk_score": -10 * weight}
    ours = CTCDecoder(TOKENS, beam=beam, beam_threshold=THRESHOLD, **options)
    out = {"dreamstream": lambda sounds: streamed(ours, sounds)}
    if build_binary:
        binary = path.with_suffix(".bin")
        subprocess.run([build_binary, str(path), str(binary)], check=True, capture_output=True)
        scored = CTCDecoder(TOKENS, beam=beam, beam_threshold=THRESHOLD, **options | {"lm": binary})
        out["dreamstream, KenLM's binary"] = lambda sounds: streamed(scored, sounds)
    try:
        import kenlm  # noqa: F401
        from pyctcdecode import build_ctcdecoder
    except ImportError:
        return out
    logging.disable(logging.WARNING)
    theirs = build_ctcdecoder(["", *TOKENS[1:]], kenlm_model_path=str(path), alpha=0.5, beta=1.0)
    limits: Any = {"beam_width": beam, "beam_prune_logp": -THRESHOLD, "token_min_logp": -1e9}
    return {**out, "pyctcdecode": lambda sounds: [theirs.decode(x, **limits) for x in sounds]}


def without(beam: int) -> dict[str, Callable[[list[Array]], list[str]]]:
    ours = CTCDecoder(TOKENS, beam=beam, beam_threshold=THRESHOLD)
    out = {"dreamstream": lambda sounds: streamed(ours, sounds)}
    try:
        from flashlight.lib.text import decoder as fl
    except ImportError:
        return out
    options = fl.LexiconFreeDecoderOptions(
        beam_size=beam, beam_size_token=len(TOKENS), beam_threshold=THRESHOLD, lm_weight=0.0, sil_score=0.0,
        log_add=True, criterion_type=fl.CriterionType.CTC,
    )  # fmt: skip
    theirs = fl.LexiconFreeDecoder(options, fl.ZeroLM(), 1, 0, [])

    def decode(sounds: list[Array]) -> list[str]:
        texts = []
        for x in sounds:
            path = theirs.decode(x.ctypes.data, *x.shape)[0].tokens[1:-1]
            kept = [k for i, k in enumerate(path) if k and (i == 0 or k != path[i - 1])]
            texts.append("".join(TOKENS[k] for k in kept))
        return texts

    return {**out, "flashlight-text": decode}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Time prefix beam search.")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each stream")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--beam", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--build-binary", metavar="PROGRAM", help="of KenLM")
    args = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    words = made_up_words(rng, 500)
    sounds = [spoken(rng, words, args.seconds) for _ in range(max(args.streams))]
    for line in machine(" ".join(sys.argv), ("numpy", "pyctcdecode", "kenlm", "flashlight-text")):
        print(line)
    print(f"beam      {args.beam}, threshold {THRESHOLD}, {len(TOKENS)} tokens, {RATE} frames per second\n")
    print("| model | streams | decoder | ms per second of sound | as many times as ours |")
    print("|---|--:|---|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.arpa"
        path.write_text(made_up_model(rng, words))
        for name, made in (
            ("4-gram", with_model(path, args.beam, args.build_binary)),
            ("none", without(args.beam)),
        ):
            for n in args.streams:
                own = 0.0
                for decoder, run in made.items():
                    best = np.inf
                    for _ in range(args.runs):
                        begin = time.thread_time()
                        run(sounds[:n])
                        best = min(best, time.thread_time() - begin)
                    ms = 1000 * best / (n * args.seconds)
                    own = own or ms
                    print(f"| {name} | {n} | {decoder} | {ms:.2f} | {ms / own:.1f} |", flush=True)
            texts = {decoder: run(sounds[:4]) for decoder, run in made.items()}
            same = {
                d: sum(a.split() == b.split() for a, b in zip(t, texts["dreamstream"])) for d, t in texts.items()
            }
            print(f"\nthe same best text in {same} of {len(sounds[:4])}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
