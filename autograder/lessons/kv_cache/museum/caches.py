"""Wrong answers to `KVCache` and `kv_cache_bytes`."""

import torch

from autograder.lessons.kv_cache.museum import MUSEUM
from course.minigpt.kv_cache import KVCache
from course.model.cache import CacheFull, check_block, check_cache_sizes

bug, patch = MUSEUM.section("KVCache", check="cache_returns_what_it_was_given")
patch(
    "counts_in_append",
    "state",
    "a cache whose length moves with every layer",
    "append moves the length, and layer 1 writes behind layer 0.",
    ("return self.keys[layer", "self.length = end\n        return self.keys[layer"),
    ("self.length += n", "pass"),
)
patch(
    "writes_at_the_front",
    "writes",
    "a cache that writes every block to its first places",
    "Each block is written to places 0 … T-1, over the ones before.",
    ("self.keys[layer, :, :, self.length : end]", "self.keys[layer, :, :, : k.shape[2]]"),
    ("self.values[layer, :, :, self.length : end]", "self.values[layer, :, :, : k.shape[2]]"),
)
patch(
    "one_layer_for_all",
    "writes",
    "a cache in which all layers share one storage",
    "The layer number is ignored, so all layers share one storage.",
    ("check_block(self", "layer = 0\n        check_block(self"),
)
patch(
    "returns_all_of_the_storage",
    "writes",
    "a cache that also returns places to which nothing was written",
    "The whole storage comes back, with places that nothing was written to.",
    ("[layer, :, :, :end], self.values[layer, :, :, :end]", "[layer], self.values[layer]"),
)
patch(
    "returns_only_the_new",
    "writes",
    "a cache that returns what was just stored and nothing older",
    "What was just stored comes back, without what was there.",
    ("return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]", "return k, v"),
)
patch(
    "returns_float32",
    "form",
    "a cache that returns float32, whatever it holds",
    "Attention is computed in float32, so the cache had better return it: a copy of everything.",
    (
        "[layer, :, :, :end], self.values[layer, :, :, :end]",
        "[layer, :, :, :end].float(), self.values[layer, :, :, :end].float()",
    ),
    kind="dtype",
)
patch(
    "keeps_keys_as_values",
    "wiring",
    "a cache that keeps the keys twice and the values never",
    "Copy and paste: the values are the keys.",
    (": end] = v", ": end] = k"),
)

patch(
    "copies_what_it_returns",
    "cost",
    "a cache that copies all old rows in order to return them",
    "contiguous() or clone() behind the slice, to be on the safe side: every step copies everything.",
    (
        "[layer, :, :, :end], self.values[layer, :, :, :end]",
        "[layer, :, :, :end].clone(), self.values[layer, :, :, :end].clone()",
    ),
    kind="cost",
)


@bug(
    "cost",
    "a cache that grows by torch.cat, and so copies every old row at every step",
    kind="cost",
)
class GrowsByCat(KVCache):
    """The plainest cache: right numbers, and work that the picture promised to save."""

    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        check_cache_sizes(config, batch, max_len)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        shape = (batch, config.n_kv_heads, 0, config.head_dim)
        self.rows = [
            [torch.empty(shape, dtype=dtype) for _ in "kv"] for _ in range(config.n_layers)
        ]
        self.length = 0

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        if self.length + k.shape[2] > self.max_len:
            raise CacheFull("full")
        old = [rows[:, :, : self.length] for rows in self.rows[layer]]
        self.rows[layer] = [torch.cat(pair, dim=2) for pair in zip(old, (k, v), strict=True)]
        return tuple(self.rows[layer])

    def nbytes(self):
        return sum(rows.nbytes for pair in self.rows for rows in pair)


@bug("state", "a cache that keeps the tensors that it is given, and no copies", kind="results")
class KeepsTheCallersTensors(KVCache):
    """The first block is kept as it came, the later ones behind it: it is still the caller's."""

    def append(self, layer, k, v):
        returned = super().append(layer, k, v)
        if self.length:
            k, v = (torch.cat([a, b], 2) for a, b in zip(self.first[layer], (k, v), strict=True))
            return k, v
        self.first = {**getattr(self, "first", {}), layer: (k, v)}
        return returned


