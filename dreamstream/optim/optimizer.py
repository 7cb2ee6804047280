"""What all optimizers are: groups of parameters with options, and what is remembered of each parameter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..array import Tensor
from ..array.dimension_arguments import in_c_order
from ..autograd import edited, enable_grad, no_grad
from ..errors import DTypeError, FormatError

Array = NDArray[Any]


class Optimizer:
    """Base class of optimizers.

    Parameters
    ----------
    params : iterable of Parameter, of (name, Parameter), or of dict
        What changes; dicts are groups with options of their own, their parameters under ``"params"``.
    defaults : dict
        The options of groups that don't say otherwise.

    Attributes
    ----------
    param_groups : list of dict
    state : dict
        By parameter what is remembered of it.

    Notes
    -----
    A subclass defines `update`. Source: torch.optim.Optimizer.
    """

    def __init__(self, params: Any, defaults: Mapping[str, Any]) -> None:
        self.defaults = dict(defaults)
        self.state: dict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        if isinstance(params, Tensor):
            raise TypeError("an optimizer takes an iterable of parameters or of dicts, got a single tensor")
        given = list(params)
        if not given:
            raise ValueError("an optimizer got no parameters")
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Add parameters with options of their own.

        Parameters
        ----------
        param_group : dict
            The parameters under ``"params"``, and options.

        Raises
        ------
        TypeError
            For what is no parameter.
        ValueError
            For a parameter that is there already or follows from others, and where a required option is missing.
        """
        if not isinstance(param_group, Mapping):
            raise TypeError(f"a group of parameters is a dict, got {type(param_group).__name__}")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, (set, frozenset)):
            raise TypeError("parameters have an order, which sets lack; give a list")
        listed = [params] if isinstance(params, Tensor) else list(params)
        if listed and all(isinstance(p, tuple) for p in listed):
            group["param_names"], listed = [n for n, _ in listed], [p for _, p in listed]
        known = {id(p) for g in self.param_groups for p in g["params"]}
        for parameter in listed:
            if not isinstance(parameter, Tensor):
                raise TypeError(f"an optimizer takes parameters, got {type(parameter).__name__}")
            if not parameter.is_leaf:
                raise ValueError("an optimizer takes parameters, not what is computed of them")
            if id(parameter) in known:
                raise ValueError("a parameter stands in more than one group, or twice in one")
            known.add(id(parameter))
        group["params"] = listed
        self.param_groups.append({"params": listed, **self.defaults, **group})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the parameters' gradients, or set them to zero."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad = None if set_to_none else parameter.grad.new_zeros(parameter.shape)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients; those that have none stay.

        Parameters
        ----------
        closure : callable, optional
            Computes the loss and its gradients anew, and returns it.

        Returns
        -------
        object
            What `closure` returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad(), np.errstate(all="ignore"):
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is None:
                        continue
                    array, gradient = parameter.numpy(), np.asarray(parameter.grad)
                    if gradient.dtype != array.dtype:
                        raise DTypeError(f"a parameter of {array.dtype} has a gradient of {gradient.dtype}")
                    if not array.flags.writeable:
                        array = parameter._array = array.copy()
                    gradient = in_c_order(np.asarray(-gradient) if group["maximize"] else gradient)
                    changed = in_c_order(array)
                    self.update(changed, gradient, self.state[parameter], group)
                    if changed is not array:
                        array[...] = changed
                    edited(array)
        return loss

    def update(self, p: Array, g: Array, state: dict[str, Any], group: Mapping[str, Any]) -> None:
        """Change a parameter in place.

        Parameters
        ----------
        p, g : ndarray
            The parameter and its gradient, their elements in C order.
        state : dict
            What is remembered of it; empty at first.
        group : dict
            The options.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define update")

    # ------------------------------------------------------------------ state dict
    def state_dict(self) -> dict[str, Any]:
        """Return the options, and what is remembered, by the parameters' numbers: torch's layout."""
        numbers = {id(p): n for n, p in enumerate(p for g in self.param_groups for p in g["params"])}
        state = {numbers.get(id(p), p): dict(kept) for p, kept in self.state.items() if kept}
        groups = [{**g, "params": [numbers[id(p)] for p in g["params"]]} for g in self.param_groups]
        for group in groups:
            group["params"] = group.pop("params")  # it comes last
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` of this class, or of torch's, has returned.

        Raises
        ------
        FormatError
            Where the groups have other numbers of parameters. Nothing has changed then.
        """
        given = state_dict["param_groups"]
        own = [len(g["params"]) for g in self.param_groups]
        theirs = [len(g["params"]) for g in given]
        if own != theirs:
            raise FormatError(f"the state has groups of {theirs} parameters, the optimizer of {own}")
        by_number = {n: p for g, o in zip(given, self.param_groups) for n, p in zip(g["params"], o["params"])}
        state: dict[Any, dict[str, Any]] = defaultdict(dict)
        for number, kept in state_dict["state"].items():
            parameter = by_number.get(number)
            state[number if parameter is None else parameter] = {
                key: _taken(key, value, parameter) for key, value in kept.items()
            }
        self.param_groups = [
            {**deepcopy({k: v for k, v in g.items() if k != "params"}), "params": o["params"]}
            for g, o in zip(given, self.param_groups)
        ]
        self.state = state

    def __repr__(self) -> str:
        lines = []
        for i, group in enumerate(self.param_groups):
            lines += [
                f"Parameter Group {i}",
                *(f"    {k}: {v}" for k, v in sorted(group.items()) if k != "params"),
            ]
        return "\n".join([f"{type(self).__name__} (", *lines, ")"])


def _taken(key: str, value: Any, parameter: Any) -> Any:
    """Return an entry of a state as it is remembered here; torch's tensors are taken by duck typing."""
    if not hasattr(value, "detach"):
        return deepcopy(value)
    array = np.asarray(value.detach().cpu()).copy()
    dtype = array.dtype if parameter is None or key == "step" else parameter.dtype
    return Tensor(array.astype(dtype))


def positive(name: str, **options: float) -> None:
    """Raise ValueError for an option that is negative."""
    for what, value in options.items():
        if not value >= 0:
            raise ValueError(f"{name}: {what} must not be negative, got {value}")


def kept(state: dict[str, Any], name: str, like: Array) -> Array:
    """Return a remembered array, zeros at first; it is written into, in C order."""
    known = state.get(name)
    if known is None or not known.numpy().flags.carray:
        state[name] = known = Tensor(np.zeros_like(like) if known is None else known.numpy().copy())
    array: Array = known.numpy()
    return array


Params = Iterable[Any]
