"""The house rules that are held wherever a student's function is called."""

import torch

from course.checks.recorder import Recorder
from course.checks.rules import judge_rules

ROW, KEPT = torch.arange(6.0), [1, 2]


def rule_of(function, *calls) -> str:
    """Call a function, and return the name of the rule that was broken first."""
    recorder = Recorder()
    watched = recorder.watch("f", function)
    for arguments in calls:
        list(watched(*arguments))
    broken = recorder.broken()
    assert bool(judge_rules(broken)) == bool(broken)
    return broken[0]["rule"] if broken else ""


def test_two_results_that_are_one_memory_are_noted():
    assert rule_of(lambda n: ROW[:n], (2,), (3,)) == "shared"
    assert rule_of(lambda n: KEPT, (2,), (3,)) == "shared"
    assert rule_of(lambda n: {"row": ROW}, (2,), (3,)) == "shared"
    assert rule_of(lambda n: ROW[:n].clone(), (2,), (3,)) == ""
    assert rule_of(lambda n: ROW[:0], (2,), (3,)) == ""


def test_a_view_of_an_argument_is_no_shared_result():
    assert rule_of(lambda x: x[:2], (ROW,), (ROW,)) == ""
    assert rule_of(lambda layer: layer.weight[:1], *[(torch.nn.Linear(2, 2),)] * 2) == ""


def test_items_of_one_call_may_be_slices_of_one_tensor():
    def columns(n):
        yield from torch.zeros(2, n).unbind(1)

    def the_same_columns(n):
        yield from ROW.split(2)

    assert rule_of(columns, (3,), (3,)) == ""
    assert rule_of(the_same_columns, (3,), (3,)) == "shared"


def test_an_argument_or_an_earlier_result_that_changes_is_noted():
    buffer = torch.zeros(2)
    assert rule_of(lambda x: x.add_(1) + 0, (torch.zeros(2),)) == "argument"
    assert rule_of(lambda n: buffer.fill_(n), (1,), (2,)) in ("shared", "result")
