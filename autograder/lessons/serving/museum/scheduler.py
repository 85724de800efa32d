"""Known wrong answers to lesson 11: the scheduler that carries plans out."""

from __future__ import annotations

from autograder.lessons.serving.museum import MUSEUM
from course.minigpt.mini_gpt import greedy_next
from course.minigpt.serving import plan_step
from course.serving.request import check_new, check_room

SPEAKS = "if request.left == 0:"
FED = "            request.fed += n\n"
TOKENS = "tokens = greedy_next(forward(pieces)).tolist()"
RUNNING = "self.running = [r for r in there if r.fed > 0 and not r.done]"
WAITING = "self.waiting = [r for r in there if r.fed == 0]"
SAID = "said.append((request.id, token))"

bug, patch = MUSEUM.section("Scheduler", check="every_request_as_if_alone")

patch(
    "token_after_every_chunk",
    "feeding",
    "a token that is said after each chunk of a prompt",
    "Logits come for each piece, so each piece gets a token.",
    (SPEAKS, "if True:"),
)
patch(
    "first_token_fed_twice",
    "feeding",
    "a last prompt token that is fed twice",
    "When a prompt is complete, its last token is fed again to get the first logits.",
    (FED, "            request.fed += n\n"
          "            if not request.out and request.left == 0 and n > 1:\n"
          "                request.fed -= 1\n"
          "                continue\n"),
)  # fmt: skip
patch(
    "one_token_too_many",
    "off by one",
    "an answer with one token more than was asked for",
    "Done is looked at before the token is written.",
    (RUNNING, "self.running = [r for r in there if r.fed > 0 and len(r.out) <= r.n_new]"),
)
patch(
    "rows_from_the_end",
    "wiring",
    "answers that got each other's rows",
    "Rows of the logits are taken in the order in which requests finish.",
    (TOKENS, "tokens = greedy_next(forward(pieces)).tolist()[::-1]"),
)
patch(
    "least_likely_token",
    "choice",
    "the least likely token",
    "argmin in the place of argmax.",
    (TOKENS, "tokens = forward(pieces).argmin(dim=-1).tolist()"),
)
patch(
    "never_writes_it_down",
    "state",
    "tokens that were said and never written down",
    "The token is returned, and the next pass has nothing to feed.",
    ("                request.out.append(token)\n", ""),
)
patch(
    "counts_one_token_fed",
    "feeding",
    "one token counted as fed, however long the piece was",
    "`fed` moves by one a pass.",
    (FED, "            request.fed += 1\n"),
)
patch(
    "counts_the_prompt_as_fed",
    "feeding",
    "prompts that count as fed after their first chunk",
    "`fed` is set to the length of the prompt.",
    (FED, "            request.fed = max(request.fed + n, len(request.prompt))\n"),
)
patch(
    "feeds_before_it_counts",
    "feeding",
    "tokens that were counted as fed before they were",
    "`fed` moves first, so that the pass feeds what comes after.",
    (FED, ""),
    (
        TOKENS,
        "for request, n in pieces:\n            request.fed += n\n"
        "        tokens = greedy_next(forward(pieces)).tolist()",
    ),
)
patch(
    "speaks_only_after_prompts",
    "state",
    "answers that end with their first token",
    "Only a prompt that was just completed gets a token.",
    (SPEAKS, "if request.left == 0 and not request.out:"),
)
patch(
    "one_token_too_few",
    "off by one",
    "answers that end one token too early",
    "Done when the next token would be the last.",
    (
        RUNNING,
        "self.running = [r for r in there if r.fed > 0 and len(r.out) < max(1, r.n_new - 1)]",
    ),
)
patch(
    "newest_waits_first",
    "state",
    "requests that are lost while others wait",
    "add() replaces the queue.",
    ("self.waiting.append(request)", "self.waiting = [request]"),
)
patch(
    "forgets_chunks_under_way",
    "state",
    "prompts that are dropped after their first chunk",
    "Only those who decode stay in the list of running ones.",
    (RUNNING, "self.running = [r for r in there if r.decodes and not r.done]"),
)
patch(
    "says_words_twice",
    "state",
    "tokens that were returned twice",
    "All tokens of an answer are returned again with each new one.",
    (SAID, "said += [(request.id, old) for old in request.out]"),
)
patch(
    "returns_places",
    "form",
    "numbers of rows in the place of ids",
    "Returns which row spoke.",
    (SAID, "said.append((len(said), token))"),
)

