# %% [markdown]
# # 17 · A state instead of a cache
#
# {{badge}}
#
# A cache of rows grows with the text. Some layers of new models keep one square of numbers per head
# instead, whatever the length. What does it still know? And how do you go back in a text that it has
# read?
#
# **After this lesson you can**
#
# * write the gated delta rule, for one token and for many at once,
# * say from which length on a state takes fewer bytes than rows, and what makes it forget,
# * go back in a text exactly, or refuse.
#
# **You build:** a state that is written to, and a cache that can go back. **Time:** 90 minutes.
# **Points:** 10. **Needs:** lessons 03 and 10 (your answers, or ours).
#
# > **Predict.** A model whose layers all keep states is told a name. Then comes (a) a pause: about
# > 400 tokens that tell nothing; (b) another story of some 200 tokens; or (c) a dozen other names.
# > After which of the three is the name still known?

# %% tags=["setup"]

# %% tags=["export"]
from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from course.given.hybrid import (
    CannotGoBack,
    HybridSizes,
    check_delta,
    check_element,
    check_hybrid_cache,
    check_is_full,
    check_kept,
    check_resume,
    check_rows,
)
from course.model.bounds import check_between
from course.model.cache import CacheFull

# %%
from course.checks import linear_state as checks
from course.given.hybrid import HybridGPT, OtherStates, forward_hybrid
from course.measure.machine import interleaved, one_thread
from course.minigpt.kv_cache import KVCache, forward_cached
from course.model import MiniGPT
from course.plots.linear_state import draw_bytes, draw_cut, draw_known
from course.plots.style import show
from course.widgets.linear_state import choose_layers
from course.world.asking import (
    behind_others,
    name_after_a_pause,
    name_after_a_story,
    name_of_a_list,
    share_known,
    stories_cut,
    wrong_names_cut,
)
from course.world.evaluation import evaluate, held_out
from course.world.turns import tokens_fed

# %% [markdown]
# ## 1 · A square that is read and written
#
# *Difficulty 3 of 5 · importance 5 of 5 · 12 minutes*
#
# A head keeps a state S of K rows and V columns. A query reads it: `q S` is a value. To write v under the
# key k, you could add their outer product k ⊗ v. Then `k S` returns v plus whatever was there before.
#
# The **delta rule** reads first and writes only the *difference*; a gate, beta, says how much of it. The
# *gated* rule first fades the whole state by the token's decay (Yang et al. 2024):
#
# 1. S = decay · S
# 2. found = k S
# 3. S = S + beta · k ⊗ (v − found)
# 4. out = q S
#
# Keys and queries are scaled to length 1 first, so `k (k ⊗ v)` is v. There is no softmax and no √D.
#
# **The common wrong answer** reads S before it fades. The difference is then taken from numbers that have
# faded since.
#
# Write `delta_step`.
#
# <details><summary>Hint 1: the idea</summary>
# Four lines, in the order above. Which S does each of them read?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# <code>decay[..., None, None]</code> meets (B, H, K, V). A key as a row, (B, H, 1, K), times S gives
# (B, H, 1, V). A column (B, H, K, 1) times a row (B, H, 1, V) gives all pairs.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>F.normalize(…, dim=-1)</code> twice; then a line for each of the four steps, with
# <code>@</code>, <code>unsqueeze</code> and <code>squeeze</code>.
# </details>


# %% nbgrader={"grade_id": "delta_step", "solution": true}
def delta_step(
    S: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor
) -> tuple[Tensor, Tensor]:
    """One token of the gated delta rule (Yang et al. 2024), for every head.

    Args:
        S: (B, H, K, V), the state after the tokens before.
        q, k: (B, H, K), as they come. Both are scaled to length 1 first; zeros stay zeros.
        v: (B, H, V), not scaled.
        beta: (B, H), 0 … 1: how much of the difference is written.
        decay: (B, H), above 0, up to 1: what is left of the old state.

    Returns:
        out: (B, H, V), what the query finds after the token was written, not scaled.
        S: (B, H, K, V), a new tensor, after this token.
        Nothing given is changed. `out` and S have the arguments' dtype, float32 or float64.
    """
    check_delta(S, q, k, v, beta, decay, tokens=False)
    ### BEGIN SOLUTION
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    faded = decay[..., None, None] * S  # (B, H, K, V)
    missing = v - (k.unsqueeze(-2) @ faded).squeeze(-2)  # (B, H, V)
    written = (beta.unsqueeze(-1) * k).unsqueeze(-1) * missing.unsqueeze(-2)  # (B, H, K, V)
    after = faded + written
    return (q.unsqueeze(-2) @ after).squeeze(-2), after
    ### END SOLUTION


