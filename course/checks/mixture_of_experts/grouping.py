"""Check experts that are called in groups: what comes out, and who is called with which rows."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.default_device import beside_default
from course.checks.recorder import given
from course.checks.recording import RECORD, first_wrong, one_each, record, wrong_form
from course.checks.rules import wrong_device

Truth = Callable[[Challenge], np.ndarray]
TOLERANCES = {"float32": 1e-4, "float64": 1e-4, "bfloat16": 0.1}
"""Of numbers of about 1; of a number above 1, a part of it. Recorded answers have seven digits."""


def draw_case(
    rng: np.random.Generator, stage: str, n: int, N: int, k: int, C: int = 4, dtype: str = "float32"
) -> Challenge:
    """Draw rows (n, C), N experts, for each row k different ones, and weights that add up to 1.

    An expert computes max(0, x · matrix) + offset, so that it answers a row of zeros, too, and is not
    linear.
    """
    chosen = np.stack([rng.permutation(N)[:k] for _ in range(n)])
    weights = rng.uniform(0.2, 1, (n, k))
    return {
        "x": rng.normal(size=(n, C)).astype(np.float32),
        "matrices": rng.normal(size=(N, C, C)).astype(np.float32),
        "offsets": rng.normal(size=(N, C)).astype(np.float32),
        "chosen": chosen.astype(np.int64),
        "weights": (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32),
        "stage": stage,
        "dtype": dtype,
    }


def crowded(case: Challenge, rng: np.random.Generator) -> Challenge:
    """Let three of four rows use expert 1."""
    chosen = case["chosen"].copy()
    for row in rng.permutation(len(chosen))[: len(chosen) * 3 // 4]:
        if 1 not in chosen[row]:
            chosen[row, rng.integers(chosen.shape[1])] = 1
    return {**case, "chosen": chosen}


def opposed(case: Challenge, rng: np.random.Generator) -> Challenge:
    """Let each row use two experts nearly alike, one that adds a large number and one that subtracts it,
    of which float32 would leave nothing exact."""
    n, N = len(case["x"]), len(case["matrices"])
    chosen = np.stack(
        [2 * rng.permutation(N // 2)[:1].repeat(2) + rng.permutation(2) for _ in range(n)]
    )
    signs = np.where(np.arange(N) % 2, -1, 1)[:, None]
    offsets = case["offsets"] + (2**20 * signs).astype(np.float32)
    weights = np.tile([1 / 3, 1 / 3 + 1e-6], (n, 1))
    return {**case, "chosen": chosen.astype(np.int64), "offsets": offsets, "weights": weights}


def returned(rng: np.random.Generator) -> Challenge:
    """Draw rows above 0 that all use one expert, with the weight 1, which returns what it was given."""
    case = draw_case(rng, "returned", 3, 1, 1)
    return {
        **case,
        "x": np.abs(case["x"]) + 1,
        "matrices": np.eye(4, dtype=np.float32)[None],
        "offsets": np.zeros((1, 4), np.float32),
    }


def draw_sums(seed: int) -> Challenge:
    """Draw one row and one expert, more of each, all experts, one feature, other types, experts that
    return what is the caller's, and very many experts."""
    rng = np.random.default_rng(seed)
    cases = [
        draw_case(rng, "one", 1, 1, 1),
        draw_case(rng, "one", 1, 3, 1),
        draw_case(rng, "two", 1, 4, 2),
        draw_case(rng, "rows", 5, 4, 1),
        draw_case(rng, "rows", 6, 4, 2),
        crowded(draw_case(rng, "rows", 12, 6, 2), rng),
        draw_case(rng, "all", 5, 3, 3),
        draw_case(rng, "one feature", 4, 4, 2, 1),
        draw_case(rng, "rows", int(rng.integers(7, 12)), 8, 3, 5),
        returned(rng),
        opposed(draw_case(rng, "type", 6, 4, 2, dtype="float64"), rng),
        draw_case(rng, "type", 6, 4, 2, dtype="bfloat16"),
        {**returned(rng), "weights": np.full((3, 1), 2, np.float32), "stage": "twice"},
        draw_case(rng, "rows", 4, 130, 2, 1),
    ]
    cases[-1]["chosen"][0] = 129, 64
    return {"cases": cases}


