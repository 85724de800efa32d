"""The pictures of lesson 05: a roof, what lies under it, and a queue with a clock beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from course.fast.steps import Operations
from course.measure.costs import Cost, Parts
from course.measure.limits import Machine
from course.measure.recorded import Recording
from course.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Picture,
    course_style,
)

Attainable = Callable[[float, Machine], float]
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
PARTS = {
    "weight_bytes": ("weights", BLUE, None),
    "kv_read_bytes": ("cache, read", ORANGE, "//"),
    "kv_written_bytes": ("cache, written", VERMILION, None),
    "activation_bytes": ("activations", GREY, ".."),
}


def with_prefix(value: float, unit: str) -> str:
    """Write "91.2 GFLOP/s", with three digits that count."""
    for scale, prefix in PREFIXES:
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def in_digits(value: float) -> str:
    """Write "0.5", "25.3" or "1,063", never powers of ten."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def as_time(seconds: float) -> str:
    """Write "14.2 ms"."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _draw_axes(axes: Axes, intensities: Sequence[float], rates: Sequence[float]) -> None:
    """Make the axes logarithmic, with room around what is to be drawn."""
    axes.set(xscale="log", yscale="log", xlabel="arithmetic intensity (FLOP/byte)")
    axes.set_xlim(min(intensities) / 3, max(intensities) * 5)
    axes.set_ylim(min(rates) / 3, max(rates) * 4)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: with_prefix(y, "FLOP/s")))
    axes.minorticks_off()


def _draw_roof(axes: Axes, machine: Machine, color: str, name: str) -> None:
    """Draw the slope of the memory and the flat roof of the arithmetic unit."""
    left, right = axes.get_xlim()
    ridge, peak = machine.balance, machine.flops_per_second
    left, right = min(left, ridge / 10), max(right, ridge * 3)
    axes.plot(
        [left, ridge, right], [left * machine.bytes_per_second, peak, peak], color=color, label=name
    )
    axes.set_xlim(left, right)
    axes.set_ylim(axes.get_ylim()[0], max(axes.get_ylim()[1], peak * 3))


# --- the picture at the top ----------------------------------------------------------------------


def draw_matrix(
    machine: Machine,
    matmul_flops: Callable[..., int],
    matmul_bytes: Callable[..., int],
    k: int,
    n: int,
    tokens: Sequence[int],
) -> Picture:
    """Draw a 16-bit matrix (k, n) under a machine's roof, for several numbers of tokens at once."""
    flops = {m: matmul_flops(m, k, n) for m in tokens}
    moved = {m: matmul_bytes(m, k, n, 2) for m in tokens}
    intensity = {m: flops[m] / moved[m] for m in tokens}
    rates = {
        m: flops[m] / max(flops[m] / machine.flops_per_second, moved[m] / machine.bytes_per_second)
        for m in tokens
    }
    peak = machine.flops_per_second
    with course_style():
        figure, axes = plt.subplots(figsize=(7, 3.6))
        _draw_axes(axes, list(intensity.values()), list(rates.values()))
        _draw_roof(axes, machine, BLUE, machine.name)
        _name_both_sides(axes, machine)
        for m in tokens:
            axes.plot(intensity[m], rates[m], "o", color=ORANGE, markersize=8)
            axes.annotate(
                f"{m:,} token{'s' if m > 1 else ''}: {rates[m] / peak:.0%} busy",
                (intensity[m], rates[m]),
                xytext=(9, -14),
                textcoords="offset points",
            )
    dots = "; ".join(
        f"{m} tokens at {intensity[m]:.3g} FLOP/byte, {rates[m] / peak:.0%} of the peak"
        for m in tokens
    )
    alt = (
        f"A roofline on logarithmic axes: a slope that rises to the ridge at {machine.balance:.3g} "
        f"FLOP/byte, and a flat roof from there on. Dots on it: {dots}."
    )
    caption = (
        f"A {k:,} × {n:,} matrix in 16 bits on {machine.name}. More tokens at once move the dot to "
        f"the right, along the roof: each byte that arrives is used for more of them."
    )
    return Picture(figure, alt, caption)


