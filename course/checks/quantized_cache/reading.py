"""Feed keys and values to a quantized cache, and say what is wrong with what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.caches import feed, stored_numbers
from course.checks.check import Challenge, Each, Evidence
from course.checks.recording import first_place
from course.model.cache import CacheFull
from course.model.config import GPTConfig

Array = np.ndarray
CONFIG = GPTConfig(30, 2, 32, 4, 2, 40, max_seq_len=512)  # G = 2, D = 8
LAYERS = [np.ndarray] * CONFIG.n_layers
"""The form of one read: what each layer gave back, (2, B, G, S, D)."""
FED = {"reads": Each(LAYERS), "lengths": Each(int), "refused": str}
"""The form of what `feed_split` records."""
ENDING = {"error": str, "stopped": str}
"""The form of how a run of steps ended, see `run_until_refused`."""
TEXT = 98
"""Tokens of the text of `count_kept`: six groups of 16, and a window of 2."""
KEPT = {"floats": int, "codes": int}
"""The form of what `count_kept` returns."""
Coded = Callable[[int, int, int], int]
"""The truth of the checks of the cache: (group, window, tokens) to how many of them are codes."""
WAITING = "Where is a token until its group is complete, and from where is it read?"
"""The question about wrong rows of which nothing else is known."""
SAME = 1e-5
"""How near two reads of the same codes are, as a part of the largest number: styles multiply and add in
their own order."""


def draw_rows(
    rng: np.random.Generator, n_tokens: int, spread: float = 0.0, batch: int = 3
) -> Array:
    """Draw keys and values of n tokens, (2, L, B, G, n, D), L = 2. With a spread, key channels and groups
    of tokens differ by powers of ten, and so do the values of different tokens."""
    L, G, D = CONFIG.n_layers, CONFIG.n_kv_heads, CONFIG.head_dim
    rows = rng.normal(size=(2, L, batch, G, n_tokens, D))
    rows[0] *= 10 ** rng.uniform(-spread, spread, (L, batch, G, 1, D))
    rows *= 10 ** rng.uniform(-spread / 2, spread / 2, (2, L, batch, G, n_tokens, 1)).round()
    return rows.astype(np.float32)


def dtype_of(rows: Array) -> torch.dtype:
    """The dtype of PyTorch that these rows have."""
    return getattr(torch, rows.dtype.name)


def new_cache(student: SimpleNamespace, case: Challenge, max_len: int) -> Any:
    """Make the student's cache for a case's rows, bits, group and window; or, "by default", for a
    signature that is left alone."""
    names = () if case.get("by default") else ("bits", "group", "window")
    how = {name: case[name] for name in names}
    if case["rows"].dtype != np.float32:
        how["dtype"] = dtype_of(case["rows"])
    batch = case["rows"].shape[2]
    return student.QuantizedKVCache(CONFIG, batch=batch, max_len=max_len, **how)


def count_kept(student: SimpleNamespace) -> dict[str, int]:
    """Feed TEXT tokens to a cache, the last one alone; count the floats and the codes other than 0 that
    it then keeps."""
    rows = draw_rows(np.random.default_rng(0), TEXT, batch=1)
    cache = student.QuantizedKVCache(CONFIG, batch=1, max_len=TEXT, bits=8, group=16, window=2)
    feed_split(cache, rows, [TEXT - 1, 1])
    return {"floats": stored_numbers(cache), "codes": stored_numbers(cache, floats=False)}


def wrong_kept(kept: Mapping[str, int]) -> str | None:
    """Say that a cache keeps the text in full precision and hardly a code. Where all is right, scales,
    zeros and the window are a third as many numbers; floats beside the codes are asked elsewhere."""
    row = 2 * CONFIG.n_layers * CONFIG.n_kv_heads * CONFIG.head_dim
    if kept["floats"] <= 3 * TEXT * row // 4 or kept["codes"] >= TEXT * row // 4:
        return None
    return (
        f"8 bits, groups of 16, window 2, a text of {TEXT} tokens: what came back before is right, but "
        f"your cache keeps {kept['floats']:,} floats, {kept['codes']:,} codes, and the keys and values "
        f"of the text are {TEXT * row:,}. What is kept of a token whose group is complete?"
    )


def run_until_refused(
    steps: Iterable[Callable[[], Any]],
    refusals: type[Exception] | tuple[type[Exception], ...] = (CacheFull, ValueError),
) -> tuple[list[Any], Evidence]:
    """Run steps up to the first that is refused: what they returned, and the name and the message of
    the exception, "" where none was raised."""
    results = []
    for step in steps:
        try:
            results.append(step())
        except refusals as error:
            return results, {"error": type(error).__name__, "stopped": str(error)}
    return results, {"error": "", "stopped": ""}


def feed_split(cache: Any, rows: Array, split: list[int]) -> Evidence:
    """Feed rows in blocks, up to the first that is refused; record what came back for each, len(cache) at
    first and after each, and the refusal, "" where there was none."""
    reads, lengths, refused = [], [len(cache)], ""
    for block in np.split(rows, np.cumsum(split)[:-1], axis=4):
        try:
            reads.append(feed(cache, block, dtype_of(block)))
        except (CacheFull, ValueError) as error:
            refused = f"{type(error).__name__}: {error}"
            break
        lengths.append(len(cache))
    return {"reads": reads, "lengths": lengths, "refused": refused}


def wrong_feeding(case: Challenge, split: list[int], fed: Evidence) -> str | None:
    """Say which block was refused, or what was counted wrong, if anything."""
    n = len(fed["reads"])
    if n != len(split):
        full = fed["refused"].startswith("CacheFull")
        question = "Is there no room for it?" if full else "Who was given what there?"
        return (
            f"{describe(case)}, a cache of {sum(split)} places and blocks of {split}: block {n + 1} was "
            f"refused. {fed['refused']}. {question}"
        )
    if fed["lengths"] != [0, *np.cumsum(split)]:
        return (
            f"{describe(case)}, blocks of {split}: len(cache) went {fed['lengths']}. Which method "
            f"counts, and how often is it called?"
        )
    return None


def describe(case: Challenge) -> str:
    """The bits, group, window and dtype of a case, in words."""
    dtype = case["rows"].dtype
    words = f"{case['bits']} bits, groups of {case['group']}, window {case['window']}"
    return words if dtype == np.float32 else f"{words}, {dtype}"


def join_layers(layers: list[Array]) -> Array:
    """Put what the layers returned, (2, B, G, S, D) each, into one array (2, L, B, G, S, D)."""
    return np.stack(layers, axis=1)


def wrong_read(case: Challenge, rows: Array, layers: list[Array], n_codes: int) -> str | None:
    """Say what is wrong with what the layers returned: its form, or which tokens are exact.

    Args:
        rows: (2, L, B, G, S, D), as they were appended.
        layers: what came back.
        n_codes: the first tokens, that should have been rounded; all others are exact.
    """
    if any(got.shape != rows[:, 0].shape for got in layers):
        return (
            f"keys and values of shape {layers[0].shape[1:]} came back, wanted is (B, G, S, D) = "
            f"{rows.shape[2:]}. Which tokens are codes, recent or new, and is each there once?"
        )
    got = join_layers(layers)
    if got.dtype != rows.dtype:
        return (
            f"{got.dtype} came back from a {rows.dtype} cache. Whose dtype should it be? (Does "
            f"half_a_step_at_most pass?)"
        )
    n = rows.shape[4]
    outside = (
        f"of {n} tokens only the first {n_codes} ever were in complete groups outside the window"
    )
    code, exact = np.arange(n) < n_codes, (got == rows).all(axis=(1, 2, 3, 5))  # (S), (2, S)
    if at := first_place(~exact & ~code):
        whose = _whose(rows, got[at[0], ..., at[1], :], *at)
        return f"{_tokens(*at)} came back changed, but {outside}. {whose}"
    error = np.abs(got.astype(float) - rows).max(axis=(1, 2, 3, 5))
    if at := first_place(~(error <= np.abs(rows).max()) & code):
        return (
            f"{_tokens(*at)} came back as something else altogether. Where is its group written, and "
            f"where is it read? (Do the checks of sections 1 and 2 pass?)"
        )
    exact[0] &= case["group"] >= 3  # one or two keys of a channel are always exact
    if at := first_place(exact & code):
        return (
            f"{_tokens(*at)} came back exact, but {case['bits']} bits cannot hold them, and {outside}. "
            f"What does your cache keep of them?"
        )
    return None


def _tokens(kind: int, token: int) -> str:
    return f"{('keys', 'values')[kind]} of token {token}"


def _whose(rows: Array, one: Array, kind: int, token: int) -> str:
    """Ask about numbers that came back in the place of a token: whose are they?

    Args:
        one: (L, B, G, D), what came back for its keys (kind 0) or its values (1).
    """
    right = rows[kind, ..., token, :]
    swapped = [
        f"Layer {layer} got those of layer {other}. In which order do you join layers?"
        for layer, got in enumerate(one)
        for other, of_layer in enumerate(right)
        if other != layer and (got == of_layer).all()
    ]
    same = (rows[kind] == one[:, :, :, None]).all(axis=(0, 1, 2, 4))
    small = np.abs(one.astype(float) - right).max() <= 0.1 * np.abs(right).max()
    for holds, question in (
        (
            (one == rows[1 - kind, ..., token, :]).all(),
            f"They are its {('values', 'keys')[kind]}. Which of the two is read here?",
        ),
        (
            (one == -right).all(),
            "They belong to another cache, fed beside this one. What do the two share?",
        ),
        (
            (one == right[:1]).all(),
            "Every layer gave back those of layer 0. Which layer was called?",
        ),
        (swapped, "".join(swapped[:1])),
        ((one == right[:, :1]).all(), "Every batch row got those of row 0. Whose are these?"),
        (
            same.any(),
            f"They are those of token {int(same.argmax())}. Which tokens do you keep, and in which "
            f"order do they come back?",
        ),
        (not one.any(), "They are all 0. Who wrote them there, and when?"),
        (
            any(
                (got == of_layer).all() and other != layer
                for layer, got in enumerate(one)
                for other, of_layer in enumerate(rows[1 - kind, ..., token, :])
            ),
            f"Some are {('values', 'keys')[kind]} of another layer. Which axis of yours counts layers?",
        ),
        (
            (one == rows[1 - kind, ..., token, :]).all(axis=(1, 2, 3)).any(),
            f"Some are its {('values', 'keys')[kind]}. From which of the two is each layer read?",
        ),
        (small, "They were rounded. Which tokens may be, and when?"),
    ):
        if holds:
            return question
    return WAITING
