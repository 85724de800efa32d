"""What is said of wrong numbers is true of them, and nothing is said where nothing is known."""

import re

import numpy as np
import pytest

from autograder.diagnosis.relations import calls_of, relations
from autograder.lessons import find, hidden_checks, lesson_folders
from autograder.lessons.exhibits import bugs_of
from course.checks.relations import relations_between
from course.checks.relations.calls import Calls
from course.checks.relations.fields import fields_read
from course.checks.relations.to_right import compared, relations_to
from course.checks.relations.words import Relation, over_all_cases, with_relations

RNG = np.random.default_rng(5)
HEADS = RNG.normal(size=(2, 4, 3, 5))  # (B, H, T, D)
ROWS = RNG.normal(size=(2, 3, 2, 6, 4))  # keys and values: (2, B, G, S, D)
TOKENS = RNG.integers(0, 50, (3, 7))


def said(expected, got, calls=None) -> str:
    return " ".join(relation.words for relation in relations_between(expected, got, calls))


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
    "float16": (HEADS, HEADS.astype(np.float16).astype(float), "went through float16"),
    "reversed": (HEADS, HEADS[:, ::-1], "reverse order along the axis of heads"),
    "rolled": (HEADS, np.roll(HEADS, 1, axis=1), "rolled by 1 along the axis of heads"),
    "order": (HEADS, HEADS[:, [0, 2, 1, 3]], "in the order 0, 2, 1 and 3 along the axis of heads"),
    "tiled": (HEADS[:, [0, 0, 1, 1]], HEADS[:, [0, 1, 0, 1]], "order 0, 2, 1 and 3 along the axis"),
    "transposed": (HEADS[:, :3], HEADS[:, :3].swapaxes(1, 2), "transposed: the axis of heads and"),
    "axes": (HEADS, HEADS.transpose(0, 2, 1, 3), "axes 0, 2, 1 and 3"),
    "shape": (HEADS, HEADS.reshape(1, 2, 12, 5), "in the right order, in another shape"),
    "row 0 for all": (HEADS, HEADS[[0, 0]], "Batch row 1 has the numbers of batch row 0"),
    "last one missing": (TOKENS, TOKENS[:, :-1], "last one along the axis of tokens is missing"),
    "two too many": (TOKENS[:, :5], TOKENS, "last 2 along the axis of tokens are too many"),
    "values": (ROWS, with_part(ROWS, 1, lambda x: x + 1), "Keys are right, values are not"),
    "keys twice": (ROWS, ROWS[[0, 0]], "The values are the keys."),
    "swapped": (ROWS, ROWS[[1, 0]], "Keys and values are exchanged."),
    "from token 2 on": (
        HEADS,
        with_part(HEADS, (slice(None), slice(None), slice(2, None)), np.exp),
        "Only token 2 is wrong",
    ),
    "all see all": (
        np.tril(np.ones((4, 4), bool)),
        np.ones((4, 4), bool),
        "there is there, and some more",
    ),
    "opposite": (np.tril(np.ones((4, 4), bool)), ~np.tril(np.ones((4, 4), bool)), "exchanged"),
    "a single answer": (np.True_, np.False_, ""),
    "another": (HEADS, RNG.normal(size=HEADS.shape), ""),
    "one wrong number": (np.arange(9), with_part(np.arange(9), 4, lambda x: 2 * x), ""),
    "right": (HEADS, HEADS, ""),
}


def test_of_results_of_several_sizes_the_first_is_described():
    right = [HEADS[:, :2], HEADS[:, :3], HEADS]
    text = said({"out": right}, {"out": [HEADS[:, [1, 0]], HEADS[:, [1, 0, 2]], HEADS]})
    assert text.startswith("In the first wrong result: the right numbers, in reverse order")


@pytest.mark.parametrize("name", SAID)
def test_what_is_true_is_said(name):
    expected, got, words = SAID[name]
    text = said({"out": expected}, {"out": got})
    assert words in text
    if not words:
        assert not re.search(r"numbers|order|×|exchanged", text)


def calls(*cases, function=lambda m, k: m * k) -> Calls:
    """Calls of a function of m and k, whose right results are known for any case."""
    asked = {"cases": [{"function": "f", "arguments": list(case)} for case in cases]}
    return Calls(
        asked,
        {"f": ("m", "k")},
        lambda case: {".results*": np.asarray(function(*case["arguments"]))},
    )


