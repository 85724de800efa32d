"""What one forward pass costs: floating-point operations, and the bytes that it must move.

A cost is a count, the same on every machine; the limits of a machine turn it into seconds.
Lesson 05 computes a `Cost` from the sizes of a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from course.measure.limits import Machine


@dataclass(frozen=True)
class Cost:
    """The bill of one forward pass of T new tokens in each of B rows.

    Attributes:
        flops: floating-point operations; a multiply-add is 2.
        weight_bytes: matrices read, each once, however many tokens go through.
        kv_read_bytes: keys and values that attention reads, those of the new tokens included.
        kv_written_bytes: keys and values that are added to the cache.
        activation_bytes: rows that matrices read and write.

    Raises:
        ValueError: a count is not a whole number of at least 0. A whole float or NumPy number is
            converted to an int.
    """

    flops: int
    weight_bytes: int
    kv_read_bytes: int
    kv_written_bytes: int
    activation_bytes: int

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if not is_number or not 0 <= value < math.inf or value != int(value):
                raise ValueError(
                    f"{field.name} must be a whole number of at least 0, got {value!r}"
                )
            object.__setattr__(self, field.name, int(value))

    @property
    def bytes(self) -> int:
        """All bytes moved, read and written."""
        return (
            self.weight_bytes + self.kv_read_bytes + self.kv_written_bytes + self.activation_bytes
        )

    @property
    def intensity(self) -> float:
        """Arithmetic intensity in FLOP/byte; Williams, Waterman & Patterson 2009.

        Raises:
            ValueError: no bytes are moved, so there is no ratio.
        """
        if not self.bytes:
            raise ValueError("a cost without bytes has no intensity")
        return self.flops / self.bytes

    def parts(self, attention_flops: int) -> Parts:
        """Split the bill into its matrix products and its attention.

        Args:
            attention_flops: how many of the FLOPs are attention's. Its bytes are the cache's.

        Raises:
            ValueError: attention has more FLOPs than the bill.
        """
        cache = {"kv_read_bytes": self.kv_read_bytes, "kv_written_bytes": self.kv_written_bytes}
        return Parts(
            replace(self, flops=self.flops - attention_flops, **dict.fromkeys(cache, 0)),
            Cost(attention_flops, weight_bytes=0, activation_bytes=0, **cache),
        )


class Parts(NamedTuple):
    """One forward pass in two parts. In each layer one waits for the other, so their seconds add up.

    Attributes:
        matrices: the weights and activations, and the FLOPs of the matrix products.
        attention: the cache, and the FLOPs of scores and of sums of values.
    """

    matrices: Cost
    attention: Cost

    @property
    def whole(self) -> Cost:
        """The bill of both together."""
        sums = {f.name: sum(getattr(part, f.name) for part in self) for f in fields(Cost)}
        return Cost(**sums)

    def seconds(self, attainable: Callable[[float, Machine], float], machine: Machine) -> float:
        """Add up the seconds of both parts, each at the FLOP/s that its own intensity allows.

        Args:
            attainable: lesson 05's function.
        """
        return sum(part.flops / attainable(part.intensity, machine) for part in self)
