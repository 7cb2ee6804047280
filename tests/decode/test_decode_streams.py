"""Streams of decoders: whatever chunks and batches, snapshots and forks, to the bit; what is final stays."""

import math
import resource
import threading
import tracemalloc

import numpy as np
import pytest
from decoding import distrusts, in_random_pieces, random_arpa, scores, told

from dreamstream.decode import CTCDecoder, Endpoints
from dreamstream.errors import (
    DTypeError,
    ShapeError,
    StreamBusyError,
    StreamIdError,
    StreamIndexError,
    StreamLimitError,
)

TEXTS = ["-", "|", *"abcdefgh"]
WORDS = ["ab", "ba", "cab", "fed", "a", "hag", "bead"]
ARPA = random_arpa(np.random.default_rng(5), WORDS).encode()
OPTIONS = {
    "plain": {},
    "greedy": {"beam": 0},
    "best alignment": {"log_add": False, "beam_size_token": 4},
    "model": {"lm": ARPA, "lm_weight": 0.7, "word_score": 0.3, "unk_score": -1.0},
    "lexicon": {"lexicon": WORDS, "lm": ARPA},
    "unknown words": {"lexicon": WORDS, "lm": ARPA, "unk_score": -2.0},
    "phrases": {"hotwords": {"ab ba": 3.0, "fed": 2.0}},
    "utterances": {"endpoints": Endpoints(12, 6, 40), "lm": ARPA},
    "few pending": {"max_pending": 3},
    "few kept": {"max_final": 8},
    "thresholds": {"blank_threshold": 0.6, "token_threshold": -3.0},
}


def make(name, **more):
    return CTCDecoder(TEXTS, **{"beam": 12, "n_best": 4, **OPTIONS[name], **more})


