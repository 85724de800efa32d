"""Right answers to lesson 12 in other styles: every check must pass them."""

from __future__ import annotations

from itertools import accumulate, takewhile

import numpy as np
import torch

from autograder.lessons.exhibits import Variant
from course.drafts.rules import (
    check_draft,
    check_expected,
    check_lookup,
    check_odds,
    check_request,
)
from course.minigpt.kv_cache import KVCache, forward_cached
from course.minigpt.speculative import verify_greedy
from course.model.cache import CacheFull

# --- verify_greedy -------------------------------------------------------------------------------


def greedy_by_cumprod(draft, logits):
    check_draft(draft, logits)
    best = logits.argmax(dim=-1)
    kept = (draft == best[:-1]).long().cumprod(dim=0).sum()
    return int(kept), int(best[kept])


def greedy_by_takewhile(draft, logits):
    check_draft(draft, logits)
    best = [int(row.argmax()) for row in logits]
    kept = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(draft.tolist(), best))))  # noqa: B905
    return kept, best[kept]


def greedy_in_numpy(draft, logits):
    check_draft(draft, logits)
    best = logits.numpy().argmax(axis=1)
    wrong = np.flatnonzero(draft.numpy() != best[:-1])
    kept = int(wrong[0]) if wrong.size else len(draft)
    return kept, int(best[kept])


def greedy_token_by_token(draft, logits):
    check_draft(draft, logits)
    for i, guess in enumerate(draft):
        choice = torch.max(logits[i], dim=0).indices
        if guess != choice:
            return i, choice.item()
    return draft.numel(), logits[-1].argmax().item()


# --- speculate -----------------------------------------------------------------------------------


def _room(model, cache, n):
    if cache is None:
        return KVCache(model.config, 1, n, model.embed.weight.dtype, model.embed.weight.device)
    if cache.max_len - len(cache) < n:
        raise CacheFull("no room")
    return cache


def speculate_in_a_list(model, propose, prompt, n_new, n_draft, cache=None):
    """The text as a list; the cache goes back to where the text says."""
    check_request(model, prompt, n_new, n_draft)
    text, size = prompt.tolist(), len(prompt) + n_new
    if not n_new:
        return prompt.new_tensor(text)
    cache = _room(model, cache, size - 1)
    before = len(cache)
    text.append(int(forward_cached(model, prompt[None], cache)[0, -1].argmax()))
    while len(text) < size:
        guesses = propose(prompt.new_tensor(text), min(n_draft, size - len(text) - 1)).tolist()
        logits = forward_cached(model, prompt.new_tensor([[text[-1], *guesses]]), cache)[0]
        best = logits.argmax(dim=-1).tolist()
        kept = 0
        while kept < len(guesses) and guesses[kept] == best[kept]:
            kept += 1
        text += best[: kept + 1]
        cache.truncate(before + len(text) - 1)
    return prompt.new_tensor(text)


def speculate_in_a_buffer(model, propose, prompt, n_new, n_draft, cache=None):
    """A text of its full length, filled from the left; asks for too much, and uses what it can."""
    check_request(model, prompt, n_new, n_draft)
    n, end = len(prompt), len(prompt) + n_new
    text = prompt.new_zeros(end)
    text[:n] = prompt
    if n_new == 0:
        return text
    cache = _room(model, cache, end - 1)
    feed = text[:n]
    draft = text[:0]
    while n < end:
        logits = forward_cached(model, torch.cat([feed, draft])[None], cache)
        kept, token = verify_greedy(draft, logits[0, -len(draft) - 1 :])
        text[n : n + kept] = draft[:kept]
        text[n + kept] = token
        cache.truncate(len(cache) - (len(draft) - kept))
        n += kept + 1
        feed = text[n - 1 : n].clone()
        if n < end:
            draft = propose(text[:n].clone(), n_draft)[: end - n - 1]
    return text


