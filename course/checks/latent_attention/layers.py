"""Check the layer: its logits in a model, what it knows of the past, and what it writes."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.attention_cases import largest_text
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.comparing import Truth, first_difference, question_about
from course.checks.default_device import beside_default
from course.checks.drawing import draw_split, draw_state, draw_tokens
from course.checks.recorder import given
from course.checks.recording import TENSOR, as_array
from course.checks.rules import wrong_device
from course.given.latent import LatentAttention, LatentGPT, forward_latent
from course.measure.allocations import watch_new_tensors
from course.model.config import GPTConfig

N_TOKENS = 7


# --- every split ----------------------------------------------------------------------------------


@cache
def shapes_of(config: GPTConfig, rank: int, d_rope: int) -> dict[str, tuple[int, ...]]:
    """Name the weights of a model with latents, each with its shape."""
    model = LatentGPT(config, rank, d_rope)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def draw_texts(seed: int) -> Challenge:
    """Draw a model, three texts of 7 tokens and ways to cut them; and another model with one text. The
    key and query parts differ in size, so that a wrong scale shows."""
    rng = np.random.default_rng(seed)
    config = GPTConfig(50, 3, 24, 4, 4, 40, max_seq_len=64)
    splits = [[N_TOKENS], [1] * N_TOKENS, [3, 1, 2, 1], draw_split(rng, N_TOKENS)]
    models = []
    for rank, d_rope, batch in ((10, 4, 3), (5, 6, 1)):
        state = draw_state(rng, shapes_of(config, rank, d_rope))
        tokens = draw_tokens(rng, batch, N_TOKENS, 50)
        sizes = {"config": config.to_dict(), "rank": rank, "d_rope": d_rope}
        models.append({**sizes, "state": state, "tokens": tokens})
    return {"models": models, "splits": splits}


def probe_texts(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed the texts in chunks, for every split through a cache of its own."""

    def run_split(model: LatentGPT, case: Challenge, split: list[int]) -> list[np.ndarray]:
        tokens, sizes = given(case["tokens"]), (case["rank"], case["d_rope"])
        rows = student.LatentKVCache(model.config, len(tokens), N_TOKENS + 1, *sizes)
        return [
            forward_latent(model, chunk, rows, student.latent_attention_layer)
            .detach()
            .numpy()
            .copy()
            for chunk in tokens.split(split, dim=1)
        ]

    logits = []
    for case in challenge["models"]:
        state = {name: torch.from_numpy(array.copy()) for name, array in case["state"].items()}
        model = LatentGPT.from_latent_state(GPTConfig(**case["config"]), state)
        logits.append([run_split(model, case, split) for split in challenge["splits"]])
    return {"models": logits}


def texts_form(challenge: Challenge) -> Evidence:
    of_splits = [[np.ndarray] * len(split) for split in challenge["splits"]]
    return {"models": [of_splits] * len(challenge["models"])}


