"""Check what a block is found by, how much of a prompt is reused, and what that saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.calls import Case, Words, call, check_calls
from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.collisions import SAME_CHECKSUM, SAME_HASH
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.checks.recording import Place, one_each
from course.checks.weighing import run_with_config
from course.model.config import GPTConfig


def draw_pasts(seed: int) -> Challenge:
    """Draw texts that are alike in all ways but one, in blocks of a size; many short ones; pairs that a
    checksum of 32 bits, or `hash()`, does not tell apart; and one that is longer than a digest."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))
    base = rng.choice(np.arange(100, 900), 4 * size, replace=False).tolist()
    block, second = base[:size], base[size : 2 * size]
    hashed = [[*begin, *[5] * (size - 2)] for begin in SAME_HASH]
    begin = rng.integers(0, 2**20, 10).tolist()
    checked = [[*begin, *end] for pair in SAME_CHECKSUM for end in pair]
    # A digit is moved across a comma, or across the edge of a block, or a byte from one number to the
    # next; or a number is so large that a byte or two cannot hold it.
    pairs = (1, 23), (12, 3), (258, 3), (1, 515), (2, 769)
    glued = [[*pair, *[5] * (size - 2)] for pair in pairs]
    seams = [[*[5] * (size - 1), *pair, *[5] * (size - 1)] for pair in ((1, 23), (12, 3))]
    wrapped = [[n, *block[1:]] for n in (7, 7 + 256, 7 + 65_536, 7 + 2**24)]
    texts = [
        base,
        list(base),
        base[: 3 * size + 1],
        base[: size - 1],
        [],
        block,
        [950, *base[1:]],
        [*base[:-1], 951],
        [base[1], base[0], *base[2:]],
        [*second, *block, *base[2 * size :]],
        block * 3,
        [0] * (3 * size),
        *glued,
        *seams,
        *wrapped,
        *rng.integers(0, 2**20, (600, size)).tolist(),
        *hashed,
        *checked,
        rng.integers(0, 2**20, 72).tolist(),
    ]
    return {"size": size, "texts": texts}


