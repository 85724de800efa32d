"""Check how many experts a pass reads, how many bytes that is, and when bytes stop to matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from course.checks.calls import Case, Words, call, check_calls
from course.checks.recording import Place
from course.measure.limits import Machine
from course.published.experts import MoESize


def draw_expectations(rng: np.random.Generator) -> Iterator[Case]:
    """Draw one token, none, all experts, and many of each."""
    for sizes in ((4, 1, 1), (4, 2, 1), (4, 1, 2), (6, 3, 2), (8, 2, 0), (5, 5, 3), (1, 1, 4)):
        yield call("expected_experts", *sizes)
    yield call("expected_experts", 4, 1, 5000)
    for n_tokens in (5, 16, 400):
        yield call("expected_experts", 128, 8, n_tokens)
    yield call("expected_experts", 80, 1, 1100)
    N = int(rng.integers(9, 60))
    yield call("expected_experts", N, int(rng.integers(2, 8)), int(rng.integers(3, 30)))


@check_calls(
    "expected_experts",
    draw=draw_expectations,
    praise="The mean number of different experts, from one token to very many.",
    tolerance=1e-9,
)
def expectation_is_the_mean(case: Case, result: float, expected: float, place: Place) -> Words:
    """Ask by the usual short cuts."""
    N, k, n_tokens = case["arguments"]
    return f"gives {result:.6g}; over all choices the mean is {expected:.6g}.", (
        (n_tokens == 0, "Without a token, which experts are read?"),
        (n_tokens == 1, "How many experts does one token read?"),
        (k == N, "Every token uses all. How many are read?"),
        (result == min(N, k * n_tokens), "May two tokens choose the same expert?"),
        (
            abs(result - expected) < 0.01 * expected,
            "That is nearly the mean. Is yours rounded, drawn at random, or approximated?",
        ),
        (True, "With which probability does an expert stay unread by one token, and by all?"),
    )


def draw_size(rng: np.random.Generator, **changed: int) -> list[int]:
    """Draw the sizes of a mixture: V, L, C, H, G, D, f, N, k, shared; H · D is not C."""
    heads = 2 * int(rng.integers(1, 4))
    sizes = {
        "V": int(rng.integers(50, 300)),
        "L": int(rng.integers(2, 6)),
        "C": 8 * int(rng.integers(3, 9)),
        "H": heads,
        "G": heads // 2,
        "D": 4 * int(rng.integers(5, 9)),
        "f": 4 * int(rng.integers(3, 9)),
        "N": int(rng.integers(6, 12)),
        "k": int(rng.integers(2, 5)),
        "shared": 0,
    }
    if sizes["H"] * sizes["D"] == sizes["C"]:
        sizes["C"] += 4
    return list((sizes | changed).values())


def draw_bills(rng: np.random.Generator) -> Iterator[Case]:
    """Draw mixtures: no expert read, one, a mean, all; a shared one; numbers of other widths; one expert
    alone, and the sizes of Qwen3-30B-A3B."""
    one = [10, 1, 6, 1, 1, 4, 3, 3, 1, 0]
    for size, *read in (
        (one, 0, 1),
        (one, 1, 1),
        (one, 0.5, 1),
        (draw_size(rng), 3),
        (draw_size(rng), 3.75, 2),
        (draw_size(rng, k=1), 6),
        (draw_size(rng, N=5, k=3), 1.5, 4),
        (draw_size(rng, shared=20), 2.25),
        (draw_size(rng, shared=12, k=2), 0.25, 1),
        (draw_size(rng, N=7, k=7), 7, 2),
        (one, 1, 4),
        (one, 0.3, 1),
        (draw_size(rng, N=1, k=1), 1),
        ([151_936, 48, 2048, 32, 4, 128, 768, 128, 8, 0], 8),
    ):
        yield call("step_bytes", size, *read)


def sizes_text(size: list[int]) -> str:
    """Write the sizes of a mixture by their letters."""
    V, L, C, H, G, D, f, N, k, shared = size
    beside = f", shared {shared}" if shared else ""
    return f"V {V}, L {L}, C {C}, H {H}, G {G}, D {D}, experts of {f}: {N}, k {k}{beside}"


def width_of(case: Case) -> int:
    """Return the bytes of a number: the third argument, or 2."""
    return case["arguments"][2] if len(case["arguments"]) > 2 else 2


def width_text(case: Case) -> str:
    """Say how many bytes a number of a case takes."""
    width = width_of(case)
    return f"{width} byte{'s' * (width > 1)} a number"


def run_sized(function: Any, case: Case) -> Any:
    """Call a function with a MoESize, and with a Machine where the case has one."""
    size, *rest = case["arguments"]
    machine = [Machine("drawn", *rest.pop(0))] if rest and isinstance(rest[0], list) else []
    return function(MoESize(*size), *machine, *rest)


@check_calls(
    "step_bytes",
    draw=draw_bills,
    run=run_sized,
    describe=lambda case: (
        f"{sizes_text(case['arguments'][0])}; {case['arguments'][1]} experts read in each layer, "
        f"{width_text(case)}: step_bytes"
    ),
    praise="All matrices that a step reads, and no more.",
    tolerance=1e-9,
)
def bill_of_a_step(case: Case, result: float, expected: float, place: Place) -> Words:
    """Ask by the matrix whose bytes are missing, or too many."""
    size, n_read, *_ = case["arguments"]
    V, L, C, *_, N, _, shared = size
    layers = "One layer of one head, one byte a number, is right. What do L, H, G and the width multiply?"
    each = width_of(case)
    off = (result - expected) / each
    return f"gives {result:,.6g}; counted matrix by matrix it is {expected:,.6g}.", (
        (n_read == 0 and abs(off) == L * N * C, "Who decides which experts a token uses?"),
        (
            n_read == 0 and abs(off) == V * C,
            "Which matrix is read once a step, and which is no matrix?",
        ),
        (
            n_read == 0,
            "No expert is read here. Which matrices has a layer beside them, and the model?",
        ),
        (
            shared > 0,
            "Without a shared expert the bill is right. What has one, and in which layers is it?",
        ),
        (
            n_read < 1,
            "Whole experts are right. What is half an expert a layer, as a mean of two passes?",
        ),
        (L > 1, layers),
        (True, "How many numbers are in one expert, and how many experts are read in each layer?"),
    )


def draw_bounds(rng: np.random.Generator) -> Iterator[Case]:
    """Draw machines of all kinds: always bound by arithmetic, at a few tokens, at hundreds, just so."""
    one = [10, 1, 6, 1, 1, 4, 3, 2, 1, 0]
    yield call("compute_bound_from", one, [1.0, 1e9])  # arithmetic from the first token on
    yield call("compute_bound_from", one, [5e9, 1e9], 1)
    # Each token uses every expert: 2 FLOPs a number, 2 bytes a number. So n tokens have intensity n.
    yield call("compute_bound_from", [40, 2, 12, 2, 1, 8, 6, 3, 3, 0], [7e9, 1e9])
    yield call("compute_bound_from", [40, 2, 12, 2, 1, 8, 6, 3, 3, 0], [7.5e9, 1e9])
    for expert, balance in (
        (16, 1.4),
        (200, 1.6),
        (200, 1.3),
    ):  # over while experts are still unread
        few = [40, 4, 24, 2, 1, 8, expert, 40, 2, 0]
        yield call("compute_bound_from", few, [balance * float(rng.uniform(1, 1.05)), 1.0])
    for balance, width, changed in (
        (6, 2, {}),
        (80, 2, {}),
        (200, 2, {"N": 12, "k": 2}),
        (200, 1, {"N": 10, "k": 2}),
        (50, 4, {"shared": 24}),
        (3, 4, {}),
        (30, 1, {"k": 1}),
    ):
        rate = balance * float(rng.uniform(1, 1.2))
        yield call("compute_bound_from", draw_size(rng, **changed), [rate * 1e9, 1e9], width)
    yield call("compute_bound_from", draw_size(rng, N=1, k=1), [20e9, 1e9])


@check_calls(
    "compute_bound_from",
    draw=draw_bounds,
    run=run_sized,
    describe=lambda case: (
        f"{sizes_text(case['arguments'][0])}; {width_text(case)}, "
        f"{case['arguments'][1][0] / case['arguments'][1][1]:.6g} FLOP/byte: "
        f"compute_bound_from"
    ),
    praise="The fewest tokens of a pass that keep arithmetic busy.",
)
def first_compute_bound_pass(case: Case, result: int, expected: int, place: Place) -> Words:
    """Ask by how far away the number is."""
    size = case["arguments"][0]
    N, k = size[7], size[8]
    return (
        f"gives {result:,}; with {expected:,} tokens arithmetic takes as long as memory first.",
        (
            (expected == 1, "Even one token is bound by arithmetic here. How many is the least?"),
            (
                abs(result - expected) == 1,
                "Is that the least by your own count? If so, do FLOPs or bytes differ, or is something "
                "rounded?",
            ),
            (k == N, "Every token uses all. How many FLOPs are done for one number that is read?"),
            (result < expected, "Do you count too many FLOPs, or too few bytes?"),
            (
                True,
                "Do you count too few FLOPs or too many bytes, or leave some numbers of tokens out?",
            ),
        ),
    )
