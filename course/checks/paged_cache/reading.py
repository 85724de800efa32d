"""Check what a paged cache gives back: logits through any table, and forks that stay apart."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from course.checks.cache_contract import NEARLY, ROUNDED
from course.checks.cache_operations import Operation, follow
from course.checks.caches import feed
from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import Truth, first_difference, uncached
from course.checks.drawing import build_model, draw_model, draw_split, draw_tokens
from course.checks.paged_cache.pages import (
    BEGINS,
    count_turns,
    draw_rows,
    in_words,
    make_pool,
    records_form,
    run,
    stopped,
)
from course.checks.recorder import given
from course.minigpt.kv_cache import forward_cached
from course.model.config import GPTConfig

SIZES = (1, 3, 4, 16)
"""Tokens of a block."""


def draw_texts(seed: int) -> Challenge:
    """Draw a model, two texts of 18 tokens that are decoded in turns, and their splits."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng)
    texts = draw_tokens(rng, 2, 18, challenge["config"]["vocab_size"])
    cases = [
        {
            "size": size,
            "split": [18] if size == 16 and seed % 2 else draw_split(rng, 18),
            "order": rng.permutation(_blocks_for(size)).tolist(),
        }
        for size in SIZES
    ]
    return {
        **challenge,
        "texts": texts,
        "cases": cases,
        "wide": rng.normal(size=(2, 3, 1, 2, 6, 6)),
    }


