"""Models that are ready to load: one that was trained here, and networks whose weights others have published.

The weights of `Commands` come with this package, those of `SileroVAD` with another one. What others have published
has its original's argument names and `state_dict` layout.
"""

from ..nn.cepstra import GlobalCMVN
from .commands import Commands
from .conformer_moe import ConformerMoE
from .silero import SileroVAD
from .tds import TDSNet
from .transformer import StreamingTransformer
from .u2 import U2Encoder
from .wav2letter import load_wav2letter
from .wenet import load_wenet

__all__ = [
    "Commands", "ConformerMoE", "GlobalCMVN", "SileroVAD", "StreamingTransformer", "TDSNet", "U2Encoder",
    "load_wav2letter", "load_wenet",
]  # fmt: skip

COMPLETE = ("SileroVAD", "Commands")
"""Those that are one network: made without arguments, or by `pretrained=True`, with a `spec` and a
`sample_rate`."""
