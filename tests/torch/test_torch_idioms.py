"""The idioms of tests/laws as torch forwards: accepted ones stream as torch says offline, others are refused.

They are the same files, read with torch in the place of dreamstream: see tests/helpers/shared_cases/idioms.py.
"""

import pytest
import torch
from shared_cases.idioms import read_as_torch

#: Tests of what torch doesn't have, or means otherwise.
ELSEWHERE = {
    "test_padding_by_name_is_causal": "torch has no such padding",
    "test_positions_and_writing_in_place": "torch writes into what the test compares with",
    "test_the_largest_of_several_axes": "refused by torch's parser of arguments",
    "test_reductions[prod]": "torch multiplies along one axis",
    "test_reductions[prod of integers]": "torch multiplies along one axis",
    "test_names_stay_with_their_dimensions": "torch's parser of arguments takes no names",
    "test_bits_are_those_of_linear": "torch's products have bits of their own",
}

for _file in ("test_idioms", "test_idioms_features", "test_idioms_refused"):
    for _name, _test in vars(read_as_torch(_file)).items():
        if _name.startswith("test_"):
            globals()[_name] = _test


@pytest.fixture(autouse=True)
def as_torch_means_it(request):
    if request.node.name in ELSEWHERE:
        pytest.skip(ELSEWHERE[request.node.name])
    torch.manual_seed(0)
    with torch.no_grad():
        yield
