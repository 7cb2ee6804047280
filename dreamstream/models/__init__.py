"""Models that are ready to load: networks whose trained weights others have published.

Each has its original's argument names and `state_dict` layout; weights are not part of the package, those of
`SileroVAD` are found in another one.
"""

from .conformer_moe import ConformerMoE
from .silero import SileroVAD
from .tds import TDSNet
from .transformer import StreamingTransformer
from .u2 import GlobalCMVN, U2Encoder
from .wav2letter import load_wav2letter

__all__ = [
    "ConformerMoE",
    "GlobalCMVN",
    "SileroVAD",
    "StreamingTransformer",
    "TDSNet",
    "U2Encoder",
    "load_wav2letter",
]

COMPLETE = ("SileroVAD",)
"""Those that are one network: made without arguments, or by `pretrained=True`, with a `spec` and a
`sample_rate`."""
