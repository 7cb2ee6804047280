"""The ways into the engine, behind one face: each runs a case's schedule and says what came out of every call.

``DREAMSTREAM_TORCH_DEVICE=cuda`` runs torch's modules there.
"""

import io
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch

import dreamstream as ds
from dreamstream.stream.tree import leaves

from .case import Case, theirs, twin, without_l
from .streaming import Row, Run, Schedule, schedule

Data = Mapping[str, Sequence[Any]]

DEVICE = os.environ.get("DREAMSTREAM_TORCH_DEVICE", "cpu")
if DEVICE != "cpu":
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


class FrontEnd(Protocol):
    """One way in."""

    name: str

    def applies(self, case: Case) -> bool:
        """Whether it can run the case."""

    def run(self, case: Case, plan: Schedule) -> Run:
        """Make the plan's calls."""

    def refused(self, case: Case, data: Data) -> set[str]:
        """Return the streams that can't be."""


# ---------------------------------------------------------------- tensors of streams
def tensors_of(case: Case, call: Sequence[Row], data: Data, plain: bool) -> list[Any]:
    """Return a call's inputs as tensors of streams, of torch or not."""
    out = []
    for k, x in enumerate(case.inputs):
        rows: Any = [x.arranged(data[r.id][k][slice(*r.cuts[k])]) for r in call]
        names = [d if isinstance(d, str) else None for d in x.dims]
        if not rows:  # nor does a list of none say what frames are like
            rows = np.zeros([d if isinstance(d, int) else 0 for d in x.dims], x.dtype)
        if not plain:
            rows = [torch.from_numpy(r).to(DEVICE) for r in rows] if call else torch.from_numpy(rows).to(DEVICE)
        sos, eos = [r.sos for r in call], [r.eos for r in call]
        out.append(ds.stream_tensor(rows, names=names, ids=[r.id for r in call], sos=sos, eos=eos, rate=x.rate))
    return out


def collected(run: Run, call: Sequence[Row], result: Any) -> None:
    """Add what a call returned, as tensors of streams."""
    outputs = leaves(result)
    for y in outputs:
        assert list(y.ids) == [r.id for r in call]
        assert [bool(s) for s in y.sos] == [r.sos for r in call]
        assert [bool(e) for e in y.eos] == [r.eos for r in call]
    frames = [[np.moveaxis(_array(y[r.id]), without_l(y.names), 0) for r in call] for y in outputs]
    for y, rows in zip(outputs, frames):
        assert [len(r) for r in rows] == [int(n) for n in y.lengths]
    run.add(call, [y.names for y in outputs], frames, [[int(s) for s in y.starts] for y in outputs])


def _array(row: Any) -> Any:
    return row.detach().cpu().numpy().copy() if isinstance(row, torch.Tensor) else row.numpy().copy()


class _Stepped:
    """Calls with tensors of streams, as a module or an engine takes them."""

    name = ""
    plain = True  # NumPy's arrays go in

    def applies(self, case: Case) -> bool:
        return case.native

    def open(self, case: Case) -> Any:
        """Return what is called."""
        raise NotImplementedError

    def close(self, stream: Any) -> None:
        """Check that no stream is left."""
        assert list(stream.live_ids if hasattr(stream, "live_ids") else stream.ids) == []

    def refused(self, case: Case, data: Data) -> set[str]:
        """Return the streams that can't be, each in one chunk, alone: errors name them, nothing is left."""
        stream, refused = self.open(case), set()
        for i, arrays in data.items():
            row = Row(i, True, True, tuple((0, len(a)) for a in arrays))
            try:
                with torch.no_grad():
                    stream(*tensors_of(case, (row,), data, self.plain))
            except ds.DreamStreamError as error:
                assert error.ids == (i,), f"{self.name}: {error}"
                refused.add(i)
            self.close(stream)
        return refused

    def run(self, case: Case, plan: Schedule) -> Run:
        run, stream = Run(), self.open(case)
        with torch.no_grad():
            for call in plan.calls:
                collected(run, call, stream(*tensors_of(case, call, plan.data, self.plain)))
        self.close(stream)
        return run


class Native(_Stepped):
    """dreamstream's own module, patched."""

    name = "native"

    def open(self, case: Case) -> Any:
        return ds.patch_module(twin(case), **case.options).online()


class NativeCompiled(_Stepped):
    """dreamstream's own module, compiled, saved and loaded."""

    name = "native-compiled"

    def open(self, case: Case) -> Any:
        file = io.BytesIO()
        _compiled(case, twin(case)).save(file)
        file.seek(0)
        return ds.load(file)


class TorchPatched(_Stepped):
    """A torch module, patched, on torch's tensors."""

    name = "torch-patched"
    plain = False

    def applies(self, case: Case) -> bool:
        return True

    def open(self, case: Case) -> Any:
        return ds.patch_module(theirs(case).to(DEVICE), **case.options).online()


class TorchOnEngine(TorchPatched):
    """A torch module, patched, that an engine evaluates in the place of its forward."""

    name = "torch-on-engine"

    def open(self, case: Case) -> Any:
        return super().open(case).online(backend="engine")


class TorchCompiled(_Stepped):
    """A torch module, compiled."""

    name = "torch-compiled"

    def applies(self, case: Case) -> bool:
        return True

    def open(self, case: Case) -> Any:
        return _compiled(case, theirs(case))


def _compiled(case: Case, model: Any) -> ds.Engine:
    spec, more = case.spec()
    engine = ds.compile(model, spec, verify=False, **more, **case.options)
    if case.delay is not None:
        assert engine.delay == case.delay, f"delay {engine.delay}, not {case.delay}"
    return engine


FRONT_ENDS: dict[str, FrontEnd] = {
    f.name: f for f in (Native(), NativeCompiled(), TorchPatched(), TorchOnEngine(), TorchCompiled())
}


@lru_cache(maxsize=256)
def baseline(case: Case) -> tuple[str, Run]:
    """Return a run of the case's schedule whose counts all others must have, and the name of its front end."""
    name = "native-compiled" if case.native else "torch-compiled"
    return name, FRONT_ENDS[name].run(case, schedule(case))
