"""Only plain data crosses the wire, unchanged; whatever claims to be a frame is checked first."""

import ast
import builtins
import contextlib
import json
import pickle
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from submissions import ORDER

from autograder import wire
from autograder.diagnosis.measuring import SEEDS
from autograder.lessons import hidden_checks
from autograder.lessons.exhibits import bugs_of, variants_of
from autograder.lessons.reach import reached_by
from autograder.run_record import Reply, RunRecord
from autograder.wire import LENGTH, WireError, decode, encode
from course.checks.check import Check

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "<f2", "<f4", "<f8"]


def same(a, b) -> bool:
    """Equal in type, shape and every bit; NaN equals NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


def plain_data():
    arrays = st.sampled_from(DTYPES).flatmap(
        lambda code: npst.arrays(np.dtype(code), npst.array_shapes(min_dims=0, min_side=0))
    )
    leaves = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), arrays
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.lists(inner, max_size=4).map(tuple),
            st.dictionaries(st.text(max_size=8), inner, max_size=4),
        ),
        max_leaves=20,
    )


@settings(max_examples=300, deadline=None)
@given(plain_data())
def test_plain_data_comes_back_unchanged(value):
    assert same(decode(encode(value)), value)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_damaged_frame_is_read_as_data_or_refused(data):
    """Whatever is changed in a frame, nothing but a WireError is ever raised."""
    value = {"a": [np.arange(3.0), (1, "x")], "b": np.zeros((2, 0), bool)}
    body = bytearray(encode(value)[LENGTH.size :])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        body = body[: data.draw(st.integers(0, len(body)))] + data.draw(st.binary(max_size=20))
    with contextlib.suppress(WireError):
        encode(decode(LENGTH.pack(len(body)) + body))


def test_arrays_that_lie_otherwise_in_memory_come_back_the_same():
    array = np.arange(24.0).reshape(2, 3, 4)
    for view in (array.T, array[:, ::2], array[::-1], np.asfortranarray(array), array[1, 2, 3:]):
        assert np.array_equal(decode(encode(view)), view)
    back = decode(encode(array))
    back[0] = 1  # a probe may write into what it was given


class LooksLikeFloat(float):
    pass


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"rows": [1, np.int64(2)]}, r"rows\[1\] is a numpy.int64"),
        (np.float64(1), "numpy.float64"),
        ({"n": 10**5000}, "n is an int of more than 4096 bits"),
        (LooksLikeFloat(1), "LooksLikeFloat"),
        ({"text": b"x"}, "text is a builtins.bytes"),
        ({"f": print}, "f is a builtins.builtin_function_or_method"),
        ({1: "x"}, "key that is no str: 1"),
        (np.array([{}]), "array of object"),
        (np.array(["x"]), "array of <U1"),
        (np.zeros(1, "c16"), "array of complex128"),
        (np.zeros(1, "datetime64[s]"), "array of datetime64"),
        (np.zeros(1, [("a", "f4")]), r"array of \[\('a', '<f4'\)\]"),
        (np.zeros(1, ">f4"), "array of >f4"),
        (np.ma.array([1.0]), "MaskedArray"),
        ([[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]], "levels deep"),
    ],
)
def test_what_is_no_plain_data_does_not_cross(value, words):
    with pytest.raises(WireError, match=words):
        encode(value)


def test_too_much_does_not_cross():
    with pytest.raises(WireError, match="1,040 bytes are more than the 1,000"):
        encode(np.zeros(1000, bool), max_bytes=1000)
    with pytest.raises(WireError, match="20,000 arrays"):
        encode([np.zeros(0)] * 20_001)


def frame(*blocks: bytes) -> bytes:
    body = b"".join(LENGTH.pack(len(block)) + block for block in blocks)
    return LENGTH.pack(len(body)) + body


def one(dtype: str = '"<f8"', shape: str = "[1]") -> bytes:
    """The structure of a frame that is one array."""
    return f'{{"array":[{dtype},{shape}]}}'.encode()


ONE, EIGHT = one(), bytes(8)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(LENGTH.pack(0), id="no block"),
        pytest.param(frame(b"1") + b"x", id="more than it says"),
        pytest.param(LENGTH.pack(12) + EIGHT + b"1", id="less than it says"),
        pytest.param(frame(b"1")[:-1], id="cut"),
        pytest.param(LENGTH.pack(9) + LENGTH.pack(2**63) + b"1", id="a block without end"),
        pytest.param(frame(b"{"), id="no JSON"),
        pytest.param(frame(b"\xff\xfe"), id="no UTF-8"),
        pytest.param(frame(b"[" * 100_000), id="deep and open"),
        pytest.param(frame(b"[" * 100_000 + b"]" * 100_000), id="deep"),
        pytest.param(frame(b"9" * 100_000), id="a number of 100,000 digits"),
        pytest.param(frame(b'{"dict":{}, "tuple":[]}'), id="two kinds at once"),
        pytest.param(frame(b'{"list":[]}'), id="a kind that is not there"),
        pytest.param(frame(b'{"tuple":{}}'), id="a tuple of names"),
        pytest.param(frame(b"{}"), id="no kind"),
        pytest.param(frame(ONE), id="an array that is not there"),
        pytest.param(frame(b'{"array":true}', EIGHT), id="an array called true"),
        pytest.param(frame(b'{"array":[]}', EIGHT), id="an array of which nothing is said"),
        pytest.param(
            frame(b'{"array":["<f8",[1],0]}', EIGHT), id="an array of which too much is said"
        ),
        pytest.param(frame(b"1", EIGHT), id="an array of no use"),
        pytest.param(frame(b"[" + ONE + b"," + ONE + b"]", EIGHT), id="two arrays of one block"),
        pytest.param(frame(ONE, b""), id="an empty array block"),
        pytest.param(frame(one('"|O"'), EIGHT), id="objects"),
        pytest.param(frame(one('"<c16"'), EIGHT * 2), id="complex numbers"),
        pytest.param(frame(one('">f8"'), EIGHT), id="bytes the other way round"),
        pytest.param(frame(one('[["a","<f8"]]'), EIGHT), id="fields"),
        pytest.param(frame(one('"<U2"'), EIGHT), id="letters"),
        pytest.param(frame(one("8"), EIGHT), id="a dtype that is a number"),
        pytest.param(frame(one(shape="1"), EIGHT), id="a shape that is a number"),
        pytest.param(frame(one(shape="[1.0]"), EIGHT), id="a size that is no whole number"),
        pytest.param(frame(one(shape="[true]"), EIGHT), id="a size called true"),
        pytest.param(frame(one(shape="[2]"), EIGHT), id="more numbers than bytes"),
        pytest.param(frame(one(shape="[]"), EIGHT * 2), id="more bytes than numbers"),
        pytest.param(frame(one(shape=f"[{2**40}]"), EIGHT), id="10¹² numbers"),
        pytest.param(frame(one(shape=f"[0,{2**40}]"), b""), id="10¹² times nothing"),
        pytest.param(frame(one(shape="[-1,-1]"), EIGHT), id="negative sizes"),
        pytest.param(frame(one(shape=str([1] * 40)), EIGHT), id="40 dimensions"),
    ],
)
def test_a_malformed_frame_is_refused(bad):
    with pytest.raises(WireError):
        decode(bad)


def test_the_frames_of_these_tests_are_good_but_for_the_one_thing():
    assert decode(frame(ONE, EIGHT)) == np.zeros(1)
    assert decode(frame(json.dumps({"tuple": [1]}).encode())) == (1,)


def test_nothing_is_ever_unpickled_or_read_as_code(monkeypatch):
    """Not even where a library would do it for us."""

    def refuse(*_, **__):
        raise AssertionError("unpickled, or read as code")

    for module, name in ((pickle, "loads"), (np, "load"), (ast, "parse"), (builtins, "eval")):
        monkeypatch.setattr(module, name, refuse)
    assert same(decode(encode({"a": np.arange(3)})), {"a": np.arange(3)})
    with pytest.raises(WireError):
        decode(frame(b"1", pickle.dumps(np.array([print]))))


def replies_to(lesson: str, check: Check, seed: int, record: RunRecord) -> Iterator[Reply]:
    """What the reference and all bugs and right styles of a lesson reply that a check reaches, at seeds
    at which other tests ask them, too."""
    for at, exhibits in ((SEEDS[0], bugs_of(lesson)), (seed, variants_of(lesson))):
        for answer in [
            {},
            *(exhibit.answer for exhibit in reached_by(lesson, check.needs, exhibits)),
        ]:
            yield record.ask(lesson, answer, check, at)


@pytest.mark.slow
@pytest.mark.parametrize("lesson", ORDER)
def test_challenges_and_evidence_of_every_check_survive_the_wire(lesson, selection, record):
    """The record keeps frames, so a reply in it has crossed, or says what could not."""
    (seed,) = selection.seeds(lesson, by_day=1, full=1)
    kinds = Counter()
    for check in hidden_checks(lesson).values():
        for challenge in (check.challenge(seed), check.challenge(2**61 + 1)):
            assert same(decode(encode(challenge)), challenge), check.name
        replies = replies_to(lesson, check, seed, record)
        kinds.update(reply["error"]["kind"] if "error" in reply else "" for reply in replies)
        assert kinds["WireError"] == 0, check.name
    assert kinds[""] > kinds.total() / 2


@pytest.mark.parametrize("lesson", ORDER)
def test_the_largest_frame_leaves_room(lesson):
    checks = hidden_checks(lesson)
    largest = max(len(encode(check.challenge(1))) for check in checks.values())
    assert largest < wire.MAX_BYTES / 10
