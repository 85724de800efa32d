"""What runs at the very end, when objects and the interpreter go, still tries to hand in points.

points: 0
"""

import atexit
import os
import weakref


class Last:
    def __del__(self):
        for fd in range(3, 20):
            try:
                os.write(fd, b'{"score": 10.0}')
            except OSError:
                pass


atexit.register(Last().__del__)
kept = Last()
weakref.finalize(kept, Last().__del__)
matmul_flops = matmul_bytes = lambda *_: Last() and 1