# %% nbgrader={"grade_id": "one_step_is_the_rule", "points": 1}
checks.one_step_is_the_rule(delta_step)

# %% [markdown]
# ## 2 · Many tokens at once
#
# *Difficulty 5 of 5 · importance 4 of 5 · 18 minutes*
#
# A prompt is known as a whole, but each token's difference needs the state before it. Let u be what a
# token writes, beta · (v − found). Let a(t) be the product of all decays up to t. At token t, a(t) of the
# first state remains, and a(t) / a(s) of what token s wrote. So
#
# u(t) = beta(t) · (v(t) − a(t) · k(t) S − Σ over s < t of a(t) / a(s) · (k(t) · k(s)) · u(s))
#
# These T equations form a lower triangular system with ones on its diagonal:
# `torch.linalg.solve_triangular` solves them at once. Outputs and the last state are sums over the u.
#
# **The common wrong answer** divides a(t) by a(s): after a few small decays both are 0. Subtract their
# logarithms, and mask the future, s > t, *before* the exponential, where it would be infinite.
#
# Write `delta_chunk`.
#
# <details><summary>Hint 1: the idea</summary>
# Which parts are matrices over pairs of tokens? Which leave out the token itself?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# <code>log</code> and <code>cumsum</code>: (B, H, T); its differences (B, H, T, T). The system's
# right side is (B, H, T, V), and so is u.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# A mask by <code>tril</code>, on the state's device; <code>masked_fill</code>, <code>exp</code>; the
# overlap of keys; <code>solve_triangular(…, upper=False, unitriangular=True)</code>, which reads only
# what lies below the diagonal; two products for the outputs, two for the state.
# </details>


# %% nbgrader={"grade_id": "delta_chunk", "solution": true}
def delta_chunk(
    S: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor
) -> tuple[Tensor, Tensor]:
    """T tokens of the gated delta rule at once: what T calls of `delta_step` give, one after the other.

    Args:
        S: (B, H, K, V), the state before the first of them.
        q, k: (B, H, T, K), T of at least 1, as they come.
        v: (B, H, T, V).
        beta, decay: (B, H, T), as in `delta_step`; each decay may be as small as 1e-6.

    Returns:
        out: (B, H, T, V).
        S: (B, H, K, V), a new tensor, after the last token.
        Nothing given is changed. `out` and S have the arguments' dtype, float32 or float64. 256 tokens
        take fewer than 512 operations of PyTorch, views included, and no others.
    """
    check_delta(S, q, k, v, beta, decay, tokens=True)
    ### BEGIN SOLUTION
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    T = q.shape[2]
    kept = decay.log().cumsum(dim=-1)  # (B, H, T): the logarithm of what is left of S
    past = torch.ones(T, T, dtype=torch.bool, device=S.device).tril()
    fading = (kept.unsqueeze(-1) - kept.unsqueeze(-2)).masked_fill(~past, float("-inf")).exp()
    of_start = kept.exp().unsqueeze(-1)  # (B, H, T, 1)
    overlap = beta.unsqueeze(-1) * fading * (k @ k.mT)  # (B, H, T, T): how much t finds of s
    alone = beta.unsqueeze(-1) * (v - of_start * (k @ S))  # (B, H, T, V)
    written = torch.linalg.solve_triangular(overlap, alone, upper=False, unitriangular=True)
    out = of_start * (q @ S) + (fading * (q @ k.mT)) @ written  # (B, H, T, V)
    left = fading[..., -1, :].unsqueeze(-1)  # (B, H, T, 1): of each token, at the end
    return out, of_start[..., -1:, :] * S + (left * k).mT @ written
    ### END SOLUTION


