"""Check the allocator: who owns which block, and that a refusal leaves no trace.

Block numbers are the allocator's to choose, so what is drawn speaks of the blocks handed out so far:
number 3 is the fourth of them.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome

Operation = tuple[str, Any]
"""("allocate", how many), ("share", places among the blocks handed out) or ("release", places)."""


class _Owners:
    """Follow how many owners each block has that was handed out, whatever its number."""

    def __init__(self, n_blocks: int) -> None:
        self.free, self.of = n_blocks, []  # of: one count for each block handed out

    def do(self, operation: Operation) -> None:
        name, what = operation
        if name == "allocate":
            self.of += [1] * what
            self.free -= what
            return
        for place in what:
            self.of[place] += 1 if name == "share" else -1
            self.free += name == "release" and self.of[place] == 0

    def used(self) -> list[int]:
        return [place for place, owners in enumerate(self.of) if owners]

    def left(self) -> list[int]:
        return [place for place, owners in enumerate(self.of) for _ in range(owners)]


def draw_given(seed: int) -> Challenge:
    """Draw some 70 operations that are all allowed; the first and the last of them take every block."""
    rng = np.random.default_rng(seed)
    n_blocks = int(rng.integers(5, 9))
    owners = _Owners(n_blocks)
    operations: list[Operation] = [
        ("share", []),  # so that the counts at first are seen
        ("allocate", n_blocks),
        ("share", [0, 1, 0]),
        ("release", [1, 2]),
        ("release", [0, 0]),
        ("release", [0, *range(3, n_blocks)]),
        ("allocate", 1),
    ]
    for operation in operations:
        owners.do(operation)
    for _ in range(60):
        name = str(rng.choice(["allocate", "share", "release", "release"]))
        if name == "allocate":
            operation = (name, int(rng.integers(0, min(4, owners.free) + 1)))
        else:
            pool = owners.used() if name == "share" else owners.left()
            size = min(len(pool), int(rng.integers(0, 4)))
            operation = (name, rng.choice(pool, size, replace=False).tolist() if size else [])
            if name == "share" and size and rng.random() < 0.3:
                operation[1].append(operation[1][0])  # a block that is named twice
        owners.do(operation)
        operations.append(operation)
    operations += [("release", owners.left()), ("allocate", n_blocks)]
    return {"n_blocks": n_blocks, "operations": operations}


def draw_refused(seed: int) -> Challenge:
    """Draw a few allowed operations, and what must be refused after them."""
    rng = np.random.default_rng(seed)
    n_blocks = int(rng.integers(6, 9))
    # Of 4 blocks the first has two owners, the second is free again, the others have one.
    stage: list[Operation] = [("allocate", 4), ("share", [0]), ("release", [1])]
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
    order = rng.permutation(len(refused))
    return {"n_blocks": n_blocks, "stage": stage, "refused": [refused[i] for i in order]}


def _run(
    allocator: Any, n_blocks: int, operations: list[Operation], handed: list[int]
) -> list[Evidence]:
    """Do the operations, and record what each came to."""
    records = []
    for name, what in operations:
        returned: list[int] = []
        blocks = [] if name == "allocate" else [handed[place] for place in what]
        as_given = list(blocks)

        def operate(name=name, what=what, blocks=blocks, returned=returned) -> None:
            if name == "allocate":
                got = allocator.allocate() if what == 1 else allocator.allocate(what)
                returned += [int(block) for block in got]
                got.clear()  # it is the caller's list
            else:
                getattr(allocator, name)(blocks)

        came = outcome(operate)
        handed += returned
        records.append(
            {
                "came": came,
                "returned": returned,
                "list_kept": blocks == as_given,
                "free": len(allocator),
                "owners": [int(allocator.owners(block)) for block in range(n_blocks)],
            }
        )
        if came != "returned" and len(handed) < 4:
            break  # what follows speaks of blocks that never came
    return records


def probe_given(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Do the operations on one allocator, while another one has given out all that it has."""
    n = challenge["n_blocks"]
    allocator, other = student.BlockAllocator(n), student.BlockAllocator(n + 2)
    at_first = len(allocator)
    others = outcome(lambda: other.allocate(n + 2))
    records, operations = [], challenge["operations"]
    handed: list[int] = []
    for operation in operations:
        if operation[0] != "allocate" and any(place >= len(handed) for place in operation[1]):
            break  # fewer came than were asked for
        records += _run(allocator, n, [operation], handed)
        if records[-1]["came"] != "returned":
            break
    return {"at_first": at_first, "others": others, "records": records, "other": len(other)}


def _record(n_blocks: int) -> Evidence:
    return {
        "came": str,
        "returned": Each(int),
        "list_kept": bool,
        "free": int,
        "owners": [int] * n_blocks,
    }


def given_form(challenge: Challenge) -> Evidence:
    records = Each(_record(challenge["n_blocks"]))
    return {"at_first": int, "others": str, "records": records, "other": int}


