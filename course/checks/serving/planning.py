"""Check plans of one pass: each property of a plan can be seen in the plan itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from course.checks.calls import Case, call, drawn, one_result_each, probe_calls
from course.checks.check import Challenge, Check, Each, Evidence, Verdict, complete, failed, passed
from course.checks.counts import plain
from course.serving.request import Request

STATES = 60
KEEPS_THE_HOUSE_RULES = "within_budget_and_room"
"""The one check of four that asks whether lists and requests stay as they were: one side effect costs one
point."""
Row = tuple[int, int, int, int, int]
"""Of a request: id, tokens of the prompt, n_new, tokens written, tokens fed."""


@drawn
def draw_states(rng: np.random.Generator) -> Iterator[Case]:
    """Draw states of a server, small ones first: some requests decode, some wait, and of some the
    prompt is under way. In one, more run than may, as after an operator lowered the limit."""
    for sizes in (
        (0, 0, 1, 20, 1),
        (1, 0, 0, 1, 1),
        (2, 0, 1, 40, 1),
        (3, 0, 1, 2, 1),
        (2, 2, 2, 60, 2),
        (1, 2, 2, 4, 2),
        (0, 1, 3, 40, 0),
        (4, 0, 0, 1, 2),
        (3, 0, 2, 40, -1),
    ):
        yield _state(rng, *sizes)
    # Long prompts before short ones, waiting and under way; and ids that fall.
    ids = sorted(rng.permutation(90)[:3].tolist(), reverse=True)
    lengths = (int(rng.integers(20, 30)), int(rng.integers(2, 5)), int(rng.integers(6, 10)))
    fresh = [(i, P, 3, 0, 0) for i, P in zip(ids, lengths, strict=True)]
    begun = [(i, P + 2, 3, 0, 2) for i, P in zip(ids, lengths, strict=True)]
    yield call("plan_step", [], fresh, 11, 3)
    yield call("plan_step", begun, [], 11, 3)
    yield call("plan_step", begun[:1], fresh[1:], 11, 2)
    for _ in range(STATES - 13):
        many = rng.integers(0, 5), rng.integers(0, 4), rng.integers(0, 5)
        budget = int(rng.choice([1, 2, 3, 5, 8, 13, 24, 48, 100]))
        yield _state(rng, *map(int, many), budget, int(rng.integers(0, 4)))
    yield call("plan_step", [], [(7, 3000, 2, 0, 0)], 4000, 2)  # as much as the budget allows


def _state(
    rng: np.random.Generator, decodes: int, under_way: int, waiting: int, budget: int, spare: int
) -> Case:
    """Draw one state. The oldest come first; ids say nothing about age."""
    ids = iter(rng.permutation(90)[: decodes + under_way + waiting].tolist())
    running: list[Row] = []
    for kind in rng.permutation([True] * decodes + [False] * under_way):
        P, n_new = int(rng.integers(3, 30)), int(rng.integers(2, 9))
        out = int(rng.integers(1, n_new)) if kind else 0
        fed = P + out - 1 if kind else int(rng.integers(1, P))
        running.append((next(ids), P, n_new, out, fed))
    queue = [(i, int(rng.integers(1, 30)), int(rng.integers(1, 9)), 0, 0) for i in ids]
    return call("plan_step", running, queue, budget, max(1, len(running) + spare))


def _requests(rows: list[Row]) -> list[Request]:
    """The requests of a state; whoever has begun came before those that have not."""
    return [
        Request(number, list(range(P)), n_new, place - 1000.0 * (fed > 0), fed, list(range(out)))
        for place, (number, P, n_new, out, fed) in enumerate(rows)
    ]


def run_plan(plan_step: Callable[..., Any], case: Case, watched: bool = True) -> list[Any]:
    """Ask for a plan; give its pieces, how many they are and of how many tokens, and whether the
    requests and lists stayed what they were (1 or 0)."""
    plan_step = plan_step if watched else inspect.unwrap(plan_step)
    *rows, budget, max_running = case["arguments"]
    running, waiting = map(_requests, rows)
    before = [*running], [*waiting]
    plan = plan_step(running, waiting, budget, max_running)
    pieces = [_piece(piece) for piece in plan] if isinstance(plan, list | tuple) else []
    tokens = sum(n for _, n in pieces if isinstance(n, int))
    now = [(r.id, len(r.prompt), r.n_new, len(r.out), r.fed) for r in chain(*before)]
    kept = (running, waiting) == before and now == [*map(tuple, chain(*rows))]
    return [pieces if isinstance(plan, list | tuple) else None, len(pieces), tokens, int(kept)]


def _piece(piece: Any) -> list[Any]:
    """The id and the number of tokens of a piece; words where it is no pair."""
    try:
        request, n = piece
        return [plain(request.id), plain(n)]
    except Exception:
        return [str(type(piece).__name__), 0]


PLAN = [Each([(int, float), (int, float)]), int, int, int]
"""The form of what `run_plan` gives, where the plan is one."""


class State(NamedTuple):
    """What a plan is made for."""

    running: list[Request]
    waiting: list[Request]
    budget: int
    max_running: int

    def work(self, first: Sequence[int] = ()) -> int:
        """Count the tokens that could be fed if the budget were large.

        Args:
            first: ids of those that are let in before others that wait.
        """
        room = max(0, self.max_running - len(self.running))
        waiting = sorted(self.waiting, key=lambda request: request.id not in first)
        return sum(request.left for request in [*self.running, *waiting[:room]])

    def is_mixed_and_scarce(self) -> bool:
        """Whether some that run decode, of others the prompt is under way, and not all can be fed."""
        return len({one.decodes for one in self.running}) == 2 and self.budget < self.work()

    def __str__(self) -> str:
        running = ", ".join(
            f"{r.id} decodes" if r.decodes else f"{r.id} has {r.fed} of {len(r.prompt)} fed"
            for r in self.running
        )
        waiting = ", ".join(f"{r.id} ({len(r.prompt)})" for r in self.waiting)
        return (
            f"Running: {running or 'none'}; waiting (tokens of the prompt): {waiting or 'none'}; budget "
            f"{self.budget}, max_running {self.max_running}"
        )


Pieces = list[tuple[int, int]]
"""Of a plan: ids, and tokens."""
Shows = Callable[[State, Pieces], bool]
"""Whether a rule can be seen in the plan for a state."""


def check_plans(
    praise: str,
    shows: Shows = lambda state, pieces: len(pieces) > 0,
    question: str = "Who could be served?",
) -> Callable[[Callable[[State, Pieces], str | None]], Check]:
    """Make a check of a rule that every plan keeps; the check gets the rule's name. The rule gives None,
    or what is wrong and a question.

    Args:
        shows: whether the rule can be seen in a plan: a plan in which hardly anybody takes part breaks
            no rule. One of the plans at least must show it.
        question: about one of the states, where none does: one in which a request decodes, the prompt of
            another is under way, and the budget is too small for both.
    """

    def made(rule: Callable[[State, Pieces], str | None]) -> Check:
        def verdict(challenge: Challenge, evidence: Evidence) -> Verdict:
            plans: list[tuple[State, Pieces]] = []
            for case, result in zip(challenge["cases"], evidence["results"], strict=True):
                *rows, budget, max_running = case["arguments"]
                state = State(*map(_requests, rows), budget, max_running)
                if wrong := _wrong_plan(rule, state, result["value"]):
                    return failed(f"{state}{wrong}")
                plans.append((state, result["value"][0]))
            if any(shows(*plan) for plan in plans):
                return passed(praise)
            scarce = [plan for plan in plans if plan[0].is_mixed_and_scarce()]
            state, pieces = min(scarce, key=lambda plan: len(f"{plan[0]}"))
            return failed(
                f"No plan of {STATES} breaks this rule, and none shows that it is kept. {state}. "
                f"{_plan_in_words(pieces)} {question}"
            )

        watched = rule.__name__ == KEEPS_THE_HOUSE_RULES
        probe = partial(probe_calls, run=partial(run_plan, watched=watched))
        return Check(
            rule.__name__, ("plan_step",), draw_states, probe, verdict, evidence=one_result_each
        )

    return made


def _wrong_plan(
    rule: Callable[[State, Pieces], str | None], state: State, result: Any
) -> str | None:
    if not complete(result, PLAN):
        return ": a plan is a list of pairs (request, number of tokens). What do you return?"
    pieces, count, tokens, kept = result
    if (count, tokens) != (len(pieces), sum(n for _, n in pieces)):
        return ": a part of the plan did not come back."
    if wrong := rule(state, pieces):
        return f". {_plan_in_words(pieces)} {wrong}"
    if not kept and rule.__name__ == KEEPS_THE_HOUSE_RULES:
        return (
            ": the plan is right, but a list or a request was changed on the way. A plan is only a "
            "plan: who carries it out?"
        )
    return None


def _plan_in_words(pieces: Pieces) -> str:
    plan = ", ".join(f"{number}: {n}" for number, n in pieces) or "nothing"
    return f"Your plan: {plan}."


def planned(pieces: Pieces, request: Request) -> int:
    """The tokens that a plan gives a request."""
    return sum(n for number, n in pieces if number == request.id)


def several_share_a_budget(state: State, pieces: Pieces) -> bool:
    """Whether several requests share a budget that is too small for all, more than a token each."""
    total = sum(n for _, n in pieces)
    return len(pieces) > 1 and len(pieces) < total <= state.budget < state.work()


def a_prompt_is_cut(state: State, pieces: Pieces) -> bool:
    """Whether a prompt gets a part of what it has left, and of the budget: what others left of it."""
    prompts = [request for request in (*state.running, *state.waiting) if not request.decodes]
    return any(1 < planned(pieces, one) < min(one.left, state.budget) for one in prompts)


def several_use_it_up(state: State, pieces: Pieces) -> bool:
    """Whether several requests use a budget up that is too small for all."""
    return len(pieces) > 1 and sum(n for _, n in pieces) == state.budget < state.work()


@check_plans(
    f"{STATES} plans: none beyond the budget, the room, or what there is to feed.",
    shows=several_share_a_budget,
    question="Who else could take part in this pass, and with how many tokens?",
)
def within_budget_and_room(state: State, pieces: Pieces) -> str | None:
    left = {r.id: r.left for r in (*state.running, *state.waiting)}
    for number, n in pieces:
        if number not in left:
            return f"Request {number} is neither running nor waiting. Where does it come from?"
        if n < 1:
            return f"Request {number} gets {n} tokens. What is such a piece for?"
    if len({number for number, _ in pieces}) < len(pieces):
        return "One request stands there twice. How often may it be in one pass?"
    for number, n in pieces:
        if n > left[number]:
            return (
                f"Request {number} has {left[number]} tokens that are known and not fed, and gets {n}. "
                f"Which tokens would these be?"
            )
    total, running = sum(n for _, n in pieces), len(state.running)
    if total > state.budget:
        return f"That is {total} tokens. For how many is the budget enough?"
    new = sum(planned(pieces, request) > 0 for request in state.waiting)
    if new and running + new > state.max_running:
        ending = sum(r.decodes and len(r.out) + 1 == r.n_new for r in state.running)
        who = f"{running} run" + f", of which {ending} get their last token," * bool(ending)
        return f"{who} and {new} are admitted. How many may run in this pass?"
    return None


@check_plans("Whoever decodes gets its token, the oldest first.")
def decodes_come_first(state: State, pieces: Pieces) -> str | None:
    decoding = [request for request in state.running if request.decodes]
    for request in decoding[: state.budget]:
        if planned(pieces, request) < 1:
            others = [other.id for other in decoding if planned(pieces, other)]
            question = "Which of those that decode come first, and how many?"
            if any(n > 0 and number not in others for number, n in pieces):
                question = "Who gets a token before any prompt does?"
            return (
                f"Request {request.id} decodes and gets no token of a budget of {state.budget}"
                f"{f', while {others} do' if others else ''}. {question}"
            )
    for request in decoding[state.budget :]:
        if planned(pieces, request) > 0:
            return (
                f"{len(decoding)} requests decode, and the budget is {state.budget}: {request.id}, which "
                f"is not among the oldest {state.budget}, gets a token. For whom is the budget enough?"
            )
    return None


@check_plans(
    "Prompts are fed in the order in which they came.",
    shows=a_prompt_is_cut,
    question="How much of what others left of the budget does the next prompt get?",
)
def nobody_overtakes(state: State, pieces: Pieces) -> str | None:
    line = [request for request in (*state.running, *state.waiting) if not request.decodes]
    for place, request in enumerate(line):
        for other in line[:place] if planned(pieces, request) > 0 else ():
            if planned(pieces, other) < other.left:
                return (
                    f"Request {other.id} came before {request.id}, has {other.left} tokens of its "
                    f"prompt to feed and gets {planned(pieces, other)}, while {request.id} gets "
                    f"{planned(pieces, request)}. Whose turn is it, and how much of its prompt fits?"
                )
    return None


@check_plans(
    "What the budget allows is used while there is work.",
    shows=several_use_it_up,
    question="How many tokens would fill the budget, and of how many requests?",
)
def nothing_is_left_idle(state: State, pieces: Pieces) -> str | None:
    work = state.work([number for number, _ in pieces])  # who overtakes is another check's affair
    expected, total = min(state.budget, work), sum(n for _, n in pieces)
    if total < expected:
        return (
            f"{total} tokens, while {work} could be fed and the budget is {state.budget}. Who could "
            f"take the {expected - total} that are left?"
        )
    return None
