# %% [markdown]
# # 08 · A cache that never grows
#
# {{badge}}
#
# With every token, a full cache takes more memory and more reading. Here each layer looks back a fixed
# number of tokens, a *sliding window*, so the cache stops growing. What does the model forget?
#
# **After this lesson you can**
#
# * build a ring of keys and values that equals the windowed model, token for token,
# * say what a window forgets, and find the layer that must keep every token,
# * compute the cache of models that mix windows with full layers.
#
# **You build:** a ring that stops growing, and the edge of its memory.
# **Time:** 60 minutes. **Points:** 10. **Needs:** lesson 03 (your answers, or ours).
#
# > **Predict.** Our story model has four layers. Three may look back 32 tokens; one keeps every token.
# > Which one should it be? For each choice, write down how many of 100 facts told 100 or more tokens ago
# > the model recalls.

# %% tags=["setup"]

# %% tags=["export"]
import torch
from torch import Tensor

from course.model.bounds import check_between
from course.model.cache import CacheFull, check_appended, check_block
from course.model.config import GPTConfig
from course.given.windowed import check_numbers, check_window, check_windowed_sizes

# %%
import sys

from tqdm.auto import tqdm

from course.checks import sliding_window as checks
from course.measure.machine import interleaved, one_thread
from course.minigpt.kv_cache import KVCache, forward_cached, kv_cache_bytes
from course.model import MiniGPT
from course.plots.sliding_window import (
    draw_bytes,
    draw_cliffs,
    draw_full_layers,
    draw_lost,
    draw_ring,
    draw_sinks,
    draw_steps,
)
from course.plots.style import show
from course.published.models import WINDOWED
from course.widgets.sliding_window import choose_windows
from course.given.windowed import (
    EVERYTHING,
    attention_beyond,
    attention_to_token,
    forward_windowed,
    windowed_model,
)
from course.world.evaluation import evaluate, held_out, recall_by_distance
from course.world.tokenizer import encode

story = MiniGPT.from_weights("story")

# %% [markdown]
# ## The picture
#
# Nine tokens, a window of 4, and 2 *sinks*: first tokens that always stay visible.

# %%
show(draw_ring(n_tokens=9, window=4, n_sinks=2))

# %% [markdown]
# Left: a token sees itself, the 3 before it, and the sinks. Right: so 2 + 4 places are enough. Tokens 6,
# 7, 8 have overwritten 2, 3, 4, so places no longer follow text order. That does no harm: a rotated key
# carries its position inside (lesson 03).
#
# ## 1 · What a window shows
#
# *Difficulty 2 of 5 · importance 5 of 5 · 10 minutes*
#
# The rows of a cache may lie in any order, so the mask is computed from *token numbers*, not places. With
# window W, token i sees token j if j is one of the W tokens i - W + 1 … i, or a sink (one of the first
# `n_sinks` tokens) that is not after i.
#
# **The common wrong answer** shows W tokens *before* the newest plus the newest itself: W + 1. (Libraries
# count differently: FlashAttention's `window_size=(3, 0)` is W = 4.)
#
# Write `window_mask`, True where a token may see a token.
#
# <details><summary>Hint 1: the idea</summary>
# Three conditions on a pair of numbers: not later, not too old, or a sink. How do they combine?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Compare a column of own numbers, (T, 1), with a row of numbers, (R,).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One <code>unsqueeze</code>, three comparisons, <code>&amp;</code> and <code>|</code> with brackets.
# </details>


# %% nbgrader={"grade_id": "window_mask", "solution": true}
def window_mask(own: Tensor, places: Tensor, window: int, n_sinks: int = 0) -> Tensor:
    """Which rows each new token may see.

    Args:
        own: (T,) int64, numbers of the new tokens in the text.
        places: (R,) int64, number of the token whose row lies in each place, in any order.
        window: W, tokens that are seen, the token itself included.
        n_sinks: tokens 0 … n_sinks - 1 are seen from every later one.

    Returns:
        (T, R) bool, True where a token may look; none looks at one that comes after it.

    Raises:
        ValueError: window below 1, n_sinks below 0, or what is no number of a token.
    """
    check_numbers("own", own)
    check_numbers("places", places)
    check_window(window, n_sinks)
    ### BEGIN SOLUTION
    own = own.unsqueeze(1)  # (T, 1)
    in_window = places > own - window  # (T, R)
    return (places <= own) & (in_window | (places < n_sinks))
    ### END SOLUTION


