"""Check the mask of new tokens over old and new ones."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.default_device import beside_default


def draw_mask_sizes(seed: int) -> Challenge:
    """Draw pairs (T, S): a whole prompt, a single token, chunks, and the same with a long past."""
    rng = np.random.default_rng(seed)
    drawn = [(int(t), int(t + rng.integers(1, 9))) for t in rng.integers(2, 6, 4)]
    long = [(1, int(rng.integers(1100, 1300))), (3, int(rng.integers(4100, 4300)))]
    chunk = int(rng.integers(130, 150))
    return {"sizes": [(1, 1), (4, 4), (1, 5), *drawn, *long, (chunk, chunk + int(rng.integers(9)))]}


def probe_mask(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Make a mask of each size, and once more of the last one, for each call owns its result."""
    masks = [student.causal_mask(T, S) for T, S in challenge["sizes"]]
    student.causal_mask(*challenge["sizes"][-1])
    here = torch.device("cpu")
    elsewhere = beside_default(lambda: student.causal_mask(2, 3, device=here))
    dtypes = [str(m.dtype) for m in masks]
    return {"masks": [np.asarray(m) for m in masks], "dtypes": dtypes, "elsewhere": elsewhere}


def mask_form(challenge: Challenge) -> Evidence:
    n = len(challenge["sizes"])
    return {"masks": [np.ndarray] * n, "dtypes": [str] * n, "elsewhere": str}


@check("causal_mask", draw=draw_mask_sizes, probe=probe_mask, evidence=mask_form)
def mask_is_rectangular(challenge: Challenge, evidence: Evidence) -> Verdict:
    masks, dtypes = evidence["masks"], evidence["dtypes"]
    for (T, S), mask, dtype in zip(challenge["sizes"], masks, dtypes, strict=True):
        case = f"causal_mask({T}, {S})"
        if mask.shape != (T, S):
            question = "Which side counts new tokens?"
            if mask.shape != (S, T) and max(T, S) > 100:
                question = "Short texts are right: which number in your code is a size of its own?"
            return failed(f"{case} has shape {mask.shape}, wanted is ({T}, {S}). {question}")
        if dtype != "torch.bool":
            return failed(f"{case} is {dtype}; wanted is torch.bool, True where a token may look.")
        for t in range(T):
            token = S - T + t
            if wrong := _wrong_row(mask[t], token, all(map(_hides_the_past, masks))):
                return failed(
                    f"{case}: new token {t} is token {token} of the text, and its row "
                    f"{_row_text(mask[t], token)} (x: may look) {wrong}"
                )
    if evidence["elsewhere"]:
        return failed(
            f"causal_mask(2, 3, device=…), where new tensors lie on another device unless they are told: "
            f"{evidence['elsewhere']}. Which of your tensors are not told where to lie?"
        )
    return passed("The mask is T by S, and its triangle sits at the right edge.")


def _wrong_row(row: np.ndarray, token: int, upside_down: bool) -> str:
    """Say what is wrong with the row of a token, "" for nothing."""
    if not row[token] and upside_down:
        return "leaves out itself. Does True mean look, or hide?"
    if not row[token]:
        return "leaves out itself. Where does the last new token stand?"
    if row[token + 1 :].any():
        return "shows it a later token. May it look ahead?"
    return "" if row[:token].all() else "hides an earlier token. What is the cache for?"


def _hides_the_past(mask: np.ndarray) -> bool:
    """Tell whether the last new token sees nothing, and the first of several sees the last one."""
    return mask.ndim == 2 and not mask[-1].any() and (len(mask) == 1 or bool(mask[0, -1]))


def _row_text(row: np.ndarray, token: int) -> str:
    """Draw a row of a mask, or of a long one the part around the token itself."""
    text = "".join("x" if seen else "." for seen in row)
    if len(text) <= 24:
        return text
    start, end = max(0, token - 11), token + 12
    return f"{'…' * (start > 0)}{text[start:end]}{'…' * (end < len(text))}"
