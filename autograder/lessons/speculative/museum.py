"""Known wrong answers to lesson 12."""

from __future__ import annotations

import torch

from autograder.lessons.exhibits import Museum
from course.drafts.rules import check_draft, check_odds, check_request
from course.minigpt.kv_cache import KVCache, forward_cached
from course.minigpt.mini_gpt import greedy_next
from course.minigpt.speculative import verify_greedy
from course.model.cache import CacheFull

MUSEUM = Museum("speculative")

# --- verify_greedy ---------------------------------------------------------------------------------

CHOSEN = "chosen = greedy_next(logits).tolist()"
LOOP = "for place, guess in enumerate(draft.tolist()):"
DIFFERS = "if guess != chosen[place]:"
STOPS = "return place, chosen[place]"
BONUS = "return len(draft), chosen[-1]"
bug, patch = MUSEUM.section("verify_greedy", check="only_right_guesses_are_kept")


@bug("choice", "all guesses counted that agree, also those behind a wrong one")
def counts_all_matches(draft, logits):
    """Right guesses behind a wrong one continue a text that does not exist."""
    check_draft(draft, logits)
    chosen = greedy_next(logits)
    kept = int((draft == chosen[:-1]).sum())
    return kept, int(chosen[kept])


patch(
    "compares_with_the_next_row",
    "off by one",
    "guesses compared with the row behind them",
    "draft[i] is fed before row i + 1, so that row seems to be its own; it judges draft[i + 1].",
    (DIFFERS, "if guess != chosen[place + 1]:"),
)
patch(
    "keeps_the_wrong_guess",
    "choice",
    "the guess kept at which the model differed",
    "The guess is returned in the place of the correction.",
    (STOPS, "return place, guess"),
)
patch(
    "counts_the_wrong_guess",
    "off by one",
    "one guess more than was right",
    "The corrected token is counted as kept.",
    (STOPS, "return place + 1, chosen[place]"),
)
patch(
    "repeats_the_last_right_token",
    "off by one",
    "the last right guess given once more",
    "The row of the last kept guess, not the one after it.",
    (STOPS, "return place, chosen[max(place - 1, 0)]"),
)
patch(
    "corrects_from_the_next_row",
    "off by one",
    "a correction from the row behind the wrong guess",
    "The row that was computed with the wrong guess in its text.",
    (STOPS, "return place, chosen[place + 1]"),
)
patch(
    "bonus_from_the_row_before",
    "off by one",
    "a bonus from the row that judged the last guess",
    "Row K - 1 says what the last guess had to be.",
    (BONUS, "return len(draft), chosen[len(draft) - 1]"),
)
patch(
    "always_the_last_row",
    "choice",
    "the row behind the whole draft, also where a guess was wrong",
    "The bonus is taken from the last row whatever was kept.",
    (STOPS, "return place, chosen[-1]"),
)
patch(
    "first_guess_unverified",
    "choice",
    "a first guess that nobody looks at",
    "The draft's first token is taken for the sure one.",
    (DIFFERS, "if place and guess != chosen[place]:"),
)
patch(
    "last_guess_unverified",
    "off by one",
    "a last guess that nobody looks at",
    "The loop stops in front of it.",
    (LOOP, "for place, guess in enumerate(draft.tolist()[:-1]):"),
)
patch(
    "all_or_nothing",
    "choice",
    "a draft kept whole or not at all",
    "Compares the two lists: one wrong guess and all are void.",
    (DIFFERS, "if draft.tolist() != chosen[:-1]:"),
)
patch(
    "never_keeps_all",
    "cost",
    "at most K - 1 guesses kept, so never a bonus",
    "A pass is thought to write K tokens.",
    (BONUS, "return max(len(draft) - 1, 0), chosen[max(len(draft) - 1, 0)]"),
)
patch(
    "least_likely",
    "choice",
    "the least likely token",
    "argmin in the place of argmax.",
    (CHOSEN, "chosen = logits.argmin(dim=-1).tolist()"),
)
patch(
    "chooses_in_half",
    "choice",
    "tokens chosen from rounded logits",
    "Logits are compared as float32.",
    (CHOSEN, "chosen = greedy_next(logits.float()).tolist()"),
    kind="dtype",
)
patch(
    "gives_the_tokens",
    "form",
    "the kept tokens in the place of their number",
    "Returns the list of tokens.",
    (STOPS, "return draft[:place], chosen[place]"),
    (BONUS, "return draft, chosen[-1]"),
)
patch(
    "one_number",
    "form",
    "one number where two are wanted",
    "Returns how many tokens the pass wrote.",
    (STOPS, "return place + 1"),
    (BONUS, "return len(draft) + 1"),
)
patch(
    "no_empty_draft",
    "form",
    "a draft of no tokens that stops it",
    "Looks at draft[0] first.",
    (LOOP, "if draft[0] != chosen[0]:\n        return 0, chosen[0]\n    " + LOOP),
    kind="sizes",
)