# %% nbgrader={"grade_id": "mask_counts_itself", "points": 1}
checks.mask_counts_itself(window_mask)

# %% nbgrader={"grade_id": "sinks_are_no_future", "points": 1}
checks.sinks_are_no_future(window_mask)

# %% [markdown]
# > **Spot the slip.** A practice site lets query i see `{j < n_sinks}` and `{i - W + 1 … i}`. For which i
# > is that wrong?
#
# <details><summary>Answer</summary>
# For i &lt; n_sinks - 1: such a query would see sinks that come after it.
# </details>
#
# ## 2 · Where memory ends
#
# Before you build the cache: what does a window do to our model? We put your mask into all four layers of
# the story model, without training, then ask about facts told so many tokens ago.
#
# > **Predict.** Layers are stacked: layer 3 reads rows into which layer 2 mixed *its* window. Does the
# > model with W = 64 know what was said 80 tokens ago?

# %%
stories, edges = held_out(60), [0, 16, 32, 48, 64, 96, 128, 160]
found = {}
with one_thread():
    for window in tqdm((32, 64, 128, EVERYTHING), file=sys.stdout):
        forward = windowed_model(story, window_mask, [window] * 4)
        found[window] = (
            recall_by_distance(forward, stories, edges),
            evaluate(forward, stories)["perplexity"],
        )
show(draw_cliffs(edges, found))

# %% [markdown]
# Recall falls off a cliff at the window's edge. Stacked layers *could* pass a fact on over 4 · (W - 1)
# tokens; ours never had to learn that. Even inside the window recall suffers; we cannot say why.
# Perplexity (in the legend) rises but does not show what was lost: most words need only the last few.
#
# > **Spot the slip.** "Window 4,096 × 32 layers: the model remembers 131,072 tokens."
#
# <details><summary>Answer</summary>
# That is about how far information <em>can</em> travel. Whether a fact does depends on training, and only
# a test like this one shows it.
# </details>
#
# Now your prediction: one layer keeps everything, the others see 32 tokens.

# %%
choices = [(), (0,), (1,), (2,), (3,), (0, 2)]
recalls = {}
with one_thread():
    for full in tqdm(choices, file=sys.stdout):
        windows = [EVERYTHING if layer in full else 32 for layer in range(4)]
        forward = windowed_model(story, window_mask, windows)
        [(recalls[full], n_questions)] = recall_by_distance(forward, stories, [100, 256])
show(draw_full_layers(recalls, n_questions, rows=250, window=32))
far = attention_beyond(story, encode(stories[0].text)[:, :240], distance=32, first=100)  # (L, H)
shares = ", ".join(f"layer {i} {far[i].mean():.0%}" for i in range(4))
print("attention on tokens 32 back or more:", shares)

# %% [markdown]
# **Layer 2.** That one layer looks facts up; for these questions the others hardly need distant tokens.
# If layer 0 is full too, hardly a fact is lost, at {{56 = 100 * (2 * 250 + 2 * 32) / (4 * 250)}} % of the
# rows. Published models mix layers the same way, and train with the mix: Gemma 3 has five layers with a
# window of 1,024 or less for each full one (Gemma Team 2025).
#
# *Common wrong answer:* the last layer, "which decides", or every layer that looks far back. Layers 0 and
# 3 do so nearly as much as layer 2 (see the printed line) but do not need it: attention does not show
# which layer is *needed*.
#
# ## 3 · A ring
#
# *Difficulty 2 of 5 · importance 4 of 5 · 5 minutes*
#
# Sinks keep the first places; later tokens cycle through the `window` places after them. With W = 4 and 2
# sinks: token 5 lies in place 5, token 6 in place {{2 = int(place_of(torch.tensor([6]), 4, 2))}}.
#
# Write `place_of`: the place of each token's rows.
#
# <details><summary>Hint 1: the idea</summary>
# How many tokens come before the ring? What do you count modulo the window?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# (n,) in, (n,) out, both int64.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>torch.where</code> with one comparison and one <code>%</code>.
# </details>


