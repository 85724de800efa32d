"""Check which rows a token may see through a window, and in which place its own row lies."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from course.checks.check import Challenge, Check, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome
from course.checks.recorded import Recorded
from course.checks.recorder import given

Truth = Callable[[Challenge], np.ndarray]
"""The right answer to one case: a mask (T, R) bool, or places (n,) int64."""


def draw_windows(seed: int) -> Challenge:
    """Draw numbers of new tokens and of rows, in the order of the text and in any other. Token 0 is in
    none of them, for sinks are asked about elsewhere."""
    rng = np.random.default_rng(seed)
    first = int(rng.integers(10, 20))
    far = int(rng.integers(5_000, 6_000))
    shuffled = rng.permutation(np.arange(first - 6, first + 4))
    cases = [
        _case(np.array([6]), np.arange(1, 7), 3),
        _case(
            np.arange(first, first + 4), np.arange(first - 6, first + 4), int(rng.integers(2, 6))
        ),
        _case(np.arange(first, first + 4), shuffled, int(rng.integers(2, 6))),
        _case(np.arange(first, first + 3), np.arange(first - 3, first + 3), 1),
        _case(np.arange(1, 5), np.arange(1, 5), 2**20),
        _case(np.arange(far, far + 2), rng.permutation(np.arange(far - 1300, far + 2)), 1200),
        _case(np.array([first + 3, first]), np.arange(first - 4, first + 4), 4),
    ]
    return {"cases": cases}


def _case(own: np.ndarray, places: np.ndarray, window: int, n_sinks: int = 0) -> Challenge:
    return {"own": own, "places": places, "window": window, "n_sinks": n_sinks}


def probe_windows(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Make the mask of each case, without a number of sinks; and one of a window of 0."""
    masks = [
        student.window_mask(given(case["own"]), given(case["places"]), case["window"])
        for case in challenge["cases"]
    ]
    row = given(np.arange(3))
    none = outcome(lambda: student.window_mask(row, row, 0))
    return {**_as_arrays(masks), "none": none}


