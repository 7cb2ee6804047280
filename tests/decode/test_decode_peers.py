"""Hypotheses and their scores beside those of other decoders, where they are installed."""

import itertools
import logging
from collections import defaultdict

import numpy as np
import pytest
from decoding import Ngrams, random_arpa, scores

from dreamstream.decode import CTCDecoder

LETTERS = list("abc")
WORDS = ["a", "ab", "ba", "c", "cab"]
CASES = range(6)


def ending_in_a_letter(rng, frames):
    """Scores of blank, a space and letters; the last frame holds a letter, as others end differently."""
    return normalized(scores(rng, frames, 2 + len(LETTERS)))


def normalized(x):
    x[-1, :2] = -60
    return (x - np.logaddexp.reduce(x, axis=1, keepdims=True)).astype(np.float32)


def noisy(rng, text, noise):
    """Scores of a text said in noise: of each letter a frame or two, and blanks between them."""
    said = [[2 + LETTERS.index(c) if c != " " else 1] * int(rng.integers(1, 3)) for c in text]
    frames = [k for letter in said for k in (*[0] * int(rng.integers(0, 3)), *letter)]
    x = rng.gumbel(0, noise, (len(frames), 2 + len(LETTERS)))
    x[np.arange(len(frames)), frames] += 5
    return normalized(x)


def hypotheses(log_probs, beam=5_000, threshold=1e9, **options):
    decoder = CTCDecoder(["-", " ", *LETTERS], beam=beam, beam_threshold=threshold, n_best=100_000, **options)
    return decoder.step({"x": log_probs}, sos="x", eos="x")["x"].n_best


def texts(log_probs, *args, **options):
    """What is said, by its words, with the sum over all ways to put spaces."""
    found = defaultdict(lambda: -np.inf)
    for h in hypotheses(log_probs, *args, **options):
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


def peer(tmp_path, arpa=None, alpha=0.5, beta=0.7, offset=-2.0):
    """pyctcdecode's decoder with a language model, and the options with which ours counts the same."""
    pyctcdecode = pytest.importorskip("pyctcdecode")
    logging.getLogger("pyctcdecode").setLevel(logging.ERROR)
    if arpa is None:
        return pyctcdecode.build_ctcdecoder(["", " ", *LETTERS]), {}
    pytest.importorskip("kenlm")
    path = tmp_path / "lm.arpa"
    path.write_text(arpa)
    theirs = {"kenlm_model_path": str(path), "alpha": alpha, "beta": beta, "unk_score_offset": offset}
    weight = alpha * np.log(10)
    ours = {"lm": path, "lm_weight": weight, "word_score": beta, "unk_score": offset * weight}
    return pyctcdecode.build_ctcdecoder(["", " ", *LETTERS], **theirs), ours


ALL = {"beam_width": 50_000, "beam_prune_logp": -1e9, "token_min_logp": -34}


@pytest.mark.parametrize("alpha", [None, 0.5, 1.3])
@pytest.mark.parametrize("seed", CASES)
def test_pyctcdecode(seed, alpha, tmp_path):
    rng = np.random.default_rng(seed)
    x = ending_in_a_letter(rng, 5)
    arpa = None if alpha is None else random_arpa(rng, WORDS, 3, ends=True)
    decoder, ours = peer(tmp_path, arpa, alpha)
    compare(texts(x, **ours), [(beam[0], beam[-1]) for beam in decoder.decode_beams(x, **ALL)])


@pytest.mark.parametrize(("beam", "words", "noise", "lost"), [(100, 6, 1.6, 0.5), (1_000, 3, 1.0, 1e-5)])
@pytest.mark.parametrize("seed", CASES)
def test_pyctcdecode_within_a_beam(seed, beam, words, noise, lost, tmp_path):
    """Beams keep few of a noisy sentence's hypotheses: the best is the same; scores differ by what is lost."""
    rng = np.random.default_rng(seed)
    known = sorted({"".join(rng.choice(LETTERS, int(rng.integers(2, 5)))) for _ in range(12)})
    decoder, options = peer(tmp_path, random_arpa(rng, known, 3, ends=True), offset=-10.0)
    x = noisy(rng, " ".join(rng.choice(known, words)), noise)
    ours = texts(x, beam, 30, **options)
    theirs = decoder.decode_beams(x, beam_width=beam, beam_prune_logp=-30, token_min_logp=-34)[0]
    assert next(iter(ours)) == theirs[0]
    assert abs(ours[theirs[0]] - theirs[-1]) < lost


