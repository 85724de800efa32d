# %% [markdown]
# # 07 · A cache of small numbers
#
# {{badge}}
#
# A cached number takes 2 or 4 bytes. Does it need them? Here you store it as an 8-, 4- or 2-bit code.
#
# **After this lesson you can**
#
# * turn numbers into small codes and back, and say how far off they may be,
# * build a KV cache that keeps codes, and count every byte of it,
# * say along which axis keys share a step, and what happens along the other.
#
# **You build:** codes of 8 to 2 bits, and what the model forgets for them.
# **Time:** 100 minutes. **Points:** 10. **Needs:** lesson 03 (your answers, or ours). No GPU is
# used.
#
# > **Predict.** From a full cache our story model recalls
# > {{98 = 100 * METRICS["story"]["recall_place_far"]}} of 100 far places (lesson 06). How many with 4
# > bits per number? With 2? Write both down.

# %% tags=["setup"]

# %% tags=["export"]
import torch
from torch import Tensor

from course.model.bounds import check_between
from course.model.cache import CacheFull, check_appended, check_block
from course.model.config import GPTConfig
from course.fast.quantized import (
    CacheBytes,
    Quantized,
    check_codes,
    check_finite,
    check_quantizable,
    check_quantized_sizes,
)
from course.fast.storage import GroupStore

# %%
import sys

from tqdm.auto import tqdm

from course.checks import quantized_cache as checks
from course.world.evaluation import evaluate, held_out
from course.measure.machine import interleaved, one_thread
from course.minigpt.kv_cache import KVCache, forward_cached, kv_cache_bytes
from course.model import MiniGPT
from course.world.outliers import BothPerToken, StoredAs, through_a_cache, with_outliers
from course.plots.quantized_cache import (
    draw_cache_bytes,
    draw_example,
    draw_half_step,
    draw_quality,
    draw_true_bits,
)
from course.plots.style import show
from course.plots.times import draw_times
from course.published.models import PUBLISHED
from course.fast.tiled_read import make_scratch, tiled_attention
from course.widgets.quantized_cache import share_a_step

story = MiniGPT.from_weights("story")

# %% [markdown]
# ## The picture
#
# These numbers use 2 bits each, so there are four codes, 0 to {{3 = 2**2 - 1}}:

# %%
show(draw_example())

# %% [markdown]
# A code counts *steps* from the row's lowest number: row 0 starts at -0.2 and its step is 0.5, so code
# 3 means -0.2 + 3 · 0.5 = {{1.3 = -0.2 + 3 * 0.5}}.
#
# > **Spot the slip.** "A 4-bit cache is a quarter of an fp16 cache." Which stored numbers does this
# > ignore?
#
# <details><summary>Answer</summary>
# Each row's step and lowest number, 16 bits each. Rows of 64 numbers then take {{4.5 = 4 + 2 * 16 / 64}}
# bits per number: {{3.56 = 16 / (4 + 2 * 16 / 64)}} times less, not {{4 = 16 // 4}}.
# </details>
#
# ## 1 · Codes
#
# *Difficulty 2 of 5 · importance 5 of 5 · 12 minutes*
#
# Write `quantize` and its inverse, `dequantize`. Every vector along `dim` gets its own step (`scale`) and
# the value of code 0 (`zero`); a code stands for `zero + scale · code`. Codes may span a vector's lowest
# to highest number (*asymmetric*), or extend equally far on both sides of 0 (*symmetric*). Required:
#
# * every number comes back within **half a step**, the step that is *stored*: float16 rounds it, so
#   divide by that one, in float32,
# * codes are `uint8`, from 0 to 2^bits - 1,
# * no step is below `torch.finfo(dtype).tiny`: equal numbers have no range, and in float16 a step can
#   vanish although the numbers do not.
#
# **The common wrong answer** truncates (as `.to(torch.uint8)` does) instead of rounding: errors approach
# a full step, all in one direction.
#
# <details><summary>Hint 1: the idea</summary>
# How many steps lie between 2^bits codes? How many steps is a number away from zero's place?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# x and codes alike. scale and zero have size 1 along <code>dim</code>, so that they broadcast.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>torch.aminmax</code> with <code>keepdim</code>; a smallest step, stored; subtract and divide
# by that in float32; <code>round</code>, <code>clamp</code>, and only then the dtype.
# </details>


