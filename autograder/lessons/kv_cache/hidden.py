"""The hidden checks of lesson 03: the challenges of the visible ones, drawn from seeds that nobody
knows, and judged by the oracle, which shares no code with the course."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autograder import oracle
from autograder.lessons.kv_cache import probes
from autograder.lessons.whole import whole
from course.checks import kv_cache as visible
from course.checks.check import Challenge, Check, Evidence, Verdict, by_name, failed
from course.checks.comparing import first_difference
from course.checks.drawing import TOLERANCE
from course.checks.kv_cache.forward import layer_verdict, splits_verdict, two_texts_verdict
from course.checks.kv_cache.generation import draw_prompt, generation_verdict
from course.config import GPTConfig


def logits(challenge: Challenge, tokens: np.ndarray) -> np.ndarray:
    """Truth: the oracle's logits, (B, T, V), float64."""
    return oracle.forward(challenge["state"], challenge["config"], tokens)


def logits_after(challenge: Challenge, tokens: np.ndarray, past: np.ndarray) -> np.ndarray:
    """Truth: the oracle's logits of tokens that follow the rows `past`, (2, L, B, G, S, D)."""
    pairs = [(past[0, layer], past[1, layer]) for layer in range(past.shape[1])]
    return oracle.forward(challenge["state"], challenge["config"], tokens, pairs)


def layer_output(case: Challenge) -> np.ndarray:
    """Truth: the oracle's output of the case's layer, (B, T, C), float64."""
    prefix = f"blocks.{case['layer']}.attn."
    positions = np.arange(case["x"].shape[1], dtype=np.float64)
    rows = [
        oracle.attention_layer(case["state"], prefix, case["config"], row, positions)[0]
        for row in case["x"].astype(np.float64)
    ]
    return np.stack(rows)


def judge_poison(challenge: Challenge, evidence: Evidence) -> Verdict:
    """The logits that follow random keys and values are what the oracle gets from exactly those."""
    poison = challenge["poison"]
    shuffled = poison[..., challenge["order"], :]
    for name, past in (("poisoned", poison), ("other", -poison), ("shuffled", shuffled)):
        wanted = logits_after(challenge, challenge["tokens"], past)
        wrong = first_difference(evidence[name], wanted, [2, 1])
        if wrong and name != "shuffled":  # whose message is below
            return failed(
                f"A cache of 5 rows of random keys and values, then 3 tokens. {wrong} "
                f"Where do your logits take the past from?"
            )
    verdict = visible.cache_is_the_only_memory.decide(challenge, evidence)
    if verdict.score == 1 and wrong:
        return failed(f"The same 5 cached rows in another order. {wrong}")
    return verdict


# The cache as a container: never in the dtype that everything else here has, and in a series of
# operations that nobody can know before.


def draw_blocks_to_return(seed: int) -> Challenge:
    """The visible challenge, for a cache of float64 or float16."""
    return {
        **visible.cache_returns_what_it_was_given.challenge(seed),
        "dtype": ["float64", "float16"][seed % 2],
    }


def draw_operations(goes_back: bool) -> Callable[[int], Challenge]:
    """The visible challenge, and 32 operations on 9 places: blocks of 1 … 4 tokens, and truncates.
    Either the blocks often do not fit, or they always do, and what goes back goes everywhere: some
    truncates to more than is held, and resets."""

    def draw(seed: int) -> Challenge:
        rng = np.random.default_rng([seed, 1])
        names = ["feed"] * 4 + (["truncate"] * 3 + ["reset"] if goes_back else ["truncate"] * 2)
        operations, held = [], []
        for _ in range(32):
            name, n = str(rng.choice(names)) if held else "feed", int(rng.integers(1, 5))
            first = int(rng.integers(0, 10 - n))
            if goes_back and name == "feed" and len(held) + n > 9:
                name = "truncate"
            if name == "truncate":
                low, high = (-1, len(held) + 1) if goes_back else (0, len(held))
                n = int(rng.integers(low, high + 1))
            operations.append((name, first, n))
            _, held = expected(name, first, n, held)
        return {**visible.cache_can_go_back.challenge(seed), "operations": operations}

    return draw


def operations_verdict(before: Check) -> Callable[..., Verdict]:
    """The visible verdict first; then every operation against a list of the tokens held."""

    def judge(challenge: Challenge, evidence: Evidence) -> Verdict:
        verdict = before.decide(challenge, evidence)
        if verdict.score < 1:
            return verdict
        layers = len(challenge["blocks"][0])
        for part in ("held", "again", "fresh"):  # which the visible verdict goes through
            if len(evidence.get(part, range(layers))) != layers:
                return failed("A part of what was asked for did not come back.")
        held: list[int] = []  # which of the challenge's tokens, in their order
        done: list[str] = []  # since the last reset
        for (name, first, n), seen in zip(
            challenge["operations"], evidence["operations"], strict=True
        ):
            came, after = expected(name, first, n, held)
            done = ["reset()"] if name == "reset" else [*done, f"{name}({n})"]
            case = f"A cache of 9 places, and on it {', '.join(done)}"
            if (seen["came"], seen["length"]) != (came, len(after)):
                return failed(
                    f"{case}: {seen['came']}, and then it holds {seen['length']} tokens; wanted is "
                    f"{came}, and {len(after)}. (feed(n): append n tokens to every layer, advance.)"
                )
            held = after
            if name == "feed" and came == "returned":
                wanted = challenge["blocks"][..., held, :]
                if len(seen["returned"]) != wanted.shape[1]:
                    return failed(f"{case}: {len(seen['returned'])} layers gave something back.")
                for layer, got in enumerate(seen["returned"]):
                    if got.shape != wanted[:, layer].shape or (got != wanted[:, layer]).any():
                        return failed(
                            f"{case}: layer {layer} returned other keys or values than the "
                            f"{len(held)} that it should hold. What was left from before?"
                        )
        return verdict

    return judge


