"""Write the table of measured ratios in docs/LOG.md from the runs that `make bench RECORD=yes` kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def speed_table(folder: Path) -> str:
    """Write the table of every kept run, by name: what was measured, how much, and its bar.

    Args:
        folder: holds one JSON file per benchmark; without any, the table is a line that says so.
    """
    runs = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    if not runs:
        return "Nothing was recorded yet: `make bench RECORD=yes`."
    rows = ["| what | measured | bar |", "|---|---|---|"]
    for run in runs:
        rows += [f"| {bar['what']} | {_value(bar)} | {_sign(bar['bar'])} |" for bar in run["bars"]]
    return "\n".join([*rows, "", *map(_source, runs)])


def _value(bar: dict[str, Any]) -> str:
    """Return the ratio, marked if it misses its bar."""
    value = f"{bar['value']:.2f}" if bar["value"] < 10 else f"{bar['value']:.1f}"
    return value if bar["met"] else f"**{value}, missed**"


def _sign(bar: str) -> str:
    return bar.replace("at least", "≥").replace("at most", "≤")


def _source(run: dict[str, Any]) -> str:
    """Return where, when and how a run was measured."""
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    return (
        f"* `{run['command']}`: {run['date']}, {run['device']}, {run['cores']} cores, load "
        f"{run['load']:.1f} at the start; {versions}."
    )
