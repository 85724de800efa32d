"""Functions that call themselves for ever, in Python and in C.

points: 7
start: solved
says: RecursionError
"""

import sys


def matmul_flops(m, k, n):
    return matmul_flops(m, k, n)


def deep(level=0):
    return deep(level + 1)


try:
    sys.setrecursionlimit(10_000)
    deep()
except RecursionError:
    sys.setrecursionlimit(3_000)