# %% nbgrader={"grade_id": "chunk_equals_steps", "points": 2}
checks.chunk_equals_steps(delta_chunk)

# %% nbgrader={"grade_id": "a_chunk_is_no_loop", "points": 1}
checks.a_chunk_is_no_loop(delta_chunk)

# %% [markdown]
# What does the difference gain? We store 16 facts under random keys in 16 × 16 numbers; then 8, the last
# of which gives the first key a new value.

# %%
keys = F.normalize(torch.randn(400, 1, 16, 16, generator=torch.Generator().manual_seed(1)), dim=-1)
values = torch.randn(400, 1, 16, 16, generator=torch.Generator().manual_seed(2))
gate, empty = torch.ones(400, 1, 16), torch.zeros(400, 1, 16, 16)


def told(n, first_again):
    k, v = keys[:, :, :n], values[:, :, :n]
    if first_again:
        k = torch.cat([k[:, :, :-1], k[:, :, :1]], dim=2)
    states = {"a plain sum": k.mT @ v}
    states["the delta rule"] = delta_chunk(empty, k, k, v, gate[..., :n], gate[..., :n])[1]
    for name, S in states.items():
        nearest = torch.cdist(k @ S, v).argmin(dim=-1)  # (400, 1, n)
        yield name, (nearest == torch.arange(n)).float().mean(dim=(0, 1))


for name, found in told(16, first_again=False):
    print(f"{name}: {found.mean():.2f} found; the oldest four {found[:4].mean():.2f}, "
          f"the newest four {found[-4:].mean():.2f}")  # fmt: skip
for name, found in told(8, first_again=True):
    print(f"{name}: what was told anew is found as it is now in {found[-1]:.2f}")

# %% [markdown]
# The sum keeps old and new alike, contradictions too. The delta rule knows the newest values, at the
# expense of older ones. How much faster are 256 tokens in chunks?

# %%
B, H, T, D = 1, 8, 256, 16
many = [torch.randn(B, H, T, D) for _ in "qkv"] + [
    torch.rand(B, H, T) * 0.2 + 0.8 for _ in range(2)
]


def in_chunks(size):
    S = torch.zeros(B, H, D, D)
    for chunk in zip(*(part.split(size, dim=2) for part in many), strict=True):
        if size == 1:
            S = delta_step(S, *(part.squeeze(2) for part in chunk))[1]
        else:
            S = delta_chunk(S, *chunk)[1]
    return S


with one_thread():
    seconds = interleaved({size: lambda size=size: in_chunks(size) for size in (1, 16, 64, 256)}, 3)
for size in (16, 64, 256):
    faster = min(seconds[1]) / min(seconds[size])
    print(f"chunks of {size}: {faster:.1f} times as fast as one by one")

# %% [markdown]
# ## 3 · What a state takes
#
# *Difficulty 2 of 5 · importance 4 of 5 · 8 minutes*
#
# Published linear layers first mix queries, keys and values over `width` tokens (a convolution), so they
# also keep the last width − 1 rows, their **tail**. Each value head has a state. `channels`: a token's
# numbers of q, k and v. A **hybrid** mixes full and linear layers.
#
# Write `state_bytes` and `break_even`. A hybrid's `sizes`: `n_linear`, `n_full`; `value_heads`,
# `key_dim` (K), `value_dim` (V), `width`, `channels`; `n_kv_heads`, `head_dim`.
#
# <details><summary>Hint 1: the idea</summary>
# Which of these depends on the length of the text?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# States (value_heads, K, V), a tail (width − 1, channels); a full layer's row: a key and a value for each
# KV head.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# A product for the states, one for the tail; one layer's bytes, divided by a row's and rounded up.
# </details>


