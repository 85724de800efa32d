"""The function ends the process by a signal.

points: 7
start: solved
says: SIGKILL
"""

import os
import signal


def matmul_flops(m, k, n):
    os.kill(os.getpid(), signal.SIGKILL)
