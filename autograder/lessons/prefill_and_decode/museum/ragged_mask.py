"""Known wrong answers to lesson 04: `ragged_mask`."""

from __future__ import annotations

from autograder.lessons.prefill_and_decode.museum import MUSEUM
from course.minigpt import prefill_and_decode as right
from course.minigpt.kv_cache import causal_mask

bug, patch = MUSEUM.section("ragged_mask", check="pads_are_never_seen")


@bug("mask", "a mask that lets tokens see pads")
def mask_shows_pads(n_new, n_visible, n_pads):
    """Causal for every row alike: pads are keys like any others."""
    return causal_mask(n_new, n_visible).expand(len(n_pads), 1, n_new, n_visible)


@bug("mask", "a mask in which True means hidden")
def mask_swapped(n_new, n_visible, n_pads):
    """True means hidden, as in some other library."""
    return ~right.ragged_mask(n_new, n_visible, n_pads)


patch(
    "mask_shows_one_pad",
    "off by one",
    "a mask that hides one pad too few",
    "One pad too few is hidden.",
    ("n_pads.view", "(n_pads - 1).view"),
)
patch(
    "mask_hides_the_first_token",
    "off by one",
    "a mask that hides the first token of each text",
    "Greater in place of greater or equal: each text loses its first token.",
    ("places >= n_pads", "places > n_pads"),
)
patch(
    "mask_hides_the_right",
    "mask",
    "a mask that hides the right end, as if the pads were there",
    "The pads are looked for at the right end.",
    ("places >= n_pads", "places < n_visible - n_pads"),
)
patch(
    "mask_shows_the_future",
    "mask",
    "a mask that hides pads and shows the future",
    "The pads are hidden and the triangle is forgotten.",
    ("causal_mask(n_new, n_visible, n_pads.device) & token", "token"),
)
patch(
    "mask_of_two_phases",
    "mask",
    "a mask for whole prompts and single tokens, and for no chunk between",
    "A triangle for the prefill, everything for a step, and nobody thought of chunks.",
    (
        "causal_mask(n_new, n_visible, n_pads.device)",
        "torch.ones(n_new, n_visible).tril(0 if n_new > 1 else n_visible).bool()",
    ),
)
patch(
    "mask_of_one_row",
    "mask",
    "one mask for all rows",
    "One mask for all rows, by the shortest prompt.",
    ("n_pads.view(-1,", "n_pads.max().expand(len(n_pads),"),
)
patch(
    "mask_without_heads",
    "form",
    "a mask that has no axis for the heads",
    "(B, T, S): the axis of the heads is missing.",
    ("view(-1, 1, 1, 1)", "view(-1, 1, 1)"),
)
patch(
    "mask_is_float",
    "form",
    "a mask of numbers to be added to scores, where bool was asked for",
    "0 and -inf, as another library adds them.",
    (
        "return causal_mask(n_new, n_visible, n_pads.device) & token | itself",
        "seen = causal_mask(n_new, n_visible, n_pads.device) & token | itself\n"
        "    return torch.zeros(seen.shape).masked_fill(~seen, -math.inf)",
    ),
    kind="dtype",
)
patch(
    "mask_at_the_left_edge",
    "mask",
    "a mask whose triangle stands at the left edge",
    "tril() of (T, S): the new places are taken for the first ones, cached tokens are hidden.",
    (
        "causal_mask(n_new, n_visible, n_pads.device)",
        "torch.ones(n_new, n_visible, dtype=torch.bool).tril()",
    ),
)
patch(
    "mask_shows_itself_at_the_left",
    "mask",
    "a mask whose diagonal stands at the left edge",
    "eye(T, S) for `itself`: the new places are taken for the first ones, so pads are shown.",
    ("places == places[-n_new:].unsqueeze(1)", "torch.eye(n_new, n_visible, dtype=torch.bool)"),
)
patch(
    "mask_of_the_first_row",
    "mask",
    "the pads of row 0, for all rows",
    "n_pads[0] for everybody: right where all rows are equally long.",
    ("n_pads.view(-1,", "n_pads[0].expand(len(n_pads),"),
    kind="batch",
)
patch(
    "mask_shows_the_first_place_too",
    "mask",
    "a mask that shows everyone the first place, pad or not",
    "Column 0 is opened against NaN, beside the diagonal: where it is a pad, tokens see a pad.",
    ("| itself", "| itself | (places == 0)"),
)
patch(
    "mask_shows_the_first_place",
    "mask",
    "a mask that shows everyone the first place, so that no row is empty",
    "Column 0 is opened against NaN: where it is a pad, tokens see a pad.",
    ("| itself", "| (places == 0)"),
)
patch(
    "mask_shows_everything_in_steps",
    "mask",
    "a mask that forgets the pads in a step",
    "For one new place everything is visible, one thinks: the pads are, too.",
    ("& token |", "& (token if n_new > 1 else torch.ones_like(token)) |"),
)
patch(
    "mask_hides_pads_in_the_prompt_alone",
    "mask",
    "a mask that hides pads only while there is nothing in the cache",
    "The pads belong to the prompt, one thinks; in later chunks they are shown.",
    ("& token |", "& (token if n_new == n_visible else torch.ones_like(token)) |"),
)
patch(
    "mask_without_an_own_axis_for_rows",
    "form",
    "one row of a mask for a whole batch that has no pads",
    "Without pads a mask that broadcasts will do, one thinks: (1, 1, T, S).",
    (
        "    places = torch",
        "    if not n_pads.any():\n"
        "        return causal_mask(n_new, n_visible)[None, None]\n"
        "    places = torch",
    ),
    kind="batch",
)
patch(
    "mask_up_to_4096",
    "capacity",
    "a mask of at most 4,096 places",
    "A table of places is made once, as long as seemed enough.",
    ("torch.arange(n_visible, device=n_pads.device)", "torch.arange(4096)[:n_visible]"),
    kind="sizes",
)


