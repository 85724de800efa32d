"""The truth of the visible bills: a model of the drawn sizes is run as shapes, and weighed."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from course.checks.roofline.passes import Bill, Call, Sizes
from course.config import GPTConfig
from course.layers import Attention
from course.model import MiniGPT


def projections_only(attn: Attention, x: Tensor, _: Tensor) -> Tensor:
    """Apply the four matrices of an attention layer, with no attention between them."""
    attn.wk(x)
    attn.wv(x)
    return attn.wo(attn.wq(x))


def weigh(config: Sizes, call: Call) -> Bill:
    """Count what a forward pass costs on a model of these sizes.

    It runs on torch's "meta" device, which knows shapes and no numbers; pairs of attention are
    counted one by one, and the cache is made, as shapes.
    """
    return dict(_weigh(GPTConfig(**config), call))


@functools.lru_cache(maxsize=512)  # five checks ask for the same models
def _weigh(sizes: GPTConfig, call: Call) -> Bill:
    size, moved = call.bytes_per_element, 0

    def weigh_rows(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal moved
        moved += inputs[0].numel() + output.numel()

    with torch.device("meta"):
        model = MiniGPT(sizes, attention_layer=projections_only)
        x = model.embed(torch.zeros(call.batch, call.n_new, dtype=torch.int64))  # (B, T, C)
        one_token = torch.empty(2, sizes.n_layers, call.batch, sizes.n_kv_heads, sizes.head_dim)
    matrices = [module for module in model.modules() if isinstance(module, nn.Linear)]
    for matrix in matrices:
        matrix.register_forward_hook(weigh_rows)
    with FlopCounterMode(display=False) as counter:
        for block in model.blocks:
            x = x + model.attention_layer(block.attn, block.attn_norm(x), None)
            x = x + block.mlp(block.mlp_norm(x))
        model.lm_head(model.norm(x[:, -1:]))  # (B, 1, V)
    pairs = sum(call.n_past + token + 1 for token in range(call.n_new))
    heads = call.batch * sizes.n_layers * sizes.n_heads
    one_pair = 2 * 2 * sizes.head_dim  # a score, and a share of a value
    return {
        "matrix_flops": counter.get_total_flops(),
        "attention_flops": heads * pairs * one_pair,
        "weight_bytes": size * sum(matrix.weight.numel() for matrix in matrices),
        "kv_read_bytes": size * one_token.numel() * (call.n_past + call.n_new),
        "kv_written_bytes": size * one_token.numel() * call.n_new,
        "activation_bytes": size * moved,
    }
