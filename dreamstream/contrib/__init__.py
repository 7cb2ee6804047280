"""What other packages' layers and functions mean for streams, where their forwards ask what a stream can't answer.

Each is registered by its name, as a user registers it (`dreamstream.register`): no package is loaded for it.
"""

from . import codecs, denoiser, positions, recognition, torchaudio, transformers  # noqa: F401
