"""Lesson 12: Guess, then verify.

Built from solutions/12-speculative/speculative.py by `make build`: change it there.
"""

from collections.abc import Callable

import torch
from torch import Tensor

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
from course.model.cache import CacheFull, KVCacheLike


def verify_greedy(draft: Tensor, logits: Tensor) -> tuple[int, int]:
    """How many drafted tokens the model would have chosen itself, and the token that follows them.

    Args:
        draft: (K,) int64; K may be 0.
        logits: (K + 1, V), after the last sure token and after each drafted one.

    Returns:
        (kept, token): two ints, kept from 0 to K.
    """
    check_draft(draft, logits)
    chosen = greedy_next(logits).tolist()  # K + 1
    for place, guess in enumerate(draft.tolist()):
        if guess != chosen[place]:
            return place, chosen[place]
    return len(draft), chosen[-1]


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
    tokens = text.tolist()
    for n in range(min(longest, len(tokens) - 1), 0, -1):
        for start in reversed(range(len(tokens) - n)):
            if tokens[start : start + n] == tokens[-n:]:
                return text[start + n : start + n + n_draft].clone()
    return text[:0].clone()


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
    for i, token in enumerate(draft.tolist()):
        if torch.rand((), generator=generator) * q[i, token] >= p[i, token]:
            missing = (p[i] - q[i]).clamp(min=0)  # (V,)
            return i, int(torch.multinomial(missing, 1, generator=generator))
    return len(draft), int(torch.multinomial(p[-1], 1, generator=generator))


def expected_tokens(acceptance: float, n_draft: int) -> float:
    """Mean number of tokens that a pass writes.

    Args:
        acceptance: a, the probability of each drafted token to be right, 0 … 1.
        n_draft: K, 0 or more.
    """
    check_expected(acceptance, n_draft)
    return float(sum(acceptance**i for i in range(n_draft + 1)))
