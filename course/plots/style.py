"""Colours, sizes, alt text and captions of every picture of the course."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import matplotlib.pyplot as plt
from IPython.display import DisplayHandle, Markdown, display
from matplotlib.figure import Figure

# Okabe & Ito 2008: told apart by readers with any kind of colour vision, and in grey.
BLUE, ORANGE, GREEN, SKY = "#0072B2", "#E69F00", "#009E73", "#56B4E9"
VERMILION, PURPLE, YELLOW, GREY = "#D55E00", "#CC79A7", "#F0E442", "#7F7F7F"

ON_A_LINE = {"facecolor": "white", "linewidth": 0, "pad": 0.5}
"""The box of a label that a line would strike through."""

_RC = {
    "figure.dpi": 110,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.prop_cycle": plt.cycler(color=[BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY]),
    "legend.frameon": False,
    "image.cmap": "viridis",
}


class Picture(NamedTuple):
    """A figure with the words that belong to it.

    Attributes:
        figure: as matplotlib made it.
        alt: what it shows, for those who cannot see it.
        caption: what to notice. Shown below the figure, since some exports drop alt text.
    """

    figure: Figure
    alt: str
    caption: str


@contextmanager
def course_style() -> Iterator[None]:
    """Draw with the course's style inside the block; the reader's settings stay as they were."""
    with plt.rc_context(_RC):
        yield


def show(picture: Picture) -> None:
    """Show a picture in a notebook, with its caption below."""
    show_in_place(picture)


def show_in_place(
    picture: Picture, handles: list[DisplayHandle] | None = None
) -> list[DisplayHandle]:
    """Show a picture, or put it in the place of one shown before.

    Args:
        picture: its figure is closed, so that the cell's end does not draw it a second time.
        handles: what an earlier call returned; that picture is replaced by this one.

    Returns:
        The handles of figure and caption.
    """
    metadata = {"image/png": {"alt": picture.alt}}
    # JupyterLab and Colab drop the alt text of an output, so it can be read below the caption, too.
    words = f"<details><summary>The picture in words</summary>\n\n{picture.alt}\n\n</details>"
    caption = Markdown(f"*{picture.caption}*\n\n{words}")
    if handles is None:
        handles = [
            display(picture.figure, metadata=metadata, display_id=True),
            display(caption, display_id=True),
        ]
    else:
        handles[0].update(picture.figure, metadata=metadata)
        handles[1].update(caption)
    plt.close(picture.figure)
    return handles
