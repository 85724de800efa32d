"""The visible checks of lesson 13. What they compare with was computed head by head, expanded, and
recorded; or it is the rows that were stored.
"""

import sys

from course.checks.check import gather

gather(sys.modules[__name__])
