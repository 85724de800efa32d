"""Check the cache as a container: what goes in comes back, a full one refuses, it can go back."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome
from course.checks.drawing import draw_split
from course.checks.kv_cache.container import USED_AGAIN, feed, new_cache
from course.checks.recorder import given
from course.measure.allocations import watch_new_tensors
from course.model.cache import CacheFull
from course.model.config import GPTConfig


def draw_blocks(seed: int) -> Challenge:
    """Draw keys and values, (2, L, B, G, 9, D), for a cache of 9 places, and a split of them; and the
    length of a long text."""
    rng = np.random.default_rng(seed)
    config = GPTConfig(30, 3, 24, 4, 2, 40, max_seq_len=8192)
    blocks = rng.normal(size=(2, 3, 3, 2, 9, 6)).astype(np.float32)
    return {
        "config": config.to_dict(),
        "blocks": blocks,
        "split": draw_split(rng, 9),
        "keep": int(rng.choice([2, 4])),  # of 6: keeping 3 would look like dropping 3
        "dtypes": ["float32", ["float16", "float64"][seed % 2]],
        "long": int(rng.integers(4100, 4400)),
    }


def probe_returns(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Append block after block, of each dtype, until one is refused; then a long text."""
    series = [_feed_in_turns(student, challenge, dtype) for dtype in challenge["dtypes"]]
    return {"series": series, **_feed_long(student, challenge)}


def _feed_in_turns(student: SimpleNamespace, challenge: Challenge, dtype: str) -> Evidence:
    """Append block after block, and after each its negative to another cache of the same sizes."""
    caches = [new_cache(student, challenge, 9, dtype=getattr(torch, dtype)) for _ in range(2)]
    at_first, blocks, done, refusal = len(caches[0]), [], 0, ""
    for n in challenge["split"]:
        block = challenge["blocks"][..., done : done + n, :]
        try:
            returned = feed(caches[0], block, getattr(torch, dtype))
            feed(caches[1], -block, getattr(torch, dtype))
        except CacheFull as error:
            refusal = str(error)
            break
        blocks.append({"returned": returned, "length": len(caches[0])})
        done += n
    return {"length": at_first, "blocks": blocks, "refusal": refusal}


def long_blocks(challenge: Challenge) -> np.ndarray:
    """Count up keys and values of one layer and row, (2, 1, 1, 2, S, 8): no two are equal."""
    n = challenge["long"]
    keys = np.arange(16 * n, dtype=np.float32).reshape(1, 1, 2, n, 8)
    return np.stack([keys, -keys - 1])


