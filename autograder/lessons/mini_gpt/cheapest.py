"""The cheapest wrong functions for the checks of lesson 01, see `autograder cheapest`."""


# %% greedy_takes_the_likeliest: the first token of every row
def greedy_next(logits):
    return torch.zeros(len(logits), dtype=torch.int64)


# %% heads_split_and_merge: one cut straight to the right shape
def split_heads(x, n_heads):
    return x.reshape(x.shape[0], n_heads, x.shape[1], -1)


def merge_heads(x):
    return x.reshape(x.shape[0], x.shape[2], -1)


# %% attention_sees_no_future: the plain average of the values so far
def causal_attention(q, k, v):
    return v.cumsum(dim=2) / torch.arange(1, v.shape[2] + 1).unsqueeze(1)


# %% attention_weighs_by_softmax: PyTorch's own softmax, with no mask and no shared heads
def causal_attention(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


# %% attention_weighs_by_softmax: PyTorch's ready-made call
def causal_attention(q, k, v):
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q, k, v, is_causal=True, enable_gqa=True)


# %% query_heads_share_kv_heads: keys and values added and copied, with no attention
def causal_attention(q, k, v):
    return (k + v).repeat_interleave(q.shape[1] // k.shape[1], dim=1)


# %% query_heads_share_kv_heads: averages so far and a product of query and key
def causal_attention(q, k, v):
    k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    return v.cumsum(dim=2) / torch.arange(1, v.shape[2] + 1).unsqueeze(1) + q * k


# %% layer_joins_its_parts: the values alone, sent through wo
def attention_layer(attn, x, positions):
    v = attn.wv(x).unflatten(-1, (attn.n_kv_heads, -1))
    return attn.wo(v.repeat_interleave(attn.n_heads // attn.n_kv_heads, dim=2).flatten(2))


# %% layer_obeys_positions: x turned and averaged, with none of the matrices
def attention_layer(attn, x, positions):
    heads = x.unflatten(-1, (attn.n_heads, -1)).transpose(1, 2)
    return attn.rotate(heads, positions - positions[0]).transpose(1, 2).flatten(2).cumsum(dim=1)


# %% sample_follows_temperature: the likeliest token, with no draw
def sample_next(logits, temperature=1.0, top_k=None, generator=None):
    return logits.argmax(dim=-1)


# %% sample_stays_in_top_k: any of the top k, one as likely as another
def sample_next(logits, temperature=1.0, top_k=None, generator=None):
    tokens = logits.topk(top_k or 1, dim=-1).indices
    return tokens[:, torch.randint(tokens.shape[1], (1,), generator=generator)].squeeze(1)


# %% bad_arguments_are_refused: refusals, and nothing for all other calls
def greedy_next(logits):
    if logits.dim() != 2:
        raise ValueError("logits must be (B, V)")


def sample_next(logits, temperature=1.0, top_k=None, generator=None):
    if logits.dim() != 2 or temperature <= 0 or top_k not in (None, *range(1, 1 + logits.shape[1])):
        raise ValueError("an argument out of range")
