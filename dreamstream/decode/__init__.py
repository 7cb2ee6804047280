"""From the scores of a recogniser to words: decoders with streams by id, as an engine has them."""

from .ctc import CTCDecoder, greedy, log_probabilities
from .decoder import Endpoints
from .hypotheses import Hypotheses, Hypothesis, Word
from .transducer import TransducerDecoder

__all__ = [
    "CTCDecoder", "Endpoints", "Hypotheses", "Hypothesis", "TransducerDecoder", "Word", "greedy",
    "log_probabilities",
]  # fmt: skip
