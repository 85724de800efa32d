"""Count the rows of keys that a model computes, however its weights are used.

with count_kv_rows(model) as count:
    model(tokens)
count.rows  # tokens for which a key was computed, in one layer

To compute the key of one token, every number of `wk` is multiplied once. So multiplications by numbers of
`wk` are counted, in every product that PyTorch makes: of `attn.wk(x)`, of `x @ attn.wk.weight.T`, of
copies of the weight in another dtype, and of a larger matrix that holds it beside others. What NumPy
and TorchScript multiply is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from course.measure.operations import OperationMode
from course.model import MiniGPT


@dataclass
class KVRowCount:
    """The number of tokens for which a key, and with it a value, was computed.

    Attributes:
        by_layer: for each layer, the rows (B·T) of each use of its `wk`, in order of time.
    """

    by_layer: list[list[int]] = field(repr=False)

    @property
    def per_call(self) -> list[int]:
        """List the rows of each forward pass, in one layer.

        Raises:
            ValueError: the layers did not all do the same, so there is no one answer.
        """
        for layer, calls in enumerate(self.by_layer):
            if calls != self.by_layer[0]:
                raise ValueError(
                    f"the layers computed keys for different numbers of tokens: layer 0 for "
                    f"{self.by_layer[0]}, layer {layer} for {calls}; every forward pass must use "
                    f"each layer's wk once, on the same tokens"
                )
        return list(self.by_layer[0])

    @property
    def rows(self) -> int:
        """Add up the rows of all forward passes, in one layer."""
        return sum(self.per_call)


@contextmanager
def count_kv_rows(model: MiniGPT) -> Iterator[KVRowCount]:
    """Count the rows that are multiplied by every layer's `attn.wk` inside the `with` block.

    A forward pass of tokens (B, T) counts B·T. A use that takes `wk` in parts, a head at a time, is one
    use. The model computes as before.

    Raises:
        ValueError: `model` is not a MiniGPT.
    """
    if not isinstance(model, MiniGPT):
        raise ValueError(f"model must be a MiniGPT, got {type(model).__name__}")
    uses = [_Uses(block.attn.wk.weight.numel()) for block in model.blocks]
    count = KVRowCount(by_layer=[use.rows for use in uses])
    with _FunctionsOfMarked(_Products(model, uses)):
        yield count


class _Uses:
    """Adds up multiplications by the numbers of one layer's weight to uses of the whole weight.

    Attributes:
        rows: the rows of each use so far. A use of a part of the weight counts as that part, rounded up.
    """

    def __init__(self, n_numbers: int) -> None:
        self.rows: list[int] = []
        self._n_numbers = n_numbers
        self._parts: dict[int, Tensor] = {}  # by use: how often each number was multiplied

    def add(self, share: Tensor, times: int) -> None:
        """Add a product, in which number i of the weight was multiplied share[i] · times times."""
        used = share > 0
        place = next((n for n, part in self._parts.items() if not part[used].any()), len(self.rows))
        if place == len(self.rows):
            self.rows.append(0)
        part = self._parts.pop(place, 0) + share * times
        self.rows[place] = -(-int(part.sum()) // self._n_numbers)
        if not part.all():
            self._parts[place] = part


class _FunctionsOfMarked(TorchFunctionMode):
    """Follow only those functions of PyTorch that are given numbers of a `wk`: following every operation
    would take four times as long as the forward pass."""

    def __init__(self, products: _Products) -> None:
        super().__init__()
        self._products = products

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._products.may_be_marked(args) or self._products.may_be_marked(kwargs.values()):
            with self._products:
                return function(*args, **kwargs)
        return function(*args, **kwargs)


class _Products(OperationMode):
    """Follow the numbers of every `wk` through copies, and count the products that they go into.

    For each memory that holds some of them there is a second one of whole numbers, the marks: i + 1 for
    number i of all the weights, one layer after the other, and 0 for any other number. A tensor's marks
    are those of its memory, so views need no special care.
    """

    def __init__(self, model: MiniGPT, uses: list[_Uses]) -> None:
        super().__init__()
        self._uses = uses
        self._memories: dict[int, tuple[Tensor, Tensor]] = {}  # a tensor kept alive, and the marks
        self._known: dict[tuple, list[tuple[_Uses, Tensor]]] = {}  # what `_shares` found
        self._weights = {_memory(parameter) for parameter in model.parameters()}
        weights = [block.attn.wk.weight for block in model.blocks]
        self._sizes, first = [weight.numel() for weight in weights], 1
        for weight in weights:
            marks = torch.arange(first, first + weight.numel(), device=weight.device)
            self._mark(weight, marks.view(weight.shape))
            first += weight.numel()

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = _name_if_followed(operation)
        if name == _MADE_OF_OTHERS:
            with self:  # in inference mode some operations come here whole, such as `linear`
                return operation.decompose(*args, **kwargs)
        result = operation(*args, **kwargs)
        if name and any(map(self._holds_marks, _flat(args))):
            with _disable_current_modes():
                self._follow(operation, name, args, kwargs, result)
        return result

    def _follow(self, operation: Any, name: str, args: tuple, kwargs: dict, result: Any) -> None:
        if name == "copy_" and _memory(args[0]) not in self._weights:
            self._mark(args[0], self._marks(args[1]).expand(args[0].shape))
        elif name in ("mul", "div") and self._only_scales(args):
            self._mark(result, self._marks(next(filter(self._holds_marks, args))).expand_as(result))
        elif name in _PRODUCTS:
            self._count(*_PRODUCTS[name](*args))
        elif name in _COPIES:
            moved = tree_map_only(Tensor, self._marks, (args, kwargs))
            moved[1].pop("dtype", None)  # marks stay whole numbers
            self._mark(result, operation(*moved[0], **moved[1]))

    def _only_scales(self, args: tuple) -> bool:
        """Tell whether the marked number is scaled by a plain number or another weight."""
        other = [value for value in args if not self._holds_marks(value)]
        return all(
            not isinstance(value, Tensor) or value.dim() == 0 or _memory(value) in self._weights
            for value in other
        )

    def _count(self, *factors: tuple[Tensor, int]) -> None:
        for factor, times in factors:
            if self._holds_marks(factor):
                for uses, share in self._shares(factor):
                    uses.add(share, times)

    def _shares(self, factor: Tensor) -> list[tuple[_Uses, Tensor]]:
        """List which layers' weights a tensor holds numbers of, and each number how often."""
        place = (_memory(factor), factor.shape, factor.stride(), factor.storage_offset())
        if place not in self._known:
            counts = torch.bincount(self._marks(factor).flatten(), minlength=1 + sum(self._sizes))
            layers = zip(self._uses, counts[1:].split(self._sizes), strict=True)
            self._known[place] = [(uses, share) for uses, share in layers if share.any()]
        return self._known[place]

    def may_be_marked(self, values: Iterable[Any]) -> bool:
        """Tell whether one of these values, or of a list's items, has marked numbers, or is a tensor
        whose memory is out of reach, as inside `torch.vmap`."""
        try:
            return any(
                self.may_be_marked(value)
                if isinstance(value, list | tuple)
                else self._holds_marks(value)
                for value in values
            )
        except (RuntimeError, NotImplementedError):
            return True

    def _holds_marks(self, value: Any) -> bool:
        return isinstance(value, Tensor) and _memory(value) in self._memories

    def _marks(self, tensor: Tensor) -> Tensor:
        """Return the marks of a tensor's numbers, of its shape."""
        known = self._memories.get(_memory(tensor))
        if known is None or known[0].element_size() != tensor.element_size():
            return torch.zeros(tensor.shape, dtype=torch.int64, device=tensor.device)
        return known[1].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def _mark(self, tensor: Tensor, marks: Tensor) -> None:
        if _memory(tensor) not in self._memories:
            n = tensor.untyped_storage().nbytes() // tensor.element_size()
            with torch.inference_mode(False):  # elsewhere it could not be written to later
                empty = torch.zeros(n, dtype=torch.int64, device=tensor.device)
            self._memories[_memory(tensor)] = tensor, empty
        self._marks(tensor).copy_(marks)
        self._known.clear()


