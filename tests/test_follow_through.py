"""One mistake costs its own points: what stands on it is asked again with that cell put right."""

import pytest
from submissions import Desk, answers, between_tests, short, submission

from autograder import session
from autograder.authoring.source import POINTS
from autograder.follow_through import cells_to_replace, own_cells
from autograder.one_mistake import CREDITED
from autograder.result import Outcome
from autograder.sandbox.child import InfraError
from autograder.second_chances import RULE_ONCE
from lessons import FOLDERS

WRONG_MASK = """
def causal_mask(n_new, n_visible, device="cpu"):
    return torch.ones(n_new, n_visible, dtype=torch.bool, device=device)
"""


@pytest.fixture
def desk(desks) -> Desk:
    return desks("03-kv-cache")


def lost(result) -> dict[str, str]:
    return {answer.check: answer.message for answer in result.answers if answer.score < 1}


@pytest.mark.slow
def test_a_wrong_mask_costs_its_own_point(desk):
    result = desk.judge(short(desk.lesson, causal_mask=WRONG_MASK))
    assert (result.outcome, list(lost(result))) == (Outcome.SCORE, ["mask_is_rectangular"])
    credited = {answer.check: answer for answer in result.answers if answer.credited}
    assert len(credited) >= 4
    for answer in credited.values():
        assert answer.message == "Credited: right with a right causal_mask."
        assert (answer.bug, answer.family) == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("tried", ["x = torch.randn(3)", "print(KVCache, causal_mask(1, 2))"])
def test_who_tries_things_out_between_the_tests_pays_no_more(desk, tried):
    notebook = between_tests(short(desk.lesson, causal_mask=WRONG_MASK), tried)
    assert list(lost(desk.judge(notebook))) == ["mask_is_rectangular"]


@pytest.mark.slow
def test_where_the_machine_fails_on_the_way_nobody_loses_a_credit(desk, monkeypatch):
    monkeypatch.setattr(session, "PAUSES", (0,))
    starts = []

    def start():
        starts.append(1)
        if len(starts) > 1:
            raise InfraError("no process today")
        return desk.start()

    result = desk.judge(short(desk.lesson, causal_mask=WRONG_MASK), start=start)
    assert (result.outcome, len(starts)) == (Outcome.INFRA_ERROR, 3)


@pytest.mark.slow
def test_it_can_be_switched_off(desk):
    result = desk.judge(short(desk.lesson, causal_mask=WRONG_MASK), follow_through=False)
    assert result.points == 7  # a known mistake costs three points at most, all the same
    assert {answer.message for answer in result.answers if answer.credited} == {CREDITED}


@pytest.mark.slow
def test_a_cell_that_was_never_written_costs_its_own_points(desk):
    written = {k: v for k, v in answers(desk.lesson).items() if k != "causal_mask"}
    result = desk.judge(submission(desk.lesson, written))
    assert list(lost(result)) == ["mask_is_rectangular"]


def test_an_untouched_cell_is_credited_nothing(desk):
    written = {k: v for k, v in answers(desk.lesson).items() if k == "causal_mask"}
    result = desk.judge(submission(desk.lesson, written))
    assert result.points == 1


@pytest.mark.slow
def test_two_mistakes_cost_the_points_of_both(desk):
    right = answers(desk.lesson)["forward_cached"]
    restarts = right.replace("arange(past, past + T", "arange(0, T")
    assert restarts != right
    result = desk.judge(short(desk.lesson, causal_mask=WRONG_MASK, forward_cached=restarts))
    assert "mask_is_rectangular" in lost(result)
    assert "every_split_equals_uncached" in lost(result)


@pytest.mark.slow
def test_a_mistake_that_ends_the_process_costs_its_own_points(desk):
    ends = "import os\ndef causal_mask(n_new, n_visible, device='cpu'):\n    os._exit(1)"
    result = desk.judge(short(desk.lesson, causal_mask=ends))
    assert list(lost(result)) == ["mask_is_rectangular"]


QUERIES_OVERWRITTEN = ("    return (shares @ v)", "    q.zero_()\n    return (shares @ v)")


@pytest.mark.slow
def test_a_broken_house_rule_costs_the_points_of_one_question(desks):
    desk = desks("06-gqa")
    right = answers(desk.lesson)["grouped_attention"]
    result = desk.judge(short(desk.lesson, grouped_attention=right.replace(*QUERIES_OVERWRITTEN)))
    assert list(lost(result)) == ["grouped_equals_repeated"]
    assert "grouped_attention changed what it was given: q." in str(lost(result))
    words = RULE_ONCE.format("grouped_equals_repeated")
    credited = {answer.check for answer in result.answers if answer.message == words}
    assert credited == {"masks_reach_every_head", "nothing_is_expanded"}


@pytest.mark.slow
def test_a_broken_house_rule_excuses_no_other_mistake(desks):
    desk = desks("06-gqa")
    both = answers(desk.lesson)["grouped_attention"].replace(*QUERIES_OVERWRITTEN)
    both = both.replace("masked_fill(~mask", "masked_fill(~mask[..., :1, :]")
    result = desk.judge(short(desk.lesson, grouped_attention=both))
    assert list(lost(result)) == ["grouped_equals_repeated", "masks_reach_every_head"]


TELLING = """
import inspect
def attention_layer_cached(attn, x, positions, cache, layer):
    source = inspect.getsource(causal_mask)
    print(source)
    if "tril" in source or "arange" in source:
        raise ValueError(source)
    return x
"""


@pytest.mark.slow
def test_nothing_of_a_process_with_reference_answers_is_told(desk):
    """A layer that reads the mask it was given, prints it, and raises it as an error."""
    reference = answers(desk.lesson)["causal_mask"]
    result = desk.judge(short(desk.lesson, causal_mask=WRONG_MASK, attention_layer_cached=TELLING))
    told = repr(result)
    secret = [line.strip() for line in reference.splitlines() if "return" in line]
    assert secret
    assert not any(line in told for line in secret)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_question_has_cells_of_its_own_and_no_question_is_asked_with_them_replaced(
    desks, folder
):
    assignment = desks(folder).assignment
    for question in assignment.questions:
        own = own_cells(assignment, question)
        assert own
        assert own <= assignment.answers.keys()
        replaced = cells_to_replace(assignment, question, assignment.questions, ())
        assert not replaced & own


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_answer_cell_is_asked_about(desks, folder):
    """Else a mistake in it would cost nothing."""
    assignment = desks(folder).assignment
    asked = set().union(*(own_cells(assignment, q) for q in assignment.questions))
    assert asked == set(assignment.answers)
    assert sum(question.points for question in assignment.questions) == POINTS
