"""What the checks of lesson 14 share: how cases are drawn and told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course.checks.check import Challenge

Truth = Callable[[Challenge], Any]
TOLERANCE = 1e-4
"""For float32; of a number above 1, a part of it. Right answers stay within a tenth of it, see
tests/test_margins.py."""


def heads_text(H: int, G: int) -> str:
    """Write "4 query heads on 2 KV heads"."""
    return f"{H} query head{'s' * (H > 1)} on {G} KV head{'s' * (G > 1)}"


def draw_grouped(
    rng: np.random.Generator, B: int, H: int, G: int, T: int, S: int, D: int = 6
) -> Challenge:
    """Draw queries (B, H, T, D), keys and values (B, G, S, D), sharp enough to tell rows apart."""
    q = rng.normal(0, 2, (B, H, T, D)).astype(np.float32)
    k, v = rng.normal(size=(2, B, G, S, D)).astype(np.float32)
    return {"q": q, "k": k, "v": v, "dtype": "float32"}
