"""Check a scheduler with a drawn language in the place of a model: which token comes next depends on
every token that was fed before, and on their order.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.model.cache import CacheFull
from course.serving.request import Piece, Request

MOST_STEPS = 400
"""Passes after which a scheduler that never ends is stopped."""


class Language:
    """A text continued by rule.

    Args:
        size: V, words.
        factor: with which the text so far is folded into one number.
    """

    def __init__(self, size: int, factor: int) -> None:
        self.size, self.factor = size, factor

    def next(self, text: list[int]) -> int:
        """The word that follows."""
        folded = 7
        for token in text:
            folded = (folded * self.factor + token + 1) % 1_000_003
        return folded % self.size

    def logits(self, text: list[int]) -> Tensor:
        """(V,), highest at the word that follows."""
        row = torch.arange(self.size, dtype=torch.float32).remainder(5)
        row[self.next(text)] = 9.0
        return row

    def answer(self, prompt: list[int], n_new: int) -> list[int]:
        """The words that follow a prompt, one by one."""
        text = list(prompt)
        for _ in range(n_new):
            text.append(self.next(text))
        return text[len(prompt) :]


class Watched:
    """A forward pass that writes down what it was given.

    Attributes:
        spans: of each pass, (id, first, n) of each piece.
        fed: the tokens that each request was fed, as they were when they were fed.
        fails_at: number of the pass that raises CacheFull, once; None: none does.
    """

    def __init__(self, language: Language, fails_at: int | None) -> None:
        self.language, self.fails_at = language, fails_at
        self.spans: list[list[list[Any]]] = []
        self.fed: dict[int, list[int]] = {}

    def __call__(self, pieces: list[Piece]) -> Tensor:
        pieces = list(pieces)
        self.spans.append([[plain(r.id), plain(r.fed), plain(n)] for r, n in pieces])
        if len(self.spans) - 1 == self.fails_at:
            raise CacheFull("all slots are taken")
        rows = []
        for request, n in pieces:
            text = [*request.prompt, *request.out]
            fed = self.fed.setdefault(request.id, [])
            fed += text[request.fed : request.fed + n]
            rows.append(self.language.logits(fed))
        return torch.stack(rows) if rows else torch.zeros(0, self.language.size)


def draw_traffic(seed: int) -> Challenge:
    """Draw servers with requests that come while others are served."""
    rng = np.random.default_rng(seed)
    servers = []
    for n in (1, 2, 4, 6, 8):
        size = int(rng.integers(11, 30))
        requests = [
            {
                "id": int(number),
                "prompt": rng.integers(0, size, int(rng.integers(1, 14))).tolist(),
                "n_new": int(rng.integers(1, 7)),
                "comes": int(rng.integers(0, 7)) if n > 2 else 0,
            }
            for number in rng.permutation(50)[:n]
        ]
        requests.sort(key=lambda request: request["comes"])
        budget, room = int(rng.choice([1, 2, 3, 5, 9, 40])), int(rng.integers(1, 5))
        servers.append(_server(rng, size, requests, budget if n > 1 else 3, room))
    return {"servers": servers}


def draw_ample(seed: int) -> Challenge:
    """Draw servers whose budget is never short: each running request gets a token in each pass."""
    rng = np.random.default_rng(seed)
    servers = []
    for n, room in ((1, 1), (2, 1), (4, 2), (6, 3), (8, 3)):
        size = int(rng.integers(11, 30))
        requests = [
            {
                "id": int(number),
                "prompt": rng.integers(0, size, int(rng.integers(1, 9))).tolist(),
                "n_new": int(rng.integers(1, 7)),
                "comes": 0 if n < 6 else int(rng.integers(0, 4)),
            }
            for number in rng.permutation(50)[:n]
        ]
        requests.sort(key=lambda request: request["comes"])
        server = _server(rng, size, requests, 1000, room)
        server["fails_at"] = {4: 0, 6: int(rng.integers(1, 4))}.get(n)
        servers.append(server)
    return {"servers": servers}


def _server(
    rng: np.random.Generator, size: int, requests: list[dict[str, Any]], budget: int, room: int
) -> dict[str, Any]:
    factor = int(rng.integers(300, 900))
    language = {"size": size, "factor": factor}
    return {**language, "requests": requests, "budget": budget, "room": room, "fails_at": None}


def probe_servers(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run each server until all answers are there, or nothing comes any more."""
    return {"servers": [_run(student, server) for server in challenge["servers"]]}


