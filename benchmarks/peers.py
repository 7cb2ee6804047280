"""Networks of networks.py as PyTorch, ONNX Runtime and OpenVINO step them, each as fast as it can; for models.py.

A twin is a torch module (x, states) -> (y, new states). What runs it takes a batch of chunks, keeps the states.
Formats: "fp32"; "bf16", of weights and of what they are multiplied with; "int8", likewise, as each engine's own
tools quantise: torch and ONNX Runtime measure what is multiplied in every step ("dynamic"), ONNX Runtime and
OpenVINO (by nncf) also beforehand, in some steps of the very chunks that are timed ("static").
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

LAYERS, CHANNELS, KERNEL, FEATURES = 8, 256, 5, 80  # of networks.Conv
CONTEXT = 64  # samples of silero's past

Step = Callable[[np.ndarray], Any]  # all streams' chunks -> all outputs: an array, or one per stream


# ---------------------------------------------------------------------- torch's twins
class ConvStep(torch.nn.Module):
    """networks.Conv: one step, with the last frames of every convolution's input as states."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [FEATURES, *[CHANNELS] * LAYERS]
        self.convs = torch.nn.ModuleList([torch.nn.Conv1d(a, CHANNELS, KERNEL) for a in sizes[:-1]])

    def states(self, n: int) -> list[torch.Tensor]:
        return [torch.zeros(n, conv.in_channels, KERNEL - 1) for conv in self.convs]

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kept = []
        for i, (conv, state) in enumerate(zip(self.convs, states)):
            joined = torch.cat([state, x], -1)
            kept.append(joined[..., -(KERNEL - 1) :])
            y = torch.relu(conv(joined))
            x = y if i == 0 else x + y
        return x, *kept


class ConvLast(torch.nn.Module):
    """The same with channels last: pictures of one row."""

    def __init__(self, twin: ConvStep) -> None:
        super().__init__()
        self.biases = [conv.bias for conv in twin.convs]
        self.weights = [
            conv.weight[:, :, None].contiguous(memory_format=torch.channels_last) for conv in twin.convs
        ]

    def states(self, n: int) -> list[torch.Tensor]:
        return [torch.zeros(n, 1, KERNEL - 1, w.shape[1]).permute(0, 3, 1, 2) for w in self.weights]

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = x[:, :, None].contiguous(memory_format=torch.channels_last)
        kept = []
        for i, (weight, bias, state) in enumerate(zip(self.weights, self.biases, states)):
            joined = torch.cat([state, x], -1)
            kept.append(joined[..., -(KERNEL - 1) :])
            y = torch.relu(torch.nn.functional.conv2d(joined, weight, bias))
            x = y if i == 0 else x + y
        return x[:, :, 0], *kept


class LSTMStep(torch.nn.Module):
    """networks.LSTM."""

    def __init__(self, hidden: int = 640, depth: int = 5) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(hidden, hidden, num_layers=depth, batch_first=True)
        self.sizes = depth, hidden

    def states(self, n: int) -> list[torch.Tensor]:
        return [torch.zeros(self.sizes[0], n, self.sizes[1]) for _ in range(2)]

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, (h, c) = self.lstm(x, (h, c))
        return y, h, c


