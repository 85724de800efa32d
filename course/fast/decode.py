"""A decode step that waits for memory and for nothing else, in one page.

    decoder = FastDecoder(model, batch=1, max_len=1024)
    text = decoder.generate(prompt, n_new=100)      # the tokens of generate_cached, sooner

`forward_cached` launches hundreds of small operations a token. A GPU could do them all while the
weights arrive from its memory; it waits for Python instead, which needs a few millionths of a second
to launch each. Three changes end this waiting:

1. **Fixed shapes.** The cache has room for max_len tokens from the start, attention always reads
   all of it, and what is not written yet gets the weight 0. The position of a token is a tensor and
   not a Python number. So every step is the same list of operations on the same memory.
2. **Fewer operations.** Matrices that read the same numbers are laid side by side and multiplied
   once: wq, wk, wv, and the two halves of SwiGLU. What an RMSNorm needs beside its input is computed
   once. `compile=True` lets `torch.compile` join more.
3. **A CUDA graph.** On a GPU the list is recorded once and then launched as a whole.

On a CPU there is no queue and so nothing to record; there 1 and 2 remain, and a layout in which one
row times a matrix reads memory straight ahead. The idea is that of gpt-fast (PyTorch, 2023).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from course.bounds import check_between
from course.cache import CacheFull, check_cache_sizes
from course.layers import Block, RMSNorm
from course.model import MiniGPT


class Norm(NamedTuple):
    """An RMSNorm's weight, and what need not be computed again at every step."""

    weight: Tensor  # (C,)
    eps: float
    scaled: Tensor  # (C,): √C · weight
    least: Tensor  # (): √(C · eps)


class Weights(NamedTuple):
    """One layer's weights, as `_layer` reads them; R = H // G query heads share a KV head."""

    attn_norm: Norm
    qkv: Tensor  # ((H + 2 G) * D, C)
    out: Tensor  # (C, H * D)
    mlp_norm: Norm
    gate_up: Tensor  # (2 * d_ff, C)
    down: Tensor  # (C, d_ff)


