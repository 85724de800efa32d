"""The cell ends the process at once.

points: 10
start: solved
stops: status 0
"""

import os

os._exit(0)
