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
from course.checks.comparing import outcome, outcome_in_words
from course.checks.counts import NUMBER_OR_WORDS, in_words, plain
from course.model.cache import CacheFull
from course.serving.request import Piece, Request

MOST_STEPS = 400
"""Passes after which a scheduler that never ends is stopped."""
ERRORS = {"CacheFull": CacheFull, "OSError": OSError}
"""What a forward pass raises here, by name."""


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
        """(V,), highest at the word that follows: all below 0, and so close that 16 bits lose it."""
        row = -20 - 0.01 * torch.arange(self.size, dtype=torch.float32).remainder(5)
        row[self.next(text)] = -19.999
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
        fails_at: number of the pass that raises, once; None: none does.
        error: what it raises.
    """

    def __init__(
        self, language: Language, fails_at: int | None = None, error: str = "CacheFull"
    ) -> None:
        self.language, self.fails_at, self.error = language, fails_at, error
        self.spans: list[list[list[Any]]] = []
        self.fed: dict[int, list[int]] = {}

    def __call__(self, pieces: list[Piece]) -> Tensor:
        pieces = list(pieces)
        self.spans.append([[plain(r.id), plain(r.fed), plain(n)] for r, n in pieces])
        if len(self.spans) - 1 == self.fails_at:
            raise ERRORS[self.error]("all slots are taken")
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
        server = draw_server(rng, n, longest=13, latest=6 if n > 2 else 0)
        budget, room = int(rng.choice([1, 2, 3, 5, 9, 40])), int(rng.integers(1, 5))
        servers.append(server | {"budget": budget if n > 1 else 3, "room": room})
    return {"servers": [*servers, draw_two_that_end(rng), draw_two(rng)]}


def draw_two_that_end(rng: np.random.Generator) -> dict[str, Any]:
    """Draw a server on which the first two requests end in the same pass, while the third goes on."""
    server = draw_server(rng, 3, longest=13, latest=0)
    for row, n_new in zip(server["requests"], (2, 2, 4), strict=True):
        row["n_new"] = n_new
    return server | {"budget": 40, "room": 3}


def draw_two(rng: np.random.Generator) -> dict[str, Any]:
    """Draw a server that has to mix: both prompts are longer than the budget, and the first request
    decodes while the second one is fed."""
    server = draw_server(rng, 2, longest=13, latest=0)
    for row in server["requests"]:
        row["n_new"] = int(rng.integers(2, 7))
        row["prompt"] = rng.integers(0, server["size"], int(rng.integers(4, 14))).tolist()
    return server | {"budget": 3, "room": 2}


def draw_ample(seed: int) -> Challenge:
    """Draw servers whose budget is never short: each running request gets a token in each pass."""
    rng = np.random.default_rng(seed)
    servers = []
    for n, room in ((1, 1), (2, 1), (4, 2), (6, 3), (8, 3)):
        server = draw_server(rng, n, longest=8, latest=3 if n > 5 else 0)
        fails_at = {4: 0, 6: int(rng.integers(1, 4)), 8: 0}.get(n)
        error = "OSError" if n == 8 else "CacheFull"
        limits = {"budget": 1000, "room": room}
        servers.append(server | limits | {"fails_at": fails_at, "error": error})
    return {"servers": servers}


def draw_server(rng: np.random.Generator, n: int, longest: int, latest: int) -> dict[str, Any]:
    """Draw a language and n requests in it, in the order in which they come."""
    size, factor = int(rng.integers(11, 30)), int(rng.integers(300, 900))
    requests = [
        {
            "id": int(number),
            "prompt": rng.integers(0, size, int(rng.integers(1, longest + 1))).tolist(),
            "n_new": int(rng.integers(1, 7)),
            "comes": int(rng.integers(0, latest + 1)),
        }
        for number in rng.permutation(50)[:n]
    ]
    requests.sort(key=lambda request: request["comes"])
    about = {"size": size, "factor": factor, "requests": requests}
    return about | {"fails_at": None, "error": "CacheFull"}


def probe_servers(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run each server until all answers are there, or nothing comes any more."""
    return {"servers": [_run(student, server) for server in challenge["servers"]]}


