"""``dreamstream convert``: model files of one form into another, and models in Python into files."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

import dreamstream as ds
from dreamstream import nn

from .._core import shown
from ..data import read_audio
from ..engine.compare import compare
from ..engine.load import load_changed, stored_as
from ..engine.verify import random_inputs
from ..engine.weights import BOUND, FORMATS, STORED_PRODUCTS, Narrowing
from ..errors import FormatError
from ..models.wav2letter import is_serialized, load_wav2letter
from .arguments import (
    FUNCTION,
    MODEL_FILES,
    Commands,
    add_command,
    at_least,
    described,
    load_weights,
    require_function,
)
from .recognisers import read_recogniser, write_tokens
from .run import as_taken, samples_only

WORDS = (*FORMATS, "auto")


def convert(args: argparse.Namespace) -> int:
    """Read a model, write a file."""
    if os.path.splitext(args.output)[1].lower() not in MODEL_FILES:
        raise FormatError(f"the name of what is written ends in {', '.join(MODEL_FILES)}, got {args.output}")
    folder = os.path.isdir(args.source)
    serialized = os.path.isfile(args.source) and is_serialized(args.source)
    if not serialized and not folder:
        require_function(args.source)
    if args.features is not None and not serialized:
        raise FormatError(f"--features goes with an acoustic model of wav2letter, a .bin, not with {args.source}")
    source = args.source if FUNCTION.fullmatch(args.source) else None
    stored, files = _asked(args.weights, WORDS)
    products, others = _asked(args.products, STORED_PRODUCTS)
    for word in others:
        raise FormatError(f"--products {word} is none of {', '.join(STORED_PRODUCTS)}, nor PATTERN=FORMAT")
    for file in files:
        if not os.path.exists(file):
            raise FormatError(
                f"--weights {file} is neither a file nor one of {', '.join(WORDS)}, nor PATTERN=FORMAT"
            )
    for name in () if folder else ("chunk", "left", "normalize"):
        if getattr(args, name) is not None:
            raise FormatError(f"--{name} goes with the folder of a recogniser, not with {args.source}")
    if len(files) > 1 and folder:
        raise FormatError(f"{args.source} has one file of --weights, got {', '.join(files)}")
    if source is None and files and not folder:
        raise FormatError(
            f"--weights {files[0]} goes with FILE.py:FUNCTION; {args.source} has its weights, which can be "
            f"stored in {', '.join(WORDS)}"
        )
    if args.input and not args.report:
        raise FormatError("--input is what --report measures on; give --report as well")
    if args.bound is not None and "auto" not in stored.values():
        raise FormatError("--bound is of --weights auto; give that as well")
    if (source is not None or folder) and args.reseal:
        raise FormatError(f"--reseal goes with a model file that was edited, not with {args.source}")
    tokens: list[str] = []
    if folder:
        context = None
        if args.chunk is not None or args.left is not None:
            context = ds.Context(args.chunk or 16, 64 if args.left is None else args.left)
        found = read_recogniser(args.source, files[0] if files else None, context, args.normalize)
        wide, tokens, blank = found
    elif serialized:
        net = load_wav2letter(args.source, args.features)
        wide = ds.compile(net, net.spec, rate=net.rate)
        if not stored:  # as they are in the file; bands of features are computed, and stand in none
            stored = {"": "fp16"} | ({"0": "fp32"} if args.features else {})
    elif source is not None:
        wide = _compiled(source, files)
    else:
        wide = load_changed(args.source) if args.reseal else ds.load(args.source)
    how = Narrowing(stored or None, products or None, BOUND if args.bound is None else args.bound)
    try:
        engine = wide if how.nothing else stored_as(wide, how)
    except ValueError as error:  # what was asked for, by its name in Python
        raise FormatError(str(error).replace("weights_bound:", "--bound:")) from None
    if args.report and any(node["stored"] != "fp32" for node in wide._core.nodes):
        raise FormatError(
            f"--report compares with float32, and {args.source} has fewer bits already; give what it was made of"
        )
    with wide, engine:
        if args.report:
            _report(wide, engine, args.input)
        engine.save(args.output)
    if tokens:
        beside = write_tokens(args.output, tokens, blank)
        print(f"{shown(args.output)}, {shown(beside)}: dreamstream transcribe FILE --model {shown(args.output)}")
    return 0


def _asked(words: Sequence[str], formats: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return formats by patterns of paths, "" for all, the last that counts at the end; and what else is there."""
    rules: dict[str, str] = {}
    others = []
    for word in words:
        pattern, _, name = word.rpartition("=")
        if name in formats:
            rules = {p: how for p, how in rules.items() if p != pattern} | {pattern: name}
        else:
            others.append(word)
    return rules, others


