"""Sixty megabytes of output, from a loop that prints everything it counts.

points: 10
start: solved
"""

line = "matmul_flops = " * 70
for n in range(60_000):
    print(n, line)
