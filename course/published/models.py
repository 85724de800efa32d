"""Sizes of some published Llama-family models, as in the `config.json` beside their weights.

Each has the architecture of `course.model`: RMSNorm, rotary positions, SwiGLU. (Qwen2.5 adds biases
to queries, keys and values, Qwen3 norms of queries and keys, less than 10⁻⁴ of the parameters; both are
left out here.) From these sizes follows the published number of parameters; a test holds that.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from course.model.config import GPTConfig
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


@dataclass(frozen=True)
class Windowed:
    """A model of which some layers have a window. It is of another architecture than the course's: only
    L, G and D count, of which its cache is made (d_model is H · D here, which is not its own).

    Attributes:
        window: tokens that a layer with a window sees.
        n_full_layers: layers that keep every token.
    """

    config: GPTConfig
    window: int
    n_full_layers: int


WINDOWED: dict[str, Windowed] = {
    # Every other layer of 24; its sinks are learned numbers beside the scores, not tokens.
    "gpt-oss-20b": Windowed(
        GPTConfig(201_088, 24, 64 * 64, 64, 8, 2880, max_seq_len=131_072), 128, 12
    ),
    # Of 62 layers every sixth is full: 10. (Sizes as in the script by which its weights were converted
    # for `transformers`, src/transformers/models/gemma3/convert_gemma3_weights.py.)
    "Gemma-3-27B": Windowed(
        GPTConfig(262_144, 62, 32 * 128, 32, 16, 21_504, max_seq_len=131_072), 1024, 10
    ),
}
"""By name."""


@dataclass(frozen=True)
class Latent:
    """A model that keeps of each token and layer one row, from which all its heads make their keys and
    values.

    Attributes:
        n_layers: how many layers keep one.
        row: numbers in it.
    """

    n_layers: int
    row: int

    @property
    def bytes_per_token(self) -> int:
        """The bytes of the cache for one token, with 16 bits per number."""
        return self.n_layers * self.row * 2


LATENT: dict[str, Latent] = {
    # 512 numbers that all heads share, and a key of 64 that carries the position: `kv_lora_rank` and
    # `qk_rope_head_dim` of the configuration in `transformers`.
    "DeepSeek-V3": Latent(61, 512 + 64),
}
"""By name."""
