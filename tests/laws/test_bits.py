"""The same bits on every instruction set, with and without OpenBLAS, with any number of threads.

Each setting is a process of its own that streams models and operators and prints hashes.
"""

import json

import pytest
from processes import HELPERS, VARIANTS, printed


def stream(setting: str, *words: str) -> dict:
    return json.loads(printed("-m", "ds_laws.bits", *words, cwd=HELPERS, setting=setting))


@pytest.mark.parametrize("words", [("batched",), pytest.param((), marks=pytest.mark.slow)], ids=len)
def test_bits_are_those_of_the_reference(words):
    """By default batches of float32, by the best instruction set: laws hold the rest of one, and the programs
    tests/c/test_ops.c and test_kernels_*.c each operator's and each kernel's of all."""
    reference = stream("ref", *words)["hashes"]
    assert len(reference) > (250 if words else 500)
    for setting in VARIANTS[-1:] if words else VARIANTS[1:]:
        found = stream(setting, *words)
        assert found["kernels"] == setting, "the instruction set was not taken"
        assert found["hashes"].keys() == reference.keys()
        differ = [name for name, bits in found["hashes"].items() if reference[name] != bits]
        assert not differ, f"{setting}: other bits in {', '.join(differ[:10])}"