def speculate_with_pieces(model, propose, prompt, n_new, n_draft, cache=None):
    """Pieces of the text in a list; no draft where none can be used."""
    check_request(model, prompt, n_new, n_draft)
    if n_new == 0:
        return torch.clone(prompt)
    cache = _room(model, cache, len(prompt) + n_new - 1)
    newest = forward_cached(model, prompt.view(1, -1), cache)[0, -1].argmax().view(1)
    pieces, left = [prompt, newest], n_new - 1
    while left:
        k = min(n_draft, left - 1)
        draft = propose(torch.cat(pieces), k) if k else newest[:0]
        mark = len(cache)
        logits = forward_cached(model, torch.cat([newest, draft]).view(1, -1), cache).squeeze(0)
        kept, token = verify_greedy(draft, logits)
        cache.truncate(mark + 1 + kept)
        newest = prompt.new_tensor([token])
        pieces += [draft[:kept], newest]
        left -= kept + 1
    return torch.cat(pieces)


def speculate_recursive(model, propose, prompt, n_new, n_draft, cache=None):
    check_request(model, prompt, n_new, n_draft)
    if n_new == 0:
        return prompt.clone()
    cache = _room(model, cache, len(prompt) + n_new - 1)

    def rest(text, feed, draft, left):
        logits = forward_cached(model, torch.cat((feed, draft)).unsqueeze(0), cache)
        kept, token = verify_greedy(draft, logits[0, len(feed) - 1 :])
        cache.truncate(len(cache) + kept - len(draft))
        text = torch.cat((text, draft[:kept], text.new_tensor([token])))
        left -= kept + 1
        if left == 0:
            return text
        return rest(text, text[-1:], propose(text, min(left - 1, n_draft)), left)

    return rest(prompt, prompt, prompt[:0], n_new)


# --- verify_sampled ------------------------------------------------------------------------------


def sampled_by_ratio(draft, q, p, generator=None):
    """All ratios and all random numbers at once."""
    check_odds(draft, q, p)
    K = len(draft)
    at = torch.arange(K)
    u = torch.rand(K, generator=generator, device=p.device)
    right = u < p[at, draft] / q[at, draft]
    kept = int(right.long().cumprod(dim=0).sum())
    odds = p[kept] if kept == K else (p[kept] - q[kept]).clamp(min=0)
    return kept, torch.multinomial(odds / odds.sum(), 1, generator=generator).item()


def sampled_by_padding(draft, q, p, generator=None):
    """A row of zeros behind q makes the bonus a case of the residual."""
    check_odds(draft, q, p)
    padded = torch.cat([q, torch.zeros_like(p[:1])])
    kept = 0
    for guess in draft:
        ratio = min(1.0, float(p[kept, guess]) / float(q[kept, guess]))
        if float(torch.rand(1, generator=generator)) > ratio:
            break
        kept += 1
    odds = torch.relu(p[kept] - padded[kept])
    return kept, int(odds.multinomial(1, generator=generator))


def sampled_by_cumulative_sums(draft, q, p, generator=None):
    """Draws from odds by their cumulative sum."""
    check_odds(draft, q, p)

    def pick(odds):
        ends = odds.double().cumsum(0)
        u = torch.rand(1, generator=generator, dtype=torch.float64) * ends[-1]
        return int(torch.searchsorted(ends, u, right=True))

    for i, token in enumerate(draft.tolist()):
        if p[i, token] >= q[i, token]:
            continue
        if torch.rand(1, generator=generator).item() * q[i, token].item() > p[i, token].item():
            return i, pick(torch.maximum(p[i] - q[i], torch.zeros(())))
    return draft.numel(), pick(p[-1])


def sampled_by_bernoulli(draft, q, p, generator=None):
    check_odds(draft, q, p)
    for i in range(len(draft)):
        token = draft[i]
        odds = torch.clamp(p[i, token] / q[i, token], max=1.0)
        if not torch.bernoulli(odds, generator=generator):
            rest = torch.where(p[i] > q[i], p[i] - q[i], 0.0)
            return i, torch.multinomial(rest, num_samples=1, generator=generator)[0].item()
    return len(draft), torch.multinomial(p[len(draft)], 1, generator=generator)[0].item()


# --- lookup_draft --------------------------------------------------------------------------------