class SmallStep(torch.nn.Module):
    """networks.Small."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([torch.nn.Conv1d(64, 64, 5) for _ in range(4)])
        self.gru = torch.nn.GRU(64, 64, batch_first=True)

    def states(self, n: int) -> list[torch.Tensor]:
        return [*(torch.zeros(n, 64, 4) for _ in self.convs), torch.zeros(1, n, 64)]

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kept = []
        for conv, state in zip(self.convs, states):
            joined = torch.cat([state, x], -1)
            kept.append(joined[..., -4:])
            x = torch.relu(conv(joined))
        y, h = self.gru(x.transpose(1, 2), states[-1])
        return y, *kept, h


class SileroStep(torch.nn.Module):
    """models.SileroVAD: (B, 512) -> (B, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = torch.nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.conv1 = torch.nn.Conv1d(129, 128, 3, padding=1)
        self.conv2 = torch.nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = torch.nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = torch.nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell = torch.nn.LSTMCell(128, 128)
        self.final_conv = torch.nn.Conv1d(128, 1, 1)

    def states(self, n: int) -> list[torch.Tensor]:
        return [torch.zeros(n, CONTEXT), torch.zeros(n, 128), torch.zeros(n, 128)]

    def forward(
        self, x: torch.Tensor, context: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        window = torch.nn.functional.pad(torch.cat([context, x], 1)[:, None], (0, 64), mode="reflect")
        spectrum = self.stft_conv(window)
        y = torch.sqrt(spectrum[:, :129].square() + spectrum[:, 129:].square())
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            y = torch.relu(conv(y))
        h, c = self.lstm_cell(y[..., 0], (h, c))
        y = torch.sigmoid(self.final_conv(torch.relu(h)[..., None]))
        return y[..., 0], x[:, -CONTEXT:], h, c


# ---------------------------------------------------------------------- ways to run them
class Kept:
    """What a peer makes of an input array: once for each, since an array comes again."""

    def __init__(self, make: Callable[[np.ndarray], Any]) -> None:
        self.make, self.made = make, {}

    def __getitem__(self, x: np.ndarray) -> Any:
        if id(x) not in self.made:
            self.made[id(x)] = (self.make(x), x)
        return self.made[id(x)][0]


def by_torch(twin: Any, n: int, *, native: bool = False, dtype: torch.dtype = torch.float32) -> Step:
    def narrow(t: torch.Tensor) -> torch.Tensor:
        return t.to(dtype) if t.ndim > 1 else t  # what counts frames stays

    states = [narrow(t) for t in twin.states(n)]
    inputs = Kept(lambda x: torch.from_numpy(x).to(dtype))

    def step(x: np.ndarray) -> np.ndarray:
        nonlocal states
        y, *states = twin(inputs[x], *states)
        return y.float().numpy()

    def without_onednn(x: np.ndarray) -> np.ndarray:
        with torch.backends.mkldnn.flags(enabled=False):
            return step(x)

    return without_onednn if native else step


def by_onnxruntime(model: bytes, twin: Any, threads: int) -> Callable[[int], Step]:
    """One session; every step binds arrays that are there: states go to and fro between two sets of them."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given, made = [v.name for v in session.get_inputs()], [v.name for v in session.get_outputs()]
    value = onnxruntime.OrtValue.ortvalue_from_numpy  # shares the array's memory
    alive = []

    def make(n: int) -> Step:
        inputs, turn = Kept(value), 0
        y = np.zeros(session.get_outputs()[0].shape, np.float32)
        sets = [[value(np.zeros(s.shape, np.float32)) for s in twin.states(n)] for _ in range(2)]
        output, bindings = value(y), []
        for a, b in (sets, sets[::-1]):
            bindings.append(session.io_binding())
            for name, array in zip(given[1:], a):
                bindings[-1].bind_ortvalue_input(name, array)
            for name, array in zip(made, [output, *b]):
                bindings[-1].bind_ortvalue_output(name, array)
        alive.append((sets, output))  # bindings know addresses only

        def step(x: np.ndarray) -> np.ndarray:
            nonlocal turn
            binding, turn = bindings[turn], 1 - turn
            binding.bind_ortvalue_input(given[0], inputs[x])
            session.run_with_iobinding(binding)
            return y

        return step

    return make


def by_openvino(
    model: bytes,
    twin: Any,
    threads: int,
    *,
    stateful: bool = False,
    precision: str = "f32",
    samples: Sequence[dict[str, np.ndarray]] = (),
) -> Callable[[int], Step]:
    """One compiled model, two requests for each set of states; inputs, states and outputs in shared memory.
    `stateful`: one request, states as variables of the model; `precision`: of what isn't quantised; `samples`:
    what int8's scales are measured with."""
    import openvino

    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": precision,
    }
    core = openvino.Core()
    network = core.read_model(model)
    if samples:
        import nncf

        nncf.set_log_level(logging.ERROR)
        with contextlib.redirect_stdout(io.StringIO()):  # its bars of progress
            network = nncf.quantize(network, nncf.Dataset(samples), subset_size=len(samples))
    if stateful:
        from openvino._offline_transformations import apply_make_stateful_transformation

        names = [f"state{i}" for i in range(len(twin.states(1)))]
        apply_make_stateful_transformation(network, {name: f"new_{name}" for name in names})
    compiled = core.compile_model(network, "CPU", options)
    alive: list[Any] = []

    def shared(array: np.ndarray) -> Any:
        alive.append(array)  # tensors and requests know addresses only
        return openvino.Tensor(array, shared_memory=True)

    def make(n: int) -> Step:
        inputs, turn = Kept(shared), 0
        y = np.zeros(list(compiled.output(0).shape), np.float32)
        sets = [[shared(np.zeros(s.shape, np.float32)) for s in twin.states(n)] for _ in range(2)]
        output, requests = shared(y), []
        for a, b in [([], [])] if stateful else [sets, sets[::-1]]:
            requests.append(compiled.create_infer_request())
            for i, array in enumerate(a):
                requests[-1].set_input_tensor(1 + i, array)
            for i, array in enumerate([output, *b]):
                requests[-1].set_output_tensor(i, array)
        alive.extend([sets, output])

        def step(x: np.ndarray) -> np.ndarray:
            nonlocal turn
            request, turn = requests[turn], (turn + 1) % len(requests)
            request.set_input_tensor(0, inputs[x])
            request.infer(share_outputs=True)
            return y

        return step

    return make


def exported(twin: Any, x: np.ndarray) -> bytes:
    """ONNX of the twin for a batch of this size."""
    states = twin.states(len(x))
    names = [f"state{i}" for i in range(len(states))]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "step.onnx"
        torch.onnx.export(
            twin,
            (torch.from_numpy(x), *states),
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=["x", *names],
            output_names=["y", *(f"new_{name}" for name in names)],
        )
        return path.read_bytes()


def sampled(twin: Any, x: np.ndarray) -> list[dict[str, np.ndarray]]:
    """What goes into the twin in some steps, by name."""
    made, states = [], twin.states(len(x))
    for _ in range(8):
        names = ["x", *(f"state{i}" for i in range(len(states)))]
        made.append(dict(zip(names, [x, *(t.numpy().copy() for t in states)])))
        _, *states = twin(torch.from_numpy(x), *states)
    return made


def quantised(model: bytes, samples: list[dict[str, np.ndarray]], *, static: bool) -> bytes:
    """By ONNX Runtime's own tools: weights in int8 with a scale per column, products in int8."""
    from onnxruntime import quantization as q

    class Reader(q.CalibrationDataReader):
        rows = iter(samples)

        def get_next(self) -> Any:
            return next(self.rows, None)

    with tempfile.TemporaryDirectory() as folder:
        wide, prepared, narrow = (str(Path(folder) / f"{name}.onnx") for name in ("wide", "prepared", "narrow"))
        Path(wide).write_bytes(model)
        q.shape_inference.quant_pre_process(wide, prepared)
        if static:
            q.quantize_static(prepared, narrow, Reader(), per_channel=True, weight_type=q.QuantType.QInt8)
        else:
            q.quantize_dynamic(prepared, narrow, per_channel=True, weight_type=q.QuantType.QInt8)
        return Path(narrow).read_bytes()


FORMATS = {
    "torch": ("fp32", "bf16", "int8"),
    "torch.compile": ("fp32", "bf16"),
    "onnxruntime": ("fp32", "int8"),
    "openvino": ("fp32", "bf16", "int8"),
}
Makers = dict[str, Callable[[int], Step]]  # by way


def torch_makers(engine: str, fmt: str, twin: Any) -> Makers:
    dtype = torch.bfloat16 if fmt == "bf16" else torch.float32
    if fmt == "int8":
        layers = {torch.nn.Linear, torch.nn.LSTM, torch.nn.LSTMCell, torch.nn.GRU}
        if not any(type(module) in layers for module in twin.modules()):
            return {}
        twin = torch.ao.quantization.quantize_dynamic(twin, layers, torch.qint8)
    elif fmt == "bf16":
        twin = copy.deepcopy(twin).bfloat16()
    if engine == "torch.compile":
        return {"": lambda n: by_torch(torch.compile(twin, dynamic=False), n, dtype=dtype)}
    ways: Makers = {"": lambda n: by_torch(twin, n, dtype=dtype)}
    if fmt != "int8" and any(isinstance(module, torch.nn.RNNBase) for module in twin.modules()):
        ways[", no oneDNN"] = lambda n: by_torch(twin, n, native=True, dtype=dtype)
    if isinstance(twin, ConvStep):
        last = ConvLast(twin)
        ways[", channels last"] = lambda n: by_torch(last, n, dtype=dtype)
    return ways


def makers(engine: str, fmt: str, twin: Any, x: np.ndarray, threads: int) -> Makers:
    """An engine's ways to step as many streams as x has, with states of their own; none where it can't."""
    if engine.startswith("torch"):
        return torch_makers(engine, fmt, twin)
    model = exported(twin, x)
    samples = sampled(twin, x) if fmt == "int8" else []
    if engine == "onnxruntime":
        if fmt == "fp32":
            return {"": by_onnxruntime(model, twin, threads)}
        kinds = {", dynamic": False, ", static": True}
        return {
            way: by_onnxruntime(quantised(model, samples, static=static), twin, threads)
            for way, static in kinds.items()
        }
    if fmt == "int8":  # which OpenVINO can't do with variables
        return {
            way: by_openvino(model, twin, threads, precision=precision, samples=samples)
            for way, precision in (("", "f32"), (", the rest in bf16", "bf16"))
        }
    precision = "bf16" if fmt == "bf16" else "f32"
    return {
        way: by_openvino(model, twin, threads, stateful=bool(way), precision=precision)
        for way in ("", ", variables")
    }


def peers(engine: str, fmt: str, twin: Any, x: np.ndarray, threads: int) -> Iterator[tuple[str, Step]]:
    """Its ways to run the twin: in a batch; in fp32, uncompiled, also one by one."""
    for way, make in makers(engine, fmt, twin, x, threads).items():
        yield f"batch{way}", make(len(x))
    if len(x) == 1 or fmt != "fp32" or engine == "torch.compile":
        return
    for way, make in makers(engine, fmt, twin, x[:1], threads).items():
        steps, rows = [make(1) for _ in x], Kept(lambda x: [x[i : i + 1] for i in range(len(x))])

        def each(x: np.ndarray, steps: Any = steps, rows: Any = rows) -> np.ndarray:
            return np.concatenate([step(row) for step, row in zip(steps, rows[x])])

        yield f"one by one{way}", each
