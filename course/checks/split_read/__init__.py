"""The visible checks of lesson 09: parts of attention, how they are merged, and what is read for them."""

import sys

from course.checks.check import gather

gather(sys.modules[__name__])
