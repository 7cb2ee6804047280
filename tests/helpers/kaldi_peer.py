"""What kaldi-native-fbank, where it is installed, makes of samples with the options of Kaldi's layers here."""

import numpy as np
import pytest

_THEIRS = {"num_mel_bins": "num_bins", "sample_frequency": "samp_freq", "frame_length": "frame_length_ms",
           "frame_shift": "frame_shift_ms", "preemphasis_coefficient": "preemph_coeff"}  # fmt: skip


def of_kaldi(kind, x, options):
    """Return the frames of samples, of "Fbank" or "Mfcc"; without dither and a floor under energies."""
    peer = pytest.importorskip("kaldi_native_fbank")
    o = getattr(peer, f"{kind}Options")()
    o.frame_opts.dither = o.energy_floor = 0.0
    if kind == "Fbank":
        o.mel_opts.num_bins, o.mel_opts.norm, o.mel_opts.use_slaney_mel_scale = 80, "", False
    else:
        o.use_energy = False
    for name, value in options.items():
        name = _THEIRS.get(name, name)
        setattr(next(p for p in (o.frame_opts, o.mel_opts, o) if hasattr(p, name)), name, value)
    other = getattr(peer, f"Online{kind}")(o)
    other.accept_waveform(o.frame_opts.samp_freq, x.tolist())
    other.input_finished()
    return np.stack([other.get_frame(i) for i in range(other.num_frames_ready)])
