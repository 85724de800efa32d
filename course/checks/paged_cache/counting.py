"""Check which blocks a paged cache owns: none too many, none too early, none lost when it is refused, and
one copy where a shared block is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
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
"""After an operation: its `outcome`; `tables`, for each cache a name for each of its blocks, which no
other block ever has; and how many are `used`."""
Truth = Callable[[int, int, list[Operation]], list[Owned]]
"""Follow operations on n_blocks blocks of a size."""
TOKEN_BYTES = 2 * CONFIG.n_layers * CONFIG.n_kv_heads * CONFIG.head_dim * 2
"""Bytes of a block of float16, for each of its tokens."""
WrongStep = Callable[[Challenge, tuple[Evidence, Owned], Evidence, Owned], str | None]
"""Say what is wrong with an operation of a case, if anything, by what is recorded and what is right:
(case, both before the operation, what is recorded after it, what is right after it)."""


def _case(
    rng: np.random.Generator, size: int, n_blocks: int, operations: list[Operation]
) -> Challenge:
    last = max(max(what) for name, _, what in operations if name in ("feed", "append"))
    order, rows = rng.permutation(n_blocks).tolist(), draw_rows(rng, last + 1)
    return {
        "size": size,
        "n_blocks": n_blocks,
        "order": order,
        "rows": rows,
        "operations": operations,
    }


def _new(limit: int | None = None) -> list[Operation]:
    return [("new", 0, limit), ("new", 1, limit)]


def _feed(*texts: tuple[int, Iterable[int]]) -> list[Operation]:
    """Feed rows to caches: (number of the cache, which rows)."""
    return [("feed", number, list(rows)) for number, rows in texts]


def check_steps(
    kept: Sequence[str], draw: Callable[[int], Challenge], praise: str
) -> Callable[[WrongStep], Check]:
    """Make a check of a function that says what is wrong with one operation; it gets its name.

    Args:
        kept: what is recorded after each operation, see `pages.run`. What is returned is compared with
            the rows that were fed.
        draw: draws cases, each of which runs on a pool of its own.
        praise: the message of a pass.
    """

    def probe(student: SimpleNamespace, challenge: Challenge) -> Evidence:
        return {"cases": [run(student, case, kept) for case in challenge["cases"]]}

    def form(challenge: Challenge) -> Evidence:
        return {"cases": [records_form(case, kept) for case in challenge["cases"]]}

    def made(wrong_step: WrongStep) -> Check:
        def verdict(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
            for case, records in zip(challenge["cases"], evidence["cases"], strict=True):
                expected = truth(case["n_blocks"], case["size"], case["operations"])
                if wrong := first_wrong(case, records, expected, wrong_step):
                    return failed(wrong)
                if "returned" in kept and (
                    wrong := wrong_rows(case, records, [record["outcome"] for record in records])
                ):
                    return failed(wrong)
            return passed(praise)

        name = wrong_step.__name__
        truth = Recorded("paged_cache", name)
        needs = ("PagedKVCache", "BlockPool")
        return Check(name, needs, draw, probe, verdict, evidence=form, truth=truth)

    return made


def first_wrong(
    case: Challenge, records: list[Evidence], expected: list[Owned], wrong_step: WrongStep
) -> str | None:
    """Say what is wrong with the first operation that came out otherwise than it must, if one did."""
    before, was = {"free": case["n_blocks"]}, {"tables": []}
    for step, (now, right) in enumerate(zip(records, expected, strict=True)):
        if wrong := stopped(case, step, now, right["outcome"]):
            if now["outcome"] == "CacheFull" != right["outcome"]:
                free = f"{before['free']} blocks are free, beside places in the last one of a text."
                return f"{free} {wrong}"
            return wrong
        if wrong := wrong_step(case, (before, was), now, right):
            return f"{in_words(case, step)}: {wrong}"
        before, was = now, right
    return None


# --- lengths --------------------------------------------------------------------------------------


def draw_lengths(seed: int) -> Challenge:
    """Draw 30 operations on two caches that never run out of blocks: feeds, appends that are not
    advanced, truncates and resets; at the end resets behind appends that are not advanced."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 6))
    operations: list[Operation] = [
        *_new(),
        *_feed((0, range(size - 1)), (0, [0]), (1, range(2 * size)), (0, [1])),
        ("truncate", 0, size),
        ("append", 0, list(range(size + 1))),
        ("truncate", 0, size),
        ("append", 0, [0]),
        ("feed", 0, [0]),
    ]
    held = [size + 1, 2 * size]
    for _ in range(24):
        number, n = int(rng.integers(2)), int(rng.integers(1, 2 * size + 1))
        name = str(rng.choice(["feed"] * 4 + ["append", "truncate", "truncate", "reset"]))
        if name in ("feed", "append") and held[number] + n > 30:
            name = "truncate"
        if name in ("feed", "append"):
            operations.append((name, number, list(range(n))))
        if name == "append":  # and the forward pass goes no further
            operations.append(("truncate", number, held[number]))
        elif name == "feed":
            held[number] += n
        else:
            held[number] = int(rng.integers(held[number] + 1)) if name == "truncate" else 0
            operations.append((name, number, held[number] if name == "truncate" else None))
    for number in (0, 1):  # with tokens and without, behind a pass that goes no further
        operations += [("append", number, [*range(size + 1)]), ("reset", number, None)] * 2
    case = _case(rng, size, 24, operations)
    return {"cases": [{**case, "rows": case["rows"].astype(np.float16)}]}