# %% nbgrader={"grade_id": "place_of", "solution": true}
def place_of(tokens: Tensor, window: int, n_sinks: int = 0) -> Tensor:
    """In which place of the storage the rows of tokens lie.

    Args:
        tokens: (n,) int64, numbers of tokens.
        window: places of the ring, which begins behind the sinks.
        n_sinks: tokens 0 … n_sinks - 1 have places of their own, 0 … n_sinks - 1.

    Returns:
        (n,) int64, 0 … n_sinks + window - 1. Token n_sinks lies in place n_sinks, the next behind it,
        and so on; after the last place comes place n_sinks.

    Raises:
        ValueError: window below 1, n_sinks below 0, or what is no number of a token.
    """
    check_numbers("tokens", tokens)
    check_window(window, n_sinks)
    ### BEGIN SOLUTION
    ring = n_sinks + (tokens - n_sinks) % window
    return torch.where(tokens < n_sinks, tokens, ring)
    ### END SOLUTION


# %% nbgrader={"grade_id": "one_place_each", "points": 1}
checks.one_place_each(place_of)

# %% [markdown]
# ## 4 · The cache
#
# *Difficulty 4 of 5 · importance 5 of 5 · 25 minutes*
#
# One pass feeds four more tokens through a window of 4, and each has its own window. If `append` wrote
# into the ring at once, it would overwrite rows before they are read:

# %%
held, new = torch.arange(4, 8), torch.arange(8, 12)
mask = window_mask(new, torch.cat([held, new]), window=4)
show(draw_lost(mask, held.tolist(), new.tolist()))

# %% [markdown]
# So:
#
# * `append` writes nothing. It notes the new rows in `pending[layer]` and returns **held rows, then the
#   new ones**: whatever lies in the storage, in any order, and then all T new rows.
# * `places(n_new)` says which tokens these are; `window_mask` needs it.
# * `advance(n)` moves the first n pending tokens in: only the sinks and the last `window` of all tokens
#   stay.
# * `len` counts all tokens of the text, since positions keep rising. A text still ends at `max_len`,
#   itself at most `max_seq_len`. (StreamingLLM numbers the positions inside the cache instead.)
# * `truncate(n)` goes back only if every row that token n will need is still there.
#
# `forward_windowed(model, tokens, cache, window_mask)` is given (`course/given/windowed.py`): lesson 03's
# forward pass with the mask `window_mask(own, cache.places(T), cache.window, cache.n_sinks)`.
#
# Write the methods of `WindowedKVCache`.
#
# <details><summary>Hint 1: the idea</summary>
# For each place, remember the number of its token, or -1 if empty. Then every place whose number is not
# -1 is held.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Rows (2, L, B, G, places, D), numbers (places,). Held rows of a layer: index places by a bool mask.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>advance</code>: numbers of all new tokens; keep sinks and the last <code>window</code>; write
# their rows at <code>place_of(kept)</code>, each place once (PyTorch does not define which of two writes
# wins), and their numbers. <code>truncate</code>: which numbers does token n need?
# <code>torch.isin</code>; then -1 for every number from n on.
# </details>


