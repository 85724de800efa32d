"""What every lesson has in common: its size, how it opens and ends, what it asks for."""

import ast
import re

import pytest

from autograder.authoring.source import Lesson, headings
from lessons import COURSE, FOLDERS

# What students write, lesson by lesson.
ASKED = {
    "00-start": {"matmul_flops", "matmul_bytes"},
    "01-mini-gpt": {
        *("split_heads", "merge_heads", "causal_attention"),
        *("attention_layer", "greedy_next", "sample_next"),
    },
    "02-naive-decode": {"generate_naive", "kv_rows_naive", "kv_rows_needed", "attention_visits"},
    "03-kv-cache": {
        *("KVCache", "causal_mask", "attention_layer_cached"),
        *("forward_cached", "generate_cached", "kv_cache_bytes"),
    },
    "04-prefill-and-decode": {
        *("prefill", "stream", "latency_metrics"),
        *("pad_prompts", "ragged_mask", "ragged_positions"),
    },
    "05-roofline": {
        *("attention_flops", "phase_cost", "attainable", "bound_by", "time_on_device"),
    },
    "06-gqa": {"repeat_kv", "grouped_attention", "mean_pool_kv_heads", "max_batch_that_fits"},
    "07-quantized-cache": {
        *("quantize", "dequantize", "pack_int4", "unpack_int4"),
        *("QuantizedKVCache", "quantized_cache_bytes"),
    },
}
MOST_WORDS, CELLS = 1500, range(25, 46)


@pytest.fixture(params=FOLDERS)
def lesson(request) -> Lesson:
    return COURSE.read(request.param)


def markdown(lesson: Lesson) -> list[str]:
    return [cell.source for cell in lesson.cells if cell.kind == "markdown"]


def words(text: str) -> list[str]:
    """What is read: no tags, no addresses, no table rules, no formula's punctuation."""
    text = re.sub(r"<[^>]+>|\]\([^)]*\)|\{\{\w+\}\}", " ", text)
    return [word for word in text.split() if re.search(r"\w", word)]


def unbalanced_folds(text: str) -> bool:
    tags = re.findall(r"<(/?)(?:details|summary)\b", text)
    opened = [len(re.findall(rf"<{tag}\b", text)) for tag in ("details", "summary")]
    closed = [len(re.findall(rf"</{tag}>", text)) for tag in ("details", "summary")]
    return bool(tags) and (opened != closed or len(set(opened)) != 1)


def test_it_has_25_to_45_cells(lesson):
    assert len(lesson.cells) in CELLS


def test_it_has_at_most_1500_words(lesson):
    n_words = len(words("\n".join(markdown(lesson))))
    assert n_words <= MOST_WORDS


def test_it_has_one_title(lesson):
    assert len([heading for cell in lesson.cells for heading in headings(cell)]) == 1


def test_it_asks_for_what_the_course_promises(lesson):
    answers = [ast.parse(cell.source).body for cell in lesson.cells if cell.solution]
    kinds = ast.FunctionDef | ast.ClassDef
    names = {node.name for body in answers for node in body if isinstance(node, kinds)}
    assert names == ASKED[lesson.folder]


def test_it_opens_with_the_time_it_takes_and_a_question_to_predict(lesson):
    first_code = next(i for i, cell in enumerate(lesson.cells) if cell.points or cell.solution)
    opening = "\n".join(cell.source for cell in lesson.cells[:first_code])
    assert re.search(r"\d+ minutes", opening)
    assert re.search(r"\bpredict\b", opening, re.IGNORECASE)


def test_it_ends_with_questions_to_check_oneself_and_a_bridge_to_the_next_lesson(lesson):
    prose = markdown(lesson)
    assert re.search(r"^#+ .*check yourself", "\n".join(prose), re.IGNORECASE | re.MULTILINE)
    last = lesson.cells[-1]
    assert last.kind == "markdown"
    assert re.search(rf"\b0?{int(lesson.number) + 1}\b", last.source), "name the next lesson"


def test_every_fold_is_closed_in_its_own_cell(lesson):
    assert [text for text in markdown(lesson) if unbalanced_folds(text)] == []


@pytest.mark.parametrize(
    ("text", "unbalanced"),
    [
        ("<details><summary>Idea</summary>x</details>", False),
        ("no fold", False),
        ("<details><summary>Idea</summary>x", True),
        ("<details><summary>Idea x</details>", True),
        ("<details>x</details>", True),
    ],
)
def test_a_fold_that_is_not_closed_is_seen(text, unbalanced):
    assert unbalanced_folds(text) is unbalanced


def test_tags_and_addresses_are_no_words():
    assert len(words("A [link](https://a.b/c) in <b>bold</b>, | --- | and `code`.")) == 6
