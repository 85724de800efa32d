"""The chat-completions protocol: what a client asks, and what it is told. No network here.

Source: the OpenAI API reference, "Create chat completion", as its client library speaks it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from course.published.chat import Message
from course.serving.conversation import Sampling

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "stop": ([],),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "logprobs": (False,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}
"""Fields of the protocol that this server has only in the value that changes nothing."""
DEFAULT_NEW = 256
ROLES = ("system", "developer", "user", "assistant")


class Refused(Exception):
    """A request that is answered with an error of the protocol.

    Args:
        param: the field that is wrong.
        status: the status of the HTTP response.
        code: a word for programs.
    """

    def __init__(
        self, message: str, param: str | None = None, status: int = 400, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.param, self.status, self.code = param, status, code

    def body(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


@dataclass(frozen=True)
class Asked:
    """What a client asks for.

    Attributes:
        messages: of the conversation so far, the newest last.
        n_new: the most tokens of the answer, or None where the client names none.
        sampling: how tokens are chosen.
        stream: whether the answer is sent while it is written.
        usage: whether a stream ends with its numbers of tokens.
    """

    messages: tuple[Message, ...]
    n_new: int | None
    sampling: Sampling
    stream: bool
    usage: bool


def read(body: Any, model: str) -> Asked:
    """Read a request for the model of this name; Refused says what is wrong with it."""
    if not isinstance(body, dict):
        raise Refused("the body must be a JSON object")
    if body.get("model") != model:
        raise Refused(
            f"the model {body.get('model')!r} is not here; this server has {model!r}",
            "model", 404, "model_not_found",
        )  # fmt: skip
    for name, neutral in NEUTRAL.items():
        if body.get(name) is not None and body[name] not in neutral:
            raise Refused(f"{name} is not supported, got {body[name]!r}", name)
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise Refused("stream_options must be an object", "stream_options")
    n_new = _number(body, "max_completion_tokens", int, _number(body, "max_tokens", int, None))
    if n_new is not None and n_new < 1:
        raise Refused(f"max_tokens must be at least 1, got {n_new}", "max_tokens")
    try:
        sampling = Sampling(
            temperature=_number(body, "temperature", float, 1.0),
            top_p=_number(body, "top_p", float, 1.0),
            top_k=_number(body, "top_k", int, 0),
            seed=_number(body, "seed", int, None),
        )
    except ValueError as error:
        raise Refused(str(error), str(error).split()[0]) from error
    stream = body.get("stream") or False
    if type(stream) is not bool:
        raise Refused(f"stream must be true or false, got {stream!r}", "stream")
    return Asked(_messages(body), n_new, sampling, stream, bool(options.get("include_usage")))


def _number(body: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = body.get(name)
    if value is None:
        return default
    right = (int, float) if kind is float else (int,)
    if type(value) not in right:
        raise Refused(f"{name} must be a number, got {value!r}", name)
    if not -(2**63) <= value < 2**63:
        raise Refused(f"{name} is out of range, got {value!r}", name)
    return kind(value)


def _messages(body: Mapping[str, Any]) -> tuple[Message, ...]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused("messages must be a list of at least one message", "messages")
    return tuple(_message(message, f"messages[{n}]") for n, message in enumerate(messages))


def _message(message: Any, where: str) -> Message:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise Refused(f"{where} must be an object whose role is one of {', '.join(ROLES)}", where)
    content = message.get("content")
    if isinstance(content, list):  # parts, of which this server takes text
        if not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
            raise Refused(f"{where}: parts other than text are not supported", where)
        content = "".join(str(part.get("text", "")) for part in content)
    if not isinstance(content, str):
        raise Refused(f"{where}.content must be a text", where)
    role = "system" if message["role"] == "developer" else message["role"]
    return {"role": role, "content": content}


class Answer:
    """What a client is told of one answer, whole or piece by piece."""

    def __init__(self, number: int, model: str) -> None:
        self.common = {"id": f"chatcmpl-{number}", "created": int(time.time()), "model": model}

    def whole(self, text: str, reason: str, usage: Mapping[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        kind = {"object": "chat.completion"}
        return {**self.common, **kind, "choices": [choice], "usage": dict(usage)}

    def piece(self, delta: Mapping[str, str], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": dict(delta), "finish_reason": reason, "logprobs": None}
        return {**self.common, "object": "chat.completion.chunk", "choices": [choice]}

    def last_piece(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        kind = {"object": "chat.completion.chunk"}
        return {**self.common, **kind, "choices": [], "usage": dict(usage)}


def usage_of(prompt: Sequence[int], out: Sequence[int], reused: int) -> dict[str, Any]:
    """Count tokens as the protocol does."""
    return {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(out),
        "total_tokens": len(prompt) + len(out),
        "prompt_tokens_details": {"cached_tokens": reused},
    }