def _run(student: SimpleNamespace, server: dict[str, Any]) -> Evidence:
    scheduler = student.Scheduler(server["budget"], server["room"])
    other = student.Scheduler(1, 1)  # which has nothing to do, whoever else has
    language = Language(server["size"], server["factor"])
    forward, unasked = Watched(language, server["fails_at"], server["error"]), Watched(language)
    comes = [row["comes"] for row in server["requests"]]
    requests = [Request(row["id"], list(row["prompt"]), row["n_new"]) for row in server["requests"]]
    expected = sum(request.n_new for request in requests)
    quiet, step, idle = 0, 0, 0
    results, returned, steps, raised, moved = [], [], [], [], []
    while sum(map(len, returned)) < expected and quiet < 40 and step < MOST_STEPS:
        for request, first in zip(requests, comes, strict=True):
            if first == step:
                scheduler.add(request)
        if step == 0:
            idle = len(_pairs(other.step(unasked)))
        passes, queues = len(forward.spans), _queues(scheduler)
        try:
            results.append(scheduler.step(forward))
            returned.append(_pairs(results[-1]))
        except Exception as error:
            if len(forward.spans) - 1 != server["fails_at"] or forward.spans[passes:] == []:
                raise
            raised.append(type(error).__name__)
            moved += [[*queues, *_queues(scheduler)]] * (queues != _queues(scheduler))
            returned.append([])
        made = len(forward.spans) - passes
        steps += [step] * made
        quiet = 0 if returned[-1] or made else quiet + 1
        step += 1
    after, left = len(forward.spans), sum(_queues(scheduler))
    rest = _pairs(scheduler.step(forward))
    again = outcome(lambda: scheduler.add(Request(requests[0].id, [1], 1)))
    return {
        "returned": returned,
        "spans": forward.spans[:after],
        "steps": steps,
        "most_passes_of_a_step": max(map(steps.count, steps), default=0),
        "raised": raised,
        "moved": moved,
        "left": left,
        "rest": rest,
        "again": again,
        "asked_for_nothing": len(forward.spans) - after + len(unasked.spans) + idle,
        "kind": _kind_of(results),
        "unasked": [number for span in unasked.spans for number, _, _ in span],
        "refused": _refusals(student),
        "prompts_kept": all(map(_has_its_prompt, requests, server["requests"])),
        "out": [[plain(token) for token in request.out] for request in requests],
        "fed": [plain(request.fed) for request in requests],
    }


def _kind_of(results: list[Any]) -> str:
    """What step() returned in the place of a new list, in words; "" where it gave one each time."""
    for number, result in enumerate(results):
        if not isinstance(result, list | tuple):
            return in_words(result)
        if isinstance(result, list) and any(result is earlier for earlier in results[:number]):
            return "the very list of an earlier step"
    return ""


def _queues(scheduler: Any) -> tuple[int, int]:
    """Count who is running and who is waiting, where a scheduler keeps its requests as it was given."""
    return len(getattr(scheduler, "running", ())), len(getattr(scheduler, "waiting", ()))


def _pairs(returned: Any) -> list[list[Any]]:
    """The pairs that step() returned, of whatever it gave in the place of a list."""
    try:
        return [[plain(number), plain(token)] for number, token in returned]
    except (TypeError, ValueError):
        return []


def _has_its_prompt(request: Request, row: dict[str, Any]) -> bool:
    return list(request.prompt) == row["prompt"]


def _refusals(student: SimpleNamespace) -> list[str]:
    """What comes of adding requests whose ids run and wait already, and one that has begun."""
    scheduler = student.Scheduler(1, 1)
    scheduler.add(Request(3, [1, 1], 2))
    outcome(lambda: scheduler.step(lambda pieces: torch.zeros(len(pieces), 2)))
    scheduler.add(Request(5, [1], 1))
    outcomes = []
    for request in (Request(3, [2], 1), Request(5, [2], 1), Request(4, [1, 2], 1, fed=1)):
        before = _queues(scheduler)
        ending = outcome(lambda request=request: scheduler.add(request))
        outcomes.append(ending if _queues(scheduler) == before else "ValueError too late")
    return outcomes