_MADE_OF_OTHERS = "made of others"


@cache
def _name_if_followed(operation: Any) -> str:
    """Name a product or a copying operation; say of another whether it is made of several; else ""."""
    name = operation.__name__.split(".")[0]
    if name in _PRODUCTS or name in _COPIES:
        return name
    whole = operation.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    return _MADE_OF_OTHERS if whole else ""


def _flat(args: tuple) -> Iterator[Any]:
    """Yield the arguments of an operation, and the items of those that are lists, as of `cat`."""
    for value in args:
        yield from value if isinstance(value, list | tuple) else (value,)


def _elementwise(a: Any, b: Any) -> list[tuple[Any, int]]:
    """Factors of a product number by number, each as wide as the result."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return []
    return [(factor, 1) for factor in torch.broadcast_tensors(a, b)]


_PRODUCTS = {
    "mm": lambda a, b: [(a, b.shape[1]), (b, a.shape[0])],
    "addmm": lambda _, a, b: [(a, b.shape[1]), (b, a.shape[0])],
    "bmm": lambda a, b: [(a, b.shape[2]), (b, a.shape[1])],
    "baddbmm": lambda _, a, b: [(a, b.shape[2]), (b, a.shape[1])],
    "mv": lambda a, b: [(a, 1), (b, a.shape[0])],
    "addmv": lambda _, a, b: [(a, 1), (b, a.shape[0])],
    "dot": lambda a, b: [(a, 1), (b, 1)],
    "convolution": lambda x, kernel, *_: [(kernel, x.numel() // x.shape[1])],
    "mul": _elementwise,
    "div": _elementwise,
}
"""The products: their factors, each with how often every number of it is multiplied. (A convolution with
a kernel of width 1 is a product like any other; wider ones have no place in the model.)"""
_COPIES = {
    *("clone", "_to_copy", "copy_", "cat", "stack", "repeat", "flip", "roll", "_reshape_copy"),
    *("index", "_unsafe_index", "index_select", "gather", "take", "constant_pad_nd"),
    *("select_scatter", "slice_scatter"),
}
"""The operations whose result holds numbers of their arguments, in a memory of its own."""


def _memory(tensor: Tensor) -> int:
    """Identify the memory of a tensor, as long as the tensor lives."""
    return tensor.untyped_storage()._cdata