@check_steps(
    ("tables", "stayed", "nbytes", "free"),
    draw=draw_lengths,
    praise="A block is taken when its first token comes and released with its last one.",
)
def blocks_follow_the_length(
    case: Challenge, past: tuple[Evidence, Owned], now: Evidence, right: Owned
) -> str | None:
    """Compare the number of blocks in each table, free blocks and bytes after each operation."""
    counts = [len(table.split()) for table in now["tables"]]
    owned, free = [len(table) for table in right["tables"]], case["n_blocks"] - right["used"]
    if counts != owned:
        return (
            f"the tables have {counts} blocks, expected are {owned}. Which tokens need a block, and "
            f"which blocks hold none?"
        )
    if now["free"] != free:
        return (
            f"the tables have {counts} blocks, but {now['free']} of {case['n_blocks']} are free, not "
            f"{free}. Is each block taken once for all layers, and does the pool get it back?"
        )
    for cache, stayed in zip("AB", now["stayed"], strict=False):
        if "x" in stayed:
            return (
                f"entry {stayed.index('x')} of {cache}'s table is another block than before. Which "
                f"tokens are kept, and in which blocks do they lie?"
            )
    if now["nbytes"] != [n * case["size"] * TOKEN_BYTES for n in owned]:
        return (
            f"nbytes() is {now['nbytes']} for {owned} blocks; each has room for {case['size']} tokens, "
            f"and a token's keys and values, in float16, have {TOKEN_BYTES} bytes in all layers. What do "
            f"you count?"
        )
    return None


# --- refusals -------------------------------------------------------------------------------------


