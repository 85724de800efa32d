"""Right answers to lesson 11 in other styles: every check must pass them."""

from __future__ import annotations

from collections import deque
from itertools import chain, zip_longest

import numpy as np
import torch

from autograder.lessons.exhibits import Variant
from course.minigpt.mini_gpt import greedy_next
from course.minigpt.serving import plan_step
from course.serving.request import check_lengths, check_new, check_room, check_seconds

# --- iterations ----------------------------------------------------------------------------------


def static_by_a_loop(n_new, batch):
    check_lengths(n_new, batch)
    total, group = 0, []
    for n in n_new:
        group.append(n)
        if len(group) == batch:
            total += max(group)
            group = []
    return total + (max(group) if group else 0)


def static_by_chunks(n_new, batch):
    check_lengths(n_new, batch)
    rows = [iter(n_new)] * batch
    return sum(max(group) for group in zip_longest(*rows, fillvalue=0))


def static_in_numpy(n_new, batch):
    check_lengths(n_new, batch)
    if not n_new:
        return 0
    padded = np.pad(np.array(n_new), (0, -len(n_new) % batch))
    return padded.reshape(-1, batch).max(axis=1).sum()


def static_recursive(n_new, batch):
    check_lengths(n_new, batch)
    return max(n_new[:batch]) + static_recursive(n_new[batch:], batch) if n_new else 0


def continuous_by_the_smallest(n_new, batch):
    check_lengths(n_new, batch)
    ends = batch * [0]
    for n in n_new:
        ends[ends.index(min(ends))] += n
    return max(ends)


def continuous_step_by_step(n_new, batch):
    check_lengths(n_new, batch)
    queue, rows, steps = deque(n_new), [], 0
    while queue or rows:
        while queue and len(rows) < batch:
            rows.append(queue.popleft())
        rows = [left - 1 for left in rows if left > 1]
        steps += 1
    return steps


def continuous_sorted(n_new, batch):
    check_lengths(n_new, batch)
    ends = [0] * batch
    for n in n_new:
        ends = sorted(ends)
        ends[0] += n
    return int(np.max(ends))


def continuous_in_torch(n_new, batch):
    check_lengths(n_new, batch)
    ends = torch.zeros(batch, dtype=torch.long)
    for n in n_new:
        ends[ends.argmin()] += n
    return ends.max().item()


# --- the plan ------------------------------------------------------------------------------------


def plan_by_groups(running, waiting, budget, max_running):
    check_room(budget, max_running)
    plan = []
    for request in [r for r in running if r.decodes][:budget]:
        plan.append((request, 1))
    rest = budget - len(plan)
    for request in (r for r in running if not r.decodes):
        if rest:
            plan.append((request, min(rest, request.left)))
            rest -= plan[-1][1]
    room = max_running - len(running)
    for request in waiting:
        if rest <= 0 or room <= 0:
            break
        plan.append((request, min(rest, request.left)))
        rest, room = rest - plan[-1][1], room - 1
    return plan


def plan_sorted(running, waiting, budget, max_running):
    """False sorts before True, and sorting is stable."""
    check_room(budget, max_running)
    line = sorted(running, key=lambda r: not r.decodes)
    line += list(waiting)[: max(max_running - len(running), 0)]
    plan, used = [], 0
    for request in line:
        take = min(request.left, budget - used)
        if take:
            plan.append((request, take))
        used += take
    return plan


def plan_by_sums(running, waiting, budget, max_running):
    check_room(budget, max_running)
    line = [r for r in running if r.decodes] + [r for r in running if not r.decodes]
    line += [r for r, _ in zip(waiting, range(max_running - len(running)))]  # noqa: B905
    ends = np.minimum(np.cumsum([0] + [r.left for r in line]), budget)
    return [(r, int(n)) for r, n in zip(line, np.diff(ends), strict=True) if n]


def plan_as_tuples(running, waiting, budget, max_running):
    """Counts by hand what is left of each prompt, and gives tuples in another order."""
    check_room(budget, max_running)
    plan = {}
    for decodes in (True, False):
        for request in running:
            if (request.fed >= len(request.prompt)) == decodes and budget:
                known = len(request.prompt) + len(request.out)
                plan[request] = min(known - request.fed, budget)
                budget -= plan[request]
    room = max_running - len(running)
    for request in list(waiting)[:room] if room > 0 else []:
        if budget:
            plan[request] = min(len(request.prompt), budget)
            budget -= plan[request]
    return tuple(reversed(plan.items()))


# --- the scheduler -------------------------------------------------------------------------------


class WithQueues:
    """Deques, and one loop that sorts requests into their places."""

    def __init__(self, budget, max_running):
        check_room(budget, max_running)
        self.room = budget, max_running
        self.running, self.waiting = deque(), deque()

    def add(self, request):
        check_new(request, chain(self.running, self.waiting))
        self.waiting.append(request)

    def step(self, forward):
        plan = plan_step(list(self.running), list(self.waiting), *self.room)
        if not plan:
            return []
        logits = forward(plan)
        said = []
        for row, (request, n) in enumerate(plan):
            request.fed += n
            if self.waiting and request is self.waiting[0]:
                self.running.append(self.waiting.popleft())
            if request.fed == len(request.prompt) + len(request.out):
                request.out.append(int(logits[row].argmax()))
                said.append((request.id, request.out[-1]))
                if len(request.out) == request.n_new:
                    self.running.remove(request)
        return said