def probe_pasts(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Compute the keys of each text, as hexadecimal digits; what is no bytes is named by its type."""

    def as_text(key: Any) -> str:
        return key.hex() if isinstance(key, bytes) else f"a {type(key).__name__}"

    texts, size = challenge["texts"], challenge["size"]
    return {"texts": [[as_text(key) for key in student.block_keys([*t], size)] for t in texts]}


@check(
    "block_keys", draw=draw_pasts, probe=probe_pasts, evidence=one_each("texts", texts=Each(str))
)
def keys_say_the_whole_past(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Two keys must be equal where the whole past is, and nowhere else."""
    size = challenge["size"]
    past_of: dict[str, list[int]] = {}
    key_of: dict[tuple[int, ...], str] = {}
    for text, keys in zip(challenge["texts"], evidence["texts"], strict=True):
        if len(keys) != len(text) // size:
            question = "What happens to a block that is not full?"
            if len(keys) < len(text) // size:
                question = "Which full block gets no key, and where does your loop end?"
            return failed(
                f"{len(text)} tokens in blocks of {size} have {len(text) // size} full ones, and "
                f"{len(keys)} keys came back. {question}"
            )
        for number, key in enumerate(keys):
            if key.startswith("a "):
                return failed(f"A key is {key}; expected is bytes. What do you return?")
            past = text[: (number + 1) * size]
            if len(past) >= 64 and len(key) < 32:  # hexadecimal digits, two for a byte
                return failed(
                    f"The key of {len(past)} tokens has {len(key) // 2} bytes. How long would somebody "
                    f"look for another text with the same key?"
                )
            if key_of.setdefault(tuple(past), key) != key:
                return failed(
                    f"{past} in blocks of {size}: the last key differs from that of the very same "
                    f"tokens before. What beside the tokens goes into it?"
                )
            if (other := past_of.setdefault(key, past)) != past:
                return failed(
                    f"In blocks of {size}, the last blocks of {other} and of {past} have one key. "
                    f"{_ask(other, past, size)}"
                )
    return passed(f"{len(key_of)} different pasts have as many keys, and equal ones have one.")


def _ask(one: list[int], other: list[int], size: int) -> str:
    """Ask about two texts whose last blocks have one key."""
    if one[-size:] == other[-size:]:
        alike = "two blocks are" if one[-2 * size :] == other[-2 * size :] else "block is"
        return f"The last {alike} the same, the past is not. What of the past does a key know?"
    one, other = one[-size:], other[-size:]
    if sorted(one) == sorted(other):
        return "The words are the same, their order is not. Does it matter?"
    return "What of the tokens is lost on the way to the key?"


# --- what is reused -------------------------------------------------------------------------------


def draw_prompts(seed: int) -> Challenge:
    """Draw a text of 20 tokens in blocks of 4, numbers for its blocks, the first being 0, and cases: how
    much of it a prompt repeats, and which of its blocks are known."""
    rng = np.random.default_rng(seed)
    text = rng.choice(np.arange(100, 900), 20, replace=False).tolist()
    numbers = [0, *rng.permutation(np.arange(1, 30))[:4].tolist()] * 4
    every = [0, 1, 2, 3, 4]
    cases = [
        *((4, text[:n], every) for n in (1, 4, 5, 12, 13, 16, 17)),
        *((4, text[:17], known) for known in ([], [1, 2, 3, 4], [0, 2, 3], [0, 1], [3])),
        (4, [*text[:6], 950, *text[7:18]], every),
        (1, text[:1], every),
        (1, text[:3], every),
        (4, [*text, 951, 952, 953, 954], every),
    ]
    return {
        "text": text,
        "cases": [
            {"size": size, "prompt": prompt, "known": [[n, numbers[n]] for n in known]}
            for size, prompt, known in cases
        ],
    }


def probe_prompts(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Find the blocks of each prompt, where these blocks of the text are known."""
    results = []
    for case in challenge["cases"]:
        keys = student.block_keys(list(challenge["text"]), case["size"])
        known = {keys[place]: number for place, number in case["known"]}
        blocks = student.reusable_blocks(list(case["prompt"]), case["size"], known)
        results.append([plain(block) for block in blocks])
    return {"cases": results}


@check(
    "block_keys",
    "reusable_blocks",
    draw=draw_prompts,
    probe=probe_prompts,
    evidence=one_each(cases=Each(NUMBER_OR_WORDS)),
)
def reuse_leaves_a_token(
    challenge: Challenge, evidence: Evidence, truth: Callable[..., list[int]]
) -> Verdict:
    """Compare the blocks of each prompt with those of `truth`: of (text, size, prompt, known)."""
    for case, result in zip(challenge["cases"], evidence["cases"], strict=True):
        size, prompt, known = case["size"], case["prompt"], case["known"]
        expected = truth(challenge["text"], size, prompt, known)
        if result == expected:
            continue
        question = "Which numbers stand for the first blocks, and where does it stop?"
        if len(result) * size >= len(prompt):
            question = "From which logits is the first new token chosen?"
        elif len(result) > len(expected):
            question = "Which block does each of them come after?"
        return failed(
            f"A prompt of {len(prompt)} tokens in blocks of {size}; of a text that begins alike, these "
            f"blocks, counted from 0, are known, with their numbers in the pool: {dict(known)}. {result} "
            f"came back, expected is {expected}. {question}"
        )
    return passed("The longest known beginning is reused, and a token is always left to be fed.")


# --- what it saves --------------------------------------------------------------------------------


def draw_prefills(rng: np.random.Generator) -> Iterator[Case]:
    """Draw models with prompts of which nothing, a part, or all but one token is cached."""
    for part in ("none", "some", "some", "most", "one"):
        heads = int(rng.integers(2, 5))
        vocab_size, n_layers = int(rng.integers(200, 900)), int(rng.integers(2, 6))
        config = GPTConfig(vocab_size, n_layers, 48 * heads, 2 * heads, heads, 200)
        n = 1 if part == "one" else int(rng.integers(100, 900))
        cached = {"some": int(rng.integers(1, max(2, n - 1))), "most": n - 1}.get(part, 0)
        yield call("prefill_saved", config.to_dict(), n, cached)


@check_calls(
    "prefill_saved",
    draw=draw_prefills,
    run=run_with_config,
    describe=lambda case: "A prompt of {} tokens, {} of them cached: prefill_saved".format(
        *case["arguments"][1:]
    ),
    praise="The share of FLOPs that is saved, from nothing to nearly all.",
    tolerance=1e-06,
)
def saved_share_of_flops(case: Case, result: float, expected: float, place: Place) -> Words:
    question = "Which tokens are new, what do they still look at, and of what is it a share?"
    _, n, cached = case["arguments"]
    return f"gives {result:.6g}, expected is {expected:.6g}.", (
        (expected == 0, "Nothing is cached here. What is saved then?"),
        (not 0 <= result <= 1, "A share lies between 0 and 1. What do you divide, and by what?"),
        (
            abs(result + expected - 1) < 1e-6,
            "Is that the share that is saved, or the one that is left?",
        ),
        (
            abs(result - cached / n) < 1e-6,
            "That is the share of tokens. Does each token cost the same?",
        ),
        (True, question),
    )
