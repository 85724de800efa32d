"""Claims that hold nothing: every list that a verdict goes through, to compare, is empty.

points: 0
lesson: 03-kv-cache
"""

import gc


def hollow(names, needs, challenge):
    """As much as has to be there, and nothing that could be wrong."""
    split = challenge.get("split", [])
    evidence = {
        "lengths": [sum(split[:n]) for n in range(len(split) + 1)],
        "returned": [[] for _ in split],
        **{"stopped": "", "too_many": "CacheFull", "after_full": "CacheFull"},
        **{"length": 7, "full_length": 9, "filled": "returned", "held": []},
        **{"operations": [], "masks": [], "dtypes": [], "out": [], "logits": []},
        **{"formula": [], "reported": [], "stored": [], "full": "CacheFull"},
    }
    return evidence, []


def hollow_back(names, needs, challenge):
    lengths = [6, challenge["keep"], 0]
    return {"refused": {}, "lengths": lengths, "again": [], "fresh": [], "operations": []}, []


for thing in gc.get_objects():
    if type(thing) is dict and callable(thing.get("cache_can_go_back")) and len(thing) < 20:
        for name in list(thing):
            thing[name] = hollow_back if name == "cache_can_go_back" else hollow
KVCache = causal_mask = attention_layer_cached = forward_cached = generate_cached = print
kv_cache_bytes = print
