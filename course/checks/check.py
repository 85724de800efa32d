"""A check is three pure pieces: draw a challenge, record what the student's functions do, judge.

`challenge(seed)` draws the inputs, plain arrays and numbers. `probe(student, challenge)` runs the
student's functions and writes down what came out; it holds no expected value and decides nothing.
`verdict(challenge, evidence)` compares and says, in one message, which property broke.

The lessons call a check with the functions it needs and read PASS, or an AssertionError that
teaches. The hidden checks are made of the same three pieces.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

Challenge = dict[str, Any]
Evidence = dict[str, Any]


class Verdict(NamedTuple):
    """What a check found: the part of its points that was earned, 0 … 1, and one message."""

    score: float
    message: str


def passed(message: str) -> Verdict:
    """Full points."""
    return Verdict(1.0, message)


def failed(message: str, score: float = 0.0) -> Verdict:
    """No points, or a part of them."""
    return Verdict(score, message)


class CheckFailed(AssertionError):
    """An AssertionError that IPython shows as its message alone: the traceback of a
    check holds no line that the student wrote."""

    def _render_traceback_(self) -> list[str]:
        return [f"FAIL  {self}"]


def functions_of(names: Mapping[str, Any], needs: Iterable[str]) -> SimpleNamespace:
    """The student as a probe sees it: the needed functions as attributes."""
    return SimpleNamespace(**{name: names[name] for name in needs})


def _where(error: Exception) -> str:
    """The line of the notebook at which an exception came up, as far as it can be told."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.line and "ipykernel" in frame.filename:
            return f" in {frame.name}, at `{frame.line}`,"
    return ""


@dataclass(frozen=True)
class Check:
    """One property of the student's work.

    Attributes:
        name: what is asked, in snake case, as in the lesson's graded cell.
        needs: names of the student's functions that the probe calls, in the order in which a
            lesson passes them.
        challenge, probe, verdict: the three pieces, see the module's docstring.
    """

    name: str
    needs: tuple[str, ...]
    challenge: Callable[[int], Challenge]
    probe: Callable[[SimpleNamespace, Challenge], Evidence]
    verdict: Callable[[Challenge, Evidence], Verdict]

    def judge(self, functions: Mapping[str, Any], seed: int) -> Verdict:
        """All three pieces in this process. An exception in the student's code is a failed check;
        NotImplementedError passes through, for it says where the student stopped."""
        missing = [name for name in self.needs if functions.get(name) is None]
        if missing:
            return failed(f"There is no {' and no '.join(missing)} in this notebook.")
        challenge = self.challenge(seed)
        try:
            evidence = self.probe(functions_of(functions, self.needs), challenge)
        except NotImplementedError:
            raise
        except Exception as error:
            return failed(f"Your code stopped{_where(error)} with {type(error).__name__}: {error}")
        return self.verdict(challenge, evidence)

    def __call__(self, *functions: Any, seed: int = 0) -> None:
        """Run the check in a notebook: print PASS and what was seen, or raise AssertionError."""
        if len(functions) != len(self.needs):
            raise TypeError(f"{self.name} takes {', '.join(self.needs)}")
        verdict = self.judge(dict(zip(self.needs, functions, strict=True)), seed)
        if verdict.score < 1:
            raise CheckFailed(verdict.message)
        print(f"PASS  {verdict.message}")
