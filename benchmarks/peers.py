"""Networks of networks.py as PyTorch, ONNX Runtime and OpenVINO step them, each as fast as it can; for models.py.

A twin is a torch module (x, states) -> (y, new states). What runs it takes a batch of chunks, keeps the states.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

LAYERS, CHANNELS, KERNEL, FEATURES = 8, 256, 5, 80  # of networks.Conv
HIDDEN, DEPTH = 640, 5  # of networks.LSTM
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

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(HIDDEN, HIDDEN, num_layers=DEPTH, batch_first=True)

    def states(self, n: int) -> list[torch.Tensor]:
        return [torch.zeros(DEPTH, n, HIDDEN) for _ in range(2)]

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, (h, c) = self.lstm(x, (h, c))
        return y, h, c


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


def by_torch(twin: Any, n: int, *, native: bool) -> Step:
    states = twin.states(n)
    inputs = Kept(torch.from_numpy)

    def step(x: np.ndarray) -> np.ndarray:
        nonlocal states
        y, *states = twin(inputs[x], *states)
        return y.numpy()

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


def by_openvino(model: bytes, twin: Any, threads: int, *, stateful: bool = False) -> Callable[[int], Step]:
    """One compiled model, two requests for each set of states; inputs, states and outputs in shared memory.
    `stateful`: one request, states as variables of the model."""
    import openvino

    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    core = openvino.Core()
    network = core.read_model(model)
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


def makers(engine: str, twin: Any, x: np.ndarray, threads: int) -> dict[str, Callable[[int], Step]]:
    """An engine's ways to step as many streams as x has, with states of their own."""
    if engine == "torch":
        ways = {"": lambda n: by_torch(twin, n, native=False)}
        if any(isinstance(module, torch.nn.LSTM) for module in twin.modules()):
            ways[", no oneDNN"] = lambda n: by_torch(twin, n, native=True)
        if isinstance(twin, ConvStep):
            last = ConvLast(twin)
            ways[", channels last"] = lambda n: by_torch(last, n, native=False)
        return ways
    model = exported(twin, x)
    if engine == "onnxruntime":
        return {"": by_onnxruntime(model, twin, threads)}
    return {
        "": by_openvino(model, twin, threads),
        ", variables": by_openvino(model, twin, threads, stateful=True),
    }


def peers(engine: str, twin: Any, x: np.ndarray, threads: int) -> Iterator[tuple[str, Step]]:
    """Its ways to run the twin: in a batch, one by one."""
    for way, make in makers(engine, twin, x, threads).items():
        yield f"batch{way}", make(len(x))
    if len(x) == 1:
        return
    for way, make in makers(engine, twin, x[:1], threads).items():
        steps, rows = [make(1) for _ in x], Kept(lambda x: [x[i : i + 1] for i in range(len(x))])

        def each(x: np.ndarray, steps: Any = steps, rows: Any = rows) -> np.ndarray:
            return np.concatenate([step(row) for step, row in zip(steps, rows[x])])

        yield f"one by one{way}", each
