"""Make a check of plain functions: of the calls that are drawn, and of what to ask about a wrong result.

    def draw_products(rng):
        for k in (3, 1, int(rng.integers(5_000, 100_000))):
            yield call("matmul_flops", 1, k, 1)
        yield call("matmul_flops", 1, -1, 1, refuses="ValueError")

    @check_calls("matmul_flops", draw=draw_products, praise="Every operation is counted.")
    def flops_of_one_dot_product(case, result, expected, place):
        return f"gave {result:,}; counted one by one it is {expected:,}.", (
            (result == expected / 2, "How many operations is each multiply-add?"),
            (True, "How many products are there, and how often is something added?"),
        )

The student's function is called on every case. The result is compared with the truth, called with the
same arguments: with the answers that are recorded beside the visible checks or, in a hidden check, with
the oracle (`.hidden(truth=…)`). What is told of the first wrong case is its kind, type or shape, in the
same words for all checks; or else the explanation's sentence, and the first of its questions whose
condition holds. `place` is where the first wrong number of a tensor or list stands, () for one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.comparing import outcome
from course.checks.recorded import Recorded
from course.checks.recorder import given
from course.checks.recording import (
    RESULT,
    Place,
    ShapeQuestion,
    first_wrong,
    one_each,
    record_result,
    wrong_kind,
)

Case = dict[str, Any]
Words = tuple[str, Iterable[tuple[object, str]]]
"""A sentence, and pairs (condition, question); the first question whose condition holds is put."""
Explain = Callable[[Case, Any, Any, Place], Words]


def call(function: str, *arguments: Any, refuses: str = "", **about: Any) -> Case:
    """Make a case: one call of a student's function.

    Args:
        arguments: plain data; an array is given as a tensor.
        refuses: the name of the exception that the call must raise; then `question` may be in `about`.
        about: further plain data, for the explanation. `dtype` is the type of all real tensors of the
            call, and of its result.
    """
    return {"function": function, "arguments": list(arguments), "refuses": refuses, **about}


def drawn(draw: Callable[[np.random.Generator], Iterable[Case]]) -> Callable[[int], Challenge]:
    """Make a challenge of the calls that `draw` draws."""
    return lambda seed: {"cases": list(draw(np.random.default_rng(seed)))}


def call_text(case: Case) -> str:
    """Write a call as a student would, "matmul_flops(2, 3, 4)"; a long array by type and shape."""
    texts = []
    for argument in case["arguments"]:
        if isinstance(argument, np.ndarray):
            is_long = argument.size > 4
            argument = f"{argument.dtype} {argument.shape}" if is_long else argument.tolist()
        texts.append(str(argument))
    return f"{case['function']}({', '.join(texts)})"


def run_call(function: Callable[..., Any], case: Case) -> Any:
    """Call a function on the arguments of a case, the arrays as tensors."""
    arguments, real = deepcopy(case["arguments"]), getattr(torch, case.get("dtype", ""), None)
    for number, array in enumerate(arguments):
        if isinstance(array, np.ndarray):
            arguments[number] = given(array, real if array.dtype.kind == "f" else None)
    return function(*arguments)


def probe_calls(
    student: SimpleNamespace,
    challenge: Challenge,
    run: Callable[[Callable[..., Any], Case], Any] = run_call,
) -> Evidence:
    """Record what each call gives; of one that should be refused, "returned" or the exception. The first
    is called again at last, for each call owns its result."""

    def run_case(case: Case) -> Evidence:
        function = getattr(student, case["function"])
        if case["refuses"]:
            return {"type": outcome(lambda: run(function, case)), "value": None}
        return record_result(run(function, case))

    results = [run_case(case) for case in challenge["cases"]]
    run_case(challenge["cases"][0])
    return {"results": results}


one_result_each = one_each(results=RESULT)
"""The form of what `probe_calls` records."""


def check_calls(
    *needs: str,
    draw: Callable[[np.random.Generator], Iterable[Case]],
    praise: str,
    run: Callable[[Callable[..., Any], Case], Any] = run_call,
    describe: Callable[[Case], str] = call_text,
    shape_question: ShapeQuestion = "Which axis is which, and how long should each be?",
    truth: Callable[..., Any] | None = None,
    tolerance: float | None = None,
) -> Callable[[Explain], Check]:
    """Make a check of the explanation that this decorates; the check gets the explanation's name.

    Args:
        needs: the functions that are called. Of several, the truth is also told the name, first.
        draw: draws the cases, simplest first, so that the first wrong one is the simplest.
        praise: the message of a pass.
        run: calls the function, for arguments that are no plain data, or results that are none.
        describe: begins the message of a failure: which call it is.
        shape_question: ends the message of a wrong shape; chosen by that and the right one, or a text.
        truth: by default the answers that are recorded beside the lesson's checks.
        tolerance: see `first_wrong`; by default 0.
    """

    def made(explain: Explain) -> Check:
        def verdict(
            challenge: Challenge, evidence: Evidence, truth: Any, tolerance: float = 0.0
        ) -> Verdict:
            for case, got in zip(challenge["cases"], evidence["results"], strict=True):
                name = [case["function"]] if len(needs) > 1 else []
                expected = case["refuses"] or truth(*name, *case["arguments"])
                if problem := wrong(case, got, expected, tolerance, explain, shape_question):
                    return failed(f"{describe(case)} {problem}".rstrip())
            return passed(praise)

        name, recorded = explain.__name__, truth is None
        right = Recorded(explain.__module__.split(".")[2], name) if recorded else truth
        probe = partial(probe_calls, run=run)
        compare = {"evidence": one_result_each, "truth": right, "tolerance": tolerance}
        return Check(name, needs, drawn(draw), probe, verdict, **compare)

    return made


def wrong(
    case: Case,
    got: Evidence,
    expected: Any,
    tolerance: float,
    explain: Explain,
    shape_question: ShapeQuestion,
) -> str:
    """Tell what is wrong about a result, and ask about it; "" where nothing is."""
    value = got["value"]
    if case["refuses"]:
        if got["type"] == expected:
            return ""
        return f"{got['type']}; expected is {expected}. {case.get('question', '')}"
    if problem := wrong_kind(got, expected, case.get("dtype"), shape_question):
        return problem
    if (place := first_wrong(value, expected, tolerance)) is None:
        return ""
    sentence, questions = explain(case, value, expected, place)
    return f"{sentence} {next((question for holds, question in questions if holds), '')}"
