"""Known wrong answers to lesson 05."""

from __future__ import annotations

import dataclasses
import statistics
import time

import torch

from autograder.lessons.exhibits import Museum
from course.measure.costs import Cost
from course.minigpt import roofline as right
from course.minigpt.roofline import attention_flops

MUSEUM = Museum("roofline")


def _attention(config, pairs, batch, heads=None, per_pair=4):
    heads = heads or config.n_heads
    return batch * config.n_layers * heads * pairs * per_pair * config.head_dim


bug, patch = MUSEUM.section("attention_flops", check="attention_is_causal")


@bug("mask", "a count in which new tokens look at tokens that come after them")
def prompt_without_a_mask(config, n_new, n_past, batch=1):
    """T · (P + T) looks: every new token sees those after it as well."""
    return _attention(config, n_new * (n_past + n_new), batch)


@bug("formula", "a count in which nobody looks at what was cached")
def past_is_forgotten(config, n_new, n_past, batch=1):
    """Counts the triangle of the new tokens, and not the block of the cached ones."""
    return _attention(config, n_new * (n_new + 1) // 2, batch)


@bug("off by one", "a count in which a token does not look at itself")
def blind_to_itself(config, n_new, n_past, batch=1):
    """T(T-1)/2: a token does not look at itself."""
    return _attention(config, n_new * n_past + n_new * (n_new - 1) // 2, batch)


@bug("formula", "a count in which only one of the new tokens looks")
def last_token_stands_for_all(config, n_new, n_past, batch=1):
    """P + T looks, right for one new token."""
    return _attention(config, n_past + n_new, batch)


@bug("formula", "a count of the scores without the values")
def scores_alone(config, n_new, n_past, batch=1):
    """Counts q · k, and forgets that the values are weighed and added."""
    pairs = n_new * n_past + n_new * (n_new + 1) // 2
    return _attention(config, pairs, batch, per_pair=2)


@bug("formula", "a count in which only as many heads ask as there are key heads")
def key_heads_ask(config, n_new, n_past, batch=1):
    """G heads in place of H: sharing keys saves bytes, not arithmetic."""
    pairs = n_new * n_past + n_new * (n_new + 1) // 2
    return _attention(config, pairs, batch, heads=config.n_kv_heads)


@bug("formula", "a count of the attention of one layer alone")
def one_layer_of_attention(config, n_new, n_past, batch=1):
    """Forgets that each layer attends."""
    return right.attention_flops(config, n_new, n_past, batch) // config.n_layers


def _changed(cost: Cost, **fields: int) -> Cost:
    return dataclasses.replace(cost, **fields)


def _right(config, n_new, n_past, batch, bytes_per_element) -> Cost:
    return right.phase_cost(config, n_new, n_past, batch, bytes_per_element)


bug, patch = MUSEUM.section("phase_cost", check="matrices_match_the_counter")


@bug("formula", "a count in which a multiplication and its addition are one operation")
def multiply_add_as_one(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Takes one multiply-add for one operation: half of the FLOPs."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    looks = attention_flops(config, n_new, n_past, batch)
    return _changed(cost, flops=looks + (cost.flops - looks) // 2)


@bug("cost", "a bill for the logits of every position")
def logits_of_every_position(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Bills a prompt for logits that nobody asks for."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    more = 2 * batch * (n_new - 1) * config.d_model * config.vocab_size
    return _changed(cost, flops=cost.flops + more)


@bug("formula", "a bill without the matrix that makes the logits")
def head_is_forgotten(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Counts the layers; the last matrix stands after them."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, flops=cost.flops - 2 * batch * config.d_model * config.vocab_size)


@bug("formula", "a bill in which looking up an embedding is a matrix product")
def embedding_is_multiplied(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Takes looking rows up for a product with one-hot rows."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    more = 2 * batch * n_new * config.d_model * config.vocab_size
    return _changed(cost, flops=cost.flops + more)


@bug("formula", "a bill in which the feed-forward part has two matrices")
def two_matrices_in_the_mlp(config, n_new, n_past, batch=1, bytes_per_element=2):
    """GPT-2's MLP has two matrices; SwiGLU has three."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    less = 2 * batch * n_new * config.n_layers * config.d_model * config.d_ff
    return _changed(cost, flops=cost.flops - less)


@bug("formula", "a bill in which keys are as wide as queries")
def keys_as_wide_as_queries(config, n_new, n_past, batch=1, bytes_per_element=2):
    """4·C² for attention: wk and wv have only G·D columns."""
    wide = dataclasses.replace(config, n_kv_heads=config.n_heads)
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, flops=_right(wide, n_new, n_past, batch, bytes_per_element).flops)


@bug("formula", "a bill without the FLOPs of attention")
def attention_left_out(config, n_new, n_past, batch=1, bytes_per_element=2):
    """2 · parameters · tokens, and nothing for looking back."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, flops=cost.flops - attention_flops(config, n_new, n_past, batch))


@bug("formula", "a bill in which a batch is calculated like one row")
def batch_shares_the_work(config, n_new, n_past, batch=1, bytes_per_element=2):
    """A batch shares the weights, but not the arithmetic."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    looks = attention_flops(config, n_new, n_past, batch)
    return _changed(cost, flops=looks + (cost.flops - looks) // batch)


bug, patch = MUSEUM.section("phase_cost", check="weights_are_read_once")


@bug("formula", "a bill in which weights are read again for every token")
def weights_for_every_token(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Reads every matrix again for every token: prefill would be decode."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, weight_bytes=cost.weight_bytes * n_new * batch)


@bug("formula", "a bill in which every row of a batch reads the weights anew")
def weights_for_every_row(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Multiplies the weights by the batch: batching would gain nothing."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, weight_bytes=cost.weight_bytes * batch)


@bug("formula", "a bill that reads the whole embedding table")
def whole_table_is_read(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Bytes of all parameters: but of the embedding table a few rows are looked up."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    table = config.d_model * config.vocab_size * bytes_per_element
    return _changed(cost, weight_bytes=cost.weight_bytes + table * (not config.tie_embeddings))


@bug("formula", "a bill in which a tied head need not be read")
def tied_head_costs_nothing(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Tied means stored once. The logits still read it."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    table = config.d_model * config.vocab_size * bytes_per_element
    return _changed(cost, weight_bytes=cost.weight_bytes - table * config.tie_embeddings)


@bug("formula", "a count of numbers where bytes were asked for")
def weights_in_numbers(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Counts parameters and calls them bytes."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, weight_bytes=cost.weight_bytes // bytes_per_element)


def _layer_weights(config) -> int:
    C, kv = config.d_model, config.n_kv_heads * config.head_dim
    return config.n_layers * (2 * C * C + 2 * C * kv + 3 * C * config.d_ff)


@bug("formula", "a bill of the layers alone")
def layers_without_the_head(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Adds the layers up and stops before lm_head."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, weight_bytes=_layer_weights(config) * bytes_per_element)


bug, patch = MUSEUM.section("phase_cost", check="cache_is_read_and_written")


@bug("formula", "a bill without the cache")
def no_cache_in_the_bill(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Weights only: fine for a short text and one user."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, kv_read_bytes=0, kv_written_bytes=0)


@bug("formula", "a bill for a cache of as many heads as there are queries")
def cache_of_query_heads(config, n_new, n_past, batch=1, bytes_per_element=2):
    """H heads in place of G: what GQA saves is billed."""
    cost, share = _right(config, n_new, n_past, batch, bytes_per_element), config.n_heads
    share //= config.n_kv_heads
    return _changed(
        cost,
        kv_read_bytes=cost.kv_read_bytes * share,
        kv_written_bytes=cost.kv_written_bytes * share,
    )


@bug("off by one", "a bill in which new tokens are written and not read")
def new_tokens_are_not_read(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Reads P rows: but a new token looks at itself as well."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, kv_read_bytes=cost.kv_read_bytes - cost.kv_written_bytes)


@bug("formula", "a bill for keys, without values")
def keys_without_values(config, n_new, n_past, batch=1, bytes_per_element=2):
    """A cache holds two tensors."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(
        cost,
        kv_read_bytes=cost.kv_read_bytes // 2,
        kv_written_bytes=cost.kv_written_bytes // 2,
    )


@bug("formula", "a bill in which all rows of a batch share one cache")
def batch_shares_a_cache(config, n_new, n_past, batch=1, bytes_per_element=2):
    """The weights are shared, so the cache seems to be."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(
        cost,
        kv_read_bytes=cost.kv_read_bytes // batch,
        kv_written_bytes=cost.kv_written_bytes // batch,
    )


@bug("formula", "a bill in which each token of a chunk reads the cache anew")
def cache_is_read_by_every_token(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Reads the cache once a token: but attention of a chunk reads it once."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, kv_read_bytes=cost.kv_read_bytes * n_new)


@bug("writes", "a bill in which the whole cache is written in every pass")
def cache_is_written_anew(config, n_new, n_past, batch=1, bytes_per_element=2):
    """As with torch.cat, every old row is written again."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, kv_written_bytes=cost.kv_read_bytes)


@bug("formula", "a count of the numbers in a cache, not of their bytes")
def cache_in_numbers(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Leaves the element size out."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(
        cost,
        kv_read_bytes=cost.kv_read_bytes // bytes_per_element,
        kv_written_bytes=cost.kv_written_bytes // bytes_per_element,
    )


bug, patch = MUSEUM.section("phase_cost", check="activations_go_in_and_out")


@bug("formula", "a bill in which one row goes through, however many there are")
def activations_of_one_row(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Decode of one user, for ever."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    one = _right(config, 1, 0, 1, bytes_per_element)
    return _changed(cost, activation_bytes=one.activation_bytes)


@bug("cost", "a bill for activations of logits that nobody asked for")
def activations_of_all_logits(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Lets every position go through lm_head."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    more = batch * (n_new - 1) * (config.d_model + config.vocab_size) * bytes_per_element
    return _changed(cost, activation_bytes=cost.activation_bytes + more)


@bug("formula", "a bill for what goes into the matrices, without what comes out")
def activations_go_in_only(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Counts what is read and not what is written."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    kv = config.n_kv_heads * config.head_dim
    out = 3 * config.d_model + 2 * kv + 2 * config.d_ff
    less = batch * (n_new * config.n_layers * out + config.vocab_size)
    return _changed(cost, activation_bytes=cost.activation_bytes - less * bytes_per_element)


@bug("formula", "a count of activations, not of their bytes")
def activations_in_numbers(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Leaves the element size out."""
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, activation_bytes=cost.activation_bytes // bytes_per_element)


bug, patch = MUSEUM.section("attainable", check="roof_has_two_parts")


@bug("formula", "a roof that is made of the higher of the two limits")
def higher_roof(intensity, machine):
    """max in place of min: the roofs are turned upside down."""
    return max(machine.flops_per_second, intensity * machine.bytes_per_second)


@bug("formula", "a roof that rises for ever")
def slope_without_an_end(intensity, machine):
    """Intensity times bandwidth, above every peak."""
    return intensity * machine.bytes_per_second


@bug("formula", "a roof that is flat everywhere")
def flat_everywhere(intensity, machine):
    """What the datasheet promises, whatever the work."""
    return machine.flops_per_second


@bug("formula", "a rate of bytes where one of FLOPs was asked for")
def bytes_for_flops(intensity, machine):
    """Compares FLOP/s with byte/s."""
    return min(machine.flops_per_second, machine.bytes_per_second)


@bug("formula", "a machine that does not read while it calculates")
def one_after_the_other(intensity, machine):
    """Adds the two times: but a machine reads ahead while it calculates."""
    slope = intensity * machine.bytes_per_second
    return 1 / (1 / machine.flops_per_second + 1 / slope)


@bug("formula", "a rate that falls as the intensity rises")
def divides_by_the_intensity(intensity, machine):
    """Turns the unit round: byte/s over FLOP/byte."""
    return min(machine.flops_per_second, machine.bytes_per_second / intensity)


bug, patch = MUSEUM.section("bound_by", check="bound_is_the_lower_roof")


@bug("choice", "a ridge whose two sides are exchanged")
def ridge_the_wrong_way_round(cost, machine):
    """> in place of <: decode would be compute-bound."""
    return "memory" if cost.intensity > machine.balance else "compute"


@bug("formula", "a ridge that is the same on every machine")
def ridge_at_one(cost, machine):
    """Compares FLOPs with bytes, on every machine alike."""
    return "memory" if cost.intensity < 1 else "compute"


@bug("formula", "a bound that looks at the weights alone")
def weights_decide(cost, machine):
    """Forgets that a large batch reads more cache than weights."""
    return "memory" if cost.flops < cost.weight_bytes * machine.balance else "compute"


@bug("formula", "a bound that leaves the activations out")
def activations_do_not_count(cost, machine):
    """Adds up weights and cache."""
    moved = cost.bytes - cost.activation_bytes
    return "memory" if cost.flops < moved * machine.balance else "compute"


@bug("formula", "a bound that leaves out what is written")
def written_bytes_are_free(cost, machine):
    """Adds up what is read, and not what is written."""
    moved = cost.bytes - cost.kv_written_bytes
    return "memory" if cost.flops < moved * machine.balance else "compute"


@bug("form", "a bool in the place of a word")
def says_whether(cost, machine):
    """Returns a bool where a word was asked for."""
    return cost.intensity < machine.balance


bug, patch = MUSEUM.section("time_on_device", check="clock_waits_for_the_work")


@bug("timing", "a clock that never waits for the work")
def never_waits(fn, device, warmup=2, repeats=5):
    """No synchronize around the repeats: microseconds for anything."""
    for _ in range(warmup):
        fn()
    device.synchronize()
    seconds = []
    for _ in range(repeats):
        start = device.now()
        fn()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


@bug("timing", "readings that are kept in too few digits for this clock")
def keeps_readings_in_float32(fn, device, warmup=2, repeats=5):
    """torch.tensor makes float32 of the readings: a clock that has run for months loses its
    digits."""
    for _ in range(warmup):
        fn()
    readings = []
    for _ in range(repeats):
        device.synchronize()
        start = device.now()
        fn()
        device.synchronize()
        readings.append([start, device.now()])
    start, end = torch.tensor(readings).unbind(dim=1)  # (repeats,) each
    return float((end - start).median())


@bug("timing", "a clock that is stopped before the work is waited for")
def stops_the_clock_first(fn, device, warmup=2, repeats=5):
    """Reads the clock, then synchronizes."""
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        device.synchronize()
        start = device.now()
        fn()
        end = device.now()
        device.synchronize()
        seconds.append(end - start)
    return statistics.median(seconds)


@bug("timing", "a clock that is read once for all repeats, whose calls overlap")
def waits_once_for_all(fn, device, warmup=2, repeats=5):
    """One synchronize after the loop, divided by the repeats: calls overlap, and an outlier
    counts."""
    for _ in range(warmup):
        fn()
    device.synchronize()
    start = device.now()
    for _ in range(repeats):
        fn()
    device.synchronize()
    return (device.now() - start) / repeats


@bug("timing", "the time of all repeats together")
def all_repeats_together(fn, device, warmup=2, repeats=5):
    """Forgets to divide: the time of all calls."""
    for _ in range(warmup):
        fn()
    device.synchronize()
    start = device.now()
    for _ in range(repeats):
        fn()
        device.synchronize()
    return device.now() - start


@bug("timing", "a clock that is not the device's")
def another_clock(fn, device, warmup=2, repeats=5):
    """time.perf_counter: the wall's clock, where the device has its own."""
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        device.synchronize()
        start = time.perf_counter()
        fn()
        device.synchronize()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


@bug("timing", "repeats that are all measured from one start")
def one_start_for_all(fn, device, warmup=2, repeats=5):
    """Starts the clock before the loop: each repeat carries all before it."""
    for _ in range(warmup):
        fn()
    device.synchronize()
    start, seconds = device.now(), []
    for _ in range(repeats):
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


bug, patch = MUSEUM.section("time_on_device", check="warm_up_is_not_timed")


@bug("timing", "a clock that starts while earlier work is still queued")
def starts_while_busy(fn, device, warmup=2, repeats=5):
    """No synchronize before the loop: the first repeat pays for the warm-up's queue."""
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        start = device.now()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


@bug("timing", "a wait that comes before the warm-up and not after it")
def waits_before_the_warm_up(fn, device, warmup=2, repeats=5):
    """Synchronizes first and warms up then."""
    device.synchronize()
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        start = device.now()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


@bug("timing", "a clock that runs while old work is waited for")
def clock_before_the_wait(fn, device, warmup=2, repeats=5):
    """Reads the clock, then synchronizes, then calls."""
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        start = device.now()
        device.synchronize()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


@bug("timing", "a result in which the warm-up calls count")
def warm_up_counts(fn, device, warmup=2, repeats=5):
    """One loop over warmup + repeats: compiling is measured."""
    seconds = []
    for _ in range(warmup + repeats):
        device.synchronize()
        start = device.now()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


@bug("timing", "a timer that never warms up")
def no_warm_up(fn, device, warmup=2, repeats=5):
    """Ignores warmup."""
    seconds = []
    for _ in range(repeats):
        device.synchronize()
        start = device.now()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


@bug("timing", "a timer that warms up once, whatever was asked")
def always_one_warm_up(fn, device, warmup=2, repeats=5):
    """Warms up once, whatever was asked."""
    fn()
    return no_warm_up(fn, device, 0, repeats)


@bug("timing", "a timer that warms up once more than asked")
def one_warm_up_more(fn, device, warmup=2, repeats=5):
    """range(warmup + 1): a call that nobody asked for."""
    for _ in range(warmup + 1):
        fn()
    return no_warm_up(fn, device, 0, repeats)


@bug("timing", "a wait that is left out when there is no warm-up")
def waits_only_after_a_warm_up(fn, device, warmup=2, repeats=5):
    """synchronize stands in the warm-up's loop: with warmup=0 it never runs."""
    for _ in range(warmup):
        fn()
        device.synchronize()
    seconds = []
    for _ in range(repeats):
        start = device.now()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


def _times(fn, device, warmup, repeats):
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        device.synchronize()
        start = device.now()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return seconds


bug, patch = MUSEUM.section("time_on_device", check="one_slow_repeat_changes_nothing")


@bug("timing", "a mean in the place of a median")
def takes_the_mean(fn, device, warmup=2, repeats=5):
    """One disturbed call drags the mean along."""
    return statistics.mean(_times(fn, device, warmup, repeats))


@bug("timing", "the shortest of all repeats")
def takes_the_best(fn, device, warmup=2, repeats=5):
    """The luckiest call."""
    return min(_times(fn, device, warmup, repeats))


@bug("timing", "the longest of all repeats")
def takes_the_worst(fn, device, warmup=2, repeats=5):
    """The unluckiest call."""
    return max(_times(fn, device, warmup, repeats))


@bug("timing", "the time of the last repeat alone")
def takes_the_last(fn, device, warmup=2, repeats=5):
    """Overwrites the time in each turn of the loop."""
    return _times(fn, device, warmup, repeats)[-1]


@bug("timing", "the middle of a list that nobody sorted")
def middle_of_an_unsorted_list(fn, device, warmup=2, repeats=5):
    """Takes the middle of the list without sorting it."""
    return _times(fn, device, warmup, repeats)[repeats // 2]
