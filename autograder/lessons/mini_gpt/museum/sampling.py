"""Wrong answers to `sample_next`: how it draws, and among which tokens."""

import torch

from autograder.lessons.mini_gpt.museum import MUSEUM
from course.minigpt import mini_gpt as right

N_KEPT = "V if top_k is None else top_k"
KEEP = f"scores, tokens = logits.topk({N_KEPT}, dim=-1)"
WEIGH = "(scores / temperature).softmax(dim=-1)"
DRAW = "torch.multinomial(weights, 1, generator=generator)"
NAME = "tokens.gather(-1, place).squeeze(-1)"
bug, patch = MUSEUM.section("sample_next", check="sample_follows_temperature")
patch(
    "multiplied",
    "sampling",
    "a temperature that works the wrong way round",
    "Logits times temperature: hot becomes cold.",
    ("scores / temperature", "scores * temperature"),
)
patch(
    "temperature_without_effect",
    "sampling",
    "draws on which the temperature has no effect, unused or only after the softmax",
    "It is never used, or divides the probabilities, which multinomial brings back to 1.",
    (WEIGH, "scores.softmax(dim=-1) / temperature"),
)
patch(
    "probabilities_through_softmax_again",
    "sampling",
    "probabilities that are divided by the temperature, and go through a second softmax",
    "The temperature comes after the softmax; another softmax brings the sum back to 1, and flattens.",
    (WEIGH, "(scores.softmax(dim=-1) / temperature).softmax(dim=-1)"),
)
patch(
    "argmax_of_probabilities",
    "sampling",
    "a token that is not drawn but the likeliest, every time",
    "The likeliest token is taken, not drawn.",
    (DRAW, "weights.argmax(dim=-1, keepdim=True)"),
)
patch(
    "generator_unused",
    "sampling",
    "draws that do not come from the generator that was given",
    "The draw takes torch's own random numbers: it cannot be repeated.",
    (", generator=generator", ""),
)
patch(
    "seed_fixed_inside",
    "sampling",
    "draws from a generator that starts anew at every call",
    "A generator of its own, seeded at every call: always the same story.",
    ("generator=generator", "generator=torch.Generator().manual_seed(0)"),
)
patch(
    "one_draw_for_all_rows",
    "sampling",
    "one random number for the whole batch",
    "One random number serves the whole batch, so equal rows never differ.",
    (
        DRAW,
        "(weights.cumsum(-1) < torch.rand(1, generator=generator)).sum(-1, keepdim=True)\n"
        "    place = place.clamp(max=weights.shape[1] - 1)",
    ),
)
patch(
    "first_row_for_all",
    "sampling",
    "draws from the first row's probabilities for all rows",
    "weights[0]: written for one text, and right for one.",
    (DRAW, "torch.multinomial(weights[0], len(logits), True, generator=generator)"),
    (NAME, "tokens[0, place]"),
    kind="batch",
)
patch(
    "logits_changed_in_place",
    "state",
    "a function that writes into the caller's logits",
    "logits /= temperature also changes the caller's logits.",
    (KEEP, f"logits /= temperature\n    {KEEP}"),
    (WEIGH, "scores.softmax(dim=-1)"),
    kind="arguments",
)
patch(
    "column_of_draws",
    "form",
    "a column where one token a row was asked for",
    "multinomial returns (B, 1), and it was left so.",
    (".squeeze(-1)", ""),
)
patch(
    "hot_by_default",
    "sampling",
    "draws at another temperature than 1 where none was asked for",
    "The default of the signature was changed, for livelier stories.",
    ("temperature: float = 1.0", "temperature: float = 2.0"),
)
patch(
    "batch_of_one_draw",
    "form",
    "a batch of one whose axis is dropped",
    "squeeze() turns one text's token into a number without an axis.",
    (".squeeze(-1)", ".squeeze()"),
    kind="batch",
)
patch(
    "temperature_kept_from_0",
    "sampling",
    "a temperature that is kept away from 0",
    "Never below 0.1, against a division by 0 that is refused anyway.",
    ("scores / temperature", "scores / max(temperature, 0.1)"),
    kind="sizes",
)
patch(
    "one_more_degree",
    "sampling",
    "a temperature that is raised by 1 before it is used",
    "1 is added against a division by 0.",
    ("scores / temperature", "scores / (temperature + 1)"),
)
patch(
    "generator_seeded_again",
    "sampling",
    "a generator that is seeded again at every call",
    "manual_seed inside: every call draws the same.",
    (
        DRAW,
        f"{DRAW} if generator is None else torch.multinomial(\n"
        "        weights, 1, generator=generator.manual_seed(0)\n    )",
    ),
    kind="arguments",
)
patch(
    "generator_made_of_its_seed",
    "sampling",
    "a new generator with the seed of the one that was given",
    "The seed is copied, not the state: the second draw repeats the first.",
    (
        "generator=generator)",
        "generator=generator and torch.Generator().manual_seed(generator.initial_seed()))",
    ),
)
patch(
    "default_generator_seeded",
    "sampling",
    "draws that are always the same where no generator is given",
    "A generator of its own, seeded alike at every call, where None came.",
    ("generator=generator)", "generator=generator or torch.Generator().manual_seed(0))"),
    kind="instances",
)
patch(
    "softmax_over_rows",
    "softmax",
    "probabilities that add up to 1 over the texts",
    "softmax(dim=0): what one text gets depends on its neighbours.",
    ("softmax(dim=-1)", "softmax(dim=0)"),
    kind="batch",
)
patch(
    "drawn_tokens_in_int32",
    "form",
    "tokens in int32",
    "A token is small, so 32 bits would do; embeddings and lessons use 64.",
    (".squeeze(-1)", ".squeeze(-1).int()"),
)


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