patch(
    "scales_what_it_is_given",
    "state",
    "a cache that writes into the keys that it is given",
    "An operation with an underscore at its end changes the caller's tensor as well.",
    ("end = self.length + k.shape[2]", "end = self.length + k.mul_(0.5).shape[2]"),
    kind="arguments",
)
patch(
    "ends_at_1024",
    "capacity",
    "a cache with a limit of its own beside max_len",
    "A number from a small experiment stays in the code.",
    ("if end > self.max_len", "if end > min(self.max_len, 1024)"),
    kind="sizes",
)
patch(
    "advances_by_one",
    "state",
    "an advance by one token, however many there were",
    "Right for every step after the prompt.",
    ("self.length += n", "self.length += 1"),
)
patch(
    "advance_sets_the_length",
    "state",
    "an advance that takes the number of new tokens for the number held",
    "= in place of +=: right for the first block.",
    ("self.length += n", "self.length = n"),
)
patch(
    "gives_values_for_keys",
    "wiring",
    "a cache that returns the values first and the keys second",
    "The pair comes back the other way round.",
    (
        "return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]",
        "return self.values[layer, :, :, :end], self.keys[layer, :, :, :end]",
    ),
)
patch(
    "returns_only_the_old",
    "writes",
    "a cache that returns what was held before, without what was just stored",
    "The slice ends at the length, which advance moves later.",
    (
        "[layer, :, :, :end], self.values[layer, :, :, :end]",
        "[layer, :, :, : self.length], self.values[layer, :, :, : self.length]",
    ),
)
patch(
    "stores_the_first_of_a_block",
    "writes",
    "a cache that stores one token of a block of several",
    "Written and tried with one token at a time.",
    ("[layer, :, :, self.length : end] = k", "[layer, :, :, self.length] = k[:, :, 0]"),
    ("[layer, :, :, self.length : end] = v", "[layer, :, :, self.length] = v[:, :, 0]"),
)
patch(
    "drops_a_batch_of_one",
    "form",
    "a cache whose rows lose the batch's axis where there is one text",
    "squeeze() in the return: (B, G, S, D) becomes (G, S, D) when B is 1.",
    (
        "[layer, :, :, :end], self.values[layer, :, :, :end]",
        "[layer, :, :, :end].squeeze(), self.values[layer, :, :, :end].squeeze()",
    ),
    kind="batch",
)


@bug("state", "caches that count on one length for the class", kind="instances")
class OneLengthForAll(KVCache):
    """The length stands in a list of the class, and all caches move it."""

    lengths = [0]  # noqa: RUF012 (the mistake)

    def append(self, layer, k, v):
        self.length = self.lengths[0]
        return super().append(layer, k, v)

    def advance(self, n):
        self.length = self.lengths[0] = self.lengths[0] + n

    def reset(self):
        self.length = self.lengths[0] = 0


@bug(
    "writes",
    "a cache that returns the rows of every layer in one and the same tensor",
    kind="results",
)
class OneResultForAllLayers(KVCache):
    """What comes back is written into one buffer, and the next layer's append changes it."""

    def append(self, layer, k, v):
        if not hasattr(self, "buffer"):
            self.buffer = torch.zeros_like(self.keys[0]), torch.zeros_like(self.values[0])
        rows = super().append(layer, k, v)
        views = [part[:, :, : rows[0].shape[2]] for part in self.buffer]
        for view, part in zip(views, rows, strict=True):
            view.copy_(part)
        return views[0], views[1]


bug, patch = MUSEUM.section("KVCache", check="full_cache_changes_nothing")
patch(
    "last_place_unused",
    "capacity",
    "a cache whose last place is never filled",
    "The end is compared with >= and the last place is never filled.",
    ("end > self.max_len", "end >= self.max_len"),
    kind="sizes",
)
patch(
    "drops_what_does_not_fit",
    "capacity",
    "a cache that silently drops what does not fit",
    "Tokens beyond the end are dropped without a word.",
    (
        "end = self",
        "k, v = (x[:, :, : self.max_len - self.length] for x in (k, v))\n        end = self",
    ),
    kind="refusals",
)
patch(
    "writes_before_it_looks",
    "capacity",
    "a cache that writes first and looks for room afterwards",
    "Room is made by moving the old keys, and then the append is refused.",
    (
        "raise CacheFull(",
        "self.keys[layer] = self.keys[layer].roll(-1, 2)\n            raise CacheFull(",
    ),
    kind="refusals",
)