def _name_both_sides(axes: Axes, machine: Machine) -> None:
    """Mark the ridge, and write on each side of it what sets the pace."""
    ridge, peak = machine.balance, machine.flops_per_second
    axes.set_xlim(axes.get_xlim()[0], ridge * 60)
    axes.plot([ridge, ridge * 60], [peak, peak], color=BLUE)
    axes.axvline(ridge, color=GREY, linestyle=":", linewidth=1)
    bottom = axes.get_ylim()[0]
    axes.text(ridge * 1.08, bottom * 1.3, f"ridge: {ridge:.3g} FLOP/byte", color=GREY)
    axes.text(ridge * 1.1, peak * 1.15, "the arithmetic unit sets the pace", color=BLUE)
    x = np.sqrt(axes.get_xlim()[0] * ridge) / 1.5
    y = x * machine.bytes_per_second * 2.4
    axes.text(x, y, "the memory\nsets the pace", color=BLUE, ha="right")


# --- what a phase moves --------------------------------------------------------------------------


def draw_bytes(bills: Mapping[str, Cost]) -> Picture:
    """Draw the bytes of several forward passes by what they are, one bar each."""
    bars = []
    with course_style():
        figure, axes = plt.subplots(figsize=(7.5, 0.9 + 0.55 * len(bills)))
        for y, (name, cost) in enumerate(bills.items()):
            start = 0
            for field, (label, color, hatch) in PARTS.items():
                size = getattr(cost, field)
                axes.barh(
                    y,
                    size / 1e9,
                    left=start / 1e9,
                    color=color,
                    hatch=hatch,
                    edgecolor="white",
                    linewidth=0.3,
                    label=None if y else label,
                )
                start += size
            words = f" {cost.bytes / 1e9:.3g} GB, {cost.intensity:.3g} FLOP/byte"
            axes.text(cost.bytes / 1e9, y, words, va="center", fontsize=9)
            shares = ", ".join(
                f"{label} {getattr(cost, field) / cost.bytes:.0%}"
                for field, (label, *_) in PARTS.items()
            )
            bars.append(f"{name}: {cost.bytes / 1e9:.3g} GB ({shares})")
        axes.set_yticks(range(len(bills)), list(bills))
        axes.invert_yaxis()
        widest = max(cost.bytes for cost in bills.values()) / 1e9
        axes.set(xlabel="GB moved in one forward pass", xlim=(0, widest * 1.45))
        axes.legend(loc="upper right", fontsize=8)
    alt = f"Horizontal bars of the bytes of forward passes, by part. {'; '.join(bars)}."
    caption = (
        "However many users and however long their texts, a model's weights are read once. What grows is "
        "the cache that is read."
    )
    return Picture(figure, alt, caption)


# --- predicted and measured ----------------------------------------------------------------------


