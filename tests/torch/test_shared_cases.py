"""One table of cases through every front end: all say what torch says offline, at the same calls.

Cases stand in tests/helpers/shared_cases; ``-k NAME`` picks one, ``-k FRONT_END`` a way in. In the default tier a
case is compiled from both libraries and patched in one of them; one in 48 is exported, in one format. All of
them in every way::

    pytest -m "slow or not slow" tests/torch/test_shared_cases.py
"""

import numpy as np
import pytest
import torch
from shared_cases import CASES, EXPORTS, FRONT_ENDS, baseline, schedule, theirs
from shared_cases.checks import require_offline
from turns import by_turns, in_blocks

import dreamstream as ds
from dreamstream.stream.tree import leaves

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")  # torch's own


def first(name):
    """The front end of the baseline, which runs every case."""
    return "native-compiled" if CASES[name].native else "torch-compiled"


def another(name, way):
    """Whether a front end has a case that it isn't the first of."""
    return way != first(name) and FRONT_ENDS[way].applies(CASES[name])


#: Case by case, so that what one way has prepared of a case is there for the next.
PAIRS = sorted(
    [
        *(pytest.param(name, first(name)) for name in CASES),
        *(p for p in by_turns(CASES, list(FRONT_ENDS), another) if p.values[1] != first(p.values[0])),
        *by_turns(
            CASES,
            list(EXPORTS),
            lambda name, way: CASES[name].exports and (CASES[name].onnx or "onnx" not in way),
            one_in=48,
        ),
    ],
    key=lambda pair: list(CASES).index(pair.values[0]),
)


@pytest.mark.parametrize(("name", "way"), PAIRS)
def test_case(name, way):
    """Outputs laid end to end are torch's offline; counts and starts are those of the other front ends."""
    if way in EXPORTS:
        said(EXPORTS[way], CASES[name])
        return
    other, same = baseline(CASES[name])
    run = said(FRONT_ENDS[way], CASES[name], same if way == other else None)
    assert run.counts == same.counts, f"{way} and {other} differ in counts"


def said(front_end, case, run=None):
    """Run a case, if that is to be done yet, and compare with torch offline."""
    if not front_end.applies(case):
        pytest.skip(f"{front_end.name} has no {case}")
    plan = schedule(case)
    run = run or front_end.run(case, plan)
    assert require_offline(case, plan, run, front_end.name), "nothing came out"
    return run


@in_blocks("name", CASES, 30)
def test_offline_is_untouched(name):
    """A patched module offline is the module, to the bit; twice is once; unpatched it is as it was."""
    case = CASES[name]
    model = theirs(case)
    before = outputs_of(model, case)
    kinds = [type(m) for m in model.modules()]
    keys = list(model.state_dict())
    assert ds.patch_module(ds.patch_module(model, **case.options), **case.options) is model
    assert same(outputs_of(model, case), before)
    assert same(outputs_of(model.online().offline(), case), before)
    assert list(model.state_dict()) == keys
    assert ds.unpatch_module(model) is model
    assert [type(m) for m in model.modules()] == kinds and not hasattr(model, "online")
    assert same(outputs_of(model, case), before)


def outputs_of(model, case):
    """What the module says of two sequences of equal length."""
    rng = np.random.default_rng(1)
    n = (2 * case.reach + 6) // case.multiple * case.multiple
    rows = []
    for x in case.inputs:
        pair = [x.arranged(x.frames(rng, int(n * x.rate))) for _ in range(2)]
        rows.append(torch.from_numpy(np.stack(pair, x.dims.index("B"))))
    with torch.no_grad():
        return leaves(model(*rows))


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))
