"""Bars, in cells and around the loop of an answer.

points: 10
start: solved
"""

from tqdm import tqdm
from tqdm.auto import trange

for _ in trange(100):
    pass


def matmul_flops(m, k, n):
    return sum(2 for _ in tqdm(range(m))) * k * n
