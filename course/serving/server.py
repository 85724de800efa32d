"""A server of chat completions: `python -m course.engine --serve`.

    client = openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
    client.chat.completions.create(model="story", messages=[{"role": "user", "content": "The cat sat"}])

One process: it speaks with clients, and a thread of its own runs the engine (`service`), so that clients
share passes. `/metrics` is for Prometheus, `/state` for `course.widgets.server`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from course.published.texts import Growing, StoryWords, Words
from course.serving.conversation import Conversation
from course.serving.engine_like import EngineLike
from course.serving.metrics import Metrics
from course.serving.protocol import DEFAULT_NEW, Answer, Asked, Refused, read, usage_of
from course.serving.service import Overloaded, Service

MOST_BYTES, MOST_CLIENTS = 2**20, 1024
"""Of the body of a request, and of connections at a time."""


def serve(engine: EngineLike, words: Words, name: str, host: str, port: int) -> None:
    """Serve until Ctrl-C. An OSError says that the address cannot be had."""
    config = uvicorn.Config(
        make_app(engine, words, name),
        log_level="warning",
        timeout_graceful_shutdown=3,
        limit_concurrency=MOST_CLIENTS,
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        why = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
        raise OSError(f"--host {host} --port {port}: {why}") from error
    url = f"http://{host}:{listening.getsockname()[1]}"
    print(
        f"{name} at {url}/v1, without a key; {url}/metrics says how it goes. Ctrl-C ends it.",
        flush=True,
    )
    uvicorn.Server(config).run(sockets=[listening])


def make_app(engine: EngineLike, words: Words, name: str, max_waiting: int = 256) -> Starlette:
    """Make the application of one model. Its engine runs while the application does."""
    metrics = Metrics(engine)
    service = Service(engine, max_waiting, metrics.finished)
    server = Server(service, words, name)

    @contextlib.asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        with service:
            yield

    return Starlette(
        routes=[
            Route("/v1/chat/completions", server.complete, methods=["POST"]),
            Route("/v1/models", server.models),
            Route("/metrics", lambda _: Response(metrics.text(), media_type="text/plain")),
            Route("/state", server.state),
        ],
        exception_handlers={Refused: _refuse, 404: _unknown, 405: _unknown, 500: _broken},
        lifespan=running,
    )


class Server:
    """Answers the requests of clients."""

    def __init__(self, service: Service, words: Words, name: str) -> None:
        self.service, self.engine, self.words, self.name = service, service.engine, words, name

    async def complete(self, request: Request) -> Response:
        """Answer a conversation, whole or piece by piece."""
        asked = read(await _body_of(request), self.name)
        conversation = self._conversation(asked)
        tokens: asyncio.Queue[int | Exception | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def listen(item: int | Exception | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: so has the server
                loop.call_soon_threadsafe(tokens.put_nowait, item)

        try:
            await asyncio.wrap_future(self.service.submit(conversation, listen))
        except Overloaded as error:
            raise Refused(str(error), status=503, code="overloaded") from error
        except ValueError as error:
            raise Refused(str(error), "messages", code="context_length_exceeded") from error
        answer, texts = Answer(conversation.id, self.name), self._texts(conversation, tokens)
        if asked.stream:
            events = self._events(answer, conversation, texts, asked.usage)
            return StreamingResponse(events, media_type="text/event-stream")
        return await self._whole(request, answer, conversation, texts)

    def _conversation(self, asked: Asked) -> Conversation:
        """Make a conversation; Refused where the model cannot take it."""
        try:
            prompt = self._encode(asked)
        except ValueError as error:
            raise Refused(str(error), "messages") from error
        longest = self.engine.model.config.max_seq_len
        room = longest - len(prompt)
        n_new = min(DEFAULT_NEW, room) if asked.n_new is None else asked.n_new
        if room < max(1, n_new):
            raise Refused(
                f"{len(prompt)} tokens and up to {max(1, n_new)} new ones are more than the {longest} "
                "that the model reads",
                "messages", code="context_length_exceeded",
            )  # fmt: skip
        return self.engine.conversation(prompt, n_new, self.words.ends, asked.sampling)

    def _encode(self, asked: Asked) -> list[int]:
        if isinstance(self.words, StoryWords):  # cannot chat: it goes on with the last message
            return self.words.encode(asked.messages[-1]["content"])
        return self.words.encode_chat(asked.messages)

    async def _texts(
        self, conversation: Conversation, tokens: asyncio.Queue[int | Exception | None]
    ) -> AsyncIterator[str]:
        """Yield what each token adds to the text. A client that leaves ends this early, and frees the
        pages of its conversation."""
        growing = Growing(self.words)
        try:
            while (token := await tokens.get()) is not None:
                if isinstance(token, Exception):
                    raise token
                yield growing.add([token])
            yield growing.rest()
        finally:
            self.service.leave(conversation)

    async def _whole(
        self,
        request: Request,
        answer: Answer,
        conversation: Conversation,
        texts: AsyncIterator[str],
    ) -> Response:
        written: list[str] = []

        async def collect() -> None:
            async for text in texts:
                written.append(text)

        collecting = asyncio.create_task(collect())
        while not (await asyncio.wait([collecting], timeout=0.2))[0]:
            if await request.is_disconnected():
                collecting.cancel()
                return Response(status_code=499)  # nobody reads it
        if error := collecting.exception():  # answered here, so that the connection stays open
            raise Refused(f"{type(error).__name__}: {error}", status=500) from error
        reason, usage = self._end_of(conversation)
        return JSONResponse(answer.whole("".join(written), reason, usage))

    async def _events(
        self,
        answer: Answer,
        conversation: Conversation,
        texts: AsyncIterator[str],
        with_usage: bool,
    ) -> AsyncIterator[str]:
        yield _event(answer.piece({"role": "assistant", "content": ""}))
        try:
            async for text in texts:
                if text:
                    yield _event(answer.piece({"content": text}))
        except Exception as error:  # the response has begun: the error comes as an event
            yield _event(Refused(f"{type(error).__name__}: {error}", status=500).body())
            return
        finally:
            await texts.aclose()
        reason, usage = self._end_of(conversation)
        yield _event(answer.piece({}, reason))
        if with_usage:
            yield _event(answer.last_piece(usage))
        yield "data: [DONE]\n\n"

    def _end_of(self, conversation: Conversation) -> tuple[str, dict[str, Any]]:
        ended = conversation.out[-1] in conversation.ends
        usage = usage_of(conversation.prompt, conversation.out, conversation.reused)
        return "stop" if ended else "length", usage

    async def models(self, request: Request) -> Response:
        """List the one model."""
        model = {"id": self.name, "object": "model", "created": 0, "owned_by": "second-token"}
        return JSONResponse({"object": "list", "data": [model]})

    async def state(self, request: Request) -> Response:
        """Say whose the pages are, and who shares the next pass."""
        return JSONResponse(await asyncio.wrap_future(self.service.between_passes(self._state)))

    def _state(self) -> dict[str, Any]:
        memory = self.engine.memory
        return {
            "n_blocks": memory.pool.n_blocks,
            "known": sorted(memory.known.values()),
            "waiting": len(self.engine.queue),
            "running": [
                {
                    "id": one.id,
                    "prompt": len(one.prompt),
                    "fed": one.fed,
                    "written": len(one.out),
                    "n_new": one.n_new,
                    "table": list(cache.table),
                }
                for one, cache in self.engine.running.values()
            ],
        }


async def _body_of(request: Request) -> Any:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise Refused(f"the body is longer than {MOST_BYTES} bytes", status=413)
    try:
        return json.loads(body)
    except ValueError as error:
        raise Refused(f"the body is no JSON: {error}") from error


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


def _refuse(_: Request, error: Exception) -> Response:
    return JSONResponse(error.body(), status_code=error.status)


def _unknown(request: Request, error: Exception) -> Response:
    words = f"there is no {request.method} {request.url.path}; this server has /v1/chat/completions"
    return _refuse(request, Refused(words, status=error.status_code))


def _broken(request: Request, error: Exception) -> Response:
    return _refuse(request, Refused(f"{type(error).__name__}: {error}", status=500))
