"""Known wrong answers to lesson 13."""

from __future__ import annotations

import torch

from autograder.lessons.exhibits import Museum
from course.minigpt.latent_attention import LatentKVCache

MUSEUM = Museum("latent_attention")

# --- bytes ------------------------------------------------------------------------------------------

PRODUCT = "n_layers * (rank + d_rope) * n_tokens * batch * bytes_per_element"
bug, patch = MUSEUM.section("latent_cache_bytes", check="bytes_match_the_rows")
patch(
    "bytes_of_keys_and_values",
    "formula",
    "bytes of two rows, one for keys and one for values",
    "The 2 of lesson 03's formula, out of habit: a row is read twice and stored once.",
    (PRODUCT, f"2 * {PRODUCT}"),
)
patch(
    "bytes_times_heads",
    "formula",
    "bytes of rows for each of several heads",
    "A row for each head, 4 of them taken for granted: all heads share one.",
    (PRODUCT, f"4 * {PRODUCT}"),
)
patch(
    "bytes_without_the_rotated_key",
    "formula",
    "bytes of latents without the rotated keys",
    "A bonus chapter bills latent_dim and forgets the numbers that are rotated.",
    ("(rank + d_rope)", "rank"),
)
patch(
    "bytes_of_a_rotated_key_for_every_head",
    "formula",
    "bytes of rows in which the rotated part stands twice",
    "The rotated key is counted as a key and as a value.",
    ("(rank + d_rope)", "(rank + 2 * d_rope)"),
)
patch(
    "bytes_of_one_layer",
    "formula",
    "bytes of a single layer",
    "The layers are forgotten.",
    ("n_layers * (rank", "(rank"),
)
patch(
    "bytes_of_one_row",
    "formula",
    "bytes of a single text",
    "The batch is forgotten.",
    ("n_tokens * batch", "n_tokens"),
    kind="batch",
)
patch(
    "bytes_in_fp16_always",
    "formula",
    "bytes in which every number has two, whatever was asked",
    "bytes_per_element is not used.",
    ("* bytes_per_element", "* 2"),
    kind="dtype",
)
patch(
    "bytes_in_fp32_by_default",
    "arguments",
    "bytes of float32 where no width was asked for",
    "The default of the signature was changed to what the mini-GPT stores.",
    ("bytes_per_element: int = 2", "bytes_per_element: int = 4"),
)
patch(
    "bytes_as_a_float",
    "form",
    "bytes as a float",
    "A division on the way: bytes are whole numbers.",
    (PRODUCT, f"{PRODUCT} / 1"),
)
patch(
    "bytes_are_not_returned",
    "form",
    "bytes that are computed and not returned",
    "The product gets a name, and the line that returns it is missing.",
    (f"return {PRODUCT}", f"n_bytes = {PRODUCT}"),
)

bug, patch = MUSEUM.section("LatentKVCache", check="bytes_match_the_rows")


@bug("cost", "a cache that stores more beside its rows", kind="cost")
class StoresKeysAndValuesBeside(LatentKVCache):
    """Room for the keys and values of all heads as well, to save time: the bytes are back."""

    def __init__(self, config, batch, max_len, rank, d_rope, dtype=torch.float32, device="cpu"):
        super().__init__(config, batch, max_len, rank, d_rope, dtype, device)
        shape = (2, config.n_layers, batch, config.n_heads, max_len, config.head_dim)
        self.keys, self.values = torch.zeros(shape, dtype=dtype, device=device)


