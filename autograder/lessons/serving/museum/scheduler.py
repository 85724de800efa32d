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
