"""Known wrong answers to lesson 11: plans of a pass."""

from __future__ import annotations

from autograder.lessons.serving.museum import MUSEUM
from course.serving.request import check_room

bug = MUSEUM.section("plan_step", check="within_budget_and_room")


@bug("state", "prompts that are fed from their beginning in each pass")
def forgets_what_was_fed(running, waiting, budget, max_running):
    """Takes the length of the prompt for what is left of it."""
    check_room(budget, max_running)
    admitted = waiting[: max(0, max_running - len(running))]
    pieces = []
    for request in (*(r for r in running if r.decodes),
                    *(r for r in running if not r.decodes), *admitted):  # fmt: skip
        n = min(1 if request.decodes else len(request.prompt), budget)
        if n > 0:
            pieces.append((request, n))
            budget -= n
    return pieces


@bug("cost", "a request that decodes and gets all that is left of the budget")
def a_decode_gets_what_is_left(running, waiting, budget, max_running):
    """The first one takes as many tokens as the budget has."""
    check_room(budget, max_running)
    admitted = waiting[: max(0, max_running - len(running))]
    pieces = []
    for request in (*(r for r in running if r.decodes),
                    *(r for r in running if not r.decodes), *admitted):  # fmt: skip
        n = budget if request.decodes else min(request.left, budget)
        if n > 0:
            pieces.append((request, n))
            budget -= n
    return pieces


@bug("state", "requests that were counted as fed before they were", kind="arguments")
def counts_as_fed(running, waiting, budget, max_running):
    """The plan moves `fed` itself; the pass that follows begins behind the tokens that it should feed."""
    check_room(budget, max_running)
    admitted = waiting[: max(0, max_running - len(running))]
    pieces = []
    for request in (*(r for r in running if r.decodes),
                    *(r for r in running if not r.decodes), *admitted):  # fmt: skip
        n = min(request.left, budget)
        if n > 0:
            pieces.append((request, n))
            budget -= n
    for request, n in pieces:
        request.fed += n
    return pieces


@bug("state", "a queue from which the plan took requests", kind="arguments")
def takes_them_off_the_queue(running, waiting, budget, max_running):
    """Admitted requests are popped from the caller's list."""
    check_room(budget, max_running)
    pieces = []
    for request in (*(r for r in running if r.decodes), *(r for r in running if not r.decodes)):
        n = min(request.left, budget)
        if n > 0:
            pieces.append((request, n))
            budget -= n
    room = max_running - len(running)
    while waiting and room > 0 and budget > 0:
        request = waiting.pop(0)
        n = min(request.left, budget)
        pieces.append((request, n))
        budget -= n
        room -= 1
    return pieces


@bug("cost", "plans with nothing in them")
def plans_nothing(running, waiting, budget, max_running):
    """An empty plan breaks no limit."""
    check_room(budget, max_running)
    return []


@bug("cost", "plans in which the first request alone gets a token", kind="cheapest")
def one_token_for_the_first(running, waiting, budget, max_running):
    """One token in each pass breaks no limit, and serves nobody else."""
    return [(request, 1) for request in [*running, *waiting][:1]]


bug = MUSEUM.section("plan_step", check="decodes_come_first")


@bug("cost", "plans that give everybody everything", kind="cheapest")
def everybody_gets_everything(running, waiting, budget, max_running):
    """Whoever decodes gets its token, since all get all they have left, whatever the budget is."""
    return [(request, request.left) for request in [*running, *waiting]]


bug = MUSEUM.section("plan_step", check="nobody_overtakes")


@bug("cost", "plans in which all that runs is fed whole", kind="cheapest")
def whole_prompts_of_all_that_run(running, waiting, budget, max_running):
    """Nobody is cut, so nobody is seen to wait: the order of a line without a limit."""
    return [(request, request.left) for request in running]


bug = MUSEUM.section("plan_step", check="nothing_is_left_idle")


@bug("cost", "plans that offer each request the whole budget", kind="cheapest")
def as_much_as_fits_for_each(running, waiting, budget, max_running):
    """Nothing of the budget is left, for it is given out again and again."""
    return [(request, min(request.left, budget)) for request in [*running, *waiting]]
