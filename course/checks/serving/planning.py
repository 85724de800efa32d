"""Check plans of one pass: each property of a plan can be seen in the plan itself."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import (
    Challenge,
    Check,
    Each,
    Evidence,
    Verdict,
    complete,
    failed,
    passed,
)
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.serving.request import Request

STATES = 60
Row = tuple[int, int, int, int, int]
"""Of a request: id, tokens of the prompt, n_new, tokens written, tokens fed."""


def draw_states(seed: int) -> Challenge:
    """Draw states of a server, small ones first: some requests decode, some wait, and of some the
    prompt is under way."""
    rng = np.random.default_rng(seed)
    states = [
        _state(rng, decodes, under_way, waiting, int(budget), spare)
        for decodes, under_way, waiting, budget, spare in (
            (0, 0, 1, 20, 1),
            (1, 0, 0, 1, 1),
            (2, 0, 1, 40, 1),
            (3, 0, 1, 2, 1),
            (2, 2, 2, 60, 2),
            (1, 2, 2, 4, 2),
            (0, 1, 3, 40, 0),
            (4, 0, 0, 1, 2),
        )
    ]
    # Long prompts before short ones, waiting and under way; and ids that fall.
    ids = sorted(rng.permutation(90)[:3].tolist(), reverse=True)
    lengths = (int(rng.integers(20, 30)), int(rng.integers(2, 5)), int(rng.integers(6, 10)))
    fresh = [(i, P, 3, 0, 0) for i, P in zip(ids, lengths, strict=True)]
    begun = [(i, P + 2, 3, 0, 2) for i, P in zip(ids, lengths, strict=True)]
    states.append({"running": [], "waiting": fresh, "budget": 11, "max_running": 3})
    states.append({"running": begun, "waiting": [], "budget": 11, "max_running": 3})
    states.append({"running": begun[:1], "waiting": fresh[1:], "budget": 11, "max_running": 2})
    while len(states) < STATES:
        many = rng.integers(0, 5), rng.integers(0, 4), rng.integers(0, 5)
        budget = int(rng.choice([1, 2, 3, 5, 8, 13, 24, 48, 100]))
        states.append(_state(rng, *map(int, many), budget, int(rng.integers(0, 4))))
    return {"states": states}


def _state(
    rng: np.random.Generator, decodes: int, under_way: int, waiting: int, budget: int, spare: int
) -> dict[str, Any]:
    """Draw one state. The oldest come first; ids say nothing about age."""
    ids = iter(rng.permutation(90)[: decodes + under_way + waiting].tolist())
    running: list[Row] = []
    for kind in rng.permutation([True] * decodes + [False] * under_way):
        P, n_new = int(rng.integers(3, 30)), int(rng.integers(2, 9))
        if kind:
            out = int(rng.integers(1, n_new))
            running.append((next(ids), P, n_new, out, P + out - 1))
        else:
            running.append((next(ids), P, n_new, 0, int(rng.integers(1, P))))
    queue = [(i, int(rng.integers(1, 30)), int(rng.integers(1, 9)), 0, 0) for i in ids]
    room = max(1, len(running) + spare)
    return {"running": running, "waiting": queue, "budget": budget, "max_running": room}


def _request(row: Row) -> Request:
    number, P, n_new, out, fed = row
    return Request(number, list(range(P)), n_new, fed=fed, out=list(range(out)))


def probe_plans(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Ask for a plan in each state, and look whether the requests and lists stayed what they were."""
    plans = []
    for state in challenge["states"]:
        running, waiting = (
            [_request(row) for row in state[kind]] for kind in ("running", "waiting")
        )
        given = [*running], [*waiting]
        plan = student.plan_step(running, waiting, state["budget"], state["max_running"])
        now = [(r.id, len(r.prompt), r.n_new, len(r.out), r.fed) for lists in given for r in lists]
        kept = (running, waiting) == given and now == [*state["running"], *state["waiting"]]
        pieces = [_piece(piece) for piece in plan] if isinstance(plan, list | tuple) else "no list"
        counts = [n for _, n in pieces if isinstance(n, int)] if pieces != "no list" else []
        plans.append({"pieces": pieces, "count": len(pieces), "tokens": sum(counts), "kept": kept})
    return {"plans": plans}


def _piece(piece: Any) -> list[Any]:
    """The id and the number of tokens of a piece; words where it is no pair."""
    try:
        request, n = piece
        return [plain(request.id), plain(n)]
    except Exception:
        return [str(type(piece).__name__), 0]


def plans_form(challenge: Challenge) -> Evidence:
    pieces = (str, list)
    plan = {"pieces": pieces, "count": int, "tokens": int, "kept": bool}
    return {"plans": [plan] * len(challenge["states"])}


PIECES = Each([NUMBER_OR_WORDS, NUMBER_OR_WORDS])


def told(state: dict[str, Any]) -> str:
    """A state in words."""
    running = ", ".join(
        f"{i} decodes" if fed >= P else f"{i} has {fed} of {P} fed"
        for i, P, _, _, fed in state["running"]
    )
    waiting = ", ".join(f"{i} ({P})" for i, P, *_ in state["waiting"])
    return (
        f"Running: {running or 'none'}; waiting (tokens of the prompt): {waiting or 'none'}; budget "
        f"{state['budget']}, max_running {state['max_running']}"
    )