CASES = ((2, 3), (4, 7), (5, 11), (6, 1), (3, 1), (7, 5))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda m, k: m, "the right ones for k = 1. Right for k = 1, wrong otherwise."),
        (lambda m, k: (m + 1) * k, "the right ones for m + 1."),
        (lambda m, k: m * k * k, "times k"),
        (lambda m, k: m * k + 3 * m, "too large by 3 · m."),
        (lambda m, k: m * k + (m - 1) * k, "too large by (m - 1) · k."),
        (lambda m, k: m * k + (k - 1) * m, "too large by (k - 1) · m."),
        (lambda m, k: m * k if k < 2 else m + k, "Right for k = 1, wrong otherwise."),
        (
            lambda m, k: m // 2 * 2 * k,
            "the right ones for m - 1. The wrong results are too small by k.",
        ),
    ],
)
def test_results_of_calls_are_compared_with_their_arguments(wrong, words):
    right = [{"value": m * k} for m, k in CASES]
    got = [{"value": wrong(m, k)} for m, k in CASES]
    text = said({"results": right}, {"results": got}, calls(*CASES))
    assert words in text


def test_where_a_relation_holds_for_one_of_two_fields_it_is_said_of_some_numbers():
    right = {"top": HEADS, "out": TOKENS}
    [twice] = relations_between(right, {"top": 2 * HEADS, "out": TOKENS[:, ::-1] + TOKENS})
    assert twice == ("The wrong numbers are 2 × the right ones: twice.", "", twice.among)
    assert twice.among == "some of the numbers that differ"
    assert not relations_between(right, {"top": 2 * HEADS, "out": 2 * TOKENS})[0].among
    one_row = with_part(HEADS, 1, np.exp)
    assert relations_between(right, {"top": one_row, "out": TOKENS})[0].among == ""


def test_an_order_of_sizes_is_not_told():
    right = [{"value": m * k} for m, k in CASES]
    got = [{"value": m * k if m < 5 else m + k} for m, k in CASES]  # nobody asked for other m
    assert "Right" not in said({"results": right}, {"results": got}, calls(*CASES))


def test_a_call_that_stopped_is_said_to_have_stopped():
    right = {"runs": [{"text": np.arange(9), "held": 8}]}
    got = {"runs": [{"text": "CacheFull", "held": 0}]}
    assert (
        said(right, got) == "CacheFull is raised where a result is expected (in one call at least)."
    )


def test_where_a_call_stopped_it_is_not_said_which_results_are_right():
    right, other = RNG.normal(size=(2, 3, 1, 4, 2))  # three calls, (B, T, D) each
    got = [np.where(np.arange(4)[:, None] == 3, *both) for both in zip(other, right, strict=True)]
    assert "Only token 3 is wrong" in said({"out": list(right)}, {"out": got})
    for stopped in ("IndexError", None):
        assert "Only" not in said({"out": list(right)}, {"out": [*got[:2], stopped]})
    refused = "a ValueError"  # as it should be
    assert "Only token 3" in said({"out": [*right, refused]}, {"out": [*got, refused]})


def attention(q, k, v, mask=None, temperature=1.0):
    scores = q @ k.swapaxes(-2, -1) / q.shape[-1] ** 0.5 / temperature
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda q, k, v, mask, t: attention(q, k, k, mask, t), "with k in the place of v."),
        (lambda q, k, v, mask, t: attention(k, q, v, mask, t), "with q and k exchanged."),
        (lambda q, k, v, mask, t: attention(q * 2, k, v, mask, t), "for √D · q (D is the size"),
        (lambda q, k, v, mask, t: attention(q, k, v, None, t), "without mask."),
        (lambda q, k, v, mask, t: attention(q, k, v, mask, 1 / t), "for 1 / temperature."),
        (lambda q, k, v, mask, t: attention(np.exp(q), k, v, mask, t), ""),
    ],
)
def test_results_of_calls_are_compared_with_other_inputs(wrong, words):
    names = ("q", "k", "v", "mask", "temperature")
    mask = np.tril(np.ones((5, 5), bool))
    cases = [
        dict(zip(names, [*RNG.normal(size=(3, 2, 5, 4)), mask, t], strict=True)) for t in (0.4, 3.0)
    ]
    asked = Calls({"cases": cases}, {"attend": names}, lambda case: {".out*": attention(**case)})
    right = [attention(**case) for case in cases]
    got = [wrong(*case.values()) for case in cases]
    text = said({"out": right}, {"out": got}, asked)
    assert words in text
    assert bool(words) == ("right ones" in text)


