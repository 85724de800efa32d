"""Judge the submissions to one lesson, each once: in the sandbox, or by looking up the result kept."""

from __future__ import annotations

import gc
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autograder.assignment import read_assignment
from autograder.diagnosis.known_replies import KnownReplies
from autograder.judge import grade_one, without_score
from autograder.kept_results import Kept, KeptResults, digest_of_grader, digest_of_submission
from autograder.lessons import hidden_checks
from autograder.result import Outcome, Result
from autograder.secret import read_secret
from autograder.session import Deadlines

if TYPE_CHECKING:
    from autograder.sandbox.fork_server import ForkServer
    from autograder.sandbox.launch import Launcher

REPLACED = 3
"""How often a submission is judged that is replaced while it is."""


class Desk:
    """Judges the submissions to one lesson. Threads may share one.

    Args:
        released: the lesson's notebook as students get it.
        grading: the folder with the secret and the kept results.
        settings: `plain` of `nbgrader_steps.Settings`.
        judge_again: whether kept results do not count.
        log: told of a result that cannot be kept.

    Attributes:
        released, settings, assignment, secret: what they say.
        grader: the digest of what decides here.
        server: a fork server that somebody has started, and will close; else one is started here.

    Raises:
        ValueError, PermissionError: the released notebook or the secret cannot be used.
    """

    def __init__(
        self,
        released: Path,
        grading: Path,
        settings: Mapping[str, Any],
        judge_again: bool,
        log: Logger,
    ) -> None:
        self.released, self.settings = released, dict(settings)
        self.assignment = read_assignment(released)
        self.secret = read_secret(grading / "secret")
        self.grader = digest_of_grader(released, self.secret)
        self._digests: dict[Path, str] = {}
        self.known = KnownReplies(self.assignment.module, grading / "known-replies")
        self._judge_again, self._log = judge_again, log
        results = grading / "results" / self.assignment.module
        self.results = KeptResults(results, self.grader, self.settings)
        self.server: ForkServer | None = None
        self._lock, self._stack = threading.Lock(), ExitStack()
        self.close = self._stack.close

    def open(self) -> Launcher:
        """Start the sandbox, unless it is there.

        Raises:
            SandboxMissing, ValueError, OSError: see `Launcher`.
        """
        with self._lock:
            return self._launcher

    @cached_property
    def _launcher(self) -> Launcher:
        from autograder.sandbox.launch import Launcher  # nobody who looks results up needs it

        how = (self.settings["unsafe_no_sandbox"], self._import_checks, self.server)
        launcher = Launcher(self.assignment.module, *how)
        self._stack.callback(launcher.close)
        return launcher

    def _import_checks(self) -> None:
        """Import the checks, and PyTorch with them, which the first question waits for. They stay, so no
        garbage collection need look through them, now or later."""
        gc.disable()
        hidden_checks(self.assignment.module)
        gc.freeze()
        gc.enable()

    def find(self, notebook: Path) -> Kept | None:
        """Return the result that is kept of a file, if it counts."""
        return None if self._judge_again else self.kept(notebook)

    def kept(self, notebook: Path) -> Kept | None:
        """Return the result that is kept of a file, also one that is to be judged again."""
        return self.results.find(self.digest(notebook))

    def kept_under(self, key: str, notebook: Path) -> Kept | None:
        """Return the result that is kept of a file under a key, with whatever settings it was judged."""
        return self.results.find_under(key, self.digest(notebook))

    def key(self, notebook: Path) -> str:
        """Return the key under which the result of a file is kept."""
        return self.results.key(self.digest(notebook))

    def digest(self, notebook: Path, anew: bool = False) -> str:
        """Return `digest_of_submission`, which looks at a file once, unless it is asked to look anew."""
        if anew or notebook not in self._digests:
            self._digests[notebook] = digest_of_submission(notebook)
        return self._digests[notebook]

    def judge(self, notebook: Path) -> Kept:
        """Run a file's code, ask, and keep the result. What was replaced meanwhile is judged again:
        points belong to the very files that ran."""
        launcher = self.open()
        for _ in range(REPLACED):
            before = self.digest(notebook, anew=True)
            kept = Kept(self._run(launcher, notebook.absolute()), launcher.level)
            if self.digest(notebook, anew=True) == before:
                self._keep(notebook, kept)
                return kept
            self._log.warning("%s was handed in again while it was being judged", notebook.parent)
        reason = "new versions kept being handed in while it was being judged"
        return replace(kept, result=without_score(self.assignment, Outcome.INFRA_ERROR, reason))

    def _run(self, launcher: Launcher, notebook: Path) -> Result:
        parts = ("cell", "question", "submission")
        seconds = Deadlines(*(self.settings[f"{part}_seconds"] for part in parts))
        again = self.settings["follow_through"]
        with launcher.start_for(notebook.parent) as start:
            how = (start, self.secret, seconds, again, self.known)
            return grade_one(notebook, self.assignment, *how)

    def _keep(self, notebook: Path, kept: Kept) -> None:
        try:
            self.results.keep(self.digest(notebook), kept)
        except OSError as error:
            where = notebook.parent
            self._log.error("%s: graded, but the result cannot be kept: %s", where, error)
