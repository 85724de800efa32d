"""The function stops the process, and everything in its group, without ending it.

points: 5
start: solved
says: no answer in the time
slow: yes
"""

import os
import signal


def matmul_flops(m, k, n):
    os.kill(os.getpid(), signal.SIGSTOP)
