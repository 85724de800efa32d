"""A cache is weighed rightly in whatever container it keeps its tensors, and fed by a careful caller."""

from collections import deque
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from course.checks.caches import USED_AGAIN, InputChanged, feed, stored_bytes
from course.minigpt.kv_cache import KVCache
from course.model.config import GPTConfig

CONFIG = GPTConfig(30, 3, 24, 4, 2, 40, max_seq_len=64)
SHAPE = (3, 2, 2, 20, 6)
"""(L, B, G, max_len, D) of keys or of values."""
BYTES = 2 * 3 * 2 * 2 * 20 * 6 * 4
STORE: dict = {}


def new() -> torch.Tensor:
    return torch.zeros(SHAPE)


class Holder:
    """What all containers below have in common: nothing that is stored."""

    batch, max_len = 2, 20


class InADeque(Holder):
    def __init__(self):
        self.parts = deque([new(), new()])


class InSlots:
    __slots__ = ("batch", "keys", "max_len", "values")

    def __init__(self):
        self.batch, self.max_len, self.keys, self.values = 2, 20, new(), new()


class BehindAProperty(Holder):
    def __init__(self):
        self._parts = new(), new()

    @property
    def keys(self):
        return self._parts[0].clone()


@dataclass(slots=True)
class Part:
    rows: dict


class InOtherObjects(Holder):
    def __init__(self):
        self.parts = {"keys": Part({0: new()}), "values": [Part({0: new()})]}


class InAClosure(Holder):
    def __init__(self):
        keys, values = new(), new()
        self.parts = lambda: (keys, values)


class InAGenerator(Holder):
    def __init__(self):
        def parts():
            keys, values = new(), new()
            while True:
                yield keys, values

        self.parts = parts()
        next(self.parts)


class InTheNotebook(Holder):
    def __init__(self):
        STORE[id(self), "keys"], STORE[id(self), "values"] = new(), new()


class InTheClass(Holder):
    stores: dict = {}  # noqa: RUF012

    def __init__(self):
        self.stores[id(self)] = new(), new()


class AModule(torch.nn.Module):
    batch, max_len = 2, 20

    def __init__(self):
        super().__init__()
        self.register_buffer("keys", new())
        self.register_buffer("values", new())


class InNumPy(Holder):
    def __init__(self):
        self.parts = np.zeros((2, *SHAPE), np.float32)
        self.keys = self.parts[0]
        self.values = torch.from_numpy(self.parts[1])


class AsViews(Holder):
    def __init__(self):
        whole = torch.zeros((2, *SHAPE))
        self.layers = [whole[:, layer] for layer in range(3)]


CONTAINERS = [
    *(InADeque, InSlots, BehindAProperty, InOtherObjects, InAClosure, InAGenerator),
    *(InTheNotebook, InTheClass, AModule, InNumPy, AsViews),
]


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_is_weighed_alike_beside_others_of_its_kind(container):
    others = [container(), container()]
    holder = container()
    assert stored_bytes(holder) == BYTES
    assert len(others) == 2


def test_bookkeeping_is_not_weighed_and_other_floats_are():
    holder = InADeque()
    holder.length, holder.places = torch.tensor(3), torch.arange(20)
    holder.starts = torch.zeros(2, 20, dtype=torch.int32)
    holder.mask = torch.ones(20, 20, dtype=torch.bool)
    assert stored_bytes(holder) == BYTES
    holder.codes = torch.zeros(41, dtype=torch.int64)
    assert stored_bytes(holder) == BYTES + 41 * 8
    holder.last = torch.zeros(5)
    assert stored_bytes(holder) == BYTES + 41 * 8 + 5 * 4


def test_a_memory_counts_whole_and_once_however_little_of_it_is_in_use():
    holder = InADeque()
    holder.parts.append(holder.parts[0][0, :, :, :1])
    assert stored_bytes(holder) == BYTES
    holder.one = torch.zeros(100)[:1]
    assert stored_bytes(holder) == BYTES + 400


def blocks(tokens: int = 4) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(2, 3, 2, 2, tokens, 6)).astype(np.float32)


def test_what_is_fed_is_not_contiguous_and_its_memory_is_used_again():
    class Spy(KVCache):
        def append(self, layer, k, v):
            assert not k.is_contiguous()
            assert not v.is_contiguous()
            seen.append(k)
            return super().append(layer, k, v)

    seen, rows = [], blocks()
    returned = feed(Spy(CONFIG, 2, 8), rows)
    assert all((k == USED_AGAIN).all() for k in seen)
    assert np.array_equal(np.stack(returned, axis=1), rows)


def test_a_cache_that_keeps_the_given_tensor_holds_other_numbers_afterwards():
    class Keeps(KVCache):
        def append(self, layer, k, v):
            if self.length == 0:
                self.given = [*getattr(self, "given", []), (k, v)]
                return k, v
            old = self.given[layer]
            return torch.cat([old[0], k], dim=2), torch.cat([old[1], v], dim=2)

    cache, rows = Keeps(CONFIG, 2, 8), blocks()
    feed(cache, rows[..., :2, :])
    assert (np.stack(feed(cache, rows[..., 2:, :]))[..., :2, :] == USED_AGAIN).all()


def test_an_append_that_writes_into_its_arguments_is_named():
    class Scales(KVCache):
        def append(self, layer, k, v):
            returned = super().append(layer, k, v)
            v.mul_(2)
            return returned

    with pytest.raises(InputChanged, match=r"append\(layer=0, …\) wrote into the values"):
        feed(Scales(CONFIG, 2, 8), blocks())
