"""Known wrong answers to lesson 04: `ragged_mask`."""

from __future__ import annotations

from autograder.lessons.prefill_and_decode.museum import MUSEUM
from course.minigpt import prefill_and_decode as right
from course.minigpt.kv_cache import causal_mask

bug = MUSEUM.section("ragged_mask", check="pads_are_never_seen")


@bug("mask", "a mask that lets tokens see pads")
def mask_shows_pads(n_new, n_visible, n_pads):
    """Causal for every row alike: pads are keys like any others."""
    return causal_mask(n_new, n_visible, n_pads.device).expand(len(n_pads), 1, n_new, n_visible)


@bug("mask", "a mask in which True means hidden")
def mask_swapped(n_new, n_visible, n_pads):
    """True means hidden, as in some other library."""
    return ~right.ragged_mask(n_new, n_visible, n_pads)


_MASKS: dict = {}


@bug("state", "a mask that is kept by its sizes, and found again for other pads", kind="results")
def mask_remembers_sizes(n_new, n_visible, n_pads):
    """The same sizes come in every step of a batch; the pads of the next batch are other ones."""
    key = n_new, n_visible, len(n_pads)
    if key not in _MASKS:
        _MASKS[key] = right.ragged_mask(n_new, n_visible, n_pads)
    return _MASKS[key]
