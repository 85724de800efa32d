"""Check a norm: its numbers, and house rules that a function on tensors can break."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.calls import Case, Words, call, check_calls
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recorder import given
from course.checks.recording import RECORD, Place, first_wrong, record, wrong_form

# --- numbers -------------------------------------------------------------------------------------


def draw_matrices(rng: np.random.Generator, largest: int = 6) -> Iterator[Case]:
    """Draw matrices: one row; rows of different sizes; a row of zeros; rows of which eps is a large
    part, and as many rows as largest; rows of one number."""
    D = int(rng.integers(3, largest))
    sizes = np.array([[1.0], [10.0], [0.1]])
    rows = rng.normal(size=(3, D)) * sizes
    for x, *eps in (
        ([[3.0, 4.0]],),
        (rows,),
        (rows * [[1], [0], [1]],),
        (rows[:2], 0.5),
        (rows * 1e-2,),
        (rng.normal(size=(largest, largest + 1)), 1e-4),
        ([[3.0], [-0.5]],),
    ):
        yield call("rms_norm", np.array(x, np.float32), *eps)


def run_contiguous(function: Any, case: Case) -> Any:
    """Call a norm on a matrix that lies in memory row by row."""
    x, *eps = case["arguments"]
    return function(torch.tensor(x), *eps)


@check_calls(
    "rms_norm",
    draw=draw_matrices,
    run=run_contiguous,
    tolerance=1e-4,
    praise="Every row is divided by its own root mean square.",
)
def rows_come_to_one_size(
    case: Case, result: np.ndarray, expected: np.ndarray, place: Place
) -> Words:
    x, *given_eps = case["arguments"]
    eps, (row, column) = given_eps[0] if given_eps else 1e-6, place
    number, squares = float(x[place]), x.astype(np.float64) ** 2
    mean, got = squares[row].mean(), float(result[place])

    def is_divided_by(divisor: float) -> bool:
        return bool(np.isclose(got * divisor, number, rtol=1e-3, atol=0))

    with np.errstate(all="ignore"):
        questions = (
            (not squares[row].any(), "That row is all zeros. What do you divide by?"),
            (is_divided_by(mean + eps), "Of the mean square, what do you divide by?"),
            (
                is_divided_by(np.sqrt(squares[row].sum() + eps)),
                "Is that a sum, or a mean, and of how many?",
            ),
            (is_divided_by(np.sqrt(mean)), "How large is eps here, and where does it come in?"),
            (
                is_divided_by(np.sqrt(mean) + eps),
                "Is eps added before the root is taken, or afterwards?",
            ),
            (
                is_divided_by(np.sqrt(squares.mean() + eps)),
                "The numbers of which rows are in that mean?",
            ),
            (
                is_divided_by(np.sqrt(squares[:, column].mean() + eps)),
                "The mean runs along which axis?",
            ),
            (True, "What is squared, what is averaged, and what divides the row?"),
        )
    return (
        f"gave {got:.4g} in row {row}, column {column}, and not {expected[place]:.4g}. The number "
        f"there is {number:.4g}, the mean square of its row {mean:.4g}.",
        questions,
    )


# --- whether it is a norm at all -------------------------------------------------------------------

NORMS = dict.fromkeys(("once", "threefold", "changed"), RECORD)
"""The form of what `_norms` returns."""


def _norms(student: SimpleNamespace, matrix: np.ndarray) -> Evidence:
    """Norm a matrix, one three times as large, and one of which the first number is another."""
    x = torch.tensor(matrix)
    changed = x.clone()
    changed[0, 0] = 10
    tried = {"once": x, "threefold": 3 * x, "changed": changed}
    return {name: record(student.rms_norm(each)) for name, each in tried.items()}


def wrong_norm(x: np.ndarray, evidence: Evidence) -> str | None:
    """Say that a function is no norm of the rows of x, (rows, D): each result rests on one number of x
    alone, or three times x gives three times the result. Whether it is the right norm, the check
    `rows_come_to_one_size` asks; without this, `x.clone()` would keep a dtype and a shape."""
    for name in NORMS:
        if wrong := wrong_form(evidence[name], x.shape, "float32"):
            return f"rms_norm {wrong}"
    once, threefold, changed = (evidence[name]["numbers"] for name in NORMS)
    ask = "Does rows_come_to_one_size pass?"
    if not np.isfinite([once, threefold, changed]).all():
        return f"rms_norm gave a number that is not finite. {ask}"
    if (changed == once).ravel()[1:].all():
        return f"One number of x was changed, and of its row only its own result changed. {ask}"
    growth = np.median(threefold / once)
    if np.isclose(growth, 3, rtol=0.05):
        return f"rms_norm(3 * x) is 3 times rms_norm(x): larger rows come out larger. {ask}"
    if not np.allclose(threefold, growth * once, rtol=1e-2):
        return f"rms_norm(3 * x) is not rms_norm(x) times one number. {ask}"
    return None


# --- dtype and device ----------------------------------------------------------------------------

TOLERANCES = {"float64": 1e-3, "bfloat16": 0.05, "float16": 0.01}
"""Of numbers of about 1, beside those that float32 gives."""


def draw_types(seed: int) -> Challenge:
    """Draw a matrix."""
    return {"x": np.random.default_rng([seed, 1]).normal(size=(3, 6)).astype(np.float32)}


def probe_types(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Norm a matrix of each dtype. Where results lie is a house rule, which every call is held to."""
    x = torch.tensor(challenge["x"])
    types = {dtype: x.to(getattr(torch, dtype)) for dtype in TOLERANCES}
    return {
        **_norms(student, challenge["x"]),
        "types": {dtype: record(student.rms_norm(of_type)) for dtype, of_type in types.items()},
    }


