"""Fixtures for all tests."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

try:
    import hypothesis
except ImportError:  # the tests that need it say so themselves
    pass
else:
    hypothesis.settings.register_profile(
        "dreamstream", deadline=None, derandomize=True, print_blob=True, max_examples=50
    )
    hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dreamstream"))


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers, the same in every run."""
    return np.random.default_rng(20240229)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of recordings and reference outputs that DREAMSTREAM_TEST_DATA names, else a skip."""
    folder = os.environ.get("DREAMSTREAM_TEST_DATA")
    if not folder:
        pytest.skip("DREAMSTREAM_TEST_DATA does not name a folder of test data")
    if not Path(folder).is_dir():
        pytest.fail(f"DREAMSTREAM_TEST_DATA={folder} is not a folder")
    return Path(folder)


@pytest.fixture(scope="session")
def c_build():
    """The module tests/c/build.py."""
    path = Path(__file__).parent / "c" / "build.py"
    spec = importlib.util.spec_from_file_location("dreamstream_tests_c_build", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
