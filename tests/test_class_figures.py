"""What is counted of a class, and that nobody can be known by an example."""

import json
from datetime import datetime
from pathlib import Path

import nbformat
import pytest
from class_results import (
    ASSIGNMENT,
    BUG,
    BUGS,
    CHECKS,
    LESSON,
    RIGHT,
    WRONG,
    graded,
    lost,
    made,
    result,
)
from nbformat.v4 import new_code_cell, new_notebook
from submissions import Desk, short

from autograder.assignment import read_assignment
from autograder.classroom.reporting.class_figures import (
    Spread,
    handed_in_by_day,
    kind_of,
    points_in_bars,
    question_figures,
    seconds_by_part,
)
from autograder.classroom.reporting.class_mistakes import Work, class_mistakes, lost_without_mistake
from autograder.classroom.reporting.equal_answers import ANSWERS, CODE, FILES, equal_answers
from autograder.classroom.reporting.report_page import duration
from autograder.classroom.reporting.worth_a_look import odd_in
from autograder.classroom.reporting.written_answers import (
    without_comments,
    without_names,
    written_answers,
)
from autograder.classroom.roster import Student
from autograder.lessons.assembly import by_grade_id
from lessons import ROOT


def mistakes(*works: Work):
    return class_mistakes(works, ASSIGNMENT, BUGS)


def test_points_are_counted_in_ranges_and_all_of_them_apart():
    bars = points_in_bars([0, 0.99, 1, 10 / 3 * 3, 9.999, 11], 10)
    assert [(bar.label, bar.students) for bar in bars if bar.students] == [
        ("0 to under 1", 2),
        ("1 to under 2", 1),
        ("9 to under 10", 1),
        ("all 10", 2),
    ]
    assert Spread.of([]) is None


def test_every_student_is_counted_once_in_each_question():
    found = question_figures(
        ASSIGNMENT,
        [
            result((1, 1, 0, 0)),
            result((0.5, 1, 0, 0)),
            lost("Not written yet: the code stops with NotImplementedError."),
            result((1, 1, 0, 0), credited=True),
            lost("For sizes 2 and 3, your count is 5."),
        ],
    )
    first = found[0]
    assert (first.full, first.part, first.credited, first.lost, first.not_written) == (1,) * 5
    assert [question.students for question in found] == [5] * len(CHECKS)


def test_questions_that_everybody_or_nobody_gets_are_marked():
    found = question_figures(ASSIGNMENT, [result((1, 0, 0.5, 1)), result((1, 0, 0, 0))])
    assert [question.remark for question in found] == ["everybody", "nobody", "", ""] + [
        "everybody"
    ] * 3
    assert {question.remark for question in question_figures(ASSIGNMENT, [])} == {""}


def test_what_nobody_wrote_is_known_by_the_judges_own_message(tmp_path):
    """Two functions are as they were given out, and the cell of `matmul_bytes` is deleted."""
    handed_in = short(
        LESSON, **{name: ASSIGNMENT.stubs[name] for name in ("matmul_flops", "rms_norm")}
    )
    handed_in.cells = [cell for cell in handed_in.cells if cell.id != "matmul_bytes"]
    found = Desk("00-start", tmp_path / "desk").judge(handed_in)
    assert [kind_of(answer) for answer in found.answers] == ["not_written"] * len(CHECKS)


def test_the_mistake_of_most_students_comes_first_in_the_museums_words():
    other = next(bug for bug in BUGS if bug.name != BUG.name)
    found = mistakes(made("a", RIGHT, other.name), made("b", WRONG), made("c", WRONG))
    assert [m.words for m in found] == [BUG.mistake, other.mistake]
    assert found[0].students.keys() == {"b", "c"}
    assert (found[0].checks, found[0].points) == ((CHECKS[0],), 2)


def test_where_the_family_alone_is_known_the_family_is_named():
    (found,) = mistakes(made("a", WRONG, bug=""))
    assert found.words.startswith("one of several mistakes about ")


def test_an_example_is_the_shortest_answer_and_names_nobody():
    ada = Student("s4711", "Ada", "Lovelace", "countess@example.edu", "1815")
    long = (
        'def matmul_flops(m, k, n):\n    """By Eve."""\n    # Eve\n    x = m * k\n    return x * n'
    )
    (found,) = mistakes(
        made("eve", long), made(ada, "def matmul_flops(m, k, n):\n    ada = m\n    return ada")
    )
    assert found.example == "def matmul_flops(m, k, n):\n    x = m * k\n    return x * n"
    only_hers = WRONG + "\n# by Ada\nprint('Ada Lovelace, 4th of June')"
    (found,) = mistakes(made(ada, only_hers))
    assert found.example == WRONG + "\nprint('…')"


@pytest.mark.parametrize(
    "words", ["ada = 1", "lovelaces = 1", "x = 's4711'", "Countess = 1", "x = 1815"]
)
def test_an_answer_with_a_name_of_its_author_is_no_example(words):
    ada = Student("s4711", "Ada", "Lovelace", "countess@example.edu", "1815")
    (found,) = mistakes(made(ada, f"{WRONG}\n{words}"))
    assert found.example == ""


