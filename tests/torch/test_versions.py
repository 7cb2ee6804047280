"""The bridge says at once which versions of torch it takes."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LATER = """import torch; torch.__version__ = '2.14.1+cpu'
import dreamstream as ds
ds.patch_module(torch.nn.Linear(2, 2))"""


@pytest.mark.fast
def test_a_later_torch_is_refused_by_its_version():
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, cwd=ROOT)
    assert "ImportError: dreamstream.torch takes torch 2.10 to 2.13, not 2.14.1+cpu: pip install" in done.stderr


def test_what_is_installed_with_the_extras_is_taken():
    """The limit of the packages is that of the bridge."""
    asked = (ROOT / "pyproject.toml").read_text(encoding="utf-8").count('"torch>=2.10,<2.14"')
    bridge = (ROOT / "dreamstream" / "torch" / "__init__.py").read_text(encoding="utf-8")
    assert asked == 4 and ">= (2, 14)" in bridge
