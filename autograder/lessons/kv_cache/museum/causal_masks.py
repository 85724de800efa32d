"""Wrong answers to `causal_mask`."""

from autograder.lessons.kv_cache.museum import MUSEUM

bug, patch = MUSEUM.section("causal_mask", check="mask_is_rectangular")
patch(
    "mask_top_left",
    "mask",
    "a mask whose triangle stands at the left edge, as if nothing had been cached",
    "is_causal=True, or tril of a T by S matrix: one new token sees only the oldest key.",
    ("torch.arange(n_visible - n_new, n_visible, d", "torch.arange(n_new, d"),
)
patch(
    "mask_without_itself",
    "mask",
    "a mask in which no token sees itself",
    "Strictly smaller instead of smaller or equal: a token cannot see itself.",
    ("<= own", "< own"),
)
patch(
    "mask_sees_all",
    "mask",
    "a mask that hides nothing",
    "In decode everything cached is visible, so no mask: true for one token, wrong for a chunk.",
    ("torch.arange(n_visible - n_new, n_visible, d", "torch.full((n_new,), n_visible, d"),
)
patch(
    "mask_square",
    "form",
    "a mask that is square whatever the number of new tokens",
    "The mask of lesson 01, S by S, which fits no scores of T rows.",
    ("torch.arange(n_visible - n_new, n_visible, d", "torch.arange(n_visible, d"),
)
patch(
    "mask_one_too_far",
    "mask",
    "a mask that lets each token see one token ahead",
    "The diagonal is counted from 1, so every new token sees one token ahead.",
    ("<= own", "<= own + 1"),
)

patch(
    "mask_inverted",
    "mask",
    "a mask that shows what it should hide, and hides what it should show",
    "True where a token may not look: the convention of masked_fill, and of other libraries.",
    ("<= own", "> own"),
)
patch(
    "mask_turned",
    "mask",
    "a mask in which a token sees itself and what comes later, and nothing before",
    "triu for tril: the past is hidden.",
    ("<= own", ">= own"),
)
patch(
    "mask_transposed",
    "form",
    "a mask whose rows are the visible tokens and whose columns are the new ones",
    "S by T in place of T by S.",
    ("device=device) <= own", "device=device).unsqueeze(1) <= own.T"),
)
patch(
    "mask_of_floats",
    "form",
    "a mask of ones and zeros that are floats",
    "1.0 and 0.0 would be added to the scores, where True and False choose.",
    (
        "return torch.arange(n_visible, device=device) <= own",
        "return 1.0 * (torch.arange(n_visible, device=device) <= own)",
    ),
    kind="dtype",
)
patch(
    "mask_to_be_added",
    "form",
    "a mask of zeros and minus infinities, to be added to the scores",
    "The additive mask of older code: right in meaning, and not what was asked for.",
    (
        "return torch.arange(n_visible, device=device) <= own",
        "return torch.zeros(n_new, n_visible).masked_fill(torch.arange(n_visible) > own, -torch.inf)",
    ),
)
patch(
    "mask_from_a_table",
    "form",
    "a mask that is cut out of a table with a size of its own",
    "A triangle of 64 by 64 is made once and cut: longer texts fall off its edge.",
    (
        "return torch.arange(n_visible, device=device) <= own",
        "return torch.ones(64, 64, dtype=torch.bool).tril()[n_visible - n_new :, :n_visible][:n_new]",
    ),
    kind="sizes",
)
patch(
    "mask_without_its_axis",
    "form",
    "a mask that loses the axis of the new tokens where there is one",
    "squeeze() takes the axis away when T is 1, and (S,) is no (1, S).",
    (
        "return torch.arange(n_visible, device=device) <= own",
        "return (torch.arange(n_visible, device=device) <= own).squeeze()",
    ),
    kind="sizes",
)
