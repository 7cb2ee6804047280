"""For the tracer: functions of torch that call users' or the forward, and what compiled ones were made from."""

from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention as attention

from ...array.loop_lists import Gathered
from ...nn.functional.attention import causal_of
from ...online.tracer import TRACER
from ...stream.where import passes_on
from ...tracing.callees import GOES_ON, ORIGINALS
from ..private import APPLY, CALLS_USERS, CheckpointFunction, assert_, detects_causality, original_of
from ..tensor.stream_tensor import SHELL
from .custom import checkpointed
from .replay import REPLAY
from .running import running

GOES_ON.update(CALLS_USERS)
ORIGINALS.append(original_of)


def _of_streams(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run a function that asks the forward; torch would do so by way of ten functions of its own."""
    forward = running()
    if forward is None or not args or type(args[0]) is not SHELL:
        return function(*args, **kwargs)
    return forward.replayed(function, args, kwargs, partial(function, *args, **kwargs))


def _hint(function: Any, mask: Any, is_causal: bool | None = None, size: Any = None) -> bool:
    """Say of a mask of streams that it need not be taken for the causal one: it is looked at where it masks."""
    return False if is_causal is None and type(mask) is SHELL else function(mask, is_causal, size)


def _apply(cls: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call a Function of users, which torch's modes are not asked about."""
    forward = running()
    if forward is not None and issubclass(cls, CheckpointFunction):
        return checkpointed(*args)
    if forward is not None and forward.gradients is not None:
        return forward.gradients.apply(cls, args, kwargs)
    return APPLY.__get__(None, cls)(*args, **kwargs)


@passes_on
def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: Any = False,
    **named: Any,
) -> Any:
    """Attend where `is_causal` may be a comparison of lengths, not a bool."""
    return attention(query, key, value, attn_mask, dropout_p, causal_of(is_causal, query), **named)


@passes_on
def _asserted(condition: Any, message: Any) -> None:
    """Assert what lengths, or a call's values, say, as the statement does."""
    value = TRACER.test(condition)
    if value is None:
        assert_(condition, message)
    elif not (value if isinstance(value, bool) else TRACER.checked(value)):
        raise AssertionError(message)


@passes_on
def _in_turn(modules: Any, input: Any) -> Any:
    """Run `torch.nn.Sequential`: no loop over frames is looked for where modules are gone through."""
    for module in modules:
        input = TRACER.of(module)(input)
    return input


def _gathering(function: Any, method: str, /, *args: Any, **kwargs: Any) -> Any:
    """Join what a loop over frames has gathered, of which torch, which takes lists, would ask no mode."""
    tensors = args[0] if args else kwargs.get("tensors")
    if not isinstance(tensors, Gathered):
        return function(*args, **kwargs)
    dim = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis", 0))
    return getattr(tensors, method)(dim)


TRACER.stand_in(torch.stack, partial(_gathering, torch.stack, "stacked"))
for _function in (torch.cat, torch.concat, torch.concatenate):
    TRACER.stand_in(_function, partial(_gathering, _function, "joined"))
TRACER.stand_in(APPLY, _apply)
TRACER.stand_in(torch.nn.Sequential.forward, _in_turn)
TRACER.stand_in(assert_, _asserted)
TRACER.stand_in(attention, _attention)
TRACER.stand_in(detects_causality, partial(_hint, detects_causality))

for _function in (*vars(torch.nn.functional).values(), *vars(torch.functional).values()):
    asks = type(_function) is FunctionType and "handle_torch_function" in _function.__code__.co_names
    if asks and TRACER.stands_for(_function) is None:
        TRACER.stand_in(_function, partial(REPLAY.function, _of_streams, _function))
