"""A known mistake is recognised by its numbers, an unknown one is left without a name; and the
file that shows what the museum is worth says what the code says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from submissions import answers, short

from autograder.diagnosis import grading_tables, known_replies, museum_page
from autograder.diagnosis.comparison import same, same_reply
from autograder.diagnosis.grading_tables import assignment_of, points_lost, with_tables
from autograder.diagnosis.known_replies import KnownReplies
from autograder.diagnosis.losses import ALWAYS, losses_of
from autograder.diagnosis.museum_page import OTHERS, OWN, STYLES, outcome, recognition
from autograder.diagnosis.recognize import diagnose, name_mistake
from autograder.diagnosis.replies import all_replies, candidates
from autograder.diagnosis.rounds import LESSONS, checks_of, play
from autograder.follow_through import own_cells
from autograder.judge import known_in_memory
from autograder.lessons import find
from autograder.lessons.exhibits import FAMILIES, Bug, bugs_of

pytestmark = pytest.mark.slow

SPLITS = "every_split_equals_uncached"
BUGS = [
    pytest.param(bug, id=f"{lesson}-{bug.name}") for lesson in LESSONS for bug in bugs_of(lesson)
]


SILENT = 0.03
"""The part of all bugs, at most, that get no name at their own check: they stop with an exception that
many mistakes raise, or give the numbers of a bug of another family."""


@pytest.fixture(scope="module")
def rounds():
    """Every check in front of its museum; about 20 s."""
    return play()


@pytest.fixture(scope="module")
def seen(rounds):
    """What was recognised; about 10 s."""
    return recognition(rounds)


# --- what is recognised --------------------------------------------------------------------------


def test_a_bug_that_nobody_knows_gets_its_own_family_or_no_name(seen, capsys):
    """Leave one out. At its own check a bug is unlike all others, so mostly nothing is said: the more
    so, the more of them tell themselves apart."""
    own, others = shares(OWN, seen, capsys), shares(OTHERS, seen, capsys)
    assert own["wrong"] == others["wrong"] == 0
    assert own["family"] > 0.015
    assert others["family"] > 0.07


def test_a_known_bug_is_recognised_whatever_the_style_of_the_rest(seen, capsys):
    share = shares(STYLES, seen, capsys)
    assert share["wrong"] == 0
    assert share["mistake"] > 0.85
    assert share["nothing"] < 0.1


def shares(case: str, seen, capsys) -> dict[str, float]:
    """The part of each outcome, 0 … 1; printed."""
    total = seen[case].total()
    parts = {name: seen[case][name] / total for name in ("mistake", "family", "wrong", "nothing")}
    with capsys.disabled():
        print(f"\n{case} ({total}): {', '.join(f'{n} {part:.1%}' for n, part in parts.items())}")
    return parts


def test_a_known_bug_is_taken_for_no_other(rounds):
    silent = set()
    for played in rounds:
        for bug, reply in played.caught:
            came = outcome(bug, name_mistake(played.caught, reply))
            assert came != "wrong", f"{played}: {bug.name}"
            if came == "nothing" and played.is_named_by(bug):
                silent.add((played.lesson, bug.name))
    assert len(silent) < SILENT * len(BUGS)


@pytest.mark.parametrize("name", [f"{lesson}.{c}" for lesson in LESSONS for c in checks_of(lesson)])
def test_every_check_alone_catches_some_bug(rounds, name):
    """Beside the checks that need further functions: those see a mistake in any of theirs."""
    lesson, _, own = name.partition(".")
    needs = {check: set(find(f"{lesson}.{check}").needs) for check in checks_of(lesson)}
    rivals = {check for check in needs if check != own and needs[check] <= needs[own]}
    caught = {
        bug.name
        for played in rounds
        for bug, _ in played.caught
        if played.lesson == lesson and played.check in rivals
    }
    alone = {bug.name for bug in bugs_of(lesson) if bug.check == name} - caught
    assert alone


def test_the_file_of_the_museum_is_what_the_museum_does(rounds, seen):
    said = museum_page.FILE.read_text(encoding="utf-8")
    assert said == museum_page.render(rounds, seen), "out of date: run `autograder museum`"


def test_the_tables_about_grading_are_up_to_date(rounds):
    said = grading_tables.FILE.read_text(encoding="utf-8")
    assert said == with_tables(said, rounds), "out of date: run `autograder museum`"


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_file_of_losses_is_up_to_date(lesson, rounds):
    """It was written from more challenges than these, which it must not contradict."""
    said = losses_of(lesson)
    assert list(said) == [bug.name for bug in bugs_of(lesson)], (
        "out of date: run `autograder museum`"
    )
    for played in (one for one in rounds if one.lesson == lesson):
        caught = {bug.name for bug, _ in played.caught}
        assert caught <= {name for name in said if played.check in said[name]}
        assert {name for name in said if said[name].get(played.check) == ALWAYS} <= caught


def test_no_mistake_is_named_that_would_lose_what_was_passed():
    """The numbers of a mask that hides nothing, or of a layer that does not use it."""
    (bug,) = [bug for bug in bugs_of("kv_cache") if bug.name == "mask_sees_all"]
    challenge = find(f"kv_cache.{SPLITS}").challenge(1)
    ((_, reply),) = candidates("kv_cache", SPLITS, challenge, [bug])
    asked = (known_in_memory("kv_cache"), SPLITS, challenge, reply, None)
    found = diagnose(*asked)
    assert (found.bug, found.family) == ("", "mask")
    passed = {"mask_is_rectangular"}
    assert diagnose(*asked, passed).bug == "layer_without_mask"
    passed |= {"layer_equals_uncached"}
    assert diagnose(*asked, passed) is None


def test_one_mistake_costs_the_points_of_its_function(rounds):
    """At the most those of every question about the cell that it stands in."""
    for lesson in LESSONS:
        played = [one for one in rounds if one.lesson == lesson]
        asked = assignment_of(lesson)
        for bug in bugs_of(lesson):
            cells = {name for name, names in asked.answers.items() if names & set(bug.answer)}
            own = [q.points for q in asked.questions if own_cells(asked, q) & cells]
            _, lost = points_lost(lesson, bug, played)
            assert lost <= sum(own), bug.name


# --- what is said --------------------------------------------------------------------------------


@pytest.mark.parametrize("bug", BUGS)
def test_a_mistake_is_named_in_words_and_the_answer_is_not(bug):
    assert bug.mistake == bug.mistake.strip(" .")
    assert not bug.mistake.startswith(("The ", "A "))
    assert not set(bug.mistake) & set("()[]{}=`*/")
    assert len(bug.mistake) < 120


def test_every_family_has_members():
    assert {bug.family for lesson in LESSONS for bug in bugs_of(lesson)} == set(FAMILIES)


def test_a_family_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="no family 'masks'"):
        Bug("name", "story", "start.check", "masks", "a mistake", {})


def two(family: str, other: str):
    """Two bugs with the same numbers."""
    pairs = (("one", family), ("two", other))
    bugs = [Bug(name, "story", "start.check", of, f"mistake {name}", {}) for name, of in pairs]
    return [(bug, {"evidence": {"value": 3}}) for bug in bugs]


def test_numbers_of_several_bugs_name_their_family_if_they_agree_on_it():
    reply = {"error": None, "evidence": {"value": 3}}
    found = name_mistake(two("mask", "mask"), reply)
    assert (found.bug, found.family) == ("", "mask")
    assert FAMILIES["mask"] in found.sentence
    assert "mistake one" not in found.sentence
    assert name_mistake(two("mask", "state"), reply) is None
    assert name_mistake(two("mask", "mask")[:1], reply).bug == "one"
    assert name_mistake(two("mask", "mask"), {"evidence": {"value": 4}}) is None


# --- through the judge ---------------------------------------------------------------------------


@pytest.fixture
def desk(desks):
    return desks("03-kv-cache")


def test_the_judge_names_the_mistake_and_records_it(desk):
    right = answers(desk.lesson)["forward_cached"]
    wrong = right.replace("arange(past,", "arange(0,").replace("past + T", "T")
    assert wrong != right
    result = desk.judge(short(desk.lesson, forward_cached=wrong))
    lost = {answer.check: answer for answer in result.answers if answer.score < 1}
    assert lost[SPLITS].family == "position"
    assert lost[SPLITS].message.startswith("Chunks of [")
    assert (
        "give these numbers" in lost[SPLITS].message
        or "These numbers come from" in lost[SPLITS].message
    )
    assert {answer.family for answer in result.answers if answer.score == 1} == {""}


def test_nothing_is_said_of_a_mistake_that_nobody_knows(desk):
    wrong = "def causal_mask(n_new, n_visible, device='cpu'):\n    return 3"
    result = desk.judge(short(desk.lesson, causal_mask=wrong))
    (lost,) = [answer for answer in result.answers if answer.check == "mask_is_rectangular"]
    assert (lost.score, lost.bug, lost.family) == (0, "", "")


# --- nothing in a reply is believed --------------------------------------------------------------


def odd_data():
    arrays = st.sampled_from([np.zeros(0), np.full((2, 3), np.nan), np.array(True), np.arange(9)])
    leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), arrays)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["evidence", "error", "kind", "logits"]), inner),
        ),
        max_leaves=8,
    )


@settings(max_examples=200, deadline=None)
@given(odd_data())
def test_whatever_comes_back_is_no_reason_to_raise(reply):
    challenge = find(f"kv_cache.{SPLITS}").challenge(1)
    assert diagnose(known_in_memory("kv_cache"), SPLITS, challenge, reply, reply) is None


@pytest.mark.parametrize(
    ("lesson", "check", "challenge"),
    [
        pytest.param("no_lesson", "no_check", {}, id="no lesson"),
        pytest.param("start", "no_check", {}, id="no check"),
        pytest.param("start", "flops_of_any_product", {"cases": print}, id="no challenge"),
    ],
)
def test_a_diagnosis_that_cannot_be_made_is_none(lesson, check, challenge):
    assert diagnose(KnownReplies(lesson), check, challenge, {"evidence": {}}) is None


def test_a_part_of_the_evidence_is_not_the_evidence(rounds):
    """One entry is changed or left out: no bug gives these numbers any more."""
    played = next(played for played in rounds if played.check == SPLITS)
    bug, reply = next((bug, reply) for bug, reply in played.caught if "evidence" in reply)
    chunks = [[array.copy() for array in run] for run in reply["evidence"]["logits"]]
    chunks[-1][-1].flat[-1] += 0.1
    for logits in (chunks, reply["evidence"]["logits"][:-1], chunks[:1] * len(chunks)):
        changed = {"evidence": {**reply["evidence"], "logits": logits}}
        assert not same_reply(reply, changed), bug.name
    assert same_reply(reply, reply)


@pytest.mark.parametrize(
    ("a", "b", "alike"),
    [
        (36, 36.0, True),
        (36, 37, False),
        (1, True, False),
        (np.float32([1, np.nan]), np.float32([1.00001, np.nan]), True),
        (np.float32([1, np.nan]), np.float32([1, 1]), False),
        (np.float32([1]), np.float64([1]), False),
        (np.arange(3), np.arange(3)[:, None], False),
        ({"error": "ValueError", "words": "a"}, {"error": "ValueError", "words": "b"}, True),
        ({"error": "ValueError", "words": "a"}, {"error": "ValueError", "words": ""}, False),
        ({"error": "RuntimeError", "words": "3"}, {"error": "RuntimeError", "words": "4"}, False),
        ({"a": [1]}, {"a": [1], "b": 2}, False),
        ("CacheFull", "returned", False),
    ],
)
def test_what_counts_as_the_same_evidence(a, b, alike):
    assert same(a, b) is alike
    assert same(b, a) is alike


# --- what the museum replies to the challenge that is the same for everyone -----------------------


def test_known_replies_are_found_out_once_and_come_back_from_their_files(tmp_path, monkeypatch):
    check = "flops_of_any_product"
    bugs = bugs_of("start")
    _, replies = all_replies("start", check, KnownReplies("start").challenge(check))
    known = KnownReplies("start", tmp_path)
    for bug, reply in replies:
        agreeing = known.agreeing(check, [bug], {"error": None, **reply})
        assert agreeing == [bug] * ("evidence" in reply)
    assert len(list(tmp_path.iterdir())) == len(replies)  # of each that was suspected, and no other
    found = [known.agreeing(check, bugs, reply) for _, reply in replies]
    monkeypatch.setattr(known_replies, "reply_of", None)  # nothing runs again
    again = KnownReplies("start", tmp_path)
    assert [again.agreeing(check, bugs, reply) for _, reply in replies] == found
    next(tmp_path.glob(f"*.{bugs[0].name}.z")).write_bytes(b"half a file")
    with pytest.raises(TypeError):
        KnownReplies("start", tmp_path).agreeing(check, bugs, {})


def test_a_disk_without_room_does_not_keep_a_mistake_from_its_name(tmp_path):
    (tmp_path / "file").write_text("no folder")
    known = KnownReplies("start", tmp_path / "file")
    check = "flops_of_any_product"
    assert known.agreeing(check, bugs_of("start")[:1], None)
    assert not known.agreeing(check, bugs_of("start")[:1], {"evidence": {}})
