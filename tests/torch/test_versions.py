"""The bridge says at once which versions of torch it takes, and what it knows of their inner names is so."""

import importlib
import inspect
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from dreamstream.torch import private

ROOT = Path(__file__).parent.parent.parent
VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
LATER = """import torch; torch.__version__ = '2.15.0+cpu'
import dreamstream as ds
ds.patch_module(torch.nn.Linear(2, 2))"""

#: Functions of `CALLS_USERS` that torch has from a version on.
SINCE = {("torch.utils.checkpoint", "__call__"): (2, 14), ("torch.utils.checkpoint", "_checkpoint_impl"): (2, 14)}


@pytest.mark.fast
def test_of_a_later_torch_a_warning_says_what_to_do():
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0
    assert "StreamWarning: dreamstream.torch relies on inner names of torch 2.10 to 2.14" in done.stderr
    assert "was not tried with torch 2.15.0+cpu" in done.stderr and "pip install 'torch<2.15'" in done.stderr


def test_what_is_installed_with_the_extras_is_taken():
    """The limit of the packages is that of the bridge."""
    asked = (ROOT / "pyproject.toml").read_text(encoding="utf-8").count('"torch>=2.10,<2.15"')
    bridge = (ROOT / "dreamstream" / "torch" / "__init__.py").read_text(encoding="utf-8")
    assert asked == 4 and ">= (2, 15)" in bridge


def test_apply_is_builtin_from_torch_2_14_on():
    builtin = VERSION >= (2, 14)
    assert type(private.APPLY) is (types.ClassMethodDescriptorType if builtin else classmethod)
    assert type(torch.autograd.Function.apply) is (types.BuiltinMethodType if builtin else types.MethodType)


def test_functions_that_call_users_are_there():
    for module, name in private.CALLS_USERS:
        source = inspect.getsource(importlib.import_module(module))
        assert (f"def {name}(" in source) is (SINCE.get((module, name), VERSION) <= VERSION), (module, name)
