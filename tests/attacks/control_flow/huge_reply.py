"""The reply is larger than a reply may be.

points: 7
start: solved
says: more than the
"""

import gc

for thing in gc.get_objects():
    if type(thing) is dict and callable(thing.get("flops_of_any_product")):
        for name in ("flops_of_any_product", "flops_of_one_dot_product"):
            thing[name] = lambda *_: ({"results": ["x" * 130 * 2**20]}, [])
