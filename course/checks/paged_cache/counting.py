"""Check which blocks a paged cache owns: none too many, none too early, none lost when it is refused, and
one copy where a shared block is written.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Check, Evidence, Verdict, check, failed, passed
from course.checks.paged_cache.pages import (
    CONFIG,
    Operation,
    draw_rows,
    in_words,
    named,
    records_form,
    run,
    stopped,
)
from course.checks.paged_cache.reading import wrong_rows
from course.checks.recorded import Recorded

Owned = dict[str, Any]
"""After an operation: what it `came` to; `tables`, for each cache a name for each of its blocks, which no
other block ever has; and how many are `used`."""
Truth = Callable[[int, int, list[Operation]], list[Owned]]
"""Follow operations on n_blocks blocks of a size."""
BLOCK_BYTES = 2 * CONFIG.n_layers * CONFIG.n_kv_heads * CONFIG.head_dim * 4
"""Bytes of a block, for each of its tokens."""


def _case(
    rng: np.random.Generator, size: int, n_blocks: int, operations: list[Operation]
) -> Challenge:
    tokens = [
        what for name, _, what in operations if name in ("feed", "append") for what in [max(what)]
    ]
    return {
        "size": size,
        "n_blocks": n_blocks,
        "order": rng.permutation(n_blocks).tolist(),
        "rows": draw_rows(rng, max(tokens) + 1),
        "operations": operations,
    }


def draw_lengths(seed: int) -> Challenge:
    """Draw 30 operations on two caches that never run out of blocks: feeds, appends that are not
    advanced, truncates and resets."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 6))
    held = [0, 0]
    operations: list[Operation] = [
        ("new", 0, None),
        ("new", 1, None),
        ("feed", 0, list(range(size - 1))),
        ("feed", 0, [0]),
        ("feed", 1, list(range(2 * size))),
        ("feed", 0, [1]),
        ("truncate", 0, size),
        ("append", 0, list(range(size + 1))),
        ("truncate", 0, size),
        ("append", 0, [0]),
        ("feed", 0, [0]),
    ]
    held = [size + 1, 2 * size]
    for _ in range(24):
        number = int(rng.integers(2))
        name = str(rng.choice(["feed"] * 4 + ["append", "truncate", "truncate", "reset"]))
        n = int(rng.integers(1, 2 * size + 1))
        if name in ("feed", "append") and held[number] + n > 30:
            name = "truncate"
        if name == "feed":
            operations.append((name, number, list(range(n))))
            held[number] += n
        elif name == "append":  # and the forward pass goes no further
            operations += [(name, number, list(range(n))), ("truncate", number, held[number])]
        elif name == "truncate":
            held[number] = int(rng.integers(0, held[number] + 1))
            operations.append((name, number, held[number]))
        else:
            held[number] = 0
            operations.append((name, number, None))
    operations += [("reset", 0, None), ("reset", 1, None)]
    return _case(rng, size, 24, operations)