def _blocks_for(size: int) -> int:
    """Count blocks that are enough for three texts of 18 tokens, and two more: how many are taken is
    another check's question."""
    return 3 * (18 // size + 1) + 2


def probe_texts(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Decode two texts in turns through one pool, while a third comes and goes; then rows of float64."""
    model, runs = build_model(challenge), []
    config = GPTConfig(**challenge["config"])
    for case in challenge["cases"]:
        size = case["size"]
        pool = make_pool(student, config, _blocks_for(size), size, case["order"])
        caches = [student.PagedKVCache(pool) for _ in range(2)]
        third = student.PagedKVCache(pool)
        logits: list[list[np.ndarray]] = [[], []]
        done = 0
        for n in case["split"]:
            for text, cache, out in zip(challenge["texts"], caches, logits, strict=True):
                out.append(forward_cached(model, given(text[None, done : done + n]), cache).numpy())
                if len(third) < 18:
                    feed(third, np.full((2, 3, 1, 2, 1, config.head_dim), 9.0))
            done += n
            if len(third) > size:
                third.reset()
        runs.append({"logits": logits})
    return {"runs": runs, **_run_wide(student, config, challenge["wide"])}


def _run_wide(student: SimpleNamespace, config: GPTConfig, rows: np.ndarray) -> Evidence:
    """Feed 4 tokens to a pool of float64, raise the numbers of block b by b + 1, and feed 2 more; return
    the table in between, and what the last call gave."""
    pool = student.BlockPool(config, 4, 2, dtype=torch.float64)
    cache = student.PagedKVCache(pool, 6)
    feed(cache, rows[..., :4, :], torch.float64)
    table = [int(block) for block in cache.table]
    raised = torch.arange(1, 5, dtype=torch.float64).view(4, 1, 1)
    pool.keys.add_(raised)  # (L, G, n_blocks, block_size, D)
    pool.values.add_(raised)
    return {"table": table, "wide": feed(cache, rows[..., 4:, :], torch.float64)}


def texts_form(challenge: Challenge) -> Evidence:
    runs = [{"logits": [[np.ndarray] * len(case["split"])] * 2} for case in challenge["cases"]]
    return {"runs": runs, "table": Each(int), "wide": [np.ndarray] * 3}


@check(
    "PagedKVCache",
    "BlockPool",
    draw=draw_texts,
    probe=probe_texts,
    evidence=texts_form,
    truth=uncached,
)
def every_split_through_any_table(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare every logit of both texts with the uncached ones."""
    expected = truth(challenge, challenge["texts"])
    agree = []
    for case, seen in zip(challenge["cases"], evidence["runs"], strict=True):
        for number, logits in enumerate(seen["logits"]):
            wrong = first_difference(
                logits, expected[number : number + 1], case["split"], tolerance
            )
            if wrong:
                so_far = f" Blocks of {agree} agree." if agree else ""
                return failed(
                    f"Two texts in turns, blocks of {case['size']} in no order; text {number + 1}. "
                    f"{wrong}{so_far} {_ask(case['size'], wrong.call)}"
                )
        agree.append(case["size"])
    if wrong := _wrong_wide(challenge["wide"], evidence["table"], evidence["wide"]):
        return failed(wrong)
    return passed(
        f"Every logit equals the uncached one, in blocks of {agree}, wherever they lie in the pool."
    )


def _wrong_wide(rows: np.ndarray, table: list[int], wide: list[np.ndarray]) -> str | None:
    """Say what is wrong with 6 tokens from a pool of float64, see `_run_wide`."""
    if len({*table} & {*range(4)}) != 2 or len(table) != 2:
        return f"4 tokens in a pool of 4 blocks of 2: the table is {table}. Which blocks hold them?"
    expected = rows.copy()
    expected[..., :4, :] += np.repeat(np.array(table) + 1.0, 2)[:, None]
    for layer, got in enumerate(wide):
        if got.dtype != np.float64 or got.shape != rows[:, layer].shape:
            question = "What is the storage made of, and how many tokens are held?"
            if got.shape == rows[:, layer].shape:
                question = "Which of your lines makes numbers of another type?"
            return (
                f"A pool of float64, 6 tokens: layer {layer} gave {got.dtype} of shape "
                f"{got.shape[1:]}, wanted is float64 of (1, G, S, D) = {rows.shape[2:]}."
                f" {question}"
            )
        if (got != expected[:, layer]).any():
            if np.abs(got - rows[:, layer]).max() < 1e-5:
                return (
                    f"A pool of float64, blocks of 2: after 4 tokens, in blocks {table}, this check "
                    f"raised the numbers in the pool, in each block by another amount; layer {layer} "
                    f"still gives those that were stored. From where are they read?"
                )
            if np.allclose(got, expected[:, layer], rtol=NEARLY, atol=0):
                return f"A pool of float64, 6 tokens: layer {layer} gave other numbers. {ROUNDED}"
            return (
                f"A pool of float64, blocks of 2, 6 tokens: layer {layer} gave other numbers than "
                f"stand in the pool. Where is token 4 written, and from where is it read?"
            )
    return None


def _ask(size: int, call: int) -> str:
    if call == 0:
        return (
            "In which block and at which place does each of the first tokens lie, and who reads it?"
        )
    return (
        "Of which layer and in which order are blocks read, where in a block does the next token go, and "
        "where does what you return end?"
    )


# --- forks ----------------------------------------------------------------------------------------


def draw_forks(seed: int) -> Challenge:
    """Draw cases: a text of 12, 13 or 14 tokens in blocks of 4, its forks, who writes and who leaves
    first; truncates after a fork; and a cache that adopts."""
    rng = np.random.default_rng(seed)
    return {"cases": [_draw_case(rng, cut) for cut in (12, 13, 14)] + [_draw_adopted(rng)]}


def _draw_case(rng: np.random.Generator, cut: int) -> Challenge:
    rows = iter(range(200))

    def fresh(n: int) -> list[int]:
        return [next(rows) for _ in range(n)]

    one, two = rng.permutation(2).tolist()  # who writes first
    gone, stays = rng.permutation(2).tolist()  # who leaves first
    back = int(rng.integers(5, 8))
    operations: list[Operation] = [
        ("new", 0, int(rng.integers(30, 60))),
        ("feed", 0, fresh(cut)),
        ("fork", 1, 0),
        ("feed", one, fresh(int(rng.integers(1, 4)))),
        ("feed", two, fresh(int(rng.integers(1, 4)))),
        ("feed", one, fresh(2)),
        ("feed", two, fresh(1)),
        ("fork", 2, stays),
        ("reset", gone, None),
        ("new", 3, None),
        ("feed", 3, fresh(18)),
        ("feed", stays, fresh(2)),
        ("fork", 4, 2),
        ("truncate", 4, back),
        ("feed", 4, fresh(3)),
        ("feed", 2, fresh(1)),
        ("feed", stays, fresh(1)),
        ("truncate", 2, 8),
        ("feed", 2, fresh(2)),
        ("feed", stays, fresh(1)),
        ("feed", 4, fresh(1)),
    ]
    return _with_pool(rng, operations, next(rows), n_blocks=40)


def _draw_adopted(rng: np.random.Generator) -> Challenge:
    n = int(rng.integers(1, 3))
    operations: list[Operation] = [
        ("new", 0, None),
        ("feed", 0, list(range(10))),
        ("adopt", 1, (0, n)),
        ("feed", 1, [20, 21]),
        ("feed", 0, [22, 23]),
        ("reset", 0, None),
        ("new", 2, None),
        ("feed", 2, list(range(24, 36))),
        ("feed", 1, [36, 37, 38]),
        ("truncate", 1, 3),
        ("feed", 1, [39]),
        ("feed", 2, [40]),
    ]
    return _with_pool(rng, operations, 41, n_blocks=12)


def _with_pool(
    rng: np.random.Generator, operations: list[Operation], n_rows: int, n_blocks: int
) -> Challenge:
    return {
        "size": 4,
        "n_blocks": n_blocks,
        "order": rng.permutation(n_blocks).tolist(),
        "rows": draw_rows(rng, n_rows),
        "operations": operations,
    }


KEPT = ("returned", "lengths", "limits")


def probe_cases(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run each case on a pool of its own."""
    return {"cases": [run(student, case, KEPT) for case in challenge["cases"]]}


def cases_form(challenge: Challenge) -> Evidence:
    return {"cases": [records_form(case, KEPT) for case in challenge["cases"]]}


@check("PagedKVCache", "BlockPool", draw=draw_forks, probe=probe_cases, evidence=cases_form)
def forks_stay_apart(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Follow which tokens each cache must hold, and compare what came back."""
    for case, records in zip(challenge["cases"], evidence["cases"], strict=True):
        if wrong := wrong_rows(case, records):
            return failed(wrong)
        for step, ((name, number, what), now) in enumerate(
            zip(case["operations"], records, strict=True)
        ):
            if name == "fork" and now["limits"][number:] != [now["limits"][what]]:
                return failed(
                    f"{in_words(case, step)}: the fork has max_len {now['limits'][number:]}, and what "
                    f"it was forked from {now['limits'][what]}. What does a fork take over?"
                )
    return passed("Forks and adopters begin alike and go on alone, whoever writes or leaves first.")


def wrong_rows(
    case: Challenge, records: list[Evidence], outcomes: list[str] | None = None
) -> str | None:
    """Say where keys or values came back that were not those of the text, or give None.

    Args:
        outcomes: what each operation must come to; left out, nothing may be refused.
    """
    operations = case["operations"]
    outcomes = outcomes or ["returned"] * len(operations)
    turns = count_turns(operations)
    # The same operations on tokens that are named after the turn of the sign at which they are stored.
    stored = [
        (name, number, [turn] * len(what) if name in ("feed", "append") else what)
        for (name, number, what), turn in zip(operations, turns, strict=True)
    ]
    followed = zip(
        follow(operations, outcomes, case["size"]),
        follow(stored, outcomes, case["size"]),
        strict=True,
    )
    for step, (seen, ((wanted_came, held, tokens), (_, _, stored_at))) in enumerate(
        zip(records, followed, strict=True)
    ):
        name, number, what = operations[step]
        if wrong := stopped(case, step, seen, wanted_came):
            return wrong
        lengths = [len(tokens_held) for tokens_held in held]
        if seen["lengths"] != lengths:
            return (
                f"{in_words(case, step)}: the caches hold {seen['lengths']} tokens, wanted are "
                f"{lengths}. {_ask_about_length(name)}"
            )
        if name == "feed" and wanted_came == "returned":
            odd = (turns[step] - np.array(stored_at)) % 2 == 1
            rows = case["rows"][..., tokens, :]
            expected = np.where(odd[:, None], -rows, rows)
            if wrong := _wrong_layers(case, step, number, seen["returned"], expected, len(what)):
                return wrong
    return None


def _ask_about_length(name: str) -> str:
    if name in BEGINS:
        return "What does a new cache take over?"
    if name in ("truncate", "reset"):
        return "Which tokens are still held?"
    return "Which method counts, and whose tokens?"


def _wrong_layers(
    case: Challenge, step: int, number: int, got: np.ndarray, expected: np.ndarray, new: int
) -> str | None:
    """Say which token of what came back, (2, L, 1, G, S, D), is not the one that was stored."""
    words = in_words(case, step)
    if got.ndim != 6:
        return f"{words}: the layers gave back different shapes. How many tokens does each hold?"
    if got.shape != expected.shape:
        return (
            f"{words}: each layer returned shape {got.shape[2:]}, wanted is (1, G, S, D) = "
            f"{expected.shape[2:]}. Where does what you return end?"
        )
    bad = (got != expected).any(axis=(2, 3, 5))  # (2, L, S)
    if not bad.any():
        return None
    layer = int(np.flatnonzero(bad.any(axis=(0, 2)))[0])
    kind, token = np.argwhere(bad[:, layer])[0].tolist()
    where = (kind, layer, 0, slice(None), token)
    if (got[where] == -expected[where]).all():
        return (
            f"{words}. Each time before a cache got tokens, this check changed the sign of every number "
            f"in the pool; layer {layer} of {'ABCDE'[number]} gives {('keys', 'values')[kind]} of token "
            f"{token} with the other sign. From where are they read?"
        )
    question = "Into which block is it written, and from which is it read?"
    if token < expected.shape[4] - new:  # an older one
        question = "From which block of which layer is it read, and who wrote there last?"
    return (
        f"{words}. Then layer {layer} of {'ABCDE'[number]} gives other {('keys', 'values')[kind]} of "
        f"token {token} than were stored. {question}"
    )
