"""Check the delta rule: one token, many at once, and how many operations these take."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from course.checks.caches import USED_AGAIN
from course.checks.check import Challenge, Check, Evidence, Verdict, check, failed, passed
from course.checks.counts import in_words
from course.checks.recorded import Recorded
from course.checks.recorder import given
from course.checks.recording import RECORD, first_wrong, one_each, record, wrong_form
from course.measure.operations import OperationMode

NAMES = ("S", "q", "k", "v", "beta", "decay")
RESULTS = ("out", "state")
TOLERANCE = 1e-4
"""For numbers of order 1 in float32: right answers stay within 1e-5 of float64."""
Truth = Callable[[Challenge], tuple[np.ndarray, np.ndarray]]
"""Computes outputs and last state of a case, token by token."""


# --- what is drawn --------------------------------------------------------------------------------


def draw_case(
    rng: np.random.Generator,
    sizes: tuple[int, int, int, int],
    tokens: int | None,
    stage: str,
    decay: float | tuple[float, float] = (0.1, 1.0),
    beta: float | tuple[float, float] = (0.05, 1.0),
) -> Challenge:
    """Draw a state and tokens for it.

    Args:
        sizes: B, H, K, V.
        tokens: T; None: a single token without an axis for it.
        stage: what is new in this case.
        decay, beta: between which numbers they lie; one number: all of them.
    """
    B, H, K, V = sizes
    front = (B, H) if tokens is None else (B, H, tokens)

    def gate(limits: float | tuple[float, float]) -> np.ndarray:
        low, high = limits if isinstance(limits, tuple) else (limits, limits)
        return rng.uniform(low, high, front)

    case = {
        "S": rng.normal(size=sizes),
        "q": rng.normal(size=(*front, K)) * 1.7,
        "k": rng.normal(size=(*front, K)) * 1.7,
        "v": rng.normal(size=(*front, V)),
        "beta": gate(beta),
        "decay": gate(decay),
    }
    case = {name: array.astype(np.float32) for name, array in case.items()}
    return {**case, "stage": stage, "dtype": "float32"}


def opposed(case: Challenge) -> Challenge:
    """Let each key overwrite a large number, and its query read what is written: in float32 nothing of it
    would be exact."""
    S = case["S"] * np.float32(2**20)
    return {**case, "S": S, "q": case["k"].copy(), "dtype": "float64"}


def draw_steps(seed: int) -> Challenge:
    """Draw single tokens: first what writes into nothing, then what fades, what is written under a known
    key, and more of everything."""
    rng = np.random.default_rng(seed)
    small = (1, 1, 2, 3)
    first = draw_case(rng, small, None, "empty", decay=1.0, beta=1.0)
    first["S"] = np.zeros_like(first["S"])
    known = draw_case(rng, (1, 1, 3, 2), None, "known", decay=1.0, beta=1.0)
    known["S"] = known["k"][..., None] * rng.normal(size=(1, 1, 1, 2)).astype(np.float32)
    faded = draw_case(rng, (1, 1, 3, 2), None, "faded", decay=(0.1, 0.6), beta=0.0)
    several = [
        draw_case(rng, (1, 1, 3, 2), None, "part", decay=1.0, beta=(0.2, 0.7)),
        draw_case(rng, (1, 1, 4, 2), None, "both", decay=(0.1, 0.6), beta=(0.3, 0.8)),
        draw_case(rng, (1, 1, 1, 1), None, "one", decay=(0.1, 0.6)),
        draw_case(rng, (1, 3, 4, 2), None, "heads"),
        draw_case(rng, (2, 3, 4, 5), None, "texts"),
        opposed(draw_case(rng, (2, 2, 3, 5), None, "type", decay=1.0, beta=1.0)),
        draw_case(rng, (2, 2, 16, 8), None, "wide"),
        draw_case(rng, (1, 2, 3, 2), None, "kept", decay=1.0, beta=0.0),
    ]
    short = draw_case(rng, (1, 2, 3, 2), None, "short", decay=(0.1, 0.6))
    short |= {name: short[name] * np.float32(1e-3) for name in "qk"}
    silent = draw_case(rng, (1, 2, 3, 2), None, "silent", decay=(0.1, 0.6))
    silent["q"][:, 0], silent["k"][:, 1] = 0, 0
    return {"cases": [first, known, faded, *several, short, silent]}


def draw_chunks(seed: int) -> Challenge:
    """Draw chunks of 1 to 65 tokens, behind nothing and behind a state; decays that leave nothing, gates
    that are closed, and a key that comes twice."""
    rng = np.random.default_rng([seed, 1])
    small = (1, 1, 2, 3)
    first = draw_case(rng, small, 2, "empty", decay=1.0, beta=1.0)
    first["S"] = np.zeros_like(first["S"])
    twice = draw_case(rng, (1, 1, 3, 2), 3, "twice", decay=1.0, beta=1.0)
    twice["S"], twice["k"][:, :, 2] = np.zeros_like(twice["S"]), twice["k"][:, :, 0]
    closed = draw_case(rng, (1, 2, 3, 2), 4, "closed")
    closed["beta"][:, :, 1::2] = 0
    several = [
        draw_case(rng, (1, 1, 3, 2), 1, "single"),
        draw_case(rng, (1, 1, 3, 2), 2, "faded", decay=(0.1, 0.6), beta=0.0),
        draw_case(rng, (1, 1, 3, 2), 3, "both", decay=(0.1, 0.6)),
        closed,
        draw_case(rng, (2, 3, 4, 5), 5, "texts"),
        draw_case(rng, (1, 1, 1, 1), 7, "one"),
        {**draw_case(rng, (2, 2, 3, 5), int(rng.integers(6, 12)), "type"), "dtype": "float64"},
        draw_case(rng, (1, 2, 5, 4), 65, "long", decay=(0.9, 1.0)),
        draw_case(rng, (1, 2, 5, 4), int(rng.integers(30, 60)), "long", decay=(0.1, 1.0)),
        draw_case(rng, (1, 2, 3, 4), 65, "gone", decay=1e-6),
    ]
    mixed = draw_case(rng, (2, 1, 3, 4), 24, "gone", decay=1.0)
    mixed["decay"][:, :, 5::6] = 1e-6
    silent = draw_case(rng, (1, 2, 3, 2), 4, "silent", decay=(0.1, 0.6))
    silent["q"][:, 0, 1], silent["k"][:, :, 2] = 0, 0
    longer = draw_case(rng, (1, 1, 3, 2), 6, "both", decay=(0.1, 0.6))
    return {"cases": [first, twice, *several[:4], longer, *several[4:], mixed, silent]}


# --- what is recorded -----------------------------------------------------------------------------


def tensors_of(case: Challenge) -> list[Tensor]:
    """Make the tensors of a case, not contiguous, of its type."""
    return [given(case[name], getattr(torch, case["dtype"])) for name in NAMES]


def record_pair(result: Any) -> Evidence:
    """Record outputs and state, or what came in their place."""
    is_pair = isinstance(result, tuple | list) and len(result) == 2
    pair = result if is_pair else (None, None)
    kind = "" if is_pair else in_words(result)
    return {"kind": kind, **{name: record(x) for name, x in zip(RESULTS, pair, strict=True)}}


PAIR = {"kind": str, **dict.fromkeys(RESULTS, RECORD)}


def probe_rule(name: str) -> Callable[[SimpleNamespace, Challenge], Evidence]:
    """Make the probe of a function of that name."""

    def probe(student: SimpleNamespace, challenge: Challenge) -> Evidence:
        """Call it on every case, and then use the memory of what was given again."""
        results = []
        for case in challenge["cases"]:
            tensors = tensors_of(case)
            result = getattr(student, name)(*tensors)
            for tensor in tensors:
                tensor.fill_(USED_AGAIN)
            results.append(record_pair(result))
        return {"results": results}

    return probe


# --- what is said ---------------------------------------------------------------------------------

QUESTIONS = {
    "empty": "Nothing was known before, and nothing fades. What does one token write, and under which "
    "key?",
    "known": "Its key is known: something was told under it before. What should be found there now?",
    "twice": "The last key is that of the first token. What should be found there now?",
    "faded": "Nothing is written here. What is left of the state, and what does the query read?",
    "part": "Nothing fades here, and only a part of the difference is written. Which part, of which "
    "difference?",
    "both": "In which order do fading, looking up and writing come, and whose beta is it, "
    "that of the token that writes or of the one that looks up?",
    "one": "Key and value are single numbers. What is a key of length 1, if it is one number?",
    "single": "It is a single token. What would delta_step give?",
    "closed": "Some gates are closed: these tokens write nothing. Do they fade, and do they read?",
    "heads": "One head is right, several are not. Whose state, whose gates?",
    "texts": "One text is right, several are not, or K and V differ. Which axis is which?",
    "type": "Are all of these numbers float64, and is even a very short vector scaled to length 1?",
    "wide": "Small states are right. By what are queries and keys scaled, and by what not?",
    "kept": "Nothing fades and nothing is written. Whose memory is the state that you return?",
    "long": "How much is left at token t of what token s wrote, and of the state before?",
    "gone": "Nearly nothing is left from one token to the next. Which of your numbers becomes 0 or "
    "infinite, and which ratio do you need?",
    "short": "These keys and queries are short. Which length have they when they are used?",
    "silent": "A key or a query of zeros stays zeros. By what do you divide?",
}
OF_CHUNKS = {
    "empty": "The state is empty, and nothing fades. What does the second token find of what the first "
    "wrote?",
    "both": "How much is left at token t of what token s wrote, and whose beta is it?",
}
"""In the place of some of these, where there are several tokens."""
READ = "The state is right. Which state does the query read, of which tokens, and how long is the query?"
SAID_BY_STAGE = ("faded", "type", "gone", "short", "silent")
"""Stages whose question holds for outputs, too."""
OVERWRITTEN = "The caller has used its tensors again. Is what you return memory of its own?"


def case_text(case: Challenge) -> str:
    """Write "B=1, H=2, K=3, V=2, T=4, decay 0.1 … 0.6, beta 0 … 1"."""
    B, H, K, V = case["S"].shape
    tokens = f", T={case['k'].shape[2]}" if case["k"].ndim == 4 else ""
    in_type = "" if case["dtype"] == "float32" else f", {case['dtype']}"
    gates = ", ".join(f"{name} {limits(case[name])}" for name in ("decay", "beta"))
    empty = "" if case["S"].any() else ", an empty state"
    return f"B={B}, H={H}, K={K}, V={V}{tokens}{in_type}{empty}, {gates}"


def limits(gate: np.ndarray) -> str:
    """Write between which numbers a gate lies."""
    low, high = f"{gate.min():.2g}", f"{gate.max():.2g}"
    return low if low == high else f"{low} … {high}"


def wrong_pair(case: Challenge, got: Evidence, truth: Truth, tolerance: float) -> str | None:
    """Say what is wrong about outputs and state of a case; None where nothing is."""
    if got["kind"]:
        return f"gave {got['kind']}; expected are two tensors, out and S. What do you return?"
    expected = dict(zip(RESULTS, truth(case), strict=True))
    for name in reversed(RESULTS):  # from a wrong state come wrong outputs
        numbers = got[name]["numbers"]
        if wrong := wrong_form(got[name], expected[name].shape, case["dtype"]):
            return f"{name} {wrong}"
        place = first_wrong(numbers, expected[name], tolerance)
        if place is not None:
            used = (numbers == USED_AGAIN).any()
            return (
                f"{name}[{', '.join(map(str, place))}] is {numbers[place]:.4g}; token by token it is "
                f"{expected[name][place]:.4g}. {OVERWRITTEN if used else ask(case, name)}"
            )
    return None


def ask(case: Challenge, name: str) -> str:
    """Choose the question about wrong numbers of a result, "out" or "state"."""
    stage = case["stage"]
    if name == "out" and stage not in SAID_BY_STAGE:
        return READ
    question = OF_CHUNKS.get(stage) if case["k"].ndim == 4 else None
    return f"{'The state is right. ' * (name == 'out')}{question or QUESTIONS[stage]}"


def rule_check(name: str, function: str, draw: Callable[[int], Challenge], praise: str) -> Check:
    """Make a check that compares a function's outputs and states with those of a loop over tokens."""

    def verdict(
        challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
    ) -> Verdict:
        for case, got in zip(challenge["cases"], evidence["results"], strict=True):
            if wrong := wrong_pair(case, got, truth, tolerance):
                return failed(f"{case_text(case)}. {function}: {wrong}")
        return passed(praise)

    right = Recorded("linear_state", name)
    of_it = {"evidence": one_each(results=PAIR), "truth": right, "tolerance": TOLERANCE}
    return Check(name, (function,), draw, probe_rule(function), verdict, **of_it)


