"""Known wrong answers to lesson 14: the cheapest that somebody may hand in."""

from __future__ import annotations

import torch

from autograder.lessons.sparse_read.museum import MUSEUM
from course.minigpt import sparse_read as right

bug = MUSEUM.section("attend_pages", check="chosen_pages_alone")


@bug("wiring", "attention to all rows, whatever was chosen", kind="cheapest")
def attends_to_all(q, k, v, pages, size):
    """The list is not used."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


bug = MUSEUM.section("choose", check="newest_and_best")


@bug("choice", "the newest n, whatever their scores", kind="cheapest")
def chooses_the_newest(scores, n, newest):
    """A window: nothing is chosen."""
    B, G, P = scores.shape
    return torch.arange(max(0, P - n), P).expand(B, G, -1).clone()


bug = MUSEUM.section("page_scores", check="bound_is_tight")


@bug("formula", "a number that no score reaches", kind="cheapest")
def scores_above_everything(q, least, largest):
    """The sum of the magnitudes of q times the largest of the page, for all pages."""
    return (
        right.page_scores(q, least, largest).amax(-1, keepdim=True).expand(*least.shape[:3]).clone()
    )