patch(
    "writes_what_fits",
    "capacity",
    "a cache that writes the keys that fit before it refuses the rest",
    "The block is cut to the room that is left, and only then refused.",
    (
        "raise CacheFull(",
        "self.keys[layer, :, :, self.length :] = k[:, :, : self.max_len - self.length]\n"
        "            raise CacheFull(",
    ),
    kind="refusals",
)
patch(
    "full_is_a_value_error",
    "arguments",
    "a full cache that raises ValueError",
    "The one error for what the caller did wrong, and the other for a cache without room, are mixed up.",
    ("raise CacheFull(", "raise ValueError("),
)
patch(
    "looks_for_a_free_place_only",
    "capacity",
    "a cache that asks whether any place is free, and not how many",
    "Right token by token; a block of three that meets two free places stops in the middle.",
    ("if end > self.max_len", "if self.length >= self.max_len"),
    kind="refusals",
)

bug, patch = MUSEUM.section("KVCache", check="cache_can_go_back")
patch(
    "forgets_to_go_back",
    "state",
    "a reset that clears the numbers and leaves the length",
    "reset() writes zeros and leaves the length where it was.",
    (
        '"""Forget every token."""\n        self.length = 0',
        "self.keys.zero_(), self.values.zero_()",
    ),
)
patch(
    "truncates_from_the_left",
    "state",
    "a truncate that keeps the newest tokens",
    "truncate(n) keeps the newest n tokens, as a sliding window would.",
    (
        "self.length = n",
        "self.keys, self.values = (x.roll(n - self.length, 3) for x in (self.keys, self.values))\n"
        "        self.length = n",
    ),
)
patch(
    "truncates_by_n",
    "state",
    "a truncate that takes n for the number of tokens to drop",
    "truncate(n) takes n tokens away instead of keeping n.",
    ("self.length = n", "self.length -= n"),
)

patch(
    "truncate_clears_everything",
    "state",
    "a truncate that also clears what it should keep",
    "The storage is set to zero, and the length to n.",
    ("self.length = n", "self.length = n\n        self.keys.zero_(), self.values.zero_()"),
)
patch(
    "truncate_keeps_one_less",
    "off by one",
    "a truncate that keeps one token less than asked for",
    "n is taken for the place of the last token that stays.",
    ("self.length = n", "self.length = max(0, n - 1)"),
)

bug, patch = MUSEUM.section("KVCache", check="two_conversations_stay_apart")


@bug("state", "caches that write into one and the same storage", kind="instances")
class SharedStorage(KVCache):
    """The storage is made once for the class, so all caches of one size write into it."""

    _storage: dict = {}  # noqa: RUF012 (the mistake)

    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        super().__init__(config, batch, max_len, dtype, device)
        shared = self._storage.setdefault((config, batch, max_len, dtype), (self.keys, self.values))
        self.keys, self.values = shared


bug, patch = MUSEUM.section("kv_cache_bytes", check="bytes_match_the_storage")
patch(
    "bytes_of_keys_only",
    "formula",
    "bytes of keys or of values, but not of both",
    "Keys or values, but not both.",
    ("2 * config.n_layers", "config.n_layers"),
)
patch(
    "bytes_of_query_heads",
    "head order",
    "bytes of H·D numbers a token and layer, where G·D are stored",
    "n_heads where n_kv_heads belongs, as a popular formula has it.",
    ("config.n_kv_heads", "config.n_heads"),
)
patch(
    "bytes_of_one_layer",
    "formula",
    "bytes of a single layer",
    "The layers are forgotten.",
    ("config.n_layers * ", ""),
)
patch(
    "bytes_in_fp16_always",
    "formula",
    "bytes in which every number has two, whatever was asked",
    "bytes_per_element is not used.",
    ("batch * bytes_per_element", "batch * 2"),
)
patch(
    "bytes_of_one_row",
    "formula",
    "bytes of a single batch row",
    "The batch is forgotten.",
    ("batch * bytes_per_element", "bytes_per_element"),
    kind="batch",
)
patch(
    "bytes_in_fp32_by_default",
    "arguments",
    "bytes of float32 where no width was asked for",
    "The default of the signature was changed to what the mini-GPT stores.",
    ("bytes_per_element: int = 2", "bytes_per_element: int = 4"),
)
patch(
    "bytes_are_not_returned",
    "form",
    "bytes that are computed and not returned",
    "The product gets a name, and the line that returns it is missing: the caller gets None.",
    ("return per_token *", "n_bytes = per_token *"),
)

