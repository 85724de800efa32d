"""A check is three pure pieces: draw a challenge, record what the student's functions do, judge.

`challenge(seed)` draws the inputs, plain arrays and numbers. `probe(student, challenge)` runs the
student's functions and writes down what came out; it holds no expected value and decides nothing.
`verdict(challenge, evidence)` compares and says, in one message, which property broke.

The lessons call a check with the functions it needs and read PASS, or an AssertionError that
teaches. The hidden checks are made of the same three pieces.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from course.checks.recorded import Recorded
from course.checks.rules import Broken, judge_rules
from course.checks.tolerance import TOLERANCE
from course.files.progress_notes import remember_pass

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


def observe(
    probe: Callable[[SimpleNamespace, Challenge], Evidence],
    names: Mapping[str, Any],
    needs: Iterable[str],
    challenge: Challenge,
) -> tuple[Evidence, Broken]:
    """Run a probe on a student's functions; return the evidence, and which house rules were broken.

    The probe sees the needed functions as attributes of one object, and every call is recorded.
    """
    from course.checks.recorder import Recorder  # loads torch, and who only judges needs none

    recorder = Recorder()
    student = SimpleNamespace(**{name: recorder.watch(name, names[name]) for name in needs})
    evidence = probe(student, challenge)
    return evidence, recorder.broken()


def _stopped(error: Exception) -> str:
    from course.checks.stopped import where_it_stopped  # loads torch, which no verdict needs

    return stopped_with(type(error).__name__, str(error), where_it_stopped(error))


def stopped_with(kind: str, words: str, where: str = "") -> str:
    """Say with which error a student's code stopped, and where, if that is known.

    An error that the student's own line raises is one that this case does not call for: ask about it.
    """
    said = f"Your code stopped{f' {where},' if where else ''} with {kind}: {words}"
    if "at `raise" not in where:
        return said
    return f"{said.rstrip('.: ')}. Does the lesson ask you to refuse this case, and with {kind}?"


def complete(evidence: Any, form: Any) -> bool:
    """Whether evidence has the form that its check declares; a student's process may send anything.

    Args:
        form: a type or a tuple of types, of which the evidence is an instance; a dict of forms, with
            exactly these keys; a list of forms, as many as there are items; or `Each(form)`, a list of
            any length. `Any` is what the verdict itself looks at.
    """
    if form is Any:
        return True
    if isinstance(form, Each):
        return isinstance(evidence, list | tuple) and all(complete(e, form.item) for e in evidence)
    if isinstance(form, dict):
        return (
            isinstance(evidence, dict)
            and evidence.keys() == form.keys()
            and all(complete(evidence[name], form[name]) for name in form)
        )
    if isinstance(form, list):
        return (
            isinstance(evidence, list | tuple)
            and len(evidence) == len(form)
            and all(map(complete, evidence, form))
        )
    return isinstance(evidence, form)


class Each(NamedTuple):
    """In the form of evidence: a list of any length, of items of one form."""

    item: Any


@dataclass(frozen=True)
class Check:
    """One property of the student's work.

    Attributes:
        name: what is asked, in snake case, as in the lesson's graded cell.
        needs: names of the student's functions that the probe calls, in the order in which a
            lesson passes them.
        challenge, probe, verdict: the three pieces, see the module's docstring. A verdict is called with
            (challenge, evidence), and with `truth` and `tolerance` by name where the check has them.
        evidence: the form of complete evidence for a challenge, see `complete`; evidence of another
            form fails before the verdict sees it.
        truth: what the verdict compares with: mostly a function of a challenge.
        tolerance: largest difference of two numbers that count as equal.
    """

    name: str
    needs: tuple[str, ...]
    challenge: Callable[[int], Challenge]
    probe: Callable[[SimpleNamespace, Challenge], Evidence]
    verdict: Callable[..., Verdict]
    evidence: Callable[[Challenge], Any] = field(default=lambda challenge: Any, kw_only=True)
    truth: Any = field(default=None, kw_only=True)
    tolerance: float | None = field(default=None, kw_only=True)

    def hidden(self, **other: Any) -> Check:
        """The hidden check of the same name: the same pieces, but for those that are given.

        Args:
            other: any of challenge, probe, evidence, verdict, truth, tolerance.
        """
        return replace(self, **other)

    def decide(self, challenge: Challenge, evidence: Evidence, broken: object = ()) -> Verdict:
        """The verdict on evidence, if it is complete; what is right must also keep the house rules.

        Args:
            broken: the rules that were broken on the way, see `observe`.
        """
        verdict = self._decide(challenge, evidence)
        if verdict.score == 1 and (wrong := judge_rules(broken)):
            return failed(wrong)
        return verdict

    def _decide(self, challenge: Challenge, evidence: Evidence) -> Verdict:
        if not complete(evidence, self.evidence(challenge)):
            return failed("A part of what was asked for did not come back.")
        given = {"truth": self.truth, "tolerance": self.tolerance}
        return self.verdict(
            challenge, evidence, **{name: g for name, g in given.items() if g is not None}
        )

    def judge(self, functions: Mapping[str, Any], seed: int) -> Verdict:
        """All three pieces in this process. An exception in the student's code is a failed check;
        NotImplementedError passes through, for it says where the student stopped."""
        return self.attempt(functions, self.challenge(seed))[0]

    def attempt(
        self, functions: Mapping[str, Any], challenge: Challenge
    ) -> tuple[Verdict, Evidence | None]:
        """Probe functions with a challenge and judge; the evidence is None where there is none."""
        missing = [name for name in self.needs if functions.get(name) is None]
        if missing:
            return failed(f"There is no {' and no '.join(missing)} in this notebook."), None
        try:
            evidence, broken = observe(self.probe, functions, self.needs, challenge)
        except NotImplementedError:
            raise
        except Exception as error:
            return failed(_stopped(error)), None
        return self.decide(challenge, evidence, broken), evidence

    def __call__(self, *functions: Any, seed: int = 0) -> None:
        """Run the check in a notebook: print PASS and what was seen, or raise AssertionError."""
        named = self._named(functions)
        verdict = self.judge(named, seed)
        if verdict.score < 1:
            message = _failing().explain(self, named, self.challenge(seed), verdict.message)
            raise CheckFailed(message)
        print(f"PASS  {verdict.message}")
        remember_pass(self.name)

    def smallest(self, *functions: Any, seed: int = 0) -> Challenge:
        """Return what the check asks, without all that these functions need not be asked to fail."""
        return _failing().smallest(self, self._named(functions), self.challenge(seed))

    def show(self, case: Challenge, *functions: Any) -> None:
        """Print what these functions are given in a case, and what comes back beside what is right."""
        print(*_failing().show(self, self._named(functions), case), sep="\n")

    def _named(self, functions: tuple[Any, ...]) -> dict[str, Any]:
        if len(functions) != len(self.needs):
            raise TypeError(f"{self.name} takes {', '.join(self.needs)}")
        return dict(zip(self.needs, functions, strict=True))


def _failing() -> ModuleType:
    """Return the module that looks closer at checks that fail; it stands on this one."""
    return import_module("course.checks.failing")


def check(
    *needs: str,
    draw: Callable[[int], Challenge],
    probe: Callable[[SimpleNamespace, Challenge], Evidence],
    evidence: Callable[[Challenge], Any] = lambda challenge: Any,
    truth: Any = None,
    tolerance: float | None = None,
) -> Callable[[Callable[..., Verdict]], Check]:
    """Make a check of the verdict that this decorates; the check gets the verdict's name.

    Args:
        needs: names of the student's functions that the probe calls.
        draw: draws the challenge from a seed.
        probe, evidence: see `Check`.
        truth: what the verdict's parameter `truth` gets, if it has one: by default the answers that
            are recorded beside the lesson's checks.
        tolerance: the same of the parameter `tolerance`: by default TOLERANCE.
    """

    def made(verdict: Callable[..., Verdict]) -> Check:
        name, lesson = verdict.__name__, verdict.__module__.split(".")[2]
        given = inspect.signature(verdict).parameters
        return Check(
            name,
            needs,
            draw,
            probe,
            verdict,
            evidence=evidence,
            truth=Recorded(lesson, name) if truth is None and "truth" in given else truth,
            tolerance=TOLERANCE if tolerance is None and "tolerance" in given else tolerance,
        )

    return made


def gather(package: ModuleType) -> None:
    """Import the files of a package, and show in the package every check that they define."""
    for module in iter_modules(package.__path__):
        vars(package).update(checks_in(import_module(f"{package.__name__}.{module.name}")))


def checks_in(module: ModuleType) -> dict[str, Check]:
    """The checks that a module shows, by name."""
    return {check.name: check for check in vars(module).values() if isinstance(check, Check)}


def by_name(*checks: Check) -> dict[str, Check]:
    """The checks by their names, in their order.

    Raises:
        ValueError: two have the same name.
    """
    named = {check.name: check for check in checks}
    if len(named) < len(checks):
        raise ValueError(f"two checks have one name: {[check.name for check in checks]}")
    return named
