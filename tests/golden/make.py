"""Make the golden file of a version of the format, once, when the version is released.

    python tests/golden/make.py            # version_1.dsm; its frames and outputs with --outputs

The file comes from the writer in tests/helpers/dsm_files.py. The outputs are what the engine gave on the day when
they were made: they never change for a version that was released.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "helpers"))
from dsm_files import container, pattern, small_model, text_of

TOOL = HERE.parent / "c" / "model_tool.c"


def version_1() -> bytes:
    """The file."""
    model, arrays = small_model()
    return container(arrays, text_of(model))


def frames_of_version_1() -> np.ndarray:
    """The stream on which its outputs are known: (40, 4)."""
    return pattern(40, 4, step=61) * np.float32(3)


def outputs(program: Path) -> np.ndarray:
    """What `model_tool run` gives: all outputs, one after the other."""
    import subprocess

    with tempfile.TemporaryDirectory() as folder:
        frames, out = Path(folder) / "frames", Path(folder) / "out"
        frames.write_bytes(frames_of_version_1().tobytes())
        subprocess.run([program, "run", HERE / "version_1.dsm", frames, out], check=True)
        return np.fromfile(out, "<f4")


def main() -> None:
    """Write the file, and its outputs if asked to."""
    (HERE / "version_1.dsm").write_bytes(version_1())
    if "--outputs" in sys.argv:
        spec = importlib.util.spec_from_file_location("c_build", HERE.parent / "c" / "build.py")
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        y = outputs(build.build("noblas", [TOOL]).programs[TOOL.stem])
        tags, mean = y[:-3].reshape(-1, 5), y[-3:]
        np.savez(HERE / "version_1.npz", x=frames_of_version_1(), tags=tags, mean=mean)


if __name__ == "__main__":
    main()
