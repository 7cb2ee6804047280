"""Recognisers of other toolkits in folders: WeNet's, and those of transformers with a CTC head."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import dreamstream as ds

from ..decode import CTCDecoder
from ..decode.texts import read_tokens
from ..errors import FormatError
from ..models import load_wenet

#: Where WeNet's tokens are, one of these.
_SYMBOLS = ("units.txt", "words.txt", "lang_char.txt", "dict.txt", "tokens.txt")


def read_recogniser(folder: str, weights: str | None, context: ds.Context | None, normalize: str | None) -> Any:
    """Return the engine of a folder's model, its tokens, and the number of the blank.

    A folder without ``train.yaml`` and ``config.json`` raises FormatError, and so does what its files lack.
    """
    path = Path(folder)
    if (path / "train.yaml").exists():
        if normalize is not None:
            raise FormatError("--normalize goes with a model of transformers; WeNet's has its own features")
        net = load_wenet(path, weights, context)
        blank = 0
        engine = ds.compile(net, net.spec, rate=net.rate)
        tokens = _symbols(path, int(engine.outputs[0].dimensions[-1]))
        return engine, tokens, blank
    if (path / "config.json").exists():
        if weights is not None:
            raise FormatError(f"--weights: {folder} has its weights, which transformers finds")
        return _of_transformers(path, context or ds.Context(16, 64), normalize)
    raise FormatError(f"{folder} has neither WeNet's train.yaml nor the config.json of transformers")


def write_tokens(output: str, tokens: list[str], blank: int) -> str:
    """Write the tokens beside a model file; return where."""
    path = tokens_beside(output)
    lines = read_tokens(tokens, blank)
    assert isinstance(lines, bytes)
    path.write_bytes(lines)
    return str(path)


def tokens_beside(model: str) -> Path:
    """Return where a model file's tokens are, if it has a file of them: beside it, in ``NAME.tokens.txt``."""
    return Path(model).with_suffix(".tokens.txt")


def _symbols(folder: Path, n: int) -> list[str]:
    """Return the tokens of a model of WeNet, in the order of scores."""
    counts = []
    for path in (folder / name for name in _SYMBOLS):
        if path.exists():
            tokens = CTCDecoder(path, beam=0, sil="").tokens
            if len(tokens) == n:
                return tokens
            counts.append(f"{path.name} has {len(tokens)}")
    text = f": {', '.join(counts)}" if counts else ""
    raise FormatError(f"{folder}: expected one of {', '.join(_SYMBOLS)} with {n} tokens{text}")


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise FormatError(f"{path}: expected an object")
    return found


def _of_transformers(folder: Path, context: ds.Context, normalize: str | None) -> Any:
    try:
        import torch
        from transformers import AutoConfig, AutoModelForCTC
    except ImportError as error:
        raise ImportError(f"{folder} needs the packages torch and transformers ({error})") from None
    prepared = folder / "preprocessor_config.json"
    front = _json(prepared) if prepared.exists() else {}
    mean, std = _normal(prepared, front.get("do_normalize", True), normalize)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        names, blank, size = _vocabulary(folder, config)
        network = AutoModelForCTC.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    except FormatError:
        raise
    except (ValueError, KeyError, RuntimeError) as error:
        raise FormatError(f"{folder}: {' '.join(str(error).split())[:300]}") from error

    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Any) -> Any:
            return self.network(x if std is None else (x - mean) / std).logits

    model = Scores()
    layers = r"encoder\.layers\.\d+\.(attention|self_attn)$"
    found = {re.sub(r"\.\d+\.", ".*.", name) for name, _ in model.named_modules() if re.search(layers, name)}
    if not found:
        kind = config.model_type
        raise FormatError(f"{folder}: {kind} has no encoder.layers.*.attention to declare a context for")
    declared = dict.fromkeys(found, context)
    rate = int(front.get("sampling_rate", 16000))
    engine = ds.compile(model, ("B", "L"), rate=rate, context=declared)
    names[blank] = "<blank>"  # by which commands know it
    return engine, [names.get(n, f"<{n}>") for n in range(size)], blank


def _vocabulary(folder: Path, config: Any) -> tuple[dict[int, str], int, int]:
    """Return tokens by number, the number of the blank, and how many scores there are."""
    vocabulary = _json(folder / "vocab.json")
    names = {number: token for token, number in vocabulary.items() if isinstance(number, int)}
    if len(names) != len(vocabulary):
        raise FormatError(f"{folder / 'vocab.json'}: expected numbers of tokens, of one language")
    size, blank = int(config.vocab_size), config.pad_token_id
    if not isinstance(blank, int) or not 0 <= blank < size or (names and max(names) >= size):
        raise FormatError(f"{folder}: {size} scores, of which {blank} is the blank, don't fit vocab.json")
    return names, blank, size


def _normal(path: Path, whole: bool, given: str | None) -> tuple[float, float | None]:
    """Return what is taken off samples, and what they are divided by; None for not at all."""
    if given is None:
        if whole:
            raise FormatError(
                f"{path} norms each recording by its own mean and deviation, which no stream knows beforehand; "
                "give those of your recordings, --normalize MEAN,STD (as 0,0.05), or --normalize none"
            )
        return 0.0, None
    if given == "none":
        return 0.0, None
    try:
        mean, std = map(float, given.split(","))
        if not std > 0:
            raise ValueError
    except ValueError:
        raise FormatError(f"--normalize {given}: expected MEAN,STD, two numbers, or none") from None
    return mean, std