patch(
    "a_rotated_key_for_every_head",
    "head order",
    "a cache in which the rotated key stands once for every head",
    "The shared key is repeated for the heads before it is stored.",
    ("self.rows = torch", "self.n_heads = config.n_heads\n        self.rows = torch"),
    (
        "shape = (config.n_layers, batch, max_len, rank + d_rope)",
        "shape = (config.n_layers, batch, max_len, rank + config.n_heads * d_rope)",
    ),
    (
        "self.rank :] = k_rope[:, 0]",
        "self.rank :] = k_rope[:, 0].repeat(1, 1, self.n_heads)",
    ),
    (
        "return self.rows[layer, :, :end]",
        "return self.rows[layer, :, :end, : self.rank + self.d_rope]",
    ),
)
patch(
    "counts_what_is_filled",
    "formula",
    "a cache that counts the bytes of the tokens held, not of its storage",
    "An empty cache says 0, and has taken its memory long ago.",
    ("return self.rows.nbytes", "return self.rows[:, :, : self.length].nbytes"),
)
patch(
    "counts_numbers",
    "formula",
    "a cache that counts numbers and not their bytes",
    "numel() without element_size().",
    ("self.rows.nbytes", "self.rows.numel()"),
)
patch(
    "count_is_not_returned",
    "form",
    "a cache that computes its bytes and does not return them",
    "nbytes() without a return: the caller gets None.",
    ("return self.rows.nbytes", "self.rows.nbytes"),
)
patch(
    "keeps_the_last_block_too",
    "state",
    "a cache that also holds on to what it was given last",
    "It was copied into the storage; kept beside it, it takes memory of its own.",
    (
        "end = self.length + c.shape[1]",
        "self.last = c, k_rope\n        end = self.length + c.shape[1]",
    ),
)

# --- the cache --------------------------------------------------------------------------------------

LATENT = "self.rows[layer, :, self.length : end, : self.rank] = c"
KEY = "self.rows[layer, :, self.length : end, self.rank :] = k_rope[:, 0]"
bug, patch = MUSEUM.section("LatentKVCache", check="rows_come_back")
patch(
    "rotated_key_first",
    "wiring",
    "rows in which the rotated key stands first",
    "Written the other way round than it is read: [key | latent].",
    (LATENT, "self.rows[layer, :, self.length : end, self.d_rope :] = c"),
    (KEY, "self.rows[layer, :, self.length : end, : self.d_rope] = k_rope[:, 0]"),
)
patch(
    "layers_share_rows",
    "writes",
    "a cache in which all layers write into the same rows",
    "The layer's index is forgotten, and each layer overwrites the one before.",
    (LATENT, LATENT.replace("layer", "0")),
    (KEY, KEY.replace("layer", "0")),
    ("return self.rows[layer,", "return self.rows[0,"),
)
patch(
    "length_moves_with_layers",
    "state",
    "a cache that counts tokens at every append, so once a layer",
    "append moves the length, and three layers make three tokens of one.",
    (
        "return self.rows[layer, :, :end]",
        "self.length = min(end, self.max_len)\n        return self.rows[layer, :, :end]",
    ),
)
patch(
    "advances_by_one",
    "state",
    "an advance by one token, however many there were",
    "Right for every step after the prompt.",
    ("self.length += n", "self.length += 1"),
)
patch(
    "latents_alone",
    "writes",
    "a cache that never stores the rotated keys",
    "The second assignment is missing, and the rotated part of each row stays 0.",
    (KEY, "pass"),
)
patch(
    "returns_only_the_old",
    "writes",
    "a cache that returns what was held before, without what was just stored",
    "The slice ends at the length, which advance moves later.",
    ("self.rows[layer, :, :end]", "self.rows[layer, :, : self.length]"),
)
patch(
    "returns_the_new_alone",
    "writes",
    "a cache that returns the new rows and not those before",
    "What was just written comes back, and the past stays in the storage.",
    ("return self.rows[layer, :, :end]", "return self.rows[layer, :, self.length : end]"),
)
patch(
    "returns_all_places",
    "writes",
    "a cache that returns its whole storage, empty places included",
    "The slice is forgotten.",
    ("return self.rows[layer, :, :end]", "return self.rows[layer]"),
)
patch(
    "writes_at_the_start",
    "writes",
    "a cache that writes every block to its first places",
    "The places of the new tokens are counted from 0.",
    (LATENT, "self.rows[layer, :, : c.shape[1], : self.rank] = c"),
    (KEY, "self.rows[layer, :, : c.shape[1], self.rank :] = k_rope[:, 0]"),
)
patch(
    "rows_with_an_axis_of_heads",
    "form",
    "rows with an axis of one head",
    "(B, 1, S, rank + R), as the keys of lesson 06 with G = 1.",
    ("return self.rows[layer, :, :end]", "return self.rows[layer, :, None, :end]"),
)
patch(
    "drops_a_batch_of_one",
    "form",
    "rows that lose the batch's axis where there is one text",
    "squeeze() in the return.",
    ("return self.rows[layer, :, :end]", "return self.rows[layer, :, :end].squeeze(0)"),
    kind="batch",
)
patch(
    "returns_copies",
    "cost",
    "an append that copies all older rows",
    "clone() in the return: every step copies the whole past.",
    ("return self.rows[layer, :, :end]", "return self.rows[layer, :, :end].clone()"),
    kind="cost",
)
patch(
    "parts_joined_at_every_step",
    "cost",
    "an append that joins latents and keys anew, all the older ones too",
    "Latents and keys lie apart, and cat makes the rows at every step.",
    (
        "return self.rows[layer, :, :end]",
        "c, k = self.rows[layer, :, :end].split([self.rank, self.d_rope], dim=-1)\n"
        "        return torch.cat([c, k], dim=-1)",
    ),
    kind="cost",
)
patch(
    "scales_what_it_was_given",
    "state",
    "a cache that changes the latents it was given",
    "An operation with an underscore at its end changes the caller's tensor as well.",
    ("end = self.length + c.shape[1]", "end = self.length + c.mul_(0.5).shape[1]"),
    kind="arguments",
)
patch(
    "always_float32",
    "form",
    "a cache that stores float32 whatever was asked for",
    "The dtype is not passed on to the storage.",
    ("torch.zeros(shape, dtype=dtype, device=device)", "torch.zeros(shape, device=device)"),
    kind="dtype",
)
patch(
    "ends_at_1024",
    "capacity",
    "a cache with a limit of its own beside max_len",
    "A number from a small experiment stays in the code.",
    ("if end > self.max_len", "if end > min(self.max_len, 1024)"),
    kind="sizes",
)


