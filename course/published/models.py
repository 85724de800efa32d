"""Sizes of some published Llama-family models, as in the `config.json` beside their weights.

Each has the architecture of `course.model`: RMSNorm, rotary positions, SwiGLU. (Qwen2.5 adds biases
to queries, keys and values, Qwen3 norms of queries and keys, less than 10⁻⁴ of the parameters; both are
left out here.) From these sizes follows the published number of parameters; a test holds that.
"""

from __future__ import annotations

import torch

from course.config import GPTConfig
from course.published.sizes import Size


def _size(name: str, *sizes: int, tied: bool = False) -> Size:
    """Name a 16-bit model of these sizes: V, L, C, H, G, f and the longest text."""
    *model, longest = sizes
    config = GPTConfig(*model, max_seq_len=longest, tie_embeddings=tied)
    return Size(name, config, torch.bfloat16)


PUBLISHED: dict[str, Size] = {
    size.name: size
    for size in (
        _size("Llama-2-7B", 32_000, 32, 4096, 32, 32, 11_008, 4096),
        _size("Llama-2-13B", 32_000, 40, 5120, 40, 40, 13_824, 4096),
        _size("Llama-2-70B", 32_000, 80, 8192, 64, 8, 28_672, 4096),
        _size("Llama-3-8B", 128_256, 32, 4096, 32, 8, 14_336, 8192),
        _size("Llama-3-70B", 128_256, 80, 8192, 64, 8, 28_672, 8192),
        _size("Mistral-7B", 32_000, 32, 4096, 32, 8, 14_336, 32_768),
        _size("Qwen2.5-0.5B", 151_936, 24, 896, 14, 2, 4864, 32_768, tied=True),
        _size("Qwen2.5-1.5B", 151_936, 28, 1536, 12, 2, 8960, 32_768, tied=True),
        _size("Qwen2.5-7B", 152_064, 28, 3584, 28, 4, 18_944, 32_768),
        _size("Qwen2.5-72B", 152_064, 80, 8192, 64, 8, 29_568, 32_768),
        _size("Qwen3-8B", 151_936, 36, 4096, 32, 8, 12_288, 32_768),
        _size("Llama-3.2-1B", 128_256, 16, 2048, 32, 8, 8192, 131_072, tied=True),
        _size("SmolLM2-135M", 49_152, 30, 576, 9, 3, 1536, 8192, tied=True),
    )
}
"""By name. `max_seq_len` is the length that the model was released for."""
