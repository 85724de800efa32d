"""Show controls above a picture that is drawn anew at each move, as every widget of the course does."""

from collections.abc import Callable, Iterable

from IPython.display import display
from ipywidgets import HBox, Label, SelectionSlider, ValueWidget, Widget, dlink

from course.plots.style import Picture, show_in_place


def playground(draw: Callable[..., Picture], **controls: ValueWidget) -> None:
    """Show `controls` above the picture that `draw(**their_values)` returns; redraw at each move.

    The picture is an ordinary output and not part of the widget, so where no kernel answers (on the
    web, on paper) the first one stays, and only the controls are lost.
    """

    def values() -> dict[str, object]:
        return {name: control.value for name, control in controls.items()}

    row = HBox([_in_full(control) for control in controls.values()])
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


def choice(options: Iterable[object], description: str, value: object = None) -> SelectionSlider:
    """Return a slider by which one of the options is chosen, the first if no `value` is given.

    JupyterLab takes the arrow keys of a Dropdown for its own; a slider keeps them.
    """
    options = list(options)
    return SelectionSlider(
        options=options,
        value=options[0] if value is None else value,
        description=description,
        continuous_update=False,
        readout=False,
    )


def _in_full(control: ValueWidget) -> Widget:
    """Put what is chosen behind a `choice`: a slider's own readout cuts long words off."""
    if not isinstance(control, SelectionSlider) or control.readout:
        return control
    chosen = Label()
    dlink((control, "value"), (chosen, "value"), str)
    return HBox([control, chosen])
