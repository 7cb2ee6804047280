"""Transducers: every sequence's probability beside a sum over all alignments; chunks, batches, snapshots."""

import gc
import itertools
import math
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import faults
import numpy as np
import pytest
from c_library import needs_library
from decoding import Ngrams, distrusts, in_random_pieces, occurrences, random_arpa, told

import dreamstream as ds
from dreamstream import nn
from dreamstream.decode import Endpoints, TransducerDecoder

TOKENS = ["-", "a", "b"]
ENCODED, PREDICTED = 5, 4


class Recurrent(nn.Module):
    def __init__(self, n=3):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(n, 6), nn.LSTM(6, PREDICTED, batch_first=True)

    def forward(self, tokens):
        return self.rnn(self.embedding(tokens))[0]


class OfTwo(nn.Module):
    """Of the last two tokens."""

    def __init__(self, n=3):
        super().__init__()
        self.embedding, self.conv = nn.Embedding(n, 6, padding_idx=0), nn.Conv1d(6, PREDICTED, 2)

    def forward(self, tokens):
        return self.conv(nn.functional.pad(self.embedding(tokens).transpose(1, 2), (1, 0))).transpose(1, 2)


class Joiner(nn.Module):
    def __init__(self, n=3):
        super().__init__()
        self.encoded, self.predicted, self.out = nn.Linear(ENCODED, 8), nn.Linear(PREDICTED, 8), nn.Linear(8, n)

    def forward(self, encoded, predicted):
        return self.out((self.encoded(encoded) + self.predicted(predicted)).tanh()) * 3


PREDICTORS = {"recurrent": Recurrent, "of two": OfTwo}


class Networks:
    """A transducer's, with their modules; numbers are large enough for scores to differ."""

    def __init__(self, name="recurrent", n=3):
        rng = np.random.default_rng(5)
        self.modules = PREDICTORS[name](n).eval(), Joiner(n).eval()
        for p in itertools.chain(*(module.parameters() for module in self.modules)):
            p.numpy()[...] = rng.standard_normal(p.shape)
        self.predictor = ds.compile(self.modules[0], ("B", "L"), dtype="int64")
        inputs = {"encoded": ("B", "L", ENCODED), "predicted": ("B", "L", PREDICTED)}
        self.joiner = ds.compile(self.modules[1], inputs)
        self.known = {}

    def decoder(self, tokens=TOKENS, **options):
        return TransducerDecoder(tokens, self.predictor, self.joiner, **options)

    def log_probs(self, encoded, tokens):
        """Of the token that follows, by whole modules."""
        key = encoded.tobytes(), tokens
        if key not in self.known:
            said = self.modules[0](ds.tensor(np.array([[0, *tokens]], np.int64))).numpy()[:, -1:]
            scores = self.modules[1](ds.tensor(encoded[None, None]), ds.tensor(said)).numpy()[0, 0].astype(float)
            self.known[key] = scores - np.logaddexp.reduce(scores)
        return self.known[key]

    def alignments(self, frames, most, best=False):
        """The log probability of every sequence: of all its alignments, or the best."""
        n = len(self.modules[1].out.bias.numpy())
        parts = [part for m in range(most + 1) for part in itertools.product(range(1, n), repeat=m)]
        found = defaultdict(lambda: -math.inf)
        for alignment in itertools.product(parts, repeat=len(frames)):
            score, tokens = 0.0, ()
            for frame, part in zip(frames, alignment):
                for token in part:
                    score += self.log_probs(frame, tokens)[token]
                    tokens += (token,)
                if len(part) < most:
                    score += self.log_probs(frame, tokens)[0]
            found[tokens] = max(found[tokens], score) if best else np.logaddexp(found[tokens], score)
        return dict(found)


@pytest.fixture(scope="module", params=PREDICTORS)
def networks(request):
    return Networks(request.param)


def frames(seed, n):
    return np.random.default_rng(seed).standard_normal((n, ENCODED)).astype(np.float32)


def whole(decoder, x, stream_id="x"):
    return decoder.step({stream_id: x}, sos=stream_id, eos=stream_id)[stream_id]


ALL = {"beam": 2000, "beam_threshold": 1e9, "n_best": 10_000}


@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize("n, most", [(0, 1), (1, 1), (5, 1), (3, 2), (2, 4)])
def test_every_sequence_has_its_probability(networks, n, most, best):
    x = frames(n, n)
    found = whole(networks.decoder(max_symbols=most, log_add=not best, **ALL), x).n_best
    expected = networks.alignments(x, most, best)
    assert {tuple(h.tokens) for h in found} == set(expected)
    for h in found:
        assert math.isclose(
            h.score, expected[tuple(h.tokens)], rel_tol=1e-6, abs_tol=1e-5
        )  # the networks are float32
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    if not best:
        assert math.isclose(np.logaddexp.reduce([h.score for h in found]), 0, abs_tol=1e-5)