def draw_company(seed: int) -> Challenge:
    """Draw rows of one expert each, and rows of three; then the latter in another order, alone, with
    experts listed in another order, and with weights that do not add up to 1."""
    rng = np.random.default_rng([seed, 1])
    base = draw_case(rng, "base", 6, 5, 3)
    order = rng.permutation(6)
    moved = {name: base[name][order] for name in ("x", "chosen", "weights")}
    alone = {name: base[name][2:3] for name in ("x", "chosen", "weights")}
    slots = np.array([2, 0, 1])
    listed = {name: base[name][:, slots] for name in ("chosen", "weights")}
    scales = np.array([0, 2, 0.5, 1, 3, 0], np.float32)[:, None]
    negative = base["weights"] * np.array([-1, 2, 0], np.float32)
    cases = [
        draw_case(rng, "rows", 6, 5, 1),
        base,
        {**base, **alone, "stage": "alone", "base_rows": [2]},
        {**base, **moved, "stage": "moved", "base_rows": order},
        {**base, **listed, "stage": "listed", "base_rows": np.arange(6)},
        {**base, "weights": base["weights"] * scales, "stage": "weights"},
        {**base, "weights": negative, "stage": "weights"},
    ]
    return {"cases": cases}


def draw_closed(seed: int) -> Challenge:
    """Draw rows that leave some experts out: the first, the last, one between, all but one."""
    rng = np.random.default_rng([seed, 2])
    cases = []
    for n, N, k, out in (
        (1, 3, 1, (0, 1)),
        (4, 5, 2, (0,)),
        (5, 5, 2, (4, 2)),
        (6, 7, 3, (1, 3, 6)),
    ):
        case = draw_case(rng, "closed", n, N, k)
        inside = [number for number in range(N) if number not in out]
        chosen = np.stack([rng.permutation(inside)[:k] for _ in range(n)])
        matrices, offsets = case["matrices"].copy(), case["offsets"].copy()
        closed = [number for number in range(N) if number not in chosen]
        matrices[closed], offsets[closed] = np.nan, np.nan
        cases.append({**case, "chosen": chosen, "matrices": matrices, "offsets": offsets})
    return {"cases": cases}


def draw_groups(seed: int) -> Challenge:
    """Draw rows of which some share experts, one expert that most of them use, some with the weight 0,
    equal rows, and very many."""
    rng = np.random.default_rng([seed, 3])
    equal = draw_case(rng, "groups", 4, 2, 1)
    unweighted = draw_case(rng, "groups", 5, 4, 2)
    cases = [
        draw_case(rng, "groups", 1, 2, 2),
        draw_case(rng, "groups", 4, 3, 2),
        crowded(draw_case(rng, "groups", 16, 8, 2), rng),
        {**equal, "x": equal["x"][[0, 0, 1, 1]], "chosen": np.array([[1], [1], [1], [0]])},
        {**unweighted, "weights": np.tile(np.array([0, 1], np.float32), (5, 1))},
        draw_case(rng, "groups", int(rng.integers(9, 20)), 5, 3),
        draw_case(rng, "groups", 1200, 2, 1, 1),
    ]
    return {"cases": cases}


class Experts:
    """The experts of a case, which remember how often they were called, and with which rows first."""

    def __init__(self, case: Challenge, dtype: torch.dtype) -> None:
        self.calls: list[Evidence] = [
            {"times": 0, "rows": np.zeros((0, 0))} for _ in case["matrices"]
        ]
        self.returns = case["stage"] in ("returned", "twice")
        self.matrices, self.offsets = (
            torch.tensor(case[name], dtype=dtype) for name in ("matrices", "offsets")
        )

    def functions(self) -> list[Callable[[Tensor], Tensor]]:
        """Return one function for each expert."""
        return [
            lambda rows, number=number: self._call(number, rows)
            for number in range(len(self.calls))
        ]

    def _call(self, number: int, rows: Tensor) -> Tensor:
        if not self.calls[number]["times"]:
            self.calls[number]["rows"] = record(rows)["numbers"]
        self.calls[number]["times"] += 1
        if self.returns:
            return rows
        return (rows @ self.matrices[number]).clamp_min(0) + self.offsets[number]


def mix(student: SimpleNamespace, case: Challenge) -> tuple[Tensor, Experts]:
    """Mix the experts of a case the student's way."""
    dtype = getattr(torch, case["dtype"])
    experts = Experts(case, dtype)
    x, weights = (given(case[name], dtype) for name in ("x", "weights"))
    return student.moe_grouped(x, experts.functions(), given(case["chosen"]), weights), experts