patch(
    "bytes_in_bits",
    "formula",
    "bits in place of bytes",
    "Times 8, where bytes_per_element has it in already.",
    ("batch * bytes_per_element", "batch * bytes_per_element * 8"),
)
patch(
    "bytes_of_the_longest_text",
    "formula",
    "bytes of a cache for the longest text that the model can read",
    "max_seq_len where n_tokens belongs.",
    ("per_token * n_tokens", "per_token * config.max_seq_len"),
)
patch(
    "bytes_as_a_float",
    "form",
    "bytes as a float",
    "A division on the way: bytes are whole numbers.",
    ("batch * bytes_per_element", "batch * bytes_per_element / 1"),
)
patch(
    "bytes_without_the_newest",
    "off by one",
    "bytes of one token less than asked for",
    "The last token is never fed; but n_tokens counts what is in the cache.",
    ("per_token * n_tokens", "per_token * max(0, n_tokens - 1)"),
)

bug, patch = MUSEUM.section("KVCache", check="bytes_match_the_storage")
patch(
    "always_float32",
    "form",
    "a cache that stores float32 whatever was asked for",
    "The storage is float32 whatever was asked for, and nbytes() says otherwise.",
    ("shape = (config", "dtype = torch.float32\n        shape = (config"),
    (
        "[layer, :, :, :end], self.values[layer, :, :, :end]",
        "[layer, :, :, :end].to(self.dtype), self.values[layer, :, :, :end].to(self.dtype)",
    ),
    ("self.keys.nbytes + self.values.nbytes", "2 * self.keys.numel() * self.dtype.itemsize"),
    kind="dtype",
)
patch(
    "stores_query_heads",
    "head order",
    "a cache that stores as many heads as there are queries",
    "H heads are stored where G would do.",
    ("config.n_kv_heads, max_len", "config.n_heads, max_len"),
    ("end = self", "group = self.config.n_heads // self.config.n_kv_heads\n        end = self"),
    (": end] = k", ": end] = k.repeat_interleave(group, dim=1)"),
    (": end] = v", ": end] = v.repeat_interleave(group, dim=1)"),
    (
        "[layer, :, :, :end], self.values[layer, :, :, :end]",
        "[layer, :, ::group, :end], self.values[layer, :, ::group, :end]",
    ),
)
patch(
    "counts_keys_only",
    "formula",
    "a cache that counts its keys and leaves out its values",
    "nbytes() leaves the values out.",
    ("self.keys.nbytes + self.values.nbytes", "self.keys.nbytes"),
)
patch(
    "count_is_not_returned",
    "form",
    "a cache that adds up its bytes and does not return them",
    "nbytes() is a sum without a return: the caller gets None.",
    ("return self.keys.nbytes", "self.keys.nbytes"),
)

patch(
    "counts_what_is_filled",
    "formula",
    "a cache that counts the bytes of the tokens held, not of its storage",
    "An empty cache says 0, and has taken its memory long ago.",
    (
        "self.keys.nbytes + self.values.nbytes",
        "(self.keys.nbytes + self.values.nbytes) * self.length // self.max_len",
    ),
)
patch(
    "counts_numbers",
    "formula",
    "a cache that counts numbers and not their bytes",
    "numel() without element_size().",
    ("self.keys.nbytes + self.values.nbytes", "self.keys.numel() + self.values.numel()"),
)
patch(
    "counts_four_bytes_each",
    "formula",
    "a cache that counts four bytes for every number, whatever it holds",
    "float32 is in the formula, and not in the argument.",
    ("self.keys.nbytes + self.values.nbytes", "4 * (self.keys.numel() + self.values.numel())"),
    kind="dtype",
)
patch(
    "keeps_the_last_block_too",
    "state",
    "a cache that also holds on to the tensors that it was given last",
    "They were copied into the storage; kept beside it, they occupy memory of their own.",
    (
        "self.keys[layer, :, :, self.length : end] = k",
        "self.last = k, v\n        self.keys[layer, :, :, self.length : end] = k",
    ),
)
