"""Check the cached layer against the layer without a cache."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.caches import new_cache
from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import NO_PLACE, Difference, first_difference, question_about
from course.checks.default_device import beside_default
from course.checks.drawing import build_model, draw_model, draw_split
from course.checks.recorder import given
from course.checks.rules import wrong_device

IN_FLOAT64 = 7
"""Tokens that are fed in float64. torch adds a mask of float32 to scores of float64 at the right places
as long as they fit into one register, and how many fit is the processor's affair."""


class AnotherCache:
    """A student's cache with no more than the names of `KVCacheLike`."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __len__(self) -> int:
        return len(self._cache)

    def __getattr__(self, name: str) -> Any:
        if name not in ("max_len", "append", "advance", "truncate", "reset", "nbytes"):
            raise AttributeError(
                f"a KVCacheLike need not be your KVCache, and this one has no {name}. What does "
                f"append return?"
            )
        return getattr(self._cache, name)


def draw_layer(seed: int) -> Challenge:
    """Draw, for 4, 2 and 1 KV heads, a model and inputs (B, T, C) of one of its layers in chunks; one of
    them in float64, one of a single row. The last is fed from another position than 0, to another
    cache."""
    rng = np.random.default_rng(seed)
    sizes = ((4, 3, "float32"), (2, 1, "float32"), (1, 2, "float64"))
    cases = [_draw_case(rng, *size) for size in sizes]
    return {"cases": [*cases, _draw_case(rng, 2, 2, "float32", first=int(rng.integers(5, 50)))]}


def _draw_case(
    rng: np.random.Generator, n_kv_heads: int, batch: int, dtype: str, first: int = 0
) -> Challenge:
    model = draw_model(rng, n_kv_heads=n_kv_heads, n_layers=2)
    T = 8 if dtype == "float32" else IN_FLOAT64
    x = rng.normal(size=(batch, T, model["config"]["d_model"])).astype(np.float32)
    layer, split = int(rng.integers(2)), draw_split(rng, T)
    return {**model, "x": x, "split": split, "layer": layer, "dtype": dtype, "first": first}


def positions_of(case: Challenge) -> np.ndarray:
    """The positions of all of a case's tokens, (T,)."""
    return np.arange(case["x"].shape[1]) + case["first"]


