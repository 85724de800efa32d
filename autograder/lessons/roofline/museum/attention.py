"""Wrong answers to `attention_flops`."""

from __future__ import annotations

import numpy as np

from autograder.lessons.roofline.museum import MUSEUM
from course.minigpt import roofline as right

bug, patch = MUSEUM.section("attention_flops", check="attention_is_causal")

PAIRS = "n_new * n_past + n_new * (n_new + 1) // 2"

# --- who looks at whom ---------------------------------------------------------------------------

patch(
    "prompt_without_a_mask",
    "mask",
    "a count in which new tokens look at tokens that come after them",
    "T · (P + T) looks: every new token sees those after it as well.",
    ("(n_new + 1) // 2", "n_new"),
)
patch(
    "past_is_forgotten",
    "formula",
    "a count in which nobody looks at what was cached",
    "Counts the triangle of the new tokens, and not the block of the cached ones.",
    ("n_new * n_past + ", ""),
)
patch(
    "past_is_seen_once",
    "formula",
    "a count in which each cached token is looked at once, however many are new",
    "P + T(T+1)/2: the block of the cached tokens has T rows.",
    ("n_new * n_past", "n_past"),
)
patch(
    "chunk_forgets_the_past",
    "formula",
    "a count in which several new tokens look at each other alone",
    "One formula for decode, P + 1, and one for a prompt: a chunk after cached tokens is neither.",
    (PAIRS, "n_past + 1 if n_new == 1 else n_new * (n_new + 1) // 2"),
)
patch(
    "blind_to_itself",
    "off by one",
    "a count in which a token does not look at itself",
    "T(T-1)/2: a token does not look at itself.",
    ("n_new + 1", "n_new - 1"),
)
patch(
    "half_a_square",
    "off by one",
    "a count in which half of a square stands for a triangle with its diagonal",
    "T²/2: the diagonal is cut in half.",
    ("(n_new + 1) // 2", "n_new // 2"),
)
patch(
    "half_a_square_and_halves",
    "off by one",
    "a count in which half of a square, halves included, stands for a triangle with its diagonal",
    "T · T / 2 as a float: the diagonal is cut in half, and every odd T leaves a half.",
    ("n_new * (n_new + 1) // 2", "n_new * n_new / 2"),
)
patch(
    "sees_itself_twice",
    "off by one",
    "a count in which a token looks at itself twice",
    "T(P + 1) and the triangle: its diagonal is there already.",
    ("n_new * n_past", "n_new * (n_past + 1)"),
)
patch(
    "last_token_stands_for_all",
    "formula",
    "a count in which only one of the new tokens looks",
    "P + T looks, right for one new token.",
    (PAIRS, "n_past + n_new"),
)
patch(
    "always_one_new_token",
    "formula",
    "a count of one new token, however many there are",
    "P + 1 looks: decode, whatever is asked.",
    (PAIRS, "n_past + 1"),
)
patch(
    "cached_tokens_look_again",
    "formula",
    "a count in which the cached tokens look once more",
    "The triangle of the whole text: as if nothing had been cached.",
    (PAIRS, "(n_past + n_new) * (n_past + n_new + 1) // 2"),
)
patch(
    "everyone_looks_at_everyone",
    "mask",
    "a count in which all tokens, cached ones as well, look at all",
    "(P + T)²: a square of scores, without cache and without mask.",
    (PAIRS, "(n_past + n_new) ** 2"),
)
patch(
    "half_of_the_past_is_hidden",
    "mask",
    "a count in which the mask hides half of the cached tokens as well",
    "T(P + T + 1)/2: one pair of brackets for block and triangle.",
    (PAIRS, "n_new * (n_past + n_new + 1) // 2"),
)
patch(
    "new_and_cached_exchanged",
    "formula",
    "a count in which cached tokens are taken for new ones, and new ones for cached ones",
    "The names of the two numbers, exchanged.",
    (PAIRS, "n_past * n_new + n_past * (n_past + 1) // 2"),
)
patch(
    "batch_is_one_text",
    "mask",
    "a count in which the rows of a batch look at each other",
    "Takes B · T for the new tokens of one text.",
    (PAIRS, "batch * n_new * n_past + batch * n_new * (batch * n_new + 1) // 2"),
    ("return batch * ", "return "),
)