@bug("state", "caches that write into one and the same storage", kind="instances")
class SharedStorage(LatentKVCache):
    """The storage is made once for the class, so all caches of one size write into it."""

    _storage: dict = {}  # noqa: RUF012 (the mistake)

    def __init__(self, config, batch, max_len, rank, d_rope, dtype=torch.float32, device="cpu"):
        super().__init__(config, batch, max_len, rank, d_rope, dtype, device)
        self.rows = self._storage.setdefault((config, batch, max_len, rank, dtype), self.rows)


@bug("writes", "a cache that keeps the caller's tensors in place of copies", kind="results")
class KeepsWhatItWasGiven(LatentKVCache):
    """A list of the blocks, joined when asked for; their memory is the caller's, who uses it again."""

    def append(self, layer, c, k_rope):
        super().append(layer, c, k_rope)
        blocks = self.__dict__.setdefault("blocks", {})
        if len(self) == 0:
            blocks[layer] = []
        blocks[layer].append((c, k_rope))
        rows = [torch.cat([c, k[:, 0]], dim=-1) for c, k in blocks[layer]]
        return torch.cat(rows, dim=1)


bug, patch = MUSEUM.section("LatentKVCache", check="full_changes_nothing")
patch(
    "last_place_unused",
    "capacity",
    "a cache whose last place is never filled",
    "The end is compared with >=.",
    ("end > self.max_len", "end >= self.max_len"),
    kind="sizes",
)
patch(
    "drops_what_does_not_fit",
    "capacity",
    "a cache that silently drops what does not fit",
    "Tokens beyond the end are dropped without a word.",
    (
        "end = self.length + c.shape[1]",
        "room = self.max_len - self.length\n        c, k_rope = c[:, :room], k_rope[:, :, :room]\n"
        "        end = self.length + c.shape[1]",
    ),
    kind="refusals",
)
patch(
    "makes_room_before_it_looks",
    "capacity",
    "a cache that moves its rows before it refuses",
    "Room is made by moving the old rows, and then the append is refused.",
    (
        "raise CacheFull(",
        "self.rows[layer] = self.rows[layer].roll(-1, 1)\n            raise CacheFull(",
    ),
    kind="refusals",
)
patch(
    "full_is_a_value_error",
    "capacity",
    "a full cache that raises ValueError",
    "The error for what the caller did wrong, and the one for a cache without room, are mixed up.",
    ("raise CacheFull(", "raise ValueError("),
)
patch(
    "looks_for_a_free_place_only",
    "capacity",
    "a cache that asks whether any place is free, and not how many",
    "Right token by token; a block of five that meets four places stops in the middle.",
    ("if end > self.max_len", "if self.length >= self.max_len"),
    kind="refusals",
)
patch(
    "rolls_on_when_full",
    "capacity",
    "a full cache that is emptied and begins anew",
    "A cache without room is reset, as if the text began here.",
    ("raise CacheFull(", "self.length = 0\n            raise CacheFull("),
    kind="refusals",
)