def _run(student: SimpleNamespace, server: dict[str, Any]) -> Evidence:
    scheduler = student.Scheduler(server["budget"], server["room"])
    other = student.Scheduler(1, 1)  # which has nothing to do, whoever else has
    forward = Watched(Language(server["size"], server["factor"]), server["fails_at"])
    unasked = Watched(Language(server["size"], server["factor"]), None)
    coming = [
        (row["comes"], Request(row["id"], row["prompt"], row["n_new"]))
        for row in server["requests"]
    ]
    requests, said = [request for _, request in coming], []
    wanted = sum(request.n_new for request in requests)
    quiet, step, raised, idle = 0, 0, [], []
    while sum(map(len, said)) < wanted and quiet < 40 and step < MOST_STEPS:
        while coming and coming[0][0] <= step:
            scheduler.add(coming.pop(0)[1])
        if step == 0:
            idle = list(other.step(unasked))
        passes = len(forward.spans)
        try:
            pairs = [[plain(number), plain(token)] for number, token in scheduler.step(forward)]
        except CacheFull:
            raised.append(step)
            pairs = []
        said.append(pairs)
        quiet = 0 if pairs or len(forward.spans) > passes else quiet + 1
        step += 1
    after = len(forward.spans)
    rest = [[plain(number), plain(token)] for number, token in scheduler.step(forward)]
    return {
        "said": said,
        "spans": forward.spans[:after],
        "raised": raised,
        "rest": rest,
        "asked_for_nothing": len(forward.spans) - after + len(unasked.spans) + len(idle),
        "out": [[plain(token) for token in request.out] for request in requests],
        "fed": [plain(request.fed) for request in requests],
    }


def servers_form(challenge: Challenge) -> Evidence:
    pairs = Each([NUMBER_OR_WORDS, NUMBER_OR_WORDS])
    return {
        "servers": [
            {
                "said": Each(pairs),
                "spans": Each(Each([NUMBER_OR_WORDS] * 3)),
                "raised": Each(int),
                "rest": pairs,
                "asked_for_nothing": int,
                "out": [Each(NUMBER_OR_WORDS)] * len(server["requests"]),
                "fed": [NUMBER_OR_WORDS] * len(server["requests"]),
            }
            for server in challenge["servers"]
        ]
    }


def _told(server: dict[str, Any]) -> str:
    rows = ", ".join(
        f"{row['id']} ({len(row['prompt'])} + {row['n_new']}"
        + (f", before pass {row['comes'] + 1}" if row["comes"] else "")
        + ")"
        for row in server["requests"]
    )
    return (
        f"Budget {server['budget']}, max_running {server['room']}, requests (prompt + n_new) {rows}"
    )


