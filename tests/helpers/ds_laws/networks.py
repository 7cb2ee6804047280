"""Networks of the package: from a text that describes one, and from a file of another program's."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from cereal import written

from dreamstream import nn
from dreamstream.models import TDSNet, load_wav2letter

BANDS = 4
_TEXT = """PD 0 3 1
C2 1 2 5 1 2 1 0 0
R
LN 1 2
TDS 2 4 4 0.1 6 1 0
C2 2 3 3 1 1 1 0 0
TDS 3 3 4 0.1 0 0 0
L 12 NLABEL
"""


def _file() -> nn.Module:
    def zeros(*shape: int) -> Any:
        return np.zeros(shape, np.float32)

    inner = (
        "Sequential",
        ("LinearFbGemm", zeros(8, 6), zeros(6)),
        ("Relu",),
        ("LinearFbGemm", zeros(6, 8), zeros(8)),
    )
    modules = (
        ("LocalNorm", BANDS, 7, 0),
        ("Conv1dFbGemm", zeros(2, 5, 1), zeros(2), BANDS, 3, 1, 4),
        ("Relu",),
        ("Residual", inner),
        ("LayerNorm", 8, 1.0, 0.0),
        ("Residual", ("Conv1dFbGemm", zeros(2, 4, 2), zeros(2), BANDS, 1, 1, 2)),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "acoustic_model.bin"
        path.write_bytes(written(*modules))
        return load_wav2letter(path)


MAKERS = {"tds-from-a-text": lambda: TDSNet(_TEXT, BANDS, 5), "tds-from-a-file": _file}
