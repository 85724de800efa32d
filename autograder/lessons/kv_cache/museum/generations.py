"""Wrong answers to `generate_cached`."""

from autograder.lessons.kv_cache.museum import MUSEUM
from course.minigpt import kv_cache as right
from course.model.bounds import check_between

bug, patch = MUSEUM.section("generate_cached", check="no_row_is_computed_twice")
patch(
    "generate_with_fresh_caches",
    "cost",
    "a generation with a new cache at every step",
    "A new cache at every step: the right text at the old price.",
    ("(model, feed, cache)", "(model, torch.cat(text, 1), KVCache(model.config, B, P + n_new))"),
    kind="cost",
)
patch(
    "generate_that_feeds_the_last",
    "cost",
    "a generation that also feeds its last token, for logits that nobody reads",
    "The last new token is fed as well, for logits that nobody reads.",
    ("P + n_new - 1, cache is None", "P + n_new, cache is None"),
    ("return torch.cat", "forward_cached(model, feed, cache)\n    return torch.cat"),
    kind="cost",
)
patch(
    "generate_that_ignores_the_cache",
    "state",
    "a generation that does not use the cache that it was given",
    "The cache that is given is not the one that is used.",
    ("if own:", "if True:"),
)
patch(
    "generate_from_the_first_position",
    "choice",
    "a generation that reads the logits of the first position",
    "logits[:, 0] is right for a single token and wrong for the prompt.",
    ("logits[:, -1]", "logits[:, 0]"),
)
patch(
    "generate_one_too_few",
    "off by one",
    "a loop that turns once too few",
    "The loop runs n_new - 1 times.",
    ("range(n_new)", "range(n_new - 1)"),
)
patch(
    "generate_that_feeds_the_prompt_twice",
    "feeding",
    "a generation that feeds the last token of the prompt a second time",
    "After the prompt its last token is fed once more to start the loop, in a cache with room for that.",
    ("n_fed, own = P + n_new - 1, cache is None", "n_fed, own = P + n_new, True"),
    ("text, feed = [prompt], prompt", "text, feed = [prompt], prompt[:, -1:]"),
    ("for _ in", "forward_cached(model, prompt, cache)\n        for _ in"),
)
patch(
    "generate_until_it_is_full",
    "capacity",
    "a generation that notices only on its way that the room ends",
    "Room is looked for once, but for the prompt alone: a call that is refused later leaves tokens.",
    ("if len(cache) + n_fed >", "if len(cache) + P >"),
    kind="refusals",
)


@bug("cost", "a generation that computes parts of the whole text again at every step", kind="cost")
def generate_with_work_thrown_away(model, prompt, n_new, cache=None):
    """No key is computed twice, but the MLP runs over the whole text at every step."""
    text = right.generate_cached(model, prompt, n_new, cache)
    for n in range(1, n_new + 1):
        x = model.embed(text[:, :-n])
        for block in model.blocks:
            x = x + block.mlp(block.mlp_norm(x))
    return text


patch(
    "generate_one_for_none",
    "off by one",
    "a generation that writes a token when none was asked for",
    "The loop asks whether to go on after it wrote: n_new = 0 gives one token.",
    ("    if n_new == 0:\n        return prompt.clone()\n", "    n_new = max(n_new, 1)\n"),
    kind="sizes",
)
patch(
    "generate_feeds_for_none",
    "cost",
    "a generation that feeds the prompt when nothing is to be written",
    "The prompt is read before anyone asks whether a token is wanted.",
    (
        "    if n_new == 0:\n",
        "    if n_new == 0:\n        forward_cached(model, prompt, KVCache(model.config, B, P, "
        "model.embed.weight.dtype))\n",
    ),
    kind="cost",
)
patch(
    "generate_refuses_none",
    "arguments",
    "a generation that refuses to write no token at all",
    "Nothing to write is taken for a mistake of the caller's.",
    ("if n_new == 0:\n        return prompt.clone()", 'check_between("n_new", n_new, 1, 2**31)'),
)
patch(
    "generate_no_room_for_none",
    "capacity",
    "a generation that makes a cache of no places when there is nothing to write",
    "n_new = 0 is no case of its own: right, until the prompt is a single token and P - 1 is 0.",
    ("    if n_new == 0:\n        return prompt.clone()\n", ""),
    kind="sizes",
)
patch(
    "generate_none_for_one",
    "off by one",
    "a generation that gives back the prompt when one token was asked for",
    "The early return is for n_new = 0, and takes n_new = 1 along.",
    ("if n_new == 0:", "if n_new <= 1:"),
)
patch(
    "generate_repeats_one",
    "choice",
    "a generation that repeats the last token of the prompt when one was asked for",
    "Short cases are answered early, and the one token is taken from the prompt.",
    (
        "B, P = prompt.shape",
        "B, P = prompt.shape\n    if n_new == 1: return torch.cat([prompt, prompt[:, -1:]], 1)",
    ),
)
patch(
    "generate_minus_one",
    "arguments",
    "a generation that takes a negative number of new tokens",
    "-1 means no limit elsewhere, so the line that refuses was made to let it through.",
    ('check_between("n_new", n_new, 0', 'check_between("n_new", n_new, -1'),
    kind="refusals",
)

