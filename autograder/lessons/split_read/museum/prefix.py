"""Known wrong answers to lesson 09: one prefix for many chats."""

from __future__ import annotations

import torch

from autograder.lessons.split_read.museum import MUSEUM
from course.given.parts import Part
from course.minigpt.split_read import attend_part, finish, merge

bug = MUSEUM.section("attend_shared", check="prefix_is_read_once")


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
