"""Check what is chosen: the newest, the best of the others, each once and in order."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recorder import given
from course.checks.recording import RECORD, one_each, record, wrong_form

SIZES = ((5, 2, 0), (5, 2, 1), (5, 3, 2), (5, 2, 2), (4, 4, 1), (3, 5, 1), (2, 6, 4), (1, 1, 0))
"""Pages, how many are chosen, and how many of these are the newest."""


def draw_scores(seed: int) -> Challenge:
    """Draw scores in which the newest are the worst and in which they are the best; of other sizes, with
    ties, some of -inf, all but one of -inf, all negative."""
    rng = np.random.default_rng(seed)
    cases = [draw_case(rng, (1, 1), *SIZES[0])]
    for P, n, newest in SIZES[1:]:
        for sign in (-1, 1):
            case = draw_case(rng, (2, 3), P, n, newest)
            case["scores"][..., P - newest :] = sign * (9 + rng.random((2, 3, min(newest, P))))
            cases.append(case)
    P = int(rng.integers(20, 30))
    n = int(rng.integers(8, 15))
    cases.append(draw_case(rng, (2, 2), P, n, int(rng.integers(1, 4))))
    cases.append({**draw_case(rng, (1, 2), 9, 4, 1), "dtype": "float64"})
    low = draw_case(rng, (2, 2), 8, 3, 1)
    cases.append({**low, "scores": low["scores"] - 50})
    hidden = draw_case(rng, (1, 2), 8, 4, 1)
    hidden["scores"][..., [0, 3, 5, 6]] = -np.inf
    hidden["scores"][:, 0, -1] = -np.inf  # the newest one, too
    large = draw_case(rng, (1, 2), 8, 4, 2)
    large["scores"] = np.abs(large["scores"]) * np.float32(1e30)
    large["scores"][..., -2:] = -1
    tied = draw_case(rng, (2, 2), 9, 4, 1)
    tied["scores"][:] = rng.integers(0, 3, tied["scores"].shape)
    tied["scores"][:, 0] = [1, 1, 1, 1, 1, 1, 0, 2, 0]  # a larger one behind many that are equal
    equal = draw_case(rng, (1, 2), 7, 3, 0)
    equal["scores"][:] = 1
    few = draw_case(rng, (2, 2), 5, 4, 1)
    few["scores"][..., :-1] = -np.inf  # of which three are needed beside the newest one
    return {"cases": [*cases, hidden, large, tied, equal, few]}


def draw_case(
    rng: np.random.Generator, rows: tuple[int, int], P: int, n: int, newest: int
) -> Challenge:
    """Draw scores (B, G, P), each row in another order."""
    scores = rng.normal(size=(*rows, P)).astype(np.float32)
    return {"scores": scores, "n": n, "newest": newest, "dtype": "float32"}


def probe_choice(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Choose in each case."""
    chosen = []
    for case in challenge["cases"]:
        scores = given(case["scores"], getattr(torch, case["dtype"]))
        chosen.append(record(student.choose(scores, case["n"], case["newest"])))
    return {"chosen": chosen}


@check("choose", draw=draw_scores, probe=probe_choice, evidence=one_each(chosen=RECORD))
def newest_and_best(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Look at what was chosen of each row: no order of equal scores is asked for."""
    for case, got in zip(challenge["cases"], evidence["chosen"], strict=True):
        scores, n, newest = case["scores"], case["n"], case["newest"]
        where = f"choose of {scores.shape} scores, n = {n}, newest = {newest}:"
        expected = (*scores.shape[:2], min(n, scores.shape[2]))
        if wrong := wrong_form(got, expected, "int64"):
            return failed(f"{where} {wrong.replace('for int64 inputs', 'and not int64')}")
        for row in np.ndindex(scores.shape[:2]):
            if wrong := wrong_choice(scores[row], got["numbers"][row], newest):
                return failed(f"{where} for batch row {row[0]}, KV head {row[1]} it {wrong}")
    return passed("The newest, and the best of the others: each once, in order, for each KV head.")


def wrong_choice(scores: np.ndarray, chosen: np.ndarray, newest: int) -> str | None:
    """Say what is wrong about what was chosen of one row of scores (P,); None where nothing is."""
    P, listed = len(scores), chosen.tolist()
    if min(listed) < 0 or max(listed) >= P:
        return f"chose {listed}, and there are 0 … {P - 1}. Where do your numbers begin and end?"
    if len(set(listed)) < len(listed):
        return f"chose {listed}, one of them twice. For which places may the newest not compete?"
    if listed != sorted(listed):
        return f"chose {listed}, which does not rise. In which order do they come, the newest too?"
    if missing := [page for page in range(max(0, P - newest), P) if page not in listed]:
        return (
            f"chose {listed}, and number {missing[0]} of the newest is missing. Who is the newest?"
        )
    older = [page for page in listed if page < P - newest]
    left = [page for page in range(P - newest) if page not in listed]
    if older and left and max(scores[left]) > min(scores[older]):
        better = max(left, key=lambda page: scores[page])
        worst = min(older, key=lambda page: scores[page])
        question = "Whose scores decide?"
        if newest == 0:
            question = (
                "Whose scores decide, and what is your slice of the newest where there are none?"
            )
        return (
            f"chose {listed}: number {worst} has the score {scores[worst]:.4g}, and {better}, left out, "
            f"{scores[better]:.4g}. {question}"
        )
    return None
