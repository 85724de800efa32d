"""The widget of lesson 09: where keys are cut, and in which order the parts are merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from ipywidgets import Checkbox, IntRangeSlider
from torch import Tensor

from course.given.parts import Part
from course.plots.split_read import draw_cuts
from course.plots.style import Picture
from course.widgets.playground import choice, playground

S, D = 48, 16
ORDERS = {
    "first to last": (0, 1, 2),
    "last to first": (2, 1, 0),
    "the middle first": (1, 2, 0),
}


def cut_and_merge(
    attend_part: Callable[..., Part],
    merge: Callable[[Part, Part], Part],
    finish: Callable[[Part], Tensor],
) -> None:
    """Show the scores of a query, with controls for two cuts, the order of merging, and how far apart
    scores are; and a switch that leaves the maximum out.

    Args:
        attend_part, merge, finish: as built in the lesson.
    """
    q, (k, v) = draw_query()

    def draw(cuts: tuple[int, int], order: str, spread: int, maximum: bool) -> Picture:
        ends = sorted({*cuts, S})
        bounds = list(zip([0, *ends[:-1]], ends, strict=True))
        wide = q * spread
        parts = [attend_part(wide, k[:, :, a:b], v[:, :, a:b]) for a, b in bounds]
        whole = merge_in(order, parts, merge)
        dense = (wide.double() @ k.double().mT / D**0.5).softmax(dim=-1) @ v.double()
        error = (finish(whole).double() - dense).abs().max().item()
        shares = [
            (part.total * (part.top - whole.top).exp() / whole.total).item() for part in parts
        ]
        scores = (wide @ k.mT / D**0.5)[0, 0, 0].numpy()
        without = None if maximum else error_without_maximum(scores, v, dense)
        return draw_cuts(scores, ends, shares, order, error, without)

    playground(
        draw,
        cuts=IntRangeSlider(value=(12, 30), min=1, max=S - 1, description="cuts"),
        order=choice(ORDERS, "merged"),
        spread=choice([1, 5, 20, 100], "scores ×", 1),
        maximum=Checkbox(value=True, description="with the maximum"),
    )


def draw_query() -> tuple[Tensor, Tensor]:
    """Draw one query (1, 1, 1, D), and keys and values (2, 1, 1, S, D)."""
    generator = torch.Generator().manual_seed(9)
    q = torch.randn(1, 1, 1, D, generator=generator)
    return 2 * q, torch.randn(2, 1, 1, S, D, generator=generator)


def merge_in(order: str, parts: Sequence[Part], merge: Callable[[Part, Part], Part]) -> Part:
    """Merge up to three parts in one of the `ORDERS`."""
    chosen = [parts[number] for number in ORDERS[order] if number < len(parts)]
    whole = chosen[0]
    for part in chosen[1:]:
        whole = merge(whole, part)
    return whole


def error_without_maximum(scores: np.ndarray, v: Tensor, dense: Tensor) -> float:
    """Compare plain float32 sums of exp(score) with attention; NaN where they overflow."""
    weights = torch.from_numpy(scores).exp()  # (S,)
    out = weights @ v[0, 0] / weights.sum()
    return (out.double() - dense[0, 0, 0]).abs().max().item()
