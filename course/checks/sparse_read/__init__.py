"""The visible checks of lesson 14: bounds of pages, what is chosen by them, rows that are kept."""

import sys

from course.checks.check import gather

gather(sys.modules[__name__])