def expected(name: str, first: int, n: int, held: list[int]) -> tuple[str, list[int]]:
    """What an operation must come to, and the tokens held afterwards."""
    if name == "reset":
        return "returned", []
    if name == "truncate":
        return ("returned", held[:n]) if 0 <= n <= len(held) else ("ValueError", held)
    if len(held) + n > 9:
        return "CacheFull", held
    return "returned", held + list(range(first, first + n))


# Generation


def draw_generation(seed: int) -> Challenge:
    """A prompt; and what a cache of n tokens holds, for each n: (n, 2, L, B, G, n, D)."""
    challenge = draw_prompt(seed)
    rng = np.random.default_rng([seed, 1])
    held, c = int(rng.integers(2, 6)), GPTConfig(**challenge["config"])
    places = held + challenge["n_new"]
    shape = (places + 1, 2, c.n_layers, 3, c.n_kv_heads, places, c.head_dim)
    contents = rng.normal(size=shape).astype(np.float32)
    return {**challenge, "held": held, "contents": contents}


def judge_exchanged(challenge: Challenge, evidence: Evidence) -> Verdict | None:
    """Each new token is the likeliest after what the cache held at that step, and one token."""
    text, g = evidence["exchanged"], challenge["n_new"]
    case = "A cache in which all keys and values are exchanged for others before every pass"
    prompt = challenge["prompt"][:, -1:]
    if text.shape != (len(prompt), 1 + g) or (text[:, :1] != prompt).any():
        return failed(f"{case}: a prompt {prompt.shape} and n_new={g} gave shape {text.shape}.")
    for step in range(g):
        n = challenge["held"] + step
        past = challenge["contents"][n][..., :n, :]
        last = logits_after(challenge, text[:, step : step + 1], past)[:, 0]  # (B, V)
        chosen = last[np.arange(len(last)), text[:, step + 1]]
        for row in np.flatnonzero(last.max(axis=1) - chosen > TOLERANCE)[:1]:
            return failed(
                f"{case}: batch row {row}, new token {step + 1}, is {text[row, step + 1]}; from the "
                f"{n} rows that the cache holds at that step it is {last[row].argmax()}. What does "
                f"your code compute from beside the cache and the newest token?"
            )
    return None


def flop_limit(challenge: Challenge) -> int:
    """FLOPs that a cached generation may need at most: logits of every token fed, and attention of
    every query over every place, masked or not. (Computing one row too often costs more than
    what is left over here.)"""
    c = GPTConfig(**challenge["config"])
    B, P = challenge["prompt"].shape
    rows, C, kv_width = P + challenge["n_new"] - 1, c.d_model, c.n_kv_heads * c.head_dim
    layer = C * (C + 2 * kv_width) + C * C + 3 * C * c.d_ff
    attention = 2 * C * (rows + 1)
    return 2 * B * rows * (c.n_layers * (layer + attention) + c.vocab_size * C)


def judge_generation(challenge: Challenge, evidence: Evidence) -> Verdict:
    verdict = generation_verdict(logits)(challenge, evidence)
    limit = flop_limit(challenge)
    if verdict.score == 1 and not evidence["flops"] <= limit:
        return failed(
            f"The text is right, but {evidence['flops']:,} FLOPs were spent where {limit:,} are "
            f"enough. What is computed again, beside the rows that go through wk?"
        )
    if verdict.score == 1:
        return judge_exchanged(challenge, evidence) or verdict
    return verdict


CHECKS = by_name(
    visible.mask_is_rectangular,
    whole(
        visible.cache_returns_what_it_was_given.hidden(challenge=draw_blocks_to_return),
        lambda c, e: all(len(layers) == len(c["blocks"][0]) for layers in e["returned"]),
    ),
    visible.full_cache_changes_nothing.hidden(
        probe=probes.full_cache_changes_nothing,
        challenge=draw_operations(goes_back=False),
        verdict=operations_verdict(visible.full_cache_changes_nothing),
    ),
    whole(
        visible.cache_can_go_back.hidden(
            probe=probes.cache_can_go_back,
            challenge=draw_operations(goes_back=True),
            verdict=operations_verdict(visible.cache_can_go_back),
        ),
        lambda _, e: e["refused"].keys() == {"7", "-1"},
    ),
    visible.layer_equals_uncached.hidden(verdict=layer_verdict(layer_output)),
    visible.every_split_equals_uncached.hidden(verdict=splits_verdict(logits)),
    visible.cache_is_the_only_memory.hidden(verdict=judge_poison),
    visible.two_conversations_stay_apart.hidden(verdict=two_texts_verdict(logits)),
    visible.no_row_is_computed_twice.hidden(
        probe=probes.no_row_is_computed_twice,
        challenge=draw_generation,
        verdict=judge_generation,
    ),
    visible.bytes_match_the_storage,
)
