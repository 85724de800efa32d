"""Wrong answers to `window_mask`."""

from autograder.lessons.sliding_window.museum import MUSEUM

bug, patch = MUSEUM.section("window_mask", check="mask_counts_itself")
patch(
    "window_one_too_many",
    "off by one",
    "a window that counts the tokens before the newest, and the newest besides",
    "W tokens before the newest, and itself (mlx-lm #390).",
    ("places > own - window", "places >= own - window"),
)
patch(
    "window_one_too_few",
    "off by one",
    "a window one token short",
    "Strictly less than W - 1 back.",
    ("places > own - window", "places > own - window + 1"),
)
patch(
    "window_of_the_newest_for_all",
    "mask",
    "one window for all queries of a chunk, that of the newest",
    "The window is counted from the newest token, which is right for single tokens.",
    ("places > own - window", "places > own.max() - window"),
)
patch(
    "window_of_the_oldest_for_all",
    "mask",
    "one window for all queries of a chunk, that of the first",
    "The window is counted from the chunk's first token.",
    ("places > own - window", "places > own.min() - window"),
)
patch(
    "window_without_causality",
    "mask",
    "a mask that lets a token look at later ones",
    "Only the old end is cut off; in decode nothing is later.",
    ("(places <= own) & ", ""),
)
patch(
    "places_by_their_order",
    "position",
    "rows told apart by where they lie, and not by their tokens' numbers",
    "The rows are taken to lie in the order of the text, the newest last.",
    (
        "own = own.unsqueeze(1)",
        "places = own.max() + 1 - len(places) + torch.arange(len(places))\n    own = own.unsqueeze(1)",
    ),
)
patch(
    "decode_ignores_the_window",
    "mask",
    "a mask that hides nothing from a single token",
    "One new token may see what is held, so no mask is needed (nanochat #456).",
    (
        "own = own.unsqueeze(1)",
        "if len(own) == 1:\n        return places.unsqueeze(0) <= own\n    own = own.unsqueeze(1)",
    ),
)
patch(
    "blocks_for_a_window",
    "mask",
    "blocks that end at multiples of the window, in place of a window that moves along",
    "Tokens see those of their own block of W: chunked attention, which is something else.",
    ("places > own - window", "places // window == own // window"),
)
patch(
    "mask_says_what_is_hidden",
    "mask",
    "a mask that is True where a token must not look",
    "True means hidden, as in masked_fill.",
    ("return (places <= own)", "return ~((places <= own)"),
    ("(in_window | (places < n_sinks))", "(in_window | (places < n_sinks)))"),
)
patch(
    "mask_of_floats",
    "form",
    "a mask of numbers to add to the scores",
    "0 and -inf, to be added to the scores.",
    ("return (places <= own)", "return torch.log((places <= own)"),
    ("(in_window | (places < n_sinks))", "(in_window | (places < n_sinks)))"),
)
patch(
    "mask_lies_on_its_side",
    "form",
    "a mask with rows and columns exchanged",
    "Rows of the cache down, new tokens across.",
    ("(in_window | (places < n_sinks))", "(in_window | (places < n_sinks))).T"),
    ("return (places <= own)", "return ((places <= own)"),
)
patch(
    "window_counts_its_own_argument_down",
    "state",
    "a mask that changes the numbers it was given",
    "own is moved to the window's start in place.",
    ("in_window = places > own - window", "in_window = places > own.sub_(window)"),
    ("return (places <= own)", "return (places <= own + window)"),
    kind="arguments",
)

bug, patch = MUSEUM.section("window_mask", check="sinks_are_no_future")
patch(
    "sinks_seen_early",
    "mask",
    "sinks that are seen by tokens before them",
    "Sinks are visible, always: so for the first queries the future is.",
    (
        "(places <= own) & (in_window | (places < n_sinks))",
        "(places <= own) & in_window | (places < n_sinks)",
    ),
)
patch(
    "no_sinks_in_the_mask",
    "mask",
    "a mask that hides the sinks like any other old token",
    "The cache keeps the sinks, and the mask hides them.",
    (" & (in_window | (places < n_sinks))", " & in_window"),
)
patch(
    "one_sink_too_many",
    "off by one",
    "one sink more than there are",
    "Tokens 0 … n_sinks.",
    ("places < n_sinks", "places <= n_sinks"),
)
patch(
    "one_sink_too_few",
    "off by one",
    "one sink less than there are",
    "Tokens 0 … n_sinks - 2.",
    ("places < n_sinks", "places < n_sinks - 1"),
)
patch(
    "sinks_by_their_place",
    "position",
    "the first rows of the storage taken for sinks, whosever they are",
    "The first n_sinks columns are the sinks.",
    ("places < n_sinks", "torch.arange(len(places)) < n_sinks"),
)


@bug("mask", "a mask in which sinks take the window's place")
def sinks_and_no_window(own, places, window, n_sinks=0):
    """With sinks the window is left out: both conditions joined by "and"."""
    own = own.unsqueeze(1)
    visible = places > own - window
    return (places <= own) & (places < n_sinks if n_sinks else visible)


bug, patch = MUSEUM.section("window_mask", check="every_split_equals_the_windowed_model")
patch(
    "sinks_count_in_the_window",
    "formula",
    "a window that is shorter by the number of sinks",
    "Sinks and window share W places.",
    ("places > own - window", "places > own - max(1, window - n_sinks)"),
)
