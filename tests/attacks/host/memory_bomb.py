"""Takes memory until there is none, and holds it.

points: 5
start: solved
says: MemoryError
"""


def matmul_flops(m, k, n):
    held = []
    while len(held) < 100:
        held.append(bytearray(100 * 2**20))
    return print("GOT 10 GB")
