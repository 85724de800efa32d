"""An exhibit is a notebook: what the museum assembles answers every probe as the student's process does.

Each wrong answer and each right one is written into the lesson's notebook, and the notebook's cells
are run by the program that runs students' cells; a wrong one is asked its own check on both sides, a
right one all that call what differs in it.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from submissions import ORDER, short

from autograder.assignment import read_submission
from autograder.diagnosis.comparison import same_reply
from autograder.lessons import hidden_checks, lesson_folders
from autograder.lessons.assembly import answer_cells, assemble, by_grade_id
from autograder.lessons.exhibits import Bug, Edits, Museum, bugs_of, variants_of
from autograder.lessons.reach import reached_by
from autograder.sources import texts_of
from course.minigpt import quantized_cache as right
from course.minigpt.kv_cache import KVCache
from lessons import ROOT

SEED = 2**40 + 7  # as large as the seeds of submissions are
FORGET = "for name in {*globals()} - empty: del globals()[name]"
"""Takes away what the exhibit before defined, without the seconds that `%reset` takes."""


THREADS_ASK = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from autograder.lessons.exhibits import bugs_of

def ask(together):
    together.wait()
    return len(bugs_of("kv_cache"))

sys.setswitchinterval(1e-5)
with ThreadPoolExecutor(4) as pool:
    print(*pool.map(ask, [Barrier(4)] * 4))
"""


def test_threads_that_ask_for_a_museum_at_once_get_the_same():
    words = [sys.executable, "-c", THREADS_ASK]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split() == [str(len(bugs_of("kv_cache")))] * 4


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
    with desk.start_for(desk.new_folder()) as child:
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
                if not reached_by(lesson, check.needs, [exhibit]):
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
    bug = Museum("start").section("matmul_flops", check="flops_of_any_product")

    def forgets(m, k, n):
        """A story."""

    bug("formula", "a mistake")(forgets)
    with pytest.raises(ValueError, match="two bugs are named 'forgets'"):
        bug("formula", "a mistake")(forgets)


def test_a_bug_without_a_story_is_refused():
    bug = Museum("start").section("matmul_flops", check="flops_of_any_product")
    with pytest.raises(ValueError, match="needs a story"):

        @bug("formula", "a mistake")
        def nothing(m, k, n):
            return 0


def read(path: Path, text: str) -> list[Bug]:
    path.write_text(text, encoding="utf-8")
    museum = Museum("start")
    museum.read(path)
    return museum.bugs


STATED = """\
# double, caught by doubles

one_time_too_many (off by one): three times
    the number
  Adds the number to itself
  twice.
- 2 * x
+ 3 * x

nothing_checked (arguments, refusals): any x
  - and + are no marks behind two blanks.
-     if x < 0:
-         raise ValueError
-
+
- return x
+ - x
+
+     $
+ #$$


# halve, caught by halves

halves_nothing (form): x itself
  A story.
- x / 2
+ x
"""


def test_a_text_file_states_edits_of_answers(tmp_path):
    assert read(tmp_path / "museum.txt", STATED) == [
        Bug(
            "one_time_too_many",
            "Adds the number to itself twice.",
            "start.doubles",
            "off by one",
            "three times the number",
            {"double": Edits((("2 * x", "3 * x"),))},
        ),
        Bug(
            "nothing_checked",
            "- and + are no marks behind two blanks.",
            "start.doubles",
            "arguments",
            "any x",
            {
                "double": Edits(
                    (
                        ("    if x < 0:\n        raise ValueError\n", ""),
                        ("return x", "- x\n\n    \n#$"),
                    )
                )
            },
            "refusals",
        ),
        Bug(
            "halves_nothing",
            "A story.",
            "start.halves",
            "form",
            "x itself",
            {"halve": Edits((("x / 2", "x"),))},
        ),
    ]


@pytest.mark.parametrize(
    ("line", "old", "new", "why"),
    [
        (2, "# double, caught by doubles\n", "", 'no "# target, caught by check"'),
        (1, "# double, caught by", "# double caught by", 'a line like "# target'),
        (1, "doubles\n", "doubles\n# double, caught by others\n", 'a line like "# target'),
        (3, "(off by one)", "", 'begins with "name'),
        (3, "(off by one)", "(one off)", "no family 'one off'"),
        (3, "(off by one)", "(off by one, dtypes)", "no kind 'dtypes'"),
        (3, "  Adds the number to itself\n  twice.\n", "", "a bug needs a story"),
        (3, "- 2 * x\n+ 3 * x\n", "", "no edit follows"),
        (4, "    the number", "   the number", "a story's line begins with two blanks"),
        (6, "  twice.", "  twice. ", "it ends with blanks"),
        (6, "  twice.", "twice.", "a story's line begins with two blanks"),
        (6, "  twice.", "    twice.", "a story's line begins with two blanks"),
        (7, "- 2 * x\n+ 3 * x", "+ 3 * x", "nothing stands before it"),
        (7, "- 2 * x", "-2 * x", "an edit's line begins with"),
        (7, "- 2 * x\n+ 3 * x", "- 2 * x", "a bare . deletes"),
        (7, "+ 3 * x", "+ 2 * x", "it changes nothing"),
        (7, "- 2 * x", "-", "it changes nothing"),
        (8, "+ 3 * x", "+ 3 * x ", "it ends with blanks"),
        (9, "+ 3 * x", "+ 3 * x\n  More of the story.", "an edit's line begins with"),
        (9, "+ 3 * x\n", "+ 3 * x\n# halve, caught by halves\n", "an edit's line begins with"),
        (10, "nothing_checked", "one_time_too_many", "two bugs are named 'one_time_too_many'"),
    ],
)
def test_a_malformed_text_file_is_refused_with_the_line_that_is_wrong(
    line, old, new, why, tmp_path
):
    path = tmp_path / "museum.txt"
    assert old in STATED
    with pytest.raises(ValueError, match=rf"museum\.txt, line {line}: .*{why}"):
        read(path, STATED.replace(old, new, 1))


def test_a_museum_holds_what_its_python_and_its_text_files_state():
    names = {bug.name: bug for bug in bugs_of("kv_cache")}
    assert isinstance(names["mask_one_too_far"].answer["causal_mask"], Edits)
    assert callable(names["forward_that_recomputes"].answer["forward_cached"])
    checks = [bug.check for bug in bugs_of("kv_cache")]
    assert sorted(checks, key=checks.index) == checks


@pytest.mark.parametrize("lesson", ["kv_cache", "speculative"])
def test_what_was_measured_rests_on_the_text_files_too(lesson):
    """One museum is a folder, the other a single file."""
    edits = [bug.name for bug in bugs_of(lesson) if [*map(type, bug.answer.values())] == [Edits]]
    assert edits
    texts = "\n".join(texts_of(f"autograder.lessons.{lesson}.museum"))
    assert [name for name in edits if f"\n{name} (" not in texts] == []
