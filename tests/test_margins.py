"""Why the tolerance is what it is: right answers stay far below it, wrong ones go far above.

Every check that compares real numbers is asked again at other tolerances: how small may it get before
a right answer fails, and how large before a wrong one passes? The end of the test run prints both.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from autograder.lessons import find
from autograder.lessons.exhibit import Variant, assemble
from course.checks.check import functions_of
from course.checks.drawing import TOLERANCE

COMPARING = [
    "mini_gpt.attention_sees_no_future",
    "mini_gpt.attention_weighs_by_softmax",
    "mini_gpt.query_heads_share_kv_heads",
    "mini_gpt.layer_joins_its_parts",
    "mini_gpt.layer_obeys_positions",
    "naive_decode.every_new_token_is_the_likeliest",
    "kv_cache.layer_equals_uncached",
    "kv_cache.every_split_equals_uncached",
    "kv_cache.cache_is_the_only_memory",
    "kv_cache.two_conversations_stay_apart",
    "prefill_and_decode.every_chunk_size_gives_the_same_logits",
    "prefill_and_decode.each_row_equals_itself_alone",
    "gqa.grouped_equals_repeated",
    "gqa.masks_reach_every_head",
    "gqa.nothing_is_expanded",
    "gqa.pooled_heads_are_means",
]
MANY = "kv_cache.every_split_equals_uncached"
"""On this one all later lessons build: it is asked with more seeds."""
DOWN = [TOLERANCE / step for step in (1, 2, 3, 5, 10, 30, 100, 1000)]
UP = [TOLERANCE * 10**power for power in range(6)]
Score = Callable[[float], float]


def seeds(name: str) -> range:
    return range(20 if name == MANY else 5)


@pytest.fixture
def scored(monkeypatch) -> Callable[[str, Mapping[str, Any], int], Score]:
    """The score of an answer at a check, as a function of the tolerance."""

    def scored(name: str, answer: Mapping[str, Any], seed: int) -> Score:
        lesson, check = name.split(".")[0], find(name)
        challenge = check.challenge(seed)
        functions = functions_of(assemble(lesson, answer), check.needs)
        evidence = check.probe(functions, challenge)

        def score(tolerance: float) -> float:
            for module in [module for key, module in sys.modules.items() if ".checks" in key]:
                if hasattr(module, "TOLERANCE"):
                    monkeypatch.setattr(module, "TOLERANCE", tolerance)
            try:
                return check.verdict(challenge, evidence).score
            finally:
                monkeypatch.undo()

        return score

    return scored


@pytest.mark.parametrize("name", COMPARING)
def test_right_answers_pass_at_a_quarter_of_the_tolerance(name, scored, record_property):
    museum = importlib.import_module(f"autograder.lessons.{name.split(chr(46))[0]}.museum")
    least = {}
    for variant in [Variant("the reference", {}), *museum.VARIANTS]:
        for seed in seeds(name):
            score = scored(name, variant.answer, seed)
            lost = next((rung for rung in DOWN if score(rung) < 1), 0.0)
            least[variant.name] = max(lost, least.get(variant.name, 0.0))
    roughest = max(least, key=least.get)
    record_property(
        "margin", f"{name}: right answers differ by less than {said(DOWN, least[roughest], -1)}"
    )
    assert least[roughest] < TOLERANCE / 4, roughest


@pytest.mark.parametrize("name", COMPARING)
def test_wrong_answers_fail_at_a_hundred_tolerances(name, scored, record_property):
    museum = importlib.import_module(f"autograder.lessons.{name.split(chr(46))[0]}.museum")
    most = {}
    for bug in museum.BUGS:
        if bug.check != name:
            continue
        for seed in seeds(name):
            try:
                score = scored(name, bug.answer, seed)
            except Exception:  # it fails by stopping, whatever the tolerance
                continue
            passed = next((rung for rung in UP if score(rung) == 1), float("inf"))
            most[bug.name] = min(passed, most.get(bug.name, passed))
    mildest = min(most, key=most.get)
    record_property("margin", f"{name}: wrong answers fail below {most[mildest]:.0e} ({mildest})")
    assert most[mildest] > 100 * TOLERANCE, mildest


def said(rungs: list[float], lost: float, step: int) -> str:
    """The rung before the one at which it was lost."""
    return f"{rungs[rungs.index(lost) + step] if lost else rungs[-1]:.0e}"
