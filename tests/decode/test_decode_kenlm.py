"""Binaries of KenLM: what the same model says as ARPA, whatever chunks, and what is refused.

The binaries are what `build_binary` makes of `ARPA`: `-p 4 probing`, `trie`, and `-p 4 -v probing`.
"""

import pathlib
import sys

import numpy as np
import pytest
from decoding import in_random_pieces, random_arpa, scores, told

from dreamstream.decode import CTCDecoder
from dreamstream.decode.kenlm import open_binary
from dreamstream.errors import FormatError

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
TEXTS = ["-", "|", *"abcdefgh"]
WORDS = ["ab", "ba", "cab", "fed", "a", "hag", "bead"]
ARPA = random_arpa(np.random.default_rng(5), WORDS).encode()
KINDS = {
    "spelled": {"lm_weight": 0.7, "word_score": 0.3, "unk_score": -1.0},
    "lexicon": {"lexicon": WORDS},
    "unknown words": {"lexicon": [*WORDS, "gab"], "unk_score": -2.0},
    "hotwords": {"hotwords": {"ab ba": 3.0}},
}


def made(lm, kind, **more):
    return CTCDecoder(TEXTS, lm=lm, beam=12, n_best=12, **KINDS[kind], **more)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["probing", "trie", "unnamed"])
def test_words_and_scores_are_those_of_the_arpa_file(form, kind):
    pytest.importorskip("kenlm")
    if form == "unnamed" and "lexicon" not in KINDS[kind]:
        pytest.skip("its words are the lexicon's")
    arpa, binary = made(ARPA, kind), made(GOLDEN / f"kenlm_{form}.bin", kind)
    for seed in range(5):
        x = scores(np.random.default_rng(seed), 40, len(TEXTS), 0.15)
        want, got = (d.step({"a": x}, sos="a", eos="a")["a"].n_best for d in (arpa, binary))
        assert [h.text for h in got] == [h.text for h in want]
        assert np.allclose([h.score for h in got], [h.score for h in want], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_snapshots_and_forks_change_no_bit(kind):
    pytest.importorskip("kenlm")
    path = GOLDEN / "kenlm_probing.bin"
    for seed in range(3):
        rng = np.random.default_rng(seed)
        given = {f"stream {i}": scores(rng, 20 + i, len(TEXTS), 0.15) for i in range(3)}
        decoder = made(path, kind)
        want = {i: told(decoder.step({i: x}, sos=i, eos=i)[i]) for i, x in given.items()}
        assert in_random_pieces(lambda: made(path, kind), given, rng) == want


def test_a_snapshot_is_of_one_model():
    pytest.importorskip("kenlm")
    binary, trie = (made(GOLDEN / f"kenlm_{form}.bin", "lexicon") for form in ("probing", "trie"))
    binary.step(sos="a")
    for other in (trie, made(ARPA, "lexicon")):  # words in another order; another kind
        with pytest.raises(FormatError, match="same tokens, files and options"):
            other.restore(binary.snapshot("a"), "a")


def test_what_scores_may_raise():
    """The exception comes through every call that scores, and the stream stays as it was."""
    from dreamstream import _core

    fails = []

    def score(words):
        if fails:
            raise KeyError(*fails)
        return -float(np.frombuffer(words, np.uint32)[-1])

    decoder = _core.Decoder(b"-\n|\na\nb\n", lm=b"a\nb\n", lm_order=3, lm_score=score, beam_size=8, lm_weight=1.0)
    stream = _core.Decoding(decoder)
    x = scores(np.random.default_rng(0), 30, 4)
    decoder.step([("a", stream, x[:15], 1)])
    before, bytes_before = stream.read(8), stream.snapshot()
    fails.append("no")
    for call in (
        lambda: decoder.step([("a", stream, x[15:], 0)]),
        lambda: stream.restore(bytes_before),
        lambda: _core.Decoder(b"-\na\n", lm=b"a\n", lm_order=2, lm_score=score),
    ):
        with pytest.raises(KeyError, match="no"):
            call()
        assert (stream.read(8), stream.snapshot()) == (before, bytes_before)
    fails.clear()
    decoder.step([("a", stream, x[15:], 2)])
    fails.append("no")
    with pytest.raises(KeyError):
        stream.read(8)  # whose end is scored
    fails.clear()
    assert stream.read(8)[4]
    for wrong in (0, 7):
        with pytest.raises(ValueError, match="lm_order from 1 to 6"):
            _core.Decoder(b"-\na\n", lm=b"a\n", lm_order=wrong, lm_score=score)


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(ImportError, match=r"kenlm_trie.bin is KenLM's: pip install 'dreamstream\[kenlm\]'"):
        made(GOLDEN / "kenlm_trie.bin", "spelled")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda b: b[:100], "format 5 that is complete"),
        (lambda b: b.replace(b"version 5", b"version 4"), "format 5 that is complete"),
        (lambda b: b[:-3], "the words at the end"),
        (lambda b: b[:88] + b"\7" + b[89:], "an order of 1 to 6, got 7"),
        (lambda b: b.replace(b"cab\0", b"c\xffb\0"), "UTF-8"),
    ],
)
def test_damaged_binaries(change, says, tmp_path):
    pytest.importorskip("kenlm")
    path = tmp_path / "lm.bin"
    path.write_bytes(change((GOLDEN / "kenlm_probing.bin").read_bytes()))
    with pytest.raises((FormatError, ValueError), match=says):
        made(path, "spelled")
    with pytest.raises(FormatError, match="give the path of KenLM's binary"):
        made((GOLDEN / "kenlm_probing.bin").read_bytes(), "spelled")


def test_words_that_a_binary_lacks():
    pytest.importorskip("kenlm")
    path = str(GOLDEN / "kenlm_unnamed.bin")
    with pytest.raises(FormatError, match="without its words needs a lexicon"):
        open_binary(path, [b"nothing", b"here"])
    assert open_binary(path, [b"cab", b"zzz", b"cab"])[:2] == (b"<s>\n</s>\ncab\n", 3)
