"""Heads that are shared: which one reads which, through every mask, and without a copy."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.drawing import TOLERANCE
from course.measure.allocations import watch_new_tensors

Truth = Callable[[Challenge], np.ndarray]
"""What a case's queries read, (B, H, T, D)."""


def record(value: Any) -> np.ndarray | str:
    """What came back: the numbers of a tensor, or what else it is, in words."""
    if not isinstance(value, Tensor):
        return "nothing (None)" if value is None else f"a {type(value).__name__}"
    return value.detach().cpu().numpy()


def wrong_form(got: np.ndarray | str, shape: tuple[int, ...], dtype: str) -> str | None:
    """What is wrong about shape and type of a result; None where nothing is."""
    if isinstance(got, str):
        return f"gave {got}; wanted is a tensor. What do you return?"
    if got.shape != shape:
        return f"gave shape {got.shape}; wanted is {shape}. Which axis counts the heads?"
    if str(got.dtype) != dtype:
        return f"gave {got.dtype} for {dtype} inputs. What changed the type of the numbers?"
    return None


# --- repeat_kv -----------------------------------------------------------------------------------


def draw_labelled_heads(seed: int) -> Challenge:
    """Heads whose numbers say where they come from: 1000 · row + 100 · head + 10 · token + number;
    and how often each is wanted."""
    rng = np.random.default_rng(seed)
    cases = []
    for G, n_rep in ((2, 2), (3, 1), (2, int(rng.integers(3, 6))), (1, int(rng.integers(3, 6)))):
        B, S, D = 2, int(rng.integers(3, 6)), int(rng.choice([2, 4, 6]))
        row, head, token, number = np.ogrid[:B, :G, :S, :D]
        x = (1000 * row + 100 * head + 10 * token + number).astype(np.float32)
        cases.append({"x": x, "n_rep": n_rep, "dtype": str(rng.choice(["float32", "float16"]))})
    return {"cases": cases}


