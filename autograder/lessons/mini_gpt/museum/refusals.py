"""Wrong answers to `greedy_next` and `sample_next`: what they refuse, and how."""

from autograder.lessons.exhibits import Edits
from autograder.lessons.mini_gpt.museum import MUSEUM

REFUSE_SHAPE = (
    "    if logits.dim() != 2:\n"
    '        raise ValueError(f"logits must be (B, V), got shape {tuple(logits.shape)}")\n'
)
REFUSE_TEMPERATURE = (
    "    if not temperature > 0:\n"
    '        raise ValueError(f"temperature must be above 0, got {temperature}; see greedy_next")\n'
)
REFUSE_TOP_K = (
    "    if top_k is not None and not 1 <= top_k <= V:\n"
    '        raise ValueError(f"top_k must lie in 1 … {V}, got {top_k}")\n'
)
bug, patch = MUSEUM.section("greedy_next", check="bad_arguments_are_refused")


@bug(
    "arguments",
    "functions that look at none of their arguments",
    sample_next=Edits(((REFUSE_SHAPE, ""), (REFUSE_TEMPERATURE, ""), (REFUSE_TOP_K, ""))),
)
def nothing_refused(logits):
    """No check at the door: temperature 0 gives NaN, and 3-D logits a wrong shape."""
    return logits.argmax(dim=-1)


patch(
    "greedy_takes_any_shape",
    "arguments",
    "a greedy choice that takes logits of any shape",
    "All positions' logits are accepted, and a (B, T) answer goes unnoticed.",
    (REFUSE_SHAPE, ""),
)
patch(
    "greedy_asserts",
    "arguments",
    "a greedy choice that refuses by assert",
    "assert in the place of raise: another exception, and none at all under python -O.",
    (REFUSE_SHAPE, "    assert logits.dim() == 2\n"),
    kind="refusals",
)
patch(
    "greedy_takes_the_last_token",
    "arguments",
    "a greedy choice that quietly picks the last token of logits with three axes",
    "What the caller forgot is made up for, and the caller never learns of it.",
    (REFUSE_SHAPE, f"    if logits.dim() == 3:\n        logits = logits[:, -1]\n{REFUSE_SHAPE}"),
    kind="refusals",
)
patch(
    "greedy_refuses_three_axes_only",
    "arguments",
    "a greedy choice that takes logits with one axis",
    "Only a forgotten [:, -1] is refused.",
    ("logits.dim() != 2", "logits.dim() > 2"),
    kind="refusals",
)
patch(
    "greedy_returns_nothing",
    "arguments",
    "a greedy choice that returns nothing where it should refuse",
    "return in the place of raise: the caller goes on with None.",
    (REFUSE_SHAPE, "    if logits.dim() != 2:\n        return None\n"),
    kind="refusals",
)

