"""Check the mask, the cached layer and the cached forward pass against the model without a cache."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.caches import new_cache
from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import (
    Difference,
    Truth,
    first_difference,
    outcome,
    question_about,
    uncached,
)
from course.checks.drawing import build_model, draw_model, draw_rows, draw_split, draw_tokens
from course.checks.recorder import given
from course.measure.counting import count_kv_rows
from course.model.cache import CacheFull


def draw_mask_sizes(seed: int) -> Challenge:
    """Draw pairs (T, S): a whole prompt, a single token, chunks, and the same with a long past."""
    rng = np.random.default_rng(seed)
    drawn = [(int(t), int(t + rng.integers(1, 9))) for t in rng.integers(2, 6, 4)]
    long = [(1, int(rng.integers(1100, 1300))), (3, int(rng.integers(4100, 4300)))]
    chunk = int(rng.integers(130, 150))
    return {"sizes": [(1, 1), (4, 4), (1, 5), *drawn, *long, (chunk, chunk + int(rng.integers(9)))]}


def probe_mask(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Make a mask of each size."""
    masks = [student.causal_mask(T, S) for T, S in challenge["sizes"]]
    return {"masks": [np.asarray(m) for m in masks], "dtypes": [str(m.dtype) for m in masks]}


def mask_form(challenge: Challenge) -> Evidence:
    n = len(challenge["sizes"])
    return {"masks": [np.ndarray] * n, "dtypes": [str] * n}


@check("causal_mask", draw=draw_mask_sizes, probe=probe_mask, evidence=mask_form)
def mask_is_rectangular(challenge: Challenge, evidence: Evidence) -> Verdict:
    for (T, S), mask, dtype in zip(
        challenge["sizes"], evidence["masks"], evidence["dtypes"], strict=True
    ):
        case = f"causal_mask({T}, {S})"
        if mask.shape != (T, S):
            return failed(
                f"{case} has shape {mask.shape}, wanted is ({T}, {S}). Which side counts new tokens?"
            )
        if dtype != "torch.bool":
            return failed(f"{case} is {dtype}; wanted is torch.bool, True where a token may look.")
        for t in range(T):
            own = S - T + t
            row = _row_text(mask[t], own)
            if not mask[t, own]:
                question = "Where does the last new token stand?"
                if all(map(_hides_the_past, evidence["masks"])):
                    question = "Does True mean look, or hide?"
                return failed(
                    f"{case}, new token {t}, is token {own} of the {S} visible ones, and its row "
                    f"{row} (x: may look) leaves out itself. {question}"
                )
            if mask[t, own + 1 :].any():
                return failed(
                    f"{case}, new token {t}, is token {own} of the {S} visible ones, and its row "
                    f"{row} (x: may look) shows it a later token. May it look ahead?"
                )
            if not mask[t, :own].all():
                return failed(
                    f"{case}, new token {t}, is token {own} of the {S} visible ones, and its row "
                    f"{row} (x: may look) hides an earlier token. What is the cache for?"
                )
    return passed("The mask is T by S, and its triangle sits at the right edge.")


def _hides_the_past(mask: np.ndarray) -> bool:
    """Tell whether the last new token sees nothing, and the first of several sees the last one."""
    return mask.ndim == 2 and not mask[-1].any() and (len(mask) == 1 or bool(mask[0, -1]))


def _row_text(row: np.ndarray, own: int) -> str:
    """Draw a row of a mask, or of a long one the part around the token's own place."""
    text = "".join("x" if seen else "." for seen in row)
    if len(text) <= 24:
        return text
    start, end = max(0, own - 11), own + 12
    return f"{'…' * (start > 0)}{text[start:end]}{'…' * (end < len(text))}"


IN_FLOAT64 = 7
"""Tokens that are fed in float64. torch adds a mask of float32 to scores of float64 at the right places
as long as they fit into one register, and how many fit is the processor's affair."""