@check(
    "latent_attention_layer",
    "LatentKVCache",
    draw=draw_texts,
    probe=probe_texts,
    evidence=texts_form,
)
def every_split_equals_the_paper(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare every logit with those of a model that expands all keys, head by head, in float64."""
    for case, of_splits in zip(challenge["models"], evidence["models"], strict=True):
        model = {name: case[name] for name in ("config", "rank", "d_rope", "state")}
        expected = truth(model, case["tokens"])
        where = f"H=4, D=6, rank {case['rank']}, R={case['d_rope']}, batch {len(case['tokens'])}. "
        for split, chunks in zip(challenge["splits"], of_splits, strict=True):
            if wrong := first_difference(chunks, expected, split, tolerance):
                return failed(f"{where}{wrong} {_ask(split, wrong)}")
    return passed(
        "Every logit equals the one with all keys and values expanded, however a text is cut."
    )


def _ask(split: list[int], wrong: Any) -> str:
    earlier = "Does absorbed_scores_are_the_scores pass? If so,"
    if wrong.call == 0 and wrong.place == 0:
        itself = "It sees itself alone, so its scores do not matter."
        if split[0] > 1:
            itself = "It may see only itself."
        return (
            f"{itself} {earlier} which rows does it see, which numbers of a row are the latent, which "
            f"values does each head make of it, and what follows?"
        )
    if wrong.call == 0 and wrong.place > 0:
        return (
            f"{earlier} how is wq(x) cut into heads, which parts of a query and of a row are rotated, in "
            f"which order do they meet, by what is a score divided, and which rows does each query see?"
        )
    return question_about(split, wrong)


# --- the layer alone, on rows that were drawn -----------------------------------------------------


class DrawnRows:
    """Stand in for a cache: whatever is appended, it returns rows that were drawn.

    Attributes:
        calls: what was appended to which layer, and "advance".
    """

    def __init__(self, rows: Tensor, n_new: int) -> None:
        self.drawn, self.max_len = rows, rows.shape[1] + 9
        self.length, self.calls = rows.shape[1] - n_new, []

    def __len__(self) -> int:
        return self.length

    def advance(self, n: int) -> None:
        self.calls.append("advance")

    def append(self, layer: int, c: Tensor, k_rope: Tensor) -> Tensor:
        self.calls.append([int(layer), list(c.shape), list(k_rope.shape)])
        return self.drawn


def make_layer(case: Challenge) -> LatentAttention:
    """Make a layer of the case's sizes and weights."""
    attn = LatentAttention(GPTConfig(**case["config"]), case["rank"], case["d_rope"])
    attn.load_state_dict({name: torch.from_numpy(a.copy()) for name, a in case["weights"].items()})
    return attn.requires_grad_(False)


def draw_layer(
    rng: np.random.Generator, sizes: tuple[int, int, int, int], batch: int, past: int, new: int
) -> Challenge:
    """Draw a layer of H, D, rank and R, inputs x, and the rows that its cache will return."""
    H, D, rank, R = sizes
    config = GPTConfig(50, 3, H * D, H, H, 40, max_seq_len=1024)
    weights = LatentAttention(config, rank, R).state_dict()
    return {
        "config": config.to_dict(),
        "rank": rank,
        "d_rope": R,
        "weights": draw_state(rng, {name: tuple(weight.shape) for name, weight in weights.items()}),
        "x": rng.normal(size=(batch, new, H * D)).astype(np.float32),
        "rows": rng.normal(size=(batch, past + new, rank + R)).astype(np.float32),
        "layer": int(rng.integers(1, 3)),
    }


def draw_poison(seed: int) -> Challenge:
    """Draw a layer, rows of 6 past and 2 new tokens that never were, and an order of the past."""
    rng = np.random.default_rng(seed)
    case = draw_layer(rng, (4, 6, 10, 4), 3, 6, 2)
    return {**case, "order": [5, *rng.permutation(5).tolist()]}


def call(
    student: SimpleNamespace,
    attn: LatentAttention,
    case: Challenge,
    rows: np.ndarray,
    sign: int = 1,
) -> tuple[Any, list[Any]]:
    """Call the layer on x, or on its negative, with a cache that returns `rows`."""
    T = case["x"].shape[1]
    kept, x = DrawnRows(torch.tensor(rows), T), given(sign * case["x"])
    positions = torch.arange(len(kept), len(kept) + T)
    out = student.latent_attention_layer(attn, x, positions, kept, case["layer"])
    return out, kept.calls


def probe_poison(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call one layer on rows, on the negatives, in another order, with another newest row, and as at
    first; with other new tokens; where all rows are one and the same; with other weights; and where new
    tensors lie elsewhere."""
    attn, rows = make_layer(challenge), challenge["rows"]
    shuffled, newest = rows.copy(), rows.copy()
    shuffled[:, : len(challenge["order"])] = rows[:, challenge["order"]]
    newest[:, -1] = -rows[:, -1]
    alike = np.repeat(rows[:, :1], rows.shape[1], axis=1)
    several = {
        "first": (rows, 1),
        "other": (-rows, 1),
        "shuffled": (shuffled, 1),
        "newest": (newest, 1),
        "asked": (rows, -1),
        "alike": (alike, 1),
        "alike_asked": (alike, -1),
        "again": (rows, 1),
    }
    outs, calls = {}, []
    for name, (one, sign) in several.items():
        out, calls = call(student, attn, challenge, one, sign)
        outs[name] = as_array(out)
    # Not the negatives: in a product of two matrices signs cancel.
    rolled = {name: np.roll(weight, 1, axis=0) for name, weight in challenge["weights"].items()}
    for weight in attn.parameters():
        weight.copy_(weight.roll(1, 0))
    for name, layer in (
        ("other_weights", attn),
        ("made_of_them", make_layer({**challenge, "weights": rolled})),
    ):
        outs[name] = as_array(call(student, layer, challenge, rows)[0])
    T = challenge["x"].shape[1]
    kept, x = DrawnRows(torch.tensor(rows), T), given(challenge["x"])
    request = attn, x, torch.arange(len(kept), len(kept) + T), kept, challenge["layer"]
    elsewhere = beside_default(lambda: student.latent_attention_layer(*request))
    return {"outs": outs, "calls": calls, "elsewhere": elsewhere}


SENTENCES = {
    "other": (
        "Two caches that return different rows gave the same output",
        "Who reads the rows?",
    ),
    "newest": (
        "The newest row was exchanged, and the newest token's output did not move",
        "Is it read from what append returned, and may that token see it?",
    ),
    "again": (
        "The same call on the same rows, with others in between, gave another output",
        "What does your layer keep from one call to the next?",
    ),
    "shuffled": (
        "The same past rows in another order gave another output",
        "A rotated key carries its position inside. What else depends on the place of a row?",
    ),
    "asked": (
        "Other new tokens on the same rows gave the same output",
        "Who says which rows count for how much?",
    ),
    "alike_asked": (
        "All rows are one and the same, and other new tokens gave another output",
        "Whatever their shares, what is the mean of equal rows, and what else is in your output?",
    ),
    "other_weights": (
        "The weights were changed, and the output is not that of a new layer with these weights",
        "What does your layer keep of a matrix?",
    ),
}
"""What is said of a call whose output moves where it must not, or stays where it must move."""
MUST_MOVE = ("other", "newest", "asked")
BESIDE = {"alike_asked": "alike", "other_weights": "made_of_them"}
"""With which call another is compared, where not with the first."""


def poison_form(challenge: Challenge) -> Evidence:
    outs = dict.fromkeys(["first", *BESIDE.values(), *SENTENCES], TENSOR)
    return {"outs": outs, "calls": list, "elsewhere": str}


@check("latent_attention_layer", draw=draw_poison, probe=probe_poison, evidence=poison_form)
def rows_are_the_only_memory(challenge: Challenge, evidence: Evidence, tolerance: float) -> Verdict:
    """Other rows must move the output, rows in another order must not, nor calls in between; new tokens
    must move it by their queries alone."""
    outs, shape = evidence["outs"], challenge["x"].shape
    for out in outs.values():
        if isinstance(out, str) or out.shape != shape:
            got = out if isinstance(out, str) else f"shape {out.shape}"
            return failed(
                f"The layer gave {got}; expected is (B, T, C) = {shape}. What comes last?"
            )
        if not np.isfinite(out).all():
            return failed("The layer gave numbers that are not finite. What went into the softmax?")
    B, T, _ = shape
    right = [challenge["layer"], [B, T, challenge["rank"]], [B, 1, T, challenge["d_rope"]]]
    if "advance" in evidence["calls"]:
        return failed(
            "The layer called advance. How many layers has a pass, and who counts it once?"
        )
    if evidence["calls"] != [right]:
        return failed(
            f"append was called with {evidence['calls']} (layer, shapes of c and k_rope), expected is "
            f"{[right]}. What belongs into the cache, how often, and for which layer?"
        )
    if wrong := wrong_device("latent_attention_layer", evidence["elsewhere"]):
        return failed(wrong)
    for name, (sentence, question) in SENTENCES.items():
        new = slice(-1 if name == "newest" else None, None)
        before = outs[BESIDE.get(name, "first")]
        moved = float(np.abs(outs[name] - before)[:, new].max())
        if (moved > tolerance) != (name in MUST_MOVE):
            order = f" {challenge['order']}" if name == "shuffled" else ""
            return failed(f"{sentence} (max |Δ| {moved:.2g}{order}). {question}")
    return passed("The layer knows the past through the cached rows alone, whatever they hold.")


def draw_long(seed: int) -> Challenge:
    """Draw one new token of two texts on many rows. Heads are so wide that scores, several times over,
    are less than the keys of all heads would be."""
    rng = np.random.default_rng(seed)
    return draw_layer(rng, (4, 32, 24, 16), 2, int(rng.integers(300, 360)), 1)


def probe_long(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Count what one call writes into new tensors; call again on other rows."""
    attn, rows, (B, S) = make_layer(challenge), challenge["rows"], challenge["rows"].shape[:2]
    kept, positions = DrawnRows(torch.tensor(rows), 1), torch.tensor([S - 1])
    x = given(challenge["x"])
    present = [kept.drawn, x, positions, *attn.parameters(), *attn.buffers()]
    with watch_new_tensors(*present) as made:
        out = student.latent_attention_layer(attn, x, positions, kept, challenge["layer"])
    other, _ = call(student, attn, challenge, -rows)
    both = isinstance(out, Tensor) and isinstance(other, Tensor) and out.shape == other.shape
    moved = float((out - other).abs().max()) if both else 0.0
    keys = B * S * attn.n_heads * attn.head_dim
    # In tenths: the count itself depends on the version of PyTorch.
    tenths = 10 * made.numbers // keys
    work = {"tenths": tenths, "largest": largest_text(made), "read": bool(made.read[0])}
    return {**work, "moved": moved, "out": as_array(out)}


def long_form(challenge: Challenge) -> Evidence:
    return {"tenths": int, "largest": str, "read": bool, "moved": float, "out": TENSOR}


@check("latent_attention_layer", draw=draw_long, probe=probe_long, evidence=long_form)
def nothing_is_expanded(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Look at what is written, and then whether the numbers are right: little work is easy without
    them."""
    B, S = challenge["rows"].shape[:2]
    case = f"B={B}, one new token on {S - 1}, H=4, D=32, rank 24, R=16"
    if not evidence["moved"] > tolerance:
        return failed(f"{case}: other rows gave the same output. Who reads the rows?")
    if not evidence["read"]:
        return failed(
            f"{case}: no operation of PyTorch read the rows, and others cannot be counted. Which of "
            f"your lines leave PyTorch?"
        )
    question = "Which of your lines makes it, and for whom?"
    if "`clone" in evidence["largest"]:
        question = f"This is a copy; a product that broadcasts makes one, too. {question}"
    if evidence["tenths"] >= 10:
        return failed(
            f"{case}: into new tensors you write {evidence['tenths'] / 10:g} times as many numbers as "
            f"the keys of all heads would have ({B * S * 4 * 32:,}). The largest, but "
            f"for axes of 1, is {evidence['largest']}. {question}"
        )
    names = ("config", "rank", "d_rope", "weights")
    expected = truth({name: challenge[name] for name in names}, challenge["x"], challenge["rows"])
    out = evidence["out"]
    if isinstance(out, str) or out.shape != expected.shape:
        got = out if isinstance(out, str) else f"shape {out.shape}"
        return failed(
            f"{case}: the layer gave {got}; expected is {expected.shape}. What comes last?"
        )
    if not (delta := float(np.abs(out - expected).max())) <= tolerance:
        return failed(
            f"{case}: nothing is expanded, but the output differs from the one with all keys and values "
            f"expanded (max |Δ| {delta:.2g}, tolerance {tolerance:g}). Does every_split_equals_the_paper "
            f"pass? If so, which products are regrouped, and is one left out?"
        )
    return passed("Scores and outputs are new; no key and no value of a cached token is made.")
