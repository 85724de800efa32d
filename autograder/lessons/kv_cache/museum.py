"""Known wrong answers to lesson 03."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from autograder.lessons.exhibits import Museum
from course.bounds import check_between
from course.cache import CacheFull
from course.minigpt import kv_cache as right
from course.minigpt.kv_cache import KVCache, attention_layer_cached, causal_mask, forward_cached
from course.minigpt.mini_gpt import greedy_next, merge_heads, split_heads

MUSEUM = Museum("kv_cache")


bug, patch = MUSEUM.section("causal_mask", check="mask_is_rectangular")


@bug("mask", "a mask whose triangle stands at the left edge, as if nothing had been cached")
def mask_top_left(n_new, n_visible, device="cpu"):
    """is_causal=True, or tril of a T by S matrix: the triangle stands at the left edge, and one
    new token sees only the oldest key."""
    return torch.ones(n_new, n_visible, dtype=torch.bool, device=device).tril()


@bug("mask", "a mask in which no token sees itself")
def mask_without_itself(n_new, n_visible, device="cpu"):
    """Strictly smaller instead of smaller or equal: a token cannot see itself."""
    mask = torch.ones(n_new, n_visible, dtype=torch.bool, device=device)
    return mask.tril(diagonal=n_visible - n_new - 1)


@bug("mask", "a mask that hides nothing")
def mask_sees_all(n_new, n_visible, device="cpu"):
    """In decode everything cached is visible, so no mask: true for one token, wrong for a
    chunk."""
    return torch.ones(n_new, n_visible, dtype=torch.bool, device=device)


@bug("form", "a mask that is square whatever the number of new tokens")
def mask_square(n_new, n_visible, device="cpu"):
    """The mask of lesson 01, S by S, which fits no scores of T rows."""
    return torch.ones(n_visible, n_visible, dtype=torch.bool, device=device).tril()


@bug("mask", "a mask that lets each token see one token ahead")
def mask_one_too_far(n_new, n_visible, device="cpu"):
    """The diagonal is counted from 1, so every new token sees one token ahead."""
    mask = torch.ones(n_new, n_visible, dtype=torch.bool, device=device)
    return mask.tril(diagonal=n_visible - n_new + 1)


bug, patch = MUSEUM.section("KVCache", check="cache_returns_what_it_was_given")


@bug("state", "a cache whose length moves with every layer")
class CountsInAppend(KVCache):
    """append moves the length, and layer 1 writes behind layer 0."""

    def append(self, layer, k, v):
        k, v = super().append(layer, k, v)
        self.length = k.shape[2]
        return k, v

    def advance(self, n):
        pass


@bug("writes", "a cache that writes every block to its first places")
class WritesAtTheFront(KVCache):
    """Each block is written to places 0 … T-1, over the ones before."""

    def append(self, layer, k, v):
        T = k.shape[2]
        if self.length + T > self.max_len:
            raise CacheFull("full")
        self.keys[layer, :, :, :T], self.values[layer, :, :, :T] = k, v
        end = self.length + T
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]


@bug("writes", "a cache in which all layers share one storage")
class OneLayerForAll(KVCache):
    """The layer number is ignored, so all layers share one storage."""

    def append(self, layer, k, v):
        return super().append(0, k, v)


@bug("writes", "a cache that also returns places to which nothing was written")
class ReturnsAllOfTheStorage(KVCache):
    """The whole storage comes back, with places that nothing was written to."""

    def append(self, layer, k, v):
        super().append(layer, k, v)
        return self.keys[layer], self.values[layer]


@bug("writes", "a cache that returns what was just stored and nothing older")
class ReturnsOnlyTheNew(KVCache):
    """What was just stored comes back, without what was there."""

    def append(self, layer, k, v):
        super().append(layer, k, v)
        return k, v


@bug("form", "a cache that returns float32, whatever it holds")
class ReturnsFloat32(KVCache):
    """Attention is computed in float32, so the cache had better return it: a copy of
    everything."""

    def append(self, layer, k, v):
        k, v = super().append(layer, k, v)
        return k.float(), v.float()


@bug("wiring", "a cache that keeps the keys twice and the values never")
class KeepsKeysAsValues(KVCache):
    """Copy and paste: the values are the keys."""

    def append(self, layer, k, v):
        return super().append(layer, k, k)


bug, patch = MUSEUM.section("KVCache", check="full_cache_changes_nothing")


@bug("capacity", "a cache whose last place is never filled")
class LastPlaceUnused(KVCache):
    """The end is compared with >= and the last place is never filled."""

    def append(self, layer, k, v):
        if self.length + k.shape[2] >= self.max_len:
            raise CacheFull("full")
        return super().append(layer, k, v)


@bug("capacity", "a cache that silently drops what does not fit")
class DropsWhatDoesNotFit(KVCache):
    """Tokens beyond the end are dropped without a word."""

    def append(self, layer, k, v):
        room = self.max_len - self.length
        if room == 0:
            return self.keys[layer], self.values[layer]
        return super().append(layer, k[:, :, :room], v[:, :, :room])


@bug("capacity", "a cache that writes first and looks for room afterwards")
class WritesBeforeItLooks(KVCache):
    """Room is made by moving the old keys, and then the append is refused."""

    def append(self, layer, k, v):
        T, start = k.shape[2], self.length
        if start + T > self.max_len:
            self.keys[layer] = self.keys[layer].roll(-T, dims=2)
            self.keys[layer, :, :, -T:] = k
            raise CacheFull("full")
        return super().append(layer, k, v)


bug, patch = MUSEUM.section("KVCache", check="cache_can_go_back")


@bug("state", "a reset that clears the numbers and leaves the length")
class ForgetsToGoBack(KVCache):
    """reset() writes zeros and leaves the length where it was."""

    def reset(self):
        self.keys.zero_()
        self.values.zero_()


@bug("state", "a truncate that keeps the newest tokens")
class TruncatesFromTheLeft(KVCache):
    """truncate(n) keeps the newest n tokens, as a sliding window would."""

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        cut = self.length - n
        self.keys, self.values = self.keys.roll(-cut, dims=3), self.values.roll(-cut, dims=3)
        self.length = n


@bug("state", "a truncate that takes n for the number of tokens to drop")
class TruncatesByN(KVCache):
    """truncate(n) takes n tokens away instead of keeping n."""

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        self.length -= n


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


bug, patch = MUSEUM.section("attention_layer_cached", check="layer_equals_uncached")


@bug("mask", "a layer whose mask stands at the top left, as if nothing had been cached")
def layer_with_is_causal(attn, x, positions, cache, layer):
    """scaled_dot_product_attention(is_causal=True) masks at the top left."""
    return _layer(attn, x, positions, cache, layer, mask=mask_top_left)


@bug("mask", "a layer in which the first tokens of a chunk see the later ones")
def layer_without_mask(attn, x, positions, cache, layer):
    """Right token by token; in a chunk the first tokens see the later ones."""
    return _layer(attn, x, positions, cache, layer, mask=mask_sees_all)


@bug("position", "a layer that rotates queries and not keys")
def layer_with_plain_keys(attn, x, positions, cache, layer):
    """Only the queries are rotated."""
    return _layer(attn, x, positions, cache, layer, rotate_keys=False)


@bug("head order", "a layer that gives the KV heads to the query heads in turns")
def layer_with_tiled_heads(attn, x, positions, cache, layer):
    """repeat() for repeat_interleave(): head h reads KV head h % G."""
    return _layer(attn, x, positions, cache, layer, tile=True)


@bug("softmax", "a layer whose scores go unscaled into the softmax")
def layer_without_scale(attn, x, positions, cache, layer):
    """The scores are not divided by the square root of D."""
    return _layer(attn, x, positions, cache, layer, scale=1.0)


@bug("position", "a layer whose positions restart at every call")
def layer_that_restarts_positions(attn, x, positions, cache, layer):
    """positions is ignored for arange(T)."""
    return _layer(attn, x, torch.arange(x.shape[1]), cache, layer)


@bug("head order", "a layer that repeats the heads before it stores them")
def layer_that_stores_wide_heads(attn, x, positions, cache, layer):
    """The heads are repeated before they are stored."""
    group = attn.n_heads // attn.n_kv_heads
    q = attn.rotate(split_heads(attn.wq(x), attn.n_heads), positions)
    k = attn.rotate(split_heads(attn.wk(x), attn.n_kv_heads), positions)
    v = split_heads(attn.wv(x), attn.n_kv_heads)
    k, v = cache.append(layer, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1))
    mask = causal_mask(q.shape[2], k.shape[2])
    return attn.wo(merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))


@bug("position", "a layer that rotates keys once more after they come out of the cache")
def layer_that_rotates_everything_again(attn, x, positions, cache, layer):
    """What comes back from the cache is rotated once more."""
    q = attn.rotate(split_heads(attn.wq(x), attn.n_heads), positions)
    k = attn.rotate(split_heads(attn.wk(x), attn.n_kv_heads), positions)
    k, v = cache.append(layer, k, split_heads(attn.wv(x), attn.n_kv_heads))
    k = attn.rotate(k, torch.arange(k.shape[2]))
    group = attn.n_heads // attn.n_kv_heads
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    mask = causal_mask(q.shape[2], k.shape[2])
    return attn.wo(merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))


def _forward(model, tokens, cache, past, advances=1):
    model.check_tokens(tokens)
    T = tokens.shape[1]
    positions = torch.arange(past, past + T)
    x = model.embed(tokens)
    for layer, block in enumerate(model.blocks):
        normed = block.attn_norm(x)
        x = x + attention_layer_cached(block.attn, normed, positions, cache, layer)
        x = x + block.mlp(block.mlp_norm(x))
    cache.advance(T * advances)
    return model.lm_head(model.norm(x))


bug, patch = MUSEUM.section("forward_cached", check="every_split_equals_uncached")


@bug("position", "a cache whose positions restart at every call")
def forward_positions_restart(model, tokens, cache):
    """Positions start at 0 in every call: the prompt is right, every later token is not."""
    return _forward(model, tokens, cache, 0)


@bug("position", "a cache in which the newest token stands where the one before it stands")
def forward_positions_off_by_one(model, tokens, cache):
    """The new token gets the position of the last cached one."""
    return _forward(model, tokens, cache, max(len(cache) - 1, 0))


@bug("capacity", "a forward pass that empties a full cache and goes on")
def forward_that_makes_room(model, tokens, cache):
    """A full cache is emptied, and the text goes on as if it began here."""
    if len(cache) + tokens.shape[1] > cache.max_len:
        cache.reset()
    return right.forward_cached(model, tokens, cache)


@bug("writes", "a cache that is never told that tokens were added")
def forward_never_advances(model, tokens, cache):
    """advance is forgotten: each chunk is written over the one before."""
    return _forward(model, tokens, cache, len(cache), advances=0)


@bug("wiring", "a model without its last norm")
def forward_without_final_norm(model, tokens, cache):
    """The last norm is left out."""
    positions = torch.arange(len(cache), len(cache) + tokens.shape[1])
    x = model.embed(tokens)
    for layer, block in enumerate(model.blocks):
        normed = block.attn_norm(x)
        x = x + attention_layer_cached(block.attn, normed, positions, cache, layer)
        x = x + block.mlp(block.mlp_norm(x))
    cache.advance(tokens.shape[1])
    return model.lm_head(x)


@bug("form", "a model that gives back the logits of the last token alone")
def forward_last_logits_only(model, tokens, cache):
    """Only the last position's logits come back."""
    return right.forward_cached(model, tokens, cache)[:, -1:]