# %% nbgrader={"grade_id": "quantize", "solution": true}
def quantize(x: Tensor, bits: int, dim: int) -> Quantized:
    """Numbers as codes of a few bits.

    Args:
        x: floating-point, finite, any shape.
        bits: of a code: 2, 4 or 8.
        dim: along which numbers share a step and a zero.

    Returns:
        codes uint8 in the shape of x; scale and zero in x's dtype, with size 1 along dim; bits.
        A step is a vector's range over 2^bits - 1 (symmetric: twice its largest |x|; there 2^bits - 2
        passes, too, where its zero can be stored), and at least torch.finfo(x.dtype).tiny.
        `zero + scale * codes` is within half a step of x, for scale and zero as they are *stored*:
        float16 and bfloat16 round them, so subtract and divide by what they have become, in float32
        or wider. Not counted: float32's rounding and, at the first and the last code, that of the
        stored step and zero.

    Raises:
        ValueError: other bits, no such dim, NaN or infinity.
    """
    check_quantizable(x, bits, dim)
    ### BEGIN SOLUTION
    low, high = torch.aminmax(x, dim=dim, keepdim=True)
    scale = ((high.float() - low.float()) / (2**bits - 1)).to(x.dtype)
    scale = scale.clamp_min(torch.finfo(x.dtype).tiny)  # of equal numbers, or lost in float16
    steps = (x.float() - low.float()) / scale.float()  # by the scale that is stored
    codes = steps.round().clamp(0, 2**bits - 1).to(torch.uint8)
    return Quantized(codes, scale, low, bits)
    ### END SOLUTION


# %% nbgrader={"grade_id": "dequantize", "solution": true}
def dequantize(q: Quantized) -> Tensor:
    """The numbers that codes stand for, in the dtype of the scale and the shape of the codes."""
    ### BEGIN SOLUTION
    return q.zero + q.scale * q.codes
    ### END SOLUTION


# %% nbgrader={"grade_id": "half_a_step_at_most", "points": 1}
checks.half_a_step_at_most(quantize, dequantize)

# %% nbgrader={"grade_id": "codes_fit_their_bits", "points": 1}
checks.codes_fit_their_bits(quantize)

# %% nbgrader={"grade_id": "flat_vectors_stay_finite", "points": 1}
checks.flat_vectors_stay_finite(quantize, dequantize)

# %%
show(draw_half_step(quantize, dequantize, bits=2))

# %% [markdown]
# ## 2 · Two codes in a byte
#
# *Difficulty 2 of 5 · importance 3 of 5 · 8 minutes*
#
# A 4-bit code alone in a byte saves nothing, so two neighbours share one: the **first** in the low four
# bits, the second in the high four. Codes 1 and 2 become 2 · 16 + 1 = {{33 =
# int(pack_int4(torch.tensor([1, 2], dtype=torch.uint8)))}}.
#
# Write `pack_int4` and its inverse, `unpack_int4`.
#
# <details><summary>Hint 1: the idea</summary>
# Shifting up four bits multiplies by 16. What undoes that, and what removes the rest?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# (…, n) → (…, n/2): every second code from 0, every second from 1. Back: stack to (…, n/2, 2), flatten.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Slices with a step of 2, <code>&lt;&lt;</code> and <code>|</code>; back with <code>&amp;</code> and
# <code>&gt;&gt;</code>. All of it stays uint8.
# </details>


