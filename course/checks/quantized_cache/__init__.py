"""The visible checks of lesson 07. Their truth is a property: an error of half a step at most, so many
bits, so many bytes. Symmetric and asymmetric quantizers both have it.
"""

import sys

from course.checks.check import gather

gather(sys.modules[__name__])
