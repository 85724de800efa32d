"""The visible checks of lesson 10. Their truth is the model without a cache, the rows that were fed, or
what the oracle counted.
"""

import sys

from course.checks.check import gather

gather(sys.modules[__name__])
