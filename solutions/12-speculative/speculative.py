# %% [markdown]
# # 12 · Guess, then verify
#
# {{badge}}
#
# A token costs a pass over all weights. But a pass over five tokens costs far less than five passes.
# So let something cheap guess the next four, and let the model check them all at once. This is called
# *speculative decoding*.
#
# **After this lesson you can**
#
# * write several tokens in one pass, and get *exactly* the text that the model writes alone,
# * sample from the model's own distribution while another model guesses,
# * roll a cache back to the tokens that were accepted,
# * say when a draft makes decoding slower.
#
# **You build:** greedy and sampled verification, a draft by lookup, and the loop around them.
# **Time:** 90 minutes. **Points:** 10. **Needs:** lessons 01, 03 and 04 (your answers, or ours).
#
# > **Predict.** Two other models draft for ours, and both are right 8 times out of 10. One makes decoding
# > much slower. How can that be? And is a guess accepted more often when tokens are chosen greedily or
# > when they are drawn?

# %% tags=["setup"]

# %% tags=["export"]
from collections.abc import Callable

import torch
from torch import Tensor

from course.model.cache import CacheFull, KVCacheLike
from course.drafts.rules import (
    check_draft,
    check_expected,
    check_lookup,
    check_odds,
    check_request,
)
from course.minigpt.kv_cache import KVCache, forward_cached
from course.minigpt.mini_gpt import greedy_next
from course.model import MiniGPT

# %%
import sys

from tqdm.auto import tqdm

from course.checks import speculative as checks
from course.drafts.model import ModelDraft, acceptance, first_layers
from course.drafts.race import race
from course.drafts.sampled import draw_twice
from course.drafts.table import NextWords, NextWordsAndOwn
from course.measure.machine import interleaved, one_thread
from course.minigpt.kv_cache import generate_cached
from course.plots.speculative import (
    draw_drafts,
    draw_marks,
    draw_pairs,
    draw_pass_times,
    draw_rejection,
)
from course.plots.style import show
from course.widgets.speculative import play_with_drafts
from course.world.evaluation import held_out
from course.world.tokenizer import encode

story, mini, sibling = (MiniGPT.from_weights(name) for name in ("story", "mini", "story-g1"))
prompts = [encode(" ".join(text.text.split()[:60]))[0] for text in held_out(4)]

# %% [markdown]
# ## The picture
#
# Time of one pass over n tokens after 100 cached ones:

# %%
cache = KVCache(story.config, 1, 200)
forward_cached(story, prompts[0].repeat(2)[None, :100], cache)


def one_pass(n):
    """A pass over n tokens, after which the cache is as before."""

    def run():
        forward_cached(story, prompts[1][None, :n], cache)
        cache.truncate(100)

    return run


with one_thread():
    passes = interleaved({n: one_pass(n) for n in (1, 2, 3, 5, 9, 17, 33)}, rounds=25)
show(draw_pass_times(passes))

# %% [markdown]
# A pass reads the weights and launches its operations once for all its tokens (lesson 05; a mixture of
# experts differs: lesson 16). Extra tokens cost little (read the numbers below the figure), which leaves
# room for guesses.
#
# ## 1 · Which guesses were right?
#
# *Difficulty 2 of 5 · importance 5 of 5 · 10 minutes*
#
# The model read the last sure token and K drafted ones together: K + 1 rows of logits. Row 0 says what
# follows the sure token, row 1 what follows the first drafted one, if that was right.
#
# Keep drafted tokens **as long as** each is the model's own choice. Row `kept`, which follows the last
# kept token, gives one more token for free: a *correction* if a guess was wrong, a *bonus* if none was.
# So a pass writes 1 to K + 1 tokens, never 0.
#
# **The common wrong answer** counts every guess that agrees. A guess after a wrong one continues a text
# that does not exist.
#
# Write `verify_greedy`: how many drafted tokens are kept, and which token follows them.
#
# <details><summary>Hint 1: the idea</summary>
# Which row judges draft[0]? At which place do you stop?
# </details>
# <details><summary>Hint 2: the numbers</summary>
# Draft 7, 3, 9; the rows' likeliest tokens: 7, 4, 9, 2. One is kept, and 4 follows.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>greedy_next</code> gives all K + 1 choices. Walk over the draft; return at the first
# difference. K = 0 needs no case of its own.
# </details>