def draw_phases(
    attainable: Attainable,
    machine: Machine,
    bills: Mapping[str, Parts],
    times: Mapping[str, float] | None = None,
    recorded: Sequence[Recording] = (),
) -> Picture:
    """Draw phases under the roof. Predicted: their matrices as rings, their attention as squares, both
    on the roof. Measured: each whole phase as a ring where it was predicted and a dot where it is.

    Args:
        attainable: the lesson's function, which says how high the roof is.
        machine: whose roof is drawn.
        bills: what each phase costs, by name.
        times: measured seconds by the same names; left out, only predictions are drawn.
        recorded: runs on other machines, drawn with their own roofs, as recorded.
    """
    predicted = {name: parts.seconds(attainable, machine) for name, parts in bills.items()}
    points = [point for run in recorded for point in run.points]
    across = [part.intensity for parts in bills.values() for part in parts]
    across += [point.intensity for point in points]
    up = [attainable(part.intensity, machine) for parts in bills.values() for part in parts]
    up += [bills[name].whole.flops / seconds for name, seconds in (times or {}).items()]
    up += [point.flops_per_second for point in points]
    with course_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.9), width_ratios=[1.35, 1])
        _draw_axes(left, across, up)
        _draw_roof(left, machine, BLUE, machine.name)
        for run, color in zip(recorded, (PURPLE, GREEN, SKY) * len(recorded), strict=False):
            _draw_recording(left, run, color)
        if times:
            _draw_pairs(left, bills, predicted, times)
        else:
            _draw_parts(left, bills, attainable, machine)
        left.legend(fontsize=7, loc="lower left", bbox_to_anchor=(0, 1))  # clear of every point
        rows = _draw_seconds(right, predicted, times)
    marks = "with a ring where it was predicted and a dot where it was measured, for each phase"
    if not times:
        marks = (
            "with a ring for each phase's matrices and a square for its attention, all on the roof"
        )
    alt = (
        f"Left, a roofline of {machine.name}, ridge at {machine.balance:.3g} FLOP/byte, {marks}. Right, "
        f"seconds of each phase: {'; '.join(rows)}."
    )
    return Picture(figure, alt, _caption_of_phases(predicted, times, recorded))


class _Labels:
    """Number marks; those in one place share a label."""

    def __init__(self, axes: Axes) -> None:
        self.axes, self.labels = axes, {}

    def add(self, number: int, x: float, y: float) -> None:
        place = (float(f"{x:.1g}"), float(f"{y:.1g}"))
        if place in self.labels:
            self.labels[place].set_text(f"{self.labels[place].get_text()}, {number}")
            return
        above = {"xytext": (3, 7), "textcoords": "offset points", "ha": "right", "fontsize": 8}
        self.labels[place] = self.axes.annotate(str(number), (x, y), **above)


def _draw_parts(
    axes: Axes, bills: Mapping[str, Parts], attainable: Attainable, machine: Machine
) -> None:
    """Draw matrices and attention of each phase on the roof."""
    labels = _Labels(axes)
    for number, (name, parts) in enumerate(bills.items(), 1):
        color = ORANGE if "prefill" in name else VERMILION
        for part, marker, size in zip(parts, "os", (10, 6), strict=True):
            top = attainable(part.intensity, machine)
            axes.plot(part.intensity, top, marker, color=color, markersize=size, fillstyle="none")
        labels.add(number, parts.matrices.intensity, attainable(parts.matrices.intensity, machine))
    for marker, text in (("o", "matrices"), ("s", "attention")):
        axes.plot([], [], marker, color=GREY, fillstyle="none", label=text)


def _draw_pairs(
    axes: Axes,
    bills: Mapping[str, Parts],
    predicted: Mapping[str, float],
    times: Mapping[str, float],
) -> None:
    """Draw each whole phase, predicted and measured."""
    labels = _Labels(axes)
    for number, (name, parts) in enumerate(bills.items(), 1):
        color, cost = ORANGE if "prefill" in name else VERMILION, parts.whole
        top, measured = cost.flops / predicted[name], cost.flops / times[name]
        axes.plot(cost.intensity, top, "o", color=color, markersize=10, fillstyle="none")
        axes.plot([cost.intensity] * 2, [top, measured], color=color, linewidth=1)
        axes.plot(cost.intensity, measured, "o", color=color, markersize=6)
        labels.add(number, cost.intensity, top)


def _draw_recording(axes: Axes, run: Recording, color: str) -> None:
    _draw_roof(axes, run.machine, color, run.label)
    for point in run.points:
        marker = "s" if point.phase == "prefill" else "D"
        axes.plot(
            point.intensity,
            point.flops_per_second,
            marker,
            color=color,
            markersize=5,
            fillstyle="none",
        )


