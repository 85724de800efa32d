"""Wrong answers to `generate_cached`."""

from autograder.lessons.kv_cache.museum import MUSEUM
from course.minigpt import kv_cache as right
from course.model.bounds import check_between

bug = MUSEUM.section("generate_cached", check="no_row_is_computed_twice")


@bug("cost", "a generation that computes parts of the whole text again at every step", kind="cost")
def generate_with_work_thrown_away(model, prompt, n_new, cache=None):
    """No key is computed twice, but the MLP runs over the whole text at every step."""
    text = right.generate_cached(model, prompt, n_new, cache)
    for n in range(1, n_new + 1):
        x = model.embed(text[:, :-n])
        for block in model.blocks:
            x = x + block.mlp(block.mlp_norm(x))
    return text


@bug("state", "a generation whose own cache is kept for the next call", kind="instances")
def generate_with_one_cache_for_all(model, prompt, n_new, cache=None, kept={}):  # noqa: B006
    """A default that is made once: the second text goes on where the first one ended."""
    if cache is None:
        model.check_tokens(prompt)
        check_between("n_new", n_new, 0, model.config.max_seq_len - prompt.shape[1])
        key = (model.embed.weight.dtype, len(prompt))
        new = right.KVCache(model.config, len(prompt), model.config.max_seq_len, key[0])
        cache = kept.setdefault((*key, model.config), new)
    return right.generate_cached(model, prompt, n_new, cache)
