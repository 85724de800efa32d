"""Known wrong answers to lesson 04: `ragged_positions`."""

from __future__ import annotations

from autograder.lessons.prefill_and_decode.museum import MUSEUM

bug, patch = MUSEUM.section("ragged_positions", check="positions_count_own_tokens")
patch(
    "positions_count_pads",
    "position",
    "positions that count the pads, too",
    "The place in the row is taken for the position. Rotary forgives it; learned positions do not.",
    ("n_pads.unsqueeze(1)", "0 * n_pads.unsqueeze(1)"),
)
patch(
    "positions_count_pads_in_steps",
    "position",
    "positions that jump by the number of pads after the prefill",
    "The prefill counts tokens, and then len(cache) is the position: a jump by the pads.",
    ("n_pads.unsqueeze(1)", "n_pads.unsqueeze(1) * (n_new == n_visible)"),
)
patch(
    "positions_restart",
    "position",
    "positions that start anew in every call",
    "arange(T) less the pads: every call starts anew.",
    ("torch.arange(n_visible - n_new, n_visible,", "torch.arange(n_new,"),
)
patch(
    "positions_from_one",
    "off by one",
    "positions that begin at one",
    "The first token has position 1.",
    ("n_pads.unsqueeze(1)", "n_pads.unsqueeze(1) + 1"),
)
patch(
    "positions_below_zero",
    "position",
    "pads with negative positions",
    "The pads get negative positions, and a negative index reads the table from its end.",
    (".clamp(min=0)", ""),
)
patch(
    "positions_add_pads",
    "position",
    "positions to which the pads are added",
    "A plus for a minus: the more pads, the further on.",
    ("places - n_pads", "places + n_pads"),
)
patch(
    "positions_by_the_first_row",
    "position",
    "the pads of row 0, for all rows",
    "n_pads[0] for everybody: right where all rows are equally long.",
    ("n_pads.unsqueeze(1)", "n_pads[:1].expand(len(n_pads)).unsqueeze(1)"),
    kind="batch",
)
patch(
    "positions_count_pads_in_prompts",
    "position",
    "positions that count the pads in a prompt, and not in a step",
    "The first call takes places as they are; the steps count tokens: a jump back by the pads.",
    ("n_pads.unsqueeze(1)", "n_pads.unsqueeze(1) * (n_new == 1)"),
)
patch(
    "positions_one_further_in_steps",
    "off by one",
    "a step that stands one further than it should",
    "The number of tokens is taken for the position of the last one.",
    ("n_pads.unsqueeze(1)", "n_pads.unsqueeze(1) + (n_new == 1)"),
)
patch(
    "positions_of_pads_and_tokens_from_one",
    "off by one",
    "positions that all begin at one, those of pads as well",
    "One is added at the end.",
    (".clamp(min=0)", ".clamp(min=0) + 1"),
)
patch(
    "positions_clamped_to_one",
    "off by one",
    "a first token that shares position 1 with the second",
    "clamp(min=1): 0 is taken for a place that no token has.",
    (".clamp(min=0)", ".clamp(min=1)"),
)
patch(
    "positions_count_pads_of_a_single_token",
    "position",
    "a single new token whose position counts the pads",
    "For one token len(cache) is the position, one thinks; chunks are right.",
    ("n_pads.unsqueeze(1)", "n_pads.unsqueeze(1) * (n_new > 1)"),
)
patch(
    "positions_count_new_tokens",
    "position",
    "positions that count only the tokens of this call",
    "cumsum over the new places alone: what is cached is not counted.",
    (
        "(places - n_pads.unsqueeze(1)).clamp(min=0)",
        "((places >= n_pads.unsqueeze(1)).long().cumsum(dim=1) - 1).clamp(min=0)",
    ),
)
patch(
    "positions_of_pads_at_the_end",
    "position",
    "pads at a position behind the last one",
    "Pads are put out of the way, where the table has no row.",
    (
        "(places - n_pads.unsqueeze(1)).clamp(min=0)",
        "(places - n_pads.unsqueeze(1)).masked_fill(places < n_pads.unsqueeze(1), n_visible)",
    ),
)
patch(
    "positions_mirror_pads",
    "position",
    "pads that count backwards, past the end of an early chunk",
    "abs() against negative positions: a row with more pads than places runs out of the table.",
    (".clamp(min=0)", ".abs()"),
    kind="sizes",
)
patch(
    "positions_in_int32",
    "form",
    "positions that are not int64",
    "A smaller type to save memory.",
    (".clamp(min=0)", ".clamp(min=0).int()"),
    kind="dtype",
)
patch(
    "positions_with_an_axis_for_heads",
    "form",
    "positions with an axis too many",
    "(B, 1, T), as the mask has it.",
    (".clamp(min=0)", ".clamp(min=0).unsqueeze(1)"),
)
patch(
    "positions_of_one_row_without_pads",
    "form",
    "positions without a row axis where no row has pads",
    "Without pads one row of positions will do, one thinks.",
    (
        "    return (places",
        "    if not n_pads.any():\n        return places\n    return (places",
    ),
    kind="batch",
)
patch(
    "positions_up_to_4096",
    "capacity",
    "positions from a table of 4,096",
    "A table of places is made once, as long as seemed enough.",
    (
        "torch.arange(n_visible - n_new, n_visible, device=n_pads.device)",
        "torch.arange(4096)[n_visible - n_new : n_visible]",
    ),
    kind="sizes",
)
patch(
    "positions_turn_the_pads_around",
    "arguments",
    "a tensor of pads that was written into",
    "neg_() saves a tensor, and the caller's pads are negative afterwards.",
    ("places - n_pads.unsqueeze(1)", "places + n_pads.neg_().unsqueeze(1)"),
    kind="arguments",
)
patch(
    "positions_of_pads_are_one",
    "position",
    "pads at position 1, which a single place does not have",
    "Pads get the number 1, as in other tokenizers; where S is 1 there is no such position.",
    (
        "(places - n_pads.unsqueeze(1)).clamp(min=0)",
        "(places - n_pads.unsqueeze(1)).masked_fill(places < n_pads.unsqueeze(1), 1)",
    ),
    kind="sizes",
)