def probe_repeat(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    given = [
        (torch.from_numpy(case["x"].copy()).to(getattr(torch, case["dtype"])), case["n_rep"])
        for case in challenge["cases"]
    ]
    return {"out": [record(student.repeat_kv(x, n_rep)) for x, n_rep in given]}


def judge_repeat(challenge: Challenge, evidence: Evidence) -> Verdict:
    for case, got in zip(challenge["cases"], evidence["out"], strict=True):
        x, n = case["x"].astype(case["dtype"]), case["n_rep"]
        B, G, S, D = x.shape
        asked = f"repeat_kv of {G} heads, (B, G, S, D) = {x.shape}, n_rep={n},"
        if wrong := wrong_form(got, (B, G * n, S, D), case["dtype"]):
            return failed(f"{asked} {wrong}")
        for head in range(G * n):
            source, found = head // n, got[:, head]
            if (found != x[:, source]).any():
                known = [g for g in range(G) if (found == x[:, g]).all()]
                instead = f"head {known[0]}" if known else "a mixture of several heads or tokens"
                return failed(
                    f"{asked} gave {G * n} heads. Head {head} should be head {source} of x, and is "
                    f"{instead}. In which order do copies of two heads stand: a a b b, or a b a b?"
                )
    return passed("Each head stands n_rep times in a row, and nothing in it moved.")


heads_stand_in_a_row = Check(
    "heads_stand_in_a_row", ("repeat_kv",), draw_labelled_heads, probe_repeat, judge_repeat
)

# --- grouped_attention: numbers ------------------------------------------------------------------


def draw_case(
    rng: np.random.Generator, H: int, G: int, T: int, S: int, mask: np.ndarray | None = None
) -> Challenge:
    """Queries, keys and values of a batch of 2, heads 6 wide; sharp enough to tell keys apart."""
    q = rng.normal(0, 2, (2, H, T, 6)).astype(np.float32)
    k, v = rng.normal(size=(2, 2, G, S, 6)).astype(np.float32)
    return {"q": q, "k": k, "v": v, "mask": mask}


def draw_shared(seed: int) -> Challenge:
    """No mask: every head its own, four groups of sizes, one head for all; T and S in any ratio."""
    rng = np.random.default_rng(seed)
    T, S = int(rng.integers(2, 4)), int(rng.integers(5, 9))
    sizes = [(4, 4, T, T), (4, 2, 1, S), (6, 2, T, S), (6, 3, S, T), (4, 1, T, S)]
    return {"cases": [draw_case(rng, *size) for size in sizes]}


def attend(student: SimpleNamespace, case: Challenge) -> np.ndarray | str:
    """The student's attention on a case; the mask is left out where there is none."""
    q, k, v = (torch.from_numpy(case[name].copy()) for name in ("q", "k", "v"))
    if case["mask"] is None:
        return record(student.grouped_attention(q, k, v))
    return record(student.grouped_attention(q, k, v, torch.from_numpy(case["mask"].copy())))


def probe_attention(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return {"out": [attend(student, case) for case in challenge["cases"]]}


def repeated(case: Challenge) -> np.ndarray:
    """PyTorch's attention, each KV head written out for all query heads that read it."""
    per_group = case["q"].shape[1] // case["k"].shape[1]
    k, v = (torch.from_numpy(np.repeat(case[name], per_group, axis=1)) for name in ("k", "v"))
    mask = None if case["mask"] is None else torch.from_numpy(case["mask"])
    return F.scaled_dot_product_attention(torch.from_numpy(case["q"]), k, v, attn_mask=mask).numpy()


def said(case: Challenge) -> str:
    """ "4 query heads on 2 KV heads, T = 3, S = 5"."""
    (_, H, T, _), (G, S) = case["q"].shape, case["k"].shape[1:3]
    return f"{H} query heads on {G} KV head{'s' * (G > 1)}, T = {T}, S = {S}"


def compare(
    case: Challenge, got: np.ndarray | str, truth: Truth, intro: str, question: str
) -> Verdict | None:
    """The first row, head and query that differ, and by how much; None where all agree."""
    if wrong := wrong_form(got, case["q"].shape, "float32"):
        return failed(f"{intro}{said(case)}: grouped_attention {wrong}")
    delta = np.abs(got.astype(np.float64) - truth(case)).max(axis=3)  # (B, H, T)
    delta[~np.isfinite(delta)] = np.inf
    bad = np.argwhere(delta > TOLERANCE)
    if not len(bad):
        return None
    row, head, query = bad[0].tolist()
    heads = sorted(set(bad[:, 1].tolist()))
    return failed(
        f"{intro}{said(case)}: query {query} of head {head} differs (batch row {row}, max |Δ| "
        f"{delta[row, head, query]:.2g}, tolerance {TOLERANCE:g}); wrong heads: {heads}. {question}"
    )


def make_shared(truth: Truth) -> Check:
    """Attention without a mask, for every number of KV heads."""

    def judge(challenge: Challenge, evidence: Evidence) -> Verdict:
        question = (
            "Every head has its own keys here, and there is no mask: how does a score become a "
            "weight, and which keys does a query see?"
        )
        for case, got in zip(challenge["cases"], evidence["out"], strict=True):
            if wrong := compare(case, got, truth, "", question):
                return wrong
            question = (
                "Where each head has its own keys all agrees. Which query heads are neighbours, and "
                "which KV head do they read?"
            )
        return passed("MHA, GQA and MQA: the numbers of repeated heads, for any T and S.")

    return Check(
        "grouped_equals_repeated", ("grouped_attention",), draw_shared, probe_attention, judge
    )


MASKS = {
    "(T, S)": (0, 0, 1, 1),
    "(B, 1, T, S)": (1, 0, 1, 1),
    "(B, 1, 1, S)": (1, 0, 0, 1),
    "(B, H, T, S)": (1, 1, 1, 1),
}
"""Shapes of a mask, and which of the axes B, H, T, S it has in full."""


def draw_masked(seed: int) -> Challenge:
    """6 query heads on 2 KV heads, under a mask of each shape that leaves every query a key."""
    rng = np.random.default_rng(seed)
    T, S = 3, int(rng.integers(4, 8))
    cases = []
    for name, full in MASKS.items():
        shape = tuple(size if has else 1 for size, has in zip((2, 6, T, S), full, strict=True))
        mask = rng.random(shape) < 0.5
        keys = rng.integers(0, S, shape[:-1])[..., None]
        np.put_along_axis(mask, keys, True, axis=-1)
        np.put_along_axis(mask, (keys + 1) % S, False, axis=-1)
        mask = mask[0, 0] if name == "(T, S)" else mask
        cases.append({**draw_case(rng, 6, 2, T, S, mask), "name": name})
    square = np.tril(np.ones((4, 4), dtype=bool))
    return {"cases": [{**draw_case(rng, 4, 2, 4, 4, square), "name": "(T, S)"}, *cases]}


def make_masked(truth: Truth) -> Check:
    """Attention under masks of every shape that there is."""

    def judge(challenge: Challenge, evidence: Evidence) -> Verdict:
        for case, got in zip(challenge["cases"], evidence["out"], strict=True):
            intro = f"A mask of shape {case['mask'].shape}, {case['name']}. "
            question = (
                "True is where a query may look. Which axes have your scores when the mask meets "
                "them?"
            )
            if wrong := compare(case, got, truth, intro, question):
                return wrong
        return passed(f"Masks {', '.join(MASKS)}: what is hidden stays hidden, in every head.")

    return Check(
        "masks_reach_every_head", ("grouped_attention",), draw_masked, probe_attention, judge
    )


# --- grouped_attention: nothing is written out ---------------------------------------------------

WIDTH = 64


def draw_decode_step(seed: int) -> Challenge:
    """One new token, 16 query heads; keys and values as a cache gives them, a slice of more room."""
    rng = np.random.default_rng(seed)
    cases = []
    for G in (2, 1):
        q = rng.normal(size=(2, 16, 1, WIDTH)).astype(np.float32)
        room = rng.normal(size=(2, 2, G, 60, WIDTH)).astype(np.float32)
        cases.append({"q": q, "room": room, "held": int(rng.integers(30, 55))})
    return {"cases": [with_held(case) for case in cases]}


def with_held(case: Challenge) -> Challenge:
    """The case with its keys and values by name, as `repeated` and the oracle want them."""
    k, v = case["room"][..., : case["held"], :]
    return {**case, "k": k, "v": v, "mask": None}


def probe_new_tensors(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    out, numbers, largest, read = [], [], [], []
    for case in challenge["cases"]:
        q, room = (torch.from_numpy(case[name].copy()) for name in ("q", "room"))
        k, v = room[..., : case["held"], :]
        with watch_new_tensors(q, room) as made:
            result = student.grouped_attention(q, k, v)
        most = made.largest
        out.append(record(result))
        numbers.append(made.numbers)
        largest.append(f"{most.shape}, made by `{most.made_by}`" if most else "none")
        read.append(all(made.read))
    return {"out": out, "numbers": numbers, "largest": largest, "read": read}


def enough_numbers(case: Challenge) -> int:
    """New numbers that a decode step may write: twelve tensors of scores, eight of outputs, and one
    copy of the keys and values as they are. Writing out either for all query heads takes more."""
    (B, H, T, D), (G, S) = case["q"].shape, case["k"].shape[1:3]
    return 12 * B * H * T * S + 8 * B * H * T * D + 2 * B * G * S * D


def make_unexpanded(truth: Truth) -> Check:
    """The right numbers, with no copy of keys or values for each query head."""

    def judge(challenge: Challenge, evidence: Evidence) -> Verdict:
        parts = (evidence[name] for name in ("out", "numbers", "largest", "read"))
        for case, got, numbers, largest, read in zip(challenge["cases"], *parts, strict=True):
            if wrong := compare(case, got, truth, "", "Which KV head does each head read?"):
                return wrong
            if not read:
                return failed(
                    f"{said(case)}: the result is right, but no operation of PyTorch read queries and "
                    f"keys. Where else is it computed?"
                )
            limit, keys = enough_numbers(case), case["k"].size
            if not numbers <= limit:
                return failed(
                    f"{said(case)}, D = {WIDTH}: the result is right, but {numbers:,} numbers were "
                    f"written into new tensors where {limit:,} are plenty. (The keys are {keys:,}; "
                    f"written out for every query head, {keys * 16 // case['k'].shape[1]:,}.) The "
                    f"largest new tensor is {largest}. Which of your lines makes it?"
                )
        return passed("Scores and outputs are new; keys and values are read where they lie.")

    return Check(
        "nothing_is_expanded", ("grouped_attention",), draw_decode_step, probe_new_tensors, judge
    )


grouped_equals_repeated = make_shared(repeated)
masks_reach_every_head = make_masked(repeated)
nothing_is_expanded = make_unexpanded(repeated)
