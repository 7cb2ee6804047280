"""What a beam search finds, against sums over all alignments: every hypothesis, and its score."""

import itertools
import math

import numpy as np
import pytest
from decoding import Ngrams, alignments, occurrences, random_arpa, scores
from turns import in_blocks

import dreamstream as ds
from dreamstream.decode import CTCDecoder

ALL = {"beam": 30_000, "beam_threshold": 1e9, "n_best": 100_000}
CASES = range(8)


def found(log_probs, *args, **options):
    """All hypotheses of a whole stream."""
    decoder = CTCDecoder(*args, **{**ALL, **options})
    return decoder.step({"a": log_probs}, sos="a", eos="a")["a"].n_best


def close(a, b):
    return a == b or math.isclose(a, b, rel_tol=0, abs_tol=1e-9)


@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize("seed", CASES)
def test_every_sequence_has_its_probability(seed, best):
    rng = np.random.default_rng(seed)
    n, blank = int(rng.integers(2, 5)), int(rng.integers(0, 2))
    x = scores(rng, int(rng.integers(0, 6)), n)
    tokens = list("abcdef"[:n])
    got = {tuple(h.tokens): h.score for h in found(x, tokens, blank=blank, log_add=not best)}
    want = alignments(x, blank, best)
    assert got.keys() == want.keys()
    assert all(close(got[key], want[key]) for key in want)


def test_three_frames_of_three():
    x = np.log([[0.25, 0.40, 0.35], [0.40, 0.35, 0.25], [0.10, 0.50, 0.40]])
    best = CTCDecoder(["-", "a", "b"], beam=3, n_best=3).step({"x": x}, sos="x", eos="x")["x"].n_best
    assert [h.tokens for h in best] == [[2, 1], [1, 2], [1]]
    assert np.allclose(np.exp([h.score for h in best]), [0.2185, 0.1550, 0.1525], atol=1e-6)


@pytest.mark.parametrize("seed", CASES)
def test_hypotheses_come_best_first(seed):
    rng = np.random.default_rng(seed)
    hypotheses = found(scores(rng, 5, 4), list("-abc"))
    assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)


@pytest.mark.parametrize("seed", CASES)
def test_of_thousands_of_tokens_the_best_are_kept_in_whatever_order_they_come(seed):
    x = scores(np.random.default_rng(seed), 12, 1_500)
    tokens = [f"t{i}" for i in range(1_500)]
    options = {"beam": 4, "n_best": 4, "blank": 0}
    want = found(x, tokens, **options)
    got = found(x[:, ::-1], tokens[::-1], **{**options, "blank": 1_499})
    assert [h.text for h in got] == [h.text for h in want]
    assert all(close(a.score, b.score) for a, b in zip(got, want))


@pytest.mark.parametrize("seed", CASES)
def test_times_are_those_of_the_best_alignment(seed):
    rng = np.random.default_rng(seed)
    x = scores(rng, 6, 4, 0.2)
    best = found(x, list("-abc"))[0]
    paths = [
        path
        for path in itertools.product(range(4), repeat=6)
        if [k for k, _ in itertools.groupby(path) if k] == best.tokens
    ]
    path = max(paths, key=lambda path: math.fsum(float(x[t, k]) for t, k in enumerate(path)))
    times, sure, t = [], [], 0
    for k, frames in itertools.groupby(path):
        n = len(list(frames))
        if k:
            times.append((t, t + n))
            sure.append(np.exp(x[t : t + n, k].astype(float)).mean())
        t += n
    assert best.times == times
    assert np.allclose(best.confidences, sure, atol=1e-6)


@pytest.mark.parametrize("seed", CASES)
def test_greedy_takes_the_best_of_each_frame(seed):
    rng = np.random.default_rng(seed)
    x = scores(rng, int(rng.integers(1, 60)), 5)
    got = ds.decode.greedy(x, list("-abcd"))
    want = [k for k, _ in itertools.groupby(x.argmax(1).tolist()) if k]
    assert got.tokens == want and got.text == got.final
    assert math.isclose(got.score, x.max(1).astype(float).sum(), abs_tol=1e-6)


# ---------------------------------------------------------------- what words are worth
WORDS = ["a", "ab", "ba", "bb"]


def spelled(tokens, texts):
    return "".join(texts[k] for k in tokens).split("|")


PHRASES = {"a": 1.5, "ab a": 2.0, "ab": -0.5, "a b": 0.7}


