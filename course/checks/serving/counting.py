"""Check what is counted: iterations of two ways to fill a batch, and requests that were served well."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, Sizes, count_check, drawn_by, plain
from course.checks.recorded import Recorded
from course.measure.latency import Latency


def draw_answers(rng: np.random.Generator) -> list[Sizes]:
    """Draw lengths of answers and rows of a batch: none, one, few, a full batch, and one answer more."""
    cases: list[Sizes] = [([], 2), ([3], 1), ([2, 5], 1), ([1, 4, 2], 2)]
    for batch in (2, 3, 4):
        for n in (batch, 2 * batch, 3 * batch + 1):
            lengths = rng.integers(1, 9, n)
            lengths[rng.integers(n)] = rng.integers(20, 30)  # one that all others wait for
            cases.append((lengths.tolist(), batch))
    cases.append((rng.integers(1, 30, 12).tolist(), 5))
    return cases


def _ask_static(sizes: Sizes, got: float, right: int) -> str:
    lengths, batch = sizes
    if got == sum(lengths):
        return "How many answers does one iteration bring forward?"
    return f"The first batch has {lengths[:batch]}: when does the next one begin?"


def _ask_continuous(sizes: Sizes, got: float, right: int) -> str:
    lengths, batch = sizes
    if got == -(-sum(lengths) // batch):
        return "Can two rows write one answer? What does the longest one need at least?"
    return "When an answer is complete, who takes its row, and in which iteration?"


static_batches_wait = count_check(
    "static_batches_wait",
    "static_steps",
    drawn_by(draw_answers),
    Recorded("serving", "static_batches_wait"),
    _ask_static,
    "Each batch takes as long as its longest answer.",
)

continuous_batches_fill_holes = count_check(
    "continuous_batches_fill_holes",
    "continuous_steps",
    drawn_by(draw_answers),
    Recorded("serving", "continuous_batches_fill_holes"),
    _ask_continuous,
    "A row that becomes free is taken before the next iteration.",
)


# --- goodput -------------------------------------------------------------------------------------


def draw_latencies(seed: int) -> Challenge:
    """Draw latencies on both sides of two limits, some of them just on a limit, some without a gap."""
    rng = np.random.default_rng(seed)
    cases = []
    for n in (1, 1, 1, 1, 6, 12):
        ttft, gap = (float(x) for x in rng.uniform((0.05, 0.005), (0.2, 0.02)))
        rows = []
        for _ in range(n):
            p99 = gap * float(rng.choice([0.5, 0.9, 1.0, 1.2, 2.0]))
            mean = p99 * float(rng.uniform(0.1, 0.4))
            rows.append((ttft * float(rng.choice([0.4, 1.0, 1.1, 3.0])), mean, mean * 0.9, p99))
        cases.append({"rows": rows, "seconds": float(rng.uniform(2, 9)), "ttft": ttft, "gap": gap})
    # Alone, each kind: well served, late at first, halting, and one token without any gap.
    for case, (first, p99) in zip(cases, ((0.5, 0.9), (1.2, 0.5), (0.5, 1.2)), strict=False):
        case["rows"] = [
            (case["ttft"] * first, 0.3 * case["gap"], 0.2 * case["gap"], p99 * case["gap"])
        ]
    cases[3]["rows"] = [(0.5 * cases[3]["ttft"], None, None, None)]
    cases[5]["rows"][int(rng.integers(6))] = (0.5 * cases[5]["ttft"], None, None, None)
    cases.append(cases[4] | {"rows": []})
    return {"cases": cases}


def probe_goodput(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Ask for the goodput of each case, and with no time at all."""
    values = []
    for case in challenge["cases"]:
        latencies = [Latency(*row, None) for row in case["rows"]]
        values.append(plain(student.goodput(latencies, case["seconds"], case["ttft"], case["gap"])))
    return {"values": values}


@check(
    "goodput",
    draw=draw_latencies,
    probe=probe_goodput,
    evidence=lambda challenge: {"values": [NUMBER_OR_WORDS] * len(challenge["cases"])},
)
def goodput_meets_both_limits(
    challenge: Challenge, evidence: Evidence, truth: Callable[[dict[str, Any]], float]
) -> Verdict:
    """Compare with what was counted one by one."""
    for case, got in zip(challenge["cases"], evidence["values"], strict=True):
        right, rows = truth(case), case["rows"]
        told = "; ".join(
            f"TTFT {1e3 * ttft:.0f} ms"
            + (f", p99 gap {1e3 * p99:.1f} ms" if p99 else ", one token")
            for ttft, _, _, p99 in rows[:3]
        )
        told += " …" if len(rows) > 3 else ""
        where = (
            f"{len(rows)} request(s) in {case['seconds']:.2f} s ({told or 'none'}), limits "
            f"{1e3 * case['ttft']:.0f} and {1e3 * case['gap']:.1f} ms"
        )
        if isinstance(got, str):
            return failed(f"{where}: goodput gave {got}; wanted is one number. What do you return?")
        if not abs(got - right) <= 1e-9 * max(1.0, right):
            return failed(
                f"{where}: goodput gave {got:.4g} a second, counted one by one it is {right:.4g}. "
                f"Which of these requests were served well, and over which time?"
            )
    return passed("Requests a second that met both limits.")
