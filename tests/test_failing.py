"""What a student reads of a check that fails: the smallest case, and three lines that show it again."""

import pytest
import torch

from autograder.lessons.assembly import answer_cells, run_cells
from autograder.lessons.exhibits import bugs_of
from course.checks import kv_cache, start
from course.checks.check import CheckFailed
from course.checks.shrinking import lists_of_operations, shrink
from course.minigpt.kv_cache import KVCache


class KeepsOneLess(KVCache):
    def truncate(self, n: int) -> None:
        super().truncate(n)
        self.length = max(n - 1, 0)


def half(m: int, k: int, n: int) -> int:
    return m * k * n


def message_of(check, *functions) -> str:
    with pytest.raises(CheckFailed) as caught:
        check(*functions)
    return str(caught.value)


def test_the_message_is_about_the_fewest_operations():
    message = message_of(kv_cache.cache_can_go_back, KeepsOneLess)
    assert ": feed(6), truncate(6): then len(cache) is 5, not 6." in message


def test_three_lines_show_the_same_difference(capsys):
    *_, head, first, second, third = message_of(kv_cache.cache_can_go_back, KeepsOneLess).split(
        "\n"
    )
    assert head == "To see it again:"
    exec("\n".join(line.strip() for line in (first, second, third)), {"KeepsOneLess": KeepsOneLess})
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2:] == [
        "yours: series[0][2].lengths = [5]",
        "right: series[0][2].lengths = [6]",
    ]


def test_the_notebook_says_what_is_true_of_the_numbers_as_the_judge_does():
    message = message_of(start.flops_of_any_product, half)
    assert (
        "gave 105; counted one by one it is 210. How many operations is one multiply-add?"
        in message
    )
    assert "Over all cases: the wrong numbers are 0.5 × the right ones: half." in message


def test_an_error_is_shown_with_its_line():
    case = start.flops_of_any_product.smallest(lambda m, k, n: m / 0)
    assert len(case["cases"]) == 1
    with pytest.raises(ZeroDivisionError):
        start.flops_of_any_product.show(case, lambda m, k, n: m / 0)


def test_without_our_answers_the_message_is_the_checks_own(monkeypatch):
    monkeypatch.setattr("course.checks.failing._ours", lambda check: None)
    message = message_of(start.flops_of_any_product, half)
    assert "105" in message
    assert "0.5" not in message


def test_a_function_that_fails_once_fails():
    """The message is then about the whole challenge: there is nothing to make smaller."""
    seen = []

    def first_time(m: int, k: int, n: int) -> int:
        seen.append(m)
        return 2 * m * k * n + (len(seen) == 1)

    assert "gave" in message_of(start.flops_of_any_product, first_time)


def test_large_arrays_are_shown_by_their_first_difference(capsys):
    space = run_cells(
        "kv_cache", answer_cells("kv_cache", bug("kv_cache", "writes_before_it_looks"))
    )
    check = kv_cache.full_cache_changes_nothing
    check.show(check.smallest(space["KVCache"]), space["KVCache"])
    printed = capsys.readouterr().out
    assert "returned[0] has 648 numbers, of which 252 are wrong" in printed


def bug(lesson: str, name: str) -> dict:
    return next(one.answer for one in bugs_of(lesson) if one.name == name)


def test_no_more_than_so_many_smaller_challenges_are_tried():
    operations = [("new", 0, 9), *(("feed", 0, [n]) for n in range(9))]
    challenge = {"series": [{"operations": operations}, {"operations": operations}], "keep": 2}
    asked = []
    assert lists_of_operations(challenge) == [
        ("series", 0, "operations"),
        ("series", 1, "operations"),
    ]
    assert shrink(challenge, lambda smaller: bool(asked.append(1)), 5) == challenge
    assert len(asked) == 5

    def needs_the_fourth(smaller) -> bool:
        return any(operations[4] in one["operations"] for one in smaller["series"])

    smallest = shrink(challenge, needs_the_fourth, 100)
    assert smallest == {"series": [{"operations": [operations[4]]}], "keep": 2}


def test_the_students_tensors_are_not_kept():
    """What is shown is plain data, so that it can be printed and indexed."""
    case = kv_cache.mask_is_rectangular.smallest(lambda T, S: torch.ones(T, S, dtype=torch.bool))
    assert case == {"sizes": case["sizes"]}
