"""Every question of lesson 05 belongs to a misreading that the oracle counts, and the other way round."""

import re

import pytest

from autograder.lessons.roofline import hidden
from course.checks.roofline import questions
from course.checks.roofline.misread import Result, question_about
from course.checks.roofline.passes import cases, draw_passes
from course.measure.limits import Machine
from course.minigpt.roofline import attainable, attention_flops, phase_cost
from course.published.models import PUBLISHED
from lessons import ROOT

ASKED_BY_THE_STUDENTS_OWN = {name for name in questions.MATRICES if "attention" in name}


def misreadings(truth, field: str) -> set[str]:
    challenge = draw_passes(1)
    known = [set(truth(*case)[field]["misread"]) for case in cases(challenge) if case.telling]
    assert len(known) == 4
    return set.intersection(*known)


@pytest.mark.parametrize(
    ("truth", "field", "texts"),
    [
        (hidden.attention, "attention_flops", questions.ATTENTION),
        (hidden.matrices, "matrix_flops", questions.MATRICES),
        (hidden.weights, "weight_bytes", questions.WEIGHTS),
        (hidden.cache, "kv_written_bytes", questions.WRITTEN),
        (hidden.cache, "kv_read_bytes", questions.READ),
        (hidden.activations, "activation_bytes", questions.ACTIVATIONS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_misreading_of_a_bill_has_a_question(truth, field, texts):
    asked = set(texts) - {""} - ASKED_BY_THE_STUDENTS_OWN
    assert asked == misreadings(truth, field)


def test_every_misreading_of_a_roof_has_a_question():
    case = hidden.visible.roof_has_two_parts.challenge(0)["cases"][0]
    rate = hidden.attainable(case["intensities"][0], case["machine"])
    assert set(rate["misread"]) == set(questions.ROOF) - {""}
    case = hidden.visible.bound_is_the_lower_roof.challenge(0)["cases"][0]
    side = hidden.bound(case["cost"], case["machine"])
    assert set(side["misread"]) == set(questions.BOUND) - {""}


def test_a_question_is_asked_where_all_numbers_are_those_of_its_misreading():
    texts = {"half": "Half?", "twice": "Twice?", "": "What?"}
    first = Result("first", 2, 4, {"half": 2, "twice": 8})
    assert question_about([first, Result("second", 6, 3, {"half": 6})], texts) == "Half?"
    assert question_about([first, Result("second", 6, 3, {"half": 5})], texts) == ""
    assert question_about([first, Result("second", 6, 3, {})], texts) == "Half?"


def test_the_steps_of_64_users_take_as_much_longer_as_the_text_says():
    text = (ROOT / "solutions" / "05-roofline" / "roofline.py").read_text(encoding="utf-8")
    text = re.sub(r"\n# ", " ", text)
    said = re.search(
        r"for 64 users takes ([\d.]+) times .* 128 tokens .* ([\d.]+) times .* 1,024", text
    )
    config, h200 = PUBLISHED["Llama-2-7B"].config, Machine("H200", 989e12, 4800e9)

    def seconds(held: int, batch: int) -> float:
        attention = attention_flops(config, 1, held, batch)
        return phase_cost(config, 1, held, batch).parts(attention).seconds(attainable, h200)

    ratios = [seconds(held, 64) / seconds(held, 1) for held in (128, 1024)]
    assert [float(number) for number in said.groups()] == [round(ratio, 1) for ratio in ratios]
