"""Wrong answers to `place_of`."""

from autograder.lessons.sliding_window.museum import MUSEUM

bug = MUSEUM.section("place_of", check="one_place_each")


@bug("writes", "a ring that is filled backwards")
def fills_backwards(tokens, window, n_sinks=0):
    """The newest token comes to the front, so places are counted from the end."""
    places = n_sinks + (window - 1 - (tokens - n_sinks) % window)
    return places.where(tokens >= n_sinks, tokens)
