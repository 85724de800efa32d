"""Known wrong answers to lesson 10: what a block is found by, what is reused, what that saves."""

from __future__ import annotations

import hashlib
import itertools
import zlib

from autograder.lessons.paged_cache.museum import MUSEUM
from course.minigpt.paged_cache import block_keys
from course.minigpt.roofline import phase_cost

bug = MUSEUM.section("block_keys", check="keys_say_the_whole_past")


@bug("state", "keys of two bytes, which many blocks share")
def hash_trusted_without_the_tokens(tokens, block_size):
    """A short checksum is trusted, and a collision hands out another text's block (openvino.genai,
    issue 3722)."""
    keys, past = [], 0
    for end in range(block_size, len(tokens) + 1, block_size):
        past = zlib.crc32(repr(tokens[end - block_size : end]).encode(), past) % 65_536
        keys.append(past.to_bytes(2, "big"))
    return keys


@bug("state", "keys of four bytes, which two texts may share", kind="cheapest")
def a_checksum_of_four_bytes(tokens, block_size):
    """A checksum of all tokens so far: whoever looks for two texts with the same one finds them."""
    ends = range(block_size, len(tokens) + 1, block_size)
    return [zlib.crc32(repr(tokens[:end]).encode()).to_bytes(4, "big") for end in ends]


@bug("form", "whole numbers in the place of bytes")
def python_hashes(tokens, block_size):
    """hash() of a tuple is a number."""
    ends = range(block_size, len(tokens) + 1, block_size)
    return [hash(tuple(tokens[:end])) for end in ends]


@bug("state", "keys made of Python's own hash, for which two texts with one key can be computed")
def bytes_of_python_hashes(tokens, block_size):
    """hash() of a tuple is made for dicts, which compare the tuples as well: in vLLM somebody could have
    computed a prompt that gets another's cache (CVE-2025-25183)."""
    ends = range(block_size, len(tokens) + 1, block_size)
    return [hash(tuple(tokens[:end])).to_bytes(8, "big", signed=True) for end in ends]


@bug("state", "keys that differ from call to call")
def salted_anew(tokens, block_size):
    """Another salt at each call, so nothing is ever found again."""
    salt = next(CALLS).to_bytes(8, "little")
    ends = range(block_size, len(tokens) + 1, block_size)
    return [hashlib.sha256(salt + repr(tokens[:end]).encode()).digest() for end in ends]


CALLS = itertools.count()


@bug("state", "keys that a list of all earlier calls has a part in", kind="results")
def past_of_all_calls(tokens, block_size):
    """One hash object for the whole notebook: it goes on from text to text."""
    keys = []
    for end in range(block_size, len(tokens) + 1, block_size):
        PAST.update(repr(tokens[end - block_size : end]).encode())
        keys.append(PAST.digest())
    return keys


PAST = hashlib.sha256()


@bug("state", "a list of tokens that is used up", kind="arguments")
def eats_the_tokens(tokens, block_size):
    """Blocks are cut off the list's front until it is too short."""
    keys, key = [], b""
    while len(tokens) >= block_size:
        block, tokens[:] = tokens[:block_size], tokens[block_size:]
        key = hashlib.sha256(key + repr(block).encode()).digest()
        keys.append(key)
    return keys


bug = MUSEUM.section("reusable_blocks", check="reuse_leaves_a_token")


@bug("form", "blocks in the order in which they became known")
def in_the_order_of_the_table(tokens, block_size, known):
    """The known blocks are looked through, and those of the text are taken."""
    keys = set(block_keys(tokens[:-1], block_size))
    return sorted(number for key, number in known.items() if key in keys)


@bug("state", "known blocks that are taken out when they are found", kind="arguments")
def takes_them_out(tokens, block_size, known):
    """known.pop: the next user with the same prompt finds nothing."""
    found = []
    for key in block_keys(tokens[:-1], block_size):
        if key not in known:
            break
        found.append(known.pop(key))
    return found


bug = MUSEUM.section("prefill_saved", check="saved_share_of_flops")


@bug("formula", "the share of tokens in the place of FLOPs")
def share_of_tokens(config, n_prompt, n_cached):
    """As if each token cost the same."""
    return n_cached / n_prompt


@bug("formula", "the share of the cached tokens' own prefill")
def share_of_a_prefill(config, n_prompt, n_cached):
    """The cached tokens alone would cost so much; but their logits are computed for nobody."""
    if n_cached == 0:
        return 0.0
    return phase_cost(config, n_cached, 0).flops / phase_cost(config, n_prompt, 0).flops
