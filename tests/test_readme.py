"""The README is short, says of the museum what the museum holds, and its tree is there."""

import json
import re

from autograder.diagnosis.museum_page import read_unseen
from autograder.lessons import lesson_folders
from autograder.lessons.exhibits import bugs_of
from lessons import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
GRADING = (ROOT / "docs" / "grading.md").read_text(encoding="utf-8")


def as_one_line(text: str) -> str:
    return " ".join(text.split())


def test_it_counts_the_mistakes_of_the_museum():
    (said,) = re.findall(r"one of the ([\d,]+) that the museum knows", as_one_line(README))
    assert int(said.replace(",", "")) == sum(len(bugs_of(lesson)) for lesson in lesson_folders())


def test_it_says_what_came_of_answers_that_the_museum_had_never_seen():
    trial = read_unseen()["all"]
    said = re.findall(
        r"Of (\d+) wrong answers .*?, (\d+) lost points: (\d+) were named, (\d+) more were told "
        r"something true of their numbers. Of (\d+) whose messages were read one by one, (\d+) led the "
        r"reader to the line, and (\d+) said something wrong or misleading",
        as_one_line(README),
    )
    names = ("answers", "caught", "named", "told", "read", "found", "wrong")
    assert [tuple(map(int, figures)) for figures in said] == [tuple(trial[n] for n in names)]
    assert trial["answers"] >= 120
    assert trial["found"] >= 0.65 * trial["read"]


def test_it_says_what_one_mistake_costs_at_the_median():
    table = GRADING[GRADING.index("<!-- costs") : GRADING.index("<!-- end of costs")]
    medians = [float(m) for m in re.findall(r"\| ([\d.]+), [\d.]+ \|$", table, re.MULTILINE)]
    assert len(medians) == len(lesson_folders())
    low, high = re.findall(r"of 10, ([\d.]+) to ([\d.]+) at the median", as_one_line(README))[0]
    assert (float(low), float(high)) == (min(medians), max(medians))


def test_it_says_how_much_faster_grading_is_as_measured():
    measured = re.findall(r"Geometric means: ([\d.]+)x with one job, ([\d.]+)x with two", GRADING)[
        0
    ]
    said = re.findall(
        r"([\d.]+) times as fast as stock nbgrader with one job and ([\d.]+) with two",
        as_one_line(README),
    )
    assert said == [measured]


def test_it_says_how_fast_the_engine_is_beside_transformers_as_recorded():
    recorded = json.loads((ROOT / "benchmarks" / "recorded" / "engine.json").read_text("utf-8"))
    ratios = {bar["what"]: f"{bar['value']:.2f}" for bar in recorded["bars"]}
    said = re.findall(
        r"one text ([\d.]+) times as fast as `transformers`, and eight ([\d.]+) times",
        as_one_line(README),
    )
    one, eight = "one text of story", "one batch"
    assert said == [
        (ratios[f"engine over transformers, {one}"], ratios[f"engine over transformers, {eight}"])
    ]


def test_a_stranger_reads_it_in_five_minutes():
    assert len(README.splitlines()) <= 120


def test_every_folder_of_its_tree_is_there():
    tree = README[README.index("## What is where") :].split("```")[1]
    named = re.findall(r"^(\w+)/", tree, re.MULTILINE)
    assert len(named) >= 7
    assert [name for name in named if not (ROOT / name).is_dir()] == []
