"""The widget of lesson 07: keys of a real text, rounded along one axis or along the other."""

from __future__ import annotations

import torch
from ipywidgets import IntSlider, SelectionSlider

from course.minigpt.mini_gpt import split_heads
from course.model import MiniGPT
from course.plots.quantized_cache import Dequantize, Quantize, draw_shared_steps
from course.plots.style import Picture
from course.widgets.playground import playground
from course.world.outliers import with_outliers
from course.world.tokenizer import encode

TEXT = (
    "The cat sat on the mat. Kenji Snow came in from the rain with a black lamp. "
    "He smiled and put the black lamp in the shed."
)


def share_a_step(model: MiniGPT, quantize: Quantize, dequantize: Dequantize) -> None:
    """Show the keys of one head, and what quantizing them does, with sliders for bits, for the size
    of two outlier channels, and for the layer.

    Args:
        quantize, dequantize: as built in the lesson.
    """

    def draw(bits: int, factor: int, layer: int) -> Picture:
        x = keys_of(with_outliers(model, 1, factor), layer)  # (T, D)
        by_channel, by_token = (dequantize(quantize(x, bits, dim)) for dim in (0, 1))
        return draw_shared_steps(x.numpy(), by_channel.numpy(), by_token.numpy(), bits, factor)

    playground(
        draw,
        bits=SelectionSlider(options=[8, 4, 2], value=4, description="bits"),
        factor=IntSlider(20, 1, 40, description="outlier"),
        layer=IntSlider(1, 0, model.config.n_layers - 1, description="layer"),
    )


@torch.no_grad()
def keys_of(model: MiniGPT, layer: int) -> torch.Tensor:
    """Compute the rotated keys of KV head 0 of a layer, for the text, (T, D)."""
    tokens = encode(TEXT)
    positions = torch.arange(tokens.shape[1])
    hidden = model.embed(tokens)  # (B, T, C)
    for block in model.blocks[:layer]:
        hidden = hidden + model.attention_layer(block.attn, block.attn_norm(hidden), positions)
        hidden = hidden + block.mlp(block.mlp_norm(hidden))
    attn, normed = model.blocks[layer].attn, model.blocks[layer].attn_norm(hidden)
    return attn.rotate(split_heads(attn.wk(normed), attn.n_kv_heads), positions)[0, 0]
