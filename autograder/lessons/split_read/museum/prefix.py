"""Known wrong answers to lesson 09: one prefix for many chats."""

from __future__ import annotations

import torch

from autograder.lessons.split_read.museum import MUSEUM
from course.given.parts import Part
from course.minigpt.split_read import attend_part, finish, merge

CHATS = "chats = attend_part(q.transpose(0, 2), prefix_k, prefix_v)"
BACK = "prefix = Part(*(x.transpose(0, 2) for x in chats))"
BOTH = "finish(merge(prefix, attend_part(q, own_k, own_v)))"

bug, patch = MUSEUM.section("attend_shared", check="prefix_is_read_once")

patch(
    "chats_and_heads_mixed",
    "head order",
    "chats and heads that are mixed on the way to the prefix and back",
    "A view as (1, H, B, D): no number moves, and head 1 of chat 0 stands where chat 1 should.",
    (
        CHATS,
        "B, H, _, D = q.shape\n    chats = attend_part(q.reshape(1, H, B, D), prefix_k, prefix_v)",
    ),
    (BACK, "prefix = Part(*(x.reshape(B, H, 1, -1) for x in chats))"),
)
patch(
    "chats_mixed_on_the_way_back",
    "head order",
    "chats and heads that are mixed on the way back",
    "Turned on the way in, and only viewed on the way out.",
    (BACK, "prefix = Part(*(x.reshape(len(q), q.shape[1], 1, -1) for x in chats))"),
)
patch(
    "own_part_forgotten",
    "wiring",
    "the prefix alone, without each chat's own tokens",
    "The second part is never made.",
    (BOTH, "finish(prefix)"),
)
patch(
    "prefix_forgotten",
    "wiring",
    "each chat's own tokens alone, without the prefix",
    "The first part is made, and not merged.",
    (BOTH, "finish(attend_part(q, own_k, own_v))"),
)
patch(
    "finished_before_they_meet",
    "softmax",
    "the mean of what prefix and own tokens give alone",
    "Both are finished, and averaged.",
    (BOTH, "(finish(prefix) + finish(attend_part(q, own_k, own_v))) / 2"),
)
patch(
    "prefix_of_the_first_chat",
    "wiring",
    "what the first chat reads of the prefix, for all chats",
    "The prefix has one row, and so has its query.",
    (CHATS, "chats = attend_part(q[:1].transpose(0, 2), prefix_k, prefix_v)"),
    (
        BACK,
        "prefix = Part(*(x.transpose(0, 2).expand(len(q), -1, -1, -1) for x in chats))",
    ),
    kind="batch",
)
patch(
    "own_tokens_of_the_first_chat",
    "wiring",
    "the first chat's own tokens for all chats",
    "own_k[:1]: tried with a batch of one.",
    (
        "attend_part(q, own_k, own_v)",
        "attend_part(q, own_k[:1].expand_as(own_k), own_v[:1].expand_as(own_v))",
    ),
    kind="batch",
)
patch(
    "chats_see_each_others_own_tokens",
    "wiring",
    "own tokens of the chat before",
    "A roll in the wrong direction: rows are off by one.",
    ("attend_part(q, own_k, own_v)", "attend_part(q, own_k.roll(1, 0), own_v.roll(1, 0))"),
)


@bug("cost", "a prefix that is copied for each chat", kind="cost")
def copies_the_prefix(q, prefix_k, prefix_v, own_k, own_v):
    """expand() and cat(): the same numbers, and a prefix for each chat in memory."""
    B = len(q)
    k, v = (
        torch.cat([prefix.expand(B, -1, -1, -1), own], dim=2)
        for prefix, own in ((prefix_k, own_k), (prefix_v, own_v))
    )
    return finish(attend_part(q, k, v))


@bug("cost", "a prefix that is expanded for the chats, and read for each", kind="cost")
def expands_the_prefix(q, prefix_k, prefix_v, own_k, own_v):
    """expand() copies nothing, but every chat's product reads all of it."""
    B = len(q)
    prefix = attend_part(q, prefix_k.expand(B, -1, -1, -1), prefix_v.expand(B, -1, -1, -1))
    return finish(merge(prefix, attend_part(q, own_k, own_v)))


@bug("cost", "a prefix that is read chat by chat", kind="cost")
def reads_the_prefix_chat_by_chat(q, prefix_k, prefix_v, own_k, own_v):
    """A loop over the chats."""
    parts = [attend_part(row, prefix_k, prefix_v) for row in q.split(1)]
    prefix = Part(*(torch.cat(same) for same in zip(*parts, strict=True)))
    return finish(merge(prefix, attend_part(q, own_k, own_v)))
