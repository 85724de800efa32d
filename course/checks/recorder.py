"""Hold the house rules of lesson 00 wherever a probe calls a student's function.

A probe gets the student's functions through `Recorder.watch`. It passes every call on and writes down
which rule was broken: an argument that was changed, a result that a later call changed, one that is the
same memory as an earlier one, or a tensor that was not made where the arguments lie. What is written down
is evidence; `rules.judge_rules` words it, on the side that decides.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from functools import wraps
from io import StringIO
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._C import DisableTorchFunction
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from course.checks.default_device import beside_default
from course.checks.ready_made import NoReadyMadeAttention
from course.checks.rules import Broken
from course.model.config import GPTConfig

LARGEST = 10**7
"""Numbers of a tensor that is still copied to be compared."""
AGAIN, LARGEST_AGAIN = 5, 10**5
"""How many of a function's calls are made once more, and numbers of tensors with which they still are."""
PLAIN = (Tensor, GPTConfig, int, float, str, type(None), torch.dtype, torch.device)
"""What a function may be called with once more: nothing that keeps anything from call to call."""


class Recorder:
    """Calls a student's functions for one probe, and keeps what there is to compare."""

    def __init__(self) -> None:
        self._broken: Broken = []
        self._results: list[tuple[str, Any, Any]] = []  # function, result, as it was
        self._memories: set[int] = set()  # of these results, which live as long as this
        self._called_again: Counter[str] = Counter()  # by function

    def watch(self, name: str, function: Any) -> Any:
        """Wrap a function; a class stays as it is, for what it makes belongs to the student."""
        if isinstance(function, type) or not callable(function):
            return function

        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # of some functions written in C
            signature = None

        @wraps(function, updated=())
        def watched(*args: Any, **kwargs: Any) -> Any:
            named = _by_name(signature, args, kwargs)
            before = _copied(named)
            try:
                result = function(*args, **kwargs)
            finally:
                self._compare_arguments(name, named, before)
            if inspect.isgenerator(result):
                return self._watch_items(name, result, named, before)
            self._keep(name, result, named, self._memories)
            if self._called_again[name] < AGAIN and _may_be_called_again(args, kwargs):
                self._called_again[name] += 1
                self._look_at_device(name, function, args, kwargs)
            return result

        return watched

    def broken(self) -> Broken:
        """Return what was broken so far, results of earlier calls included."""
        for name, result, as_it_was in self._results:
            if not _unchanged(result, as_it_was):
                self._note("result", name, "")
        return self._broken

    def _watch_items(self, name: str, items: Any, named: Any, before: Any) -> Iterator[Any]:
        earlier = set(self._memories)  # items of one call may be slices of one tensor
        try:
            for item in items:
                self._keep(name, item, named, earlier)
                yield item
        finally:
            items.close()
            self._compare_arguments(name, named, before)

    def _keep(
        self, name: str, result: Any, arguments: Mapping[str, Any], earlier: Collection[int]
    ) -> None:
        """Keep a result; note whether it is the same memory as one of earlier calls."""
        self._results.append((name, result, _copied(result)))
        own = memories_of(result) - memories_of(list(arguments.values()))
        if not own.isdisjoint(earlier):
            self._note("shared", name, "")
        self._memories |= own

    def _look_at_device(self, name: str, function: Any, args: Any, kwargs: Any) -> None:
        """Call a function once more, on copies, where new tensors lie elsewhere; see `beside_default`. It
        prints nothing, and draws no random number of anybody's."""
        unseen, modes_off = redirect_stdout(StringIO()), _disable_current_modes()
        with torch.random.fork_rng(devices=[]), unseen, modes_off:
            args, kwargs = tree_map(_copied_tensor, (args, kwargs))
            found = beside_default(lambda: function(*args, **kwargs))
        if found:
            self._note("device", name, found)

    def _compare_arguments(self, name: str, named: Mapping[str, Any], before: Any) -> None:
        for argument, value in named.items():
            if not _unchanged(value, before[argument]):
                self._note("argument", name, argument)

    def _note(self, rule: str, function: str, what: str) -> None:
        broken = {"rule": rule, "function": function, "what": what}
        if broken not in self._broken:
            self._broken.append(broken)


