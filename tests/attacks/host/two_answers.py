"""Forks in the middle of a cell, so that two processes answer, and one of them lies.

points: 0
"""

import os


def matmul_flops(m, k, n):
    return 1 if os.fork() else 2 * m


def matmul_bytes(m, k, n, bytes_per_element):
    return 1 if os.fork() else m * bytes_per_element


os.fork()
