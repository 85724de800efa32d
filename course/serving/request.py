"""A request on its way through a server: what was asked for, what was fed, what was written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from course.model.bounds import check_between

MOST = 2**31


@dataclass(eq=False)
class Request:
    """A prompt that waits for its answer, or gets it, token by token.

    Attributes:
        id: names it in what a scheduler returns.
        prompt: its tokens, at least one.
        n_new: tokens of the answer, at least 1.
        arrival: when it came, in seconds.
        fed: tokens that went through the model, of the prompt and then of the answer.
        out: tokens of the answer so far.
    """

    id: int
    prompt: Sequence[int]
    n_new: int
    arrival: float = 0.0
    fed: int = 0
    out: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_between("n_new", self.n_new, 1, MOST)
        check_between("tokens of the prompt", len(self.prompt), 1, MOST)

    @property
    def left(self) -> int:
        """Tokens that are known and not fed yet: the rest of the prompt, or the newest of the answer."""
        return len(self.prompt) + len(self.out) - self.fed

    @property
    def decodes(self) -> bool:
        """Whether its prompt is behind it, so that each pass can take one token of the answer."""
        return self.fed >= len(self.prompt)

    @property
    def done(self) -> bool:
        """Whether the whole answer is there. Its last token is never fed."""
        return len(self.out) == self.n_new


Piece = tuple[Request, int]
"""A request, and how many of its next tokens go through the model in one pass."""


def check_room(budget: int, max_running: int) -> None:
    """Check what a pass may take; a ValueError names what is wrong."""
    check_between("budget", budget, 1, MOST)
    check_between("max_running", max_running, 1, MOST)


def check_new(request: Request, there: Iterable[Request]) -> None:
    """Check a request that joins others; a ValueError names what is wrong with it."""
    if request.fed or request.out:
        raise ValueError(f"request {request.id} has begun already: fed {request.fed}")
    if any(other.id == request.id for other in there):
        raise ValueError(f"there is a request {request.id} already")


def check_lengths(n_new: Sequence[int], batch: int) -> None:
    """Check lengths of answers and a number of rows; a ValueError names what is wrong."""
    check_between("batch", batch, 1, MOST)
    for n in n_new:
        check_between("n_new", n, 1, MOST)


def check_seconds(seconds: float) -> None:
    """Check a duration; a ValueError names it."""
    if not 0 < seconds < float("inf"):
        raise ValueError(f"seconds must be above 0, got {seconds}")
