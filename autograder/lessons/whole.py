"""Evidence is a claim: a verdict that goes through what came back must know that all came back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from course.checks.check import Challenge, Check, Evidence, Verdict, failed


def whole(check: Check, is_whole: Callable[[Challenge, Evidence], bool]) -> Check:
    """The check, with a verdict that fails first where evidence has not all its parts. A probe that
    nobody tampered with always gives all of them."""

    def verdict(challenge: Challenge, evidence: Evidence) -> Verdict:
        if not is_whole(challenge, evidence):
            return failed("A part of what was asked for did not come back.")
        return check.decide(challenge, evidence)

    return replace(check, verdict=verdict)