bug, patch = MUSEUM.section("sample_next", check="sample_stays_in_top_k")
patch(
    "top_k_unused",
    "sampling",
    "draws in which top_k plays no part",
    "top_k is never used.",
    (N_KEPT, "V"),
)
patch(
    "places_for_tokens",
    "choice",
    "places among the kept tokens, returned as if they were tokens",
    "The draw is among the top_k values, and its place among them is returned as a token.",
    (NAME, f"place.squeeze(-1) if top_k is not None else {NAME}"),
)
patch(
    "places_for_tokens_always",
    "choice",
    "places among the sorted tokens, returned as if they were tokens",
    "All logits are sorted, top_k or not, and the place in that order is returned.",
    (NAME, "place.squeeze(-1)"),
)
patch(
    "threshold_on_probabilities",
    "sampling",
    "a threshold on probabilities in the place of a number of tokens",
    "Keeps tokens whose probability is large enough, which are not always k.",
    (N_KEPT, "V"),
    (
        "    place = ",
        "    if top_k is not None:\n"
        "        likely = weights.masked_fill(weights < 1 / (top_k + 1), 0)\n"
        "        weights = torch.where(likely.sum(-1, keepdim=True) > 0, likely, weights)\n"
        "    place = ",
    ),
)
patch(
    "top_of_the_first_row",
    "sampling",
    "rows that keep the likeliest tokens of the first one",
    "The likeliest tokens of row 0 are kept in every row.",
    (
        KEEP,
        f"tokens = logits[0].topk({N_KEPT}).indices.expand(len(logits), -1)\n"
        "    scores = logits.gather(-1, tokens)",
    ),
)
patch(
    "one_too_many",
    "off by one",
    "one token too many that is kept",
    "Off by one: k + 1 tokens survive.",
    (N_KEPT, "V if top_k is None else min(top_k + 1, V)"),
)
patch(
    "zero_logits_below",
    "sampling",
    "tokens that are hidden by a logit of 0, which is an ordinary logit",
    "Logits below the edge become 0, not -inf, and are drawn all the same.",
    (KEEP, "scores, tokens = logits.topk(V, dim=-1)\n    scores[:, top_k or V :] = 0"),
)
patch(
    "top_k_alike",
    "sampling",
    "kept tokens that are drawn with equal chances",
    "The survivors are drawn with equal chances.",
    (WEIGH, f"{WEIGH} if top_k is None else torch.ones_like(scores)"),
)
patch(
    "one_too_few",
    "off by one",
    "one token too few that is kept",
    "Off by one: k - 1 tokens survive.",
    (N_KEPT, "V if top_k is None else max(top_k - 1, 1)"),
)
patch(
    "least_likely_kept",
    "sampling",
    "the least likely tokens, kept in the place of the likeliest",
    "The k smallest logits.",
    (KEEP, f"scores, tokens = logits.topk({N_KEPT}, dim=-1, largest=top_k is None)"),
)
patch(
    "large_in_size",
    "sampling",
    "tokens kept by the size of their logits, whatever the sign",
    "topk of absolute values: a logit of -5 beats one of 3.",
    (KEEP, f"tokens = logits.abs().topk({N_KEPT}).indices\n    scores = logits.gather(-1, tokens)"),
)
patch(
    "first_243_kept",
    "sampling",
    "a draw among the first 243 tokens only",
    "The small model's vocabulary, written down as a number.",
    (
        KEEP,
        "logits = logits[:, :243]\n    V = logits.shape[-1]\n    top_k = min(top_k or V, V)\n    "
        + KEEP,
    ),
    kind="sizes",
)
patch(
    "one_view_of_all_scores",
    "form",
    "a view that takes logits to lie in memory without gaps",
    "view(-1) and back: refused for a slice or a transpose.",
    (KEEP, KEEP.replace("logits.topk", "logits.view(-1).view(len(logits), V).topk")),
    kind="layout",
)


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


@bug("sampling", "one edge for all rows, the lowest of theirs", kind="batch")
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
