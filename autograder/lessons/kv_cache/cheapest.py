"""The cheapest wrong functions for the checks of lesson 03, see `autograder cheapest`."""


class Counting:
    def __init__(self, config, batch, max_len=0, dtype=None, device=None):
        self.n, self.max_len = 0, max_len

    def __len__(self):
        return self.n

    def append(self, layer, k, v):
        return k, v

    def advance(self, n):
        self.n += n

    def truncate(self, n):
        self.n = n

    def reset(self):
        self.n = 0


# %% mask_is_rectangular: a triangle at the left edge
def causal_mask(n_new, n_visible, device="cpu"):
    return torch.ones(n_new, n_visible, dtype=torch.bool).tril()


# %% growing_cache_returns_everything: the block itself, and nothing kept
class GrowingKVCache(Counting):
    pass


# %% copies_add_up: as if every step copied all the tokens, of one row
def numbers_copied(config, n_tokens, batch=1):
    return 2 * config.n_layers * config.d_model * n_tokens**2 * batch


# %% cache_returns_what_it_was_given: storage that hands back what came, without a past
class KVCache(Counting):
    pass


# %% full_cache_changes_nothing: a length that refuses, and rows of zeros
class KVCache(Counting):
    def append(self, layer, k, v):
        if self.n + k.shape[2] > self.max_len:
            raise CacheFull("no room")
        zeros = torch.zeros(*k.shape[:2], self.n + k.shape[2], k.shape[3], dtype=k.dtype)
        return zeros, zeros


# %% cache_can_go_back: blocks in a list that grows, with no storage and no refusals of blocks
class KVCache(Counting):
    def __init__(self, config, batch, max_len, dtype=None, device=None):
        self.rows, self.n = {}, 0

    def append(self, layer, k, v):
        new = torch.stack([k, v])
        old = self.rows[layer][..., : self.n, :] if self.n else new[..., :0, :]
        self.rows[layer] = torch.cat([old, new], dim=-2)
        return tuple(self.rows[layer])

    def truncate(self, n):
        check_between("n", n, 0, self.n)
        self.n = n


# %% layer_equals_uncached: a layer over the new tokens alone
def attention_layer_cached(attn, x, positions, cache, layer):
    q, k, v = (
        part(x).unflatten(-1, (-1, attn.head_dim)).transpose(1, 2)
        for part in (attn.wq, attn.wk, attn.wv)
    )
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    cache.append(layer, k, v)
    return attn.wo(
        F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        .transpose(1, 2)
        .flatten(2)
    )


class KVCache(Counting):
    pass


# %% every_split_equals_uncached: a cache of tokens, all read again by another model of these weights
class KVCache(Counting):
    pass


def forward_cached(model, tokens, cache):
    if cache.n + tokens.shape[1] > cache.max_len:
        raise CacheFull("no room")
    cache.text = torch.cat([cache.text, tokens], dim=1) if cache.n else tokens
    cache.n += tokens.shape[1]
    weights = {name: part.clone() for name, part in model.state_dict().items()}
    again = MiniGPT.from_state(model.config, weights)
    return again.to(model.embed.weight.dtype)(cache.text)[:, -tokens.shape[1] :]


# %% cache_is_the_only_memory: logits of the new tokens alone
class KVCache(Counting):
    pass


def forward_cached(model, tokens, cache):
    return model(tokens)


# %% two_conversations_stay_apart: a cache of tokens, all of which are read again
class KVCache:
    def __init__(self, config, batch, max_len, dtype=None, device=None):
        self.reset()

    def reset(self):
        self.text = torch.zeros(0, dtype=torch.int64)


def forward_cached(model, tokens, cache):
    cache.text = torch.cat([cache.text, tokens], dim=1) if len(cache.text) else tokens
    return model(cache.text)[:, -tokens.shape[1] :]


# %% no_row_is_computed_twice: the whole text read at every step, and a cache that only counts
class KVCache(Counting):
    pass


def generate_cached(model, prompt, n_new, cache=None):
    for _ in range(n_new):
        prompt = torch.cat([prompt, greedy_next(model(prompt)[:, -1])[:, None]], dim=1)
    return prompt.clone()


# %% bytes_match_the_storage: keys of all heads, and storage that nothing is written to
class KVCache(Counting):
    def __init__(self, config, batch, max_len, dtype=None, device=None):
        shape = (2, config.n_layers, batch, config.n_kv_heads, max_len, config.head_dim)
        self.rows = torch.zeros(shape, dtype=dtype)

    def advance(self, n):
        pass

    def nbytes(self):
        return self.rows.nbytes


def kv_cache_bytes(config, n_tokens, batch=1, bytes_per_element=2):
    return 2 * config.n_layers * config.d_model * n_tokens * batch * bytes_per_element
