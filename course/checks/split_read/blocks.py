"""Blocks that lie anywhere: read in the order of a table, up to a length, and not gathered first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from course.checks.attention_cases import NOT_READ, WATCHED, run_watched
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recorder import given
from course.checks.recording import one_each
from course.checks.split_read.prefix import memory
from course.checks.split_read.recording import Truth, wrong_output
from course.checks.split_read.scores import FAR_BELOW_0, far_below_0
from course.measure.operations import OperationMode

QUESTIONS = {
    "one": "It holds one block, full, and that is block 0. How many of its tokens "
    "do you read, and is the result finished?",
    "elsewhere": "Where its one block is block 0 all agrees. Which number says where a block lies?",
    "several": "One block agrees. Here there are several, all full. If any_cut_any_order passes: "
    "which of them are this conversation's, how many, and is each merged into the result?",
    "last": "Full blocks agree. Here the last one is not full, and what lies behind belongs to nobody. "
    "How many of its tokens count, and which block is the last?",
    "spare": "The table names more blocks than the tokens need. How many do you read, and which is the "
    "last?",
    "sizes": "Smaller cases agree. Which line counts on a size, or on a type?",
    "far": FAR_BELOW_0,
}
"""Ends the message of a case, by what is new in it."""
BLOCKS = {**WATCHED, "overwritten": int}


class Overwrites(OperationMode):
    """Count the numbers that operations make of given tensors and write into memory that was there
    before, such as a scratch that is used again and again."""

    def __init__(self, *given_tensors: Tensor) -> None:
        super().__init__()
        self.numbers = 0
        self._given = {memory(tensor) for tensor in given_tensors}
        self._present: dict[int, Tensor] = {}  # alive, so that no new memory gets an old address

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        sources = {memory(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        for value in tree_leaves(result):
            if isinstance(value, Tensor) and (place := memory(value)) not in self._given:
                if place in self._present and sources & self._given:
                    self.numbers += value.numel()
                self._present[place] = value
        return result


def draw_blocks(seed: int) -> Challenge:
    """Draw one full block, a block elsewhere, several, a last one that is not full, blocks to spare;
    other sizes; then a long conversation, whose new tensors are counted.

    No order of the table is that of storage or the reverse, and what no token of this conversation
    fills holds large numbers: another's.
    """
    rng = np.random.default_rng(seed)
    staged = [
        ("one", 4, [0], 4, {}),
        ("elsewhere", 4, [2], 4, {}),
        ("several", 4, [4, 1, 3], 12, {}),
        ("last", 4, [1, 4, 0], int(rng.integers(9, 12)), {}),
        ("last", 4, [3], 1, {}),
        ("spare", 3, [3, 0, 4, 1, 2], int(rng.integers(4, 7)), {}),
        ("sizes", 1, [4, 0, 2], 3, {}),
        ("sizes", 4, [2, 4, 1], 10, {"T": 3, "dtype": "float64"}),
        ("sizes", 16, [3, 1], 21, {"heads": (3, 3)}),
        ("sizes", 5, [4, 0, 3], 13, {"heads": (6, 2)}),
    ]
    cases = [draw_case(rng, *case) for case in staged]
    cases.append(far_below_0(draw_case(rng, "far", 4, [3, 0, 1], 10, {}), "keys"))
    table = rng.permutation(20)[:12].tolist()
    table = table if table != sorted(table) else table[::-1]
    long = 64 * 12 - int(rng.integers(1, 60))
    cases.append(
        draw_case(rng, "sizes", 64, table, long, {"heads": (2, 1), "D": 64, "n_blocks": 20})
    )
    return {"cases": cases}


def draw_case(
    rng: np.random.Generator, stage: str, size: int, table: list[int], length: int, other: dict
) -> Challenge:
    """Draw queries (1, H, T, D), and keys and values (n_blocks, G, size, D) of many conversations."""
    other = {"heads": (4, 2), "T": 1, "D": 6, "n_blocks": 5, "dtype": "float32", **other}
    (H, G), D, n_blocks = other["heads"], other["D"], other["n_blocks"]
    q = rng.normal(0, 2 if D < 64 else 1, (1, H, other["T"], D)).astype(np.float32)
    keys, values = (20 * rng.normal(size=(2, n_blocks, G, size, D))).astype(np.float32)
    for number, block in enumerate(table):
        held = max(0, min(size, length - number * size))
        for pool in (keys, values):
            pool[block, :, :held] = rng.normal(size=(G, held, D))
    case = {"q": q, "keys": keys, "values": values, "table": table, "length": length}
    return {**case, "dtype": other["dtype"], "stage": stage}


def probe_blocks(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Attend to each conversation; count new tensors, and what is written over older ones."""
    calls = []
    for case in challenge["cases"]:
        dtype = getattr(torch, case["dtype"])
        pools = [torch.tensor(case[name], dtype=dtype) for name in ("keys", "values")]
        table, length = list(case["table"]), case["length"]
        q = given(case["q"], dtype)
        with Overwrites(*pools) as over:
            watched = run_watched(student.attend_blocks, q, *pools, table, length)
        calls.append({**watched, "overwritten": over.numbers})
    return {"calls": calls}


@check("attend_blocks", draw=draw_blocks, probe=probe_blocks, evidence=one_each(calls=BLOCKS))
def blocks_where_they_lie(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare outputs; of the last case also how much was written."""
    for case, got in zip(challenge["cases"], evidence["calls"], strict=True):
        where = case_text(case)
        question = QUESTIONS[case["stage"]]
        if wrong := wrong_output(got["out"], truth(case), case["dtype"], tolerance, question):
            return failed(f"{where}: attend_blocks {wrong}")
        if not got["read"]:
            return failed(f"{where}: {NOT_READ}")
    n_keys = case["length"] * case["keys"].shape[1] * case["keys"].shape[3]
    if got["count"] >= n_keys:
        return failed(
            f"{where}: the result is right, but into new tensors you write {got['count']:,} numbers, and "
            f"this conversation's keys are {n_keys:,}. The largest one, but for axes of 1, is "
            f"{got['largest']}. Which of your lines writes keys out before they are read?"
        )
    if got["overwritten"] >= n_keys:
        return failed(
            f"{where}: the result is right, but {got['overwritten']:,} numbers from the pool are written "
            f"into memory that is used again, and this conversation's keys are {n_keys:,}. Which of your "
            f"lines writes keys elsewhere before they are read?"
        )
    return passed("Blocks are read in the order of the table, where they lie, to the last token.")


def case_text(case: Challenge) -> str:
    """Write "10 tokens in blocks of 4, table [2, 4, 1]"."""
    return f"{case['length']} tokens in blocks of {case['keys'].shape[2]}, table {case['table']}"
