"""The sliders of lesson 13: widths of latent and rotated key, what they take, and what is recalled."""

from __future__ import annotations

from collections.abc import Callable

from ipywidgets import IntSlider

from course import weights
from course.plots.latent_attention import LATENTS, SHARED, draw_recall, trained_latents
from course.plots.style import Picture
from course.widgets.playground import choice, playground

LAYERS, TOKENS = 4, 1000
"""Layers of the story model, and tokens whose bytes are told."""


def play_with_widths(latent_cache_bytes: Callable[..., int]) -> None:
    """Show sliders of rank and R; bytes by the lesson's function, among the recorded recalls."""
    recorded = {name: weights.metrics(name) for name in (*SHARED, *trained_latents())}

    def draw(rank: int, d_rope: int) -> Picture:
        picture = draw_recall(recorded, (rank, d_rope))
        n_bytes = latent_cache_bytes(LAYERS, rank, d_rope, TOKENS)
        whole = 2 * LAYERS * SHARED["story"] * TOKENS
        known = [name for name, sizes in LATENTS.items() if sizes == (rank, d_rope)]
        recall = (
            f"The sibling with these widths recalls {recorded[known[0]]['recall_place_far']:.0%} of "
            f"the places."
            if known
            else "No sibling was trained with these widths."
        )
        words = (
            f"Latent {rank} + rotated key {d_rope}: {n_bytes:,} bytes for {TOKENS:,} tokens, "
            f"{whole / n_bytes:.3g} times fewer than the story model's {whole:,}. {recall}"
        )
        return Picture(picture.figure, f"{words} {picture.alt}", words)

    playground(
        draw,
        rank=IntSlider(
            value=16, min=4, max=96, step=4, description="rank", continuous_update=False
        ),
        d_rope=choice((2, 4, 8, 16, 32), "R", 16),
    )
