"""Wrong answers to `forward_cached`."""

import torch

from autograder.lessons.kv_cache.museum import MUSEUM
from course.minigpt import kv_cache as right

bug, patch = MUSEUM.section("forward_cached", check="every_split_equals_uncached")
patch(
    "forward_positions_restart",
    "position",
    "a cache whose positions restart at every call",
    "Positions start at 0 in every call: the prompt is right, every later token is not.",
    ("past, T = len(cache),", "past, T = 0,"),
)
patch(
    "forward_positions_off_by_one",
    "position",
    "a cache in which the newest token stands where the one before it stands",
    "The new token gets the position of the last cached one.",
    ("past, T = len(cache),", "past, T = max(len(cache) - 1, 0),"),
)


@bug("capacity", "a forward pass that empties a full cache and goes on")
def forward_that_makes_room(model, tokens, cache):
    """A full cache is emptied, and the text goes on as if it began here."""
    if len(cache) + tokens.shape[1] > cache.max_len:
        cache.reset()
    return right.forward_cached(model, tokens, cache)


patch(
    "forward_never_advances",
    "writes",
    "a cache that is never told that tokens were added",
    "advance is forgotten: each chunk is written over the one before.",
    ("cache.advance(T)", ""),
)
patch(
    "forward_without_final_norm",
    "wiring",
    "a model without its last norm",
    "The last norm is left out.",
    ("model.norm(x)", "x"),
)
patch(
    "forward_last_logits_only",
    "form",
    "a model that gives back the logits of the last token alone",
    "Only the last position's logits come back.",
    ("model.norm(x)", "model.norm(x[:, -1:])"),
)

patch(
    "forward_advances_in_every_layer",
    "state",
    "a forward pass that advances the cache once for every layer",
    "advance stands inside of the loop: layer 1 writes behind layer 0.",
    ("    cache.advance(T)\n", ""),
    (
        "x = x + block.mlp(block.mlp_norm(x))",
        "x = x + block.mlp(block.mlp_norm(x))\n        cache.advance(T)",
    ),
)
patch(
    "forward_advances_first",
    "state",
    "a forward pass that advances the cache before its layers append",
    "The length is moved first, and every layer writes behind places that nobody filled.",
    ("    cache.advance(T)\n", ""),
    ("x = model.embed(tokens)", "cache.advance(T)\n    x = model.embed(tokens)"),
)
patch(
    "forward_leaves_the_last_place",
    "capacity",
    "a forward pass that refuses what just fits",
    ">= in place of >: the last place of the cache stays empty.",
    ("if past + T > cache.max_len", "if past + T >= cache.max_len"),
    kind="sizes",
)
patch(
    "forward_advances_by_one",
    "state",
    "a forward pass that advances the cache by one token, however many were fed",
    "Right for every step after the prompt.",
    ("cache.advance(T)", "cache.advance(1)"),
)
patch(
    "forward_without_attention_residual",
    "wiring",
    "a model in which attention takes the place of what it should be added to",
    "x = in place of x = x +.",
    ("x = x + attention_layer_cached", "x = attention_layer_cached"),
)
patch(
    "forward_without_mlp_residual",
    "wiring",
    "a model in which the MLP takes the place of what it should be added to",
    "x = in place of x = x +.",
    ("x = x + block.mlp", "x = block.mlp"),
)
patch(
    "forward_without_attention_norm",
    "wiring",
    "a model whose attention reads the residual stream without its norm",
    "attn_norm is left out.",
    ("block.attn_norm(x)", "x"),
)
patch(
    "forward_with_the_other_norm",
    "wiring",
    "a model whose attention reads through the norm of the MLP",
    "mlp_norm in both lines.",
    ("block.attn_norm(x)", "block.mlp_norm(x)"),
)
patch(
    "forward_of_one_part",
    "wiring",
    "a forward pass that gives every layer the first part of the cache",
    "0 in place of the layer's number.",
    ("positions, cache, layer)", "positions, cache, 0)"),
)
patch(
    "forward_token_by_token",
    "cost",
    "a forward pass that feeds a chunk token by token",
    "A loop over the tokens needs no mask: right numbers, and as many passes as tokens.",
    (
        "    past, T = len(cache), tokens.shape[1]",
        "    if tokens.shape[1] > 1 and len(cache) + tokens.shape[1] <= cache.max_len:\n"
        "        parts = [forward_cached(model, token, cache) for token in tokens.split(1, dim=1)]\n"
        "        return torch.cat(parts, dim=1)\n"
        "    past, T = len(cache), tokens.shape[1]",
    ),
    kind="cost",
)
patch(
    "forward_that_also_reads_uncached",
    "cost",
    "a forward pass that runs the prompt through the model without a cache as well",
    "The first call takes its logits from model(tokens), and its keys from a second pass.",
    (
        "return model.lm_head(model.norm(x))",
        "return model.lm_head(model.norm(x)) if past else model(tokens)",
    ),
    kind="cost",
)
patch(
    "forward_that_drops_the_newest",
    "capacity",
    "a forward pass that makes room in a full cache by forgetting its newest tokens",
    "What does not fit is made to fit: no CacheFull, and a text with a hole.",
    (
        'raise CacheFull(f"{past} of {cache.max_len} places are taken, {T} more do not fit")',
        "cache.truncate(cache.max_len - T)\n        past = len(cache)",
    ),
    kind="refusals",
)
patch(
    "forward_that_runs_out_of_positions",
    "capacity",
    "a forward pass that looks for positions before it looks for room",
    "append would refuse, but where cache and model end together rotate comes first: IndexError.",
    (
        "    if past + T > cache.max_len:  # rotate() may have no such positions, before append refuses\n"
        '        raise CacheFull(f"{past} of {cache.max_len} places are taken, {T} more do not fit")\n',
        "",
    ),
    kind="refusals",
)
patch(
    "forward_to_float32",
    "form",
    "a forward pass that gives its logits in float32, whatever the model is",
    "float() at the end, as it is done before sampling.",
    ("return model.lm_head(model.norm(x))", "return model.lm_head(model.norm(x)).float()"),
    kind="dtype",
)
patch(
    "forward_with_a_window",
    "position",
    "a forward pass whose positions stop at a number of its own",
    "A table of 128 positions was enough while it was tried.",
    (
        "positions = torch.arange(past, past + T, device=tokens.device)",
        "positions = torch.arange(past, past + T, device=tokens.device).clamp(max=127)",
    ),
    kind="sizes",
)