@pytest.mark.parametrize("most", [1, 3])
def test_greedy_takes_the_best_token_every_time(networks, most):
    x, tokens, score, times = frames(7, 30), (), 0.0, []
    for t, frame in enumerate(x):
        for k in range(most):
            scores = networks.log_probs(frame, tokens)
            token = int(scores.argmax())
            score += scores[token]
            if token == 0:
                break
            tokens += (token,)
            times.append((t + k / most, t + (k + 1) / most))
    found = whole(networks.decoder(beam=0, max_symbols=most), x)
    assert tuple(found.tokens) == tokens and np.allclose(found.times, times) and len(tokens) > 3
    assert abs(found.score - score) < 1e-4 and len(found.n_best) == 1


@pytest.mark.parametrize("seed", range(3))
def test_words_and_phrases_count(networks, seed, tmp_path):
    """A language model of tokens, a word score and phrases, added to what the networks say."""
    text = random_arpa(np.random.default_rng(seed), TOKENS[1:])
    path = tmp_path / "lm.arpa"
    path.write_text(text)
    x, model = frames(seed, 4), Ngrams(text)
    options = {"lm": path, "lm_weight": 0.7, "word_score": 0.3, "hotwords": {"a b": 0.9}}
    for h in whole(networks.decoder(**options, **ALL), x).n_best:
        said = [TOKENS[k] for k in h.tokens]
        expected = networks.alignments(x, 1)[tuple(h.tokens)] + 0.7 * model.sentence(said) + 0.3 * len(said)
        assert abs(h.score - expected - 0.9 * occurrences(["a", "b"], said)) < 1e-5


# ---------------------------------------------------------------- streams
KINDS = {
    "greedy": {"beam": 0},
    "beam": {"beam": 4, "n_best": 4},
    "symbols": {"beam": 5, "n_best": 5, "max_symbols": 3, "beam_size_token": 2},
    "short": {"beam": 6, "max_pending": 4, "max_final": 6, "hotwords": {"a b a": 2.0}},
    "utterances": {"beam": 4, "endpoints": Endpoints(6, 3, 9)},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_chunks_batches_and_snapshots_change_no_bit(networks, kind, seed):
    rng, make = np.random.default_rng(seed), lambda: networks.decoder(**KINDS[kind])
    given = {f"s{k}": frames(10 * seed + k, int(rng.integers(0, 50))) for k in range(4)}
    alone = {i: told(whole(make(), x, i)) for i, x in given.items()}
    assert in_random_pieces(make, given, rng) == alone


def test_forks_and_engines_that_were_closed():
    networks = Networks()
    decoder, x = networks.decoder(beam=4), frames(3, 20)
    decoder.step({"a": x[:11]}, sos="a")
    decoder.fork("a", "b")
    networks.predictor.close()
    networks.joiner.close()
    a = decoder.step({"a": x[11:], "b": -x[11:]}, eos=["a", "b"])
    assert told(a["a"]) == told(whole(decoder, x)) != told(a["b"])


def test_every_byte_of_a_snapshot_is_distrusted(networks):
    decoder = networks.decoder(beam=3)
    decoder.step({"a": frames(1, 9)}, sos="a")
    distrusts(decoder, decoder.snapshot("a"), networks.decoder(beam=3, max_symbols=2))


def test_hours_take_no_more_memory_than_minutes(networks):
    decoder = networks.decoder(beam=4, max_pending=16, max_final=20)
    sizes = []
    for n in range(40):
        decoder.step({"x": frames(n, 100)}, sos="x" if n == 0 else ())
        sizes.append(len(decoder.snapshot("x")))
    assert max(sizes[20:]) <= 1.5 * max(sizes[:10])


def test_what_does_not_fit_is_said(networks):
    decoder = networks.decoder()
    with pytest.raises(ds.ShapeError, match=r"frames of the encoder of shape \(frames, 5\)"):
        decoder.step({"x": np.zeros((3, 4))}, sos="x")
    for value in np.nan, np.inf, -np.inf:
        x = frames(0, 4)
        x[2, 1] = value
        with pytest.raises(ds.StreamIndexError, match="frame 2"):
            decoder.step({"x": x, "y": frames(1, 3)}, sos=["x", "y"])
    assert decoder.ids == []
    for wrong, says in (
        (lambda: networks.decoder(tokens=["-", "a"]), "scores the 2 tokens, got one with 3"),
        (lambda: networks.decoder(lexicon={"a": "a"}), "has no lexicon"),
        (lambda: TransducerDecoder(TOKENS, networks.joiner, networks.joiner), "expected a predictor"),
        (lambda: TransducerDecoder(TOKENS, networks.predictor, networks.predictor), "expected a joiner"),
        (lambda: networks.decoder(max_symbols=0), "max_symbols"),
        (lambda: networks.decoder(max_symbols=9999), "max_symbols"),
    ):
        with pytest.raises((ValueError, ds.DreamStreamError), match=says):
            wrong()


class Remembers(Joiner):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 3, batch_first=True)

    def forward(self, encoded, predicted):
        return self.rnn(super().forward(encoded, predicted))[0]


