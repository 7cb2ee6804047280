"""Hypotheses and their scores beside those of other decoders, where they are installed."""

import itertools
import logging
from collections import defaultdict

import numpy as np
import pytest
from decoding import random_arpa, scores

from dreamstream.decode import CTCDecoder

LETTERS = list("abc")
WORDS = ["a", "ab", "ba", "c", "cab"]
CASES = range(6)


def ending_in_a_letter(rng, frames):
    """Scores of blank, a space and letters; the last frame holds a letter, as others end differently."""
    x = scores(rng, frames, 2 + len(LETTERS))
    x[-1, :2] = -60
    return (x - np.logaddexp.reduce(x, axis=1, keepdims=True)).astype(np.float32)


def hypotheses(log_probs, **options):
    decoder = CTCDecoder(["-", " ", *LETTERS], beam=5_000, beam_threshold=1e9, n_best=100_000, **options)
    return decoder.step({"x": log_probs}, sos="x", eos="x")["x"].n_best


def texts(log_probs, **options):
    """What is said, by its words, with the sum over all ways to put spaces."""
    found = defaultdict(lambda: -np.inf)
    for h in hypotheses(log_probs, **options):
        text = " ".join(h.text.split())
        found[text] = np.logaddexp(found[text], h.score)
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def compare(ours, theirs, n=20):
    assert theirs
    for text, score in theirs[:n]:
        assert abs(ours[text] - score) < 1e-5, text
    best, second = list(ours.values())[:2]
    if best - second > 1e-4:
        assert next(iter(ours)) == theirs[0][0]


@pytest.mark.parametrize("alpha", [None, 0.5, 1.3])
@pytest.mark.parametrize("seed", CASES)
def test_pyctcdecode(seed, alpha, tmp_path):
    pyctcdecode = pytest.importorskip("pyctcdecode")
    logging.getLogger("pyctcdecode").setLevel(logging.ERROR)
    rng = np.random.default_rng(seed)
    x = ending_in_a_letter(rng, 5)
    theirs, ours = {}, {}
    if alpha is not None:
        pytest.importorskip("kenlm")
        path = tmp_path / "lm.arpa"
        path.write_text(random_arpa(rng, WORDS, 3, ends=True))
        theirs = {"kenlm_model_path": str(path), "alpha": alpha, "beta": 0.7, "unk_score_offset": -2.0}
        weight = alpha * np.log(10)
        ours = {"lm": path, "lm_weight": weight, "word_score": 0.7, "unk_score": -2.0 * weight}
    decoder = pyctcdecode.build_ctcdecoder(["", " ", *LETTERS], **theirs)
    beams = decoder.decode_beams(x, beam_width=50_000, beam_prune_logp=-1e9, token_min_logp=-34)
    compare(texts(x, **ours), [(beam[0], beam[-1]) for beam in beams])


@pytest.mark.parametrize("seed", CASES)
def test_flashlight_text(seed):
    """Without spaces, whose score is counted for every frame there."""
    flashlight = pytest.importorskip("flashlight.lib.text.decoder")
    x = ending_in_a_letter(np.random.default_rng(seed), 6)
    x[:, 1] = -200
    options = flashlight.LexiconFreeDecoderOptions(
        beam_size=5_000,
        beam_size_token=5,
        beam_threshold=1e9,
        lm_weight=0.0,
        sil_score=0.0,
        log_add=True,
        criterion_type=flashlight.CriterionType.CTC,
    )
    decoder = flashlight.LexiconFreeDecoder(options, flashlight.ZeroLM(), 1, 0, [])
    theirs = []
    for h in decoder.decode(x.ctypes.data, *x.shape):
        said = [k for k, _ in itertools.groupby(h.tokens[1:-1]) if k != 0]  # they put a space at either end
        theirs.append((tuple(said), h.score))
    compare({tuple(h.tokens): h.score for h in hypotheses(x)}, theirs)


@pytest.mark.parametrize("log_add", [False, True])
@pytest.mark.parametrize("seed", CASES)
def test_flashlight_text_with_a_lexicon(seed, log_add):
    """They sum what has the same words, however many spaces stand before or between; here these are apart.

    By the best alignment both give each text the same score; by the sum, theirs is the sum of all of ours with it.
    """
    flashlight = pytest.importorskip("flashlight.lib.text.decoder")
    x, tokens = scores(np.random.default_rng(seed), 6, 5), ["-", "|", *LETTERS]
    words = {"a": "a |", "ab": "a b |", "ba": "b a |"}
    trie = flashlight.Trie(len(tokens), 1)
    for number, spelling in enumerate(words.values()):
        trie.insert([tokens.index(token) for token in spelling.split()], number, 0.0)
    options = flashlight.LexiconDecoderOptions(
        beam_size=5_000,
        beam_size_token=len(tokens),
        beam_threshold=1e9,
        lm_weight=0.0,
        word_score=0.0,
        unk_score=-np.inf,
        sil_score=0.0,
        log_add=log_add,
        criterion_type=flashlight.CriterionType.CTC,
    )
    decoder = flashlight.LexiconDecoder(options, trie, flashlight.ZeroLM(), 1, 0, len(words), [], False)
    theirs, ours = {}, defaultdict(lambda: -np.inf)
    for h in decoder.decode(x.ctypes.data, *x.shape):
        text = " ".join(list(words)[word] for word in h.words if word >= 0)
        theirs[text] = max(theirs.get(text, -np.inf), h.score)
    whole = CTCDecoder(tokens, beam=5_000, beam_threshold=1e9, n_best=100_000, lexicon=words, log_add=log_add)
    for h in whole.step({"x": x}, sos="x", eos="x")["x"].n_best:
        if not h.tokens or h.tokens[-1] == 1:  # whole words
            ours[h.text] = (np.logaddexp if log_add else max)(ours[h.text], h.score)
    assert len(theirs) > 5
    for text, score in theirs.items():
        assert abs(ours[text] - score) < 1e-5, (text, ours[text], score)