patch(
    "forward_in_float32",
    "form",
    "a forward pass whose residual stream is float32 whatever the model is",
    "float() behind the embedding: fine until the weights are of another dtype.",
    ("model.embed(tokens)", "model.embed(tokens).float()"),
    kind="dtype",
)

bug, patch = MUSEUM.section("forward_cached", check="cache_is_the_only_memory")


@bug("state", "a forward pass that remembers the text beside the cache", kind="evidence")
def forward_that_recomputes(model, tokens, cache):
    """The text is kept beside the cache, and everything is computed again from it."""
    held, T = len(cache), tokens.shape[1]
    right.forward_cached(model, tokens, cache)
    before = getattr(cache, "text", tokens[:, :0])
    cache.text = torch.cat([before[:, :held], tokens], dim=1)
    return model(cache.text)[:, -T:]


@bug("state", "a forward pass that empties a cache which it has not seen before", kind="evidence")
def forward_that_begins_anew(model, tokens, cache):
    """What somebody else wrote into the cache is thrown away."""
    if not hasattr(cache, "begun"):
        cache.reset()
    cache.begun = True
    return right.forward_cached(model, tokens, cache)


bug, patch = MUSEUM.section("forward_cached", check="two_conversations_stay_apart")


@bug("state", "a forward pass that empties a cache to which it comes back", kind="evidence")
def forward_of_one_conversation(model, tokens, cache):
    """Another cache than the last time is taken for a new conversation."""
    if getattr(model, "last", cache) is not cache and hasattr(cache, "begun"):
        cache.reset()
    model.__dict__["last"] = cache  # no module of the model's
    cache.begun = True
    return right.forward_cached(model, tokens, cache)


patch(
    "forward_that_counts_on_the_model",
    "state",
    "a position that is counted where two conversations meet",
    "The position is counted on the model, where two conversations meet.",
    ("past, T = len(cache),", 'past, T = getattr(model, "past", 0) if len(cache) else 0,'),
    ("positions = torch", "model.past = past + T\n    positions = torch"),
)