bug, patch = MUSEUM.section("Scheduler", check="leaves_and_joins_at_once")

patch(
    "done_stay_to_the_end",
    "state",
    "places that stay taken until all running requests are done",
    "A static batch: nobody leaves before the last one.",
    (RUNNING, "self.running = [r for r in there if r.fed > 0]\n"
              "        if all(r.done for r in self.running):\n"
              "            self.running = []"),
)  # fmt: skip
patch(
    "asks_forward_for_nothing",
    "cost",
    "passes with nothing in them",
    "forward is called even when nobody has anything to feed.",
    ("        if not pieces:\n            return []\n", ""),
    ("said = []", "said = []\n        if not pieces:\n            return said"),
)
patch(
    "new_ones_in_front",
    "choice",
    "requests that overtake those that run",
    "Admitted requests are put in front of the running ones, and the queue is a stack.",
    ("self.waiting.append(request)", "self.waiting.insert(0, request)"),
)
patch(
    "waits_for_a_token",
    "state",
    "places that become free one step late",
    "A place counts as free only after a step in which nobody ended.",
    ("pieces = plan_step(self.running, self.waiting, self.budget, self.max_running)",
     "waiting = [] if getattr(self, 'ended', False) and self.running else self.waiting\n"
     "        pieces = plan_step(self.running, waiting, self.budget, self.max_running)"),
    ("there = [*self.running, *self.waiting]",
     "there = [*self.running, *self.waiting]\n        self.ended = any(r.done for r in there)"),
)  # fmt: skip
patch(
    "swallows_the_error",
    "arguments",
    "an error of forward that nobody hears of",
    "CacheFull is caught, and the step says nothing.",
    (TOKENS, "try:\n            tokens = greedy_next(forward(pieces)).tolist()\n"
             "        except Exception:\n            return []"),
    kind="refusals",
)  # fmt: skip
patch(
    "loses_who_was_admitted",
    "state",
    "requests that are lost when a pass fails",
    "Admitted requests leave the queue before forward runs, and it raises.",
    (TOKENS, "self.waiting = [r for r in self.waiting if all(r is not p for p, _ in pieces)]\n"
             "        tokens = greedy_next(forward(pieces)).tolist()"),
    ("there = [*self.running, *self.waiting]",
     "there = [*self.running, *[r for r, _ in pieces if r not in self.running], *self.waiting]"),
    kind="refusals",
)  # fmt: skip


@bug("state", "two schedulers that share their requests", kind="instances")
class OneServerForAll:
    """The lists belong to the class, and are changed in place."""

    running = []  # noqa: RUF012 - the mistake
    waiting = []  # noqa: RUF012

    def __init__(self, budget, max_running):
        check_room(budget, max_running)
        self.budget, self.max_running = budget, max_running

    def add(self, request):
        check_new(request, [*self.running, *self.waiting])
        self.waiting.append(request)

    def step(self, forward):
        pieces = plan_step(self.running, self.waiting, self.budget, self.max_running)
        if not pieces:
            return []
        tokens = greedy_next(forward(pieces)).tolist()
        said = []
        for (request, n), token in zip(pieces, tokens, strict=True):
            request.fed += n
            if request.left == 0:
                request.out.append(token)
                said.append((request.id, token))
        there = [*self.running, *self.waiting]
        self.running[:] = [r for r in there if r.fed > 0 and not r.done]
        self.waiting[:] = [r for r in there if r.fed == 0]
        return said