@check("Scheduler", draw=draw_traffic, probe=probe_servers, evidence=servers_form)
def every_request_as_if_alone(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Follow each request: what it was fed, what it was told, and where that ended."""
    for server, found in zip(challenge["servers"], evidence["servers"], strict=True):
        told = _told(server)
        language = Language(server["size"], server["factor"])
        for place, row in enumerate(server["requests"]):
            number, P = row["id"], len(row["prompt"])
            alone = language.answer(row["prompt"], row["n_new"])
            got = [token for pairs in found["said"] for i, token in pairs if i == number]
            if wrong := _fed_wrongly(found["spans"], number, P + row["n_new"] - 1):
                return failed(f"{told}. Request {number} {wrong}")
            if got != alone:
                return failed(
                    f"{told}. Alone, request {number} is answered by {alone}; here step() returned "
                    f"{got} for it. Which row of the logits belongs to whom, and after which token?"
                )
            if found["out"][place] != alone:
                return failed(
                    f"{told}. step() returned {alone} for request {number}, and its `out` is "
                    f"{found['out'][place]}. Who writes down what was said?"
                )
    return passed("However they were mixed, each request got the text that it gets alone.")


def _fed_wrongly(spans: list[list[list[Any]]], number: int, n_fed: int) -> str | None:
    """Say where a request was not fed token by token, each once."""
    at = 0
    for step, pieces in enumerate(spans):
        for i, first, n in pieces:
            if i != number:
                continue
            if first != at:
                return (
                    f"was fed {at} tokens; then, in pass {step + 1}, it says that {first} were. When "
                    f"does `fed` move, and by how much?"
                )
            at = first + n
            if at > n_fed:
                return (
                    f"is fed {at} tokens, where {n_fed} are needed: the last one of an answer is never "
                    f"fed. When is it done?"
                )
    if at < n_fed:
        return (
            f"was fed {at} of {n_fed} tokens, and then nothing more came. What is it waiting for?"
        )
    return None


@check("Scheduler", draw=draw_ample, probe=probe_servers, evidence=servers_form)
def leaves_and_joins_at_once(
    challenge: Challenge, evidence: Evidence, truth: Callable[[dict[str, Any]], list[list[int]]]
) -> Verdict:
    """Compare who was in each pass with who has to be: whoever came first, while there is room."""
    for server, found in zip(challenge["servers"], evidence["servers"], strict=True):
        told = _told(server)
        if server["fails_at"] is not None:
            told += f"; pass {server['fails_at'] + 1} raises CacheFull"
        wanted = truth(server)
        for step, want in enumerate(wanted):
            if step >= len(found["spans"]):
                return failed(
                    f"{told}. Pass {step + 1} never came, and {sorted(want)} have tokens to get. What "
                    f"ended it?"
                )
            got = [number for number, _, _ in found["spans"][step]]
            if sorted(map(str, got)) != sorted(map(str, want)):
                failed_before = server["fails_at"] is not None and step > server["fails_at"]
                ask = (
                    "After a pass that failed, what has to be as before?"
                    if failed_before and step == server["fails_at"] + 1
                    else "Who is done after the pass before, and whose turn is it then?"
                )
                return failed(
                    f"{told}. In pass {step + 1} were {sorted(got)}; there should be {sorted(want)}. "
                    f"{ask}"
                )
        if len(found["spans"]) > len(wanted) or found["rest"] or found["asked_for_nothing"]:
            return failed(
                f"{told}. All answers are complete after pass {len(wanted)}, but forward was called "
                f"again. What is fed when there is nothing to do?"
            )
        fed = [len(row["prompt"]) + row["n_new"] - 1 for row in server["requests"]]
        if found["fed"] != fed:
            return failed(
                f"{told}. At the end `fed` is {found['fed']}, and {fed} tokens went through the model. "
                f"When does it move?"
            )
        if server["fails_at"] is not None and not found["raised"]:
            return failed(f"{told}: the error did not reach the caller. Who has to know of it?")
        if missing := [
            row["id"]
            for row in server["requests"]
            if row["n_new"] != sum(i == row["id"] for pairs in found["said"] for i, _ in pairs)
        ]:
            return failed(
                f"{told}. step() did not return one pair for each token of {missing}. What does it "
                f"return, and when?"
            )
        for row, out in zip(server["requests"], found["out"], strict=True):
            heard = [token for pairs in found["said"] for i, token in pairs if i == row["id"]]
            if out != heard:
                return failed(
                    f"{told}. step() returned {heard} for request {row['id']}, and its `out` is {out}. "
                    f"Who writes down what was said?"
                )
    return passed("Who is done leaves at once, and the next one has the place in the next pass.")