class OneList:
    """All requests in one list; who runs is seen by what was fed."""

    def __init__(self, budget, max_running):
        check_room(budget, max_running)
        self.budget, self.max_running, self.all = budget, max_running, []

    def add(self, request):
        check_new(request, self.all)
        self.all.append(request)

    def step(self, forward):
        running = [r for r in self.all if r.fed]
        waiting = [r for r in self.all if not r.fed]
        plan = plan_step(running, waiting, self.budget, self.max_running)
        rows = forward(plan) if plan else []
        said = []
        for (request, n), row in zip(plan, rows, strict=True):
            request.fed += n
            if not request.left:
                request.out += [row.argmax().item()]
                said += [(request.id, request.out[-1])]
        self.all = [r for r in self.all if len(r.out) < r.n_new]
        return said


class PlansItself:
    """Its own plan, without plan_step."""

    def __init__(self, budget, max_running):
        check_room(budget, max_running)
        self.budget, self.max_running = budget, max_running
        self.running, self.waiting = [], []

    def add(self, request):
        check_new(request, self.running + self.waiting)
        self.waiting += [request]

    def step(self, forward):
        left, pieces = self.budget, []
        inside = self.running + self.waiting[: self.max_running - len(self.running)]
        for request in sorted(inside, key=lambda r: not r.decodes):
            if n := min(left, request.left):
                pieces.append((request, n))
                left -= n
        if not pieces:
            return []
        best = forward(pieces).max(dim=1).indices
        said = {}
        for i, (request, n) in enumerate(pieces):
            request.fed = request.fed + n
            if request.left == 0:
                said[request.id] = int(best[i])
                request.out.append(said[request.id])
        self.waiting = [r for r in self.waiting if not r.fed]
        self.running = [r for r in inside if r.fed and not r.done]
        return list(said.items())


class ById:
    """Dicts by id keep the order in which requests came."""

    def __init__(self, budget, max_running):
        check_room(budget, max_running)
        self.limits = {"budget": budget, "max_running": max_running}
        self.running, self.waiting = {}, {}

    def add(self, request):
        check_new(request, [*self.running.values(), *self.waiting.values()])
        self.waiting[request.id] = request

    def step(self, forward):
        plan = plan_step(tuple(self.running.values()), tuple(self.waiting.values()), **self.limits)
        if not plan:
            return []
        tokens = greedy_next(forward(plan))
        for request, n in plan:
            request.fed += n
            if request.id in self.waiting:
                self.running[request.id] = self.waiting.pop(request.id)
        spoken = [(r, t) for (r, _), t in zip(plan, tokens.tolist(), strict=True) if not r.left]
        for request, token in spoken:
            request.out.append(token)
            if request.done:
                del self.running[request.id]
        return [(request.id, token) for request, token in spoken]


# --- goodput -------------------------------------------------------------------------------------


def goodput_by_a_loop(latencies, seconds, max_ttft, max_gap):
    check_seconds(seconds)
    good = 0
    for one in latencies:
        if one.ttft > max_ttft:
            continue
        if one.itl_p99 is None or not one.itl_p99 > max_gap:
            good += 1
    return good / seconds


def goodput_without_the_bad(latencies, seconds, max_ttft, max_gap):
    check_seconds(seconds)
    bad = [one for one in latencies if one.ttft > max_ttft or (one.itl_p99 or 0) > max_gap]
    return (len(latencies) - len(bad)) / seconds


def goodput_in_numpy(latencies, seconds, max_ttft, max_gap):
    check_seconds(seconds)
    rows = np.array([(one.ttft, one.itl_p99 or 0.0) for one in latencies]).reshape(-1, 2)
    return (rows <= (max_ttft, max_gap)).all(axis=1).sum() / seconds


def goodput_filtered(latencies, seconds, max_ttft, max_gap):
    check_seconds(seconds)
    early = filter(lambda one: one.ttft <= max_ttft, latencies)
    return len([one for one in early if (one.itl_p99 or -1.0) <= max_gap]) / float(seconds)


VARIANTS = [
    Variant("loops", {"static_steps": static_by_a_loop, "continuous_steps": continuous_step_by_step,
                      "plan_step": plan_by_groups, "Scheduler": WithQueues,
                      "goodput": goodput_by_a_loop}),
    Variant("chunks", {"static_steps": static_by_chunks,
                       "continuous_steps": continuous_by_the_smallest, "plan_step": plan_sorted,
                       "Scheduler": OneList, "goodput": goodput_without_the_bad}),
    Variant("numpy", {"static_steps": static_in_numpy, "continuous_steps": continuous_sorted,
                      "plan_step": plan_by_sums, "Scheduler": PlansItself,
                      "goodput": goodput_in_numpy}),
    Variant("other", {"static_steps": static_recursive, "continuous_steps": continuous_in_torch,
                      "plan_step": plan_as_tuples, "Scheduler": ById, "goodput": goodput_filtered}),
]  # fmt: skip
