"""Handle a student's cache as a careful caller does: make it, feed it, and weigh what it keeps."""

from __future__ import annotations

import dis
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge
from course.checks.recorder import given
from course.model import MiniGPT
from course.model.config import GPTConfig

DTYPES = {"float32": 4, "float16": 2, "float64": 8}
"""Bytes of a number."""
USED_AGAIN = 99.0
"""What the caller writes over its keys and values once a cache has them; no drawn number is as large."""


class InputChanged(Exception):
    """`append` wrote into the tensors that it was given."""


def new_cache(
    student: SimpleNamespace, challenge: Challenge, max_len: int, batch: int = 3, **options: Any
) -> Any:
    """Make the student's cache for the challenge's config."""
    config = GPTConfig(**challenge["config"])
    return student.KVCache(config, batch=batch, max_len=max_len, **options)


def copied_pair(pair: tuple[Tensor, Tensor]) -> np.ndarray:
    """Copy the keys and values, (B, G, S, D) each, that a layer returned: (2, B, G, S, D)."""
    return torch.stack([rows.detach().clone() for rows in pair]).numpy()


def feed(cache: Any, blocks: np.ndarray, dtype: torch.dtype = torch.float32) -> list[np.ndarray]:
    """Append keys and values (2, L, B, G, T, D) to every layer and advance, see `feed_parts`.

    Returns:
        What each layer returned, (2, B, G, S, D), as it is when all layers have returned.
    """
    return feed_parts(cache, given(blocks, dtype))  # (L, B, G, T, D) each


def feed_parts(
    cache: Any,
    parts: Iterable[Tensor],
    names: Sequence[str] = ("keys", "values"),
    copied: Callable[[Any], Any] = copied_pair,
) -> list[Any]:
    """Append the parts of a block, (L, …, T, ·) each, to every layer and advance; then use their memory
    again.

    The parts are views, so not contiguous. They belong to the caller: `append` must leave them as they
    are, and after `advance` the caller overwrites them, which must not change what is held.

    Args:
        names: of the parts.
        copied: copies what a layer returned; left out, a pair of keys and values.

    Returns:
        What each layer returned, as it is when all layers have returned.

    Raises:
        InputChanged: an `append` wrote into its arguments.
    """
    parts = tuple(parts)
    before = [part.clone() for part in parts]
    returned, changed = [], []
    for layer, rows in enumerate(zip(*parts, strict=True)):
        returned.append(cache.append(layer, *rows))
        for name, now, then in zip(names, parts, before, strict=True):
            if not torch.equal(now, then):
                changed.append(f"append(layer={layer}, …) wrote into the {name} it was given")
    cache.advance(parts[0].shape[-2])
    copies = [copied(rows) for rows in returned]
    for part in parts:
        part.fill_(USED_AGAIN)
    if changed:
        raise InputChanged(changed[0])
    return copies


def stored_bytes(holder: Any) -> int:
    """Add up the bytes of the memories in which a cache keeps numbers, each memory counted once; see
    `_stored`. Each counts whole, also where only a part is in use."""
    memories: dict[int, int] = {}  # bytes by address
    for value in _stored(holder):
        if isinstance(value, Tensor):
            storage = value.untyped_storage()
            memories[storage.data_ptr()] = storage.nbytes()
        else:
            memories[value.ctypes.data] = value.nbytes
    total, end = 0, 0
    for start, n_bytes in sorted(memories.items()):  # a tensor may lie in the memory of an array
        total += max(0, start + n_bytes - max(start, end))
        end = max(end, start + n_bytes)
    return total


def devices_of(holder: Any) -> list[str]:
    """List the kinds of devices on which a cache keeps tensors; see `_stored`."""
    return sorted({value.device.type for value in _stored(holder) if isinstance(value, Tensor)})


def stored_numbers(holder: Any, floats: bool = True) -> int:
    """Count the floats other than 0 in these memories: what is kept, and not the room for it.

    Args:
        floats: False counts the whole numbers instead.
    """
    memories: dict[int, int] = {}  # numbers by address
    for value in _stored(holder):
        if isinstance(value, np.ndarray) and (value.dtype.kind == "f") == floats:
            memories[value.ctypes.data] = int(np.count_nonzero(value))
        if isinstance(value, Tensor) and value.is_floating_point() == floats:
            storage = value.untyped_storage()
            whole = value.detach().new_empty(0).set_(storage)
            memories[storage.data_ptr()] = int(whole.count_nonzero())
    return sum(memories.values())


def _stored(holder: Any) -> Iterator[Tensor | np.ndarray]:
    """Yield the tensors and arrays in which a cache keeps numbers; of a view of an array, the array.

    Found is whatever the cache holds on to, in attributes and slots, in containers and other objects, in
    closures and generators; and what its methods keep in variables of the class or the notebook, its own
    entry alone where such a variable is a mapping with the cache or its id as a key.

    What counts is every tensor and NumPy array but for the bookkeeping: truth values, and int32 or int64
    of at most one number for each place, such as a length or the positions.
    """
    todo, seen = [holder, *_kept_outside(holder)], set()
    places = getattr(holder, "batch", 1) * getattr(holder, "max_len", 1)
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, _NOT_FOLLOWED):
            continue
        seen.add(id(value))
        while isinstance(value, np.ndarray) and isinstance(value.base, np.ndarray | Tensor):
            value = value.base
        if isinstance(value, Tensor):
            if not _is_bookkeeping(value.dtype, value.numel(), places):
                yield value
        elif isinstance(value, np.ndarray) and value.dtype != object:
            if not _is_bookkeeping(value.dtype, value.size, places):
                yield value
        elif isinstance(value, FunctionType):
            todo += [value.__closure__, value.__defaults__, value.__kwdefaults__]
        else:
            todo += gc.get_referents(value)


_NOT_FOLLOWED = (type, ModuleType, CodeType, GPTConfig, MiniGPT, str, int, float, torch.dtype)
"""What leads away from a cache: to code, to the model, to the whole notebook."""


def _is_bookkeeping(dtype: torch.dtype | np.dtype, size: int, places: int) -> bool:
    kind = str(dtype).removeprefix("torch.")
    return kind == "bool" or (kind in ("int32", "int64") and size <= places)


def _kept_outside(holder: Any) -> Iterator[Any]:
    """Yield what a cache keeps in variables of its class, and in global ones that its methods use."""
    for owner in type(holder).__mro__:
        if owner.__module__ in ("builtins", "torch.nn.modules.module"):
            continue
        for value in vars(owner).values():
            parts = (getattr(value, name, None) for name in ("fget", "__func__", "__wrapped__"))
            functions = [part for part in (value, *parts) if isinstance(part, FunctionType)]
            for store in [s for f in functions for s in _globals_used_by(f)] or [value]:
                yield _own_part(holder, store)


def _globals_used_by(function: FunctionType) -> Iterator[Any]:
    names = _globals_read_in(function.__code__) & function.__globals__.keys()
    yield from (function.__globals__[name] for name in names)


@lru_cache(maxsize=1000)
def _globals_read_in(code: CodeType) -> frozenset[str]:
    return frozenset(i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL")


def _own_part(holder: Any, store: Any) -> Any:
    """Return the part of a shared variable that belongs to a cache; None where it is no storage."""
    if isinstance(store, Mapping):
        return [rows for key, rows in store.items() if _names(key, holder)] or dict(store)
    return store if isinstance(store, Tensor | np.ndarray | list) else None


def _names(key: Any, holder: Any) -> bool:
    parts = key if type(key) is tuple else (key,)
    return any(part is holder or (type(part) is int and part == id(holder)) for part in parts)