@in_blocks("seed", range(32), 16)
def test_words_between_separators_with_all_options_at_once(seed):
    """A model of any order, words known or not, separators, phrases, any place of the blank, sums or the best."""
    rng = np.random.default_rng(seed)
    blank, best, order = int(rng.integers(0, 4)), bool(rng.integers(0, 2)), int(rng.integers(1, 5))
    texts = ["|", "a", "b"]
    texts.insert(blank, "-")
    arpa = random_arpa(rng, WORDS, order, unk=bool(rng.integers(0, 2)))
    model, x = Ngrams(arpa), scores(rng, int(rng.integers(1, 7)), 4)
    weight, word, unk, sil = (float(v) for v in rng.normal(0, 1, 4))
    phrases = {p: float(rng.normal(0, 2)) for p in PHRASES if rng.random() < 0.7}
    options = {"lm": arpa.encode(), "lm_weight": weight, "word_score": word, "unk_score": unk, "sil_score": sil}
    options |= {"hotwords": phrases} if phrases else {}
    got = {tuple(h.tokens): h.score for h in found(x, texts, blank=blank, log_add=not best, **options)}
    want = alignments(x, blank, best)
    assert got.keys() == want.keys()
    for tokens, acoustic in want.items():
        words = [w for w in spelled(tokens, texts) if w]
        worth = acoustic + weight * model.sentence(words) + word * len(words)
        worth += sil * tokens.count(texts.index("|"))
        worth += unk * sum(w not in WORDS for w in words)
        heard = f"|{''.join(texts[k] for k in tokens)}|"
        worth += sum(w * occurrences(f"|{p.replace(' ', '|')}|", heard) for p, w in phrases.items())
        assert close(got[tokens], worth), (tokens, words)


@pytest.mark.parametrize("seed", CASES)
def test_a_word_is_charged_as_unknown_as_soon_as_no_word_begins_like_it(seed):
    """Else beams would fill with words that are spelled on for ever."""
    rng = np.random.default_rng(seed)
    arpa, texts = random_arpa(rng, WORDS), ["-", "|", "a", "b"]
    model, x = Ngrams(arpa), scores(rng, 5, 4)
    decoder = CTCDecoder(texts, lm=arpa.encode(), unk_score=-9.0, **ALL)
    got = {tuple(h.tokens): h.score for h in decoder.step({"a": x}, sos="a")["a"].n_best}
    for tokens, acoustic in alignments(x).items():
        *words, last = spelled(tokens, texts)
        words = [w for w in words if w] + [last] * (not any(w.startswith(last) for w in WORDS))
        worth = sum(model.score(["<s>", *words[:i]], w) - 9 * (w not in WORDS) for i, w in enumerate(words))
        assert close(got[tokens], acoustic + worth), tokens


@pytest.mark.parametrize("seed", CASES)
def test_words_that_begin_with_a_mark(seed):
    rng = np.random.default_rng(seed)
    texts = ["-", "▁", "▁a", "b"]
    arpa = random_arpa(rng, WORDS)
    model = Ngrams(arpa)
    x = scores(rng, 4, 4)
    got = {tuple(h.tokens): h for h in found(x, texts, lm=arpa.encode())}
    for tokens, acoustic in alignments(x).items():
        words = "".join(texts[k] for k in tokens).replace("▁", " ").split()
        assert close(got[tokens].score, acoustic + model.sentence(words))
        assert got[tokens].text.split() == words and [w.text for w in got[tokens].words] == words


@pytest.mark.parametrize("seed", CASES)
def test_tokens_as_words(seed):
    rng = np.random.default_rng(seed)
    arpa = random_arpa(rng, ["|", "a"])
    model = Ngrams(arpa)
    x = scores(rng, 4, 4)
    texts = ["-", "|", "a", "b"]
    got = {tuple(h.tokens): h.score for h in found(x, texts, lm=arpa.encode(), lm_unit="token")}
    for tokens, acoustic in alignments(x).items():
        assert close(got[tokens], acoustic + model.sentence([texts[k] for k in tokens]))


def parses(tokens, spellings, separator):
    """All ways to read tokens as words of a lexicon, with separators between them."""
    if not tokens:
        return [()]
    rest = [(word, n) for word, spelling in spellings for n in [len(spelling)] if tuple(tokens[:n]) == spelling]
    out = [(word, *more) for word, n in rest for more in parses(tokens[n:], spellings, separator)]
    begins = any(spelling[0] == separator for _, spelling in spellings)
    if tokens[0] == separator and not begins:
        out += parses(tokens[1:], spellings, separator)
    return out


