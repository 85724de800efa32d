"""Write what an allocator did in one form: which of the free blocks it hands out is its own affair."""

from __future__ import annotations

from typing import Any

from course.checks.check import Challenge
from course.checks.paged_cache.allocating import Operation, wrong_operation


def without_numbers(challenge: Challenge, evidence: Any) -> Any:
    """Write of each operation how many blocks came, how many of these were owned already, and the counts
    of owners in order; up to the first allocation after something went wrong."""
    runs = zip(challenge["runs"], evidence.get("runs", ()), strict=False)
    return {**evidence, "runs": [_run(challenge["n_blocks"], *pair) for pair in runs]}


def _run(
    n: int, operations: list[Operation], records: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    written, before, is_wrong = [], [], False
    for step, ((name, _), record) in enumerate(zip(operations, records, strict=False), 1):
        if is_wrong and name == "allocate":
            break  # what follows depends on which blocks come
        returned = record["returned"]
        counts = {
            "returned": len(returned),
            "twice": len(returned) - len(set(returned)),
            "owned": sum(0 <= block < len(before) and before[block] > 0 for block in returned),
        }
        written.append({**record, **counts, "owners": sorted(record["owners"])})
        is_wrong = is_wrong or wrong_operation(n, operations[:step], records[:step]) is not None
        before = record["owners"]
    return written


FORMS = dict.fromkeys(("blocks_are_given_once", "a_refusal_is_whole"), without_numbers)
"""By the name of a check."""
