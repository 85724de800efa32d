"""An exhibit is a notebook: what the museum assembles answers every probe as the student's process does.

Each wrong answer and each right one is written into the lesson's notebook, the notebook's cells are run
by the program that runs students' cells, and every check is asked on both sides.
"""

import pytest
from submissions import ORDER, Desk, short

from autograder import wire
from autograder.assignment import read_submission
from autograder.authoring.assembly import answer_cells, assemble, by_grade_id
from autograder.diagnosis.comparison import same_reply
from autograder.diagnosis.recognize import answer
from autograder.lessons import hidden_checks, lesson_folders
from autograder.lessons.exhibits import Edits, Museum, bugs_of, variants_of

SEED = 2**40 + 7


def stopped(reply: dict) -> tuple[str, str] | None:
    """The exception with which a probe stopped: its kind and its words."""
    error = reply.get("error")
    return error and (error["kind"], error["words"])


@pytest.mark.slow
@pytest.mark.parametrize("lesson", ORDER)
def test_every_exhibit_answers_as_the_notebook_does(lesson, tmp_path):
    desk = Desk(lesson_folders()[lesson], tmp_path)
    drawn = [
        (check, wire.encode(check.challenge(SEED))) for check in hidden_checks(lesson).values()
    ]
    different = []
    with desk.start() as child:
        for exhibit in [*bugs_of(lesson), *variants_of(lesson)]:
            notebook = desk.write(short(desk.lesson, **by_grade_id(lesson, exhibit.answer)))
            _, cells = read_submission(notebook, desk.assignment)
            for source in ("%reset -f", *(cell.source for cell in cells)):
                assert child.ask({"cell": source}, 60)["error"] is None, (exhibit.name, source)
            names = assemble(lesson, exhibit.answer)
            for check, frame in drawn:
                request = {"probe": check.name, "needs": list(check.needs)}
                reply = child.ask({**request, "challenge": wire.decode(frame)}, 60)
                known = answer(check, names, frame)
                if stopped(known) or stopped(reply):
                    alike = stopped(known) == stopped(reply)
                else:
                    alike = same_reply(known, reply, own_words=True)
                if not alike:
                    different.append((exhibit.name, check.name))
    assert different == []


def test_a_bug_stands_in_the_place_of_the_answer():
    (bug,) = [bug for bug in bugs_of("kv_cache") if bug.name == "mask_sees_all"]
    cells = answer_cells("kv_cache", bug.answer)
    (cell,) = [cell for cell in cells if "def causal_mask" in cell]
    assert cell.count("def causal_mask") == 1
    assert bug.story.split(":")[0] in cell


def test_a_bug_that_builds_on_the_answer_stands_behind_it():
    (bug,) = [bug for bug in bugs_of("kv_cache") if bug.name == "one_layer_for_all"]
    (cell,) = [c for c in answer_cells("kv_cache", bug.answer) if "class KVCache" in c]
    assert cell.index("class KVCache:") < cell.index("class KVCache(KVCache):")


def test_other_functions_call_the_wrong_answer():
    (bug,) = [bug for bug in bugs_of("quantized_cache") if bug.name == "quantize_by_floor"]
    names = assemble("quantized_cache", bug.answer)
    used_by_the_cache = names["QuantizedKVCache"].advance.__globals__["quantize"]
    assert used_by_the_cache is names["quantize"]
    assert bug.story in used_by_the_cache.__doc__


@pytest.mark.parametrize("anchor", ["no such line", "n_new"])
def test_an_edit_whose_anchor_is_not_there_exactly_once_is_refused(anchor):
    with pytest.raises(
        ValueError, match=r"kv_cache.causal_mask: .* must stand in the reference once"
    ):
        answer_cells("kv_cache", {"causal_mask": Edits(((anchor, ""),))})


def test_an_answer_to_nothing_is_refused():
    with pytest.raises(ValueError, match="no answer cell of kv_cache defines casual_mask"):
        answer_cells("kv_cache", {"casual_mask": Edits(())})


def test_two_bugs_of_one_name_are_refused():
    _, patch = Museum("start").section("matmul_flops", check="flops_of_any_product")
    patch("forgets", "formula", "a mistake", "A story.", ("2 *", ""))
    with pytest.raises(ValueError, match="two bugs are named 'forgets'"):
        patch("forgets", "formula", "a mistake", "A story.", ("2 *", ""))


def test_a_bug_without_a_story_is_refused():
    bug, _ = Museum("start").section("matmul_flops", check="flops_of_any_product")
    with pytest.raises(ValueError, match="needs a story"):

        @bug("formula", "a mistake")
        def nothing(m, k, n):
            return 0