Planned = dict[int, int]
"""Tokens of each request in a plan, by its id."""


def judged(
    rule: Callable[[dict[str, Any], Planned, list[list[Any]]], str | None], praise: str
) -> Callable[[Challenge, Evidence], Verdict]:
    """A verdict that looks at all plans by one rule; it gives None, or what is wrong and a question."""

    def verdict(challenge: Challenge, evidence: Evidence) -> Verdict:
        for state, plan in zip(challenge["states"], evidence["plans"], strict=True):
            pieces = plan["pieces"]
            if not complete(pieces, PIECES) or any(isinstance(x, str) for p in pieces for x in p):
                return failed(
                    f"{told(state)}: a plan is a list of pairs (request, number of tokens). What do "
                    f"you return?"
                )
            if (plan["count"], plan["tokens"]) != (len(pieces), sum(n for _, n in pieces)):
                return failed("A part of the plan did not come back.")
            planned: Planned = {}
            for number, n in pieces:
                planned[number] = planned.get(number, 0) + n
            if wrong := rule(state, planned, pieces):
                plan_told = ", ".join(f"{number}: {n}" for number, n in pieces) or "nothing"
                return failed(f"{told(state)}. Your plan: {plan_told}. {wrong}")
            if not plan["kept"]:
                return failed(
                    f"{told(state)}: the plan is right, but a list or a request was changed on the "
                    f"way. A plan is only a plan: who carries it out?"
                )
        if not any(plan["pieces"] for plan in evidence["plans"]):
            return failed(
                f"{told(challenge['states'][0])}: the plan is empty. Who could be served?"
            )
        return passed(praise)

    return verdict


def left_of(row: Row) -> int:
    """Tokens that are known and not fed."""
    return row[1] + row[3] - row[4]


def decoding(state: dict[str, Any]) -> list[Row]:
    return [row for row in state["running"] if row[4] >= row[1]]


def rule_within(state: dict[str, Any], planned: Planned, pieces: list[list[Any]]) -> str | None:
    rows = {row[0]: row for row in (*state["running"], *state["waiting"])}
    for number, n in pieces:
        if number not in rows:
            return f"Request {number} is neither running nor waiting. Where does it come from?"
        if n < 1:
            return f"Request {number} gets {n} tokens. What is such a piece for?"
    if len({number for number, _ in pieces}) < len(pieces):
        return "One request stands there twice. How often may it be in one pass?"
    for number, n in pieces:
        if n > left_of(rows[number]):
            return (
                f"Request {number} has {left_of(rows[number])} tokens that are known and not fed, and "
                f"gets {n}. Which tokens would these be?"
            )
    if sum(planned.values()) > state["budget"]:
        return f"That is {sum(planned.values())} tokens. Which of them does the budget not count?"
    new = [row for row in state["waiting"] if row[0] in planned]
    if len(state["running"]) + len(new) > state["max_running"]:
        return (
            f"{len(state['running'])} run and {len(new)} are admitted. How many may run after this "
            f"pass?"
        )
    return None


def rule_decodes(state: dict[str, Any], planned: Planned, pieces: list[list[Any]]) -> str | None:
    rows = decoding(state)
    for row in rows[: state["budget"]]:
        if planned.get(row[0], 0) < 1:
            others = [r[0] for r in rows if r[0] in planned and r is not row]
            return (
                f"Request {row[0]} decodes and gets no token of a budget of {state['budget']}"
                f"{f', while {others} do' if others else ''}. Who stands first, and in which order?"
            )
    return None


def rule_overtakes(state: dict[str, Any], planned: Planned, pieces: list[list[Any]]) -> str | None:
    line = [row for row in state["running"] if row[4] < row[1]] + list(state["waiting"])
    for before, row in enumerate(line):
        if planned.get(row[0], 0) < 1:
            continue
        for other in line[:before]:
            if planned.get(other[0], 0) < left_of(other):
                return (
                    f"Request {other[0]} came before {row[0]}, has {left_of(other)} tokens of its "
                    f"prompt to feed and gets {planned.get(other[0], 0)}, while {row[0]} gets "
                    f"{planned[row[0]]}. Whose turn is it?"
                )
    return None


def rule_idle(state: dict[str, Any], planned: Planned, pieces: list[list[Any]]) -> str | None:
    room = max(0, state["max_running"] - len(state["running"]))
    work = sum(map(left_of, [*state["running"], *state["waiting"][:room]]))
    wanted, got = min(state["budget"], work), sum(planned.values())
    if got < wanted:
        return (
            f"{got} tokens, while {work} could be fed and the budget is {state['budget']}. Who could "
            f"take the {wanted - got} that are left?"
        )
    return None


def _check(name: str, rule: Any, praise: str) -> Check:
    return Check(
        name, ("plan_step",), draw_states, probe_plans, judged(rule, praise), evidence=plans_form
    )


within_budget_and_room = _check(
    "within_budget_and_room",
    rule_within,
    f"{STATES} plans: none beyond the budget, the room, or what there is to feed.",
)
decodes_come_first = _check(
    "decodes_come_first", rule_decodes, "Whoever decodes gets its token, the oldest first."
)
nobody_overtakes = _check(
    "nobody_overtakes", rule_overtakes, "Prompts are fed in the order in which they came."
)
nothing_is_left_idle = _check(
    "nothing_is_left_idle", rule_idle, "What the budget allows is used while there is work."
)
