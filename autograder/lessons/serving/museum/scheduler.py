"""Known wrong answers to lesson 11: the scheduler that carries plans out."""

from __future__ import annotations

from autograder.lessons.serving.museum import MUSEUM
from course.minigpt.mini_gpt import greedy_next
from course.minigpt.serving import plan_step
from course.serving.request import check_new, check_room

bug = MUSEUM.section("Scheduler", check="leaves_and_joins_at_once")


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


bug = MUSEUM.section("Scheduler", check="every_request_as_if_alone")


@bug("cost", "requests that were served one after the other", kind="cheapest")
class OneAfterTheOther:
    """Each is alone until it is done: every text is right, and no two share a pass."""

    def __init__(self, budget, max_running):
        check_room(budget, max_running)
        self.budget, self.line = budget, []

    def add(self, request):
        check_new(request, self.line)
        self.line.append(request)

    def step(self, forward):
        for request in self.line[:1]:
            n = min(request.left, self.budget)
            token = int(greedy_next(forward([(request, n)]))[0])
            request.fed += n
            if request.left == 0:
                request.out.append(token)
                self.line = self.line[int(request.done) :]
                return [(request.id, token)]
        return []


@bug("cost", "prompts that were fed whole, whatever the budget is", kind="cheapest")
class WholePromptsAtOnce:
    """All that run take part in each pass with all they have: right texts, and no budget."""

    def __init__(self, budget, max_running):
        check_room(budget, max_running)
        self.max_running, self.line = max_running, []

    def add(self, request):
        check_new(request, self.line)
        self.line.append(request)

    def step(self, forward):
        pieces = [(request, request.left) for request in self.line[: self.max_running]]
        tokens = greedy_next(forward(pieces)).tolist() if pieces else []
        for (request, n), token in zip(pieces, tokens, strict=True):
            request.fed += n
            request.out.append(token)
        self.line = [request for request in self.line if not request.done]
        return [(r.id, token) for (r, _), token in zip(pieces, tokens, strict=True)]
