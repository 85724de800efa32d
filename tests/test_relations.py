"""What is said of wrong numbers is true of them, and nothing is said where nothing is known."""

import re

import numpy as np
import pytest

from autograder.diagnosis.deciding import fields_read
from autograder.diagnosis.relations import relations, relations_to
from autograder.lessons import find, hidden_checks, lesson_folders
from autograder.lessons.exhibits import bugs_of
from course.checks.relations import sentences
from course.checks.relations.calls import Calls

RNG = np.random.default_rng(5)
HEADS = RNG.normal(size=(2, 4, 3, 5))  # (B, H, T, D)
ROWS = RNG.normal(size=(2, 3, 2, 6, 4))  # keys and values: (2, B, G, S, D)
TOKENS = RNG.integers(0, 50, (3, 7))


def said(expected, got) -> str:
    return " ".join(sentences({"out": expected}, {"out": got}))


def with_part(array, place, change):
    """Return an array in which one part is changed."""
    changed = array.copy()
    changed[place] = change(changed[place])
    return changed


SAID = {
    "twice": (HEADS, 2 * HEADS, "2 × the right ones: twice"),
    "GiB": (np.arange(1e9, 9e9, 1e9), np.arange(1e9, 9e9, 1e9) / 2**30, "units of 2³⁰ (GiB)"),
    "sign": (HEADS, -HEADS, "wrong sign"),
    "offset": (np.arange(9), np.arange(9) + 1, "all too large by 1"),
    "zeros": (HEADS, 0 * HEADS, "all 0"),
    "one number": (TOKENS, 0 * TOKENS + 7, "all 7, whatever they should be"),
    "NaN": (HEADS, with_part(HEADS, (0, 1), lambda x: x * np.nan), "NaN or infinite"),
    "clipped": (
        np.arange(9.0),
        np.minimum(np.arange(9.0), 4),
        "all 4, where the right ones are larger",
    ),
    "float16": (HEADS, HEADS.astype(np.float16).astype(float) * 1.0003, "went through float16"),
    "reversed": (HEADS, HEADS[:, ::-1], "reverse order along the axis of heads"),
    "rolled": (HEADS, np.roll(HEADS, 1, axis=1), "rolled by 1 along the axis of heads"),
    "order": (HEADS, HEADS[:, [0, 2, 1, 3]], "in the order 0, 2, 1 and 3 along the axis of heads"),
    "transposed": (HEADS[:, :3], HEADS[:, :3].swapaxes(1, 2), "transposed: the axis of heads and"),
    "axes": (HEADS, HEADS.transpose(0, 2, 1, 3), "axes 0, 2, 1 and 3"),
    "shape": (HEADS, HEADS.reshape(1, 2, 12, 5), "in the right order, in another shape"),
    "row 0 for all": (HEADS, HEADS[[0, 0]], "Batch row 1 has the numbers of batch row 0"),
    "last one missing": (TOKENS, TOKENS[:, :-1], "last one along the axis of tokens is missing"),
    "two too many": (TOKENS[:, :5], TOKENS, "last 2 along the axis of tokens are too many"),
    "values": (ROWS, with_part(ROWS, 1, lambda x: x + 1), "Keys are right, values are not"),
    "from token 2 on": (
        HEADS,
        with_part(HEADS, (slice(None), slice(None), slice(2, None)), np.exp),
        "Only token 2 is wrong",
    ),
    "all see all": (np.tril(np.ones((4, 4), bool)), np.ones((4, 4), bool), "and 6 too many"),
    "opposite": (np.tril(np.ones((4, 4), bool)), ~np.tril(np.ones((4, 4), bool)), "exchanged"),
    "another": (HEADS, RNG.normal(size=HEADS.shape), ""),
    "one wrong number": (np.arange(9), with_part(np.arange(9), 4, lambda x: 2 * x), ""),
    "right": (HEADS, HEADS, ""),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_true_is_said(name):
    expected, got, words = SAID[name]
    text = said(expected, got)
    assert words in text
    if not words:
        assert not re.search(r"numbers|order|×", text)


def calls(*cases, function=lambda m, k: m * k) -> Calls:
    """Calls of a function of m and k, whose right results are known for any case."""
    asked = {"cases": [{"function": "f", "arguments": list(case)} for case in cases]}
    return Calls(
        asked,
        {"f": ("m", "k")},
        lambda case: {".results*": np.asarray(function(*case["arguments"]))},
    )


CASES = ((2, 3), (4, 7), (5, 11), (6, 1))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda m, k: m, "the right ones for k = 1. Right for k = 1, wrong otherwise."),
        (lambda m, k: (m + 1) * k, "the right ones for m + 1."),
        (lambda m, k: m * k * k, "times k"),
        (lambda m, k: m * k + 3 * m, "too large by 3 · m."),
        (lambda m, k: m * k + (m - 1) * k, "too large by (m - 1) · k."),
        (lambda m, k: m * k if m < 5 else 0, "Right up to m = 4, wrong from m = 5 on."),
    ],
)
def test_results_of_calls_are_compared_with_their_arguments(wrong, words):
    right = [{"value": m * k} for m, k in CASES]
    got = [{"value": wrong(m, k)} for m, k in CASES]
    text = " ".join(sentences({"results": right}, {"results": got}, calls(*CASES)))
    assert words in text


