"""Let a known mistake cost MOST points, however many questions notice it.

A class with one wrong line may lose all questions about it. Where the judge recognises the mistake, it
knows that the rest is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from autograder.result import Answer

MOST = 3.0
"""The most points that a known mistake costs."""
CREDITED = f"Credited: the same mistake has already cost {MOST:g} points above."


def charge_once(
    answers: Sequence[Answer],
    may_be: Mapping[str, Collection[str]],
    cheap: Collection[str] = (),
) -> list[Answer]:
    """Give back what a mistake has cost beyond MOST points, from the last question on.

    Args:
        answers: in the order of the lesson.
        may_be: of lost questions, by check, the mistakes that each explain the loss.
        cheap: the mistakes that leave hardly anything right: of what one of them explains, nothing is
            given back.

    Returns:
        The answers, in the same order.
    """
    charged = {answer.check: answer for answer in answers}
    left = {check: bugs for check, bugs in may_be.items() if bugs}
    while left:
        costs: Counter[str] = Counter()
        for check, bugs in left.items():
            costs.update(dict.fromkeys(bugs, _lost(charged[check])))
        bug = max(sorted(costs), key=lambda bug: (costs[bug], bug in cheap))
        excess = 0.0 if bug in cheap else max(0.0, costs[bug] - MOST)
        for check in reversed([check for check in charged if bug in left.get(check, ())]):
            back = min(excess, _lost(charged[check]))
            charged[check] = _with_points_back(charged[check], back)
            excess -= back
            del left[check]
    return list(charged.values())


def _lost(answer: Answer) -> float:
    return answer.max_points - answer.points


def _with_points_back(answer: Answer, points: float) -> Answer:
    if not points:
        return answer
    if points == _lost(answer):
        return replace(answer, score=1.0, message=CREDITED, credited=True)
    score = (answer.points + points) / answer.max_points
    words = f"One mistake costs {MOST:g} points at most, {points:g} of these are credited."
    return replace(answer, score=score, message=f"{answer.message} {words}")
