"""Closes what it should write to, and what it should answer on.

points: 7
start: solved
says: While this was tried
"""

import os


def matmul_flops(m, k, n):
    os.closerange(0, 64)
