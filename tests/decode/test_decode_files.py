"""Files of decoders: what they may look like, and what is refused, with the line that is wrong."""

import math

import numpy as np
import pytest
from decoding import Ngrams, random_arpa, scores
from turns import in_blocks

from dreamstream.decode import CTCDecoder
from dreamstream.errors import FormatError, ShapeError

TOKENS = ["-", "a", "b"]
MODEL = "\\data\\\nngram 1=4\nngram 2=1\n\n\\1-grams:\n-1 <s> -0.5\n-1 </s>\n-1 a -0.5\n-1 b\n\n"
MODEL += "\\2-grams:\n-0.2 a b\n\n\\end\\\n"


def text_of(tokens, row):
    """What one sure frame of that column says."""
    x = np.full((1, len(CTCDecoder(tokens, blank=0).tokens)), -50.0)
    x[0, row] = 0
    return CTCDecoder(tokens).step({"a": x}, sos="a", eos="a")["a"].text


@pytest.mark.parametrize(
    "file",
    [b"-\nab\n\xc3\xa9\n", b"-\r\nab\r\n\xc3\xa9\r\n", b"\xc3\xa9 2\n- 0\nab 1", b"-\t0\nab\t1\n\n\xc3\xa9   2\n"],
)
def test_lists_of_tokens(file, tmp_path):
    path = tmp_path / "tokens.txt"
    path.write_bytes(file)
    for given in (file, path, str(path), ["-", "ab", "é"]):
        assert CTCDecoder(given).tokens == ["-", "ab", "é"]
        assert text_of(given, 1) == "ab" and text_of(given, 2) == "é"


def test_the_space_is_a_token():
    assert CTCDecoder(b"- 0\n  1\na 2\n").tokens == ["-", " ", "a"] == CTCDecoder(["-", " ", "a"]).tokens


def test_an_empty_blank_has_a_name():
    assert CTCDecoder(["", "a"]).tokens == ["<blank>", "a"]


def test_the_first_word_is_one():
    """And so is the first token, behind a blank that is another column."""
    x = np.log([[0.9, 0.05, 0.05]])
    assert (
        CTCDecoder(["a", "b", "-"], blank=2, lexicon={"w": "a"}).step({"x": x}, sos="x", eos="x")["x"].text == "w"
    )


def test_phrases_from_files(tmp_path):
    path = tmp_path / "phrases.txt"
    path.write_text("ab\t2.5\n\nb a\n\ta b b\t1\n")
    texts = ["-", "a", "b", " "]
    x = scores(np.random.default_rng(0), 6, 4)
    listed = CTCDecoder(texts, hotwords=path, hotword_weight=0.5)
    plain = CTCDecoder(texts, hotwords={"ab": 2.5, "b a": 0.5, "abb": 1.0})
    a, b = (d.step({"x": x}, sos="x", eos="x")["x"] for d in (listed, plain))
    assert (a.text, a.score) == (b.text, b.score)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tokens": b""}, "expected 1 to"),
        ({"tokens": b"- 0\na 2\n"}, "line 2: expected an id below 2"),
        ({"tokens": b"- 0\na 0\n"}, "line 2: expected each id once"),
        ({"tokens": b"-\na\na\n"}, "line 3: expected each token once"),
        ({"tokens": b"-\n\xff\n"}, "line 2: expected UTF-8"),
        ({"tokens": ["-", "a\nb"]}, "one line"),
        ({"tokens": ["-", ""]}, "without spaces around"),
        ({"tokens": ["-", "a "]}, "without spaces around"),
        ({"tokens": "/no/such/file"}, "/no/such/file"),
        ({"lexicon": b""}, "expected words"),
        ({"lexicon": b"w a\nv\n"}, "line 2: expected a word and its tokens"),
        ({"lexicon": b"w a c\n"}, "line 1: expected tokens, got c"),
        ({"lexicon": b"\xff a\n"}, "line 1: expected UTF-8"),
        ({"lexicon": ["abc"]}, "got c"),
        ({"lexicon": ["ab a"]}, "words without spaces, got 'ab a'"),
        ({"lexicon": {"b\ta": "b a"}}, "words without spaces"),
        ({"hotwords": ["ac"]}, "line 1: expected words that the tokens spell"),
        ({"hotwords": b"a\tx\n"}, "a tab and a number"),
        ({"hotwords": b"a\t-inf\n"}, "a tab and a number"),
        ({"hotwords": b"\tab\n"}, "line 1: expected tokens, got ab"),
        ({"hotwords": "a" * 300}, "at most 256 tokens"),
        ({"lm": b""}, "expected .data., got the end"),
        ({"lm": MODEL.replace("ngram 1=4", "ngram 1=5").encode()}, "line 11: expected the base-10"),
        ({"lm": MODEL.replace("ngram 1=4", "ngram 1=3").encode()}, "expected .2-grams:"),
        ({"lm": MODEL.replace("ngram 2=1", "ngram 3=1").encode()}, 'line 3: expected "ngram 2="'),
        ({"lm": MODEL.replace("ngram 2=1", "ngram 2=99999999999").encode()}, 'line 3: expected "ngram 2="'),
        ({"lm": MODEL.replace("-1 b", "1 b").encode()}, "line 9: expected the base-10 logarithm"),
        ({"lm": MODEL.replace("-1 b", "-1x b").encode()}, "line 9: expected the base-10 logarithm"),
        ({"lm": MODEL.replace("-1 b", "-1 a").encode()}, "line 9: expected each word once"),
        ({"lm": MODEL.replace("-1 b", "-1 b c d").encode()}, "line 9: expected a back-off"),
        ({"lm": MODEL.replace("-1 b", "-1 b 1e999").encode()}, "line 9: expected a back-off"),
        ({"lm": MODEL.replace("-0.2 a b", "-0.2 a c").encode()}, "expected words of the 1-grams, got c"),
        ({"lm": MODEL.replace("-0.2 a b", "-0.2 a").encode()}, "line 12: expected 2 words"),
        ({"lm": MODEL.replace("\\end\\", "").encode()}, "got the end of the file"),
    ],
)
def test_what_is_wrong_is_said(options, said):
    with pytest.raises(FormatError, match=said) as info:
        CTCDecoder(**{"tokens": TOKENS, **options})
    assert "\n" not in str(info.value)


