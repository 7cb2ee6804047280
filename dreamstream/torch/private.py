"""torch's private names that the bridge uses, right for torch 2.10 to 2.14; the tests pin 2.13.

Nothing else in `dreamstream` knows them. With another version of torch this file is what has to be looked at; its
names say what the bridge relies on. What versions have differently says `tests/torch/test_versions.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from inspect import getattr_static
from traceback import walk_tb
from typing import Any, TypeVar

import torch
from torch._C._dynamo import eval_frame
from torch._ops import OpOverloadPacket
from torch.autograd import forward_ad
from torch.jit import _state
from torch.nn.modules import module as modules, transformer
from torch.nn.modules._functions import BackwardHookFunction
from torch.overrides import _get_current_function_mode_stack as active_modes
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import CheckpointFunction

__all__ = [
    "APPLY", "CALLS_USERS", "BackwardHookFunction", "CheckpointFunction", "active_modes", "assert_",
    "current_node", "detects_causality", "dtypes_of", "enter_mode", "graph_task", "has_lost_what_it_saved",
    "hooks_of", "is_pointwise_operator", "is_random_operator", "is_traced", "is_transformed",
    "is_watched", "keep", "kept_by_checkpoint", "leave_innermost_mode", "mode_at", "n_modes", "onnx_type",
    "original_of", "own_buffers", "own_tensors", "prelu_kernel", "pytree", "recurrent_function",
    "recurrent_weights", "runs_modules", "runs_uncompiled", "saved_tensors_hooks_on_top", "set_compiler",
    "set_gradients", "uncompiled", "will_run", "without_functions", "without_subclass",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])

#: Functions that do nothing but call those of users, by module and name.
CALLS_USERS = {
    ("torch.nn.modules.module", "_call_impl"),
    ("torch.nn.modules.module", "_wrapped_call_impl"),
    ("torch.nn.modules.container", "forward"),
    ("torch.nn.modules.batchnorm", "forward"),
    ("torch.nn.modules.normalization", "forward"),
    ("torch.nn.modules.transformer", "_ff_block"),
    ("torch.nn.modules.transformer", "forward"),
    ("torch.nn.parallel.data_parallel", "forward"),
    ("torch.nn.parallel.distributed", "forward"),
    ("torch.nn.parallel.distributed", "_run_ddp_forward"),
    ("torch.nn.utils.stateless", "_functional_call"),
    ("torch._functorch.functional_call", "functional_call"),
    ("torch.utils._pytree", "tree_map"),
    ("torch.utils.checkpoint", "__call__"),
    ("torch.utils.checkpoint", "_checkpoint_impl"),
    ("torch.utils.checkpoint", "checkpoint"),
    ("torch.utils.checkpoint", "checkpoint_sequential"),
    ("torch.utils.hooks", "_apply_on_tensors"),
    ("torch.utils.hooks", "setup_input_hook"),
    ("torch.utils.hooks", "setup_output_hook"),
}

#: Contexts in which stream tensors are torch's own; the second also where a mode is active.
without_subclass = torch._C.DisableTorchFunctionSubclass
without_functions = torch._C.DisableTorchFunction

#: Which backward is running; whether it will reach a node of the graph.
graph_task: Callable[[], int] = torch._C._current_graph_task_id
will_run: Callable[[Any], bool] = torch._C._will_engine_execute_node
#: The node of the graph that runs, or whose hooks do.
current_node: Callable[[], Any] = torch._C._current_autograd_node

#: The descriptor of `torch.autograd.Function.apply`: a function of Python in torch 2.13, a builtin one in 2.14.
APPLY = getattr_static(torch.autograd.Function, "apply")
#: What turns gradients on and off, which a mode is asked about.
set_gradients: Callable[[bool], None] = torch._C._set_grad_enabled


def dtypes_of(tensors: Iterable[torch.Tensor]) -> list[torch.dtype]:
    """Return the element type of each tensor; no mode is asked about them."""
    with without_functions():
        return [t.dtype for t in tensors]


def has_lost_what_it_saved(node: Any) -> bool:
    """Return whether a tensor that a node of the graph saved was written into since."""
    names = [n for n in dir(node) if n.startswith("_saved_") or n == "saved_tensors"]
    try:
        for name in names:
            getattr(node, name)
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)
    return False


#: A mode of torch functions becomes the innermost one; the innermost one is left.
enter_mode = torch._C._push_on_torch_function_stack
leave_innermost_mode = torch._C._pop_torch_function_stack
n_modes: Callable[[], int] = torch._C._len_torch_function_stack
mode_at: Callable[[int], Any] = torch._C._get_function_stack_at  # from the outermost on
_n_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
_is_transformed: Callable[[], bool] = torch._C._are_functorch_transforms_active

#: Returns what is called with tensors that are saved for a backward, or None.
saved_tensors_hooks_on_top = torch._C._autograd._top_saved_tensors_default_hooks


def kept_by_checkpoint() -> bool:
    """Return whether tensors that are saved for a backward are left to a checkpoint, which computes them again."""
    hooks = saved_tensors_hooks_on_top(True)
    return hooks is not None and getattr(hooks[0], "__module__", None) == "torch.utils.checkpoint"


def keep(saved: torch.Tensor) -> torch.Tensor:
    """Keep a tensor that is saved for a backward as it is; to a checkpoint these are hooks of its own."""
    return saved


keep._checkpoint_internal, keep._user_hooks = True, None  # type: ignore[attr-defined]  # asked from torch 2.14 on


def is_transformed(error: BaseException) -> bool:
    """Return whether an error comes from within a transformation of `torch.func`."""
    names = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    return "dynamicLayerStack" in str(error) or any(name.startswith("torch._functorch") for name in names)


def is_traced() -> bool:
    """Return whether `torch.jit.trace` records what runs."""
    return bool(torch._C._get_tracing_state())


def is_watched() -> bool:
    """Return whether a mode, a transformation of `torch.func` or forward differentiation sees what runs."""
    return bool(n_modes() or _n_dispatch_modes() or forward_ad._current_level >= 0 or _is_transformed())


#: An `assert` as a function, which models call.
assert_: Callable[..., None] = torch._assert
#: A PReLU of any operands that broadcast; `torch.prelu` wants the channels in the second dimension.
prelu_kernel: Callable[..., torch.Tensor] = torch._prelu_kernel


@cache
def recurrent_function(name: str) -> Callable[..., Any]:
    """Return torch's function of all layers of an LSTM, GRU or RNN."""
    return getattr(torch._VF, name)


