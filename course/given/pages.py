"""Check the arguments of lesson 10: of a pool of blocks, and of the search for known blocks."""

from collections.abc import Sequence

import torch

from course.model.bounds import check_between
from course.model.config import GPTConfig

LARGEST = 2**31


def check_pool_sizes(config: GPTConfig, n_blocks: int, block_size: int, dtype: torch.dtype) -> None:
    """Check the sizes of a pool: at least one block, of at least one token, of a floating dtype."""
    check_between("n_blocks", n_blocks, 1, LARGEST)
    check_between("block_size", block_size, 1, config.max_seq_len)
    if not dtype.is_floating_point:
        raise ValueError(f"a pool holds floating-point numbers, got {dtype}")


def check_block_numbers(blocks: Sequence[int], n_blocks: int) -> None:
    """Check that these are whole numbers from 0 to n_blocks - 1."""
    for block in blocks:
        check_between("block", block, 0, n_blocks - 1)


def check_token_list(tokens: Sequence[int], block_size: int, at_least: int = 0) -> None:
    """Check the size of a block, and that tokens are a list of `at_least` or more whole numbers ≥ 0."""
    check_between("block_size", block_size, 1, LARGEST)
    if not isinstance(tokens, list):
        raise ValueError(f"tokens must be a list of whole numbers, got {type(tokens).__name__}")
    if len(tokens) < at_least:
        raise ValueError(f"tokens must be at least {at_least}, got {len(tokens)}")
    for token in tokens:
        check_between("token", token, 0, LARGEST)


def check_cache_limit(config: GPTConfig, max_len: int | None) -> int:
    """Return how many tokens a cache may hold, 1 … config.max_seq_len; None stands for the latter."""
    if max_len is None:
        return config.max_seq_len
    check_between("max_len", max_len, 1, config.max_seq_len)
    return max_len