def servers_form(challenge: Challenge) -> Evidence:
    pairs = Each([NUMBER_OR_WORDS, NUMBER_OR_WORDS])
    form = {
        "returned": Each(pairs),
        "spans": Each(Each([NUMBER_OR_WORDS] * 3)),
        "steps": Each(int),
        "most_passes_of_a_step": int,
        "raised": Each(str),
        "kind": str,
        "unasked": Each(NUMBER_OR_WORDS),
        "refused": [str] * len(REFUSED),
        "prompts_kept": bool,
        "moved": Each([int] * 4),
        "left": int,
        "rest": pairs,
        "again": str,
        "asked_for_nothing": int,
    }
    return {
        "servers": [
            {
                **form,
                "out": [Each(NUMBER_OR_WORDS)] * len(server["requests"]),
                "fed": [NUMBER_OR_WORDS] * len(server["requests"]),
            }
            for server in challenge["servers"]
        ]
    }


def describe_server(server: dict[str, Any]) -> str:
    """Write down the limits of a server, and its requests."""
    rows = ", ".join(
        f"{row['id']} ({len(row['prompt'])} + {row['n_new']}"
        + (f", before step {row['comes'] + 1}" if row["comes"] else "")
        + ")"
        for row in server["requests"]
    )
    fails = server["fails_at"]
    return (
        f"Budget {server['budget']}, max_running {server['room']}, requests (prompt + n_new) {rows}"
        + ("" if fails is None else f"; pass {fails + 1} raises {server['error']}")
    )


def returned_for(result: Evidence, request: dict[str, Any]) -> list[Any]:
    """List the tokens that step() returned for a request."""
    return [token for pairs in result["returned"] for i, token in pairs if i == request["id"]]


def wrong_out(server: dict[str, Any], result: Evidence) -> str | None:
    """Say where `out` of a request is not what step() returned."""
    for request, out in zip(server["requests"], result["out"], strict=True):
        if out != (returned := returned_for(result, request)):
            who = f"step() returned {returned} for request {request['id']}, and"
            if len(out) > request["n_new"] and out[: len(returned)] == returned:
                return (
                    f"{who} that is all; after one more step() its `out` is {out}. When is a request "
                    f"done, and in which pass does it leave?"
                )
            return f"{who} its `out` is {out}. Who writes down what was said?"
    return None


