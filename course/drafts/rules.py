"""Check drafts and their probabilities, and raise a ValueError that names what is wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from course.model import MiniGPT
from course.model.bounds import check_between

CLOSE = 1e-3
"""By how much the sum of probabilities may differ from 1: in float16 it does by rounding."""


def check_draft(draft: Tensor, rows: Tensor) -> None:
    """Check that a draft is (K,) int64 and fits the rows (K + 1, V) of a pass.

    Raises:
        ValueError: it does not, as in every function here; the message names what is wrong.
    """
    if draft.dim() != 1 or draft.dtype != torch.int64:
        raise ValueError(f"a draft is (K,) int64, got {draft.dtype} of shape {tuple(draft.shape)}")
    K = len(draft)
    if rows.dim() != 2 or len(rows) != K + 1:
        raise ValueError(
            f"{K} drafted tokens need {K + 1} rows of V numbers, got shape {tuple(rows.shape)}"
        )
    V = rows.shape[1]
    if K and not 0 <= int(draft.min()) <= int(draft.max()) < V:
        raise ValueError(f"drafted tokens must lie in 0 … {V - 1}, got {draft.tolist()}")


def check_odds(draft: Tensor, q: Tensor, p: Tensor) -> None:
    """Check a draft (K,), the probabilities q (K, V) that it was drawn from, and the probabilities p
    (K + 1, V) of the model that verifies."""
    check_draft(draft, p)
    if tuple(q.shape) != (len(draft), p.shape[1]):
        raise ValueError(
            f"q must be (K, V) = {(len(draft), p.shape[1])}, got shape {tuple(q.shape)}"
        )
    for name, rows in (("q", q), ("p", p)):
        sums = rows.sum(dim=-1)
        if len(rows) and not (bool((rows >= 0).all()) and bool(((sums - 1).abs() < CLOSE).all())):
            worst = int((sums - 1).abs().nan_to_num(nan=float("inf")).argmax())
            raise ValueError(
                f"each row of {name} must be probabilities that add up to 1; row {worst} adds up to "
                f"{float(sums[worst]):.4g}"
            )


def check_expected(acceptance: float, n_draft: int) -> None:
    """Check a share of accepted tokens, and a length of drafts."""
    if not 0 <= acceptance <= 1:
        raise ValueError(f"acceptance must lie in 0 … 1, got {acceptance}")
    check_between("n_draft", n_draft, 0, 2**31)


def check_lookup(text: Tensor, n_draft: int, longest: int) -> None:
    """Check a text (S,) int64 of at least one token, and two sizes."""
    if text.dim() != 1 or len(text) == 0:
        raise ValueError(f"text must be (S,) with at least one token, got {tuple(text.shape)}")
    check_between("n_draft", n_draft, 0, 2**31)
    check_between("longest", longest, 1, 2**31)


def check_request(model: MiniGPT, prompt: Tensor, n_new: int, n_draft: int) -> None:
    """Check a prompt (P,) and two sizes before anything is fed."""
    if prompt.dim() != 1:
        raise ValueError(f"prompt must be (P,), got shape {tuple(prompt.shape)}")
    model.check_tokens(prompt.unsqueeze(0))
    check_between("n_new", n_new, 0, model.config.max_seq_len - len(prompt))
    check_between("n_draft", n_draft, 0, 2**31)