# --- speculate -------------------------------------------------------------------------------------

DRAFT = "draft = propose(text, min(n_draft, left - 1))"
BACK = "cache.truncate(len(cache) - len(draft) + kept)"
FED = "fed = torch.cat([text[-1:], draft]).unsqueeze(0)"
APPEND = "text = torch.cat([text, draft[:kept], text.new_tensor([token])])"
bug, patch = MUSEUM.section("speculate", check="every_draft_gives_the_same_text")

patch(
    "no_rollback",
    "state",
    "guesses that stay in the cache",
    "Nothing is taken back: the next token sees words that nobody said, and stands too far.",
    (BACK, "pass"),
)
patch(
    "rolls_back_one_too_few",
    "state",
    "one rejected guess that stays in the cache",
    "One row too many is kept.",
    (BACK, "cache.truncate(min(len(cache), len(cache) - len(draft) + kept + 1))"),
)
patch(
    "rolls_back_one_too_many",
    "state",
    "one row too many taken back",
    "The last kept row goes, too, and is never fed again.",
    (BACK, "cache.truncate(len(cache) - len(draft) + kept - 1)"),
)
patch(
    "rolls_back_the_whole_draft",
    "state",
    "kept guesses whose rows are taken back as well",
    "All K rows go whenever one guess was wrong.",
    (BACK, "cache.truncate(len(cache) - len(draft) if kept < len(draft) else len(cache))"),
)
patch(
    "believes_the_draft",
    "choice",
    "drafts that are never verified",
    "Every guess is kept.",
    ("kept, token = verify_greedy(draft, forward_cached(model, fed, cache)[0])",
     "logits = forward_cached(model, fed, cache)[0]\n"
     "        kept, token = len(draft), int(greedy_next(logits[-1:]))"),
)  # fmt: skip
patch(
    "believes_the_first_guess",
    "choice",
    "a first guess that is never verified",
    "At least one guess is kept, so that something moves.",
    (BACK, "kept = max(kept, min(1, len(draft)))\n        " + BACK),
)
patch(
    "forgets_the_correction",
    "choice",
    "corrections that are not written",
    "After a rejection the model's own token is left out, and the wrong guess stands there.",
    (
        APPEND,
        "text = torch.cat([text, draft[: kept + 1], text.new_tensor([token])[: len(draft) == kept]])",
    ),
)
patch(
    "no_row_for_the_newest",
    "feeding",
    "a newest token that is never fed",
    "Only the draft goes through the model, with the newest token's row missing.",
    (FED, "fed = (draft if len(draft) else text[-1:]).unsqueeze(0)"),
    ("forward_cached(model, fed, cache)[0])",
     "torch.cat([logits[0, -1:], forward_cached(model, fed, cache)[0]])[: len(draft) + 1])"),
)  # fmt: skip
patch(
    "writes_past_the_end",
    "off by one",
    "texts that are longer than was asked for",
    "The last pass may write more than is left.",
    (DRAFT, "draft = propose(text, n_draft)"),
    (
        "n_fed = len(prompt) + n_new - 1",
        "n_fed = len(prompt) + n_new - 1\n    room = n_fed + n_draft + 1",
    ),
    ("cache = KVCache(model.config, 1, n_fed,", "cache = KVCache(model.config, 1, min(room, 40),"),
)
patch(
    "stops_one_token_early",
    "off by one",
    "texts that are one token too short",
    "The loop ends when one token is left.",
    ("- len(text)) > 0:", "- len(text)) > 1:"),
)
patch(
    "first_token_from_the_first_row",
    "off by one",
    "a first token chosen from the first position",
    "Row 0 of the prompt's pass.",
    ("greedy_next(logits[:, -1])", "greedy_next(logits[:, 0])"),
)
patch(
    "ends_at_end",
    "capacity",
    "texts that stop at the token that ends a story",
    "Token 1 ends the loop, as in a chat.",
    (
        "text = torch.cat([prompt, greedy_next(logits[:, -1])])",
        "text = torch.cat([prompt, greedy_next(logits[:, -1])])\n"
        "    if text[-1] == 1:\n        return text",
    ),
)
patch(
    "proposes_from_the_prompt",
    "wiring",
    "an answer that is one prompt long",
    "Returns only the new tokens.",
    ("return text", "return text[len(prompt) :]"),
)
patch(
    "empty_draft_stops_it",
    "form",
    "texts that end where nothing is proposed",
    "No guesses, no pass.",
    (DRAFT, DRAFT + "\n        if n_draft > 0 and left > 1 and not len(draft):\n            break"),
    kind="sizes",
)
patch(
    "float32_cache",
    "form",
    "a cache of float32 for any model",
    "The model's dtype is left out.",
    ("n_fed, dtype=weight.dtype, device=weight.device)", "n_fed)"),
    kind="dtype",
)
patch(
    "returns_the_prompt_itself",
    "state",
    "the caller's own tensor given back",
    "For n_new = 0 the prompt itself is returned.",
    ("return prompt.clone()", "return prompt"),
    kind="results",
)

