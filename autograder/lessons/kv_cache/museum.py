"""Known wrong answers to lesson 03."""

from __future__ import annotations

import torch

from autograder.lessons.exhibits import Museum
from course.minigpt import kv_cache as right
from course.minigpt.kv_cache import KVCache

MUSEUM = Museum("kv_cache")

bug, patch = MUSEUM.section("causal_mask", check="mask_is_rectangular")
patch(
    "mask_top_left",
    "mask",
    "a mask whose triangle stands at the left edge, as if nothing had been cached",
    "is_causal=True, or tril of a T by S matrix: one new token sees only the oldest key.",
    ("torch.arange(n_visible - n_new, n_visible, d", "torch.arange(n_new, d"),
)
patch(
    "mask_without_itself",
    "mask",
    "a mask in which no token sees itself",
    "Strictly smaller instead of smaller or equal: a token cannot see itself.",
    ("<= own", "< own"),
)
patch(
    "mask_sees_all",
    "mask",
    "a mask that hides nothing",
    "In decode everything cached is visible, so no mask: true for one token, wrong for a chunk.",
    ("torch.arange(n_visible - n_new, n_visible, d", "torch.full((n_new,), n_visible, d"),
)
patch(
    "mask_square",
    "form",
    "a mask that is square whatever the number of new tokens",
    "The mask of lesson 01, S by S, which fits no scores of T rows.",
    ("torch.arange(n_visible - n_new, n_visible, d", "torch.arange(n_visible, d"),
)
patch(
    "mask_one_too_far",
    "mask",
    "a mask that lets each token see one token ahead",
    "The diagonal is counted from 1, so every new token sees one token ahead.",
    ("<= own", "<= own + 1"),
)

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
)
patch(
    "keeps_keys_as_values",
    "wiring",
    "a cache that keeps the keys twice and the values never",
    "Copy and paste: the values are the keys.",
    (": end] = v", ": end] = k"),
)

