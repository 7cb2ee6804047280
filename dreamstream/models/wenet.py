"""Recognisers that WeNet trained: the folder it leaves, as a network of samples."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

from .. import nn
from ..errors import FormatError, ShapeError
from ..stream.context import Context
from .u2 import U2Encoder
from .wav2letter import Recogniser

#: Options of encoders that have to be as they usually are; and those that change nothing that is computed here.
_USUAL = {
    "query_bias": True,
    "key_bias": True,
    "value_bias": True,
    "layer_norm_type": "layer_norm",
    "n_kv_head": None,
    "head_dim": None,
    "mlp_type": "position_wise_feed_forward",
    "mlp_bias": True,
    "conv_norm_eps": 1e-5,
    "conv_inner_factor": 2,
    "final_norm": True,
    "positionwise_conv_kernel_size": 1,
    "concat_after": False,
}
_FREE = ("gradient_checkpointing", "use_sdpa", "n_expert", "n_expert_activated")


class Fbank(nn.KaldiFbank):
    """Kaldi's features of samples within ±1."""

    def forward(self, input: Any) -> Any:
        """Return the bands' logarithms ``(B, frames, num_mel_bins)``."""
        return super().forward(input * 32768.0)


def load_wenet(
    folder: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None, context: Context | None = None
) -> Recogniser:
    """Return features, encoder and CTC head of a model that WeNet trained.

    Parameters
    ----------
    folder : path
        It has ``train.yaml``, and ``final.pt`` or one other checkpoint, of tensors only.
    weights : path, optional
        The checkpoint, a ``.pt`` or ``.safetensors`` file.
    context : Context, optional
        What attention sees, in frames of scores; by default chunks of ``static_chunk_size`` frames, or of 16, and
        64 frames before them.

    Returns
    -------
    Recogniser
        In evaluation. Input ``(B, L)``, samples within ±1 at its `rate`; output ``(B, frames, tokens)``,
        logarithms of probabilities.

    Raises
    ------
    FormatError
        For what is no such folder, encoders that aren't Conformers or Transformers, and options that change what
        is computed and are not known here.
    ImportError
        Without the packages PyYAML, and for a ``.pt`` file torch.

    Notes
    -----
    Loading runs nothing of the checkpoint: ``torch.load(…, weights_only=True)``. The means and deviations of
    features come from it, too. **Streaming.** The delay is that of `U2Encoder`, and a window of samples.

    Source: WeNet, ``init_model`` and ``compute_fbank``.
    """
    folder = Path(folder)
    path = folder / "train.yaml"
    config = _config(path)
    tensors = read_tensors(checkpoint(folder) if weights is None else Path(weights))
    if "ctc.ctc_lo.weight" not in tensors:
        raise FormatError(f"{folder}: the checkpoint has no CTC head, ctc.ctc_lo.weight")
    try:
        rate, features = _features(config)
        encoder = _encoder(config, tensors, features.num_mel_bins, context)
        encoder.load_state_dict(tensors)
    except (ShapeError, FormatError, TypeError) as error:
        raise FormatError(f"{path}: {error}") from error
    net = Recogniser(features, encoder)
    net.spec, net.rate = ("B", "L"), rate
    return net.eval()


def checkpoint(folder: Path) -> Path:
    """Return the file of a folder that has the weights: ``final.pt``, or the only one there is."""
    found = sorted(p for p in folder.iterdir() if p.suffix in (".pt", ".safetensors"))
    final = [p for p in found if p.stem == "final"]
    if len(found) > 1 and len(final) == 1:
        found = final
    if len(found) != 1:
        names = ", ".join(p.name for p in found) or "none"
        raise FormatError(f"{folder}: expected one checkpoint, .pt or .safetensors, found {names}; --weights FILE")
    return found[0]


def read_tensors(path: Path) -> dict[str, Any]:
    """Return the arrays of a safetensors file, or of one of torch's, of which nothing is executed."""
    if path.suffix == ".safetensors":
        return nn.state.read_safetensors(path)
    try:
        import torch
    except ImportError:
        raise ImportError(f"{path} is torch's: pip install 'dreamstream[torch]'") from None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged file, or one of more than tensors, leads to
        text = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise FormatError(f"{path} is no checkpoint of tensors only: {text}") from error
    for key in ("model", "state_dict"):  # what others keep beside step and epoch
        found = found[key] if isinstance(found, dict) and isinstance(found.get(key), dict) else found
    if not isinstance(found, dict) or not all(isinstance(v, torch.Tensor) for v in found.values()):
        raise FormatError(f"{path} is no checkpoint of tensors by name")
    return {k: v.float().numpy() if v.is_floating_point() else v.numpy() for k, v in found.items()}


def _config(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise ImportError(f"{path} needs the package PyYAML: pip install 'dreamstream[convert]'") from None
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict) or not isinstance(found.get("encoder_conf"), dict):
        raise FormatError(f"{path}: expected the settings of a model, with encoder_conf")
    return found


def _features(config: dict[str, Any]) -> tuple[int, Fbank]:
    """Return the sample rate and the features of a model's settings."""
    data = config.get("dataset_conf") or {}
    kind = data.get("feats_type", "fbank")
    if kind != "fbank":
        raise FormatError(f"dataset_conf: feats_type {kind!r}: expected 'fbank'")
    options = dict(data.get("fbank_conf") or {})
    options.pop("dither", None)  # noise, in training
    if unknown := set(options) - {"num_mel_bins", "frame_length", "frame_shift", "window_type"}:
        raise FormatError(f"dataset_conf: fbank_conf: {sorted(unknown)[0]!r} is not known")
    rate = int((data.get("resample_conf") or {}).get("resample_rate", 16000))
    return rate, Fbank(**{"num_mel_bins": 23, **options}, sample_frequency=float(rate))


def _encoder(config: dict[str, Any], tensors: dict[str, Any], n_features: int, context: Any) -> U2Encoder:
    kind = config.get("encoder", "conformer")
    if kind not in ("conformer", "transformer"):
        raise FormatError(f"encoder {kind!r}: expected 'conformer' or 'transformer'")
    own, options = inspect.signature(U2Encoder).parameters, {}
    for name, value in config["encoder_conf"].items():
        if name in own:
            options[name] = value
        elif name not in _FREE and (name not in _USUAL or value != _USUAL[name]):
            raise FormatError(f"encoder_conf: {name}: {value!r} is not computed here")
    mean = tensors.get("encoder.global_cmvn.mean")
    cmvn = None if mean is None else nn.GlobalCMVN(mean, tensors["encoder.global_cmvn.istd"])
    beside = any(name.endswith("self_attn.pos_bias_u") for name in tensors)  # positions, beside keys
    options |= {
        "selfattention_layer_type": "rel_selfattn" if beside else "selfattn",
        "context": context or Context(options.get("static_chunk_size") or 16, 64),
        "global_cmvn": cmvn,
        "architecture": kind,
        "vocab_size": len(tensors["ctc.ctc_lo.weight"]),
    }
    if (size := config.get("input_dim", n_features)) != n_features:
        raise FormatError(f"input_dim is {size}, and features have {n_features} bands")
    return U2Encoder(n_features, **options)
