"""Known wrong answers to lesson 06: `max_batch_that_fits`."""

from __future__ import annotations

from autograder.lessons.gqa.museum import MUSEUM

FREE = "max(0, memory_bytes - weight_bytes)"

bug, patch = MUSEUM.section("max_batch_that_fits", check="batch_fills_the_memory")

patch(
    "batch_by_query_heads",
    "formula",
    "a cache of query heads",
    "The popular formula: query heads where KV heads are stored.",
    ("// one_sequence", "// (one_sequence // config.n_kv_heads * config.n_heads)"),
)
patch(
    "batch_of_keys_only",
    "formula",
    "a cache without its values",
    "Keys without values.",
    ("// one_sequence", "// (one_sequence // 2)"),
)
patch(
    "batch_of_one_layer",
    "formula",
    "the cache of one layer",
    "A cache is kept for every layer.",
    ("// one_sequence", "// (one_sequence // config.n_layers)"),
)
patch(
    "batch_in_binary_gigabytes",
    "formula",
    "a memory whose gigabytes have two sizes",
    "Divides by 10⁹ and multiplies by 2³⁰: seven percent that nobody has.",
    (FREE, "max(0, int(memory_bytes / 1e9 * 2**30) - weight_bytes)"),
)
patch(
    "batch_without_weights",
    "formula",
    "a memory without weights in it",
    "The weights are forgotten.",
    (FREE, "memory_bytes"),
)
patch(
    "batch_with_weights_for_each",
    "formula",
    "weights that are there once for each sequence",
    "Every sequence brings the weights along.",
    (f"{FREE} // one_sequence", "memory_bytes // (weight_bytes + one_sequence)"),
)
patch(
    "batch_in_16_bits_always",
    "formula",
    "a cache in 16 bits, whatever was asked",
    "16 bits, whatever was asked.",
    ("n_tokens, 1, bytes_per_element)", "n_tokens, 1)"),
)
patch(
    "batch_as_a_fraction",
    "form",
    "a part of a sequence",
    "/ for //: half a sequence, and less than none.",
    (f"{FREE} //", "(memory_bytes - weight_bytes) /"),
)
patch(
    "batch_rounded_up",
    "off by one",
    "a last sequence for which only a part of the room is left",
    "Rounded up, so that the last one does not fit.",
    (f"{FREE} // one_sequence", f"math.ceil({FREE} / one_sequence)"),
)

patch(
    "batch_of_bits",
    "formula",
    "a cache counted in bits",
    "Bits for bytes: eight times too large.",
    ("// one_sequence", "// (8 * one_sequence)"),
)
patch(
    "batch_with_the_width_for_the_batch",
    "formula",
    "a cache of as many rows as a number has bytes",
    "kv_cache_bytes(config, n_tokens, bytes_per_element): the third argument is the batch.",
    ("n_tokens, 1, bytes_per_element)", "n_tokens, bytes_per_element)"),
)
patch(
    "batch_of_single_tokens",
    "formula",
    "the cache of a single token",
    "The length is forgotten: bytes of one token.",
    ("config, n_tokens, 1,", "config, 1, 1,"),
)
patch(
    "batch_of_the_longest_text",
    "formula",
    "a cache for the longest text of the model, whatever was asked",
    "config.max_seq_len for n_tokens.",
    ("config, n_tokens, 1,", "config, config.max_seq_len, 1,"),
    kind="sizes",
)
patch(
    "batch_of_the_longest_text_at_most",
    "formula",
    "a cache that grows to the longest text of the model and no further",
    "min() of n_tokens and config.max_seq_len: a bound that nobody asked for.",
    ("config, n_tokens, 1,", "config, min(n_tokens, config.max_seq_len), 1,"),
    kind="sizes",
)
patch(
    "batch_with_one_token_less",
    "off by one",
    "sequences of one token less",
    "The newest token is not cached yet: n_tokens - 1.",
    ("config, n_tokens, 1,", "config, max(1, n_tokens - 1), 1,"),
)
patch(
    "batch_of_weights_by_width",
    "formula",
    "weights that are counted in numbers, where they are bytes",
    "weight_bytes times bytes_per_element: bytes were given.",
    ("- weight_bytes", "- weight_bytes * bytes_per_element"),
)
patch(
    "batch_with_some_room_kept_free",
    "formula",
    "a memory of which a part is kept for something else",
    "A tenth is kept for activations, as engines do; the lesson ignores those.",
    (FREE, "max(0, int(0.9 * memory_bytes) - weight_bytes)"),
)
patch(
    "batch_of_a_thousand_at_most",
    "capacity",
    "a number of sequences that stops at 1,024",
    "Nobody decodes more than that, surely.",
    (f"{FREE} // one_sequence", f"min(1024, {FREE} // one_sequence)"),
    kind="sizes",
)
patch(
    "batch_in_powers_of_two",
    "capacity",
    "a number of sequences that is a power of two",
    "Batches are powers of two, so the rest stays empty.",
    (
        f"return {FREE} // one_sequence",
        f"n = {FREE} // one_sequence\n    return n and 1 << (n.bit_length() - 1)",
    ),
)
patch(
    "batch_of_shared_queries",
    "formula",
    "a cache that is divided by the group once more",
    "H / G times fewer, although G stands in the formula already.",
    ("// one_sequence", "// (one_sequence * config.n_kv_heads // config.n_heads)"),
)

