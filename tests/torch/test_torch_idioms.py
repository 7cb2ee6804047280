"""The idioms of tests/laws as torch forwards: accepted ones stream as torch says offline, others are refused.

They are the same files, read with torch in the place of dreamstream: see tests/helpers/shared_cases/idioms.py.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from shared_cases.idioms import read_as_torch

torch.set_num_threads(1)

#: Tests of what torch doesn't have, or means otherwise.
ELSEWHERE: dict[str, str] = {}

for _file in ("test_idioms", "test_idioms_features", "test_idioms_refused"):
    for _name, _test in vars(read_as_torch(_file)).items():
        if _name.startswith("test_") and _name not in ELSEWHERE:
            globals()[_name] = _test


@pytest.fixture(autouse=True)
def no_gradients():
    torch.manual_seed(0)
    with torch.no_grad():
        yield