def test_a_limit_that_is_not_looked_at_is_called_larger():
    def within(times, limit):
        return float((times <= limit).sum())

    cases = [{"times": np.arange(1.0, n), "limit": n / 3} for n in (9, 14, 22)]
    asked = Calls({"cases": cases}, {}, lambda case: {".out*": np.array(within(**case))})
    right = [within(**case) for case in cases]
    got = [float(len(case["times"])) for case in cases]
    assert "right ones for a much larger limit." in said({"out": right}, {"out": got}, asked)


@pytest.mark.parametrize(
    ("expected", "got", "words"),
    [
        (["returned", "ValueError"], ["returned", "returned"], "should be refused is accepted"),
        (["returned", "returned"], ["CacheFull", "returned"], "CacheFull is raised where a result"),
        (["ValueError"], ["IndexError"], "It is refused, but with IndexError"),
        (["returned", "ValueError"], ["ValueError", "returned"], ""),
    ],
)
def test_refusals_are_told_apart(expected, got, words):
    both = [[{"outcome": text} for text in texts] for texts in (expected, got)]
    text = said(*({"calls": outcomes} for outcomes in both))
    assert words in text
    assert bool(words) == bool(text)


# --- of the museum, by a second computation -------------------------------------------------------


def arrays_by_field(expected, got, path=""):
    """All arrays of two pieces of evidence, in pairs, by the names above them."""
    if isinstance(expected, dict):
        for name in set(expected) & set(got if isinstance(got, dict) else ()):
            yield from arrays_by_field(expected[name], got[name], f"{path}/{name}")
    elif isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        both = [
            np.asarray(x) if all(type(v) in (int, float) for v in x) else None
            for x in (expected, got)
        ]
        if len(expected) and both[0] is not None and both[1] is not None:
            yield path, *both
        for pair in zip(expected, got, strict=False):
            yield from arrays_by_field(*pair, f"{path}*")
    else:
        both = [np.asarray(numbers) for numbers in (expected, got)]
        if all(numbers.dtype.kind in "biuf" for numbers in both):
            yield path, *both


def close(a, b):
    """Which numbers of two arrays of one shape are equal, as far as their types can tell."""
    if a.dtype.kind != "f" and b.dtype.kind != "f":
        return a == b
    tolerance = 4e-3 if np.float16 in (a.dtype, b.dtype) else 1e-4
    return np.isclose(a.astype(float), b.astype(float), tolerance, tolerance, equal_nan=True)


def of_numbers(is_true):
    """Ask about all wrong numbers of a field at once, wherever they lie."""

    def holds(arrays, number="0"):
        if any(a.shape != b.shape for a, b in arrays):
            return False
        a, b = (
            np.concatenate([x.ravel().astype(float) for x in part])
            for part in zip(*arrays, strict=True)
        )
        wrong = ~close(a, b)
        return bool(wrong.any()) and is_true(a[wrong], b[wrong], float(number))

    return holds


def of_slices(are_wrong):
    """Ask whether along some axis exactly these slices are wrong, in every wrong array."""

    def holds(arrays, *words):
        numbers = [[int(n) for n in re.findall(r"\d+", text)] for text in words]
        for axis in range(max(a.ndim for a, _ in arrays)):
            found = []
            for a, b in arrays:
                wrong = ~close(a, b)
                places = set(np.argwhere(wrong)[:, axis].tolist())
                found.append(places == set(are_wrong(a.shape[axis], *numbers)))
            if all(found):
                return True
        return False

    return holds


def of_arrays(moved):
    """Ask whether along some axis the right array, moved, is what came."""

    def holds(arrays, *words):
        numbers = [[int(n) for n in re.findall(r"\d+", text)] for text in words]
        for axis in range(max(a.ndim for a, _ in arrays)):
            try:
                made = [moved(a, axis, *numbers) for a, _ in arrays]
            except IndexError:  # another axis is meant
                continue
            if all(
                m.shape == b.shape and np.allclose(m, b, rtol=1e-3, atol=1e-3, equal_nan=True)
                for m, (_, b) in zip(made, arrays, strict=True)
            ):
                return True
        return False

    return holds


def others(size, numbers):
    return [n for n in range(size) if n not in numbers]


def in_the_place_of(array, axis, places, owner):
    """The array with one slice in the place of others."""
    changed = array.copy()
    for place in places:
        changed[(slice(None),) * axis + (place,)] = array.take(owner[0], axis)
    return changed


