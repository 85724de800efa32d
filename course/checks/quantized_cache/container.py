"""The quantized cache as a container: which tokens are codes and which are exact, along which axis
they were rounded, and that splits, refusals and ways back leave no trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.cache import CacheFull
from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.comparing import outcome
from course.checks.drawing import draw_split
from course.checks.kv_cache.container import feed
from course.checks.quantized_cache.rounding import slack, widest_step
from course.config import GPTConfig

Array = np.ndarray
CONFIG = GPTConfig(30, 2, 32, 4, 2, 40, max_seq_len=64)  # G = 2, D = 8
SAME = 1e-5
"""How near two reads of the same codes are, as a part of the largest number: styles multiply and add in
their own order."""


def draw_rows(rng: np.random.Generator, n_tokens: int, spread: float = 0.0) -> Array:
    """Keys and values of n tokens, (2, L, B, G, n, D), L = 2, B = 3. With a spread, key channels and
    groups of tokens differ by powers of ten, and so do the values of different tokens."""
    L, G, D = CONFIG.n_layers, CONFIG.n_kv_heads, CONFIG.head_dim
    rows = rng.normal(size=(2, L, 3, G, n_tokens, D))
    rows[0] *= 10 ** rng.uniform(-spread, spread, (L, 3, G, 1, D))
    rows *= 10 ** rng.uniform(-spread / 2, spread / 2, (2, L, 3, G, n_tokens, 1)).round()
    return rows.astype(np.float32)


def new_cache(student: SimpleNamespace, case: Challenge, max_len: int) -> Any:
    """The student's cache for a case's bits, group and window, and a batch of 3."""
    how = {name: case[name] for name in ("bits", "group", "window")}
    return student.QuantizedKVCache(CONFIG, batch=3, max_len=max_len, **how)


def until_refused(steps: Iterable[Callable[[], Any]]) -> tuple[list[Any], Evidence]:
    """What the steps returned, up to the first that was refused; and how that one ended, in words, or
    "" where none was."""
    results = []
    for step in steps:
        try:
            results.append(step())
        except (CacheFull, ValueError) as error:
            return results, {"refused_with": type(error).__name__, "stopped": str(error)}
    return results, {"refused_with": "", "stopped": ""}


def how_it_ended(ended: Evidence) -> str:
    """What refused a step, and a question."""
    full = ended["refused_with"] == "CacheFull"
    question = "Is there no room for it?" if full else "Who was given what there?"
    return f"{ended['refused_with']}: {ended['stopped']}. {question}"


def feeding(cache: Any, rows: Array, split: list[int]) -> Iterator[Callable[[], Any]]:
    """Steps that feed rows in blocks, and return what came back and what is held then."""
    done = 0
    for n in split:
        block = rows[..., done : done + n, :]
        yield lambda block=block: (feed(cache, block), len(cache))
        done += n


def n_groups(case: Challenge, tokens: int) -> int:
    """Groups that are complete and outside the window."""
    return max(0, tokens - case["window"]) // case["group"]


def name_of(case: Challenge) -> str:
    return f"{case['bits']} bits, groups of {case['group']}, window {case['window']}"


def joined(layers: list[Array]) -> Array:
    """What the layers returned, (2, B, G, S, D) each, as one array (2, L, B, G, S, D)."""
    return np.stack(layers, axis=1)


def wrong_read(case: Challenge, rows: Array, layers: list[Array], n_codes: int) -> str | None:
    """What is wrong with what the layers returned, as to form and to which tokens are exact.

    Args:
        rows: (2, L, B, G, S, D), as they were appended.
        layers: what came back.
        n_codes: the first tokens, that should have been rounded; all others are exact.
    """
    if len(layers) != rows.shape[1]:
        return f"{len(layers)} layers gave something back, not {rows.shape[1]}."
    if any(got.shape != rows[:, 0].shape for got in layers):
        return (
            f"keys and values of shape {layers[0].shape[1:]} came back, wanted is (B, G, S, D) = "
            f"{rows.shape[2:]}. How many tokens are codes, recent, or new?"
        )
    got = joined(layers)
    if got.dtype != rows.dtype:
        return f"{got.dtype} came back from a {rows.dtype} cache."
    exact = (got == rows).all(axis=(1, 2, 3, 5))  # (2, S)
    if not exact[:, n_codes:].all():
        kind, token = np.argwhere(~exact[:, n_codes:])[0].tolist()
        return (
            f"{('keys', 'values')[kind]} of token {token + n_codes} came back changed, but of "
            f"{rows.shape[4]} tokens only the first {n_codes} are in complete groups outside the "
            f"window. When is a token rounded, and where is it until then?"
        )
    far = np.argwhere(~(np.abs(got - rows).max(axis=(1, 2, 3, 5)) <= np.abs(rows).max()))
    if len(far):
        kind, token = far[0].tolist()
        return (
            f"{('keys', 'values')[kind]} of token {token} came back as something else altogether. Where "
            f"is its group written, and where is it read?"
        )
    coded = [1] if case["group"] < 3 else [0, 1]  # one or two keys of a channel are always exact
    for kind in coded:
        if n_codes and exact[kind, :n_codes].any():
            return (
                f"{('keys', 'values')[kind]} of token {int(exact[kind].argmax())} came back exact, but "
                f"{case['bits']} bits cannot hold them. Of {rows.shape[4]} tokens {n_codes} are in "
                f"complete groups outside the window. What does your cache keep of them?"
            )
    return None


# Groups and a window


def draw_groups(seed: int) -> Challenge:
    """Caches with groups and windows that fit into each other and that do not; each with a prompt
    that ends just where a group is complete, or one token earlier, and two blocks more."""
    rng = np.random.default_rng(seed)
    cases = []
    for group, window in ((4, 4), (5, 3), (3, 0), (1, 2)):
        first = window + int(rng.integers(1, 4)) * group - len(cases) % 2 * (group > 1)
        split = [first, group, 2 * group, 1]
        case = {"bits": 8, "group": group, "window": window, "split": split}
        cases.append({**case, "rows": draw_rows(rng, sum(split))})
    return {"cases": cases}


def probe_groups(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    results = []
    for case in challenge["cases"]:
        cache = new_cache(student, case, sum(case["split"]))
        before = len(cache)
        seen, ended = until_refused(feeding(cache, case["rows"], case["split"]))
        lengths = [before, *(length for _, length in seen)]
        results.append({"reads": [read for read, _ in seen], "lengths": lengths, **ended})
    return {"results": results}


def judge_groups(challenge: Challenge, evidence: Evidence) -> Verdict:
    for case, result in zip(challenge["cases"], evidence["results"], strict=True):
        split, done = case["split"], 0
        if result["refused_with"]:
            return failed(
                f"{name_of(case)}, a cache of {sum(split)} places and blocks of {split}: block "
                f"{len(result['reads']) + 1} was refused. {how_it_ended(result)}"
            )
        if result["lengths"] != [sum(split[:i]) for i in range(len(split) + 1)]:
            return failed(
                f"{name_of(case)}, blocks of {split}: len(cache) went {result['lengths']}. Which method "
                f"counts, and how often is it called?"
            )
        for call, (n, layers) in enumerate(zip(split, result["reads"], strict=True)):
            rows = case["rows"][..., : done + n, :]
            problem = wrong_read(case, rows, layers, n_groups(case, done) * case["group"])
            if problem:
                fed = f"after blocks of {split[:call]} appending {n}" if call else f"appending {n}"
                return failed(f"{name_of(case)}, {fed}: {problem}")
            done += n
    return passed("Complete groups come back rounded, the window and what is new exactly.")


groups_and_a_window = Check(
    "groups_and_a_window", ("QuantizedKVCache",), draw_groups, probe_groups, judge_groups
)


# Along which axis


def draw_outliers(seed: int) -> Challenge:
    """Caches of 2, 4 and 8 bits; the sizes of channels, groups and tokens differ by powers of ten."""
    rng = np.random.default_rng(seed)
    cases = []
    for bits, group, window in ((2, 7, 1), (4, 6, 2), (8, 1, 1), (8, 5, 3)):
        groups = 3 if group > 1 else 6
        case = {"bits": bits, "group": group, "window": window, "groups": groups}
        cases.append({**case, "rows": draw_rows(rng, groups * group + window + 1, spread=1.5)})
    return {"cases": cases}


def probe_outliers(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Everything but the last token in one block; then that one, to read what is kept."""
    reads = []
    for case in challenge["cases"]:
        cache = new_cache(student, case, case["rows"].shape[4])
        feed(cache, case["rows"][..., :-1, :])
        reads.append(feed(cache, case["rows"][..., -1:, :]))
    return {"reads": reads}


