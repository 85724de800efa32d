"""Check at which speed fetching takes as long as it spares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from course.checks.calls import Case, Words, call, check_calls
from course.checks.recording import Place
from course.measure.limits import Machine
from course.model.config import GPTConfig


def draw_links(rng: np.random.Generator) -> Iterator[Case]:
    """Draw models, prompts and machines: bound by arithmetic, by memory, one of the two passes by each;
    numbers of two and of four bytes."""
    for part in ("compute", "compute", "memory", "between", "grouped", "wide", "four", "one"):
        heads = int(rng.integers(3, 6))
        groups = 1 if part == "grouped" else heads
        config = GPTConfig(int(rng.integers(200, 900)), 3, 48 * heads, heads, groups, 200)
        rates = {"memory": (1e15, 1e9), "four": (1e15, 1e9), "between": (1e12, 2e10)}
        flops, bandwidth = rates.get(part, (1e9, 1e12))
        n = int(rng.integers(300, 900))
        known = {"one": 1, "between": n - 3}.get(part, int(rng.integers(50, n - 20)))
        machine = [flops * float(rng.uniform(1, 2)), bandwidth * float(rng.uniform(1, 2))]
        yield call(
            "slowest_link",
            config.to_dict(),
            n,
            known,
            machine,
            4 if part in ("wide", "four") else 2,
        )
    config = GPTConfig(300, 2, 96, 2, 2, 200)
    yield call("slowest_link", config.to_dict(), 400, 150, [2e9, 1e12])  # two bytes, left out


def run_link(function: Any, case: Case) -> Any:
    """Call the function with a GPTConfig and a Machine."""
    config, n_prompt, n_known, rates, *width = case["arguments"]
    machine = Machine("drawn", *rates)
    return function(GPTConfig(**config), n_prompt, n_known, machine, *width)


@check_calls(
    "slowest_link",
    draw=draw_links,
    run=run_link,
    describe=lambda case: (
        "A prompt of {} tokens, {} of them known, on a machine of {:.3g} FLOP/s and {:.3g} "
        "bytes/s{}: slowest_link"
    ).format(
        *case["arguments"][1:3],
        *case["arguments"][3],
        "".join(f", {n} bytes a number" for n in case["arguments"][4:]),
    ),
    praise="Bytes that come over the link, by the time that they spare.",
    tolerance=1e-6,
)
def dearer_than_computing(case: Case, result: float, expected: float, place: Place) -> Words:
    """Ask by the usual factors."""
    ratio = result / expected if expected else 0
    times = "" if f"{ratio:.3g}" == "1" else f" It is {ratio:.3g} times that."
    return (
        f"gives {result:.6g}; expected is {expected:.6g} bytes/s.{times}",
        (
            (abs(ratio - 8) < 1e-3, "Are these bytes, or bits?"),
            (
                abs(ratio - 0.5) < 1e-3,
                "Do half of the bytes come over the link, or is twice the time spared?",
            ),
            (True, "Which bytes are fetched, and which two passes differ by how much time?"),
        ),
    )
