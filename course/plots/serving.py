"""The pictures of lesson 11: holes in a batch, the size of a batch, a schedule, budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt

from course.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ON_A_LINE,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    YELLOW,
    Picture,
    course_style,
)
from course.plots.units import in_digits
from course.serving.clock import Served

_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW, GREY)
_STATIC = ((0, 0, 3), (1, 0, 9), (2, 0, 2), (0, 9, 4), (1, 9, 2), (2, 9, 5), (0, 14, 3), (1, 14, 2))
_CONTINUOUS = (
    (0, 0, 3), (1, 0, 9), (2, 0, 2), (2, 2, 4), (0, 3, 2), (0, 5, 5), (2, 6, 3), (1, 9, 2)
)  # fmt: skip
"""Eight answers in three rows: row, first iteration and length of each, drawn by hand."""


def draw_holes() -> Picture:
    """Draw eight answers in three rows, batch after batch and continuously."""
    with course_style():
        figure, axes = plt.subplots(2, 1, figsize=(8.2, 3.4), sharex=True)
        for axis, bars, name in zip(
            axes, (_STATIC, _CONTINUOUS), ("static: 17 iterations", "continuous: 11 iterations"),
            strict=True,
        ):  # fmt: skip
            for number, (row, first, length) in enumerate(bars):
                axis.barh(
                    row, length, left=first, color=_COLOURS[number], height=0.8, edgecolor="w"
                )
                axis.text(first + length / 2, row, "ABCDEFGH"[number], ha="center", va="center",
                          color="black", weight="bold")  # fmt: skip
            axis.set(title=name, ylim=(2.6, -0.6), yticks=range(3), ylabel="row", xlim=(0, 17.2))
            axis.grid(visible=False)
        axes[1].set(xlabel="iteration", xticks=range(0, 18, 2))
    return Picture(
        figure,
        "Two charts of three rows over iterations. Above, three batches one after the other: in the "
        "first, row 1 is busy for 9 iterations while the others end after 3 and 2 and stay empty. Below, "
        "the same eight answers follow one another almost without holes and end after 11 iterations.",
        "Letters are answers; white is a row that does no useful work. The same eight answers "
        "take 17 iterations above and 11 below.",
    )


def draw_batch_sizes(times: Mapping[int, Sequence[float]]) -> Picture:
    """Draw throughput against the inter-token latency, a dot a batch size.

    Args:
        times: seconds of one pass by rows, all rounds.
    """
    shortest = {rows: min(seconds) for rows, seconds in times.items()}
    one = next(iter(shortest.values()))
    knee = max(rows for rows, seconds in shortest.items() if seconds <= 2 * one)
    with course_style():
        figure, axis = plt.subplots(figsize=(7.2, 3.6))
        gaps = [1e3 * seconds for seconds in shortest.values()]
        rates = [rows / seconds for rows, seconds in shortest.items()]
        axis.plot(gaps, rates, "o-")
        for rows, gap, rate in zip(shortest, gaps, rates, strict=True):
            axis.annotate(str(rows), (gap, rate), xytext=(5, -11), textcoords="offset points")
        axis.plot(
            1e3 * shortest[knee], knee / shortest[knee], "o", color=ORANGE, markersize=11, zorder=0
        )
        axis.set(
            xlabel="ITL: ms between two tokens of one user", ylabel="tokens a second, all users"
        )
        axis.set(xlim=(0, None), ylim=(0, None))
    most = max(shortest)
    return Picture(
        figure,
        f"A curve of tokens a second over milliseconds a token, a dot for each batch size from "
        f"1 to {most}. "
        f"It rises ever more slowly; {knee} rows are marked.",
        f"Measured here; numbers are rows. {most} rows give "
        f"{most * one / shortest[most]:.1f} times the tokens a second of one row, at "
        f"{shortest[most] / one:.1f} times the ITL. Orange, the knee: the last size at which a user "
        f"waits at most twice as long as alone.",
    )


def draw_texts(served: Served) -> Picture:
    """Draw when each token of each request came."""
    with course_style():
        figure, axis = plt.subplots(figsize=(8.4, 0.26 * len(served.requests) + 1.1))
        for place, request in enumerate(served.requests):
            stamps = [1e3 * stamp for stamp in served.stamps[request.id]]
            axis.plot([1e3 * request.arrival, stamps[0]], [place] * 2, color=GREY, linewidth=2)
            axis.plot(stamps, [place] * len(stamps), "|", color=BLUE, markersize=9)
        axis.set(xlabel="ms", ylabel="request", yticks=range(len(served.requests)))
        axis.set(ylim=(len(served.requests) - 0.5, -0.5))
        axis.grid(visible=False)
    first = [served.stamps[r.id][0] - r.arrival for r in served.requests]
    return Picture(
        figure,
        f"A line for each of {len(served.requests)} requests: grey from its arrival to its first token, "
        f"then a tick for each token. Four at a time have ticks; the others wait in grey.",
        f"Grey: waiting for the first token, {1e3 * min(first):.0f} to {1e3 * max(first):.0f} ms. "
        f"Blue: tokens. "
        f"At most four requests run; the next one begins where another ends. "
        f"{served.tokens_per_second:,.0f} tokens a second here.",
    )


def draw_budgets(rows: Mapping[int, tuple[float, float, float, float]]) -> Picture:
    """Draw what a budget does.

    Args:
        rows: by budget: longest gap and p99 of TTFT in seconds, goodput and tokens a second.
    """
    panels = {
        "longest gap, ms": [1e3 * row[0] for row in rows.values()],
        "p99 of TTFT, ms": [1e3 * row[1] for row in rows.values()],
        "goodput, requests/s": [row[2] for row in rows.values()],
        "tokens/s": [row[3] for row in rows.values()],
    }
    names = [f"{budget:,}" for budget in rows]
    with course_style():
        figure, axes = plt.subplots(1, 4, figsize=(10.2, 2.7))
        for axis, (title, values) in zip(axes, panels.items(), strict=True):
            axis.barh(names, values, color=BLUE, height=0.65)
            for place, value in enumerate(values):
                axis.text(value, place, f" {in_digits(value)}", va="center")
            axis.set(title=title, xlim=(0, 1.4 * max(*values, 1e-9)), xticks=[])
            axis.invert_yaxis()
            axis.grid(visible=False)
        axes[0].set_ylabel("budget, tokens")
    in_words = "; ".join(
        f"{budget:,}: {1e3 * gap:.1f} ms, {1e3 * ttft:.0f} ms, {good:.1f}"
        for budget, (gap, ttft, good, _) in rows.items()
    )
    return Picture(
        figure,
        f"Four groups of bars by budget. Longest gap, p99 of TTFT, goodput: {in_words}.",
        f"On the virtual clock. Longest gap, p99 of TTFT, goodput by budget: {in_words}. The largest "
        f"budget takes whole prompts.",
    )


def draw_loads(
    rows: Mapping[str, Mapping[int, tuple[float, float, float]]], limits: tuple[float, float]
) -> Picture:
    """Draw what happens to users as more of them come.

    Args:
        rows: by the name of a setting and requests a second: p99 of TTFT and of gaps in seconds, and
            goodput.
        limits: of TTFT and of gaps, in seconds.
    """
    titles = ("p99 of TTFT, ms", "p99 of gaps, ms", "goodput, requests/s")
    with course_style():
        figure, axes = plt.subplots(1, 3, figsize=(10.2, 3.0))
        for place, (axis, title) in enumerate(zip(axes, titles, strict=True)):
            scale = 1 if place == 2 else 1e3
            for (name, by_load), style in zip(rows.items(), ("o-", "s--"), strict=True):
                values = [scale * row[place] for row in by_load.values()]
                axis.plot(list(by_load), values, style, label=name, markersize=4)
            axis.set(title=title, xlabel="requests a second", ylim=(0, None))
            if place < 2:
                axis.axhline(1e3 * limits[place], color=VERMILION, linestyle=":")
                axis.set_ylim(0, 5e3 * limits[place])
        loads = list(next(iter(rows.values())))
        axes[2].plot(loads, loads, color=GREY, linewidth=1)
        axes[0].legend()
    best = {name: max(by_load, key=lambda n: by_load[n][2]) for name, by_load in rows.items()}
    in_words = "Goodput is highest " + ", ".join(
        f"with {name} at {load} a second ({rows[name][load][2]:.1f})" for name, load in best.items()
    )
    return Picture(
        figure,
        f"Three charts over requests a second, a line for each setting. Waits for the first token "
        f"stay low and then rise steeply. {in_words}.",
        f"On the virtual clock. Dotted: the limits. Grey: what arrives. A run ends after its last "
        f"arrival, so goodput stays below even where every request is a good one. {in_words}.",
    )


def draw_server(
    served: tuple[float, float, float],
    usual: tuple[float, float, float],
    limits: tuple[float, float],
) -> Picture:
    """Draw goodput, p99 of TTFT and p99 of gaps of one setting beside the usual one."""
    titles = ("goodput, requests/s", "p99 of TTFT, ms", "p99 of gaps, ms")
    marks = (None, 1e3 * limits[0], 1e3 * limits[1])
    scale = (1, 1e3, 1e3)
    with course_style():
        figure, axes = plt.subplots(1, 3, figsize=(8.6, 1.9))
        for axis, title, mark, factor, mine, other in zip(
            axes, titles, marks, scale, served, usual, strict=True
        ):
            axis.barh(
                ["yours", "usual"], [factor * mine, factor * other], color=[BLUE, GREY], height=0.6
            )
            for place, value in enumerate((factor * mine, factor * other)):
                axis.annotate(
                    in_digits(value),
                    (value, place),
                    xytext=(4, 0),
                    textcoords="offset points",
                    va="center",
                    bbox=ON_A_LINE,
                )
            if mark:
                axis.axvline(mark, color=VERMILION, linestyle=":")
            axis.set(
                title=title,
                xlim=(0, 1.35 * max(factor * mine, factor * other, 0.8 * (mark or 0), 1e-9)),
            )
            axis.set(xticks=[])
            axis.invert_yaxis()
            axis.grid(visible=False)
    return Picture(
        figure,
        f"Three pairs of bars. Goodput {served[0]:.1f} beside {usual[0]:.1f} requests a second; p99 of "
        f"TTFT {1e3 * served[1]:.0f} beside {1e3 * usual[1]:.0f} ms; p99 of gaps "
        f"{1e3 * served[2]:.1f} beside "
        f"{1e3 * usual[2]:.1f} ms.",
        "Grey: budget 64 and 16 rows under the same load. Dotted: the limits, 100 and 8 ms.",
    )
