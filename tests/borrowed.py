"""Hand in, for each function that a lesson asks for, every function that its library view offers.

Run by test_no_truth.py as `python borrowed.py VIEWS`, a folder with a library view for each lesson, by
its module's name. The last line of the output is JSON: for each lesson the [function, borrowed, check]
of each check that passed.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import io
import json
import multiprocessing
import numbers
import pkgutil
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Any

import IPython.display  # noqa: F401  What takes long to import is imported before the processes
import ipywidgets  # noqa: F401       of the lessons are forked.
import matplotlib.pyplot as plt
import numpy as np
import torch

SEED = 1
AT_ONCE, SECONDS, BYTES = 0.5, 4, 4 * 2**30
"""Processor time of a first call and of a check, and memory: a function that trains a model or fills the
memory, given numbers that it was not made for, is let go."""
Names = Mapping[str, Any]


def from_course(value: Any) -> bool:
    """Whether a value is one of `course`, and not of the answers in `course.minigpt`."""
    if isinstance(value, partial):
        return from_course(value.func)
    known = inspect.isfunction(value) or isinstance(value, type)
    home = (value if known else type(value)).__module__
    return home.startswith("course") and not home.startswith("course.minigpt")


def modules() -> Iterator[Any]:
    """Import what a student of the lesson can import, but for the answers to earlier lessons."""
    import course

    for found in pkgutil.walk_packages(course.__path__, "course."):
        if not found.name.startswith("course.minigpt"):
            with contextlib.suppress(ImportError):  # it needs a later lesson's answer, or an extra
                yield importlib.import_module(found.name)


def callables() -> list[tuple[str, Any]]:
    """Find all that can be called: functions, classes, objects, methods, the pieces of checks, and
    what containers and closures hold; each with a name to report it by."""
    seen: dict[int, Any] = {}
    found = []
    left = [(f"{m.__name__}.{name}", value) for m in modules() for name, value in vars(m).items()]
    while left:
        name, value = left.pop()
        value = getattr(value, "__func__", value)
        if id(value) in seen or not (from_course(value) or isinstance(value, dict | list | tuple)):
            continue
        seen[id(value)] = value
        left += [(f"{name}.{part}", inner) for part, inner in parts_of(value)]
        if callable(value):
            found.append((name, value))
    return found


def parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """List what a container, a closure, a class or an object holds, by name."""
    if isinstance(value, list | tuple):
        yield from enumerate(value)
    elif isinstance(value, dict):
        yield from value.items()
    elif inspect.isfunction(value):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a cell that is still empty
                yield name, cell.cell_contents
    else:
        yield from getattr(value, "__dict__", {}).items()


def fits(borrowed: Any, asked: Any) -> bool:
    """Whether one can be called with as many arguments as the other is."""
    if isinstance(asked, type) and not isinstance(borrowed, type):
        return False
    try:
        parameters = inspect.signature(asked).parameters.values()
        signature = inspect.signature(borrowed)
    except (TypeError, ValueError):
        return False
    least = sum(parameter.default is parameter.empty for parameter in parameters)
    for number in range(least, len(parameters) + 1):
        with contextlib.suppress(TypeError):
            signature.bind(*[None] * number)
            return True
    return False


class Asked:
    """A function that a check asks for: what it is given first, and of what kind its result must be."""

    def __init__(self, check: Any, function: str, answers: Names) -> None:
        from autograder import wire

        self.check, self.function, self.answers = check, function, answers
        self.frame = wire.encode(check.challenge(SEED))
        assert self.passes(answers[function]), f"the reference fails {check.name}"
        self.first: tuple[tuple, dict, object] | None = None
        if not isinstance(answers[function], type):
            self.passes(self._remembering(answers[function]))

    def _remembering(self, function: Any) -> Any:
        @wraps(function)
        def remembering(*args: Any, **kwargs: Any) -> Any:
            given = copy.deepcopy((args, kwargs))
            if self.first is None:
                self.first = (*given, "stopped")
                result = function(*args, **kwargs)
                self.first = (*given, kind_of(result))
                return result
            return function(*args, **kwargs)

        return remembering

    def is_earned_by(self, borrowed: Any) -> bool:
        """Whether a borrowed function passes the check. It is given up where its first result is of
        another kind than the right one."""
        if not fits(borrowed, self.answers[self.function]):
            return False
        if self.first is not None:
            args, kwargs, kind = self.first
            if kind_of_call(borrowed, *copy.deepcopy((args, kwargs))) != kind:
                return False
        return self.passes(borrowed)

    def passes(self, borrowed: Any) -> bool:
        """Whether the check passes with this function among the reference answers."""
        from autograder import wire
        from course.checks.check import observe

        challenge, names = wire.decode(self.frame), {**self.answers, self.function: borrowed}
        with limits(), contextlib.suppress(BaseException):
            seen = observe(self.check.probe, names, self.check.needs, challenge)
            return self.check.decide(challenge, *seen).score > 0
        return False


def kind_of_call(function: Any, args: tuple, kwargs: dict[str, Any]) -> object:
    """Call a function; return the kind of its result, or "stopped"."""
    with limits(AT_ONCE), contextlib.suppress(BaseException):
        return kind_of(function(*args, **kwargs))
    return "stopped"


def kind_of(value: Any) -> object:
    """Reduce a result to its type and shape; all numbers are of one kind."""
    if isinstance(value, numbers.Number | np.generic):
        return "number"
    if isinstance(value, torch.Tensor | np.ndarray):
        return type(value).__name__, tuple(value.shape)
    if isinstance(value, list | tuple):
        return [kind_of(item) for item in value]
    return type(value).__name__


@contextlib.contextmanager
def limits(seconds: float = SECONDS) -> Iterator[None]:
    """Let what is called print nothing, and run for so many seconds at most."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        plt.close("all")


def out_of_time(*_: object) -> None:
    raise TimeoutError


def borrow(view: Path) -> list[tuple[str, str, str]]:
    """Try every function on every check that asks for one like it; the view becomes `course`."""
    sys.path.insert(0, str(view))
    signal.signal(signal.SIGPROF, out_of_time)
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    from autograder.lessons import hidden_checks
    from autograder.lessons.assembly import assemble

    answers, offered = assemble(view.name, {}), callables()
    asked = [
        Asked(check, name, answers)
        for check in hidden_checks(view.name).values()
        for name in check.needs
    ]
    return [
        (one.function, name, one.check.name)
        for one in asked
        for name, borrowed in offered
        if one.is_earned_by(borrowed)
    ]


def outcome(result: Any) -> Any:
    """What a process found, or why it could not."""
    try:
        return result.get()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    views = sorted(Path(sys.argv[1]).iterdir())
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        running = {view.name: pool.apply_async(borrow, [view]) for view in views}
        print(json.dumps({lesson: outcome(result) for lesson, result in running.items()}))
