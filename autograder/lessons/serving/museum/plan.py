"""Known wrong answers to lesson 11: plans of a pass."""

from __future__ import annotations

from autograder.lessons.serving.museum import MUSEUM
from course.serving.request import check_room

ORDER = "for request in (*decoding, *under_way, *admitted):"
ROOM = "admitted = waiting[: max(0, max_running - len(running))]"
PIECE = "n = min(request.left, budget)"

bug, patch = MUSEUM.section("plan_step", check="within_budget_and_room")


patch(
    "decodes_outside_the_budget",
    "cost",
    "decodes that the budget does not count",
    "One token each is nothing, so only prompts share the budget.",
    (PIECE, "n = 1 if request.decodes else min(request.left, budget)"),
    ("budget -= n", "budget -= n * (not request.decodes)"),
)


patch(
    "all_decodes_whatever_the_budget",
    "cost",
    "decodes that take part whatever the budget is",
    "Everybody who decodes gets a token; prompts share what is left, if anything is.",
    (PIECE, "n = 1 if request.decodes else min(request.left, max(0, budget))"),
)


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


patch(
    "no_limit_of_running",
    "capacity",
    "more running requests than are allowed",
    "All that wait are admitted while the budget lasts.",
    (ROOM, "admitted = list(waiting)"),
)
patch(
    "one_running_too_many",
    "off by one",
    "one running request too many",
    "The room is counted with <= in mind.",
    ("max_running - len(running))", "max_running - len(running) + 1)"),
)
patch(
    "room_for_decodes_alone",
    "capacity",
    "a room that does not count prompts under way",
    "Whoever does not decode yet is not counted as running.",
    ("max_running - len(running))", "max_running - len(decoding))"),
)
patch(
    "budget_for_each",
    "cost",
    "a budget for each request, not for the pass",
    "What was given out is never taken off.",
    ("            budget -= n\n", ""),
)
patch(
    "pieces_of_nothing",
    "form",
    "pieces of 0 tokens",
    "Requests stay in the plan when the budget is used up.",
    ("        if n > 0:\n            pieces.append((request, n))\n            budget -= n",
     "        pieces.append((request, n))\n        budget -= n"),
)  # fmt: skip
patch(
    "one_beyond_the_budget",
    "off by one",
    "one token more than the budget",
    "The last piece may reach one token further.",
    (PIECE, "n = min(request.left, budget + 1) if budget else 0"),
)


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


bug, patch = MUSEUM.section("plan_step", check="decodes_come_first")

patch(
    "prompts_first",
    "choice",
    "prompts that are fed before anybody decodes",
    "So that nobody waits for a first token; whoever reads an answer waits.",
    (ORDER, "for request in (*under_way, *admitted, *decoding):"),
)
patch(
    "prompts_under_way_first",
    "choice",
    "prompts under way that come before those who decode",
    "What was begun is ended first.",
    (ORDER, "for request in (*under_way, *decoding, *admitted):"),
)
patch(
    "newest_decode_first",
    "choice",
    "the newest of those who decode coming first",
    "The list is walked from its end.",
    (ORDER, "for request in (*decoding[::-1], *under_way, *admitted):"),
)
patch(
    "decodes_wait_for_prompts",
    "choice",
    "answers that stand still while a prompt is under way",
    "Nobody decodes before all prompts were fed.",
    (ORDER, "for request in (*under_way, *admitted) or decoding:"),
)
patch(
    "decodes_by_id",
    "choice",
    "an order by id",
    "Takes the smallest id for the oldest request.",
    ("decoding = [request for request in running if request.decodes]",
     "decoding = sorted((r for r in running if r.decodes), key=lambda r: r.id)"),
)  # fmt: skip
patch(
    "nearly_done_first",
    "choice",
    "answers that are nearly complete coming first",
    "Whoever has least left to write is served first.",
    ("decoding = [request for request in running if request.decodes]",
     "decoding = sorted((r for r in running if r.decodes), key=lambda r: r.n_new - len(r.out))"),
)  # fmt: skip

bug, patch = MUSEUM.section("plan_step", check="nobody_overtakes")