bug, patch = MUSEUM.section("KVCache", check="full_cache_changes_nothing")
patch(
    "last_place_unused",
    "capacity",
    "a cache whose last place is never filled",
    "The end is compared with >= and the last place is never filled.",
    ("end > self.max_len", "end >= self.max_len"),
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

bug, patch = MUSEUM.section("attention_layer_cached", check="layer_equals_uncached")
patch(
    "layer_with_is_causal",
    "mask",
    "a layer whose mask stands at the top left, as if nothing had been cached",
    "scaled_dot_product_attention(is_causal=True) masks at the top left.",
    ("attn_mask=mask", "is_causal=True"),
)
patch(
    "layer_without_mask",
    "mask",
    "a layer in which the first tokens of a chunk see the later ones",
    "Right token by token; in a chunk the first tokens see the later ones.",
    ("attn_mask=mask", "attn_mask=None"),
)
patch(
    "layer_with_plain_keys",
    "position",
    "a layer that rotates queries and not keys",
    "Only the queries are rotated.",
    ("attn.rotate(k, positions)", "k"),
)
patch(
    "layer_with_tiled_heads",
    "head order",
    "a layer that gives the KV heads to the query heads in turns",
    "repeat() for repeat_interleave(): head h reads KV head h % G.",
    ("k.repeat_interleave(group, dim=1)", "k.repeat(1, group, 1, 1)"),
    ("v.repeat_interleave(group, dim=1)", "v.repeat(1, group, 1, 1)"),
)
patch(
    "layer_without_scale",
    "softmax",
    "a layer whose scores go unscaled into the softmax",
    "The scores are not divided by the square root of D.",
    ("attn_mask=mask", "attn_mask=mask, scale=1.0"),
)
patch(
    "layer_that_restarts_positions",
    "position",
    "a layer whose positions restart at every call",
    "positions is ignored for arange(T).",
    ("q, k = attn.rotate", "positions = torch.arange(x.shape[1])\n    q, k = attn.rotate"),
)
patch(
    "layer_that_stores_wide_heads",
    "head order",
    "a layer that repeats the heads before it stores them",
    "The heads are repeated before they are stored.",
    ("k, v = cache.append(layer, k, v)", ""),
    ("mask = causal_mask", "k, v = cache.append(layer, k, v)\n    mask = causal_mask"),
)
patch(
    "layer_that_rotates_everything_again",
    "position",
    "a layer that rotates keys once more after they come out of the cache",
    "What comes back from the cache is rotated once more.",
    ("group = attn", "k = attn.rotate(k, torch.arange(k.shape[2]))\n    group = attn"),
)

bug, patch = MUSEUM.section("forward_cached", check="every_split_equals_uncached")
patch(
    "forward_positions_restart",
    "position",
    "a cache whose positions restart at every call",
    "Positions start at 0 in every call: the prompt is right, every later token is not.",
    ("past, T = len(cache),", "past, T = 0,"),
)
patch(
    "forward_positions_off_by_one",
    "position",
    "a cache in which the newest token stands where the one before it stands",
    "The new token gets the position of the last cached one.",
    ("past, T = len(cache),", "past, T = max(len(cache) - 1, 0),"),
)


@bug("capacity", "a forward pass that empties a full cache and goes on")
def forward_that_makes_room(model, tokens, cache):
    """A full cache is emptied, and the text goes on as if it began here."""
    if len(cache) + tokens.shape[1] > cache.max_len:
        cache.reset()
    return right.forward_cached(model, tokens, cache)


patch(
    "forward_never_advances",
    "writes",
    "a cache that is never told that tokens were added",
    "advance is forgotten: each chunk is written over the one before.",
    ("cache.advance(T)", ""),
)
patch(
    "forward_without_final_norm",
    "wiring",
    "a model without its last norm",
    "The last norm is left out.",
    ("model.norm(x)", "x"),
)
patch(
    "forward_last_logits_only",
    "form",
    "a model that gives back the logits of the last token alone",
    "Only the last position's logits come back.",
    ("model.norm(x)", "model.norm(x[:, -1:])"),
)

bug, patch = MUSEUM.section("forward_cached", check="cache_is_the_only_memory")


@bug("state", "a forward pass that remembers the text beside the cache")
def forward_that_recomputes(model, tokens, cache):
    """The text is kept beside the cache, and everything is computed again from it."""
    held, T = len(cache), tokens.shape[1]
    right.forward_cached(model, tokens, cache)
    before = getattr(cache, "text", tokens[:, :0])
    cache.text = torch.cat([before[:, :held], tokens], dim=1)
    return model(cache.text)[:, -T:]


bug, patch = MUSEUM.section("KVCache", check="two_conversations_stay_apart")


@bug("state", "caches that write into one and the same storage")
class SharedStorage(KVCache):
    """The storage is made once for the class, so all caches of one size write into it."""

    _storage: dict = {}  # noqa: RUF012 (the mistake)

    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        super().__init__(config, batch, max_len, dtype, device)
        shared = self._storage.setdefault((config, batch, max_len, dtype), (self.keys, self.values))
        self.keys, self.values = shared


bug, patch = MUSEUM.section("forward_cached", check="two_conversations_stay_apart")
patch(
    "forward_that_counts_on_the_model",
    "state",
    "a position that is counted where two conversations meet",
    "The position is counted on the model, where two conversations meet.",
    ("past, T = len(cache),", 'past, T = getattr(model, "past", 0) if len(cache) else 0,'),
    ("positions = torch", "model.past = past + T\n    positions = torch"),
)

bug, patch = MUSEUM.section("generate_cached", check="no_row_is_computed_twice")
patch(
    "generate_with_fresh_caches",
    "cost",
    "a generation with a new cache at every step",
    "A new cache at every step: the right text at the old price.",
    ("(model, feed, cache)", "(model, torch.cat(text, 1), KVCache(model.config, B, P + n_new))"),
)
patch(
    "generate_that_feeds_the_last",
    "cost",
    "a generation that also feeds its last token, for logits that nobody reads",
    "The last new token is fed as well, for logits that nobody reads.",
    ("n_fed = P + n_new - 1", "n_fed = P + n_new"),
    ("return torch.cat", "forward_cached(model, feed, cache)\n    return torch.cat"),
)
patch(
    "generate_that_ignores_the_cache",
    "state",
    "a generation that does not use the cache that it was given",
    "The cache that is given is not the one that is used.",
    ("if cache is None:", "if True:"),
)
patch(
    "generate_from_the_first_position",
    "choice",
    "a generation that reads the logits of the first position",
    "logits[:, 0] is right for a single token and wrong for the prompt.",
    ("logits[:, -1]", "logits[:, 0]"),
)
patch(
    "generate_one_too_few",
    "off by one",
    "a loop that turns once too few",
    "The loop runs n_new - 1 times.",
    ("range(n_new)", "range(n_new - 1)"),
)
patch(
    "generate_that_feeds_the_prompt_twice",
    "feeding",
    "a generation that feeds the last token of the prompt a second time",
    "After the prompt its last token is fed once more to start the loop, in a cache with room for that.",
    ("n_fed = P + n_new - 1", "n_fed, cache = P + n_new, None"),
    ("text, feed = [prompt], prompt", "text, feed = [prompt], prompt[:, -1:]"),
    ("for _ in", "forward_cached(model, prompt, cache)\n    for _ in"),
)
patch(
    "generate_until_it_is_full",
    "capacity",
    "a generation that notices only on its way that the room ends",
    "Room is looked for once, but for the prompt alone: a call that is refused later leaves tokens.",
    ("if len(cache) + n_fed >", "if len(cache) + P >"),
)


@bug("cost", "a generation that computes parts of the whole text again at every step")
def generate_with_work_thrown_away(model, prompt, n_new, cache=None):
    """No key is computed twice, but the MLP runs over the whole text at every step."""
    text = right.generate_cached(model, prompt, n_new, cache)
    for n in range(1, n_new + 1):
        x = model.embed(text[:, :-n])
        for block in model.blocks:
            x = x + block.mlp(block.mlp_norm(x))
    return text


patch(
    "generate_one_for_none",
    "off by one",
    "a generation that writes a token when none was asked for",
    "The loop asks whether to go on after it wrote: n_new = 0 gives one token.",
    ("    if n_new == 0:\n        return prompt.clone()\n", "    n_new = max(n_new, 1)\n"),
)
patch(
    "generate_refuses_none",
    "arguments",
    "a generation that refuses to write no token at all",
    "Nothing to write is taken for a mistake of the caller's.",
    ("if n_new == 0:\n        return prompt.clone()", 'check_between("n_new", n_new, 1, 2**31)'),
)
patch(
    "generate_no_room_for_none",
    "capacity",
    "a generation that makes a cache of no places when there is nothing to write",
    "n_new = 0 is no case of its own: right, until the prompt is a single token and P - 1 is 0.",
    ("    if n_new == 0:\n        return prompt.clone()\n", ""),
)
patch(
    "generate_none_for_one",
    "off by one",
    "a generation that gives back the prompt when one token was asked for",
    "The early return is for n_new = 0, and takes n_new = 1 along.",
    ("if n_new == 0:", "if n_new <= 1:"),
)
patch(
    "generate_repeats_one",
    "choice",
    "a generation that repeats the last token of the prompt when one was asked for",
    "Short cases are answered early, and the one token is taken from the prompt.",
    (
        "B, P = prompt.shape",
        "B, P = prompt.shape\n    if n_new == 1: return torch.cat([prompt, prompt[:, -1:]], 1)",
    ),
)
patch(
    "generate_minus_one",
    "arguments",
    "a generation that takes a negative number of new tokens",
    "-1 means no limit elsewhere, so the line that refuses was made to let it through.",
    ('check_between("n_new", n_new, 0', 'check_between("n_new", n_new, -1'),
)

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
    "bytes of as many heads as there are queries",
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