bug, patch = MUSEUM.section("forward_cached", check="cache_is_the_only_memory")


@bug("state", "a forward pass that remembers the text beside the cache")
def forward_that_recomputes(model, tokens, cache):
    """The text is kept beside the cache, and everything is computed again from it."""
    right.forward_cached(model, tokens, cache)
    before = getattr(cache, "text", None)
    text = (
        tokens
        if before is None
        else torch.cat([before[:, : len(cache) - tokens.shape[1]], tokens], 1)
    )
    cache.text = text
    return model(text)[:, -tokens.shape[1] :]


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


@bug("state", "a position that is counted where two conversations meet")
def forward_that_counts_on_the_model(model, tokens, cache):
    """The position is counted on the model, where two conversations meet."""
    past = getattr(model, "past", 0) if len(cache) else 0
    model.past = past + tokens.shape[1]
    return _forward(model, tokens, cache, past)


def _new_cache(model, prompt, n_new):
    return KVCache(model.config, prompt.shape[0], prompt.shape[1] + n_new)


bug, patch = MUSEUM.section("generate_cached", check="no_row_is_computed_twice")


@bug("cost", "a generation with a new cache at every step")
def generate_with_fresh_caches(model, prompt, n_new, cache=None):
    """A new cache at every step: the right text at the old price."""
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    text = prompt
    for _ in range(n_new):
        logits = forward_cached(model, text, _new_cache(model, text, 1))
        text = torch.cat([text, greedy_next(logits[:, -1]).unsqueeze(1)], dim=1)
    return text