def streams(seed, n=5):
    """Scores of streams, with silences."""
    rng = np.random.default_rng(seed)
    out = {}
    for i in range(n):
        x = scores(rng, int(rng.integers(0, 90)), len(TEXTS), 0.15)
        for _ in range(len(x) // 30):
            at = int(rng.integers(0, len(x)))
            x[at : at + 9] = -20
            x[at : at + 9, 0] = 0
        out[f"stream {i}"] = x
    return out


def whole(decoder, given):
    return {i: told(decoder.step({i: x}, sos=i, eos=i)[i]) for i, x in given.items()}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_chunks_batches_and_snapshots_change_no_bit(name, seed):
    given = streams(seed)
    assert in_random_pieces(lambda: make(name), given, np.random.default_rng(seed)) == whole(make(name), given)


@pytest.mark.parametrize("name", OPTIONS)
def test_snapshots_depend_on_frames_alone(name):
    decoder = make(name, beam=min(100, OPTIONS[name].get("beam", 100)))
    rng = np.random.default_rng(7)  # much is about as probable, and prefixes leave the beam and come back
    x = np.log(rng.dirichlet(np.full(len(TEXTS), 5.0), 40)).astype(np.float32)
    decoder.step({"a": x}, sos="a")
    decoder.step({}, sos="b")
    for row in x:
        decoder.step({"b": row[None]})
    assert decoder.snapshot("a") == decoder.snapshot("b")


def test_a_fork_goes_its_own_way():
    decoder, given = make("model"), streams(3, 2)
    x, y = given.values()
    decoder.step({"a": x}, sos="a")
    decoder.fork("a", "b")
    got = decoder.step({"a": y, "b": x}, eos=["a", "b"])
    for i, rest in (("a", y), ("b", x)):
        want = decoder.step({"w": np.concatenate([x, rest])}, sos="w", eos="w")["w"]
        assert told(got[i]) == told(want)


def test_every_byte_of_a_snapshot_is_distrusted():
    decoder = make("lexicon", beam=3)
    decoder.step({"a": streams(1, 1)["stream 0"][:12]}, sos="a")
    distrusts(decoder, decoder.snapshot("a"), make("model"))


# ---------------------------------------------------------------- what is final
def test_what_all_hypotheses_share_is_final():
    """Once the beam agrees, and the token is over; later frames can't change it."""
    decoder = CTCDecoder(["-", "a", "b"], beam=8, beam_threshold=5)
    sure = np.log(np.array([[0.001, 0.998, 0.001], [0.998, 0.001, 0.001]], np.float32))
    sounding = decoder.step({"x": sure[:1]}, sos="x")["x"]
    assert (sounding.text, sounding.final) == ("a", "")
    over = decoder.step({"x": sure[1:]})["x"]
    assert (over.text, over.final, over.times) == ("a", "a", [(0.0, 1.0)])


def test_what_is_decided_early_contradicts_nothing():
    """Hypotheses that differ in a decided token are gone with it."""
    rng = np.random.default_rng(0)
    decoder = CTCDecoder(list("-abcd"), beam=50, n_best=50, max_pending=2)
    decoder.step({}, sos="a")
    for row in scores(rng, 80, 5):
        h = decoder.step({"a": row[None]})["a"]
        n = len(h.final_tokens)
        assert all(g.tokens[:n] == h.final_tokens and len(g.tokens) <= n + 2 for g in h.n_best)


def test_a_silence_ends_an_utterance():
    silence, speech = np.log([[0.98, 0.01, 0.01]] * 10), np.log([[0.01, 0.98, 0.01]])
    decoder = CTCDecoder(["-", "a", "b"], rate=10, endpoints=Endpoints(0.8, 0.4, 0))
    counts = []
    decoder.step({}, sos="x")
    for row in np.concatenate([silence, speech, silence]):
        counts.append(decoder.step({"x": row[None]})["x"].endpoints)
    assert counts == [0] * 7 + [1] * 3 + [1] * 4 + [2] * 7
    h = decoder.step({"x": speech}, eos="x")["x"]
    assert h.text == "a a" and [w.start for w in h.words] == [1.0, 2.1] and -1 in h.tokens


@pytest.mark.parametrize("length", [5, 12])
def test_an_utterance_is_only_so_long(length):
    rng = np.random.default_rng(length)
    decoder = CTCDecoder(list("-abcd"), endpoints=Endpoints(0, 0, length))
    h = decoder.step({"x": scores(rng, 60, 5)}, sos="x", eos="x")["x"]
    assert h.endpoints == 60 // length and h.tokens.count(-1) == 60 // length


def test_utterances_are_decoded_as_streams_of_their_own():
    rng = np.random.default_rng(4)
    x = scores(rng, 60, len(TEXTS))
    decoder = CTCDecoder(TEXTS, lm=ARPA, endpoints=Endpoints(0, 0, 20))
    parts = [decoder.step({"p": part}, sos="p", eos="p")["p"] for part in np.split(x, 3)]
    h = decoder.step({"x": x}, sos="x", eos="x")["x"]
    assert h.text.split() == " ".join(p.text for p in parts).split()


def test_words_have_times_and_confidences():
    rows = ["a", "a", "-", "b", "|", "|", "-", "c", "-"]
    x = np.full((9, len(TEXTS)), 0.01)
    for t, token in enumerate(rows):
        x[t, TEXTS.index(token)] = 0.9
    h = CTCDecoder(TEXTS, rate=100).step({"a": np.log(x)}, sos="a")["a"]
    assert [(w.text, w.start, w.end) for w in h.words] == [("ab", 0.0, 0.04), ("c", 0.07, 0.08)]
    assert all(math.isclose(w.confidence, 0.9, abs_tol=1e-6) for w in h.words)


# ---------------------------------------------------------------- hours
def test_hours_take_no_more_memory_than_minutes():
    """Of one stream, 25 frames per second: from the first minutes on nothing grows, in Python or in C."""
    decoder = CTCDecoder(TEXTS, beam=8, max_final=64, lm=ARPA)
    rng = np.random.default_rng(0)
    x = scores(rng, 1500, len(TEXTS), 0.15)
    decoder.step({"a": x}, sos="a")
    sizes, resident = [], []
    tracemalloc.start()
    for _ in range(60):
        h = decoder.step({"a": x})["a"]
        sizes.append((tracemalloc.get_traced_memory()[0], len(decoder.snapshot("a"))))
        resident.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    tracemalloc.stop()
    assert h.frames == 61 * 1500 and h.left > 10_000
    traced, snapshots = zip(*sizes)
    assert max(traced[30:]) < max(traced[:30]) + 20_000
    assert max(snapshots) < 40_000
    assert resident[-1] - resident[10] < 1024


# ---------------------------------------------------------------- what is refused
def test_streams_are_started_and_ended_by_name():
    decoder = make("plain", max_streams=2)
    x = streams(0, 1)["stream 0"][:3]
    decoder.step({"a": x, "b": x}, sos=["a", "b"])
    before = decoder.snapshot("a")
    for error, call in [
        (StreamIdError, {"scores": {"a": x}, "sos": "a"}),
        (StreamIdError, {"scores": {"a": x, "c": x}}),
        (StreamIdError, {"scores": {"a": x}, "eos": "c"}),
        (StreamLimitError, {"scores": {"a": x, "c": x}, "sos": "c"}),
        (ShapeError, {"scores": {"a": x, "b": x[:, :3]}}),
        (DTypeError, {"scores": {"a": x, "b": x.astype(str)}}),
        (StreamIndexError, {"scores": {"a": x, "b": np.where(x == x[1, 2], np.nan, x)}}),
        (StreamIndexError, {"scores": {"a": x, "b": np.where(x == x[1, 2], np.inf, x)}}),
        (StreamIndexError, {"scores": {"a": x, "b": np.full_like(x, -np.inf)}}),
    ]:
        with pytest.raises(error) as info:
            decoder.step(**call)
        assert info.value.ids in [("a",), ("b",), ("c",)]
        assert decoder.ids == ["a", "b"] and decoder.snapshot("a") == before, "nothing has advanced"
    assert decoder.step({}, eos=["a"]).keys() == {"a"} and decoder.ids == ["b"]
    with pytest.raises(StreamIdError):
        decoder.snapshot("a")


def test_a_stream_in_use_is_busy():
    """Several threads may step one decoder, on different streams."""
    decoder = make("plain", beam=200)
    x = scores(np.random.default_rng(0), 2000, len(TEXTS))
    decoder.step({}, sos=["a", "b"])
    thread = threading.Thread(target=lambda: decoder.step({"a": x}))
    thread.start()
    busy = 0
    while thread.is_alive():
        try:
            decoder.step({"b": x[:1]})
            decoder.step({"a": x[:0]})
        except StreamBusyError as error:
            assert error.ids == ("a",)
            busy += 1
    thread.join()
    assert busy > 0


@pytest.mark.parametrize(
    "options",
    [
        {"beam": -1},
        {"blank": 10},
        {"blank": -1},
        {"sil": "z"},
        {"sil": "-"},
        {"lm_unit": "letter"},
        {"beam_threshold": -1.0},
        {"token_threshold": 1.0},
        {"blank_threshold": 2.0},
        {"lm_weight": math.nan},
        {"n_best": 0},
        {"max_pending": 0},
        {"rate": 0},
        {"endpoints": Endpoints(-1.0, 0, 0)},
    ],
)
def test_options_that_can_not_be(options):
    with pytest.raises(ValueError):
        CTCDecoder(TEXTS, **options)


@pytest.mark.parametrize("lexicon", [None, {"yes": "yes", "no": "no"}])
def test_a_word_that_is_a_token_is_final_when_its_sound_is_over(lexicon):
    """Not when the next begins."""
    decoder = CTCDecoder(["-", "yes", "no"], beam=0, lexicon=lexicon)
    sure = np.log(np.full((3, 3), 0.01, np.float32) + 0.97 * np.eye(3, dtype=np.float32))
    heard = decoder.step({"x": sure[[0, 1, 1]]}, sos="x")["x"]
    assert heard.since(0) == ([], "yes")
    words, pending = decoder.step({"x": sure[[0]]})["x"].since(0)
    assert [(word.text, word.start, word.end) for word in words] == [("yes", 1, 3)] and pending == ""
    words, pending = decoder.step({"x": sure[[2, 2]]})["x"].since(3)
    assert words == [] and pending == "no"


@pytest.mark.parametrize("beam", [0, 1, 8])
def test_words_of_a_lexicon_are_heard_once(beam):
    """A word that its separator ends is final before that, and isn't heard again with it."""
    lexicon = {"ab": ["a", "b", "|"], "b": ["b", "|"], "a": ["a", "|"]}
    path = [0, 1, 1, 0, 2, 0, 3, 3, 0, 2, 0, 3, 0, 1, 2, 3, 3, 3, 0, 1, 0, 3]
    values = np.where(np.arange(4) == np.array(path)[:, None], -0.01, -9)
    for chunk in (1, 3, 30):
        decoder, words = CTCDecoder(["-", "a", "b", "|"], beam=beam, lexicon=lexicon), []
        for at in range(0, len(path), chunk):
            ended = at + chunk >= len(path)
            heard = decoder.step({"x": values[at : at + chunk]}, sos=["x"] * (not at), eos=["x"] * ended)["x"]
            words += heard.since(words[-1].end if words else 0)[0]
        assert [word.text for word in words] == heard.text.split() == ["ab", "b", "ab", "a"]