def _draw_seconds(
    axes: Axes, predicted: Mapping[str, float], times: Mapping[str, float] | None
) -> list[str]:
    """Draw a row for each phase, predicted and measured within a band; return them in words."""
    rows = []
    names = [f"{name}  {number}" for number, name in enumerate(predicted, 1)]
    axes.set_yticks(range(len(predicted)), names)
    axes.invert_yaxis()
    for y, (name, seconds) in enumerate(predicted.items()):
        color = ORANGE if "prefill" in name else VERMILION
        axes.barh(y, seconds, left=seconds, height=0.7, color=GREY, alpha=0.25, linewidth=0)
        axes.plot(seconds, y, "o", color=color, markersize=9, fillstyle="none")
        words = f"{name} predicted {as_time(seconds)}"
        if times:
            axes.plot(times[name], y, "o", color=color, markersize=6)
            words += f", measured {as_time(times[name])}"
        rows.append(words)
        last = max(2 * seconds, times[name] if times else 0)
        text = as_time(seconds) if not times else f"{times[name] / seconds:.1f}×"
        axes.annotate(text, (last, y), xytext=(6, 0), textcoords="offset points", va="center")
    drawn = [*predicted.values(), *(times or {}).values()]
    axes.set(xscale="log", xlim=(min(drawn) / 2, max(*drawn, 2 * max(predicted.values())) * 3.5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: as_time(x)))
    axes.minorticks_off()
    axes.set_title("measured ÷ predicted" if times else "predicted")
    return rows


def _caption_of_phases(
    predicted: Mapping[str, float], times: Mapping[str, float] | None, recorded: Sequence[Recording]
) -> str:
    if not times:
        caption = (
            "Numbered rings: matrices. Squares: attention. Right: the seconds of both, added. The grey "
            "bands reach from there to twice as much: no run should be left of its band, and a good one "
            "stays in it."
        )
    else:
        hit = [name for name, seconds in times.items() if seconds <= 2 * predicted[name]]
        caption = (
            f"Rings: predicted. Dots: measured here. {len(hit)} of "
            f"{len(times)} phases are within a factor of 2 (the grey bands)."
        )
        if any(seconds < 0.9 * predicted[name] for name, seconds in times.items()):
            caption += (
                " A phase that beats the roof says that the machine was busy while its limits were "
                "measured: restart, and measure again."
            )
    if recorded:
        labels = "; ".join(run.label for run in recorded)
        caption += f" Squares (prefill) and diamonds (decode) are recorded, not yours: {labels}."
    return caption


# --- the sliders ---------------------------------------------------------------------------------


PLACES = {
    ("decode", "matrices"): (-7, 8),
    ("decode", "attention"): (7, -26),
    ("prefill", "matrices"): (7, -28),
    ("prefill", "attention"): (7, 9),
}
"""Where each mark's label stands, in points from it."""


