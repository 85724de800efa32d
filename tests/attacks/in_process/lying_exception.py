"""An exception that is not what it says: endless words, a lying class, more exceptions within.

points: 0
"""


class Missing(NotImplementedError):
    def __str__(self):
        return "x" * 10**7

    def __getattribute__(self, name):
        if name in ("__traceback__", "__class__", "args"):
            raise SystemExit("full points")
        return super().__getattribute__(name)


class Worse(BaseException):
    def __str__(self):
        raise KeyboardInterrupt

    __repr__ = __str__


def matmul_flops(m, k, n):
    raise Missing()


def matmul_bytes(*_):
    raise Worse()
