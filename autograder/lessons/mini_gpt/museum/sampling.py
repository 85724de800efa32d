"""Wrong answers to `sample_next`: how it draws, and among which tokens."""

import torch

from autograder.lessons.mini_gpt.museum import MUSEUM
from course.minigpt import mini_gpt as right

bug = MUSEUM.section("sample_next", check="sample_follows_temperature")


@bug("sampling", "random noise that is divided by the temperature together with the logits")
def noise_divided_too(logits, temperature=1.0, top_k=None, generator=None):
    """Gumbel noise is added before the division: the temperature has no effect."""
    V = logits.shape[-1]
    if logits.dim() != 2 or temperature <= 0 or not (top_k is None or 1 <= top_k <= V):
        raise ValueError("out of range")
    if top_k is not None:
        edge = logits.topk(top_k).values[:, -1:]
        logits = logits.masked_fill(logits < edge, float("-inf"))
    noise = -torch.empty_like(logits).exponential_(generator=generator).log()
    return ((logits + noise) / temperature).argmax(dim=-1)


DRAWN = torch.zeros(10_000, dtype=torch.int64)


@bug("state", "drawn tokens that lie where the next call writes", kind="results")
def one_buffer_for_all_draws(logits, temperature=1.0, top_k=None, generator=None):
    """One result tensor for all calls."""
    out = DRAWN[: len(logits)]
    return out.copy_(right.sample_next(logits, temperature, top_k, generator))


bug = MUSEUM.section("sample_next", check="sample_stays_in_top_k")


def masked(logits, hidden, temperature, generator, dropped=float("-inf")):
    """Draw as those do who hide tokens and do not sort them."""
    weights = (logits.masked_fill(hidden, dropped) / temperature).softmax(dim=-1)
    return torch.multinomial(weights, 1, generator=generator).squeeze(-1)


def out_of_range(logits, temperature, top_k):
    """Raise for what is to be refused; give top_k, or V."""
    V = logits.shape[-1]
    if logits.dim() != 2 or temperature <= 0 or not (top_k is None or 1 <= top_k <= V):
        raise ValueError("out of range")
    return V if top_k is None else top_k


@bug("sampling", "draws in which top_k plays no part")
def all_tokens_stay(logits, temperature=1.0, top_k=None, generator=None):
    """top_k is never used, and nothing is sorted."""
    out_of_range(logits, temperature, top_k)
    return masked(logits, torch.zeros_like(logits, dtype=torch.bool), temperature, generator)


@bug("sampling", "an edge that hides the last of the kept tokens, too")
def edge_is_hidden_too(logits, temperature=1.0, top_k=None, generator=None):
    """<= hides the last of the k, too; for k = 1 nothing is left to draw."""
    k = out_of_range(logits, temperature, top_k)
    edge = logits.topk(k).values[:, -1:]
    return masked(logits, logits <= edge if top_k else logits < edge, temperature, generator)


@bug("sampling", "an edge that hides the last of the kept tokens, too")
def edge_is_hidden_by_a_number(logits, temperature=1.0, top_k=None, generator=None):
    """<= again, with -1e9 for hidden: for k = 1 all tokens are hidden, and so all alike."""
    k = out_of_range(logits, temperature, top_k)
    edge = logits.topk(k).values[:, -1:]
    hidden = logits <= edge if top_k else logits < edge
    return masked(logits, hidden, temperature, generator, dropped=-1e9)


@bug("off by one", "one token too many that is kept")
def edge_of_the_next(logits, temperature=1.0, top_k=None, generator=None):
    """The logit number k, counted from 0, is the edge."""
    k = out_of_range(logits, temperature, top_k)
    edge = logits.sort(descending=True).values[:, min(k, logits.shape[-1] - 1), None]
    return masked(logits, logits < edge, temperature, generator)


@bug("sampling", "tokens that are hidden by a logit of 0, which is an ordinary logit")
def hidden_by_zero(logits, temperature=1.0, top_k=None, generator=None):
    """masked_fill with 0 in the place of -inf."""
    edge = logits.topk(out_of_range(logits, temperature, top_k)).values[:, -1:]
    return masked(logits, logits < edge, temperature, generator, dropped=0.0)


@bug("sampling", "rows that keep the likeliest tokens of the first one", kind="batch")
def tokens_of_the_first_row(logits, temperature=1.0, top_k=None, generator=None):
    """The tokens to keep are looked up once, in row 0."""
    hidden = torch.ones_like(logits, dtype=torch.bool)
    hidden[:, logits[0].topk(out_of_range(logits, temperature, top_k)).indices] = False
    return masked(logits, hidden, temperature, generator)


@bug("sampling", "an edge that is found in the whole batch and not in each row", kind="batch")
def edge_of_the_batch(logits, temperature=1.0, top_k=None, generator=None):
    """topk of the flat tensor: one edge for all rows."""
    k = out_of_range(logits, temperature, top_k)
    hidden = torch.zeros_like(logits, dtype=torch.bool)
    if top_k is not None:
        hidden = logits < logits.flatten().topk(k).values[-1]
    return masked(logits, hidden, temperature, generator)


@bug("sampling", "one edge for all rows, where each has its own", kind="batch")
def lowest_edge_for_all(logits, temperature=1.0, top_k=None, generator=None):
    """min() over the edges: rows whose logits lie higher keep more."""
    edge = logits.topk(out_of_range(logits, temperature, top_k)).values[:, -1].min()
    return masked(logits, logits < edge, temperature, generator)


@bug("sampling", "one edge for all rows, that of the first", kind="batch")
def edge_of_the_first_row(logits, temperature=1.0, top_k=None, generator=None):
    """values[0, -1]: a higher row keeps more, and a lower one nothing."""
    edge = logits.topk(out_of_range(logits, temperature, top_k)).values[0, -1]
    return masked(logits, logits < edge, temperature, generator)


@bug("sampling", "kept tokens that are drawn with equal chances")
def any_of_the_kept(logits, temperature=1.0, top_k=None, generator=None):
    """A random place among the k best."""
    k = out_of_range(logits, temperature, top_k)
    if top_k is None:
        weights = (logits / temperature).softmax(dim=-1)
        return torch.multinomial(weights, 1, generator=generator).squeeze(-1)
    place = torch.randint(k, (len(logits), 1), generator=generator)
    return logits.topk(k).indices.gather(1, place).squeeze(1)


@bug("state", "logits that are overwritten where top_k drops them", kind="arguments")
def dropped_in_place(logits, temperature=1.0, top_k=None, generator=None):
    """logits[logits < edge] = -inf, in the caller's tensor."""
    edge = logits.topk(out_of_range(logits, temperature, top_k)).values[:, -1:]
    logits[logits < edge] = float("-inf")
    return masked(logits, torch.zeros_like(logits, dtype=torch.bool), temperature, generator)
