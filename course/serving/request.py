"""A request and its progress: the prompt, the tokens fed to the model, the tokens written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from course.model.bounds import check_between

LARGEST = 2**31


@dataclass(eq=False)
class Request:
    """A prompt, and its answer as far as it is written.

    Attributes:
        id: a number that a scheduler returns with each token.
        prompt: its tokens, at least one.
        n_new: how many tokens the answer gets, at least 1.
        arrival: the time of its arrival, in seconds.
        fed: how many tokens went through the model, of the prompt and then of the answer.
        out: the tokens of the answer so far.
    """

    id: int
    prompt: Sequence[int]
    n_new: int
    arrival: float = 0.0
    fed: int = 0
    out: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_between("n_new", self.n_new, 1, LARGEST)
        check_between("tokens of the prompt", len(self.prompt), 1, LARGEST)

    @property
    def left(self) -> int:
        """How many known tokens are not fed yet: of the prompt, or the newest token of the answer."""
        return len(self.prompt) + len(self.out) - self.fed

    @property
    def decodes(self) -> bool:
        """Whether the whole prompt was fed, so that each pass can take one token of the answer."""
        return self.fed >= len(self.prompt)

    @property
    def done(self) -> bool:
        """Whether the whole answer is written. Its last token is never fed."""
        return len(self.out) == self.n_new


Piece = tuple[Request, int]
"""A request, and how many of its next tokens go through the model in one pass."""


def check_room(budget: int, max_running: int) -> None:
    """Check how many tokens and requests a pass may take; a ValueError names what is wrong."""
    check_between("budget", budget, 1, LARGEST)
    check_between("max_running", max_running, 1, LARGEST)


def check_new(request: Request, present: Iterable[Request]) -> None:
    """Check a request that joins those present; a ValueError names what is wrong with it."""
    if request.fed or request.out:
        raise ValueError(f"request {request.id} has begun already: fed {request.fed}")
    if any(other.id == request.id for other in present):
        raise ValueError(f"there is a request {request.id} already")


def check_lengths(n_new: Sequence[int], batch: int) -> None:
    """Check the lengths of answers and the number of rows; a ValueError names what is wrong."""
    check_between("batch", batch, 1, LARGEST)
    for n in n_new:
        check_between("n_new", n, 1, LARGEST)


def check_seconds(seconds: float) -> None:
    """Check a duration; a ValueError names it."""
    if not 0 < seconds < float("inf"):
        raise ValueError(f"seconds must be above 0, got {seconds}")
