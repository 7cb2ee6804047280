"""Decoding of connectionist temporal classification, greedy and by prefix beam search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .decoder import Decoder
from .hypotheses import Hypotheses
from .texts import File


class CTCDecoder(Decoder):
    """Turns the scores of a network that was trained with the CTC loss into words, for many streams at once.

    A stream's hypotheses depend on its own frames alone, to the bit: not on how they are cut into chunks, nor on
    which streams are stepped together. What all hypotheses share is *final*; it is never taken back, and of a long
    stream only the last `max_final` tokens are kept, so that hours of it take no more memory than minutes.

    Parameters
    ----------
    tokens : list of str, path or bytes
        What the columns of the scores stand for; a file has a line ``token id`` for each, or a token per line.
    beam : int
        Hypotheses that are pursued; 0: none, the best token of every frame is taken.
    blank : int
        The column of the blank.
    sil : str, optional
        The token between words, ``""`` for none; by default ``"|"`` or ``" "``, if there is such a token. Without
        one, tokens that begin with ``"▁"`` begin words; where none does either, each token is a word.
    lexicon : dict, list of str, path or bytes, optional
        The words that are recognised. A dict says how they are spelled: a list of tokens, or several such lists;
        words alone are spelled by their letters, and `sil` behind them. A file has a line ``word token token ...``
        each.
    lm : path or bytes, optional
        An n-gram language model in ARPA format, or the path of a binary of KenLM, which its package scores
        (``pip install 'dreamstream[kenlm]'``): from the same model the same words come, with scores that are
        equal to single precision; more slowly, and threads that step such decoders wait for each other.
    lm_unit : {"word", "token"}
        Of what the language model is one.
    hotwords : dict of str to float, list of str, Path or bytes, optional
        Phrases, and what each adds to the score (`hotword_weight` where nothing is said) whenever it is said in
        whole words. In a file a line each, with a tab before the weight.
    lm_weight : float
        Multiplies the base-10 logarithms of the language model, which are those that KenLM gives. For a decoder
        that counts natural logarithms with a weight of ``alpha``, this is ``alpha * math.log(10)``.
    word_score, sil_score : float
        Added for each word, and each `sil`.
    unk_score : float, optional
        Added for each word that the lexicon, or without one the language model, lacks. By default there are no
        such words with a lexicon, and without one they cost what the model's ``<unk>`` does.
    log_add : bool
        Whether a hypothesis counts by the sum of all its alignments, or by the best of them.
    beam_threshold : float
        Hypotheses that are further than that below the best are dropped.
    beam_size_token : int, optional
        How many of a frame's best tokens hypotheses go on with; all by default.
    token_threshold : float, optional
        Tokens with lower scores are not tried, but for the best.
    blank_threshold : float, optional
        In frames whose blank has a higher probability no other token is tried.
    n_best : int
        How many hypotheses a step returns.
    endpoints : Endpoints, optional
        When an utterance is over and the next begins: its best hypothesis is final then. By default never.
    rate : float, optional
        Frames per second: times are in seconds then.
    max_pending : int
        Tokens after which the oldest that isn't final is decided, in favour of the best hypothesis.
    max_final : int
        Final tokens that are kept, at least.
    max_streams : int, optional
        Most streams that may be live.
    beam_size : int, optional
        Another name of `beam`.

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> decoder = ds.decode.CTCDecoder(["-", "a", "b", " "], beam=8)
    >>> scores = np.log([[0.1, 0.8, 0.05, 0.05], [0.6, 0.1, 0.2, 0.1], [0.1, 0.1, 0.7, 0.1]])
    >>> decoder.step({"anna": scores[:2]}, sos="anna")["anna"].text
    'a'
    >>> decoder.step({"anna": scores[2:]}, eos="anna")["anna"].final
    'ab'
    """


def log_probabilities(scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return log probabilities ``(frames, tokens)`` of scores, be they normalized or not."""
    top = scores.max(axis=1, keepdims=True, initial=-np.inf)
    shifted = scores - np.where(np.isfinite(top), top, 0)
    out: npt.NDArray[Any] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return out


def greedy(scores: Any, tokens: Sequence[str] | File, blank: int = 0, rate: float | None = None) -> Hypotheses:
    """Return what a whole sequence says, by the best token of every frame.

    Parameters
    ----------
    scores : array
        Log probabilities ``(frames, tokens)``.
    tokens, blank, rate
        As of `CTCDecoder`.
    """
    decoder = CTCDecoder(tokens, beam=0, blank=blank, rate=rate)
    return decoder.step({"": scores}, sos="", eos="")[""]