def judge_outliers(challenge: Challenge, evidence: Evidence) -> Verdict:
    for case, layers in zip(challenge["cases"], evidence["reads"], strict=True):
        rows, group = case["rows"], case["group"]
        if problem := wrong_read(case, rows, layers, n := case["groups"] * group):
            return failed(f"{name_of(case)}: {problem} (Does groups_and_a_window pass?)")
        grouped = (*rows.shape[:4], case["groups"], group, rows.shape[5])
        was = rows[..., :n, :].reshape(grouped)  # (2, L, B, G, groups, group, D)
        got = joined(layers)[..., :n, :].reshape(grouped)
        for kind, axis, names in ((0, -2, "a channel's keys"), (1, -1, "a token's values")):
            if problem := wrong_rounding(was[kind], got[kind], case["bits"], axis, names):
                return failed(f"{name_of(case)}: {problem}")
    return passed("Each channel of a group has its step for keys, and each token for values.")


def wrong_rounding(was: Array, got: Array, bits: int, axis: int, names: str) -> str | None:
    """The first vector along `axis` that was not rounded by a step of its own.

    Args:
        was, got: (L, B, G, groups, group, D).
        names: what such a vector holds.
    """
    most = widest_step(was, bits, axis)
    largest = np.abs(was).max(axis=axis, keepdims=True)
    error = np.abs(got.astype(float) - was)
    bad = np.argwhere(~(error <= most / 2 + slack(largest)))
    if len(bad):
        at = tuple(bad[0].tolist())
        step = np.broadcast_to(most, was.shape)[at]
        return (
            f"layer {at[0]}, batch row {at[1]}, KV head {at[2]}, group {at[3]}: {was[at]:.4g} (token "
            f"{at[4]} of the group, channel {at[5]}) came back as {got[at]:.4g}, off by "
            f"{error[at] / step:.3g} of the widest step that {names} in this group need. Which numbers "
            f"shared a step with it?"
        )
    lines = np.moveaxis(got, axis, -1).reshape(-1, got.shape[axis])
    most_levels = max(len(np.unique(line)) for line in lines)
    if most_levels > 2**bits:
        return f"{names} came back with {most_levels} different numbers in a group; how can they?"
    return None


