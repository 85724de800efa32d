"""Known wrong answers to lesson 10: what a block is found by, what is reused, what that saves."""

from __future__ import annotations

import hashlib
import itertools
import zlib

from autograder.lessons.paged_cache.museum import MUSEUM
from course.minigpt.paged_cache import block_keys
from course.minigpt.roofline import phase_cost

bug, patch = MUSEUM.section("block_keys", check="keys_say_the_whole_past")

KEY = "key = hashlib.sha256(key + repr(block).encode()).digest()"

patch(
    "hash_not_chained",
    "state",
    "keys of a block's own tokens, whatever came before",
    "The same words after another past get the same key, and the keys and values of the first.",
    ("hashlib.sha256(key + repr(block)", "hashlib.sha256(repr(block)"),
)
patch(
    "chains_one_block",
    "state",
    "keys that know the block before and nothing further back",
    "Each block is hashed with its neighbour.",
    (
        KEY,
        "key = hashlib.sha256(repr(tokens[max(0, end - 2 * block_size) : end]).encode()).digest()",
    ),
)
patch(
    "place_for_the_past",
    "state",
    "keys of a block's tokens and its number in the text",
    "Where a block stands is taken for what came before it.",
    (KEY, "key = hashlib.sha256(repr((end, block)).encode()).digest()"),
)
patch(
    "key_of_a_partial_block",
    "off by one",
    "a key for a block that is not full",
    "The rest at the end gets a key, too, and will hold other tokens soon.",
    ("range(block_size, len(tokens) + 1, block_size)",
     "range(block_size, len(tokens) + block_size, block_size)"),
)  # fmt: skip
patch(
    "last_full_block_has_no_key",
    "off by one",
    "a full block at the end that gets no key",
    "The range ends one too early where the last block is just full.",
    (
        "range(block_size, len(tokens) + 1, block_size)",
        "range(block_size, len(tokens), block_size)",
    ),
)
patch(
    "blind_to_order",
    "state",
    "keys that do not know the order of the tokens",
    "The block is sorted, or a set, before it is hashed.",
    ("repr(block)", "repr(sorted(block))"),
)
patch(
    "sum_of_tokens",
    "state",
    "keys of the sum of a block's tokens",
    "A sum is a checksum, and many blocks have it.",
    ("repr(block)", "repr(sum(block))"),
)
patch(
    "joins_digits",
    "form",
    "digits of tokens that are joined without a gap",
    "1, 23 and 12, 3 are both 123.",
    ("repr(block)", '"".join(map(str, block))'),
)
patch(
    "tokens_as_single_bytes",
    "form",
    "tokens of which only the lowest byte is hashed",
    "Token 7 and token 263 are one byte.",
    ("repr(block).encode()", "bytes(token % 256 for token in block)"),
)
patch(
    "tokens_as_two_bytes",
    "form",
    "tokens of which only the lowest two bytes are hashed",
    "uint16 is enough for small vocabularies.",
    ("repr(block)", "repr([token % 65_536 for token in block])"),
)
patch(
    "leaves_out_the_last_token",
    "off by one",
    "keys without the last token of each block",
    "The slice ends one too early.",
    ("tokens[end - block_size : end]", "tokens[end - block_size : end - 1]"),
)


@bug("state", "keys of two bytes, which many blocks share")
def hash_trusted_without_the_tokens(tokens, block_size):
    """A short checksum is trusted, and a collision hands out another text's block (openvino.genai,
    issue 3722)."""
    keys, past = [], 0
    for end in range(block_size, len(tokens) + 1, block_size):
        past = zlib.crc32(repr(tokens[end - block_size : end]).encode(), past) % 65_536
        keys.append(past.to_bytes(2, "big"))
    return keys


@bug("form", "whole numbers in the place of bytes")
def python_hashes(tokens, block_size):
    """hash() of a tuple is a number."""
    ends = range(block_size, len(tokens) + 1, block_size)
    return [hash(tuple(tokens[:end])) for end in ends]


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


