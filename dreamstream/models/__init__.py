"""Models that are ready to load: networks whose trained weights others have published.

Each has its original's argument names and `state_dict` layout; weights are not part of the package, those of
`SileroVAD` are found in another one.
"""

from .conformer_moe import ConformerMoE
from .silero import SileroVAD
from .transformer import StreamingTransformer
from .u2 import GlobalCMVN, U2Encoder

__all__ = ["ConformerMoE", "GlobalCMVN", "SileroVAD", "StreamingTransformer", "U2Encoder"]

COMPLETE = ("SileroVAD",)
"""Those that are one network: made without arguments, or by `pretrained=True`, with a `spec` and a
`sample_rate`."""
