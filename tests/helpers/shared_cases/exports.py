"""Exported models as front ends: they say how many frames come, and whoever runs them where these start."""

import importlib.util
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from .case import Case, theirs, without_l
from .streaming import Row, Run, Schedule


class _Export:
    """A file, run in another runtime by what its manifest says."""

    name = ""

    def applies(self, case: Case) -> bool:
        if importlib.util.find_spec("dreamstream.export") is None:
            pytest.skip("dreamstream.export is not there")
        return case.exports

    def open(self, case: Case) -> tuple[Any, dict[str, Any]]:
        """Return the call of the exported model and its manifest."""
        raise NotImplementedError

    def run(self, case: Case, plan: Schedule) -> Run:
        from exported import Exported

        call, manifest = self.open(case)
        stream, run = Exported(call, manifest, np.random.default_rng(0)), Run()
        names = [[d if isinstance(d, str) else None for d in o["dims"]] for o in manifest["outputs"]]
        so_far: dict[str, list[int]] = {}
        for rows in plan.calls:
            got: dict[str, list[list[Any]]] = {r.id: [[] for _ in names] for r in rows}
            for part in _parts(manifest, rows):
                chunks = {r.id: _chunks(case, r, plan) for r in part}
                found = stream.step(chunks, [r.id for r in part if r.sos], [r.id for r in part if r.eos])
                for i, outputs in found.items():
                    for pieces, y, dims in zip(got[i], outputs, names):
                        pieces.append(np.moveaxis(y, without_l(dims), 0) if "L" in dims else y)
            frames = [[np.concatenate(got[r.id][k]) for r in rows] for k in range(len(names))]
            for r in rows:
                if r.sos:
                    so_far[r.id] = [0] * len(names)
            run.add(rows, names, frames, [[so_far[r.id][k] for r in rows] for k in range(len(names))])
            for k, parts in enumerate(frames):
                for r, y in zip(rows, parts):
                    so_far[r.id][k] += len(y)
        assert not stream.states
        return run


def _chunks(case: Case, row: Row, plan: Schedule) -> list[Any]:
    return [x.arranged(plan.data[row.id][k][slice(*row.cuts[k])]) for k, x in enumerate(case.inputs)]


def _parts(manifest: dict[str, Any], rows: Sequence[Row]) -> list[list[Row]]:
    """Cut a call into calls that the model takes: of at most so many rows, of at most so many frames."""
    if not rows:
        return []
    fixed = manifest["chunk"]["frames"]
    if fixed is None:
        return [list(rows)]
    most = [fixed[port["name"]] for port in manifest["inputs"]]
    out: list[list[Row]] = []
    for low in range(0, len(rows), manifest["chunk"]["rows"]):
        group = rows[low : low + manifest["chunk"]["rows"]]
        n = {r.id: max(1, *(-(-(b - a) // m) for (a, b), m in zip(r.cuts, most))) for r in group}
        for k in range(max(n.values())):
            out.append([_piece(r, k, n[r.id], most) for r in group if k < n[r.id]])
    return out


def _piece(row: Row, k: int, n: int, most: Sequence[int]) -> Row:
    cuts = tuple((min(b, a + k * m), min(b, a + (k + 1) * m)) for (a, b), m in zip(row.cuts, most))
    return Row(row.id, row.sos and k == 0, row.eos and k == n - 1, cuts)


class _Onnx(_Export):
    dynamic = False

    def applies(self, case: Case) -> bool:
        return super().applies(case) and case.onnx

    def open(self, case: Case) -> tuple[Any, dict[str, Any]]:
        pytest.importorskip("onnxruntime")
        from exported import in_onnxruntime

        from dreamstream import export

        spec, more = case.spec()
        file = io.BytesIO()
        fixed = {} if self.dynamic else {"rows": 3}
        export.onnx(theirs(case), spec, file, dynamic_axes=self.dynamic, skew=case.skew, **more, **fixed)
        call, manifest = in_onnxruntime(file.getvalue())
        return call, manifest


class OnnxFixed(_Onnx):
    """ONNX with a fixed chunk."""

    name = "onnx-fixed"


class OnnxDynamic(_Onnx):
    """ONNX that takes any chunk."""

    name = "onnx-dynamic"
    dynamic = True


class TorchScript(_Export):
    """TorchScript, loaded again."""

    name = "torchscript"

    def open(self, case: Case) -> tuple[Any, dict[str, Any]]:
        from dreamstream import export

        spec, more = case.spec()
        file = io.BytesIO()
        export.torchscript(theirs(case), spec, file, skew=case.skew, **more)
        extra = {"manifest.json": ""}
        loaded = torch.jit.load(io.BytesIO(file.getvalue()), _extra_files=extra)
        return loaded, json.loads(extra["manifest.json"])


EXPORTS: dict[str, Any] = {e.name: e for e in (OnnxFixed(), OnnxDynamic(), TorchScript())}
