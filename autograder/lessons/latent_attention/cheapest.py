"""The cheapest wrong functions for the checks of lesson 13, see `autograder cheapest`."""


class Counting:
    def __init__(self, config, batch, max_len, *sizes, dtype=None, device=None):
        self.max_len, self.length = max_len, 0

    def __len__(self):
        return self.length

    def append(self, layer, c, k_rope):
        return torch.zeros(len(c), self.length + c.shape[1], c.shape[2] + k_rope.shape[3])

    def advance(self, n):
        self.length += n


# %% bytes_of_rows: fp16 in one text, the defaults
def latent_cache_bytes(n_layers, rank, d_rope, n_tokens, batch=1, bytes_per_element=2):
    return n_layers * (rank + d_rope) * n_tokens * 2


# %% bytes_match_the_rows: storage of the right size that nobody writes into
class LatentKVCache:
    def __init__(self, config, batch, max_len, rank, d_rope, dtype, device="cpu"):
        self.rows = torch.zeros(config.n_layers, batch, max_len, rank + d_rope, dtype=dtype)

    append = advance = lambda self, *what: None

    def nbytes(self):
        return self.rows.nbytes


# %% rows_come_back: the blocks joined
class LatentKVCache(Counting):
    def __init__(self, config, batch, max_len, rank, d_rope, dtype=torch.float32, device="cpu"):
        self.rows, self.length = {}, 0

    def append(self, layer, c, k_rope):
        new = torch.cat([c, k_rope[:, 0]], dim=-1)
        self.rows[layer] = torch.cat([self.rows.get(layer, new[:, :0]), new], dim=1)
        return self.rows[layer]


# %% rows_come_back: zeros of the right shape
class LatentKVCache(Counting):
    pass


# %% full_changes_nothing: a length alone, and one stored zero
class LatentKVCache(Counting):
    def append(self, layer, c, k_rope):
        if self.length + c.shape[1] > self.max_len:
            raise CacheFull("full")
        return torch.zeros(1)


# %% full_changes_nothing: a length alone, and zeros of the right shape
class LatentKVCache(Counting):
    def append(self, layer, c, k_rope):
        if self.length + c.shape[1] > self.max_len:
            raise CacheFull("full")
        return super().append(layer, c, k_rope)


# %% can_go_back: a length alone, and one stored zero
class LatentKVCache(Counting):
    def append(self, layer, c, k_rope):
        return torch.zeros(1)

    def truncate(self, n):
        check_between("n", n, 0, self.length)
        self.length = n

    def reset(self):
        self.length = 0


# %% absorbed_scores_are_the_scores: one head's product, and PyTorch's attention
def absorb(q_nope, up_k):
    return q_nope @ up_k[: q_nope.shape[3]]


def attend_latent(q, rows, rank, scale, mask=None):
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q, rows[:, None], rows[:, None, :, :rank], mask, scale=scale)


# %% every_split_equals_the_paper: each new token attends to itself alone
def latent_attention_layer(attn, x, positions, cache, layer):
    return attn.wo(attn.up_v(attn.down(x)[..., : attn.rank]))


class LatentKVCache(Counting):
    pass


# %% every_split_equals_the_paper: the layer that gives back what it was given
def latent_attention_layer(attn, x, positions, cache, layer):
    return x


class LatentKVCache(Counting):
    pass


# %% rows_are_the_only_memory: no attention, the sum of the rows
def latent_attention_layer(attn, x, positions, cache, layer):
    c, k_rope = attn.down(x).split([attn.rank, attn.d_rope], dim=-1)
    rows = cache.append(layer, c, k_rope[:, None])
    return x + rows.sum(dim=(1, 2))[:, None, None]


# %% rows_are_the_only_memory: the newest row's distance from the mean, times x
def latent_attention_layer(attn, x, positions, cache, layer):
    c, k_rope = attn.down(x).split([attn.rank, attn.d_rope], dim=-1)
    rows = cache.append(layer, c, k_rope[:, None])
    return x * (rows[:, -1] - rows.mean(dim=1)).sum()


# %% nothing_is_expanded: no attention, the sum of the rows
def latent_attention_layer(attn, x, positions, cache, layer):
    c, k_rope = attn.down(x).split([attn.rank, attn.d_rope], dim=-1)
    rows = cache.append(layer, c, k_rope[:, None])
    return x + rows.sum(dim=(1, 2))[:, None, None]


# %% nothing_is_expanded: no attention, the plain mean of the latents
def latent_attention_layer(attn, x, positions, cache, layer):
    c, k_rope = attn.down(x).split([attn.rank, attn.d_rope], dim=-1)
    rows = cache.append(layer, c, k_rope[:, None])
    return attn.wo(attn.up_v(rows[..., : attn.rank].mean(dim=1, keepdim=True)))