bug, patch = MUSEUM.section("LatentKVCache", check="can_go_back")
RESET = '"""Forget every token."""\n        self.length = 0'
TRUNCATE = '        check_between("n", n, 0, len(self))\n        self.length = n'
patch(
    "reset_leaves_the_length",
    "state",
    "a reset that clears the rows and leaves the length",
    "reset() writes zeros, and the next token is written behind them.",
    (RESET, '"""Forget every token."""\n        self.rows.zero_()'),
)
patch(
    "truncate_keeps_the_newest",
    "state",
    "a truncate that keeps the newest tokens",
    "truncate(n) keeps the last n tokens, as a sliding window would.",
    (
        TRUNCATE,
        '        check_between("n", n, 0, len(self))\n'
        "        self.rows = self.rows.roll(n - self.length, 2)\n        self.length = n",
    ),
)
patch(
    "truncates_by_n",
    "state",
    "a truncate that takes n for the number of tokens to drop",
    "truncate(n) takes n tokens away instead of keeping n.",
    (TRUNCATE, TRUNCATE.replace("self.length = n", "self.length -= n")),
)
patch(
    "truncate_keeps_one_less",
    "off by one",
    "a truncate that keeps one token less than asked for",
    "n is taken for the place of the last token that stays.",
    (TRUNCATE, TRUNCATE.replace("self.length = n", "self.length = max(0, n - 1)")),
)
patch(
    "truncate_clears_everything",
    "state",
    "a truncate that also clears what it should keep",
    "The storage is set to zero, and the length to n.",
    (TRUNCATE, TRUNCATE + "\n        self.rows.zero_()"),
)
patch(
    "truncate_does_nothing",
    "state",
    "a truncate that keeps everything",
    "The rows behind n are cleared; the length, by which everything is counted, is not.",
    (TRUNCATE, TRUNCATE.replace("self.length = n", "self.rows[:, :, n:] = 0")),
)

# --- scores -----------------------------------------------------------------------------------------

HEADS = "heads = up_k.reshape(H, D, -1)  # (H, D, rank)"
bug, patch = MUSEUM.section("absorb", check="absorbed_scores_are_the_scores")
patch(
    "heads_of_up_k_interleaved",
    "head order",
    "a matrix of which every H-th row belongs to a head",
    "The rows are cut as (D, H): head h gets rows h, h + H, and so on.",
    (HEADS, "heads = up_k.reshape(D, H, -1).transpose(0, 1)"),
)
patch(
    "up_k_of_head_0",
    "head order",
    "queries that all go through the matrix of head 0",
    "Every head shares the latent, and so, it seems, the matrix.",
    (HEADS, "heads = up_k[:D]"),
)
patch(
    "heads_from_last_to_first",
    "head order",
    "queries that meet the matrices of the heads in reverse",
    "The heads are stacked from a list that was filled from the end.",
    (HEADS, "heads = up_k.reshape(H, D, -1).flip(0)"),
)
patch(
    "up_k_transposed_by_reshape",
    "head order",
    "a matrix that is reshaped where it should be transposed",
    "(H · D, rank) is read as if it lay in memory as (rank, H · D).",
    (HEADS, "heads = up_k.reshape(-1, H, D).permute(1, 2, 0)"),
)
patch(
    "absorbs_in_float32",
    "form",
    "absorbed queries in float32, whatever was given",
    "float() stays from a debugging session.",
    ("return q_nope @ heads", "return q_nope.float() @ heads.float()"),
    kind="dtype",
)
patch(
    "scales_while_absorbing",
    "softmax",
    "queries that are scaled before the scores are",
    "Divided by the root of D in absorb, and once more in the scores.",
    ("return q_nope @ heads", "return q_nope @ heads / D**0.5"),
)


