"""The functions leave by SystemExit and KeyboardInterrupt, the cell by exit().

points: 0
"""

import sys


def matmul_flops(m, k, n):
    sys.exit(0)


def matmul_bytes(*_):
    raise KeyboardInterrupt


exit()