def test_what_is_no_snapshot():
    with pytest.raises(FormatError, match="begins with DSDECODE, got 2 other bytes"):
        CTCDecoder(TOKENS).restore(b"xx", "a")


FILES = {
    "tokens": b"- 0\na 1\nb 2\n\xc3\xa9 3\n",
    "lexicon": b"w a\nba b a\n\xc3\xa9 a b\n",
    "hotwords": b"ab\t2.5\n\ta b b\t1\nba\n",
    "lm": MODEL.encode(),
}
PIECES = [*b"|\n|\t| |\0|\xff|-|1e999|nan|\\end\\|\r".split(b"|"), b"9" * 30, b"a" * 3000]


@pytest.mark.parametrize("kind", FILES)
def test_damaged_files_are_read_or_refused(kind):
    """Bytes changed, lost, said twice or put in: what is read decodes, all else is refused in one line."""
    rng, whole, refused = np.random.default_rng(len(kind)), FILES[kind], 0
    for _ in range(400):
        file = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(0, len(file) + 1))
            end = min(len(file), at + int(rng.integers(0, 12)))
            other = int(rng.integers(0, len(file) + 1))
            new = (PIECES[rng.integers(len(PIECES))], bytes(file[other : other + 12]), rng.bytes(2))
            file[at:end] = new[rng.integers(3)]
        try:
            decoder = CTCDecoder(**{"tokens": TOKENS, kind: bytes(file)})
        except (FormatError, ShapeError) as error:  # a shape: the blank is the space
            assert "\n" not in str(error)
            refused += 1
        else:
            x = scores(rng, 4, len(decoder.tokens))
            assert np.isfinite(decoder.step({"a": x}, sos="a", eos="a")["a"].score)
    assert 20 < refused < 400


@in_blocks("at", range(0, len(MODEL), 3), 40)
def test_no_beginning_of_a_model_is_one(at):
    if at < len(MODEL) - 2:
        with pytest.raises(FormatError):
            CTCDecoder(TOKENS, lm=MODEL[:at].encode())


@pytest.mark.parametrize("order", [2, 3, 5])
def test_scores_are_those_of_kenlm(order, tmp_path):
    """The oracle of the other tests is held against KenLM, where that is installed."""
    kenlm = pytest.importorskip("kenlm")
    rng = np.random.default_rng(order)
    words = ["a", "b", "c", "d"]
    path = tmp_path / "lm.arpa"
    path.write_text(random_arpa(rng, words, order, unk=False, ends=True))
    theirs, ours = kenlm.Model(str(path)), Ngrams(path.read_text())
    decoder = CTCDecoder(["-", *words], lm=path, beam=1, beam_threshold=1e6)
    for _ in range(50):
        said = rng.integers(1, 5, int(rng.integers(0, 9)))
        said = [int(k) for i, k in enumerate(said) if i == 0 or k != said[i - 1]]
        x = np.full((len(said), 5), -200.0)
        x[range(len(said)), said] = 0
        want = theirs.score(" ".join(words[k - 1] for k in said))
        got = decoder.step({"x": x}, sos="x", eos="x")["x"].score
        assert math.isclose(ours.sentence([words[k - 1] for k in said]), want, abs_tol=1e-5)
        assert math.isclose(got, want, abs_tol=1e-5)