@bug("state", "absorbed queries that lie in one memory for all calls", kind="results")
def absorbs_into_one_buffer(q_nope, up_k, buffers={}):  # noqa: B006 (the mistake)
    """The result is written into a buffer that the next call of the same sizes uses again."""
    check_absorbed(q_nope, up_k)  # noqa: F821
    H, D = q_nope.shape[1], q_nope.shape[3]
    heads = torch.matmul(q_nope, up_k.reshape(H, D, -1))
    kept = buffers.setdefault("all", torch.empty(10_000, dtype=torch.float64))
    out = kept[: heads.numel()].view(heads.shape) if heads.dtype == kept.dtype else heads
    return out.copy_(heads)


bug, patch = MUSEUM.section("attend_latent", check="absorbed_scores_are_the_scores")
patch(
    "queries_must_be_contiguous",
    "form",
    "queries that must be contiguous",
    "view() in place of reshape(): queries that are a slice or a transpose stop it.",
    ("below = q.reshape(", "below = q.view("),
    kind="layout",
)
SCORES = "(below @ rows.transpose(1, 2)).view(B, H, T, -1) * scale"
VALUES = "(shares @ rows[..., :rank]).view(B, H, T, rank)"
patch(
    "scale_forgotten",
    "softmax",
    "scores that are not scaled",
    "The argument is not used.",
    (SCORES, SCORES.removesuffix(" * scale")),
)
patch(
    "scale_of_its_own",
    "softmax",
    "scores divided by the root of the row's length, whatever scale was given",
    "√(rank + R), for the queries are so long now.",
    (SCORES, SCORES.replace("* scale", "/ W**0.5")),
)
patch(
    "rope_left_out_of_the_scores",
    "position",
    "scores of the latents alone, without the rotated part",
    "The first rank numbers are keys as well as values: nothing says where a token stands.",
    (SCORES, SCORES.replace("below @ rows", "below[..., :rank] @ rows[..., :rank]")),
)
patch(
    "scores_of_the_rotated_part_alone",
    "wiring",
    "scores of the rotated part alone, without the latents",
    "The latents are taken for values only.",
    (SCORES, SCORES.replace("below @ rows", "below[..., rank:] @ rows[..., rank:]")),
)
patch(
    "values_read_the_last_numbers",
    "wiring",
    "values that are the last numbers of the rows, rotated ones among them",
    "rows[..., -rank:]: right if the key came first.",
    (VALUES, VALUES.replace(":rank]", "-rank:]")),
)
patch(
    "mask_not_used",
    "mask",
    "attention that looks at every row, whatever the mask says",
    "Right for one new token.",
    ("if mask is not None:", "if False:"),
)
patch(
    "mask_inverted",
    "mask",
    "attention that looks where it may not",
    "True is taken for hidden.",
    ("masked_fill(~mask", "masked_fill(mask"),
)
patch(
    "mask_after_the_softmax",
    "softmax",
    "shares that are set to 0 after the softmax and no longer add up to 1",
    "Hidden rows are left out of the mean, and still had their part of the sum.",
    ('        scores = scores.masked_fill(~mask, float("-inf"))', "        pass"),
    (
        "shares = scores.softmax(dim=-1).view(",
        "shares = (scores.softmax(dim=-1) * (True if mask is None else mask)).view(",
    ),
)
patch(
    "softmax_over_queries",
    "softmax",
    "shares that add up to 1 over the queries, not over the rows",
    "The wrong axis.",
    ("scores.softmax(dim=-1)", "scores.softmax(dim=-2)"),
)
patch(
    "softmax_by_hand",
    "softmax",
    "shares that overflow where scores are large",
    "exp and a division, without the largest score taken away first.",
    ("scores.softmax(dim=-1)", "(scores.exp() / scores.exp().sum(dim=-1, keepdim=True))"),
    kind="sizes",
)
patch(
    "attends_in_float32",
    "form",
    "attention in float32, whatever was given",
    "float() stays from a debugging session.",
    (
        "below = q.reshape(B, H * T, W)",
        "rows = rows.float()\n    below = q.float().reshape(B, H * T, W)",
    ),
    kind="dtype",
)
patch(
    "scales_the_rows_in_place",
    "state",
    "rows that are scaled where they lie in the cache",
    "mul_ saves a tensor, and the cache holds scaled rows from then on.",
    (
        "below = q.reshape(B, H * T, W)",
        "rows.mul_(scale)\n    below = q.reshape(B, H * T, W) / scale",
    ),
    kind="arguments",
)
patch(
    "rows_of_the_first_text",
    "head order",
    "attention of every text to the rows of the first",
    "One row of the batch is taken, as there is one row for all heads.",
    (SCORES, SCORES.replace("rows.transpose(1, 2)", "rows[:1].transpose(1, 2)")),
    kind="batch",
)