one_step_is_the_rule = rule_check(
    "one_step_is_the_rule",
    "delta_step",
    draw_steps,
    "Each token fades the state, looks up its key, writes the difference, and reads.",
)
chunk_equals_steps = rule_check(
    "chunk_equals_steps",
    "delta_chunk",
    draw_chunks,
    "A chunk gives what its tokens give one by one, however long it is and however fast they fade.",
)


# --- how many operations --------------------------------------------------------------------------

LONG, MOST = 256, 512


class CountedOperations(OperationMode):
    """Count the operations of PyTorch inside a `with` block, views among them, and follow what is
    computed from the tensors that were given."""

    def __init__(self, given_tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.operations = 0
        self._alive = list(given_tensors.values())  # so that no new memory gets an old address
        self._from = {_memory(tensor): {name} for name, tensor in given_tensors.items()}

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        self.operations += 1
        sources = self.sources((args, kwargs))
        result = operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._alive.append(tensor)
                self._from[_memory(tensor)] = sources | self._from.get(_memory(tensor), set())
        return result

    def sources(self, values: Any) -> set[str]:
        """Name the given tensors of which operations made these."""
        tensors = [value for value in tree_leaves(values) if isinstance(value, Tensor)]
        return set().union(*(self._from.get(_memory(tensor), set()) for tensor in tensors))


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def draw_long(seed: int) -> Challenge:
    """Draw one chunk of 256 tokens."""
    rng = np.random.default_rng([seed, 2])
    return draw_case(rng, (1, 2, 8, 5), LONG, "long", decay=(0.8, 1.0))


def probe_long(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Count the operations of one call, and name what its outputs were computed from."""
    tensors = tensors_of(challenge)
    with CountedOperations(dict(zip(NAMES, tensors, strict=True))) as count:
        result = student.delta_chunk(*tensors)
    is_pair = isinstance(result, tuple | list) and len(result) == 2
    sources = count.sources(result[0]) if is_pair else set()
    read = [name for name in NAMES if name in sources]
    # In tens: the count itself depends on the version of PyTorch.
    return {"tens": count.operations // 10, "read": read, **record_pair(result)}


def long_form(challenge: Challenge) -> Evidence:
    return {"tens": int, "read": list, **PAIR}


@check("delta_chunk", draw=draw_long, probe=probe_long, evidence=long_form)
def a_chunk_is_no_loop(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Look at the operations, and then whether the numbers are right: few are easy without them."""
    case = case_text(challenge)
    missing = [name for name in NAMES if name not in evidence["read"]]
    if missing and not evidence["kind"]:
        return failed(
            f"{case}: no operations of PyTorch lead from {', '.join(missing)} to out, and others cannot "
            f"be counted. Which of your lines leave PyTorch, or who reads {missing[0]}?"
        )
    if (count := 10 * evidence["tens"]) >= MOST:
        return failed(
            f"{case}: delta_chunk takes {count:,} operations or a few more; fewer than {MOST} are "
            f"asked for. Which of your lines runs once for each token, or for each few of them?"
        )
    if wrong := wrong_pair(challenge, evidence, truth, TOLERANCE):
        return failed(
            f"{case}: so few operations are enough, but {wrong} Does chunk_equals_steps pass?"
        )
    return passed(f"{LONG} tokens take about {count or 10:,} operations.")