def mix_and_overwrite(student: SimpleNamespace, case: Challenge) -> Evidence:
    """Mix, and overwrite x before the output is recorded, as its owner may do."""
    dtype = getattr(torch, case["dtype"])
    x, weights = (given(case[name], dtype) for name in ("x", "weights"))
    out = student.moe_grouped(x, Experts(case, dtype).functions(), given(case["chosen"]), weights)
    x.zero_()
    return record(out)


def probe_sums(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return {"out": [mix_and_overwrite(student, case) for case in challenge["cases"]]}


def probe_sums_elsewhere(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Mix; once more where new tensors lie elsewhere by default."""
    case = challenge["cases"][4]
    experts = Experts(case, torch.float32).functions()
    x, chosen, weights = (given(case[name]) for name in ("x", "chosen", "weights"))
    elsewhere = beside_default(lambda: student.moe_grouped(x, experts, chosen, weights))
    return {**probe_sums(student, challenge), "elsewhere": elsewhere}


def probe_closed(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Mix, and keep how often each expert was called."""
    mixed = [mix(student, case) for case in challenge["cases"]]
    times = [[call["times"] for call in experts.calls] for _, experts in mixed]
    return {"out": [record(out) for out, _ in mixed], "times": times}


def probe_calls_of_experts(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Mix, and keep which rows each expert was called with."""
    return {"calls": [mix(student, case)[1].calls for case in challenge["cases"]]}


def case_text(case: Challenge) -> str:
    """Write "2 rows of 4 features, 3 experts, chosen [[0, 2], [1, 0]]"."""
    (n, C), N, chosen = case["x"].shape, len(case["matrices"]), case["chosen"]
    listed = f"chosen {chosen.tolist()}" if chosen.size <= 12 else f"chosen {chosen.shape}"
    in_type = "" if case["dtype"] == "float32" else f", in {case['dtype']}"
    return (
        f"{n} row{'s' * (n > 1)} of {C} feature{'s' * (C > 1)}, {N} expert{'s' * (N > 1)}, {listed}"
        f"{in_type}"
    )


QUESTIONS = {
    "one": "There is one row, and one expert is chosen. What does it give, and what is its weight?",
    "two": "One expert of the weight 1 is right. What does a weight multiply, and how do two outputs "
    "become one row?",
    "rows": "One row alone is right. Does each output come back to the row that it belongs to, times the "
    "weight of that row?",
    "all": "Fewer experts agree. What is different when a row uses all of them?",
    "one feature": "Rows of more features agree. Which axis disappears when it is 1 long?",
    "returned": "The expert returned its input, which has been overwritten since. Whose memory is yours?",
    "twice": "The expert returned its input, and its weight is 2. What is done with a weight, and whose "
    "memory is the result?",
    "type": "float32 agrees. Which of your lines makes numbers of another type?",
    "base": "Does grouped_as_token_by_token pass?",
    "alone": "It is the same row. What else than the row decides about its output?",
    "moved": "The same rows came in another order. What depends on the order?",
    "listed": "Each row lists its experts in another order, with their weights. What goes by the order?",
    "weights": "These weights do not add up to 1. What do you do with them beside multiplying?",
    "closed": "Does grouped_as_token_by_token pass? If so: what does an expert add that nobody chose?",
}


def wrong_output(
    case: Challenge, got: Evidence, expected: np.ndarray, rather: str = "and not"
) -> str | None:
    """Say what is wrong about an output, and ask about it; None where nothing is.

    Args:
        rather: stands before what is expected.
    """
    if wrong := wrong_form(got, expected.shape, case["dtype"]):
        return f"{case_text(case)}: moe_grouped {wrong}"
    if (place := first_wrong(got["numbers"], expected, TOLERANCES[case["dtype"]])) is None:
        return None
    row, feature = place
    return (
        f"{case_text(case)}: row {row} gave {got['numbers'][place]:.4g} {rather} {expected[place]:.4g} "
        f"(feature {feature}; its experts are {case['chosen'][row].tolist()}, their weights "
        f"{np.round(case['weights'][row].astype(float), 3).tolist()}). {QUESTIONS[case['stage']]}"
    )


@check(
    "moe_grouped",
    draw=draw_sums,
    probe=probe_sums_elsewhere,
    evidence=lambda challenge: {"out": [RECORD] * len(challenge["cases"]), "elsewhere": str},
)
def grouped_as_token_by_token(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Compare with experts called for one token after the other."""
    for case, got in zip(challenge["cases"], evidence["out"], strict=True):
        if wrong := wrong_output(case, got, truth(case)):
            return failed(wrong)
    if wrong := wrong_device("moe_grouped", evidence["elsewhere"]):
        return failed(wrong)
    return passed("In groups the experts give what they give token by token.")


@check("moe_grouped", draw=draw_company, probe=probe_sums, evidence=one_each(out=RECORD))
def other_rows_change_nothing(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Compare the same rows in other company, and with other weights. Where a mixture is wrong, which
    another check asks, compare with the student's own."""
    own, rather = None, "and not"
    for case, got in zip(challenge["cases"], evidence["out"], strict=True):
        expected = truth(case)
        if case["stage"] == "base" and wrong_output(case, got, expected):
            if wrong := wrong_form(got, expected.shape, case["dtype"]):
                return failed(f"{case_text(case)}: moe_grouped {wrong}")
            if np.isfinite(got["numbers"]).all():
                own = expected = got["numbers"]
        elif own is not None and case["stage"] == "weights":
            continue
        elif own is not None and "base_rows" in case:
            expected, rather = own[case["base_rows"]], "and, among the others,"
        if wrong := wrong_output(case, got, expected, rather):
            return failed(wrong)
    return passed("A row's output depends on its own experts and weights alone.")


@check(
    "moe_grouped",
    draw=draw_closed,
    probe=probe_closed,
    evidence=lambda challenge: {
        "out": [RECORD] * len(challenge["cases"]),
        "times": [[int] * len(case["matrices"]) for case in challenge["cases"]],
    },
)
def unchosen_experts_are_not_called(
    challenge: Challenge, evidence: Evidence, truth: Truth
) -> Verdict:
    """Look for calls of experts that no row chose; their numbers are NaN."""
    for case, got, times in zip(
        challenge["cases"], evidence["out"], evidence["times"], strict=True
    ):
        for number, called in enumerate(times):
            if called and number not in case["chosen"]:
                return failed(
                    f"{case_text(case)}: expert {number} was chosen by no row, and called. A call reads "
                    f"its weights, even for no row at all. Which experts does your loop visit?"
                )
        if wrong := wrong_output(case, got, truth(case)):
            return failed(wrong)
    return passed("An expert that no row chose is not called: its weights are not read.")


CALL = {"times": int, "rows": np.ndarray}
"""Of one expert: how often it was called, and the rows of the first call."""


@check(
    "moe_grouped",
    draw=draw_groups,
    probe=probe_calls_of_experts,
    evidence=lambda challenge: {
        "calls": [[CALL] * len(case["matrices"]) for case in challenge["cases"]]
    },
)
def each_expert_once(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Compare the rows of each call with the rows that chose the expert, in any order."""
    for case, calls in zip(challenge["cases"], evidence["calls"], strict=True):
        for number, call in enumerate(calls):
            asked = np.flatnonzero((case["chosen"] == number).any(axis=1))
            if call["times"] > 1:
                return failed(
                    f"{case_text(case)}: expert {number} was called {call['times']} times, and reads its "
                    f"weights each time. Which rows could one call take?"
                )
            if len(asked) and not call["times"]:
                return failed(
                    f"{case_text(case)}: rows {asked.tolist()} chose expert {number}, and it was not "
                    f"called. Which experts does your loop visit, and when does it skip one?"
                )
            if call["times"] and (wrong := wrong_rows(call["rows"], case["x"], asked)):
                return failed(
                    f"{case_text(case)}: rows {asked.tolist()} chose expert {number}; {wrong}"
                )
    return passed("Each expert that was chosen is called once, with the rows that chose it.")


def wrong_rows(got: np.ndarray, x: np.ndarray, asked: np.ndarray) -> str | None:
    """Tell how the rows of a call, (n, width), differ from those of x, (tokens, width), that chose the
    expert, where `asked`, (tokens,), is true, and ask about it; None where they do not."""
    find = "How do you find the rows of one expert?"
    if got.shape != (shape := x[asked].shape):
        return f"it was called with shape {got.shape} and not {shape}. {find}"
    by_value = [rows[np.lexsort(rows.T)] for rows in (got, x[asked])]
    if np.array_equal(*by_value):
        return None
    if all((x == row).all(axis=1).any() for row in got):
        return f"it was called with as many rows of x, and others. {find}"
    return (
        "it was called with as many rows, and at least one is no row of x. What happens to a row "
        "before its expert gets it?"
    )