# --- the layer --------------------------------------------------------------------------------------

bug, patch = MUSEUM.section("latent_attention_layer", check="every_split_equals_the_paper")
SCALE = "(D + R) ** -0.5"
patch(
    "scale_by_d_alone",
    "softmax",
    "scores divided by √D, without the rotated part",
    "As in every lesson before: but queries and keys have D + R numbers.",
    (SCALE, "D**-0.5"),
)
patch(
    "scale_by_the_row",
    "softmax",
    "scores divided by the root of rank + R",
    "So long are the vectors that are multiplied, and not those that the model was trained with.",
    (SCALE, "(rank + R) ** -0.5"),
)
patch(
    "scale_by_rank",
    "softmax",
    "scores divided by the root of the latent's width",
    "√rank, for keys are latents now.",
    (SCALE, "rank**-0.5"),
)
patch(
    "no_scale",
    "softmax",
    "scores that are not divided at all",
    "The scale is left at 1.",
    (SCALE, "1.0"),
)
patch(
    "latent_rotated",
    "position",
    "latents that are rotated, too",
    "Keys are rotated before they are stored, so the latent is.",
    (
        "rows = cache.append(layer, c, k_rope)",
        "angle = positions[:, None] * 0.1\n"
        "    c = c * angle.cos() + c.roll(1, -1) * angle.sin()\n"
        "    rows = cache.append(layer, c, k_rope)",
    ),
)
patch(
    "rope_key_not_rotated",
    "position",
    "shared keys that are not rotated",
    "Only the query is turned.",
    ("k_rope = attn.rotate(k_rope.unsqueeze(1), positions)", "k_rope = k_rope.unsqueeze(1)"),
)
patch(
    "rope_query_not_rotated",
    "position",
    "queries whose last R numbers are not rotated",
    "Only the key is turned.",
    ("attn.rotate(q[..., D:], positions)", "q[..., D:]"),
)
patch(
    "content_query_rotated",
    "position",
    "queries of which the content is rotated as well",
    "Whatever meets a key is rotated, as in lesson 01; what fits the rotation's width is turned.",
    (
        "q_nope, q_rope = q[..., :D], attn.rotate(q[..., D:], positions)",
        "q_nope, q_rope = q[..., :D].clone(), attn.rotate(q[..., D:], positions)\n"
        "    n = min(D, R)\n"
        "    turned = attn.rotate(torch.nn.functional.pad(q_nope[..., :n], (0, R - n)), positions)\n"
        "    q_nope[..., :n] = turned[..., :n]",
    ),
)
patch(
    "query_parts_exchanged",
    "wiring",
    "queries whose first R numbers are rotated, and the others are the content",
    "[rotated | content] in place of [content | rotated].",
    (
        "q_nope, q_rope = q[..., :D], attn.rotate(q[..., D:], positions)",
        "q_nope, q_rope = q[..., R:], attn.rotate(q[..., :R], positions)",
    ),
)
patch(
    "heads_of_up_v_interleaved",
    "head order",
    "values for which every H-th row of up_v belongs to a head",
    "The rows are cut as (D, H).",
    ("attn.up_v.weight.view(H, D, rank)", "attn.up_v.weight.view(D, H, rank).transpose(0, 1)"),
)
patch(
    "values_by_up_k",
    "wiring",
    "values that are made by the matrix of the keys",
    "up_k where up_v belongs: both have the same shape.",
    ("attn.up_v.weight", "attn.up_k.weight.clone()"),
)
patch(
    "keys_by_up_v",
    "wiring",
    "queries that go through the matrix of the values",
    "up_v where up_k belongs: both have the same shape.",
    ("attn.up_k.weight", "attn.up_v.weight.clone()"),
)
patch(
    "mask_at_the_top_left",
    "mask",
    "a mask whose diagonal begins at the first row of the cache",
    "tril of (T, S): a token in a later chunk sees the first rows alone.",
    (
        "causal_mask(q.shape[2], rows.shape[1], device=x.device)",
        "torch.ones(q.shape[2], rows.shape[1], dtype=torch.bool).tril()",
    ),
)
patch(
    "no_mask",
    "mask",
    "a layer in which new tokens see each other, later ones too",
    "Right for one new token.",
    ("causal_mask(q.shape[2], rows.shape[1], device=x.device)", "None"),
)
patch(
    "positions_restart",
    "position",
    "positions that are counted from 0 at every call",
    "arange(T) in place of the positions that were given.",
    (
        "q = split_heads(attn.wq(x), H)",
        "positions = torch.arange(x.shape[1])\n    q = split_heads(attn.wq(x), H)",
    ),
)
patch(
    "wo_forgotten",
    "wiring",
    "merged heads without the output matrix",
    "wo is left out: the shape is right all the same.",
    ("return attn.wo(merge_heads(latents @ up_v.transpose(1, 2)))",
     "return merge_heads(latents @ up_v.transpose(1, 2))"),
)  # fmt: skip
patch(
    "heads_merged_by_reshape",
    "head order",
    "heads that are merged without moving their axis behind the tokens",
    "(B, H, T, D) is reshaped as it lies.",
    ("merge_heads(latents @ up_v.transpose(1, 2))",
     "(latents @ up_v.transpose(1, 2)).reshape(x.shape[0], x.shape[1], -1)"),
)  # fmt: skip