def probe_layer(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Tell by how many tokens one call of each case's layer moved the cache; if by none, run the layer
    chunk after chunk, and once where new tensors lie elsewhere."""
    moved = [_length_moved_by(student, case) for case in challenge["cases"]]
    if any(moved):
        return {"moved": moved, "runs": [], "elsewhere": ""}
    runs = [_run_layer(student, case) for case in challenge["cases"]]
    return {
        "moved": moved,
        "runs": runs,
        "elsewhere": _run_elsewhere(student, challenge["cases"][0]),
    }


def _run_elsewhere(student: SimpleNamespace, case: Challenge) -> str:
    """Call a layer where new tensors lie elsewhere; return what is wrong."""
    attn, x, cache = _prepare(student, case, case["x"].shape[1], device=torch.device("cpu"))
    request = attn, x, torch.from_numpy(positions_of(case)), cache, case["layer"]
    return beside_default(lambda: student.attention_layer_cached(*request))


def _prepare(
    student: SimpleNamespace, case: Challenge, places: int, **device: torch.device
) -> tuple[Any, torch.Tensor, Any]:
    """Make a case's layer, its input and an empty cache."""
    dtype = getattr(torch, case["dtype"])
    attn = build_model(case).to(dtype).blocks[case["layer"]].attn
    cache = new_cache(student, case, places, batch=len(case["x"]), dtype=dtype, **device)
    return attn, given(case["x"], dtype), AnotherCache(cache) if case["first"] else cache


def _length_moved_by(student: SimpleNamespace, case: Challenge) -> int:
    """Call the layer once, with 2 tokens, and tell how many the cache says that it holds then."""
    attn, x, cache = _prepare(student, case, 8)
    places = given(positions_of(case)[:2])
    student.attention_layer_cached(attn, x[:, :2], places, cache, case["layer"])
    return len(cache)


def _run_layer(student: SimpleNamespace, case: Challenge) -> Evidence:
    """Return the output of each chunk, and all keys that come back with one token more."""
    B, T, _ = case["x"].shape
    attn, x, cache = _prepare(student, case, T + 1)
    places, outputs, done = given(positions_of(case)), [], 0
    for n in case["split"]:
        now = slice(done, done + n)
        out = student.attention_layer_cached(attn, x[:, now], places[now], cache, case["layer"])
        outputs.append(out.numpy())
        cache.advance(n)
        done += n
    G = attn.n_kv_heads
    row = torch.zeros(B, G, 1, attn.wk.out_features // G, dtype=x.dtype)
    return {"out": outputs, "keys": cache.append(case["layer"], row, row)[0].numpy()}


def uncached_layer(case: Challenge) -> tuple[np.ndarray, np.ndarray]:
    """Compute the layer's output over all tokens at once, (B, T, C), by lesson 01's layer; and the keys
    of all tokens, rotated, (B, G, T, D)."""
    model, x = build_model(case), torch.from_numpy(case["x"])
    attn, places = model.blocks[case["layer"]].attn, torch.from_numpy(positions_of(case))
    keys = attn.wk(x).unflatten(-1, (attn.n_kv_heads, -1)).transpose(1, 2)
    return model.attention_layer(attn, x, places).numpy(), attn.rotate(keys, places).numpy()


def layer_form(challenge: Challenge) -> Evidence:
    run = {"out": Each(np.ndarray), "keys": np.ndarray}
    return {"moved": [int] * len(challenge["cases"]), "runs": Each(run), "elsewhere": str}


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
    cases, runs, agree = challenge["cases"], evidence["runs"], []
    for moved in filter(None, evidence["moved"]):
        return failed(
            f"An empty cache holds {moved} tokens after one layer was called with 2. Other layers "
            f"append behind the same length. Which line moves it, and when should it move?"
        )
    if len(runs) != len(cases):
        return failed(f"{len(cases)} layers were called, and outputs of {len(runs)} came back.")
    for case, run in zip(cases, runs, strict=True):
        if wrong := _wrong_run(case, run, truth(case), tolerance, agree):
            return failed(wrong)
        agree.append(case["config"]["n_kv_heads"])
    if wrong := wrong_device("attention_layer_cached", evidence["elsewhere"]):
        return failed(wrong)
    return passed(f"4 query heads on {agree[:-1]} KV heads: every chunk equals the uncached layer.")


def _wrong_run(
    case: Challenge,
    run: Evidence,
    right: tuple[np.ndarray, np.ndarray],
    tolerance: float,
    agree: list[int],
) -> str | None:
    """Say what is wrong with one layer's outputs and keys.

    Args:
        right: outputs and rotated keys.
        agree: numbers of KV heads with which all is right.
    """
    split, out, G = case["split"], run["out"], case["config"]["n_kv_heads"]
    if len(out) != len(split):
        return f"Chunks of {split}: {len(out)} outputs came back."
    wrong = first_difference(out, right[0], split, tolerance)
    if wrong and case["first"]:
        return (
            f"A cache that is not your KVCache, tokens from position {case['first']} on. {wrong} Where "
            f"positions begin at 0, all agrees. Where does your layer take a place in the cache for a "
            f"position, or the other way round?"
        )
    # The first token sees itself alone: neither mask nor position is at fault.
    if wrong and agree and wrong.call == wrong.place == 0:
        return (
            f"4 query heads on {G} KV heads, batch {len(case['x'])}. {wrong} With {agree[-1]} KV "
            f"heads all agrees. Which KV head does each query head read?"
        )
    if wrong and 1 < G < 4 and wrong.call == wrong.place == 0:
        return (
            f"4 query heads on {G} KV heads. {wrong} Which KV head does each query head read, and does "
            f"the first token see itself alone?"
        )
    if wrong:
        return f"{wrong} {_ask_about_layer(split, wrong)}"
    if out[0].dtype != case["dtype"]:
        return (
            f"A layer and a cache of {case['dtype']} gave {out[0].dtype}. Which of your lines makes "
            f"numbers of another type?"
        )
    if wrong := _first_wrong_key(run["keys"], right[1], tolerance):
        question = "What do you hand to append, for which layer, and when is a key rotated?"
        if case["first"]:
            question = f"The first position is {case['first']}: by which is its key rotated?"
        return f"Every output agrees, but not the keys that were stored. {wrong} {question}"
    return None


def _first_wrong_key(keys: np.ndarray, expected: np.ndarray, tolerance: float) -> str:
    """Say which token's cached key is not the rotated one, the first of them; "" if all are.

    Args:
        keys: what came back, (B, G, T + 1, D).
        expected: (B, G, T, D).
    """
    B, G, T, D = expected.shape
    if keys.shape != (B, G, T + 1, D):
        return f"With one token more, append gave other keys than {(B, G, T + 1, D)}."
    delta = np.abs(keys[:, :, :T].astype(np.float64) - expected).max(axis=(0, 1, 3))  # (T,)
    for token in np.flatnonzero(~(delta <= tolerance))[:1]:
        return (
            f"The key of token {token} differs from the rotated one (max |Δ| {delta[token]:.2g}, "
            f"tolerance {tolerance:g})."
        )
    return ""


def _ask_about_layer(split: list[int], wrong: Difference) -> str:
    """Ask about the mask and the positions only where these can be the reason."""
    if wrong.call == 0 and wrong.place == 0 and split[0] > 1:
        return (
            "Nothing was cached yet: does the first token see itself alone, and if so, what do "
            "projections, values, merge and wo make of it?"
        )
    if wrong.call == 0 and wrong.place == 0:
        return (
            "Nothing was cached yet, and the first token sees itself alone: which of projections, "
            "values, merge and wo does it pass through, and is anything added?"
        )
    if wrong.call == 0 and wrong.place > 0:
        return (
            "Which keys may each query of the first chunk see, what is rotated, and by what are scores "
            "divided?"
        )
    divided = " And by what are scores divided?" * (wrong.place != NO_PLACE)
    return f"{question_about(split, wrong)}{divided}"
