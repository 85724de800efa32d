"""Check what a cache with a window refuses, and how far back it can go."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome
from course.checks.recorder import given
from course.checks.sliding_window.holding import (
    READ,
    describe,
    draw_rows,
    new_cache,
    read,
    wrong_read,
)

Operation = tuple[str, int]
Truth = Callable[[Challenge], list[str]]
"""What each operation of a case must come to: "returned", "ValueError" or "CacheFull"."""


def draw_returns(seed: int) -> Challenge:
    """Draw operations on caches of a few sizes: single tokens are fed, truncates go one back, too far, to
    the sinks and to nothing, also behind a block longer than the window, and the text ends exactly at
    max_len. The operations of the last case are drawn."""
    rng = np.random.default_rng(seed)
    window, n_sinks = int(rng.integers(3, 6)), int(rng.integers(1, 3))
    full = n_sinks + window
    fed = [("feed", 1)] * (full + 2)
    back = [("truncate", full + 1), ("feed", 1), ("truncate", full), ("truncate", full + 3)]
    again = [*back, ("truncate", -1), ("truncate", full + 2), ("feed", 1), ("feed", 1), ("feed", 1)]
    home = [("truncate", n_sinks), *fed[:3], ("truncate", n_sinks + 1), ("truncate", 0), *fed[:2]]
    long_block = [("feed", full + 3), ("truncate", full), ("truncate", full + 2), ("feed", 1)]
    cases = [
        _case(rng, window, n_sinks, full + 4, [*fed, *again, *home]),
        _case(rng, 1, 1, 6, [*fed[:5], ("truncate", 2), ("feed", 1), ("feed", 1), ("reset", 0)]),
        _case(rng, 30, 0, 6, [*fed[:6], ("feed", 1), ("truncate", 2), ("feed", 1)]),
        _case(rng, window, n_sinks, 99, long_block),
    ]
    return {"cases": [*cases, _drawn(rng)]}


def _case(
    rng: np.random.Generator, window: int, n_sinks: int, max_len: int, operations: list[Operation]
) -> Challenge:
    n = sum(max(size, 0) for name, size in operations if name == "feed")
    rows = draw_rows(rng, n, batch=2)
    sizes = {"window": window, "n_sinks": n_sinks, "max_len": max_len}
    return {**sizes, "operations": operations, "rows": rows}


def _drawn(rng: np.random.Generator) -> Challenge:
    window, n_sinks = int(rng.integers(2, 6)), int(rng.integers(0, 3))
    operations: list[Operation] = [("feed", 1)] * int(rng.integers(3, 12))
    for _ in range(16):
        name = str(rng.choice(["feed", "feed", "truncate"]))
        operations.append((name, 1 if name == "feed" else int(rng.integers(0, 12))))
    return _case(rng, window, n_sinks, 14, operations)


def probe_returns(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Do the operations of each case on one cache; note what each came to, and what was read."""
    return {"cases": [_operate(student, case) for case in challenge["cases"]]}


def _operate(student: SimpleNamespace, case: Challenge) -> list[Evidence]:
    cache, records, taken = new_cache(student, case, case["max_len"]), [], 0
    for name, size in case["operations"]:
        block = case["rows"][..., taken : taken + max(size, 0), :]
        seen: list[Evidence] = []

        def operate(name=name, size=size, block=block, seen=seen) -> None:
            if name == "feed" and len(cache) >= case["max_len"]:
                _append(cache, block)
            elif name == "feed":
                seen.append(read(cache, block))
            elif name == "truncate":
                cache.truncate(size)
            else:
                cache.reset()

        came = outcome(operate)
        taken += size if name == "feed" else 0
        records.append({"came": came, "length": len(cache), "read": seen})
    return records


def _append(cache: Any, block: np.ndarray) -> None:
    """Append to the first layer, without asking for places first: there are none left."""
    cache.append(0, *given(block[:, 0]))


def returns_form(challenge: Challenge) -> Evidence:
    record = {"came": str, "length": int, "read": Each(READ)}
    return {"cases": [[record] * len(case["operations"]) for case in challenge["cases"]]}


@check("WindowedKVCache", draw=draw_returns, probe=probe_returns, evidence=returns_form)
def refusal_and_return(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Follow the operations with a list of the rows that make up the text."""
    for case, records in zip(challenge["cases"], evidence["cases"], strict=True):
        held: list[int] = []  # which row each token of the text is
        done: list[str] = []
        taken = 0
        wanted = truth(
            {name: case[name] for name in ("window", "n_sinks", "max_len", "operations")}
        )
        for (name, size), came, record in zip(case["operations"], wanted, records, strict=True):
            before = len(held)
            if name == "feed":
                held = [*held, *range(taken, taken + size)] if came == "returned" else held
                taken += size
            elif came == "returned":
                held = held[: size if name == "truncate" else 0]
            done.append({"feed": f"{size} fed", "reset": "reset()"}.get(name, f"truncate({size})"))
            where = f"{describe(case)}, max_len {case['max_len']}, {_in_words(done)}"
            if record["came"] != came:
                return failed(
                    f"{where}: {record['came']}, wanted is {came}. {_ask(name, size, before, came)}"
                )
            if record["length"] != len(held):
                return failed(f"{where}: len(cache) is {record['length']}, wanted is {len(held)}.")
            if name == "feed" and came == "returned":
                if len(record["read"]) != 1:
                    return failed(f"{where}: nothing was read.")
                if wrong := wrong_read(case, record["read"][0], held, size):
                    return failed(f"{where}: {wrong}")
    return passed(
        "It is full at max_len, goes back as far as its rows reach, and refuses the rest."
    )


def _in_words(done: list[str]) -> str:
    """Join operations, the same ones in a row counted: "5 fed, truncate(4)"."""
    joined: list[str] = []
    fed = 0
    for operation in [*done, ""]:
        if operation == "1 fed":
            fed += 1
            continue
        joined += [f"{fed} fed"] * bool(fed) + [operation] * bool(operation)
        fed = 0
    return ", ".join(joined)


def _ask(name: str, size: int, before: int, came: str) -> str:
    if name == "feed":
        return "Is it the storage that is full, or the text that is too long?"
    if not 0 <= size <= before:
        return f"{before} tokens are there. How many can it go back to?"
    if came == "ValueError":
        return f"Which rows does token {size} need, and which of them are overwritten?"
    return f"Which rows does token {size} need, and are they not all there?"
