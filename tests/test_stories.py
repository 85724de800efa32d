"""Stories are repeatable, short enough, and ask only what they have told."""

import re

import pytest

from course.world.stories import MEN, SURNAMES, WOMEN, tell, vocabulary

STORIES = [tell(seed) for seed in range(300)]


def test_the_same_seed_tells_the_same_story():
    assert [tell(seed) for seed in range(20)] == STORIES[:20]


def test_another_seed_tells_another_story():
    assert len({story.words for story in STORIES}) == len(STORIES)


def test_a_story_with_its_end_fits_256_tokens():
    assert all(150 <= len(story.words) <= 255 for story in STORIES)


def test_stories_use_every_word_of_the_vocabulary_and_no_other():
    used = {word for seed in range(2000) for word in tell(seed).words}
    assert used == set(vocabulary())
    assert len(vocabulary()) <= 400


def test_the_cat_always_sat_on_the_mat():
    continuations = [
        story.words[i : i + 4]
        for story in STORIES
        for i in range(3, len(story.words))
        if story.words[i - 3 : i] == ("The", "cat", "sat")
    ]
    assert len(continuations) > 100
    assert set(continuations) == {("on", "the", "mat", ".")}


def test_a_first_name_is_always_followed_by_the_same_surname():
    for seed, story in enumerate(STORIES):
        surname_of: dict[str, str] = {}
        for first, then in zip(story.words, story.words[1:], strict=False):
            if first in WOMEN + MEN:
                assert then in SURNAMES, f"seed {seed}"
                assert surname_of.setdefault(first, then) == then, f"seed {seed}"


def test_every_where_is_answered_by_the_place_where_the_thing_was_put():
    asked = 0
    for seed, story in enumerate(STORIES):
        put = dict(re.findall(r"put the (\w+ \w+) in the (\w+)", story.text))
        for thing, place in re.findall(r"here is the (\w+ \w+) \? .*?In the (\w+)", story.text):
            assert put[thing] == place, f"seed {seed}"
            asked += 1
    assert asked > 2 * len(STORIES)


def test_a_question_points_at_a_fact_that_was_said_before():
    for seed, story in enumerate(STORIES):
        for question in story.questions:
            assert question.said < question.answer, f"seed {seed}"
            assert story.words[question.said] == story.words[question.answer], f"seed {seed}"


def test_a_question_points_at_the_last_time_its_fact_was_said():
    for seed, story in enumerate(STORIES):
        for question in story.questions:
            between = story.words[question.said + 1 : question.answer]
            assert story.words[question.answer] not in between, f"seed {seed}"


def test_every_later_surname_is_a_question():
    for seed, story in enumerate(STORIES):
        told = [i for i, word in enumerate(story.words) if word in SURNAMES]
        first_told = {story.words[i]: i for i in reversed(told)}.values()
        asked = {question.answer for question in story.questions if question.kind == "surname"}
        assert asked == set(told) - set(first_told), f"seed {seed}"


@pytest.mark.parametrize("kind", ["surname", "place"])
def test_both_kinds_are_asked_near_and_from_100_tokens_back(kind):
    distances = [q.distance for story in STORIES for q in story.questions if q.kind == kind]
    assert sum(distance >= 100 for distance in distances) > 250
    assert sum(distance < 100 for distance in distances) > 250
