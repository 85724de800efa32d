"""Known wrong answers to lesson 07: `quantized_cache_bytes`."""

from __future__ import annotations

from autograder.lessons.quantized_cache.museum import MUSEUM

bug, patch = MUSEUM.section("quantized_cache_bytes", check="bytes_match_codes_scales_window")

patch(
    "bytes_without_scales",
    "formula",
    "bytes without any scales",
    "Four bits are half a byte, so the bill is a quarter: the scales are forgotten.",
    ("heads * n_groups * (config.head_dim + group) * bytes_per_element", "0"),
)
patch(
    "bytes_without_window",
    "formula",
    "bytes without the window",
    "The window is forgotten.",
    ("heads * recent * config.head_dim * bytes_per_element", "0"),
)
patch(
    "bytes_of_a_quantized_window",
    "formula",
    "bytes of a window that is billed as codes",
    "The window is billed as if it were codes.",
    ("recent * config.head_dim * bytes_per_element", "recent * config.head_dim * bits // 8"),
)
patch(
    "bytes_with_the_window_twice",
    "formula",
    "bytes in which the window's tokens are billed twice",
    "Every token has codes in this bill, also those of the window.",
    ("codes=heads * n_groups * group *", "codes=heads * n_tokens *"),
)
patch(
    "bytes_of_a_full_window_only",
    "formula",
    "bytes without room for a group that is not complete",
    "The tokens of a group that is not complete yet have no room in this bill.",
    ("min(n_tokens, window + group - 1)", "min(n_tokens, window)"),
)
patch(
    "bytes_of_keys_only",
    "formula",
    "bytes of keys or of values, but not of both",
    "Keys or values, but not both.",
    ("heads = 2 * config.n_layers", "heads = config.n_layers"),
)
patch(
    "bytes_without_zeros",
    "formula",
    "bytes of steps without their zeros",
    "Each step is billed, and the zero that it needs is not.",
    ("group) * bytes_per_element", "group) * bytes_per_element // 2"),
)
patch(
    "bytes_with_scales_by_token",
    "formula",
    "bytes of keys with a step for each token",
    "Keys are billed a step a token, as values are.",
    ("(config.head_dim + group)", "2 * group"),
)
patch(
    "bytes_of_a_byte_a_code",
    "formula",
    "bytes in which every code has one, whatever its bits",
    "bits is not used: a code is billed a byte.",
    (" * bits // 8", ""),
)
patch(
    "bytes_of_query_heads",
    "head order",
    "bytes of as many heads as there are queries",
    "n_heads where n_kv_heads belongs.",
    ("config.n_kv_heads", "config.n_heads"),
)
patch(
    "bytes_of_one_row",
    "formula",
    "bytes of a single batch row",
    "The batch is forgotten.",
    ("config.n_layers * batch *", "config.n_layers *"),
)
patch(
    "bytes_of_cut_groups",
    "formula",
    "bytes in which groups that are not complete are codes",
    "Tokens outside the window are billed as codes, also those whose group is not complete.",
    ("codes=heads * n_groups * group *", "codes=heads * max(0, n_tokens - window) *"),
)
patch(
    "bytes_of_less_than_no_group",
    "off by one",
    "bytes of a text shorter than the window, of which groups are taken away",
    "What is shorter than the window has no group; here it has fewer than none.",
    ("max(0, n_tokens - window) // group", "(n_tokens - window) // group"),
)
patch(
    "bytes_of_one_group_at_least",
    "off by one",
    "bytes of a group that a short text does not have",
    "In groups of one token, a text shorter than the window is billed a group.",
    ("max(0, n_tokens", "max(1, n_tokens"),
)
patch(
    "bytes_of_4_bits_by_default",
    "arguments",
    "bytes of 4-bit codes where no bits were asked for",
    "The default of the signature was changed to what is stored most often.",
    ("bits: int = 8", "bits: int = 4"),
)
BILL = "heads * n_groups * (config.head_dim + group) * bytes_per_element"
for name, mistake, story, *edits in (
    (
        "bytes_with_scales_by_channel",
        "bytes of values with a step for each channel",
        "Values are billed a step a channel, as keys are.",
        ("(config.head_dim + group)", "2 * config.head_dim"),
    ),
    (
        "bytes_of_no_layers",
        "bytes of a single layer",
        "The layers are forgotten.",
        ("config.n_layers * batch", "batch"),
    ),
    (
        "bytes_of_whole_bytes",
        "bytes in which codes of less than 8 bits have none",
        "bits // 8 is 0 for 4 bits and for 2.",
        ("config.head_dim * bits // 8", "config.head_dim * (bits // 8)"),
    ),
    (
        "bytes_that_are_bits",
        "codes in bits, not in bytes",
        "The division by 8 is forgotten.",
        ("* bits // 8", "* bits"),
    ),
    (
        "bytes_of_codes_as_elements",
        "codes with the bytes of a number each",
        "Codes are multiplied by bytes_per_element as well.",
        ("* bits // 8", "* bits // 8 * bytes_per_element"),
    ),
    (
        "bytes_of_codes_as_wide_as_the_model",
        "codes of all channels of the model in each head",
        "d_model for head_dim.",
        ("group * config.head_dim * bits", "group * config.d_model * bits"),
    ),
    (
        "bytes_without_a_window_in_the_groups",
        "groups that are billed as if there were no window",
        "Every complete group is billed as codes, those in the window, too.",
        ("max(0, n_tokens - window) // group", "n_tokens // group"),
    ),
    (
        "bytes_of_groups_begun",
        "groups that are billed as soon as they begin",
        "Rounded up: a group that is not complete has no codes yet.",
        ("max(0, n_tokens - window) // group", "-(-max(0, n_tokens - window) // group)"),
    ),
    (
        "bytes_of_a_window_longer_than_the_text",
        "a window with more room than there are tokens",
        "A short text needs no room for window and group.",
        ("min(n_tokens, window + group - 1)", "(window + group - 1)"),
    ),
    (
        "bytes_of_a_window_with_a_whole_group",
        "a window with room for one token too many",
        "window + group: but with the last of these a group is complete.",
        ("min(n_tokens, window + group - 1)", "min(n_tokens, window + group)"),
    ),
    (
        "bytes_of_what_is_left_in_the_window",
        "a window with room for the tokens that wait at the end",
        "What waits at the end of the text, and not the most that ever waited.",
        ("min(n_tokens, window + group - 1)", "n_tokens - n_groups * group"),
    ),
    (
        "bytes_of_steps_in_float16",
        "scales and zeros of 2 bytes, whatever was asked for",
        "16 bits, as in the picture.",
        ("(config.head_dim + group) * bytes_per_element", "(config.head_dim + group) * 2"),
    ),
    (
        "bytes_of_a_window_in_float16",
        "a window of 2 bytes a number, whatever was asked for",
        "16 bits, as in the picture.",
        ("recent * config.head_dim * bytes_per_element", "recent * config.head_dim * 2"),
    ),
    (
        "bytes_up_to_4096",
        "bytes of a text of 4,096 tokens at most",
        "The longest text that anyone had asked for.",
        ("heads = 2", "n_tokens = min(n_tokens, 4096)\n    heads = 2"),
    ),
):
    kind = "sizes" if name == "bytes_up_to_4096" else ""
    patch(name, "formula", mistake, story, *edits, kind=kind)

patch(
    "bytes_as_floats",
    "form",
    "bytes that are no whole numbers",
    "/ for //: a float, right up to 2^53.",
    ("config.head_dim * bits // 8", "config.head_dim * bits / 8"),
)
patch(
    "bytes_in_another_order",
    "form",
    "scales in the place of codes, and codes in that of scales",
    "The first two parts changed places.",
    ("codes=heads", "scales=heads"),
    (f"scales={BILL}", f"codes={BILL}"),
)
patch(
    "bytes_in_all",
    "form",
    "a single number for the three parts",
    "The sum: right, and nobody sees of what.",
    ("return CacheBytes(", "return sum(CacheBytes("),
    ("head_dim * bytes_per_element,\n    )", "head_dim * bytes_per_element,\n    ))"),
)
patch(
    "bytes_in_a_plain_tuple",
    "form",
    "three numbers without their names",
    "A tuple has no .codes.",
    ("return CacheBytes(", "return tuple(CacheBytes("),
    ("head_dim * bytes_per_element,\n    )", "head_dim * bytes_per_element,\n    ))"),
)