bug, patch = MUSEUM.section("speculate", check="passes_are_saved")


@bug("cost", "guesses verified one by one")
def verifies_one_by_one(model, propose, prompt, n_new, n_draft, cache=None):
    """A pass for each guess: the text is right, and nothing is saved."""
    check_request(model, prompt, n_new, n_draft)
    if n_new == 0:
        return prompt.clone()
    n_fed = len(prompt) + n_new - 1
    if cache is None:
        cache = KVCache(model.config, 1, n_fed, dtype=model.embed.weight.dtype)
    if len(cache) + n_fed > cache.max_len:
        raise CacheFull("no room")
    text = torch.cat([prompt, greedy_next(forward_cached(model, prompt[None], cache)[:, -1])])
    while (left := len(prompt) + n_new - len(text)) > 0:
        for guess in [*propose(text, min(n_draft, left - 1)).tolist(), None]:
            token = greedy_next(forward_cached(model, text[None, -1:], cache)[:, -1])
            text = torch.cat([text, token])
            if guess != int(token):
                break
    return text


@bug("cost", "the whole text computed again for each draft")
def recomputes_the_text(model, propose, prompt, n_new, n_draft, cache=None):
    """Each pass empties the cache and feeds everything."""
    check_request(model, prompt, n_new, n_draft)
    if n_new == 0:
        return prompt.clone()
    n_fed = len(prompt) + n_new - 1
    if cache is None:
        cache = KVCache(model.config, 1, n_fed, dtype=model.embed.weight.dtype)
    if len(cache) + n_fed > cache.max_len:
        raise CacheFull("no room")
    held, text = len(cache), prompt
    while (left := len(prompt) + n_new - len(text)) > 0:
        draft = propose(text, min(n_draft, left - 1)) if len(text) > len(prompt) else text[:0]
        cache.truncate(held)
        logits = forward_cached(model, torch.cat([text, draft])[None], cache)[0]
        kept, token = verify_greedy(draft, logits[-len(draft) - 1 :])
        text = torch.cat([text, draft[:kept], torch.tensor([token])])
        cache.truncate(held + len(text) - 1)
    return text


