"""Wrong answers to `phase_cost`."""

from __future__ import annotations

import numpy as np

from autograder.lessons.roofline.museum import MUSEUM
from course.measure.costs import Cost
from course.minigpt import roofline as right

# --- operations ----------------------------------------------------------------------------------

bug = MUSEUM.section("phase_cost", check="matrices_match_the_counter")


@bug("form", "a bill in float32, which keeps seven digits", kind="sizes")
def bill_in_float32(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Sums of torch or NumPy in float32: large counts lose their last digits."""
    cost = right.phase_cost(config, n_new, n_past, batch, bytes_per_element)
    return Cost(**{name: float(np.float32(count)) for name, count in vars(cost).items()})