def draw_operating_points(
    attainable: Attainable,
    machine: Machine,
    bills: Mapping[str, Parts],
    users: Sequence[tuple[int, float]],
    batch: int,
    most: int,
    title: str,
    caption: str,
) -> Picture:
    """Draw forward passes on the roof of one machine, their matrices and their attention apart; and what
    batches make of it.

    Args:
        bills: by name; the one of "decode" is pale where it does not fit.
        users: batches, each with the seconds of its decode step.
        batch: the one that is drawn on the roof.
        most: the largest batch that fits into the memory; 0 for none.
    """
    fits = batch <= most
    with course_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.7), width_ratios=[1.5, 1])
        _draw_axes(left, (0.6, 8000), (3e10, 8e15))
        _draw_roof(left, machine, BLUE, f"{machine.name}, datasheet")
        left.axvline(machine.balance, color=GREY, linestyle=":", linewidth=1)
        left.text(machine.balance * 1.1, 1.6e10, f"{machine.balance:.3g}", color=GREY)
        for (name, parts), color in zip(bills.items(), (VERMILION, ORANGE), strict=False):
            shown = color if fits or name != "decode" else GREY
            for part, of, marker in zip(parts, ("matrices", "attention"), "os", strict=True):
                rate = attainable(part.intensity, machine)
                left.plot(part.intensity, rate, marker, color=shown, markersize=8)
                place = PLACES[name, of]
                if place[0] < 0 and part.intensity < 10:  # keep clear of the axis
                    place = (0, 28)
                left.annotate(
                    f"{name}: {of}\n{in_digits(part.intensity)} FLOP/byte",
                    (part.intensity, rate),
                    xytext=place,
                    ha={-1: "right", 0: "center", 1: "left"}[int(np.sign(place[0]))],
                    textcoords="offset points",
                    color=shown,
                    fontsize=8,
                )
        left.set_title(title, fontsize=9)
        left.legend(loc="upper left", fontsize=8)
        _draw_users(right, users, batch, most)
    points = "; ".join(
        f"{of} of {name} at {in_digits(part.intensity)} FLOP/byte"
        for name, parts in bills.items()
        for part, of in zip(parts, ("matrices", "attention"), strict=True)
    )
    end = f"up to a batch of {most}, the last that fits" if most else "and none fits"
    alt = (
        f"Left, a roofline of {machine.name}, ridge at {machine.balance:.3g} FLOP/byte. {points}. Right, "
        f"over the batch, tokens a second of each user, which fall, and of all, which rise, {end}. "
        f"{' '.join(title.split())}."
    )
    return Picture(figure, alt, caption)