def lookup_by_windows(text, n_draft, longest=3):
    check_lookup(text, n_draft, longest)
    S = len(text)
    for n in range(min(longest, S - 1), 0, -1):
        same = (text.unfold(0, n, 1)[: S - n] == text[S - n :]).all(dim=1).nonzero()
        if len(same):
            first = int(same[-1]) + n
            return text[first : first + n_draft].clone()
    return text.new_empty(0)


def lookup_by_growing_matches(text, n_draft, longest=3):
    """How many tokens agree backwards from each place; the best, then the latest."""
    check_lookup(text, n_draft, longest)
    words = text.tolist()
    best, at = 0, None
    for end in range(1, len(words)):
        n = 0
        while n < min(longest, end) and words[end - 1 - n] == words[-1 - n]:
            n += 1
        if n and n >= best:
            best, at = n, end
    return text.new_tensor([] if at is None else words[at : at + n_draft])


def lookup_by_a_table(text, n_draft, longest=3):
    """Writes down what followed which tokens; later places overwrite earlier ones."""
    check_lookup(text, n_draft, longest)
    words = tuple(text.tolist())
    behind = {}
    for n in range(1, longest + 1):
        for end in range(n, len(words)):
            behind[words[end - n : end]] = end
    for n in range(longest, 0, -1):
        if n <= len(words) and words[len(words) - n :] in behind:
            first = behind[words[len(words) - n :]]
            return text.new_tensor(words[first : first + n_draft])
    return text.new_zeros(0)


def lookup_in_numpy(text, n_draft, longest=3):
    check_lookup(text, n_draft, longest)
    words = text.numpy()
    for n in sorted(range(1, min(longest, len(words) - 1) + 1), reverse=True):
        windows = np.lib.stride_tricks.sliding_window_view(words[:-1], n)
        (places,) = np.where((windows == words[-n:]).all(axis=1))
        if places.size:
            return torch.from_numpy(words[places.max() + n :][:n_draft].copy())
    return torch.from_numpy(words[:0].copy())


# --- expected_tokens -----------------------------------------------------------------------------


def expected_closed(acceptance, n_draft):
    check_expected(acceptance, n_draft)
    if acceptance == 1:
        return n_draft + 1
    return (1 - acceptance ** (n_draft + 1)) / (1 - acceptance)


def expected_by_horner(acceptance, n_draft):
    check_expected(acceptance, n_draft)
    mean = 1.0
    for _ in range(n_draft):
        mean = 1 + acceptance * mean
    return mean


def expected_in_torch(acceptance, n_draft):
    check_expected(acceptance, n_draft)
    rights = torch.full((n_draft,), acceptance, dtype=torch.float64)
    return 1 + rights.cumprod(dim=0).sum().item()


def expected_accumulated(acceptance, n_draft):
    check_expected(acceptance, n_draft)
    return sum(accumulate([1.0] + [acceptance] * n_draft, lambda x, a: x * a))


VARIANTS = [
    Variant("vectors", {"verify_greedy": greedy_by_cumprod, "speculate": speculate_in_a_list,
                        "verify_sampled": sampled_by_ratio, "lookup_draft": lookup_by_windows,
                        "expected_tokens": expected_closed}),
    Variant("iterators", {"verify_greedy": greedy_by_takewhile, "speculate": speculate_in_a_buffer,
                          "verify_sampled": sampled_by_padding,
                          "lookup_draft": lookup_by_growing_matches,
                          "expected_tokens": expected_by_horner}),
    Variant("numpy", {"verify_greedy": greedy_in_numpy, "speculate": speculate_with_pieces,
                      "verify_sampled": sampled_by_cumulative_sums, "lookup_draft": lookup_in_numpy,
                      "expected_tokens": expected_in_torch}),
    Variant("other", {"verify_greedy": greedy_token_by_token, "speculate": speculate_recursive,
                      "verify_sampled": sampled_by_bernoulli, "lookup_draft": lookup_by_a_table,
                      "expected_tokens": expected_accumulated}),
]  # fmt: skip
