"""Trying a function out between two tests is no other definition of it; changing it is."""

import pytest

from autograder.assignment import CodeCell
from autograder.redefining import Redefining

CELLS = (
    "import torch\nfrom course.checks import kv_cache as checks\nfrom unittest.mock import patch",
    "TABLE = {1}\nclass KVCache:\n    size = 1\ndef step(x):\n    return torch.exp(x) in TABLE",
)
NAMES = {"KVCache", "step", "TABLE", "torch"}
TRIES = [
    "x = torch.randn(3)",
    "torch.manual_seed(0)\nprint(torch.nn.functional.relu)",
    "cache = KVCache(torch.float32)\nprint(len(cache), KVCache)",
    "checks.cache_can_go_back(KVCache)",
    "for line in checks.cache_can_go_back.show(1, KVCache, step=step): print(line)",
    "assert step(2) == 3 and isinstance(x, KVCache)",
    "y: KVCache = step(step(2))",
    "def mine(cache: KVCache): return KVCache.size",
    "[step(n) for n in range(3)]",
    "%timeit -n 10 step(3)\n%matplotlib inline\n!pip install tqdm",
    "%%time\nif True:\n    %time step(3)",
]
CHANGES = [
    "KVCache.size = 2",
    "torch.nn.functional.relu = None",
    "del KVCache.size",
    "KVCache.__init__ = step",
    "setattr(KVCache, 'size', 2)",
    "patch.object(KVCache, 'size', 2).start()",
    "C = KVCache",
    "KVCache.grow()",
    "TABLE.clear()",
    "TABLE[1] = 2",
    "print(TABLE)",
    "step = torch.compile(step)",
    "def step(x): ...",
    "exec('step = 1')",
    "%timeit setattr(KVCache, 'size', 2)",
    "%run mine.py",
    "x = %timeit -o step(3)",
]


@pytest.mark.parametrize("source", TRIES)
def test_what_is_called_or_looked_at_stays_as_it_is(source):
    assert not redefines(source)


@pytest.mark.parametrize("source", CHANGES)
def test_what_may_change_is_another_definition(source):
    assert redefines(source)


@pytest.mark.parametrize("source", ["step = 1", "print = 1", "for checks in []: pass"])
def test_a_name_that_is_assigned_somewhere_may_be_changed_by_any_mention(source):
    assert redefines(
        "print(step)" if "step" in source else "print(KVCache)\nchecks.f(step)", source
    )


def redefines(source: str, *more: str) -> bool:
    sources = (*CELLS, source, *more)
    cells = [CodeCell(number, text) for number, text in enumerate(sources, 1)]
    return Redefining(cells).may_redefine(source, NAMES)