class FastDecoder:
    """Greedy decoding of a fixed number of rows with a cache of a fixed size.

    Args:
        model: its weights as they are now, partly copied; the model stays as it is.
        batch: B, rows decoded together.
        max_len: tokens that the cache holds. Every step reads all these places, so ask for no more
            than you need.
        compile: let `torch.compile` join operations, which takes a minute and needs a C++ compiler
            (on a GPU: Triton).

    Raises:
        ValueError: sizes that cannot be used.
    """

    def __init__(self, model: MiniGPT, batch: int, max_len: int, compile: bool = False) -> None:
        self.config = model.config
        self.embed, self.norm = model.embed.weight, _norm_of(model.norm)
        self.head = _laid_out(model.lm_head.weight)
        self.weights = [_weights_of(block) for block in model.blocks]
        table = model.blocks[0].attn.rotary_table
        self.turns = table.to(self.embed.dtype)  # (2, max_seq_len, D): cosines, sines
        self._layer = torch.compile(_layer, dynamic=False) if compile else _layer
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
        """Allocate all that a step reads and writes besides the weights, at addresses that stay."""
        check_cache_sizes(self.config, batch, max_len)
        self.batch, self.max_len, self.length = batch, max_len, 0
        L, G, D = self.config.n_layers, self.config.n_kv_heads, self.config.head_dim
        device = self.embed.device
        self.keys = torch.zeros(L, batch, G, max_len, D, dtype=self.embed.dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self.places = torch.arange(max_len, device=device)
        self.token = torch.zeros(batch, 1, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self._replay = self._decode
        if device.type == "cuda":
            with torch.cuda.device(device):
                self._replay = _record(self._decode)

    def __len__(self) -> int:
        """Tokens held."""
        return self.length

    def reset(self) -> None:
        """Forget every token."""
        self.length = 0

    def prefill(self, prompt: Tensor) -> Tensor:
        """Forget what was there and read a prompt (B, P) int64: logits of what follows, (B, V).

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

    def step(self, tokens: Tensor) -> Tensor:
        """Read one token more of each row, (B,) int64: logits of what follows, (B, V).

        Raises:
            CacheFull: no place is left; nothing was changed.
        """
        if self.length == self.max_len:
            raise CacheFull(f"all {self.max_len} places are taken")
        self.token.copy_(tokens.view(self.batch, 1))
        self.position.fill_(self.length)
        self.length += 1
        return self._replay().clone()  # the next replay writes to the same memory

    def generate(self, prompt: Tensor, n_new: int) -> Tensor:
        """Continue a prompt (B, P) greedily: (B, P + n_new) int64.

        Raises:
            ValueError: a prompt that the model cannot take, or no n_new of at least 1 that fits.
        """
        check_between("n_new", n_new, 1, self.max_len - prompt.shape[-1] + 1)
        with torch.inference_mode():  # keeps no books for gradients
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
        x, turns = F.embedding(tokens, self.embed), self.turns[:, positions]  # (B, T, C), (2, T, D)
        layer = _layer if hidden is None else self._layer  # prompts differ in length: not compiled
        for weights, keys, values in zip(self.weights, self.keys, self.values, strict=True):
            x = layer(x, weights, keys, values, positions, turns, hidden)
        return F.linear(_normed(x[:, -1], self.norm), self.head)


def _layer(
    x: Tensor,
    w: Weights,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    turns: Tensor,
    hidden: Tensor | None,
) -> Tensor:
    """One layer for new tokens x (B, T, C); keys and values (B, G, max_len, D) are extended."""
    B, T, C = x.shape
    G, D = keys.shape[1], keys.shape[3]
    H = C // D
    heads = F.linear(_normed(x, w.attn_norm), w.qkv)  # (B, T, (H + 2 G) * D)
    heads = heads.view(B, T, H + 2 * G, D).transpose(1, 2)  # (B, H + 2 G, T, D)
    turned, v = heads[:, : H + G], heads[:, H + G :]  # queries and keys are turned alike
    turned = turned * turns[0] + turned.roll(D // 2, dims=-1) * turns[1]
    q, k = turned[:, :H], turned[:, H:]
    keys.index_copy_(2, positions, k)
    values.index_copy_(2, positions, v)
    if hidden is None:  # a prompt, which starts at position 0: the new tokens see one another
        read = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=G < H)
    else:  # one new token, which sees all that is not hidden
        q = q.reshape(B, G, H // G, D)  # T = 1, so the R query heads of a KV head become its rows
        scores = torch.add(hidden, q @ keys.mT, alpha=D**-0.5)  # (B, G, R, max_len)
        read = (scores.softmax(dim=-1) @ values).view(B, H, 1, D)
    read = read.transpose(1, 2).reshape(B, T, C)  # (B, T, H * D)
    x = x + F.linear(read, w.out)
    gate, up = F.linear(_normed(x, w.mlp_norm), w.gate_up).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, w.down)


def _normed(x: Tensor, norm: Norm) -> Tensor:
    """weight · x / √(mean(x²) + eps). On a CPU PyTorch makes a dozen operations of it; these are four,
    for the same √C · weight · x / √(|x|² + C · eps)."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return F.rms_norm(x, norm.weight.shape, norm.weight, norm.eps)
    return (
        x / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), norm.least) * norm.scaled
    )


def _norm_of(norm: RMSNorm) -> Norm:
    C = len(norm.weight)
    least = torch.tensor(
        math.sqrt(C * norm.eps), dtype=norm.weight.dtype, device=norm.weight.device
    )
    return Norm(norm.weight, norm.eps, math.sqrt(C) * norm.weight, least)


def _weights_of(block: Block) -> Weights:
    attn, mlp = block.attn, block.mlp
    return Weights(
        attn_norm=_norm_of(block.attn_norm),
        qkv=_laid_out(torch.cat([attn.wq.weight, attn.wk.weight, attn.wv.weight])),
        out=_laid_out(attn.wo.weight),
        mlp_norm=_norm_of(block.mlp_norm),
        gate_up=_laid_out(torch.cat([mlp.gate.weight, mlp.up.weight])),
        down=_laid_out(mlp.down.weight),
    )


def _laid_out(weight: Tensor) -> Tensor:
    """Lay out a matrix (out, in) for a CPU with its columns one after the other in memory: one row
    times it then adds up whole columns, a quarter faster than many short dot products."""
    return weight.t().contiguous().t() if weight.device.type == "cpu" else weight


def _record(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Record the operations of a step in a CUDA graph: a call that replays them all at once.

    They run a few times first, on a stream of their own, so that what libraries set up at their
    first use (and what is compiled) stays out of the recording.
    """
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = step()

    def replay() -> Tensor:
        graph.replay()
        return logits

    return replay
