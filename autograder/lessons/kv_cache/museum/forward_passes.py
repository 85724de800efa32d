"""Wrong answers to `forward_cached`."""

import torch

from autograder.lessons.kv_cache.museum import MUSEUM
from course.minigpt import kv_cache as right
from course.model import MiniGPT
from course.model.cache import CacheFull

bug = MUSEUM.section("forward_cached", check="every_split_equals_uncached")


@bug("capacity", "a forward pass that empties a full cache and goes on")
def forward_that_makes_room(model, tokens, cache):
    """A full cache is emptied, and the text goes on as if it began here."""
    if len(cache) + tokens.shape[1] > cache.max_len:
        cache.reset()
    return right.forward_cached(model, tokens, cache)


@bug("cost", "a forward pass that reads the whole text again, by another model", kind="cheapest")
def forward_by_another_model(model, tokens, cache):
    """The text is kept beside the cache, and a new model with a copy of the weights reads it all."""
    held, T = len(cache), tokens.shape[1]
    if held + T > cache.max_len:
        raise CacheFull("no room")
    cache.text = torch.cat([cache.text, tokens], dim=1) if held else tokens
    cache.advance(T)
    weights = {name: part.clone() for name, part in model.state_dict().items()}
    again = MiniGPT.from_state(model.config, weights)
    return again.to(model.embed.weight.dtype)(cache.text)[:, -T:]


bug = MUSEUM.section("forward_cached", check="cache_is_the_only_memory")


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


bug = MUSEUM.section("forward_cached", check="two_conversations_stay_apart")


@bug("cost", "a forward pass that reads the whole text of a conversation again", kind="cheapest")
def forward_that_reads_again(model, tokens, cache):
    """Two texts stay apart where each is kept whole, and nothing of them is cached."""
    cache.text = torch.cat([cache.text, tokens], dim=1) if len(cache) else tokens
    cache.advance(tokens.shape[1])
    return model(cache.text)[:, -tokens.shape[1] :]


@bug("state", "a forward pass that empties a cache to which it comes back", kind="evidence")
def forward_of_one_conversation(model, tokens, cache):
    """Another cache than the last time is taken for a new conversation."""
    if getattr(model, "last", cache) is not cache and hasattr(cache, "begun"):
        cache.reset()
    model.__dict__["last"] = cache  # no module of the model's
    cache.begun = True
    return right.forward_cached(model, tokens, cache)
