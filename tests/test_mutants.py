"""Mutants are made, judged and explained: on tiny functions here, on every lesson in the slow test.

pytest tests/test_mutants.py --full -k start
"""

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from textwrap import dedent, indent

import pytest

from autograder.authoring import mutants
from autograder.authoring.mutants import judge, main, open_ends, read_entries, survivors
from autograder.authoring.mutation import Mutant, mutants_of
from autograder.lessons import lesson_folders

ENTRY = """
[[equivalent]]
function = "double"
before = "return 2 * x"
after = ["return 3 * x", "return x"]
reason = "Nobody counts here."
"""


def cell(answer: str, signature: str = "def f(x):") -> str:
    """A solution cell that holds one answer."""
    body = f"### BEGIN SOLUTION\n{dedent(answer).strip()}\n### END SOLUTION"
    return f'{signature}\n    """Text: 1 + 1."""\n    given = 1 + 1\n' + indent(body, "    ")


def changed(answer: str, **more: str) -> list[str]:
    """What becomes of an answer's lines in its mutants."""
    return [mutant.after for mutant in mutants_of(cell(answer, **more))]


@pytest.mark.parametrize(
    ("answer", "after"),
    [
        ("x = a - b", {f"x = a {op} b" for op in ("+", "*", "/", "//", "%", "**")}),
        ("x = a & b", {f"x = a {op} b" for op in ("|", "^", "<<", ">>")}),
        ("x = a @ b", {"x = a * b"}),
        ("x -= a", {f"x {op}= a" for op in ("+", "*", "/", "//", "%", "**")}),
        ("x = a < b", {f"x = a {op} b" for op in ("<=", "==", "!=", ">=", ">")}),
        ("x = a is b", {"x = a is not b"}),
        ("x = a not in b", {"x = a in b"}),
        ("x = a and b", {"x = a or b"}),
        ("x = not a", {"x = a"}),
        ("x = ~a", {"x = a"}),
        ("x = -a", {"x = a"}),
        ("x = 7", {"x = 8", "x = 6", "x = 0", "x = 1"}),
        ("x = 0", {"x = 1", "x = -1"}),
        ("x = True", {"x = False"}),
        ("x = a[b:]", {"x = a[:]", "x = a[b + 1:]", "x = a[b - 1:]", "x = a[b:-1]"}),
        ("x = a[0::b]", {"x = a[1::b]", "x = a[-1::b]", "x = a[0:-1:b]", "x = a[0:]"}
         | {"x = a[0::b + 1]", "x = a[0::b - 1]"}),
        ("x = a(b, keepdim=c)", {"x = a(b)"}),
        ("x = a if b else c", {"x = a if not b else c"}),
        ("x = [a for a in b if c]", {"x = [a for a in b if not c]"}),
    ],
)  # fmt: skip
def test_each_operator_makes_the_mutants_expected_of_it(answer, after):
    assert set(changed(answer)) == after | {"pass"}


@pytest.mark.parametrize("statement", ["return x", "g(x)", "raise g", "assert x", "x: g = x"])
def test_each_simple_statement_is_left_out(statement):
    assert changed(statement) == ["pass"]


@pytest.mark.parametrize(("word", "other"), [("if", "if"), ("while", "while")])
def test_conditions_are_negated_and_the_statements_under_them_change(word, other):
    assert changed(f"{word} x:\n    g(x)") == [f"{other} not x:", "pass"]


def test_break_and_continue_take_each_others_place():
    assert changed("for x in g:\n    break") == ["continue"]
    assert changed("for x in g:\n    continue") == ["break"]


def test_default_arguments_change_and_annotations_and_given_lines_do_not():
    signature = "def f(x: 'int | 1', n: g[2] = 2, *, flag: bool = True, name=None) -> g[3]:"
    assert changed("return n", signature=signature) == [
        "n=3", "n=1", "n=0", "flag=False", "pass",
    ]  # fmt: skip


def test_a_function_that_is_given_and_a_message_do_not_change():
    assert mutants_of("def f(x=1):\n    return x + 1") == []
    assert changed("raise g(f'{x + 1} is too much')") == ["pass"]


def test_methods_are_named_with_their_class():
    source = "class Box:\n" + indent(cell("return self.x", "def size(self):"), "    ")
    assert [str(m) for m in mutants_of(source)] == ["Box.size: return self.x  ->  pass"]


def test_every_mutant_is_another_valid_program():
    source = cell("for i in range(x):\n    x = x[i:, -1] if x > 2 ** -i else (x + 1) * 2\nreturn x")
    sources = [mutant.source for mutant in mutants_of(source)]
    for mutated in sources:
        compile(mutated, "mutant", "exec")
    assert len(set(sources)) == len(sources) > 30


