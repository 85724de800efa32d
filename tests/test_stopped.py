"""An exception in a notebook is described by the line at which it came up and by the arguments there."""

import linecache

import pytest
import torch

from course.checks.check import stopped_with
from course.checks.stopped import MOST, where_it_stopped

CELL = """\
class Liar(int):
    def __repr__(self):
        raise RuntimeError


def outer(m, q, sizes, *, mask=None, liar=Liar(3)):
    m += 1
    return inner(m)


def inner(n):
    return [] + n


def many({names}):
    raise ValueError
""".format(names=", ".join(f"argument_{n}=10**15" for n in range(20)))


@pytest.fixture(params=["<ipython-input-3-abc>", "/tmp/ipykernel_7/42.py"])
def cell(request, monkeypatch):
    """What a cell of a notebook defines, in the judge's shell and in a kernel."""
    file = request.param
    monkeypatch.setitem(linecache.cache, file, (len(CELL), None, CELL.splitlines(True), file))
    names = {}
    exec(compile(CELL, file, "exec"), names)
    return names


def stopped(function, *arguments) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        function(*arguments)
    return where_it_stopped(caught.value)


def test_the_innermost_line_of_a_cell_and_its_arguments_are_said(cell):
    assert stopped(cell["outer"], 1, None, None) == (
        "in inner, at `return [] + n`, where n = 2, called by outer, where m = 2"
    )


def test_shapes_and_sizes_are_said_and_what_a_student_made_is_not(cell):
    cell["inner"] = None
    q, sizes = torch.zeros(1, 4, dtype=torch.float16), torch.arange(2, 4)
    assert stopped(cell["outer"], 1, q, sizes) == (
        "in outer, at `return inner(m)`, where m = 2, q has the shape (1, 4), float16, sizes = [2, 3]"
    )
    assert stopped(cell["outer"], 1, None, torch.arange(2, device="meta")).endswith(
        "sizes has the shape (2,), int64"
    )


def test_many_arguments_do_not_fill_the_message(cell):
    assert len(stopped(cell["many"])) < MOST + 60


def test_an_exception_that_came_through_no_cell_has_no_place():
    assert stopped(int, "x") == ""


def test_an_error_that_a_cell_raises_itself_is_asked_about(cell):
    asked = stopped_with("ValueError", "too many.", stopped(cell["many"]))
    assert asked.endswith(
        "with ValueError: too many. Does the lesson ask you to refuse this case, and with ValueError?"
    )
    assert "?" not in stopped_with("TypeError", "no list", stopped(cell["outer"], 1, None, None))