def _report(wide: ds.Engine, engine: ds.Engine, recordings: Sequence[str]) -> None:
    """Print what weights in fewer bits cost, on recordings or else on random numbers."""
    rng = np.random.default_rng(0)
    streams = {path: _recording(wide, path) for path in recordings} or {
        f"random {i}": random_inputs(rng, wide, max(100, int(3 * wide.rate))) for i in range(2)
    }
    found = compare(wide, engine, streams)
    print(f"{', '.join(map(shown, streams))}: {found.frames} frames")
    print(
        f"weights: {wide.weights_size:,} bytes, were they in float32; {engine.weights_size:,} as they are stored"
    )
    print(found)


def _recording(engine: ds.Engine, path: str) -> Any:
    """Return a recording at the rate of an engine that takes samples."""
    samples, rate = read_audio(path)
    wanted = int(samples_only("the model", engine).rate)
    if rate != wanted:
        samples = nn.Resample(rate, wanted).eval()(ds.tensor(samples[None])).numpy()[0]
    return as_taken(engine, samples)


def _compiled(source: str, files: Sequence[str]) -> ds.Engine:
    with described(source) as (model, spec, rate):
        for file in files:
            load_weights(model, file)
        return ds.compile(model, spec, rate=rate)


def add(commands: Commands) -> None:
    """Add the command to the command line's."""
    further = (
        ": of another one, in the form that the suffix of OUT says, or of a model in Python. What has been "
        "converted back is the same, byte by byte."
    )
    parser = add_command(commands, "convert", "write a model file", further)
    text = (
        "a .dsm, .json or .xml file, or FILE.py:FUNCTION, a function without arguments that returns "
        "(model, spec, rate), as ds.compile takes them; the file is executed; or an acoustic_model.bin of "
        "wav2letter@anywhere, whose weights stay numbers of 16 bits; or the folder of a CTC model of WeNet or of "
        "transformers (wav2vec 2.0 and its like), whose tokens are written beside OUT"
    )
    parser.add_argument("source", metavar="IN", help=text)
    parser.add_argument("output", metavar="OUT", help="a .dsm, .json or .xml file")
    text = "its feature_extractor.bin, so that the input is samples"
    parser.add_argument("--features", metavar="FILE", help=text)
    parser.add_argument("--chunk", type=at_least(1, int), metavar="N", help="of a folder: frames of a chunk (16)")
    seen = "of a folder: frames that attention sees before a chunk (64)"
    parser.add_argument("--left", type=at_least(0, int), metavar="N", help=seen)
    normal = "of a folder: what samples are less, and divided by, in place of each recording's own; or none"
    parser.add_argument("--normalize", metavar="MEAN,STD", help=normal)
    text = (
        f"how weights are stored: {', '.join(WORDS)}, or PATTERN=FORMAT for layers whose paths fit, once or "
        "more, the last that fits counts; for FILE.py:FUNCTION also a .safetensors file, and for a torch model a "
        "state dict of torch.save"
    )
    parser.add_argument("--weights", metavar="FORMAT", action="append", default=[], help=text)
    text = (
        f"what rows are that weights are multiplied with, and the weights: {', '.join(STORED_PRODUCTS)}, or "
        "PATTERN=FORMAT"
    )
    parser.add_argument("--products", metavar="FORMAT", action="append", default=[], help=text)
    text = f"the error of a weight's channel up to which --weights auto takes fewer bits (default {BOUND})"
    parser.add_argument("--bound", type=float, help=text)
    text = "print the error of each output and of each layer against float32, and what keeping it wide gives"
    parser.add_argument("--report", action="store_true", help=text)
    text = "a recording for --report, for models of samples; random numbers otherwise"
    parser.add_argument("--input", metavar="WAV", action="append", default=[], help=text)
    text = "IN was edited on purpose, so that its fingerprint is another's: OUT has its own"
    parser.add_argument("--reseal", action="store_true", help=text)
    parser.set_defaults(run=convert, threads=1)
