"""Someone careful, who lets every warning be an error and every odd number be told.

points: 10
start: solved
"""

import warnings

import numpy as np

warnings.simplefilter("error")
np.seterr(all="raise")