@check(
    "rms_norm",
    draw=draw_types,
    probe=probe_types,
    evidence=lambda _: {
        **NORMS,
        "types": dict.fromkeys(TOLERANCES, RECORD),
    },
)
def dtype_and_device_are_kept(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Compare with the student's own float32 numbers: whether these are right is asked before."""
    if wrong := wrong_norm(challenge["x"], evidence):
        return failed(wrong)
    for dtype, got in evidence["types"].items():
        if wrong := wrong_form(got, challenge["x"].shape, dtype):
            return failed(f"rms_norm {wrong}")
        right = evidence["once"]["numbers"]
        if place := first_wrong(got["numbers"], right, TOLERANCES[dtype]):
            return failed(
                f"rms_norm gave {got['numbers'][place]:.4g} at {place} in {dtype}, and in float32 "
                f"{right[place]:.4g}. Which of your lines is about one type alone?"
            )
    return passed("What comes back has the dtype and lies on the device of what went in.")


# --- shapes --------------------------------------------------------------------------------------


def draw_tensors(seed: int, largest: int = 5) -> Challenge:
    """Draw a matrix, and tensors with more axes and with fewer, with axes of 1 and of 0."""
    rng = np.random.default_rng([seed, 2])
    B, T, D = rng.choice(np.arange(2, largest + 1), 3, replace=False).tolist()
    shapes = [(T, D), (B, T, D), (D,), (1, D), (B, 1, D), (T, 1), (0, D), (B, 0, D), (2, B, T, D)]
    return {
        "x": rng.normal(size=(T, D)).astype(np.float32),
        "cases": [rng.normal(size=shape).astype(np.float32) for shape in shapes],
    }


def probe_shapes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Norm each tensor, which is not contiguous, and its rows as a contiguous matrix."""
    rows = [torch.tensor(x.reshape(-1, x.shape[-1])) for x in challenge["cases"]]
    return {
        **_norms(student, challenge["x"]),
        "got": [record(student.rms_norm(given(x))) for x in challenge["cases"]],
        "rows": [record(student.rms_norm(matrix)) for matrix in rows],
    }


@check(
    "rms_norm",
    draw=draw_tensors,
    probe=probe_shapes,
    evidence=lambda challenge: {
        **NORMS,
        "got": [RECORD] * len(challenge["cases"]),
        "rows": [RECORD] * len(challenge["cases"]),
    },
)
def any_shape_and_layout_will_do(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Compare with the student's own answer for the same rows as a matrix."""
    if wrong := wrong_norm(challenge["x"], evidence):
        return failed(wrong)
    results = zip(challenge["cases"], evidence["got"], evidence["rows"], strict=True)
    for x, got, rows in results:
        case = f"x is a tensor of shape {x.shape}"
        if wrong := wrong_form(got, x.shape, "float32"):
            return failed(f"{case}: rms_norm {wrong}")
        matrix = (x.size // x.shape[-1], x.shape[-1])
        if wrong := wrong_form(rows, matrix, "float32"):
            return failed(f"x is a matrix of shape {matrix}: rms_norm {wrong}")
        right = rows["numbers"].reshape(x.shape)
        if place := first_wrong(got["numbers"], right, 1e-4):
            question = "Which axis is a row's own, whatever stands before it?"
            if x.ndim == 2:
                question = "It lies in memory as a transpose does. Where do you take rows to lie?"
            return failed(
                f"{case}: rms_norm gave {got['numbers'][place]:.4g} at {place}, and for the same row "
                f"in a contiguous matrix {right[place]:.4g}. {question}"
            )
    return passed("Rows may lie in any shape, and anywhere in memory.")