patch(
    "batch_of_texts_that_the_model_was_made_for",
    "arguments",
    "texts longer than max_seq_len that are refused",
    "n_tokens above config.max_seq_len is a ValueError: a bound that nobody asked for.",
    (
        "    one_sequence =",
        '    check_between("n_tokens", n_tokens, 1, config.max_seq_len)\n    one_sequence =',
    ),
    kind="sizes",
)
patch(
    "batch_as_a_float",
    "form",
    "a whole number that is a float",
    "// of a float is a float: 41.0 sequences.",
    (FREE, f"float({FREE})"),
    kind="dtype",
)

bug, patch = MUSEUM.section("max_batch_that_fits", check="edge_of_the_memory")

patch(
    "batch_by_dividing_floats",
    "capacity",
    "a quotient that was rounded before it was cut off",
    "int(free / one): a float has 53 bits, and beyond them the byte that is missing is lost.",
    (f"{FREE} // one_sequence", f"int({FREE} / one_sequence)"),
    kind="sizes",
)

patch(
    "batch_below_zero",
    "capacity",
    "a number of sequences below zero",
    "Weights larger than the memory: a negative number of sequences.",
    (FREE, "(memory_bytes - weight_bytes)"),
)
patch(
    "batch_at_least_one",
    "capacity",
    "one sequence where there is no room for any",
    "There is always room for one, is there not?",
    (f"{FREE} // one_sequence", f"max(1, {FREE} // one_sequence)"),
)
patch(
    "batch_with_a_byte_to_spare",
    "off by one",
    "a memory that may never be quite full",
    "< for <=: what fits to the byte is refused.",
    (FREE, "max(0, memory_bytes - weight_bytes - 1)"),
)
patch(
    "batch_counted_past_the_end",
    "off by one",
    "a count that stops one sequence too late",
    "Counts on until the memory is full: the last one did not fit.",
    (
        f"return {FREE} // one_sequence",
        "n = 0\n    while weight_bytes + n * one_sequence < memory_bytes:\n        n += 1\n    return n",
    ),
)
patch(
    "batch_of_what_is_missing",
    "capacity",
    "room as large as what is missing",
    "abs() against negative numbers: what is missing counts as room.",
    (FREE, "abs(memory_bytes - weight_bytes)"),
)
patch(
    "batch_that_must_fit",
    "capacity",
    "a memory that is refused where the weights do not fit",
    "A ValueError where 0 is the answer.",
    (
        "    one_sequence =",
        '    if weight_bytes > memory_bytes:\n        raise ValueError("too small")\n    one_sequence =',
    ),
)
patch(
    "batch_of_none",
    "form",
    "no number where no sequence fits",
    "A return without a number.",
    (
        "    one_sequence =",
        "    if weight_bytes >= memory_bytes:\n        return\n    one_sequence =",
    ),
)
patch(
    "batch_without_weights_is_none",
    "capacity",
    "no sequences in a memory without weights",
    "not weight_bytes: 0 is taken for nothing given.",
    ("    one_sequence =", "    if not weight_bytes:\n        return 0\n    one_sequence ="),
    kind="sizes",
)
patch(
    "batch_cut_towards_zero",
    "capacity",
    "a number of sequences below zero, cut to a whole one",
    "int() of a quotient: below 0 it cuts the other way, and stays below.",
    (f"{FREE} // one_sequence", "int((memory_bytes - weight_bytes) / one_sequence)"),
)
patch(
    "batch_with_one_token_more",
    "off by one",
    "sequences of one token more",
    "A place for the next token, which is not stored.",
    ("config, n_tokens, 1,", "config, n_tokens + 1, 1,"),
)
patch(
    "batch_that_must_have_room",
    "capacity",
    "a memory that is refused where the weights fill it",
    "A ValueError where 0 is the answer, also where the weights just fit.",
    (
        "    one_sequence =",
        '    if weight_bytes >= memory_bytes:\n        raise ValueError("too small")\n    one_sequence =',
    ),
)
