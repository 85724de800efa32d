"""Lesson 09: what is refused at the door, and what a student reads whose answer is wrong."""

import pytest
import torch

from autograder.lessons.assembly import assemble
from autograder.lessons.exhibits import bugs_of
from course.checks import split_read as checks
from course.checks.check import checks_in
from course.given.parts import Part
from course.minigpt.split_read import (
    attend_blocks,
    attend_in_parts,
    attend_part,
    attend_shared,
    finish,
    merge,
)

q, (k, v) = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 2, 5, 8)
part, other = attend_part(q, k, v), attend_part(q[:, :, :2], k, v)
newest, blocks = q[:1, :, :1], torch.randn(6, 2, 4, 8)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        pytest.param(lambda: attend_part(q, k[:, :, :0], v[:, :, :0]), "0", id="no key"),
        pytest.param(lambda: attend_part(q, k, v[:, :, 1:]), "4, 8", id="values of other keys"),
        pytest.param(lambda: attend_part(q, k, v, torch.ones(3, 5)), "float32", id="no mask"),
        pytest.param(lambda: merge(part, other), "2, 8", id="other queries"),
        pytest.param(lambda: merge(part, Part(*part[:2], part.out)), "total", id="a wide total"),
        pytest.param(lambda: finish(Part(part.out, part.top[0], part.total)), "top", id="no batch"),
        pytest.param(lambda: attend_in_parts(q, k, v, 0), "size", id="size 0"),
        pytest.param(lambda: attend_in_parts(q, k, v, 2.0), "2.0", id="half a size"),
        pytest.param(
            lambda: attend_in_parts(q, k, v, 2, torch.ones(3, 1, dtype=torch.bool)),
            "S = 5",
            id="a mask that cannot be cut",
        ),
        pytest.param(
            lambda: attend_blocks(newest, blocks, blocks, [3, 1], 9), "3 blocks", id="a short table"
        ),
        pytest.param(
            lambda: attend_blocks(newest, blocks, blocks, [3, 6], 8), "got 6", id="no such block"
        ),
        pytest.param(
            lambda: attend_blocks(newest, blocks, blocks, [3], 0), "length", id="no token"
        ),
        pytest.param(
            lambda: attend_blocks(newest, blocks, blocks[:5], [3], 4), "5, 2, 4", id="other values"
        ),
        pytest.param(
            lambda: attend_blocks(q[:, :, :1], blocks, blocks, [3], 4), "2, G", id="two rows"
        ),
        pytest.param(lambda: attend_shared(q, k[:1], v[:1], k, v), "one new", id="three tokens"),
        pytest.param(
            lambda: attend_shared(q[:, :, :1], k, v, k, v), "1, G, S, 8", id="two prefixes"
        ),
        pytest.param(
            lambda: attend_shared(q[:, :, :1], k[:1, :1], v[:1, :1], k, v), "1 KV", id="other heads"
        ),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(call, names):
    with pytest.raises(ValueError, match=names):
        call()


@pytest.mark.parametrize(
    ("bug", "check", "said"),
    [
        ("part_minus_infinity_from_itself", "parts_say_their_sums", "sees none of the keys"),
        ("part_with_one_top_for_the_group", "parts_say_their_sums", "heads before it are right"),
        ("part_of_the_first_row", "parts_say_their_sums", "rows before it are right"),
        ("part_repeats_its_keys", "parts_say_their_sums", "keys or values once more"),
        ("adds_without_fading", "any_cut_any_order", "equal tops agree"),
        ("finishes_without_the_total", "any_cut_any_order", "Nothing was merged yet"),
        ("merges_plain_sums", "far_apart_scores", "how large may it become"),
        ("merges_into_the_first", "inputs_stay", "a.out is another"),
        ("part_minus_infinity_from_itself", "parts_nobody_sees", "Where does NaN come up"),
        ("merges_minus_infinity_from_itself", "parts_nobody_sees", "neither part saw a key"),
        ("mask_for_the_first_part_alone", "parts_nobody_sees", "columns of the mask"),
        ("leaves_the_last_part_out", "parts_nobody_sees", "the last ones too"),
        ("reads_all_at_once", "nothing_large_is_made", "all S keys at once"),
        ("pads_to_whole_parts", "nothing_large_is_made", "keys or values once more"),
        ("last_block_to_its_end", "blocks_where_they_lie", "belongs to nobody"),
        ("gathers_the_blocks", "blocks_where_they_lie", "before they are read"),
        ("chats_and_heads_mixed", "prefix_is_read_once", "Whose queries stand where"),
        ("copies_the_prefix", "prefix_is_read_once", "20 times"),
    ],
)
def test_a_message_asks_about_what_went_wrong(bug, check, said):
    (answer,) = (known.answer for known in bugs_of("split_read") if known.name == bug)
    verdict = checks_in(checks)[check].judge(assemble("split_read", answer), seed=0)
    assert verdict.score < 1
    assert said in verdict.message
