"""A known mistake is recognized by its numbers, an unknown one is left without a name; and the
file that shows what the museum is worth says what the code says."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selection import night
from submissions import answers, short

from autograder import run_record
from autograder.diagnosis import grading_tables, museum_page
from autograder.diagnosis.catches import ALWAYS, catches_of, measured
from autograder.diagnosis.comparison import same, same_reply
from autograder.diagnosis.deciding import Deciding
from autograder.diagnosis.grading_tables import assignment_of, points_lost, with_tables
from autograder.diagnosis.known_replies import SEED, KnownReplies, wrong_replies
from autograder.diagnosis.measuring import (
    KNOWN,
    OTHERS,
    OWN,
    SEEDS,
    STYLES,
    catches_in,
    digest_of_museum,
    play,
    recognition,
)
from autograder.diagnosis.museum_page import LESSONS, outcomes
from autograder.diagnosis.recognize import Diagnosis, diagnose, name_mistake
from autograder.follow_through import own_cells
from autograder.judge import WHERE, known_in_memory
from autograder.lessons import find, hidden_checks
from autograder.lessons.assembly import answer_cells
from autograder.lessons.exhibits import FAMILIES, Bug, bugs_of
from autograder.lessons.reach import reached_by
from autograder.run_record import RunRecord, run

SPLITS = "every_split_equals_uncached"
SILENT = 0.03
"""The part of all bugs, at most, that get no name at their own check: they stop with an exception that
many mistakes raise, or give the numbers of a bug of another family."""


# --- what was measured of the museum -------------------------------------------------------------


@pytest.mark.parametrize("lesson", LESSONS)
def test_what_was_measured_of_a_museum_is_of_these_sources(lesson):
    known = measured(lesson)
    assert known["sources"] == digest_of_museum(lesson), "out of date: run `autograder museum`"
    assert list(known["catches"]) == [bug.name for bug in bugs_of(lesson)]


@pytest.mark.slow
@pytest.mark.parametrize("lesson", LESSONS)
def test_a_museum_measured_again_gives_the_same(lesson, record):
    """At one of the challenges from which the file was written, which it must not contradict; of one
    lesson each night, what is recognized as well. Other styles are left out: they are thousands, and what
    names a mistake in them is the same code."""
    of_this_night = night() and [*LESSONS][int(night()[0]) % len(LESSONS)]
    seeds, known = SEEDS if lesson == of_this_night else SEEDS[:1], measured(lesson)
    rounds = list(play(lesson, record, seeds))
    if lesson == of_this_night:
        recognized = recognition(lesson, rounds, known["catches"])
        assert recognized == {case: known["recognized"][case] for case in recognized}
    again = catches_in(lesson, rounds)
    for bug, caught in known["catches"].items():
        now = again[bug]
        assert set(now) <= set(caught)
        assert {check for check in caught if caught[check] == ALWAYS} <= set(now)


def test_the_pages_say_what_was_measured():
    page = museum_page.FILE.read_text(encoding="utf-8")
    assert page == museum_page.render(), "out of date: run `autograder museum`"
    page = grading_tables.FILE.read_text(encoding="utf-8")
    assert page == with_tables(page), "out of date: run `autograder museum`"


def shares(case: str) -> dict[str, float]:
    """The part of each outcome in one case of what was measured, 0 … 1."""
    counted = outcomes(case)
    parts = ("mistake", "family", "wrong", "nothing")
    return {name: counted[name] / counted.total() for name in parts}


def test_a_bug_that_nobody_knows_gets_its_own_family_or_no_name():
    """Leave one out. At its own check a bug is unlike all others, so mostly nothing is said: the more
    so, the more of them tell themselves apart."""
    own, others = shares(OWN), shares(OTHERS)
    assert own["wrong"] == others["wrong"] == 0
    assert own["family"] > 0.015
    assert others["family"] > 0.07


def test_a_known_bug_is_recognized_whatever_the_style_of_the_rest():
    share = shares(STYLES)
    assert share["wrong"] == 0
    assert share["mistake"] > 0.85
    assert share["nothing"] < 0.1


def test_a_known_bug_is_taken_for_no_other():
    share = shares(KNOWN)
    assert share["wrong"] == 0
    assert share["nothing"] < SILENT


@pytest.mark.parametrize(
    "name", [f"{lesson}.{c}" for lesson in LESSONS for c in hidden_checks(lesson)]
)
def test_every_check_alone_catches_some_bug(name):
    """Beside the checks that need further functions: those see a mistake in any of theirs."""
    lesson, _, own = name.partition(".")
    needs = {check.name: set(check.needs) for check in hidden_checks(lesson).values()}
    rivals = {check for check in needs if check != own and needs[check] <= needs[own]}
    catches = catches_of(lesson)
    assert [
        bug for bug in bugs_of(lesson) if bug.check == name and not rivals & set(catches[bug.name])
    ]


@pytest.mark.parametrize("lesson", LESSONS)
def test_one_mistake_costs_the_points_of_its_function(lesson):
    """At the most those of every question about the cell that it stands in."""
    assignment = assignment_of(lesson)
    for bug in bugs_of(lesson):
        cells = {name for name, names in assignment.answers.items() if names & set(bug.answer)}
        own = [q.points for q in assignment.questions if own_cells(assignment, q) & cells]
        _, lost = points_lost(lesson, bug)
        assert lost <= sum(own), bug.name


# --- what is recognized --------------------------------------------------------------------------


@pytest.mark.slow
def test_no_mistake_is_named_that_would_lose_what_was_passed():
    """The numbers of a mask that hides nothing, or of a layer that does not use it."""
    (bug,) = [bug for bug in bugs_of("kv_cache") if bug.name == "mask_sees_all"]
    challenge = find(f"kv_cache.{SPLITS}").challenge(1)
    known = known_in_memory("kv_cache")
    reply, same_for_all = (
        wrong_replies("kv_cache", SPLITS, asked, [bug])[1][0][1]
        for asked in (challenge, known.challenge(SPLITS))
    )
    asked = (known, SPLITS, challenge, reply, same_for_all)
    found = diagnose(*asked)
    assert (found.bug, found.family) == ("", "mask")
    passed = {"mask_is_rectangular"}
    assert diagnose(*asked, passed).bug == "layer_without_mask"
    passed |= {"layer_equals_uncached"}
    assert diagnose(*asked, passed) == Diagnosis()


IN_ANOTHER_STYLE = {
    "split_read.parts_say_their_sums: part_without_scale": """
