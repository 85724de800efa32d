"""Wrong answers to `place_of`."""

from autograder.lessons.sliding_window.museum import MUSEUM

bug, patch = MUSEUM.section("place_of", check="one_place_each")
patch(
    "ring_over_the_sinks_too",
    "writes",
    "a ring that goes round over the places of the sinks",
    "All places are one ring, so a later token overwrites the sinks.",
    ("n_sinks + (tokens - n_sinks) % window", "tokens % (n_sinks + window)"),
)
patch(
    "ring_not_shifted_by_the_sinks",
    "off by one",
    "a ring in which the sinks are counted as tokens of the ring",
    "The remainder is taken of the token's number, sinks included.",
    ("n_sinks + (tokens - n_sinks) % window", "n_sinks + tokens % window"),
)
patch(
    "ring_overwrites_the_sinks",
    "writes",
    "a ring that begins at place 0, where the sinks lie",
    "The places of the sinks are left out of the sum.",
    ("n_sinks + (tokens - n_sinks) % window", "(tokens - n_sinks) % window"),
)
patch(
    "sinks_in_the_ring",
    "writes",
    "sinks that get places of the ring",
    "The ring's formula is used for every token.",
    ("torch.where(tokens < n_sinks, tokens, ring)", "ring"),
)
patch(
    "ring_one_place_longer",
    "off by one",
    "a ring of one place more than the window",
    "The window's tokens and the new one.",
    ("% window", "% (window + 1)"),
)
patch(
    "ring_one_place_shorter",
    "off by one",
    "a ring of one place less than the window",
    "Old tokens of a window are W - 1.",
    ("% window", "% max(1, window - 1)"),
)
patch(
    "last_place_again_and_again",
    "writes",
    "a storage whose last place is overwritten by every later token",
    "Numbers are cut off at the last place.",
    ("n_sinks + (tokens - n_sinks) % window", "tokens.clamp(max=n_sinks + window - 1)"),
)
patch(
    "last_sink_goes_round",
    "off by one",
    "a last sink that is treated as a token of the ring",
    "Sinks are taken to be 0 … n_sinks - 2.",
    ("tokens < n_sinks, tokens", "tokens < n_sinks - 1, tokens"),
    ("(tokens - n_sinks) % window", "(tokens - n_sinks).clamp(min=0) % window"),
)
patch(
    "places_of_floats",
    "form",
    "places that are no whole numbers",
    "The remainder is computed by a division.",
    (
        "torch.where(tokens < n_sinks, tokens, ring)",
        "torch.where(tokens < n_sinks, tokens, ring) / 1",
    ),
    kind="dtype",
)
patch(
    "place_changes_its_tokens",
    "state",
    "a function that changes the numbers it was given",
    "The sinks are subtracted in place.",
    ("(tokens - n_sinks) % window", "tokens.sub_(n_sinks) % window"),
    ("tokens < n_sinks, tokens, ring", "tokens < 0, tokens + n_sinks, ring"),
    kind="arguments",
)


@bug("writes", "a ring that is filled backwards")
def fills_backwards(tokens, window, n_sinks=0):
    """The newest token comes to the front, so places are counted from the end."""
    places = n_sinks + (window - 1 - (tokens - n_sinks) % window)
    return places.where(tokens >= n_sinks, tokens)