def _room(cache, n):
    if len(cache) + n > cache.max_len:
        raise CacheFull("full")


@bug("cost", "a generation that also feeds its last token, for logits that nobody reads")
def generate_that_feeds_the_last(model, prompt, n_new, cache=None):
    """The last new token is fed as well, for logits that nobody reads."""
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


@bug("state", "a generation that does not use the cache that it was given")
def generate_that_ignores_the_cache(model, prompt, n_new, cache=None):
    """The cache that is given is not the one that is used."""
    return right.generate_cached(model, prompt, n_new)


@bug("choice", "a generation that reads the logits of the first position")
def generate_from_the_first_position(model, prompt, n_new, cache=None):
    """logits[:, 0] is right for a single token and wrong for the prompt."""
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    cache = _new_cache(model, prompt, n_new) if cache is None else cache
    _room(cache, prompt.shape[1] + n_new - 1)
    text, feed = prompt, prompt
    for _ in range(n_new):
        feed = greedy_next(forward_cached(model, feed, cache)[:, 0]).unsqueeze(1)
        text = torch.cat([text, feed], dim=1)
    return text


@bug("off by one", "a loop that turns once too few")
def generate_one_too_few(model, prompt, n_new, cache=None):
    """The loop runs n_new - 1 times."""
    return right.generate_cached(model, prompt, max(n_new - 1, 0), cache)