# %% nbgrader={"grade_id": "verify_greedy", "solution": true}
def verify_greedy(draft: Tensor, logits: Tensor) -> tuple[int, int]:
    """How many drafted tokens the model would have chosen itself, and the token that follows them.

    Args:
        draft: (K,) int64; K may be 0.
        logits: (K + 1, V), after the last sure token and after each drafted one.

    Returns:
        (kept, token): two ints, kept from 0 to K.
    """
    check_draft(draft, logits)
    ### BEGIN SOLUTION
    chosen = greedy_next(logits).tolist()  # K + 1
    for place, guess in enumerate(draft.tolist()):
        if guess != chosen[place]:
            return place, chosen[place]
    return len(draft), chosen[-1]
    ### END SOLUTION


# %% nbgrader={"grade_id": "only_right_guesses_are_kept", "points": 1}
checks.only_right_guesses_are_kept(verify_greedy)

# %% [markdown]
# ## 2 · The loop
#
# *Difficulty 4 of 5 · importance 5 of 5 · 15 minutes*
#
# Feed the prompt alone to get the first token. Then repeat: ask `propose` for a draft, feed the newest
# token and the draft **in one pass**, verify, and **roll back**: remove the rows of rejected guesses from
# the cache, or the next token attends to words that nobody said. After each pass the cache holds all but
# the newest token.
#
# The last pass must not write past the end: ask for no more guesses than you can use.
#
# Write `speculate`: the text of `generate_cached`, in fewer passes.
#
# <details><summary>Hint 1: the idea</summary>
# Two things grow together: the text, and the cache, which stays one token behind. What did a pass
# feed, and how much of it was right?
# </details>
# <details><summary>Hint 2: the numbers</summary>
# Cache 20, text 21; of a draft of 4, two are kept. You feed 5, so the cache holds 25; the text has 24
# tokens, so the cache must go back to 23. With three tokens to write, the pass itself gives one: ask for
# 2.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>while</code> the text is too short: <code>propose</code>, <code>torch.cat</code>,
# <code>forward_cached</code>, <code>verify_greedy</code>, <code>cache.truncate</code>. The cache's length
# includes what it held before the call.
# </details>


# %% nbgrader={"grade_id": "speculate", "solution": true}
def speculate(
    model: MiniGPT,
    propose: Callable[[Tensor, int], Tensor],
    prompt: Tensor,
    n_new: int,
    n_draft: int,
    cache: KVCacheLike | None = None,
) -> Tensor:
    """Continue a prompt greedily, with guesses: exactly the text of `generate_cached`, in fewer passes.

    The prompt goes through the model in one pass, without a draft; each further pass feeds the newest
    token and a draft.

    Args:
        propose: called with the whole text so far, (S,) int64, and a number k from 0 to n_draft; gives
            (<= k,) int64, perhaps no token at all.
        prompt: (P,) int64.
        n_new: tokens to write, 0 or more.
        n_draft: largest number of tokens to ask `propose` for, 0 or more.
        cache: of one row; may hold an earlier part of the text, which the prompt continues. Left out, a
            new one of the model's dtype is made, on its device.

    Returns:
        A tensor of its own, (P + n_new,) int64. The cache then holds all but the last token. For
        n_new = 0 nothing is fed.

    Raises:
        ValueError: a prompt or a number that cannot be used.
        CacheFull: before any pass: the cache given has no room for P + n_new - 1 tokens more. With just
            so much room the text is written.
    """
    check_request(model, prompt, n_new, n_draft)
    ### BEGIN SOLUTION
    n_fed = len(prompt) + n_new - 1
    if n_new == 0:
        return prompt.clone()
    if cache is None:
        weight = model.embed.weight
        cache = KVCache(model.config, 1, n_fed, dtype=weight.dtype, device=weight.device)
    if len(cache) + n_fed > cache.max_len:
        raise CacheFull(f"{n_fed} tokens more than {len(cache)} of {cache.max_len} places")
    logits = forward_cached(model, prompt.unsqueeze(0), cache)  # (1, P, V)
    text = torch.cat([prompt, greedy_next(logits[:, -1])])
    while (left := len(prompt) + n_new - len(text)) > 0:
        draft = propose(text, min(n_draft, left - 1))
        fed = torch.cat([text[-1:], draft]).unsqueeze(0)  # (1, 1 + K)
        kept, token = verify_greedy(draft, forward_cached(model, fed, cache)[0])
        cache.truncate(len(cache) - len(draft) + kept)
        text = torch.cat([text, draft[:kept], text.new_tensor([token])])
    return text
    ### END SOLUTION