# %% nbgrader={"grade_id": "pack_int4", "solution": true}
def pack_int4(codes: Tensor) -> Tensor:
    """Two codes in a byte: (…, n) uint8, 0 … 15, to (…, n / 2) uint8, the first of two in the low bits.

    Raises:
        ValueError: n is odd, or these are no such codes.
    """
    check_codes(codes, highest=15)
    ### BEGIN SOLUTION
    return codes[..., 0::2] | (codes[..., 1::2] << 4)
    ### END SOLUTION


# %% nbgrader={"grade_id": "unpack_int4", "solution": true}
def unpack_int4(packed: Tensor) -> Tensor:
    """The codes in bytes of `pack_int4`: (…, n / 2) uint8 to (…, n) uint8."""
    ### BEGIN SOLUTION
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)  # (…, n / 2, 2) -> (…, n)
    ### END SOLUTION


# %% nbgrader={"grade_id": "two_codes_share_a_byte", "points": 1}
checks.two_codes_share_a_byte(pack_int4, unpack_int4)

# %% [markdown]
# ## 3 · Who shares a step?
#
# One head's keys form a table: tokens down, channels across. In large models a few channels are ten times
# as large as the others, at every token. Ours has none, so we enlarge one pair (rotation works on pairs)
# and shrink the queries equally: no logit changes.
#
# > **Predict.** One pair of channels is 20 times as large. If each *token* has one step for all its
# > channels, what is left of the small ones? And if each *channel* has its own step?

# %%
share_a_step(story, quantize, dequantize)

# %% [markdown]
# A token's step fits the large pair and is too coarse for the rest. So keys share a step **along the
# tokens**, channel by channel. That needs several tokens at once: a *group*. Values have no such
# channels, so they share a step **along the channels** (KIVI, Liu et al. 2024; KVQuant, Hooper et al.
# 2024).
#
# ## 4 · The cache
#
# *Difficulty 4 of 5 · importance 5 of 5 · 45 minutes*
#
# A group takes time to fill, so the newest tokens wait in full precision, and each is rounded once:
#
# | tokens, oldest first | kept as |
# |---|---|
# | complete groups older than the newest `window` tokens | codes: keys per channel, values per token |
# | all later ones: at most `window + group - 1` | as they came, in `recent` |
# | appended, not yet advanced | as they came, in `pending` |
#
# * `append` puts the new tokens, and only these, into `pending[layer]` and returns all tokens: old groups
#   dequantized, the rest exactly.
# * `advance(n)` moves the first n pending tokens into `recent`, and complete groups on into the stores.
#   However tokens are split into blocks, the cache must end up the same.
# * `truncate` discards what is pending; whole groups may stay codes, even inside the window. If a group
#   is cut, its first tokens return to `recent` dequantized, since the originals are gone; if it refills,
#   they are rounded again.
#
# `GroupStore` is given (`course/fast/storage.py`): `write(first, quantized)` packs and keeps codes
# (L, B, G, n, group, D); `read(layer, n)` gives the first n groups of a layer as a `Quantized`, (B, G, n,
# group, D); `nbytes()` counts its bytes.
#
# Write `append`, `advance`, `truncate` and `nbytes` of `QuantizedKVCache`.
#
# <details><summary>Hint 1: the idea</summary>
# When S tokens are held, how many groups are complete and outside the window? That many are codes, and
# perhaps more after a truncation: <code>advance</code> never reduces the number.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# <code>recent</code> (2, L, B, G, recent, D): keys, then values. Quantize groups of keys (…, n, group, D)
# along -2, groups of values along -1. Read groups flatten to (B, G, n · group, D).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>append</code>: check that it fits; set pending; for keys and for values: read and dequantize
# groups, flatten, cat with held recent rows and new ones. <code>advance</code>: stack the pending rows,
# cat behind the held ones, unflatten the complete groups off the front, quantize, write; the rest goes to
# the front of <code>recent</code>.
# </details>


