"""Lesson 02: Decode, the slow way.

Built from solutions/02-naive-decode/naive_decode.py by `make build`: change it there.
"""

import torch
from torch import Tensor

from course.minigpt.mini_gpt import greedy_next
from course.model import MiniGPT
from course.model.bounds import check_between


def generate_naive(model: MiniGPT, prompt: Tensor, n_new: int) -> Tensor:
    """Continue each row of the prompt by its likeliest tokens, reading everything at every step.

    Args:
        prompt: (B, P) int64; it is left as it is.
        n_new: tokens to write, 0 or more; `<end>`, a story's last token, does not stop it.

    Returns:
        A tensor of its own, (B, P + n_new) int64: the prompt, then the new tokens.

    Raises:
        ValueError: before any forward pass: the prompt is empty, n_new is not a whole number ≥ 0, or
            P + n_new is more than model.config.max_seq_len. The message names n_new; for the last,
            P + n_new or the limit will do as well.
    """
    model.check_tokens(prompt)  # a prompt that no forward pass can take, an empty one for example
    check_between("n_new", n_new, 0, model.config.max_seq_len - prompt.shape[1])
    tokens = prompt.clone()
    for _ in range(n_new):
        new = greedy_next(model(tokens)[:, -1])  # (B,)
        tokens = torch.cat([tokens, new.unsqueeze(1)], dim=1)  # (B, n), (B, 1) -> (B, n + 1)
    return tokens


def kv_rows_naive(p: int, g: int) -> int:
    """Rows of keys that one layer computes to write g tokens after p, reading everything each time.

    p is at least 1, g at least 0, and both may be thousands.
    """
    return g * p + g * (g - 1) // 2


def kv_rows_needed(p: int, g: int) -> int:
    """Rows of keys that one layer must compute at least once to write g tokens after p.

    p is at least 1, g at least 0, and both may be thousands.
    """
    return p + g - 1 if g > 0 else 0


def attention_visits(p: int, g: int) -> int:
    """Positions that the last token fed looks at, in each of g steps after p tokens, all added up.

    p is at least 1, g at least 0, and both may be thousands.
    """
    return g * p + g * (g - 1) // 2
