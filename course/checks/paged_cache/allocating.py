"""Check the allocator: who owns which block, and that a refusal leaves no trace.

Block numbers are the allocator's to choose, so what is drawn speaks of the blocks handed out so far:
place 3 is the fourth of them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome

Operation = tuple[str, Any]
"""("allocate", how many), ("share", places among the blocks handed out) or ("release", places). None
stands for as many blocks as are free."""


def count_owners(operations: list[Operation]) -> list[int]:
    """Count how many owners each block has that was handed out, by allowed operations."""
    counts: list[int] = []
    for name, what in operations:
        if name == "allocate":
            counts += [1] * what
            continue
        for place in what:
            counts[place] += 1 if name == "share" else -1
    return counts


MANY = 300
"""Owners of one block, more than a byte counts."""


def draw_given(seed: int) -> Challenge:
    """Draw some 70 operations that are all allowed; the first and the last of them take every block."""
    rng = np.random.default_rng(seed)
    n_blocks = int(rng.integers(5, 9))
    operations: list[Operation] = [
        ("share", []),  # so that the counts at first are seen
        ("allocate", n_blocks),
        ("share", [0, 1, 0]),
        ("share", [0] * MANY),
        ("release", [0] * MANY),
        ("release", [1, 2]),
        ("release", [0, 0]),
        ("release", [0, *range(3, n_blocks)]),
        ("allocate", 1),
    ]
    for _ in range(60):
        counts = count_owners(operations)
        name = str(rng.choice(["allocate", "share", "release", "release"]))
        what: Any = int(rng.integers(0, min(4, n_blocks - np.count_nonzero(counts)) + 1))
        if name != "allocate":
            pool = np.repeat(
                np.arange(len(counts)), np.minimum(counts, 1 if name == "share" else 9)
            )
            what = rng.permutation(pool)[: rng.integers(0, 4)].tolist()
            if name == "share" and rng.random() < 0.3:
                what += what[:1]  # a block that is named twice
        operations.append((name, what))
    counts = count_owners(operations)
    operations += [("release", np.repeat(np.arange(len(counts)), counts).tolist())]
    return {"n_blocks": n_blocks, "runs": [[*operations, ("allocate", n_blocks)]]}


def draw_refused(seed: int) -> Challenge:
    """Draw runs of a few allowed operations, one that must be refused, and one that takes all blocks
    that are free."""
    rng = np.random.default_rng(seed)
    n_blocks = int(rng.integers(6, 9))
    # Of 5 blocks the first and the third have two owners, the fourth has one; two are free again.
    stage: list[Operation] = [("allocate", 5), ("share", [0, 2]), ("release", [1, 4])]
    refused: list[Operation] = [
        ("allocate", n_blocks - 3 + int(rng.integers(1, 3))),
        ("allocate", n_blocks + 1),
        ("share", [0, 2, 1]),
        ("share", [1]),
        ("release", [2, 1, 3]),
        ("release", [1]),
        ("release", [3, 2, 3]),
        ("release", [0, 0, 0]),
    ]
    runs = [[*stage, refused[i], ("allocate", None)] for i in rng.permutation(len(refused))]
    return {"n_blocks": n_blocks, "runs": runs}


def run(allocator: Any, n_blocks: int, operations: list[Operation]) -> list[Evidence]:
    """Do the operations, and record what each came to; stop where one speaks of a block that was never
    handed out."""
    records, handed = [], []
    newest: list[int] = []  # the list that was handed out last: it is the caller's
    as_it_was: list[int] = []

    def operate(name: str, argument: Any) -> None:
        nonlocal newest
        if name != "allocate":
            getattr(allocator, name)(argument)
            return
        blocks = allocator.allocate() if argument == 1 else allocator.allocate(argument)
        handed.extend(int(block) for block in blocks)
        blocks.extend([])  # as its caller may; no other sequence can
        newest = blocks

    for name, what in operations:
        if name != "allocate" and max(what, default=-1) >= len(handed):
            break
        argument = what if name == "allocate" else [handed[place] for place in what]
        argument = len(allocator) if argument is None else argument
        copy, before = argument if name == "allocate" else [*argument], len(handed)
        earlier = newest
        ending = outcome(lambda name=name, argument=argument: operate(name, argument))
        kept = argument == copy and earlier == as_it_was
        earlier.clear()  # the caller may do so
        as_it_was = handed[before:] if newest is not earlier else []
        records.append(
            {
                "outcome": ending,
                "returned": handed[before:],
                "list_kept": kept,
                "free": len(allocator),
                "owners": [int(allocator.owners(block)) for block in range(n_blocks)],
            }
        )
    return records


def probe_given(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Do the operations on one allocator, while another one has given out all that it has."""
    n, (operations,) = challenge["n_blocks"], challenge["runs"]
    allocator, other = student.BlockAllocator(n), student.BlockAllocator(n + 2)
    others = outcome(lambda: other.allocate(n + 2))
    return {"runs": [run(allocator, n, operations)], "others": others, "other": len(other)}


