"""The hidden checks of lesson 02: tokens against the oracle, counts against drawn-out steps."""

from __future__ import annotations

import numpy as np

from autograder import oracle
from autograder.lessons.naive_decode import probes
from autograder.lessons.whole import whole
from course.checks import naive_decode as visible
from course.checks.check import Challenge, Evidence, Verdict, by_name, failed
from course.checks.counts import Sizes
from course.checks.drawing import TOLERANCE


def oracle_logits(challenge: Challenge, tokens: np.ndarray) -> np.ndarray:
    """(B, T, V) in float64."""
    return oracle.forward(challenge["state"], challenge["config"], tokens)


def draw_passes(seed: int) -> Challenge:
    """The visible challenge, and for each forward pass the weights that it finds: keys and values of
    the first layer, and the head, are others every time."""
    challenge = visible.draw_request(seed)
    rng, state = np.random.default_rng([seed, 1]), challenge["state"]
    names = ("blocks.0.attn.wk.weight", "blocks.0.attn.wv.weight", "lm_head.weight")
    passes = [
        {name: rng.permutation(state[name].ravel()).reshape(state[name].shape) for name in names}
        for _ in range(challenge["n_new"])
    ]
    return {**challenge, "passes": passes}


def judge_passes(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Each new token is the likeliest by the weights of its own pass, after all before it."""
    verdict = visible.each_step_reads_everything.decide(challenge, evidence)
    if verdict.score < 1:
        return verdict
    prompt, passes = challenge["prompt"][:1], challenge["passes"]
    case = "A model whose weights are exchanged for others after every forward pass"
    P, text = prompt.shape[1], evidence["exchanged"]["tokens"]
    if text is None or text.shape != (1, P + len(passes)) or (text[:, :P] != prompt).any():
        return failed(f"{case}: the result does not begin with the prompt, or has another length.")
    for step, weights in enumerate(passes):
        now = {**challenge, "state": {**challenge["state"], **weights}}
        last = oracle_logits(now, text[:, : P + step])[0, -1]  # (V,)
        if last.max() - last[text[0, P + step]] > TOLERANCE:
            return failed(
                f"{case}: new token {step + 1} is {text[0, P + step]}; by the weights of pass "
                f"{step + 1}, over everything so far, it is {last.argmax()}. How many passes come "
                f"before it, and does its own read the whole text?"
            )
    return verdict


def draw_counts(rng: np.random.Generator) -> list[Sizes]:
    """Prompt and new tokens: a single new one, then more and more, then none at all."""
    # Even and odd numbers of steps: a triangle that is rounded may be right for one of them.
    drawn = [(int(rng.integers(2, 60)), 2 * int(rng.integers(1, 20)) + odd) for odd in (0, 1) * 2]
    return [(int(rng.integers(2, 9)), 1), *sorted(drawn, key=sum), (int(rng.integers(2, 9)), 0)]


def rows_by_step(p: int, g: int) -> list[list[int]]:
    """For each step, the positions of the tokens that are read."""
    text, steps = list(range(p)), []
    for _ in range(g):
        steps.append(list(text))
        text.append(len(text))
    return steps


def naive_rows(p: int, g: int) -> int:
    """All rows of all steps."""
    return sum(len(step) for step in rows_by_step(p, g))


def needed_rows(p: int, g: int) -> int:
    """Every row once."""
    return len({position for step in rows_by_step(p, g) for position in step})


def visits(prompt_len: int, n_new: int) -> int:
    """What the last token of each step may look at: everything up to itself."""
    return sum(step[-1] + 1 for step in rows_by_step(prompt_len, n_new))


CHECKS = by_name(
    whole(
        visible.result_starts_with_the_prompt,
        lambda c, e: [result["n_new"] for result in e["results"]] == [c["n_new"], 1, 0],
    ),
    whole(
        visible.make_likeliest_tokens(oracle_logits),
        lambda _, e: e.keys() == {"kind", "tokens"},
    ),
    whole(visible.prompt_is_left_alone, lambda _, e: len(e["calls"]) == 2),
    visible.bad_requests_are_refused,
    whole(
        visible.each_step_reads_everything.hidden(
            probe=probes.each_step_reads_everything, challenge=draw_passes, verdict=judge_passes
        ),
        lambda c, e: (
            [len(seen["by_layer"]) for seen in e["counts"]] == [c["config"]["n_layers"]] * 3
        ),
    ),
    visible.make_naive_rows(draw_counts, naive_rows),
    visible.make_needed_rows(draw_counts, needed_rows),
    visible.make_visits(draw_counts, visits),
)