def judge_lengths(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Compare the number of blocks in each table, free blocks and bytes after each operation."""
    size = challenge["size"]
    wanted = truth(challenge["n_blocks"], size, challenge["operations"])
    for step, (seen, want) in enumerate(zip(evidence["records"], wanted, strict=True)):
        if wrong := stopped(challenge, step, seen, want["came"]):
            return failed(wrong)
        said = in_words(challenge, step)
        counts = [len(table.split()) for table in seen["tables"]]
        owned = [len(table) for table in want["tables"]]
        if counts != owned:
            return failed(
                f"{said}: the tables have {counts} blocks, wanted are {owned}. Which tokens need a "
                f"block, and which blocks hold none?"
            )
        if seen["free"] != challenge["n_blocks"] - want["used"]:
            return failed(
                f"{said}: the tables have {counts} blocks, but {seen['free']} of "
                f"{challenge['n_blocks']} are free, not {challenge['n_blocks'] - want['used']}. Is "
                f"each block taken once for all layers, and does the pool get it back?"
            )
        for cache, stayed in zip("AB", seen["stayed"], strict=False):
            if "x" in stayed:
                return failed(
                    f"{said}: entry {stayed.index('x')} of {cache}'s table is another block than "
                    f"before. Which tokens are kept, and in which blocks do they lie?"
                )
        if seen["nbytes"] != [n * size * BLOCK_BYTES for n in owned]:
            return failed(
                f"{said}: nbytes() is {seen['nbytes']} for {owned} blocks of {size} tokens with "
                f"{BLOCK_BYTES} bytes each. What does a block hold, in how many layers?"
            )
    return passed("A block is taken when its first token comes and released with its last one.")


LENGTHS_KEPT = ("tables", "stayed", "nbytes", "free")


def probe_lengths(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Do the operations on one pool."""
    return {"records": run(student, challenge, LENGTHS_KEPT)}


def lengths_form(challenge: Challenge) -> Evidence:
    return {"records": records_form(challenge, LENGTHS_KEPT)}


blocks_follow_the_length = Check(
    "blocks_follow_the_length",
    ("PagedKVCache", "BlockPool"),
    draw_lengths,
    probe_lengths,
    judge_lengths,
    evidence=lengths_form,
    truth=Recorded("paged_cache", "blocks_follow_the_length"),
)


# --- refusals -------------------------------------------------------------------------------------


def draw_full(seed: int) -> Challenge:
    """Draw two cases: a cache that reaches its max_len, and a pool that runs out of blocks."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 6))
    limit = 2 * size + int(rng.integers(1, size))
    rest = limit - size - 1
    longest: list[Operation] = [
        ("new", 0, limit),
        ("new", 1, limit),
        ("append", 1, list(range(2 * size))),  # and the forward pass goes no further
        ("feed", 1, list(range(2))),
        ("feed", 0, list(range(size + 1))),
        ("feed", 0, list(range(rest + 1))),
        ("feed", 0, list(range(rest, 2 * rest))),
        ("feed", 0, [0]),
        ("feed", 1, list(range(1, limit))),
        ("feed", 1, list(range(limit - 2))),
        ("truncate", 0, limit - 1),
        ("feed", 0, [3]),
        ("feed", 0, [4]),
    ]
    two = size - 2
    out: list[Operation] = [
        ("new", 0, None),
        ("new", 1, None),
        ("feed", 0, list(range(2 * size + 2))),  # 3 blocks of 6
        ("feed", 1, list(range(size))),  # 1
        ("feed", 0, list(range(two + 2 * size + 1))),  # 3 more are needed, 2 are free
        ("feed", 1, list(range(3 * size))),
        ("feed", 0, list(range(two))),  # in the last block
        ("feed", 0, list(range(1, 2 * size))),  # the last 2 blocks, but for a place
        ("feed", 1, [5]),
        ("feed", 0, [6]),  # in the last place
        ("feed", 0, [7]),
        ("reset", 1, None),
        ("feed", 0, [8]),
        ("feed", 1, [9]),
    ]
    return {"cases": [_case(rng, size, 9, longest), _case(rng, size, 6, out)]}


FULL_KEPT = ("returned", "lengths", "tables", "stayed", "free", "nbytes")


def probe_full(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run both cases, each on a pool of its own."""
    return {"cases": [run(student, case, FULL_KEPT) for case in challenge["cases"]]}


def full_form(challenge: Challenge) -> Evidence:
    return {"cases": [records_form(case, FULL_KEPT) for case in challenge["cases"]]}


@check("PagedKVCache", "BlockPool", draw=draw_full, probe=probe_full, evidence=full_form)
def full_changes_nothing(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """What does not fit is refused and leaves tables, counts and tokens as they were; all else fits."""
    for case, records in zip(challenge["cases"], evidence["cases"], strict=True):
        wanted = truth(case["n_blocks"], case["size"], case["operations"])
        for step, (now, want) in enumerate(zip(records, wanted, strict=True)):
            if now["came"] == "CacheFull" and want["came"] == "returned":
                return failed(
                    f"{in_words(case, step)}: CacheFull, but it fits: {records[step - 1]['free']} "
                    f"blocks were free. How many places are left in the last block?"
                )
            if wrong := stopped(case, step, now, want["came"]):
                return failed(wrong)
            if want["came"] != "CacheFull":
                continue
            for what in ("lengths", "tables", "free", "nbytes"):
                if now[what] != records[step - 1][what]:
                    return failed(
                        f"{in_words(case, step)}: it was refused, but {what} went from "
                        f"{records[step - 1][what]} to {now[what]}. What was taken before the refusal?"
                    )
            if any("x" in stayed for stayed in now["stayed"]):
                return failed(
                    f"{in_words(case, step)}: it was refused, but a table has other blocks than "
                    f"before. What was exchanged before the refusal?"
                )
        if wrong := wrong_rows(case, records, [want["came"] for want in wanted]):
            return failed(wrong)
    return passed("What fits is taken to the last place, and what does not fit changes nothing.")


# --- copies ---------------------------------------------------------------------------------------


def draw_copies(seed: int) -> Challenge:
    """Draw three cases: several forks that write one after the other; a fork of full blocks; and a
    copy for which no block is free."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 6))
    n_forks, held = int(rng.integers(2, 5)), 2 * size + int(rng.integers(1, size))
    order = rng.permutation(n_forks + 1).tolist()
    many: list[Operation] = [("new", 0, None), ("feed", 0, list(range(held)))]
    many += [("fork", number + 1, 0) for number in range(n_forks)]
    many += [("feed", number, [number]) for number in order]
    many += [("feed", number, [1]) for number in order]
    many += [("reset", number, None) for number in reversed(order)]
    first, second = rng.permutation(2).tolist()
    whole: list[Operation] = [
        ("new", 0, None),
        ("feed", 0, list(range(2 * size))),
        ("fork", 1, 0),
        ("feed", first, [1]),
        ("feed", second, [2]),
        ("truncate", second, size - 1),
        ("feed", second, [3]),
        ("adopt", 2, (first, 1)),
        ("feed", 2, [4]),
        ("truncate", 2, 1),
        ("feed", 2, [5]),
        ("reset", second, None),
        ("feed", first, list(range(size))),
        ("reset", first, None),
        ("reset", 2, None),
    ]
    none_free: list[Operation] = [
        ("new", 0, None),
        ("feed", 0, list(range(size + 1))),
        ("new", 1, None),
        ("feed", 1, list(range(size))),
        ("fork", 2, 0),
        ("feed", first * 2, [1]),
        ("truncate", 1, size - 1),
        ("reset", second * 2, None),
        ("feed", first * 2, [2]),
        ("reset", 1, None),
        ("reset", first * 2, None),
    ]
    cases = [
        _case(rng, size, 30, many),
        _case(rng, size, 16, whole),
        _case(rng, size, 3, none_free),
    ]
    return {"cases": cases}


COPIES_KEPT = ("tables", "stayed", "free")


def probe_copies(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run each case on a pool of its own."""
    return {"cases": [run(student, case, COPIES_KEPT) for case in challenge["cases"]]}


def copies_form(challenge: Challenge) -> Evidence:
    return {"cases": [records_form(case, COPIES_KEPT) for case in challenge["cases"]]}


@check("PagedKVCache", "BlockPool", draw=draw_copies, probe=probe_copies, evidence=copies_form)
def one_block_is_copied(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Compare which blocks are shared, copied and kept, and how many are free, after each operation."""
    for case, records in zip(challenge["cases"], evidence["cases"], strict=True):
        wanted = truth(case["n_blocks"], case["size"], case["operations"])
        for step, (now, want) in enumerate(zip(records, wanted, strict=True)):
            if wrong := stopped(case, step, now, want["came"]):
                return failed(wrong)
            used, owned = case["n_blocks"] - now["free"], want["used"]
            if used != owned:
                more = "Which are shared, which has to be copied, and who gives up its share?"
                return failed(
                    f"{in_words(case, step)}: {used} blocks are in use, wanted are {owned}. {more}"
                )
            was = wanted[step - 1]["tables"] if step else []
            if wrong := _wrong_blocks(now, want["tables"], was):
                return failed(f"{in_words(case, step)}: {wrong}")
    return passed("Forks take no block; a shared one is copied once, and the last owner keeps it.")


def _wrong_blocks(now: Evidence, wanted: list[list[int]], was: list[list[int]]) -> str | None:
    """Compare which entries of the tables are one block, and which are the block they were before.

    Args:
        wanted, was: the right tables, after and before the operation, whose blocks have names of their
            own.
    """
    for cache, (got, right) in enumerate(zip(now["tables"], named(wanted), strict=True)):
        if got != right:
            return (
                f"with blocks named in the order in which A, B, ... use them, {'ABCDE'[cache]} has "
                f"[{got}], wanted is [{right}]. Who shares which block, and who has a copy?"
            )
    for cache, (stayed, table) in enumerate(zip(now["stayed"], wanted, strict=True)):
        before = was[cache] if cache < len(was) else []
        for place, (sign, name, then) in enumerate(zip(stayed, table, before, strict=False)):
            if name == then and sign == "x":
                return (
                    f"entry {place} of {'ABCDE'[cache]}'s table was exchanged for another block. Who "
                    f"else owned the one before?"
                )
    return None