@check("Scheduler", draw=draw_traffic, probe=probe_servers, evidence=servers_form)
def every_request_as_if_alone(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Follow each request: what it was fed, what it was told, and where that ended."""
    for server, result in zip(challenge["servers"], evidence["servers"], strict=True):
        for wrong_of in (_wrong_step, _wrong_answers, wrong_out, _not_planned):
            if wrong := wrong_of(server, result):
                return failed(f"{describe_server(server)}. {wrong}")
    if wrong := _not_mixed(server, result):  # the last one, see draw_two
        return failed(f"{describe_server(server)}. Each text is right, but {wrong}")
    return passed("However they were mixed, each request got the text that it gets alone.")


def _wrong_step(server: dict[str, Any], result: Evidence) -> str | None:
    """Say what is wrong with a step() or an add(), whatever the texts."""
    if wrong := _shared(result):
        return wrong
    if (most := result["most_passes_of_a_step"]) > 1:
        return f"One step() called forward {most} times. How many passes is a step?"
    if result["kind"]:
        return f"step() returned {result['kind']}; expected is a list of pairs. What do you return?"
    for outcome_of_it, what in zip(result["refused"], REFUSED, strict=True):
        if outcome_of_it != "ValueError":
            return (
                f"add() of a request {what} came to {outcome_in_words(outcome_of_it)}; right is a "
                f"ValueError, before it is in a list. Who looks at those that are here, and when?"
            )
    return None


REFUSED = ("whose id runs already", "whose id waits already", "that has begun")
"""Requests that `_refusals` adds."""


def _shared(result: Evidence) -> str | None:
    if not result["unasked"]:
        return None
    return (
        f"A second Scheduler, to which nothing was added, fed request {result['unasked'][0]}. What do "
        f"two of them share?"
    )


def _wrong_answers(server: dict[str, Any], result: Evidence) -> str | None:
    language = Language(server["size"], server["factor"])
    for request, out in zip(server["requests"], result["out"], strict=True):
        if wrong := _wrong_answer(language, request, out, result):
            return wrong
    return None


def _not_planned(server: dict[str, Any], result: Evidence) -> str | None:
    """Say which pass no plan would make: beyond the budget, or prompts while one that decodes waits."""
    if not result["prompts_kept"]:
        return (
            "Each text is right, but a prompt was changed. Which attributes of a request move on?"
        )
    fed = {row["id"]: 0 for row in server["requests"]}
    for step, span in enumerate(result["spans"], 1):
        total = sum(n for number, _, n in span if number in fed)
        if total > server["budget"]:
            return (
                f"Each text is right, but pass {step} has {total} tokens. Does within_budget_and_room "
                f"pass? If so, whose plan is carried out?"
            )
        present = {number for number, _, _ in span}
        for row in server["requests"]:
            number, P = row["id"], len(row["prompt"])
            decodes = P <= fed[number] < P + row["n_new"] - 1
            others = [other["id"] for other in server["requests"]
                      if other["id"] in present and fed[other["id"]] < len(other["prompt"])]  # fmt: skip
            if decodes and number not in present and others:
                return (
                    f"Each text is right, but in pass {step} request {number} decodes and gets nothing, "
                    f"while {others} get tokens of their prompts. Does decodes_come_first pass? If so, "
                    f"whose plan is carried out?"
                )
        for number, _, n in span:
            fed[number] = fed.get(number, 0) + n
    return None


def _not_mixed(server: dict[str, Any], result: Evidence) -> str | None:
    """Say that nothing was mixed: no two requests in one pass, or no prompt in pieces."""
    pieces = [number for span in result["spans"] for number, _, _ in span]
    if all(len(span) < 2 for span in result["spans"]):
        return (
            "no pass has two requests, so each was alone. Who could be fed beside a request that "
            "decodes?"
        )
    if all(pieces.count(row["id"]) <= row["n_new"] for row in server["requests"]):
        return "each prompt was fed in one piece. What is the budget for?"
    return None


def _wrong_answer(
    language: Language, request: dict[str, Any], out: list[Any], result: Evidence
) -> str | None:
    """Say where a request was not fed token by token, each once, or not answered as alone."""
    number, n_fed, at = request["id"], len(request["prompt"]) + request["n_new"] - 1, 0
    pieces = [(step, *piece[1:]) for step, pieces in enumerate(result["spans"], 1)
              for piece in pieces if piece[0] == number]  # fmt: skip
    steps = [step for step, _, _ in pieces]
    for step, first, n in pieces:
        if first != at and steps.count(step) > 1:
            return (
                f"Request {number} is in pass {step} twice. In which of your lists does it stand?"
            )
        if first != at:
            return (
                f"Request {number} was fed {at} tokens; then, in pass {step}, it says that {first} "
                f"were. When does `fed` move, and by how much?"
            )
        at = first + n
        if at > n_fed:
            return (
                f"Request {number} is fed {at} tokens, where {n_fed} are needed: the last one of an "
                f"answer is never fed. Had all left that were done after the pass before?"
            )
    returned = returned_for(result, request)
    if at < n_fed:
        question = (
            "Do the checks of plan_step pass? If so, in which of your lists does it stand now?"
        )
        if len(returned) >= request["n_new"]:
            question = (
                f"By then step() had returned {len(returned)} of {request['n_new']} tokens "
                "for it. After which pieces does a token come, and how many at a time?"
            )
        return (
            f"Request {number} was fed {at} of {n_fed} tokens and got {returned}; then nothing more "
            f"came. {question}"
        )
    alone = language.answer(request["prompt"], request["n_new"])
    if returned == alone:
        return None
    question = "Which row of the logits belongs to whom, and after which token?"
    if not all(type(token) is int for token in returned):
        question = "Each token comes back as a plain int. Where does yours become one?"
    elif out == alone:
        question = "Its `out` is right. Which pairs does step() return?"
    elif len(returned) < len(alone) and all(token in alone for token in returned):
        question = "Which tokens are missing, and what have these in common?"
    return (
        f"Alone, request {number} is answered by {alone}; here step() returned {returned} for it. "
        f"{question}"
    )


ENDED = "What ended it, or does step() return a token more than once?"
"""The check asks for no more steps once as many tokens have come as there are in all answers."""


@check("Scheduler", draw=draw_ample, probe=probe_servers, evidence=servers_form)
def leaves_and_joins_at_once(
    challenge: Challenge, evidence: Evidence, truth: Callable[[dict[str, Any]], list[list[int]]]
) -> Verdict:
    """Compare who was in each pass with who has to be: whoever came first, while there is room."""
    for server, result in zip(challenge["servers"], evidence["servers"], strict=True):
        if wrong := _wrong_passes(server, result, truth(server)) or wrong_out(server, result):
            return failed(f"{describe_server(server)}. {wrong}")
    return passed("Who is done leaves at once, and the next one has the place in the next pass.")


def _wrong_passes(server: dict[str, Any], result: Evidence, passes: list[list[int]]) -> str | None:
    """Say what is wrong with who was in which pass, and with what is left behind."""
    fails, spans = server["fails_at"], result["spans"]
    if wrong := _shared(result):
        return wrong
    for step, expected in enumerate(passes):
        if step >= len(spans):
            left = sorted(expected)
            return f"Pass {step + 1} never came, and {left} have tokens to get. {ENDED}"
        present = [number for number, _, _ in spans[step]]
        if sorted(map(str, present)) != sorted(map(str, expected)):
            question = "Who is done by then, how many may run, and whose turn is it?"
            if len(present) > server["room"]:
                question = "That is more than max_running. Does within_budget_and_room pass?"
            if fails is not None and step == fails + 1:
                question = "After a pass that failed, what has to be as before?"
            return (
                f"In pass {step + 1}, made by step {result['steps'][step] + 1}, were {sorted(present)}; "
                f"there should be {sorted(expected)}. {question}"
            )
    fed = [len(request["prompt"]) + request["n_new"] - 1 for request in server["requests"]]
    if len(spans) > len(passes) or result["rest"] or result["asked_for_nothing"]:
        question = "What is fed when there is nothing to do?"
        if result["fed"] != fed:
            question = "When is a request done, and is the last token of its answer ever fed?"
        if len(spans) > len(passes):
            question = f"How many tokens does each pass feed? {question}"
        again = "forward was called again"
        if len(spans) == len(passes) and not result["asked_for_nothing"]:
            again = f"one more step() returned {result['rest']}"
        return f"All answers can be complete after pass {len(passes)}, but {again}. {question}"
    if result["fed"] != fed:
        return (
            f"At the end `fed` is {result['fed']}, and {fed} tokens went through the model. When does "
            f"it move?"
        )
    if fails is not None and not result["raised"]:
        return "The error did not reach the caller. Who has to know of it?"
    for error in result["raised"]:
        if error != server["error"]:
            return (
                f"forward raised {server['error']}, and the caller got {error}. Whose error is it?"
            )
    for running, waiting, now_running, now_waiting in result["moved"]:
        return (
            f"A pass failed. Before it {running} were running and {waiting} waiting, and after it "
            f"{now_running} and {now_waiting}. When do you know that a pass has been carried out?"
        )
    requests = server["requests"]
    missing = [row["id"] for row in requests if len(returned_for(result, row)) != row["n_new"]]
    if missing:
        return (
            f"step() did not return one pair for each token of {missing}. What does it return, and "
            f"when?"
        )
    if result["left"]:
        return (
            f"All answers are complete, and {result['left']} request(s) are still in the lists. When "
            f"does a request leave?"
        )
    if result["again"] != "returned":
        return (
            f"Request {requests[0]['id']} has left. Then another one with its id is added: "
            f"{result['again']}. With which ids must a new one not be mixed up?"
        )
    return None