def probe_refused(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Do the operations of each run on a new allocator."""
    n = challenge["n_blocks"]
    return {"runs": [run(student.BlockAllocator(n), n, one) for one in challenge["runs"]]}


def runs_form(challenge: Challenge) -> Evidence:
    record = {"outcome": str, "returned": Each(int), "list_kept": bool, "free": int}
    records = Each({**record, "owners": [int] * challenge["n_blocks"]})
    return {"runs": [records] * len(challenge["runs"])}


def given_form(challenge: Challenge) -> Evidence:
    return {**runs_form(challenge), "others": str, "other": int}


@check("BlockAllocator", draw=draw_given, probe=probe_given, evidence=given_form)
def blocks_are_given_once(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Follow who owns what; stop at the first operation that came out otherwise."""
    n, (operations,) = challenge["n_blocks"], challenge["runs"]
    if evidence["others"] != "returned":
        question = "How many blocks are there, and may the last one be taken?"
        if evidence["others"] != "CacheFull":
            question = _ask_about_stop("allocate", evidence["others"])
        return failed(
            f"A new allocator of {n + 2} blocks, allocate({n + 2}): {evidence['others']}, but all are "
            f"free. {question}"
        )
    if wrong := wrong_operation(n, operations, evidence["runs"][0]):
        return failed(wrong)
    if evidence["other"] != 0:
        return failed(
            f"Another allocator had given out all its blocks, and now has {evidence['other']}. "
            f"What does len() count, and what do two allocators share?"
        )
    return passed(
        f"{len(operations)} operations: no block was handed out twice, and none was lost."
    )


@check("BlockAllocator", draw=draw_refused, probe=probe_refused, evidence=runs_form)
def a_refusal_is_whole(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Compare counts before and after each refusal; then all that is free must come, each block once."""
    for operations, records in zip(challenge["runs"], evidence["runs"], strict=True):
        handed = [block for record in records[:3] for block in record["returned"]]
        if len(records) != len(operations) or len(handed) != 5:
            return failed(
                f"allocate(5), share two of them, release two others: {len(handed)} blocks came. Does "
                f"blocks_are_given_once pass?"
            )
        (name, _), (before, after, rest) = operations[-2], records[-3:]
        owned = {block for block, count in enumerate(before["owners"]) if count}
        outcomes = [record["outcome"] for record in records[:3]]
        if outcomes != ["returned"] * 3 or owned != {handed[place] for place in (0, 2, 3)}:
            return failed(
                f"{challenge['n_blocks']} blocks, allocate(5) gave {handed}, then share([{handed[0]}, "
                f"{handed[2]}]), release([{handed[1]}, {handed[4]}]): {', '.join(outcomes)}, and "
                f"{sorted(owned)} have owners. What may be refused here, and whose are the blocks then?"
            )
        calls = ", ".join(call_text(*operation, handed) for operation in operations[:-1])
        case = f"{challenge['n_blocks']} blocks, of which allocate(5) gave {handed}; {calls}"
        right = "CacheFull" if name == "allocate" else "ValueError"
        if after["outcome"] != right:
            question = _ask(*operations[-2], handed, after["outcome"])
            return failed(f"{case}: {after['outcome']}, expected is {right}. {question}")
        for counted in ("owners", "free"):
            if after[counted] != before[counted]:
                return failed(
                    f"{case}: it was refused, but {counted} went from {before[counted]} to "
                    f"{after[counted]}. Which line changes something before the last look?"
                )
        if not after["list_kept"]:
            return failed(f"{case}: the caller's list was changed. Whose list is it?")
        got, used = {*rest["returned"]}, {*np.flatnonzero(before["owners"])}
        if rest["outcome"] != "returned" or len(got) != before["free"] or got & used:
            return failed(
                f"{case}: it was refused; then allocate({before['free']}), all that is free: "
                f"{rest['outcome']}, {rest['returned']}. If blocks_are_given_once passes: which "
                f"blocks were lost on the way?"
            )
    return passed("What is refused leaves no trace: no count moved, and no block was lost.")


def call_text(name: str, what: Any, handed: list[int]) -> str:
    """Write an operation as a call."""
    if name != "allocate" and len(what) == MANY:
        return f"{name}([{handed[what[0]]}] * {MANY})"
    if name != "allocate":
        what = [handed[place] for place in what]
    return f"{name}({'' if what == 1 else what})"


def _ask(name: str, what: Any, handed: list[int], came: str) -> str:
    """Ask about an operation that should have been refused, or refused otherwise."""
    if came != "returned":
        return "Which of your lines is this?"
    if name == "allocate":
        return "What can a caller do with fewer blocks than it needs?"
    most = max(what, key=what.count)
    if what.count(most) > 1:
        return f"How many owners has block {handed[most]}, and how often is it in the list?"
    return "How many owners has each block in the list?"


def _ask_about_stop(name: str, outcome: str) -> str:
    """Ask about an operation that should have been done."""
    if name == "allocate" and outcome == "CacheFull":
        return "Which blocks does your allocator take for used?"
    if name != "allocate" and outcome == "ValueError":
        return "How many owners has each block of the list by your counts, and may a list be empty?"
    return "Which of your lines stops it, and what does that call return?"


def wrong_operation(n: int, operations: list[Operation], records: list[Evidence]) -> str | None:
    """Say what is wrong with the first operation that came out otherwise than it must, if one did."""
    handed: list[int] = []
    owners: dict[int, int] = {}
    for step, ((name, what), seen) in enumerate(zip(operations, records, strict=False)):
        shown = operations[max(0, step - 2) : step + 1]
        case = f"An allocator of {n} blocks, after ... "
        case += ", ".join(call_text(*operation, handed) for operation in shown) + ":"
        before, got = owners, seen["returned"]
        owned = sorted(block for block, count in before.items() if count)
        if seen["outcome"] != "returned":
            return (
                f"{case} {seen['outcome']}, but {n - len(owned)} blocks are free, and counts allow it. "
                f"{_ask_about_stop(name, seen['outcome'])}"
            )
        if name == "allocate":
            if len(got) != what:
                return f"{case} Blocks that came back: {len(got)}. How many were asked for?"
            if len({*got, *owned}) < len(got) + len(owned) or not {*got} <= {*range(n)}:
                return (
                    f"{case} it handed out {got}, while {owned} were still owned. When may a block be "
                    f"handed out again?"
                )
            handed += got
        if not seen["list_kept"]:
            return f"{case} the caller's list was changed. Whose list is it?"
        owners = dict(zip(handed, count_owners(operations[: step + 1]), strict=True))
        for block, count in enumerate(seen["owners"]):
            if count != owners.get(block, 0):
                was = f"it was {before.get(block, 0)} before, and " * (step > 0)
                return (
                    f"{case} owners({block}) is {count}; {was}{owners.get(block, 0)} is right now. What "
                    f"does each call do to a count?"
                )
        free = n - np.count_nonzero(list(owners.values()))
        if seen["free"] != free:
            first = "When is a block free?" if handed else "How many at first?"
            return f"{case} len() is {seen['free']}, and {free} blocks have no owner. {first}"
    if len(records) != len(operations):
        return "Fewer blocks came back than were asked for. How many does allocate return?"
    return None