keys_by_channel_values_by_token = Check(
    "keys_by_channel_values_by_token",
    ("QuantizedKVCache",),
    draw_outliers,
    probe_outliers,
    judge_outliers,
)


# Splits


def draw_splits(seed: int) -> Challenge:
    """One text, and three ways to cut it up: whole, token by token, and drawn; and one token more."""
    rng = np.random.default_rng(seed)
    group, window = [(4, 3), (3, 3), (5, 2), (3, 1)][seed % 4]
    n = window + 3 * group + int(rng.integers(0, group))
    case = {"bits": 8, "group": group, "window": window}
    splits = [[n], [1] * n, draw_split(rng, n)]
    return {**case, "rows": draw_rows(rng, n + 1, spread=0.7), "splits": splits}


def probe_splits(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """After each split, what is read with the last token; and every read of the single steps."""
    rows, final, steps = challenge["rows"], [], []
    for split in challenge["splits"]:
        cache = new_cache(student, challenge, rows.shape[4])
        seen, ended = until_refused(feeding(cache, rows, [*split, 1]))
        if ended["refused_with"]:
            return {"final": final, "steps": [], **ended}
        reads = [read for read, _ in seen]
        final.append(reads[-1])
        steps = reads if split == challenge["splits"][1] else steps
    return {"final": final, "steps": steps, **ended}


def judge_splits(challenge: Challenge, evidence: Evidence) -> Verdict:
    rows, group = challenge["rows"], challenge["group"]
    near = SAME * float(np.abs(rows).max())
    n = rows.shape[4] - 1
    if evidence["refused_with"]:
        split = challenge["splits"][len(evidence["final"])]
        return failed(
            f"{name_of(challenge)}, a cache of {n + 1} places, blocks of {split} and one token more: "
            f"{how_it_ended(evidence)}"
        )
    for split, layers in zip(challenge["splits"], evidence["final"], strict=True):
        if problem := wrong_read(challenge, rows, layers, n_groups(challenge, n) * group):
            return failed(f"{name_of(challenge)}, {n} tokens in blocks of {split}: {problem}")
    whole, *others = (joined(layers) for layers in evidence["final"])
    for split, got in zip(challenge["splits"][1:], others, strict=True):
        bad = np.argwhere(~(np.abs(got - whole) <= near))
        if len(bad):
            kind, token = bad[0][0], bad[:, 4].min()
            return failed(
                f"{name_of(challenge)}: the same {n} tokens in one block and in blocks of {split} left "
                f"other numbers, the first of them at token {token} ({('keys', 'values')[kind]}). What "
                f"in your cache depends on where a block ends?"
            )
    if len(evidence["steps"]) != n + 1:
        return failed(f"{len(evidence['steps'])} single steps came back, not {n + 1}.")
    for step, layers in enumerate(evidence["steps"]):
        held = n_groups(challenge, step) * group
        problem = wrong_read(challenge, rows[..., : step + 1, :], layers, held)
        if problem:
            return failed(f"{name_of(challenge)}, step {step + 1} token by token: {problem}")
        moved = np.abs(joined(layers)[..., :held, :] - whole[..., :held, :])
        if held and not (moved <= near).all():
            token = int(np.argwhere(~(moved <= near))[:, 4].min())
            return failed(
                f"{name_of(challenge)}, token by token: with {step} tokens held, token {token} was read "
                f"as other numbers than at the end. How often is a number rounded in its life?"
            )
    return passed(f"{n} tokens leave the same numbers, whole, one by one or in blocks.")


every_split_leaves_the_same = Check(
    "every_split_leaves_the_same", ("QuantizedKVCache",), draw_splits, probe_splits, judge_splits
)


# Refusals


def draw_refusals(seed: int) -> Challenge:
    """A cache that is half full, and what it must refuse: too much, and what is no number."""
    rng = np.random.default_rng(seed)
    group, window = [(3, 2), (4, 1)][seed % 2]
    n, room = window + 2 * group - 1, group + 1
    case = {"bits": 8, "group": group, "window": window, "held": n, "room": room}
    case["abandoned"] = int(rng.integers(1, room))
    return {**case, "rows": draw_rows(rng, n + room)}


def probe_refusals(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    rows, held, room = challenge["rows"], challenge["held"], challenge["room"]
    cache = new_cache(student, challenge, held + room)
    feed(cache, rows[..., :held, :])
    block = torch.from_numpy(np.concatenate([rows, rows], axis=4)[:, 0] + 1)  # (2, B, G, ·, D)
    good = block[:, :, :, : int(challenge["abandoned"])]
    came = {"too many": outcome(lambda: cache.append(0, *block[:, :, :, : room + 1]))}
    for name, kind, value in (
        ("NaN", 0, np.nan),
        ("infinity", 0, np.inf),
        ("NaN value", 1, np.nan),
    ):
        bad = good.clone()
        bad[kind, 1, 0, -1, 3] = value
        came[name] = outcome(lambda bad=bad: cache.append(0, *bad))
    cache.append(0, *good)  # and the forward pass goes no further: nobody calls advance
    length = len(cache)
    seen, ended = until_refused(feeding(cache, rows[..., held:, :], [room - 1, 1]))
    came["one more"] = outcome(lambda: cache.append(0, *block[:, :, :, :1]))
    lengths = [length, len(cache)]
    return {"came": came, "lengths": lengths, "reads": [read for read, _ in seen], **ended}


def judge_refusals(challenge: Challenge, evidence: Evidence) -> Verdict:
    held, room = challenge["held"], challenge["room"]
    n, case = (
        held + room,
        f"{name_of(challenge)}: a cache of {held + room} places with {held} tokens",
    )
    for name, asked, wanted in (
        ("too many", f"{room + 1} more", "CacheFull"),
        ("NaN", "a key that is NaN", "ValueError"),
        ("infinity", "a key that is infinite", "ValueError"),
        ("NaN value", "a value that is NaN", "ValueError"),
        ("one more", f"one more, after {room} that fit", "CacheFull"),
    ):
        if name == "one more" and evidence["refused_with"]:
            return failed(
                f"{case}; some appends were refused, one was never advanced. Then {room} tokens that "
                f"fit: {evidence['refused_with']}: {evidence['stopped']}. What did an append leave "
                f"behind that did not count?"
            )
        if evidence["came"][name] != wanted:
            return failed(f"{case}, append {asked}: {evidence['came'][name]}, wanted is {wanted}.")
    if evidence["lengths"] != [held, n]:
        return failed(
            f"{case}, refused {room + 1} more: len(cache) is {evidence['lengths'][0]}; and {room} later "
            f"{evidence['lengths'][1]}. Wanted are {held} and {n}."
        )
    for size, before, layers in zip((n - 1, n), (held, n - 1), evidence["reads"], strict=True):
        codes = n_groups(challenge, before) * challenge["group"]
        problem = wrong_read(challenge, challenge["rows"][..., :size, :], layers, codes)
        if problem:
            return failed(
                f"{case}; some appends were refused, one was never advanced. Then, with {size} tokens: "
                f"{problem} What did an append leave behind that did not count?"
            )
    return passed("What is refused, or never advanced, leaves no trace.")


a_refusal_changes_nothing = Check(
    "a_refusal_changes_nothing",
    ("QuantizedKVCache",),
    draw_refusals,
    probe_refusals,
    judge_refusals,
)


# Ways back


def draw_ways_back(seed: int) -> Challenge:
    """A text; a length within the window to go back to, one inside a group, and other tokens."""
    rng = np.random.default_rng(seed)
    group, window = [(4, 3), (5, 2), (3, 4)][seed % 3]
    n = window + 3 * group
    case = {"bits": 8, "group": group, "window": window, "held": n}
    near = n - int(rng.integers(1, window + 1))
    far = group + int(rng.integers(1, group))  # in the second group
    rows, others = draw_rows(rng, n), draw_rows(rng, n + group + 1)
    return {**case, "near": near, "far": far, "rows": rows, "others": others}


def probe_ways_back(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    rows, others, n = challenge["rows"], challenge["others"], challenge["held"]
    cache = new_cache(student, challenge, n + challenge["group"] + 1)
    feed(cache, rows)
    refused = [outcome(lambda back=back: cache.truncate(back)) for back in (n + 1, -1)]
    lengths: list[int] = []

    def back(to: int) -> None:
        cache.truncate(to) if to else cache.reset()
        lengths.append(len(cache))

    def steps() -> Iterable[Callable[[], Any]]:
        for to in (challenge["near"], challenge["far"], 0):
            yield lambda to=to: back(to)
            yield lambda to=to: feed(cache, others[..., to:n, :])
            yield lambda: feed(cache, others[..., n : n + 1, :])

    came, ended = until_refused(steps())
    reads = [read for read in came if read is not None]
    return {"refused": refused, "lengths": lengths, "reads": reads, **ended}


def judge_ways_back(challenge: Challenge, evidence: Evidence) -> Verdict:
    rows, others = challenge["rows"], challenge["others"]
    n, near, far, group = (challenge[name] for name in ("held", "near", "far", "group"))
    case = f"{name_of(challenge)}, {n} tokens"
    for back, came in zip((n + 1, -1), evidence["refused"], strict=True):
        if came != "ValueError":
            return failed(f"{case}: truncate({back}): {came}, wanted is ValueError.")
    for to, length in zip((near, far, 0), evidence["lengths"], strict=False):
        if length != to:
            call = f"truncate({to})" if to else "reset()"
            return failed(
                f"{case}, after {call}: len(cache) is {length}. Which tokens should stay?"
            )
    if evidence["refused_with"] or len(evidence["lengths"]) != 3:
        return failed(
            f"{case}, truncate({near}), truncate({far}), reset(), and tokens up to {n + 1} after each: "
            f"after {len(evidence['reads'])} blocks {evidence['refused_with']}: {evidence['stopped']}. "
            f"What is still counted?"
        )
    if len(evidence["reads"]) != 6:
        return failed("A part of what was asked for did not come back.")
    read = iter(evidence["reads"])
    first = np.concatenate([rows[..., :near, :], others[..., near : n + 1, :]], axis=4)
    after = n_groups(challenge, n) * group
    for size, codes in ((n, n_groups(challenge, n) * group), (n + 1, after)):
        # Of the groups that were complete before, none is touched by going back within the window.
        if problem := wrong_read(challenge, first[..., :size, :], layers := next(read), codes):
            return failed(f"{case}, truncate({near}), other tokens up to {size}: {problem}")
    if problem := wrong_after_far(challenge, joined(layers), next(read), next(read)):
        return failed(f"{case}, then truncate({far}), which lies inside a group: {problem}")
    for size, codes in ((n, 0), (n + 1, after)):
        if problem := wrong_read(challenge, others[..., :size, :], next(read), codes):
            return failed(f"{case}, reset(), and then {size} other tokens: {problem}")
    return passed(
        f"truncate({near}), truncate({far}) and reset() keep {near}, {far} and no tokens."
    )


def wrong_after_far(
    challenge: Challenge, before: Array, layers: list[Array], again: list[Array]
) -> str | None:
    """What is wrong after going back into a group: its first tokens must be read as they were, and
    those of whole groups for ever.

    Args:
        before: what was read before, (2, L, B, G, ·, D).
        layers, again: what was read with new tokens up to n, and with one more.
    """
    others, n, far = challenge["others"], challenge["held"], challenge["far"]
    whole = far // challenge["group"] * challenge["group"]
    near = SAME * float(np.abs(before).max())
    for size, kept, got in ((n, far, layers), (n + 1, whole, again)):
        if len(got) != before.shape[1] or any(
            part.shape != others[:, 0, ..., :size, :].shape for part in got
        ):
            return f"other shapes came back than those of {size} tokens. How many are left?"
        bad = np.argwhere(~(np.abs(joined(got)[..., :kept, :] - before[..., :kept, :]) <= near))
        if len(bad):
            return (
                f"with {size} tokens, token {bad[:, 4].min()} is read as other numbers than before, but "
                f"it was not forgotten. What is left of a group that is cut, and where is it?"
            )
    exact = (joined(layers)[..., far:, :] == others[..., far:n, :]).all()
    if not exact:
        return f"the tokens from {far} on, new ones, came back changed. Where are they written?"
    codes = n_groups(challenge, n) * challenge["group"]
    tail = joined(again)[..., codes:, :] == others[..., codes : n + 1, :]
    if not tail.all():
        return (
            f"of {n + 1} tokens the last {n + 1 - codes} should be exact. Which group comes next?"
        )
    error = np.abs(joined(again)[..., far:codes, :] - others[..., far:codes, :])
    if not (0 < error.max(initial=0) <= np.abs(others).max()):
        return f"tokens {far} to {codes - 1} were not rounded when their groups filled. Why not?"
    return None


quantized_cache_can_go_back = Check(
    "quantized_cache_can_go_back",
    ("QuantizedKVCache",),
    draw_ways_back,
    probe_ways_back,
    judge_ways_back,
)
