"""The widgets of lesson 01: what a changed word moves, and words drawn by chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ipywidgets import FloatSlider, IntSlider
from torch import Tensor

from course.model import MiniGPT
from course.plots.mini_gpt import draw_causality, draw_next_words, words_of
from course.plots.style import Picture
from course.widgets.playground import choice, playground
from course.world.tokenizer import encode

NEW_WORDS = ("dog", "bird", "moon", "house", "Mia", "red", "the", ".")


def play_with_causality(model: MiniGPT, text: str, j: int = 2) -> None:
    """Show which hidden states move, with controls for the changed token and its new word."""
    last = len(words_of(encode(text))) - 1

    def draw(j: int, word: str) -> Picture:
        return draw_causality(model, text, j, word)

    playground(
        draw,
        j=IntSlider(j, 0, last, description="token j"),
        word=choice(NEW_WORDS, "becomes"),
    )


def play_with_sampling(
    model: MiniGPT, sample_next: Callable[..., Tensor], prompts: Sequence[str]
) -> None:
    """Show which words the lesson's function draws, with sliders for temperature and top_k (0: none)."""
    logits = {prompt: model(encode(prompt))[:, -1] for prompt in prompts}  # (1, V) each

    def draw(prompt: str, temperature: float, top_k: int) -> Picture:
        return draw_next_words(logits[prompt], sample_next, temperature, top_k or None)

    playground(
        draw,
        prompt=choice(prompts, "after"),
        temperature=FloatSlider(
            1.0, min=0.1, max=4.0, step=0.1, description="temperature", continuous_update=False
        ),
        top_k=IntSlider(0, 0, 10, description="top_k", continuous_update=False),
    )
