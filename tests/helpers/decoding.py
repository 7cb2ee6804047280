"""Oracles of decoding: sums over all alignments, an n-gram model, a phrase counter, as plain as can be."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest

from dreamstream.errors import FormatError


def scores(rng, frames, tokens, flat=0.3):
    """Random log probabilities, float32."""
    return np.maximum(np.log(rng.dirichlet(np.full(tokens, flat), frames)), -60).astype(np.float32)


def alignments(log_probs, blank=0, best=False):
    """The log probability of every sequence of tokens: of all its alignments, or the best."""
    found = defaultdict(lambda: -math.inf)
    frames = np.asarray(log_probs, np.float64).tolist()
    n = len(frames[0]) if frames else 1
    for path in itertools.product(range(n), repeat=len(frames)):
        score = math.fsum(frame[k] for frame, k in zip(frames, path))
        tokens = tuple(k for k, _ in itertools.groupby(path) if k != blank)
        found[tokens] = max(found[tokens], score) if best else np.logaddexp(found[tokens], score)
    return dict(found)


class Ngrams:
    """An ARPA file, read line by line; base-10 logarithms."""

    def __init__(self, text):
        self.grams, self.order = {}, 0
        for line in text.splitlines():
            parts = line.split()
            if line.startswith("\\") and line.endswith("-grams:"):
                self.order = int(line[1:].split("-")[0])
            elif self.order and parts and not line.startswith("\\"):
                words = tuple(parts[1 : 1 + self.order])
                backoff = float(np.float32(parts[1 + self.order])) if len(parts) > 1 + self.order else 0.0
                self.grams[words] = float(np.float32(parts[0])), backoff

    def score(self, history, word):
        """Of a word behind all that came before, by the definition of back-off."""
        if (word,) not in self.grams:
            word = "<unk>"
        history = tuple(w if (w,) in self.grams else "<unk>" for w in history)[-(self.order - 1) or len(history) :]
        if (*history, word) in self.grams:
            return self.grams[(*history, word)][0]
        if not history:
            return -100.0  # no <unk>
        return self.grams.get(history, (0, 0.0))[1] + self.score(history[1:], word)

    def sentence(self, words):
        """Of words between <s> and </s>."""
        every = ["<s>", *words, "</s>"]
        return math.fsum(self.score(tuple(every[:i]), every[i]) for i in range(1, len(every)))


def random_arpa(rng, words, order=3, unk=True, ends=False):
    """An ARPA file in which every n-gram's beginning has one of its own, and every end too, where asked for."""

    def number(low, high):
        return f"{-rng.uniform(low, high):.4f}"

    known = ["<s>", "</s>", *(["<unk>"] if unk else []), *words]
    sections = [[(w, "-99" if w == "<s>" else number(0.3, 2), number(-0.3, 1)) for w in known]]
    for _ in range(order - 1):
        before = [context for context, *_ in sections[-1] if "</s>" not in context and "<unk>" not in context]
        pairs = [f"{context} {w}" for context in before for w in [*words, "</s>"] if rng.random() < 0.5]
        if ends:
            pairs = [pair for pair in pairs if pair.split(" ", 1)[1] in {gram for gram, *_ in sections[-1]}]
        sections.append([(gram, number(0.1, 2), number(-0.3, 1)) for gram in pairs])
    sections[-1] = [(gram, p, "") for gram, p, _ in sections[-1]]
    lines = ["\\data\\", *(f"ngram {n}={len(grams)}" for n, grams in enumerate(sections, 1))]
    for n, grams in enumerate(sections, 1):
        lines += ["", f"\\{n}-grams:", *("\t".join(filter(None, (p, gram, b))) for gram, p, b in grams)]
    return "\n".join([*lines, "", "\\end\\", ""])


def occurrences(phrase, sequence):
    """How often a phrase stands in a sequence, overlaps included."""
    n = len(phrase)
    return sum(tuple(sequence[i : i + n]) == tuple(phrase) for i in range(len(sequence) - n + 1))


def told(h):
    """All that a result says."""
    parts = [(g.tokens, g.score, g.times, g.confidences) for g in h.n_best]
    return h.text, h.final, h.words, h.left, h.endpoints, h.frames, parts


def in_random_pieces(make, given, rng):
    """What streams say in random chunks and batches, in one decoder after another; nothing final is taken back."""
    decoder, at, final, got = make(), {}, dict.fromkeys(given, ""), {}
    while len(got) < len(given):
        chunks, sos, eos = {}, [], []
        for i in given:
            if i in got or rng.random() < 0.3:
                continue
            sos += [i] * (i not in at)
            begin, n = at.get(i, 0), int(rng.integers(0, 9))
            chunks[i], at[i] = given[i][begin : begin + n], begin + n
            eos += [i] * (at[i] >= len(given[i]) and rng.random() < 0.6)
        for i, h in decoder.step(chunks, sos=sos, eos=eos).items():
            assert h.text.startswith(h.final)
            if not h.left:
                assert h.final.startswith(final[i]), "what was final was taken back"
                final[i] = h.final
            if i in eos:
                got[i] = told(h)
        if rng.random() < 0.4:
            states, decoder = {i: decoder.snapshot(i) for i in decoder.ids}, make()
            for i, state in states.items():
                assert decoder.restore(state, i) == i and decoder.snapshot(i) == state
    return got


def distrusts(decoder, data, other):
    """A decoder refuses what is not all of a snapshot, has a byte changed, or is for another decoder."""
    rng = np.random.default_rng(0)
    for n in range(0, len(data), 7):
        with pytest.raises(FormatError):
            decoder.restore(data[:n], "b")
    for at in range(0, len(data), 5):
        for change in (1 << at % 8, int(rng.integers(1, 256))):
            wrong = bytearray(data)
            wrong[at] ^= change
            with pytest.raises(FormatError):
                decoder.restore(bytes(wrong), "b")
    with pytest.raises(FormatError, match="same tokens, files and options"):
        other.restore(data, "b")
    assert decoder.ids == ["a"] and decoder.snapshot("a") == data
