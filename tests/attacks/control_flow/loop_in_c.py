"""One call into C that takes years and lets nothing else run.

points: 7
start: solved
says: the time limit of
"""


def matmul_flops(m, k, n):
    return 7 ** (7**12)
