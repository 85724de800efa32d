"""The cheapest wrong functions for the checks of lesson 08, see `autograder cheapest`."""


# %% mask_counts_itself: a window without sinks
def window_mask(own, places, window, n_sinks=0):
    check_window(window, n_sinks)
    return (places <= own[:, None]) & (places > own[:, None] - window)


# %% sinks_are_no_future: sinks and the token itself, no window
def window_mask(own, places, window, n_sinks=0):
    return (places == own[:, None]) | (places < own[:, None]) & (places < n_sinks)


# %% one_place_each: a ring without sinks
def place_of(tokens, window, n_sinks=0):
    return tokens % window


# %% gone_is_gone_kept_is_kept: lesson 03's cache, from which nothing goes
from course.minigpt.kv_cache import KVCache


class WindowedKVCache(KVCache):
    def __init__(self, config, batch, max_len, window, n_sinks=0, dtype=torch.float32):
        super().__init__(config, batch, max_len, dtype)
        self.window, self.n_sinks = window, n_sinks

    def places(self, n_new):
        return torch.arange(len(self) + n_new)


# %% every_split_equals_the_windowed_model: lesson 03's cache behind a window, our mask by follow-through
from course.minigpt.kv_cache import KVCache


class WindowedKVCache(KVCache):
    def __init__(self, config, batch, max_len, window, n_sinks=0, dtype=torch.float32):
        super().__init__(config, batch, max_len, dtype)
        self.window, self.n_sinks = window, n_sinks

    def places(self, n_new):
        tokens = torch.arange(len(self) + n_new)
        return tokens[(tokens < self.n_sinks) | (tokens >= len(self) - self.window)]

    def append(self, layer, k, v):
        at = self.places(k.shape[2])
        k, v = super().append(layer, k, v)
        return k[:, :, at], v[:, :, at]


# %% append_alone_changes_nothing: lesson 03's cache, copied as it is read
from course.minigpt.kv_cache import KVCache


class WindowedKVCache(KVCache):
    def __init__(self, config, batch, max_len, window, n_sinks=0, dtype=torch.float32):
        super().__init__(config, batch, max_len, dtype)
        self.window, self.n_sinks = window, n_sinks

    def places(self, n_new):
        return torch.arange(len(self) + n_new)

    def append(self, layer, k, v):
        return [rows.clone() for rows in super().append(layer, k, v)]


# %% refusal_and_return: lesson 03's cache, which goes back one token or to none
from course.minigpt.kv_cache import KVCache


class WindowedKVCache(KVCache):
    def __init__(self, config, batch, max_len, window, n_sinks=0, dtype=torch.float32):
        super().__init__(config, batch, max_len, dtype)
        self.window, self.n_sinks = window, n_sinks

    def places(self, n_new):
        return torch.arange(len(self) + n_new)

    def truncate(self, n):
        if n not in (0, len(self) - 1, len(self)):
            raise ValueError("too far")
        super().truncate(n)


# %% bytes_stay: a storage of the right size, into which nothing is written
from course.minigpt.kv_cache import KVCache


class WindowedKVCache(KVCache):
    def __init__(self, config, batch, max_len, window, n_sinks=0, dtype=torch.float32):
        super().__init__(config, batch, min(max_len, n_sinks + window), dtype)

    def append(self, layer, k, v):
        return k, v

    def advance(self, n):
        pass


# %% bytes_by_layer: lesson 03's formula for the tokens that are held
from course.minigpt.kv_cache import kv_cache_bytes


def windowed_cache_bytes(config, n_tokens, window, n_sinks=0, n_full_layers=0, *others):
    return kv_cache_bytes(config, min(n_tokens, window + n_sinks), *others)
