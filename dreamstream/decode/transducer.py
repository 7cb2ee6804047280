"""Decoding of transducers (RNN-T): an encoder of sound, a predictor of tokens, and a joiner of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine import Engine
from .decoder import Decoder
from .texts import File


class TransducerDecoder(Decoder):
    """Turns what a transducer's encoder says into words, for many streams at once.

    Its predictor and joiner are compiled networks. The encoder is one too, which is stepped before: its frames are
    what comes in. Each network runs once for all streams that are stepped together, and all of their hypotheses.
    As with `CTCDecoder`, hypotheses depend on a stream's own frames alone, to the bit, what is final is never
    taken back, and hours of a stream take no more memory than minutes.

    Parameters
    ----------
    tokens : list of str, path or bytes
        What the columns of the joiner's scores stand for, as of `CTCDecoder`.
    predictor : Engine
        Of tokens ``(B, L)``, int64, which begin with the blank, a frame ``(B, L, features)`` for each: recurrent,
        or of the last few tokens.
    joiner : Engine
        Of a frame of the encoder and one of the predictor, ``(B, L, ...)`` each, scores ``(B, L, tokens)``,
        normalized or not. It remembers nothing.
    beam : int
        Hypotheses that are pursued; 0: none, the best token every time.
    max_symbols : int
        Tokens in one frame of the encoder at most. Behind the last of them the frame is over without a blank.
    **options
        Those of `CTCDecoder`, but for `lexicon`. A token's time is the frame of the encoder with which it came, of
        which the tokens of one frame have a part each.

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> from dreamstream import nn
    >>> class Joiner(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.out = nn.Linear(4, 3)
    ...     def forward(self, encoded, predicted):
    ...         return self.out((encoded + predicted).tanh())
    >>> predictor = ds.compile(nn.Embedding(3, 4), ("B", "L"), dtype="int64")
    >>> joiner = ds.compile(Joiner(), {"encoded": ("B", "L", 4), "predicted": ("B", "L", 4)})
    >>> decoder = ds.decode.TransducerDecoder(["-", "a", "b"], predictor, joiner, beam=4)
    >>> decoder.step({"anna": np.zeros((5, 4), np.float32)}, sos="anna", eos="anna")["anna"].frames
    5
    """

    _what = "frames of the encoder"

    def __init__(
        self,
        tokens: Sequence[str] | File,
        predictor: Engine,
        joiner: Engine,
        beam: int = 8,
        *,
        max_symbols: int = 1,
        **options: Any,
    ) -> None:
        if max_symbols < 1:
            raise ValueError(f"max_symbols: expected 1 or more, got {max_symbols}")
        self._networks = {"predictor": predictor._core, "joiner": joiner._core, "max_symbols": max_symbols}
        super().__init__(tokens, beam, **options)