patch(
    "plain_decoding",
    "cost",
    "guesses that nobody asks for",
    "Right, and as slow as before: propose is never called.",
    (DRAFT, "draft = text[:0]"),
)
patch(
    "one_guess_a_pass",
    "cost",
    "drafts of one token, whatever n_draft says",
    "Asks for a single guess.",
    (DRAFT, "draft = propose(text, min(n_draft, left - 1, 1))"),
)
patch(
    "shows_only_the_newest",
    "feeding",
    "a propose that sees the new tokens without the prompt",
    "Guesses continue a text that has no beginning.",
    (DRAFT, "draft = propose(text[len(prompt) :], min(n_draft, left - 1))"),
)
patch(
    "leaves_the_bonus",
    "cost",
    "passes whose own token is thrown away when all guesses are right",
    "Where all was right the bonus is left out; its row is computed again.",
    (
        BACK,
        "if kept == len(draft) > 0:\n            kept, token = kept - 1, int(draft[-1])\n        "
        + BACK,
    ),
)
patch(
    "prompt_in_two_passes",
    "feeding",
    "a prompt that goes in in two passes",
    "All but its last token first, as in lesson 02's loop.",
    (
        "logits = forward_cached(model, prompt.unsqueeze(0), cache)",
        "if len(prompt) > 1:\n        forward_cached(model, prompt[None, :-1], cache)\n"
        "    logits = forward_cached(model, prompt[None, -1:], cache)",
    ),
)
patch(
    "asks_for_one_fewer",
    "off by one",
    "drafts one token shorter than n_draft",
    "n_draft is taken for the tokens of a pass.",
    (DRAFT, "draft = propose(text, max(0, min(n_draft - 1, left - 1)))"),
)

bug, patch = MUSEUM.section("speculate", check="cache_is_left_as_alone")

patch(
    "an_empty_cache_is_false",
    "state",
    "an empty cache that is replaced by another",
    "`cache or KVCache(...)`: an empty cache has length 0, which is False.",
    ("if cache is None:", "if not cache:"),
)
patch(
    "feeds_the_last_token",
    "feeding",
    "a last token that is fed although nobody reads its logits",
    "After the loop the newest token goes into the cache, where a place is left.",
    (
        "return text",
        "if len(cache) < cache.max_len:\n        forward_cached(model, text[None, -1:], cache)\n"
        "    return text",
    ),
)
patch(
    "counts_the_cache_from_zero",
    "state",
    "a cache that is cut back to the length of the new text alone",
    "What the cache held before the call is forgotten in the count.",
    (BACK, "cache.truncate(min(len(cache), len(text) + kept))"),
)
patch(
    "wants_a_spare_place",
    "capacity",
    "a cache that is refused although the text just fits",
    "A place is wanted for the last token, which is never fed.",
    ("if len(cache) + n_fed > cache.max_len:", "if len(cache) + n_fed >= cache.max_len:"),
    ("cache = KVCache(model.config, 1, n_fed,", "cache = KVCache(model.config, 1, n_fed + 1,"),
)
patch(
    "needs_room_for_guesses",
    "capacity",
    "a last pass that needs more places than there are",
    "The last pass asks for a guess too many, which is cut off afterwards.",
    (DRAFT, "draft = propose(text, min(n_draft, left))"),
    ("return text", "return text[: len(prompt) + n_new]"),
    (
        "cache = KVCache(model.config, 1, n_fed,",
        "cache = KVCache(model.config, 1, min(n_fed + 1, 40),",
    ),
)
patch(
    "full_only_when_it_is",
    "capacity",
    "a text that is begun and cannot be ended",
    "Nobody counts places before the first pass.",
    ("if len(cache) + n_fed > cache.max_len:", "if False:"),
    kind="refusals",
)
patch(
    "empties_the_cache",
    "state",
    "a given cache that is emptied first",
    "reset() at the beginning: an earlier part of the text is lost.",
    (
        "logits = forward_cached(model, prompt",
        "cache.reset()\n    logits = forward_cached(model, prompt",
    ),
)

# --- lookup_draft ----------------------------------------------------------------------------------

