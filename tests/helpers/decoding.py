"""Oracles of decoding: sums over all alignments, an n-gram model, a phrase counter, as plain as can be."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np


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