def attend_part(q, k, v, mask=None):
    (B, H, T, D), G = q.shape, k.shape[1]
    scores = torch.einsum("bgntd,bgsd->bgnts", q.reshape(B, G, H // G, T, D), k).flatten(1, 2)
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    top = scores.max(dim=-1, keepdim=True).values
    weights = torch.where(top == -math.inf, 0.0, torch.exp(scores - top)).to(q.dtype)
    out = torch.einsum("bgnts,bgsd->bgntd", weights.unflatten(1, (G, -1)), v).flatten(1, 2)
    return Part(out, top, weights.sum(-1, keepdim=True))
""",
    "paged_cache.blocks_are_given_once: frees_at_the_first_release": """
class BlockAllocator:
    def __init__(self, n_blocks):
        self.owned = {}
        self.n_blocks = n_blocks
        self.next_ones = list(range(n_blocks))

    def __len__(self):
        return len(self.next_ones)

    def owners(self, block):
        return self.owned.get(block, 0)

    def allocate(self, n=1):
        if n > len(self.next_ones):
            raise CacheFull("no room")
        given, self.next_ones = self.next_ones[:n], self.next_ones[n:]
        self.owned.update(dict.fromkeys(given, 1))
        return list(given)

    def share(self, blocks):
        if not all(self.owned.get(block) for block in blocks):
            raise ValueError("free")
        for block in blocks:
            self.owned[block] += 1

    def release(self, blocks):
        if any(self.owned.get(block, 0) < blocks.count(block) for block in blocks):
            raise ValueError("free")
        for block in blocks:
            self.owned.pop(block, None)
            self.next_ones.append(block)
""",
}
"""Mistakes of the museum, by their check, in code that writes other tensors or hands out other blocks."""


@pytest.mark.parametrize("what", IN_ANOTHER_STYLE)
def test_a_mistake_is_named_by_what_decides(what):
    """The numbers that are wrong are the museum's; what else differs is a matter of style."""
    lesson, check, name = re.fullmatch(r"(\w+)\.(\w+): (\w+)", what).groups()
    cells = [*answer_cells(lesson, {}), IN_ANOTHER_STYLE[what]]
    replies = [
        run(lesson, cells, find(f"{lesson}.{check}"), challenge)
        for challenge in (find(f"{lesson}.{check}").challenge(seed) for seed in (5, SEED))
    ]
    challenge, known = find(f"{lesson}.{check}").challenge(5), known_in_memory(lesson)
    assert diagnose(known, check, challenge, *replies).bug == name
    (bug,) = [bug for bug in bugs_of(lesson) if bug.name == name]
    _, ((_, reply),) = wrong_replies(lesson, check, challenge, [bug])
    assert not same_reply(reply, replies[0])


def test_counts_alone_name_nothing():
    """A text one token too long costs what one pass too many costs."""
    check = find("naive_decode.each_step_reads_everything")
    bugs = {bug.name: bug for bug in bugs_of("naive_decode")}
    pair = [bugs[name] for name in ("looks_one_token_too_far", "one_token_too_many")]
    right, ((known, first), (_, second)) = wrong_replies(
        "naive_decode", check.name, check.challenge(1), pair
    )
    deciding = Deciding(check, check.challenge(1), right)
    assert deciding.are_same(first, second)
    assert name_mistake([(known, first)], second, deciding) is None


# --- what is said --------------------------------------------------------------------------------


def test_a_mistake_is_named_in_words_and_the_answer_is_not():
    wrong = [
        bug.mistake
        for lesson in LESSONS
        for bug in bugs_of(lesson)
        if bug.mistake != bug.mistake.strip(" .")
        or bug.mistake.startswith(("The ", "A "))
        or set(bug.mistake) & set("()[]{}=`*/")
        or len(bug.mistake) >= 120
    ]
    assert wrong == []


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
    message = lost[SPLITS].message
    assert "mistakes end like this" in message or message.endswith(f" {WHERE}")
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


@settings(max_examples=50, deadline=None)
@given(odd_data())
def test_whatever_comes_back_is_no_reason_to_raise(reply):
    challenge = find(f"kv_cache.{SPLITS}").challenge(1)
    assert diagnose(known_in_memory("kv_cache"), SPLITS, challenge, reply, reply) == Diagnosis()


@pytest.mark.parametrize(
    ("lesson", "check", "challenge"),
    [
        pytest.param("no_lesson", "no_check", {}, id="no lesson"),
        pytest.param("start", "no_check", {}, id="no check"),
        pytest.param("start", "flops_of_any_product", {"cases": print}, id="no challenge"),
    ],
)
def test_a_diagnosis_that_cannot_be_made_is_none(lesson, check, challenge):
    assert diagnose(KnownReplies(lesson), check, challenge, {"evidence": {}}) == Diagnosis()


def test_a_part_of_the_evidence_is_not_the_evidence(record):
    """One entry is changed or left out: no bug gives these numbers any more."""
    replies = (
        (bug, record.ask("kv_cache", bug.answer, find(bug.check), 0))
        for bug in bugs_of("kv_cache")
        if bug.check == f"kv_cache.{SPLITS}"
    )
    bug, reply = next((bug, reply) for bug, reply in replies if "evidence" in reply)
    splits = reply["evidence"]["splits"]
    chunks = [{**split, "logits": [array.copy() for array in split["logits"]]} for split in splits]
    chunks[-1]["logits"][-1].flat[-1] += 0.1
    for other in (chunks, splits[:-1], chunks[:1] * len(chunks)):
        changed = {"evidence": {**reply["evidence"], "splits": other}}
        assert not same_reply(reply, changed), bug.name
    assert same_reply(reply, reply)


@pytest.mark.parametrize(
    ("a", "b", "alike"),
    [
        (36, 36.0, True),
        (36, 37, False),
        (2**70, 2.0**70, True),  # beyond the whole numbers of NumPy
        (2**70, 36.0, False),
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


def test_known_replies_are_asked_once_and_come_back_from_their_files(tmp_path, monkeypatch):
    check, bugs = find("start.flops_of_any_product"), bugs_of("start")
    known = KnownReplies("start", tmp_path)
    reached = reached_by("start", check.needs, bugs)
    replies = [RunRecord().ask("start", bug.answer, check, SEED) for bug in reached]
    for bug, reply in zip(reached, replies, strict=True):
        agreeing = known.agreeing(check.name, [bug], {"error": None, **reply})
        assert agreeing == [bug] * ("evidence" in reply)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == len(reached) + 1  # of each that was suspected, and the reference's
    results = [known.agreeing(check.name, bugs, reply) for reply in replies]
    monkeypatch.setattr(run_record, "run", None)  # nothing runs again
    again = KnownReplies("start", tmp_path)
    assert [again.agreeing(check.name, bugs, reply) for reply in replies] == results
    files[0].write_bytes(b"half a file")
    with pytest.raises(TypeError):
        again.agreeing(check.name, bugs, {})


def test_a_disk_without_room_does_not_keep_a_mistake_from_its_name(tmp_path):
    (tmp_path / "file").write_text("no folder")
    known = KnownReplies("start", tmp_path / "file")
    check = "flops_of_any_product"
    assert known.agreeing(check, bugs_of("start")[:1], None)
    assert not known.agreeing(check, bugs_of("start")[:1], {"evidence": {}})