LONGEST = "for n in range(min(longest, len(tokens) - 1), 0, -1):"
PLACES = "for start in reversed(range(len(tokens) - n)):"
SLICE = "return text[start + n : start + n + n_draft].clone()"
bug, patch = MUSEUM.section("lookup_draft", check="lookup_copies_what_followed")
patch(
    "earliest_place",
    "choice",
    "what followed at the earliest place",
    "Searches from the left.",
    (PLACES, "for start in range(len(tokens) - n):"),
)
patch(
    "shortest_ending_first",
    "choice",
    "the shortest ending looked for first",
    "One token always stands somewhere, and decides.",
    (LONGEST, "for n in range(1, min(longest, len(tokens) - 1) + 1):"),
)
patch(
    "finds_the_end_itself",
    "off by one",
    "the end of the text found as its own earlier place",
    "The last place is searched, too: nothing follows it.",
    (PLACES, "for start in reversed(range(len(tokens) - n + 1)):"),
)
patch(
    "no_overlap",
    "off by one",
    "places left out that overlap the end",
    "Only places that end before the ending begins.",
    (PLACES, "for start in reversed(range(len(tokens) - 2 * n + 1)):"),
)
patch(
    "copies_the_match",
    "off by one",
    "the ending itself proposed once more",
    "The slice begins at the match, not behind it.",
    (SLICE, "return text[start : start + n_draft].clone()"),
)
patch(
    "skips_a_token",
    "off by one",
    "the first token that followed left out",
    "One place too far.",
    (SLICE, "return text[start + n + 1 : start + n + 1 + n_draft].clone()"),
)
patch(
    "copies_to_the_end",
    "off by one",
    "all that followed, however many were wanted",
    "n_draft is forgotten.",
    (SLICE, "return text[start + n :].clone()"),
)
patch(
    "only_full_drafts",
    "choice",
    "places left out behind which too little follows",
    "A draft must have all n_draft tokens.",
    (PLACES, "for start in reversed(range(len(tokens) - n - n_draft + 1)):"),
)
patch(
    "only_the_longest",
    "choice",
    "endings of the full length and no shorter ones",
    "No backing off.",
    (LONGEST, "for n in [longest] if longest < len(tokens) else []:"),
)
patch(
    "always_three",
    "form",
    "endings of three tokens, whatever was asked for",
    "The argument is not used.",
    (LONGEST, "for n in range(min(3, len(tokens) - 1), 0, -1):"),
)
patch(
    "never_one",
    "off by one",
    "endings of one token never looked for",
    "The range ends at 2.",
    (LONGEST, "for n in range(min(longest, len(tokens) - 1), 1, -1):"),
)
patch(
    "guesses_anyway",
    "choice",
    "the last token repeated where nothing was found",
    "Something must come, so the last token is proposed.",
    ("return text[:0].clone()", "return text[-1:].repeat(n_draft)"),
)
patch(
    "one_at_least",
    "off by one",
    "a guess where none is wanted",
    "n_draft 0 gives one token.",
    (SLICE, "return text[start + n : start + n + max(n_draft, 1)].clone()"),
    kind="sizes",
)
patch(
    "a_list",
    "form",
    "a list of tokens",
    "tolist() at the end.",
    (SLICE, "return text[start + n : start + n + n_draft].tolist()"),
)
patch(
    "a_view",
    "state",
    "a view of the text",
    "A slice shares the text's memory.",
    (SLICE, "return text[start + n : start + n + n_draft]"),
    kind="results",
)

# --- verify_sampled --------------------------------------------------------------------------------