HOLDS = {
    r"are ([\d.e+-]+) × the right": of_numbers(
        lambda a, b, f: np.allclose(b, f * a, rtol=1e-3, atol=1e-3)
    ),
    r"all too large by ([\d.e+-]+)\.$": of_numbers(
        lambda a, b, f: np.allclose(b - a, f, rtol=1e-3, atol=1e-3)
    ),
    r"all too small by ([\d.e+-]+)\.$": of_numbers(
        lambda a, b, f: np.allclose(a - b, f, rtol=1e-3, atol=1e-3)
    ),
    r"numbers are all 0\.": of_numbers(lambda a, b, f: not b.any()),
    r"all ([\d.e+-]+), wh": of_numbers(lambda a, b, f: np.allclose(b, f, rtol=1e-4)),
    r"wrong sign, and": of_numbers(lambda a, b, f: np.allclose(a, -b, rtol=1e-3, atol=1e-3)),
    r"^Right up to [a-zKV ]+(\d+), wrong from [a-zKV ]+(\d+) on\.$": of_slices(
        lambda size, last, first: range(first[0], size)
    ),
    r"^Only [a-zKV ]+(\d[\d, and]*) (?:is|are) wrong\.$": of_slices(lambda size, some: some),
    r"^[A-Z][a-zKV ]+(\d[\d, and]*) (?:is|are) right, the others": of_slices(others),
    r"^Only the last [a-zKV ]+ is wrong": of_slices(lambda size: [size - 1]),
    r"^The last [a-zKV ]+ is right, the others": of_slices(lambda size: range(size - 1)),
    r"^The last (\w+) along .* missing": of_arrays(
        lambda a, axis, n: a.take(range(a.shape[axis] - (n[0] if n else 1)), axis)
    ),
    r"^The first (\w+) along .* missing": of_arrays(
        lambda a, axis, n: a.take(range(n[0] if n else 1, a.shape[axis]), axis)
    ),
    r"^The values are the keys\.": of_arrays(lambda a, axis: a.take([0, 0], axis)),
    r"^The keys are the values\.": of_arrays(lambda a, axis: a.take([1, 1], axis)),
    r"^Keys and values are exchanged\.": of_arrays(lambda a, axis: a.take([1, 0], axis)),
    r"in reverse order along": of_arrays(lambda a, axis: np.flip(a, axis)),
    r"rolled by (\d+) along": of_arrays(lambda a, axis, n: np.roll(a, n[0], axis)),
    r"numbers, in the order ([\d, and]+) along": of_arrays(lambda a, axis, n: a.take(n, axis)),
    r"^[A-Z][a-zKV ]+(\d[\d, and]*) (?:have|has) the numbers of [a-zKV ]+(\d+)\.": of_arrays(
        in_the_place_of
    ),
}
"""What a sentence says, by its words, computed in another way: (wrong arrays of a field, …) -> bool."""


def is_true(words: str, expected, got) -> bool | None:
    """Whether there is a field of which a sentence is true; None where nothing here computes its kind."""
    fields = {}
    for path, a, b in arrays_by_field(expected, got):
        if a.shape != b.shape or not close(a, b).all():
            fields.setdefault(path, []).append((a, b))
    first, of_first, rest = words.partition("In the first wrong result: ")
    if of_first:
        words = f"{first}{rest[:1].upper()}{rest[1:]}"
        fields = {path: arrays[:1] for path, arrays in fields.items()}
    words = re.sub(r"^Where a (?:row|result) differs, (.)", lambda first: first[1].upper(), words)
    for pattern, holds in HOLDS.items():
        if match := re.search(pattern, words):
            return any(_holds(holds, arrays, match.groups()) for arrays in fields.values())
    return None


def _holds(holds, arrays, words) -> bool:
    try:
        return bool(holds(arrays, *words))
    except (IndexError, ValueError):  # arrays of other forms, in another field
        return False


@pytest.mark.sampled
@pytest.mark.parametrize("lesson", lesson_folders())
def test_what_is_said_of_the_museums_numbers_is_true(lesson, selection, record):
    (seed,) = selection.seeds(lesson, by_day=1, full=1)
    false = []
    for name, check in hidden_checks(lesson).items():
        challenge = check.challenge(seed)
        right = record.ask(lesson, {}, check, seed)["evidence"]
        calls = calls_of(lesson, check, challenge)
        for bug in (bug for bug in bugs_of(lesson) if bug.check == f"{lesson}.{name}"):
            reply = record.ask(lesson, bug.answer, check, seed)
            if "evidence" not in reply:
                continue
            for words, *_ in relations_to(right, reply["evidence"], check, challenge, calls):
                both = compared(challenge, right, reply["evidence"])
                if is_true(words, *both) is False:
                    false.append(f"{bug.name}: {words}")
    assert false == []


