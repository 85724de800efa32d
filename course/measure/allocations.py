"""Which tensors a piece of code makes: counted, where a stopwatch would only guess.

with watch_new_tensors(q, k, v) as made:
    attention(q, k, v)
made.numbers  # how many numbers were written into new memory

A view makes nothing new: `transpose`, `expand` or a slice are other ways to walk through the same
memory. What copies is seen, also where no line of the program says so, such as inside a matrix product
whose batch axes differ. What one of PyTorch's own operations needs inside, while it runs, is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True)
class NewTensor:
    """A tensor in memory of its own.

    Attributes:
        made_by: PyTorch's name of the operation, such as "clone" or "bmm".
        shape: as that operation saw it.
        numbers: that its memory has room for.
    """

    made_by: str
    shape: tuple[int, ...]
    numbers: int


@dataclass
class NewTensors:
    """What came into being while it was watched, in order of time.

    Attributes:
        tensors: the new ones.
        read: for each of the given ones, whether an operation made something else of it, such as a
            product. (A view does not read; nor is anything seen that NumPy does.)
    """

    tensors: list[NewTensor] = field(default_factory=list)
    read: list[bool] = field(default_factory=list)

    @property
    def numbers(self) -> int:
        """Of all new tensors together."""
        return sum(tensor.numbers for tensor in self.tensors)

    @property
    def largest(self) -> NewTensor | None:
        """The first of those with most numbers; None where nothing was made."""
        return max(self.tensors, key=lambda tensor: tensor.numbers, default=None)


class _Watch(TorchDispatchMode):
    """Sees every operation of PyTorch, whatever it was called through."""

    def __init__(self, given: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.made = NewTensors(read=[False] * len(given))
        self._given = [_memory(tensor) for tensor in given]
        self._kept: dict[int, Tensor] = {}  # alive, so that no new memory gets an old address
        for tensor in given:
            self._kept[_memory(tensor)] = tensor

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        # What goes in may be new as well: it can come from elsewhere, such as NumPy.
        self._note("elsewhere", (args, kwargs))
        result = operation(*args, **(kwargs or {}))
        self._note(operation.__name__.split(".")[0], result)
        sources, targets = _memories((args, kwargs)), _memories(result)
        for number, own in enumerate(self._given):
            self.made.read[number] |= own in sources and bool(targets - {own})
        return result

    def _note(self, made_by: str, values: Any) -> None:
        for value in tree_leaves(values):
            if isinstance(value, Tensor) and _memory(value) not in self._kept:
                self._kept[_memory(value)] = value
                numbers = value.untyped_storage().nbytes() // value.element_size()
                self.made.tensors.append(NewTensor(made_by, tuple(value.shape), numbers))


def _memory(tensor: Tensor) -> int:
    """What tells one piece of memory from another while both live."""
    return tensor.untyped_storage()._cdata


def _memories(values: Any) -> set[int]:
    return {_memory(value) for value in tree_leaves(values) if isinstance(value, Tensor)}


@contextmanager
def watch_new_tensors(*given: Tensor) -> Iterator[NewTensors]:
    """Note every tensor made inside the `with` block; they all stay alive until it ends.

    Args:
        given: tensors that were there before. Any other that is used inside counts as new.
    """
    with _Watch(given) as watch:
        yield watch.made
