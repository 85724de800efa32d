"""Show controls above a picture that is drawn anew at each move, as every widget of the course does."""

from collections.abc import Callable

from IPython.display import display
from ipywidgets import HBox, ValueWidget

from course.plots.style import Picture, show_in_place


def playground(draw: Callable[..., Picture], **controls: ValueWidget) -> None:
    """Show `controls` above the picture that `draw(**their_values)` returns; redraw at each move.

    The picture is an ordinary output and not part of the widget, so where no kernel answers (on the
    web, on paper) the first one stays, and only the controls are lost.
    """

    def values() -> dict[str, object]:
        return {name: control.value for name, control in controls.items()}

    row = HBox(list(controls.values()))
    row.layout.flex_flow = "row wrap"
    names = ", ".join(control.description for control in controls.values())
    view = {"version_major": 2, "version_minor": 0, "model_id": row.model_id}
    display(
        {
            "application/vnd.jupyter.widget-view+json": view,
            "text/plain": f"Controls: {names}. (They move where the notebook runs.)",
        },
        raw=True,
    )
    handles = show_in_place(draw(**values()))
    for control in controls.values():
        control.observe(lambda _: show_in_place(draw(**values()), handles), names="value")