def draw_layer(seed: int) -> Challenge:
    """Draw, for 4, 2 and 1 KV heads, a model and inputs (B, T, C) of one of its layers in chunks; one of
    them in float64, one of a single row."""
    rng = np.random.default_rng(seed)
    cases = []
    for n_kv_heads, batch, dtype in ((4, 3, "float32"), (2, 1, "float32"), (1, 2, "float64")):
        case = draw_model(rng, n_kv_heads=n_kv_heads, n_layers=2)
        T = 8 if dtype == "float32" else IN_FLOAT64
        x = rng.normal(size=(batch, T, case["config"]["d_model"])).astype(np.float32)
        layer, split = int(rng.integers(2)), draw_split(rng, T)
        cases.append({**case, "x": x, "split": split, "layer": layer, "dtype": dtype})
    return {"cases": cases}


def probe_layer(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run each case's layer, chunk after chunk; tell by how many tokens it moved the cache itself, and
    which keys the cache holds of it in the end."""
    moved = [_length_moved_by(student, case) for case in challenge["cases"]]
    if any(moved):
        nothing = [[]] * len(moved)
        return {"out": nothing, "keys": nothing, "moved": moved}
    runs = [_run_layer(student, case) for case in challenge["cases"]]
    return {"out": [out for out, _ in runs], "keys": [keys for _, keys in runs], "moved": moved}


def _length_moved_by(student: SimpleNamespace, case: Challenge) -> int:
    """Call the layer once, with 2 tokens, and tell how many the cache says that it holds then."""
    dtype = getattr(torch, case["dtype"])
    attn = build_model(case).to(dtype).blocks[case["layer"]].attn
    cache = new_cache(student, case, 8, batch=len(case["x"]), dtype=dtype)
    x, places = given(case["x"][:, :2], dtype), given(np.arange(2))
    student.attention_layer_cached(attn, x, places, cache, case["layer"])
    return len(cache)


def _run_layer(
    student: SimpleNamespace, case: Challenge
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the output of each chunk, and all keys that come back with one token more."""
    dtype = getattr(torch, case["dtype"])
    attn = build_model(case).to(dtype).blocks[case["layer"]].attn
    x, places = given(case["x"], dtype), given(np.arange(case["x"].shape[1]))
    cache = new_cache(student, case, len(places) + 1, batch=len(x), dtype=dtype)
    outputs, done = [], 0
    for n in case["split"]:
        now = slice(done, done + n)
        out = student.attention_layer_cached(attn, x[:, now], places[now], cache, case["layer"])
        outputs.append(out.numpy())
        cache.advance(n)
        done += n
    row = torch.zeros(
        len(x), attn.n_kv_heads, 1, attn.wk.out_features // attn.n_kv_heads, dtype=dtype
    )
    keys, _ = cache.append(case["layer"], row, row)
    return outputs, [keys.numpy()]


def uncached_layer(case: Challenge) -> tuple[np.ndarray, np.ndarray]:
    """Compute the layer's output over all tokens at once, (B, T, C), by lesson 01's layer; and the keys
    of all tokens, rotated, (B, G, T, D)."""
    model, x = build_model(case), torch.from_numpy(case["x"])
    attn, places = model.blocks[case["layer"]].attn, torch.arange(x.shape[1])
    keys = attn.wk(x).unflatten(-1, (attn.n_kv_heads, -1)).transpose(1, 2)
    return model.attention_layer(attn, x, places).numpy(), attn.rotate(keys, places).numpy()


def layer_form(challenge: Challenge) -> Evidence:
    n = len(challenge["cases"])
    arrays = [Each(np.ndarray)] * n
    return {"out": arrays, "keys": arrays, "moved": [int] * n}


@check(
    "attention_layer_cached",
    "KVCache",
    draw=draw_layer,
    probe=probe_layer,
    evidence=layer_form,
    truth=uncached_layer,
)
def layer_equals_uncached(
    challenge: Challenge,
    evidence: Evidence,
    truth: Callable[[Challenge], tuple[np.ndarray, np.ndarray]],
    tolerance: float,
) -> Verdict:
    agree = []
    for case, out, keys, moved in zip(
        challenge["cases"], evidence["out"], evidence["keys"], evidence["moved"], strict=True
    ):
        G = case["config"]["n_kv_heads"]
        if moved:
            return failed(
                f"An empty cache holds {moved} tokens after one layer was called with 2. Other layers "
                f"append behind the same length. Which line moves it, and when should it move?"
            )
        if len(out) != len(case["split"]):
            return failed(f"Chunks of {case['split']}: {len(out)} outputs came back.")
        wanted, rotated = truth(case)
        wrong = first_difference(out, wanted, case["split"], tolerance)
        if wrong and agree:
            return failed(
                f"4 query heads on {G} KV heads, batch {len(case['x'])}. {wrong} With {agree[-1]} KV "
                f"heads all agrees. Which KV head does each query head read?"
            )
        if wrong:
            return failed(f"{wrong} {_ask_about_layer(case['split'], wrong)}")
        if out[0].dtype != case["dtype"]:
            return failed(
                f"A layer and a cache of {case['dtype']} gave {out[0].dtype}. Which of your lines "
                f"makes numbers of another type?"
            )
        if wrong := _first_wrong_key(keys, rotated, tolerance):
            return failed(
                f"Every output agrees, but not the keys that were stored. {wrong} What do you hand to "
                f"append, and when is a key rotated?"
            )
        agree.append(G)
    return passed(f"4 query heads on {agree} KV heads: every chunk equals the uncached layer.")


def _first_wrong_key(keys: list[np.ndarray], wanted: np.ndarray, tolerance: float) -> str:
    """Say which token's cached key is not the rotated one, the first of them; "" if all are.

    Args:
        keys: what came back, (B, G, T + 1, D), in a list.
        wanted: (B, G, T, D).
    """
    B, G, T, D = wanted.shape
    if len(keys) != 1 or keys[0].shape != (B, G, T + 1, D):
        return f"With one token more, append gave other keys than {(B, G, T + 1, D)}."
    delta = np.abs(keys[0][:, :, :T].astype(np.float64) - wanted).max(axis=(0, 1, 3))  # (T,)
    for token in np.flatnonzero(~(delta <= tolerance))[:1]:
        return (
            f"The key of token {token} differs from the rotated one (max |Δ| {delta[token]:.2g}, "
            f"tolerance {tolerance:g})."
        )
    return ""


def _ask_about_layer(split: list[int], wrong: Difference) -> str:
    """Ask about the mask and the positions only where these can be the reason."""
    if wrong.call == 0 and wrong.place == 0:
        return (
            "Nothing was cached yet, and the first token sees itself alone: which of projections, "
            "values, merge and wo does it pass through?"
        )
    if wrong.call == 0 and wrong.place > 0:
        return "Which keys may each query of the first chunk see, and what is rotated?"
    return question_about(split, wrong)


COUNTED = [6, 3, 1]
"""Chunks whose passes are counted."""
DOUBLED = [3, 4]
"""Chunks that are fed in float64."""


def draw_text(seed: int) -> Challenge:
    """Draw a model, four texts of 10 tokens, some of them alike, and four ways to cut them up; and a text
    as long as the model can read."""
    rng = np.random.default_rng(seed)
    longest = int(rng.integers(135, 150))
    challenge = draw_model(rng, max_seq_len=longest)
    V = challenge["config"]["vocab_size"]
    tokens, drawn = draw_rows(rng, 10, V), draw_split(rng, 10)
    return {
        **challenge,
        "tokens": tokens,
        "splits": [[10], [4, *[1] * 6], [1, 3, 2, 4], drawn],
        "long": draw_tokens(rng, 1, longest, V),
    }


def run_split(
    student: SimpleNamespace, model: Any, tokens: np.ndarray, split: list[int], cache: Any
) -> list[np.ndarray]:
    """Feed tokens chunk by chunk; the logits of each, (B, T_i, V)."""
    chunks = given(tokens).split(split, dim=1)
    return [student.forward_cached(model, chunk, cache).numpy() for chunk in chunks]


def probe_splits(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed the text in each split, first to a cache with room to spare, then to caches of just its
    length; then one token more; the same in float64; and a text as long as the model can read."""
    model, tokens = build_model(challenge), challenge["tokens"]
    logits, lengths = [], []
    for number, split in enumerate(challenge["splits"]):
        cache = new_cache(student, challenge, 10 if number else 100, batch=len(tokens))
        try:
            logits.append(run_split(student, model, tokens, split, cache))
        except CacheFull:
            logits.append([])
        lengths.append(len(cache))
        if lengths[-1] != 10 or not logits[-1]:
            return {**_nothing_more(challenge), "logits": logits, "lengths": lengths}
    full = outcome(lambda: student.forward_cached(model, given(tokens[:, :1]), cache))
    wide = new_cache(student, challenge, 10, batch=len(tokens), dtype=torch.float64)
    with count_kv_rows(model) as count:
        run_split(
            student, model, tokens, COUNTED, new_cache(student, challenge, 10, batch=len(tokens))
        )
    return {
        "logits": logits,
        "lengths": lengths,
        "passes": [list(calls) for calls in count.by_layer],
        "full": full,
        "full_length": len(cache),
        "float64": run_split(
            student, build_model(challenge).double(), tokens[:, :IN_FLOAT64], DOUBLED, wide
        ),
        **_run_to_the_end(student, model, challenge),
    }


def _nothing_more(challenge: Challenge) -> Evidence:
    """Stand in for what is not asked once the cache refused tokens, or counts others than were fed."""
    return {
        "passes": [[]] * challenge["config"]["n_layers"],
        "full": "",
        "full_length": 0,
        "float64": [],
        "at_the_end": "",
        "held_at_the_end": 0,
        "long": [],
    }


def _run_to_the_end(student: SimpleNamespace, model: Any, challenge: Challenge) -> Evidence:
    """Feed all but 2 tokens of the longest text there can be, then 3 tokens, then the last 2."""
    long, cache = (
        challenge["long"],
        new_cache(student, challenge, challenge["long"].shape[1], batch=1),
    )
    logits = run_split(student, model, long[:, :-2], [long.shape[1] - 2], cache)
    came = outcome(lambda: student.forward_cached(model, given(long[:, -3:]), cache))
    held = len(cache)
    if came != "CacheFull" or held != long.shape[1] - 2:
        return {"at_the_end": came, "held_at_the_end": held, "long": logits}
    logits += run_split(student, model, long[:, -2:], [2], cache)
    return {"at_the_end": came, "held_at_the_end": held, "long": logits}


def splits_form(challenge: Challenge) -> Evidence:
    n_layers = challenge["config"]["n_layers"]
    return {
        "logits": Each(Each(np.ndarray)),
        "lengths": Each(int),
        "passes": [Each(int)] * n_layers,
        "full": str,
        "full_length": int,
        "float64": Each(np.ndarray),
        "at_the_end": str,
        "held_at_the_end": int,
        "long": Each(np.ndarray),
    }


@check(
    "forward_cached",
    "KVCache",
    draw=draw_text,
    probe=probe_splits,
    evidence=splits_form,
    truth=uncached,
)
def every_split_equals_uncached(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare the logits of every chunk of every split with the uncached ones."""
    wanted, splits = truth(challenge, challenge["tokens"]), challenge["splits"]
    agree = []
    for split, chunks, length in zip(splits, evidence["logits"], evidence["lengths"], strict=False):
        if not chunks:
            return failed(
                f"Chunks of {split}, a cache of 10 places: CacheFull, but the 10 tokens fit exactly. "
                f"What is compared before the refusal, and who moves the length before that?"
            )
        if length != 10:
            return failed(
                f"Chunks of {split}: 10 tokens were fed and len(cache) is {length}. "
                f"How often is advance called in one forward pass, and with which number?"
            )
        if len(chunks) != len(split):
            return failed(f"Chunks of {split}: logits of {len(chunks)} came back.")
        wrong = first_difference(chunks, wanted, split, tolerance)
        if wrong:
            so_far = f" Chunks of {agree[-1]} agree." if agree else ""
            return failed(f"{wrong}{so_far} {_ask_about_chunk(split, wrong)}")
        agree.append(split)
    if len(agree) != len(splits) or len(evidence["float64"]) != 2:
        return failed(f"Chunks of {splits} were fed, and logits of {len(agree)} came back.")
    wrong = (
        _wrong_at_the_end(challenge, evidence, truth, tolerance)
        or _wrong_dtype(evidence["float64"], wanted, tolerance)
        or _wrong_passes(challenge, evidence["passes"])
    )
    apart = max(np.abs(np.concatenate(c, axis=1) - wanted).max() for c in evidence["logits"])
    return wrong or passed(
        f"Every logit equals the uncached one, for chunks of {agree} (max |Δ| {apart:.0e}, "
        f"tolerance {tolerance:g})."
    )


def _ask_about_chunk(split: list[int], wrong: Difference) -> str:
    if wrong.call == 0 and wrong.place == 0:
        return (
            "Nothing was cached yet, and the first token sees itself alone. If layer_equals_uncached "
            "passes: what does a block add to what, what follows the last block, and when is advance "
            "called?"
        )
    return question_about(split, wrong)


def _wrong_at_the_end(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict | None:
    """Judge what is refused, and the longest text."""
    if evidence["full"] != "CacheFull" or evidence["full_length"] != 10:
        return failed(
            f"A cache of 10 places holds 10 tokens; feeding one more: {evidence['full']}, and "
            f"then it holds {evidence['full_length']}. Wanted is CacheFull, and 10 still. What do you "
            f"ask before anything is computed?"
        )
    n = challenge["long"].shape[1]
    if evidence["at_the_end"] != "CacheFull" or evidence["held_at_the_end"] != n - 2:
        return failed(
            f"Cache and model of {n} places each, {n - 2} held, 3 fed: {evidence['at_the_end']}, and "
            f"then it holds {evidence['held_at_the_end']}. Wanted is CacheFull, and {n - 2} still. "
            f"Which of your lines is the first that needs a place for token {n + 1}?"
        )
    if len(evidence["long"]) != 2:
        return failed(f"A text of {n} tokens was not read to its end.")
    wanted = truth(challenge, challenge["long"])
    wrong = first_difference(evidence["long"], wanted, [n - 2, 2], tolerance)
    return (
        failed(f"{wrong} Short texts agree. How far back does your layer look?") if wrong else None
    )


def _wrong_dtype(chunks: list[np.ndarray], wanted: np.ndarray, tolerance: float) -> Verdict | None:
    """Judge the logits of a float64 model with a float64 cache."""
    wrong = first_difference(chunks, wanted, DOUBLED, tolerance)
    if wrong or any(chunk.dtype != np.float64 for chunk in chunks):
        return failed(
            f"A model and a cache of float64: {wrong or f'the logits are {chunks[0].dtype}.'} Which of "
            f"your lines makes numbers of another type?"
        )
    return None


def _wrong_passes(challenge: Challenge, by_layer: list[list[int]]) -> Verdict | None:
    """Judge whether each chunk went through every layer once. What NumPy computed was not seen."""
    B = len(challenge["tokens"])
    wanted = [B * n for n in COUNTED]
    for layer, calls in enumerate(by_layer if any(by_layer) else []):
        if calls != wanted:
            return failed(
                f"{B} texts, chunks of {COUNTED}: layer {layer} computed keys for {calls} rows in "
                f"{len(calls)} passes, wanted are {wanted}. How many tokens can one pass take?"
            )
    return None
