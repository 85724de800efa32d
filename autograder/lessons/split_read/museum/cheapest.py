"""The cheapest wrong answers to lesson 09 that once got points, see `autograder cheapest`."""

from autograder.lessons.split_read.museum import MUSEUM
from course.fast.paged_tiles import attend_tiles, make_scratch
from course.minigpt.split_read import attend_part, finish, merge

bug = MUSEUM.section("attend_in_parts", check="parts_nobody_sees")


@bug("wiring", "all keys as one part", kind="cheapest")
def one_part(q, k, v, size, mask=None):
    """The size is ignored: one part is all keys, and nothing is ever merged."""
    return finish(attend_part(q, k, v, mask))


bug = MUSEUM.section("attend_blocks", check="blocks_where_they_lie")


@bug("cost", "blocks that are copied into a scratch first", kind="cheapest")
def given_tiles(q, keys, values, table, length):
    """The lesson's own tiles, of one block each: every key is written once more, over the last ones."""
    scratch = make_scratch(keys, 1)
    return attend_tiles(q, keys, values, table, length, scratch, attend_part, merge, finish)
