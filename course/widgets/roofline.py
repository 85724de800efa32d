"""The sliders of lesson 05: decode and prefill on the roofs of some GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from course.measure.costs import Cost, Parts
from course.measure.datasheets import DATASHEETS, MEMORY_BYTES
from course.measure.limits import Machine
from course.plots.roofline import draw_operating_points
from course.plots.style import Picture
from course.plots.units import as_time, in_digits
from course.published.models import PUBLISHED
from course.widgets.playground import choice, playground

PROMPT = 1024
WIDTHS = {"32 bits": 4, "16 bits": 2, "8 bits": 1}
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 192, 208, 224, 232, 240, 256, 384, 512, 1024)
CONTEXTS = (0, 16, 64, 128, 256, 512, 1024, 4096, 16_384, 65_536, 131_072)
MODELS = {
    "Llama-2-7B": PUBLISHED["Llama-2-7B"].config,
    "Llama-2-7B, 8 KV heads": replace(PUBLISHED["Llama-2-7B"].config, n_kv_heads=8),
    "Qwen3-8B": PUBLISHED["Qwen3-8B"].config,
    "Llama-3.2-1B": PUBLISHED["Llama-3.2-1B"].config,
}


def play_with_the_roof(
    phase_cost: Callable[..., Cost],
    attention_flops: Callable[..., int],
    attainable: Callable[[float, Machine], float],
    bound_by: Callable[[Cost, Machine], str],
) -> None:
    """Show sliders for batch and context, and choices of GPU, model and width of the numbers.

    What is drawn is computed by the lesson's four functions.
    """

    def bill(model: str, stored: str, n_new: int, n_past: int, batch: int) -> Parts:
        sizes = (MODELS[model], n_new, n_past, batch)
        return phase_cost(*sizes, WIDTHS[stored]).parts(attention_flops(*sizes))

    def draw(gpu: str, model: str, stored: str, batch: int, context: int) -> Picture:
        machine = DATASHEETS[gpu]
        decode = bill(model, stored, 1, context, batch)
        prefill = bill(model, stored, PROMPT, 0, 1)
        weights = decode.whole.weight_bytes
        a_row = bill(model, stored, 1, context, 1).whole.kv_read_bytes
        most = max(0, int((MEMORY_BYTES[gpu] - weights) // a_row))
        steps = [bill(model, stored, 1, context, B).seconds(attainable, machine) for B in BATCHES]
        seconds = decode.seconds(attainable, machine)
        end = f"{as_time(seconds)} a step at best"
        if batch > most:
            end = f"it does not fit: {in_digits(MEMORY_BYTES[gpu] / 1e9)} GB"
        title = (
            f"{model} on {gpu}, {batch} × {context:,} tokens: matrices wait for "
            f"{bound_by(decode.matrices, machine)},\nattention for "
            f"{bound_by(decode.attention, machine)}; {end}"
        )
        cache = batch * a_row
        caption = (
            f"The roof is {gpu}'s datasheet, for arithmetic in 16 bits; numbers are stored in "
            f"{stored}. Weights {in_digits(weights / 1e9)} GB, cache {in_digits(cache / 1e9)} GB, memory "
            f"{in_digits(MEMORY_BYTES[gpu] / 1e9)} GB: at most {most:,} rows fit (grey: what does not). "
            f"Seconds of matrices and attention are added."
        )
        bills = {"decode": decode, "prefill": prefill}
        users = list(zip(BATCHES, steps, strict=True))
        return draw_operating_points(attainable, machine, bills, users, batch, most, title, caption)

    playground(
        draw,
        gpu=choice(DATASHEETS, "GPU", "H200"),
        model=choice(MODELS, "model", "Llama-2-7B"),
        stored=choice(WIDTHS, "stored in", "16 bits"),
        batch=choice(BATCHES, "batch", 16),
        context=choice(CONTEXTS, "context", 1024),
    )
