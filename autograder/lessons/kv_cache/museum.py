"""Known wrong answers to lesson 03, and correct ones in other styles."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from autograder.lessons.exhibit import Bug, Variant
from course.bounds import check_between
from course.cache import CacheFull, check_block, check_cache_sizes
from course.minigpt import kv_cache as reference
from course.minigpt.kv_cache import KVCache, causal_mask, forward_cached
from course.minigpt.mini_gpt import greedy_next, merge_heads, split_heads

# --- causal_mask ---------------------------------------------------------------------------------


def mask_top_left(n_new, n_visible, device="cpu"):
    return torch.ones(n_new, n_visible, dtype=torch.bool, device=device).tril()


def mask_without_itself(n_new, n_visible, device="cpu"):
    mask = torch.ones(n_new, n_visible, dtype=torch.bool, device=device)
    return mask.tril(diagonal=n_visible - n_new - 1)


def mask_sees_all(n_new, n_visible, device="cpu"):
    return torch.ones(n_new, n_visible, dtype=torch.bool, device=device)


def mask_square(n_new, n_visible, device="cpu"):
    return torch.ones(n_visible, n_visible, dtype=torch.bool, device=device).tril()


def mask_one_too_far(n_new, n_visible, device="cpu"):
    mask = torch.ones(n_new, n_visible, dtype=torch.bool, device=device)
    return mask.tril(diagonal=n_visible - n_new + 1)


# --- KVCache -------------------------------------------------------------------------------------


class CountsInAppend(KVCache):
    def append(self, layer, k, v):
        k, v = super().append(layer, k, v)
        self.length = k.shape[2]
        return k, v

    def advance(self, n):
        pass


class WritesAtTheFront(KVCache):
    def append(self, layer, k, v):
        T = k.shape[2]
        if self.length + T > self.max_len:
            raise CacheFull("full")
        self.keys[layer, :, :, :T], self.values[layer, :, :, :T] = k, v
        end = self.length + T
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]


class OneLayerForAll(KVCache):
    def append(self, layer, k, v):
        return super().append(0, k, v)


class ReturnsAllOfTheStorage(KVCache):
    def append(self, layer, k, v):
        super().append(layer, k, v)
        return self.keys[layer], self.values[layer]


class ReturnsOnlyTheNew(KVCache):
    def append(self, layer, k, v):
        super().append(layer, k, v)
        return k, v


class KeepsKeysAsValues(KVCache):
    def append(self, layer, k, v):
        return super().append(layer, k, k)


class LastPlaceUnused(KVCache):
    def append(self, layer, k, v):
        if self.length + k.shape[2] >= self.max_len:
            raise CacheFull("full")
        return super().append(layer, k, v)


class DropsWhatDoesNotFit(KVCache):
    def append(self, layer, k, v):
        room = self.max_len - self.length
        if room == 0:
            return self.keys[layer], self.values[layer]
        return super().append(layer, k[:, :, :room], v[:, :, :room])


class ReturnsFloat32(KVCache):
    def append(self, layer, k, v):
        k, v = super().append(layer, k, v)
        return k.float(), v.float()


class WritesBeforeItLooks(KVCache):
    def append(self, layer, k, v):
        T, start = k.shape[2], self.length
        if start + T > self.max_len:
            self.keys[layer] = self.keys[layer].roll(-T, dims=2)
            self.keys[layer, :, :, -T:] = k
            raise CacheFull("full")
        return super().append(layer, k, v)


class ForgetsToGoBack(KVCache):
    def reset(self):
        self.keys.zero_()
        self.values.zero_()


class TruncatesFromTheLeft(KVCache):
    def truncate(self, n):
        check_between("n", n, 0, len(self))
        cut = self.length - n
        self.keys, self.values = self.keys.roll(-cut, dims=3), self.values.roll(-cut, dims=3)
        self.length = n


class TruncatesByN(KVCache):
    def truncate(self, n):
        check_between("n", n, 0, len(self))
        self.length -= n


class SharedStorage(KVCache):
    _storage: dict = {}  # noqa: RUF012 (the mistake)

    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        super().__init__(config, batch, max_len, dtype, device)
        shared = self._storage.setdefault((config, batch, max_len, dtype), (self.keys, self.values))
        self.keys, self.values = shared


class AlwaysFloat32(KVCache):
    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        super().__init__(config, batch, max_len, torch.float32, device)
        self.asked = dtype

    def append(self, layer, k, v):
        k, v = super().append(layer, k.float(), v.float())
        return k.to(self.asked), v.to(self.asked)

    def nbytes(self):
        return (self.keys.nbytes + self.values.nbytes) * self.asked.itemsize // 4


class StoresQueryHeads(KVCache):
    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        super().__init__(config, batch, max_len, dtype, device)
        group = config.n_heads // config.n_kv_heads
        self.keys = self.keys.repeat_interleave(group, dim=2)
        self.values = self.values.repeat_interleave(group, dim=2)

    def append(self, layer, k, v):
        group = self.config.n_heads // self.config.n_kv_heads
        wide = (k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1))
        end = self.length + k.shape[2]
        if end > self.max_len:
            raise CacheFull("full")
        self.keys[layer, :, :, self.length : end], self.values[layer, :, :, self.length : end] = (
            wide
        )
        return self.keys[layer, :, ::group, :end], self.values[layer, :, ::group, :end]


class CountsKeysOnly(KVCache):
    def nbytes(self):
        return self.keys.nbytes


# --- attention_layer_cached ----------------------------------------------------------------------


def _layer(
    attn, x, positions, cache, layer, *, rotate_keys=True, tile=False, mask=causal_mask, scale=None
):
    q = attn.rotate(split_heads(attn.wq(x), attn.n_heads), positions)
    k = split_heads(attn.wk(x), attn.n_kv_heads)
    v = split_heads(attn.wv(x), attn.n_kv_heads)
    k, v = cache.append(layer, attn.rotate(k, positions) if rotate_keys else k, v)
    group = attn.n_heads // attn.n_kv_heads
    if tile:
        k, v = k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)
    else:
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    shown = mask(q.shape[2], k.shape[2])
    return attn.wo(
        merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=shown, scale=scale))
    )


def layer_with_is_causal(attn, x, positions, cache, layer):
    return _layer(attn, x, positions, cache, layer, mask=mask_top_left)


def layer_without_mask(attn, x, positions, cache, layer):
    return _layer(attn, x, positions, cache, layer, mask=mask_sees_all)


def layer_with_plain_keys(attn, x, positions, cache, layer):
    return _layer(attn, x, positions, cache, layer, rotate_keys=False)


def layer_with_tiled_heads(attn, x, positions, cache, layer):
    return _layer(attn, x, positions, cache, layer, tile=True)


def layer_without_scale(attn, x, positions, cache, layer):
    return _layer(attn, x, positions, cache, layer, scale=1.0)


def layer_that_restarts_positions(attn, x, positions, cache, layer):
    return _layer(attn, x, torch.arange(x.shape[1]), cache, layer)


def layer_that_stores_wide_heads(attn, x, positions, cache, layer):
    group = attn.n_heads // attn.n_kv_heads
    q = attn.rotate(split_heads(attn.wq(x), attn.n_heads), positions)
    k = attn.rotate(split_heads(attn.wk(x), attn.n_kv_heads), positions)
    v = split_heads(attn.wv(x), attn.n_kv_heads)
    k, v = cache.append(layer, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1))
    mask = causal_mask(q.shape[2], k.shape[2])
    return attn.wo(merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))


def layer_that_rotates_everything_again(attn, x, positions, cache, layer):
    q = attn.rotate(split_heads(attn.wq(x), attn.n_heads), positions)
    k = attn.rotate(split_heads(attn.wk(x), attn.n_kv_heads), positions)
    k, v = cache.append(layer, k, split_heads(attn.wv(x), attn.n_kv_heads))
    k = attn.rotate(k, torch.arange(k.shape[2]))
    group = attn.n_heads // attn.n_kv_heads
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    mask = causal_mask(q.shape[2], k.shape[2])
    return attn.wo(merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))


# --- forward_cached ------------------------------------------------------------------------------


def _forward(model, tokens, cache, past, advances=1):
    model.check_tokens(tokens)
    T = tokens.shape[1]
    positions = torch.arange(past, past + T)
    x = model.embed(tokens)
    for layer, block in enumerate(model.blocks):
        normed = block.attn_norm(x)
        x = x + reference.attention_layer_cached(block.attn, normed, positions, cache, layer)
        x = x + block.mlp(block.mlp_norm(x))
    cache.advance(T * advances)
    return model.lm_head(model.norm(x))


def forward_positions_restart(model, tokens, cache):
    return _forward(model, tokens, cache, 0)


def forward_positions_off_by_one(model, tokens, cache):
    return _forward(model, tokens, cache, max(len(cache) - 1, 0))


def forward_never_advances(model, tokens, cache):
    return _forward(model, tokens, cache, len(cache), advances=0)


def forward_without_final_norm(model, tokens, cache):
    positions = torch.arange(len(cache), len(cache) + tokens.shape[1])
    x = model.embed(tokens)
    for layer, block in enumerate(model.blocks):
        normed = block.attn_norm(x)
        x = x + reference.attention_layer_cached(block.attn, normed, positions, cache, layer)
        x = x + block.mlp(block.mlp_norm(x))
    cache.advance(tokens.shape[1])
    return model.lm_head(x)


def forward_last_logits_only(model, tokens, cache):
    return reference.forward_cached(model, tokens, cache)[:, -1:]


def forward_that_makes_room(model, tokens, cache):
    if len(cache) + tokens.shape[1] > cache.max_len:
        cache.reset()
    return reference.forward_cached(model, tokens, cache)


def forward_that_recomputes(model, tokens, cache):
    reference.forward_cached(model, tokens, cache)
    before = getattr(cache, "text", None)
    text = (
        tokens
        if before is None
        else torch.cat([before[:, : len(cache) - tokens.shape[1]], tokens], 1)
    )
    cache.text = text
    return model(text)[:, -tokens.shape[1] :]


def forward_that_counts_on_the_model(model, tokens, cache):
    past = getattr(model, "past", 0) if len(cache) else 0
    model.past = past + tokens.shape[1]
    return _forward(model, tokens, cache, past)


# --- generate_cached -----------------------------------------------------------------------------


def _new_cache(model, prompt, n_new):
    return KVCache(model.config, prompt.shape[0], prompt.shape[1] + n_new)


def _room(cache, n):
    if len(cache) + n > cache.max_len:
        raise CacheFull("full")


def generate_with_fresh_caches(model, prompt, n_new, cache=None):
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    text = prompt
    for _ in range(n_new):
        logits = forward_cached(model, text, _new_cache(model, text, 1))
        text = torch.cat([text, greedy_next(logits[:, -1]).unsqueeze(1)], dim=1)
    return text


def generate_that_feeds_the_last(model, prompt, n_new, cache=None):
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    cache = _new_cache(model, prompt, n_new) if cache is None else cache
    _room(cache, prompt.shape[1] + n_new - 1)
    logits = forward_cached(model, prompt, cache)
    text = prompt
    for _ in range(n_new):
        new = greedy_next(logits[:, -1]).unsqueeze(1)
        text = torch.cat([text, new], dim=1)
        logits = forward_cached(model, new, cache)
    return text


def generate_that_ignores_the_cache(model, prompt, n_new, cache=None):
    return reference.generate_cached(model, prompt, n_new)


def generate_from_the_first_position(model, prompt, n_new, cache=None):
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    cache = _new_cache(model, prompt, n_new) if cache is None else cache
    _room(cache, prompt.shape[1] + n_new - 1)
    text, feed = prompt, prompt
    for _ in range(n_new):
        feed = greedy_next(forward_cached(model, feed, cache)[:, 0]).unsqueeze(1)
        text = torch.cat([text, feed], dim=1)
    return text


def generate_one_too_few(model, prompt, n_new, cache=None):
    return reference.generate_cached(model, prompt, max(n_new - 1, 0), cache)


def generate_that_feeds_the_prompt_twice(model, prompt, n_new, cache=None):
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    cache = KVCache(model.config, prompt.shape[0], 2 * (prompt.shape[1] + n_new))
    forward_cached(model, prompt, cache)
    text, feed = prompt, prompt[:, -1:]
    for _ in range(n_new):
        feed = greedy_next(forward_cached(model, feed, cache)[:, -1]).unsqueeze(1)
        text = torch.cat([text, feed], dim=1)
    return text


def generate_until_it_is_full(model, prompt, n_new, cache=None):
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    cache = _new_cache(model, prompt, n_new) if cache is None else cache
    text, feed = prompt, prompt
    for _ in range(n_new):
        feed = greedy_next(forward_cached(model, feed, cache)[:, -1]).unsqueeze(1)
        text = torch.cat([text, feed], dim=1)
    return text


def generate_with_work_thrown_away(model, prompt, n_new, cache=None):
    text = reference.generate_cached(model, prompt, n_new, cache)
    for n in range(1, n_new + 1):
        x = model.embed(text[:, :-n])
        for block in model.blocks:
            x = x + block.mlp(block.mlp_norm(x))
    return text


# --- kv_cache_bytes ------------------------------------------------------------------------------


def bytes_of_keys_only(config, n_tokens, batch=1, bytes_per_element=2):
    return reference.kv_cache_bytes(config, n_tokens, batch, bytes_per_element) // 2


def bytes_of_query_heads(config, n_tokens, batch=1, bytes_per_element=2):
    width = config.n_heads * config.head_dim
    return 2 * config.n_layers * width * n_tokens * batch * bytes_per_element


def bytes_of_one_layer(config, n_tokens, batch=1, bytes_per_element=2):
    whole = reference.kv_cache_bytes(config, n_tokens, batch, bytes_per_element)
    return whole // config.n_layers


def bytes_in_fp16_always(config, n_tokens, batch=1, bytes_per_element=2):
    return reference.kv_cache_bytes(config, n_tokens, batch, 2)


def bytes_of_one_row(config, n_tokens, batch=1, bytes_per_element=2):
    return reference.kv_cache_bytes(config, n_tokens, 1, bytes_per_element)


def _bug(check, name, story, family, mistake, **answer):
    return Bug(name, story, f"kv_cache.{check}", family, mistake, answer)


BUGS = [
    _bug(
        "mask_is_rectangular",
        "mask_top_left",
        "is_causal=True, or tril of a T by S matrix: the triangle stands at the left edge, and one "
        "new token sees only the oldest key.",
        "mask",
        "a mask whose triangle stands at the left edge, as if nothing had been cached",
        causal_mask=mask_top_left,
    ),
    _bug(
        "mask_is_rectangular",
        "mask_without_itself",
        "Strictly smaller instead of smaller or equal: a token cannot see itself.",
        "mask",
        "a mask in which no token sees itself",
        causal_mask=mask_without_itself,
    ),
    _bug(
        "mask_is_rectangular",
        "mask_sees_all",
        "In decode everything cached is visible, so no mask: true for one token, wrong for a chunk.",
        "mask",
        "a mask that hides nothing",
        causal_mask=mask_sees_all,
    ),
    _bug(
        "mask_is_rectangular",
        "mask_square",
        "The mask of lesson 01, S by S, which fits no scores of T rows.",
        "form",
        "a mask that is square whatever the number of new tokens",
        causal_mask=mask_square,
    ),
    _bug(
        "mask_is_rectangular",
        "mask_one_too_far",
        "The diagonal is counted from 1, so every new token sees one token ahead.",
        "mask",
        "a mask that lets each token see one token ahead",
        causal_mask=mask_one_too_far,
    ),
    _bug(
        "cache_returns_what_it_was_given",
        "counts_in_append",
        "append moves the length, and layer 1 writes behind layer 0.",
        "state",
        "a cache whose length moves with every layer",
        KVCache=CountsInAppend,
    ),
    _bug(
        "cache_returns_what_it_was_given",
        "writes_at_the_front",
        "Each block is written to places 0 … T-1, over the ones before.",
        "writes",
        "a cache that writes every block to its first places",
        KVCache=WritesAtTheFront,
    ),
    _bug(
        "cache_returns_what_it_was_given",
        "one_layer_for_all",
        "The layer number is ignored, so all layers share one storage.",
        "writes",
        "a cache in which all layers share one storage",
        KVCache=OneLayerForAll,
    ),
    _bug(
        "cache_returns_what_it_was_given",
        "returns_all_of_the_storage",
        "The whole storage comes back, with places that nothing was written to.",
        "writes",
        "a cache that also returns places to which nothing was written",
        KVCache=ReturnsAllOfTheStorage,
    ),
    _bug(
        "cache_returns_what_it_was_given",
        "returns_only_the_new",
        "What was just stored comes back, without what was there.",
        "writes",
        "a cache that returns what was just stored and nothing older",
        KVCache=ReturnsOnlyTheNew,
    ),
    _bug(
        "cache_returns_what_it_was_given",
        "returns_float32",
        "Attention is computed in float32, so the cache had better return it: a copy of everything.",
        "form",
        "a cache that returns float32, whatever it holds",
        KVCache=ReturnsFloat32,
    ),
    _bug(
        "cache_returns_what_it_was_given",
        "keeps_keys_as_values",
        "Copy and paste: the values are the keys.",
        "wiring",
        "a cache that keeps the keys twice and the values never",
        KVCache=KeepsKeysAsValues,
    ),
    _bug(
        "full_cache_changes_nothing",
        "last_place_unused",
        "The end is compared with >= and the last place is never filled.",
        "capacity",
        "a cache whose last place is never filled",
        KVCache=LastPlaceUnused,
    ),
    _bug(
        "full_cache_changes_nothing",
        "drops_what_does_not_fit",
        "Tokens beyond the end are dropped without a word.",
        "capacity",
        "a cache that silently drops what does not fit",
        KVCache=DropsWhatDoesNotFit,
    ),
    _bug(
        "full_cache_changes_nothing",
        "writes_before_it_looks",
        "Room is made by moving the old keys, and then the append is refused.",
        "capacity",
        "a cache that writes first and looks for room afterwards",
        KVCache=WritesBeforeItLooks,
    ),
    _bug(
        "cache_can_go_back",
        "forgets_to_go_back",
        "reset() writes zeros and leaves the length where it was.",
        "state",
        "a reset that clears the numbers and leaves the length",
        KVCache=ForgetsToGoBack,
    ),
    _bug(
        "cache_can_go_back",
        "truncates_from_the_left",
        "truncate(n) keeps the newest n tokens, as a sliding window would.",
        "state",
        "a truncate that keeps the newest tokens",
        KVCache=TruncatesFromTheLeft,
    ),
    _bug(
        "cache_can_go_back",
        "truncates_by_n",
        "truncate(n) takes n tokens away instead of keeping n.",
        "state",
        "a truncate that takes n for the number of tokens to drop",
        KVCache=TruncatesByN,
    ),
    _bug(
        "layer_equals_uncached",
        "layer_with_is_causal",
        "scaled_dot_product_attention(is_causal=True) masks at the top left.",
        "mask",
        "a layer whose mask stands at the top left, as if nothing had been cached",
        attention_layer_cached=layer_with_is_causal,
    ),
    _bug(
        "layer_equals_uncached",
        "layer_without_mask",
        "Right token by token; in a chunk the first tokens see the later ones.",
        "mask",
        "a layer in which the first tokens of a chunk see the later ones",
        attention_layer_cached=layer_without_mask,
    ),
    _bug(
        "layer_equals_uncached",
        "layer_with_plain_keys",
        "Only the queries are rotated.",
        "position",
        "a layer that rotates queries and not keys",
        attention_layer_cached=layer_with_plain_keys,
    ),
    _bug(
        "layer_equals_uncached",
        "layer_with_tiled_heads",
        "repeat() for repeat_interleave(): head h reads KV head h % G.",
        "head order",
        "a layer that gives the KV heads to the query heads in turns",
        attention_layer_cached=layer_with_tiled_heads,
    ),
    _bug(
        "layer_equals_uncached",
        "layer_without_scale",
        "The scores are not divided by the square root of D.",
        "softmax",
        "a layer whose scores go unscaled into the softmax",
        attention_layer_cached=layer_without_scale,
    ),
    _bug(
        "layer_equals_uncached",
        "layer_that_restarts_positions",
        "positions is ignored for arange(T).",
        "position",
        "a layer whose positions restart at every call",
        attention_layer_cached=layer_that_restarts_positions,
    ),
    _bug(
        "layer_equals_uncached",
        "layer_that_stores_wide_heads",
        "The heads are repeated before they are stored.",
        "head order",
        "a layer that repeats the heads before it stores them",
        attention_layer_cached=layer_that_stores_wide_heads,
    ),
    _bug(
        "layer_equals_uncached",
        "layer_that_rotates_everything_again",
        "What comes back from the cache is rotated once more.",
        "position",
        "a layer that rotates keys once more after they come out of the cache",
        attention_layer_cached=layer_that_rotates_everything_again,
    ),
    _bug(
        "every_split_equals_uncached",
        "forward_positions_restart",
        "Positions start at 0 in every call: the prompt is right, every later token is not.",
        "position",
        "a cache whose positions restart at every call",
        forward_cached=forward_positions_restart,
    ),
    _bug(
        "every_split_equals_uncached",
        "forward_positions_off_by_one",
        "The new token gets the position of the last cached one.",
        "position",
        "a cache in which the newest token stands where the one before it stands",
        forward_cached=forward_positions_off_by_one,
    ),
    _bug(
        "every_split_equals_uncached",
        "forward_that_makes_room",
        "A full cache is emptied, and the text goes on as if it began here.",
        "capacity",
        "a forward pass that empties a full cache and goes on",
        forward_cached=forward_that_makes_room,
    ),
    _bug(
        "every_split_equals_uncached",
        "forward_never_advances",
        "advance is forgotten: each chunk is written over the one before.",
        "writes",
        "a cache that is never told that tokens were added",
        forward_cached=forward_never_advances,
    ),
    _bug(
        "every_split_equals_uncached",
        "forward_without_final_norm",
        "The last norm is left out.",
        "wiring",
        "a model without its last norm",
        forward_cached=forward_without_final_norm,
    ),
    _bug(
        "every_split_equals_uncached",
        "forward_last_logits_only",
        "Only the last position's logits come back.",
        "form",
        "a model that gives back the logits of the last token alone",
        forward_cached=forward_last_logits_only,
    ),
    _bug(
        "cache_is_the_only_memory",
        "forward_that_recomputes",
        "The text is kept beside the cache, and everything is computed again from it.",
        "state",
        "a forward pass that remembers the text beside the cache",
        forward_cached=forward_that_recomputes,
    ),
    _bug(
        "two_conversations_stay_apart",
        "shared_storage",
        "The storage is made once for the class, so all caches of one size write into it.",
        "state",
        "caches that write into one and the same storage",
        KVCache=SharedStorage,
    ),
    _bug(
        "two_conversations_stay_apart",
        "forward_that_counts_on_the_model",
        "The position is counted on the model, where two conversations meet.",
        "state",
        "a position that is counted where two conversations meet",
        forward_cached=forward_that_counts_on_the_model,
    ),
    _bug(
        "no_row_is_computed_twice",
        "generate_with_fresh_caches",
        "A new cache at every step: the right text at the old price.",
        "cost",
        "a generation with a new cache at every step",
        generate_cached=generate_with_fresh_caches,
    ),
    _bug(
        "no_row_is_computed_twice",
        "generate_that_feeds_the_last",
        "The last new token is fed as well, for logits that nobody reads.",
        "cost",
        "a generation that also feeds its last token, for logits that nobody reads",
        generate_cached=generate_that_feeds_the_last,
    ),
    _bug(
        "no_row_is_computed_twice",
        "generate_that_ignores_the_cache",
        "The cache that is given is not the one that is used.",
        "state",
        "a generation that does not use the cache that it was given",
        generate_cached=generate_that_ignores_the_cache,
    ),
    _bug(
        "no_row_is_computed_twice",
        "generate_from_the_first_position",
        "logits[:, 0] is right for a single token and wrong for the prompt.",
        "choice",
        "a generation that reads the logits of the first position",
        generate_cached=generate_from_the_first_position,
    ),
    _bug(
        "no_row_is_computed_twice",
        "generate_one_too_few",
        "The loop runs n_new - 1 times.",
        "off by one",
        "a loop that turns once too few",
        generate_cached=generate_one_too_few,
    ),
    _bug(
        "no_row_is_computed_twice",
        "generate_that_feeds_the_prompt_twice",
        "After the prompt its last token is fed once more to start the loop.",
        "feeding",
        "a generation that feeds the last token of the prompt a second time",
        generate_cached=generate_that_feeds_the_prompt_twice,
    ),
    _bug(
        "no_row_is_computed_twice",
        "generate_until_it_is_full",
        "Room is not looked at before the first pass, so a refused call leaves tokens behind.",
        "capacity",
        "a generation that notices only on its way that the room ends",
        generate_cached=generate_until_it_is_full,
    ),
    _bug(
        "no_row_is_computed_twice",
        "generate_with_work_thrown_away",
        "No key is computed twice, but the MLP runs over the whole text at every step.",
        "cost",
        "a generation that computes parts of the whole text again at every step",
        generate_cached=generate_with_work_thrown_away,
    ),
    _bug(
        "bytes_match_the_storage",
        "bytes_of_keys_only",
        "Keys or values, but not both.",
        "formula",
        "bytes of keys or of values, but not of both",
        kv_cache_bytes=bytes_of_keys_only,
    ),
    _bug(
        "bytes_match_the_storage",
        "bytes_of_query_heads",
        "n_heads where n_kv_heads belongs, as a popular formula has it.",
        "head order",
        "bytes of as many heads as there are queries",
        kv_cache_bytes=bytes_of_query_heads,
    ),
    _bug(
        "bytes_match_the_storage",
        "bytes_of_one_layer",
        "The layers are forgotten.",
        "formula",
        "bytes of a single layer",
        kv_cache_bytes=bytes_of_one_layer,
    ),
    _bug(
        "bytes_match_the_storage",
        "bytes_in_fp16_always",
        "bytes_per_element is not used.",
        "formula",
        "bytes in which every number has two, whatever was asked",
        kv_cache_bytes=bytes_in_fp16_always,
    ),
    _bug(
        "bytes_match_the_storage",
        "bytes_of_one_row",
        "The batch is forgotten.",
        "formula",
        "bytes of a single batch row",
        kv_cache_bytes=bytes_of_one_row,
    ),
    _bug(
        "bytes_match_the_storage",
        "always_float32",
        "The storage is float32 whatever was asked for, and nbytes() says otherwise.",
        "form",
        "a cache that stores float32 whatever was asked for",
        KVCache=AlwaysFloat32,
    ),
    _bug(
        "bytes_match_the_storage",
        "stores_query_heads",
        "H heads are stored where G would do.",
        "head order",
        "a cache that stores as many heads as there are queries",
        KVCache=StoresQueryHeads,
    ),
    _bug(
        "bytes_match_the_storage",
        "counts_keys_only",
        "nbytes() leaves the values out.",
        "formula",
        "a cache that counts its keys and leaves out its values",
        KVCache=CountsKeysOnly,
    ),
]

# --- correct answers in other styles -------------------------------------------------------------


class ConcatenatedCache:
    """Lists of tensors that grow by torch.cat."""

    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        check_cache_sizes(config, batch, max_len)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        empty = torch.zeros(
            batch, config.n_kv_heads, 0, config.head_dim, dtype=dtype, device=device
        )
        self.held = [(empty, empty) for _ in range(config.n_layers)]
        self.pending = list(self.held)
        self.count = 0

    def __len__(self):
        return self.count

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        if self.count + k.shape[2] > self.max_len:
            raise CacheFull(f"no room for {k.shape[2]} more")
        old_k, old_v = self.held[layer]
        self.pending[layer] = (torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2))
        return self.pending[layer]

    def advance(self, n):
        check_between("n", n, 0, self.max_len - self.count)
        self.held, self.count = list(self.pending), self.count + n

    def truncate(self, n):
        check_between("n", n, 0, self.count)
        self.held = [(k[:, :, :n].clone(), v[:, :, :n].clone()) for k, v in self.held]
        self.pending, self.count = list(self.held), n

    def reset(self):
        self.truncate(0)

    def nbytes(self):
        return sum(k.nbytes + v.nbytes for k, v in self.held)


class OneTensorCache(KVCache):
    """Keys and values in one tensor, batch first; clones come back."""

    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        check_cache_sizes(config, batch, max_len)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        shape = (batch, config.n_layers, 2, max_len, config.n_kv_heads, config.head_dim)
        self.storage = torch.full(shape, float("nan"), dtype=dtype, device=device)
        self.length = 0

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        new = slice(self.length, self.length + k.shape[2])
        if new.stop > self.max_len:
            raise CacheFull("full")
        both = torch.stack([k, v], dim=1).transpose(2, 3)  # (B, 2, T, G, D)
        self.storage[:, layer, :, new] = both
        held = self.storage[:, layer, :, : new.stop].transpose(2, 3)  # (B, 2, G, S, D)
        return held[:, 0].clone(), held[:, 1].clone()

    def nbytes(self):
        return self.storage.numel() * self.storage.element_size()


def mask_by_tril(n_new, n_visible, device="cpu"):
    check_between("n_new", n_new, 1, n_visible)
    return torch.ones(n_new, n_visible, dtype=torch.bool, device=device).tril(n_visible - n_new)


def layer_by_hand(attn, x, positions, cache, layer):
    """Grouped queries, einsum, an additive mask, float64 inside."""
    B, T, _ = x.shape
    H, G, D = attn.n_heads, attn.n_kv_heads, attn.head_dim
    q = attn.rotate(attn.wq(x).view(B, T, H, D).transpose(1, 2), positions)
    k = attn.rotate(attn.wk(x).view(B, T, G, D).transpose(1, 2), positions)
    k, v = cache.append(layer, k, attn.wv(x).view(B, T, G, D).transpose(1, 2))
    q = q.reshape(B, G, H // G, T, D).double()  # (B, G, H/G, T, D)
    scores = torch.einsum("bgrtd,bgsd->bgrts", q, k.double()) / math.sqrt(D)
    hidden = torch.zeros(T, k.shape[2]).masked_fill(~causal_mask(T, k.shape[2]), float("-inf"))
    weights = (scores + hidden).softmax(dim=-1)
    heads = torch.einsum("bgrts,bgsd->bgrtd", weights, v.double()).to(x.dtype)
    return attn.wo(heads.reshape(B, H, T, D).transpose(1, 2).reshape(B, T, H * D))


def layer_without_mask_for_one(attn, x, positions, cache, layer):
    """No mask where one new token sees everything."""
    alone = x.shape[1] == 1
    return _layer(
        attn, x, positions, cache, layer, mask=(lambda T, S: None) if alone else mask_by_tril
    )


def forward_step_by_step(model, tokens, cache):
    """One token at a time, whatever the chunk: slow and right."""
    model.check_tokens(tokens)
    if len(cache) + tokens.shape[1] > cache.max_len:
        raise CacheFull("full")
    columns = tokens.split(1, dim=1)
    return torch.cat([_forward(model, column, cache, len(cache)) for column in columns], dim=1)


def generate_prefill_first(model, prompt, n_new, cache=None):
    """The prompt outside the loop, a preallocated result, argmax by hand."""
    model.check_tokens(prompt)
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    B, P = prompt.shape
    text = torch.empty(B, P + n_new, dtype=torch.int64)
    text[:, :P] = prompt
    if n_new == 0:
        return text
    cache = KVCache(model.config, B, P + n_new) if cache is None else cache
    if cache.max_len - len(cache) < P + n_new - 1:
        raise CacheFull("full")
    text[:, P] = forward_cached(model, prompt, cache)[:, -1].argmax(dim=-1)
    for place in range(P + 1, P + n_new):
        text[:, place] = forward_cached(model, text[:, place - 1 : place], cache)[:, -1].argmax(-1)
    return text


def bytes_by_head(config, n_tokens, batch=1, bytes_per_element=2):
    per_token = sum(2 * config.n_kv_heads * config.head_dim for _ in range(config.n_layers))
    return per_token * bytes_per_element * n_tokens * batch


VARIANTS = [
    Variant("concatenated", {"KVCache": ConcatenatedCache, "causal_mask": mask_by_tril}),
    Variant("one_tensor", {"KVCache": OneTensorCache, "kv_cache_bytes": bytes_by_head}),
    Variant("by_hand", {"attention_layer_cached": layer_by_hand, "causal_mask": mask_by_tril}),
    Variant("no_mask_for_one_token", {"attention_layer_cached": layer_without_mask_for_one}),
    Variant("step_by_step", {"forward_cached": forward_step_by_step}),
    Variant("prefill_first", {"generate_cached": generate_prefill_first}),
]