@pytest.mark.parametrize(
    ("expected", "got", "words"),
    [
        (["returned", "ValueError"], ["returned", "returned"], "should be refused is accepted"),
        (["returned", "returned"], ["CacheFull", "returned"], "refused, with CacheFull (1 of 2"),
        (["ValueError"], ["IndexError"], "It is refused, but with IndexError"),
        (["returned", "ValueError"], ["ValueError", "returned"], ""),
    ],
)
def test_refusals_are_told_apart(expected, got, words):
    both = [[{"outcome": text} for text in texts] for texts in (expected, got)]
    text = " ".join(sentences(*({"calls": outcomes} for outcomes in both)))
    assert words in text
    assert bool(words) == bool(text)


# --- of the museum, by a second computation -------------------------------------------------------


def numbers_by_field(expected, got, path=""):
    """All numbers of two pieces of evidence, in pairs, by the names above them."""
    if isinstance(expected, dict):
        for name in set(expected) & set(got if isinstance(got, dict) else ()):
            yield from numbers_by_field(expected[name], got[name], f"{path}/{name}")
    elif isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        for pair in zip(expected, got, strict=False):
            yield from numbers_by_field(*pair, f"{path}*")
    elif np.shape(expected) == np.shape(got):
        both = [np.ravel(numbers) for numbers in (expected, got)]
        if all(numbers.dtype.kind in "biuf" for numbers in both):
            yield path, *(numbers.astype(float) for numbers in both)


def holds(sentence: str, expected, got) -> bool:
    """Whether there is a field of which a sentence about all of its wrong numbers is true."""
    fields = {}
    for path, a, b in numbers_by_field(expected, got):
        before = fields.get(path, (np.zeros(0), np.zeros(0)))
        fields[path] = (np.append(before[0], a), np.append(before[1], b))
    patterns = {
        r"are ([\d.e+-]+) × the right": lambda a, b, f: np.allclose(b, f * a, rtol=1e-3, atol=1e-3),
        r"too large by ([\d.e+-]+)\.$": lambda a, b, f: np.allclose(b - a, f, rtol=1e-3, atol=1e-3),
        r"too small by ([\d.e+-]+)\.$": lambda a, b, f: np.allclose(a - b, f, rtol=1e-3, atol=1e-3),
        r"numbers are all (0)\.": lambda a, b, f: not b.any(),
        r"all ([\d.e+-]+), wh": lambda a, b, f: np.allclose(b, f, rtol=1e-4),
        r"wrong sign(), and": lambda a, b, f: np.allclose(a, -b, rtol=1e-3, atol=1e-3),
    }
    for pattern, is_true in patterns.items():
        if match := re.search(pattern, sentence):
            factor = float(match[1] or 0)
            for a, b in fields.values():
                wrong = ~np.isclose(a, b, rtol=1e-4, atol=1e-4)
                if wrong.any() and is_true(a[wrong], b[wrong], factor):
                    return True
            return False
    return True


@pytest.mark.parametrize("lesson", lesson_folders())
def test_what_is_said_of_the_museums_numbers_is_true(lesson, selection, record):
    (seed,) = selection.seeds(lesson, by_day=1, full=1)
    false = []
    for name, check in hidden_checks(lesson).items():
        challenge = check.challenge(seed)
        right = record.ask(lesson, {}, check, seed)
        for bug in (bug for bug in bugs_of(lesson) if bug.check == f"{lesson}.{name}"):
            reply = record.ask(lesson, bug.answer, check, seed)
            if "evidence" not in reply:
                continue
            for sentence in relations_to(right, reply["evidence"], lesson, check, challenge):
                if not holds(sentence, right["evidence"], reply["evidence"]):
                    false.append(f"{bug.name}: {sentence}")
    assert false == []


def test_whatever_comes_back_is_no_reason_to_fail():
    check = find("start.flops_of_any_product")
    for reply in (None, [], {}, {"evidence": None}, {"evidence": {"results": [{"value": 1j}]}}):
        assert relations("start", check.name, check.challenge(1), reply) == []


# --- what decides ---------------------------------------------------------------------------------


def test_what_only_words_a_message_is_not_compared(record):
    check = find("gqa.nothing_is_expanded")
    fields = fields_read(check, check.challenge(1), record.ask("gqa", {}, check, 1))
    assert ".calls*.count" in fields
    assert ".calls*.largest" not in fields


@pytest.mark.slow
def test_the_reference_passes_as_what_is_watched(record):
    """A verdict that wants plain types would make all evidence decide again."""
    unwatched = [
        f"{lesson}.{name}"
        for lesson in lesson_folders()
        for name, check in hidden_checks(lesson).items()
        if fields_read(check, check.challenge(1), record.ask(lesson, {}, check, 1)) is None
    ]
    assert unwatched == []