def recurrent_weights(layer: Any) -> list[list[str]]:
    """Return the names of a recurrent layer's weights, per layer and direction."""
    return layer._all_weights


def original_of(compiled: Any) -> Any:
    """Return what `torch.compile` or `torch.jit.script` made something from, or None where they made nothing."""
    attributes = getattr(compiled, "__dict__", None)
    if not attributes:
        return None
    if type(compiled) is torch.jit.ScriptFunction:
        original = attributes.get("_torchdynamo_inline")  # of `torch.jit.trace`, too, which is not in this cache
        return None if _state._try_get_jit_cached_function(original) is None else original
    if type(compiled).__name__ == "OptimizedModule" and "_modules" in attributes:
        return attributes["_modules"].get("_orig_mod")
    return attributes.get("_torchdynamo_orig_callable")


def hooks_of(module: torch.nn.Module) -> list[Any]:
    """Return the dictionaries of what a module's call runs beside its forward."""
    return [
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
        modules._global_forward_hooks,
        modules._global_forward_pre_hooks,
        modules._global_backward_hooks,
        modules._global_backward_pre_hooks,
    ]


def runs_uncompiled(function: F, below: bool = False) -> F:
    """Let torch.compile leave a function alone where it is called; `below`, what it calls, and where, too."""
    actions, code = eval_frame._FrameAction, function.__code__
    strategy = eval_frame._FrameExecStrategy(actions.SKIP, actions.SKIP if below else actions.DEFAULT)
    eval_frame.set_code_exec_strategy(code, strategy)
    if below:
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


#: Runs the forward of a module, with its hooks.
runs_modules: Callable[..., Any] = torch.nn.Module._call_impl

#: Sets what compiles functions as they are called, None for nothing; returns what did so.
set_compiler: Callable[[Any], Any] = eval_frame.set_eval_frame


def uncompiled() -> AbstractContextManager[Any]:
    """Within it what torch has compiled runs as it was written; nothing is, where its compiler isn't loaded."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def own_buffers(module: torch.nn.Module) -> dict[str, Any]:
    """Return a module's own buffers by name: the dictionary that it keeps them in."""
    return module._buffers


def own_tensors(module: torch.nn.Module) -> set[str]:
    """Return the names of a module's own parameters and buffers."""
    return {*module._parameters, *module._buffers}


def is_pointwise_operator(name: str) -> bool:
    """Return whether torch tags an operator as one that sees every element by itself."""
    return _is_tagged(name, torch.Tag.pointwise)


def is_random_operator(name: str) -> bool:
    """Return whether torch tags an operator as one that draws numbers."""
    return _is_tagged(name, torch.Tag.nondeterministic_seeded)


def _is_tagged(name: str, tag: torch.Tag) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    overloads = packet.overloads() if isinstance(packet, OpOverloadPacket) else ()
    return any(tag in getattr(packet, overload).tags for overload in overloads)


def onnx_type(value: Any) -> Any:
    """Return ONNX's number of the element type of a value in a graph, None where it is not known."""
    from torch.onnx._internal.torchscript_exporter._type_utils import JitScalarType

    kind = JitScalarType.from_value(value, JitScalarType.UNDEFINED)
    return None if kind == JitScalarType.UNDEFINED else kind.onnx_type()


#: Tells whether a mask is the causal one, by which transformers choose how to compute the same.
detects_causality: Callable[..., bool] = transformer._detect_is_causal_mask
