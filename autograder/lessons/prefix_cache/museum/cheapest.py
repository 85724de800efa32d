"""Known wrong answers to lesson 15: the cheapest that somebody may hand in."""

from __future__ import annotations

from autograder.lessons.prefix_cache.museum import MUSEUM

bug = MUSEUM.section("admit", check="admits_or_changes_nothing")


@bug("wiring", "nothing that is known, and no room", kind="cheapest")
def admits_everybody(tree, cache, prompt, n_new, promised=0):
    """Everybody may start, with nothing."""
    return 0


bug = MUSEUM.section("order_by_prefix", check="known_first_late_before_all")


@bug("wiring", "the queue as it is", kind="cheapest")
def orders_nothing(tree, waiting, now, max_wait):
    """First come, first served."""
    return list(waiting)


bug = MUSEUM.section("slowest_link", check="dearer_than_computing")


@bug("formula", "a number that no link reaches", kind="cheapest")
def no_link_is_fast_enough(config, n_prompt, n_known, machine, bytes_per_element=2):
    """Computing is always faster."""
    return float("inf")
