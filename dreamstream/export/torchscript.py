"""torchscript: a streaming model as a file that torch alone runs."""

from __future__ import annotations

import json
import os
import warnings
from typing import IO, Any

import torch

from ..torch.export import functionalize


def torchscript(
    model: Any,
    spec: Any,
    path: str | os.PathLike[str] | IO[bytes],
    rate: Any = 1,
    dtype: Any = "float32",
    skew: int = 0,
) -> dict[str, Any]:
    """Save a model as TorchScript: `torch.jit.load` gives the module that `functionalize` describes.

    Any number of rows and of frames. The manifest is the loaded module's attribute `manifest`, as text, and the
    archive's extra file ``manifest.json``.

    Parameters
    ----------
    model, spec, rate, dtype, skew
        As for :func:`dreamstream.torch.functionalize`.
    path : path or file object
        Where it goes; conventionally ``*.pt``.

    Returns
    -------
    dict
        The manifest.

    Raises
    ------
    CaptureError, NotStreamableError
        As for :func:`dreamstream.torch.functionalize`.
    """
    module = functionalize(model, spec, rate, dtype, skew)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about its own code
        scripted = torch.jit.script(module)
        torch.jit.save(scripted, path, _extra_files={"manifest.json": json.dumps(module.manifest)})
    return module.manifest
