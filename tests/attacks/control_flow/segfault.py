"""The function crashes the interpreter.

points: 7
start: solved
says: SIGSEGV
"""

import ctypes


def matmul_flops(m, k, n):
    return ctypes.string_at(0)