bug, patch = MUSEUM.section("sample_next", check="bad_arguments_are_refused")
patch(
    "exponentials_too_large",
    "sampling",
    "weights made by exp alone, which is infinite for large numbers",
    "exp(logits / temperature) is fine at temperature 1, and infinite at 0.01.",
    ("(scores / temperature).softmax(dim=-1)", "(scores / temperature).exp()"),
    kind="sizes",
)
patch(
    "asserted",
    "arguments",
    "a function that refuses by assert",
    "assert in the place of raise: another exception, and none at all under python -O.",
    (REFUSE_SHAPE, "    assert logits.dim() == 2\n"),
    (REFUSE_TEMPERATURE, "    assert temperature > 0\n"),
    (REFUSE_TOP_K, "    assert top_k is None or 1 <= top_k <= V\n"),
)
patch(
    "top_k_clamped",
    "arguments",
    "a top_k out of range that is silently made to fit",
    "A top_k out of range is silently made to fit.",
    (REFUSE_TOP_K, "    top_k = None if top_k is None else max(1, min(top_k, V))\n"),
)
patch(
    "greedy_at_zero",
    "arguments",
    "a temperature of 0 that is quietly read as greedy",
    "Temperature 0 is quietly read as greedy.",
    (
        REFUSE_TEMPERATURE,
        f"    if temperature == 0:\n        return logits.argmax(dim=-1)\n{REFUSE_TEMPERATURE}",
    ),
)
patch(
    "all_tokens_refused",
    "off by one",
    "a top_k of all tokens that is refused",
    "Off by one: top_k = V is refused, though it means all tokens.",
    ("top_k <= V", "top_k < V"),
)
patch(
    "draws_from_any_shape",
    "arguments",
    "a draw from logits of any shape",
    "No look at the shape: one axis is drawn from, three stop inside PyTorch.",
    (REFUSE_SHAPE, ""),
    kind="refusals",
)
patch(
    "draws_from_the_last_token",
    "arguments",
    "a draw that quietly picks the last token of logits with three axes",
    "What the caller forgot is made up for, and the caller never learns of it.",
    (REFUSE_SHAPE, f"    if logits.dim() == 3:\n        logits = logits[:, -1]\n{REFUSE_SHAPE}"),
    kind="refusals",
)
patch(
    "nothing_looked_at",
    "arguments",
    "draws that look at none of their arguments",
    "No check at the door: PyTorch stops from inside, or nothing stops.",
    (REFUSE_SHAPE, ""),
    (REFUSE_TEMPERATURE, ""),
    (REFUSE_TOP_K, ""),
    kind="refusals",
)
patch(
    "negative_temperature_taken",
    "arguments",
    "a temperature below 0 that is taken",
    "Only 0 is refused, against the division: below 0 the least likely token is the likeliest.",
    ("not temperature > 0", "temperature == 0"),
    kind="refusals",
)
patch(
    "zero_temperature_taken",
    "arguments",
    "a temperature of 0 that is divided by",
    "Only what lies below 0 is refused.",
    ("not temperature > 0", "temperature < 0"),
    kind="refusals",
)
patch(
    "any_temperature_taken",
    "arguments",
    "a temperature that is not looked at before it is used",
    "0 stops inside PyTorch, and below 0 the least likely token is the likeliest.",
    (REFUSE_TEMPERATURE, ""),
    kind="refusals",
)
patch(
    "any_top_k_taken",
    "arguments",
    "a top_k that is not looked at before it is used",
    "PyTorch stops on its own, with another exception and from inside.",
    (REFUSE_TOP_K, ""),
    kind="refusals",
)
patch(
    "top_k_of_0_is_none",
    "arguments",
    "a top_k of 0 that is read as none",
    "`if top_k:` takes 0 for None, and all tokens stay.",
    ("if top_k is not None and not", "if top_k and not"),
    ("V if top_k is None else top_k", "top_k or V"),
    kind="refusals",
)
patch(
    "large_top_k_clamped",
    "arguments",
    "a top_k above the vocabulary that is silently made to fit",
    "min(top_k, V), while 0 and less are refused.",
    (
        REFUSE_TOP_K,
        "    if top_k is not None and top_k < 1:\n"
        '        raise ValueError("top_k must be at least 1")\n'
        "    top_k = None if top_k is None else min(top_k, V)\n",
    ),
    kind="refusals",
)
patch(
    "refused_by_type",
    "arguments",
    "a refusal with TypeError, which is for another type and not for another value",
    "The exception is not the one that the docstring names.",
    ('raise ValueError(f"logits', 'raise TypeError(f"logits'),
    ('raise ValueError(f"temperature', 'raise TypeError(f"temperature'),
    ('raise ValueError(f"top_k', 'raise TypeError(f"top_k'),
    kind="refusals",
)
patch(
    "refused_after_a_draw",
    "state",
    "a refusal that comes after a random number was drawn",
    "The random number is drawn first: after a refusal the generator is another.",
    (
        "    V = logits.shape[-1]\n",
        "    V = logits.shape[-1]\n    torch.rand(1, generator=generator)\n",
    ),
    kind="refusals",
)
patch(
    "hot_refused",
    "arguments",
    "a high temperature that is refused",
    "A bound that nobody asked for.",
    ("not temperature > 0", "not 0 < temperature <= 10"),
    kind="sizes",
)
patch(
    "whole_temperature_refused",
    "arguments",
    "a temperature that is refused because it is a whole number",
    "isinstance(temperature, float): 1 is no float, and means 1.0.",
    ("not temperature > 0", "not isinstance(temperature, float) or temperature <= 0"),
)