class Waits(Recurrent):
    def forward(self, tokens):
        return super().forward(tokens)[:, 1:]


def test_networks_that_are_no_transducers(networks):
    inputs = {"encoded": ("B", "L", ENCODED), "predicted": ("B", "L", PREDICTED)}
    with pytest.raises(ValueError, match="a joiner that remembers nothing"):
        TransducerDecoder(TOKENS, networks.predictor, ds.compile(Remembers().eval(), inputs))
    waits = ds.compile(Waits().eval(), ("B", "L"), dtype="int64")
    with pytest.raises(ValueError, match="without delay"):
        TransducerDecoder(TOKENS, waits, networks.joiner)


@pytest.mark.parametrize("kind", ["greedy", "symbols"])
def test_words_are_told_once(networks, kind):
    """Also where several tokens come with one frame."""
    decoder, x, said, heard = networks.decoder(**KINDS[kind]), frames(4, 40), 0.0, []
    for at in range(0, len(x), 3):
        h = decoder.step({"x": x[at : at + 3]}, sos="x" if at == 0 else (), eos="x" if at + 3 >= len(x) else ())[
            "x"
        ]
        words, _ = h.since(said)
        heard += words
        said = words[-1].end if words else said
    assert [w.text for w in heard] == whole(networks.decoder(**KINDS[kind]), x).text.split()


EXAMPLE = Path(__file__).parent.parent.parent / "docs" / "examples" / "transducer.c"


@pytest.mark.skipif(not EXAMPLE.exists(), reason="the tests are away from the sources")
@needs_library
@pytest.mark.parametrize("more", [[], ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]])
def test_in_c(networks, c_build, tmp_path, more):
    """The example hears what the decoder in Python does, of frames in chunks of ten."""
    command = [sys.executable, "-m", "dreamstream.config", "--cflags", "--libs"]
    flags = shlex.split(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    program, files = tmp_path / "program", [tmp_path / name for name in ("p.dsm", "j.dsm", "tokens.txt")]
    cc = [*c_build.cc(), "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", EXAMPLE, "-o", program]
    subprocess.run([*cc, *flags, *more], check=True)
    networks.predictor.save(files[0]), networks.joiner.save(files[1]), files[2].write_text("\n".join(TOKENS))
    decoder = networks.decoder(beam=4, max_symbols=3)
    for n in 0, 10, 37:
        x = frames(n, n)
        done = subprocess.run([program, *files], input=x.tobytes(), capture_output=True, check=True)
        heard = whole(decoder, x)
        assert done.stdout.decode() == " ".join([*heard.text.split(), f"{heard.score:.6f}\n"])
    refused = subprocess.run([program, files[1], *files[1:]], input=b"", capture_output=True, check=False)
    assert refused.returncode == 1 and b"expected a predictor" in refused.stderr


@pytest.mark.parametrize("options", [{"beam": 0}, {"beam": 3, "max_symbols": 2, "hotwords": ["ab"]}])
def test_the_nth_allocation_fails(options):
    """Whichever it is, of the networks or the search: the streams are as they were, nothing is lost."""
    x = frames(1, 12)

    def fed(decoder, part):
        call = {"sos": "x"} if part == 0 else {"eos": "x"}
        found = decoder.step({"x": x[6 * part : 6 * part + 6]}, **call)["x"]
        return [(h.tokens, h.score) for h in found.n_best]

    undisturbed = Networks().decoder(**options)
    want = [fed(undisturbed, 0), undisturbed.snapshot("x"), fed(undisturbed, 1)]
    faults.install()
    try:
        networks, failed, blocks, place = Networks(), set(), None, "first"
        for nth in itertools.count(1):
            faults.arm(nth)
            decoder, found = None, []
            try:
                decoder, place = networks.decoder(**options), 0
                found, place = [fed(decoder, 0)], 1
                found, place = [*found, decoder.snapshot("x")], 2
                found, place = [*found, fed(decoder, 1)], 3
                decoder.restore(want[1], "y")
                place = "last"
            except MemoryError:
                failed.add(place)
                faults.arm(0)
                if decoder is not None and place in (0, 1, 2):  # once more, it is what it would have been
                    found += [fed(decoder, 0)] if place == 0 else []
                    found += [decoder.snapshot("x")] if place < 2 else []
                    found += [fed(decoder, 1)]
                    assert found == want
            faults.arm(0)
            del decoder
            gc.collect()
            left = faults.stats()
            blocks = left["live_blocks"] if blocks is None else blocks
            assert left["bad_releases"] == 0 and left["live_blocks"] <= blocks + 8  # what its networks keep
            if place == "last":
                break
        assert found == want and failed >= {"first", 0, 2, 3}, failed
    finally:
        faults.uninstall()