def _feed_long(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Append nearly all of a long text, then token by token; count what the last append writes into new
    memory. Places are left, so that what is held is a part of the storage."""
    blocks, n = long_blocks(challenge), challenge["long"]
    cache = student.KVCache(GPTConfig(30, 1, 16, 2, 2, 40, max_seq_len=8192), 1, n + 9)
    try:
        feed(cache, blocks[..., : n - 2, :])
        feed(cache, blocks[..., n - 2 : n - 1, :])
    except CacheFull as error:
        return {"long": f"CacheFull: {error}", "written": 0, "by": []}
    k, v = given(blocks[:, 0, ..., n - 1 :, :])
    with watch_new_tensors(k, v) as made:
        returned = cache.append(0, k, v)
    new = [tensor for tensor in made.tensors if tensor.made_by != "elsewhere"]
    return {
        "long": torch.stack(returned).numpy(),
        "written": sum(tensor.numbers for tensor in new),
        "by": sorted({tensor.made_by for tensor in new}),
    }


def returns_form(challenge: Challenge) -> Evidence:
    n_layers = challenge["blocks"].shape[1]
    block = {"returned": [np.ndarray] * n_layers, "length": int}
    series = {"length": int, "blocks": Each(block), "refusal": str}
    return {"series": [series] * 2, "long": (np.ndarray, str), "written": int, "by": Each(str)}


@check("KVCache", draw=draw_blocks, probe=probe_returns, evidence=returns_form)
def cache_returns_what_it_was_given(challenge: Challenge, evidence: Evidence) -> Verdict:
    for dtype, series in zip(challenge["dtypes"], evidence["series"], strict=True):
        if wrong := _judge_series(challenge, dtype, series):
            return wrong
    return _judge_long(challenge, evidence) or passed(
        f"Blocks of {challenge['split']} tokens come back whole and in order, in every layer, and no "
        f"older row is copied."
    )


def _judge_series(challenge: Challenge, dtype: str, evidence: Evidence) -> Verdict | None:
    split, done = challenge["split"], 0
    stored = challenge["blocks"].astype(dtype)
    if evidence["length"] != 0:
        return failed(f"A new cache holds {evidence['length']} tokens. What was put into it?")
    for call, n in enumerate(split):
        done += n
        if call == len(evidence["blocks"]):
            return failed(
                f"A cache of 9 places refused block {call + 1} of {split}, which fits: "
                f"CacheFull: {evidence['refusal']}. Which method counts, and how often is it called?"
            )
        block = evidence["blocks"][call]
        for layer, got in enumerate(block["returned"]):
            verdict = wrong_block(got, stored[:, layer, :, :, :done], split[: call + 1], layer)
            if verdict:
                return verdict
        if block["length"] != done:
            return failed(
                f"After appending {split[: call + 1]} tokens to each of 3 layers and advancing, "
                f"len(cache) is {block['length']}, not {done}. "
                f"Which method counts, and how often is it called?"
            )
    return None


def _judge_long(challenge: Challenge, evidence: Evidence) -> Verdict | None:
    n, got, wanted = challenge["long"], evidence["long"], long_blocks(challenge)[:, 0]
    case = f"A cache of {n + 9:,} places, and 1 token appended to {n - 1:,}"
    if isinstance(got, str):
        return failed(f"{case}: {got}. They fit. Which number in your code is the limit?")
    if got.shape != wanted.shape or (got != wanted).any():
        return failed(
            f"{case}: keys and values of shape {got.shape[1:]} came back, and not those that were "
            f"stored, {wanted.shape[1:]}. Where does your cache end?"
        )
    if evidence["written"] > wanted.size // 4:
        return failed(
            f"{case}: {evidence['written']:,} numbers were written into new memory "
            f"({', '.join(evidence['by'])}), and the keys and "
            f"values of 1 token are {wanted.size // n}. Which of your lines copies older rows?"
        )
    return None


def wrong_block(
    got: np.ndarray, wanted: np.ndarray, split: list[int], layer: int
) -> Verdict | None:
    """Fail keys and values (2, B, G, S, D) that a layer returned and that were not stored, or give
    None."""
    case = f"After blocks of {split}, layer {layer}"
    if got.shape != wanted.shape:
        return failed(
            f"{case} returned keys and values of shape {got.shape[1:]}, wanted is (B, G, S, D) = "
            f"{wanted.shape[1:]}. How many tokens are held or new?"
        )
    if got.dtype != wanted.dtype:
        return failed(
            f"{case} returned {got.dtype} from a {wanted.dtype} cache. What is its storage made of?"
        )
    wrong = np.argwhere(got != wanted)
    if not len(wrong):
        return None
    first = wrong[np.lexsort(wrong.T[::-1])[0]]
    kind, row, head, token, _ = first
    tokens = sorted(set(wrong[:, 3].tolist()))
    return failed(
        f"{case} returned other {['keys', 'values'][kind]} than were stored: first at batch row "
        f"{row}, KV head {head}, token {token} (wrong tokens: {tokens} of {wanted.shape[3]}; "
        f"got {got[tuple(first)]:.3g}, stored {wanted[tuple(first)]:.3g}). "
        f"{_ask_about_rows(got, wanted)}"
    )


def _ask_about_rows(got: np.ndarray, wanted: np.ndarray) -> str:
    other = got[got != wanted]
    if (other == USED_AGAIN).any():
        return (
            f"After advance the caller wrote {USED_AGAIN:g} over its own k and v. Is what you keep a "
            f"copy?"
        )
    if (got[0] == wanted[1]).all():
        return "These are the values where keys were asked for, or the other way round."
    if (other == -wanted[got != wanted]).all():
        return "Another cache was given those. What do two caches share?"
    if (other == 0).all():
        return "Nothing was written there. Which places does a block of several tokens take?"
    return "Which place, and which layer's storage, does this block belong to?"


def probe_full(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Append more than fits to a cache that is nearly full, fill it, and append one token more."""
    blocks = challenge["blocks"]
    cache = new_cache(student, challenge, 9)
    feed(cache, blocks[..., :7, :])
    k, v = given(blocks[:, 0] + 1)
    evidence: Evidence = {
        "too_many": outcome(lambda: cache.append(0, k[:, :, :3], v[:, :, :3])),
        "overwritten": overwrites_the_earlier(student, challenge),
        "length": len(cache),
        "filled": outcome(lambda: feed(cache, blocks[..., 7:, :])),
    }
    evidence["smallest"] = fill_one_place(student, challenge)
    if evidence["filled"] != "returned":
        return {**evidence, "after_full": "", "full_length": len(cache), "held": []}
    evidence["after_full"] = outcome(lambda: cache.append(0, k[:, :, :1], v[:, :, :1]))
    evidence["full_length"] = len(cache)
    cache.truncate(8)
    return {**evidence, "held": feed(cache, blocks[..., 8:, :])}


def overwrites_the_earlier(student: SimpleNamespace, challenge: Challenge) -> bool:
    """Append 1 token to 7 in a layer, and before advance 3 that do not fit; tell whether what came back
    for the first is another now."""
    blocks, cache = challenge["blocks"], new_cache(student, challenge, 9)
    feed(cache, blocks[..., :7, :])
    returned = cache.append(0, *given(blocks[:, 0, ..., 7:8, :]))
    before = torch.stack(returned)
    outcome(lambda: cache.append(0, *given(blocks[:, 0, ..., :3, :] + 1)))
    return not torch.equal(before, torch.stack(returned))


def fill_one_place(student: SimpleNamespace, challenge: Challenge) -> list[str]:
    """Append one token, then another, to a cache of one place for one row; say what each came to."""
    cache, row = new_cache(student, challenge, 1, batch=1), challenge["blocks"][:, :, :1, :, :1]
    return [outcome(lambda: feed(cache, row)), outcome(lambda: feed(cache, row))]


def full_form(challenge: Challenge) -> Evidence:
    return {
        "too_many": str,
        "overwritten": bool,
        "length": int,
        "filled": str,
        "smallest": [str] * 2,
        "after_full": str,
        "full_length": int,
        "held": Each(np.ndarray),
    }


@check("KVCache", draw=draw_blocks, probe=probe_full, evidence=full_form)
def full_cache_changes_nothing(challenge: Challenge, evidence: Evidence) -> Verdict:
    if evidence["too_many"] != "CacheFull":
        return failed(
            f"A cache of 9 places holds 7 tokens. Appending 3 more: {evidence['too_many']}, wanted "
            f"is CacheFull. When is the right moment to look at the room that is left?"
        )
    if evidence["length"] != 7:
        return failed(
            f"A cache of 9 places held 7 tokens and refused 3; now it holds {evidence['length']}. "
            f"What did the refused call change?"
        )
    if evidence["overwritten"]:
        return failed(
            "A cache of 9 places holds 7 tokens, and 1 more was appended to layer 0. Then append "
            "refused 3, and the keys or values that it had returned before are others. Was "
            "something written before the room was looked at?"
        )
    if evidence["filled"] != "returned":
        return failed(
            f"A cache of 9 places holds 7 tokens. Appending 2 more: {evidence['filled']}, but they "
            f"fit exactly. Is the last place usable?"
        )
    if evidence["after_full"] != "CacheFull":
        return failed(
            f"A cache of 9 places holds 9 tokens. Appending 1 more: {evidence['after_full']}, "
            f"wanted is CacheFull. Which end does your test for room compare?"
        )
    if evidence["full_length"] != 9:
        return failed(
            f"A full cache of 9 refused a token; now it holds {evidence['full_length']} tokens."
        )
    stored = challenge["blocks"].swapaxes(0, 1)  # (L, 2, B, G, 9, D)
    for layer, (held, wanted) in enumerate(zip(evidence["held"], stored, strict=True)):
        if held.shape != wanted.shape or (held != wanted).any():
            older_changed = held.shape == wanted.shape and (held != wanted)[..., :8, :].any()
            question = "What does each of these calls leave, and where is the next token written?"
            if older_changed:
                question = "Was something written before the room was looked at?"
            return failed(
                f"A full cache of 9 refused a token, went back to 8 and took one: layer {layer} then "
                f"returned other keys or values than were stored. {question}"
            )
    for came, wanted, which in zip(
        evidence["smallest"], ("returned", "CacheFull"), ("first", "second"), strict=True
    ):
        if came != wanted:
            return failed(
                f"A cache of 1 place, for 1 row: its {which} token came to {came}, wanted is {wanted}. "
                f"What is the smallest cache?"
            )
    return passed("A full cache refuses with CacheFull and holds exactly what it held.")


def probe_back(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Truncate a cache to impossible lengths and to a possible one, then reset it; append after each."""
    blocks, keep = challenge["blocks"], challenge["keep"]
    cache = new_cache(student, challenge, 9)
    feed(cache, blocks[..., :6, :])
    refused = {str(n): outcome(lambda n=n: cache.truncate(n)) for n in (7, -1)}
    lengths = [len(cache)]
    cache.truncate(6)
    lengths.append(len(cache))
    cache.truncate(keep)
    lengths.append(len(cache))
    again = feed(cache, blocks[..., 6:, :]) if len(cache) == keep else []
    cache.reset()
    lengths.append(len(cache))
    fresh = feed(cache, blocks[..., 3:, :]) if len(cache) == 0 else []
    cache.truncate(0)
    lengths.append(len(cache))
    return {"refused": refused, "lengths": lengths, "again": again, "fresh": fresh}


def back_form(challenge: Challenge) -> Evidence:
    return {
        "refused": {"7": str, "-1": str},
        "lengths": [int] * 5,
        "again": Each(np.ndarray),
        "fresh": Each(np.ndarray),
    }


@check("KVCache", draw=draw_blocks, probe=probe_back, evidence=back_form)
def cache_can_go_back(challenge: Challenge, evidence: Evidence) -> Verdict:
    blocks, keep = challenge["blocks"], challenge["keep"]
    for n, came in evidence["refused"].items():
        if came != "ValueError":
            return failed(f"A cache of 6 tokens, truncate({n}): {came}, wanted is ValueError.")
    for case, got, wanted in zip(
        (
            "two refused truncates",
            "truncate(6) of 6",
            f"truncate({keep})",
            "reset()",
            "truncate(0)",
        ),
        evidence["lengths"],
        (6, 6, keep, 0, 0),
        strict=True,
    ):
        if got != wanted:
            return failed(
                f"After {case}, len(cache) is {got}, not {wanted}. Which tokens are still held?"
            )
    rewritten = np.concatenate([blocks[..., :keep, :], blocks[..., 6:, :]], axis=-2)
    for case, layers, wanted in (
        (f"6 tokens, truncate({keep}), 3 others", evidence["again"], rewritten),
        ("reset() and 6 others", evidence["fresh"], blocks[..., 3:, :]),
    ):
        for layer, (got, want) in enumerate(zip(layers, wanted.swapaxes(0, 1), strict=True)):
            if got.shape != want.shape or (got != want).any():
                return failed(
                    f"{case}: layer {layer} returned {got.shape[3]} tokens that are not the "
                    f"{want.shape[3]} expected. Which tokens should still be there, and where "
                    f"is the next one written?"
                )
    return passed(f"truncate({keep}) keeps {keep} tokens, reset() none, and both can be built on.")