REJECTS = "if torch.rand((), generator=generator) * q[i, token] >= p[i, token]:"
MISSING = "missing = (p[i] - q[i]).clamp(min=0)"
LAST = "return len(draft), int(torch.multinomial(p[-1], 1, generator=generator))"
bug, patch = MUSEUM.section("verify_sampled", check="first_token_has_the_models_odds")
patch(
    "first_rejection_is_a_plain_step",
    "sampling",
    "a first token drawn from p after a rejection",
    "Nothing was kept, so it is an ordinary step: those that were rejected get a second chance.",
    (MISSING, "missing = (p[i] - q[i]).clamp(min=0) if i else p[0]"),
)
patch(
    "resamples_from_p",
    "sampling",
    "a token drawn from p after each rejection",
    "What the draft proposes too rarely is not made up for.",
    (MISSING, "missing = p[i]"),
)
patch(
    "from_p_without_the_token",
    "sampling",
    "a token drawn from p without the rejected one",
    "Only the rejected token is struck out.",
    (MISSING, "missing = p[i].clone()\n            missing[token] = 0"),
)
patch(
    "absolute_difference",
    "sampling",
    "a token drawn from |p - q|",
    "abs in the place of the little plus.",
    (MISSING, "missing = (p[i] - q[i]).abs()"),
)
patch(
    "difference_upside_down",
    "sampling",
    "a token drawn from what the draft proposes too often",
    "Gives those that the draft says too often anyway.",
    (MISSING, "missing = (q[i] - p[i]).clamp(min=0)"),
)
patch(
    "likeliest_of_the_missing",
    "sampling",
    "the likeliest missing token, without a draw",
    "argmax of the residual.",
    (
        "return i, int(torch.multinomial(missing, 1, generator=generator))",
        "return i, int(missing.argmax())",
    ),
)
patch(
    "keeps_by_p_alone",
    "sampling",
    "guesses kept with probability p",
    "q is not used: u < p.",
    (REJECTS, "if torch.rand((), generator=generator) >= p[i, token]:"),
)
patch(
    "ratio_upside_down",
    "sampling",
    "guesses kept by a ratio upside down",
    "The ratio upside down.",
    (REJECTS, "if torch.rand((), generator=generator) * p[i, token] >= q[i, token]:"),
)
patch(
    "keeps_where_p_is_larger",
    "sampling",
    "guesses kept where the model gives them no less, and never otherwise",
    "A threshold in the place of a draw.",
    (REJECTS, "if p[i, token] < q[i, token]:"),
)
patch(
    "keeps_everything",
    "sampling",
    "guesses that are all kept",
    "The odds are those of the draft.",
    (REJECTS, "if False:"),
)
patch(
    "greedy_rule_for_draws",
    "sampling",
    "guesses kept where they are the likeliest token",
    "Lesson part 1's rule.",
    (REJECTS, "if token != int(p[i].argmax()):"),
)
patch(
    "own_randomness",
    "sampling",
    "random numbers that the generator does not decide",
    "torch.rand without the generator.",
    (REJECTS, "if torch.rand(()) * q[i, token] >= p[i, token]:"),
    kind="instances",
)
patch(
    "a_seed_of_its_own",
    "sampling",
    "the same random numbers in every call",
    "A generator with a fixed seed.",
    ("for i, token in enumerate(draft.tolist()):",
     "generator = torch.Generator().manual_seed(0)\n    for i, token in enumerate(draft.tolist()):"),
    kind="instances",
)  # fmt: skip
patch(
    "other_temperature",
    "sampling",
    "a q of another temperature",
    "q is sharpened before it is compared.",
    ("for i, token in enumerate(draft.tolist()):",
     "q = q**2 / (q**2).sum(dim=-1, keepdim=True)\n    for i, token in enumerate(draft.tolist()):"),
)  # fmt: skip

