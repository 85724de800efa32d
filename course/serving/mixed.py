"""Replace `forward_cached` where requests share a pass: pieces of many of them go through at once.

    slots = Slots(model, max_running=8, max_len=256)
    logits = forward_mixed(model, [(a, 1), (b, 1), (c, 60)], slots)      # (3, V)

All tokens of all pieces go through the matrices in one row, so weights are read once; attention looks at
each request's keys and values alone. That is selective batching, as in Orca (Yu et al. 2022).
"""

from __future__ import annotations

from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor

from course.minigpt.kv_cache import causal_mask
from course.minigpt.mini_gpt import merge_heads, split_heads
from course.model import MiniGPT
from course.model.bounds import check_between
from course.model.cache import CacheFull
from course.serving.request import Piece, Request


class Slots:
    """Storage for the keys and values of up to `max_running` requests, `max_len` tokens each.

    Attributes:
        keys, values: (L, max_running, G, max_len, D) each.
        of: the slot of each request that has one, by its id.
    """

    def __init__(self, model: MiniGPT, max_running: int, max_len: int) -> None:
        config, weight = model.config, model.embed.weight
        check_between("max_running", max_running, 1, 2**31)
        check_between("max_len", max_len, 1, config.max_seq_len)
        self.max_len = max_len
        shape = (config.n_layers, max_running, config.n_kv_heads, max_len, config.head_dim)
        self.keys, self.values = torch.zeros((2, *shape), dtype=weight.dtype, device=weight.device)
        self.of: dict[int, int] = {}
        self._requests: dict[int, Request] = {}

    def check(self, request: Request) -> None:
        """Check that a slot can hold the request; a ValueError says what it needs."""
        needed = len(request.prompt) + request.n_new - 1  # the last token is never fed
        if needed > self.max_len:
            raise ValueError(
                f"request {request.id} needs {needed} places, a slot has {self.max_len}"
            )

    def place(self, request: Request) -> int:
        """Return the request's slot; a new request gets a free one.

        Raises:
            CacheFull: no slot is free.
        """
        for number in [id for id, other in self._requests.items() if other.done]:
            del self._requests[number], self.of[number]
        if request.id not in self.of:
            self.check(request)
            free = set(range(self.keys.shape[1])) - set(self.of.values())
            if not free:
                raise CacheFull(f"all {self.keys.shape[1]} slots are taken")
            self.of[request.id] = min(free)
            self._requests[request.id] = request
        return self.of[request.id]


@torch.no_grad()
def forward_mixed(model: MiniGPT, pieces: list[Piece], slots: Slots) -> Tensor:
    """Replace one `forward_cached` per request by one pass: logits after the last token of each piece.

    Use it where a pass mixes chunks of prompts and single tokens, as lesson 11's schedules do. Where each
    conversation gets one token and lives in pages, `course.serving.pages.DecodeTogether` is faster.

    Args:
        pieces: requests, and how many of their next tokens are fed. The requests are not changed; the
            keys and values of a token that is fed twice are overwritten.
        slots: hold the keys and values of all earlier tokens.

    Returns:
        (n, V), a row for each piece, in their order.

    Raises:
        ValueError: there are no pieces, or a request does not fit into a slot.
        CacheFull: no slot is free.
    """
    if not pieces:
        raise ValueError("pieces is empty: nothing to feed")
    places = [slots.place(request) for request, _ in pieces]
    texts = [[*request.prompt, *request.out] for request, _ in pieces]
    spans = [(request.fed, request.fed + n) for request, n in pieces]
    tokens = [text[first:end] for text, (first, end) in zip(texts, spans, strict=True)]
    device, sizes = model.embed.weight.device, [len(piece) for piece in tokens]
    positions = torch.cat([torch.arange(*span) for span in spans]).to(device)  # (N,)
    x = model.embed(torch.tensor([list(chain(*tokens))], device=device))  # (1, N, C)
    for layer, block in enumerate(model.blocks):
        attn, rows = block.attn, block.attn_norm(x)
        q = attn.rotate(split_heads(attn.wq(rows), attn.n_heads), positions)  # (1, H, N, D)
        k = attn.rotate(split_heads(attn.wk(rows), attn.n_kv_heads), positions)  # (1, G, N, D)
        v = split_heads(attn.wv(rows), attn.n_kv_heads)
        heads = []
        parts = (part.split(sizes, dim=2) for part in (q, k, v))
        for place, (first, end), *qkv in zip(places, spans, *parts, strict=True):
            heads.append(_attend(slots, layer, place, first, end, *qkv))
        x = x + attn.wo(merge_heads(torch.cat(heads, dim=2)))
        x = x + block.mlp(block.mlp_norm(x))
    last = torch.tensor(sizes, device=device).cumsum(0) - 1  # (n,)
    return model.lm_head(model.norm(x[0, last]))


def _attend(
    slots: Slots, layer: int, place: int, first: int, end: int, q: Tensor, k: Tensor, v: Tensor
) -> Tensor:
    """Store the keys and values of one piece; attend to those of its request."""
    keys, values = slots.keys[layer, place], slots.values[layer, place]  # (G, max_len, D)
    keys[:, first:end], values[:, first:end] = k[0], v[0]
    mask = None if end - first == 1 else causal_mask(end - first, end, device=q.device)
    return F.scaled_dot_product_attention(
        q, keys[None, :, :end], values[None, :, :end], attn_mask=mask, enable_gqa=True
    )
