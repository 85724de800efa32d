"""Wrong answers to the storage of `WindowedKVCache` and to `windowed_cache_bytes`."""

from autograder.lessons.sliding_window.museum import MUSEUM

bug, patch = MUSEUM.section("WindowedKVCache", check="bytes_stay")
ROOM = "room = min(max_len, n_sinks + window)"
patch(
    "room_for_max_len",
    "cost",
    "storage for the longest text",
    "Room for every token, of which a window is used.",
    (ROOM, "room = max_len"),
    kind="cost",
)
patch(
    "more_room_than_max_len",
    "cost",
    "more places than the text can have tokens",
    "Sinks and window, however short the text.",
    (ROOM, "room = n_sinks + window"),
)
patch(
    "ring_with_a_spare_place",
    "off by one",
    "one place more than sinks and window",
    "A place for the token that comes.",
    (ROOM, "room = min(max_len, n_sinks + window + 1)"),
)
patch(
    "keeps_what_was_pending",
    "cost",
    "rows that stay pending after advance",
    "What was pending is overwritten by the next block, and kept until then.",
    ("self.length, self.pending = end, {}", "self.length = end"),
    kind="cost",
)
patch(
    "nbytes_of_keys",
    "formula",
    "the bytes of the keys alone",
    "Values are left out.",
    ("return self.rows.nbytes", "return self.rows.nbytes // 2"),
)
patch(
    "nbytes_of_what_is_held",
    "formula",
    "the bytes of the places in use",
    "An empty cache takes none.",
    ("return self.rows.nbytes", "return self.rows[..., self.numbers >= 0, :].nbytes"),
)
patch(
    "nbytes_with_numbers",
    "formula",
    "the bytes of the numbers besides",
    "All tensors of the cache are added up.",
    ("return self.rows.nbytes", "return self.rows.nbytes + self.numbers.nbytes"),
)
patch(
    "nbytes_of_elements",
    "formula",
    "a count of numbers in place of bytes",
    "numel in place of nbytes.",
    ("return self.rows.nbytes", "return self.rows.numel()"),
)
patch(
    "ring_for_query_heads",
    "cost",
    "storage for as many heads as there are queries",
    "H heads, of which G are used.",
    (
        "shape = (2, config.n_layers, batch, config.n_kv_heads,",
        "shape = (2, config.n_layers, batch, config.n_heads,",
    ),
    (
        "= self.rows[:, layer, :, :, self.numbers >= 0]",
        "= self.rows[:, layer, :, : config.n_kv_heads, self.numbers >= 0]".replace(
            "config", "self.config"
        ),
    ),
    ("self.rows[0, layer, :, :, at]", "self.rows[0, layer, :, : self.config.n_kv_heads, at]"),
    ("self.rows[1, layer, :, :, at]", "self.rows[1, layer, :, : self.config.n_kv_heads, at]"),
)

bug, patch = MUSEUM.section("windowed_cache_bytes", check="bytes_by_layer")
HELD = "held = min(n_tokens, n_sinks + window)"
ROWS = "n_full_layers * n_tokens + (config.n_layers - n_full_layers) * held"
patch(
    "rows_of_a_window_that_is_not_full",
    "formula",
    "a full window where the text is shorter",
    "Sinks and window, however short the text.",
    (HELD, "held = n_sinks + window"),
)
patch(
    "sinks_beside_a_short_text",
    "formula",
    "sinks added to a text that is shorter than the window",
    "The sinks are outside of min.",
    (HELD, "held = min(n_tokens, window) + n_sinks"),
)
patch(
    "sinks_take_no_bytes",
    "formula",
    "a window without its sinks",
    "The sinks are forgotten.",
    (HELD, "held = min(n_tokens, window)"),
)
patch(
    "full_layers_as_the_others",
    "formula",
    "full layers counted with a window",
    "All layers have one.",
    (ROWS, "config.n_layers * held"),
)
patch(
    "all_layers_full",
    "formula",
    "every layer counted as full",
    "The window is forgotten.",
    (ROWS, "config.n_layers * n_tokens"),
)
patch(
    "full_layers_twice",
    "formula",
    "full layers counted with a window and as full",
    "They are added, and not taken away from the others.",
    ("(config.n_layers - n_full_layers) * held", "config.n_layers * held"),
)
patch(
    "layers_the_other_way_round",
    "formula",
    "the layers with a window counted as full, and the full ones with a window",
    "n_full_layers is taken for those that have a window.",
    (ROWS, "n_full_layers * held + (config.n_layers - n_full_layers) * n_tokens"),
)
patch(
    "bytes_of_one_layer",
    "formula",
    "the bytes of one layer with a window and one full",
    "The layers are not multiplied.",
    (ROWS, "(n_tokens if n_full_layers else 0) + held"),
)
patch(
    "windowed_bytes_of_query_heads",
    "head order",
    "as many KV heads as query heads",
    "H in place of G.",
    ("2 * config.n_kv_heads", "2 * config.n_heads"),
)
patch(
    "windowed_bytes_of_keys",
    "formula",
    "the bytes of keys alone",
    "Values are left out.",
    ("return 2 * config", "return config"),
)
patch(
    "windowed_bytes_of_one_row",
    "formula",
    "the bytes of one row of the batch",
    "The batch is left out.",
    (" * rows * batch", " * rows"),
)
patch(
    "windowed_bytes_of_float32",
    "formula",
    "four bytes a number by default",
    "float32, as on the CPU.",
    ("bytes_per_element: int = 2", "bytes_per_element: int = 4"),
)
patch(
    "windowed_bytes_by_the_models_longest_text",
    "capacity",
    "a text cut off at the model's max_seq_len",
    "No text is longer than the model was made for.",
    (
        HELD,
        "n_tokens = min(n_tokens, config.max_seq_len)\n    held = min(n_tokens, n_sinks + window)",
    ),
)
patch(
    "windowed_bytes_as_a_fraction",
    "form",
    "bytes that are no whole number",
    "Bits are turned into bytes by a division.",
    ("* batch * bytes_per_element", "* batch * bytes_per_element * 8 / 8"),
)
patch(
    "one_full_layer_too_many_is_allowed",
    "arguments",
    "more full layers than the model has",
    "The bound is left out.",
    ('check_between("n_full_layers", n_full_layers, 0, config.n_layers)\n    ', ""),
    kind="refusals",
)
