"""Wrong answers to `GrowingKVCache`, and to the count of what it copies."""

from autograder.lessons.kv_cache.museum import MUSEUM

KEEP_KEYS = "self.keys[layer] = torch.cat([self.keys[layer], k], dim=2)"
KEEP_VALUES = "self.values[layer] = torch.cat([self.values[layer], v], dim=2)"
BOTH = "return self.keys[layer], self.values[layer]"

bug, patch = MUSEUM.section("GrowingKVCache", check="growing_cache_returns_everything")
patch(
    "growing_returns_only_the_new",
    "writes",
    "a growing cache that returns the new block alone, or keeps nothing of the older ones",
    "The block is put behind the others, and itself returned; or what was put together is not kept.",
    (BOTH, "return k, v"),
)
patch(
    "growing_drops_what_it_put_together",
    "writes",
    "a growing cache that returns what it held before, without the new block",
    "torch.cat makes a new tensor, and nobody takes it: the old one stays as it was.",
    (KEEP_KEYS, KEEP_KEYS.partition(" = ")[2]),
    (KEEP_VALUES, KEEP_VALUES.partition(" = ")[2]),
)
patch(
    "growing_in_one_layer",
    "writes",
    "a growing cache in which all layers put their rows into the first one's tensors",
    "The layer's number is not used.",
    (KEEP_KEYS, KEEP_KEYS.replace("layer", "0")),
    (KEEP_VALUES, KEEP_VALUES.replace("layer", "0")),
    (BOTH, BOTH.replace("layer", "0")),
)
patch(
    "growing_at_the_front",
    "writes",
    "a growing cache with the newest tokens first",
    "The two tensors stand in the other order: right for the first block.",
    ("[self.keys[layer], k]", "[k, self.keys[layer]]"),
    ("[self.values[layer], v]", "[v, self.values[layer]]"),
)
patch(
    "growing_keeps_keys_as_values",
    "wiring",
    "a growing cache that keeps the keys twice and the values never",
    "Copy and paste: the values are the keys.",
    ("[self.values[layer], v]", "[self.values[layer], k]"),
)
patch(
    "growing_gives_values_for_keys",
    "wiring",
    "a growing cache that returns the values first and the keys second",
    "The pair comes back the other way round.",
    (BOTH, "return self.values[layer], self.keys[layer]"),
)
patch(
    "growing_counts_in_append",
    "state",
    "a growing cache that counts its tokens in every append, and again in advance",
    "The length is moved where the tensors grow: once for every layer.",
    (BOTH, f"self.length += k.shape[2]\n        {BOTH}"),
)
patch(
    "growing_by_batch_rows",
    "form",
    "a growing cache that puts new tokens behind the batch",
    "dim=0, which torch.cat takes when it is told nothing.",
    ("[self.keys[layer], k], dim=2", "[self.keys[layer], k]"),
    ("[self.values[layer], v], dim=2", "[self.values[layer], v]"),
)
patch(
    "growing_keeps_the_callers_tensors",
    "state",
    "a growing cache that keeps the first block as it came, in the caller's memory",
    "The first block is not put together with anything, so it is still the caller's.",
    (KEEP_KEYS, f"{KEEP_KEYS} if self.length else k"),
    (KEEP_VALUES, f"{KEEP_VALUES} if self.length else v"),
    kind="results",
)
patch(
    "growing_float32",
    "form",
    "a growing cache that keeps float32, whatever it was made for",
    "float() somewhere: fine until the numbers are of another type.",
    ("[self.keys[layer], k]", "[self.keys[layer].float(), k.float()]"),
    ("[self.values[layer], v]", "[self.values[layer].float(), v.float()]"),
    kind="dtype",
)

PAIRS = "n_tokens * (n_tokens - 1) // 2"
bug, patch = MUSEUM.section("numbers_copied", check="copies_add_up")
patch(
    "copies_of_a_square",
    "formula",
    "a count in which every step copies as much as the last one",
    "n steps of n rows: n², where the rows of the steps are a triangle.",
    (PAIRS, "n_tokens * n_tokens"),
)
patch(
    "copies_of_n_times_the_last",
    "formula",
    "a count that is twice too large: of n times n - 1 rows, or of two bytes a number",
    "n (n - 1), twice the triangle.",
    (PAIRS, "n_tokens * (n_tokens - 1)"),
)
patch(
    "copies_of_half_a_square",
    "off by one",
    "a triangle of old rows that is taken for half a square",
    "n²/2 in place of n(n-1)/2.",
    (PAIRS, "n_tokens * n_tokens // 2"),
)
patch(
    "copies_of_the_new_too",
    "off by one",
    "a count in which each step's new row counts as an old one",
    "1 + 2 + … + n: torch.cat writes the new row, too, but nobody copies it a second time.",
    (PAIRS, "n_tokens * (n_tokens + 1) // 2"),
)
patch(
    "copies_of_the_last_step",
    "formula",
    "a count of what the last step copies alone",
    "n - 1 rows: the steps before copied theirs as well.",
    (PAIRS, "max(0, n_tokens - 1)"),
)
patch(
    "copies_of_what_is_held",
    "formula",
    "a count of what the cache holds at the end, not of what was copied on the way",
    "The size of the cache, as if every row were written once.",
    (PAIRS, "n_tokens"),
)
patch(
    "copies_of_keys_only",
    "formula",
    "a count of copied keys, or of values, but not of both",
    "Keys or values, but not both.",
    ("2 * config.n_layers", "config.n_layers"),
)
patch(
    "copies_of_one_layer",
    "formula",
    "a count of what one layer copies",
    "The layers are forgotten.",
    ("config.n_layers * ", ""),
)
patch(
    "copies_of_query_heads",
    "head order",
    "a count in which H heads are copied where G are stored",
    "n_heads where n_kv_heads belongs.",
    ("config.n_kv_heads", "config.n_heads"),
)
patch(
    "copies_of_one_head",
    "head order",
    "a count of what one head of each layer copies",
    "The KV heads are forgotten.",
    ("config.n_kv_heads * ", ""),
)
patch(
    "copies_of_one_row",
    "formula",
    "a count in which the batch has one row",
    "The batch is forgotten.",
    ("return batch * ", "return "),
    kind="batch",
)
patch(
    "copies_of_rows",
    "formula",
    "a count of rows in place of the numbers in them",
    "n(n-1)/2 rows, as if a row were one number.",
    ("return batch * per_token * ", "return "),
)
patch(
    "copies_in_bytes",
    "formula",
    "bytes of float32 in place of numbers",
    "Times 4, where numbers were asked for.",
    ("return batch *", "return 4 * batch *"),
)
patch(
    "copies_are_not_returned",
    "form",
    "a count that is computed and not returned",
    "The line that returns is missing: the caller gets None.",
    ("return batch", "copied = batch"),
)