@check("BlockAllocator", draw=draw_given, probe=probe_given, evidence=given_form)
def blocks_are_given_once(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Follow who owns what; stop at the first operation that came out otherwise."""
    n, operations = challenge["n_blocks"], challenge["operations"]
    if evidence["at_first"] != n:
        return failed(
            f"A new allocator of {n} blocks has {evidence['at_first']} free ones. How many at first?"
        )
    if evidence["others"] != "returned":
        return failed(
            f"A new allocator of {n + 2} blocks, allocate({n + 2}): {evidence['others']}, but all are "
            f"free. How many blocks are there, and may the last one be taken?"
        )
    owners: Counter[int] = Counter()
    handed: list[int] = []
    done: list[str] = []
    for operation, seen in zip(operations, evidence["records"], strict=False):
        name, what = operation
        blocks = [] if name == "allocate" else [handed[place] for place in what]
        before = Counter(owners)
        argument = ("" if what == 1 else what) if name == "allocate" else blocks
        done = [*done[-2:], f"{name}({argument})"]
        case = f"An allocator of {n} blocks, after ... {', '.join(done)}"
        if seen["came"] != "returned":
            return failed(
                f"{case}: {seen['came']}, but {n - len(+owners)} blocks are free, and counts allow it. "
                f"Which blocks does your allocator take for used?"
            )
        if name == "allocate":
            got = seen["returned"]
            if len(got) != what:
                return failed(f"{case}: {len(got)} blocks came back. How many were asked for?")
            if len({*got}) < len(got) or any(not 0 <= b < n or owners[b] for b in got):
                return failed(
                    f"{case}: it handed out {got}, while {sorted(+owners)} were still owned. When may "
                    f"a block be handed out again?"
                )
            owners.update(got)
            handed += got
        else:
            owners.update(dict.fromkeys(blocks, 0))
            for block in blocks:
                owners[block] += 1 if name == "share" else -1
        if not seen["list_kept"]:
            return failed(f"{case}: the caller's list was changed. Whose list is it?")
        if wrong := _wrong_counts(case, seen, owners, before, n):
            return wrong
    if len(evidence["records"]) != len(operations):
        return failed("Fewer blocks came back than were asked for. How many does allocate return?")
    if evidence["other"] != 0:
        return failed(
            f"Another allocator had given out all its blocks, and now has {evidence['other']}. What "
            f"do two allocators share?"
        )
    return passed(
        f"{len(operations)} operations: no block was handed out twice, and none was lost."
    )


def _wrong_counts(
    case: str, seen: Evidence, owners: Counter[int], before: Counter[int], n: int
) -> Verdict | None:
    for block, got in enumerate(seen["owners"]):
        if got != owners[block]:
            return failed(
                f"{case}: owners({block}) is {got}; it was {before[block]} before, and "
                f"{owners[block]} is right now. What does each call do to a count?"
            )
    if seen["free"] != n - len(+owners):
        return failed(
            f"{case}: len() is {seen['free']}, and {n - len(+owners)} blocks have no owner. When is "
            f"a block free?"
        )
    return None


def probe_refused(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Set the stage, try one thing that must be refused, take what is free; each on a new allocator."""
    n = challenge["n_blocks"]
    tries = []
    for operation in challenge["refused"]:
        allocator, handed = student.BlockAllocator(n), []
        records = _run(allocator, n, challenge["stage"], handed)
        if len(handed) == 4:
            records += _run(allocator, n, [operation, ("allocate", records[-1]["free"])], handed)
        tries.append(records)
    return {"tries": tries}


def refused_form(challenge: Challenge) -> Evidence:
    return {"tries": [Each(_record(challenge["n_blocks"]))] * len(challenge["refused"])}


@check("BlockAllocator", draw=draw_refused, probe=probe_refused, evidence=refused_form)
def a_refusal_is_whole(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Compare counts before and after each refusal; then all that is free must come, each block once."""
    n, stage = challenge["n_blocks"], challenge["stage"]
    for (name, what), records in zip(challenge["refused"], evidence["tries"], strict=True):
        handed = [block for record in records[: len(stage)] for block in record["returned"]]
        if len(records) != len(stage) + 2 or len(handed) != 4:
            return failed(
                f"allocate(4), share one of them, release another: {len(handed)} blocks came. Does "
                f"blocks_are_given_once pass?"
            )
        before, after, rest = records[-3:]
        argument = what if name == "allocate" else [handed[place] for place in what]
        case = (
            f"{n} blocks: allocate(4) gave {handed}, share([{handed[0]}]), release([{handed[1]}]); "
            f"then {name}({argument})"
        )
        wanted = "CacheFull" if name == "allocate" else "ValueError"
        if after["came"] != wanted:
            return failed(f"{case}: {after['came']}, wanted is {wanted}. {_ask(name)}")
        for what_of in ("owners", "free"):
            if after[what_of] != before[what_of]:
                return failed(
                    f"{case}: it was refused, but {what_of} went from {before[what_of]} to "
                    f"{after[what_of]}. Which line changes something before the last look?"
                )
        if not after["list_kept"]:
            return failed(f"{case}: the caller's list was changed. Whose list is it?")
        got = rest["returned"]
        used = [block for block, count in enumerate(before["owners"]) if count]
        if rest["came"] != "returned" or len({*got}) != before["free"] or {*got} & {*used}:
            return failed(
                f"{case}: it was refused; then allocate({before['free']}), all that is free: "
                f"{rest['came']}, {got}. Which blocks were lost on the way?"
            )
    return passed("What is refused leaves no trace: no count moved, and no block was lost.")


def _ask(name: str) -> str:
    if name == "allocate":
        return "What can a caller do with fewer blocks than it needs?"
    return "Whose block would that be, and how many owners has it at the end of the list?"
