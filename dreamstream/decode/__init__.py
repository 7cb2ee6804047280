"""From the scores of a recogniser to words: decoders with streams by id, as an engine has them."""

from .ctc import CTCDecoder, Endpoints, greedy, log_probabilities
from .hypotheses import Hypotheses, Hypothesis, Word

__all__ = ["CTCDecoder", "Endpoints", "Hypotheses", "Hypothesis", "Word", "greedy", "log_probabilities"]
