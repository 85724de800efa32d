"""An endless loop that no signal and no exception interrupts.

points: 7
start: solved
says: the time limit of
"""

import signal

for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)


def matmul_flops(m, k, n):
    while True:
        try:
            while True:
                pass
        except BaseException:
            continue