# %% nbgrader={"grade_id": "state_bytes", "solution": true}
def state_bytes(
    sizes: HybridSizes, batch: int = 1, state_element: int = 4, element: int = 2
) -> int:
    """Bytes of the states and the tails of all linear layers, whatever the length of the text.

    Args:
        sizes: of the model.
        batch: B, texts.
        state_element: bytes of a number of a state.
        element: bytes of a number of a tail, which has width - 1 rows of `sizes.channels`.
    """
    check_between("batch", batch, 1, 2**31)
    check_element(state_element, element)
    ### BEGIN SOLUTION
    state = sizes.value_heads * sizes.key_dim * sizes.value_dim * state_element
    tail = (sizes.width - 1) * sizes.channels * element
    return batch * sizes.n_linear * (state + tail)
    ### END SOLUTION


# %% nbgrader={"grade_id": "break_even", "solution": true}
def break_even(sizes: HybridSizes, state_element: int = 4, element: int = 2) -> int:
    """The fewest tokens whose rows in one full layer take at least what one linear layer keeps.

    Args:
        sizes: of the model.
        state_element: bytes of a number of a state.
        element: bytes of a number of a tail, a key or a value.
    """
    check_element(state_element, element)
    ### BEGIN SOLUTION
    kept = state_bytes(replace(sizes, n_linear=1), 1, state_element, element)
    row = 2 * sizes.n_kv_heads * sizes.head_dim * element
    return -(-kept // row)  # rounded up
    ### END SOLUTION


# %% nbgrader={"grade_id": "bytes_of_states", "points": 0.5}
checks.bytes_of_states(state_bytes)

# %% nbgrader={"grade_id": "break_even_tokens", "points": 0.5}
checks.break_even_tokens(break_even)

# %% [markdown]
# Our hybrid has three linear layers and a full one, like every four layers of Qwen3-Next. It and a
# sibling of four linear layers started from `story`'s matrices and were trained for
# {{800 = METRICS["story-hybrid"]["steps"]}} steps on texts of at most 256 tokens (`python -m
# course.world.train_hybrid`).

# %%
story = MiniGPT.from_weights("story")
hybrid, linear = (HybridGPT.from_weights(name) for name in ("story-hybrid", "story-linear"))
show(draw_bytes(state_bytes, break_even, hybrid.sizes, longest=1000))

# %% [markdown]
# Qwen3-Next keeps {{77.3 = state_bytes(HybridSizes(36, 12, 2, 256, 16, 32, 128, 128)) / 1e6}} MB of
# states and tails, as much as the rows of {{3,144 = round(state_bytes(HybridSizes(36, 12, 2, 256, 16, 32,
# 128, 128)) / (12 * 2 * 2 * 256 * 2))}} tokens in 12 full layers (states in float32). All in float32:
# {{75.4 = state_bytes(HybridSizes(36, 12, 2, 256, 16, 32, 128, 128), 1, 4, 4) / 2**20}} MiB;
# llama.cpp logs 75.376 MiB. A layer of Qwen3.5-4B breaks even at
# {{524 = break_even(HybridSizes(24, 8, 4, 256, 16, 32, 128, 128))}} tokens (32 value heads assumed). vLLM
# makes blocks of {{528 = 16 * ceil(524 / 16)}} and reuses whole ones: no shorter prompt is found again
# (vLLM #40696).
#
# ## 4 · A cache that goes back, or refuses
#
# *Difficulty 4 of 5 · importance 5 of 5 · 25 minutes*
#
# You can cut rows, but not a state: every token has changed every number. Could the rule run backwards?

# %%
torch.manual_seed(17)
k, v = F.normalize(torch.randn(12, 1, 1, 16), dim=-1), torch.randn(12, 1, 1, 16)
beta, decay = torch.rand(12, 1, 1) * 0.3 + 0.69, torch.rand(12, 1, 1) * 0.1 + 0.9
passed_by = [torch.zeros(1, 1, 16, 16)]
for t in range(12):
    passed_by.append(delta_step(passed_by[-1], k[t], k[t], v[t], beta[t], decay[t])[1])
back = passed_by[-1]
for t in reversed(range(12)):  # the matrix that a step multiplies by, inverted
    column, row, gate_of_t = k[t].unsqueeze(-1), k[t].unsqueeze(-2), beta[t, ..., None, None]
    back = back - gate_of_t * column * v[t].unsqueeze(-2)
    back = torch.linalg.solve(torch.eye(16) - gate_of_t * column * row, back)
    back = back / decay[t, ..., None, None]
    if t in (11, 8, 4, 0):
        print(f"{12 - t} back: max |Δ| {(back - passed_by[t]).abs().max():.0e}")

# %% [markdown]
# No: each step back divides what a key finds, and its rounding error, by 1 − beta. So engines save states
# at **checkpoints** and go back only to these. Rows need no copy: they stay in place.
#
# **Common wrong answers** cut the rows but keep the states, reset the states (mlx-lm #1253), or let a
# checkpoint outlive the words it was made of.
#
# Write the methods of `HybridCache`.
#
# <details><summary>Hint 1: the idea</summary>
# For each linear layer, hold the current pair, the one kept in this pass, and those by length. When does
# one become another, and which are copies?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Rows (n_full, 2, B, G, max_len, D): the full layers are numbered among themselves. A dict from a
# layer to (S, tail); a dict from a length to such dicts.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>truncate</code>: raise before anything changes; zeros for 0, copies for a checkpoint; then the
# length, the pass under way, the checkpoints above n.
# </details>


# %% nbgrader={"grade_id": "HybridCache", "solution": true}
class HybridCache:
    """Rows of the full layers, states and tails of the linear ones, and checkpoints of these.

    Args:
        sizes: of the model.
        full: for each layer, in order, whether it is full; at least one is linear.
        batch: B, texts decoded together.
        max_len: tokens that it can hold.
        dtype, device: of all its tensors.

    Raises:
        ValueError: sizes, shapes, types or layers that do not fit; nothing was changed.
        CacheFull: from `append`, when there is no room; nothing was changed.
        CannotGoBack: from `truncate`, where no state after n tokens is kept; nothing was changed.
    """

    def __init__(
        self,
        sizes: HybridSizes,
        full: Sequence[bool],
        batch: int,
        max_len: int,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        check_hybrid_cache(sizes, full, batch, max_len)
        self.sizes, self.full, self.dtype = sizes, list(full), dtype
        self.batch, self.max_len, self.length = batch, max_len, 0
        ### BEGIN SOLUTION
        new = {"dtype": dtype, "device": device}
        G, D = sizes.n_kv_heads, sizes.head_dim
        self.rows = torch.zeros(sizes.n_full, 2, batch, G, max_len, D, **new)
        S = torch.zeros(batch, sizes.value_heads, sizes.key_dim, sizes.value_dim, **new)
        tail = torch.zeros(batch, sizes.width - 1, sizes.channels, **new)
        linear = [layer for layer, is_full in enumerate(full) if not is_full]
        self.now = {layer: (S.clone(), tail.clone()) for layer in linear}
        self.coming: dict[int, tuple[Tensor, Tensor]] = {}
        self.remembered: dict[int, dict[int, tuple[Tensor, Tensor]]] = {}
        ### END SOLUTION

    def __len__(self) -> int:
        """Tokens held."""
        return self.length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Copy k and v (B, G, T, D) behind the rows of a full layer, as lesson 03's cache does; return
        all of that layer so far, (B, G, S, D) each."""
        check_is_full(self.full, layer, True)
        check_rows(self.sizes, self.batch, self.dtype, k, v)
        ### BEGIN SOLUTION
        end = self.length + k.shape[2]
        if end > self.max_len:
            raise CacheFull(f"{self.length} of {self.max_len} places are taken, {end} are needed")
        keys, values = self.rows[sum(self.full[:layer])]
        keys[:, :, self.length : end] = k
        values[:, :, self.length : end] = v
        return keys[:, :, :end], values[:, :, :end]
        ### END SOLUTION

    def state(self, layer: int) -> tuple[Tensor, Tensor]:
        """The state (B, value_heads, K, V) and the tail (B, width - 1, channels) of a linear layer after
        `len(self)` tokens, also during a pass; zeros at 0. They are the caller's, who may change them."""
        check_is_full(self.full, layer, False)
        ### BEGIN SOLUTION
        S, tail = self.now[layer]
        return S.clone(), tail.clone()
        ### END SOLUTION

    def keep(self, layer: int, S: Tensor, tail: Tensor) -> None:
        """Copy the state and the tail of a linear layer after the tokens of this pass; they count from
        `advance` on. Kept again before it, they are replaced."""
        check_is_full(self.full, layer, False)
        check_kept(self.sizes, self.batch, self.dtype, S, tail)
        ### BEGIN SOLUTION
        self.coming[layer] = S.clone(), tail.clone()
        ### END SOLUTION

    def advance(self, n: int) -> None:
        """Count the n tokens of a pass as held, n at least 1. Before it, each full layer was appended to
        and each linear one kept. A pass that is never advanced counts for nothing; another may follow."""
        check_between("n", n, 1, self.max_len - len(self))
        ### BEGIN SOLUTION
        self.length += n
        self.now, self.coming = self.now | self.coming, {}
        ### END SOLUTION

    def checkpoint(self) -> None:
        """Remember states and tails after `len(self)` tokens, no rows. At 0 tokens, and where this length
        is remembered, it does nothing."""
        ### BEGIN SOLUTION
        if self.length and self.length not in self.remembered:
            self.remembered[self.length] = {layer: self.state(layer) for layer in self.now}
        ### END SOLUTION

    @property
    def checkpoints(self) -> list[int]:
        """The lengths that are remembered, rising, in a list that the caller may change."""
        ### BEGIN SOLUTION
        return sorted(self.remembered)
        ### END SOLUTION

    def truncate(self, n: int) -> None:
        """Keep the first n tokens, where n is 0, `len(self)` or one of the checkpoints.

        Then everything is as if only these tokens had been fed. Checkpoints above n are forgotten, one
        at n stays, and a pass under way counts for nothing.

        Raises:
            ValueError: n is not 0 … len(self).
            CannotGoBack: no state after n tokens is kept.
        """
        check_between("n", n, 0, len(self))
        ### BEGIN SOLUTION
        if n not in (0, self.length, *self.remembered):
            raise CannotGoBack(f"{n} of {self.length} tokens: kept are {self.checkpoints}")
        if n == 0:
            zeros = {layer: [torch.zeros_like(x) for x in pair] for layer, pair in self.now.items()}
            self.now = zeros
        elif n < self.length:
            old = self.remembered[n]
            self.now = {layer: (S.clone(), tail.clone()) for layer, (S, tail) in old.items()}
        self.length, self.coming = n, {}
        self.remembered = {at: states for at, states in self.remembered.items() if at <= n}
        ### END SOLUTION

    def reset(self) -> None:
        """Forget every token and every checkpoint."""
        ### BEGIN SOLUTION
        self.truncate(0)
        ### END SOLUTION

    def nbytes(self) -> int:
        """Bytes of the rows, for max_len tokens, and of states and tails, once and once more for each
        checkpoint. After a pass, nothing else is stored."""
        ### BEGIN SOLUTION
        once = sum(S.nbytes + tail.nbytes for S, tail in self.now.values())
        return self.rows.nbytes + once * (1 + len(self.remembered))
        ### END SOLUTION


# %% nbgrader={"grade_id": "every_split_keeps_the_same", "points": 1}
checks.every_split_keeps_the_same(HybridCache)

# %% nbgrader={"grade_id": "goes_back_or_refuses", "points": 1}
checks.goes_back_or_refuses(HybridCache)

# %% nbgrader={"grade_id": "a_refusal_changes_nothing", "points": 0.5}
checks.a_refusal_changes_nothing(HybridCache)

# %% nbgrader={"grade_id": "checkpoints_are_of_this_text", "points": 1}
checks.checkpoints_are_of_this_text(HybridCache)

# %% nbgrader={"grade_id": "a_checkpoint_costs_a_state", "points": 0.5}
checks.a_checkpoint_costs_a_state(HybridCache)


# %%
@torch.no_grad()
def feed(model, tokens, cache):
    return forward_hybrid(model, tokens, cache, delta_step, delta_chunk)


def new_cache(model, tokens):
    return HybridCache(model.sizes, model.full, len(tokens), model.config.max_seq_len)


text = stories_cut(1).before
cache, states = new_cache(hybrid, text), {}
for n in range(1, 13):
    parts = feed(hybrid, text[:, n - 1 : n], cache)
    states[n] = cache.state(1)[0][0, 2]
show(draw_cut(states, kept=7, held=12))
whole = feed(hybrid, text[:, :12], new_cache(hybrid, text))[:, -1:]
print(f"12 tokens one by one, or at once: logits differ by {(parts - whole).abs().max():.0e}")

# %% [markdown]
# ## 5 · What is still known


# %%
def reader(model):
    if model is story:
        return lambda tokens: forward_cached(model, tokens, KVCache(model.config, *tokens.shape))
    return lambda tokens: feed(model, tokens, new_cache(model, tokens))


models = {"story": story, "hybrid": hybrid, "linear": linear}
asked = {
    "a pause,\n400 tokens": [name_after_a_pause(397, seed) for seed in range(30)],
    "another\nstory": [name_after_a_story(seed) for seed in range(60)],
    "a list of 16,\nfirst four": [name_of_a_list(16, n, s) for n in range(4) for s in range(15)],
    "the same list,\nlast four": [
        name_of_a_list(16, n, s) for n in range(12, 16) for s in range(15)
    ],
}
with one_thread(), torch.no_grad():
    known = {
        between: {name: share_known(reader(model), texts) for name, model in models.items()}
        for between, texts in asked.items()
    }
    behind = behind_others(held_out(12), 3)
    known["in a story,\nbehind 3 others"] = {
        name: evaluate(reader(model), behind, batch=6)["recall_surname_near"]
        for name, model in models.items()
    }
show(draw_known(known))

# %% [markdown]
# **After (a).** The common wrong answer: a state forgets with distance. What comes between makes it
# forget: other names, or the *end* of a story, where its gates seem to wipe the slate clean. One full
# layer does not rescue the hybrid here. Within a story all are alike: of what was said at least 100
# tokens before, the linear model recalls {{1.00 = METRICS["story-linear"]["recall_far"]}}, the hybrid
# {{1.00 = METRICS["story-hybrid"]["recall_far"]}} and `story` {{0.99 = METRICS["story"]["recall_far"]}}.
#
# (`story` gets worse beyond some 400 tokens: few of its training texts were longer.)
#
# ## 6 · The slip that nobody sees
#
# > **Predict.** 12 tokens are taken back: their rows are cut, the states stay. How many of the hybrid's
# > next hundred predictions change: 60, 20 or 6?


# %%
def after_a_cut(model, texts, states_left):
    cache = new_cache(model, texts.before)
    feed(model, texts.before, cache)
    cache.checkpoint()
    feed(model, texts.cut, cache)
    layers = [layer for layer, is_full in enumerate(model.full) if not is_full]
    left = {layer: cache.state(layer) for layer in layers}
    cache.truncate(texts.before.shape[1])
    if states_left == "reset":
        left = {layer: [torch.zeros_like(x) for x in pair] for layer, pair in left.items()}
    return feed(model, texts.after, OtherStates(cache, left if states_left else {})).argmax(dim=-1)


texts, names = stories_cut(40), wrong_names_cut(40)
with one_thread():
    right = after_a_cut(hybrid, texts, "")
    for what in ("left", "reset"):
        changed = (after_a_cut(hybrid, texts, what) != right).float().mean()
        print(f"states {what}: {changed:.0%} of the next 100 tokens are others")
    for what in ("", "left"):
        last = after_a_cut(hybrid, names, what)[:, -1]
        print(f"a wrong name was taken back, states {what or 'right'}: "
              f"it is said in {(last == names.said[1]).sum()} of 40")  # fmt: skip

# %% [markdown]
# **About 6**, and that is the danger: the text reads well but says the name that was taken back. So our
# checks ask whether states are *equal*, never how a text looks.
#
# ## 7 · Where to go on
#
# *Difficulty 2 of 5 · importance 4 of 5 · 7 minutes*
#
# A chat's next prompt mostly begins like what the cache holds. In lesson 10 equal tokens were enough;
# here you also need a state. Write `resume_point`.
#
# <details><summary>Hint 1: the idea</summary>
# Which lengths meet each of the three conditions?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Numbers of tokens: how many are equal, and after how many there is a state.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# A loop that stops at the first difference; the largest of some lengths.
# </details>


# %% nbgrader={"grade_id": "resume_point", "solution": true}
def resume_point(held: list[int], prompt: list[int], checkpoints: list[int]) -> int:
    """The most tokens of a prompt that need not be fed.

    `held` and `prompt` begin with them, there is a state after them, and at least one token is left to
    feed, whose logits are wanted. There is a state after 0 tokens, at each checkpoint, and after all that
    is held.

    Args:
        held: the tokens that a cache holds, perhaps none.
        prompt: the tokens of the next request, at least one.
        checkpoints: the cache's, rising, each from 1 to len(held).
    """
    check_resume(held, prompt, checkpoints)
    ### BEGIN SOLUTION
    common = 0
    for old, new in zip(held, prompt[:-1], strict=False):
        if old != new:
            break
        common += 1
    return max(n for n in (0, len(held), *checkpoints) if n <= common)
    ### END SOLUTION


# %% nbgrader={"grade_id": "resume_leaves_a_token", "points": 1}
checks.resume_leaves_a_token(resume_point)

# %%
rules = {"rows": {"every": 1}, "no checkpoints": {}, "one at each prompt": {"prompts": True}}
rules |= {f"one every {n} tokens": {"every": n} for n in (64, 16)}
for name, rule in rules.items():
    fed, most = tokens_fed(resume_point, **rule)
    kept = "" if name == "rows" else f", {most} checkpoints"
    print(f"{name}: {fed:,} tokens are fed{kept}")

# %% [markdown]
# This chat has 8 turns, questions of 60 tokens, answers of 40, whose last two tokens come back changed,
# as a template may write them. Without checkpoints every turn reads everything again: 8 minutes for
# 15,000 tokens in llama.cpp #20225. Choose:

# %%
choose_layers(state_bytes, break_even, resume_point, hybrid.sizes)

# %% [markdown]
# > **Spot the slip.** A KV cache is a function of the tokens before t; a state breaks this, being one
# > "of every token before t, not of any prefix in particular" (a blog on Qwen3-Next).
#
# <details><summary>Answer</summary>
# These tokens <em>are</em> the prefix: an equal prefix gives an equal state. What is lost are the
# states at all <em>other</em> places.
# </details>
#
# > **And here**: `trim(n)` resets the states, and "recurrent layers recompute" (mlx-lm #1253, closed).
#
# <details><summary>Answer</summary>
# From what? Nobody feeds those tokens again: see "reset" in section 6. The PR compares no text.
# </details>
#
# **Not shown here.** What states cost in quality: a loss of {{0.40 = METRICS["story-hybrid"]["loss"]}}
# beside `story`'s {{0.42 = METRICS["story"]["loss"]}} says little, with four layers, few facts and one
# seed each. Nor do we show a step's speed.
#
# ## Check yourself
#
# <details><summary>Is a hybrid's cache constant?</summary>
# No: its full layers' rows grow. <em>Common wrong answer:</em> yes, its layers are linear. A quarter are
# not.
# </details>
# <details><summary>Does a longer text mean a worse memory?</summary>
# No: more facts do, or a decay near 0. <em>Common wrong answer:</em> yes, since everything fades.
# Heads learn decays near 1.
# </details>
# <details><summary>Is a checkpoint small?</summary>
# It takes all states, {{38,400 = state_bytes(HybridSizes(3, 1, 8, 16, 8, 8, 16, 16), 1, 4, 4)}} bytes
# in our hybrid: {{9.4 = 38400 / (4 * 2 * 8 * 16 * 4)}} tokens of `story`'s rows; in Qwen3-Next, 3,144
# of its rows. <em>Common wrong answer:</em> yes, it is one square.
# </details>
# <details><summary>Why can lesson 12's rollback not cut a hybrid's cache?</summary>
# There is no state after the last accepted guess. Save one before guessing; feed the accepted tokens
# again. <em>Common wrong answer:</em> it can, since they change little.
# </details>
#
# ## Next
#
# This is the last lesson. vLLM, SGLang and llama.cpp serve hybrids: look up where each saves states.