def test_pyctcdecode_counts_a_space_at_the_end_as_an_unknown_word(tmp_path):
    arpa = random_arpa(np.random.default_rng(0), WORDS, 3, ends=True)
    decoder, options = peer(tmp_path, arpa)
    x = np.array([[-60, -60, 0, -60, -60], [-60, 0, -60, -60, -60]], np.float32)
    model, theirs = Ngrams(arpa), decoder.decode_beams(x)[0]
    more = model.sentence(["a", "<unk>"]) - model.sentence(["a"]) - 2.0
    assert theirs[0] == "a" and abs(texts(x, **options)["a"] + 0.5 * np.log(10) * more + 0.7 - theirs[-1]) < 1e-5


def test_pyctcdecode_charges_unknown_words_by_another_weight_while_they_are_spelled(tmp_path):
    """A beam then drops what would be best in the end."""
    decoder, options = peer(
        tmp_path, random_arpa(np.random.default_rng(0), WORDS, 2, ends=True), 0.01, offset=-10.0
    )
    x = np.log(np.array([[0.02, 0.02, 0.02, 0.92, 0.02], [0.92, *[0.02] * 4], [0.02, 0.02, 0.1, 0.84, 0.02]]))
    x = x.astype(np.float32)
    best = {"beam_width": 50_000, "token_min_logp": -34}
    assert next(iter(texts(x, **options))) == next(iter(texts(x, threshold=5, **options))) == "bb"
    assert decoder.decode_beams(x, beam_prune_logp=-1e9, **best)[0][0] == "bb"
    assert decoder.decode_beams(x, beam_prune_logp=-5, **best)[0][0] != "bb"


def test_pyctcdecode_prunes_by_history(tmp_path):
    """Its `decode` keeps one of the alignments where another text ends alike, and loses part of a sum."""
    decoder, _ = peer(tmp_path)
    x = ending_in_a_letter(np.random.default_rng(89), 6)
    best, second = list(texts(x).items())[:2]
    assert best[0] == decoder.decode_beams(x, **ALL)[0][0] == "a b" and best[1] > second[1] + 0.01
    assert decoder.decode(x, **ALL) == second[0]


def flashlights(kind, **more):
    """flashlight-text, and options of a decoder for five tokens that loses nothing."""
    library = pytest.importorskip("flashlight.lib.text.decoder")
    more |= {"beam_size": 5_000, "beam_size_token": 5, "beam_threshold": 1e9, "lm_weight": 0.0, "sil_score": 0.0}
    return library, getattr(library, kind)(criterion_type=library.CriterionType.CTC, **more)


@pytest.mark.parametrize("seed", CASES)
def test_flashlight_text(seed):
    """Without spaces, whose score is counted for every frame there."""
    flashlight, options = flashlights("LexiconFreeDecoderOptions", log_add=True)
    x = ending_in_a_letter(np.random.default_rng(seed), 6)
    x[:, 1] = -200
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
    more = {"word_score": 0.0, "unk_score": -np.inf, "log_add": log_add}
    flashlight, options = flashlights("LexiconDecoderOptions", **more)
    x, tokens = scores(np.random.default_rng(seed), 6, 5), ["-", "|", *LETTERS]
    words = {"a": "a |", "ab": "a b |", "ba": "b a |"}
    trie = flashlight.Trie(len(tokens), 1)
    for number, spelling in enumerate(words.values()):
        trie.insert([tokens.index(token) for token in spelling.split()], number, 0.0)
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