_MASKS: dict = {}


@bug("state", "a mask that is kept by its sizes, and found again for other pads", kind="results")
def mask_remembers_sizes(n_new, n_visible, n_pads):
    """The same sizes come in every step of a batch; the pads of the next batch are other ones."""
    key = n_new, n_visible, len(n_pads)
    if key not in _MASKS:
        _MASKS[key] = right.ragged_mask(n_new, n_visible, n_pads)
    return _MASKS[key]


patch(
    "mask_counts_pads_among_new_places",
    "mask",
    "a mask that hides the pads among the new places, and shows those before them",
    "The pads are counted among the T new places, although they are the first of the S.",
    ("places >= n_pads", "places - (n_visible - n_new) >= n_pads"),
)
patch(
    "mask_of_an_early_chunk_is_empty",
    "mask",
    "a mask in which the pads of a chunk that holds nothing else see nothing",
    "Each pad is shown the first token of its row, and an early chunk has none yet.",
    (
        "itself = places == places[-n_new:].unsqueeze(1)",
        "pads = n_pads.view(-1, 1, 1, 1)\n"
        "    itself = (places[-n_new:].unsqueeze(1) < pads) & (places == pads)",
    ),
    kind="sizes",
)
patch(
    "mask_clamps_the_pads",
    "arguments",
    "a tensor of pads that was written into",
    "n_pads is clamped in place to what is visible, and the caller needs it for the next chunk.",
    ("    places = torch", "    n_pads.clamp_(max=n_visible)\n    places = torch"),
    kind="arguments",
)

patch(
    "mask_shows_pads_the_first_token",
    "mask",
    "pads that look at the first token of their row, which an early chunk does not have",
    "Each pad is shown the first token; where a row has nothing but pads, no such place is there.",
    (
        "itself = places == places[-n_new:].unsqueeze(1)",
        "places[n_pads]\n"
        "    pads = n_pads.view(-1, 1, 1, 1)\n"
        "    itself = (places[-n_new:].unsqueeze(1) < pads) & (places == pads)",
    ),
    kind="sizes",
)

bug, patch = MUSEUM.section("ragged_mask", check="each_row_equals_itself_alone")
patch(
    "mask_of_pads_is_empty",
    "mask",
    "a mask in which pads see nothing at all, and whose NaN then reach the tokens",
    "No pad sees anything: NaN, and by the next layer for everyone.",
    (" | itself", ""),
)
