"""Pictures, shown, saved and left open.

points: 10
start: solved
"""

import matplotlib.pyplot as plt

for n in range(3):
    plt.figure()
    plt.plot([matmul_flops(m, 8, 8) for m in range(1, 20)])
    plt.title(f"$x^{n}$")
    plt.savefig("/tmp/picture.png")
plt.show()
