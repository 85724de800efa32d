"""One prefix for many chats: right for each of them, and read once for all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from course.checks.attention_cases import draw_case as draw_heads
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recorder import given
from course.checks.recording import one_each
from course.checks.split_read.recording import RECORD, Truth, record, wrong_output
from course.measure.operations import OperationMode

QUESTIONS = {
    "one": "There is one chat here. If any_cut_any_order passes: are both parts in the result, the "
    "prefix and its own keys, and is it finished?",
    "chats": "One chat agrees; here are several. Whose queries stand where when all of them read the "
    "prefix, do out, top and total stand there again afterwards, and whose own keys does each row read?",
    "sizes": "Smaller cases agree. Which line counts on a size, or on a type?",
}
"""Ends the message of a case, by what is new in it."""
NAMES = ("q", "prefix_k", "prefix_v", "own_k", "own_v")
CHATS = 20
"""In the case whose reads are counted; there each query head has a KV head of its own, so that a loop
over heads reads the prefix once, too."""
MOST = 1.5
"""Times that a prefix may go into operations; once is enough."""


class Reads(OperationMode):
    """Count the numbers of given tensors that go into operations which make something else of them:
    views do not count, and what is expanded counts as often as it is read."""

    def __init__(self, given_tensors: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.numbers = [0] * len(given_tensors)
        self._memory = [memory(tensor) for tensor in given_tensors]

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        targets = {memory(value) for value in tree_leaves(result) if isinstance(value, Tensor)}
        for value in tree_leaves((args, kwargs)):
            for number, own in enumerate(self._memory):
                if isinstance(value, Tensor) and memory(value) == own and targets - {own}:
                    self.numbers[number] += value.numel()
        return result


def memory(tensor: Tensor) -> int:
    """Identify the memory of a tensor, as long as the tensor lives."""
    return tensor.untyped_storage()._cdata


@contextmanager
def count_reads(*tensors: Tensor) -> Iterator[Reads]:
    """Count what is read of these tensors inside the `with` block."""
    with Reads(tensors) as reads:
        yield reads


def draw_chats(seed: int) -> Challenge:
    """Draw one chat, several, sizes of 1, another type; then many, whose reads are counted."""
    rng = np.random.default_rng(seed)
    P, S = int(rng.integers(5, 9)), int(rng.integers(2, 5))
    staged = [
        ("one", 1, (2, 1), P, S, {}),
        ("chats", 3, (1, 1), P, S, {}),
        ("chats", 3, (4, 2), P, S, {}),
        ("chats", 4, (4, 2), P, S, {}),
        ("chats", 2, (6, 3), S, P, {}),
        ("sizes", 3, (4, 1), 1, 1, {}),
        ("sizes", 1, (1, 1), 1, S, {}),
        ("sizes", 5, (4, 4), P, 1, {}),
        ("sizes", 3, (4, 2), P, S, {"dtype": "float64"}),
        ("sizes", CHATS, (2, 2), int(rng.integers(200, 260)), S, {"D": 32}),
    ]
    return {"cases": [draw_case(rng, *case) for case in staged]}


def draw_case(
    rng: np.random.Generator,
    stage: str,
    B: int,
    heads: tuple[int, int],
    P: int,
    S: int,
    other: dict,
) -> Challenge:
    """Draw queries of B chats, a prefix of P tokens, and S tokens of each chat's own."""
    D = other.pop("D", 6)
    own = draw_heads(rng, (B, *heads, 1, S), D=D)
    prefix = draw_heads(rng, (1, *heads, 1, P), D=D)
    case = {"q": own["q"], "prefix_k": prefix["k"], "prefix_v": prefix["v"]}
    own = {"own_k": own["k"], "own_v": own["v"]}
    return {**case, **own, "dtype": "float32", "stage": stage, **other}


def probe_chats(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Attend to prefix and own keys; count what is read of the prefix."""
    out, reads = [], []
    for case in challenge["cases"]:
        tensors = [given(case[name], getattr(torch, case["dtype"])) for name in NAMES]
        with count_reads(*tensors[1:3]) as counted:
            result = student.attend_shared(*tensors)
        out.append(record(result))
        reads.append([n / t.numel() for n, t in zip(counted.numbers, tensors[1:3], strict=True)])
    return {"out": out, "reads": reads}


@check(
    "attend_shared",
    draw=draw_chats,
    probe=probe_chats,
    evidence=one_each(out=RECORD, reads=[float, float]),
)
def prefix_is_read_once(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare outputs; of the last case also how often the prefix was read."""
    for case, got, reads in zip(
        challenge["cases"], evidence["out"], evidence["reads"], strict=True
    ):
        where = case_text(case)
        question = QUESTIONS[case["stage"]]
        if wrong := wrong_output(got, truth(case), case["dtype"], tolerance, question):
            return failed(f"{where}: attend_shared {wrong}")
        if not min(reads) >= 1:
            return failed(
                f"{where}: the result is right, but operations of PyTorch read only a part of the "
                f"prefix, and others cannot be counted. Which of your lines leave PyTorch?"
            )
    if not max(reads) <= MOST:
        return failed(
            f"{where}: the result is right, but the prefix's keys go into operations "
            f"{reads[0]:.3g} times, its values {reads[1]:.3g} times. Does every chat read, or get, a "
            f"prefix of its own?"
        )
    return passed("Every chat sees the prefix and its own tokens; the prefix is read once for all.")


def case_text(case: Challenge) -> str:
    """Write "3 chats, 4 query heads on 2 KV heads, a prefix of 7, 2 tokens of their own"."""
    (B, H), (G, P), S = case["q"].shape[:2], case["prefix_k"].shape[1:3], case["own_k"].shape[2]
    return (
        f"{B} chat{'s' * (B > 1)}, {H} query heads on {G} KV head{'s' * (G > 1)}, a prefix of {P}, {S} "
        f"of their own"
    )