def _may_be_called_again(args: Any, kwargs: Any) -> bool:
    """Tell whether another call with these arguments changes nothing, and is not counted."""
    leaves = tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    return (
        all(isinstance(leaf, PLAIN) for leaf in leaves)
        and 0 < sum(tensor.numel() for tensor in tensors) <= LARGEST_AGAIN
        and all(tensor.device.type == "cpu" for tensor in tensors)
        and all(
            isinstance(mode, NoReadyMadeAttention) for mode in _get_current_function_mode_stack()
        )
    )


def _copied_tensor(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def given(array: np.ndarray, dtype: torch.dtype | None = None) -> Tensor:
    """Make the tensor that a student's function is given: these values, laid out in memory in another
    order, as a slice or a transpose is. So it is not contiguous, where its shape allows that."""
    tensor = torch.tensor(array, dtype=dtype)
    turned = tuple(reversed(range(tensor.ndim)))
    return tensor.permute(turned).contiguous().permute(turned)


def _by_name(
    signature: inspect.Signature | None, args: tuple, kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Name the arguments of a call as the function does, or by their number."""
    if signature is not None:
        with suppress(TypeError):  # the call itself will say what is wrong with it
            return dict(signature.bind(*args, **kwargs).arguments)
    return {**{f"argument {n}": value for n, value in enumerate(args, 1)}, **kwargs}


def _copied(value: Any) -> Any:
    """Copy out of sight of a probe that counts operations."""
    with DisableTorchFunction(), _disable_current_modes():
        return copy_of(value)


def _unchanged(value: Any, copy: Any) -> bool:
    with DisableTorchFunction(), _disable_current_modes():
        return equal(value, copy)


def copy_of(value: Any) -> Any:
    """Copy what can be compared later: tensors, arrays, the weights of a model, and lists, tuples and
    dicts of them. Anything else stays out: a cache and a generator are there to be changed."""
    if isinstance(value, nn.Module):
        is_cache = hasattr(value, "advance")
        return None if is_cache else copy_of(_weights_of(value))
    if isinstance(value, Tensor):
        comparable = value.numel() <= LARGEST and value.device.type != "meta"
        return value.detach().clone() if comparable else None
    if isinstance(value, np.ndarray):
        return value.copy() if value.size <= LARGEST else None
    if isinstance(value, list | tuple):
        return [copy_of(item) for item in value]
    if type(value) is dict:
        return {key: copy_of(item) for key, item in value.items()}
    return value if type(value) in (bool, int, float, str) else None


def equal(value: Any, copy: Any) -> bool:
    """Tell whether a value still is what `copy_of` saw."""
    if copy is None:
        return True
    if isinstance(value, nn.Module):
        return equal(_weights_of(value), copy)
    if isinstance(value, Tensor):
        return same_numbers(value.detach(), copy)
    if isinstance(value, np.ndarray):
        return same_numbers(torch.from_numpy(value), torch.from_numpy(copy))
    if isinstance(value, list | tuple):
        return len(value) == len(copy) and all(map(equal, value, copy))
    if type(value) is dict:
        return value.keys() == copy.keys() and all(equal(value[key], copy[key]) for key in copy)
    return value is copy or value == copy or value != value


def memories_of(value: Any) -> set[int]:
    """Return where what can be changed lies in memory: the numbers of tensors and arrays, of models and
    of lists, tuples and dicts of these; and lists and dicts themselves."""
    if isinstance(value, nn.Module):
        return memories_of([*value.parameters(), *value.buffers()])
    if isinstance(value, Tensor):
        return {value.untyped_storage().data_ptr()} - {0} if value.numel() else set()
    if isinstance(value, np.ndarray):
        return {value.ctypes.data} if value.size else set()
    if type(value) is dict:
        return {id(value)}.union(*map(memories_of, value.values()))
    if isinstance(value, list | tuple):
        own = {id(value)} if isinstance(value, list) else set()
        return own.union(*map(memories_of, value))
    return set()


def _weights_of(model: nn.Module) -> Tensor:
    """Put all weights of a model into one row: one tensor is copied and compared faster than thirty."""
    weights = [weight.reshape(-1) for weight in model.parameters()]
    return torch.cat(weights).detach() if weights else torch.empty(0)


def same_numbers(a: Tensor, b: Tensor) -> bool:
    """Tell whether two tensors have one shape, dtype and value each; NaN equals NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())