def test_words_that_are_part_of_others_are_no_names():
    max = Student("3", "Al", "Li")
    assert without_names("total = final(3, 30) + list(x)", max) == "total = final(3, 30) + list(x)"
    assert without_names("by Al LI.", max) == "by … …."


@pytest.mark.parametrize("source", ["%time x = 1", "x = (", "\0", "-" * 10_000 + "1"])
def test_what_is_no_plain_python_is_no_example(source):
    assert without_comments(source) is None
    (found,) = mistakes(made("a", source))
    assert found.example == ""


def test_lost_answers_without_a_mistake_are_grouped_numbers_aside():
    found = lost_without_mistake(
        [
            Work(Student("a"), {}, lost("For sizes [1, 2], 3.5e-07 came out.")),
            Work(Student("b"), {}, lost("For sizes [4, 5, 6], 7 came out.")),
            Work(Student("max"), {}, lost("Your code stopped with ValueError: Max was here")),
            Work(Student("d"), {}, lost("Not written yet.")),
            Work(Student("e"), {}, lost("known", bug=BUG.name, family=BUG.family)),
        ],
        ASSIGNMENT,
    )
    assert [(group.message, group.students) for group in found] == [
        ("For sizes [#, …], # came out.", 2),
        ("Your code stopped with ValueError: … was here", 1),
    ]


def write(folder: Path, *sources: str) -> Path:
    """A notebook of code cells."""
    folder.mkdir()
    cells = [{"cell_type": "code", "metadata": {}, "source": source} for source in sources]
    (folder / "start.ipynb").write_text(json.dumps({"cells": cells}))
    return folder / "start.ipynb"


def test_written_are_the_last_definitions_that_differ_from_the_release(tmp_path):
    stub = ASSIGNMENT.stubs["matmul_bytes"]
    notebook = write(tmp_path / "a", WRONG, "x = 1", RIGHT, stub)
    assert written_answers(notebook, ASSIGNMENT) == {"matmul_flops": RIGHT}
    notebook.write_text("no notebook")
    assert written_answers(notebook, ASSIGNMENT) == {}


def test_equal_answers_are_found_whatever_their_comments_and_layout():
    def work(name: str, source: str, digest: str) -> Work:
        return Work(Student(name), {"matmul_flops": source}, result(submission=digest))

    spaced = '# mine\ndef matmul_flops(m, k, n):\n\n    """Mine."""\n    return 2*m*k*n'
    works = [work("a", RIGHT, "1"), work("b", RIGHT, "2"), work("c", WRONG, "3")]
    (found,) = equal_answers(works)
    assert ([id for _, id, _ in found.students], found.how, found.lines) == (["a", "b"], ANSWERS, 2)
    (found,) = equal_answers([*works, work("d", spaced, "4")])
    assert (len(found.students), found.how) == (3, CODE)
    (found,) = equal_answers([work("a", "%magic  1", "1"), work("b", "%magic  1", "1")])
    assert found.how == FILES
    assert equal_answers([Work(Student("a"), {}), Work(Student("b"), {})]) == []


def test_what_is_odd_in_a_notebook_is_named_and_what_is_usual_is_not(tmp_path):
    def odd(*sources: str) -> list[str]:
        notebook = tmp_path / "start.ipynb"
        cells = [new_code_cell(source) for source in sources]
        notebook.write_text(nbformat.writes(new_notebook(cells=cells)))
        return list(odd_in(notebook, ASSIGNMENT))

    stub = ASSIGNMENT.stubs["matmul_flops"]
    assert odd(stub, RIGHT, RIGHT, "x = 1", "x = 2") == []
    assert odd(stub, WRONG, RIGHT) == ["defined several times: matmul_flops"]
    looks = "import sys\nprint(sys._getframe(1).f_locals)"
    assert odd(looks) == ["looks at what called it: _getframe, f_locals"]


def test_a_published_answer_is_named_whatever_its_comments(tmp_path):
    assignment = read_assignment(ROOT / "lessons" / "03-kv-cache" / "kv_cache.ipynb")
    answer = f"# My own work.\n{by_grade_id('kv_cache', {})['KVCache']}"
    notebook = tmp_path / "kv_cache.ipynb"
    notebook.write_text(nbformat.writes(new_notebook(cells=[new_code_cell(answer)])))
    assert list(odd_in(notebook, assignment)) == ["the published answer, but for comments: KVCache"]


def test_time_is_counted_by_day_and_by_part():
    table = [
        graded("a", result(), handed_in=datetime(2026, 10, 5, 23)),
        graded("b", lost(), handed_in=datetime(2026, 10, 6, 1), seconds_late=3600),
        graded("c", lost()),
    ]
    days = handed_in_by_day(table)
    assert [(day.day.day, day.students, day.late) for day in days] == [(5, 1, 0), (6, 1, 1)]
    parts = seconds_by_part([standing.result for standing in table])
    assert (parts["follow-through"].median, parts["all of it"].most) == (0.75, 3)
    assert [duration(s) for s in (1, 3600, 90_000)] == ["1 min", "1 h 0 min", "1 d 1 h"]
