"""Check what a cache with a window refuses, and how far back it can go."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.cache_operations import RECORD, Operation, run
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.sliding_window.holding import (
    came_in_another_order,
    draw_rows,
    handle,
    wrong_case,
)

Step = tuple[str, int]
"""("feed", how many), ("truncate", n) or ("reset", 0)."""
Truth = Callable[[Challenge], list[str]]
"""What each operation of a case must come to: "returned", "ValueError" or "CacheFull"."""


def draw_returns(seed: int) -> Challenge:
    """Draw operations on caches of a few sizes: single tokens are fed, truncates go one back, one more,
    too far, to the sinks and to nothing, also behind a block longer than the window, and the text ends
    exactly at max_len. Of the last case but one the operations are drawn; in the last one a block longer
    than the window brings all sinks but the first."""
    rng = np.random.default_rng(seed)
    window, n_sinks = int(rng.integers(3, 6)), int(rng.integers(1, 3))
    full = n_sinks + window
    fed = [("feed", 1)] * (full + 2)
    back = [("truncate", full + 1), ("truncate", full), ("feed", 1)]
    back += [("truncate", full), ("truncate", full + 3)]
    again = [*back, ("truncate", -1), ("truncate", full + 2), ("feed", 1), ("feed", 1), ("feed", 1)]
    home = [("truncate", n_sinks), *fed[:3], ("truncate", n_sinks + 1), ("truncate", 0), *fed[:2]]
    long_block = [
        *fed[:n_sinks],
        ("feed", window + 3),
        ("truncate", full),
        ("truncate", full + 2),
        ("feed", 1),
    ]
    cases = [
        _case(rng, window, n_sinks, full + 4, [*fed, *again, *home]),
        _case(rng, 1, 1, 6, [*fed[:5], ("truncate", 2), ("feed", 1), ("feed", 1), ("reset", 0)]),
        _case(rng, 30, 0, 6, [*fed[:6], ("feed", 1), ("truncate", 2), ("feed", 1)]),
        _case(rng, window, n_sinks, 99, long_block),
        _case(rng, window, 0, 99, [("feed", window + 2), ("reset", 0), ("feed", 2)]),
    ]
    drawn = _drawn(rng)
    late_sinks = _case(rng, window, 3, 99, [("feed", 1), ("feed", window + 4), ("feed", 1)])
    return {"cases": [*cases, drawn, late_sinks]}


def _case(
    rng: np.random.Generator, window: int, n_sinks: int, max_len: int, operations: list[Step]
) -> Challenge:
    n = sum(max(size, 0) for name, size in operations if name == "feed")
    rows = draw_rows(rng, n, batch=2)
    sizes = {"window": window, "n_sinks": n_sinks, "max_len": max_len}
    return {**sizes, "operations": operations, "rows": rows}


def _drawn(rng: np.random.Generator) -> Challenge:
    window, n_sinks = int(rng.integers(2, 6)), int(rng.integers(0, 3))
    operations: list[Step] = [("feed", 1)] * int(rng.integers(3, 12))
    for _ in range(16):
        name = str(rng.choice(["feed", "feed", "truncate"]))
        operations.append((name, 1 if name == "feed" else int(rng.integers(0, 12))))
    return _case(rng, window, n_sinks, 14, operations)


def _on_one_cache(case: Challenge) -> list[Operation]:
    """List a case's operations on one cache: each feed takes the rows that come next."""
    operations: list[Operation] = [("new", 0, case["max_len"])]
    taken = 0
    for name, size in case["operations"]:
        what = {"feed": [*range(taken, taken + size)], "reset": None}.get(name, size)
        taken += size if name == "feed" else 0
        operations.append((name, 0, what))
    return operations


def probe_returns(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Do the operations of each case on one cache."""
    return {
        "cases": [run(_on_one_cache(case), handle(student, case)) for case in challenge["cases"]]
    }


def returns_form(challenge: Challenge) -> Evidence:
    return {"cases": [[RECORD] * (1 + len(case["operations"])) for case in challenge["cases"]]}


@check("WindowedKVCache", draw=draw_returns, probe=probe_returns, evidence=returns_form)
def refusal_and_return(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Follow the operations with a list of the rows that make up the text."""
    tried = [
        (case, _on_one_cache(case), records)
        for case, records in zip(challenge["cases"], evidence["cases"], strict=True)
    ]
    any_order = any(came_in_another_order(*one) for one in tried)
    for case, operations, records in tried:
        names = ("window", "n_sinks", "max_len", "operations")
        outcomes = ["returned", *truth({name: case[name] for name in names})]
        if wrong := wrong_case(
            case, operations, records, any_order, outcomes=outcomes, question=_ask
        ):
            return failed(wrong)
    return passed(
        "It is full at max_len, goes back as far as its rows reach, and refuses the rest."
    )


def _ask(name: str, size: Any, before: int, expected: str) -> str:
    if name == "feed":
        return "How many tokens may the text have, and does this block still fit?"
    size = size or 0  # of a reset
    if not 0 <= size <= before:
        return f"{before} tokens are there. How many can it go back to?"
    if expected == "ValueError":
        return f"Which rows does token {size} need, and which of them are overwritten?"
    return f"Which rows does token {size} need, and are they all there?"
