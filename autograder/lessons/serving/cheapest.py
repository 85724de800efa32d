"""The cheapest wrong functions for the checks of lesson 11, see `autograder cheapest`."""


# %% static_batches_wait: as many of the longest answers as there are batches
def static_steps(n_new, batch):
    return -(-len(n_new) // batch) * max(n_new, default=0)


# %% continuous_batches_fill_holes: the longest answer, or all tokens over all rows
def continuous_steps(n_new, batch):
    return max([-(-sum(n_new) // batch), *n_new])


# %% within_budget_and_room: one token for whoever is first
def plan_step(running, waiting, budget, max_running):
    return [(request, 1) for request in [*running, *waiting][:1]]


# %% decodes_come_first: everybody gets everything
def plan_step(running, waiting, budget, max_running):
    return [(request, request.left) for request in [*running, *waiting]]


# %% decodes_come_first: those that decode, and nobody else
def plan_step(running, waiting, budget, max_running):
    return [(request, 1) for request in running if request.decodes][:budget]


# %% nobody_overtakes: all that is left, for whoever runs
def plan_step(running, waiting, budget, max_running):
    return [(request, request.left) for request in running]


# %% nobody_overtakes: as much as fits, for whoever is first
def plan_step(running, waiting, budget, max_running):
    return [(request, min(request.left, budget)) for request in [*running, *waiting][:1]]


# %% nothing_is_left_idle: as much as fits, for each of them
def plan_step(running, waiting, budget, max_running):
    return [(request, min(request.left, budget)) for request in [*running, *waiting]]


# %% nothing_is_left_idle: the whole budget for whoever is first
def plan_step(running, waiting, budget, max_running):
    return [(request, budget) for request in [*running, *waiting][:1]]


# %% every_request_as_if_alone: one request after the other
class Scheduler:
    def __init__(self, budget, max_running):
        self.budget, self.line = budget, []

    def add(self, request):
        self.line.append(request)

    def step(self, forward):
        for request in self.line[:1]:
            n = min(request.left, self.budget)
            token = int(forward([(request, n)])[0].argmax())
            request.fed += n
            if request.left == 0:
                request.out.append(token)
                self.line = self.line[int(request.done) :]
                return [(request.id, token)]
        return []


# %% leaves_and_joins_at_once: everybody in at once, whole prompts whatever the budget is
class Scheduler:
    def __init__(self, budget, max_running):
        self.room, self.line = max_running, []

    def add(self, request):
        self.line.append(request)

    def step(self, forward):
        pieces = [(request, request.left) for request in self.line[: self.room]]
        tokens = forward(pieces).argmax(dim=1).tolist() if pieces else []
        for (request, n), token in zip(pieces, tokens, strict=True):
            request.fed += n
            request.out.append(token)
        self.line = [request for request in self.line if not request.done]
        return [(r.id, token) for (r, _), token in zip(pieces, tokens, strict=True)]


# %% goodput_meets_both_limits: requests a second that met one limit
def goodput(latencies, seconds, max_ttft, max_gap):
    return sum(one.ttft <= max_ttft for one in latencies) / seconds
