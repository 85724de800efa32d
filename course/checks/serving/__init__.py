"""The visible checks of lesson 11. What a plan promises is looked at in the plan itself; counts are
recorded, and what a text must be, a drawn language says.
"""

from course.checks.serving.counting import (
    continuous_batches_fill_holes,
    goodput_meets_both_limits,
    static_batches_wait,
)
from course.checks.serving.planning import (
    decodes_come_first,
    nobody_overtakes,
    nothing_is_left_idle,
    within_budget_and_room,
)
from course.checks.serving.scheduling import every_request_as_if_alone, leaves_and_joins_at_once

__all__ = [
    "continuous_batches_fill_holes",
    "decodes_come_first",
    "every_request_as_if_alone",
    "goodput_meets_both_limits",
    "leaves_and_joins_at_once",
    "nobody_overtakes",
    "nothing_is_left_idle",
    "static_batches_wait",
    "within_budget_and_room",
]