def draw_full(seed: int) -> Challenge:
    """Draw three cases: a cache that reaches its max_len, a pool that runs out of blocks, and one with
    room for the copy of a shared block, but not for all that comes behind, or for that without the
    copy."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 6))
    limit = 2 * size + int(rng.integers(1, size))
    rest = limit - size - 1
    far, two = range(rest, 2 * rest), size - 2
    longest: list[Operation] = [
        *_new(limit),
        ("append", 1, list(range(2 * size))),  # and the forward pass goes no further
        *_feed((1, range(2)), (0, range(size + 1)), (0, range(rest + 1)), (0, far), (0, [0])),
        *_feed((1, range(1, limit)), (1, range(limit - 2))),
        ("truncate", 0, limit - 1),
        *_feed((0, [3]), (0, [4])),
    ]
    out: list[Operation] = [
        *_new(),
        *_feed((0, range(2 * size + 2)), (1, range(size))),  # 3 blocks of 6, and 1
        *_feed((0, range(two + 2 * size + 1)), (1, range(3 * size))),  # 3 are needed, 2 are free
        *_feed((0, range(two))),  # in the last block
        *_feed((0, range(1, 2 * size))),  # the last 2 blocks, but for a place
        *_feed((1, [5]), (0, [6]), (0, [7])),  # the second in the last place
        ("reset", 1, None),
        *_feed((0, [8]), (1, [9])),
    ]
    shared: list[Operation] = [
        ("new", 0, None),
        *_feed((0, range(size + 1))),
        ("fork", 1, 0),
        *_feed((1, range(2 * size)), (1, range(size))),  # 3 blocks are needed, then 2; 1 is free
        *_feed((1, [1]), (0, [2])),
    ]
    sized = ((9, longest), (6, out), (3, shared))
    return {"cases": [_case(rng, size, n_blocks, operations) for n_blocks, operations in sized]}


@check_steps(
    ("returned", "lengths", "tables", "stayed", "free", "nbytes"),
    draw=draw_full,
    praise="What fits is taken to the last place, and what does not fit changes nothing.",
)
def full_changes_nothing(
    case: Challenge, past: tuple[Evidence, Owned], now: Evidence, right: Owned
) -> str | None:
    """What does not fit is refused and leaves tables, counts and tokens as they were; all else fits."""
    if right["outcome"] != "CacheFull":
        return None
    for what in ("lengths", "tables", "free", "nbytes"):
        if now[what] != past[0][what]:
            named = ", blocks named in the order in which they stand there" * (what == "tables")
            return (
                f"it was refused, but {what} went from {past[0][what]} to {now[what]}{named}. What was "
                f"taken before the refusal?"
            )
    if any("x" in stayed for stayed in now["stayed"]):
        return (
            "it was refused, but a table has other blocks than before. What was exchanged before the "
            "refusal?"
        )
    return None


# --- copies ---------------------------------------------------------------------------------------


def draw_copies(seed: int) -> Challenge:
    """Draw three cases: several forks that write one after the other; a fork of full blocks; and a
    copy for which no block is free."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 6))
    n_forks, held = int(rng.integers(2, 5)), 2 * size + int(rng.integers(1, size))
    order = rng.permutation(n_forks + 1).tolist()
    many: list[Operation] = [
        ("new", 0, None),
        *_feed((0, range(held))),
        *(("fork", number + 1, 0) for number in range(n_forks)),
        *_feed(*((number, [number]) for number in order), *((number, [1]) for number in order)),
        *(("reset", number, None) for number in reversed(order)),
    ]
    first, second = rng.permutation(2).tolist()
    whole: list[Operation] = [
        ("new", 0, None),
        *_feed((0, range(2 * size))),
        ("fork", 1, 0),
        *_feed((first, [1]), (second, [2])),
        ("truncate", second, size - 1),
        *_feed((second, [3])),
        ("adopt", 2, (first, 1)),
        *_feed((2, [4])),
        ("truncate", 2, 1),
        *_feed((2, [5])),
        ("reset", second, None),
        *_feed((first, range(size))),
        ("reset", first, None),
        ("reset", 2, None),
    ]
    none_free: list[Operation] = [
        *_new(),
        *_feed((0, range(size + 1)), (1, range(size))),
        ("fork", 2, 0),
        *_feed((first * 2, [1])),
        ("truncate", 1, size - 1),
        ("reset", second * 2, None),
        *_feed((first * 2, [2])),
        ("reset", 1, None),
        ("reset", first * 2, None),
    ]
    sized = ((30, many), (16, whole), (3, none_free))
    return {"cases": [_case(rng, size, n_blocks, operations) for n_blocks, operations in sized]}


@check_steps(
    ("tables", "stayed", "free", "nbytes"),
    draw=draw_copies,
    praise="Forks take no block; a shared one is copied once, and the last owner keeps it.",
)
def one_block_is_copied(
    case: Challenge, past: tuple[Evidence, Owned], now: Evidence, right: Owned
) -> str | None:
    """Compare which blocks are shared, copied and kept, and how many are free, after each operation; and
    that the bytes of a cache are not fewer where another begins to share its blocks."""
    used = case["n_blocks"] - now["free"]
    if used != right["used"]:
        return (
            f"{used} blocks are in use, expected are {right['used']}. Which are shared, which has to be "
            f"copied, who gives up its share, and who owns what an append took that was never advanced?"
        )
    for name, got, table in zip("ABCDE", now["tables"], named(right["tables"]), strict=False):
        if got != table:
            return (
                f"with blocks named in the order in which A, B, ... use them, {name} has [{got}], "
                f"expected is [{table}]. Which entries of which table may the last step change?"
            )
    tables = zip("ABCDE", now["stayed"], right["tables"], past[1]["tables"], strict=False)
    for name, stayed, table, then in tables:
        for place, (sign, block, old) in enumerate(zip(stayed, table, then, strict=False)):
            if block == old and sign == "x":
                return (
                    f"entry {place} of {name}'s table was exchanged for another block. Who else owned "
                    f"the one before?"
                )
    before = past[0].get("nbytes", [])
    if len(now["nbytes"]) > len(before) and now["nbytes"][: len(before)] != before:
        return (
            f"another cache began, and nbytes() of those before it went from {before} to "
            f"{now['nbytes'][: len(before)]}. Are shared blocks counted in full?"
        )
    return None
