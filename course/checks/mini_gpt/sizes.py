"""The sizes that lesson 01's challenges are drawn for."""

from __future__ import annotations

import numpy as np


def draw_sizes(rng: np.random.Generator) -> dict[str, int]:
    """Draw B, H, G, T, D with 1 < G < H and T ≠ D."""
    H, G = [(4, 2), (6, 2), (6, 3), (8, 2), (8, 4)][rng.integers(5)]
    T, D = (int(n) for n in rng.choice([5, 6, 7, 8, 10], size=2, replace=False))
    return {"B": 3, "H": H, "G": G, "T": T, "D": D}
