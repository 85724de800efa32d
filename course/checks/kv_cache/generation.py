"""Check cached generation: the uncached text, from the fewest rows of keys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.caches import new_cache
from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import Truth, WrongChoice, first_wrong_choice, outcome, uncached
from course.checks.default_device import beside_default
from course.checks.drawing import (
    build_model,
    draw_model,
    draw_rows_with_end_next,
    draw_tokens,
    with_near_ties,
)
from course.checks.kv_cache.layers import AnotherCache
from course.checks.recorder import given
from course.checks.rules import OWN_CACHE, wrong_device
from course.measure.counting import count_kv_rows
from course.model.cache import KVCacheLike
from course.world.tokenizer import END, PAD


def draw_prompt(seed: int) -> Challenge:
    """Draw a model, four prompts (B, P), some of them alike, and n_new; and a prompt with which the
    model's longest text is just full. The first prompt is continued by `<end>`."""
    rng = np.random.default_rng(seed)
    longest = int(rng.integers(135, 150))
    model = draw_model(rng, max_seq_len=longest)
    length, n_new = int(rng.integers(2, 6)), int(rng.integers(3, 6))
    prompts = draw_rows_with_end_next(rng, model, length)
    long = draw_tokens(rng, 1, longest - 3, model["config"]["vocab_size"])
    return {**prompts, "n_new": n_new, "long": long}


def texts_to_write(challenge: Challenge) -> dict[str, tuple[np.ndarray, int]]:
    """List prompts and numbers of new tokens for which a text is judged, by what a message calls them.
    `<end>` comes late: who is wrong anyway should not be asked about it."""
    prompt, n_new = challenge["prompt"], challenge["n_new"]
    return {
        "Prompts of one token. ": (prompt[:, :1], n_new),
        "One row. ": (prompt[2:3], n_new),
        "": (prompt, n_new),
        "The first row alone. ": (prompt[:1], n_new),
        "One new token. ": (prompt, 1),
        "One token after one. ": (prompt[:, :1], 1),
        "The longest text that the model can read. ": (challenge["long"], 3),
        "Many new tokens. ": (prompt[:1], 24),
    }