bug, patch = MUSEUM.section("reusable_blocks", check="reuse_leaves_a_token")

LOOP = "for key in block_keys(tokens[:-1], block_size):"
STOP = """        if key not in known:
            break
        found.append(known[key])"""

patch(
    "nothing_left_to_feed",
    "off by one",
    "a prompt of which nothing is left to be fed",
    "All blocks of a known prompt are reused, and there are no logits to choose from (nano-vllm, "
    "issue 144).",
    (LOOP, "for key in block_keys(tokens, block_size):"),
)
patch(
    "any_known_block",
    "state",
    "every known block, also behind one that is missing",
    "The search goes on where it should stop, and the text has a hole.",
    (STOP, "        if key in known:\n            found.append(known[key])"),
)
patch(
    "first_block_may_be_missing",
    "state",
    "a beginning whose first block is not known",
    "Blocks before the first known one are passed over.",
    (STOP, "        if key in known:\n            found.append(known[key])\n"
           "        elif found:\n            break"),
)  # fmt: skip
patch(
    "always_a_block_left",
    "off by one",
    "a prompt of which always a whole block is left to be fed",
    "The last full block is never reused, also where tokens follow it.",
    (LOOP, "for key in block_keys(tokens, block_size)[:-1]:"),
)
patch(
    "two_tokens_left",
    "off by one",
    "a prompt of which two tokens are left to be fed",
    "One token more than is needed is kept back.",
    (LOOP, "for key in block_keys(tokens[:-2], block_size):"),
)
patch(
    "all_or_nothing",
    "state",
    "a prompt of which all blocks are known, or none is reused",
    "One unknown block, and nothing is taken.",
    (STOP, "        if key not in known:\n            return []\n        found.append(known[key])"),
)
patch(
    "keys_for_numbers",
    "form",
    "keys of blocks in the place of their numbers",
    "What was found is returned, not where it lies.",
    ("found.append(known[key])", "found.append(key)"),
)
patch(
    "places_for_numbers",
    "form",
    "places in the text in the place of block numbers",
    "0, 1, 2: right where the pool is new.",
    ("found.append(known[key])", "found.append(len(found))"),
)


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


bug, patch = MUSEUM.section("prefill_saved", check="saved_share_of_flops")

REST = "rest = phase_cost(config, n_prompt - n_cached, n_cached)"
SAVED = "return 1 - rest.flops / phase_cost(config, n_prompt, 0).flops"

patch(
    "forgets_the_past",
    "formula",
    "new tokens that do not look at the cached ones",
    "The rest is priced as a prompt of its own.",
    (REST, "rest = phase_cost(config, n_prompt - n_cached, 0)"),
)
patch(
    "cached_for_new",
    "formula",
    "the price of the cached tokens in the place of the new ones",
    "What is cached is priced as what is fed.",
    (REST, "rest = phase_cost(config, max(1, n_cached), n_prompt - n_cached)"),
)


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


patch(
    "what_is_left",
    "formula",
    "the share that is still to be paid",
    "The ratio is returned without taking it from 1.",
    ("return 1 - rest", "return rest"),
)
patch(
    "share_of_bytes",
    "formula",
    "the share of bytes in the place of FLOPs",
    "Weights are read all the same, so the saving looks small.",
    (SAVED, "return 1 - rest.bytes / phase_cost(config, n_prompt, 0).bytes"),
)
patch(
    "times_faster",
    "formula",
    "how many times fewer FLOPs, in the place of a share",
    "The whole is divided by the rest.",
    (SAVED, "return phase_cost(config, n_prompt, 0).flops / rest.flops"),
)
patch(
    "flops_in_all",
    "formula",
    "a number of FLOPs in the place of a share",
    "The difference is never divided by the whole.",
    (SAVED, "return phase_cost(config, n_prompt, 0).flops - rest.flops"),
)
patch(
    "in_per_cent",
    "formula",
    "per cent in the place of a share of 1",
    "The share is multiplied by 100.",
    ("return 1 - rest", "return 100 - 100 * rest"),
)