def probe_sinks(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Make the mask of each case; without sinks by the signature's own number of them."""
    masks = []
    for case in challenge["cases"]:
        sinks = {"n_sinks": case["n_sinks"]} if case["n_sinks"] else {}
        places = given(case["places"])
        masks.append(student.window_mask(given(case["own"]), places, case["window"], **sinks))
    return _as_arrays(masks)


def _as_arrays(masks: list) -> Evidence:
    return {"masks": [np.asarray(m) for m in masks], "dtypes": [str(m.dtype) for m in masks]}


def windows_form(challenge: Challenge) -> Evidence:
    return {**sinks_form(challenge), "none": str}


def sinks_form(challenge: Challenge) -> Evidence:
    n = len(challenge["cases"])
    return {"masks": [np.ndarray] * n, "dtypes": [str] * n}


@check("window_mask", draw=draw_windows, probe=probe_windows, evidence=windows_form)
def mask_counts_itself(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Compare every pair of every mask."""
    for case, mask, dtype in zip(
        challenge["cases"], evidence["masks"], evidence["dtypes"], strict=True
    ):
        if wrong := _wrong_form(case, mask, dtype):
            return failed(wrong)
        for t, r in np.argwhere(mask != truth(case))[:1]:
            return failed(f"{_pair(case, t, r, mask)} {_ask_about_window(case, t, r)}")
    if evidence["none"] != "ValueError":
        return failed(f"window_mask with a window of 0: {evidence['none']}, wanted is ValueError.")
    return passed(
        "Every token sees itself and the window - 1 tokens before it, in any order of rows."
    )


def judge_sinks(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Compare the columns of sinks, and each token's view of itself and of the token behind the sinks,
    long after it. The window's edge is asked about elsewhere."""
    for case, mask, dtype in zip(
        challenge["cases"], evidence["masks"], evidence["dtypes"], strict=True
    ):
        if wrong := _wrong_form(case, mask, dtype):
            return failed(wrong)
        own, places, n_sinks = case["own"][:, None], case["places"], case["n_sinks"]
        behind = (places == n_sinks) & (own > n_sinks + case["window"] + 1)
        asked = (places < n_sinks) | (places == own) | behind
        for t, r in np.argwhere((mask != truth(case)) & asked)[:1]:
            return failed(f"{_pair(case, t, r, mask)} {_ask_about_sinks(case, t, r)}")
    return passed("Sinks are seen from every later token, and from none before them.")


def _wrong_form(case: Challenge, mask: np.ndarray, dtype: str) -> str | None:
    wanted = (len(case["own"]), len(case["places"]))
    if mask.shape != wanted:
        return (
            f"A mask for T = {wanted[0]} and R = {wanted[1]} has shape {mask.shape}, wanted is {wanted}. "
            f"Which side counts new tokens?"
        )
    if dtype != "torch.bool":
        return f"The mask is {dtype}; wanted is torch.bool, True where a token may look."
    return None


def _pair(case: Challenge, t: int, r: int, mask: np.ndarray) -> str:
    own, place = int(case["own"][t]), int(case["places"][r])
    sees = "sees" if mask[t, r] else "does not see"
    return (
        f"Window {case['window']:,}, {case['n_sinks']} sinks, rows of tokens {_list(case['places'])}: "
        f"token {own:,} {sees} token {place:,}."
    )


def _list(numbers: np.ndarray) -> str:
    shown = ", ".join(f"{n}" for n in numbers[:10])
    return f"{shown}, …" if len(numbers) > 10 else shown


def _ask_about_window(case: Challenge, t: int, r: int) -> str:
    own, place = int(case["own"][t]), int(case["places"][r])
    if place == own:
        return "That is the token itself. Does the window count it?"
    if place > own:
        return (
            "That one comes later. Are rows told apart by their place, or by their token's number?"
        )
    if own - place == case["window"]:
        return f"That is one more than the window. Which {case['window']:,} tokens are in it?"
    return "How many tokens lie between the two, and from which token on does each query count?"


def _ask_about_sinks(case: Challenge, t: int, r: int) -> str:
    own, place = int(case["own"][t]), int(case["places"][r])
    if place > own:
        return "That is a sink, and it comes later. From which tokens is a sink seen?"
    if place == own:
        return "Does a token still see itself, with sinks as without?"
    if place == case["n_sinks"]:
        return f"{case['n_sinks']} sinks: which numbers do they have?"
    return "That is a sink. When is it hidden?"


def draw_sinks(seed: int) -> Challenge:
    """Draw windows of 3 and more with sinks: first tokens all at once, later ones, rows in any order."""
    rng = np.random.default_rng(seed)
    cases = [_case(np.arange(4), np.arange(4), 5, 3)]
    for n_sinks in (1, int(rng.integers(2, 5))):
        window, T = int(rng.integers(3, 6)), int(rng.integers(2, 5))
        own = np.arange(T) + n_sinks + window + int(rng.integers(3, 9))
        held = np.concatenate([np.arange(n_sinks + 1), np.arange(own[0] - window, own[-1] + 1)])
        cases.append(_case(own, rng.permutation(held), window, n_sinks))
    everything = np.arange(n_sinks + 9)
    cases.append(_case(everything, rng.permutation(everything), 3, n_sinks))
    cases.append(_case(everything[-2:], everything, 3, 0))
    return {"cases": cases}


sinks_are_no_future = Check(
    "sinks_are_no_future",
    ("window_mask",),
    draw_sinks,
    probe_sinks,
    judge_sinks,
    evidence=sinks_form,
    truth=Recorded("sliding_window", "sinks_are_no_future"),
)


def draw_places(seed: int) -> Challenge:
    """Draw numbers of tokens over several rounds, in any order, for rings with sinks and without; the
    first by the signature's own number of sinks."""
    rng = np.random.default_rng(seed)
    window = int(rng.integers(3, 6))
    cases = [{"tokens": np.arange(3 * window), "window": window, "n_sinks": 0}]
    for n_sinks in (1, int(rng.integers(2, 5))):
        window = int(rng.integers(3, 8))
        tokens = rng.permutation(np.arange(n_sinks + 3 * window))
        cases.append({"tokens": tokens, "window": window, "n_sinks": n_sinks})
    cases.append({"tokens": np.arange(6), "window": 1, "n_sinks": 2})
    late = rng.integers(10_000, 10**9, 5)
    cases.append({"tokens": late, "window": int(rng.integers(1000, 5000)), "n_sinks": 4})
    cases.append({"tokens": np.arange(0), "window": 3, "n_sinks": 2})
    return {"cases": cases}


def probe_places(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Find the places of each case's tokens."""
    places = []
    for case in challenge["cases"]:
        n_sinks = [case["n_sinks"]] if case["n_sinks"] else []
        places.append(student.place_of(given(case["tokens"]), case["window"], *n_sinks))
    return {"places": [np.asarray(p) for p in places], "dtypes": [str(p.dtype) for p in places]}


def places_form(challenge: Challenge) -> Evidence:
    n = len(challenge["cases"])
    return {"places": [np.ndarray] * n, "dtypes": [str] * n}


@check("place_of", draw=draw_places, probe=probe_places, evidence=places_form)
def one_place_each(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Compare every place."""
    for case, got, dtype in zip(
        challenge["cases"], evidence["places"], evidence["dtypes"], strict=True
    ):
        wanted, tokens = truth(case), case["tokens"]
        sizes = f"Window {case['window']:,}, {case['n_sinks']} sinks"
        if got.shape != wanted.shape or dtype != "torch.int64":
            return failed(
                f"{sizes}: {len(tokens)} tokens gave places of shape {got.shape}, {dtype}; wanted are "
                f"({len(tokens)},) torch.int64. One place for each token?"
            )
        for i in np.argsort(tokens)[(got != wanted)[np.argsort(tokens)]][:1]:
            token, place = int(tokens[i]), int(got[i])
            return failed(
                f"{sizes}: token {token:,} lies in place {place:,}. {_ask_place(case, i, got)}"
            )
    return passed("Sinks keep their places, and the ring behind them goes round.")


def _ask_place(case: Challenge, i: int, got: np.ndarray) -> str:
    token, place = int(case["tokens"][i]), int(got[i])
    room = case["n_sinks"] + case["window"]
    if not 0 <= place < room:
        return (
            f"There are {room:,} places, from 0 on. Which number is the remainder of a division by?"
        )
    if token >= case["n_sinks"] > place:
        return "A sink lies there. Where does the ring begin?"
    if token < case["n_sinks"]:
        return "It is a sink. Which places do sinks have?"
    return (
        f"The ring has the {case['window']:,} places from {case['n_sinks']} on, and token "
        f"{case['n_sinks']} lies in the first. How many tokens came into the ring before this one?"
    )
