"""The widget of lesson 00: a matrix product and its costs."""

from __future__ import annotations

from collections.abc import Callable

from ipywidgets import IntSlider

from course.plots.start import draw_product
from course.plots.style import Picture
from course.widgets.playground import playground


def play_with_a_product(
    matmul_flops: Callable[..., int], matmul_bytes: Callable[..., int], bytes_per_element: int = 2
) -> None:
    """Show a product with sliders for its sizes; the lesson's functions say what it costs."""

    def draw(m: int, k: int, n: int) -> Picture:
        picture = draw_product(m, k, n)
        flops, moved = matmul_flops(m, k, n), matmul_bytes(m, k, n, bytes_per_element)
        picture.figure.axes[0].set_title(
            f"{flops:,} FLOPs, {moved:,} bytes ({bytes_per_element} a number): "
            f"{flops / moved:.2f} FLOP per byte"
        )
        return picture

    playground(
        draw,
        m=IntSlider(1, 1, 8, description="m: tokens"),
        k=IntSlider(6, 1, 8, description="k: width in"),
        n=IntSlider(6, 1, 8, description="n: width out"),
    )