# %% nbgrader={"grade_id": "WindowedKVCache", "solution": true}
class WindowedKVCache:
    """A KV cache of sinks and a ring: the first tokens and the newest ones. Between two passes it keeps
    no other tensors of floats.

    Args:
        config, batch, max_len: as of `KVCache`; max_len bounds the text, not the storage.
        window: tokens that a token sees, itself included.
        n_sinks: first tokens that stay, 0 … max_len.
        dtype, device: of keys and values.

    Raises:
        ValueError: sizes that cannot be used; keys or values of another shape or dtype.
        CacheFull: from `append`, when the text would be longer than max_len.
        Whatever is refused changes nothing.
    """

    def __init__(
        self,
        config: GPTConfig,
        batch: int,
        max_len: int,
        window: int,
        n_sinks: int = 0,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        check_windowed_sizes(config, batch, max_len, window, n_sinks)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        self.window, self.n_sinks = window, n_sinks
        self.length = 0  # tokens of the text so far
        self.pending: dict[int, tuple[Tensor, Tensor]] = {}  # by layer, until advance
        ### BEGIN SOLUTION
        room = min(max_len, n_sinks + window)
        shape = (2, config.n_layers, batch, config.n_kv_heads, room, config.head_dim)
        self.rows = torch.zeros(shape, dtype=dtype, device=device)  # (2, L, B, G, places, D)
        self.numbers = torch.full((room,), -1, device=device)  # the token in each place, -1: none
        ### END SOLUTION

    def __len__(self) -> int:
        """Tokens so far, those that are gone included: the next one's position."""
        return self.length

    def places(self, n_new: int) -> Tensor:
        """Numbers of the tokens whose rows `append` returns for n_new tokens, (R,) int64: the held ones,
        in any order, each once, then the new ones: only rows that were given and are still stored."""
        check_between("n_new", n_new, 1, self.max_len - len(self))
        ### BEGIN SOLUTION
        new = torch.arange(self.length, self.length + n_new, device=self.numbers.device)
        return torch.cat([self.numbers[self.numbers >= 0], new])
        ### END SOLUTION

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Take k and v (B, G, T, D) of new tokens; return held rows, then these, (B, G, R, D) each.

        Held are at least the sinks and the last window - 1 tokens. The new ones are pending until
        `advance`; appended again before that, the new ones replace the old.
        """
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        ### BEGIN SOLUTION
        if self.length + k.shape[2] > self.max_len:
            raise CacheFull(
                f"{self.length} of {self.max_len} tokens were fed, {k.shape[2]} more are too many"
            )
        self.pending[layer] = (k, v)
        old_k, old_v = self.rows[:, layer, :, :, self.numbers >= 0]  # (B, G, held, D) each
        return torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2)
        ### END SOLUTION

    def advance(self, n: int) -> None:
        """Count n tokens more, once per forward pass, and store those that stay. These are the first n
        that are pending; the rest is forgotten. advance(0) does nothing."""
        check_between("n", n, 0, self.max_len - len(self))
        check_appended(self.pending, self.config.n_layers, n)
        ### BEGIN SOLUTION
        if n == 0:
            return
        end = self.length + n
        new = torch.arange(self.length, end, device=self.numbers.device)
        kept = new[(new < self.n_sinks) | (new >= end - self.window)]
        at = place_of(kept, self.window, self.n_sinks)
        for layer, (k, v) in self.pending.items():
            self.rows[0, layer, :, :, at] = k[:, :, kept - self.length]
            self.rows[1, layer, :, :, at] = v[:, :, kept - self.length]
        self.numbers[at] = kept
        self.length, self.pending = end, {}
        ### END SOLUTION

    def truncate(self, n: int) -> None:
        """Go back to the first n tokens; nothing stays pending.

        Raises:
            ValueError: n is not 0 … len(self), or a row that token n needs is gone: a sink before it, or
                one of the window - 1 tokens before it. Nothing was changed.
        """
        check_between("n", n, 0, len(self))
        ### BEGIN SOLUTION
        before = torch.arange(n, device=self.numbers.device)
        needed = before[(before < self.n_sinks) | (before > n - self.window)]
        if not torch.isin(needed, self.numbers).all():
            raise ValueError(f"of {len(self)} tokens, rows that token {n} needs are overwritten")
        self.numbers[self.numbers >= n] = -1
        self.length, self.pending = n, {}
        ### END SOLUTION

    def reset(self) -> None:
        """Forget every token."""
        self.truncate(0)

    def nbytes(self) -> int:
        """Bytes of the storage, whether filled or not: min(max_len, n_sinks + window) places."""
        ### BEGIN SOLUTION
        return self.rows.nbytes
        ### END SOLUTION


# %% nbgrader={"grade_id": "gone_is_gone_kept_is_kept", "points": 1}
checks.gone_is_gone_kept_is_kept(WindowedKVCache)

# %% nbgrader={"grade_id": "every_split_equals_the_windowed_model", "points": 2}
checks.every_split_equals_the_windowed_model(window_mask, WindowedKVCache)

# %% nbgrader={"grade_id": "append_alone_changes_nothing", "points": 1}
checks.append_alone_changes_nothing(WindowedKVCache)

# %% nbgrader={"grade_id": "refusal_and_return", "points": 1}
checks.refusal_and_return(WindowedKVCache)

# %% nbgrader={"grade_id": "bytes_stay", "points": 1}
checks.bytes_stay(WindowedKVCache)

# %% [markdown]
# A step no longer reads more rows as the text grows. In so small a model that is no time yet: a step of
# either cache takes about as long at any length, and the ring's own work costs more than it saves.

# %%
text = encode(" ".join(held_out(5)[i].text for i in range(5)))[:, :1000]
one, steps = text[:, :1], {}
with one_thread():
    for n in (100, 500, 900):
        ring = WindowedKVCache(story.config, 1, 1024, window=64, n_sinks=4)
        full = KVCache(story.config, 1, 1024)
        forward_windowed(story, text[:, :n], ring, window_mask)
        forward_cached(story, text[:, :n], full)

        def windowed_step(ring=ring, n=n):
            forward_windowed(story, one, ring, window_mask)
            ring.truncate(n)  # one back is always possible

        def full_step(full=full, n=n):
            forward_cached(story, one, full)
            full.truncate(n)

        steps[n] = interleaved({"ring": windowed_step, "full": full_step}, rounds=30)
show(draw_steps(steps, {"ring": ring.nbytes(), "full": full.nbytes()}))

# %% [markdown]
# A step with the ring is slower: `append` copies the window twice (mask, then `cat`), and the timing
# includes `truncate`. Engines write one row and read all in place. The bytes are what counts:
# {{278,528 = WindowedKVCache(MiniGPT.from_weights("story").config, 1, 1024, 64, 4).nbytes()}} against
# {{4,194,304 = KVCache(MiniGPT.from_weights("story").config, 1, 1024).nbytes()}}.
#
# ## 5 · Sinks, and a model that has none
#
# Why keep the first tokens? In many large models, heads with nothing to find *rest* there: softmax
# weights must add up to 1, and every token sees the first one. Remove it and that weight falls on tokens
# that matter: Llama-2-13B with a window has perplexity 5,158; four first tokens bring it to 5.40, four
# newlines instead to 5.60 (Xiao et al. 2023, table 1). And our model?

# %%
shares = attention_to_token(story, text[:, :200], number=0, first=32)  # (L, H)
without, with_four = (
    evaluate(windowed_model(story, window_mask, [32] * 4, n_sinks), stories)["perplexity"]
    for n_sinks in (0, 4)
)
show(draw_sinks(shares, without, with_four))

# %% [markdown]
# No head rests on token 0, and keeping four first tokens changes nothing. That is a result, too. Small
# models can develop sinks with enough training data (Gu et al. 2024, 60M parameters); ours had little.
# `n_sinks` costs a few rows; test *your* model before you rely on it.
#
# ## 6 · The bill
#
# *Difficulty 2 of 5 · importance 4 of 5 · 8 minutes*
#
# Some layers have a window; `n_full_layers` keep every token. A layer never has more rows than tokens.
#
# Write `windowed_cache_bytes`, for all layers.
#
# <details><summary>Hint 1: the idea</summary>
# After n tokens, how many rows does a layer with a window hold? How many does a full one hold?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# A row of one layer: keys and values, G heads, D numbers each.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# One <code>min</code>; add up the rows of all layers; then lesson 03's product.
# </details>


# %% nbgrader={"grade_id": "windowed_cache_bytes", "solution": true}
def windowed_cache_bytes(
    config: GPTConfig,
    n_tokens: int,
    window: int,
    n_sinks: int = 0,
    n_full_layers: int = 0,
    batch: int = 1,
    bytes_per_element: int = 2,
) -> int:
    """Bytes of keys and values, an int, when n_tokens of each of `batch` rows were fed.

    Args:
        n_tokens: 0 or more; config.max_seq_len is no bound.
        window, n_sinks: of the layers that have a window.
        n_full_layers: layers that keep every token, 0 … L.

    Raises:
        ValueError: window below 1, n_sinks below 0, more full layers than there are.
    """
    check_window(window, n_sinks)
    check_between("n_full_layers", n_full_layers, 0, config.n_layers)
    ### BEGIN SOLUTION
    held = min(n_tokens, n_sinks + window)
    rows = n_full_layers * n_tokens + (config.n_layers - n_full_layers) * held  # of all layers
    return 2 * config.n_kv_heads * config.head_dim * rows * batch * bytes_per_element
    ### END SOLUTION


# %% nbgrader={"grade_id": "bytes_by_layer", "points": 1}
checks.bytes_by_layer(windowed_cache_bytes)

# %%
show(draw_bytes(windowed_cache_bytes))

# %% [markdown]
# Take 32 layers with G = 8 and D = 128, 32,768 tokens and 16 bits. If all are full, that needs
# {{4,294,967,296 = kv_cache_bytes(PUBLISHED["Llama-3-8B"].config, 32768)}} bytes; 27 layers with a window
# of 1,024 and 5 full ones need {{784,334,848 = windowed_cache_bytes(PUBLISHED["Llama-3-8B"].config,
# 32768, 1024, n_full_layers=5)}}. The full layers make up {{86 = 100 * 5 * 32768 / (5 * 32768 + 27 *
# 1024)}} % of it.
#
# | model | layers | of them full | window of the others |
# |---|---|---|---|
# | gpt-oss-20b | 24 | 12 | 128 |
# | Gemma-3-27B | 62 | 10 | 1,024 |
#
# (gpt-oss's sinks are not tokens: each head learns one extra score that belongs to no key, so they need
# no row.)

# %%
for name, model in WINDOWED.items():
    for n_tokens in (1_024, 16_384, 131_072):
        mixed = windowed_cache_bytes(
            model.config, n_tokens, model.window, n_full_layers=model.n_full_layers
        )
        full = kv_cache_bytes(model.config, n_tokens)
        print(f"{name} {n_tokens:>8,} tokens: {mixed:>14,} bytes, all layers full {full:>14,}")

# %% [markdown]
# Now combine windows, sinks and full layers, and compare recall and bytes.

# %%
choose_windows(story, window_mask, windowed_cache_bytes)

# %% [markdown]
# ## Check yourself
#
# <details><summary>Do sinks remember the beginning of the text?</summary>
# No. They give heads a place to rest their weight. <em>Common wrong answer:</em> yes, facts in the first
# tokens. Four tokens hold hardly a fact.
# </details>
# <details><summary>Must a ring be put in order before it is read?</summary>
# No: weights do not depend on row order, and positions are inside the keys. The mask needs the numbers.
# <em>Common wrong answer:</em> roll it, which costs one more copy at every step.
# </details>
# <details><summary>Window 16, 4 sinks: where does token 115 lie?</summary>
# In place {{19 = int(place_of(torch.tensor([115]), 16, 4))}}: {{111 = 115 - 4}} came through the ring
# before it, six rounds and 15. <em>Common wrong answer:</em> {{3 = 115 % 16}}, a place of a sink, or
# {{15 = 111 % 16}}, without the sinks' places.
# </details>
#
# ## Next
#
# The rows that a query needs may lie in several places. **Lesson 09** computes attention in parts and
# merges them exactly. A window chooses by age alone; lesson 14 lets each query choose.