bug, patch = MUSEUM.section("verify_sampled", check="so_have_the_second_and_the_bonus")
patch(
    "one_number_for_all",
    "sampling",
    "one random number for all guesses",
    "u is drawn once: who passed the first is likelier to pass the second.",
    ("for i, token in enumerate(draft.tolist()):",
     "u = torch.rand((), generator=generator)\n    for i, token in enumerate(draft.tolist()):"),
    (REJECTS, "if u * q[i, token] >= p[i, token]:"),
)  # fmt: skip
patch(
    "first_row_of_q",
    "sampling",
    "the first row of q for every guess",
    "q[0] where q[i] is meant.",
    (REJECTS, "if torch.rand((), generator=generator) * q[0, token] >= p[i, token]:"),
)
patch(
    "first_row_of_p",
    "sampling",
    "the first row of p for every guess",
    "p[0] where p[i] is meant.",
    (REJECTS, "if torch.rand((), generator=generator) * q[i, token] >= p[0, token]:"),
)
patch(
    "missing_to_the_first_row",
    "sampling",
    "what is missing to the first row, at any place",
    "p[0] - q[0].",
    (MISSING, "missing = (p[0] - q[0]).clamp(min=0)"),
)
patch(
    "bonus_from_the_last_judged_row",
    "off by one",
    "a bonus from the row that judged the last guess",
    "Row K - 1.",
    (LAST, LAST.replace("p[-1]", "p[max(len(draft) - 1, 0)]")),
)
patch(
    "likeliest_bonus",
    "sampling",
    "a bonus that is not drawn",
    "argmax of the last row.",
    (LAST, "return len(draft), int(p[-1].argmax())"),
)
patch(
    "bonus_from_q",
    "sampling",
    "a bonus that the draft draws",
    "The last row of q.",
    (LAST, LAST.replace("p[-1]", "(q[-1] if len(q) else p[-1])")),
)
patch(
    "goes_on_after_a_rejection",
    "sampling",
    "guesses kept behind a rejected one",
    "A rejected first guess is replaced, and the loop goes on with those behind it.",
    (REJECTS,
     "if i and torch.rand((), generator=generator) * q[i, token] * 0.5 >= p[i, token]:\n"
     "            break\n"
     "        if not i and torch.rand((), generator=generator) * q[i, token] >= p[i, token]:"),
)  # fmt: skip

bug, patch = MUSEUM.section("verify_sampled", check="accepts_as_often_as_possible")


@bug("cost", "guesses kept only where they equal a draw from p")
def keeps_equal_draws(draft, q, p, generator=None):
    """Draws from p first and keeps the guess if it is the same token: the odds are right, and far fewer
    are kept."""
    check_odds(draft, q, p)
    for i, token in enumerate(draft.tolist()):
        drawn = int(torch.multinomial(p[i], 1, generator=generator))
        if drawn != token:
            return i, drawn
    return len(draft), int(torch.multinomial(p[-1], 1, generator=generator))


patch(
    "keeps_none",
    "cost",
    "guesses that are never kept",
    "An ordinary step: nothing is saved.",
    (LAST, "return 0, int(torch.multinomial(p[0], 1, generator=generator))"),
    ("for i, token in enumerate(draft.tolist()):", "for i, token in enumerate([]):"),
)

# --- expected_tokens -------------------------------------------------------------------------------

SUM = "float(sum(acceptance**i for i in range(n_draft + 1)))"
bug, patch = MUSEUM.section("expected_tokens", check="expected_tokens_add_up")
patch(
    "without_the_models_own",
    "formula",
    "guesses alone, without the token that every pass writes",
    "A training site's formula: a(1 - a^K) / (1 - a).",
    (SUM, "float(sum(acceptance**i for i in range(1, n_draft + 1)))"),
)
patch(
    "product_of_both",
    "formula",
    "1 + a K tokens",
    "As if guesses behind a wrong one counted.",
    (SUM, "1 + acceptance * n_draft"),
)
patch(
    "one_power_too_few",
    "off by one",
    "one power too few",
    "The sum ends at a^(K - 1).",
    (SUM, "float(sum(acceptance**i for i in range(max(n_draft, 1))))"),
)
patch(
    "one_power_too_many",
    "off by one",
    "one power too many",
    "The sum ends at a^(K + 1).",
    (SUM, "float(sum(acceptance**i for i in range(n_draft + 2)))"),
)
patch(
    "only_all_or_nothing",
    "formula",
    "drafts kept whole or not at all",
    "1 + K a^K.",
    (SUM, "1 + n_draft * acceptance**n_draft"),
)
patch(
    "endless_drafts",
    "formula",
    "drafts without an end",
    "1 / (1 - a): K is not in it.",
    (SUM, "1 / (1 - acceptance) if acceptance < 1 else n_draft + 1"),
)
patch(
    "stops_at_all_right",
    "formula",
    "a division by zero where all guesses are right",
    "The closed form, and a = 1.",
    (SUM, "(1 - acceptance ** (n_draft + 1)) / (1 - acceptance)"),
    kind="sizes",
)
patch(
    "probability_of_all",
    "formula",
    "the probability that all are right",
    "a^K.",
    (SUM, "acceptance**n_draft"),
)