@bug("feeding", "a generation that feeds the last token of the prompt a second time")
def generate_that_feeds_the_prompt_twice(model, prompt, n_new, cache=None):
    """After the prompt its last token is fed once more to start the loop."""
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    cache = KVCache(model.config, prompt.shape[0], 2 * (prompt.shape[1] + n_new))
    forward_cached(model, prompt, cache)
    text, feed = prompt, prompt[:, -1:]
    for _ in range(n_new):
        feed = greedy_next(forward_cached(model, feed, cache)[:, -1]).unsqueeze(1)
        text = torch.cat([text, feed], dim=1)
    return text


@bug("capacity", "a generation that notices only on its way that the room ends")
def generate_until_it_is_full(model, prompt, n_new, cache=None):
    """Room is not looked at before the first pass, so a refused call leaves tokens behind."""
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    cache = _new_cache(model, prompt, n_new) if cache is None else cache
    text, feed = prompt, prompt
    for _ in range(n_new):
        feed = greedy_next(forward_cached(model, feed, cache)[:, -1]).unsqueeze(1)
        text = torch.cat([text, feed], dim=1)
    return text


@bug("cost", "a generation that computes parts of the whole text again at every step")
def generate_with_work_thrown_away(model, prompt, n_new, cache=None):
    """No key is computed twice, but the MLP runs over the whole text at every step."""
    text = right.generate_cached(model, prompt, n_new, cache)
    for n in range(1, n_new + 1):
        x = model.embed(text[:, :-n])
        for block in model.blocks:
            x = x + block.mlp(block.mlp_norm(x))
    return text


bug, patch = MUSEUM.section("kv_cache_bytes", check="bytes_match_the_storage")


@bug("formula", "bytes of keys or of values, but not of both")
def bytes_of_keys_only(config, n_tokens, batch=1, bytes_per_element=2):
    """Keys or values, but not both."""
    return right.kv_cache_bytes(config, n_tokens, batch, bytes_per_element) // 2


@bug("head order", "bytes of as many heads as there are queries")
def bytes_of_query_heads(config, n_tokens, batch=1, bytes_per_element=2):
    """n_heads where n_kv_heads belongs, as a popular formula has it."""
    width = config.n_heads * config.head_dim
    return 2 * config.n_layers * width * n_tokens * batch * bytes_per_element


@bug("formula", "bytes of a single layer")
def bytes_of_one_layer(config, n_tokens, batch=1, bytes_per_element=2):
    """The layers are forgotten."""
    whole = right.kv_cache_bytes(config, n_tokens, batch, bytes_per_element)
    return whole // config.n_layers


@bug("formula", "bytes in which every number has two, whatever was asked")
def bytes_in_fp16_always(config, n_tokens, batch=1, bytes_per_element=2):
    """bytes_per_element is not used."""
    return right.kv_cache_bytes(config, n_tokens, batch, 2)


@bug("formula", "bytes of a single batch row")
def bytes_of_one_row(config, n_tokens, batch=1, bytes_per_element=2):
    """The batch is forgotten."""
    return right.kv_cache_bytes(config, n_tokens, 1, bytes_per_element)


bug, patch = MUSEUM.section("KVCache", check="bytes_match_the_storage")


@bug("form", "a cache that stores float32 whatever was asked for")
class AlwaysFloat32(KVCache):
    """The storage is float32 whatever was asked for, and nbytes() says otherwise."""

    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        super().__init__(config, batch, max_len, torch.float32, device)
        self.asked = dtype

    def append(self, layer, k, v):
        k, v = super().append(layer, k.float(), v.float())
        return k.to(self.asked), v.to(self.asked)

    def nbytes(self):
        return (self.keys.nbytes + self.values.nbytes) * self.asked.itemsize // 4


@bug("head order", "a cache that stores as many heads as there are queries")
class StoresQueryHeads(KVCache):
    """H heads are stored where G would do."""

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


@bug("formula", "a cache that counts its keys and leaves out its values")
class CountsKeysOnly(KVCache):
    """nbytes() leaves the values out."""

    def nbytes(self):
        return self.keys.nbytes