# %% nbgrader={"grade_id": "QuantizedKVCache", "solution": true}
class QuantizedKVCache:
    """A KV cache that keeps complete groups of tokens as codes and the newest tokens as they are.

    Keys have a step for each channel of a group, values one for each token. Used like any cache:
    `append` for every layer, then `advance`.

    Args:
        config, batch, max_len: as of `KVCache`.
        bits: of a code: 2, 4 or 8.
        group: tokens that are quantized together.
        window: newest tokens that are never codes, at least.
        dtype, device: of keys and values as they come and go, of the window, of scales and zeros.

    Raises:
        ValueError: sizes that cannot be used; keys or values of another shape or dtype, or not finite.
        CacheFull: from `append`, when there is no room.
        Whatever is refused changes nothing, not even what is pending.
    """

    def __init__(
        self,
        config: GPTConfig,
        batch: int,
        max_len: int,
        bits: int = 8,
        group: int = 64,
        window: int = 32,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        check_quantized_sizes(config, batch, max_len, bits, group, window)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        self.bits, self.group, self.window = bits, group, window
        groups, codecs = max(0, max_len - window) // group, (pack_int4, unpack_int4)
        sizes = (config, batch, groups, group, bits)  # groups: so many can ever be complete
        self.keys = GroupStore(*sizes, -2, dtype, device, *codecs)
        self.values = GroupStore(*sizes, -1, dtype, device, *codecs)
        recent = min(max_len, window + group - 1)  # tokens: so many can ever wait
        shape = (2, config.n_layers, batch, config.n_kv_heads, recent, config.head_dim)
        self.recent = torch.zeros(shape, dtype=dtype, device=device)  # (2, L, B, G, recent, D)
        self.pending: dict[int, tuple[Tensor, Tensor]] = {}  # by layer, until advance
        self.length = 0  # tokens held
        self.n_groups = 0  # groups of them that are codes

    def __len__(self) -> int:
        """Tokens held."""
        return self.length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Take k and v (B, G, T, D) behind what is held; return all so far, (B, G, S, D) each.

        They are pending until `advance`; appended again before that, the new ones replace the old.
        """
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        check_finite("keys", k)
        check_finite("values", v)
        ### BEGIN SOLUTION
        if self.length + k.shape[2] > self.max_len:
            raise CacheFull(
                f"{self.length} of {self.max_len} places are taken, {k.shape[2]} more do not fit"
            )
        self.pending[layer] = (k, v)
        held = self.length - self.n_groups * self.group
        rows = []
        for store, recent, new in zip((self.keys, self.values), self.recent, (k, v), strict=True):
            old = dequantize(store.read(layer, self.n_groups)).flatten(2, 3)  # (B, G, n·group, D)
            rows.append(torch.cat([old, recent[layer, :, :, :held], new], dim=2))
        return rows[0], rows[1]  # (B, G, S, D) each
        ### END SOLUTION

    def advance(self, n: int) -> None:
        """Count n tokens more as held, once per forward pass; groups that are complete become codes.

        These are the first n that are pending; the rest is forgotten. advance(0) does nothing.
        However many codes there are, none is read or written again.
        """
        check_between("n", n, 0, self.max_len - len(self))
        check_appended(self.pending, self.config.n_layers, n)
        ### BEGIN SOLUTION
        if n == 0:
            return
        layers = [torch.stack(self.pending[i])[..., :n, :] for i in range(self.config.n_layers)]
        new = torch.stack(layers, dim=1)  # (2, L, B, G, n, D)
        held = self.length - self.n_groups * self.group
        rows = torch.cat([self.recent[..., :held, :], new], dim=4)
        self.length, self.pending = self.length + n, {}
        done = max(0, (self.length - self.window) // self.group - self.n_groups)
        if done:
            complete = rows[..., : done * self.group, :].unflatten(4, (done, self.group))
            self.keys.write(self.n_groups, quantize(complete[0], self.bits, dim=-2))
            self.values.write(self.n_groups, quantize(complete[1], self.bits, dim=-1))
            self.n_groups += done
        rest = rows[..., done * self.group :, :]
        self.recent[..., : rest.shape[4], :] = rest
        ### END SOLUTION

    def truncate(self, n: int) -> None:
        """Keep the first n tokens, and nothing that is pending.

        What is left of a group that is cut goes back to the recent ones. A group that stays whole may
        stay codes, also inside the window.
        """
        check_between("n", n, 0, len(self))
        ### BEGIN SOLUTION
        kept = min(self.n_groups, n // self.group)
        rest = n - kept * self.group  # of the group that is cut
        if kept < self.n_groups and rest:
            for store, recent in zip((self.keys, self.values), self.recent, strict=True):
                for layer in range(self.config.n_layers):
                    old = dequantize(store.read(layer, kept + 1))  # (B, G, kept + 1, group, D)
                    recent[layer, :, :, :rest] = old[:, :, kept, :rest]
        self.length, self.n_groups, self.pending = n, kept, {}
        ### END SOLUTION

    def reset(self) -> None:
        """Forget every token."""
        self.truncate(0)

    def nbytes(self) -> int:
        """Bytes that the storage occupies, whether filled or not; what is pending adds none."""
        ### BEGIN SOLUTION
        return self.keys.nbytes() + self.values.nbytes() + self.recent.nbytes
        ### END SOLUTION


# %% nbgrader={"grade_id": "groups_and_a_window", "points": 1}
checks.groups_and_a_window(QuantizedKVCache)

# %% nbgrader={"grade_id": "keys_by_channel_values_by_token", "points": 1}
checks.keys_by_channel_values_by_token(QuantizedKVCache)

# %% nbgrader={"grade_id": "every_split_leaves_the_same", "points": 1}
checks.every_split_leaves_the_same(QuantizedKVCache)

# %% nbgrader={"grade_id": "a_refusal_changes_nothing", "points": 1}
checks.a_refusal_changes_nothing(QuantizedKVCache)

# %% nbgrader={"grade_id": "quantized_cache_can_go_back", "points": 1}
checks.quantized_cache_can_go_back(QuantizedKVCache)

# %% [markdown]
# ## 5 · The bill
#
# *Difficulty 2 of 5 · importance 4 of 5 · 8 minutes*
#
# Count codes, scales (with zeros), and the window: room for the most tokens that ever wait there.
#
# Write `quantized_cache_bytes`, which adds them up.
#
# <details><summary>Hint 1: the idea</summary>
# How many groups are codes when n tokens are held? What does one group store for one head?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# A group of keys: (group, D) codes, D steps. Of values: (group, D) codes, group steps. Each step has a
# zero.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# The lines of <code>__init__</code> that compute <code>groups</code> and <code>recent</code>; then
# three products.
# </details>


# %% nbgrader={"grade_id": "quantized_cache_bytes", "solution": true}
def quantized_cache_bytes(
    config: GPTConfig,
    n_tokens: int,
    batch: int = 1,
    bits: int = 8,
    group: int = 64,
    window: int = 32,
    bytes_per_element: int = 2,
) -> CacheBytes:
    """Bytes of a quantized KV cache with room for n_tokens of each of `batch` rows.

    Args:
        bytes_per_element: of a number of the window, of a scale, of a zero.

    Returns:
        codes, scales (with zeros) and window, in bytes.
    """
    ### BEGIN SOLUTION
    heads = 2 * config.n_layers * batch * config.n_kv_heads  # of keys and values
    n_groups = max(0, n_tokens - window) // group
    recent = min(n_tokens, window + group - 1)
    return CacheBytes(
        codes=heads * n_groups * group * config.head_dim * bits // 8,
        scales=heads * n_groups * (config.head_dim + group) * bytes_per_element,
        window=heads * recent * config.head_dim * bytes_per_element,
    )
    ### END SOLUTION


# %% nbgrader={"grade_id": "bytes_match_codes_scales_window", "points": 1}
checks.bytes_match_codes_scales_window(quantized_cache_bytes, QuantizedKVCache)

# %%
llama = PUBLISHED["Llama-3-8B"].config  # D = 128
for name, config, n_tokens in (("8B, D = 128", llama, 8192), ("ours, D = 16", story.config, 512)):
    caches = {f"{name}, fp16": kv_cache_bytes(config, n_tokens)}
    for bits in (8, 4, 2):
        part = quantized_cache_bytes(config, n_tokens, bits=bits)
        caches[f"{bits} bits"] = part
        ratio = kv_cache_bytes(config, n_tokens) / part.total
        same = kv_cache_bytes(config, max(0, n_tokens - 32) // 64 * 64)  # the same groups, in fp16
        apart = same / (part.codes + part.scales)
        print(
            f"{name}, {bits} bits: {ratio:.2f} times smaller than fp16; without window {apart:.2f}"
        )
    show(draw_cache_bytes(caches))

# %% [markdown]
# Our model pays twice: a value's step and zero serve only 16 codes, and in a short text the window counts
# more.
#
# In 80 GB, beside the weights of Llama-3-8B, lesson 06 found room for {{59 =
# max_batch_that_fits(PUBLISHED["Llama-3-8B"].config, 80 * 10**9, 8192,
# PUBLISHED["Llama-3-8B"].weight_bytes)}} conversations of 8,192 tokens. With 4 bits, the number is
# {{210 = (80 * 10**9 - PUBLISHED["Llama-3-8B"].weight_bytes) // quantized_cache_bytes(
# PUBLISHED["Llama-3-8B"].config, 8192, bits=4).total}}.
#
# ## 6 · What it costs in words
#
# 100 new stories run through your cache, in float16, and through one that casts to 8-bit floats (fp8: no
# steps, no groups). "Bits a number" counts codes, steps and window.


# %%
stories, half = held_out(100), torch.float16


def measure(model, new_cache):
    with one_thread():
        return evaluate(through_a_cache(model, forward_cached, new_cache, chunk=16), stories)


def full(batch, n):
    return StoredAs(KVCache(story.config, batch, n, dtype=half), half)


def fp8(batch, n):
    return StoredAs(KVCache(story.config, batch, n, dtype=half), half, torch.float8_e4m3fn)


def per_channel(bits, group=16):
    sizes = {"bits": bits, "group": group, "window": 16, "dtype": half}
    return lambda batch, n: StoredAs(QuantizedKVCache(story.config, batch, n, **sizes), half)


def per_token(bits):  # keys are treated as values are
    return lambda batch, n: BothPerToken(lambda: per_channel(bits)(batch, n))


def true_bits(config, n_tokens, bits, group):
    part = quantized_cache_bytes(config, n_tokens, bits=bits, group=group, window=16)
    return 16 * part.total / kv_cache_bytes(config, n_tokens)


# %%
found = {("fp16", ""): (16, 16, measure(story, full)), ("fp8", ""): (8, 8, measure(story, fp8))}
for bits, group in tqdm([(b, g) for g in (16, 64) for b in (8, 4, 2)], file=sys.stdout):
    here, there = true_bits(story.config, 256, bits, group), true_bits(llama, 8192, bits, group)
    result = measure(story, per_channel(bits, group))
    found[f"{bits} bits", f"groups of {group}"] = here, there, result
print(f"{'':<23}{'bits a number':>14}{'in an 8B':>10}{'far places':>16}{'perplexity':>12}")
for (name, groups), (here, there, result) in found.items():
    print(f"{name:<7}{groups:<16}{here:>14.1f}{there:>10.1f}", end="")
    n = result["questions_place_far"]
    print(f"{result['recall_place_far'] * n:>9.0f} of {n}{result['perplexity']:>12.4f}")
show(draw_true_bits({name: (here, result) for name, (here, _, result) in found.items()}))

# %% [markdown]
# Compare your two numbers. A difference of two places is chance, so eight bits and four show no loss; two
# bits in groups of 64 cost several, since steps over more tokens are wider. But here "2 bits" in
# groups of 16 take {{5.7 = 16 * quantized_cache_bytes(MiniGPT.from_weights("story").config, 256, bits=2,
# group=16, window=16).total / kv_cache_bytes(MiniGPT.from_weights("story").config, 256)}} bits per number
# at 256 tokens, while fp8 takes 8 with a plain cast. Few bits pay off when heads are wide and texts long:
# column *in an 8B* assumes D = {{128 = PUBLISHED["Llama-3-8B"].config.head_dim}} and 8,192 tokens
# (quality not measured). For Llama 3 8B, a trial in llama.cpp found perplexity 6.2322 with a 16-bit
# cache, 6.2344 with 8 bits (Wikitext-2, PR 7412, not merged).
#
# ## 7 · Outliers
#
# Now one pair of key channels is 20 times as large in every head.
#
# > **Predict.** Keys per channel or per token, 4 bits and 2: how many far places does each of the four
# > keep?

# %%
loud = with_outliers(story, n_pairs=1, factor=20)
both = {"keys per channel": [], "keys per token": []}
for bits in tqdm((4, 2), file=sys.stdout):
    both["keys per channel"].append(measure(loud, per_channel(bits)))
    both["keys per token"].append(measure(loud, per_token(bits)))
show(draw_quality((4, 2), both, measure(loud, full)))

# %% [markdown]
# Per channel, hardly anything changed. Per token, the large pair sets the step for all: 4 bits lose a
# quarter of the far places, 2 bits nearly all. (A one-line cure: `with_outliers(loud, 1, 1 / 20)` moves
# the factor from keys to queries, which nobody rounds.) KIVI (Liu et al. 2024) found such channels in
# real models, and therefore shares steps as your cache does.
#
# ## 8 · What reading codes costs
#
# Your `append` dequantizes *everything* at each step. A *tiled read* (`course/fast/tiled_read.py`) writes
# a few thousand tokens into a small scratch buffer, adds their contribution to the softmax's running
# sums, and overwrites them with the next (exact: see lesson 09).
#
# > **Predict.** 8-bit codes take a quarter of a float's bytes. Does dequantizing everything beat plain
# > floats? Does the tiled read?

# %%
G, S, D = 4, 8192, 128
q, (k, v) = torch.randn(1, 4 * G, 1, D), torch.randn(2, 1, G, S // 64, 64, D)  # groups of 64 tokens
keys, values = quantize(k, 8, dim=-2), quantize(v, 8, dim=-1)
scratch = make_scratch(q, keys)


def attend(k, v):
    k, v = k.flatten(2, 3), v.flatten(2, 3)  # (1, G, S, D)
    return (q.view(1, G, 4, D) @ k.mT / D**0.5).softmax(dim=-1) @ v


with one_thread():
    times = interleaved(
        {
            "floats": lambda: attend(k, v),
            "codes, all dequantized": lambda: attend(dequantize(keys), dequantize(values)),
            "codes, tiled": lambda: tiled_attention(q, keys, values, scratch=scratch),
        },
        rounds=9,
    )
show(draw_times(times, "one token to attend", beside="floats"))

# %% [markdown]
# The caption tells you. Turning codes into floats costs about what the saved bytes gain, or more, so the
# tiled read is at best as fast as plain floats; dequantizing everything takes far longer. On a GPU one
# kernel does both in registers (`course/fast/triton.py`): on an H200 it read 262,144 tokens of INT8 1.7
# times as fast as the fastest read of bfloat16 that we tried.
#
# ## Check yourself
#
# <details><summary>Why are keys not rounded as they come?</summary>
# A step along tokens needs several tokens. <em>Common wrong answer:</em> "to save time". A growing group
# would be rounded again at every token, and errors add up.
# </details>
# <details><summary>The perplexity did not move. Is the cache right?</summary>
# That does not show it. A cache that stores floats would pass, too. <em>Common wrong answer:</em> yes.
# Count bytes and levels as well.
# </details>
#
# ## Next
#
# Your cache is smaller but still grows with every token. **Lesson 08** builds one that stops growing;
# lesson 14 keeps everything and reads a part.