bug, patch = MUSEUM.section("latent_attention_layer", check="rows_are_the_only_memory")


@bug("state", "a layer that keeps rows of its own and reads no cache")
def keeps_its_own_rows(attn, x, positions, cache, layer):
    """The rows so far are kept on the layer, beside the cache, and what append returns is not read."""
    rows = right.latent_attention_layer  # noqa: F821

    class Beside:
        def append(self, number, c, k_rope):
            cache.append(number, c, k_rope)
            new = torch.cat([c, k_rope[:, 0]], dim=-1)
            past = getattr(attn, "_rows", None) if int(positions[0]) else None
            attn._rows = new if past is None else torch.cat([past, new], dim=1)
            return attn._rows

    return rows(attn, x, positions, Beside(), layer)


patch(
    "new_tokens_from_their_own_latents",
    "wiring",
    "a layer that puts its own latents in the place of what append returned last",
    "The past is read from the cache, the new tokens from c: right only as long as the cache stores "
    "exactly c.",
    (
        "rows = cache.append(layer, c, k_rope)",
        "rows = cache.append(layer, c, k_rope)\n"
        "    new = torch.cat([c, k_rope[:, 0]], dim=-1)\n"
        "    rows = torch.cat([rows[:, : -x.shape[1]], new], dim=1)",
    ),
)
patch(
    "appends_to_layer_0",
    "wiring",
    "a layer that appends to the cache's layer 0, whichever it is",
    "The argument is not passed on.",
    ("cache.append(layer, c, k_rope)", "cache.append(0 * layer, c, k_rope)"),
)
patch(
    "appends_twice",
    "wiring",
    "a layer that appends its rows twice",
    "Once to store, and once to read: lengths do not move, and the work is done twice.",
    (
        "rows = cache.append(layer, c, k_rope)",
        "cache.append(layer, c, k_rope)\n    rows = cache.append(layer, c, k_rope)",
    ),
    kind="cost",
)

