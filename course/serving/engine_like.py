"""What commands and servers need of an engine: `course.engine.Engine` has it, and imports them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from course.model import MiniGPT
from course.serving.conversation import Conversation, Sampling


class Writer(Protocol):
    """Writes one conversation that is alone."""

    @property
    def nbytes(self) -> int: ...
    def passes(self, conversation: Conversation) -> Iterator[list[int]]: ...


class EngineLike(Protocol):
    """Serves conversations; see `course.engine.Engine`."""

    model: MiniGPT
    queue: deque[Conversation]
    running: dict[int, Any]

    @property
    def memory(self) -> Any: ...
    @property
    def cache_bytes(self) -> int: ...
    def conversation(
        self, prompt: Sequence[int], n_new: int, ends: Iterable[int], sampling: Sampling
    ) -> Conversation: ...
    def run(self, conversations: Sequence[Conversation]) -> Iterator[list[tuple[int, int]]]: ...
    def add(self, conversations: Sequence[Conversation]) -> None: ...
    def step(self) -> list[tuple[int, int]]: ...
    def leave(self, conversation: Conversation) -> None: ...
    def clear(self) -> None: ...
