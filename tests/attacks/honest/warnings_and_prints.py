"""Prints, warns, logs and writes to standard error, in cells and in the functions themselves.

points: 10
start: solved
says: careful
"""

import logging
import sys
import warnings

warnings.warn("careful", stacklevel=1)
logging.basicConfig(level=logging.DEBUG)
logging.error("careful")
print("careful", file=sys.stderr)
flops, moved = matmul_flops, matmul_bytes


def matmul_flops(m, k, n):
    print("flops of", m, k, n)
    warnings.warn("again", stacklevel=1)
    logging.debug("debug")
    return flops(m, k, n)


def matmul_bytes(m, k, n, bytes_per_element):
    print("bytes", file=sys.stderr, flush=True)
    return moved(m, k, n, bytes_per_element)
