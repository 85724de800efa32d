"""The widget of lesson 16: what a pass reads of a mixture of experts, and what guesses gain."""

from __future__ import annotations

from collections.abc import Callable

from course.measure.datasheets import DATASHEETS
from course.measure.limits import Machine
from course.minigpt.speculative import expected_tokens
from course.plots.mixture_of_experts import draw_pass
from course.plots.style import Picture
from course.published.experts import EXPERTS, MoESize, as_mixture
from course.published.models import PUBLISHED
from course.widgets.playground import choice, playground

DENSE = as_mixture(PUBLISHED["Llama-2-7B"].config)
MODELS = {**EXPERTS, "dense, 7B": DENSE}
CHATS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def choose_pass(
    expected_experts: Callable[[int, int, int], float],
    step_bytes: Callable[..., float],
    compute_bound_from: Callable[[MoESize, Machine], int],
) -> None:
    """Show a pass on the roof of a GPU, with controls for the model, the chats and the guesses.

    Args:
        expected_experts, step_bytes, compute_bound_from: as built in the lesson.
    """

    def draw(model: str, chats: int, guesses: int, right: int) -> Picture:
        size, machine = MODELS[model], DATASHEETS["H200"]

        def read(size: MoESize, n: int) -> float:
            return expected_experts(size.n_experts, size.k, n)

        def bill(size: MoESize, n: int) -> tuple[float, float]:
            return n * 2 * step_bytes(size, size.k, 1), step_bytes(size, read(size, n))

        def seconds(size: MoESize, n: int) -> float:
            flops, n_bytes = bill(size, n)
            return max(flops / machine.flops_per_second, n_bytes / machine.bytes_per_second)

        n = chats * (guesses + 1)
        points = {}
        for name, one, fed in (
            (f"{model}, without guesses", size, chats),
            (f"{model}, with guesses", size, n),
            ("dense, 7B, with guesses", DENSE, n),
        ):
            flops, n_bytes = bill(one, fed)
            points[name] = flops / n_bytes, flops / seconds(one, fed)
        written = expected_tokens(right / 100, guesses)
        gain = written * seconds(size, chats) / seconds(size, n)
        title = (
            f"chats: {chats:,}, guesses for each: {guesses}; {gain:.2f} times as fast as without"
        )
        caption = (
            f"{model} on an H200 by its datasheet. Tokens of a pass: {n:,}. It reads "
            f"{read(size, n):.1f} of {size.n_experts} experts in each layer, "
            f"{bill(size, n)[1] / 1e9:.1f} GB; without guesses {read(size, chats):.1f}, "
            f"{bill(size, chats)[1] / 1e9:.1f} GB. Compute-bound from "
            f"{compute_bound_from(size, machine):,} tokens on. {written:.2f} tokens are written for "
            f"each chat and pass."
        )
        return draw_pass(machine, points, title, caption)

    playground(
        draw,
        model=choice(MODELS, "model", "Qwen3-30B-A3B"),
        chats=choice(CHATS, "chats", 1),
        guesses=choice([0, 1, 2, 4, 8], "guesses", 4),
        right=choice([40, 60, 76, 90], "right, %", 76),
    )
