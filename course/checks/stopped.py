"""Where in a notebook an exception came up, and what the function and its caller were given."""

from __future__ import annotations

import linecache
import traceback
from types import FrameType

import torch

CELLS = ("<ipython-input", "ipykernel")
"""What the file names of a notebook's cells contain: in the judge's shell, and in a kernel."""
MOST = 160
"""The most characters that are said of the arguments."""

FEW = 9
"""Fewer whole numbers are written out."""


def where_it_stopped(error: BaseException) -> str:
    """Describe the innermost line of a cell that an exception passed through; empty if there is none.

    For example "in kv_rows, at `raise ValueError`, where n = 0, called by generate, where n_new = 1".
    """
    lines = []
    for frame, number in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        line = linecache.getline(file, number, frame.f_globals).strip()
        if line and any(name in file for name in CELLS):
            lines.append((frame, line))
    if not lines:
        return ""
    innermost, line = lines[0]
    name = innermost.f_code.co_name
    words = f"in {name}, at `{line}`{_arguments(innermost)}"
    # A cell that only calls is "<module>", and a comprehension says nothing of its own.
    callers = [frame for frame, _ in lines[1:] if frame.f_code.co_name.isidentifier()]
    if callers and (caller := callers[0].f_code.co_name) != name:
        words += f", called by {caller}{_arguments(callers[0])}"
    return words


def _arguments(frame: FrameType) -> str:
    """Say what the arguments are at this line, those that can be said in a few characters."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    said = ""
    for name in names:
        value = _in_short(frame.f_locals.get(name))
        if value and len(said) + len(name) + len(value) < MOST:
            said += f", {name} {value}" if said else f", where {name} {value}"
    return said


def _in_short(value: object) -> str:
    """Write a number, a few numbers or a tensor's shape; nothing of what a student made."""
    if type(value) in (bool, int, float):
        return f"= {value!r:.20}"
    if type(value) is torch.Tensor:
        if value.device.type == "cpu" and value.dtype == torch.long and value.numel() < FEW:
            return f"= {value.tolist()!r:.80}"
        kind = f", {value.dtype}" if value.dtype != torch.float32 else ""
        return f"has the shape {tuple(value.shape)}{kind.replace('torch.', '')}"
    if type(value) in (list, tuple) and len(value) < FEW and all(type(n) is int for n in value):
        return f"= {value!r:.80}"
    return ""
