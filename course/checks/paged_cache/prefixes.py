"""Check what a block is found by, how much of a prompt is reused, and what that saves."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.model.config import GPTConfig


def draw_pasts(seed: int) -> Challenge:
    """Draw texts that are alike in all ways but one, in blocks of a size; and many short ones."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))
    base = rng.choice(np.arange(100, 900), 4 * size, replace=False).tolist()
    block = base[:size]
    other_first = [*base]
    other_first[0] = 950
    other_last = [*base]
    other_last[-1] = 951
    swapped = [base[1], base[0], *base[2:]]
    blocks_swapped = [*base[size : 2 * size], *base[:size], *base[2 * size :]]
    # One number is moved across the comma, or is so large that a byte or two cannot hold it.
    glued = [1, 23, *[5] * (size - 2)], [12, 3, *[5] * (size - 2)]
    wrapped = [[n, *base[1:size]] for n in (7, 7 + 256, 7 + 65_536, 7 + 2**24)]
    texts = [
        base,
        list(base),
        base[: 3 * size + 1],
        base[: size - 1],
        [],
        base[:size],
        other_first,
        other_last,
        swapped,
        blocks_swapped,
        block * 3,
        [0] * (3 * size),
        *glued,
        *wrapped,
        *rng.integers(0, 2**20, (600, size)).tolist(),
    ]
    return {"size": size, "texts": texts}


