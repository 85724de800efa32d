"""What lesson 11 shows in pictures and says in its text, computed by its own functions; never timed."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from course.minigpt.kv_cache import generate_cached
from course.minigpt.prefill_and_decode import latency_metrics
from course.minigpt.serving import Scheduler, continuous_steps, goodput, plan_step, static_steps
from course.model import MiniGPT
from course.model.cache import CacheFull
from course.plots import serving as plots
from course.serving.clock import STORY, draw_trace, serve_virtually
from course.serving.mixed import Slots, forward_mixed
from course.serving.request import Request


@pytest.fixture(scope="module")
def mini() -> MiniGPT:
    return MiniGPT.from_weights("mini")


# --- counted -------------------------------------------------------------------------------------


def test_the_first_picture_shows_what_the_functions_count():
    lengths = [length for _, _, length in plots._STATIC]
    assert static_steps(lengths, 3) == max(first + n for _, first, n in plots._STATIC) == 17
    ends = [first + n for _, first, n in plots._CONTINUOUS]
    assert sorted(n for *_, n in plots._CONTINUOUS) == sorted(lengths)
    assert continuous_steps(lengths, 3) == max(ends) == 11


@pytest.mark.parametrize(
    ("share", "least", "most"), [(0, 1.3, 1.8), (25, 2.3, 3.1), (50, 1.7, 2.4), (100, 1.1, 1.4)]
)
def test_a_few_long_answers_gain_most(share, least, most):
    ratios = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        lengths = np.where(
            rng.random(96) < share / 100, rng.integers(100, 201, 96), rng.integers(5, 31, 96)
        ).tolist()
        ratios.append(static_steps(lengths, 8) / continuous_steps(lengths, 8))
    assert least < np.mean(ratios) < most


def test_the_cost_line_gives_the_passes_that_were_measured():
    decodes = [(Request(i, range(150), 9, fed=150, out=[1]), 1) for i in range(8)]
    for chunk, ms in ((0, 2.5), (32, 3.0), (64, 3.7), (128, 5.4), (256, 9.8), (500, 23.0)):
        pieces = decodes + ([(Request(9, range(chunk), 1), chunk)] if chunk else [])
        assert 1e3 * STORY(pieces) == pytest.approx(ms, rel=0.08), chunk


# --- the virtual clock ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_budget():
    trace = draw_trace(per_second=50, seconds=6)
    rows = {}
    for budget in (2048, 128, 64, 24):
        served = serve_virtually(Scheduler(budget, 16), trace, STORY)
        latencies = served.latencies(latency_metrics)
        ttft = np.percentile([one.ttft for one in latencies], 99)
        rows[budget] = served, float(ttft), goodput(latencies, served.seconds, 0.1, 0.008)
    return rows


def test_a_smaller_budget_shortens_gaps_and_delays_first_tokens(by_budget):
    gaps = [served.longest_gap for served, _, _ in by_budget.values()]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 0.02 > 0.004 > gaps[-1]
    late = [ttft for _, ttft, _ in by_budget.values()]
    assert late == sorted(late)
    assert late[-1] > 2 * late[0]


def test_throughput_hardly_moves_while_goodput_nearly_doubles(by_budget):
    rates = [served.tokens_per_second for served, _, _ in by_budget.values()]
    assert max(rates) < 1.01 * min(rates)
    good = {budget: goodput for budget, (_, _, goodput) in by_budget.items()}
    assert good[64] > 1.5 * good[2048]
    assert good[64] >= good[24]


def test_the_virtual_clock_has_no_noise(by_budget):
    again = serve_virtually(Scheduler(64, 16), draw_trace(50, 6), STORY)
    assert again.stamps == by_budget[64][0].stamps


# --- texts ---------------------------------------------------------------------------------------


def drawn_requests(rng: np.random.Generator, size: int) -> list[Request]:
    return [
        Request(
            int(i),
            rng.integers(2, size, int(rng.integers(1, 20))).tolist(),
            int(rng.integers(1, 12)),
        )
        for i in rng.permutation(100)[: int(rng.integers(1, 9))]
    ]


@pytest.mark.parametrize("seed", range(3))
def test_texts_mixed_with_others_are_those_written_alone(mini, seed):
    rng = np.random.default_rng(seed)
    requests = drawn_requests(rng, mini.config.vocab_size)
    room = int(rng.integers(1, 5))
    slots, scheduler = Slots(mini, room, 40), Scheduler(int(rng.integers(1, 30)), room)
    coming = list(requests)
    while coming or not all(request.done for request in requests):
        if coming:
            scheduler.add(coming.pop(0))
        scheduler.step(lambda pieces: forward_mixed(mini, pieces, slots))
    for request in requests:
        alone = generate_cached(mini, torch.tensor([request.prompt]), request.n_new)
        assert request.out == alone[0, len(request.prompt) :].tolist()


@pytest.mark.slow
def test_in_a_thousand_traces_nobody_starves_and_nobody_is_served_twice():
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        requests = drawn_requests(rng, 50)
        scheduler = Scheduler(int(rng.choice([1, 2, 3, 8, 30])), int(rng.integers(1, 5)))
        coming, said, passes = list(requests), Counter(), 0
        work = sum(len(r.prompt) + r.n_new - 1 for r in requests)
        fed = Counter()

        def forward(pieces, fed=fed):
            fed.update({request.id: n for request, n in pieces})
            return torch.zeros(len(pieces), 2)

        while sum(said.values()) < sum(r.n_new for r in requests):
            if coming and rng.random() < 0.5:
                scheduler.add(coming.pop(0))
            said.update(number for number, _ in scheduler.step(forward))
            passes += 1
            assert passes <= 2 * work + 200, seed
        assert said == {r.id: r.n_new for r in requests}
        assert +fed == {r.id: n for r in requests if (n := len(r.prompt) + r.n_new - 1)}
        assert scheduler.step(forward) == []


# --- at the door ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: plan_step([], [], 0, 1), "budget"),
        (lambda: plan_step([], [], 1, 0), "max_running"),
        (lambda: Scheduler(0, 4), "budget"),
        (lambda: Scheduler(4, 0), "max_running"),
        (lambda: static_steps([3, 0], 2), "n_new"),
        (lambda: continuous_steps([3], 0), "batch"),
        (lambda: goodput([], 0.0, 1, 1), "seconds must be above 0, got 0.0"),
        (lambda: goodput([], math.nan, 1, 1), "seconds must be above 0, got nan"),
        (lambda: Request(1, [], 3), "prompt"),
        (lambda: Request(1, [2], 0), "n_new"),
        (lambda: draw_trace(0, 5), "a rate and a duration, got 0 and 5"),
    ],
)
def test_bad_input_is_refused_by_name(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_a_request_that_has_begun_or_is_here_already_is_refused():
    scheduler = Scheduler(4, 4)
    scheduler.add(Request(7, [2], 1))
    with pytest.raises(ValueError, match="there is a request 7 already"):
        scheduler.add(Request(7, [3], 1))
    with pytest.raises(ValueError, match="request 8 has begun already: fed 1"):
        scheduler.add(Request(8, [3], 1, fed=1))
    assert [request.id for request in scheduler.waiting] == [7]


def test_a_prompt_larger_than_a_slot_is_refused_and_a_slot_too_many_too(mini):
    slots = Slots(mini, 1, 8)
    with pytest.raises(ValueError, match="request 1 needs 10 places, a slot has 8"):
        forward_mixed(mini, [(Request(1, [2] * 9, 2), 9)], slots)
    first = Request(2, [2, 3], 3)
    forward_mixed(mini, [(first, 2)], slots)
    with pytest.raises(CacheFull, match="all 1 slots are taken"):
        forward_mixed(mini, [(Request(3, [2], 1), 1)], slots)
    with pytest.raises(ValueError, match="nothing to feed"):
        forward_mixed(mini, [], slots)


def test_a_server_keeps_up_and_then_from_one_load_on_it_does_not():
    rows = {}
    for name, budget in {"whole prompts": 2048, "budget 64": 64}.items():
        rows[name] = {}
        for load in range(10, 121, 10):
            served = serve_virtually(Scheduler(budget, 16), draw_trace(load, seconds=4), STORY)
            latencies = served.latencies(latency_metrics)
            late = [one.ttft for one in latencies], [one.itl_p99 for one in latencies]
            p99s = [float(np.percentile(times, 99)) for times in late]
            rows[name][load] = *p99s, goodput(latencies, served.seconds, 0.1, 0.008)
    for by_load in rows.values():
        first = [row[0] for row in by_load.values()]
        assert first[-1] > 10 * first[0]
    assert max(row[2] for row in rows["budget 64"].values()) > max(
        row[2] for row in rows["whole prompts"].values()
    )
    picture = plots.draw_loads(rows, limits=(0.1, 0.008))
    assert "Goodput is highest with whole prompts at 50 a second (" in picture.caption