def test_names_stay_when_code_around_them_moves():
    source = cell("x = 1 + a\ng(x)\ng(x)\nreturn x")
    moved = "import math\n\n\n" + source.replace("    x = 1", "    # why\n\n    y = 0\n    x = 1")
    names = [str(mutant) for mutant in mutants_of(source)]
    assert len(set(names)) == len(names)
    assert set(names) < {str(mutant) for mutant in mutants_of(moved)}
    assert "f: g(x)  ->  pass (2)" in names


def test_of_a_long_statement_the_part_that_changes_names_the_mutant():
    answer = f"return Cost({', '.join(f'number_{i}=a{i}' for i in range(20))}, last=a + b)"
    assert ("last=a + b", "last=a - b") in {(m.before, m.after) for m in mutants_of(cell(answer))}


def loops() -> bool:
    while True:
        pass


def allocates() -> bool:
    return bool([0] * 10**12)


def waits() -> bool:
    return time.sleep(600) or True


TRIALS = {
    "passes": lambda: True,
    "fails": lambda: False,
    "raises": lambda: 1 / 0 > 0,
    "exits": lambda: exit(0),
    "loops": loops,
    "allocates": allocates,
    "also passes": lambda: True,
}


@pytest.mark.parametrize("jobs", [1, 3])
def test_who_hangs_crashes_or_eats_memory_is_dead(jobs):
    tried = [Mutant("f", name, "", 1, "") for name in TRIALS]
    alive = survivors(tried, lambda mutant: TRIALS[mutant.before](), seconds=1, jobs=jobs)
    assert [mutant.before for mutant in alive] == ["passes", "also passes"]


def test_who_waits_for_ever_is_dead(monkeypatch):
    monkeypatch.setattr(mutants, "WAITING", 1)
    assert survivors([Mutant("f", "", "", 1, "")], lambda mutant: waits(), seconds=1) == []


def test_an_entry_names_mutants_as_they_name_themselves(tmp_path):
    file = tmp_path / "equivalent.toml"
    file.write_text(ENTRY)
    entries = read_entries(file)
    assert entries == {
        str(Mutant("double", "return 2 * x", after, 1, ""))
        for after in ("return 3 * x", "return x")
    }
    assert read_entries(tmp_path / "none.toml") == set()


@pytest.mark.parametrize(
    "text", [ENTRY + ENTRY, ENTRY.replace("Nobody counts here.", ""), ENTRY + "column = 3"]
)
def test_an_entry_without_a_reason_or_given_twice_is_refused(tmp_path, text):
    file = tmp_path / "equivalent.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"equivalent\.toml"):
        read_entries(file)


def test_unexplained_survivors_and_stale_entries_are_told():
    assert open_ends(["a", "b"], {"b"}) == ["UNEXPLAINED  a"]
    assert open_ends(["b"], {"b", "c"}) == ["STALE ENTRY  c"]
    assert open_ends(["b"], {"b"}) == []


@pytest.mark.parametrize(("after", "code"), [("return 3 * m * k * n", 1), (None, 0)])
def test_the_command_fails_for_a_survivor_without_an_entry(monkeypatch, tmp_path, after, code):
    alive = [mutant for mutant in mutants.mutants_of_lesson("start") if mutant.after == after]
    monkeypatch.setattr(mutants, "survivors", lambda *_: alive)
    monkeypatch.setattr(mutants, "FOLDER", tmp_path / "runs")
    monkeypatch.setattr(mutants, "entries_file", lambda lesson: tmp_path / "none.toml")
    assert main(["start"]) == code


def test_the_command_fails_for_a_stale_entry(monkeypatch, tmp_path, capsys):
    file = tmp_path / "equivalent.toml"
    file.write_text(ENTRY)
    monkeypatch.setattr(mutants, "survivors", lambda *_: [])
    monkeypatch.setattr(mutants, "FOLDER", tmp_path / "runs")
    monkeypatch.setattr(mutants, "entries_file", lambda lesson: file)
    assert main(["start"]) == 1
    assert "STALE ENTRY  double: return 2 * x  ->  return 3 * x" in capsys.readouterr().out


def test_a_lesson_that_does_not_exist_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["end"])
    assert "no lesson 'end'; there are 00-start" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("lesson", lesson_folders())
def test_every_survivor_of_a_lesson_is_explained(lesson, record):
    """In a new process, which is small: each mutant is a fork of it, and one that has collected all tests
    takes longer to fork."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(judge, lesson, record.store).result() == []