patch(
    "generate_forgets_an_empty_cache",
    "state",
    "a generation that takes an empty cache for none",
    "cache or KVCache(…): a cache of length 0 is false, and the one that was given stays empty.",
    ("if own:", "if not cache:"),
)
patch(
    "generate_empties_a_given_cache",
    "state",
    "a generation that empties the cache that it was given",
    "cache.reset() at the beginning: what the cache held of the text is thrown away.",
    (
        "    text, feed = [prompt], prompt",
        "    cache.reset()\n    text, feed = [prompt], prompt",
    ),
)
patch(
    "generate_empties_a_given_cache_before_it_looks",
    "state",
    "a generation that empties the cache that it was given, and so never finds it full",
    "cache.reset() before the room is counted: what the cache held is thrown away.",
    ("    if len(cache) + n_fed", "    cache.reset()\n    if len(cache) + n_fed"),
)
patch(
    "generate_renews_a_given_cache",
    "state",
    "a generation that makes a new cache in the place of the one it was given",
    "A cache of the same size: the caller's own stays as it was.",
    (
        "    if own:",
        "    if not own:\n"
        "        cache = KVCache(model.config, B, cache.max_len, dtype=cache.dtype)\n"
        "    if own:",
    ),
)
patch(
    "generate_empties_the_cache_afterwards",
    "state",
    "a generation that empties the cache when it is done",
    "Cleaning up: but the caller may want to go on from there.",
    ("    return torch.cat(text, dim=1)", "    cache.reset()\n    return torch.cat(text, dim=1)"),
)
patch(
    "generate_that_feeds_the_last_without_a_place",
    "feeding",
    "a generation that feeds its last token, too, for which there is no place",
    "The loop feeds what it has just chosen; the cache has P + n_new - 1 places.",
    (
        "    return torch.cat(text, dim=1)",
        "    forward_cached(model, feed, cache)\n    return torch.cat(text, dim=1)",
    ),
)
patch(
    "generate_that_feeds_the_whole_text",
    "feeding",
    "a generation that feeds the whole text at every step, behind the same text in the cache",
    "Lesson 02's loop with a cache: what is held already is fed again.",
    ("(model, feed, cache)", "(model, torch.cat(text, dim=1), cache)"),
)
patch(
    "generate_until_any_row_ends",
    "feeding",
    "a generation that ends as soon as one row has written <end>",
    "break at `<end>`: the other rows lose their words.",
    (
        "text.append(feed)",
        "text.append(feed)\n            if (feed == 1).any():\n                break",
    ),
    kind="end",
)
patch(
    "generate_until_all_rows_end",
    "feeding",
    "a generation that ends when every row has written <end>",
    "Right as long as one row goes on; a batch of one ends with its story.",
    (
        "text.append(feed)",
        "text.append(feed)\n"
        "            if (torch.cat(text[1:], dim=1) == 1).any(dim=1).all():\n"
        "                break",
    ),
    kind="end",
)
patch(
    "generate_pads_after_the_end",
    "feeding",
    "a generation that writes <pad> in every row that has ended",
    "Rows that are done are filled up: neat, and not what was asked for.",
    (
        "text.append(feed)",
        "feed[(torch.cat(text, dim=1)[:, P:] == 1).any(dim=1)] = 0\n            text.append(feed)",
    ),
    kind="end",
)
patch(
    "generate_token_by_token",
    "cost",
    "a generation that feeds the prompt token by token",
    "The same rows, in as many passes as the prompt has tokens.",
    (
        "text, feed = [prompt], prompt",
        "text, feed = [prompt], prompt[:, -1:]\n"
        "    for token in prompt[:, :-1].split(1, dim=1):\n"
        "        forward_cached(model, token, cache)",
    ),
    kind="cost",
)
patch(
    "generate_hands_back_the_prompt",
    "state",
    "a generation that returns the caller's own tensor when there is nothing to write",
    "return prompt for n_new = 0: two names for one tensor.",
    ("return prompt.clone()", "return prompt"),
    kind="results",
)
patch(
    "generate_feeds_for_nothing",
    "cost",
    "a generation that feeds the prompt when no token was asked for",
    "Prefill comes first, and only then the question how many tokens are wanted.",
    (
        "        return prompt.clone()",
        "        if cache is not None:\n"
        "            forward_cached(model, prompt, cache)\n"
        "        return prompt.clone()",
    ),
)
patch(
    "generate_wants_one_place_more",
    "capacity",
    "a generation that asks for room for the last token, too",
    "P + n_new in place of P + n_new - 1: a cache that is just large enough is refused.",
    ("P + n_new - 1, cache is None", "P + n_new, cache is None"),
)
patch(
    "generate_without_looking_for_room",
    "capacity",
    "a generation that never looks whether there is room",
    "forward_cached notices, some tokens later; they stay in the cache.",
    ("if len(cache) + n_fed > cache.max_len:", "if False:"),
    kind="refusals",
)
patch(
    "generate_forgets_what_is_held",
    "capacity",
    "a generation that counts the room of the cache without what is in it",
    "Right for an empty cache.",
    ("if len(cache) + n_fed > cache.max_len:", "if n_fed > cache.max_len:"),
    kind="refusals",
)
patch(
    "generate_full_is_a_value_error",
    "arguments",
    "a generation that raises ValueError where the cache has no room",
    "CacheFull tells a caller that another cache would do; ValueError does not.",
    ("raise CacheFull(", "raise ValueError("),
)
patch(
    "generate_beyond_the_model",
    "capacity",
    "a generation that looks for the end of the text only in the cache",
    "n_new is held against max_seq_len without the prompt.",
    ("model.config.max_seq_len - prompt.shape[1])", "model.config.max_seq_len)"),
    kind="refusals",
)
patch(
    "generate_in_float32",
    "form",
    "a generation whose own cache is float32 whatever the model is",
    "KVCache(…) without a dtype: the default.",
    ("dtype=weight.dtype, ", ""),
    kind="dtype",
)
patch(
    "generate_by_the_first_row",
    "choice",
    "a generation in which the first row chooses for all",
    "logits[0, -1]: every row gets the word of the first.",
    ("greedy_next(logits[:, -1])", "greedy_next(logits[:1, -1]).expand(B)"),
    kind="batch",
)
patch(
    "generate_the_new_alone",
    "form",
    "a generation that returns the new tokens without the prompt",
    "The prompt is cut off, as a chat window would.",
    ("return torch.cat(text, dim=1)", "return torch.cat(text[1:], dim=1)"),
)
patch(
    "generate_wants_a_contiguous_prompt",
    "form",
    "a generation that takes the prompt by view, and so only where it lies in order",
    "view() cannot join axes of a slice or a transpose; reshape() can.",
    ("text, feed = [prompt], prompt", "text, feed = [prompt], prompt.view(-1).view(B, P)"),
    kind="layout",
)
patch(
    "generate_into_the_prompt",
    "state",
    "a generation that writes the newest token into the caller's prompt",
    "The last place of the prompt is used again for what is to be fed.",
    ("text, feed = [prompt], prompt", "text, feed = [prompt.clone()], prompt"),
    ("text.append(feed)", "text.append(feed)\n            prompt[:, -1:] = feed"),
    kind="arguments",
)
patch(
    "generate_in_64_places",
    "capacity",
    "a generation whose own cache has a size of its own",
    "64 places were enough while it was tried.",
    (
        "KVCache(model.config, B, n_fed,",
        "KVCache(model.config, B, min(64, model.config.max_seq_len),",
    ),
    kind="sizes",
)


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
