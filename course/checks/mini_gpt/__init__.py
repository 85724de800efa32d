"""The visible checks of lesson 01: properties that a student can reason about, and no answer."""

import sys

from course.checks.check import gather

gather(sys.modules[__name__])
