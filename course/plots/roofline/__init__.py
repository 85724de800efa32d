"""The pictures of lesson 05: a roof, what lies under it, and a queue with a clock beside it."""

from course.plots.roofline.matrix import draw_matrix
from course.plots.roofline.moved_bytes import draw_bytes
from course.plots.roofline.operating_points import draw_operating_points
from course.plots.roofline.phases import draw_phases
from course.plots.roofline.queue import draw_queue
from course.plots.roofline.third_roof import draw_third_roof

__all__ = [
    "draw_bytes",
    "draw_matrix",
    "draw_operating_points",
    "draw_phases",
    "draw_queue",
    "draw_third_roof",
]