bug, patch = MUSEUM.section("latent_attention_layer", check="nothing_is_expanded")


@bug("cost", "a layer that makes keys and values of all cached tokens", kind="cost")
def expands_at_each_step(attn, x, positions, cache, layer):
    """As the popular teaching code does: the latents are kept, and all keys and values are made of them
    at every step."""
    H, D, R = attn.n_heads, attn.head_dim, attn.d_rope
    q = split_heads(attn.wq(x), H)  # noqa: F821
    q = torch.cat([q[..., :D], attn.rotate(q[..., D:], positions)], dim=-1)
    c, shared = attn.down(x).split([attn.rank, R], dim=-1)
    rows = cache.append(layer, c, attn.rotate(shared.unsqueeze(1), positions))
    latents, turned = rows[..., : attn.rank], rows[:, None, :, attn.rank :]
    keys = split_heads(attn.up_k(latents), H)  # noqa: F821
    values = split_heads(attn.up_v(latents), H)  # noqa: F821
    keys = torch.cat([keys, turned.expand(-1, H, -1, -1)], dim=-1)
    mask = causal_mask(x.shape[1], rows.shape[1])  # noqa: F821
    scores = (q @ keys.transpose(2, 3) / (D + R) ** 0.5).masked_fill(~mask, float("-inf"))
    return attn.wo(merge_heads(scores.softmax(dim=-1) @ values))  # noqa: F821


patch(
    "values_expanded_at_each_step",
    "cost",
    "a layer that absorbs the keys and makes the values of all cached tokens",
    "Half of the work is saved: up_v is applied to every row before the mean, not to the mean.",
    (
        "latents = attend_latent(q, rows, rank, (D + R) ** -0.5, mask)",
        "values = split_heads(attn.up_v(rows[..., :rank]), H)\n"
        "    scores = (q @ rows[:, None].transpose(2, 3)) * (D + R) ** -0.5\n"
        '    shares = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)\n'
        "    return attn.wo(merge_heads(shares @ values))\n"
        "    latents = attend_latent(q, rows, rank, (D + R) ** -0.5, mask)",
    ),
    kind="cost",
)

bug, patch = MUSEUM.section("attend_latent", check="nothing_is_expanded")
patch(
    "rows_broadcast_over_heads",
    "cost",
    "rows that are copied for every head",
    "q @ rows[:, None] looks like a view; with two texts PyTorch copies the rows for each head.",
    (
        SCORES,
        "(q @ rows[:, None].transpose(2, 3)) * scale",
    ),
    (
        VALUES,
        "shares.view(B, H, T, -1) @ rows[:, None, :, :rank]",
    ),
    kind="cost",
)
patch(
    "rows_repeated_for_heads",
    "cost",
    "rows that are repeated for every head",
    "repeat_interleave, as in lesson 06's repeat_kv: the bytes are back for the time of a step.",
    (
        "below = q.reshape(B, H * T, W)  # all queries of a text, below one another",
        "copies = rows.unsqueeze(1).repeat_interleave(H, dim=1)  # (B, H, S, rank + R)",
    ),
    (SCORES, "(q @ copies.transpose(2, 3)) * scale"),
    (VALUES, "shares.view(B, H, T, -1) @ copies[..., :rank]"),
    kind="cost",
)