@pytest.mark.parametrize(
    ("message", "relation", "expected"),
    [
        (
            "Row 1 is 0.5 off. How many (B, T) are there?",
            ("Twice.", "Why?"),
            "Row 1 is 0.5 off. Twice. Why?",
        ),
        ("1 token: wrong. Is 0.5 right?", ("Twice.", "Why?"), "1 token: wrong. Twice. Why?"),
        ("It is 3. Where then? What then?", ("Twice.", "Why?"), "It is 3. Twice. Why?"),
        ("It is 3. What then?", ("Only row 1.", ""), "It is 3. What then? Only row 1."),
        ("It is 3, not 4.", ("Twice.", "Why?"), "It is 3, not 4. Twice. Why?"),
        ("It has no end", ("Twice.", ""), "It has no end. Twice."),
        ("x" * 200, ("Twice.", "Why?"), "x" * 87 + ". Twice. Why?"),
    ],
)
def test_a_message_asks_one_question_which_follows_what_is_known(message, relation, expected):
    assert with_relations(message, [Relation(*relation)], most=100) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], []),
        (["Only head 1 is wrong.", "Twice."], ["Over all cases: only head 1 is wrong.", "Twice."]),
        (["KV head 0 is right."], ["Over all cases: KV head 0 is right."]),
        (["CacheFull is raised."], ["Over all cases: CacheFull is raised."]),
    ],
)
def test_a_relation_is_said_to_hold_for_all_cases(words, expected):
    assert [r.words for r in over_all_cases(list(map(Relation, words)))] == expected


def test_it_is_said_of_which_numbers_a_relation_holds():
    [relation] = over_all_cases([Relation("Right for B = 1.", among="the numbers that differ")])
    assert relation.words == (
        "Over all cases: right for B = 1. That is so of the numbers that differ."
    )


@pytest.mark.parametrize(
    ("sizes", "wrong", "words"),
    [
        ((1, 2, 3, 1, 4, 5), (1,), "Wrong for T = 1, right otherwise."),
        ((0, 1, 2, 3, 1, 5), (2, 3, 5), "Right for T = 0 and 1, wrong for more."),
        ((1, 2, 3, 4, 5, 6), (1,), ""),  # one of six: some size will always tell it
        ((2, 3, 3, 4, 5), (3,), ""),
    ],
)
def test_a_size_is_named_only_if_it_is_no_chance_that_it_tells_right_from_wrong(
    sizes, wrong, words
):
    cases = [{"T": size} for size in sizes]
    right = [np.arange(2.0) for _ in sizes]
    got = [array + (size in wrong) for size, array in zip(sizes, right, strict=True)]
    text = said({"out": right}, {"out": got}, Calls({"cases": cases}, {}))
    assert words in text
    assert bool(words) == ("T = " in text)


@pytest.mark.parametrize(
    ("wrong_shapes", "words"),
    [
        (
            [(1, 2, 4, 5), (1, 3, 5, 5)],
            "Right for several batch rows, wrong for a single batch row.",
        ),
        ([(1, 1, 4, 5), (1, 1, 5, 5)], ""),  # a single head, too: one of the two is chance
    ],
)
def test_an_axis_is_named_only_if_no_other_one_tells_the_same(wrong_shapes, words):
    right = [
        RNG.normal(size=shape) for shape in ((2, 2, 4, 5), (3, 3, 5, 5), (2, 3, 4, 5), (4, 2, 5, 5))
    ]
    wrong = [RNG.normal(size=shape) for shape in wrong_shapes]
    got = [*right, *(RNG.normal(size=array.shape) for array in wrong)]
    assert said({"out": [*right, *wrong]}, {"out": got}) == words


def test_whatever_comes_back_is_no_reason_to_fail():
    check = find("start.flops_of_any_product")
    for reply in (None, [], {}, {"evidence": None}, {"evidence": {"results": [{"value": 1j}]}}):
        assert relations("start", check.name, check.challenge(1), reply) == []


# --- what decides ---------------------------------------------------------------------------------


def test_what_only_words_a_message_is_not_compared(record):
    check = find("gqa.nothing_is_expanded")
    fields, _ = fields_read(check, check.challenge(1), record.ask("gqa", {}, check, 1)["evidence"])
    assert ".calls*.count" in fields
    assert ".calls*.largest" not in fields


@pytest.mark.slow
def test_the_reference_passes_as_what_is_watched(record):
    """A verdict that wants plain types would make all evidence decide again."""
    unwatched = [
        f"{lesson}.{name}"
        for lesson in lesson_folders()
        for name, check in hidden_checks(lesson).items()
        if None
        in fields_read(check, check.challenge(1), record.ask(lesson, {}, check, 1)["evidence"])
    ]
    assert unwatched == []