@pytest.mark.parametrize("lm", [False, True])
@pytest.mark.parametrize("seed", CASES)
def test_words_of_a_lexicon(seed, lm):
    """Every reading of every sequence: homophones, words that begin like others, several spellings."""
    rng = np.random.default_rng(seed)
    texts = ["-", "|", "a", "b"]
    lexicon = {"x": [["a", "|"]], "y": [["a", "|"], ["b"]], "z": [["a", "b"]], "w": [["b", "a", "|"]]}
    spellings = [(w, tuple(texts.index(t) for t in s)) for w, all_of in lexicon.items() for s in all_of]
    arpa = random_arpa(rng, ["x", "y", "z"])
    model = Ngrams(arpa)
    x = scores(rng, 5, 4)
    options = {"lm": arpa.encode()} if lm else {}
    got = {}
    for h in found(x, texts, lexicon=lexicon, word_score=0.5, **options):
        key = (tuple(h.tokens), tuple(h.text.split()))
        assert key not in got
        got[key] = h.score
    want = {}
    for tokens, acoustic in alignments(x).items():
        for words in parses(tokens, spellings, 1):
            worth = model.sentence(words) if lm else 0
            want[tokens, words] = acoustic + worth + 0.5 * len(words)
    assert want.keys() <= got.keys()
    assert all(close(got[key], want[key]) for key in want)
    complete = list(got)[: len(want)]
    assert set(complete) == set(want), "what ends within a word comes last"


def test_a_lexicon_alone_may_be_left():
    """Where no hypothesis can follow a frame, it is passed over, and the next is heard."""
    x = np.full((4, 4), -np.inf)
    x[[0, 1, 2, 3], [2, 3, 2, 0]] = 0
    decoder = CTCDecoder(["-", "|", "a", "b"], lexicon={"aa": "a a", "a": "a"})
    assert decoder.step({"a": x}, sos="a", eos="a")["a"].text == "a"


@pytest.mark.parametrize("unk", [-1.0, 0.5])
def test_unknown_words_of_a_lexicon(unk):
    x = np.log(np.full((3, 4), 1e-6))
    x[[0, 1, 2], [2, 3, 1]] = 0
    known = CTCDecoder(["-", "|", "a", "b"], lexicon=["aab"]).step({"a": x}, sos="a", eos="a")["a"]
    assert known.text == ""
    decoder = CTCDecoder(["-", "|", "a", "b"], lexicon={"aab": "a b b |"}, unk_score=unk, beam_threshold=100)
    hypothesis = decoder.step({"a": x}, sos="a", eos="a")["a"]
    assert hypothesis.text == "<unk>" and hypothesis.tokens == [2, 3, 1]
    assert math.isclose(hypothesis.score, unk, abs_tol=1e-4)


# ---------------------------------------------------------------- phrases
@pytest.mark.parametrize("seed", CASES)
def test_phrases_add_their_weights(seed):
    """Phrases within phrases, overlapping, of negative weight, of tokens that are words."""
    rng = np.random.default_rng(seed)
    texts, x = ["-", "c", "a", "b"], scores(rng, 5, 4)
    weights = {"a": 1.5, "aba": 2.0, "ab": -0.5, "bcb": 0.7, "bb": 1.0}
    got = {tuple(h.tokens): h.score for h in found(x, texts, hotwords=weights)}
    for tokens, acoustic in alignments(x).items():
        text = "".join(texts[k] for k in tokens)
        assert close(got[tokens], acoustic + sum(w * occurrences(p, text) for p, w in weights.items())), text


def test_a_phrase_is_pursued_before_it_is_complete():
    """Its beginning counts in advance: a beam of one holds it."""
    x = np.log([[0.01, 0.5, 0.49], [0.98, 0.01, 0.01], [0.01, 0.5, 0.49]])
    plain = CTCDecoder(["-", "a", "b"], beam=1)
    biased = CTCDecoder(["-", "a", "b"], beam=1, hotwords={"bb": 2.0})
    assert plain.step({"a": x}, sos="a", eos="a")["a"].tokens == [1, 1]
    assert biased.step({"a": x}, sos="a", eos="a")["a"].tokens == [2, 2]
