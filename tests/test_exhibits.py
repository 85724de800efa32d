"""An exhibit is a notebook: what the museum assembles answers every probe as the student's process does.

Each wrong answer and each right one is written into the lesson's notebook, and the notebook's cells
are run by the program that runs students' cells; a wrong one is asked its own check on both sides, a
right one all of them.
"""

import re
from pathlib import Path

import pytest
import torch
from submissions import ORDER, short

from autograder.assignment import read_submission
from autograder.diagnosis.comparison import same_reply
from autograder.lessons import hidden_checks, lesson_folders
from autograder.lessons.assembly import answer_cells, assemble, by_grade_id
from autograder.lessons.exhibits import Edits, Museum, bugs_of, variants_of
from course.minigpt import quantized_cache as right
from course.minigpt.kv_cache import KVCache

SEED = 2**40 + 7  # as large as the seeds of submissions are
FORGET = "for name in {*globals()} - empty: del globals()[name]"
"""Takes away what the exhibit before defined, without the seconds that `%reset` takes."""


def stopped(reply: dict) -> tuple[str, str] | None:
    """The exception with which a probe stopped: its kind and its words."""
    error = reply.get("error")
    return error and (error["kind"], error["words"])


@pytest.mark.slow
@pytest.mark.parametrize("lesson", ORDER)
def test_every_exhibit_answers_as_the_notebook_does(lesson, desks, record):
    desk = desks(lesson_folders()[lesson])
    drawn = [(check, check.challenge(SEED)) for check in hidden_checks(lesson).values()]
    different = []
    with desk.start() as child:
        child.ask({"cell": "empty = {*globals(), 'empty'}"}, 60)
        for exhibit in [*bugs_of(lesson), *variants_of(lesson)]:
            notebook = desk.write(short(desk.lesson, **by_grade_id(lesson, exhibit.answer)))
            _, cells = read_submission(notebook, desk.assignment)
            for source in (FORGET, *(cell.source for cell in cells)):
                assert child.ask({"cell": source}, 60)["error"] is None, (exhibit.name, source)
            own = getattr(exhibit, "check", "")
            for check, challenge in drawn:
                if own and own != f"{desk.lesson.module}.{check.name}":
                    continue
                request = {"probe": check.name, "needs": list(check.needs)}
                reply = child.ask({**request, "challenge": challenge}, 60)
                known = record.ask(lesson, exhibit.answer, check, SEED)
                if stopped(known) or stopped(reply):
                    alike = stopped(known) == stopped(reply)
                else:
                    alike = same_reply(known, reply, own_words=True)
                if not alike:
                    different.append((exhibit.name, check.name))
    assert different == []


def hides_nothing(n_new, n_visible, device="cpu"):
    """Written out in the place of causal_mask, with a helper and an import of this module."""
    return Path("mask") and ones(n_new, n_visible)


def ones(n_new, n_visible):
    return torch.ones(n_new, n_visible, dtype=torch.bool)


class OneLayerForAll(KVCache):
    """Built on the answer."""

    def append(self, layer, k, v):
        return super().append(0, k, v)


def quantize_in_float16(x, bits, dim):
    """Built on the answer, too."""
    return right.quantize(x.half(), bits, dim)


def cell_with(lesson: str, answer: dict) -> str:
    (name,) = answer
    defines = re.compile(rf"^(def|class) {name}\b", re.MULTILINE)
    (cell,) = filter(defines.search, answer_cells(lesson, answer))
    return cell


def test_a_bug_stands_in_the_place_of_the_answer():
    cell = cell_with("kv_cache", {"causal_mask": hides_nothing})
    assert cell.count("def causal_mask") == 1
    assert "Written out in the place" in cell
    helpers = ("from pathlib import Path\n", "def ones(n_new, n_visible):")
    assert all(0 <= cell.index(helper) < cell.index("def causal_mask") for helper in helpers)


def test_a_bug_that_builds_on_the_answer_stands_behind_it():
    cell = cell_with("kv_cache", {"KVCache": OneLayerForAll})
    assert cell.index("class KVCache:") < cell.index("class KVCache(KVCache):")
    cell = cell_with("quantized_cache", {"quantize": quantize_in_float16})
    assert cell.index("def quantize") < cell.index("right = ") < cell.rindex("def quantize")


def test_an_edit_changes_the_answer():
    cell = cell_with("kv_cache", {"causal_mask": Edits((("<= own", "< own"),))})
    assert "< own" in cell
    assert "<= own" not in cell


def test_other_functions_call_the_wrong_answer():
    names = assemble("quantized_cache", {"quantize": quantize_in_float16})
    assert names["QuantizedKVCache"].advance.__globals__["quantize"] is names["quantize"]
    assert names["quantize"].__doc__ == "Built on the answer, too."


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