def probe_pasts(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Ask for the keys of each text, as hexadecimal digits; what is no bytes is named by its type."""
    keys = [
        [key.hex() if isinstance(key, bytes) else f"a {type(key).__name__}" for key in found]
        for found in (
            student.block_keys(list(text), challenge["size"]) for text in challenge["texts"]
        )
    ]
    return {"keys": keys}


def pasts_form(challenge: Challenge) -> Evidence:
    return {"keys": [Each(str)] * len(challenge["texts"])}


@check("block_keys", draw=draw_pasts, probe=probe_pasts, evidence=pasts_form)
def keys_say_the_whole_past(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Two keys must be equal where the whole past is, and nowhere else."""
    size = challenge["size"]
    past_of: dict[str, tuple[int, ...]] = {}
    key_of: dict[tuple[int, ...], str] = {}
    for text, keys in zip(challenge["texts"], evidence["keys"], strict=True):
        if len(keys) != len(text) // size:
            return failed(
                f"{len(text)} tokens in blocks of {size} have {len(text) // size} full ones, and "
                f"{len(keys)} keys came back. What happens to a block that is not full?"
            )
        for number, key in enumerate(keys):
            if key.startswith("a "):
                return failed(f"A key is {key}; wanted is bytes. What do you return?")
            past = tuple(text[: (number + 1) * size])
            if key_of.setdefault(past, key) != key:
                return failed(
                    f"{_said(past)} in blocks of {size}: the last key differs from that of the very "
                    f"same tokens before. What beside the tokens goes into it?"
                )
            if past_of.setdefault(key, past) != past:
                return failed(
                    f"In blocks of {size}, the last blocks of {_said(past_of[key])} and of "
                    f"{_said(past)} have one key. {_ask(past_of[key], past, size)}"
                )
    return passed(f"{len(key_of)} different pasts have as many keys, and equal ones have one.")


def _said(tokens: tuple[int, ...]) -> str:
    return f"{list(tokens)}"


def _ask(one: tuple[int, ...], other: tuple[int, ...], size: int) -> str:
    if one[-size:] == other[-size:]:
        return "The last block is the same, its past is not. Are its keys and values?"
    if sorted(one[-size:]) == sorted(other[-size:]):
        return "The words are the same, their order is not. Does it matter?"
    return "What of the tokens is lost on the way to the key?"


# --- what is reused -------------------------------------------------------------------------------


def draw_prompts(seed: int) -> Challenge:
    """Draw a text of 20 tokens in blocks of 4, numbers for its blocks, and cases: how much of it a
    prompt repeats, and which of its blocks are known."""
    rng = np.random.default_rng(seed)
    text = rng.choice(np.arange(100, 900), 20, replace=False).tolist()
    numbers = rng.permutation(30)[:5].tolist()
    cases = [
        {"size": 4, "prompt": text[:n], "known": [0, 1, 2, 3, 4]} for n in (1, 4, 5, 12, 13, 16, 17)
    ]
    unlike = [*text[:6], 950, *text[7:18]]
    cases += [
        {"size": 4, "prompt": text[:17], "known": known}
        for known in ([], [1, 2, 3, 4], [0, 2, 3], [0, 1], [3])
    ]
    cases += [
        {"size": 4, "prompt": unlike, "known": [0, 1, 2, 3, 4]},
        {"size": 1, "prompt": text[:1], "known": [0, 1, 2, 3, 4]},
        {"size": 1, "prompt": text[:3], "known": [0, 1, 2, 3, 4]},
        {"size": 4, "prompt": [*text, 951, 952, 953, 954], "known": [0, 1, 2, 3, 4]},
    ]
    return {"text": text, "numbers": numbers, "cases": cases}


def probe_prompts(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Ask for the blocks of each prompt, where these blocks of the text are known."""
    found = []
    for case in challenge["cases"]:
        keys = student.block_keys(list(challenge["text"]), case["size"])
        numbers = challenge["numbers"] * 4
        known = {keys[place]: numbers[place] for place in case["known"]}
        blocks = student.reusable_blocks(list(case["prompt"]), case["size"], known)
        found.append([plain(block) for block in blocks])
    return {"found": found}


def prompts_form(challenge: Challenge) -> Evidence:
    return {"found": [Each(NUMBER_OR_WORDS)] * len(challenge["cases"])}


@check(
    "block_keys", "reusable_blocks", draw=draw_prompts, probe=probe_prompts, evidence=prompts_form
)
def reuse_leaves_a_token(
    challenge: Challenge,
    evidence: Evidence,
    truth: Callable[[Challenge, dict[str, Any]], list[int]],
) -> Verdict:
    for case, got in zip(challenge["cases"], evidence["found"], strict=True):
        wanted, P, size = truth(challenge, case), len(case["prompt"]), case["size"]
        if got == wanted:
            continue
        said = (
            f"A prompt of {P} tokens in blocks of {size}; of a text that begins alike, blocks "
            f"{case['known']} are known, as {[(challenge['numbers'] * 4)[n] for n in case['known']]}:"
            f" {got} came back, wanted is {wanted}."
        )
        if len(got) * size >= P:
            return failed(f"{said} From which logits is the first new token chosen?")
        if len(got) > len(wanted):
            return failed(f"{said} Which block does each of them come after?")
        return failed(f"{said} Which numbers stand for the first blocks, and where does it stop?")
    return passed("The longest known beginning is reused, and a token is always left to be fed.")


# --- what it saves --------------------------------------------------------------------------------


def draw_prefills(seed: int) -> Challenge:
    """Draw models with prompts of which nothing, a part, or all but one token is cached."""
    rng = np.random.default_rng(seed)
    cases = []
    for part in ("none", "some", "some", "most", "one"):
        heads = int(rng.integers(2, 5))
        config = GPTConfig(
            int(rng.integers(200, 900)), int(rng.integers(2, 6)), 48 * heads, 2 * heads, heads, 200
        )
        n = 1 if part == "one" else int(rng.integers(100, 900))
        cached = {"none": 0, "some": int(rng.integers(1, max(2, n - 1))), "most": n - 1, "one": 0}
        cases.append({"config": config.to_dict(), "prompt": n, "cached": cached[part]})
    return {"cases": cases}


def probe_prefills(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Ask for the share that each case saves."""
    return {
        "saved": [
            plain(student.prefill_saved(GPTConfig(**c["config"]), c["prompt"], c["cached"]))
            for c in challenge["cases"]
        ]
    }


def prefills_form(challenge: Challenge) -> Evidence:
    return {"saved": [NUMBER_OR_WORDS] * len(challenge["cases"])}


@check(
    "prefill_saved",
    draw=draw_prefills,
    probe=probe_prefills,
    evidence=prefills_form,
    tolerance=1e-06,
)
def saved_share_of_flops(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Challenge], float], tolerance: float
) -> Verdict:
    for case, got in zip(challenge["cases"], evidence["saved"], strict=True):
        wanted = truth(case)
        said = f"A prompt of {case['prompt']} tokens, {case['cached']} of them cached"
        if isinstance(got, str):
            return failed(
                f"{said}: prefill_saved gave {got}; wanted is a number. What is returned?"
            )
        if not abs(got - wanted) <= tolerance:
            return failed(
                f"{said}: prefill_saved gives {got:.6g}, wanted is {wanted:.6g}. Which tokens are "
                f"new, what do they still look at, and of what is it a share?"
            )
    return passed("The share of FLOPs that is saved, from nothing to nearly all.")