# %% nbgrader={"grade_id": "every_draft_gives_the_same_text", "points": 2}
checks.every_draft_gives_the_same_text(speculate)

# %% nbgrader={"grade_id": "passes_are_saved", "points": 1}
checks.passes_are_saved(speculate)

# %% nbgrader={"grade_id": "cache_is_left_as_alone", "points": 1}
checks.cache_is_left_as_alone(speculate)

# %% [markdown]
# ## 3 · A draft without a model
#
# *Difficulty 2 of 5 · importance 4 of 5 · 10 minutes*
#
# Code, summaries and chats repeat themselves. So find where the last tokens occurred before, and propose
# what followed them there (*prompt lookup*, Saxena 2023).
#
# Write `lookup_draft`: what followed the last tokens earlier in the text.
#
# <details><summary>Hint 1: the idea</summary>
# Start with the longest ending: walk back through the text until you find it again.
# </details>
# <details><summary>Hint 2: the numbers</summary>
# Text 5, 8, 5, 9, 5, n_draft 2: 5 occurred at places 0 and 2; the later one counts: 9, 5. Text 5, 5, 5:
# the ending 5, 5 also occurs at place 0, followed by 5.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Two loops: n from <code>longest</code> down to 1, places from right to left; the first match returns a
# slice. If nothing matches, return an empty slice.
# </details>


# %% nbgrader={"grade_id": "lookup_draft", "solution": true}
def lookup_draft(text: Tensor, n_draft: int, longest: int = 3) -> Tensor:
    """Propose what followed the end of the text where it stood before.

    The last `longest` tokens are looked for; where they stand nowhere earlier, fewer, down to one. Of
    several earlier places the latest counts; it may overlap the end.

    Args:
        text: (S,) int64, S at least 1.
        n_draft: tokens wanted, 0 or more.
        longest: tokens of the longest ending, at least 1.

    Returns:
        (<= n_draft,) int64, a tensor of its own: as many tokens as followed there, at most n_draft; none
        where even the last token is new.
    """
    check_lookup(text, n_draft, longest)
    ### BEGIN SOLUTION
    tokens = text.tolist()
    for n in range(min(longest, len(tokens) - 1), 0, -1):
        for start in reversed(range(len(tokens) - n)):
            if tokens[start : start + n] == tokens[-n:]:
                return text[start + n : start + n + n_draft].clone()
    return text[:0].clone()
    ### END SOLUTION


# %% nbgrader={"grade_id": "lookup_copies_what_followed", "points": 1}
checks.lookup_copies_what_followed(lookup_draft)

# %% [markdown]
# Six drafts propose four tokens at a time to the story model. `mini` is a sixth of its size, `story-g1`
# is a sibling as deep as the story model, and `2 of 4 layers` is its lower half. The table holds, for
# each run of up to four words in 300 stories, the word that followed most often. Which is fastest?

# %%
table = NextWords.of_stories(300)
drafts = {
    "mini": lambda: ModelDraft(mini, 180).propose,
    "story-g1": lambda: ModelDraft(sibling, 180).propose,
    "2 of 4 layers": lambda: ModelDraft(first_layers(story, 2), 180).propose,
    "lookup": lambda: lookup_draft,
    "table": lambda: table.propose,
    "table + own text": lambda: NextWordsAndOwn(table).propose,
}
found = {}
with one_thread(), tqdm(total=3 * 2, file=sys.stdout) as bar:
    found = race(story, drafts, prompts[:2], 120, 4, speculate, generate_cached, 3, bar.update)
show(draw_drafts(found))
show(draw_marks(prompts[1], found["table + own text"]))