def _draw_users(axes: Axes, users: Sequence[tuple[int, float]], batch: int, most: int) -> None:
    """Draw tokens a second over the batch, for each user and for all; pale where memory has ended."""
    sizes = np.array([size for size, _ in users])
    seconds = np.array([second for _, second in users])
    for rates, color, name in (
        (sizes / seconds, BLUE, "tokens/s, all users"),
        (1 / seconds, VERMILION, "tokens/s, each user"),
    ):
        axes.plot(sizes, rates, color=color, alpha=0.2)
        axes.plot(sizes[sizes <= most], rates[sizes <= most], color=color, label=name)
        axes.plot(
            batch, np.interp(batch, sizes, rates), "o", color=color if batch <= most else GREY
        )
    if most < sizes[-1]:
        axes.axvspan(max(most, 1), sizes[-1], color=GREY, alpha=0.15, linewidth=0)
        axes.text(
            0.98, 0.03, "does not fit", ha="right", color=GREY, fontsize=8, transform=axes.transAxes
        )
    axes.set(xscale="log", yscale="log", xlabel="batch", xlim=(1, sizes[-1]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: in_digits(y)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.minorticks_off()
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=8)


# --- a queue and a clock -------------------------------------------------------------------------


def draw_queue(queueing: float = 1.0, work: float = 3.0, calls: int = 3) -> Picture:
    """Draw who queues work, who does it, and what a clock shows that is stopped too early."""
    with course_style():
        figure, axes = plt.subplots(figsize=(7.5, 2.3))
        busy_until = _draw_calls(axes, queueing, work, calls)
        asked = calls * queueing
        axes.barh(
            1,
            busy_until - asked,
            left=asked,
            height=0.55,
            facecolor="none",
            edgecolor=GREY,
            linestyle="--",
        )
        axes.text((asked + busy_until) / 2, 1, "synchronize: wait", ha="center", va="center")
        for x, text, color in (
            (asked, "stopped too early", VERMILION),
            (busy_until, "done", GREEN),
        ):
            axes.vlines(x, -0.45, 1.45, color=color, linewidth=2)
            axes.text(x, 1.5, text, color=color, ha="center", va="bottom", fontsize=9)
        axes.set_yticks([1, 0], ["your Python", "the GPU"])
        axes.set(xlim=(0, busy_until + 1), ylim=(-0.45, 1.9), xticks=[], xlabel="time →")
        axes.spines["bottom"].set_visible(False)
    alt = (
        f"Two rows over time. In the upper one, your Python asks for {calls} pieces of work, quickly "
        f"one after another, and then waits in synchronize. In the lower one the GPU does them, each "
        f"longer than the asking, until much later. A clock that is stopped after the asking shows "
        f"{asked:g} units, one stopped when all is done {busy_until:g}."
    )
    caption = (
        "A clock that stops when Python has asked measures the asking. And who starts the clock "
        "while old work is queued measures that, too."
    )
    return Picture(figure, alt, caption)


def _draw_calls(axes: Axes, queueing: float, work: float, calls: int) -> float:
    """Draw who asks and who works, call by call; return when the last one is done."""
    busy_until = 0.0
    for call in range(calls):
        start = call * queueing
        busy_until = max(busy_until, start + queueing)
        for y, left, width, color, text in (
            (1, start, queueing, SKY, f"ask {call + 1}"),
            (0, busy_until, work, ORANGE, f"work {call + 1}"),
        ):
            axes.barh(y, width, left=left, height=0.55, color=color, edgecolor="white")
            axes.text(left + width / 2, y, text, ha="center", va="center", fontsize=9)
        busy_until += work
    return busy_until


# --- the third roof ------------------------------------------------------------------------------


def draw_third_roof(
    cost: Cost,
    machine: Machine,
    prices: Operations,
    asked: Mapping[str, Operations],
    taken: Mapping[str, float],
) -> Picture:
    """Draw three predictions of a tiny model's step beside what it took.

    Args:
        cost: of the step.
        machine: for the first two predictions.
        prices: seconds that a view and the cheapest kernel take.
        asked: how many of both each way of doing the step asks for.
        taken: seconds that it took, by the same names.
    """
    rows = [
        ("by its FLOPs", cost.flops / machine.flops_per_second, BLUE),
        ("by its bytes", cost.bytes / machine.bytes_per_second, BLUE),
    ]
    least = {name: n.views * prices.views + n.kernels * prices.kernels for name, n in asked.items()}
    for name, n in asked.items():
        words = f"{name}: {n.views} views, {n.kernels} kernels"
        rows += [(words, least[name], ORANGE), (f"{name}: measured", taken[name], VERMILION)]
    figure = _bars_of_seconds(rows)
    bars = "; ".join(f"{name} {as_time(seconds)}" for name, seconds, _ in rows)
    alt = f"Bars of seconds on a logarithmic scale for one decode step of the mini model: {bars}."
    slowest = max(taken, key=taken.get)
    caption = (
        f"Blue and orange are predicted, red is measured. {slowest}: "
        f"{taken[slowest] / max(rows[0][1], rows[1][1]):.0f} times what the two roofs say, and "
        f"{taken[slowest] / least[slowest]:.1f} times what its operations take at least, "
        f"{as_time(prices.views)} a view and {as_time(prices.kernels)} a kernel."
    )
    return Picture(figure, alt, caption)


def _bars_of_seconds(rows: Sequence[tuple[str, float, str]]) -> Figure:
    with course_style():
        figure, axes = plt.subplots(figsize=(7.5, 0.8 + 0.36 * len(rows)))
        least = min(seconds for _, seconds, _ in rows) / 3
        for y, (_, seconds, color) in enumerate(rows):
            axes.barh(y, seconds - least, left=least, color=color, height=0.7)
            axes.text(seconds * 1.1, y, as_time(seconds), va="center", fontsize=9)
        axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
        axes.invert_yaxis()
        most = max(seconds for _, seconds, _ in rows)
        axes.set(xscale="log", xlim=(least, most * 4), xlabel="one step")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: as_time(x)))
        axes.minorticks_off()
    return figure