def probe_generation(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Generate with a new cache, a given one, one that goes on and one that is too small; few tokens or
    none; and what must be refused."""
    model, n_new = build_model(challenge), challenge["n_new"]
    with count_kv_rows(model) as count:
        text = write(student, model, challenge["prompt"], n_new)
    double = build_model(challenge).double()
    return {
        "rows": [list(calls) for calls in count.by_layer],
        "dtype": text if isinstance(text, str) else str(text.dtype),
        "texts": [
            write(student, model, prompt, n) for prompt, n in texts_to_write(challenge).values()
        ],
        "float64": write(student, double, challenge["prompt"], n_new),
        "close": write(student, build_model(with_near_ties(challenge)), challenge["prompt"], n_new),
        "none": probe_none(student, model, challenge["prompt"]),
        **probe_given_caches(student, model, challenge),
        "refused": probe_refusals(student, model, challenge),
        "elsewhere": write_elsewhere(student, challenge),
    }


def write_elsewhere(student: SimpleNamespace, challenge: Challenge) -> str:
    """Generate two tokens where new tensors lie elsewhere; return what is wrong."""
    model, prompt = build_model(challenge), given(challenge["prompt"])
    return beside_default(lambda: student.generate_cached(model, prompt, 2))


def write(
    student: SimpleNamespace,
    model: Any,
    prompt: np.ndarray,
    n_new: int,
    cache: KVCacheLike | None = None,
) -> np.ndarray | str:
    """Generate; return the text, or the name of the exception in its place."""
    texts = []
    stopped = outcome(
        lambda: texts.append(student.generate_cached(model, given(prompt), n_new, cache).numpy())
    )
    return texts[0] if texts else stopped


def probe_none(student: SimpleNamespace, model: Any, prompt: np.ndarray) -> Evidence:
    """Generate no token: from the prompt, from its first token alone, with a cache given, and with one
    that has no room for the prompt."""
    tokens = given(prompt)
    cache = new_cache(student, {"config": model.config.to_dict()}, 9, len(prompt))
    memories = [tokens.untyped_storage().data_ptr()]

    def generate_nothing() -> None:
        text = student.generate_cached(model, tokens, 0)
        memories.append(text.untyped_storage().data_ptr())

    with count_kv_rows(model) as count:
        outcome(generate_nothing)
        texts = [write(student, model, start, 0) for start in (prompt, prompt[:, :1])]
    small = new_cache(student, {"config": model.config.to_dict()}, 1, len(prompt))
    prompts = (prompt, cache), (twice(prompt), small)
    return {
        "texts": [*texts, *(write(student, model, start, 0, held) for start, held in prompts)],
        "held": len(cache),
        "rows": max(map(sum, count.by_layer)),
        "shared": len(set(memories)) < len(memories),
    }


def twice(prompt: np.ndarray) -> np.ndarray:
    """Two times the same words, (B, 2 · P)."""
    return np.concatenate([prompt, prompt], axis=1)


def text_in_two_parts(challenge: Challenge) -> tuple[np.ndarray, np.ndarray]:
    """Four texts in two parts, (4, 2) and (4, 5): a prompt longer than what the cache holds before it."""
    text = challenge["long"][:, :28].reshape(4, 7)
    return text[:, :2], text[:, 2:]


def probe_given_caches(student: SimpleNamespace, model: Any, challenge: Challenge) -> Evidence:
    """Generate in a given cache, from there on, one token in a cache of just the prompt's size, and from
    a prompt longer than what the cache holds; and until a cache as long as the model's text is full."""
    prompt, n_new = challenge["prompt"], challenge["n_new"]
    B, P = prompt.shape
    cache = new_cache(student, challenge, 2 * (P + n_new), batch=B)
    text = write(student, model, prompt, n_new, cache)
    held = len(cache)
    last = text[:, -1:] if isinstance(text, np.ndarray) else prompt[:, :1]
    again = write(student, model, last, n_new, cache)
    room = OfAnotherClass(new_cache(student, challenge, P, batch=B))
    before, after = text_in_two_parts(challenge)
    begun = new_cache(student, challenge, before.shape[1] + after.shape[1] + n_new - 1, batch=4)
    write(student, model, before, 1, begun)
    write(student, model, after, n_new, begun)
    long, longest = challenge["long"], challenge["config"]["max_seq_len"]
    full = new_cache(student, challenge, longest, batch=1)
    write(student, model, long[:, :-5], 1, full)  # of the longest - 3 tokens
    return {
        "held": held,
        "continued": len(cache),
        "again": again if isinstance(again, str) else "",
        "until_full": write(student, model, long[:, -5:], 4, full),
        "after_others": len(begun),
        "one_in_a_cache": write(student, model, prompt, 1, room),
        "one_held": len(room),
    }


def probe_refusals(student: SimpleNamespace, model: Any, challenge: Challenge) -> list[Evidence]:
    """Ask for what must be refused; record the outcome, the rows of keys it cost and what is held."""
    prompt, n_new, long = challenge["prompt"], challenge["n_new"], challenge["long"]
    B, P = prompt.shape
    caches = [new_cache(student, challenge, P + n_new - 2 + more, batch=B) for more in (0, 0, 1)]
    write(student, model, prompt[:, :1], 1, caches[2])
    full = new_cache(student, challenge, P, batch=B)
    write(student, model, prompt, 1, full)
    records = []
    for tokens, n, cache in (
        (prompt, -1, None),
        (prompt, -1, caches[0]),
        (prompt, n_new, caches[1]),
        (prompt, n_new, caches[2]),
        (prompt[:, :1], 1, full),
        (long, 4, None),
    ):
        with count_kv_rows(model) as count:
            text = write(student, model, tokens, n, cache)
        result = text if isinstance(text, str) else f"a text of {text.shape[1]} tokens"
        held = 0 if cache is None else len(cache)
        records.append({"outcome": result, "rows": max(map(sum, count.by_layer)), "held": held})
    return records


def generation_form(challenge: Challenge) -> Evidence:
    written = (np.ndarray, str)
    return {
        "texts": [written] * len(texts_to_write(challenge)),
        "float64": written,
        "close": written,
        "dtype": str,
        "rows": [Each(int)] * challenge["config"]["n_layers"],
        "held": int,
        "continued": int,
        "again": str,
        "none": {"texts": [written] * 4, "held": int, "rows": int, "shared": bool},
        "one_in_a_cache": written,
        "one_held": int,
        "after_others": int,
        "until_full": written,
        "refused": [{"outcome": str, "rows": int, "held": int}] * 6,
        "elsewhere": str,
    }


@check(
    "generate_cached",
    "KVCache",
    draw=draw_prompt,
    probe=probe_generation,
    evidence=generation_form,
    truth=uncached,
)
def no_row_is_computed_twice(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    prompt, g = challenge["prompt"], challenge["n_new"]
    B, P = prompt.shape
    case = f"A prompt (B, P) = ({B}, {P}) and n_new = {g}"
    texts = zip(texts_to_write(challenge).items(), evidence["texts"], strict=True)
    for (name, (start, n)), text in texts:
        if wrong := _wrong_text(challenge, name, start, n, text, truth, tolerance):
            return wrong
    if evidence["dtype"] != "int64":
        return failed(
            f"{case}: got {evidence['dtype']}, wanted is int64. What type has the prompt, and what did "
            f"you put it together with?"
        )
    return (
        _wrong_none(prompt, evidence["none"])
        or _wrong_in_a_cache(challenge, evidence, truth, tolerance)
        or _wrong_text(
            challenge, "A model of float64. ", prompt, g, evidence["float64"], truth, tolerance
        )
        or _wrong_text(
            with_near_ties(challenge), CLOSE, prompt, g, evidence["close"], truth, tolerance
        )
        or _wrong_refusal(challenge, evidence["refused"])
        or _wrong_work(case, evidence["rows"], B, P, g)
        or _wrong_device(evidence["elsewhere"])
        or passed(f"{case}: the uncached text, and no row of keys computed twice.")
    )


def _wrong_device(found: str) -> Verdict | None:
    wrong = wrong_device("generate_cached", found)
    return failed(f"{wrong} {OWN_CACHE}") if wrong else None


def _wrong_text(
    challenge: Challenge,
    name: str,
    prompt: np.ndarray,
    n_new: int,
    text: np.ndarray | str,
    truth: Truth,
    tolerance: float,
) -> Verdict | None:
    """Say what is wrong with a text that continues `prompt` (B, P) by n_new tokens."""
    B, P = prompt.shape
    case = f"{name}A prompt (B, P) = ({B}, {P}) and n_new = {n_new}"
    if isinstance(text, str):
        question = "Which line stops it, in the generation or in the cache that it uses?"
        if text == "CacheFull":
            question = (
                "If every_split_equals_uncached passes: how many tokens do you feed in all, and how "
                "many places are there?"
            )
        return failed(f"{case}: {text}, wanted is a text of {P + n_new} tokens a row. {question}")
    if text.shape != (B, P + n_new):
        return failed(
            f"{case}: got shape {text.shape}, wanted is (B, P + n_new) = {(B, P + n_new)}. How often "
            f"does your loop turn? (A text goes on after `<end>`.)"
        )
    if (text[:, :P] != prompt).any():
        return failed(f"{case}: the first {P} tokens that come back are not the prompt.")
    V = challenge["config"]["vocab_size"]
    if text.min() < 0 or text.max() >= V:
        return failed(f"{case}: ids run from {text.min()} to {text.max()}, not within 0 … {V - 1}.")
    if wrong := first_wrong_choice(truth(challenge, text), text, P, tolerance):
        return failed(
            f"{case}: batch row {wrong.row}, new token {wrong.step + 1}, is "
            f"{text[wrong.row, P + wrong.step]}; without a cache it is {wrong.likeliest}, whose logit "
            f"leads by {wrong.lead:.2g}. {_ask_about_token(name, text[:, P:], wrong)}"
        )
    return None


class OfAnotherClass(AnotherCache):
    """A student's cache with all of its names, since what a layer reads of it is asked elsewhere."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)


CLOSE = "A model with close logits. "
"""What a message calls it."""


def _ask_about_token(name: str, new: np.ndarray, wrong: WrongChoice) -> str:
    if name == CLOSE:
        return "What happens to the logits before you compare them?"
    if END in new[wrong.row, : wrong.step] and new[wrong.row, wrong.step] in (END, PAD):
        return "`<end>` was written before it. Is that a reason to choose otherwise?"
    if wrong.step == 0:
        return (
            "If every_split_equals_uncached passes: which position's logits choose the first token, "
            "and of which row?"
        )
    return "The first new token is right. What was fed after it, and into which cache?"


def _wrong_none(prompt: np.ndarray, none: Evidence) -> Verdict | None:
    cases = (
        (prompt, ""),
        (prompt[:, :1], ""),
        (prompt, " and a cache given"),
        (twice(prompt), " and a cache of one place"),
    )
    for (start, also), text in zip(cases, none["texts"], strict=True):
        if isinstance(text, str) or text.shape != start.shape or (text != start).any():
            result = text if isinstance(text, str) else f"shape {text.shape}"
            return failed(
                f"A prompt (B, P) = {start.shape}{also}: n_new = 0 should return the prompt and "
                f"nothing else, and it gave {result}. What does your code do before its loop?"
            )
    if none["held"]:
        return failed(
            f"n_new = 0 and an empty cache: it holds {none['held']} tokens afterwards, wanted are 0. "
            f"For whose logits were they fed?"
        )
    if none["rows"]:
        return failed(
            f"n_new = 0 and no cache given: {none['rows']} rows of keys were computed, wanted are 0. "
            f"Who reads what was computed from them?"
        )
    if none["shared"]:
        return failed(
            "n_new = 0: your result and the caller's prompt are one tensor: whoever writes into one "
            "changes the other. What do you return when there is nothing to write?"
        )
    return None


def _wrong_in_a_cache(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict | None:
    """Judge what given caches hold afterwards."""
    prompt, P, g = challenge["prompt"], challenge["prompt"].shape[1], challenge["n_new"]
    name = f"A cache of {P} places, no KVCache but a KVCacheLike. "
    text = evidence["one_in_a_cache"]
    if problem := _wrong_text(challenge, name, prompt, 1, text, truth, tolerance):
        return problem
    if evidence["one_held"] != P:
        return failed(
            f"{name}A prompt of {P} tokens and n_new = 1: it holds {evidence['one_held']} tokens "
            f"afterwards, wanted are {P}. {_ask_about_held(evidence['one_held'], P, P)}"
        )
    held, continued = evidence["held"], evidence["continued"]
    once, twice = P + g - 1, P + 2 * g - 1
    stopped = f" ({evidence['again']})" * bool(evidence["again"])
    if (held, continued) != (once, twice):
        return failed(
            f"A prompt of {P} tokens, n_new = {g} and an empty cache: it holds {held} tokens "
            f"afterwards, and {continued} after {g} more from the last one{stopped}; wanted are {once} "
            f"and {twice}. {_ask_about_held(held, continued, once)}"
        )
    before, after = text_in_two_parts(challenge)
    (_, n_before), (_, P), held = before.shape, after.shape, evidence["after_others"]
    if held != n_before + P + g - 1:
        return failed(
            f"A cache that holds {n_before} tokens, P = {P} and n_new = {g}: it holds {held} afterwards, "
            f"wanted are {n_before} + {P} + {g} - 1. Which tokens of the prompt do you feed when others "
            f"are held before it?"
        )
    text, n = evidence["until_full"], challenge["config"]["max_seq_len"]
    if isinstance(text, str) or text.shape != (1, 9):
        result = text if isinstance(text, str) else f"shape {text.shape}"
        return failed(
            f"A cache of {n} places, {n - 8} of them taken, P = 5 and n_new = 4: {result}, wanted is a "
            f"text of 9 tokens, of which 8 are fed. What do you hold against max_seq_len = {n}?"
        )
    return None


def _ask_about_held(held: int, continued: int, once: int) -> str:
    if held == 0:
        return (
            "Is the cache that was given the one that is used (an empty one is a cache, too), and does "
            "it keep what was fed?"
        )
    if held == once + 1:
        return "For whose logits was the last new token fed?"
    if held == once == continued:
        return "Which tokens does the second call feed to a cache that holds others?"
    if held == once and continued < once:
        return (
            "The second call was given a cache that held tokens, and fewer were there afterwards. Who "
            "may empty or replace a given cache?"
        )
    return "Which tokens are fed, and does the cache keep them?"


def _wrong_refusal(challenge: Challenge, refused: list[Evidence]) -> Verdict | None:
    P, g, n = challenge["prompt"].shape[1], challenge["n_new"], challenge["long"].shape[1]
    cases = (
        ("n_new = -1", "ValueError", 0),
        (f"n_new = -1 and an empty cache of {P + g - 2} places", "ValueError", 0),
        (f"P = {P}, n_new = {g} and an empty cache of {P + g - 2} places", "CacheFull", 0),
        (f"P = {P}, n_new = {g} and a cache with 1 of {P + g - 1} places taken", "CacheFull", 1),
        (f"P = 1, n_new = 1 and a cache with all of {P} places taken", "CacheFull", P),
        (f"P = {n}, n_new = 4 and a model of {n + 3} positions", "ValueError", 0),
    )
    for (case, expected, held), seen in zip(cases, refused, strict=True):
        if (seen["outcome"], seen["held"]) != (expected, held):
            return failed(
                f"{case}: {seen['outcome']}, and then the cache holds {seen['held']} tokens; wanted is "
                f"{expected}, and {held}. Which line of yours should refuse this, and what comes before?"
            )
        if seen["rows"]:
            return failed(
                f"{case}: {expected} came only after {seen['rows']} rows of keys had been computed. Can "
                f"you know before the first forward pass?"
            )
    return None


def _wrong_work(case: str, rows: list[list[int]], B: int, P: int, g: int) -> Verdict | None:
    """Judge how many rows went through each layer, pass by pass. What NumPy computed was not seen."""
    expected = [B * P] + [B] * (g - 1)
    for layer, calls in enumerate(rows if any(rows) else []):
        if sum(calls) != sum(expected):
            return failed(
                f"{case}: layer {layer} computed {sum(calls)} rows of keys ({B} texts; rows of each "
                f"pass: {calls}), needed are {sum(expected)}. {_ask_about_calls(calls, expected)}"
            )
        if calls != expected:
            return failed(
                f"{case}: layer {layer} computed keys for {calls} rows, pass by pass; wanted are "
                f"{expected}. How many passes does the prompt take, and do all rows go into each?"
            )
    return None


def _ask_about_calls(calls: list[int], expected: list[int]) -> str:
    if calls == [*expected, expected[-1]]:
        return "The last pass is over the last new token. Who reads its logits?"
    if sum(calls) < sum(expected):
        return "Does every layer see every token once?"
    return "Which of these were computed before, or are never read?"
