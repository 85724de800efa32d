"""Wrong answers to `window_mask`."""

from autograder.lessons.sliding_window.museum import MUSEUM

bug = MUSEUM.section("window_mask", check="sinks_are_no_future")


@bug("mask", "a mask in which sinks take the window's place")
def sinks_and_no_window(own, places, window, n_sinks=0):
    """With sinks the window is left out: both conditions joined by "and"."""
    own = own.unsqueeze(1)
    visible = places > own - window
    return (places <= own) & (places < n_sinks if n_sinks else visible)