# %% [markdown]
# Your prediction: two drafts guess about equally well, and one of them is far slower. Where launching
# operations dominates (lesson 05), a draft model as deep as the large one takes as long to guess a token
# as the large one to write it, and even half as deep a draft costs more than its guesses save. The table
# guesses worse but wins, since a guess costs next to nothing. So it does with `lookup`, but that is right
# so rarely that a pass of five, dearer than a pass of one, and the Python around it take all it gains. On
# accelerators, a 4B draft made a 70B model 2 to 2.5 times as fast (Chen et al. 2023).
#
# ## 4 · When tokens are drawn
#
# *Difficulty 5 of 5 · importance 4 of 5 · 15 minutes*
#
# At temperature 1 no token is the right one: the model has probabilities p, the draft q. May the draft's
# favourites show in the text? No: the text must be distributed *as if the draft did not exist*.

# %%
show(draw_rejection())

# %% [markdown]
# The draft drew a token from q. If p ≥ q, keep it: the draft proposes it too rarely anyway. If p < q, it
# is proposed too often, so keep it with probability **p / q**. The kept tokens add up to min(p, q), blue.
# What is missing from p, plain orange on the right, is **(p − q)⁺**: after a rejection, draw the token
# from that, normalised, and discard the rest of the draft. If all are accepted, draw one more token from
# the last row of p. This is *speculative sampling*, a modified rejection sampling; no rule that preserves
# p and judges one token at a time accepts more often. A rule that judges the whole draft does (*block
# verification*, Sun et al. 2025).
#
# Write `verify_sampled`: how many drafted tokens are kept, and which token follows them.
#
# <details><summary>Hint 1: the idea</summary>
# Draw one uniform number for each drafted token. How do you use it, and what follows the first "no"?
# </details>
# <details><summary>Hint 2: the numbers</summary>
# q = .8, .2; p = .5, .5. Token 0 comes and is kept with probability {{0.625 = 0.5 / 0.8}}. If not, what
# is missing is 0, .3: token 1.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>torch.rand</code> and <code>torch.multinomial</code>, both with the generator; the latter
# normalises weights itself. <code>clamp(min=0)</code> is the superscript plus.
# </details>


# %% nbgrader={"grade_id": "verify_sampled", "solution": true}
def verify_sampled(
    draft: Tensor, q: Tensor, p: Tensor, generator: torch.Generator | None = None
) -> tuple[int, int]:
    """How many drafted tokens are kept, and the token that follows them, so that tokens are distributed
    as p says.

    Args:
        draft: (K,) int64, drawn from q; K may be 0.
        q: (K, V), the probabilities that each drafted token was drawn from.
        p: (K + 1, V), those of the model, after the last sure token and after each drafted one.
        generator: where all random numbers come from; None is torch's own.

    Returns:
        (kept, token): two ints, kept from 0 to K.

    Raises:
        ValueError: shapes that do not fit, or rows that are no probabilities.
    """
    check_odds(draft, q, p)
    ### BEGIN SOLUTION
    for i, token in enumerate(draft.tolist()):
        if torch.rand((), generator=generator) * q[i, token] >= p[i, token]:
            missing = (p[i] - q[i]).clamp(min=0)  # (V,)
            return i, int(torch.multinomial(missing, 1, generator=generator))
    return len(draft), int(torch.multinomial(p[-1], 1, generator=generator))
    ### END SOLUTION


# %% nbgrader={"grade_id": "first_token_has_the_models_odds", "points": 1}
checks.first_token_has_the_models_odds(verify_sampled)

# %% nbgrader={"grade_id": "so_have_the_second_and_the_bonus", "points": 1}
checks.so_have_the_second_and_the_bonus(verify_sampled)

# %% nbgrader={"grade_id": "accepts_as_often_as_possible", "points": 1}
checks.accepts_as_often_as_possible(verify_sampled)

# %% [markdown]
# How often are guesses accepted, over all places of four texts?

# %%
texts = [generate_cached(story, prompt[None], 120)[0] for prompt in prompts]
print("draft           greedy  sampled")
for name, model in (
    ("mini", mini),
    ("story-g1", sibling),
    ("2 of 4 layers", first_layers(story, 2)),
):
    greedy, sampled = acceptance(story, model, texts)
    print(f"{name:<15} {greedy:6.2f} {sampled:8.2f}")

