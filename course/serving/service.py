"""An engine in a thread of its own, for clients that come and go in other threads.

    with Service(engine) as service:
        service.submit(conversation, listen).result()  # listen(token) for each token, then listen(None)

All that touches the engine happens in its thread, between two passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any

from course.serving.conversation import Conversation
from course.serving.engine_like import EngineLike

Listen = Callable[[int | Exception | None], object]
"""Called in the engine's thread: with each token, at last with None, or with what went wrong."""


class Overloaded(Exception):
    """So many conversations are waiting that this one should come again later."""


@dataclass
class Client:
    """Who waits for a conversation, and when its tokens came, in seconds of `time.perf_counter`."""

    conversation: Conversation
    listen: Listen
    start: float
    stamps: list[float] = field(default_factory=list)


class Service:
    """Runs the passes of an engine while there are conversations.

    Args:
        max_waiting: conversations that may wait beside those that run.
        finished: called, in the engine's thread, with each client whose answer is written.
    """

    def __init__(
        self,
        engine: EngineLike,
        max_waiting: int = 256,
        finished: Callable[[Client], object] = lambda client: None,
    ) -> None:
        self.engine, self.max_waiting, self.finished = engine, max_waiting, finished
        self.clients: dict[int, Client] = {}  # by the id of the conversation
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="engine", daemon=True)

    def __enter__(self) -> Service:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.put(None)
        self._thread.join()

    def submit(self, conversation: Conversation, listen: Listen) -> Future[None]:
        """Queue a conversation. The result raises Overloaded, or a ValueError where the pool can never
        hold it."""
        client = Client(conversation, listen, time.perf_counter())

        def add() -> None:
            if len(self.engine.queue) >= self.max_waiting:
                raise Overloaded(f"{len(self.engine.queue)} conversations are waiting; try later")
            self.engine.add([conversation])
            self.clients[conversation.id] = client

        return self.between_passes(add)

    def leave(self, conversation: Conversation) -> Future[None]:
        """Forget a client that has gone; the pages of its conversation are free after the next pass."""

        def forget() -> None:
            if self.clients.pop(conversation.id, None):
                self.engine.leave(conversation)

        return self.between_passes(forget)

    def between_passes(self, call: Callable[[], Any]) -> Future[Any]:
        """Let the engine's thread call a function between two passes."""
        future: Future[Any] = Future()
        self._calls.put((call, future))
        return future

    def _run(self) -> None:
        while self._make_calls():
            try:
                written, now = self.engine.step(), time.perf_counter()
                for id, token in written:
                    if id in self.clients:
                        self._tell(self.clients[id], token, now)
            except Exception as error:  # a mistake in a function: who waits hears of it
                self.engine.clear()
                self._tell_all(error)
        self._tell_all(ConnectionError("the server was stopped"))

    def _make_calls(self) -> bool:
        """Make the calls that wait for the end of a pass; without a conversation, wait for one. False at
        the end."""
        while not self._calls.empty() or not (self.engine.queue or self.engine.running):
            item = self._calls.get()
            if item is None:
                return False
            call, future = item
            if not future.set_running_or_notify_cancel():  # who asked for it has gone
                continue
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)
        return True

    def _tell(self, client: Client, token: int, now: float) -> None:
        client.stamps.append(now)
        client.listen(token)
        if client.conversation.done:
            del self.clients[client.conversation.id]
            self.finished(client)
            client.listen(None)

    def _tell_all(self, error: Exception) -> None:
        clients, self.clients = self.clients, {}
        for client in clients.values():
            client.listen(error)
