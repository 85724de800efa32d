"""Record which tensors a piece of code makes.

with watch_new_tensors(q, k, v) as made:
    attention(q, k, v)
made.numbers  # how many numbers were written into new memory

A view is not a new tensor: `transpose`, `expand` and a slice share the memory of what they view. Copies
are recorded, also those that an operation makes internally, such as a matrix product whose batch axes
differ. Memory that an operation of PyTorch uses only while it runs is not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from course.measure.operations import OperationMode


@dataclass(frozen=True)
class NewTensor:
    """A tensor with memory of its own.

    Attributes:
        made_by: PyTorch's name of the operation, such as "clone" or "bmm".
        shape: its shape in that operation.
        numbers: how many numbers its memory holds.
    """

    made_by: str
    shape: tuple[int, ...]
    numbers: int


def in_python(made_by: str) -> str:
    """Write an operation's name as it is called in Python, where that is another one.

    For example "_to_copy: to, float, double"; of others, the name alone."""
    calls = {
        "_to_copy": "to, float, double",
        "clone": "clone, contiguous, reshape, repeat_interleave",
    }
    return f"{made_by}: {calls[made_by]}" if made_by in calls else made_by


@dataclass
class NewTensors:
    """The tensors that were made, in order of time.

    Attributes:
        tensors: the new ones.
        read: for each given tensor, whether an operation computed something else from it, such as a
            product. (Views do not count, and what NumPy does is not seen.)
    """

    tensors: list[NewTensor] = field(default_factory=list)
    read: list[bool] = field(default_factory=list)

    @property
    def numbers(self) -> int:
        """Add up the numbers of all new tensors."""
        return sum(tensor.numbers for tensor in self.tensors)

    @property
    def largest(self) -> NewTensor | None:
        """Return the new tensor with the most numbers, the first of several, or None."""
        return max(self.tensors, key=lambda tensor: tensor.numbers, default=None)


class _Watch(OperationMode):
    """Record the results of every operation of PyTorch, whatever it was called through."""

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
    """Identify the memory of a tensor, as long as the tensor lives."""
    return tensor.untyped_storage()._cdata


def _memories(values: Any) -> set[int]:
    return {_memory(value) for value in tree_leaves(values) if isinstance(value, Tensor)}


@contextmanager
def watch_new_tensors(*given: Tensor) -> Iterator[NewTensors]:
    """Record every tensor made inside the `with` block; all of them stay alive until it ends.

    Args:
        given: tensors that existed before. Any other that is used inside counts as new.
    """
    with _Watch(given) as watch:
        yield watch.made