# %% [markdown]
# Good drafts are accepted more often when sampling: where the model wavers between two names, greedy
# verification rejects half of the guesses; min(p, q) accepts nearly all.
#
# And the text? We draw two words 2,000 times each: from the model alone, with `mini`'s guesses judged by
# your rule, and with every guess kept.

# %%
start = encode("Kenji Snow came in with a black lamp. He put the black lamp in the shed. The")[0]


def keep(draft, q, p, generator):
    return 1, int(torch.multinomial(p[1], 1, generator=generator))


counts = {
    "model alone": draw_twice(start, 2000, story),
    "your rule": draw_twice(start, 2000, story, mini, verify_sampled, seed=1),
    "every guess kept": draw_twice(start, 2000, story, mini, keep, seed=2),
}
show(draw_pairs(counts))

# %% [markdown]
# With your rule nobody can tell that there was a draft: the gaps are chance. If every guess is kept,
# `mini`'s favourites show in the text.
#
# ## 5 · What to expect
#
# *Difficulty 2 of 5 · importance 4 of 5 · 5 minutes*
#
# Let each drafted token be right with probability a, whatever came before. Write
# `expected_tokens`: how many tokens does a pass write on average?
#
# <details><summary>Hint 1: the idea</summary>
# The i-th drafted token is kept if it and all before it are right. Then add the token that always comes.
# </details>
# <details><summary>Hint 2: the numbers</summary>
# a = .5, K = 2: 1 + .5 + .25.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# A <code>sum</code> of powers. Its closed form divides by 1 − a, which may be 0.
# </details>


# %% nbgrader={"grade_id": "expected_tokens", "solution": true}
def expected_tokens(acceptance: float, n_draft: int) -> float:
    """Mean number of tokens that a pass writes.

    Args:
        acceptance: a, the probability of each drafted token to be right, 0 … 1.
        n_draft: K, 0 or more.
    """
    check_expected(acceptance, n_draft)
    ### BEGIN SOLUTION
    return float(sum(acceptance**i for i in range(n_draft + 1)))
    ### END SOLUTION


# %% nbgrader={"grade_id": "expected_tokens_add_up", "points": 1}
checks.expected_tokens_add_up(expected_tokens)

# %% [markdown]
# If drafting one token costs c steps of the model, decoding is expected_tokens / (1 + K c) times as fast
# (Leviathan et al. 2023). This ignores Python, and that a pass over K + 1 tokens takes longer than a
# step: in place of the 1, take that ratio from the first figure.

# %%
play_with_drafts(expected_tokens, found, 4)

# %% [markdown]
# > **Spot the slip.** A tutorial computes the speed-up as a(1 − a^K) / ((1 − a)(1 + Kc)). For a = .8, K
# > = 4, c = .1 that is {{1.69 = 0.8 * (1 - 0.8**4) / (0.2 * 1.4)}}.
#
# <details><summary>Answer</summary>
# The formula omits the model's own token, which every pass writes: {{2.40 = (1 - 0.8**5) / (0.2 * 1.4)}}
# is right. At a = 0 the site's formula says that decoding stops.
# </details>
#
# ## Check yourself
#
# <details><summary>90 % of the guesses are right. Is decoding 10 times as fast?</summary>
# With K = 4 a pass writes {{4.10 = (1 - 0.9**5) / 0.1}} tokens on average, and never more than 5;
# drafting takes time. <em>Common wrong answer:</em> "yes, only one token in ten needs the model". K
# limits the gain.
# </details>
# <details><summary>Does a bad draft spoil the text?</summary>
# No, it costs time. <em>Common wrong answer:</em> "the small model's mistakes get in". Nothing gets in
# that the large one did not choose.
# </details>
# <details><summary>Why does verify_sampled need q?</summary>
# A token that the draft proposes too often must be rejected in proportion. <em>Common wrong answer:</em>
# "accept with probability p": then far too many are rejected and the distribution is wrong.
# </details>
# <details><summary>A full ring of lesson 08 refuses to go back. Why?</summary>
# The rejected tokens have overwritten the oldest rows, which are gone. <em>Common wrong answer:</em>
# "truncate is only a number". True where nothing was overwritten; in lesson 17, every token overwrites
# everything.
# </details>
#
# ## Next
#
# **13 · Latent attention** shrinks the rows themselves, and puts your parts together into an engine.