# --- what a look costs, and how often ------------------------------------------------------------

patch(
    "half_of_every_look",
    "formula",
    "half of what attention costs: scores without values, or a multiply-add as one operation",
    "Counts q · k alone, or one operation where a product is added to a sum.",
    ("4 *", "2 *"),
)
patch(
    "quarter_of_every_look",
    "formula",
    "a count of one operation for each number of a key",
    "Neither the additions nor the values.",
    ("4 *", "1 *"),
)
patch(
    "key_heads_ask",
    "formula",
    "a count in which only as many heads ask as there are key heads",
    "G heads in place of H: sharing keys saves bytes, not arithmetic.",
    ("n_heads", "n_kv_heads"),
)
patch(
    "values_are_shared_work",
    "formula",
    "a count in which heads that share a value take their shares of it once",
    "H heads for the scores, G for the values.",
    ("pairs * 4 * config.head_dim", "pairs * 2 * config.head_dim"),
    ("config.n_heads", "(config.n_heads + config.n_kv_heads)"),
)
patch(
    "heads_as_wide_as_the_model",
    "formula",
    "a count in which every head is as wide as the model",
    "C in place of D: the heads are counted twice.",
    ("config.head_dim", "config.d_model"),
)
patch(
    "heads_as_wide_as_a_group",
    "formula",
    "a count in which the model's width is cut into as many parts as there are key heads",
    "C // G in place of C // H.",
    ("config.head_dim", "(config.d_model // config.n_kv_heads)"),
)
patch(
    "one_layer_of_attention",
    "formula",
    "a count of the attention of one layer alone",
    "Forgets that each layer attends.",
    ("config.n_layers * ", ""),
)
patch(
    "one_row_of_attention",
    "formula",
    "a count of one row, whatever the batch",
    "Takes the argument and does not use it.",
    ("batch * config", "config"),
    kind="batch",
)
patch(
    "projections_come_along",
    "formula",
    "a count with the matrices of attention in it",
    "Adds q, k, v and the output, which are products like others.",
    (
        "pairs * 4 * config.head_dim",
        "(pairs * 4 * config.head_dim + 8 * n_new * config.d_model * config.head_dim)",
    ),
)
patch(
    "two_rows_by_default",
    "arguments",
    "a count of two rows where no batch was asked for",
    "The default of the signature was changed while a batch was tried.",
    ("batch: int = 1", "batch: int = 2"),
)

# --- large numbers, and numbers that are kept ----------------------------------------------------

patch(
    "attention_up_to_the_models_length",
    "capacity",
    "a count that ends where the model's texts end",
    "No text is longer than max_seq_len; but nothing is run here.",
    ("n_new * n_past", "n_new * min(n_past, config.max_seq_len)"),
    kind="sizes",
)
patch(
    "attention_of_4096_tokens",
    "capacity",
    "a count that goes no further than some number of tokens",
    "A buffer, or a table of sums, of 4,096 places: the usual length when this was written.",
    (PAIRS, "min(n_new, 4096) * n_past + min(n_new, 4096) * (min(n_new, 4096) + 1) // 2"),
    kind="sizes",
)
SEEN = {}


@bug("state", "numbers that are kept from another call", kind="results")
def keeps_counts_by_tokens(config, n_new, n_past, batch=1):
    """A dict of results whose keys are T and P: another model or batch gets the first one's number."""
    if (n_new, n_past) not in SEEN:
        SEEN[n_new, n_past] = right.attention_flops(config, n_new, n_past, batch)
    return SEEN[n_new, n_past]


@bug("form", "a count in whole numbers of 32 bits", kind="sizes")
def counts_in_32_bits(config, n_new, n_past, batch=1):
    """np.int32, or a C compiler's int: beyond 2**31 it begins anew below 0."""
    return (right.attention_flops(config, n_new, n_past, batch) + 2**31) % 2**32 - 2**31


@bug("form", "a count in float32, which keeps seven digits", kind="sizes")
def counts_in_float32(config, n_new, n_past, batch=1):
    """torch.tensor of floats: beyond 2**24 not every whole number is there."""
    return float(np.float32(right.attention_flops(config, n_new, n_past, batch)))
