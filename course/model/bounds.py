"""Check arguments, and raise a ValueError that names the value: sizes, prompts, heads, masks."""

from collections.abc import Sequence

import torch
from torch import Tensor

from course.model.config import GPTConfig


def check_between(name: str, value: int, low: int, high: int) -> None:
    """Check that a value is a whole number from low to high."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, got {value!r}")


def check_prompts(prompts: Sequence[Tensor]) -> None:
    """Check that there is at least one prompt, and that each is (P,) int64 with P of at least 1."""
    if len(prompts) == 0:
        raise ValueError("prompts is empty; at least one prompt is needed")
    for number, prompt in enumerate(prompts):
        is_tokens = isinstance(prompt, Tensor) and prompt.dtype == torch.int64
        if not is_tokens or prompt.dim() != 1 or len(prompt) == 0:
            kind = tuple(prompt.shape) if is_tokens else getattr(prompt, "dtype", type(prompt))
            raise ValueError(
                f"prompts[{number}] must be int64 tokens (P,) with P of at least 1, got {kind}"
            )


def check_heads(x: Tensor) -> None:
    """Check that x is (B, heads, tokens, D), and that none of these is 0."""
    if x.dim() != 4 or 0 in x.shape:
        raise ValueError(f"heads must be (B, G, S, D), none of them 0; got {tuple(x.shape)}")


def check_grouped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
    """Check that queries can attend to keys and values in groups, under a mask.

    Args:
        q: (B, H, T, D).
        k, v: (B, G, S, D), where G divides H.
        mask: bool, (B, H, T, S) or what broadcasts to it; or None.
    """
    for heads in (q, k, v):
        check_heads(heads)
    B, H, T, D = q.shape
    G, S = k.shape[1], k.shape[2]
    if tuple(k.shape) != (B, G, S, D) or k.shape != v.shape:
        raise ValueError(
            f"queries {tuple(q.shape)} need keys and values of one shape ({B}, G, S, {D}); got "
            f"{tuple(k.shape)} and {tuple(v.shape)}"
        )
    if H % G:
        raise ValueError(f"{H} query heads cannot share {G} KV heads equally")
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise ValueError(f"the mask must be bool, True where a token may look; got {mask.dtype}")
    shape = (B, H, T, S)
    sizes = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.dim() > 4 or any(size not in (1, full) for size, full in sizes):
        raise ValueError(f"a mask {tuple(mask.shape)} does not broadcast to (B, H, T, S) = {shape}")


def check_pooling(config: GPTConfig, n_kv_heads: int) -> None:
    """Check that the model's KV heads can be pooled into `n_kv_heads` groups of one size."""
    check_between("n_kv_heads", n_kv_heads, 1, config.n_kv_heads)
    if config.n_kv_heads % n_kv_heads:
        raise ValueError(
            f"{config.n_kv_heads} KV heads cannot be cut into {n_kv_heads} groups of one size"
        )
