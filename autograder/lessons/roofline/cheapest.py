"""The cheapest wrong functions for the checks of lesson 05, see `autograder cheapest`.

Some are right as far as they go, and keep their point: a model of these sizes knows its matrices, lesson
03 the bytes of a cache, and each of the timers follows one rule of three.
"""


# %% roof_has_two_parts: the slope alone
def attainable(intensity, machine):
    return intensity * machine.bytes_per_second


# %% attention_is_causal: every token looks at every token
def attention_flops(config, n_new, n_past, batch=1):
    return 4 * batch * config.n_layers * config.d_model * n_new * (n_new + n_past)


# %% matrices_match_the_counter: attention is free, and a layer has 12 squares
def attention_flops(config, n_new, n_past, batch=1):
    return 0


def phase_cost(config, n_new, n_past, batch=1, bytes_per_element=2):
    return Cost(2 * batch * n_new * 12 * config.n_layers * config.d_model**2, 0, 0, 0, 0)


# %% weights_are_read_once: the parameters of a model of these sizes
from course.model import MiniGPT


def phase_cost(config, n_new, n_past, batch=1, bytes_per_element=2):
    with torch.device("meta"):
        n = sum(weight.numel() for weight in MiniGPT(config).parameters())
    return Cost(0, n * bytes_per_element, 0, 0, 0)


# %% weights_are_read_once: the matrices of a model of these sizes, embeddings left out
from course.model import MiniGPT


def phase_cost(config, n_new, n_past, batch=1, bytes_per_element=2):
    with torch.device("meta"):
        names = MiniGPT(config).state_dict().items()
    n = sum(w.numel() for name, w in names if w.dim() == 2 and name != "embed.weight")
    return Cost(0, n * bytes_per_element, 0, 0, 0)


# %% cache_is_read_and_written: lesson 03's bytes of all tokens
from course.minigpt.kv_cache import kv_cache_bytes


def phase_cost(config, n_new, n_past, batch=1, bytes_per_element=2):
    check_between("n_new", n_new, 1, 2**31)
    check_between("n_past", n_past, 0, 2**31)
    check_between("batch", batch, 1, 2**31)
    check_between("bytes_per_element", bytes_per_element, 1, 8)
    n = kv_cache_bytes(config, n_new + n_past, batch, bytes_per_element)
    return Cost(0, 0, n, n, 0)


# %% cache_is_read_and_written: lesson 03's bytes of all tokens, and of the new ones
from course.minigpt.kv_cache import kv_cache_bytes


def phase_cost(config, n_new, n_past, batch=1, bytes_per_element=2):
    check_between("n_new", n_new, 1, 2**31)
    check_between("n_past", n_past, 0, 2**31)
    check_between("batch", batch, 1, 2**31)
    check_between("bytes_per_element", bytes_per_element, 1, 8)
    read = kv_cache_bytes(config, n_new + n_past, batch, bytes_per_element)
    return Cost(0, 0, read, kv_cache_bytes(config, n_new, batch, bytes_per_element), 0)


# %% activations_go_in_and_out: one row for each token, layer and matrix
def phase_cost(config, n_new, n_past, batch=1, bytes_per_element=2):
    rows = 7 * batch * n_new * config.n_layers
    return Cost(0, 0, 0, 0, 2 * rows * config.d_model * bytes_per_element)


# %% bound_is_the_lower_roof: always memory
def bound_by(cost, machine):
    return "memory"


# %% bound_is_the_lower_roof: a hundred FLOPs a byte are many
def bound_by(cost, machine):
    return "memory" if cost.intensity < 100 else "compute"


# %% clock_waits_for_the_work: the last call alone
def time_on_device(fn, device, warmup=2, repeats=5):
    for _ in range(warmup + repeats):
        start = device.now()
        fn()
        device.synchronize()
        seconds = device.now() - start
    return seconds


# %% warm_up_is_not_timed: the last call, from an empty queue
def time_on_device(fn, device, warmup=2, repeats=5):
    check_between("warmup", warmup, 0, 2**31)
    check_between("repeats", repeats, 1, 2**31)
    for _ in range(warmup + repeats):
        device.synchronize()
        start = device.now()
        fn()
        seconds = device.now() - start
    return seconds


# %% one_slow_repeat_changes_nothing: the median of what calls take to be queued
def time_on_device(fn, device, warmup=2, repeats=5):
    seconds = []
    for _ in range(warmup + repeats):
        start = device.now()
        fn()
        seconds.append(device.now() - start)
    return statistics.median(seconds)
