"""The function writes and writes and never comes back.

points: 5
start: solved
says: no answer in the time
slow: yes
"""


def matmul_flops(m, k, n):
    while True:
        print("full points" * 1000)
