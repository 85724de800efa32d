"""Write what an allocator did in one form: which of the free blocks it hands out is its own affair."""

from __future__ import annotations

from typing import Any

from course.checks.check import Challenge
from course.checks.paged_cache.allocating import Operation, wrong_operation


def without_numbers(challenge: Challenge, evidence: Any) -> Any:
    """Write of each operation, up to the first that came out wrong, how many blocks came, how many of
    these were owned already, and the counts of owners in order."""
    runs = zip(challenge["runs"], evidence.get("runs", ()), strict=False)
    return {**evidence, "runs": [_run(challenge["n_blocks"], *pair) for pair in runs]}


def _run(
    n: int, operations: list[Operation], records: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    written, before = [], []
    for step, record in enumerate(records, 1):
        returned = record["returned"]
        counts = {
            "returned": len(returned),
            "twice": len(returned) - len(set(returned)),
            "owned": sum(0 <= block < len(before) and before[block] > 0 for block in returned),
        }
        written.append({**record, **counts, "owners": sorted(record["owners"])})
        if wrong_operation(n, operations[:step], records[:step]):
            break  # what follows depends on which blocks came
        before = record["owners"]
    return written


FORMS = {"blocks_are_given_once": without_numbers}
"""By the name of a check."""
