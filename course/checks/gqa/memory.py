"""How many sequences fit: in general, and where the memory ends."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.checks.recording import one_each
from course.minigpt.kv_cache import kv_cache_bytes
from course.model.config import GPTConfig

Truth = Callable[[Challenge], dict[str, int]]
"""For a case, "fits": how many sequences; and "bytes": of the cache of one."""
DEFAULT_WIDTH = 2


def bytes_of_one(case: Challenge) -> int:
    """Count the bytes of a sequence by lesson 03's formula, to draw a memory of some of these."""
    config = GPTConfig(**case["config"])
    width = case.get("bytes_per_element", DEFAULT_WIDTH)
    return kv_cache_bytes(config, case["n_tokens"], 1, width)


def draw_request(rng: np.random.Generator, width: int | None = None) -> Challenge:
    """Draw a model, texts longer than its `max_seq_len`, and the weights beside them; every size
    matters, and no two are equal.

    Args:
        width: bytes of a number; left out of the call where it is None.
    """
    G, group = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    H = G * group
    config = GPTConfig(
        1000, int(rng.integers(5, 30)), H * 2 * int(rng.integers(8, 33)), H, G, 64, 90
    )
    case = {
        "config": config.to_dict(),
        "n_tokens": int(rng.integers(100, 1000)),
        "weight_bytes": int(rng.integers(10**8, 10**9)),
    }
    return case if width is None else {**case, "bytes_per_element": width}


def draw_some_room(seed: int) -> Challenge:
    """Draw requests with room for a few dozen sequences and a part of one, in every width; then for
    some thousands of one token."""
    rng = np.random.default_rng([seed, 0])
    cases = []
    for width in (2, 1, 4, 8, int(rng.integers(1, 9))):
        case = draw_request(rng, width)
        if len(cases) == 4:
            case["n_tokens"] = int(rng.integers(5, 15))
        one, n = bytes_of_one(case), int(rng.integers(20, 90))
        cases.append(with_room(case, n * one + int(one * rng.uniform(0.55, 0.95))))
    case = {**draw_request(rng), "n_tokens": 1}
    return {"cases": [*cases, with_room(case, bytes_of_one(case) * int(rng.integers(5000, 9000)))]}


def draw_edges(seed: int) -> Challenge:
    """Draw requests of the default width with room that is just enough for short texts, one byte less
    than enough, for one sequence, for nearly one, none, one byte less than the weights, and much less
    than those; a memory without weights; and one of more bytes than a float can count, of which one is
    missing for the last sequence."""
    rng = np.random.default_rng([seed, 1])
    cases = []
    for number in range(7):
        case = draw_request(rng)
        if number == 0:
            case["n_tokens"] = int(rng.integers(5, 15))
        one, n = bytes_of_one(case), int(rng.integers(20, 90))
        spares = [n * one, n * one - 1, one, one - 1, 0, -1, -int(3.5 * one)]
        cases.append(with_room(case, spares[number]))
    alone = {**draw_request(rng), "weight_bytes": 0}
    cases.append({**alone, "memory_bytes": 7 * bytes_of_one(alone)})
    huge = {**draw_request(rng), "n_tokens": int(rng.integers(2**28, 2**29))}
    n = int(rng.integers(2**17, 2**18))  # so that n less a byte's part is n, as a float
    return {"cases": [*cases, with_room(huge, n * bytes_of_one(huge) - 1)]}


def with_room(case: Challenge, spare: int) -> Challenge:
    """Give a request a memory with so many bytes beside the weights; below 0, they do not fit."""
    weights = max(case["weight_bytes"], 1 + max(0, -spare))
    return {**case, "weight_bytes": weights, "memory_bytes": weights + spare}


