"""Decode greedily at the speed of memory: replaces `forward_cached` where one batch is decoded fast.

    decoder = FastDecoder(model, batch=1, max_len=1024)
    text = decoder.generate(prompt, n_new=100)      # the tokens of `generate_cached`

Use it for one text, or for a batch of one length. A cache of another kind, or rows of different lengths
need `forward_cached` or `course.serving`.

`forward_cached` launches hundreds of small operations a token. A GPU could do them all while the
weights arrive from its memory; it waits for Python instead, which needs a few millionths of a second
to launch each. Three changes end this waiting:

1. **Fixed shapes.** The cache has room for max_len tokens from the start, attention always reads
   all of it, and what is not written yet gets the weight 0. The position of a token is a tensor and
   not a Python number. So every step is the same list of operations on the same memory.
2. **Fewer operations**, see `course.fast.layer`. `compile=True` lets `torch.compile` join more.
3. **A CUDA graph.** On a GPU the list is recorded once and then launched as a whole.

On a CPU nothing is queued and so nothing can be recorded; 1 and 2 remain, and a layout in which one
row times a matrix reads memory straight ahead. The idea is that of gpt-fast (PyTorch, 2023).
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor

from course.fast.graphs import record
from course.fast.layer import FastWeights, Layer, after_attention, heads_of
from course.model import MiniGPT
from course.model.bounds import check_between
from course.model.cache import CacheFull, check_cache_sizes


class FastDecoder:
    """Replace `forward_cached` and its cache, to decode a fixed number of rows greedily and fast.

    Use it for prompts of one length; the cache has a fixed size.

    Args:
        model: its weights as they are now, partly copied; the model stays as it is. Or `FastWeights`,
            which are not copied.
        batch: B, rows decoded together.
        max_len: tokens that the cache holds. Every step reads all these places, so choose no more
            than you need.
        compile: let `torch.compile` join operations, which takes a minute and needs a C++ compiler
            (on a GPU: Triton).

    Raises:
        ValueError: sizes that cannot be used.
    """

    def __init__(
        self, model: MiniGPT | FastWeights, batch: int, max_len: int, compile: bool = False
    ) -> None:
        self.weights = model if isinstance(model, FastWeights) else FastWeights(model)
        self.config = model.config
        self.embed = self.weights.embed
        # One row times a matrix then gets a kernel that reads at the full speed of a GPU's memory.
        tuned = {"coordinate_descent_tuning": True} if self.embed.device.type == "cuda" else None
        self._layer = torch.compile(_layer, dynamic=False, options=tuned) if compile else _layer
        self._make_room(batch, max_len)

    def resized(self, batch: int, max_len: int) -> FastDecoder:
        """Make an empty decoder of other sizes that shares the weights.

        Raises:
            ValueError: sizes that cannot be used.
        """
        other = copy.copy(self)
        other._make_room(batch, max_len)
        return other

    def _make_room(self, batch: int, max_len: int) -> None:
        """Allocate all that a step reads and writes besides the weights; a CUDA graph needs fixed
        addresses."""
        check_cache_sizes(self.config, batch, max_len)
        self.batch, self.max_len, self.length = batch, max_len, 0
        L, G, D = self.config.n_layers, self.config.n_kv_heads, self.config.head_dim
        device = self.embed.device
        self.keys = torch.zeros(L, batch, G, max_len, D, dtype=self.embed.dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self.places = torch.arange(max_len, device=device)
        self.token = torch.zeros(batch, 1, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self._run_step = self._decode
        if device.type == "cuda":
            with torch.cuda.device(device):
                self._run_step = record(self._decode)

    def __len__(self) -> int:
        """Tokens held."""
        return self.length

    def truncate(self, n: int) -> None:
        """Keep the first n tokens and forget the rest."""
        check_between("n", n, 0, self.length)
        self.length = n

    def reset(self) -> None:
        """Forget every token."""
        self.length = 0

    def adopt(self, other: FastDecoder, n: int) -> None:
        """Take over the first n tokens that another decoder of this model holds."""
        check_between("n", n, 0, min(len(other), self.max_len))
        self.keys[:, :, :, :n] = other.keys[:, :, :, :n]
        self.values[:, :, :, :n] = other.values[:, :, :, :n]
        self.length = n

    def nbytes(self) -> int:
        """Count the bytes of the storage of keys and values, whether filled or not."""
        return sum(part.nbytes for part in (self.keys, self.values))

    def prefill(self, prompt: Tensor) -> Tensor:
        """Empty the cache and read a prompt (B, P) int64: logits of what follows, (B, V).

        Raises:
            ValueError: a prompt that the model cannot take, or of another number of rows.
            CacheFull: it is longer than max_len.
        """
        if prompt.dim() != 2 or prompt.shape[0] != self.batch or prompt.shape[1] < 1:
            raise ValueError(
                f"the prompt must be (B, P) = ({self.batch}, P) with P of at least 1, "
                f"got {tuple(prompt.shape)}"
            )
        if prompt.shape[1] > self.max_len:
            raise CacheFull(f"{prompt.shape[1]} tokens do not fit into {self.max_len} places")
        logits = self._forward(prompt, self.places[: prompt.shape[1]], hidden=None)
        self.length = prompt.shape[1]
        return logits

    def extend(self, tokens: Tensor) -> Tensor:
        """Read tokens (B, T) that follow those held: logits of what follows each, (B, T, V).

        Raises:
            CacheFull: there are not so many places left; nothing was changed.
        """
        T = tokens.shape[1]
        if self.length + T > self.max_len:
            raise CacheFull(f"{self.length} of {self.max_len} places are taken, {T} do not fit")
        positions = self.places[self.length : self.length + T]
        hidden = torch.zeros(T, self.max_len, dtype=self.embed.dtype, device=self.embed.device)
        hidden = hidden.masked_fill(self.places > positions[:, None], float("-inf"))
        x = self._last_layer(tokens, positions, hidden)
        self.length += T
        return self.weights.logits(x)

    def step(self, tokens: Tensor) -> Tensor:
        """Read the next token of each row, (B,) int64: logits of what follows, (B, V).

        Raises:
            CacheFull: no place is left; nothing was changed.
        """
        if self.length == self.max_len:
            raise CacheFull(f"all {self.max_len} places are taken")
        self.token.copy_(tokens.view(self.batch, 1))
        self.position.fill_(self.length)
        self.length += 1
        return self._run_step().clone()  # the next step writes to the same memory

    def generate(self, prompt: Tensor, n_new: int) -> Tensor:
        """Continue a prompt (B, P) greedily: (B, P + n_new) int64.

        Raises:
            ValueError: a prompt that the model cannot take, or no n_new of at least 1 that fits.
        """
        check_between("n_new", n_new, 1, self.max_len - prompt.shape[-1] + 1)
        with torch.inference_mode():  # records nothing for gradients
            chosen = [self.prefill(prompt).argmax(dim=-1)]  # (B,)
            while len(chosen) < n_new:
                chosen.append(self.step(chosen[-1]).argmax(dim=-1))
        return torch.cat([prompt, torch.stack(chosen, dim=1)], dim=1)

    def _decode(self) -> Tensor:
        """Run one step on `self.token` at `self.position`. No shape and no address depends on how many
        tokens there are."""
        hidden = torch.zeros_like(self.places, dtype=self.embed.dtype)  # (max_len,)
        hidden = hidden.masked_fill(self.places > self.position, float("-inf"))
        return self._forward(self.token, self.position, hidden)

    @torch.no_grad()
    def _forward(self, tokens: Tensor, positions: Tensor, hidden: Tensor | None) -> Tensor:
        """Logits after the last of tokens (B, T) at positions (T,): (B, V)."""
        return self.weights.logits(self._last_layer(tokens, positions, hidden)[:, -1])

    @torch.no_grad()
    def _last_layer(self, tokens: Tensor, positions: Tensor, hidden: Tensor | None) -> Tensor:
        """What the last layer gives for tokens (B, T) at positions (T,): (B, T, C)."""
        x, cos_sin = self.weights.embedded(tokens, positions)  # (B, T, C), (2, T, D)
        one = hidden is not None and tokens.shape[1] == 1
        layer = self._layer if one else _layer  # chunks differ in length: not compiled
        for weights, keys, values in zip(self.weights.layers, self.keys, self.values, strict=True):
            x = layer(x, weights, keys, values, positions, cos_sin, hidden)
        return x


def _layer(
    x: Tensor,
    weights: Layer,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    hidden: Tensor | None,
) -> Tensor:
    """Run one layer on new tokens x (B, T, C); keys and values (B, G, max_len, D) are extended."""
    B, G = keys.shape[:2]
    q, k, v = heads_of(x, weights, cos_sin)
    H, D = q.shape[1], q.shape[3]
    keys.index_copy_(2, positions, k)
    values.index_copy_(2, positions, v)
    if hidden is None:  # a prompt, which starts at position 0: the new tokens see one another
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=G < H)
    elif x.shape[1] > 1:  # new tokens after others
        heads = F.scaled_dot_product_attention(q, keys, values, hidden, enable_gqa=G < H)
    else:  # one new token, which sees all that is not hidden
        q = q.reshape(B, G, H // G, D)  # T = 1, so the R query heads of a KV head become its rows
        scores = torch.add(hidden, q @ keys.mT, alpha=D**-0.5)  # (B, G, R, max_len)
        heads = (scores.softmax(dim=-1) @ values).view(B, H, 1, D)
    return after_attention(x, heads, weights)
