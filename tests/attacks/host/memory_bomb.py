"""Takes memory until there is none, and holds it.

points: 7
start: solved
says: MemoryError
"""


def matmul_flops(m, k, n):
    held = []
    while len(held) < 100:
        held.append(bytes(100 * 2**20))  # taken at once; a bytearray is also written, page by page
    return print("GOT 10 GB")