patch(
    "new_before_running",
    "choice",
    "new requests that come before prompts under way",
    "Whoever waits is admitted first.",
    (ORDER, "for request in (*decoding, *admitted, *under_way):"),
)
patch(
    "shortest_first",
    "choice",
    "short prompts that come before long ones",
    "Shortest job first: the mean waits less, the long prompt for ever.",
    (ORDER, "for request in (*decoding, *under_way, *sorted(admitted, key=lambda r: r.left)):"),
)
patch(
    "shortest_of_all_waiting",
    "choice",
    "short prompts from behind that are admitted first",
    "The queue is sorted by length before anybody is admitted.",
    ("waiting[: max(0,", "sorted(waiting, key=lambda r: r.left)[: max(0,"),
)
patch(
    "newest_first",
    "choice",
    "whoever came last being admitted first",
    "The queue is a stack.",
    ("admitted = waiting[: max(0, max_running - len(running))]",
     "admitted = list(waiting)[::-1][: max(0, max_running - len(running))]"),
)  # fmt: skip
patch(
    "last_under_way_first",
    "choice",
    "the newest prompt under way coming first",
    "Prompts under way are walked from the end.",
    (ORDER, "for request in (*decoding, *under_way[::-1], *admitted):"),
)
patch(
    "oldest_of_ids_first",
    "choice",
    "an order by id among those who wait",
    "Takes the smallest id for the oldest request.",
    (ORDER, "for request in (*decoding, *under_way, *sorted(admitted, key=lambda r: r.id)):"),
)


patch(
    "skips_what_does_not_fit",
    "choice",
    "prompts that do not fit being skipped",
    "A prompt is fed whole, or the next one that fits is.",
    (PIECE, "n = request.left if request.left <= budget else 0"),
)


patch(
    "equal_shares",
    "choice",
    "a budget that all prompts share equally",
    "Each prompt gets a share of what is left, so all of them are late.",
    (
        PIECE,
        "prompts = max(1, len(under_way) + len(admitted))\n"
        "        share = 1 if request.decodes else max(1, budget // prompts)\n"
        "        n = min(request.left, budget, share)",
    ),
)


bug, patch = MUSEUM.section("plan_step", check="nothing_is_left_idle")


patch(
    "whole_prompts_or_nothing",
    "capacity",
    "prompts that are fed whole or not at all",
    "Stops at the first prompt that does not fit; one longer than the budget waits for ever.",
    ("        if n > 0:", "        if n < request.left:\n            break\n        if n > 0:"),
)


patch(
    "decode_or_prefill",
    "cost",
    "passes that either decode or feed prompts",
    "While anybody decodes, no prompt is fed.",
    (ORDER, "for request in decoding or (*under_way, *admitted):"),
)


patch(
    "admits_into_an_empty_batch",
    "cost",
    "new requests that wait until all others are done",
    "A static batch with a budget.",
    (ROOM, "admitted = [] if running else waiting[:max_running]"),
)


patch(
    "one_new_a_step",
    "cost",
    "one new request a pass, whatever the budget is",
    "Only the first of those who wait is looked at.",
    (ORDER, "for request in (*decoding, *under_way, *admitted[:1]):"),
)
patch(
    "one_prompt_a_step",
    "cost",
    "one prompt a pass, whatever the budget is",
    "Behind the first prompt the plan ends.",
    (ORDER, "for request in (*decoding, *[*under_way, *admitted][:1]):"),
)
patch(
    "keeps_the_last_token",
    "off by one",
    "prompts whose last token is kept for a pass of its own",
    "The last token of a prompt is fed as if it were decoded.",
    (PIECE, "n = min(request.left - (not request.decodes and request.left > 1), budget)"),
)
patch(
    "none_while_a_prompt_is_under_way",
    "cost",
    "a queue that stands while a prompt is under way",
    "New ones are admitted only when nobody's prompt is under way.",
    (ORDER, "for request in (*decoding, *under_way, *([] if under_way else admitted)):"),
)
patch(
    "room_without_the_last",
    "off by one",
    "a place that nobody ever gets",
    "One place is kept free.",
    ("max_running - len(running))", "max_running - len(running) - 1)"),
)
patch(
    "keeps_a_token_back",
    "off by one",
    "a token of the budget that nobody gets",
    "What is left of the budget is compared with <.",
    (PIECE, "n = min(request.left, budget if request.decodes else budget - 1)"),
)
