"""The sliders of lesson 05: decode and prefill on the roofs of some GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ipywidgets import Dropdown, IntSlider, SelectionSlider

from course.measure.costs import Cost
from course.measure.limits import DATASHEETS, Machine
from course.plots.roofline import as_time, draw_operating_points, in_digits
from course.plots.style import Picture
from course.published.sizes import SIZES
from course.widgets.playground import playground

PROMPT = 1024
WIDTHS = {"32 bits": 4, "16 bits": 2, "8 bits": 1}
CONTEXTS = (0, 16, 64, 128, 256, 512, 1024, 4096, 16_384, 65_536, 131_072)
MODELS = {
    "1.3B": SIZES["1.3B"].config,
    "6.7B": SIZES["6.7B"].config,
    "6.7B with 8 KV heads": replace(SIZES["6.7B"].config, n_kv_heads=8),
}


def play_with_the_roof(
    phase_cost: Callable[..., Cost],
    attainable: Callable[[float, Machine], float],
    bound_by: Callable[[Cost, Machine], str],
) -> None:
    """Show sliders for batch and context, and choices of GPU, model and width of the numbers.

    What is drawn is computed by the lesson's three functions.
    """

    def draw(gpu: str, model: str, stored: str, batch: int, context: int) -> Picture:
        machine, config, width = DATASHEETS[gpu], MODELS[model], WIDTHS[stored]
        decode = phase_cost(config, 1, context, batch, width)
        prefill = phase_cost(config, PROMPT, 0, 1, width)
        seconds = decode.flops / attainable(decode.intensity, machine)
        title = (
            f"{model} on {gpu}, {batch} × {context:,} tokens: decode waits for "
            f"{bound_by(decode, machine)},\n{as_time(seconds)} a step at best, "
            f"{in_digits(1 / seconds)} tokens/s for each user, {in_digits(batch / seconds)} for all"
        )
        cached = (context + 1) * decode.kv_written_bytes
        weights, cache = (in_digits(n / 1e9) for n in (decode.weight_bytes, cached))
        caption = (
            f"The roof is {gpu}'s datasheet, for arithmetic in 16 bits; numbers are stored in "
            f"{stored}. Weights {weights} GB, cache {cache} GB: whether they fit is another question."
        )
        bills = {"decode": decode, f"prefill of {PROMPT:,} tokens": prefill}
        return draw_operating_points(attainable, machine, bills, title, caption)

    playground(
        draw,
        gpu=Dropdown(options=list(DATASHEETS), value="H200", description="GPU"),
        model=Dropdown(options=list(MODELS), value="6.7B", description="model"),
        stored=Dropdown(options=list(WIDTHS), value="16 bits", description="stored in"),
        batch=IntSlider(1, 1, 1024, description="batch", continuous_update=False),
        context=SelectionSlider(
            options=CONTEXTS, value=1024, description="context", continuous_update=False
        ),
    )