def probe_fitting(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return {"values": [fitting(student, case) for case in challenge["cases"]]}


def fitting(student: SimpleNamespace, case: Challenge) -> int | float | str:
    """Ask the student's function about a case; a refusal comes back as one."""
    sizes = [case[name] for name in ("memory_bytes", "n_tokens", "weight_bytes")]
    width = [case["bytes_per_element"]] if "bytes_per_element" in case else []
    try:
        return plain(student.max_batch_that_fits(GPTConfig(**case["config"]), *sizes, *width))
    except ValueError:
        return "a ValueError"


def sizes_text(case: Challenge) -> str:
    """Write the sizes of a case in words."""
    c = GPTConfig(**case["config"])
    return (
        f"L={c.n_layers}, H={c.n_heads}, G={c.n_kv_heads}, D={c.head_dim}, {case['n_tokens']} "
        f"token{'s' * (case['n_tokens'] != 1)} in "
        f"{8 * case.get('bytes_per_element', DEFAULT_WIDTH)} bits; memory "
        f"{case['memory_bytes']:,} bytes, weights {case['weight_bytes']:,}"
    )


class Guess(NamedTuple):
    """A usual mistake: how large a sequence it takes for one, and the question that points at it.

    Attributes:
        bytes: of a sequence.
        room: of the memory, beside what is taken for the weights.
    """

    bytes: float
    room: int
    question: str


def guesses(case: Challenge, one: int) -> list[Guess]:
    """List what usual mistakes take for the bytes of one sequence, which needs `one`."""
    c, width = GPTConfig(**case["config"]), case.get("bytes_per_element", DEFAULT_WIDTH)
    room = case["memory_bytes"] - case["weight_bytes"]
    found = [
        Guess(one, case["memory_bytes"], "What else is in the memory?"),
        Guess(one + case["weight_bytes"], case["memory_bytes"], "How often are weights there?"),
    ]
    for times, question in (
        (c.n_heads / c.n_kv_heads, "Which heads does a cache store, H or G?"),
        (1 / 2, "What does a cache store beside a key?"),
        (2, "Is anything counted twice, and which argument of kv_cache_bytes is the batch?"),
        (1 / c.n_layers, "How many layers store keys and values?"),
        (8, "Bits or bytes?"),
        (c.max_seq_len / case["n_tokens"], "How many tokens does each sequence grow to?"),
        (1 / case["n_tokens"], "How many tokens does each sequence grow to?"),
        (DEFAULT_WIDTH / width, "How many bytes does a number have here?"),
    ):
        if times != 1:
            found.append(Guess(times * one, room, question))
    return found


def ask_about_room(case: Challenge, got: float, fits: int, one: int) -> str:
    """Choose the question about a wrong number: the one whose mistake gives just this number."""
    if got == fits + 1 and case["memory_bytes"] > 2**53:
        return "How many digits has a float, and has this quotient?"
    if case["memory_bytes"] < case["weight_bytes"]:
        return "What is there before the first sequence comes?"
    if got == fits + 1:
        return "Is the last of them there whole, with all of its tokens?"
    if got == fits - 1:
        return "Does one more, with its tokens and no others, not fill the rest to the last byte?"
    candidates = [
        g.question for g in guesses(case, one) if got * g.bytes <= g.room < (got + 1) * g.bytes
    ]
    if got > 0 and len(candidates) == 1:
        return candidates[0]
    return "What does one sequence keep, in which unit, and what is in the memory beside it?"


def wrong_number(challenge: Challenge, evidence: Evidence, truth: Truth) -> str | None:
    """Tell the first number that is not what fits: that many sequences, and not one more."""
    for case, got in zip(challenge["cases"], evidence["values"], strict=True):
        fits, one = (truth(case)[name] for name in ("fits", "bytes"))
        spare, text = case["memory_bytes"] - case["weight_bytes"], sizes_text(case)
        if got == "a ValueError":
            return f"{text}: your function gave {got}. Which of these numbers is out of its bounds?"
        if not isinstance(got, int):
            return f"{text}: your function gave {got}; wanted is an int, 0 where none fits."
        if got < 0:
            return f"{text}: {got:,} sequences. Can fewer than none fit?"
        if got > fits:
            return (
                f"{text}: {got:,} sequences need {got * one:,} bytes beside the weights, and "
                f"{max(0, spare):,} are left. {ask_about_room(case, got, fits, one)}"
            )
        if got < fits:
            return (
                f"{text}: {got:,} sequences leave {spare - got * one:,} bytes free, and one needs "
                f"{one:,}. {ask_about_room(case, got, fits, one)}"
            )
    return None


@check(
    "max_batch_that_fits",
    draw=draw_some_room,
    probe=probe_fitting,
    evidence=one_each(values=NUMBER_OR_WORDS),
)
def batch_fills_the_memory(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    if wrong := wrong_number(challenge, evidence, truth):
        return failed(wrong)
    return passed("As many sequences as there is room for beside the weights, and not one more.")


@check(
    "max_batch_that_fits",
    draw=draw_edges,
    probe=probe_fitting,
    evidence=one_each(values=NUMBER_OR_WORDS),
)
def edge_of_the_memory(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    if wrong := wrong_number(challenge, evidence, truth):
        return failed(wrong)
    return passed(
        "What fits to the byte fits; one byte less, and one sequence less; and never below 0."
    )
